/* limits.h - what this machine can carry at most: memory, sockets, waking up.
 *
 * Yardsticks for the collectives, measured without any of their code (but the reduce kernels,
 * which are among the things measured). Each measurement is one variant of one kind, measured
 * once or several times; the variants that are worth trying stand in a plan.
 *
 * The duplex limit, with which an all-reduce of two ranks is to be compared, is the highest
 * median among the duplex variants: two processes send to each other over one connection, each
 * walking an array of 25 MiB, with writes of 64 KiB to 4 MiB, socket buffers automatic and of 4
 * MiB, and every congestion control that this user may choose. With more processes each sends to
 * the next around a ring. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"

enum bench_limit_kind {
    BENCH_COPY,   /* memcpy, one core */
    BENCH_REDUCE, /* the library's float sum: out = arrived + own, one core */
    BENCH_EXACT,  /* floats added to an accumulator of exact sums, one core; 4 GB/s is a nanosecond each */
    BENCH_CIPHER, /* the cipher of encrypted links: records of 16 KiB sealed by AES-128-GCM, one core */
    BENCH_ONEWAY,
    BENCH_DUPLEX,
    BENCH_PING,   /* half a round trip of 4 bytes */
    BENCH_LIMIT_KINDS
};

enum bench_channel { BENCH_MEMORY, BENCH_TCP, BENCH_UNIX, BENCH_SHM };

enum { BENCH_MAX_REPEATS = 64, BENCH_MAX_LIMITS = 256, BENCH_CONGESTION_BYTES = 16 };

struct bench_limit {
    enum bench_limit_kind kind;
    enum bench_channel    channel;
    int    n_processes;
    size_t array_bytes; /* that is walked; for shared memory, by each side */
    size_t write_bytes; /* of one system call, or one message in shared memory */
    int    buffer_bytes; /* SO_SNDBUF and SO_RCVBUF; 0: automatic */
    char   congestion[BENCH_CONGESTION_BYTES]; /* "" : as the machine has it */
    bool   is_spinning; /* BENCH_PING: the receiver asks again and again; else it sleeps */

    /* What was measured: GB/s (10^9 payload bytes, in one direction, by each process), for
     * BENCH_PING the median in microseconds. */
    double values[BENCH_MAX_REPEATS];
    int    n_values;
    double p99_us; /* BENCH_PING: the largest */
};

struct bench_plan {
    unsigned kinds;        /* 1 << kind */
    int      n_processes;  /* BENCH_DUPLEX: 2, or more for a ring */
    bool     is_tcp_only;
};

/* Writes the variants of a plan; returns how many, at most `max`. */
size_t bench_limits_plan(const struct bench_plan *plan, struct bench_limit *limits, size_t max);

/* Measures once, moving about amount_bytes (BENCH_PING: so many round trips that it takes a
 * fraction of a second), and appends the value. GM_OK; GM_ERR_ARG, GM_ERR_STATE, GM_ERR_SYSTEM,
 * GM_ERR_NOMEM: *error says what. */
gm_status bench_limit_measure(struct bench_limit *limit, size_t amount_bytes, gm_error *error);

const char *bench_limit_name(enum bench_limit_kind kind);      /* "duplex" */
const char *bench_channel_name(enum bench_channel channel);    /* "tcp" */
double      bench_limit_median(const struct bench_limit *limit);
double      bench_limit_least(const struct bench_limit *limit);
double      bench_limit_most(const struct bench_limit *limit);

/* Of this kind over this channel, the one with the highest median; NULL: there is none. */
const struct bench_limit *bench_limits_best(const struct bench_limit *limits, size_t n_limits,
                                            enum bench_limit_kind kind, enum bench_channel channel);

#endif
