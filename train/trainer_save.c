/* trainer_save.c - saving a checkpoint in the course of a run.
 *
 * Rank 0 writes in a thread of its own while all ranks, it too, stay at this place: every half
 * second, and when it is done, rank 0 tells the others by a broadcast. So a slow disk is waiting for
 * a checkpoint, never a silence that the stall limit would end; and a save that fails stops
 * everybody at the same step. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/trainer_parts.h"

#define SAVE_LIMIT_MS 600000
#define SAVE_WORD_MS 500 /* how often rank 0 says that it is still saving */

enum save_state { SAVE_RUNS, SAVE_DONE, SAVE_FAILED };

struct save {
    pthread_mutex_t                  lock;
    pthread_cond_t                   changed;
    enum save_state                  state;
    gm_error                         error;
    const struct gmt_checkpoint_dir *dir;
    const struct gmt_state          *values;
    struct gmt_recipe_text           text;
    struct gmt_checkpoint_info       info;
};

static void *save_main(void *user)
{
    struct save *save = user;
    gm_status    status = gmt_checkpoint_save(save->dir, save->values, &save->info, &save->error);
    pthread_mutex_lock(&save->lock);
    save->state = status == GM_OK ? SAVE_DONE : SAVE_FAILED;
    pthread_cond_signal(&save->changed);
    pthread_mutex_unlock(&save->lock);
    return NULL;
}

static struct save *save_create(const struct gmt_trainer *trainer)
{
    struct save *save = gmi_alloc(1, sizeof *save);
    if (save == NULL) return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&save->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&save->lock, NULL);
    gmi_error_clear(&save->error);
    gmt_recipe_write(&trainer->recipe, &save->text);
    save->dir = trainer->options.dir;
    save->values = &trainer->state;
    save->info = (struct gmt_checkpoint_info){ trainer->step, trainer->cursor.epoch,
                                               trainer->cursor.batch, save->text.pairs,
                                               save->text.n_settings };
    return save;
}

static void save_destroy(struct save *save)
{
    pthread_cond_destroy(&save->changed);
    pthread_mutex_destroy(&save->lock);
    gmi_free(save);
}

/* Waits for the end of the save, up to timeout_ms, and returns how it stands. */
static enum save_state save_wait(struct save *save, int64_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + timeout_ms * GMI_NS_PER_MS;
    until.tv_sec += (time_t)(ns / GMI_NS_PER_S);
    until.tv_nsec = (long)(ns % GMI_NS_PER_S);
    pthread_mutex_lock(&save->lock);
    while (save->state == SAVE_RUNS &&
           pthread_cond_timedwait(&save->changed, &save->lock, &until) != ETIMEDOUT) {}
    enum save_state state = save->state;
    pthread_mutex_unlock(&save->lock);
    return state;
}

/* Rank 0's word to the others, on every rank. */
static gm_status pass_word(struct gmt_trainer *trainer, int32_t *word, gm_error *error)
{
    if (trainer->options.comm == NULL) return GM_OK;
    gm_status status = gm_broadcast(trainer->options.comm, word, 1, GM_I32, 0);
    if (status != GM_OK) return gmt_trainer_library_error(trainer, status, error);
    gmt_trainer_expect(trainer, GM_BROADCAST, 1, GM_I32);
    return GM_OK;
}

static gm_status wait_for_rank_0(struct gmt_trainer *trainer, gm_error *error)
{
    int32_t word = SAVE_RUNS;
    while (word == SAVE_RUNS) {
        gm_status status = pass_word(trainer, &word, error);
        if (status != GM_OK) return status;
    }
    if (word == SAVE_DONE) return GM_OK;
    gmi_error_set(error, GM_ERR_ABORTED, "rank 0 could not save the checkpoint of step %llu",
                  (unsigned long long)trainer->step);
    if (error != NULL) error->culprit = 0;
    return GM_ERR_ABORTED;
}

/* Saves on rank 0 and keeps the others informed. */
static gm_status save_and_tell(struct gmt_trainer *trainer, struct save *save, gm_error *error)
{
    int64_t limit_ms =
        trainer->options.save_limit_ms > 0 ? trainer->options.save_limit_ms : SAVE_LIMIT_MS;
    int64_t deadline_ns = gmi_deadline_after_ms(limit_ms);
    pthread_t thread;
    bool      has_thread = pthread_create(&thread, NULL, save_main, save) == 0;
    if (!has_thread) save_main(save); /* no thread to be had: the others wait in silence */
    gm_status       status = GM_OK;
    enum save_state state = SAVE_RUNS;
    while (state == SAVE_RUNS && status == GM_OK && !gmi_deadline_passed(deadline_ns)) {
        state = save_wait(save, limit_ms < SAVE_WORD_MS ? limit_ms : SAVE_WORD_MS);
        int32_t word = (int32_t)state;
        status = pass_word(trainer, &word, error);
    }
    /* When another rank is lost meanwhile, the file that is being written is still a good one. */
    if (state == SAVE_RUNS && status != GM_OK) {
        int64_t left_ms = (deadline_ns - gmi_now_ns()) / GMI_NS_PER_MS;
        state = save_wait(save, left_ms > 0 ? left_ms : 0);
    }
    if (state == SAVE_RUNS) {
        trainer->is_save_stuck = true;
        if (has_thread) pthread_detach(thread);
        if (status != GM_OK) return status;
        gmi_error_set(error, GM_ERR_TIMEOUT,
                      "saving the checkpoint of step %llu in %s has taken more than %lld s: the disk does "
                      "not answer",
                      (unsigned long long)trainer->step, trainer->options.dir->path,
                      (long long)(limit_ms / 1000));
        if (trainer->options.comm != NULL && error != NULL)
            gm_comm_abort(trainer->options.comm, error->text);
        return GM_ERR_TIMEOUT;
    }
    if (has_thread) pthread_join(thread, NULL);
    if (status == GM_OK && state == SAVE_FAILED)
        status = gmi_error_set(error, save->error.status, "%s", save->error.text);
    return status;
}

gm_status gmt_trainer_save(struct gmt_trainer *trainer, gm_error *error)
{
    int64_t   start_ns = gmi_now_ns();
    gm_status status;
    if (trainer->options.dir == NULL) {
        status = wait_for_rank_0(trainer, error);
    } else {
        struct save *save = save_create(trainer);
        if (save == NULL) {
            status = gmi_error_set(error, GM_ERR_NOMEM, "no memory to save a checkpoint");
            if (trainer->options.comm != NULL)
                gm_comm_abort(trainer->options.comm, "rank 0 has no memory to save a checkpoint");
            return status;
        }
        status = save_and_tell(trainer, save, error);
        if (!trainer->is_save_stuck) save_destroy(save);
    }
    if (status != GM_OK) return status;
    trainer->split.checkpoint_ns += gmi_now_ns() - start_ns;
    if (trainer->options.dir != NULL && trainer->options.listener.saved != NULL)
        trainer->options.listener.saved(trainer->options.listener.user, trainer->step,
                                        trainer->options.dir->path);
    return GM_OK;
}
