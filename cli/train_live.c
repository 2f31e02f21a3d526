#include "cli/train_live.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "report/record.h"

/* What a rank tells at each report: nanoseconds, and of rank 0 whether a trace is to be collected now. */
enum { COMPUTE, EXPOSED, HIDDEN, WAIT, WANTS_TRACE, N_WORDS };

/* A page keeps up with a trace in so many milliseconds, and the training loses little by it. */
enum { TRACE_EVERY_MS = 2000 };

/* ---- its life ---------------------------------------------------------------------------------- */

static void add_earlier(struct cli_train_live *live, const char *log_path)
{
    struct gmr_record log;
    gm_error          error; /* a log that is empty, or no log, shows nothing */
    gmi_error_clear(&error);
    if (gmr_record_read(&log, log_path, &error) != GM_OK) return;
    const cJSON *record;
    cJSON_ArrayForEach(record, log.data) cli_live_add(live->page, record);
    gmr_record_fini(&log);
}

gm_status cli_train_live_open(struct cli_train_live *live, int rank, int n_ranks, const char *port, const char *log_path,
                              gm_error *error)
{
    *live = (struct cli_train_live){ .n_ranks = n_ranks, .rank = rank };
    live->words = gmi_alloc((size_t)n_ranks * N_WORDS, sizeof *live->words);
    if (live->words == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for --live");
    if (rank != 0) return GM_OK;
    gm_status status = cli_live_start(&live->page, cli_live_port(port), error);
    if (status == GM_OK && log_path != NULL) add_earlier(live, log_path);
    return status;
}

void cli_train_live_close(struct cli_train_live *live)
{
    cli_live_stop(live->page);
    gmi_free(live->words);
    *live = (struct cli_train_live){ 0 };
}

/* ---- what it shows ----------------------------------------------------------------------------- */

static bool is_trace_due(const struct cli_train_live *live, const struct cli_train_trace *wanted)
{
    bool is_early = live->traced_ns != 0 && gmi_now_ns() - live->traced_ns < TRACE_EVERY_MS * GMI_NS_PER_MS;
    return wanted->path != NULL && !is_early && cli_live_is_looked_at(live->page);
}

static gm_status look(struct cli_train_live *live, const struct gmt_trainer *trainer, const struct cli_train_trace *wanted,
                      gm_error *error)
{
    struct cli_train_trace last = { wanted->path,
                                    wanted->n_steps < CLI_TRAIN_TRACE_STEPS ? wanted->n_steps : CLI_TRAIN_TRACE_STEPS };
    char                  *text = NULL;
    gm_status              status = cli_train_trace_look(&last, trainer, &text, error);
    cli_live_show_trace(live->page, text);
    free(text);
    live->traced_ns = gmi_now_ns();
    return status;
}

gm_status cli_train_live_exchange(struct cli_train_live *live, const struct gmt_trainer *trainer,
                                  const struct cli_train_trace *wanted, const struct gmt_report *report, gm_error *error)
{
    const struct gmt_time_split *split = &report->split;
    gm_comm                     *comm = trainer->options.comm;
    int64_t own[N_WORDS] = { split->compute_ns, split->comm_exposed_ns, split->comm_hidden_ns, split->wait_ns,
                             live->rank == 0 && is_trace_due(live, wanted) };
    memcpy(live->words + (size_t)live->rank * N_WORDS, own, sizeof own);
    if (comm == NULL) return GM_OK;
    gm_status status = gm_all_gather(comm, live->words, live->words, (size_t)live->n_ranks * N_WORDS, GM_I64);
    if (status != GM_OK) {
        if (error != NULL && error->status == GM_OK) *error = *gm_comm_error(comm);
        return status;
    }
    return live->words[WANTS_TRACE] != 0 ? look(live, trainer, wanted, error) : GM_OK;
}

static void add_ranks(cJSON *record, const struct cli_train_live *live)
{
    static const char *const keys[] = { [COMPUTE] = "compute_ms", [EXPOSED] = "comm_exposed_ms", [HIDDEN] = "comm_hidden_ms",
                                        [WAIT] = "wait_ms" };
    cJSON *list = cJSON_AddArrayToObject(record, "by_rank");
    for (int r = 0; r < live->n_ranks; r++) {
        cJSON *each = cJSON_CreateObject();
        cJSON_AddNumberToObject(each, "rank", r);
        for (int k = 0; k < WANTS_TRACE; k++)
            cJSON_AddNumberToObject(each, keys[k], (double)live->words[(size_t)r * N_WORDS + (size_t)k] / 1e6);
        cJSON_AddItemToArray(list, each);
    }
}

void cli_train_live_add(struct cli_train_live *live, const cJSON *record)
{
    const char *event = cJSON_GetStringValue(cJSON_GetObjectItem(record, "event"));
    if (live->page == NULL || event == NULL) return;
    cJSON *shown = cJSON_Duplicate(record, true);
    if (shown != NULL && strcmp(event, "step") == 0) add_ranks(shown, live);
    cli_live_add(live->page, shown);
    cJSON_Delete(shown);
}
