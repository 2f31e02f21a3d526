/* Threads: a communicator is for one at a time, and several communicators are for several. Meant for the thread
 * sanitizer, too. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/ranks.h"

enum { INSIDE = 0, REFUSED = 1, GROUPS = 3, ROUNDS = 50 };

/* ---- the second thread ------------------------------------------------------------------------------ */

static void *wait_in_barrier(void *user)
{
    struct rank_self *self = user;
    rank_mark(self, INSIDE);
    rank_expect(self, GM_OK, gm_barrier(self->comm));
    return NULL;
}

static void call_from_two_threads(struct rank_self *self)
{
    rank_create(self);
    if (self->rank == 1) { /* comes only when rank 0's second thread has been refused */
        rank_await(self, REFUSED, 1);
        rank_ok(self, gm_barrier(self->comm));
        rank_destroy(self);
        return;
    }
    pthread_t thread;
    double    x = 1;
    rank_check(self, pthread_create(&thread, NULL, wait_in_barrier, self) == 0);
    rank_await(self, INSIDE, 1);
    /* It is about to enter; a call of ours that comes first is refused there or waits here, so we only ask. */
    gm_traffic before;
    uint64_t   sent, recv;
    do {
        rank_ok(self, gm_comm_traffic(self->comm, GM_BARRIER, &before));
    } while (gm_comm_kernel_traffic(self->comm, &sent, &recv) != GM_ERR_STATE);
    int64_t begin_ns = gmi_now_ns();
    rank_expect(self, GM_ERR_STATE, gm_all_reduce(self->comm, &x, &x, 1, GM_F64, GM_SUM));
    rank_expect(self, GM_ERR_STATE, gm_barrier(self->comm));
    rank_check(self, gmi_now_ns() - begin_ns < 100 * GMI_NS_PER_MS * ranks_slowness());
    rank_mark(self, REFUSED);
    pthread_join(thread, NULL);
    rank_check(self, gm_comm_error(self->comm)->status == GM_OK); /* the other thread's record is untouched */
    rank_destroy(self);
}

static void a_second_thread_is_refused_and_harms_nothing(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = call_from_two_threads };
    ranks_run(state, &job);
}

/* ---- a thread for each communicator ------------------------------------------------------------------ */

struct worker {
    struct rank_self *self;
    gm_comm_options   options;
    char              group[16];
};

static void *work_in_group(void *user)
{
    struct worker    *w = user;
    struct rank_self *self = w->self;
    gm_comm *comm;
    gm_error error;
    float    values[5000];
    if (gm_comm_create(&comm, &w->options, &error) != GM_OK) rank_fail(self, __FILE__, __LINE__, "%s", error.text);
    for (int round = 0; round < ROUNDS; round++) {
        size_t count = round % 2 ? 5000 : 10;
        for (size_t i = 0; i < count; i++) values[i] = (float)(self->rank + round);
        gm_status status = gm_all_reduce(comm, values, values, count, GM_F32, GM_SUM);
        if (status != GM_OK) rank_fail(self, __FILE__, __LINE__, "%s", gm_comm_error(comm)->text);
        float sum = (float)(self->world_size * (self->world_size - 1) / 2 + self->world_size * round);
        for (size_t i = 0; i < count; i++) rank_check(self, values[i] == sum);
    }
    gm_comm_destroy(comm);
    return NULL;
}

static void work_in_many_threads(struct rank_self *self)
{
    struct worker workers[GROUPS];
    pthread_t     threads[GROUPS];
    for (int i = 0; i < GROUPS; i++) {
        workers[i] = (struct worker){ .self = self, .options = self->options, .group = { 'g', (char)('0' + i) } };
        workers[i].options.group = workers[i].group;
        rank_check(self, pthread_create(&threads[i], NULL, work_in_group, &workers[i]) == 0);
    }
    for (int i = 0; i < GROUPS; i++) pthread_join(threads[i], NULL);
}

static void communicators_in_different_threads_do_not_meet(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = work_in_many_threads };
    ranks_run(state, &job);
    job.is_hand_started = true;
    ranks_run(state, &job);
}

/* ---- a communicator that moves from thread to thread --------------------------------------------------- */

static void *sum_once(void *user)
{
    struct rank_self *self = user;
    double one = 1;
    rank_ok(self, gm_all_reduce(self->comm, &one, &one, 1, GM_F64, GM_SUM));
    rank_check(self, one == self->world_size);
    return NULL;
}

static void hand_it_around(struct rank_self *self)
{
    rank_create(self);
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        rank_check(self, pthread_create(&thread, NULL, sum_once, self) == 0);
        pthread_join(thread, NULL);
        sum_once(self);
    }
    rank_destroy(self);
}

static void a_communicator_may_be_handed_to_another_thread(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = hand_it_around };
    ranks_run(state, &job);
}

/* ---- signals ------------------------------------------------------------------------------------------- */

static pthread_t                     main_thread;
static volatile sig_atomic_t         n_signals, n_elsewhere;

static void count_signal(int number)
{
    (void)number;
    n_signals++;
    if (!pthread_equal(pthread_self(), main_thread)) n_elsewhere++;
}

/* The service thread takes none of the caller's signals, and a caller that is interrupted goes on. */
static void be_interrupted(struct rank_self *self)
{
    static double values[100000];
    struct sigaction action = { .sa_handler = count_signal };
    main_thread = pthread_self();
    sigaction(SIGUSR1, &action, NULL);
    rank_create(self);
    for (int i = 0; i < 200; i++) {
        if (i % 4 == self->rank) kill(getpid(), SIGUSR1);
        rank_ok(self, gm_all_reduce(self->comm, values, values, i % 2 ? 100000 : 1, GM_F64, GM_SUM));
    }
    rank_check(self, n_signals > 0 && n_elsewhere == 0);
    rank_destroy(self);
}

static void signals_of_the_process_stay_with_the_caller(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = be_interrupted };
    ranks_run(state, &job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_second_thread_is_refused_and_harms_nothing),
        TEST(communicators_in_different_threads_do_not_meet),
        TEST(a_communicator_may_be_handed_to_another_thread),
        TEST(signals_of_the_process_stay_with_the_caller),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
