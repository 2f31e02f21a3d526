/* turns.h - what calls and turns cost on a machine's cores, in the picoseconds of a simulation: made of measurements
 * (bench/turns.h) for the memory that a simulated collective walks through. */
#ifndef PLAN_TURNS_H
#define PLAN_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/turns.h"

struct plan_turns {
    const struct bench_turns *measured;
    int64_t miss_ps, yield_ps, switch_ps, wake_ps;
    int64_t call_ps, look_ps; /* of our own code: a call; a try that finds nothing */
    int64_t try_ps; /* so long a rank tries before it sleeps (comm/engine.c) */
    double  send_factor, recv_factor; /* of bytes in memory that is walked through; scratch stays in a cache */
    double  deep_send_factor, deep_recv_factor; /* ... in large messages, of which more lies in sockets */
    int64_t ack_ps;
    double  add_ps, add_kept_ps;      /* for a byte */
};

/* For ranks that together walk through so many bytes. */
struct plan_turns plan_turns_of(const struct bench_turns *measured, double walked_bytes);

/* What `moved_bytes` of a message take of the core that sends or receives them. */
int64_t plan_turns_send_ps(const struct plan_turns *turns, bool on_one_core, size_t message_bytes, size_t moved_bytes);
int64_t plan_turns_recv_ps(const struct plan_turns *turns, bool on_one_core, bool is_in_cache, size_t message_bytes, size_t moved_bytes);

#endif
