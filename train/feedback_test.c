/* Error feedback over a communicator that is a struct, whose format rounds to eighths. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/feedback.h"

struct gm_comm {
    const char *wire;
    int         world_size;
    size_t      n_round_trips;
};

int gm_comm_size(const gm_comm *comm) { return comm->world_size; }
const char *gm_comm_wire(const gm_comm *comm) { return comm->wire; }

static float seen_of(float sent) { return rintf(sent * 8) / 8; }

gm_status gm_wire_round_trip(const gm_comm *comm, const float *send, float *seen, size_t count)
{
    ((gm_comm *)(uintptr_t)comm)->n_round_trips++;
    for (size_t i = 0; i < count; i++) seen[i] = seen_of(send[i]);
    return GM_OK;
}

enum { N = 100 };

static float gradient_of(uint64_t step, size_t i)
{
    return (float)(gmi_rng_unit(step, i) - 0.3) * 0.1f; /* most of it below a sixteenth: rounded to 0 by itself */
}

static void nothing_is_lost_for_good(void **state)
{
    (void)state;
    gm_comm             comm = { "int8", 2, 0 };
    struct gmt_feedback feedback;
    float               values[N];
    double              sent[N] = { 0 }, meant[N] = { 0 }, without = 0;
    assert_int_equal(gmt_feedback_init(&feedback, &comm, N, NULL), GM_OK);
    for (uint64_t step = 0; step < 200; step++) {
        for (size_t i = 0; i < N; i++) {
            values[i] = gradient_of(step, i);
            meant[i] += (double)values[i];
            without = fmax(without, fabs(meant[i]));
        }
        gmt_feedback_apply(&feedback, values + 60, 60, N - 60); /* in two buckets, the later one first */
        gmt_feedback_apply(&feedback, values, 0, 60);
        for (size_t i = 0; i < N; i++) sent[i] += (double)seen_of(values[i]);
    }
    assert_true(without > 1); /* this far off it would be if every step were rounded to 0 */
    for (size_t i = 0; i < N; i++) {
        assert_true(fabs(sent[i] - meant[i]) <= 1.0 / 16 + 1e-4);
        assert_true(fabs(sent[i] + (double)feedback.residual[i] - meant[i]) < 1e-4);
    }
    gmt_feedback_fini(&feedback);
}

static void forgetting_begins_anew(void **state)
{
    (void)state;
    gm_comm             comm = { "int8", 2, 0 };
    struct gmt_feedback feedback;
    float               first[N], again[N];
    assert_int_equal(gmt_feedback_init(&feedback, &comm, N, NULL), GM_OK);
    for (int pass = 0; pass < 2; pass++) {
        float *values = pass == 0 ? first : again;
        for (uint64_t step = 0; step < 3; step++) {
            for (size_t i = 0; i < N; i++) values[i] = gradient_of(step, i);
            gmt_feedback_apply(&feedback, values, 0, N);
        }
        gmt_feedback_forget(&feedback);
    }
    assert_memory_equal(first, again, sizeof first);
    gmt_feedback_fini(&feedback);
}

static void it_is_for_int8_between_ranks_only(void **state)
{
    (void)state;
    gm_comm comms[] = { { "f32", 2, 0 }, { "bf16", 2, 0 }, { "f16", 2, 0 }, { "int8", 1, 0 } };
    for (size_t c = 0; c <= sizeof comms / sizeof comms[0]; c++) {
        gm_comm            *comm = c < sizeof comms / sizeof comms[0] ? &comms[c] : NULL;
        struct gmt_feedback feedback;
        float               value = 0.01f;
        assert_int_equal(gmt_feedback_init(&feedback, comm, 1, NULL), GM_OK);
        gmt_feedback_apply(&feedback, &value, 0, 1);
        gmt_feedback_apply(&feedback, &value, 0, 1);
        gmt_feedback_forget(&feedback);
        assert_true(value == 0.01f && (comm == NULL || comm->n_round_trips == 0));
        gmt_feedback_fini(&feedback);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_for_good),
        cmocka_unit_test(forgetting_begins_anew),
        cmocka_unit_test(it_is_for_int8_between_ranks_only),
    };
    return cmocka_run_group_tests_name("error feedback", tests, NULL, NULL);
}
