/* Options and the environment: defaults, what is taken from where, and every wrong value named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gradmesh.h"

static const char *const names[] = {
    "GRADMESH_RANK", "GRADMESH_WORLD_SIZE", "GRADMESH_STORE", "GRADMESH_JOB_ID", "GRADMESH_SOCKET_IFNAME",
    "GRADMESH_TRANSPORT", "GRADMESH_ALGO", "GRADMESH_TIMEOUT_MS", "GRADMESH_SPIN_US", "GRADMESH_LOG", "RANK",
    "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
    "SLURM_PROCID", "SLURM_NTASKS", "JOB_COMPLETION_INDEX", "MASTER_ADDR", "MASTER_PORT",
};

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    return 0;
}

static void defaults_are_as_documented(void **state)
{
    (void)state;
    gm_comm_options o;
    memset(&o, 0xff, sizeof o);
    gm_comm_options_default(&o);
    assert_int_equal(o.struct_bytes, sizeof o);
    assert_int_equal(o.rank, -1);
    assert_int_equal(o.world_size, -1);
    assert_null(o.store);
    assert_null(o.job_id);
    assert_null(o.algorithm);
    assert_int_equal(o.connect_timeout_ms, 60000);
    assert_int_equal(o.stall_limit_ms, 300000);
    assert_int_equal(o.log_level, GM_LOG_WARN);
    assert_null(o.log);
}

/* ---- who am I --------------------------------------------------------------------------------------- */

static void identity_is(int rank, int size)
{
    gm_comm_options o;
    gm_error        e;
    gm_comm_options_default(&o);
    if (gm_comm_options_from_env(&o, &e) != GM_OK) fail_msg("%s", e.text);
    assert_int_equal(o.rank, rank);
    assert_int_equal(o.world_size, size);
}

static void the_first_complete_family_counts(void **state)
{
    (void)state;
    identity_is(0, 1); /* none: a world of one */
    setenv("JOB_COMPLETION_INDEX", "6", 1);
    setenv("WORLD_SIZE", "7", 1);
    identity_is(6, 7);
    setenv("SLURM_PROCID", "5", 1);
    setenv("SLURM_NTASKS", "6", 1);
    identity_is(5, 6);
    setenv("PMI_RANK", "4", 1);
    setenv("PMI_SIZE", "5", 1);
    identity_is(4, 5);
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    identity_is(3, 4);
    setenv("RANK", "2", 1);
    identity_is(2, 7);
    setenv("GRADMESH_RANK", "1", 1);
    identity_is(2, 7); /* only half of that family */
    setenv("GRADMESH_WORLD_SIZE", "2", 1);
    identity_is(1, 2);
}

static void what_the_caller_has_set_stays_when_nothing_is_in_the_environment(void **state)
{
    (void)state;
    gm_comm_options o;
    gm_comm_options_default(&o);
    o.rank = 3;
    o.world_size = 5;
    o.store = "example:1";
    assert_int_equal(gm_comm_options_from_env(&o, NULL), GM_OK);
    assert_int_equal(o.rank, 3);
    assert_int_equal(o.world_size, 5);
    assert_string_equal(o.store, "example:1");
}

static void everything_is_taken_from_where_it_should(void **state)
{
    (void)state;
    gm_comm_options o;
    setenv("GRADMESH_STORE", "[::1]:4000", 1);
    setenv("GRADMESH_JOB_ID", "j", 1);
    setenv("GRADMESH_SOCKET_IFNAME", "=lo", 1);
    setenv("GRADMESH_TRANSPORT", "tcp", 1);
    setenv("GRADMESH_ALGO", "naive", 1);
    setenv("GRADMESH_TIMEOUT_MS", "1234", 1);
    setenv("GRADMESH_LOG", "debug", 1);
    setenv("MASTER_ADDR", "example", 1);
    setenv("MASTER_PORT", "65535", 1);
    gm_comm_options_default(&o);
    assert_int_equal(gm_comm_options_from_env(&o, NULL), GM_OK);
    assert_string_equal(o.store, "[::1]:4000");
    assert_string_equal(o.job_id, "j");
    assert_string_equal(o.interface_names, "=lo");
    assert_string_equal(o.transport, "tcp");
    assert_string_equal(o.algorithm, "naive");
    assert_int_equal(o.stall_limit_ms, 1234);
    assert_int_equal(o.log_level, GM_LOG_DEBUG);
    assert_string_equal(o.master_addr, "example");
    assert_int_equal(o.master_port, 65535);
}

static void a_wrong_value_is_named_with_its_variable(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *with_name, *with_value;
    } wrong[] = {
        { "RANK", "one", "WORLD_SIZE", "2" },        { "RANK", "1x", "WORLD_SIZE", "2" },
        { "RANK", "-1", "WORLD_SIZE", "2" },         { "RANK", "2", "WORLD_SIZE", "2" },
        { "RANK", " 1", "WORLD_SIZE", "2" },         { "RANK", "99999999999999999999", "WORLD_SIZE", "2" },
        { "WORLD_SIZE", "0", "RANK", "0" },          { "WORLD_SIZE", "2.5", "RANK", "0" },
        { "GRADMESH_RANK", "7", "GRADMESH_WORLD_SIZE", "4" },
        { "MASTER_PORT", "0", NULL, NULL },          { "MASTER_PORT", "65536", NULL, NULL },
        { "MASTER_PORT", "http", NULL, NULL },       { "GRADMESH_TIMEOUT_MS", "-5", NULL, NULL },
        { "GRADMESH_TIMEOUT_MS", "1s", NULL, NULL }, { "GRADMESH_LOG", "loud", NULL, NULL },
        { "GRADMESH_SPIN_US", "lots", NULL, NULL },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gm_comm_options o;
        gm_error        e;
        clear_environment(NULL);
        setenv(wrong[i].name, wrong[i].value, 1);
        if (wrong[i].with_name != NULL) setenv(wrong[i].with_name, wrong[i].with_value, 1);
        gm_comm_options_default(&o);
        if (gm_comm_options_from_env(&o, &e) != GM_ERR_ARG) fail_msg("%s=%s was taken", wrong[i].name, wrong[i].value);
        if (e.status != GM_ERR_ARG || strstr(e.text, wrong[i].name) == NULL || strstr(e.text, wrong[i].value) == NULL) {
            fail_msg("%s=%s: %s", wrong[i].name, wrong[i].value, e.text);
        }
    }
}

static void an_empty_variable_is_as_good_as_none(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) setenv(names[i], "", 1);
    identity_is(0, 1);
}

/* ---- options that cannot be right --------------------------------------------------------------------- */

static gm_comm_options two_ranks(void)
{
    gm_comm_options o;
    gm_comm_options_default(&o);
    o.rank = 0;
    o.world_size = 2;
    o.store = "127.0.0.1:1";
    o.connect_timeout_ms = 1000;
    return o;
}

static void refuses(const gm_comm_options *o, gm_status expected, const char *text)
{
    gm_comm  *comm = (gm_comm *)o;
    gm_error  e;
    gm_status status = gm_comm_create(&comm, o, &e);
    if (status != expected || strstr(e.text, text) == NULL) {
        fail_msg("%s, not %s with '%s': %s", gm_status_name(status), gm_status_name(expected), text, e.text);
    }
    assert_null(comm);
    assert_int_equal(gm_comm_create(&comm, o, NULL), expected); /* the record may be left out */
}

static void options_that_cannot_be_right_are_refused_at_once(void **state)
{
    (void)state;
    char long_name[40], long_text[70000];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    gm_comm_options o;
#define REFUSED(change, status, text) (o = two_ranks(), o.change, refuses(&o, status, text))
    REFUSED(rank = 2, GM_ERR_ARG, "no rank 2 in a world of 2");
    REFUSED(rank = -1, GM_ERR_ARG, "no rank -1");
    REFUSED(world_size = 0, GM_ERR_ARG, "world of 0");
    REFUSED(world_size = -3, GM_ERR_ARG, "world of -3");
    REFUSED(struct_bytes = 8, GM_ERR_ARG, "gm_comm_options_default");
    REFUSED(connect_timeout_ms = 0, GM_ERR_ARG, "connect_timeout_ms");
    REFUSED(stall_limit_ms = -1, GM_ERR_ARG, "stall_limit_ms");
    REFUSED(job_id = long_name, GM_ERR_ARG, "job id");
    REFUSED(group = long_name, GM_ERR_ARG, "group");
    REFUSED(fingerprint = long_text, GM_ERR_ARG, "fingerprint");
    REFUSED(transport = "pigeon", GM_ERR_UNSUPPORTED, "pigeon");
    REFUSED(algorithm = "quantum", GM_ERR_UNSUPPORTED, "quantum");
    REFUSED(store = "localhost", GM_ERR_ARG, "localhost");
    REFUSED(store = "localhost:0", GM_ERR_ARG, "localhost:0");
    REFUSED(store = "::1:80", GM_ERR_ARG, "[ipv6]:port");
    REFUSED(store = NULL, GM_ERR_ARG, "MASTER_ADDR");
    refuses(NULL, GM_ERR_ARG, "options");
    o = two_ranks();
    assert_int_equal(gm_comm_create(NULL, &o, NULL), GM_ERR_ARG);
}

static void a_world_of_one_needs_no_meeting_point(void **state)
{
    (void)state;
    gm_comm_options o;
    gm_comm        *comm;
    gm_comm_options_default(&o);
    o.rank = 0;
    o.world_size = 1;
    assert_int_equal(gm_comm_create(&comm, &o, NULL), GM_OK);
    assert_int_equal(gm_comm_rank(comm), 0);
    assert_int_equal(gm_comm_size(comm), 1);
    gm_comm_destroy(comm);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, clear_environment, clear_environment)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_as_documented),
        TEST(the_first_complete_family_counts),
        TEST(what_the_caller_has_set_stays_when_nothing_is_in_the_environment),
        TEST(everything_is_taken_from_where_it_should),
        TEST(a_wrong_value_is_named_with_its_variable),
        TEST(an_empty_variable_is_as_good_as_none),
        TEST(options_that_cannot_be_right_are_refused_at_once),
        TEST(a_world_of_one_needs_no_meeting_point),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
