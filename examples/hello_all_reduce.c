/* hello_all_reduce.c - every process contributes a number, and every process gets the sum.
 *
 *     cc hello_all_reduce.c $(pkg-config --cflags --libs gradmesh) -o hello_all_reduce
 *     gradmesh run -n 4 -- ./hello_all_reduce
 */
#include <gradmesh.h>
#include <stdio.h>

static int fail(const char *what, const gm_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    return 1;
}

int main(void)
{
    gm_comm_options options;
    gm_error        error;
    gm_comm        *comm;

    gm_comm_options_default(&options);
    if (gm_comm_options_from_env(&options, &error) != GM_OK) return fail("options", &error);
    if (gm_comm_create(&comm, &options, &error) != GM_OK) return fail("create", &error);

    float value = (float)(gm_comm_rank(comm) + 1);
    if (gm_all_reduce(comm, &value, &value, 1, GM_F32, GM_SUM) != GM_OK) {
        return fail("all_reduce", gm_comm_error(comm));
    }
    printf("rank %d of %d: the sum is %g\n", gm_comm_rank(comm), gm_comm_size(comm), (double)value);

    gm_comm_destroy(comm);
    return 0;
}
