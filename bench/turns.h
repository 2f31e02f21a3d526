/* turns.h - what it costs workers to share a machine: calls of loopback sockets, turns on a core, bytes in caches and beyond.
 *
 * Measured by two processes that are bound to the first two cores (or both to the one that there is), without any code of the
 * collectives but the reduce kernel, and with the calls that links make: a header and what it is for go together, and the process
 * has a second thread, as each that has a communicator, since the kernel counts who uses a file where threads share it. So a simulation that is made of these costs (plan/simulate.h) can be held against collectives
 * that really run. Of everything several rounds, and the least counts, since what disturbs only makes it longer. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include "gradmesh.h"

enum { BENCH_TURN_CALLS = 6, BENCH_TURN_REACHES = 6, BENCH_TURN_WALKED_BYTES = 2 * 1024 * 1024 };

/* What it takes to send a message of that size and to receive one, in all the calls that this needs, while the other side does the
 * same: large messages cost less for each byte. They walk through BENCH_TURN_WALKED_BYTES. */
struct bench_turn_call {
    double bytes, send_us, recv_us;
};

/* The same by how much each of two walks: nearer caches are faster, and beyond caches all takes longer. */
struct bench_turn_reach {
    double walked_bytes;
    double send_factor, recv_factor; /* what bytes of middling messages take, as a multiple of the above */
    double deep_send_factor, deep_recv_factor; /* ... of a message as large as half of the walk (if it is that large), beside the largest above */
    double add_Bps;      /* bytes of two values that become one, of one core; what is added to ours lies in a cache */
    double add_kept_Bps; /* ... or was kept where nothing has touched it since */
};

struct bench_turns {
    double miss_us;   /* a receive that finds nothing */
    double ack_us;    /* a receive takes longer by this where nothing is sent the other way: it is acknowledged at once */
    double yield_us;  /* sched_yield where nobody else wants the core */
    double switch_us; /* ... more where another process goes on, and has to find its way into the caches */
    double call_us, try_us; /* of the library's own code: a call; a try that finds nothing (plan/own_code.h) */
    double wake_us;   /* from the end of a send until a process that slept in poll goes on */
    struct bench_turn_call  calls[2][BENCH_TURN_CALLS]; /* bytes rising; between two cores, and on one */
    struct bench_turn_reach reaches[BENCH_TURN_REACHES]; /* walked_bytes rising */
};

/* Takes about a second. GM_OK, GM_ERR_SYSTEM, GM_ERR_NOMEM: *error says what. */
GM_MUST_USE gm_status bench_turns_measure(struct bench_turns *turns, gm_error *error);

#endif
