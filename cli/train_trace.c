#include "cli/train_trace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/trace_write.h"

static struct cli_trace_about about(const struct gmt_trainer *trainer)
{
    return (struct cli_trace_about){ .command = "train", .collective = gm_collective_name(GM_ALL_REDUCE),
                                     .dtype = gm_dtype_name(GM_F32), .count = trainer->mlp.params.n_elems,
                                     .world_size = trainer->world_size };
}

static char *print_text(struct cli_trace *trace, const struct cli_trace_about *what)
{
    char  *text = NULL;
    size_t n_bytes = 0;
    FILE  *file = open_memstream(&text, &n_bytes);
    if (file == NULL) return NULL;
    bool is_good = cli_trace_print(file, trace, 1, what);
    if (fclose(file) == 0 && is_good) return text;
    free(text);
    return NULL;
}

gm_status cli_train_trace_finish(const struct cli_train_trace *wanted, const struct gmt_trainer *trainer, char **text,
                                 gm_error *error)
{
    struct cli_trace       trace;
    struct cli_trace_about what = about(trainer);
    if (wanted->path == NULL) return GM_OK;
    gm_status status = cli_trace_collect(trainer->options.comm, wanted->n_steps, &trace, error);
    if (status == GM_OK && trainer->rank == 0) status = cli_trace_write(wanted->path, &trace, 1, &what, error);
    if (status == GM_OK && trainer->rank == 0 && text != NULL) *text = print_text(&trace, &what);
    cli_trace_free(&trace);
    return status;
}

gm_status cli_train_trace_look(const struct cli_train_trace *wanted, const struct gmt_trainer *trainer, char **text,
                               gm_error *error)
{
    struct cli_trace       trace;
    struct cli_trace_about what = about(trainer);
    gm_status              status = cli_trace_collect(trainer->options.comm, wanted->n_steps, &trace, error);
    (void)gm_trace_record(trainer->options.comm, 1);
    *text = status == GM_OK && trainer->rank == 0 ? print_text(&trace, &what) : NULL;
    cli_trace_free(&trace);
    return status;
}

void cli_train_trace_leave(const struct cli_train_trace *wanted, const struct gmt_trainer *trainer)
{
    struct cli_trace       trace;
    struct cli_trace_about what = about(trainer);
    char                   path[PATH_MAX];
    gm_error               error;
    gmi_error_clear(&error);
    if (wanted->path == NULL || trainer->options.comm == NULL) return;
    snprintf(path, sizeof path, "%s.rank%d", wanted->path, trainer->rank);
    gm_status status = cli_trace_take_own(trainer->options.comm, wanted->n_steps, &trace, &error);
    if (status == GM_OK) status = cli_trace_write(path, &trace, 1, &what, &error);
    cli_trace_free(&trace);
    if (status == GM_OK) fprintf(stderr, "gradmesh train: what rank %d did until then is in %s\n", trainer->rank, path);
    else fprintf(stderr, "gradmesh train: warning: %s\n", error.text);
}
