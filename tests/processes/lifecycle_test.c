/* Communicators one after another and side by side in the same processes; nothing is left of any of them. */
#include <malloc.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/socket.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

enum { LIVES = 20, FAILURES = 100, CYCLES = 300, LONG_CYCLES = 10000, MEETING = 0, KEPT_BYTES = 256 * 1024 };

static void check_sum(struct rank_self *self, gm_comm *comm, int n)
{
    double values[1000];
    for (int i = 0; i < 1000; i++) values[i] = i;
    gm_status status = gm_all_reduce(comm, values, values, 1000, GM_F64, GM_SUM);
    if (status != GM_OK) rank_fail(self, __FILE__, __LINE__, "%s", gm_comm_error(comm)->text);
    for (int i = 0; i < 1000; i++) rank_check(self, values[i] == (double)i * n);
}

static void nap_us(unsigned us)
{
    struct timespec t = { .tv_nsec = us * 1000L };
    nanosleep(&t, NULL);
}

/* ---- one after another ------------------------------------------------------------------------------ */

/* Nothing holds the ranks together between two lives: fast ones begin the next while slow ones end the last. */
static void live_again_and_again(struct rank_self *self)
{
    for (int life = 0; life < LIVES; life++) {
        rank_create(self);
        check_sum(self, self->comm, self->world_size);
        nap_us((unsigned)gmi_rng_below((uint64_t)life, (uint64_t)self->rank, 4000));
        rank_destroy(self);
        nap_us((unsigned)gmi_rng_below((uint64_t)life, (uint64_t)self->rank + 100, 2000));
    }
}

static void twenty_lives_in_one_process(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = live_again_and_again };
    ranks_run(state, &job);
}

static void twenty_lives_without_a_launcher(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = live_again_and_again, .is_hand_started = true };
    ranks_run(state, &job);
}

/* Ranks beyond the world of a life sit it out. The world may shrink at any time; who joins a larger one must
 * know that the smaller one is over, since while it lives he is nobody in it. */
static void live_in_changing_worlds(struct rank_self *self)
{
    static const int worlds[LIVES] = { 4, 3, 2, 4, 4, 1, 3, 2, 2, 4, 3, 1, 4, 2, 3, 3, 2, 4, 1, 4 };
    int n_meetings = 0;
    for (int life = 0; life < LIVES; life++) {
        bool grows = life > 0 && worlds[life] > worlds[life - 1];
        if (grows) rank_meet(self, MEETING, ++n_meetings * self->world_size);
        if (self->rank >= worlds[life]) continue;
        self->options.world_size = worlds[life];
        rank_create(self);
        check_sum(self, self->comm, worlds[life]);
        nap_us((unsigned)gmi_rng_below((uint64_t)life, (uint64_t)self->rank, 3000));
        rank_destroy(self);
    }
}

static void the_world_may_change_its_size_from_life_to_life(void **state)
{
    struct ranks_job job = { .n_ranks = 4, .body = live_in_changing_worlds };
    ranks_run(state, &job);
    job.is_hand_started = true;
    ranks_run(state, &job);
}

/* ---- side by side ------------------------------------------------------------------------------------ */

static gm_comm *create_group(struct rank_self *self, const char *name)
{
    gm_comm *comm;
    gm_error error;
    self->options.group = name;
    if (gm_comm_create(&comm, &self->options, &error) != GM_OK) rank_fail(self, __FILE__, __LINE__, "%s: %s", name, error.text);
    return comm;
}

static void live_in_two_groups(struct rank_self *self)
{
    gm_comm *first = create_group(self, "gradients"), *second = create_group(self, "metrics");
    for (int i = 0; i < 10; i++) {
        check_sum(self, first, self->world_size);
        check_sum(self, second, self->world_size);
    }
    gm_comm_destroy(first);
    check_sum(self, second, self->world_size); /* the one outlives the other, rank 0's store or not */
    gm_comm_destroy(second);
}

static void two_communicators_live_side_by_side(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = live_in_two_groups };
    ranks_run(state, &job);
    job.is_hand_started = true;
    ranks_run(state, &job);
}

/* ---- leftovers --------------------------------------------------------------------------------------- */

static void cycle(struct rank_self *self, int n_cycles)
{
    for (int i = 0; i < n_cycles; i++) {
        rank_create(self);
        if (i % 3 == 0) check_sum(self, self->comm, self->world_size);
        rank_destroy(self);
    }
}

static void come_and_go(struct rank_self *self)
{
    int n_cycles = test_is_long() ? LONG_CYCLES : CYCLES;
    cycle(self, CYCLES / 3); /* what the C library keeps is there then */
    int    descriptors = ranks_open_descriptors(), threads = ranks_threads();
    size_t used_bytes = mallinfo2().uordblks;
    cycle(self, n_cycles);
    size_t more_bytes = mallinfo2().uordblks - used_bytes;
    rank_say(self, "%d lives: %d descriptors, %d threads, %zd bytes more", n_cycles, ranks_open_descriptors() - descriptors,
             ranks_threads() - threads, (ssize_t)more_bytes);
    rank_check(self, ranks_open_descriptors() == descriptors);
    rank_check(self, ranks_threads() == threads);
    rank_check(self, (ssize_t)more_bytes < KEPT_BYTES);
}

/* A port that is kept is a descriptor that is kept, or a connection in TIME_WAIT: of those the long form would use up all
 * 28,000 that there are, were they more than two a life. */
static void lives_leave_no_descriptor_no_thread_no_memory_and_no_port(void **state)
{
    int              n_cycles = test_is_long() ? LONG_CYCLES : CYCLES;
    struct ranks_job job = { .n_ranks = 2, .body = come_and_go, .limit_ms = 60000 + 100 * n_cycles };
    struct ranks    *r = ranks_run(state, &job);
    for (int k = 0; k < 2; k++) print_message("# rank %d: %s", k, ranks_said(r, k));
}

static void expect_failure(struct rank_self *self, gm_status expected)
{
    gm_error  error;
    gm_comm  *comm = (gm_comm *)self;
    gm_status status = gm_comm_create(&comm, &self->options, &error);
    if (status != expected || comm != NULL || error.status != expected) {
        rank_fail(self, __FILE__, __LINE__, "%s, not %s: %s", gm_status_name(status), gm_status_name(expected), error.text);
    }
}

/* Alone, in a world of two: every way to fail that needs no second process. */
static void fail_in_every_way(struct rank_self *self)
{
    gm_comm_options good = self->options;
    good.world_size = 2;
    good.connect_timeout_ms = 10;
    good.log = NULL;
    self->options = good;
    expect_failure(self, GM_ERR_TIMEOUT);
    int descriptors = ranks_open_descriptors(), threads = ranks_threads();
    char taken[64];
    struct gmi_address_list list;
    struct gmi_address      bound;
    int                     listener;
    rank_ok(self, gmi_address_resolve(&list, "127.0.0.1", 0, NULL));
    rank_ok(self, gmi_socket_listen(&listener, &list.addresses[0], NULL));
    gmi_socket_own_address(listener, &bound);
    gmi_address_format(&bound, taken);
    for (int i = 0; i < FAILURES; i++) {
        self->options = good;
        if (i % 7 == 1 || i % 7 == 5) self->options.connect_timeout_ms = 5000;
        switch (i % 7) {
        case 0: expect_failure(self, GM_ERR_TIMEOUT); break; /* nobody comes */
        case 1: self->options.job_id = "another"; expect_failure(self, GM_ERR_REFUSED); break;
        case 2: self->options.store = "127.0.0.1:1"; expect_failure(self, GM_ERR_TIMEOUT); break;
        case 3: self->options.store = taken; expect_failure(self, GM_ERR_TIMEOUT); break; /* and says nothing */
        case 4: self->options.store = "nonsense"; expect_failure(self, GM_ERR_ARG); break;
        case 5: self->options.interface_names = "=nosuch"; expect_failure(self, GM_ERR_ARG); break;
        default:
            self->options.store = NULL;
            self->options.master_addr = "127.0.0.1";
            self->options.master_port = gmi_address_port(&bound);
            expect_failure(self, GM_ERR_SYSTEM);
        }
    }
    gmi_socket_close(&listener);
    rank_check(self, ranks_open_descriptors() == descriptors);
    rank_check(self, ranks_threads() == threads);
}

static void a_hundred_failures_leave_no_descriptor_and_no_thread(void **state)
{
    struct ranks_job job = { .n_ranks = 1, .body = fail_in_every_way, .limit_ms = 60000 };
    ranks_run(state, &job);
}

/* ---- forked children ---------------------------------------------------------------------------------- */

static void call_as_a_child(struct rank_self *self)
{
    double   x = 1;
    gm_work *work;
    rank_expect(self, GM_ERR_STATE, gm_all_reduce(self->comm, &x, &x, 1, GM_F64, GM_SUM));
    rank_check(self, strstr(gm_comm_error(self->comm)->text, "was forked from rank") != NULL);
    rank_expect(self, GM_ERR_STATE, gm_barrier_start(self->comm, &work));
    rank_expect(self, GM_ERR_STATE, gm_comm_abort(self->comm, "not mine to end"));
    gm_comm_destroy(self->comm);
    _exit(0);
}

static void fork_a_child(struct rank_self *self)
{
    int status = -1;
    rank_create(self);
    check_sum(self, self->comm, self->world_size);
    pid_t child = fork();
    if (child == 0) call_as_a_child(self);
    rank_check(self, child > 0 && waitpid(child, &status, 0) == child && status == 0);
    check_sum(self, self->comm, self->world_size);
    rank_destroy(self);
}

static void a_forked_child_is_refused_and_harms_nothing(void **state)
{
    struct ranks_job job = { .n_ranks = 3, .body = fork_a_child };
    ranks_run(state, &job);
    job.is_hand_started = true; /* rank 0's child has a copy of the store, too */
    ranks_run(state, &job);
}

static void destroying_nothing_is_fine(void **state)
{
    (void)state;
    gm_comm_destroy(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(twenty_lives_in_one_process),
        TEST(twenty_lives_without_a_launcher),
        TEST(the_world_may_change_its_size_from_life_to_life),
        TEST(two_communicators_live_side_by_side),
        TEST(a_forked_child_is_refused_and_harms_nothing),
        TEST(lives_leave_no_descriptor_no_thread_no_memory_and_no_port),
        TEST(a_hundred_failures_leave_no_descriptor_and_no_thread),
        TEST(destroying_nothing_is_fine),
    };
    return cmocka_run_group_tests_name("life cycle", tests, NULL, NULL);
}
