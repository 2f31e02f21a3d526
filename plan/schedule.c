#include "plan/schedule.h"

#include <string.h>

#include "base/alloc.h"
#include "plan/charge.h"

/* An algorithm that was not made for all-reduce serves for one in two calls. */
static const struct {
    const char *name, *of_library, *summary;
} pairs[] = {
    { "tree", "tree", "a reduce up a binomial tree, then a broadcast down: D bytes on each edge each way, 2 log2 N rounds" },
    { "chain", "ring", "a reduce along the ring, then a broadcast: pipelines of N hops each" },
};

enum {
    N_PAIRS = sizeof pairs / sizeof pairs[0],
    MAX_ENDS = 1 << 23,          /* half a KiB each */
    MAX_LEAN_RANKS = 1024,       /* it looks at every peer whenever something has come */
    NAIVE_BLOCK_BYTES = 64 * 1024,
};
static const double MAX_TRANSFERS = 1e9;

static const struct gmi_algo *row_of(const char *name, gm_collective which)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->collective == which && row->shows < GMI_VIEW_EXACT && strcmp(row->name, name) == 0) return row;
    }
    return NULL;
}

struct plan_schedule plan_schedule_find(const char *name)
{
    const struct gmi_algo *row = row_of(name, GM_ALL_REDUCE);
    if (row != NULL) return (struct plan_schedule){ row->name, row->summary, { row }, 1 };
    for (int i = 0; i < N_PAIRS; i++) {
        if (strcmp(pairs[i].name, name) != 0) continue;
        const char *of_library = pairs[i].of_library;
        return (struct plan_schedule){ pairs[i].name, pairs[i].summary,
                                       { row_of(of_library, GM_REDUCE), row_of(of_library, GM_BROADCAST) }, 2 };
    }
    return (struct plan_schedule){ 0 };
}

struct plan_schedule plan_schedule_behind_barrier(const struct plan_schedule *schedule, int n_ranks, int n_cores)
{
    struct gmi_costs     costs = gmi_costs_of_host(n_ranks, n_cores, GMI_KIND_LOOPBACK);
    struct plan_schedule s = *schedule;
    s.stages[0] = gmi_algo_choose(schedule->name, GM_BARRIER, &costs, 0, GMI_VIEW_PAIRS);
    s.n_stages = 1 + schedule->n_stages;
    for (int i = 0; i < schedule->n_stages; i++) s.stages[1 + i] = schedule->stages[i];
    return s;
}

const char *plan_simulated_algorithm(int index)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->collective == GM_ALL_REDUCE && row->shows < GMI_VIEW_EXACT && index-- == 0) return row->name;
    }
    return index < N_PAIRS ? pairs[index].name : NULL;
}

const char *plan_simulated_algorithm_summary(const char *name) { return plan_schedule_find(name).summary; }

size_t plan_bucket_elems(const struct plan_simulation *s, int bucket)
{
    return gmi_chunk_elems(s->bytes / sizeof(float), plan_n_buckets(s), bucket);
}

gm_status plan_layout(struct gmi_layout *layout, int n_ranks, int ranks_per_host)
{
    uint64_t *host_ids = gmi_alloc((size_t)n_ranks, sizeof *host_ids);
    if (host_ids == NULL) return GM_ERR_NOMEM;
    for (int rank = 0; rank < n_ranks; rank++) host_ids[rank] = 1 + (uint64_t)(rank / ranks_per_host);
    gm_status status = gmi_layout_init(layout, host_ids, n_ranks);
    gmi_free(host_ids);
    return status;
}

struct gmi_request plan_request(const struct gmi_algo *row, const struct gmi_codec *codec, int rank, size_t count_elems,
                                void *memory)
{
    bool has_root = gmi_has_root(row->collective), is_reduction = row->collective != GM_BROADCAST;
    if (row->collective == GM_BARRIER)
        return (struct gmi_request){ .which = GM_BARRIER, .redop = -1, .root = -1, .codec = gmi_codec_mover(1) };
    struct gmi_request r = { .which = row->collective, .send = memory, .recv = memory, .count_elems = count_elems,
                             .dtype = GM_F32, .redop = is_reduction ? GM_SUM : -1, .root = has_root ? 0 : -1 };
    if (row->collective == GM_REDUCE && rank != r.root) r.recv = NULL;
    r.codec = is_reduction ? *codec : gmi_codec_mover(sizeof(float));
    return r;
}

uint64_t plan_formula_payload_bytes(const struct plan_simulation *s, int rank)
{
    struct plan_schedule   schedule = plan_schedule_find(s->algorithm);
    const struct gmi_wire *wire = NULL;
    struct gmi_wire        lean;
    struct gmi_group       group = { .rank = rank, .n_ranks = s->n_ranks };
    uint64_t               bytes = 0, anywhere[1];
    if (s->n_ranks == 1) return 0;
    if (s->wire != NULL && !gmi_wire_find(s->wire, &wire)) return 0;
    if (plan_layout(&group.layout, s->n_ranks, s->ranks_per_host > 0 ? s->ranks_per_host : 1) != GM_OK) return 0;
    struct gmi_codec codec = plan_charging_codec(wire, &lean);
    for (int bucket = 0; bucket < plan_n_buckets(s); bucket++) {
        for (int stage = 0; stage < schedule.n_stages; stage++) {
            const struct gmi_algo *row = schedule.stages[stage];
            struct gmi_request     request = plan_request(row, &codec, rank, plan_bucket_elems(s, bucket), anywhere);
            struct gmi_shape       shape = gmi_request_shape(&request, &group);
            bytes += row->payload_sent_bytes(&shape);
        }
    }
    gmi_layout_fini(&group.layout);
    return bytes;
}

/* ---- what can be simulated ----------------------------------------------------------------------- */

static bool is_between_all(const struct gmi_algo *row)
{
    return row->id == GMI_ALGO_DIRECT || row->id == GMI_ALGO_EXCHANGE || row->id == GMI_ALGO_LEAN;
}

bool plan_can_simulate(const struct plan_simulation *s, const char **why)
{
    struct plan_schedule   schedule = plan_schedule_find(s->algorithm);
    const struct gmi_algo *row = schedule.stages[0];
    bool                   is_encoded = s->wire != NULL && strcmp(s->wire, "f32") != 0;
    double                 n = s->n_ranks;
    *why = row == NULL ? "there is no such algorithm" : NULL;
    if (row == NULL) return false;
    if (is_encoded && row->shows != GMI_VIEW_LEAN) *why = "it sends f32 only";
    else if (!is_encoded && row->shows == GMI_VIEW_LEAN) *why = "it is for wire formats other than f32";
    else if (row->max_ranks != 0 && s->n_ranks > row->max_ranks) *why = "it is for at most 16 ranks";
    else if (row->id == GMI_ALGO_HIERARCHICAL && (s->ranks_per_host <= 1 || s->ranks_per_host >= s->n_ranks))
        *why = "it is for several hosts with several ranks each";
    else if (row->id == GMI_ALGO_LEAN && s->n_ranks > MAX_LEAN_RANKS) *why = "so many ranks would take it too long";
    else if (is_between_all(row) && n * (n - 1) > MAX_ENDS) *why = "it needs a link between any two ranks: too many for memory";
    else if (row->id == GMI_ALGO_NAIVE && n * (n - 1) * (1 + (double)s->bytes / NAIVE_BLOCK_BYTES) > MAX_TRANSFERS)
        *why = "it would move too many blocks: D (N-1) bytes by every rank";
    return *why == NULL;
}
