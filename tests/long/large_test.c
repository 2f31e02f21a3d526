/* Buffers of more than 2^31 bytes and of more than 2^32 elements, between two processes. Needs 12 GiB of memory; a
 * test is skipped where there is less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/ranks.h"

#define BEYOND_BYTES ((((size_t)1) << 29) + 1) /* f32: 2^31 + 4 bytes */
#define BEYOND_ELEMS ((((size_t)1) << 32) + 3) /* u8 */

enum { MODULUS = 8191 };

static bool has_memory(double gib)
{
    double kib = 0;
    char   line[128];
    FILE  *file = fopen("/proc/meminfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemAvailable: %lf", &kib) == 1) break;
    }
    if (file != NULL) fclose(file);
    return kib > gib * 1024 * 1024;
}

static float *fill(struct rank_self *self, float *values, size_t count)
{
    rank_check(self, values != NULL);
    for (size_t i = 0; i < count; i++) values[i] = (float)((i % MODULUS) * (size_t)(self->rank + 1));
    return values;
}

static void check(struct rank_self *self, const float *values, size_t first, size_t count, size_t times)
{
    for (size_t i = 0; i < count; i++) {
        float expected = (float)(((first + i) % MODULUS) * times);
        if (values[i] != expected) {
            rank_fail(self, __FILE__, __LINE__, "element %zu is %g, not %g", first + i, (double)values[i], (double)expected);
        }
    }
}

static void check_formula(struct rank_self *self, gm_collective which, size_t count, gm_dtype dtype)
{
    uint64_t   formula, kernel_sent, kernel_recv;
    gm_traffic t, all;
    rank_ok(self, gm_comm_payload_formula(self->comm, which, count, dtype, 0, &formula));
    rank_ok(self, gm_comm_traffic(self->comm, which, &t));
    rank_check(self, t.calls == 1 && t.payload_sent_bytes == formula);
    rank_meet(self, (int)which, self->world_size);
    gm_status status = gm_comm_kernel_traffic(self->comm, &kernel_sent, &kernel_recv);
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &all));
    rank_check(self, status == GM_ERR_UNSUPPORTED || kernel_sent == all.payload_sent_bytes + all.protocol_sent_bytes);
    rank_meet(self, (int)which, 2 * self->world_size);
}

static void move_floats(struct rank_self *self)
{
    size_t count = BEYOND_BYTES, first, elems;
    gm_chunk(count, self->world_size, self->rank, &first, &elems);
    float *values = fill(self, malloc(count * sizeof *values), count);
    rank_create(self);

    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_F32, GM_SUM));
    check(self, values, 0, count, 3);
    check_formula(self, GM_ALL_REDUCE, count, GM_F32);

    fill(self, values, count);
    rank_ok(self, gm_reduce_scatter(self->comm, values, values, count, GM_F32, GM_SUM));
    check(self, values + first, first, elems, 3);
    check_formula(self, GM_REDUCE_SCATTER, count, GM_F32);

    memset(values, 0, first * sizeof *values);
    rank_ok(self, gm_all_gather(self->comm, values, values, count, GM_F32));
    check(self, values, 0, count, 3);
    check_formula(self, GM_ALL_GATHER, count, GM_F32);

    if (self->rank == 0) memset(values, 0, count * sizeof *values);
    rank_ok(self, gm_broadcast(self->comm, values, count, GM_F32, 1));
    check(self, values, 0, count, 3);
    rank_destroy(self);
    free(values);
}

static void more_than_2_to_31_bytes(void **state)
{
    if (!has_memory(5)) skip();
    struct ranks_job job = { .n_ranks = 2, .body = move_floats, .algorithm = "ring", .limit_ms = 600000 };
    ranks_run(state, &job);
}

static void move_integers(struct rank_self *self)
{
    size_t   count = BEYOND_BYTES / 2 + 1;
    int64_t *values = malloc(count * sizeof *values);
    rank_check(self, values != NULL);
    for (size_t i = 0; i < count; i++) values[i] = (int64_t)(i << 20) + self->rank;
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_I64, GM_SUM));
    for (size_t i = 0; i < count; i++) rank_check(self, values[i] == 2 * (int64_t)(i << 20) + 1);
    rank_destroy(self);
    free(values);
}

static void more_than_2_to_31_bytes_of_integers_also_by_the_naive_algorithm(void **state)
{
    if (!has_memory(5)) skip();
    struct ranks_job job = { .n_ranks = 2, .body = move_integers, .limit_ms = 600000 };
    ranks_run(state, &job);
    job.algorithm = "naive";
    ranks_run(state, &job);
}

static void move_bytes(struct rank_self *self)
{
    size_t   count = BEYOND_ELEMS;
    uint8_t *values = malloc(count);
    rank_check(self, values != NULL);
    for (size_t i = 0; i < count; i++) values[i] = (uint8_t)(i % 97 + (size_t)self->rank * (i % 89));
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_U8, GM_MAX));
    for (size_t i = 0; i < count; i++) rank_check(self, values[i] == i % 97 + i % 89);
    check_formula(self, GM_ALL_REDUCE, count, GM_U8);
    rank_destroy(self);
    free(values);
}

static void more_than_2_to_32_elements(void **state)
{
    if (!has_memory(10)) skip();
    struct ranks_job job = { .n_ranks = 2, .body = move_bytes, .algorithm = "ring", .limit_ms = 600000 };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(more_than_2_to_31_bytes),
        TEST(more_than_2_to_31_bytes_of_integers_also_by_the_naive_algorithm),
        TEST(more_than_2_to_32_elements),
    };
    return cmocka_run_group_tests_name("large buffers", tests, NULL, NULL);
}
