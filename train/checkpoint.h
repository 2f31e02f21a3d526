/* checkpoint.h - the training state on disk: written so that a kill at any instant leaves a good
 * file, and read so that a damaged one is refused before anything is changed.
 *
 *     DIR/step-000000123.safetensors       named by the number of steps done
 *     DIR/.step-000000123.safetensors.tmp-PID-UNIQUE    while it is being written
 *
 * A file is safetensors. Its data part is the state in the order of state_hash.h, so that its
 * SHA-256 is the state hash. Everything else is in the metadata, strings: format,
 * format_version, state_hash, data_sha256 (the same number, as a checksum), header_sha256 (of
 * length and header with these 64 digits taken as zeros: no bit of the file can flip unseen),
 * step, epoch, batch_cursor, and the caller's settings as config.KEY.
 *
 * Saving: the temporary file, fsync, rename, fsync of the directory. The writer holds a lock
 * (flock) on its temporary as long as it lives, so what can be locked is a dead process's and is
 * removed at the next opening or save; a living one's is not touched, on whatever host it runs.
 * The directory is locked too: a second job that wants to save in it is told so. */
#ifndef GMT_CHECKPOINT_H
#define GMT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradmesh.h"
#include "train/safetensors.h"
#include "train/state_hash.h"

#define GMT_CHECKPOINT_VERSION 1
#define GMT_CHECKPOINT_MAX_SETTINGS 64

/* ---- reading --------------------------------------------------------------------------------- */

/* A file that was read and found good, in memory. */
struct gmt_checkpoint {
    char                *path;
    struct gmt_st_header header;
    uint8_t             *data;
    size_t               data_bytes;
    char                 state_hash[GMT_HASH_HEX_BYTES];
    uint64_t             step;         /* updates done */
    uint64_t             epoch, batch; /* where the next one is: the cursor of the samples */
};

/* Reads and checks the whole file; `file_path` is the file itself. On failure *checkpoint is
 * empty and the sentence says file and reason. Does not wait, also for a pipe.
 * GM_ERR_ARG: it is not a whole, undamaged checkpoint of a known version. GM_ERR_SYSTEM: it
 * cannot be read.
 * GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_checkpoint_open(struct gmt_checkpoint *checkpoint, const char *file_path,
                                          gm_error *error);
void gmt_checkpoint_close(struct gmt_checkpoint *checkpoint); /* all-zero is fine */

/* A setting that was saved, its key without "config."; NULL if there is none of that name. */
const char *gmt_checkpoint_setting(const struct gmt_checkpoint *checkpoint, const char *key);

/* Copies the values into the arrays of `state`, if names, order and shapes are the same; else
 * GM_ERR_ARG and nothing is changed. */
GM_MUST_USE gm_status gmt_checkpoint_restore(const struct gmt_checkpoint *checkpoint,
                                             const struct gmt_state *state, gm_error *error);
/* The same for the first tensors only: the parameters, without the optimizer. */
GM_MUST_USE gm_status gmt_checkpoint_restore_params(const struct gmt_checkpoint *checkpoint,
                                                    const struct gmt_state      *params,
                                                    gm_error                    *error);

/* What to do with a file in a directory that is read, from the newest on. */
struct gmt_checkpoint_filter {
    /* Whether a good file is one for this caller; a failure with a sentence passes it over.
     * NULL: all. */
    gm_status (*accepts)(void *user, const struct gmt_checkpoint *checkpoint, gm_error *error);
    /* Told the sentence of each file that is passed over. NULL: nobody. */
    void (*warn)(void *user, const char *sentence);
    void *user;
};

/* Opens the newest good file in a directory. *was_found is false, with GM_OK, when there is no
 * directory or no checkpoint in it. When there are some but none is good: the failure of the
 * newest. */
GM_MUST_USE gm_status gmt_checkpoint_newest(struct gmt_checkpoint *checkpoint, bool *was_found,
                                            const char *dir_path,
                                            const struct gmt_checkpoint_filter *filter,
                                            gm_error *error);

/* The steps of which there are files, newest first. A directory that is not there has none.
 * *steps is freed with free(). GM_ERR_SYSTEM, GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_checkpoint_steps(const char *dir_path, uint64_t **steps, size_t *n_steps,
                                           gm_error *error);
/* Opens one of them; `filter` may be NULL. Statuses of gmt_checkpoint_open, and the filter's. */
GM_MUST_USE gm_status gmt_checkpoint_open_step(struct gmt_checkpoint *checkpoint,
                                               const char *dir_path, uint64_t step,
                                               const struct gmt_checkpoint_filter *filter,
                                               gm_error *error);

/* ---- writing --------------------------------------------------------------------------------- */

/* A directory that this process alone saves in. */
struct gmt_checkpoint_dir {
    char *path;
    int   fd;   /* holds the lock */
    int   keep; /* how many files stay */
};

/* Makes the directory if it is missing, takes its lock and clears away what dead writers left.
 * Waits up to a second for the lock of a process that may just be dying. GM_ERR_STATE: another
 * process saves there. GM_ERR_SYSTEM, GM_ERR_NOMEM. */
GM_MUST_USE gm_status gmt_checkpoint_dir_open(struct gmt_checkpoint_dir *dir, const char *path,
                                              int keep, gm_error *error);
void gmt_checkpoint_dir_close(struct gmt_checkpoint_dir *dir); /* all-zero is fine */

/* The highest step of which there is a file, good or not; false if there is none. */
bool gmt_checkpoint_dir_last(const char *path, uint64_t *step);

struct gmt_checkpoint_info {
    uint64_t                  step, epoch, batch;
    const struct gmt_st_pair *settings; /* for gmt_checkpoint_setting; keys up to 50 bytes */
    size_t                    n_settings;
};

/* Saves, and then removes the oldest files beyond `keep` among those up to this step. When it
 * returns GM_OK, the file is on the disk. On failure the files that were there are as before.
 * GM_ERR_SYSTEM, GM_ERR_NOMEM; *error is one sentence. */
GM_MUST_USE gm_status gmt_checkpoint_save(const struct gmt_checkpoint_dir *dir,
                                          const struct gmt_state *state,
                                          const struct gmt_checkpoint_info *info, gm_error *error);

#endif
