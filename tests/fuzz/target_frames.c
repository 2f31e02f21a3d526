/* Data links: what arrives at one rank of a small collective, whatever algorithm it runs. The first bytes choose the
 * call; then chunks for one peer's link: whose, kind, and by kind
 *     0   u8 length, bytes as they come
 *     1   the descriptor that must come from that peer
 *     2   u16: a piece header of that length for this call
 *     3   u8 length: so many bytes of some number
 *     4   nothing: the link ends */
#include <string.h>

#include "base/alloc.h"
#include "coll/algo.h"
#include "coll/message.h"
#include "tests/fuzz/targets.h"

enum { MAX_RANKS = 4, LINK_BYTES = 4096, N_KINDS = 5, SEQ = 3 };

struct rank {
    struct gmi_group   group;
    struct gmi_port    ports[MAX_RANKS];
    struct gmi_link   *far[MAX_RANKS]; /* the peers' ends */
    struct gmi_op      op;
    struct gmi_request request;
    uint64_t           host_ids[MAX_RANKS];
    gm_accumulator    *exact;
    uint8_t           *memory[2], *work;
};

/* ---- the call ------------------------------------------------------------------------------------ */

static const struct gmi_algo *choose_algo(uint8_t number)
{
    size_t n_rows = 0;
    while (gmi_algo_row(n_rows) != NULL) n_rows++;
    size_t index = number % (n_rows + 1);
    return index < n_rows ? gmi_algo_row(index) : &gmi_message_algo;
}

static bool choose_call(struct rank *r, struct fuzz_input *in, const struct gmi_algo **algo)
{
    static const gm_dtype    dtypes[] = { GM_F32, GM_F64, GM_I8, GM_F16 };
    static const char *const wires[] = { "f32", "bf16", "f16", "int8" };
    *algo = choose_algo(fuzz_u8(in));
    int n = 2 + fuzz_u8(in) % (MAX_RANKS - 1), rank = fuzz_u8(in) % n;
    if ((*algo)->max_ranks != 0 && n > (*algo)->max_ranks) return false;
    r->group = (struct gmi_group){ .rank = rank, .n_ranks = n, .id = 7, .ports = r->ports };
    uint8_t host_of = fuzz_u8(in);
    for (int k = 0; k < n; k++) r->host_ids[k] = host_of >> 2 * k & 3; /* 0: not known */
    struct gmi_request *q = &r->request;
    *q = (struct gmi_request){ .which = (*algo)->collective, .count_elems = fuzz_u8(in) % 70, .dtype = dtypes[fuzz_u8(in) % 4],
                               .redop = -1, .root = -1 };
    if (gmi_request_is_reduction(q)) q->redop = fuzz_u8(in) % GM_REDOP_END;
    if ((*algo)->shows == GMI_VIEW_EXACT) {
        q->dtype = GM_F32;
        q->redop = GM_SUM_EXACT;
    } else if (q->redop == GM_SUM_EXACT) {
        return false;
    }
    if (gmi_has_root(q->which)) q->root = fuzz_u8(in) % n;
    uint8_t wire = fuzz_u8(in);
    if ((*algo)->shows == GMI_VIEW_LEAN && !gmi_wire_find(wires[wire % 4], &q->wire)) return false;
    if (q->which == GM_ALL_TO_ALL) q->count_elems -= q->count_elems % (size_t)n;
    if (q->which == GM_BARRIER) q->count_elems = 0;
    if (*algo == &gmi_message_algo) {
        int peer = (rank + 1) % n, other = wire % 2 ? peer : (rank + n - 1) % n;
        q->message = (struct gmi_message_call){ .to = peer, .from = other, .send_tag = 1, .recv_tag = 1,
                                                .send_elems = q->count_elems, .recv_elems = q->count_elems };
        q->which = GM_SENDRECV;
    }
    return gmi_request_choose_codec(q) == GM_OK && ((*algo) == &gmi_message_algo || gmi_algo_serves(*algo, q->codec.needs));
}

/* This rank's contribution, of zeros. */
static void make_exact(struct rank *r)
{
    struct gmi_request    *q = &r->request;
    gm_accumulator_options options;
    gm_accumulator_options_default(&options);
    options.count = q->count_elems > 0 ? q->count_elems : 1;
    options.n_shards = r->group.n_ranks;
    fuzz_check(gm_accumulator_create(&r->exact, &options, NULL) == GM_OK);
    if (q->count_elems > 0) fuzz_check(gm_accumulator_add(r->exact, r->group.rank, (const float *)(const void *)r->memory[0]) == GM_OK);
    q->exact = r->exact;
}

static void set_up(struct rank *r, const struct gmi_algo *algo, uint32_t piece_bytes)
{
    struct gmi_request *q = &r->request;
    int                 n = r->group.n_ranks;
    size_t              total_bytes = q->count_elems * q->codec.elem_bytes;
    bool                is_in_place = q->which == GM_BROADCAST;
    for (int i = 0; i < 2; i++) fuzz_check((r->memory[i] = calloc(total_bytes + 1, 1)) != NULL);
    fuzz_check(gmi_layout_init(&r->group.layout, r->host_ids, n) == GM_OK);
    r->exact = NULL;
    if (q->redop == GM_SUM_EXACT) make_exact(r);
    q->send = r->memory[is_in_place];
    q->recv = r->memory[1];
    for (int k = 0; k < n; k++) {
        struct gmi_link *pair[2] = { NULL, NULL };
        r->far[k] = NULL;
        r->ports[k] = (struct gmi_port){ .peer = k };
        if (k == r->group.rank) continue;
        fuzz_check(gmi_link_mem_pair(pair, LINK_BYTES) == GM_OK);
        r->ports[k].link = pair[0];
        r->far[k] = pair[1];
    }
    static uint8_t scratch[GMI_SCRATCH_BYTES];
    size_t         work_bytes = gmi_op_work_bytes(q, algo, &r->group);
    fuzz_check((r->work = malloc(work_bytes + 1)) != NULL);
    r->op = (struct gmi_op){ .group = &r->group, .scratch = scratch, .work = r->work };
    gmi_op_set_up(&r->op, algo, q, SEQ);
    r->op.call.piece_bytes = piece_bytes;
    gmi_op_begin(&r->op);
}

static void tear_down(struct rank *r)
{
    for (int k = 0; k < r->group.n_ranks; k++) {
        gmi_link_close(r->ports[k].link);
        gmi_link_close(r->far[k]);
    }
    gm_accumulator_destroy(r->exact);
    gmi_layout_fini(&r->group.layout);
    free(r->work);
    free(r->memory[0]);
    free(r->memory[1]);
}

/* ---- what arrives -------------------------------------------------------------------------------- */

static void arrive(struct rank *r, int peer, const void *bytes, size_t n_bytes)
{
    struct iovec part = { (void *)(uintptr_t)bytes, n_bytes };
    size_t       moved;
    if (n_bytes > 0 && r->far[peer] != NULL) (void)gmi_link_send_some(r->far[peer], &part, 1, &moved);
}

static struct gmi_descriptor expected_from(const struct rank *r, int peer, uint8_t variant)
{
    bool                  is_message = r->op.algo == &gmi_message_algo;
    struct gmi_descriptor d = is_message ? r->op.call : gmi_op_call_from(&r->op, peer);
    if (is_message) {
        d.collective = variant % 2 ? GM_SEND : GM_RECV;
        d.root = 1;
        d.counts_hash = (uint32_t)r->group.rank | (variant & 2 ? GMI_AND_SENDS : 0);
    }
    d.rank = peer;
    return d;
}

static void arrive_chunk(struct rank *r, struct fuzz_input *in)
{
    int            peer = fuzz_u8(in) % r->group.n_ranks, kind = fuzz_u8(in) % N_KINDS;
    uint8_t        bytes[256];
    size_t         n;
    const uint8_t *at;
    switch (kind) {
    case 0:
        at = fuzz_take(in, fuzz_u8(in), &n);
        arrive(r, peer, at, n);
        break;
    case 1: {
        struct gmi_descriptor d = expected_from(r, peer, r->op.algo == &gmi_message_algo ? fuzz_u8(in) : 0);
        gmi_descriptor_encode(&d, bytes);
        arrive(r, peer, bytes, GMI_DESCRIPTOR_BYTES);
        break;
    }
    case 2:
        gmi_put_u32(bytes, fuzz_u16(in));
        gmi_put_u32(bytes + 4, (uint32_t)r->op.call.seq);
        arrive(r, peer, bytes, GMI_PIECE_HEADER_BYTES);
        break;
    case 3:
        n = fuzz_u8(in);
        memset(bytes, (int)n, sizeof bytes);
        arrive(r, peer, bytes, n);
        break;
    default:
        if (r->far[peer] != NULL) gmi_link_close(r->far[peer]);
        r->far[peer] = NULL;
    }
}

static void drain(struct rank *r)
{
    static uint8_t away[LINK_BYTES];
    struct iovec   part = { away, sizeof away };
    size_t         moved;
    for (int k = 0; k < r->group.n_ranks; k++) {
        while (r->far[k] != NULL && gmi_link_recv_some(r->far[k], &part, 1, &moved) == GM_OK) {}
    }
}

void fuzz_frames(const uint8_t *bytes, size_t n_bytes)
{
    static const uint32_t  pieces[] = { 1, 5, 16, GMI_PIECE_BYTES };
    struct fuzz_input      in = { bytes, n_bytes };
    static struct rank     r;
    const struct gmi_algo *algo;
    uint32_t               piece_bytes = pieces[fuzz_u8(&in) % 4];
    if (!choose_call(&r, &in, &algo)) return;
    set_up(&r, algo, piece_bytes);
    gm_status status = gmi_op_progress(&r.op);
    while (status == GM_AGAIN && in.left_bytes > 0) {
        arrive_chunk(&r, &in);
        drain(&r);
        status = gmi_op_progress(&r.op);
        if (status == GM_AGAIN) gmi_op_interest(&r.op, NULL);
    }
    if (status != GM_OK && status != GM_AGAIN) {
        char text[128];
        fuzz_check(r.op.trouble.status == status && r.op.trouble.peer >= 0 && r.op.trouble.peer < r.group.n_ranks);
        if (r.op.trouble.has_theirs) (void)gmi_descriptor_format(&r.op.trouble.theirs, text, sizeof text);
    }
    tear_down(&r);
}

/* ---- seeds --------------------------------------------------------------------------------------- */

/* One for each row: a world of two, or three, in which the right descriptors and plausible pieces come. */
static void keep_row(fuzz_keep_fn keep, void *user, size_t row, int n)
{
    uint8_t w[512] = { 3, (uint8_t)row, (uint8_t)(n - 2), 0, 0x95, 12, 0, 0, 0, 0 };
    size_t  used = 4 + 6;
    for (int round = 0; round < 6; round++) {
        for (int peer = 1; peer < n; peer++) {
            const uint8_t chunks[] = { (uint8_t)peer, 1, (uint8_t)peer, 2, (uint8_t)(48 / n), 0, (uint8_t)peer, 3, (uint8_t)(48 / n) };
            size_t skip = round == 0 ? 0 : 2;
            memcpy(w + used, chunks + skip, sizeof chunks - skip);
            used += sizeof chunks - skip;
        }
    }
    keep(user, w, used);
}

void fuzz_frames_seed(fuzz_keep_fn keep, void *user)
{
    size_t row = 0;
    for (; gmi_algo_row(row) != NULL; row++) {
        keep_row(keep, user, row, 2);
        keep_row(keep, user, row, 3);
    }
    keep_row(keep, user, row, 2);
}
