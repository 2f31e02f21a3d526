/* The members sleep until `n_runs` goes up, work, and count themselves off; the last one wakes the
 * caller. */
#include "train/bits_crew.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/error.h"

struct member {
    struct gmt_crew *crew;
    pthread_t thread;
    int number; /* 1 .. n_threads - 1 */
};

struct gmt_crew {
    int n_threads;
    struct member *members; /* (n_threads - 1) */
    int n_started;
    pthread_mutex_t lock;
    pthread_cond_t has_run, is_done;

    uint64_t n_runs; /* under the lock from here */
    int n_busy;
    bool is_closing;
    void (*work)(void *user, int thread);
    void *user;
};

static void *live(void *argument)
{
    struct member *member = argument;
    struct gmt_crew *crew = member->crew;
    pthread_mutex_lock(&crew->lock);
    for (uint64_t seen = 0;; seen++) {
        while (crew->n_runs == seen && !crew->is_closing)
            pthread_cond_wait(&crew->has_run, &crew->lock);
        if (crew->is_closing) break;
        pthread_mutex_unlock(&crew->lock);
        crew->work(crew->user, member->number);
        pthread_mutex_lock(&crew->lock);
        if (--crew->n_busy == 0) pthread_cond_signal(&crew->is_done);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static gm_status start_members(struct gmt_crew *crew, gm_error *error)
{
    for (int m = 0; m + 1 < crew->n_threads; m++) {
        crew->members[m] = (struct member){ .crew = crew, .number = m + 1 };
        int errnum = pthread_create(&crew->members[m].thread, NULL, live, &crew->members[m]);
        if (errnum != 0)
            return gmi_error_set_errno(error, errnum, "starting thread %d of %d for the kernels",
                                       m + 2, crew->n_threads);
        crew->n_started++;
    }
    return GM_OK;
}

gm_status gmt_crew_open(struct gmt_crew **crew, int n_threads, gm_error *error)
{
    GMI_CHECK(n_threads >= 1);
    *crew = NULL;
    struct gmt_crew *made = gmi_alloc(1, sizeof *made);
    struct member *members = gmi_alloc((size_t)n_threads, sizeof *members);
    if (made == NULL || members == NULL) {
        gmi_free(made);
        gmi_free(members);
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %d threads", n_threads);
    }
    made->n_threads = n_threads;
    made->members = members;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->has_run, NULL);
    pthread_cond_init(&made->is_done, NULL);
    gm_status status = start_members(made, error);
    if (status == GM_OK) *crew = made;
    else gmt_crew_close(made);
    return status;
}

void gmt_crew_close(struct gmt_crew *crew)
{
    if (crew == NULL) return;
    pthread_mutex_lock(&crew->lock);
    crew->is_closing = true;
    pthread_cond_broadcast(&crew->has_run);
    pthread_mutex_unlock(&crew->lock);
    for (int m = 0; m < crew->n_started; m++) pthread_join(crew->members[m].thread, NULL);
    pthread_cond_destroy(&crew->is_done);
    pthread_cond_destroy(&crew->has_run);
    pthread_mutex_destroy(&crew->lock);
    gmi_free(crew->members);
    gmi_free(crew);
}

void gmt_crew_run(struct gmt_crew *crew, void (*work)(void *user, int thread), void *user)
{
    if (crew->n_threads > 1) {
        pthread_mutex_lock(&crew->lock);
        crew->work = work;
        crew->user = user;
        crew->n_busy = crew->n_threads - 1;
        crew->n_runs++;
        pthread_cond_broadcast(&crew->has_run);
        pthread_mutex_unlock(&crew->lock);
    }
    work(user, 0);
    if (crew->n_threads == 1) return;
    pthread_mutex_lock(&crew->lock);
    while (crew->n_busy > 0) pthread_cond_wait(&crew->is_done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}
