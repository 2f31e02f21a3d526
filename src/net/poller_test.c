#include "net/poller.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "tests/support/test.h"

enum { PATIENCE_MS = 10000 };

static void make_pipe(int fds[2]) { assert_int_equal(pipe(fds), 0); }

static void close_pipe(int fds[2])
{
    close(fds[0]);
    close(fds[1]);
}

static void interests_in_one_descriptor_are_merged(void **state)
{
    (void)state;
    struct gmi_poller p;
    int               fds[2];
    make_pipe(fds);
    gmi_poller_init(&p);
    gmi_poller_add(&p, fds[1], GMI_READABLE);
    gmi_poller_add(&p, fds[1], GMI_WRITABLE);
    gmi_poller_add(&p, fds[1], GMI_HANGUP);
    assert_int_equal(p.n_slots, 1);
    assert_int_equal(p.slots[0].events, POLLIN | POLLOUT);
    assert_ok(gmi_poller_wait(&p, gmi_deadline_after_ms(PATIENCE_MS)));
    assert_int_equal(gmi_poller_ready(&p, fds[1]), GMI_WRITABLE);
    gmi_poller_fini(&p);
    close_pipe(fds);
}

static void only_what_is_ready_is_said_to_be(void **state)
{
    (void)state;
    struct gmi_poller p;
    int               quiet[2], talking[2];
    make_pipe(quiet);
    make_pipe(talking);
    assert_int_equal(write(talking[1], "x", 1), 1);
    gmi_poller_init(&p);
    gmi_poller_add(&p, quiet[0], GMI_READABLE);
    gmi_poller_add(&p, talking[0], GMI_READABLE);
    assert_ok(gmi_poller_wait(&p, gmi_deadline_after_ms(PATIENCE_MS)));
    assert_int_equal(gmi_poller_ready(&p, quiet[0]), 0);
    assert_int_equal(gmi_poller_ready(&p, talking[0]), GMI_READABLE);
    assert_int_equal(gmi_poller_ready(&p, 12345), 0);
    gmi_poller_fini(&p);
    close_pipe(quiet);
    close_pipe(talking);
}

static void an_end_of_file_is_readable_without_being_asked_for(void **state)
{
    (void)state;
    struct gmi_poller p;
    int               fds[2];
    make_pipe(fds);
    close(fds[1]);
    gmi_poller_init(&p);
    gmi_poller_add(&p, fds[0], GMI_HANGUP);
    assert_ok(gmi_poller_wait(&p, gmi_deadline_after_ms(PATIENCE_MS)));
    assert_int_equal(gmi_poller_ready(&p, fds[0]), GMI_READABLE);
    gmi_poller_fini(&p);
    close(fds[0]);
}

static void a_closed_descriptor_does_not_sleep(void **state)
{
    (void)state;
    struct gmi_poller p;
    int               fds[2];
    make_pipe(fds);
    close_pipe(fds);
    gmi_poller_init(&p);
    gmi_poller_add(&p, fds[0], GMI_READABLE);
    assert_ok(gmi_poller_wait(&p, gmi_deadline_after_ms(PATIENCE_MS)));
    assert_int_equal(gmi_poller_ready(&p, fds[0]), GMI_READABLE | GMI_WRITABLE);
    gmi_poller_fini(&p);
}

static void a_deadline_ends_the_wait(void **state)
{
    (void)state;
    struct gmi_poller p;
    int               fds[2];
    make_pipe(fds);
    gmi_poller_init(&p);
    gmi_poller_add(&p, fds[0], GMI_READABLE);
    assert_status(gmi_poller_wait(&p, gmi_now_ns() - 1), GM_AGAIN);
    int64_t deadline_ns = gmi_deadline_after_ms(20);
    assert_status(gmi_poller_wait(&p, deadline_ns), GM_AGAIN);
    assert_true(gmi_deadline_passed(deadline_ns)); /* not early either */
    assert_int_equal(gmi_poller_ready(&p, fds[0]), 0);
    gmi_poller_clear(&p);
    assert_status(gmi_poller_wait(&p, gmi_deadline_after_ms(1)), GM_AGAIN); /* nothing at all */
    gmi_poller_fini(&p);
    close_pipe(fds);
}

static void many_descriptors_fit_and_memory_that_is_missing_is_told(void **state)
{
    (void)state;
    struct gmi_poller p;
    gmi_poller_init(&p);
    for (int fd = 1000; fd < 1100; fd++) gmi_poller_add(&p, fd, GMI_READABLE);
    assert_int_equal(p.n_slots, 100);
    assert_false(p.is_out_of_memory);
    gmi_alloc_fail_at(1);
    for (int fd = 2000; fd < 2100; fd++) gmi_poller_add(&p, fd, GMI_READABLE);
    gmi_alloc_fail_at(0);
    assert_true(p.is_out_of_memory);
    assert_status(gmi_poller_wait(&p, GMI_NEVER), GM_ERR_NOMEM);
    gmi_poller_clear(&p);
    assert_false(p.is_out_of_memory);
    gmi_poller_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interests_in_one_descriptor_are_merged),
        cmocka_unit_test(only_what_is_ready_is_said_to_be),
        cmocka_unit_test(an_end_of_file_is_readable_without_being_asked_for),
        cmocka_unit_test(a_closed_descriptor_does_not_sleep),
        cmocka_unit_test(a_deadline_ends_the_wait),
        cmocka_unit_test(many_descriptors_fit_and_memory_that_is_missing_is_told),
    };
    return cmocka_run_group_tests_name("poller", tests, NULL, NULL);
}
