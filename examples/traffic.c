/* traffic.c - how many bytes a collective sends: by its formula, by the library's count, by the kernel's.
 *
 *     cc traffic.c $(pkg-config --cflags --libs gradmesh) -o traffic
 *     gradmesh run -n 4 -- ./traffic
 */
#include <gradmesh.h>
#include <inttypes.h>
#include <stdio.h>

enum { COUNT = 1000003 };

static float values[COUNT];

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
    gm_traffic      traffic;
    uint64_t        formula, kernel_sent, kernel_recv;

    gm_comm_options_default(&options);
    options.algorithm = "ring";
    if (gm_comm_options_from_env(&options, &error) != GM_OK) return fail("options", &error);
    if (gm_comm_create(&comm, &options, &error) != GM_OK) return fail("create", &error);

    gm_comm_payload_formula(comm, GM_ALL_REDUCE, COUNT, GM_F32, 0, &formula);
    if (gm_all_reduce(comm, values, values, COUNT, GM_F32, GM_SUM) != GM_OK) {
        return fail("all_reduce", gm_comm_error(comm));
    }
    gm_comm_traffic(comm, GM_COLLECTIVE_END, &traffic);
    printf("rank %d: payload %" PRIu64 " bytes by the formula, %" PRIu64 " sent; protocol %" PRIu64 "\n",
           gm_comm_rank(comm), formula, traffic.payload_sent_bytes, traffic.protocol_sent_bytes);
    if (gm_comm_kernel_traffic(comm, &kernel_sent, &kernel_recv) == GM_OK) {
        printf("rank %d: the kernel has counted %" PRIu64 " bytes\n", gm_comm_rank(comm), kernel_sent);
    }

    gm_comm_destroy(comm);
    return formula == traffic.payload_sent_bytes ? 0 : 1;
}
