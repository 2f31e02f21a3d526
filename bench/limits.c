#include "bench/limits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench/limits_parts.h"

enum { KIB = 1024, MIB = 1024 * 1024, MAX_CONGESTIONS = 8 };

static const struct {
    const char *name;
} kinds[BENCH_LIMIT_KINDS] = {
    [BENCH_COPY] = { "copy" }, [BENCH_REDUCE] = { "reduce" }, [BENCH_EXACT] = { "exact" }, [BENCH_CIPHER] = { "cipher" },
    [BENCH_ONEWAY] = { "oneway" },
    [BENCH_DUPLEX] = { "duplex" }, [BENCH_PING] = { "ping" },
};

static const char *const channels[] = {
    [BENCH_MEMORY] = "memory", [BENCH_TCP] = "tcp", [BENCH_UNIX] = "unix", [BENCH_SHM] = "shm",
};

const char *bench_limit_name(enum bench_limit_kind kind) { return kinds[kind].name; }
const char *bench_channel_name(enum bench_channel channel) { return channels[channel]; }

/* ---- the variants ------------------------------------------------------------------------------ */

static const size_t write_sizes[] = { 64 * KIB, 256 * KIB, MIB, 4 * MIB };
static const int    buffer_sizes[] = { 0, 4 * MIB };
enum { N_WRITES = 4, N_BUFFERS = 2, ARRAY_BYTES = 25 * MIB };

struct list {
    const struct bench_plan *plan;
    struct bench_limit      *limits;
    size_t                   n_limits, max;
    char congestions[MAX_CONGESTIONS][BENCH_CONGESTION_BYTES]; /* empty: as the machine has it */
    int    n_congestions;
};

static void add(struct list *list, struct bench_limit limit)
{
    bool is_wanted = (list->plan->kinds & 1u << limit.kind) != 0 &&
                     (!list->plan->is_tcp_only || limit.channel == BENCH_TCP);
    if (is_wanted && list->n_limits < list->max) list->limits[list->n_limits++] = limit;
}

/* Every congestion control that a process without privileges may choose; where the system does
   not say, its own. */
static void find_congestions(struct list *list)
{
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "re");
    while (file != NULL && list->n_congestions < MAX_CONGESTIONS &&
           fscanf(file, "%15s", list->congestions[list->n_congestions]) == 1) {
        list->n_congestions++;
    }
    if (file != NULL) fclose(file);
    if (list->n_congestions == 0) list->n_congestions = 1;
}

/* One kind over sockets, in all its variants. */
static void add_sockets(struct list *list, enum bench_limit_kind kind, int n_processes)
{
    for (int w = 0; w < N_WRITES; w++) {
        struct bench_limit limit = { .kind = kind, .channel = BENCH_TCP, .n_processes = n_processes,
                                     .array_bytes = ARRAY_BYTES, .write_bytes = write_sizes[w] };
        for (int c = 0; c < list->n_congestions; c++) {
            memcpy(limit.congestion, list->congestions[c], sizeof limit.congestion);
            for (int b = 0; b < N_BUFFERS; b++) {
                limit.buffer_bytes = buffer_sizes[b];
                add(list, limit);
            }
        }
        limit.channel = BENCH_UNIX;
        limit.congestion[0] = '\0';
        add(list, limit); /* with the large buffers; Unix sockets do not grow theirs */
    }
}

static void add_memory(struct list *list)
{
    const size_t arrays[] = { 256 * KIB, 64 * MIB }; /* in a core's cache, and not */
    for (int kind = BENCH_COPY; kind <= BENCH_CIPHER; kind++)
        for (int i = 0; i < 2; i++)
            add(list, (struct bench_limit){ .kind = (enum bench_limit_kind)kind,
                                            .channel = BENCH_MEMORY,
                                            .n_processes = 1,
                                            .array_bytes = arrays[i] });
}

static void add_shm(struct list *list)
{
    for (int w = 0; w + 1 < N_WRITES; w++)
        add(list, (struct bench_limit){ .kind = BENCH_ONEWAY,
                                        .channel = BENCH_SHM,
                                        .n_processes = 2,
                                        .array_bytes = ARRAY_BYTES,
                                        .write_bytes = write_sizes[w] });
}

static void add_pings(struct list *list)
{
    /* In shared memory one can only look. */
    for (int channel = BENCH_TCP; channel <= BENCH_SHM; channel++)
        for (int spins = channel == BENCH_SHM; spins < 2; spins++)
            add(list, (struct bench_limit){ .kind = BENCH_PING,
                                            .channel = (enum bench_channel)channel,
                                            .n_processes = 2,
                                            .write_bytes = 4,
                                            .is_spinning = spins });
}

size_t bench_limits_plan(const struct bench_plan *plan, struct bench_limit *limits, size_t max)
{
    struct list list = { .plan = plan, .limits = limits, .max = max };
    find_congestions(&list);
    add_memory(&list);
    add_shm(&list);
    add_sockets(&list, BENCH_ONEWAY, 2);
    add_sockets(&list, BENCH_DUPLEX, plan->n_processes);
    add_pings(&list);
    return list.n_limits;
}

/* ---- measuring --------------------------------------------------------------------------------- */

gm_status bench_limit_measure(struct bench_limit *limit, size_t amount_bytes, gm_error *error)
{
    double    value = 0, p99_us = 0;
    gm_status status = GM_OK;
    if (limit->n_values == BENCH_MAX_REPEATS)
        return gmi_error_set(error, GM_ERR_STATE, "measured %d times already", BENCH_MAX_REPEATS);
    if (limit->kind != BENCH_PING &&
        (limit->array_bytes == 0 || limit->write_bytes > limit->array_bytes))
        return gmi_error_set(error, GM_ERR_ARG,
                             "an array of %zu bytes does not hold a write of %zu",
                             limit->array_bytes, limit->write_bytes);
    switch (limit->kind) {
    case BENCH_COPY:
    case BENCH_REDUCE:
    case BENCH_EXACT:
    case BENCH_CIPHER: status = bench_measure_memory(limit, amount_bytes, &value, error); break;
    case BENCH_ONEWAY:
        if (limit->channel == BENCH_SHM)
            status = bench_measure_shm(limit, amount_bytes, &value, error);
        else status = bench_measure_oneway(limit, amount_bytes, &value, error);
        break;
    case BENCH_DUPLEX: status = bench_measure_duplex(limit, amount_bytes, &value, error); break;
    case BENCH_PING:
        status = bench_measure_ping(limit, amount_bytes, &value, &p99_us, error);
        break;
    case BENCH_LIMIT_KINDS: break;
    }
    if (status != GM_OK) return status;
    limit->values[limit->n_values++] = value;
    limit->p99_us = fmax(limit->p99_us, p99_us);
    return GM_OK;
}

/* ---- what came of it --------------------------------------------------------------------------- */

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double nth_smallest(const struct bench_limit *limit, int n)
{
    double sorted[BENCH_MAX_REPEATS];
    if (limit->n_values == 0) return 0;
    memcpy(sorted, limit->values, (size_t)limit->n_values * sizeof sorted[0]);
    qsort(sorted, (size_t)limit->n_values, sizeof sorted[0], compare_doubles);
    return sorted[n];
}

double bench_limit_median(const struct bench_limit *limit)
{
    return nth_smallest(limit, limit->n_values / 2);
}
double bench_limit_least(const struct bench_limit *limit) { return nth_smallest(limit, 0); }
double bench_limit_most(const struct bench_limit *limit)
{
    return nth_smallest(limit, limit->n_values - 1);
}

const struct bench_limit *bench_limits_best(const struct bench_limit *limits, size_t n_limits,
                                            enum bench_limit_kind kind, enum bench_channel channel)
{
    const struct bench_limit *best = NULL;
    for (size_t i = 0; i < n_limits; i++) {
        const struct bench_limit *limit = &limits[i];
        if (limit->kind != kind || limit->channel != channel || limit->n_values == 0) continue;
        if (best == NULL || bench_limit_median(limit) > bench_limit_median(best)) best = limit;
    }
    return best;
}
