#include "cli/trained.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "train/bits.h"
#include "train/recipe.h"
#include "train/state_hash.h"

#define MAX_ROWS 256

static void say_warning(void *user, const char *sentence)
{
    fprintf(stderr, "gradmesh %s: warning: %s; the one before it is taken\n", (const char *)user,
            sentence);
}

static gm_status open_checkpoint(struct cli_trained *trained, const char *command, const char *path,
                                 gm_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return gmt_checkpoint_open(&trained->checkpoint, path, error);
    struct gmt_checkpoint_filter filter = { NULL, say_warning, (void *)(uintptr_t)command };
    bool                         was_found;
    gm_status                    status =
        gmt_checkpoint_newest(&trained->checkpoint, &was_found, path, &filter, error);
    if (status == GM_OK && !was_found)
        return gmi_error_set(error, GM_ERR_ARG, "the directory %s holds no checkpoint", path);
    return status;
}

/* The network of the checkpoint, with its parameters. */
static gm_status restore(struct cli_trained *trained, const struct gmt_recipe *recipe,
                         gm_error *error)
{
    struct gmt_state state;
    gm_status status = gmt_mlp_init(&trained->mlp, &recipe->layers, MAX_ROWS, recipe->seed, error);
    if (status == GM_OK && recipe->shards > 0) { /* the same answers everywhere */
        status = gmt_bits_open(&trained->bits, 1, error);
        if (status == GM_OK) status = gmt_mlp_use_bits(&trained->mlp, trained->bits, error);
    }
    if (status != GM_OK) return status;
    gmt_state_list(&state, &trained->mlp.params, NULL);
    return gmt_checkpoint_restore_params(&trained->checkpoint, &state, error);
}

gm_status cli_load_trained(struct cli_trained *trained, const char *command, const char *path,
                           const char *data, gm_error *error)
{
    struct gmt_recipe recipe;
    memset(trained, 0, sizeof *trained);
    gm_status status = open_checkpoint(trained, command, path, error);
    if (status == GM_OK) status = gmt_recipe_read(&recipe, &trained->checkpoint, error);
    if (status == GM_OK) status = restore(trained, &recipe, error);
    if (status == GM_OK)
        status = gmt_data_load(&trained->data, data != NULL ? data : recipe.data, GMT_DATA_SEED,
                               GMT_DATA_TEST, error);
    if (status == GM_OK) status = gmt_recipe_check_data(&recipe, &trained->data.test, error);
    return status;
}

void cli_free_trained(struct cli_trained *trained)
{
    gmt_mlp_fini(&trained->mlp);
    gmt_bits_close(trained->bits);
    gmt_data_free(&trained->data);
    gmt_checkpoint_close(&trained->checkpoint);
}
