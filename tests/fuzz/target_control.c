/* Control connections: one byte, even for rank 0 and odd for rank 1 of three; then chunks: from whom, u8 length, bytes. A length
 * of 0 instead ends that connection. */
#include <string.h>

#include "base/bytes.h"
#include "comm/control.h"
#include "net/socket.h"
#include "tests/fuzz/targets.h"

enum { N = 3, N_LANES = 2, N_CONSTANTS = 18 /* of the cost model */ };

static void ignore(void *user) { (void)user; }
static void ignore_call(void *user, int peer, uint32_t group_id, int lane)
{
    (void)user, (void)group_id;
    fuzz_check(peer >= 0 && peer < N && lane >= 0 && lane < N_LANES);
}

static void check_state(const struct gmi_control *c)
{
    char missing[160];
    gmi_control_missing(c, missing, sizeof missing);
    fuzz_check(strlen(missing) < sizeof missing);
    if (c->has_failure) fuzz_check(memchr(c->failure.cause, '\0', sizeof c->failure.cause) != NULL);
    for (int k = 0; k < N; k++) {
        fuzz_check(memchr(c->members[k].address, '\0', sizeof c->members[k].address) != NULL);
        (void)gmi_control_may_share(c, k);
    }
    (void)gmi_control_absentee(c, 3);
}

void fuzz_control(const uint8_t *bytes, size_t n_bytes)
{
    struct fuzz_input  in = { bytes, n_bytes };
    struct gmi_control c;
    int                ends[N][2], rank = fuzz_u8(&in) % 2;
    fuzz_check(gmi_control_init(&c, rank, N, "lr=0.1\nwire format=f32\n", NULL, ignore, NULL) == GM_OK);
    c.call_back = ignore_call;
    c.n_lanes = N_LANES;
    for (int k = 0; k < N; k++) {
        bool is_connected = rank == 0 ? k > 0 : k == 0;
        ends[k][0] = -1;
        if (!is_connected) continue;
        fuzz_socket_pair(ends[k]);
        if (rank == 0) gmi_control_admit(&c, k, gmi_stream_plain(ends[k][1]));
        else gmi_control_attach(&c, gmi_stream_plain(ends[k][1]), "127.0.0.1:8");
    }
    if (rank == 0) gmi_control_join_self(&c, "127.0.0.1:7");
    while (in.left_bytes > 0) {
        int            from = rank == 0 ? 1 + fuzz_u8(&in) % (N - 1) : 0 * fuzz_u8(&in);
        size_t         n, want = fuzz_u8(&in);
        const uint8_t *at = fuzz_take(&in, want, &n);
        if (want == 0) gmi_socket_close(&ends[from][0]);
        if (ends[from][0] >= 0) fuzz_send(ends[from][0], at, n);
        gmi_control_step(&c);
        check_state(&c);
        for (int k = 0; k < N; k++) {
            if (ends[k][0] >= 0) fuzz_drain(ends[k][0]);
        }
    }
    gmi_control_leave(&c, 1);
    gmi_control_step(&c);
    gmi_control_fini(&c);
    for (int k = 0; k < N; k++) gmi_socket_close(&ends[k][0]);
}

/* ---- seeds --------------------------------------------------------------------------------------- */

struct script {
    struct gmi_buffer all;
};

static void say(struct script *s, int from, enum gmi_message kind, const struct gmi_buffer *body)
{
    uint8_t head[2 + GMI_MESSAGE_HEADER_BYTES] = { (uint8_t)(from - 1), (uint8_t)(GMI_MESSAGE_HEADER_BYTES + body->used_bytes) };
    fuzz_check(GMI_MESSAGE_HEADER_BYTES + body->used_bytes < 256);
    gmi_put_u32(head + 2, (uint32_t)body->used_bytes);
    head[6] = (uint8_t)kind;
    gmi_buffer_append(&s->all, head, sizeof head);
    gmi_buffer_append(&s->all, body->bytes, body->used_bytes);
}

static void put_place(struct gmi_buffer *b)
{
    gmi_buffer_put_text(b, "127.0.0.1:9");
    gmi_buffer_put_u64(b, 77);
    gmi_buffer_put_u32(b, GMI_SHARES_WHERE_IT_CAN);
}

static void say_join(struct script *s, int from)
{
    struct gmi_buffer b = { 0 };
    put_place(&b);
    gmi_buffer_put_text(&b, "lr=0.1\nwire format=f32\n");
    say(s, from, GMI_JOIN, &b);
    gmi_buffer_fini(&b);
}

static void say_ready(struct script *s)
{
    struct gmi_buffer b = { 0 };
    gmi_buffer_put_u64(&b, 1234);
    gmi_buffer_put_u32(&b, 0);
    gmi_buffer_put_u32(&b, N);
    for (int i = 0; i < N_CONSTANTS; i++) gmi_buffer_put_u32(&b, 100);
    gmi_buffer_put_u32(&b, 1); /* choices */
    for (int i = 0; i < 6; i++) gmi_buffer_put_u16(&b, 1);
    gmi_buffer_put_u64(&b, UINT64_MAX);
    for (int k = 0; k < N; k++) put_place(&b);
    say(s, 1, GMI_READY_TABLE, &b);
    gmi_buffer_fini(&b);
}

static void say_numbers(struct script *s, int from, enum gmi_message kind, const uint32_t *numbers, int n)
{
    struct gmi_buffer b = { 0 };
    for (int i = 0; i < n; i++) gmi_buffer_put_u32(&b, numbers[i]);
    say(s, from, kind, &b);
    gmi_buffer_fini(&b);
}

static void say_call(struct script *s, int from, enum gmi_message kind, int collective)
{
    struct gmi_descriptor call = { .collective = (uint8_t)collective, .algorithm = 1, .rank = from, .seq = 2, .count_elems = 5,
                                   .piece_bytes = 1 << 20, .root = -1 };
    uint8_t               wire[GMI_DESCRIPTOR_BYTES];
    struct gmi_buffer     b = { 0 };
    gmi_descriptor_encode(&call, wire);
    gmi_buffer_append(&b, wire, sizeof wire);
    gmi_buffer_put_u32(&b, kind == GMI_WAITING ? 3 - (uint32_t)from : 5000);
    if (kind == GMI_WAITING) gmi_buffer_put_u32(&b, 0);
    say(s, from, kind, &b);
    gmi_buffer_fini(&b);
}

static void say_failure(struct script *s, int from)
{
    struct gmi_failure f = { .status = GM_ERR_PEER_LOST, .culprit = 2, .reporter = from, .cause = "rank 2\nis gone" };
    struct gmi_buffer  b = { 0 };
    gmi_failure_encode(&f, &b);
    say(s, from, GMI_FAILURE, &b);
    gmi_buffer_fini(&b);
}

static void begin(struct script *s, uint8_t rank)
{
    *s = (struct script){ { 0 } };
    gmi_buffer_append(&s->all, &rank, 1);
}

static void end(struct script *s, fuzz_keep_fn keep, void *user)
{
    keep(user, s->all.bytes, s->all.used_bytes);
    gmi_buffer_fini(&s->all);
}

void fuzz_control_seed(fuzz_keep_fn keep, void *user)
{
    struct script s;
    begin(&s, 0);
    say_join(&s, 1);
    say_join(&s, 2);
    say_call(&s, 1, GMI_WAITING, GM_ALL_REDUCE);
    say_numbers(&s, 1, GMI_CALL_BACK, (const uint32_t[]){ 1, 2, 99, 1 }, 4);
    say_numbers(&s, 2, GMI_KNOCK, (const uint32_t[]){ 2, 1 }, 2);
    say_numbers(&s, 1, GMI_KNOCK, (const uint32_t[]){ 1, 0 }, 2);
    say_numbers(&s, 2, GMI_GOODBYE, (const uint32_t[]){ 2, 5, 0 }, 3);
    say_failure(&s, 1);
    end(&s, keep, user);
    begin(&s, 0);
    say_join(&s, 2);
    say_join(&s, 1);
    say_call(&s, 1, GMI_WAITING, GM_ALL_REDUCE);
    say_call(&s, 2, GMI_WAITING, GM_BROADCAST);
    end(&s, keep, user);
    begin(&s, 0);
    say_join(&s, 2);
    say_join(&s, 1);
    say_call(&s, 2, GMI_WAITING, GM_SENDRECV);
    say_call(&s, 1, GMI_WAITING, GM_SENDRECV);
    say_call(&s, 1, GMI_STALLED, GM_SENDRECV);
    end(&s, keep, user);
    begin(&s, 1);
    say_numbers(&s, 1, GMI_MISSING, (const uint32_t[]){ 4, 0x32202c31 }, 2);
    say_ready(&s);
    say_numbers(&s, 1, GMI_CALL_BACK, (const uint32_t[]){ 0, 1, 99, 0 }, 4);
    say_numbers(&s, 1, GMI_GOODBYE, (const uint32_t[]){ 2, 5, 0 }, 3);
    say_failure(&s, 1);
    end(&s, keep, user);
}
