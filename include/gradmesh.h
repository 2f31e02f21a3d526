/* gradmesh.h - collectives for distributed data-parallel training, over plain TCP.
 *
 * The whole public library. A process joins a group of `world_size` processes by creating a
 * communicator; every member then calls the same collectives in the same order. Nothing else is
 * needed: no launcher of a particular kind, no MPI, no daemon.
 *
 *     gm_comm_options options;
 *     gm_error        error;
 *     gm_comm        *comm;
 *     gm_comm_options_default(&options);
 *     if (gm_comm_options_from_env(&options, &error) != GM_OK) ...     // who am I, who are the others
 *     if (gm_comm_create(&comm, &options, &error) != GM_OK) ...        // meets the others
 *     gm_all_reduce(comm, grad, grad, count, GM_F32, GM_AVG);          // the same sum on every rank
 *     gm_comm_destroy(comm);
 *
 * Vocabulary: a *rank* is a member's number, 0 .. world_size - 1. A *peer* is another rank. A *chunk*
 * is the part of a buffer that belongs to a rank (gm_chunk). *Payload* bytes are the caller's data;
 * *protocol* bytes are everything else that the library sends. Counts are elements, sizes bytes.
 *
 * Errors: every fallible function returns a gm_status and must not be ignored. There are three kinds.
 * A caller's mistake (GM_ERR_ARG, GM_ERR_STATE, GM_ERR_UNSUPPORTED) changes nothing: fix the call.
 * An operating error (a peer lost, a mismatch, a time limit, the machine) leaves the communicator
 * failed: every later collective returns the same first error at once, until gm_comm_destroy. The
 * third kind, a broken invariant of the library itself, ends the process with a message.
 *
 * Threads: different communicators are independent. One communicator may be used by one thread at a
 * time; a second thread that calls a collective meanwhile gets GM_ERR_STATE. Functions that differ
 * say so. The library never prints, never exits, installs no signal handler and changes no
 * floating-point mode. It starts one service thread for each communicator with world_size > 1, with
 * all signals blocked in it.
 *
 * fork: a communicator stays with the process that created it. In a child of fork every call returns
 * GM_ERR_STATE, and gm_comm_destroy only frees the child's copy; the parent and its peers go on. A child
 * that keeps the descriptors open hides the parent's death from its peers, so let it call exec (all are
 * close-on-exec), gm_comm_destroy or _exit soon.
 */
#ifndef GRADMESH_H
#define GRADMESH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GM_VERSION_MAJOR 0
#define GM_VERSION_MINOR 1
#define GM_VERSION_PATCH 0
#define GM_VERSION_STRING "0.1.0"

#if defined(GM_BUILDING_SHARED) && (defined(__GNUC__) || defined(__clang__))
#define GM_API __attribute__((visibility("default")))
#else
#define GM_API
#endif
#if defined(__GNUC__) || defined(__clang__)
#define GM_MUST_USE __attribute__((warn_unused_result))
#else
#define GM_MUST_USE
#endif

/* ---- status and errors ------------------------------------------------------------------------- */

/* What came of a call, by what the caller can do next. */
typedef enum gm_status {
    GM_OK = 0,
    GM_AGAIN,            /* not done yet (of asynchronous work only) */
    GM_ERR_ARG,          /* an argument is wrong; nothing was started */
    GM_ERR_STATE,        /* the call is not allowed now; nothing was started */
    GM_ERR_UNSUPPORTED,  /* this combination is not offered; nothing was started */
    GM_ERR_MISMATCH,     /* ranks called different things, or were set up differently */
    GM_ERR_REFUSED,      /* a peer or the store turned this process away, and said why */
    GM_ERR_PEER_LOST,    /* a rank is gone; the record says which */
    GM_ERR_TIMEOUT,      /* no byte moved for the stall limit, or start-up took too long */
    GM_ERR_ABORTED,      /* a rank called gm_comm_abort; the record says who and why */
    GM_ERR_PROTOCOL,     /* bytes arrived that cannot be right */
    GM_ERR_VERSION,      /* the peer speaks another version of the protocol */
    GM_ERR_SYSTEM,       /* the machine refused something; sys_errno is kept */
    GM_ERR_NOMEM,        /* no memory */
    GM_ERR_CORRUPT       /* bytes arrived changed: their checksum is not that with which they were sent */
} gm_status;

/* The name of a status, "GM_ERR_PEER_LOST", or "?" for a number that is none. Static string. */
GM_API const char *gm_status_name(gm_status status);
/* One line that says what the status means. Static string. */
GM_API const char *gm_status_text(gm_status status);

/* What went wrong, as fields and as one sentence made from them. */
typedef struct gm_error {
    gm_status   status;
    int         rank;        /* who reports; -1 before it is known */
    int         culprit;     /* the rank believed to be the cause; -1 if none is */
    uint32_t    epoch;       /* life of the membership, 0 until elastic membership changes it */
    uint64_t    op_seq;      /* which collective, counted from 1 per communicator; 0 outside of one */
    const char *op;          /* "all_reduce"; static; NULL outside of a collective */
    const char *algorithm;   /* "ring"; static; NULL outside of a collective */
    int         step;        /* step of the algorithm, from 0; -1 if it has none */
    int         n_steps;
    uint64_t    done_bytes;  /* payload received so far in this collective ... */
    uint64_t    total_bytes; /* ... of so many */
    int64_t     elapsed_ns;  /* since the collective (or the start-up) began */
    int         sys_errno;   /* 0 if none */
    char        text[512];   /* one sentence, always zero-terminated */
} gm_error;

/* ---- logging ----------------------------------------------------------------------------------- */

typedef enum gm_log_level { GM_LOG_ERROR, GM_LOG_WARN, GM_LOG_INFO, GM_LOG_DEBUG } gm_log_level;

/* Receives one line without its newline. May be called from the service thread; must not call the
 * library. */
typedef void (*gm_log_fn)(void *user, gm_log_level level, const char *line);

/* ---- element types, reductions, collectives ---------------------------------------------------- */

typedef enum gm_dtype {
    GM_F32, GM_F64, GM_I32, GM_I64,
    GM_I8, GM_U8, GM_U32, GM_U64,
    GM_F16,  /* IEEE 754 binary16, 2 bytes */
    GM_BF16, /* the upper half of an f32, 2 bytes */
    GM_DTYPE_END
} gm_dtype;

/* How elements of different ranks are combined.
 *
 *              i8 u8 i32 u32 i64 u64      f16 bf16                    f32 f64
 *     SUM      wraps                      exact*, rounded once        rounded at each addition
 *     PROD     wraps                      in f64, rounded once        rounded at each product
 *     MIN MAX  exact                      exact                       exact
 *     AVG      exact, rounded once        exact*, rounded once        SUM, then divided once
 *     BAND BOR BXOR    bit by bit         not offered                 not offered
 *
 * All ranks get identical bits, with every algorithm; after GM_SUM, GM_PROD and GM_AVG of f32 and f64 the last
 * bits may differ between algorithms, since those add in different orders.
 *
 * - Integers wrap in two's complement in GM_SUM and GM_PROD. GM_AVG divides the exact sum (it cannot overflow on
 *   the way) by world_size and rounds to the nearest integer, ties to the even one: {1, 2, 4} gives 2,
 *   {-7, 2} gives -2, {1, 2} gives 2.
 * - f16 and bf16: one rank sees all values of an element, adds (multiplies) them in f64 in the order of ranks, for
 *   GM_AVG divides, and rounds the result once, to nearest, ties to even. * The f64 sum is exact for f16, and
 *   for bf16 while the magnitudes lie within a factor of 2^45 or so of each other. So GM_AVG cannot overflow
 *   on the way, and a sum is infinite only if it does not fit into the type.
 * - A NaN result is the canonical quiet NaN (f16 0x7e00, bf16 0x7fc0, f32 0x7fc00000, f64
 *   0x7ff8000000000000), also in a world of one. GM_MIN and GM_MAX propagate NaN and order -0 below +0.
 *   Subnormal numbers count. Rounding follows the floating-point mode of the threads that call; it should be the
 *   default one, and must be the same on all ranks.
 *
 * Numbers from GM_REDOP_USER on are the caller's own; see gm_redop_create. */
typedef enum gm_redop {
    GM_SUM, GM_MIN, GM_MAX, GM_AVG,
    GM_PROD, GM_BAND, GM_BOR, GM_BXOR,
    GM_SUM_EXACT, /* gm_all_reduce of f32 only: see "exact sums" */
    GM_REDOP_END,
    GM_REDOP_USER = 128,
    GM_REDOP_USER_END = 160
} gm_redop;

typedef enum gm_collective {
    GM_ALL_REDUCE,
    GM_REDUCE_SCATTER,
    GM_ALL_GATHER,
    GM_BROADCAST,
    GM_BARRIER,
    GM_REDUCE,
    GM_GATHER,
    GM_SCATTER,
    GM_ALL_TO_ALL,
    GM_SEND, /* from here on: messages, between two ranks */
    GM_RECV,
    GM_SENDRECV,
    GM_COLLECTIVE_END
} gm_collective;

GM_API size_t      gm_dtype_bytes(gm_dtype dtype);           /* 0 for a number that is none */
GM_API const char *gm_dtype_name(gm_dtype dtype);            /* "f32"; "?" for none. Static. */
GM_API const char *gm_redop_name(gm_redop redop);            /* "sum", "user"; "?" for none. Static. */
GM_API const char *gm_collective_name(gm_collective which);  /* "all_reduce"; "?" for none. Static. */

/* ---- communicator ------------------------------------------------------------------------------ */

typedef struct gm_comm gm_comm;

/* How to join. Fill with gm_comm_options_default, then set what differs. Strings are read during
 * gm_comm_create only and stay the caller's. */
typedef struct gm_comm_options {
    size_t struct_bytes;       /* set by gm_comm_options_default; tells versions of the struct apart */
    int    rank;               /* 0 .. world_size - 1; must be set */
    int    world_size;         /* at least 1; must be set */

    /* Where the ranks meet. `store`, "host:port" or "[v6]:port", is a store that somebody else
     * serves (gradmesh run does). Without it rank 0 serves one at `master_addr`:`master_port` and
     * the others connect there. Neither is needed when world_size is 1. */
    const char *store;
    const char *master_addr;
    int         master_port;
    const char *job_id;        /* up to 31 characters; who has another one is refused. NULL: "" */
    const char *group;         /* name of this communicator within the job, up to 31 characters, for
                                  programs that create several side by side. NULL: "world" */

    /* The caller's own settings that must agree, as lines "key=value\n". Compared by all ranks at
     * creation: a difference fails it on every rank and shows the key and both values. NULL: none.
     * Up to 64 KiB. */
    const char *fingerprint;

    /* Which local address to listen on and to tell the others: a list of interface names, NCCL's
     * syntax (prefixes "eth,en"; "=eth0" exact; "^docker,lo" all but these), or of networks
     * ("10.0.0.0/8"). NULL: the address from which the store is reached. */
    const char *interface_names;

    /* How data travel. "auto": through shared memory between ranks of one host, else over TCP. "tcp".
     * "shm": through shared memory, or gm_comm_create fails with GM_ERR_UNSUPPORTED on every rank; on one whose own
     * links were there before it heard of the others', the first call does.
     * Ranks may differ; two share memory when both may. NULL: "auto" */
    const char *transport;
    /* Ranks with the same one are on one host. NULL: found out (same boot id and same network
     * namespace). With names of its own one host plays several; one name for several hosts costs a
     * warning and changes nothing. */
    const char *host_id;
    /* "auto" (by size), or to force one where it exists: "ring", "direct", "doubling", "halving", "exchange", "tree",
     * "dissemination", "pairwise", "bruck", "naive". A collective for which it does not exist takes what "auto" would.
     * So does a reduction that is rounded once (SUM, PROD and AVG of f16 and bf16, AVG of integers) when the algorithm
     * passes partial sums on: those run with "direct", "exchange" or "naive" only, and the caller's own
     * reductions not with "doubling". NULL: "auto" */
    const char *algorithm;

    /* How f32 numbers travel that are added up (gm_all_reduce and gm_reduce_scatter with GM_SUM or GM_AVG): "f32",
     * as they are; "bf16" or "f16", rounded to these; "int8", in blocks of 128 bytes and a scale. For networks that
     * are slow beside the processors: half or about a quarter of the bytes, for a little accuracy. Each rank's
     * contribution is rounded once, added up in f32, and the result rounded once (not in a reduce-scatter), whatever
     * the number of ranks; all ranks get identical bits. What an f16 cannot hold (from 65,520 on) becomes infinite;
     * an int8 block with a number that is not finite becomes NaN. Everything else travels as it is, and a world of one
     * changes nothing. Needs links to all ranks. Compared at creation: ranks that differ are a mismatch.
     * NULL: "f32" */
    const char *wire;

    /* What all ranks of the job know and nobody else: a file of 16 to 4096 bytes that nobody but its owner may read (mode
     * 600; else GM_ERR_ARG). It is read by gm_comm_create and never sent: each side of each connection proves to the other
     * that it knows it, before anything else is believed. gradmesh run makes one for each job. NULL: none; then the
     * ranks meet over loopback only, where whoever has an account on the host may call. */
    const char *secret_file;
    int         insecure;      /* 1: without a secret beyond loopback too; whoever reaches the ports may join */
    /* 1: all that follows the proof of the secret, on every connection, is encrypted (TLS 1.3, with a key for each that is
     * made from the secret, which must be there). Not what passes through memory within a host. Compared at creation:
     * ranks that differ are a mismatch. */
    int         encrypt;

    /* "crc32c": all that is sent between ranks, over TCP or through memory, travels in blocks with their CRC32C, and none is
     * used before its checksum was found right; a difference is GM_ERR_CORRUPT on every rank, which names the sender. Links
     * that are encrypted detect changes by themselves and have none. Compared at creation. NULL: "off" */
    const char *checksum;

    /* A file by which "auto" chooses, over what is built in; rank 0's counts for all. `gradmesh bench tune` measures and
     * writes one. Lines KIND.RANKSonCORES.COLLECTIVE=ALGORITHM:BYTES,...,ALGORITHM say what is fastest up to which size, as in
     * "loopback.4on2.all_reduce=exchange:8192,ring" (gm_comm_site); those of the cost model, which chooses where there is
     * none, are KIND.CONSTANT=NUMBER: the KIND is "memory" (shared), "loopback" (TCP within a host) or "network" (between
     * hosts), the constants are turn_ns (of a message that must be waited for), message_ns (to handle one), byte_ps,
     * reduce_ps and keep_ps (picoseconds a byte: to move, to add, to put aside out of the cache) and cache_bytes.
     * A link of 1 Gbit/s: "network.byte_ps=8000". A file that says something of a KIND does away with all that was measured
     * of it before. Other keys are passed over. NULL: built-in. */
    const char *profile;

    int connect_timeout_ms;    /* limit of gm_comm_create; default 60,000 */
    int stall_limit_ms;        /* a wait in a collective ends when no byte moved for so long; default
                                  300,000; 0: no limit. A process that is stopped is given up after 2 to
                                  3 s with the default, and after this limit if another one is set */

    int spin_us;               /* a collective that waits keeps trying for so long before it sleeps, since
                                  being woken takes longer than a small message; it lets others have the
                                  core in between. 0: sleeps at once; -1, the default: 50 */

    int trace_events;          /* how many events of a trace are kept, the newest (see "tracing"), about 150 bytes
                                  each; 0, the default: there is no trace. Ranks may differ */

    gm_log_fn    log;          /* NULL: silence */
    void        *log_user;     /* handed to `log` */
    gm_log_level log_level;    /* the most talkative level wanted; default GM_LOG_WARN */
} gm_comm_options;

/* Fills *options with the defaults; rank and world_size become -1. Does not block, cannot fail. */
GM_API void gm_comm_options_default(gm_comm_options *options);

/* Takes from the environment what is set there, over what *options holds: the GRADMESH_ variables
 * (RANK, WORLD_SIZE, STORE, JOB_ID, SECRET_FILE, INSECURE, ENCRYPT, SOCKET_IFNAME, TRANSPORT, HOST_ID, ALGO, WIRE,
 * TIMEOUT_MS, SPIN_US, LOG), and MASTER_ADDR and MASTER_PORT; rank and world size from the first complete family of

 * (RANK, WORLD_SIZE, STORE, JOB_ID, SOCKET_IFNAME, TRANSPORT, HOST_ID, ALGO, PROFILE, WIRE, TIMEOUT_MS,
 * SPIN_US, LOG), and MASTER_ADDR and MASTER_PORT; rank and world size from the first complete family of
 * GRADMESH_RANK/GRADMESH_WORLD_SIZE, RANK/WORLD_SIZE, OMPI_COMM_WORLD_RANK/_SIZE, PMI_RANK/PMI_SIZE, SLURM_PROCID/SLURM_NTASKS,
 * and JOB_COMPLETION_INDEX with WORLD_SIZE. With none of them it is a world of one;
 * one half of the first two families alone is refused. The strings point
 * into the environment. The only function of the library that reads it. Does not block.
 *
 * GM_OK; GM_ERR_ARG: a variable is not what it should be; *error (may be NULL) names it, its value and
 * what is wanted. */
GM_API GM_MUST_USE gm_status gm_comm_options_from_env(gm_comm_options *options, gm_error *error);

/* Meets the other ranks and connects to those that the collectives need.
 *
 * Blocks until all world_size ranks are there, at most connect_timeout_ms. A world of one needs no
 * network and returns at once. On success *comm is the caller's until gm_comm_destroy; on failure it is
 * NULL, everything is cleaned up and *error (may be NULL) says what was wrong.
 *
 * GM_ERR_ARG: options that cannot be right. GM_ERR_UNSUPPORTED: a transport, algorithm or wire
 * format that is not there, or memory that must be shared and cannot be. GM_ERR_TIMEOUT: somebody
 * did not come; the sentence lists the missing ranks.
 * GM_ERR_REFUSED: this process is turned away: other job id, rank already taken, other world size.
 * GM_ERR_MISMATCH: fingerprints or wire formats differ. GM_ERR_VERSION: another protocol version.
 * GM_ERR_PEER_LOST: a rank vanished meanwhile. GM_ERR_SYSTEM: no port, no descriptor, ...
 * GM_ERR_PROTOCOL: what answered is not gradmesh. GM_ERR_NOMEM. */
GM_API GM_MUST_USE gm_status gm_comm_create(gm_comm **comm, const gm_comm_options *options,
                                            gm_error *error);

/* Parts the ranks of `comm` into communicators: those that call with the same colour (from 0 on)
 * belong together, in the order of their keys, and of their ranks where keys are the same. All
 * ranks of `comm` call it, as a collective; one with a negative colour gets none, *split is NULL.
 *
 * The new one has the options of `comm`, its limits and its reductions (gm_redop_create). It has
 * links of its own, made when they are first needed, and shares everything else with the
 * communicator that gm_comm_create made: the service thread, the control connections, and the fate:
 * what fails one fails all. Numbers of ranks in errors are those in that one. Each may be used by
 * another thread, and split again. Destroy each with gm_comm_destroy, in any order.
 *
 * Status: as of a collective of `comm`. */
GM_API GM_MUST_USE gm_status gm_comm_split(gm_comm *comm, int colour, int key, gm_comm **split);

/* Changes a limit for the calls that begin from now on; the old value, -1 if there was a mistake
 * (nothing is changed then). 0: no limit. Each rank may have its own; on one that runs out the
 * communicator fails, with GM_ERR_TIMEOUT on all ranks. Does not block; not while another thread is
 * in a call.
 *
 * The stall limit is that of gm_comm_options: no byte has moved for so long. */
GM_API int gm_comm_set_stall_limit(gm_comm *comm, int limit_ms);
/* The call limit bounds a call as a whole, also one that is slow but not still: collectives,
 * messages and work from its turn on. 0, the default: none. */
GM_API int gm_comm_set_call_limit(gm_comm *comm, int limit_ms);

/* Says goodbye to the others and frees everything. Blocks for two seconds at the most. The last
 * collective that succeeded here is not disturbed on ranks that still work on it; one that calls
 * another collective is told that this rank has left. NULL is fine. */
GM_API void gm_comm_destroy(gm_comm *comm);

/* Fails the communicator on every rank with GM_ERR_ABORTED; calls in progress return. `reason`, one
 * line, is in everybody's error. May be called from any thread. Does not block.
 * GM_OK, also when it had failed already (the first cause stays). GM_ERR_ARG. */
GM_API gm_status gm_comm_abort(gm_comm *comm, const char *reason);

GM_API int gm_comm_rank(const gm_comm *comm);
GM_API int gm_comm_size(const gm_comm *comm);
GM_API const char *gm_comm_wire(const gm_comm *comm); /* "f32", "bf16", ...: how sums travel. Static. */

/* The record of the last call on this communicator that did not return GM_OK, or of the failure
 * that has made it unusable. Never NULL; status GM_OK if there was none. The library's; valid until
 * the next call on `comm` by the same thread. */
GM_API const gm_error *gm_comm_error(const gm_comm *comm);

/* ---- a reduction of one's own ------------------------------------------------------------------ */

/* inout[i] = in[i] (op) inout[i] for count elements, which are the caller's `dtype`. The arrays do not overlap
 * and are aligned to their elements, which are independent of each other: any part of a buffer may come in any
 * portion. Must not call the library. May be called from a thread of the library. */
typedef void (*gm_combine_fn)(const void *in, void *inout, size_t count, gm_dtype dtype, void *user);

/* Makes `fn` a reduction of `comm`, for every dtype; *redop is its number for gm_all_reduce and the others.
 *
 * (op) must be commutative and associative: the library chooses order and grouping. Where it is so only up to
 * rounding, all ranks still get identical bits. Nothing is sent: every rank creates the same reductions in the same
 * order, and then has the same numbers, the lowest that are free; a collective compares the numbers, not the
 * functions. In a world of one a result is the value itself and `fn` is not called.
 *
 * Does not block. GM_OK; GM_ERR_ARG; GM_ERR_STATE (another thread is inside a call); GM_ERR_UNSUPPORTED: all 32
 * numbers of this communicator are taken. */
GM_API GM_MUST_USE gm_status gm_redop_create(gm_comm *comm, gm_combine_fn fn, void *user, gm_redop *redop);

/* Frees its number, which a later gm_redop_create may give again. gm_comm_destroy does it too. Does not block.
 * GM_OK; GM_ERR_ARG: there is none of this number; GM_ERR_STATE. */
GM_API gm_status gm_redop_destroy(gm_comm *comm, gm_redop redop);

/* ---- collectives ------------------------------------------------------------------------------- *
 *
 * All block until this rank's part is done and its buffers may be reused. They wait for the other
 * ranks; each wait ends when the communicator fails (a rank is lost or aborts) or when no byte
 * moved for stall_limit_ms. Every rank must make the same calls in the same order with the same
 * arguments; what differs is found by the neighbours before anything is used, and fails the
 * communicator on every rank with GM_ERR_MISMATCH and both versions of the call.
 *
 * `send` is only read; `recv` is written. In place means send == recv; other overlaps are refused.
 * Buffers need the alignment of their element type. After an error the contents of `recv` are
 * unspecified. A buffer may be NULL when its count is 0. Any count works, also 0, fewer elements
 * than ranks, and more than 2^31 bytes.
 *
 * A buffer for all ranks is made of chunks, one for each rank, in rank order. They are as equal as
 * they can be (gm_chunk), or of the sizes in `counts`, which has one count for each rank, any, also
 * 0; all ranks hand in the same counts. Of a collective with a root, `recv` of the other ranks is
 * ignored where only the root receives, `send` where only the root sends; in place then matters on
 * the root only.
 *
 * Success says that this rank has its result. It says nothing about the others, except that all
 * have entered this call; with a root only the root of gm_reduce and gm_gather knows that of all,
 * others of the rank before them.
 *
 * Status, of all: GM_OK; GM_ERR_ARG; GM_ERR_STATE (another thread is inside); GM_ERR_UNSUPPORTED
 * (for example GM_BXOR of floats); GM_ERR_MISMATCH; GM_ERR_PEER_LOST; GM_ERR_TIMEOUT;
 * GM_ERR_ABORTED; GM_ERR_PROTOCOL; GM_ERR_SYSTEM; GM_ERR_NOMEM.
 *
 * Source: ring all-reduce: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", J. Parallel Distrib. Comput. 69 (2009). Its use for gradients:
 * Gibiansky, "Bringing HPC techniques to deep learning" (2017). */

/* The part of `count` elements that belongs to `rank`: *first_elem and *n_elems. Chunks are in rank
 * order, cover everything, and differ by one element at the most, the longer ones first.
 * world_size >= 1, 0 <= rank < world_size. */
GM_API void gm_chunk(size_t count, int world_size, int rank, size_t *first_elem, size_t *n_elems);

/* recv[i] = send[i] of all ranks combined by `redop`, on every rank. `send`, `recv`: count elements.
 * Ring: 2 count (N-1)/N elements sent by each rank, to within a chunk's rounding. */
GM_API GM_MUST_USE gm_status gm_all_reduce(gm_comm *comm, const void *send, void *recv,
                                           size_t count, gm_dtype dtype, gm_redop redop);

/* The same on the root only. `send`: count elements. `recv`: count elements on the root. */
GM_API GM_MUST_USE gm_status gm_reduce(gm_comm *comm, const void *send, void *recv, size_t count,
                                       gm_dtype dtype, gm_redop redop, int root);

/* Combines `count` elements of all ranks and leaves rank r with chunk r of the result.
 * `send`: count elements. `recv`: this rank's chunk only (see gm_chunk). In place (send == recv) the
 * buffer holds count elements, and afterwards chunk r stands in its place in it; the rest of it is
 * unspecified. Out of place the library keeps scratch memory of count elements. */
GM_API GM_MUST_USE gm_status gm_reduce_scatter(gm_comm *comm, const void *send, void *recv,
                                               size_t count, gm_dtype dtype, gm_redop redop);

/* The same with chunks of counts[0], counts[1], ... elements. */
GM_API GM_MUST_USE gm_status gm_reduce_scatterv(gm_comm *comm, const void *send, void *recv,
                                                const size_t *counts, gm_dtype dtype, gm_redop redop);

/* Collects the chunks: recv = chunk 0, chunk 1, ... of `count` elements in all, on every rank.
 * `send`: this rank's chunk (see gm_chunk). `recv`: count elements. In place (send == recv) this
 * rank's chunk already stands in its place in recv. */
GM_API GM_MUST_USE gm_status gm_all_gather(gm_comm *comm, const void *send, void *recv,
                                           size_t count, gm_dtype dtype);

/* The same with chunks of counts[0], counts[1], ... elements. */
GM_API GM_MUST_USE gm_status gm_all_gatherv(gm_comm *comm, const void *send, void *recv,
                                            const size_t *counts, gm_dtype dtype);

/* Collects the chunks on the root. `send`: this rank's chunk. `recv`: count elements on the root.
 * In place (send == recv on the root) the root's chunk already stands in its place. */
GM_API GM_MUST_USE gm_status gm_gather(gm_comm *comm, const void *send, void *recv, size_t count,
                                       gm_dtype dtype, int root);
GM_API GM_MUST_USE gm_status gm_gatherv(gm_comm *comm, const void *send, void *recv,
                                        const size_t *counts, gm_dtype dtype, int root);

/* Hands the chunks out. `send`: count elements on the root. `recv`: this rank's chunk. In place
 * (send == recv on the root) the root's chunk stays where it is. */
GM_API GM_MUST_USE gm_status gm_scatter(gm_comm *comm, const void *send, void *recv, size_t count,
                                        gm_dtype dtype, int root);
GM_API GM_MUST_USE gm_status gm_scatterv(gm_comm *comm, const void *send, void *recv,
                                         const size_t *counts, gm_dtype dtype, int root);

/* Every rank has something for every rank: block k of `send` goes to rank k, and block k of `recv`
 * comes from it. Each block has `count` elements, so both buffers have world_size times as many. */
GM_API GM_MUST_USE gm_status gm_all_to_all(gm_comm *comm, const void *send, void *recv, size_t count,
                                           gm_dtype dtype);

/* The same with send_counts[k] elements for rank k and recv_counts[k] from it, which must be what
 * rank k hands in as its send_counts for this rank. In place the buffer holds the blocks for others
 * first and those from others afterwards, packed either way. */
GM_API GM_MUST_USE gm_status gm_all_to_allv(gm_comm *comm, const void *send, const size_t *send_counts,
                                            void *recv, const size_t *recv_counts, gm_dtype dtype);

/* Gives everybody root's `count` elements in `buffer`. */
GM_API GM_MUST_USE gm_status gm_broadcast(gm_comm *comm, void *buffer, size_t count,
                                          gm_dtype dtype, int root);

/* Returns when every rank has entered it. */
GM_API GM_MUST_USE gm_status gm_barrier(gm_comm *comm);

/* ---- exact sums --------------------------------------------------------------------------------- *
 *
 * The correctly rounded sum: the exact sum of all contributions to an element, rounded once, to nearest, ties to even.
 * It has the same bits in whatever order, grouping and place they are added: at every world size, with every
 * algorithm and transport, and in one process without a communicator. For any f32 input: infinities and NaN come out
 * as IEEE 754 says of a sum (+Inf with -Inf, or any NaN, gives 0x7fc00000; a sum is infinite only if it does not fit,
 * never because something on the way did not), subnormals count, and a sum that is zero is +0, also of -0 alone. The
 * floating-point mode of the threads that call does not matter.
 *
 * There are two ways to it. With one contribution from each rank, gm_all_reduce(..., GM_F32, GM_SUM_EXACT) is all. For
 * results that do not depend on the number of ranks the work is cut into *shards*, as many as one likes (4,096 at the
 * most) whatever the number of ranks, and each rank adds the contributions of its shards, in any order, to an
 * accumulator; the accumulators are then all-reduced:
 *
 *     gm_accumulator_options options;
 *     gm_accumulator_options_default(&options);
 *     options.count = count;                                      // elements
 *     options.n_shards = 24;                                      // of all ranks together
 *     if (gm_accumulator_create(&acc, &options, &error) != GM_OK) ...
 *     for each step:
 *         for each of this rank's shards:
 *             if (gm_accumulator_add(acc, shard, gradient) != GM_OK) ...
 *         if (gm_all_reduce_exact(comm, acc, sum) != GM_OK) ...   // the same bits on every rank, and whatever the ranks
 *         gm_accumulator_reset(acc);
 *
 * A shard that was added twice, on one rank or on two, or not at all, is an error that names it, on every rank, and
 * never a sum.
 *
 * How: an element is a 64-bit *lane* that counts quanta of 2^quantum_exponent. What is not a whole number of quanta, or
 * too large, is *spilled*: kept beside the lanes as it is, and added in arithmetic that is wide enough for all of f32.
 * So quantum and window change speed and size, and no bit of a result. Memory is 8 bytes an element and 8 a spilled
 * number; on the wire lanes take as many bytes as they need (docs/determinism.md has figures).
 *
 * f16 and bf16: convert to f32, which is exact, and round the sum once more, which is not quite the same as rounding
 * once. To round once takes no more than another last step: their lanes are the same. f64 would take lanes of 128
 * bits and spills of 2,100; it is not offered.
 *
 * Calls on one accumulator are for one thread at a time, but for gm_accumulator_add_tile (see there). */

typedef struct gm_accumulator gm_accumulator;

enum { GM_MAX_SHARDS = 4096 }; /* so many contributions can never overflow a lane */

/* Fill with gm_accumulator_options_default, then set what differs. All ranks: the same count, n_shards and
 * quantum_exponent; ranks that differ are a mismatch, with both versions. */
typedef struct gm_accumulator_options {
    size_t struct_bytes;     /* set by gm_accumulator_options_default */
    size_t count;            /* elements, 1 .. 2^32 - 1; must be set */
    int    n_shards;         /* contributions that make the sum, of all ranks together, 1 .. GM_MAX_SHARDS; must be set */
    int    quantum_exponent; /* -126 .. 64; default -47 */
    int    window_bits;      /* numbers of at least 2^(window_bits - 1) quanta are spilled: 26 .. 51, default 51. Fewer
                                bits: fewer bytes where the larger numbers are rare */
    int    is_wire_raw;      /* lanes travel as 8 bytes each; default 0: trimmed, without loss. Ranks may differ */
} gm_accumulator_options;

GM_API void gm_accumulator_options_default(gm_accumulator_options *options);

/* An empty accumulator, the caller's until gm_accumulator_destroy. Does not block. GM_OK; GM_ERR_ARG: options that
 * cannot be right; GM_ERR_UNSUPPORTED: too many elements or shards; GM_ERR_NOMEM. *error (may be NULL) says more. */
GM_API GM_MUST_USE gm_status gm_accumulator_create(gm_accumulator **acc, const gm_accumulator_options *options,
                                                   gm_error *error);
GM_API void gm_accumulator_destroy(gm_accumulator *acc); /* NULL is fine */

/* Adds the contribution of a shard to all elements.
 *
 * GM_OK. GM_ERR_ARG: no such shard. GM_ERR_STATE: the shard has been added already, or the accumulator is in an
 * all-reduce. GM_ERR_NOMEM: no memory for a spilled number; the accumulator is then good for a reset only. After any but
 * the last nothing has been added; gm_accumulator_error has the sentence. Does not block. */
GM_API GM_MUST_USE gm_status gm_accumulator_add(gm_accumulator *acc, int shard, const float *values);

/* The same for a part of the elements, so that a matrix product can add its results as they come: row i, column j of
 * the tile, tile[i * tile_stride + j], is added to element first + i * stride + j. A shard has been added when all of
 * `count` elements of it have; that each was there once is up to the caller, but more than `count` are refused, and
 * fewer fail the all-reduce. Shards may come in turns. Threads may call it at the same time for different elements.
 *
 * GM_OK; GM_ERR_ARG also when the tile reaches beyond the last element; the others as above. */
GM_API GM_MUST_USE gm_status gm_accumulator_add_tile(gm_accumulator *acc, int shard, const float *tile,
                                                     size_t tile_stride, size_t first, size_t stride, size_t n_rows,
                                                     size_t n_columns);

/* sum[i] = the sum of all shards, which must all be in this accumulator: the reference for any world size. `sum`: count
 * elements. GM_OK; GM_ERR_STATE: a shard is missing, and which. */
GM_API GM_MUST_USE gm_status gm_accumulator_finish(gm_accumulator *acc, float *sum);

/* sum[i] = the sum of all shards of all ranks' accumulators, on every rank; a collective like the others. The
 * accumulator is only read: after a failure it still holds what was added.
 *
 * Status: as of collectives; GM_ERR_MISMATCH also, on every rank, when a shard is in no accumulator or in two;
 * GM_ERR_STATE, with nothing started, when one is not complete in this one. The record names it. Algorithms: "ring", "direct", "halving" and "tree". Payload is counted as ever; its
 * size depends on the values. */
GM_API GM_MUST_USE gm_status gm_all_reduce_exact(gm_comm *comm, gm_accumulator *acc, float *sum);

/* Nothing is in it any more; memory is kept. GM_OK; GM_ERR_STATE: it is in an all-reduce. */
GM_API gm_status gm_accumulator_reset(gm_accumulator *acc);

typedef struct gm_accumulator_stats {
    int      n_shards_added;   /* complete, since the last reset */
    uint64_t spilled;          /* numbers that are kept beside the lanes now ... */
    uint64_t spilled_ever;     /* ... and since creation, of so many that were added: */
    uint64_t added_ever;
    uint64_t lane_bytes;       /* memory: of lanes, ... */
    uint64_t spill_bytes;      /* ... and of spilled numbers, own and arriving */
    uint64_t sent_lane_bytes;  /* payload of the last all-reduce: lanes, ... */
    uint64_t sent_spill_bytes; /* ... spilled numbers; the rest is results and frames */
} gm_accumulator_stats;

/* GM_OK, GM_ERR_ARG. Does not block. */
GM_API gm_status gm_accumulator_get_stats(const gm_accumulator *acc, gm_accumulator_stats *stats);

/* The record of the last call on this accumulator that did not return GM_OK. Never NULL; the accumulator's. */
GM_API const gm_error *gm_accumulator_error(const gm_accumulator *acc);

/* ---- messages ---------------------------------------------------------------------------------- *
 *
 * From one rank to another, of any size. All block. One rule for all sizes: a message goes from
 * sender to receiver when both are there. A send is over when its receiver has asked for it and the
 * payload is on its way, so it waits for the receiver, and nothing is kept in between. Messages and
 * collectives do not wait for each other: each pair of ranks that exchanges messages has a
 * connection for them, made when it is first needed.
 *
 * A receive takes the next message from that rank, and must name its tag (from 0), its count and
 * its type. Since a rank is in one call at a time, two that face each other and do not fit can
 * never get any further: another tag, count or type, both sending or both receiving. That fails the
 * communicator at once, on all ranks, with GM_ERR_MISMATCH and both versions of the call; to
 * exchange, call gm_sendrecv. Three ranks that wait for each other in a circle, or a receiver that
 * calls something else, are found by the stall limit, and the error names them.
 *
 * Status: as of collectives. */

/* `count` elements to the rank `to`, which receives them. */
GM_API GM_MUST_USE gm_status gm_send(gm_comm *comm, const void *buffer, size_t count, gm_dtype dtype,
                                     int to, int tag);
GM_API GM_MUST_USE gm_status gm_recv(gm_comm *comm, void *buffer, size_t count, gm_dtype dtype, int from,
                                     int tag);

/* Both at once, at any size: send_count elements to the rank `to`, recv_count from the rank `from`,
 * which may be the same one, or others that send, receive or exchange. The buffers must not
 * overlap. A rank may exchange with itself, if both halves agree. */
GM_API GM_MUST_USE gm_status gm_sendrecv(gm_comm *comm, const void *send, size_t send_count, int to,
                                         int send_tag, void *recv, size_t recv_count, int from,
                                         int recv_tag, gm_dtype dtype);

/* ---- asynchronous work ------------------------------------------------------------------------- *
 *
 * The same collectives, started now and finished later: the service thread moves them while the
 * caller computes. Up to 128 may be in flight; they run one after another in the order in which
 * they were started, which must be the same on all ranks, blocking calls included. Buffers and
 * counts belong to the work until it is done: they may not be written, and `recv` not be read,
 * before gm_work_test or gm_work_wait says so.
 *
 *     gm_work *work;
 *     if (gm_all_reduce_start(comm, grad, grad, count, GM_F32, GM_SUM, &work) != GM_OK) ...
 *     ... compute something else ...
 *     if (gm_work_wait(work, -1) != GM_OK) ...
 *     gm_work_release(work);
 *
 * A start does not wait for other ranks, except for a connection the first time that an algorithm
 * needs one. Status of a start: GM_OK and *work is set; else the record is in gm_comm_error and
 * *work is NULL: what the blocking call returns for arguments, GM_ERR_STATE also when too many are
 * in flight. What goes wrong later is the work's status; with the communicator's failure all
 * unfinished work is done, with that error. */

typedef struct gm_work gm_work;

GM_API GM_MUST_USE gm_status gm_all_reduce_start(gm_comm *comm, const void *send, void *recv,
                                                 size_t count, gm_dtype dtype, gm_redop redop,
                                                 gm_work **work);
GM_API GM_MUST_USE gm_status gm_all_reduce_exact_start(gm_comm *comm, gm_accumulator *acc, float *sum,
                                                       gm_work **work);
GM_API GM_MUST_USE gm_status gm_reduce_start(gm_comm *comm, const void *send, void *recv,
                                             size_t count, gm_dtype dtype, gm_redop redop, int root,
                                             gm_work **work);
GM_API GM_MUST_USE gm_status gm_reduce_scatter_start(gm_comm *comm, const void *send, void *recv,
                                                    size_t count, gm_dtype dtype, gm_redop redop,
                                                    gm_work **work);
GM_API GM_MUST_USE gm_status gm_reduce_scatterv_start(gm_comm *comm, const void *send, void *recv,
                                                    const size_t *counts, gm_dtype dtype,
                                                    gm_redop redop, gm_work **work);
GM_API GM_MUST_USE gm_status gm_all_gather_start(gm_comm *comm, const void *send, void *recv,
                                                 size_t count, gm_dtype dtype, gm_work **work);
GM_API GM_MUST_USE gm_status gm_all_gatherv_start(gm_comm *comm, const void *send, void *recv,
                                                  const size_t *counts, gm_dtype dtype, gm_work **work);
GM_API GM_MUST_USE gm_status gm_broadcast_start(gm_comm *comm, void *buffer, size_t count,
                                                gm_dtype dtype, int root, gm_work **work);
GM_API GM_MUST_USE gm_status gm_gather_start(gm_comm *comm, const void *send, void *recv,
                                             size_t count, gm_dtype dtype, int root, gm_work **work);
GM_API GM_MUST_USE gm_status gm_gatherv_start(gm_comm *comm, const void *send, void *recv,
                                              const size_t *counts, gm_dtype dtype, int root,
                                              gm_work **work);
GM_API GM_MUST_USE gm_status gm_scatter_start(gm_comm *comm, const void *send, void *recv,
                                              size_t count, gm_dtype dtype, int root, gm_work **work);
GM_API GM_MUST_USE gm_status gm_scatterv_start(gm_comm *comm, const void *send, void *recv,
                                               const size_t *counts, gm_dtype dtype, int root,
                                               gm_work **work);
GM_API GM_MUST_USE gm_status gm_all_to_all_start(gm_comm *comm, const void *send, void *recv,
                                                 size_t count, gm_dtype dtype, gm_work **work);
GM_API GM_MUST_USE gm_status gm_all_to_allv_start(gm_comm *comm, const void *send,
                                                  const size_t *send_counts, void *recv,
                                                  const size_t *recv_counts, gm_dtype dtype,
                                                  gm_work **work);
GM_API GM_MUST_USE gm_status gm_barrier_start(gm_comm *comm, gm_work **work);

/* GM_AGAIN: not done yet. GM_OK: done, the result is there. Else how it failed. Never blocks; any thread. */
GM_API gm_status gm_work_test(const gm_work *work);

/* Waits until it is done, for timeout_ms at the most (-1: as long as it takes, which the stall limit bounds).
 * Meanwhile this thread moves the collectives itself. Same results; GM_AGAIN when the time is over. */
GM_API GM_MUST_USE gm_status gm_work_wait(gm_work *work, int timeout_ms);

/* How a work failed; status GM_OK in it if it did not. Only after it is done. The work's. */
GM_API const gm_error *gm_work_error(const gm_work *work);

/* Gives the handle back. One that is not done goes on unattended, and its buffers stay bound until the
 * communicator's next blocking call has returned. NULL is fine. Destroying the communicator ends all handles. */
GM_API void gm_work_release(gm_work *work);

/* ---- what a lean wire format makes of numbers ---------------------------------------------------- */

/* seen[i] = what goes into the sum for send[i] when these `count` f32 numbers are all-reduced or reduce-scattered
 * over `comm` with GM_SUM or GM_AVG: rounded as the wire format rounds them. The same as send[i] with the format
 * "f32", and in a world of one. `seen` may be `send`; other overlaps are not allowed. For error feedback: send - seen
 * is what was lost on the way, to be added to what is sent next. Sends nothing, does not block, any thread.
 * GM_OK, GM_ERR_ARG. */
GM_API gm_status gm_wire_round_trip(const gm_comm *comm, const float *send, float *seen, size_t count);

/* ---- accounting -------------------------------------------------------------------------------- */

/* What the data links have carried and how long collectives took, since creation. */
typedef struct gm_traffic {
    uint64_t calls;               /* collectives that were started, and messages */
    uint64_t payload_sent_bytes;
    uint64_t payload_recv_bytes;
    uint64_t protocol_sent_bytes; /* descriptors, piece headers; for GM_COLLECTIVE_END also handshakes
                                     and what encryption and checksums add */
    uint64_t protocol_recv_bytes;
    uint64_t memory_sent_bytes;   /* of payload and protocol: what went through shared memory */
    uint64_t memory_recv_bytes;
    int64_t  elapsed_ns;          /* inside collectives */
    int64_t  waiting_ns;          /* of that: asleep because nothing could move */
} gm_traffic;

/* The traffic of one kind of collective, or of the whole communicator with GM_COLLECTIVE_END.
 * Does not block. GM_OK, GM_ERR_ARG. */
GM_API gm_status gm_comm_traffic(const gm_comm *comm, gm_collective which, gm_traffic *traffic);

/* What the kernel counted on the TCP connections of the data links: sent_bytes without
 * retransmissions, recv_bytes. When no collective runs they equal payload + protocol - memory of
 * gm_comm_traffic to the byte. (What goes through shared memory passes no kernel and is counted by
 * the library alone; the connection of such a link has carried how the two met, and no more.) Waits
 * up to a second until everything sent is acknowledged. Linux; elsewhere GM_ERR_UNSUPPORTED.
 * GM_OK, GM_ERR_ARG, GM_ERR_UNSUPPORTED, GM_ERR_STATE (a collective is running),
 * GM_ERR_TIMEOUT (something is still unacknowledged). */
GM_API GM_MUST_USE gm_status gm_comm_kernel_traffic(const gm_comm *comm, uint64_t *sent_bytes,
                                                    uint64_t *recv_bytes);

/* The payload that this rank will send in one such call, by the formula of the algorithm that would
 * be chosen: for the ring all-reduce, 2 D less two chunks. `root` matters where there is one; of
 * GM_ALL_TO_ALL `count` is that of a block, of GM_SEND and GM_SENDRECV what is sent. A reduction is
 * taken to be GM_SUM. Does not block. GM_OK, GM_ERR_ARG, GM_ERR_UNSUPPORTED. */
GM_API gm_status gm_comm_payload_formula(const gm_comm *comm, gm_collective which, size_t count,
                                         gm_dtype dtype, int root, uint64_t *sent_bytes);

/* The same for chunks of counts[0], counts[1], ... elements (GM_ALL_TO_ALL: this rank's send_counts). */
GM_API gm_status gm_comm_payload_formula_v(const gm_comm *comm, gm_collective which, const size_t *counts,
                                           gm_dtype dtype, int root, uint64_t *sent_bytes);

/* Which algorithm such a call would run, as it stands: a name, "ring". `redop` matters for reductions only. Does not
 * block; the same on all ranks. NULL: arguments that cannot be right. Static. */
GM_API const char *gm_comm_algorithm(const gm_comm *comm, gm_collective which, size_t count, gm_dtype dtype,
                                     gm_redop redop);

/* Where algorithms are chosen, as in a profile: the kind of the worst link between two ranks, how many ranks, on how many
 * cores of a host that they could use, "loopback.4on2"; on 3 hosts "network.6on2at3"; of one rank "alone". The same on all ranks; lives as long
 * as `comm`. Does not block. */
GM_API const char *gm_comm_site(const gm_comm *comm);

/* The names that gm_comm_options.algorithm knows besides "auto": index from 0; NULL behind the last. Static. */
GM_API const char *gm_algorithm_name(int index);

/* ---- tracing ----------------------------------------------------------------------------------- *
 *
 * What a rank did and when: its calls, the transfers that they were made of, and what the caller
 * adds. With gm_comm_options.trace_events the communicator keeps that many events, in memory that is taken
 * when it is created (a split has as much of its own); when it is full the oldest give way. Without it a trace
 * costs one branch here and there. All times are nanoseconds of this host's monotonic clock; gm_comm_clock tells how
 * the ranks' clocks differ. Ranks are numbers in this communicator. */

typedef enum gm_trace_kind {
    GM_TRACE_SPAN,   /* the caller's own, by gm_trace_end */
    GM_TRACE_CALL,   /* a collective or message, from its turn to its end */
    GM_TRACE_SEND,   /* payload of one step of an algorithm to one peer, from its first byte to its last */
    GM_TRACE_RECEIVE
} gm_trace_kind;

typedef struct gm_trace_event {
    gm_trace_kind kind;
    int64_t       begin_ns, end_ns;
    const char   *name;     /* SPAN: the caller's; CALL: of the collective; SEND, RECEIVE: of the phase, "all-gather"; of a SEND
                               that of the collective when the sender cannot tell */
    const char   *category; /* SPAN: the caller's; else the algorithm's name */
    int64_t       number;   /* SPAN: the caller's; SEND, RECEIVE: how many this call had before, with this peer and in
                               this direction, so that a send and its receive have the same */
    /* All but SPAN: */
    uint64_t      seq;      /* which call, counted from 1 per communicator; 0: a message */
    gm_collective collective;
    uint64_t      bytes;    /* CALL: of the whole buffer; SEND, RECEIVE: of payload */
    /* CALL: */
    gm_status     status;
    gm_dtype      dtype;        /* GM_DTYPE_END: it has none (a barrier) */
    uint64_t      count;        /* elements of the whole buffer */
    uint64_t      sent_bytes;   /* payload; begin_ns is when this rank arrived, ... */
    int           last_rank;    /* ... this one came last of all that it heard from (itself among them), ... */
    int64_t       last_ns;      /* ... then, by the clock of that rank's host */
    /* SEND, RECEIVE: */
    int           peer;
    int           step;         /* of the algorithm, from 0 */
    int           is_added;     /* RECEIVE: it is combined with what is there, not put in its place (SEND: if known) */
    int           chunk;        /* to whom the elements belong; -1: to several, or not known here */
    int64_t       first_elem;   /* of the whole buffer; -1: not known here (perhaps at the other end) */
    int64_t       n_elems;      /* -1: not known here */
} gm_trace_event;

/* A span of the caller's begins: when, or 0 without a trace. gm_trace_end records it: `category` and `name` are
 * kept as pointers (string literals, say), `number` means what the caller likes (a step, a layer; -1: nothing). Spans of
 * one thread should nest. `comm` may be NULL: nothing happens. Do not block, any thread. */
GM_API int64_t gm_trace_begin(gm_comm *comm);
GM_API void    gm_trace_end(gm_comm *comm, int64_t begin_ns, const char *category, const char *name, int64_t number);

/* Interrupts the recording (is_on 0) or goes on with it, from the next call on. Does not block, any thread. GM_OK;
 * GM_ERR_ARG; GM_ERR_STATE: there is no trace. */
GM_API gm_status gm_trace_record(gm_comm *comm, int is_on);

/* Copies the newest events, n_most of them at the most, in the order in which they ended. *n_dropped (may be NULL)
 * are not there any more or did not fit. With `events` NULL only *n_events is told. A failed communicator can be read
 * like any other. Any thread. GM_OK; GM_ERR_ARG; GM_ERR_STATE: there is no trace. */
GM_API GM_MUST_USE gm_status gm_trace_read(gm_comm *comm, gm_trace_event *events, size_t n_most, size_t *n_events,
                                           uint64_t *n_dropped);
/* Forgets all events, and how many were dropped. Same statuses. */
GM_API gm_status gm_trace_clear(gm_comm *comm);

/* *offset_ns: how far the clock of this rank is ahead of rank 0's, right now: its time less the offset is rank 0's
 * time. It is right to within *error_ns. Every rank calls it, as a collective: rank 0 exchanges a few small messages with
 * each of the others in turn and believes the quickest. (Clocks of different hosts drift apart by microseconds a
 * second.) Is not recorded. Status: as of messages. */
GM_API GM_MUST_USE gm_status gm_comm_clock(gm_comm *comm, int64_t *offset_ns, int64_t *error_ns);

/* The version of the library that is running, "0.1.0"; compare with GM_VERSION_STRING. Static. */
GM_API const char *gm_version(void);

#ifdef __cplusplus
}
#endif
#endif
