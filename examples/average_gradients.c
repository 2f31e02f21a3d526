/* average_gradients.c - data-parallel training in one loop: each rank has its own part of the data, computes
 * the gradient on it, and the average of all gradients moves the same model everywhere.
 *
 * The model is a line, y = a x + b, fitted to points on y = 3 x - 2 of which each rank sees every N-th.
 *
 *     cc average_gradients.c $(pkg-config --cflags --libs gradmesh) -o average_gradients
 *     gradmesh run -n 4 -- ./average_gradients
 */
#include <gradmesh.h>
#include <stdio.h>

enum { POINTS = 400, STEPS = 300 };

static int fail(const char *what, const gm_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    return 1;
}

/* The mean gradient of the squared error over this rank's points. */
static void compute_gradient(const double model[2], int rank, int size, double gradient[2])
{
    int n = 0;
    gradient[0] = gradient[1] = 0;
    for (int i = rank; i < POINTS; i += size, n++) {
        double x = (double)i / POINTS * 2 - 1, y = 3 * x - 2;
        double miss = model[0] * x + model[1] - y;
        gradient[0] += 2 * miss * x;
        gradient[1] += 2 * miss;
    }
    gradient[0] /= n;
    gradient[1] /= n;
}

int main(void)
{
    gm_comm_options options;
    gm_error        error;
    gm_comm        *comm;

    gm_comm_options_default(&options);
    if (gm_comm_options_from_env(&options, &error) != GM_OK) return fail("options", &error);
    if (gm_comm_create(&comm, &options, &error) != GM_OK) return fail("create", &error);

    double model[2] = { 0, 0 }, gradient[2];
    for (int step = 0; step < STEPS; step++) {
        compute_gradient(model, gm_comm_rank(comm), gm_comm_size(comm), gradient);
        if (gm_all_reduce(comm, gradient, gradient, 2, GM_F64, GM_AVG) != GM_OK) {
            return fail("all_reduce", gm_comm_error(comm));
        }
        for (int i = 0; i < 2; i++) model[i] -= 0.3 * gradient[i];
    }
    printf("rank %d: y = %.3f x %+.3f\n", gm_comm_rank(comm), model[0], model[1]);

    gm_comm_destroy(comm);
    return 0;
}
