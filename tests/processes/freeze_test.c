/* Sizes that freeze a careless ring: everybody sends more than the sockets hold before anybody receives. Also
 * with socket buffers made far smaller than usual. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/ranks.h"

enum { BIG_ELEMS = 16 << 20, SMALL_SOCKET_ELEMS = 300007 };

static float value(int rank, size_t i) { return (float)(rank + 1) * (float)(i % 1021); }

static void fill(float *values, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = value(rank, i);
}

static void check_sum(struct rank_self *self, const float *values, size_t count)
{
    float times = (float)(self->world_size * (self->world_size + 1) / 2);
    for (size_t i = 0; i < count; i++) {
        if (values[i] != times * (float)(i % 1021)) rank_fail(self, __FILE__, __LINE__, "element %zu is %g", i, (double)values[i]);
    }
}

/* Every socket of this process that is connected, those of the communicator: a send buffer as small as the kernel
 * lets it be, and a receive buffer of less than a loopback segment (smaller still, and it is the kernel's timers
 * that are tested). */
static void shrink_sockets(struct rank_self *self)
{
    int  n_shrunk = 0, tiny = 1, small = 32 * 1024;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        int fd = atoi(e->d_name);
        struct sockaddr_storage peer;
        socklen_t bytes = sizeof peer;
        if (e->d_name[0] == '.' || getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0) continue;
        n_shrunk += setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &tiny, sizeof tiny) == 0 &&
                    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0;
    }
    closedir(dir);
    rank_check(self, n_shrunk > 0);
}

static void move(struct rank_self *self, size_t count)
{
    float *values = malloc(count * sizeof *values);
    rank_check(self, values != NULL);
    fill(values, self->rank, count);
    rank_ok(self, gm_all_reduce(self->comm, values, values, count, GM_F32, GM_SUM));
    check_sum(self, values, count);
    fill(values, self->rank, count);
    int root = self->world_size - 1;
    rank_ok(self, gm_broadcast(self->comm, values, count, GM_F32, root));
    for (size_t i = 0; i < count; i++) rank_check(self, values[i] == value(root, i));
    size_t first, elems;
    gm_chunk(count, self->world_size, self->rank, &first, &elems);
    memset(values, 0, count * sizeof *values);
    for (size_t i = first; i < first + elems; i++) values[i] = value(0, i);
    rank_ok(self, gm_all_gather(self->comm, values, values, count, GM_F32));
    for (size_t i = 0; i < count; i++) rank_check(self, values[i] == value(0, i));
    free(values);
}

static void move_big(struct rank_self *self)
{
    rank_create(self);
    move(self, BIG_ELEMS);
    rank_destroy(self);
}

static void move_through_small_sockets(struct rank_self *self)
{
    rank_create(self);
    rank_ok(self, gm_barrier(self->comm));
    shrink_sockets(self);
    move(self, SMALL_SOCKET_ELEMS);
    rank_destroy(self);
}

static void chunks_far_larger_than_the_sockets_flow(void **state)
{
    struct ranks_job job = { .n_ranks = 2, .body = move_big, .limit_ms = 60000 };
    ranks_run(state, &job);
    job.n_ranks = 3;
    ranks_run(state, &job);
}

static void small_socket_buffers_only_make_it_slower(void **state)
{
    struct ranks_job job = { .body = move_through_small_sockets, .limit_ms = 60000 };
    for (job.n_ranks = 2; job.n_ranks <= 4; job.n_ranks++) ranks_run(state, &job);
}

static void the_naive_algorithm_does_not_freeze_either(void **state)
{
    struct ranks_job job = { .body = move_through_small_sockets, .algorithm = "naive", .limit_ms = 60000 };
    for (job.n_ranks = 2; job.n_ranks <= 5; job.n_ranks++) ranks_run(state, &job);
}

static void nor_do_those_that_are_meant_for_small_buffers(void **state)
{
    const char *const algorithms[] = { "direct", "doubling", "exchange", "tree" };
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        struct ranks_job job = { .n_ranks = 3, .body = move_through_small_sockets, .algorithm = algorithms[i], .limit_ms = 60000 };
        ranks_run(state, &job);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, ranks_teardown)
    const struct CMUnitTest tests[] = {
        TEST(chunks_far_larger_than_the_sockets_flow),
        TEST(small_socket_buffers_only_make_it_slower),
        TEST(the_naive_algorithm_does_not_freeze_either),
        TEST(nor_do_those_that_are_meant_for_small_buffers),
    };
    return cmocka_run_group_tests_name("freeze", tests, NULL, NULL);
}
