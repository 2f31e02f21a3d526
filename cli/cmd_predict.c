/* cmd_predict.c - `gradmesh predict`: what a checkpoint takes some pictures of the test set for,
 * with the pictures drawn in the terminal. */
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/trained.h"
#include "train/ops.h"

enum { MAX_DRAWN_COLS = 100, MAX_COUNT = 10000 };

static const char summary[] =
    "Reads a checkpoint of `gradmesh train` and shows what it takes pictures of the test set for: the label\n"
    "that it finds most likely, the probability of each, and the picture.\n";

/* What is known of one picture. */
struct prediction {
    size_t       index;
    int          label, predicted;
    const float *probabilities; /* (n_classes) */
    size_t       n_classes;
};

static struct prediction predict(struct cli_trained *trained, size_t index, float *inputs,
                                 float *probabilities)
{
    uint8_t           label;
    struct prediction p = { .index = index,
                            .probabilities = probabilities,
                            .n_classes = gmt_mlp_n_classes(&trained->mlp) };
    gmt_dataset_gather_range(&trained->data.test, index, 1, inputs, &label);
    gmt_mlp_predict(&trained->mlp, inputs, 1, probabilities);
    p.label = label;
    for (size_t c = 1; c < p.n_classes; c++)
        if (probabilities[c] > probabilities[p.predicted]) p.predicted = (int)c;
    return p;
}

/* ---- drawing ---------------------------------------------------------------------------------- *
 *
 * A character is about twice as high as wide, so it shows two rows of a picture: with block characters as
 * its upper and lower half, without as the mean of both. */

static int ink_at(const struct gmt_dataset *set, size_t index, int row, int col)
{
    if (row >= set->n_rows) return 0;
    return set->pixels[index * (size_t)set->n_features + (size_t)(row * set->n_cols + col)];
}

static const char *cell(int upper, int lower, bool is_utf8)
{
    static const char *const ascii[] = { " ", ".", ":", "=", "*", "#", "@" };
    if (!is_utf8) return ascii[(upper + lower) * 6 / (2 * 255)];
    bool is_up = upper >= 96, is_low = lower >= 96;
    if (is_up && is_low) return "\u2588"; /* full block */
    if (is_up) return "\u2580";           /* upper half */
    if (is_low) return "\u2584";          /* lower half */
    return upper + lower >= 96 ? "\u2591" : " "; /* light shade */
}

static void draw_line(FILE *file, const struct gmt_dataset *set, size_t index, int line,
                      bool is_utf8)
{
    int n_cols = set->n_cols < MAX_DRAWN_COLS ? set->n_cols : MAX_DRAWN_COLS;
    for (int col = 0; col < n_cols; col++)
        fputs(
            cell(ink_at(set, index, 2 * line, col), ink_at(set, index, 2 * line + 1, col), is_utf8),
            file);
}

/* One class's probability as a number and a bar. */
static void print_class(FILE *file, const struct prediction *p, size_t c, bool is_utf8)
{
    int n_blocks = (int)(p->probabilities[c] * 20 + 0.5f);
    fprintf(file, "  %3zu %6.2f %%  ", c, 100 * (double)p->probabilities[c]);
    for (int i = 0; i < n_blocks; i++) fputs(is_utf8 ? "\u2588" : "#", file);
    if ((int)c == p->label) fputs(n_blocks > 0 ? "  <- the label" : "<- the label", file);
}

static void show(FILE *file, const struct gmt_dataset *set, const struct prediction *p,
                 bool is_utf8)
{
    int n_lines = (set->n_rows + 1) / 2, n_classes = (int)p->n_classes;
    int n_shown = n_classes < 20 ? n_classes : 20;
    fprintf(file, "\nnumber %zu is a %d, taken for a %d (%.2f %%): %s\n", p->index, p->label,
            p->predicted, 100 * (double)p->probabilities[p->predicted],
            p->label == p->predicted ? "right" : "WRONG");
    for (int line = 0; line < n_lines || line < n_shown; line++) {
        if (line < n_lines) draw_line(file, set, p->index, line, is_utf8);
        else fprintf(file, "%*s", set->n_cols < MAX_DRAWN_COLS ? set->n_cols : MAX_DRAWN_COLS, "");
        if (line < n_shown) print_class(file, p, (size_t)line, is_utf8);
        fputc('\n', file);
    }
}

static cJSON *to_json(const struct prediction *p)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "index", (double)p->index);
    cJSON_AddNumberToObject(object, "label", p->label);
    cJSON_AddNumberToObject(object, "predicted", p->predicted);
    cJSON_AddBoolToObject(object, "right", p->label == p->predicted);
    cJSON *list = cJSON_AddArrayToObject(object, "probabilities");
    for (size_t c = 0; c < p->n_classes; c++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)p->probabilities[c]));
    return object;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Shows pictures first .. first + count - 1, which are there. */
static int predict_all(struct cli_trained *trained, const struct cli_parsed *parsed, size_t first,
                       size_t count)
{
    const struct gmt_dataset *set = &trained->data.test;
    float *inputs = gmi_alloc((size_t)set->n_features, sizeof *inputs);
    float *probabilities = gmi_alloc(gmt_mlp_n_classes(&trained->mlp), sizeof *probabilities);
    cJSON *object = parsed->wants_json ? cJSON_CreateObject() : NULL;
    cJSON *list = cJSON_AddArrayToObject(object, "predictions");
    FILE  *file = cli_text(parsed);
    size_t n_right = 0;
    if (inputs == NULL || probabilities == NULL) {
        fprintf(stderr, "gradmesh predict: no memory\n");
        count = 0;
    }
    setlocale(LC_CTYPE, "");
    bool is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    for (size_t i = 0; i < count; i++) {
        struct prediction p = predict(trained, first + i, inputs, probabilities);
        show(file, set, &p, is_utf8);
        cJSON_AddItemToArray(list, object == NULL ? NULL : to_json(&p));
        n_right += p.label == p.predicted;
    }
    if (count > 1) fprintf(file, "\n%zu of %zu right\n", n_right, count);
    cJSON_AddStringToObject(object, "checkpoint", trained->checkpoint.path);
    cJSON_AddNumberToObject(object, "step", (double)trained->checkpoint.step);
    cJSON_AddStringToObject(object, "data", trained->data.source);
    cJSON_AddNumberToObject(object, "right", (double)n_right);
    bool is_good = count > 0 && cli_write_json(parsed, "predict", object);
    cJSON_Delete(object);
    gmi_free(inputs);
    gmi_free(probabilities);
    return is_good ? CLI_EXIT_OK : CLI_EXIT_NO;
}

int cli_cmd_predict(int argc, char **argv)
{
    const char             *checkpoint = NULL, *data = NULL;
    int64_t                 index, count;
    const struct cli_option options[] = {
        { .name = "checkpoint", .kind = CLI_TEXT, .text = &checkpoint, .value_name = "FILE|DIR",
          .help = "what was trained: a file, or a directory, of which the newest good one is taken" },
        { .name = "data", .kind = CLI_TEXT, .text = &data, .value_name = "mnist|synthetic|DIR",
          .help = "whose test set (default: of the data that it was trained on)" },
        { .name = "index", .kind = CLI_INT, .integer = &index, .default_text = "0", .min = 0,
          .max = INT64_C(1) << 32, .help = "number of the first picture, counted from 0" },
        { .name = "count", .kind = CLI_INT, .integer = &count, .default_text = "1", .min = 1,
          .max = MAX_COUNT, .help = "how many pictures" },
    };
    const struct cli_command command = { .name = "predict", .usage = "--checkpoint FILE [options]",
                                         .summary = summary, .options = options, .n_options = 4 };
    struct cli_parsed  parsed;
    struct cli_trained trained;
    gm_error           error;
    int                status;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    if (checkpoint == NULL) return cli_usage_error(&command, "say which, by --checkpoint FILE");
    gmi_error_clear(&error);
    gmt_set_blas_threads(1);
    if (cli_load_trained(&trained, "predict", checkpoint, data, &error) != GM_OK) {
        fprintf(stderr, "gradmesh predict: %s\n", error.text);
        status = CLI_EXIT_NO;
    } else if ((uint64_t)index + (uint64_t)count > trained.data.test.n_samples) {
        status = cli_usage_error(&command,
                                 "%s has %zu pictures, numbered from 0; %lld from number %lld on "
                                 "are not there",
                                 trained.data.source, trained.data.test.n_samples, (long long)count,
                                 (long long)index);
    } else {
        status = predict_all(&trained, &parsed, (size_t)index, (size_t)count);
    }
    cli_free_trained(&trained);
    return status;
}
