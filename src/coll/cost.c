#include "coll/cost.h"

/* Fitted to measurements of every algorithm on one machine of 2 cores; the network is one of 10 Gbit/s. */
const struct gmi_profile gmi_builtin_profile = { {
    [GMI_KIND_MEMORY] = { .turn_ns = 3000, .message_ns = 1000, .byte_ps = 130, .reduce_ps = 20, .keep_ps = 100,
                          .cache_bytes = 256 * 1024 },
    [GMI_KIND_LOOPBACK] = { .turn_ns = 14000, .message_ns = 3000, .byte_ps = 250, .reduce_ps = 20, .keep_ps = 100,
                            .cache_bytes = 256 * 1024 },
    [GMI_KIND_NETWORK] = { .turn_ns = 30000, .message_ns = 5000, .byte_ps = 800, .reduce_ps = 50, .keep_ps = 50,
                           .cache_bytes = 1024 * 1024 },
} };

static const char *const names[GMI_KINDS] = { "memory", "loopback", "network" };

const char *gmi_link_kind_name(enum gmi_link_kind kind) { return names[kind]; }

static double larger(double a, double b) { return a > b ? a : b; }

static double moved_bytes(const struct gmi_costs *c, enum gmi_link_kind kind, const struct gmi_effort *e)
{
    if (kind != GMI_KIND_NETWORK) return larger(e->path_bytes, e->all_bytes / c->n_cores);
    double ranks_to_a_link = e->stays_with_neighbours ? c->most_on_a_host : 1;
    return larger(e->path_bytes, e->all_bytes / (c->n_hosts * ranks_to_a_link));
}

double gmi_cost_us(const struct gmi_costs *c, enum gmi_link_kind kind, const struct gmi_effort *e)
{
    const struct gmi_link_costs *k = &c->profile.kinds[kind];
    double waiting_ns = e->turns * k->turn_ns * (kind == GMI_KIND_NETWORK ? 1 : c->crowd);
    double spilled_bytes = larger(0, e->kept_bytes - k->cache_bytes);
    double working_ps = e->messages * k->message_ns * 1e3 + e->reduced_bytes * k->reduce_ps + spilled_bytes * k->keep_ps;
    return (waiting_ns + (c->crowd * working_ps + moved_bytes(c, kind, e) * k->byte_ps) / 1e3) / 1e3;
}

struct gmi_costs gmi_costs_of_host(int n_ranks, int n_cores, enum gmi_link_kind kind)
{
    return (struct gmi_costs){ .n_ranks = n_ranks, .n_hosts = 1, .most_on_a_host = n_ranks, .n_cores = n_cores,
                               .crowd = larger(1, (double)n_ranks / n_cores), .kind = kind, .kind_within = kind,
                               .profile = gmi_builtin_profile };
}
