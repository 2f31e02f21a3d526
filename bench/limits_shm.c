/* limits_shm.c - payload through memory that two processes share: copied into one of four slots,
 * copied out of it on the other side, both sides looking at counters and never sleeping. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/limits_parts.h"

enum { N_SLOTS = 4, LOOKS_BETWEEN_CLOCKS = 1 << 16 };

struct passage {
    const struct bench_limit *limit;
    int64_t                   n_messages;
    uint8_t                  *slots; /* shared */
};

/* Until the counter is `least` or more. False: it does not come. */
static bool wait_until(const _Atomic int64_t *counter, int64_t least)
{
    int64_t deadline_ns = 0;
    for (int looks = 1; atomic_load_explicit(counter, memory_order_acquire) < least; looks++) {
        if (looks % LOOKS_BETWEEN_CLOCKS != 0) continue;
        if (deadline_ns == 0) deadline_ns = gmi_deadline_after_ms(BENCH_STALL_MS);
        if (gmi_deadline_passed(deadline_ns)) return false;
        sched_yield(); /* on a single core the other side has to get its turn */
    }
    return true;
}

static int pass(struct bench_crew *crew, int member, struct passage *p, uint8_t *array)
{
    size_t write_bytes = p->limit->write_bytes, n_parts = p->limit->array_bytes / write_bytes;
    if (!bench_crew_meet(crew)) return ETIMEDOUT;
    double begin_s = bench_now_s();
    for (int64_t i = 0; i < p->n_messages; i++) {
        uint8_t *part = array + (size_t)i % n_parts * write_bytes;
        uint8_t *slot = p->slots + (size_t)(i % N_SLOTS) * write_bytes;
        if (member == 0) { /* crew->there: messages put in; crew->back: taken out */
            if (!wait_until(&crew->back, i - N_SLOTS + 1)) return ETIMEDOUT;
            memcpy(slot, part, write_bytes);
            atomic_store_explicit(&crew->there, i + 1, memory_order_release);
        } else {
            if (!wait_until(&crew->there, i + 1)) return ETIMEDOUT;
            memcpy(part, slot, write_bytes);
            atomic_store_explicit(&crew->back, i + 1, memory_order_release);
        }
    }
    crew->elapsed_s[member] = bench_now_s() - begin_s;
    return 0;
}

static int run_passage(struct bench_crew *crew, int member, void *job)
{
    struct passage *p = job;
    uint8_t        *array = gmi_alloc(p->limit->array_bytes, 1);
    int             failed = array != NULL ? pass(crew, member, p, array) : ENOMEM;
    gmi_free(array);
    return failed;
}

gm_status bench_measure_shm(const struct bench_limit *limit, size_t amount_bytes, double *gbps,
                            gm_error *error)
{
    struct bench_crew crew;
    size_t            slots_bytes = N_SLOTS * limit->write_bytes;
    struct passage p = { .limit = limit,
                         .n_messages = (int64_t)(amount_bytes / limit->write_bytes) + 1,
                         .slots = bench_shared_alloc(slots_bytes) };
    if (p.slots == NULL) return gmi_error_set_errno(error, errno, "no memory to share");
    memset(p.slots, 1, slots_bytes); /* so that no page is missing later */
    gm_status status = bench_crew_run(&crew, 2, run_passage, &p, error);
    bench_shared_free(p.slots, slots_bytes);
    if (status == GM_OK)
        *gbps =
            (double)p.n_messages * (double)limit->write_bytes / bench_crew_elapsed_s(&crew) / 1e9;
    return status;
}
