#include "plan/network.h"

#include "tests/support/test.h"

enum { US = 1000 * 1000, KB = 1000 };

/* Hosts of one rank each, but that ranks 3 and 4 share host 3. A byte takes 1000 ps, a latency 50 us. */
static const int hosts[] = { 0, 1, 2, 3, 3 };

static const struct plan_network_costs costs = { .latency_ps = 50 * US, .local_latency_ps = 2 * US, .byte_ps = 1000,
                                                 .local_byte_ps = 100, .grain_bytes = 1000, .buffer_bytes = 1 << 20 };

struct bed {
    struct plan_event_queue events;
    struct plan_network     network;
    struct plan_card        cards[4];
};

static void set_up(struct bed *b, struct plan_network_costs with)
{
    *b = (struct bed){ 0 };
    plan_network_init(&b->network, &with, &b->events, hosts, b->cards);
}

static void tear_down(struct bed *b)
{
    plan_network_fini(&b->network);
    plan_event_queue_fini(&b->events);
}

static struct plan_end *connected(struct bed *b, int from, int to)
{
    struct plan_end *ends[2];
    assert_true(plan_network_connect(&b->network, from, to, ends));
    return ends[0];
}

static size_t send_bytes(struct plan_end *end, const void *data, size_t n_bytes)
{
    struct iovec part = { (void *)(uintptr_t)data, n_bytes };
    size_t       moved;
    gm_status    status = gmi_link_send_some(&end->link, &part, 1, &moved);
    assert_true(status == GM_OK || status == GM_AGAIN);
    return moved;
}

static uint8_t anywhere[1]; /* what is sent has a length only */

static void send_all(struct plan_end *end, size_t n_bytes)
{
    while (n_bytes > 0) {
        size_t moved = send_bytes(end, anywhere, n_bytes);
        assert_true(moved > 0);
        n_bytes -= moved;
    }
}

static size_t recv_bytes(struct plan_end *end, void *into, size_t n_bytes)
{
    struct iovec part = { into, n_bytes };
    size_t       moved;
    gmi_link_recv_some(&end->link, &part, 1, &moved);
    return moved;
}

/* Until nothing more happens. When the last bytes arrived at `end`; 0 if none did. */
static int64_t run(struct bed *b, const struct plan_end *end)
{
    struct plan_event event;
    int64_t           at_ps = 0;
    while (plan_event_take(&b->events, &event)) {
        b->network.now_ps = b->network.core_ps = event.at_ps;
        plan_network_happens(&b->network, &event);
        if (end != NULL && event.kind == PLAN_BYTES_ARRIVE && event.target == end->number) at_ps = event.at_ps;
    }
    return at_ps;
}

static void alone_a_parcel_takes_its_bytes_and_one_latency(void **state)
{
    (void)state;
    struct bed b;
    set_up(&b, costs);
    struct plan_end *end = connected(&b, 0, 1);
    send_all(end, KB);
    assert_int_equal(run(&b, end->other), 51 * US);
    tear_down(&b);
}

static void many_parcels_share_one_latency(void **state)
{
    (void)state;
    struct bed b;
    set_up(&b, costs);
    struct plan_end *end = connected(&b, 0, 1);
    send_all(end, 300 * KB);
    assert_int_equal(run(&b, end->other), 350 * US);
    assert_int_equal(b.cards[0].out_bytes, 300 * KB);
    assert_int_equal(b.cards[1].in_busy_ps, 300 * US);
    tear_down(&b);
}

static void two_links_out_of_a_card_get_half_of_it_each(void **state)
{
    (void)state;
    struct bed b;
    set_up(&b, costs);
    struct plan_end *one = connected(&b, 0, 1), *two = connected(&b, 0, 2);
    send_all(one, 100 * KB);
    send_all(two, 100 * KB);
    struct plan_event event;
    int64_t           done_ps[2] = { 0 };
    while (plan_event_take(&b.events, &event)) {
        b.network.now_ps = b.network.core_ps = event.at_ps;
        plan_network_happens(&b.network, &event);
        if (event.kind != PLAN_BYTES_ARRIVE) continue;
        done_ps[event.target == two->other->number] = event.at_ps;
        int64_t ahead = (int64_t)one->other->n_arrived - (int64_t)two->other->n_arrived;
        assert_in_range(ahead + 1, 0, 3); /* the one that was there first has left at once */
    }
    assert_int_equal(done_ps[0], 248 * US); /* number 198 of 200 */
    assert_int_equal(done_ps[1], 250 * US);
    tear_down(&b);
}

static void two_links_into_a_card_get_half_of_it_each(void **state)
{
    (void)state;
    struct bed b;
    set_up(&b, costs);
    struct plan_end *one = connected(&b, 0, 2), *two = connected(&b, 1, 2);
    send_all(one, 100 * KB);
    send_all(two, 100 * KB);
    assert_in_range(run(&b, one->other), 249 * US, 250 * US);
    assert_int_equal(one->other->n_arrived + two->other->n_arrived, 200);
    assert_int_equal(b.cards[2].in_free_ps, 250 * US);
    tear_down(&b);
}

static void what_a_card_has_saved_up_leaves_at_once(void **state)
{
    (void)state;
    struct bed                b;
    struct plan_network_costs shaped = costs;
    shaped.burst_bytes = 20 * KB;
    set_up(&b, shaped);
    struct plan_end *end = connected(&b, 0, 1);
    b.network.now_ps = b.network.core_ps = 1000 * US; /* the bucket is full by now */
    send_all(end, 50 * KB);
    assert_int_equal(run(&b, end->other), 1080 * US); /* 30 KB at the bandwidth, and the latency */
    tear_down(&b);
}

static void a_card_works_both_ways_at_once(void **state)
{
    (void)state;
    struct bed b;
    set_up(&b, costs);
    struct plan_end *end = connected(&b, 0, 1);
    send_all(end, 100 * KB);
    send_all(end->other, 100 * KB);
    assert_int_equal(run(&b, end->other), 150 * US);
    assert_int_equal(b.cards[0].in_free_ps, 150 * US);
    assert_int_equal(b.cards[1].in_free_ps, 150 * US);
    tear_down(&b);
}

static void ranks_of_one_host_do_not_need_its_card(void **state)
{
    (void)state;
    struct bed b;
    set_up(&b, costs);
    struct plan_end *here = connected(&b, 3, 4), *there = connected(&b, 3, 0);
    send_all(here, 10 * KB);
    send_all(there, 10 * KB);
    assert_int_equal(run(&b, here->other), 3 * US);
    assert_int_equal(b.cards[0].in_free_ps, 60 * US);
    assert_int_equal(b.cards[3].out_bytes, 10 * KB);
    tear_down(&b);
}

static void heads_arrive_as_they_were_sent_and_bodies_by_their_length(void **state)
{
    (void)state;
    struct bed b;
    set_up(&b, costs);
    struct plan_end *end = connected(&b, 0, 1);
    char             head[] = "a head of 17 byte", got[17] = { 0 };
    struct iovec     parts[2] = { { head, 17 }, { anywhere, 5000 } };
    size_t           moved;
    assert_int_equal(gmi_link_send_some(&end->link, parts, 2, &moved), GM_OK);
    assert_int_equal(moved, 17 + 1000); /* a grain of the body */
    assert_int_equal(recv_bytes(end->other, got, 17), 0); /* not here yet */
    run(&b, NULL);
    assert_int_equal(recv_bytes(end->other, got, 10), 10);
    assert_int_equal(recv_bytes(end->other, got + 10, 7), 7);
    assert_memory_equal(got, head, 17);
    assert_int_equal(recv_bytes(end->other, anywhere, 600), 600);
    assert_int_equal(recv_bytes(end->other, anywhere, 600), 400);
    assert_int_equal(recv_bytes(end->other, anywhere, 600), 0);
    tear_down(&b);
}

static void a_link_takes_no_more_than_its_buffer_until_something_is_read(void **state)
{
    (void)state;
    struct bed                b;
    struct plan_network_costs small = costs;
    small.buffer_bytes = 2500;
    set_up(&b, small);
    struct plan_end *end = connected(&b, 0, 1);
    send_all(end, 2000);
    assert_int_equal(send_bytes(end, anywhere, 1000), 0);
    run(&b, NULL);
    assert_int_equal(send_bytes(end, anywhere, 1000), 0);
    assert_int_equal(recv_bytes(end->other, anywhere, 1000), 1000);
    struct plan_event event;
    assert_true(plan_event_take(&b.events, &event));
    assert_int_equal(event.kind, PLAN_ROOM_IS_MADE);
    assert_int_equal(plan_network_happens(&b.network, &event), 0); /* it concerns rank 0 */
    assert_int_equal(send_bytes(end, anywhere, 1000), 1000);
    tear_down(&b);
}

static void what_a_core_does_delays_what_it_sends(void **state)
{
    (void)state;
    struct bed                b;
    struct plan_network_costs busy = costs;
    busy.call_ps = 5 * US;
    busy.copy_ps = 500;
    set_up(&b, busy);
    struct plan_end *end = connected(&b, 0, 1);
    send_all(end, 2 * KB); /* two calls, 5.5 us each */
    assert_int_equal(b.network.core_ps, 11 * US);
    assert_int_equal(run(&b, end->other), 62 * US);
    b.network.slowness = 3;
    b.network.core_ps = b.network.now_ps;
    int64_t before_ps = b.network.core_ps;
    send_all(end, KB);
    assert_int_equal(b.network.core_ps - before_ps, 3 * 5500 * KB);
    tear_down(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_a_parcel_takes_its_bytes_and_one_latency),
        cmocka_unit_test(many_parcels_share_one_latency),
        cmocka_unit_test(two_links_out_of_a_card_get_half_of_it_each),
        cmocka_unit_test(two_links_into_a_card_get_half_of_it_each),
        cmocka_unit_test(what_a_card_has_saved_up_leaves_at_once),
        cmocka_unit_test(a_card_works_both_ways_at_once),
        cmocka_unit_test(ranks_of_one_host_do_not_need_its_card),
        cmocka_unit_test(heads_arrive_as_they_were_sent_and_bodies_by_their_length),
        cmocka_unit_test(a_link_takes_no_more_than_its_buffer_until_something_is_read),
        cmocka_unit_test(what_a_core_does_delays_what_it_sends),
    };
    return cmocka_run_group_tests_name("simulated network", tests, NULL, NULL);
}
