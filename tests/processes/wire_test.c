/* Lean wire formats between processes: near the exact result and the same bits everywhere, in as many bytes as the
 * formula and the kernel say; nothing else is touched; ranks with different formats do not meet. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/support/ranks.h"

enum { COUNT = 300007, FEW = 5 };

static const char *const formats[] = { "bf16", "f16", "int8" };

static float value_of(int rank, size_t i) { return (float)(gmi_rng_unit((uint64_t)rank + 7, i) - 0.5) * 4; }

/* How far a number whose block's largest magnitude is `largest` may be rounded. */
static double step_of(const char *format, double x, double largest)
{
    if (strcmp(format, "bf16") == 0) return fabs(x) * 0x1p-8;
    if (strcmp(format, "f16") == 0) return fabs(x) * 0x1p-11 + 0x1p-25;
    return largest / 254 * 1.001;
}

/* Each contribution is rounded once and the sum once, whatever the number of ranks. */
static double bound_of(const char *format, int n_ranks, size_t i)
{
    double bound = 0, sum = 0;
    for (int r = 0; r < n_ranks; r++) {
        double x = (double)value_of(r, i);
        bound += step_of(format, x, 2);
        sum += x;
    }
    return bound + step_of(format, fabs(sum) + bound, 2 * n_ranks) + 1e-5;
}

static double sum_of(int n_ranks, size_t i)
{
    double sum = 0;
    for (int r = 0; r < n_ranks; r++) sum += (double)value_of(r, i);
    return sum;
}

static uint64_t hash(const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    uint64_t       h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * UINT64_C(1099511628211);
    return h;
}

static size_t bytes_of(const char *format, size_t count)
{
    return strcmp(format, "int8") == 0 ? count + 4 * ((count + 127) / 128) : 2 * count;
}

/* What this rank sends for an all-reduce: the other chunks once, its own to each other rank. */
static uint64_t bytes_sent(const struct rank_self *self, const char *format, size_t count)
{
    uint64_t bytes = 0;
    for (int k = 0; k < self->world_size; k++) {
        size_t first, n;
        gm_chunk(count, self->world_size, k, &first, &n);
        bytes += bytes_of(format, n) * (k == self->rank ? (uint64_t)self->world_size - 1 : 1);
    }
    return bytes;
}

static void check_sums(struct rank_self *self, const char *format, const float *sums, size_t first, size_t n, double scale)
{
    for (size_t i = first; i < first + n; i++) {
        double want = sum_of(self->world_size, i) * scale, bound = bound_of(format, self->world_size, i) * scale;
        double have = (double)sums[i - first];
        if (fabs(have - want) > bound) {
            rank_fail(self, __FILE__, __LINE__, "%s, element %zu: %g, which is not within %g of %g", format, i, have, bound, want);
        }
    }
}

static void fill(const struct rank_self *self, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = value_of(self->rank, i);
}

static uint64_t payload_sent(struct rank_self *self)
{
    gm_traffic t;
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &t));
    return t.payload_sent_bytes;
}

static void check_formula(struct rank_self *self, const char *format, size_t count, uint64_t sent)
{
    uint64_t formula;
    rank_ok(self, gm_comm_payload_formula(self->comm, GM_ALL_REDUCE, count, GM_F32, 0, &formula));
    rank_check(self, formula == bytes_sent(self, format, count));
    rank_check(self, formula == sent);
}

static void all_reduce_some(struct rank_self *self, const char *format, float *values, float *sums, size_t count)
{
    uint64_t before = payload_sent(self);
    fill(self, values, count);
    rank_ok(self, gm_all_reduce(self->comm, values, sums, count, GM_F32, GM_SUM));
    check_formula(self, format, count, payload_sent(self) - before);
    check_sums(self, format, sums, 0, count, 1);
    uint64_t bits = hash(sums, count * sizeof *sums);
    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_F32, GM_SUM)); /* in place: the same */
    rank_check(self, hash(values, count * sizeof *values) == bits);
    self->record->numbers[0] = self->record->numbers[0] * 31 + bits;
    fill(self, values, count);
    gm_work *work;
    rank_ok(self, gm_all_reduce_start(self->comm, values, values, count, GM_F32, GM_AVG, &work));
    rank_ok(self, gm_work_wait(work, -1));
    gm_work_release(work);
    check_sums(self, format, values, 0, count, 1.0 / self->world_size);
    self->record->numbers[0] = self->record->numbers[0] * 31 + hash(values, count * sizeof *values);
}

static void reduce_scatter_some(struct rank_self *self, const char *format, float *values, float *sums, size_t count)
{
    size_t first, n;
    fill(self, values, count);
    gm_chunk(count, self->world_size, self->rank, &first, &n);
    rank_ok(self, gm_reduce_scatter(self->comm, values, sums, count, GM_F32, GM_SUM));
    check_sums(self, format, sums, first, n, 1);
}

/* Sums of what gm_wire_round_trip says are exactly those that come out, but for the rounding at the end. */
static void check_round_trip(struct rank_self *self, float *values, float *sums, size_t count)
{
    size_t first, n;
    gm_chunk(count, self->world_size, self->rank, &first, &n);
    fill(self, values, count);
    rank_ok(self, gm_reduce_scatter(self->comm, values, sums, count, GM_F32, GM_SUM));
    float *seen = calloc(count, sizeof *seen), *total = calloc(count, sizeof *total);
    rank_check(self, seen != NULL && total != NULL);
    for (int r = 0; r < self->world_size; r++) {
        for (size_t i = 0; i < count; i++) seen[i] = value_of(r, i);
        rank_ok(self, gm_wire_round_trip(self->comm, seen, seen, count));
        for (size_t i = 0; i < count; i++) total[i] = r == 0 ? seen[i] : total[i] + seen[i];
    }
    rank_check(self, memcmp(total + first, sums, n * sizeof *sums) == 0);
    free(seen);
    free(total);
}

/* Not to be rounded: other types, other reductions, other collectives. */
static void check_the_rest_is_exact(struct rank_self *self)
{
    double d = 1 + 0x1p-40 * (self->rank + 1), least = 1 + 0x1p-40;
    float  f = 1 + 0x1p-20f * (float)(self->rank + 1), f_least = 1 + 0x1p-20f;
    rank_ok(self, gm_all_reduce(self->comm, &d, &d, 1, GM_F64, GM_MIN));
    rank_check(self, d == least);
    rank_ok(self, gm_all_reduce(self->comm, &f, &f, 1, GM_F32, GM_MIN));
    rank_check(self, f == f_least);
    f = 1 + 0x1p-20f * (float)(self->rank + 1);
    rank_ok(self, gm_broadcast(self->comm, &f, 1, GM_F32, 1));
    rank_check(self, f == 1 + 0x1p-19f);
    float all[RANKS_MAX] = { 0 };
    all[self->rank] = 1 + 0x1p-20f * (float)(self->rank + 1);
    rank_ok(self, gm_all_gather(self->comm, all, all, (size_t)self->world_size, GM_F32));
    for (int r = 0; r < self->world_size; r++) rank_check(self, all[r] == 1 + 0x1p-20f * (float)(r + 1));
}

static void check_kernel(struct rank_self *self)
{
    uint64_t   sent, recv;
    gm_traffic t;
    rank_meet(self, 0, self->world_size);
    gm_status status = gm_comm_kernel_traffic(self->comm, &sent, &recv);
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &t));
    rank_check(self, status == GM_ERR_UNSUPPORTED || (status == GM_OK && sent == t.payload_sent_bytes + t.protocol_sent_bytes &&
                                                      recv == t.payload_recv_bytes + t.protocol_recv_bytes));
    rank_meet(self, 1, self->world_size);
}

/* Communicators made from this one keep its format: none tells 1 + 2^-20 from a 1 beside it. */
static void check_a_part(struct rank_self *self, const char *format)
{
    gm_comm *part;
    rank_ok(self, gm_comm_split(self->comm, self->rank == 0, 0, &part));
    float ones[6] = { 1 + 0x1p-20f, 1, 1 + 0x1p-20f, 1, 1 + 0x1p-20f, 1 }; /* in chunks of two or more */
    bool  is_alone = gm_comm_size(part) == 1;
    rank_check(self, strcmp(gm_comm_wire(part), format) == 0);
    rank_check(self, gm_all_reduce(part, ones, ones, 6, GM_F32, GM_AVG) == GM_OK);
    rank_check(self, (ones[0] == ones[1]) == !is_alone && fabsf(ones[0] - 1) < 0x1p-19f);
    gm_comm_destroy(part);
}

static void sum_up(struct rank_self *self)
{
    const char         *format = self->user;
    static const size_t counts[] = { 0, 1, FEW, 1000, COUNT };
    float              *values = calloc(COUNT, sizeof *values), *sums = calloc(COUNT, sizeof *sums);
    rank_check(self, values != NULL && sums != NULL);
    self->options.wire = format;
    rank_create(self);
    rank_check(self, strcmp(gm_comm_wire(self->comm), format) == 0);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        all_reduce_some(self, format, values, sums, counts[i]);
        reduce_scatter_some(self, format, values, sums, counts[i]);
    }
    check_round_trip(self, values, sums, 5003);
    check_the_rest_is_exact(self);
    check_a_part(self, format);
    check_kernel(self);
    rank_destroy(self);
    free(values);
    free(sums);
}

static void sums_are_near_the_exact_ones_and_alike_on_all_ranks(void **state)
{
    static const int worlds[] = { 2, 3, 4 };
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        struct ranks_job     job = { .n_ranks = worlds[f], .body = sum_up, .user = formats[f],
                                     .algorithm = f == 1 ? "ring" : NULL }; /* which does not run this, and is no obstacle */
        struct ranks_shared *shared = ranks_shared(ranks_run(state, &job));
        for (int r = 1; r < job.n_ranks; r++) {
            assert_int_equal(shared->records[r].numbers[0], shared->records[0].numbers[0]);
        }
    }
}

/* ---- what is not finite ---------------------------------------------------------------------------- */

static void send_nan(struct rank_self *self)
{
    self->options.wire = self->user;
    rank_create(self);
    float values[1000];
    for (int i = 0; i < 1000; i++) values[i] = 1;
    if (self->rank == 1) values[700] = NAN;
    if (self->rank == 2) values[10] = INFINITY;
    rank_ok(self, gm_all_reduce(self->comm, values, values, 1000, GM_F32, GM_SUM));
    rank_check(self, isnan(values[700]) && !isfinite(values[10]) && isfinite(values[350]) && isfinite(values[999]));
    rank_destroy(self);
}

static void what_is_not_finite_reaches_everybody(void **state)
{
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        struct ranks_job job = { .n_ranks = 3, .body = send_nan, .user = formats[f] };
        ranks_run(state, &job);
    }
}

/* ---- who does not agree ---------------------------------------------------------------------------- */

static void create_with_odd_format(struct rank_self *self)
{
    gm_error error;
    if (self->rank == 1) self->options.wire = "bf16";
    rank_check(self, gm_comm_create(&self->comm, &self->options, &error) == GM_ERR_MISMATCH);
    rank_check(self, strstr(error.text, "'wire format'") != NULL);
    rank_check(self, strstr(error.text, "'f32'") != NULL && strstr(error.text, "'bf16'") != NULL);
}

static void ranks_with_different_formats_do_not_meet(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = create_with_odd_format };
    ranks_run(state, &job);
}

/* ---- one process ----------------------------------------------------------------------------------- */

static gm_comm *alone(const char *format)
{
    gm_comm_options options;
    gm_comm        *comm;
    gm_comm_options_default(&options);
    options.rank = 0;
    options.world_size = 1;
    options.wire = format;
    assert_int_equal(gm_comm_create(&comm, &options, NULL), GM_OK);
    return comm;
}

static void a_world_of_one_changes_nothing(void **state)
{
    (void)state;
    gm_comm *comm = alone("int8");
    float    x[2] = { 1 + 0x1p-20f, 1000 }, y[2] = { 0 };
    assert_string_equal(gm_comm_wire(comm), "int8");
    assert_int_equal(gm_all_reduce(comm, x, y, 2, GM_F32, GM_SUM), GM_OK);
    assert_memory_equal(x, y, sizeof x);
    memset(y, 0, sizeof y);
    assert_int_equal(gm_wire_round_trip(comm, x, y, 2), GM_OK);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(gm_wire_round_trip(comm, NULL, y, 2), GM_ERR_ARG);
    assert_int_equal(gm_wire_round_trip(NULL, x, y, 2), GM_ERR_ARG);
    gm_comm_destroy(comm);
    comm = alone(NULL);
    assert_string_equal(gm_comm_wire(comm), "f32");
    gm_comm_destroy(comm);
}

static void a_format_that_is_none_is_refused_with_those_that_are(void **state)
{
    (void)state;
    gm_comm_options options;
    gm_comm        *comm;
    gm_error        error;
    gm_comm_options_default(&options);
    setenv("GRADMESH_WIRE", "int4", 1);
    assert_int_equal(gm_comm_options_from_env(&options, &error), GM_OK);
    options.rank = 0;
    options.world_size = 1;
    assert_string_equal(options.wire, "int4");
    assert_int_equal(gm_comm_create(&comm, &options, &error), GM_ERR_UNSUPPORTED);
    unsetenv("GRADMESH_WIRE");
    assert_non_null(strstr(error.text, "'int4'"));
    assert_non_null(strstr(error.text, "f32, bf16, f16, int8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(sums_are_near_the_exact_ones_and_alike_on_all_ranks, ranks_teardown),
        cmocka_unit_test_teardown(what_is_not_finite_reaches_everybody, ranks_teardown),
        cmocka_unit_test_teardown(ranks_with_different_formats_do_not_meet, ranks_teardown),
        cmocka_unit_test(a_world_of_one_changes_nothing),
        cmocka_unit_test(a_format_that_is_none_is_refused_with_those_that_are),
    };
    return cmocka_run_group_tests_name("wire formats", tests, NULL, NULL);
}
