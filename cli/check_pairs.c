/* Who meets whom: in a round-robin tournament of N ranks (or N + 1, and who meets the added one pauses) everybody has
 * one partner in each of N - 1 rounds.
 *
 * A round of a pair: make a communicator, exchange addresses, small messages there and back, then larger and larger ones
 * each way. The lower rank ends both when they have taken long enough, so that a long or narrow link takes a second or
 * two, and not as many messages and bytes as a short one. Rank 0 keeps its communicators, and over them gets what the others found. */
#include "cli/check_pairs.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "launch/store_thread.h"

enum { MOST_ROUNDS = 300, LEAST_ROUNDS = 5, LATENCY_LIMIT_US = 300000 };                /* small messages */
enum { BULK_BYTES = 32 << 20, FIRST_BYTES = 32 << 10, GROWTH = 8, BULK_LIMIT_US = 100000 }; /* large ones */
enum { CALL_LIMIT_MS = 20000, PAIR_MS = 3000 }; /* what a pair takes over a long or narrow link */

struct checker {
    struct check_result   *result;
    const gm_comm_options *options;
    int                    rank, n_ranks, timeout_ms;
    char                   store[300];
    char                   listens_on[96]; /* in the round that goes on, by the library's log */
    gm_comm               *kept[CHECK_MAX_RANKS];
    uint8_t               *bulk;
};

/* ---- one pair ---------------------------------------------------------------------------------- */

static void hear_log(void *user, gm_log_level level, const char *line)
{
    struct checker *k = user;
    const char     *at = strstr(line, " listens on ");
    if (at != NULL) sscanf(at, " listens on %90[^, ]", k->listens_on);
    if (k->options->log != NULL && level <= k->options->log_level) k->options->log(k->options->log_user, level, line);
}

/* The interface that has the address of "10.0.0.7:4100"; empty: none. */
static void find_interface(const char *listens_on, char *name, size_t name_bytes)
{
    char            host[96], text[INET6_ADDRSTRLEN];
    struct ifaddrs *all;
    const char     *colon = strrchr(listens_on, ':');
    name[0] = '\0';
    if (colon == NULL || getifaddrs(&all) != 0) return;
    const char *begin = listens_on[0] == '[' ? listens_on + 1 : listens_on;
    size_t      n = strcspn(begin, listens_on[0] == '[' ? "%]" : ":");
    snprintf(host, sizeof host, "%.*s", (int)n, begin);
    for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL) continue;
        const void *raw = i->ifa_addr->sa_family == AF_INET    ? (void *)&((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr
                          : i->ifa_addr->sa_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr
                                                               : NULL;
        if (raw == NULL || inet_ntop(i->ifa_addr->sa_family, raw, text, sizeof text) == NULL || strcmp(text, host) != 0) continue;
        snprintf(name, name_bytes, "%s", i->ifa_name);
        break;
    }
    freeifaddrs(all);
}

static double now_us(void) { return (double)gmi_now_ns() / 1e3; }

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Half of the median time there and back. */
static gm_status measure_latency(gm_comm *comm, int other, double *latency_us)
{
    double  took_us[MOST_ROUNDS], first_us = now_us();
    int     n_rounds = 0;
    bool    is_first = gm_comm_rank(comm) == 0;
    uint8_t is_over = 0; /* the lower rank's, with the last message */
    while (is_over == 0) {
        double begin_us = now_us();
        if (is_first) is_over = n_rounds == MOST_ROUNDS - 1 || (n_rounds >= LEAST_ROUNDS && begin_us - first_us > LATENCY_LIMIT_US);
        gm_status status = is_first ? gm_send(comm, &is_over, 1, GM_U8, other, 1) : gm_recv(comm, &is_over, 1, GM_U8, other, 1);
        if (status == GM_OK) status = is_first ? gm_recv(comm, &is_over, 1, GM_U8, other, 1) : gm_send(comm, &is_over, 1, GM_U8, other, 1);
        if (status != GM_OK) return status;
        if (n_rounds < MOST_ROUNDS) took_us[n_rounds++] = now_us() - begin_us;
    }
    qsort(took_us, (size_t)n_rounds, sizeof took_us[0], compare_doubles);
    *latency_us = took_us[n_rounds / 2] / 2;
    return GM_OK;
}

/* Messages from `sender`, each GROWTH times the one before, until one is the largest or has taken long enough (longer
 * where an answer takes long); the last one counts, of a connection that has warmed up. */
static gm_status measure_way(struct checker *k, gm_comm *comm, int sender, double latency_us, double *rate_MBps)
{
    double  limit_us = BULK_LIMIT_US + 12 * latency_us;
    int     other = 1 - gm_comm_rank(comm);
    bool    is_sender = sender == gm_comm_rank(comm);
    uint8_t is_over = 0; /* the sender's, after each message */
    for (size_t n = FIRST_BYTES; is_over == 0; n = n * GROWTH < BULK_BYTES ? n * GROWTH : BULK_BYTES) {
        double    begin_us = now_us();
        uint8_t   done = 0;
        gm_status status = is_sender ? gm_send(comm, k->bulk, n, GM_U8, other, 2) : gm_recv(comm, k->bulk, n, GM_U8, other, 2);
        if (status == GM_OK) status = is_sender ? gm_recv(comm, &done, 1, GM_U8, other, 3) : gm_send(comm, &done, 1, GM_U8, other, 3);
        double took_us = now_us() - begin_us;
        if (is_sender) is_over = n == BULK_BYTES || took_us > limit_us;
        if (status == GM_OK) status = is_sender ? gm_send(comm, &is_over, 1, GM_U8, other, 4) : gm_recv(comm, &is_over, 1, GM_U8, other, 4);
        if (status != GM_OK) return status;
        *rate_MBps = (double)n / took_us;
    }
    return GM_OK;
}

/* One way each, the slower of the two. */
static gm_status measure_bandwidth(struct checker *k, gm_comm *comm, double latency_us, double *bandwidth_MBps)
{
    double    rate_MBps[2] = { 0, 0 };
    gm_status status = measure_way(k, comm, 0, latency_us, &rate_MBps[0]);
    if (status == GM_OK) status = measure_way(k, comm, 1, latency_us, &rate_MBps[1]);
    *bandwidth_MBps = rate_MBps[0] < rate_MBps[1] ? rate_MBps[0] : rate_MBps[1];
    return status;
}

/* The lower rank tells where it listens: there the higher one has called. */
static gm_status exchange_address(struct checker *k, gm_comm *comm, int other, struct check_pair *p)
{
    char place[2][96] = { "", "" };
    snprintf(place[0], sizeof place[0], "%s", k->listens_on);
    find_interface(k->listens_on, place[1], sizeof place[1]);
    bool      is_lower = gm_comm_rank(comm) == 0;
    gm_status status = is_lower ? gm_send(comm, place, sizeof place, GM_U8, other, 0) : gm_recv(comm, place, sizeof place, GM_U8, other, 0);
    place[0][95] = place[1][sizeof p->interface_name - 1] = '\0';
    snprintf(p->address, sizeof p->address, "%s", place[0]);
    snprintf(p->interface_name, sizeof p->interface_name, "%.19s", place[1]);
    return status;
}

/* A pair's communicator calls them ranks 0 and 1; whoever reads the table knows them by other numbers. */
static void tell_why(struct check_pair *p, const char *text, int low, int high)
{
    size_t used = 0;
    for (const char *c = text; *c != '\0' && used + 24 < sizeof p->why;) {
        bool is_rank = strncmp(c, "rank 0", 6) == 0 || strncmp(c, "rank 1", 6) == 0;
        if (is_rank && (c[6] < '0' || c[6] > '9')) {
            used += (size_t)snprintf(p->why + used, sizeof p->why - used, "rank %d", c[5] == '0' ? low : high);
            c += 6;
        } else {
            p->why[used++] = *c++;
        }
    }
    p->why[used] = '\0';
}

static gm_comm *measure_pair(struct checker *k, int partner, int limit_ms)
{
    int                low = k->rank < partner ? k->rank : partner, high = k->rank < partner ? partner : k->rank;
    bool               is_low = k->rank == low;
    struct check_pair *p = &k->result->pairs[low][high];
    gm_comm_options    options = *k->options;
    gm_comm           *comm = NULL;
    gm_error           error;
    gm_traffic         traffic;
    char               group[32];
    snprintf(group, sizeof group, "check-%d-%d", low, high);
    options.group = group;
    options.rank = is_low ? 0 : 1;
    options.world_size = 2;
    options.store = k->store;
    options.master_addr = NULL;
    options.connect_timeout_ms = limit_ms;
    options.stall_limit_ms = CALL_LIMIT_MS;
    options.log = hear_log;
    options.log_user = k;
    if (options.log_level < GM_LOG_INFO) options.log_level = GM_LOG_INFO;
    double begin_us = now_us();
    gmi_error_clear(&error);
    gm_status status = gm_comm_create(&comm, &options, &error);
    p->is_known = true;
    p->is_waiting_side = is_low;
    p->connect_ms = (now_us() - begin_us) / 1e3;
    if (status == GM_OK) status = exchange_address(k, comm, 1 - options.rank, p);
    if (status == GM_OK) status = measure_latency(comm, 1 - options.rank, &p->latency_us);
    if (status == GM_OK) status = measure_bandwidth(k, comm, p->latency_us, &p->bandwidth_MBps);
    p->can_talk = status == GM_OK;
    if (status == GM_OK && gm_comm_traffic(comm, GM_COLLECTIVE_END, &traffic) == GM_OK) {
        p->shares_memory = traffic.memory_sent_bytes > 0;
    } else if (status != GM_OK) {
        tell_why(p, comm != NULL ? gm_comm_error(comm)->text : error.text, low, high);
    }
    if (status == GM_OK) return comm;
    gm_comm_destroy(comm);
    return NULL;
}

/* ---- all pairs ---------------------------------------------------------------------------------- */

/* Of `n` (even) players the last one stays in its place, the others go round. */
static int partner_in(int round, int rank, int n)
{
    if (rank == n - 1) return round * (n / 2) % (n - 1);
    int partner = ((round - rank) % (n - 1) + n - 1) % (n - 1);
    return partner == rank ? n - 1 : partner;
}

static void play_all_rounds(struct checker *k)
{
    int n = k->n_ranks + k->n_ranks % 2;
    for (int round = 0; round < n - 1; round++) {
        int partner = partner_in(round, k->rank, n);
        if (partner >= k->n_ranks) continue;
        /* The partner may have waited in vain in every round before, or measured a long link. */
        gm_comm *comm = measure_pair(k, partner, k->timeout_ms * (round + 1) + PAIR_MS * round);
        bool     is_kept = k->rank == 0 || partner == 0;
        if (is_kept) k->kept[partner] = comm;
        else gm_comm_destroy(comm);
    }
}

/* Everybody hands rank 0 the pairs in which it is the higher one: the one that calls, and knows why it could not. */
static void hand_over(struct checker *k, int sender, gm_comm *comm)
{
    enum { TAG = 9 };
    for (int low = 1; low < k->n_ranks; low++) {
        for (int high = low + 1; high < k->n_ranks; high++) {
            struct check_pair theirs, *ours = &k->result->pairs[low][high];
            if (sender != high && sender != low) continue;
            if (k->rank == sender && gm_send(comm, ours, sizeof *ours, GM_U8, 0, TAG) != GM_OK) return;
            if (k->rank == sender) continue;
            if (gm_recv(comm, &theirs, sizeof theirs, GM_U8, 1, TAG) != GM_OK) return;
            theirs.address[sizeof theirs.address - 1] = theirs.why[sizeof theirs.why - 1] = '\0';
            theirs.interface_name[sizeof theirs.interface_name - 1] = '\0';
            if (!ours->is_known || ours->is_waiting_side) *ours = theirs;
        }
    }
}

static void collect(struct checker *k)
{
    for (int other = 1; other < k->n_ranks; other++) {
        if (k->rank == 0 && k->kept[other] != NULL) hand_over(k, other, k->kept[other]);
        if (k->rank == other && k->kept[0] != NULL) hand_over(k, other, k->kept[0]);
    }
    for (int other = 0; other < k->n_ranks; other++) gm_comm_destroy(k->kept[other]);
}

static gm_status find_store(struct checker *k, struct launch_store_thread **served, gm_error *error)
{
    const gm_comm_options *o = k->options;
    *served = NULL;
    if (o->store != NULL) {
        snprintf(k->store, sizeof k->store, "%s", o->store);
        return GM_OK;
    }
    if (o->master_addr == NULL || o->master_port < 1) {
        return gmi_error_set(error, GM_ERR_ARG, "the ranks need a meeting point: set GRADMESH_STORE, or MASTER_ADDR and MASTER_PORT");
    }
    bool is_bare_six = strchr(o->master_addr, ':') != NULL && o->master_addr[0] != '[';
    snprintf(k->store, sizeof k->store, is_bare_six ? "[%.250s]:%d" : "%.250s:%d", o->master_addr, o->master_port);
    if (k->rank != 0) return GM_OK;
    return launch_store_start(served, o->master_addr, o->master_port, o, error);
}

gm_status check_run(struct check_result *result, const gm_comm_options *options, int pair_timeout_ms, gm_error *error)
{
    struct checker k = { .result = result, .options = options, .rank = options->rank, .n_ranks = options->world_size,
                         .timeout_ms = pair_timeout_ms };
    struct launch_store_thread *served;
    gmi_error_clear(error);
    result->rank = k.rank;
    result->n_ranks = k.n_ranks;
    if (k.n_ranks < 2 || k.n_ranks > CHECK_MAX_RANKS) {
        return gmi_error_set(error, GM_ERR_ARG, "2 to %d ranks can be checked, not %d", CHECK_MAX_RANKS, k.n_ranks);
    }
    gm_status status = find_store(&k, &served, error);
    if (status != GM_OK) return status;
    k.bulk = gmi_alloc(BULK_BYTES, 1);
    if (k.bulk == NULL) status = gmi_error_set(error, GM_ERR_NOMEM, "no memory for %d bytes to send", BULK_BYTES);
    if (status == GM_OK) play_all_rounds(&k);
    if (status == GM_OK) collect(&k);
    gmi_free(k.bulk);
    launch_store_stop(served);
    return status;
}
