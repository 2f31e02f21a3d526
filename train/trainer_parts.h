/* trainer_parts.h - what the files of the trainer share. */
#ifndef GMT_TRAINER_PARTS_H
#define GMT_TRAINER_PARTS_H

#include "train/trainer.h"

/* Books a call of the library as the formula of its algorithm says. */
void gmt_trainer_expect(struct gmt_trainer *trainer, gm_collective which, size_t count,
                        gm_dtype dtype);

/* Keeps the library's sentence of a call that failed; returns `status`. */
gm_status gmt_trainer_library_error(const struct gmt_trainer *trainer, gm_status status,
                                    gm_error *error);

/* Saves the state on rank 0 while the others wait for its word: all ranks call it. Statuses of
 * gmt_checkpoint_save and gm_broadcast; GM_ERR_ABORTED when rank 0 could not save; GM_ERR_TIMEOUT. */
GM_MUST_USE gm_status gmt_trainer_save(struct gmt_trainer *trainer, gm_error *error);

#endif
