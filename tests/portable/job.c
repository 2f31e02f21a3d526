/* job.c - one rank of a job that uses a little of everything and checks what it gets; nothing but the public header, so
 * that it can be built for another processor or C library (tests/long/other_builds_test.sh), and run beside ranks of other
 * builds. The last line it prints is a digest of all results, the same on each rank of each build. */
#include <gradmesh.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300007, BLOCK = 1000 };

static float    floats[MOST];
static int64_t  longs[MOST];
static uint16_t halves[MOST];
static gm_comm *comm;
static int      rank, n;
static uint64_t digest = UINT64_C(14695981039346656037);

static void require(int is_good, const char *what)
{
    if (is_good) return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, comm != NULL ? gm_comm_error(comm)->text : "");
    exit(1);
}
#define OK(call) require((call) == GM_OK, #call)

/* By value, so that the order of bytes in memory does not matter. */
static void note(uint64_t value)
{
    for (int i = 0; i < 8; i++) digest = (digest ^ (value >> (8 * i) & 255)) * UINT64_C(1099511628211);
}

static float fraction(size_t i, int of) { return (float)((i * 37 + (size_t)of * 11) % 101) / 8; }

static void sums(size_t count)
{
    for (size_t i = 0; i < count; i++) floats[i] = fraction(i, rank);
    OK(gm_all_reduce(comm, floats, floats, count, GM_F32, GM_SUM));
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int k = 0; k < n; k++) sum += fraction(i, k);
        require(floats[i] == sum, "a sum of f32 is wrong"); /* all of them are exact */
        note((uint64_t)(sum * 8));
    }
    for (size_t i = 0; i < count; i++) longs[i] = (int64_t)(i + 1) * (rank + 1) * 1000000007;
    OK(gm_all_reduce(comm, longs, longs, count, GM_I64, GM_MAX));
    for (size_t i = 0; i < count; i++) require(longs[i] == (int64_t)(i + 1) * n * 1000000007, "a maximum of i64 is wrong");
    for (size_t i = 0; i < count; i++) halves[i] = rank % 2 == 0 ? 0x3f80 : 0x4040; /* bf16: 1 and 3 */
    OK(gm_all_reduce(comm, halves, halves, count, GM_BF16, GM_SUM));
    for (size_t i = 0; i < count; i++) require(halves[i] == halves[0], "a sum of bf16 is wrong");
    note(halves[0]);
    for (size_t i = 0; i < count; i++) floats[i] = 1.0f / (float)(i + 3 + (size_t)rank);
    OK(gm_all_reduce(comm, floats, floats, count, GM_F32, GM_SUM_EXACT));
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &floats[i], sizeof bits);
        note(bits);
    }
}

static void moves(void)
{
    static int64_t mine[16 * BLOCK], theirs[16 * BLOCK];
    for (int i = 0; i < n * BLOCK; i++) mine[i] = rank * 1000000 + i;
    OK(gm_all_to_all(comm, mine, theirs, BLOCK, GM_I64));
    for (int i = 0; i < n * BLOCK; i++) require(theirs[i] == (i / BLOCK) * 1000000 + rank * BLOCK + i % BLOCK, "a block went astray");
    OK(gm_sendrecv(comm, mine, BLOCK, (rank + 1) % n, 5, theirs, BLOCK, (rank + n - 1) % n, 5, GM_I64));
    for (int i = 0; i < BLOCK; i++) require(theirs[i] == (rank + n - 1) % n * 1000000 + i, "a message is wrong");
    for (size_t i = 0; i < MOST; i++) longs[i] = rank == n - 1 ? (int64_t)i << 20 : -1;
    OK(gm_broadcast(comm, longs, MOST, GM_I64, n - 1));
    for (size_t i = 0; i < MOST; i++) require(longs[i] == (int64_t)i << 20, "a broadcast is wrong");
    OK(gm_barrier(comm));
}

int main(void)
{
    gm_comm_options options;
    gm_error        error;
    gm_comm_options_default(&options);
    if (gm_comm_options_from_env(&options, &error) != GM_OK || gm_comm_create(&comm, &options, &error) != GM_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    rank = gm_comm_rank(comm);
    n = gm_comm_size(comm);
    require(n <= 16, "too many ranks");
    static const size_t counts[] = { 1, 255, 5001, MOST };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) sums(counts[i]);
    moves();
    gm_comm_destroy(comm);
    printf("digest %016" PRIx64 "\n", digest);
    return 0;
}
