#include "comm/waits.h"

#include "tests/support/test.h"

enum { N = 6, WORLD = 1, SPLIT = 2 };

static struct gmi_descriptor call_of(int rank, uint32_t group, uint64_t seq, gm_collective which)
{
    return (struct gmi_descriptor){
        .rank = rank, .group = group, .seq = seq, .collective = (uint8_t)which, .root = -1
    };
}

static const struct gmi_wait *note(struct gmi_waits *w, int rank, uint32_t group, uint64_t seq,
                                   gm_collective which, int peer)
{
    struct gmi_descriptor call = call_of(rank, group, seq, which);
    return gmi_waits_note(w, &call, peer, false);
}

static struct gmi_chain chain_of(const struct gmi_waits *w, int rank, uint32_t group, uint64_t seq,
                                 gm_collective which)
{
    struct gmi_descriptor call = call_of(rank, group, seq, which);
    return gmi_waits_chain(w, &call);
}

static void calls_of_one_number_that_differ_are_found(void **state)
{
    (void)state;
    struct gmi_waits w;
    assert_ok(gmi_waits_init(&w, N));
    assert_null(note(&w, 1, WORLD, 7, GM_BARRIER, 2));
    assert_null(note(&w, 2, WORLD, 7, GM_BARRIER, 3));
    assert_null(note(&w, 3, WORLD, 8, GM_ALL_REDUCE, 2)); /* another number */
    assert_null(note(&w, 4, SPLIT, 7, GM_ALL_REDUCE, 2)); /* another communicator */
    assert_null(note(&w, 5, WORLD, 7, GM_SEND, 2));       /* a message has no number to compare */
    const struct gmi_wait *other = note(&w, 0, WORLD, 7, GM_ALL_REDUCE, 1);
    assert_non_null(other);
    assert_int_equal(other->call.rank, 1);
    gmi_waits_fini(&w);
}

static void messages_of_one_number_are_not_compared(void **state)
{
    (void)state;
    struct gmi_waits w;
    assert_ok(gmi_waits_init(&w, N));
    assert_null(note(&w, 0, WORLD, 0, GM_SEND, 1));
    assert_null(note(&w, 1, WORLD, 0, GM_RECV, 2));
    gmi_waits_fini(&w);
}

static void the_chain_ends_with_who_does_not_wait(void **state)
{
    (void)state;
    struct gmi_waits w;
    assert_ok(gmi_waits_init(&w, N));
    note(&w, 0, WORLD, 3, GM_BARRIER, 1);
    note(&w, 1, WORLD, 2, GM_BROADCAST, 2); /* in an earlier call */
    note(&w, 2, SPLIT, 9, GM_BARRIER, 3);   /* of another communicator */
    note(&w, 3, WORLD, 0, GM_RECV, 4);      /* in a message */
    struct gmi_chain chain = chain_of(&w, 0, WORLD, 3, GM_BARRIER);
    assert_int_equal(chain.n_waits, 4);
    assert_false(chain.is_circle);
    assert_int_equal(chain.last->call.rank, 3);
    assert_int_equal(chain.last->peer, 4);
    assert_int_equal(chain.first[1]->call.rank, 1);
    gmi_waits_fini(&w);
}

static void a_circle_is_one(void **state)
{
    (void)state;
    struct gmi_waits w;
    assert_ok(gmi_waits_init(&w, N));
    for (int k = 0; k < 3; k++) note(&w, k, WORLD, 0, GM_SEND, (k + 1) % 3);
    struct gmi_chain chain = chain_of(&w, 1, WORLD, 0, GM_SEND);
    assert_true(chain.is_circle);
    assert_int_equal(chain.first[0]->call.rank, 1);
    assert_int_equal(chain.first[2]->call.rank, 0);
    assert_ptr_equal(chain.last, chain.first[0]);
    gmi_waits_fini(&w);
}

static void who_waits_no_more_ends_the_chain(void **state)
{
    (void)state;
    struct gmi_waits w;
    assert_ok(gmi_waits_init(&w, N));
    note(&w, 0, WORLD, 3, GM_BARRIER, 1);
    note(&w, 1, WORLD, 3, GM_BARRIER, 0);
    note(&w, 1, WORLD, 3, GM_BARRIER, -1);
    struct gmi_chain chain = chain_of(&w, 0, WORLD, 3, GM_BARRIER);
    assert_int_equal(chain.n_waits, 1);
    assert_int_equal(chain.last->peer, 1);
    assert_int_equal(chain_of(&w, 1, WORLD, 3, GM_BARRIER).n_waits, 0);
    assert_int_equal(chain_of(&w, 5, WORLD, 3, GM_BARRIER).n_waits, 0);
    gmi_waits_fini(&w);
}

/* A rank has few places; one that waits in more communicators than that keeps the newest. */
static void places_are_used_again(void **state)
{
    (void)state;
    struct gmi_waits w;
    assert_ok(gmi_waits_init(&w, N));
    for (uint32_t group = 10; group < 40; group++) {
        note(&w, 2, group, 1, GM_BARRIER, 3);
        assert_int_equal(chain_of(&w, 2, group, 1, GM_BARRIER).n_waits, 1);
        if (group % 3 == 0) note(&w, 2, group, 1, GM_BARRIER, -1);
    }
    gmi_waits_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_one_number_that_differ_are_found),
        cmocka_unit_test(messages_of_one_number_are_not_compared),
        cmocka_unit_test(the_chain_ends_with_who_does_not_wait),
        cmocka_unit_test(a_circle_is_one),
        cmocka_unit_test(who_waits_no_more_ends_the_chain),
        cmocka_unit_test(places_are_used_again),
    };
    return cmocka_run_group_tests_name("waits", tests, NULL, NULL);
}
