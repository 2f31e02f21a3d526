/* reproducible.c - the loop of average_gradients.c, with the same bits for any number of ranks.
 *
 * The work of a step is cut into SHARDS pieces, whatever the number of ranks. A rank computes some of them, each
 * from zero, and adds each to an accumulator. The sum is exact, so it does not matter who computed what.
 *
 *     cc reproducible.c $(pkg-config --cflags --libs gradmesh) -o reproducible
 *     gradmesh run -n 1 -- ./reproducible; gradmesh run -n 5 -- ./reproducible
 */
#include <gradmesh.h>
#include <stdio.h>

enum { POINTS = 400, STEPS = 300, SHARDS = 12 };

static int fail(const char *what, const gm_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    return 1;
}

/* The gradient of the squared error over the points of one shard: its bits depend on model and shard alone. */
static void compute_gradient(const float model[2], int shard, float gradient[2])
{
    gradient[0] = gradient[1] = 0;
    for (int i = shard; i < POINTS; i += SHARDS) {
        float x = (float)i / POINTS * 2 - 1, y = 3 * x - 2;
        float miss = model[0] * x + model[1] - y;
        gradient[0] += 2 * miss * x;
        gradient[1] += 2 * miss;
    }
}

int main(void)
{
    gm_comm_options        options;
    gm_accumulator_options sums;
    gm_error               error;
    gm_comm               *comm;
    gm_accumulator        *sum;

    gm_comm_options_default(&options);
    if (gm_comm_options_from_env(&options, &error) != GM_OK) return fail("options", &error);
    if (gm_comm_create(&comm, &options, &error) != GM_OK) return fail("create", &error);
    gm_accumulator_options_default(&sums);
    sums.count = 2;
    sums.n_shards = SHARDS;
    if (gm_accumulator_create(&sum, &sums, &error) != GM_OK) return fail("accumulator", &error);

    float model[2] = { 0, 0 }, gradient[2];
    for (int step = 0; step < STEPS; step++) {
        for (int shard = gm_comm_rank(comm); shard < SHARDS; shard += gm_comm_size(comm)) {
            compute_gradient(model, shard, gradient);
            if (gm_accumulator_add(sum, shard, gradient) != GM_OK) return fail("add", gm_accumulator_error(sum));
        }
        if (gm_all_reduce_exact(comm, sum, gradient) != GM_OK) return fail("all_reduce", gm_comm_error(comm));
        if (gm_accumulator_reset(sum) != GM_OK) return fail("reset", gm_accumulator_error(sum));
        for (int i = 0; i < 2; i++) model[i] -= 0.3f / POINTS * gradient[i];
    }
    printf("rank %d of %d: y = %a x %+a\n", gm_comm_rank(comm), gm_comm_size(comm), (double)model[0],
           (double)model[1]);

    gm_accumulator_destroy(sum);
    gm_comm_destroy(comm);
    return 0;
}
