#include "trace/trace.h"

#include "base/alloc.h"
#include "tests/support/test.h"

static gm_trace_event numbered(int64_t number) { return (gm_trace_event){ .kind = GM_TRACE_SPAN, .number = number }; }

static void add(struct gmi_trace *trace, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        gm_trace_event e = numbered(i);
        gmi_trace_add(trace, &e);
    }
}

static void adding_takes_no_memory(void **state)
{
    (void)state;
    struct gmi_trace *trace = gmi_trace_create(8);
    uint64_t          before = gmi_alloc_calls();
    add(trace, 0, 100);
    assert_int_equal(gmi_alloc_calls(), before);
    gmi_trace_destroy(trace);
}

static void events_come_back_in_their_order(void **state)
{
    (void)state;
    struct gmi_trace *trace = gmi_trace_create(8);
    gm_trace_event    events[8];
    uint64_t          n_dropped;
    add(trace, 0, 5);
    assert_int_equal(gmi_trace_n_events(trace), 5);
    assert_int_equal(gmi_trace_read(trace, events, 8, &n_dropped), 5);
    for (int i = 0; i < 5; i++) assert_int_equal(events[i].number, i);
    assert_int_equal(n_dropped, 0);
    gmi_trace_destroy(trace);
}

static void a_full_trace_keeps_the_newest_and_counts_the_others(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 20; n++) {
        struct gmi_trace *trace = gmi_trace_create(4);
        gm_trace_event    events[4];
        uint64_t          n_dropped;
        add(trace, 0, n);
        size_t n_read = gmi_trace_read(trace, events, 4, &n_dropped);
        assert_int_equal(n_read, n < 4 ? n : 4);
        assert_int_equal(n_dropped, n < 4 ? 0 : n - 4);
        for (size_t i = 0; i < n_read; i++) assert_int_equal(events[i].number, n - (int64_t)n_read + (int64_t)i);
        gmi_trace_destroy(trace);
    }
}

static void who_reads_fewer_gets_the_newest(void **state)
{
    (void)state;
    struct gmi_trace *trace = gmi_trace_create(4);
    gm_trace_event    events[2];
    uint64_t          n_dropped;
    add(trace, 0, 6);
    assert_int_equal(gmi_trace_read(trace, events, 2, &n_dropped), 2);
    assert_int_equal(events[0].number, 4);
    assert_int_equal(events[1].number, 5);
    assert_int_equal(n_dropped, 4);
    gmi_trace_destroy(trace);
}

static void a_cleared_trace_begins_again(void **state)
{
    (void)state;
    struct gmi_trace *trace = gmi_trace_create(4);
    gm_trace_event    events[4];
    uint64_t          n_dropped;
    add(trace, 0, 6);
    gmi_trace_clear(trace);
    assert_int_equal(gmi_trace_n_events(trace), 0);
    add(trace, 7, 8);
    assert_int_equal(gmi_trace_read(trace, events, 4, &n_dropped), 1);
    assert_int_equal(events[0].number, 7);
    assert_int_equal(n_dropped, 0);
    gmi_trace_destroy(trace);
}

static void recording_can_be_interrupted(void **state)
{
    (void)state;
    struct gmi_trace *trace = gmi_trace_create(4);
    assert_ptr_equal(gmi_trace_of(trace), trace);
    atomic_store(&trace->is_recording, false);
    assert_null(gmi_trace_of(trace));
    assert_null(gmi_trace_of(NULL));
    gmi_trace_destroy(trace);
}

static void no_memory_is_no_trace(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        gmi_alloc_fail_at(nth);
        assert_null(gmi_trace_create(100));
    }
    gmi_alloc_fail_at(0);
    assert_null(gmi_trace_create(SIZE_MAX / 2));
}

enum { EACH = 20000 };

static void *write_many(void *trace)
{
    for (int64_t i = 0; i < EACH; i++) {
        gm_trace_event e = { .kind = GM_TRACE_SPAN, .number = i, .seq = (uint64_t)i, .first_elem = i, .n_elems = i };
        gmi_trace_add(trace, &e);
    }
    return NULL;
}

static void two_writers_and_a_reader_never_tear_an_event(void **state)
{
    (void)state;
    struct gmi_trace *trace = gmi_trace_create(64);
    gm_trace_event    events[64];
    uint64_t          n_dropped = 0;
    pthread_t         writers[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&writers[i], NULL, write_many, trace), 0);
    for (size_t n = 0; n + n_dropped < 2 * EACH;) {
        n = gmi_trace_read(trace, events, 64, &n_dropped);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(events[i].number, events[i].seq);
            assert_int_equal(events[i].number, events[i].first_elem);
            assert_int_equal(events[i].number, events[i].n_elems);
        }
    }
    for (int i = 0; i < 2; i++) pthread_join(writers[i], NULL);
    gmi_trace_destroy(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adding_takes_no_memory),
        cmocka_unit_test(events_come_back_in_their_order),
        cmocka_unit_test(a_full_trace_keeps_the_newest_and_counts_the_others),
        cmocka_unit_test(who_reads_fewer_gets_the_newest),
        cmocka_unit_test(a_cleared_trace_begins_again),
        cmocka_unit_test(recording_can_be_interrupted),
        cmocka_unit_test(no_memory_is_no_trace),
        cmocka_unit_test(two_writers_and_a_reader_never_tear_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
