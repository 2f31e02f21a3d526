#include "coll/cost.h"

#include <stdlib.h>
#include <string.h>

/* Fitted to measurements of every algorithm on one machine of 2 cores (docs/tuning.md), the first two; the network is
 * one of 10 Gbit/s. Turn, message, byte, reduce, keep, cache. */
const struct gmi_profile gmi_builtin_profile = { {
    [GMI_KIND_MEMORY] = { 300, 900, 160, 37, 156, 84000 },
    [GMI_KIND_LOOPBACK] = { 1250, 4350, 126, 48, 90, 73000 },
    [GMI_KIND_NETWORK] = { 30000, 5000, 800, 50, 50, 1000000 },
} };

static const char *const names[GMI_KINDS] = { "memory", "loopback", "network" };

const char *gmi_link_kind_name(enum gmi_link_kind kind) { return names[kind]; }

/* ---- profiles ---------------------------------------------------------------------------------- */

static const char *const constants[] = { "turn_ns", "message_ns", "byte_ps", "reduce_ps", "keep_ps", "cache_bytes" };

enum { N_CONSTANTS = sizeof constants / sizeof constants[0] };

uint32_t *gmi_link_constant(struct gmi_link_costs *c, int index)
{
    uint32_t *const all[N_CONSTANTS] = { &c->turn_ns, &c->message_ns, &c->byte_ps, &c->reduce_ps, &c->keep_ps, &c->cache_bytes };
    return index < N_CONSTANTS ? all[index] : NULL;
}

/* NULL: a key of somebody else. *is_known false: of ours, and there is no such constant. */
static uint32_t *constant_of(struct gmi_profile *profile, const char *key, bool *is_known)
{
    *is_known = true;
    for (int kind = 0; kind < GMI_KINDS; kind++) {
        size_t n = strlen(names[kind]);
        if (strncmp(key, names[kind], n) != 0 || key[n] != '.') continue;
        for (int i = 0; i < N_CONSTANTS; i++) {
            if (strcmp(key + n + 1, constants[i]) == 0) return gmi_link_constant(&profile->kinds[kind], i);
        }
        *is_known = false;
    }
    return NULL;
}

static bool read_line(struct gmi_profile *profile, char *line)
{
    bool  is_known;
    char *value = strchr(line, '=');
    if (line[0] == '#' || line[strspn(line, " \t\r")] == '\0') return true;
    if (value == NULL) return false;
    *value++ = '\0';
    uint32_t *constant = constant_of(profile, line, &is_known);
    if (constant == NULL) return is_known;
    char              *end;
    unsigned long long n = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || end[strspn(end, " \t\r")] != '\0' || n > UINT32_MAX) return false;
    *constant = (uint32_t)n;
    return true;
}

int gmi_profile_read(struct gmi_profile *profile, char *text)
{
    char *line;
    for (int number = 1; (line = strsep(&text, "\n")) != NULL; number++) {
        if (!read_line(profile, line)) return number;
    }
    return 0;
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
    return (struct gmi_costs){ .n_ranks = n_ranks, .n_hosts = 1, .most_on_a_host = n_ranks, .n_cores = n_cores,
                               .crowd = larger(1, (double)n_ranks / n_cores), .kind = kind, .kind_within = kind,
                               .profile = gmi_builtin_profile };
}
