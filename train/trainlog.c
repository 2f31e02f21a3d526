#include "train/trainlog.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

/* ---- records ---------------------------------------------------------------------------------- *
 *
 * cJSON's functions take a NULL object and do nothing, and a field that there is no memory for is
 * not added; so the fields are counted once at the end, and a record is whole or not there. */

static void add_number(cJSON *object, const char *key, double value)
{
    cJSON_AddNumberToObject(object, key, value); /* NaN becomes null */
}

static double ms(int64_t ns) { return (double)ns / 1e6; }

enum { N_SPLIT_FIELDS = 8 };

static void add_split(cJSON *object, const struct gmt_time_split *split)
{
    add_number(object, "elapsed_ms", ms(split->elapsed_ns));
    add_number(object, "compute_ms", ms(split->compute_ns));
    add_number(object, "loading_ms", ms(split->loading_ns));
    add_number(object, "comm_exposed_ms", ms(split->comm_exposed_ns));
    add_number(object, "comm_hidden_ms", ms(split->comm_hidden_ns));
    add_number(object, "wait_ms", ms(split->wait_ns));
    add_number(object, "evaluation_ms", ms(split->evaluation_ns));
    add_number(object, "checkpoint_ms", ms(split->checkpoint_ns));
}

enum { N_LATENESS_FIELDS = 4 };

/* Who came last, by how much in an average step, and in what part of the steps. */
static void add_lateness(cJSON *object, const struct gmt_lateness *lateness, int64_t elapsed_ns)
{
    bool   is_known = lateness->last_rank >= 0;
    double n_steps = is_known ? (double)lateness->n_steps : 1;
    if (is_known) add_number(object, "last_rank", lateness->last_rank);
    else cJSON_AddNullToObject(object, "last_rank");
    add_number(object, "last_cost_ms", ms(lateness->last_cost_ns) / n_steps);
    add_number(object, "last_share", (double)lateness->n_last / n_steps);
    if (gmt_lateness_has_straggler(lateness, elapsed_ns)) add_number(object, "straggler", lateness->last_rank);
    else cJSON_AddNullToObject(object, "straggler");
}

static cJSON *whole_or_null(cJSON *object, int n_fields)
{
    if (cJSON_GetArraySize(object) == n_fields) return object;
    cJSON_Delete(object);
    return NULL;
}

static cJSON *begin(const char *event)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "event", event);
    return object;
}

cJSON *gmt_log_start(const struct gmt_trainer *trainer, int n_threads, uint64_t n_test_samples)
{
    struct gmt_recipe_text text;
    gmt_recipe_write(&trainer->recipe, &text);
    cJSON *object = begin("start");
    cJSON_AddStringToObject(object, "version", gm_version());
    add_number(object, "world_size", trainer->world_size);
    add_number(object, "threads", n_threads);
    add_number(object, "first_step", (double)trainer->first_step);
    cJSON_AddBoolToObject(object, "overlap", trainer->is_overlapping);
    add_number(object, "test_samples", (double)n_test_samples);
    for (size_t i = 0; i < text.n_settings; i++)
        cJSON_AddStringToObject(object, text.pairs[i].key, text.pairs[i].value);
    return whole_or_null(object, 7 + (int)text.n_settings);
}

/* How many fields it is. */
static int add_digest(cJSON *object, const struct gmt_state_digest *digest)
{
    cJSON_AddStringToObject(object, "state_hash", digest->state);
    cJSON *tensors = cJSON_AddObjectToObject(object, "tensor_hashes");
    for (size_t i = 0; i < digest->n_tensors; i++)
        cJSON_AddStringToObject(tensors, digest->tensors[i].name, digest->tensors[i].hash);
    return 2;
}

cJSON *gmt_log_step(const struct gmt_report *report)
{
    cJSON *object = begin("step");
    add_number(object, "step", (double)report->step);
    add_number(object, "epoch", (double)report->epoch);
    add_number(object, "loss", report->loss);
    add_number(object, "train_accuracy", report->train_accuracy);
    add_number(object, "lr", report->learning_rate);
    add_number(object, "gradient_norm", report->gradient_norm);
    add_number(object, "samples_per_s", report->samples_per_s);
    int n_more = report->digest == NULL ? 0 : add_digest(object, report->digest);
    add_split(object, &report->split);
    add_lateness(object, &report->lateness, report->late_steps_ns);
    return whole_or_null(object, 8 + n_more + N_SPLIT_FIELDS + N_LATENESS_FIELDS);
}

cJSON *gmt_log_epoch(const struct gmt_epoch_report *report)
{
    cJSON *object = begin("epoch");
    add_number(object, "epoch", (double)report->epoch);
    add_number(object, "step", (double)report->step);
    add_number(object, "loss", report->loss);
    add_number(object, "test_loss", report->test.loss);
    add_number(object, "test_accuracy", report->test.accuracy);
    add_number(object, "test_correct", (double)report->test.n_correct);
    add_number(object, "test_samples", (double)report->test.n_samples);
    add_split(object, &report->split);
    return whole_or_null(object, 8 + N_SPLIT_FIELDS);
}

/* A list with one number of each rank. */
static void add_numbers(cJSON *object, const char *key, const struct gmt_end *end,
                        uint64_t (*number)(const struct gmt_rank_account *))
{
    cJSON *list = cJSON_AddArrayToObject(object, key);
    for (int r = 0; r < end->world_size; r++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)number(&end->accounts[r])));
}

static uint64_t payload_of(const struct gmt_rank_account *account)
{
    return account->payload_sent_bytes;
}
static uint64_t formula_of(const struct gmt_rank_account *account)
{
    return account->formula_bytes;
}
static uint64_t protocol_of(const struct gmt_rank_account *account)
{
    return account->protocol_sent_bytes;
}

static uint64_t memory_of(const struct gmt_rank_account *account)
{
    return account->memory_sent_bytes;
}

static void add_kernel_counts(cJSON *object, const struct gmt_end *end)
{
    cJSON *list = cJSON_AddArrayToObject(object, "kernel_bytes_sent");
    for (int r = 0; r < end->world_size; r++) {
        const struct gmt_rank_account *account = &end->accounts[r];
        cJSON_AddItemToArray(list, account->has_kernel_count
                                       ? cJSON_CreateNumber((double)account->kernel_sent_bytes)
                                       : cJSON_CreateNull());
    }
}

cJSON *gmt_log_end(const struct gmt_end *end)
{
    cJSON *object = begin("end");
    add_number(object, "world_size", end->world_size);
    add_number(object, "first_step", (double)end->first_step);
    add_number(object, "steps", (double)end->steps);
    add_number(object, "loss", end->loss);
    add_number(object, "test_loss", end->test.loss);
    add_number(object, "test_accuracy",
               end->test.n_samples == 0 ? (double)NAN : end->test.accuracy);
    add_number(object, "test_correct", (double)end->test.n_correct);
    add_number(object, "test_samples", (double)end->test.n_samples);
    cJSON_AddStringToObject(object, "state_hash", end->state_hash);
    cJSON_AddBoolToObject(object, "workers_identical", end->are_identical);
    cJSON *hashes = cJSON_AddArrayToObject(object, "hashes");
    for (int r = 0; r < end->world_size; r++)
        cJSON_AddItemToArray(hashes, cJSON_CreateString(end->accounts[r].state_hash));
    cJSON_AddBoolToObject(object, "reproducible", end->shards > 0);
    add_number(object, "shards", (double)end->shards);
    add_number(object, "added", (double)end->added);
    add_number(object, "spilled", (double)end->spilled);
    cJSON_AddStringToObject(object, "wire", end->wire);
    add_numbers(object, "payload_bytes_sent", end, payload_of);
    add_numbers(object, "payload_bytes_formula", end, formula_of);
    add_numbers(object, "protocol_bytes_sent", end, protocol_of);
    add_numbers(object, "memory_bytes_sent", end, memory_of);
    add_kernel_counts(object, end);
    add_number(object, "naive_payload_bytes", (double)end->naive_bytes);
    add_number(object, "samples_per_s", end->samples_per_s);
    add_split(object, &end->split);
    add_lateness(object, &end->lateness, end->late_steps_ns);
    add_number(object, "clock_error_us", (double)end->lateness.clock_error_ns / 1e3);
    return whole_or_null(object, 25 + N_SPLIT_FIELDS + N_LATENESS_FIELDS);
}

/* ---- the file -------------------------------------------------------------------------------- */

gm_status gmt_trainlog_open(struct gmt_trainlog *log, const char *path, bool is_resuming,
                            gm_error *error)
{
    *log = (struct gmt_trainlog){ .fd = -1 };
    log->path = gmi_strdup(path);
    if (log->path == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the log");
    int mode = is_resuming ? 0 : O_TRUNC;
    log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | mode, 0666);
    if (log->fd >= 0) return GM_OK;
    gm_status status = gmi_error_set_errno(error, errno, "cannot write the log %s", path);
    gmt_trainlog_close(log);
    return status;
}

void gmt_trainlog_close(struct gmt_trainlog *log)
{
    if (log->path != NULL && log->fd >= 0) close(log->fd);
    gmi_free(log->path);
    *log = (struct gmt_trainlog){ .fd = -1 };
}

/* errno, or 0. */
static int write_text(int fd, const char *text, size_t size_bytes)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t put = write(fd, text + done, size_bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        done += (size_t)put;
    }
    return 0;
}

gm_status gmt_trainlog_write(struct gmt_trainlog *log, cJSON *record, gm_error *error)
{
    if (log->path == NULL || log->has_failed) {
        cJSON_Delete(record);
        return GM_OK;
    }
    char *text = record == NULL ? NULL : cJSON_PrintUnformatted(record);
    cJSON_Delete(record);
    int problem = ENOMEM;
    if (text != NULL) {
        /* The newline takes the place of the zero, so that a line is one write. */
        size_t size_bytes = strlen(text) + 1;
        text[size_bytes - 1] = '\n';
        problem = write_text(log->fd, text, size_bytes);
        cJSON_free(text);
    }
    if (problem == 0) return GM_OK;
    log->has_failed = true;
    return gmi_error_set_errno(error, problem,
                               "cannot write the log %s; training goes on without it", log->path);
}
