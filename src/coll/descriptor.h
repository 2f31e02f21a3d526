/* descriptor.h - what a collective call is, as 64 bytes that travel in front of its payload.
 *
 * Each rank sends its descriptor to every peer that it will send to in this call, in the same write as
 * the first payload, and compares the one that arrives with its own before anything is used. So ranks that
 * call different things find out at no extra round trip. Field by field: docs/protocol.md. */
#ifndef GMI_DESCRIPTOR_H
#define GMI_DESCRIPTOR_H

#include <stdbool.h>

#include "gradmesh.h"

enum { GMI_DESCRIPTOR_BYTES = 64, GMI_PIECE_HEADER_BYTES = 8 };

/* The descriptors of messages (coll/message.h): GM_SEND, "I have this for you", and GM_RECV, "I want this from you". The
 * tag is `root`, the number 0, and counts_hash holds for whom it is, with a flag in a GM_RECV of a rank that also has
 * something for the other in the same call. */
#define GMI_AND_SENDS UINT32_C(0x80000000)
static inline bool gmi_is_message(gm_collective which) { return which >= GM_SEND && which <= GM_SENDRECV; }

/* As counts_hash: each pair of ranks has a count of its own (all_to_allv), count_elems on the wire. */
enum { GMI_COUNTS_BY_PAIR = 1 };

struct gmi_descriptor {
    uint8_t  collective; /* gm_collective */
    uint8_t  algorithm;  /* gmi_algo.id */
    uint8_t  dtype;      /* gm_dtype; 0xff: none */
    uint8_t  redop;      /* gm_redop; 0xff: none */
    uint8_t  codec;      /* gmi_codec.id */
    int8_t   quantum_exponent; /* of exact sums ... */
    uint16_t n_shards;         /* ... as of accumulators; else 0 */
    int32_t  root;       /* -1: none */
    uint32_t epoch;
    uint32_t group;      /* which communicator */
    uint64_t seq;        /* counted from 1 per communicator */
    uint64_t count_elems;
    uint32_t piece_bytes;
    uint32_t counts_hash; /* of chunk sizes that the caller gave; 0: none */
    int32_t  rank;       /* who sends it; not compared */
    int64_t  arrival_ns; /* when that rank entered the call, by its clock; not compared */
    uint16_t core;       /* on which core of its host, from 1; 0: not known; not compared */
};

void gmi_descriptor_encode(const struct gmi_descriptor *d, uint8_t wire[GMI_DESCRIPTOR_BYTES]);

/* False: these bytes are no descriptor (wrong magic or check sum). */
bool gmi_descriptor_decode(struct gmi_descriptor *d, const uint8_t wire[GMI_DESCRIPTOR_BYTES]);

/* Do both describe the same call? */
bool gmi_descriptor_same(const struct gmi_descriptor *a, const struct gmi_descriptor *b);

/* "all_reduce #417 (ring, f32, sum, 1048576 elems)". Returns `text`. */
const char *gmi_descriptor_format(const struct gmi_descriptor *d, char *text, size_t text_bytes);

#endif
