/* overlap.c - collectives that run while the program computes.
 *
 * The gradient of a deep network is finished layer by layer, last layer first. Each layer's part is handed
 * over as soon as it is there; the library sums it while the next one is being computed.
 *
 *     cc overlap.c $(pkg-config --cflags --libs gradmesh) -o overlap
 *     gradmesh run -n 2 -- ./overlap
 */
#include <gradmesh.h>
#include <stdio.h>

enum { LAYERS = 4, LAYER_ELEMS = 50000 };

static float gradient[LAYERS][LAYER_ELEMS];

static int fail(const char *what, const gm_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    return 1;
}

static void compute_layer(int layer, int rank)
{
    for (int i = 0; i < LAYER_ELEMS; i++) gradient[layer][i] = (float)(layer + rank);
}

int main(void)
{
    gm_comm_options options;
    gm_error        error;
    gm_comm        *comm;
    gm_work        *works[LAYERS];

    gm_comm_options_default(&options);
    if (gm_comm_options_from_env(&options, &error) != GM_OK) return fail("options", &error);
    if (gm_comm_create(&comm, &options, &error) != GM_OK) return fail("create", &error);

    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        compute_layer(layer, gm_comm_rank(comm));
        if (gm_all_reduce_start(comm, gradient[layer], gradient[layer], LAYER_ELEMS, GM_F32, GM_AVG,
                                &works[layer]) != GM_OK) {
            return fail("start", gm_comm_error(comm));
        }
    }
    for (int layer = LAYERS - 1; layer >= 0; layer--) { /* in the order in which they were started */
        if (gm_work_wait(works[layer], -1) != GM_OK) return fail("wait", gm_work_error(works[layer]));
        gm_work_release(works[layer]);
    }
    printf("rank %d: layer averages", gm_comm_rank(comm));
    for (int layer = 0; layer < LAYERS; layer++) printf(" %g", (double)gradient[layer][LAYER_ELEMS - 1]);
    printf("\n");

    gm_comm_destroy(comm);
    return 0;
}
