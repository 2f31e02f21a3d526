/* cmd_train.c - `gradmesh train`: trains a network, as one process or as N.
 *
 *     gradmesh train -n 4 ...      checks everything that can be checked, then starts itself 4 times
 *         gradmesh train -n 4 ...  as a worker: joins the others and trains; rank 0 speaks
 *
 * Under `gradmesh run`, or started by hand with RANK and WORLD_SIZE, it is a worker at once. What a worker does: train_worker.h. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/train_worker.h"

static const char summary[] =
    "Trains a multi-layer perceptron on labelled pictures, by one process or by N that share each batch:\n"
    "every worker computes the gradient of its part, an all-reduce averages them, and all make the same step.\n";

static const char notes[] =
    "With -n it starts the workers itself; under `gradmesh run`, or with RANK, WORLD_SIZE, MASTER_ADDR and\n"
    "MASTER_PORT set, it is one of them. --batch is what all workers compute together in one step, so the\n"
    "learning rate means the same for any number of workers.\n"
    "\n"
    "--steps ends a run early; the schedule of the learning rate is as long as --epochs say (or --steps, if\n"
    "that is longer). So a run that is stopped, by whatever, and resumed with the same options ends with the\n"
    "same bits as one that never stopped. (With --wire int8 if both save after the same steps: what rounding\n"
    "owes to later steps is not saved, and is dropped at each save.) --resume without a file takes the newest good checkpoint in\n"
    "--checkpoint DIR, and starts from the beginning when there is none.\n"
    "\n"
    "--reproducible makes the trained bits those of one process, with any number of workers: the batch is cut\n"
    "into --shards pieces, each computed by whichever worker in operations whose order is fixed, and their\n"
    "gradients are added exactly. Each line of the log and each checkpoint then says which bits they are:\n"
    "gradmesh verify compares them.\n"
    "\n"
    "exit status: 0 trained; 1 it could not be done, or the workers ended with different bits; 2 wrong usage;\n"
    "3 another worker failed.\n"
    "\n"
    "examples:\n"
    "  gradmesh train -n 4\n"
    "  gradmesh train -n 2 --layers 784,512,10 --optimizer adamw --checkpoint runs/a --log a.jsonl\n"
    "  gradmesh train -n 3 --layers 784,512,10 --optimizer adamw --checkpoint runs/a --log a.jsonl --resume\n";

/* Trains, or has N workers train. */
static int train_as_told(const struct cli_command *command, const struct cli_train_args *args,
                         const struct cli_parsed *parsed, char **own_words)
{
    int  status, rank, world_size;
    bool is_worker = cli_is_worker(&rank, &world_size);
    bool is_launcher = args->n_workers > 1 && !is_worker;
    struct cli_train_worker *worker = gmi_alloc(1, sizeof *worker);
    struct cli_join          place = { .command = "train",
                                      .world_size = args->n_workers == 1 && !is_worker ? 1 : 0,
                                      .is_verbose = parsed->is_verbose,
                                      .transport = args->transport,
                                      .algorithm = args->algorithm,
                                      .wire = args->wire,
                                      .checksum = args->checksum,
                                      .is_encrypted = args->is_encrypted };
    if (worker == NULL || own_words == NULL) {
        fprintf(stderr, "gradmesh train: no memory\n");
        gmi_free(worker);
        return CLI_EXIT_NO;
    }
    worker->args = args;
    worker->parsed = parsed;
    worker->world_size = 1;
    gmi_error_clear(&worker->error);
    if (place.world_size == 1) cli_say_pid();
    if (!is_launcher) status = cli_train_run_worker(worker, &place);
    else status = cli_train_prepare(worker, true) == GM_OK ? CLI_EXIT_OK : cli_train_worker_failed(worker);
    cli_train_worker_fini(worker);
    gmi_free(worker);
    if (!is_launcher || status != CLI_EXIT_OK) return status;
    return cli_launch_self(command, (int)args->n_workers, own_words, parsed,
                           cli_is_live(fileno(cli_text(parsed))));
}

int cli_cmd_train(int argc, char **argv)
{
    struct cli_train_args args;
    struct cli_option options[CLI_N_TRAIN_OPTIONS];
    struct cli_parsed parsed;
    int               status;
    cli_list_train_options(&args, options);
    const struct cli_command command = {
        .name = "train", .usage = "[-n N] [options]", .summary = summary, .notes = notes,
        .options = options, .n_options = CLI_N_TRAIN_OPTIONS,
    };
    char **own_words = cli_own_words(argc, argv);
    if (cli_parse(&command, argc, argv, &parsed, &status)) {
        status = cli_check_train_usage(&command, &args);
        if (status == CLI_EXIT_OK) status = train_as_told(&command, &args, &parsed, own_words);
    }
    gmi_free(own_words);
    return status;
}
