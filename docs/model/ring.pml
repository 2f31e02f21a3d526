/* ring.pml - the ring all-reduce of src/coll/ring.c, for the model checker Spin.
 *
 * Asked: can it stop half-way, whatever the sizes of chunks and of the buffers in the links, and in
 * whatever order the ranks run? Does every rank end with every contribution, once, in every place?
 *
 *   N   ranks          C   units in a chunk (a unit: what a link carries or holds as one)
 *   K   units that a link holds: send buffer, network and receive buffer together
 *
 * A unit's value is the set of ranks whose contribution is in it, as a bit mask: a sum that forgets
 * nobody and counts nobody twice.
 *
 * -DBLOCKING is the old bug: first send the whole chunk, waiting for room, then receive one. It
 * freezes exactly when C > K, and a search that does not find that would be worth nothing. */
#ifndef N
#define N 3
#endif
#ifndef C
#define C 2
#endif
#ifndef K
#define K 1
#endif

#define EVERYBODY ((1 << N) - 1)
#define UNITS     ((2 * N - 2) * C) /* that each rank sends, and receives */
#define RIGHT     link[r]
#define LEFT      link[(r + N - 1) % N]

/* Chunk sent in a step by rank r; 2N keeps the dividend positive. */
#define CHUNK(step)    ((r + 2 * N - 1 - (step)) % N)
#define SENT_PLACE     (CHUNK(out / C) * C + out % C)
#define RECEIVED_PLACE (CHUNK(in / C + 1) * C + in % C)

chan link[N] = [K] of { byte };
byte n_done = 0;

inline send_one() { RIGHT ! value[SENT_PLACE]; out++ }

/* The reduce-scatter adds what arrives, the all-gather replaces; what arrives then is complete. */
inline receive_one()
{
    LEFT ? unit;
    if
    :: in / C < N - 1 ->
        assert((value[RECEIVED_PLACE] & unit) == 0);
        value[RECEIVED_PLACE] = value[RECEIVED_PLACE] | unit
    :: else ->
        assert(unit == EVERYBODY);
        assert(out > in + C - N * C); /* our own share of it has left (invariant 3) */
        value[RECEIVED_PLACE] = unit
    fi;
    in++
}

proctype rank(byte r)
{
    byte value[N * C];
    byte in = 0, out = 0, unit, i;

    for (i : 0 .. N * C - 1) { value[i] = 1 << r }

#ifdef BLOCKING
    do
    :: out < UNITS ->
        do
        :: send_one(); if :: out % C == 0 -> break :: else fi
        od;
        do
        :: receive_one(); if :: in % C == 0 -> break :: else fi
        od
    :: else -> break
    od;
#else
    /* Two cursors. What may be sent is what is settled, one step earlier (invariant 1). */
    do
    :: out < UNITS && out < in + C && nfull(RIGHT) -> atomic { send_one() }
    :: in < UNITS && nempty(LEFT) -> atomic { receive_one() }
    :: out == UNITS && in == UNITS -> break
    od;
#endif

    for (i : 0 .. N * C - 1) { assert(value[i] == EVERYBODY) }
    atomic { n_done++ }
}

init
{
    byte k;
    atomic { for (k : 0 .. N - 1) { run rank(k) } }
    n_done == N;
    for (k : 0 .. N - 1) { assert(empty(link[k])) } /* no byte is left for the next call */
}
