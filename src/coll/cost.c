#include "coll/cost.h"

#include "coll/profile.h"

static const char *const names[GMI_KINDS] = { "memory", "loopback", "network" };

const char *gmi_link_kind_name(enum gmi_link_kind kind) { return names[kind]; }

uint32_t *gmi_link_constant(struct gmi_link_costs *c, int index)
{
    uint32_t *const all[] = { &c->turn_ns, &c->message_ns, &c->byte_ps, &c->reduce_ps, &c->keep_ps, &c->cache_bytes };
    return index < (int)(sizeof all / sizeof all[0]) ? all[index] : NULL;
}

/* ---- the time ---------------------------------------------------------------------------------- */

static double larger(double a, double b) { return a > b ? a : b; }

static double moved_bytes(const struct gmi_costs *c, enum gmi_link_kind kind, const struct gmi_effort *e)
{
    if (kind != GMI_KIND_NETWORK) return larger((e->sent_bytes + e->recv_bytes) / 2, e->all_bytes / c->n_cores);
    double ranks_to_a_link = e->stays_with_neighbours ? c->most_on_a_host : 1;
    return larger(larger(e->sent_bytes, e->recv_bytes), e->all_bytes / (c->n_hosts * ranks_to_a_link));
}

double gmi_cost_us(const struct gmi_costs *c, enum gmi_link_kind kind, const struct gmi_effort *e)
{
    const struct gmi_link_costs *k = &c->profile.kinds[kind];
    double waiting_ns = e->turns * k->turn_ns * (kind == GMI_KIND_NETWORK ? 1 : c->crowd);
    double spilled_bytes = larger(0, e->kept_bytes - k->cache_bytes);
    double working_ps = c->crowd * (e->reduced_bytes * k->reduce_ps + spilled_bytes * k->keep_ps);
    double handling_ns = larger(e->messages, e->all_messages / (c->n_cores * c->n_hosts)) * k->message_ns;
    return (waiting_ns + handling_ns + (working_ps + moved_bytes(c, kind, e) * k->byte_ps) / 1e3) / 1e3;
}

struct gmi_costs gmi_costs_of_host(int n_ranks, int n_cores, enum gmi_link_kind kind)
{
    struct gmi_costs costs = { .n_ranks = n_ranks, .n_hosts = 1, .most_on_a_host = n_ranks, .n_cores = n_cores,
                               .crowd = larger(1, (double)n_ranks / n_cores), .kind = kind, .kind_within = kind };
    gmi_profile_builtin(&costs.profile);
    return costs;
}

struct gmi_site gmi_costs_site(const struct gmi_costs *c)
{
    int n_used = c->n_cores < c->most_on_a_host ? c->n_cores : c->most_on_a_host;
    return (struct gmi_site){ .kind = (uint8_t)c->kind, .n_ranks = (uint16_t)c->n_ranks, .n_cores = (uint16_t)n_used,
                               .n_hosts = (uint16_t)c->n_hosts };
}
