#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "launch/relay.h"
#include "net/poller.h"

/* A relay between pipes: write[rank][kind] feeds it, read[kind] gives what came out. */
enum { MAX_WORKERS = 3 };

struct bench {
    struct launch_relay *relay;
    struct gmi_poller poller;
    int n_workers;
    int write[MAX_WORKERS][2], sink[2], read[2];
    char *out[2];
    size_t n_out[2], cap_out;
};

static void bench_init(struct bench *b, int n_workers, bool has_prefix)
{
    *b = (struct bench){ .n_workers = n_workers, .cap_out = 4 << 20 };
    gmi_poller_init(&b->poller);
    for (int kind = 0; kind < 2; kind++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        b->read[kind] = ends[0];
        b->sink[kind] = ends[1];
        b->out[kind] = calloc(1, b->cap_out);
    }
    const struct launch_relay_options options = {
        .n_workers = n_workers,
        .fds = { b->sink[0], b->sink[1] },
        .has_prefix = { has_prefix, has_prefix },
    };
    b->relay = launch_relay_create(&options);
    assert_non_null(b->relay);
    for (int rank = 0; rank < n_workers; rank++) {
        for (int kind = 0; kind < 2; kind++) {
            int ends[2];
            assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
            launch_relay_attach(b->relay, rank, (enum launch_stream)kind, ends[0]);
            b->write[rank][kind] = ends[1];
        }
    }
}

static void bench_fini(struct bench *b)
{
    for (int kind = 0; kind < 2; kind++) {
        for (int rank = 0; rank < b->n_workers; rank++) {
            if (b->write[rank][kind] >= 0) close(b->write[rank][kind]);
        }
        if (b->read[kind] >= 0) close(b->read[kind]);
        close(b->sink[kind]);
        free(b->out[kind]);
    }
    launch_relay_destroy(b->relay);
    gmi_poller_fini(&b->poller);
}

static void feed(struct bench *b, int rank, int kind, const char *text)
{
    assert_int_equal(write(b->write[rank][kind], text, strlen(text)), strlen(text));
}

/* One turn of the relay, without waiting for anything. */
static void turn(struct bench *b)
{
    gmi_poller_clear(&b->poller);
    launch_relay_watch(b->relay, &b->poller);
    gmi_poller_wait(&b->poller, gmi_now_ns());
    launch_relay_step(b->relay, &b->poller);
}

static void collect(struct bench *b)
{
    for (int kind = 0; kind < 2; kind++) {
        if (b->read[kind] < 0) continue;
        for (;;) {
            ssize_t got =
                read(b->read[kind], b->out[kind] + b->n_out[kind], b->cap_out - 1 - b->n_out[kind]);
            if (got <= 0) break;
            b->n_out[kind] += (size_t)got;
        }
    }
}

static void run_to_idle(struct bench *b)
{
    for (int rank = 0; rank < b->n_workers; rank++) {
        for (int kind = 0; kind < 2; kind++) {
            close(b->write[rank][kind]);
            b->write[rank][kind] = -1;
        }
    }
    for (int i = 0; i < 100000 && !launch_relay_is_idle(b->relay); i++) {
        turn(b);
        collect(b);
    }
    assert_true(launch_relay_is_idle(b->relay));
}

static void lines_are_passed_on_whole_whatever_the_pieces(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2, true);
    static const char *const pieces[][2] = { { "al", "x" },
                                             { "pha\nbe", "y\n\n" },
                                             { "ta\n", "z" } };
    for (int i = 0; i < 3; i++) {
        feed(&b, 0, LAUNCH_STDOUT, pieces[i][0]);
        feed(&b, 1, LAUNCH_STDOUT, pieces[i][1]);
        turn(&b);
    }
    run_to_idle(&b);
    assert_string_equal(b.out[0], "[0] alpha\n[1] xy\n[1] \n[0] beta\n[1] z\n");
    bench_fini(&b);
}

static void the_two_outputs_stay_apart(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, true);
    feed(&b, 0, LAUNCH_STDOUT, "out\n");
    feed(&b, 0, LAUNCH_STDERR, "err\n");
    launch_relay_say(b.relay, "launcher: %d", 7);
    run_to_idle(&b);
    assert_string_equal(b.out[0], "[0] out\n");
    assert_string_equal(b.out[1], "launcher: 7\n[0] err\n");
    bench_fini(&b);
}

static void without_prefix_one_worker_passes_through_at_once(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, false);
    feed(&b, 0, LAUNCH_STDOUT, "question? ");
    turn(&b);
    collect(&b);
    assert_string_equal(b.out[0], "question? ");
    run_to_idle(&b);
    assert_string_equal(b.out[0], "question? ");
    bench_fini(&b);
}

static void a_message_never_continues_a_worker_s_line(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, false);
    feed(&b, 0, LAUNCH_STDERR, "half");
    turn(&b);
    launch_relay_say(b.relay, "message");
    run_to_idle(&b);
    assert_string_equal(b.out[1], "half\nmessage\n");
    bench_fini(&b);
}

static void a_full_sink_makes_the_workers_wait(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, true);
    fcntl(b.write[0][LAUNCH_STDOUT], F_SETFL, O_NONBLOCK);
    static char line[4096];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    size_t fed_bytes = 0;
    /* Nobody reads: what is taken must come to an end, far below the memory of a machine. */
    for (int i = 0; i < 10000; i++) {
        ssize_t sent = write(b.write[0][LAUNCH_STDOUT], line, sizeof line);
        if (sent > 0) fed_bytes += (size_t)sent;
        turn(&b);
    }
    assert_true(fed_bytes < (2u << 20));
    run_to_idle(&b);
    assert_int_equal(b.n_out[0], fed_bytes + 4 * (fed_bytes / sizeof line));
    bench_fini(&b);
}

static void a_line_beyond_the_limit_loses_nothing(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, true);
    b.cap_out = (size_t)LAUNCH_LINE_MAX_BYTES + (2u << 20);
    for (int kind = 0; kind < 2; kind++) {
        b.out[kind] = realloc(b.out[kind], b.cap_out);
        assert_non_null(b.out[kind]);
    }
    const size_t wanted_bytes = (size_t)LAUNCH_LINE_MAX_BYTES + (1u << 20);
    static char block[65536];
    memset(block, 'x', sizeof block);
    fcntl(b.write[0][LAUNCH_STDOUT], F_SETFL, O_NONBLOCK);
    for (size_t fed_bytes = 0; fed_bytes < wanted_bytes;) {
        ssize_t sent = write(b.write[0][LAUNCH_STDOUT], block,
                             gmi_min_size(sizeof block, wanted_bytes - fed_bytes));
        if (sent > 0) fed_bytes += (size_t)sent;
        turn(&b);
        collect(&b);
    }
    run_to_idle(&b);
    assert_int_equal(b.n_out[0], wanted_bytes + strlen("[0] ") + strlen("\n"));
    bench_fini(&b);
}

static void a_reader_that_has_gone_is_reported_and_drained(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, true);
    close(b.read[LAUNCH_STDOUT]);
    b.read[LAUNCH_STDOUT] = -1;
    feed(&b, 0, LAUNCH_STDOUT, "nobody reads this\n");
    turn(&b);
    assert_int_equal(launch_relay_broken(b.relay, LAUNCH_STDOUT), EPIPE);
    assert_int_equal(launch_relay_broken(b.relay, LAUNCH_STDERR), 0);
    feed(&b, 0, LAUNCH_STDOUT, "nor this\n");
    run_to_idle(&b);
    bench_fini(&b);
}

static void a_stream_held_open_by_a_stranger_ends_when_told_so(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, true);
    int held = dup(b.write[0][LAUNCH_STDOUT]);
    feed(&b, 0, LAUNCH_STDOUT, "last");
    for (int i = 0; i < 10; i++) turn(&b);
    assert_false(launch_relay_is_idle(b.relay));
    launch_relay_finish(b.relay);
    run_to_idle(&b);
    assert_string_equal(b.out[0], "[0] last\n");
    close(held);
    bench_fini(&b);
}

static void append_line(void *user, const char *text, int n_bytes)
{
    char *all = user;
    snprintf(all + strlen(all), 256, "%.*s|", n_bytes, text);
}

static void the_last_lines_are_kept(void **state)
{
    (void)state;
    struct bench b;
    char line[64], lines[4096] = "";
    bench_init(&b, 2, true);
    for (int i = 0; i < 2000; i++) {
        snprintf(line, sizeof line, "line %d\n", i);
        feed(&b, 1, LAUNCH_STDERR, line);
        if (i % 50 == 0) turn(&b), collect(&b);
    }
    feed(&b, 1, LAUNCH_STDERR, "unfinished");
    run_to_idle(&b);
    assert_int_equal(launch_relay_last_lines(b.relay, 1, append_line, lines), 8);
    assert_string_equal(
        lines, "line 1993|line 1994|line 1995|line 1996|line 1997|line 1998|line 1999|unfinished|");
    lines[0] = '\0';
    assert_int_equal(launch_relay_last_lines(b.relay, 0, append_line, lines), 0);
    bench_fini(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as the launcher has it */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_passed_on_whole_whatever_the_pieces),
        cmocka_unit_test(the_two_outputs_stay_apart),
        cmocka_unit_test(without_prefix_one_worker_passes_through_at_once),
        cmocka_unit_test(a_message_never_continues_a_worker_s_line),
        cmocka_unit_test(a_full_sink_makes_the_workers_wait),
        cmocka_unit_test(a_line_beyond_the_limit_loses_nothing),
        cmocka_unit_test(a_reader_that_has_gone_is_reported_and_drained),
        cmocka_unit_test(a_stream_held_open_by_a_stranger_ends_when_told_so),
        cmocka_unit_test(the_last_lines_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
