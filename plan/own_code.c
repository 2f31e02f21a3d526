#include "plan/own_code.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "coll/algo.h"
#include "coll/op.h"

enum { N_RANKS = 2, ROUNDS = 7, LOOPS = 500, LINK_BYTES = 4096, LOCKINGS = 4 /* of a call, by comm/engine.c */ };

struct pair {
    struct gmi_link *links[N_RANKS];
    struct gmi_port  ports[N_RANKS][N_RANKS];
    struct gmi_group groups[N_RANKS];
    struct gmi_op    ops[N_RANKS];
    float            values[N_RANKS];
    uint64_t         seq;
    pthread_mutex_t  lock;
};

/* As a call is begun: with its clock and locks, which nobody else wants here. */
static void begin(struct pair *p, int rank, const struct gmi_algo *row)
{
    struct gmi_request request = { .which = GM_ALL_REDUCE, .send = &p->values[rank], .recv = &p->values[rank], .count_elems = 1,
                                   .dtype = GM_F32, .redop = GM_SUM, .root = -1 };
    (void)gmi_request_choose_codec(&request);
    for (int i = 0; i < LOCKINGS; i++) {
        pthread_mutex_lock(&p->lock);
        pthread_mutex_unlock(&p->lock);
    }
    p->ops[rank].group = &p->groups[rank];
    gmi_op_set_up(&p->ops[rank], row, &request, p->seq);
    gmi_op_begin(&p->ops[rank]);
}

static void finish(struct pair *p)
{
    gm_status status[N_RANKS] = { GM_AGAIN, GM_AGAIN };
    while (status[0] == GM_AGAIN || status[1] == GM_AGAIN) {
        for (int rank = 0; rank < N_RANKS; rank++)
            if (status[rank] == GM_AGAIN) status[rank] = gmi_op_progress(&p->ops[rank]);
    }
}

/* A call of each; the time of one. */
static double one_call_us(struct pair *p, const struct gmi_algo *row)
{
    int64_t begin_ns = gmi_now_ns();
    p->seq++;
    for (int rank = 0; rank < N_RANKS; rank++) begin(p, rank, row);
    finish(p);
    return (double)(gmi_now_ns() - begin_ns) / N_RANKS / 1e3;
}

/* A try that finds nothing, with the two looks at the clock around it; the other rank comes afterwards. */
static double one_try_us(struct pair *p, const struct gmi_algo *row)
{
    p->seq++;
    begin(p, 0, row);
    (void)gmi_op_progress(&p->ops[0]);
    int64_t begin_ns = gmi_now_ns();
    for (int i = 0; i < LOOPS; i++) {
        (void)gmi_op_progress(&p->ops[0]);
        (void)gmi_now_ns();
        (void)gmi_now_ns();
    }
    double us = (double)(gmi_now_ns() - begin_ns) / LOOPS / 1e3;
    begin(p, 1, row);
    finish(p);
    return us;
}

gm_status plan_measure_own_code(struct bench_turns *turns, gm_error *error)
{
    struct gmi_costs       costs = gmi_costs_of_host(N_RANKS, N_RANKS, GMI_KIND_LOOPBACK);
    const struct gmi_algo *row = gmi_algo_choose("doubling", GM_ALL_REDUCE, &costs, sizeof(float), GMI_VIEW_PAIRS);
    struct pair            p = { .lock = PTHREAD_MUTEX_INITIALIZER };
    uint8_t                scratch[64];
    if (gmi_link_mem_pair(p.links, LINK_BYTES) != GM_OK) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for two links");
    for (int rank = 0; rank < N_RANKS; rank++) {
        p.ports[rank][1 - rank] = (struct gmi_port){ .link = p.links[rank], .peer = 1 - rank };
        p.groups[rank] = (struct gmi_group){ .rank = rank, .n_ranks = N_RANKS, .id = 1, .ports = p.ports[rank] };
        p.ops[rank].scratch = p.ops[rank].work = scratch;
    }
    turns->call_us = turns->try_us = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double us = 0;
        for (int i = 0; i < LOOPS; i++) us += one_call_us(&p, row) / LOOPS;
        turns->call_us = fmin(turns->call_us, us);
        turns->try_us = fmin(turns->try_us, one_try_us(&p, row));
    }
    for (int rank = 0; rank < N_RANKS; rank++) gmi_link_close(p.links[rank]);
    return GM_OK;
}
