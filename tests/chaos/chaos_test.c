/* chaos_test.c - many seeded faults on real processes, counted.
 *
 *     make chaos                      thousands (CHAOS_RUNS, from CHAOS_SEED on)
 *     make test                       a few of each row
 *     CHAOS_SEED=4711 CHAOS_RUNS=1 CHAOS_FAULT=cut CHAOS_VERBOSE=1 build/tests/tests/chaos/chaos_test    one again
 *
 * It ends with zeros, or with the seeds that show what was not right. */
#include "tests/chaos/chaos.h"

#include <signal.h>

#include "base/clock.h"
#include "tests/support/test.h"

enum { MAX_ROWS = 64, MAX_TIMES = 200000, SHORT_RUNS_OF_EACH = 3, SHOWN_FAILURES = 20, STANDSTILL_MS = 3000, MOST_REPEATS = 3 };

struct tally {
    int n_runs, n_happened, n_detected, n_wrong_culprits, n_hangs, n_wrong_results, n_leaks, n_late, n_false_alarms;
};

struct campaign {
    struct tally rows[MAX_ROWS], all;
    int64_t      times_ns[MAX_TIMES]; /* from a fault to the last survivor's error */
    int          rows_of_times[MAX_TIMES], n_times, n_bad;
};

static long number_from_env(const char *name, long fallback)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtol(text, NULL, 10) : fallback;
}

/* ---- one run ---------------------------------------------------------------------------------------- */

static bool is_only_the_stopped_left(struct ranks *r, const struct chaos_plan *p)
{
    for (int k = 0; k < p->n_ranks; k++) {
        if (!chaos_is_victim(p, k) && !ranks_has_ended(r, k)) return false;
    }
    return p->fault->outcome == CHAOS_LOSS && atomic_load(&ranks_shared(r)->marks[CHAOS_MARK_FAULT]) > 0;
}

/* Until all have ended; who was stopped for good is killed when the others are through. */
static bool wait_for_all(struct ranks *r, const struct chaos_plan *p, bool *stood_still)
{
    int64_t deadline_ns = gmi_deadline_after_ms(CHAOS_LIMIT_MS * ranks_slowness());
    while (!ranks_are_over(r)) {
        if (is_only_the_stopped_left(r, p)) ranks_signal(r, p->victim, SIGKILL);
        if (gmi_deadline_passed(deadline_ns)) return false;
        int64_t before_ns = gmi_now_ns();
        ranks_serve(r, 1);
        if (gmi_now_ns() - before_ns > STANDSTILL_MS * GMI_NS_PER_MS) *stood_still = true;
    }
    return true;
}

/* `stood_still`: this process itself got no time for seconds (a campaign that was stopped and continued, with all its
 * ranks), so that no time that was measured means anything. */
static struct chaos_verdict run_once(void **state, const struct chaos_plan *plan, bool *stood_still)
{
    struct ranks_job job = { .n_ranks = plan->n_ranks, .body = chaos_live, .user = plan, .transport = plan->transport,
                             .algorithm = plan->algorithm, .connect_timeout_ms = CHAOS_CONNECT_MS * ranks_slowness(),
                             .stall_limit_ms = 300000 }; /* as if nobody had set one: it rules over all others */
    struct ranks    *r = ranks_start(state, &job);
    for (int k = 0; k < plan->n_ranks; k++) ranks_accept_any_end(r, k);
    bool                 was_in_time = wait_for_all(r, plan, stood_still);
    struct chaos_verdict verdict = chaos_judge(plan, r, was_in_time);
    if (chaos_is_bad(&verdict) && getenv("CHAOS_VERBOSE") != NULL) {
        for (int k = 0; k < plan->n_ranks; k++) fprintf(stderr, "%s", ranks_said(r, k));
    }
    ranks_teardown(state);
    return verdict;
}

/* A run during which all stood still says nothing, and is made again. */
static struct chaos_verdict run(void **state, const struct chaos_plan *plan)
{
    for (int again = 0;; again++) {
        bool                 stood_still = false;
        struct chaos_verdict verdict = run_once(state, plan, &stood_still);
        if (!stood_still || !chaos_is_bad(&verdict) || again == MOST_REPEATS) return verdict;
        printf("# seed %llu: all stood still for seconds, which says nothing: %s. Once more.\n", (unsigned long long)plan->seed,
               verdict.why);
    }
}

/* ---- many ------------------------------------------------------------------------------------------- */

static void add(struct tally *t, const struct chaos_verdict *v)
{
    t->n_runs++;
    t->n_happened += v->has_happened;
    t->n_detected += v->n_detected;
    t->n_wrong_culprits += v->is_wrong_culprit;
    t->n_hangs += v->is_hang;
    t->n_wrong_results += v->is_wrong_result;
    t->n_leaks += v->is_leak;
    t->n_late += v->is_late;
    t->n_false_alarms += v->is_false_alarm;
}

static int row_of(const struct chaos_fault *fault)
{
    int i = 0;
    while (chaos_fault_row((size_t)i) != fault) i++;
    return i;
}

static void note(struct campaign *c, const struct chaos_plan *plan, const struct chaos_verdict *v)
{
    add(&c->all, v);
    add(&c->rows[row_of(plan->fault)], v);
    if (v->slowest_ns > 0 && plan->phase == CHAOS_CALLING && c->n_times < MAX_TIMES) {
        c->rows_of_times[c->n_times] = row_of(plan->fault);
        c->times_ns[c->n_times++] = v->slowest_ns;
    }
    if (!chaos_is_bad(v)) return;
    if (c->n_bad++ < SHOWN_FAILURES) printf("# %s\n#     %s\n", chaos_plan_text(plan), v->why);
    fflush(stdout);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_row(struct campaign *c, const char *name, const struct tally *t, int row)
{
    static int64_t times[MAX_TIMES];
    int            n = 0;
    for (int i = 0; i < c->n_times; i++) {
        if (row < 0 || c->rows_of_times[i] == row) times[n++] = c->times_ns[i];
    }
    qsort(times, (size_t)n, sizeof *times, by_size);
    printf("# %-17s %6d %6d %9d %10.1f %8.1f %8d %6d %6d %6d %6d %6d\n", name, t->n_runs, t->n_happened, t->n_detected,
           n ? (double)times[n / 2] * 1e-6 : 0.0, n ? (double)times[n - 1] * 1e-6 : 0.0, t->n_wrong_culprits, t->n_hangs,
           t->n_wrong_results, t->n_leaks, t->n_late, t->n_false_alarms);
}

static void print_table(struct campaign *c)
{
    const struct chaos_fault *row;
    printf("# %-17s %6s %6s %9s %10s %8s %8s %6s %6s %6s %6s %6s\n", "fault", "runs", "done", "detected", "median ms", "max ms",
           "culprits", "hangs", "sums", "leaks", "late", "alarms");
    for (size_t i = 0; (row = chaos_fault_row(i)) != NULL; i++) {
        if (c->rows[i].n_runs > 0) print_row(c, row->name, &c->rows[i], (int)i);
    }
    print_row(c, "all", &c->all, -1);
    fflush(stdout);
}

static bool is_possible(const struct chaos_fault *fault) { return fault->weight > 0 && (!fault->not_with_sanitizers || !ranks_are_sanitized()); }

static const struct chaos_fault *fault_from_env(void)
{
    const char               *name = getenv("CHAOS_FAULT");
    const struct chaos_fault *row;
    for (size_t i = 0; name != NULL && name[0] != '\0' && (row = chaos_fault_row(i)) != NULL; i++) {
        if (strcmp(row->name, name) == 0) return row;
    }
    return NULL;
}

/* How many of one row the short form runs: those that wait for seconds once. */
static int short_runs(const struct chaos_fault *row) { return row->bound_ms >= 1000 ? 1 : SHORT_RUNS_OF_EACH; }

static void every_fault_ends_in_the_right_error_or_in_none(void **state)
{
    static struct campaign    c;
    const struct chaos_fault *row, *only = fault_from_env();
    uint64_t                  seed = (uint64_t)number_from_env("CHAOS_SEED", 1);
    long                      n_runs = number_from_env("CHAOS_RUNS", 0);
    for (size_t i = 0; n_runs == 0 && (row = chaos_fault_row(i)) != NULL; i++) {
        for (int k = 0; k < short_runs(row) && is_possible(row); k++) {
            struct chaos_plan    plan = chaos_plan_draw(seed++, row);
            struct chaos_verdict verdict = run(state, &plan);
            note(&c, &plan, &verdict);
        }
    }
    for (long i = 0; i < n_runs; i++) {
        struct chaos_plan plan = chaos_plan_draw(seed++, only);
        if (!is_possible(plan.fault)) continue;
        struct chaos_verdict verdict = run(state, &plan);
        note(&c, &plan, &verdict);
        if (i % 500 == 499) print_table(&c);
    }
    print_table(&c);
    assert_int_equal(c.n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_fault_ends_in_the_right_error_or_in_none, ranks_teardown),
    };
    return cmocka_run_group_tests_name("chaos", tests, NULL, NULL);
}
