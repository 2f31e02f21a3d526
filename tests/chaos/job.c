/* job.c - what a rank does: a drawn sequence of calls, each checked against what it must give.
 *
 * Element i of rank r in call c is a small number of (r, i, c), so that a value of another rank, place or
 * call is seen, and sums are exact in i64 and in f32. */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/chaos/chaos.h"

/* ---- the calls ---------------------------------------------------------------------------------- */

struct call {
    gm_collective which;
    gm_dtype      dtype;
    size_t        count; /* of the buffer that all ranks together have; for each pair in an all-to-all */
    int           root;
};

/* Two calls in a row differ in their descriptors: no counts are the same, and no two barriers follow each other. */
static struct call draw_call(const struct chaos_plan *p, int index)
{
    static const gm_collective kinds[] = { GM_ALL_REDUCE, GM_ALL_REDUCE, GM_ALL_REDUCE, GM_REDUCE_SCATTER, GM_ALL_GATHER,
                                           GM_BROADCAST, GM_REDUCE, GM_GATHER, GM_SCATTER, GM_ALL_TO_ALL, GM_BARRIER };
    static const size_t        counts[] = { 0, 1, 100, 5000, 60000, 300000 };
    struct gmi_rng rng = { .key = gmi_rng_key(gmi_rng_key(p->seed, 0xCA11), (uint64_t)index) };
    struct call    c = { .which = kinds[gmi_rng_next_below(&rng, sizeof kinds / sizeof *kinds - (index % 2))] };
    c.dtype = gmi_rng_next_below(&rng, 2) ? GM_I64 : GM_F32;
    c.count = counts[gmi_rng_next_below(&rng, sizeof counts / sizeof *counts)] + (size_t)index;
    c.root = (int)gmi_rng_next_below(&rng, (uint64_t)p->n_ranks);
    if (p->is_asynchronous && c.which != GM_BARRIER) c.which = GM_ALL_REDUCE;
    if (c.which == GM_ALL_TO_ALL) c.count = c.count / (size_t)p->n_ranks + (size_t)index;
    return c;
}

static int64_t value_of(int rank, size_t i, int index) { return (rank + 1) * (int64_t)(1 + i % 97) + index; }

static int64_t sum_of(int n_ranks, size_t i, int index)
{
    return n_ranks * (n_ranks + 1) / 2 * (int64_t)(1 + i % 97) + (int64_t)n_ranks * index;
}

static void put(void *array, gm_dtype dtype, size_t i, int64_t value)
{
    if (dtype == GM_I64) ((int64_t *)array)[i] = value;
    else ((float *)array)[i] = (float)value;
}

static int64_t get(const void *array, gm_dtype dtype, size_t i)
{
    return dtype == GM_I64 ? ((const int64_t *)array)[i] : (int64_t)((const float *)array)[i];
}

/* ---- one call ------------------------------------------------------------------------------------ */

struct buffers {
    void  *send, *recv;
    size_t n_elems; /* of each */
};

static void fill(const struct buffers *b, const struct call *c, int rank, int n_ranks, int index)
{
    size_t first = 0, n;
    if (c->which == GM_ALL_GATHER || c->which == GM_GATHER) gm_chunk(c->count, n_ranks, rank, &first, &n);
    int who = c->which == GM_SCATTER || c->which == GM_BROADCAST ? c->root : rank;
    for (size_t i = 0; i < b->n_elems; i++) {
        put(b->send, c->dtype, i, value_of(who, i + first, index));
        put(b->recv, c->dtype, i, -1);
    }
    if (c->which == GM_BROADCAST && rank == c->root) memcpy(b->recv, b->send, b->n_elems * gm_dtype_bytes(c->dtype));
}

static gm_status start_and_wait(struct rank_self *self, const struct buffers *b, const struct call *c)
{
    gm_work  *work;
    gm_status status = gm_all_reduce_start(self->comm, b->send, b->recv, c->count, c->dtype, GM_SUM, &work);
    if (status != GM_OK) return status;
    while ((status = gm_work_wait(work, 1)) == GM_AGAIN) {}
    gm_work_release(work);
    return status;
}

static gm_status make(struct rank_self *self, const struct chaos_plan *p, const struct buffers *b, const struct call *c)
{
    switch ((int)c->which) {
    case GM_ALL_REDUCE:
        if (p->is_asynchronous) return start_and_wait(self, b, c);
        return gm_all_reduce(self->comm, b->send, b->recv, c->count, c->dtype, GM_SUM);
    case GM_REDUCE_SCATTER: return gm_reduce_scatter(self->comm, b->send, b->recv, c->count, c->dtype, GM_SUM);
    case GM_ALL_GATHER: return gm_all_gather(self->comm, b->send, b->recv, c->count, c->dtype);
    case GM_BROADCAST: return gm_broadcast(self->comm, b->recv, c->count, c->dtype, c->root);
    case GM_REDUCE: return gm_reduce(self->comm, b->send, b->recv, c->count, c->dtype, GM_SUM, c->root);
    case GM_GATHER: return gm_gather(self->comm, b->send, b->recv, c->count, c->dtype, c->root);
    case GM_SCATTER: return gm_scatter(self->comm, b->send, b->recv, c->count, c->dtype, c->root);
    case GM_ALL_TO_ALL: return gm_all_to_all(self->comm, b->send, b->recv, c->count, c->dtype);
    default: return gm_barrier(self->comm);
    }
}

static int owner_of(size_t count, int n_ranks, size_t i)
{
    for (int k = 0; k < n_ranks; k++) {
        size_t first, n;
        gm_chunk(count, n_ranks, k, &first, &n);
        if (i < first + n) return k;
    }
    return -1;
}

/* What must stand at place i of recv; *n_elems of them are looked at. */
static int64_t wanted(const struct call *c, int rank, int n_ranks, int index, size_t i, size_t *n_elems)
{
    size_t first = 0, n = 0;
    gm_chunk(c->count, n_ranks, rank, &first, &n);
    *n_elems = c->count;
    switch ((int)c->which) {
    case GM_REDUCE_SCATTER: *n_elems = n; return sum_of(n_ranks, first + i, index);
    case GM_BROADCAST: return value_of(c->root, i, index);
    case GM_SCATTER: *n_elems = n; return value_of(c->root, first + i, index);
    case GM_ALL_GATHER: return value_of(owner_of(c->count, n_ranks, i), i, index);
    case GM_GATHER: if (rank != c->root) *n_elems = 0; return value_of(owner_of(c->count, n_ranks, i), i, index);
    case GM_REDUCE: if (rank != c->root) *n_elems = 0; return sum_of(n_ranks, i, index);
    case GM_ALL_TO_ALL: {
        *n_elems = c->count * (size_t)n_ranks;
        size_t from = c->count ? i / c->count : 0, at = c->count ? i % c->count : 0;
        return value_of((int)from, (size_t)rank * c->count + at, index);
    }
    case GM_BARRIER: *n_elems = 0; return 0;
    default: return sum_of(n_ranks, i, index);
    }
}

static bool is_right(const struct buffers *b, const struct call *c, int rank, int n_ranks, int index)
{
    size_t n_elems = 0;
    (void)wanted(c, rank, n_ranks, index, 0, &n_elems);
    for (size_t i = 0; i < n_elems; i++) {
        if (get(b->recv, c->dtype, i) != wanted(c, rank, n_ranks, index, i, &n_elems)) return false;
    }
    return true;
}

/* ---- the fault ----------------------------------------------------------------------------------- */

/* Acts so long after it was armed, unless it is disarmed before. */
struct saboteur {
    struct chaos_scene scene;
    pthread_t          thread;
    pthread_mutex_t    mutex;
    pthread_cond_t     cond;
    bool               is_armed, is_disarmed;
};

static void act(struct chaos_scene *scene)
{
    struct ranks_shared *shared = scene->self->shared;
    int64_t              unset = 0;
    atomic_compare_exchange_strong(&shared->times_ns[CHAOS_MARK_FAULT], &unset, gmi_now_ns());
    rank_mark(scene->self, CHAOS_MARK_FAULT);
    if (scene->plan->fault->act != NULL) scene->plan->fault->act(scene);
}

static void *wait_and_act(void *user)
{
    struct saboteur *s = user;
    struct timespec  until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_sec * INT64_C(1000000000) + until.tv_nsec + s->scene.plan->delay_us * INT64_C(1000);
    until = (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
    pthread_mutex_lock(&s->mutex);
    while (!s->is_disarmed && pthread_cond_timedwait(&s->cond, &s->mutex, &until) == 0) {}
    bool is_disarmed = s->is_disarmed;
    pthread_mutex_unlock(&s->mutex);
    if (!is_disarmed) act(&s->scene);
    return NULL;
}

static void arm(struct saboteur *s, struct rank_self *self)
{
    const struct chaos_plan *p = self->user;
    s->scene = (struct chaos_scene){ .self = self, .plan = p, .rng = { .key = gmi_rng_key(p->seed, 0xFA + (uint64_t)self->rank) } };
    if (p->delay_us == 0) {
        act(&s->scene);
        return;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->cond, &attributes);
    s->is_armed = pthread_create(&s->thread, NULL, wait_and_act, s) == 0;
}

static void disarm(struct saboteur *s)
{
    if (!s->is_armed) return;
    pthread_mutex_lock(&s->mutex);
    s->is_disarmed = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    s->is_armed = false;
}

/* ---- a rank's life ------------------------------------------------------------------------------- */

/* Where this rank listens, for who wants to disturb. */
static void publish(struct rank_self *self)
{
    DIR *dir = opendir("/proc/self/fd");
    self->record->numbers[CHAOS_PID] = (uint64_t)getpid();
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        struct sockaddr_in address = { 0 };
        int                fd = atoi(e->d_name), is_listener = 0;
        socklen_t          n = sizeof address, bytes = sizeof is_listener;
        if (e->d_name[0] == '.' || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listener, &bytes) != 0 || !is_listener) continue;
        if (getsockname(fd, (struct sockaddr *)&address, &n) == 0 && address.sin_family == AF_INET)
            self->record->numbers[CHAOS_LISTENS_AT] = ntohs(address.sin_port);
    }
    if (dir != NULL) closedir(dir);
}

/* The victim's call, where the fault is the call itself. Returns whether it is made at all. */
static bool is_wrong_call(const struct chaos_plan *p, int rank, int index, struct call *c)
{
    if (!p->fault->is_in_call || rank != p->victim || index != p->at_call) return true;
    if (strcmp(p->fault->name, "other count") == 0) c->count += 7919;
    return strcmp(p->fault->name, "skipped call") != 0;
}

static gm_status make_calls(struct rank_self *self, struct saboteur *saboteur)
{
    const struct chaos_plan *p = self->user;
    uint64_t                *numbers = self->record->numbers;
    gm_status                status = GM_OK;
    size_t                   max_elems = 320000 + 7919 + CHAOS_MAX_CALLS * 8;
    struct buffers           b = { calloc(max_elems, 8), calloc(max_elems, 8), 0 };
    for (int i = 0; i < p->n_calls && status == GM_OK; i++) {
        struct call c = draw_call(p, i);
        bool        is_here = p->phase == CHAOS_CALLING && chaos_is_victim(p, self->rank) && i == p->at_call;
        b.n_elems = c.which == GM_ALL_TO_ALL ? c.count * (size_t)p->n_ranks : c.count;
        fill(&b, &c, self->rank, p->n_ranks, i);
        if (is_here) arm(saboteur, self);
        if (!is_wrong_call(p, self->rank, i, &c)) continue;
        status = make(self, p, &b, &c);
        if (status == GM_OK && !is_right(&b, &c, self->rank, p->n_ranks, i)) numbers[CHAOS_WRONG] = (uint64_t)i + 1;
        if (status == GM_OK) numbers[CHAOS_COMPLETED]++;
    }
    free(b.send);
    free(b.recv);
    return status;
}

/* A thread that was joined stands in /proc for a moment longer. */
static bool is_more_left(int n_descriptors, int n_threads)
{
    int64_t deadline_ns = gmi_deadline_after_ms(1000);
    while (ranks_open_descriptors() > n_descriptors || ranks_threads() > n_threads) {
        if (gmi_deadline_passed(deadline_ns)) return true;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    return false;
}

void chaos_live(struct rank_self *self)
{
    const struct chaos_plan *p = self->user;
    struct saboteur          saboteur = { 0 };
    struct gm_error         *error = &self->record->error;
    int                      n_descriptors = ranks_open_descriptors(), n_threads = ranks_threads();
    if (p->phase == CHAOS_CREATING && chaos_is_victim(p, self->rank)) arm(&saboteur, self);
    gm_status status = gm_comm_create(&self->comm, &self->options, error);
    if (status == GM_OK) {
        publish(self);
        status = make_calls(self, &saboteur);
        rank_record(self, status);
    }
    self->record->status = status;
    self->record->at_ns = gmi_now_ns();
    if (status != GM_OK) rank_say(self, "%s: %s", gm_status_name(status), error->text);
    if (p->phase == CHAOS_DESTROYING && chaos_is_victim(p, self->rank)) arm(&saboteur, self);
    if (self->comm != NULL) rank_destroy(self);
    disarm(&saboteur);
    bool has_leaked = is_more_left(n_descriptors, n_threads);
    if (has_leaked)
        rank_say(self, "had %d descriptors and %d threads, has %d and %d", n_descriptors, n_threads, ranks_open_descriptors(),
                 ranks_threads());
    self->record->numbers[CHAOS_LEAKED] = has_leaked;
    self->record->numbers[CHAOS_IS_OVER] = 1;
}
