/* cmd_eval.c - `gradmesh eval`: how well a checkpoint does on a test set. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/trained.h"
#include "train/evaluate.h"
#include "train/ops.h"

static const char summary[] =
    "Reads a checkpoint of `gradmesh train` and counts how many samples of the test set it gets right.\n";

static cJSON *to_json(const struct cli_trained *trained, const struct gmt_evaluation *result)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "checkpoint", trained->checkpoint.path);
    cJSON_AddNumberToObject(object, "step", (double)trained->checkpoint.step);
    cJSON_AddStringToObject(object, "state_hash", trained->checkpoint.state_hash);
    cJSON_AddStringToObject(object, "data", trained->data.source);
    cJSON_AddNumberToObject(object, "test_samples", (double)result->n_samples);
    cJSON_AddNumberToObject(object, "test_correct", (double)result->n_correct);
    cJSON_AddNumberToObject(object, "test_accuracy", result->accuracy);
    cJSON_AddNumberToObject(object, "test_loss", result->loss);
    return object;
}

static gm_status evaluate(struct cli_trained *trained, struct gmt_evaluation *result,
                          gm_error *error)
{
    struct gmt_evaluator evaluator;
    gm_status            status = gmt_evaluator_init(&evaluator, NULL, &trained->data.test, error);
    if (status != GM_OK) return status;
    status = gmt_evaluate(&evaluator, &trained->mlp, result, error);
    gmt_evaluator_fini(&evaluator);
    return status;
}

int cli_cmd_eval(int argc, char **argv)
{
    const char             *checkpoint = NULL, *data = NULL;
    int64_t                 n_threads;
    const struct cli_option options[] = {
        { .name = "checkpoint", .kind = CLI_TEXT, .text = &checkpoint, .value_name = "FILE|DIR",
          .help = "what was trained: a file, or a directory, of which the newest good one is taken" },
        { .name = "data", .kind = CLI_TEXT, .text = &data, .value_name = "mnist|synthetic|DIR",
          .help = "whose test set (default: of the data that it was trained on)" },
        { .name = "threads", .kind = CLI_INT, .integer = &n_threads, .default_text = "1", .min = 1,
          .max = 1024, .help = "for matrix products" },
    };
    const struct cli_command command = { .name = "eval", .usage = "--checkpoint FILE [options]",
                                         .summary = summary, .options = options, .n_options = 3 };
    struct cli_parsed     parsed;
    struct cli_trained    trained;
    struct gmt_evaluation result;
    gm_error              error;
    int                   status;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    if (checkpoint == NULL) return cli_usage_error(&command, "say which, by --checkpoint FILE");
    gmi_error_clear(&error);
    gmt_set_blas_threads((int)n_threads);
    if (cli_load_trained(&trained, "eval", checkpoint, data, &error) != GM_OK ||
        evaluate(&trained, &result, &error) != GM_OK) {
        fprintf(stderr, "gradmesh eval: %s\n", error.text);
        cli_free_trained(&trained);
        return CLI_EXIT_NO;
    }
    fprintf(cli_text(&parsed),
            "%s, after step %llu\n%s: %llu of %llu right, loss %.4f\ntest accuracy: %.2f %%\n",
            trained.checkpoint.path, (unsigned long long)trained.checkpoint.step,
            trained.data.source, (unsigned long long)result.n_correct,
            (unsigned long long)result.n_samples, result.loss, 100 * result.accuracy);
    cJSON *object = parsed.wants_json ? to_json(&trained, &result) : NULL;
    status = cli_write_json(&parsed, "eval", object) ? CLI_EXIT_OK : CLI_EXIT_NO;
    cJSON_Delete(object);
    cli_free_trained(&trained);
    return status;
}
