#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/rng.h"
#include "train/optimizer.h"

#define N 1003 /* no multiple of any vector width */
#define STEPS 20

/* The formulas as PyTorch's documentation states them, in double: one parameter, one step. */
struct reference {
    double w, m, v;
};

static void reference_step(struct reference *r, const struct gmt_optimizer_options *o, double rate,
                           int t, double g)
{
    if (o->kind == GMT_ADAMW) {
        r->w -= rate * o->weight_decay * r->w;
        r->m = o->beta1 * r->m + (1 - o->beta1) * g;
        r->v = o->beta2 * r->v + (1 - o->beta2) * g * g;
        double m_hat = r->m / (1 - pow(o->beta1, t)), v_hat = r->v / (1 - pow(o->beta2, t));
        r->w -= rate * m_hat / (sqrt(v_hat) + o->epsilon);
        return;
    }
    g += o->weight_decay * r->w;
    if (o->kind == GMT_MOMENTUM) {
        r->m = t == 1 ? g : o->momentum * r->m + g;
        g = r->m;
    }
    r->w -= rate * g;
}

static void follows_the_formula(enum gmt_optimizer_kind kind, double weight_decay, double rate)
{
    static float weights[N], gradients[N];
    static struct reference references[N];
    struct gmt_optimizer_options options;
    struct gmt_optimizer optimizer;
    gmt_optimizer_options_default(&options, kind);
    options.weight_decay = weight_decay;
    assert_int_equal(gmt_optimizer_init(&optimizer, &options, N, NULL), GM_OK);
    for (size_t i = 0; i < N; i++) {
        weights[i] = (float)(2 * gmi_rng_unit(1, i) - 1);
        references[i] = (struct reference){ .w = weights[i] };
    }
    for (int t = 1; t <= STEPS; t++) {
        for (size_t i = 0; i < N; i++)
            gradients[i] = (float)(2 * gmi_rng_unit(2, i * 100 + (size_t)t) - 1);
        gradients[0] = 0; /* AdamW must not divide zero by zero */
        gmt_optimizer_step(&optimizer, rate, weights, gradients);
        for (size_t i = 0; i < N; i++) {
            reference_step(&references[i], &options, rate, t, gradients[i]);
            if (!(fabs(weights[i] - references[i].w) <= 1e-6 * (1 + fabs(references[i].w))))
                fail_msg("%s, step %d, element %zu: %.9g, expected %.9g", gmt_optimizer_name(kind),
                         t, i, weights[i], references[i].w);
        }
    }
    assert_int_equal(optimizer.n_steps, STEPS);
    for (int s = 0; s < optimizer.n_states; s++)
        for (size_t i = 0; i < N; i++)
            assert_float_equal(optimizer.states[s].values[i],
                               s == 0 ? references[i].m : references[i].v, 1e-5);
    gmt_optimizer_fini(&optimizer);
}

static void sgd_follows_its_formula(void **state)
{
    (void)state;
    follows_the_formula(GMT_SGD, 0, 0.1);
    follows_the_formula(GMT_SGD, 0.01, 0.1);
}

static void momentum_follows_its_formula(void **state)
{
    (void)state;
    follows_the_formula(GMT_MOMENTUM, 0, 0.05);
    follows_the_formula(GMT_MOMENTUM, 0.01, 0.05);
}

static void adamw_follows_its_formula(void **state)
{
    (void)state;
    follows_the_formula(GMT_ADAMW, 0, 1e-3);
    follows_the_formula(GMT_ADAMW, 0.1, 1e-3);
}

/* Bit for bit, so that a resumed run is the same run. */
static void state_arrays_and_step_count_are_all_there_is(void **state)
{
    (void)state;
    static float straight[N], resumed[N], gradients[N];
    for (int kind = 0; kind < GMT_OPTIMIZER_END; kind++) {
        struct gmt_optimizer_options options;
        struct gmt_optimizer first, second;
        gmt_optimizer_options_default(&options, (enum gmt_optimizer_kind)kind);
        assert_int_equal(gmt_optimizer_init(&first, &options, N, NULL), GM_OK);
        for (size_t i = 0; i < N; i++)
            straight[i] = gradients[i] = (float)gmi_rng_unit(3, i) - 0.5f;
        for (int t = 0; t < 5; t++) gmt_optimizer_step(&first, 0.01, straight, gradients);

        assert_int_equal(gmt_optimizer_init(&second, &options, N, NULL), GM_OK);
        memcpy(resumed, straight, sizeof resumed);
        second.n_steps = first.n_steps;
        for (int s = 0; s < first.n_states; s++)
            memcpy(second.states[s].values, first.states[s].values, sizeof resumed);
        for (int t = 0; t < 5; t++) {
            gmt_optimizer_step(&first, 0.01, straight, gradients);
            gmt_optimizer_step(&second, 0.01, resumed, gradients);
        }
        assert_memory_equal(straight, resumed, sizeof resumed);
        gmt_optimizer_fini(&first);
        gmt_optimizer_fini(&second);
    }
}

static void each_element_is_updated_the_same_way(void **state)
{
    (void)state;
    static float weights[N], gradients[N];
    for (int kind = 0; kind < GMT_OPTIMIZER_END; kind++) {
        struct gmt_optimizer_options options;
        struct gmt_optimizer optimizer;
        gmt_optimizer_options_default(&options, (enum gmt_optimizer_kind)kind);
        options.weight_decay = 0.013;
        assert_int_equal(gmt_optimizer_init(&optimizer, &options, N, NULL), GM_OK);
        for (size_t i = 0; i < N; i++) weights[i] = 0.7f;
        for (int t = 0; t < 4; t++) {
            for (size_t i = 0; i < N; i++) gradients[i] = 0.3f * (float)(t + 1);
            gmt_optimizer_step(&optimizer, 0.01, weights, gradients);
        }
        for (size_t i = 1; i < N; i++) assert_memory_equal(&weights[i], &weights[0], sizeof(float));
        gmt_optimizer_fini(&optimizer);
    }
}

static void states_are_named_for_checkpoints(void **state)
{
    (void)state;
    const char *names[GMT_OPTIMIZER_END][2] = {
        [GMT_SGD] = { NULL }, [GMT_MOMENTUM] = { "momentum" }, [GMT_ADAMW] = { "adam_m", "adam_v" }
    };
    for (int kind = 0; kind < GMT_OPTIMIZER_END; kind++) {
        struct gmt_optimizer_options options;
        struct gmt_optimizer optimizer;
        gmt_optimizer_options_default(&options, (enum gmt_optimizer_kind)kind);
        assert_int_equal(gmt_optimizer_init(&optimizer, &options, 5, NULL), GM_OK);
        int n = 0;
        for (; n < 2 && names[kind][n] != NULL; n++)
            assert_string_equal(optimizer.states[n].name, names[kind][n]);
        assert_int_equal(optimizer.n_states, n);
        gmt_optimizer_fini(&optimizer);

        enum gmt_optimizer_kind parsed = GMT_OPTIMIZER_END;
        const char *name = gmt_optimizer_name(options.kind);
        assert_int_equal(gmt_optimizer_parse(&parsed, name, NULL), GM_OK);
        assert_int_equal(parsed, kind);
    }
    enum gmt_optimizer_kind parsed;
    assert_int_equal(gmt_optimizer_parse(&parsed, "adam", NULL), GM_ERR_ARG);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    struct gmt_optimizer_options bad[8];
    for (int i = 0; i < 8; i++)
        gmt_optimizer_options_default(&bad[i], i < 3 ? GMT_MOMENTUM : GMT_ADAMW);
    bad[0].momentum = 1;
    bad[1].momentum = NAN;
    bad[2].weight_decay = -1;
    bad[3].beta1 = 1;
    bad[4].beta2 = -0.1;
    bad[5].epsilon = 0;
    bad[6].weight_decay = INFINITY;
    bad[7].kind = GMT_OPTIMIZER_END;
    for (int i = 0; i < 8; i++) {
        struct gmt_optimizer optimizer;
        gm_error error;
        gmi_error_clear(&error);
        assert_int_equal(gmt_optimizer_init(&optimizer, &bad[i], 5, &error), GM_ERR_ARG);
        assert_non_null(strstr(error.text, "optimizer"));
    }
}

static void lack_of_memory_is_an_error_that_holds_nothing(void **state)
{
    (void)state;
    struct gmt_optimizer_options options;
    gmt_optimizer_options_default(&options, GMT_ADAMW);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct gmt_optimizer optimizer;
        gmi_alloc_fail_at(nth);
        assert_int_equal(gmt_optimizer_init(&optimizer, &options, 50, NULL), GM_ERR_NOMEM);
        gmi_alloc_fail_at(0);
        assert_int_equal(optimizer.n_states, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_follows_its_formula),
        cmocka_unit_test(momentum_follows_its_formula),
        cmocka_unit_test(adamw_follows_its_formula),
        cmocka_unit_test(state_arrays_and_step_count_are_all_there_is),
        cmocka_unit_test(each_element_is_updated_the_same_way),
        cmocka_unit_test(states_are_named_for_checkpoints),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(lack_of_memory_is_an_error_that_holds_nothing),
    };
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
