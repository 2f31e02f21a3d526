/* broadcast_and_barrier.c - rank 0 decides, everybody follows, and nobody goes on before all are ready.
 *
 *     cc broadcast_and_barrier.c $(pkg-config --cflags --libs gradmesh) -o broadcast_and_barrier
 *     gradmesh run -n 4 -- ./broadcast_and_barrier
 */
#include <gradmesh.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

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

    /* The start values of a model, say: drawn once, the same everywhere. */
    int64_t seed = gm_comm_rank(comm) == 0 ? (int64_t)time(NULL) : 0;
    if (gm_broadcast(comm, &seed, 1, GM_I64, 0) != GM_OK) return fail("broadcast", gm_comm_error(comm));

    /* Who comes first waits here for the last one. */
    if (gm_barrier(comm) != GM_OK) return fail("barrier", gm_comm_error(comm));

    int64_t least = seed, most = seed;
    if (gm_all_reduce(comm, &least, &least, 1, GM_I64, GM_MIN) != GM_OK) return fail("min", gm_comm_error(comm));
    if (gm_all_reduce(comm, &most, &most, 1, GM_I64, GM_MAX) != GM_OK) return fail("max", gm_comm_error(comm));
    printf("rank %d: seed %lld, %s\n", gm_comm_rank(comm), (long long)seed,
           least == most ? "the same on all ranks" : "NOT the same on all ranks");

    gm_comm_destroy(comm);
    return least == most ? 0 : 1;
}
