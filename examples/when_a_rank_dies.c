/* when_a_rank_dies.c - what the others see: one call that fails at once, with a record that says who.
 *
 * Rank 1 leaves in the middle of the job. This is a demonstration: under `gradmesh run` the launcher ends a
 * job as soon as a rank fails, so rank 1 ends with status 0 here.
 *
 *     cc when_a_rank_dies.c $(pkg-config --cflags --libs gradmesh) -o when_a_rank_dies
 *     gradmesh run -n 3 -- ./when_a_rank_dies
 */
#include <gradmesh.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    gm_comm_options options;
    gm_error        error;
    gm_comm        *comm;

    gm_comm_options_default(&options);
    if (gm_comm_options_from_env(&options, &error) != GM_OK || gm_comm_create(&comm, &options, &error) != GM_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (int step = 0;; step++) {
        if (step == 10 && gm_comm_rank(comm) == 1) exit(0); /* without gm_comm_destroy */
        if (gm_barrier(comm) != GM_OK) break;
    }
    const gm_error *e = gm_comm_error(comm);
    printf("status %s, culprit %d, collective %llu\n%s\n", gm_status_name(e->status), e->culprit,
           (unsigned long long)e->op_seq, e->text);
    int is_as_told = e->status == GM_ERR_PEER_LOST && e->culprit == 1; /* the record ends with the communicator */
    gm_comm_destroy(comm);
    return is_as_told ? 0 : 1;
}
