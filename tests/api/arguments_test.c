/* A caller's mistakes: each has its documented status and a sentence, starts nothing, and leaves the communicator
 * as it was. And what no call may do: print, or change the caller's floating-point mode. */
#include <fcntl.h>
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/ranks.h"

enum { COUNT = 100, OVER = 0 };

static void check_sum(struct rank_self *self)
{
    double one = 1;
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == self->world_size);
}

static void check_record(struct rank_self *self, gm_status status, const char *text)
{
    const gm_error *e = gm_comm_error(self->comm);
    if (e->status == status && e->culprit == -1 && e->rank == self->rank && e->op_seq == 0 && strstr(e->text, text) != NULL) return;
    rank_fail(self, __FILE__, __LINE__, "%s, culprit %d, rank %d, call %llu, not '%s': %s", gm_status_name(e->status),
              e->culprit, e->rank, (unsigned long long)e->op_seq, text, e->text);
}

#define mistake(status, text, call)          \
    do {                                     \
        rank_expect(self, status, call);     \
        check_record(self, status, text);    \
        n_mistakes++;                        \
    } while (0)

/* ---- mistakes --------------------------------------------------------------------------------------- */

static int make_mistakes(struct rank_self *self)
{
    static double a[2 * COUNT], b[2 * COUNT];
    gm_comm *comm = self->comm;
    int      n_mistakes = 0;
    size_t   half = COUNT / 2 * sizeof(double);

    mistake(GM_ERR_ARG, "`send` is NULL", gm_all_reduce(comm, NULL, b, COUNT, GM_F64, GM_SUM));
    mistake(GM_ERR_ARG, "`recv` is NULL", gm_all_reduce(comm, a, NULL, COUNT, GM_F64, GM_SUM));
    mistake(GM_ERR_ARG, "`send` is NULL", gm_reduce_scatter(comm, NULL, b, COUNT, GM_F64, GM_SUM));
    mistake(GM_ERR_ARG, "`recv` is NULL", gm_all_gather(comm, a, NULL, COUNT, GM_F64));
    mistake(GM_ERR_ARG, "`buffer` is NULL", gm_broadcast(comm, NULL, COUNT, GM_F64, 0));

    for (size_t off = 1; off < sizeof(double); off++) {
        mistake(GM_ERR_ARG, "not aligned", gm_all_reduce(comm, (char *)a + off, b, COUNT, GM_F64, GM_SUM));
        mistake(GM_ERR_ARG, "not aligned", gm_all_reduce(comm, a, (char *)b + off, COUNT, GM_I64, GM_SUM));
        mistake(GM_ERR_ARG, "not aligned", gm_broadcast(comm, (char *)a + off, COUNT, GM_F64, 0));
    }
    mistake(GM_ERR_ARG, "not aligned", gm_all_reduce(comm, (char *)a + 2, b, COUNT, GM_F32, GM_SUM));
    mistake(GM_ERR_ARG, "not aligned", gm_all_reduce(comm, (char *)a + 1, b, COUNT, GM_BF16, GM_SUM));

    mistake(GM_ERR_ARG, "overlap", gm_all_reduce(comm, a, a + 1, COUNT, GM_F64, GM_SUM));
    mistake(GM_ERR_ARG, "overlap", gm_all_reduce(comm, a + COUNT - 1, a, COUNT, GM_F64, GM_SUM));
    mistake(GM_ERR_ARG, "overlap", gm_reduce_scatter(comm, a, (char *)a + half, COUNT, GM_F64, GM_SUM));
    mistake(GM_ERR_ARG, "overlap", gm_all_gather(comm, (char *)a + half, a, COUNT, GM_F64));

    mistake(GM_ERR_UNSUPPORTED, "bor", gm_all_reduce(comm, a, b, COUNT, GM_F64, GM_BOR));
    mistake(GM_ERR_UNSUPPORTED, "bxor", gm_reduce_scatter(comm, a, b, COUNT, GM_F16, GM_BXOR));
    mistake(GM_ERR_ARG, "dtype", gm_all_reduce(comm, a, b, COUNT, GM_DTYPE_END, GM_SUM));
    mistake(GM_ERR_ARG, "dtype", gm_broadcast(comm, a, COUNT, (gm_dtype)-1, 0));
    mistake(GM_ERR_ARG, "reduction", gm_all_reduce(comm, a, b, COUNT, GM_F64, GM_REDOP_END));
    mistake(GM_ERR_ARG, "root", gm_broadcast(comm, a, COUNT, GM_F64, self->world_size));
    mistake(GM_ERR_ARG, "root", gm_broadcast(comm, a, COUNT, GM_F64, -1));

    mistake(GM_ERR_ARG, "do not fit", gm_all_reduce(comm, a, b, SIZE_MAX, GM_F64, GM_SUM));
    mistake(GM_ERR_ARG, "do not fit", gm_all_reduce(comm, a, b, SIZE_MAX / 8 + 1, GM_F64, GM_SUM));
    mistake(GM_ERR_ARG, "do not fit", gm_broadcast(comm, a, SIZE_MAX / 8, GM_F64, 0));

    rank_expect(self, GM_ERR_ARG, gm_all_reduce(NULL, a, b, COUNT, GM_F64, GM_SUM));
    rank_expect(self, GM_ERR_ARG, gm_reduce_scatter(NULL, a, b, COUNT, GM_F64, GM_SUM));
    rank_expect(self, GM_ERR_ARG, gm_all_gather(NULL, a, b, COUNT, GM_F64));
    rank_expect(self, GM_ERR_ARG, gm_broadcast(NULL, a, COUNT, GM_F64, 0));
    rank_expect(self, GM_ERR_ARG, gm_barrier(NULL));
    return n_mistakes;
}

static void err_and_go_on(struct rank_self *self)
{
    rank_create(self);
    rank_check(self, gm_comm_rank(self->comm) == self->rank && gm_comm_size(self->comm) == self->world_size);
    rank_check(self, gm_comm_error(self->comm)->status == GM_OK);
    for (int round = 0; round < 2; round++) {
        /* One rank alone errs in the second round; the others wait for it, and nothing is out of step. */
        if (round == 0 || self->rank == 0) rank_check(self, make_mistakes(self) > 40);
        check_sum(self);
    }
    gm_traffic t;
    rank_ok(self, gm_comm_traffic(self->comm, GM_COLLECTIVE_END, &t));
    rank_check(self, t.calls == 2);
    rank_destroy(self);
}

static void mistakes_are_named_and_leave_the_communicator_as_it_was(void **state)
{
    struct ranks_job job = { .body = err_and_go_on };
    for (job.n_ranks = 1; job.n_ranks <= 3; job.n_ranks++) ranks_run(state, &job);
}

static void pass_nothing(struct rank_self *self)
{
    rank_create(self);
    rank_ok(self, gm_all_reduce(self->comm, NULL, NULL, 0, GM_F64, GM_SUM));
    rank_ok(self, gm_reduce_scatter(self->comm, NULL, NULL, 0, GM_I32, GM_MAX));
    rank_ok(self, gm_all_gather(self->comm, NULL, NULL, 0, GM_F32));
    rank_ok(self, gm_broadcast(self->comm, NULL, 0, GM_I64, 0));
    /* One element: only rank 0 has a chunk, the others may pass NULL for theirs. */
    double all = 5, own = 7;
    rank_ok(self, gm_reduce_scatter(self->comm, &all, self->rank == 0 ? &own : NULL, 1, GM_F64, GM_SUM));
    rank_check(self, own == (self->rank == 0 ? 5 * self->world_size : 7));
    rank_ok(self, gm_all_gather(self->comm, self->rank == 0 ? &own : NULL, &all, 1, GM_F64));
    rank_check(self, all == 5 * self->world_size);
    rank_destroy(self);
}

static void a_buffer_of_no_elements_may_be_null(void **state)
{
    struct ranks_job job = { .body = pass_nothing };
    for (job.n_ranks = 1; job.n_ranks <= 3; job.n_ranks++) ranks_run(state, &job);
}

/* ---- what no call may do ----------------------------------------------------------------------------- */

static void work_quietly(struct rank_self *self)
{
    int ends[2], flags;
    rank_check(self, pipe(ends) == 0);
    flags = fcntl(ends[0], F_GETFL);
    fcntl(ends[0], F_SETFL, flags | O_NONBLOCK);
    int out = dup(1), err = dup(2);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[1]);

    gm_error error;
    self->options.log = NULL;
    self->options.log_level = GM_LOG_DEBUG;
    gm_comm_options bad = self->options;
    bad.store = "127.0.0.1:1";
    bad.connect_timeout_ms = 50;
    rank_expect(self, GM_ERR_TIMEOUT, gm_comm_create(&self->comm, &bad, &error));
    rank_create(self);
    check_sum(self);
    make_mistakes(self);
    if (self->rank == 1) rank_ok(self, gm_comm_abort(self->comm, "enough"));
    rank_expect(self, GM_ERR_ABORTED, gm_barrier(self->comm));
    rank_destroy(self);

    dup2(out, 1);
    dup2(err, 2);
    char    said[200];
    ssize_t n = read(ends[0], said, sizeof said);
    rank_check(self, n <= 0);
}

static void without_a_log_sink_nothing_is_printed(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = work_quietly };
    ranks_run(state, &job);
}

#if defined(__x86_64__)
#include <immintrin.h>
static unsigned control_word(void) { return _mm_getcsr() & ~0x3fu; } /* without the sticky flags */
static void     flush_subnormals(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
#else
static unsigned control_word(void) { return (unsigned)fegetround(); }
static void     flush_subnormals(void) {}
#endif

static void compute_in_mode(struct rank_self *self)
{
    static volatile double tiny = 1e-310;
    double before[COUNT];
    unsigned word = control_word();
    rank_create(self);
    for (int i = 0; i < COUNT; i++) before[i] = 1e-310;
    rank_ok(self, gm_all_reduce(self->comm, before, before, COUNT, GM_F64, GM_SUM));
    rank_check(self, control_word() == word);
    rank_check(self, before[COUNT - 1] == 1e-310 * self->world_size && tiny / 2 != 0); /* subnormals live */

    fesetround(FE_UPWARD);
    flush_subnormals();
    word = control_word();
    rank_ok(self, gm_all_reduce(self->comm, before, before, COUNT, GM_F64, GM_MAX));
    rank_ok(self, gm_barrier(self->comm));
    rank_check(self, control_word() == word && fegetround() == FE_UPWARD);
    rank_destroy(self);
    rank_check(self, control_word() == word && fegetround() == FE_UPWARD);
}

static void the_floating_point_mode_stays_the_callers(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = compute_in_mode };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(mistakes_are_named_and_leave_the_communicator_as_it_was),
        TEST(a_buffer_of_no_elements_may_be_null),
        TEST(without_a_log_sink_nothing_is_printed),
        TEST(the_floating_point_mode_stays_the_callers),
    };
    return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
