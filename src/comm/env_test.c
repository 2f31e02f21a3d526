/* Who a process is, from the environment that launchers and people set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gradmesh.h"

static const char *const names[] = {
    "GRADMESH_RANK", "GRADMESH_WORLD_SIZE", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "JOB_COMPLETION_INDEX",
};

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    return 0;
}

static gm_status read_environment(gm_comm_options *options, gm_error *error)
{
    gm_comm_options_default(options);
    return gm_comm_options_from_env(options, error);
}

static void check_identity(int rank, int world_size)
{
    gm_comm_options o;
    gm_error        e;
    assert_int_equal(read_environment(&o, &e), GM_OK);
    assert_int_equal(o.rank, rank);
    assert_int_equal(o.world_size, world_size);
}

static void check_half(const char *set, const char *missing)
{
    gm_comm_options o;
    gm_error        e;
    clear_environment(NULL);
    setenv(set, "1", 1);
    assert_int_equal(read_environment(&o, &e), GM_ERR_ARG);
    const char *first = strstr(e.text, set);
    assert_non_null(first);
    assert_non_null(strstr(first + strlen(set), missing));
}

static void an_empty_environment_is_a_world_of_one(void **state)
{
    (void)state;
    check_identity(0, 1);
}

static void the_first_complete_pair_counts(void **state)
{
    (void)state;
    setenv("SLURM_PROCID", "5", 1);
    setenv("SLURM_NTASKS", "6", 1);
    check_identity(5, 6);
    setenv("WORLD_SIZE", "4", 1); /* a half does not hide a whole */
    check_identity(5, 6);
    setenv("RANK", "3", 1);
    check_identity(3, 4);
}

static void half_of_what_is_set_by_hand_is_a_slip(void **state)
{
    (void)state;
    check_half("RANK", "WORLD_SIZE");
    check_half("WORLD_SIZE", "RANK");
    check_half("GRADMESH_RANK", "GRADMESH_WORLD_SIZE");
    check_half("GRADMESH_WORLD_SIZE", "GRADMESH_RANK");
}

static void half_of_what_slurm_sets_is_passed_over(void **state)
{
    (void)state;
    setenv("SLURM_NTASKS", "6", 1); /* inside an interactive allocation */
    check_identity(0, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, clear_environment, clear_environment)
    const struct CMUnitTest tests[] = {
        TEST(an_empty_environment_is_a_world_of_one),
        TEST(the_first_complete_pair_counts),
        TEST(half_of_what_is_set_by_hand_is_a_slip),
        TEST(half_of_what_slurm_sets_is_passed_over),
    };
    return cmocka_run_group_tests_name("environment", tests, NULL, NULL);
}
