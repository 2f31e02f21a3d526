/* cores_apart.c - how long a cache line takes from one core to another: nanoseconds, of lines that the one has written and the
 * other reads, the median of several rounds over 64 KiB.
 *
 *     cores_apart               prints them
 *     cores_apart NS SECONDS    waits until they are below NS, so many seconds at most; status 1 if they are not
 *
 * A host may move a virtual machine's cores about, so that at one time they share a cache and at another they do not. Whatever
 * passes memory between two processes takes several times as long then, whoever passes it; this tells which time it is. */
#define _GNU_SOURCE /* to choose a core */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64 * 1024, LINE = 64, ROUNDS = 201, CORES = 1024 };

static unsigned char       memory[BYTES] __attribute__((aligned(4096)));
static atomic_int          turn; /* even: to be written; odd: to be read */
static int                 cores[2];

static void stay_on(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void wait_for(int value)
{
    for (long tries = 0; atomic_load(&turn) != value; tries++) {
        if (tries > 100000) sched_yield();
    }
}

static void *write_lines(void *unused)
{
    stay_on(cores[1]);
    for (int round = 0; round < ROUNDS; round++) {
        wait_for(2 * round);
        for (unsigned at = 0; at < BYTES; at += LINE) *(volatile unsigned *)(memory + at) = (at + LINE) % BYTES;
        atomic_store(&turn, 2 * round + 1);
    }
    return unused;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double measure(void)
{
    double            ns[ROUNDS];
    pthread_t         writer;
    volatile unsigned sum = 0;
    atomic_store(&turn, 0);
    if (pthread_create(&writer, NULL, write_lines, NULL) != 0) return -1;
    stay_on(cores[0]);
    for (int round = 0; round < ROUNDS; round++) {
        wait_for(2 * round + 1);
        double   begin_ns = now_ns();
        unsigned at = 0;
        for (int i = 0; i < BYTES / LINE; i++) at = *(volatile unsigned *)(memory + at); /* where the next one is */
        sum += at;
        ns[round] = (now_ns() - begin_ns) / (BYTES / LINE);
        atomic_store(&turn, 2 * round + 2);
    }
    pthread_join(writer, NULL);
    qsort(ns, ROUNDS, sizeof *ns, compare);
    return ns[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    cpu_set_t mask;
    int       n = 0;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 2;
    for (int core = 0; core < CORES && n < 2; core++) {
        if (CPU_ISSET(core, &mask)) cores[n++] = core;
    }
    if (n < 2) return 2;
    double limit_ns = argc > 1 ? atof(argv[1]) : 1e9, until_ns = now_ns() + (argc > 2 ? atof(argv[2]) : 0) * 1e9;
    double ns = measure();
    while (ns >= limit_ns && now_ns() < until_ns) {
        usleep(200000);
        ns = measure();
    }
    printf("%.1f\n", ns);
    return ns >= limit_ns;
}
