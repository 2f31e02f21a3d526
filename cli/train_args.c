#include "cli/train_args.h"

#include <string.h>

#include "cli/live.h"
#include "cli/worker.h"
#include "launch/launcher.h"
#include "train/trainer.h"

enum { N_OWN_OPTIONS = CLI_N_TRAIN_OPTIONS - CLI_N_RECIPE_OPTIONS };

const char *const cli_train_overlaps[] = { [GMT_OVERLAP_OFF] = "off", [GMT_OVERLAP_ON] = "on",
                                        [GMT_OVERLAP_AUTO] = "auto", NULL };

const char *const cli_train_placements[] = { [GMT_PLACE_BLOCKS] = "blocks", [GMT_PLACE_RANDOM] = "random",
                                          NULL };
static const char *const exact_wires[] = { "trimmed", "raw", NULL };

void cli_list_train_options(struct cli_train_args *args, struct cli_option *options)
{
    const struct cli_option own[N_OWN_OPTIONS] = {
        { .name = "workers", .letter = 'n', .kind = CLI_INT, .integer = &args->n_workers,
          .was_given = &args->has_workers, .min = 1, .max = LAUNCH_MAX_WORKERS,
          .help = "how many workers to start on this machine" },
        { .name = "threads", .kind = CLI_INT, .integer = &args->n_threads, .default_text = "1", .min = 1,
          .max = 1024, .help = "threads of each worker for matrix products" },
        { .name = "transport", .kind = CLI_TEXT, .text = &args->transport, .value_name = "auto|tcp|shm",
          .help = "how bytes travel (default: auto)" },
        { .name = "algo", .kind = CLI_TEXT, .text = &args->algorithm,
          .value_name = "auto|ring|naive|...", .help = "how gradients are exchanged (default: auto)" },
        { .name = "encrypt", .kind = CLI_FLAG, .flag = &args->is_encrypted,
          .help = "encrypt what goes over TCP (TLS 1.3, by the job's secret); not shared memory" },
        { .name = "checksum", .kind = CLI_TEXT, .text = &args->checksum, .value_name = "off|crc32c",
          .help = "check all that ranks send each other, block by block (default: off)" },
        { .name = "wire", .kind = CLI_TEXT, .text = &args->wire, .value_name = "f32|bf16|f16|int8",
          .help = "format in which gradients travel: fewer bytes, for a little accuracy (default: f32)" },
        { .name = "overlap", .kind = CLI_CHOICE, .choice = &args->overlap, .choices = cli_train_overlaps,
          .default_text = "auto", .help = "exchange gradients while others are still computed" },
        { .name = "checkpoint", .kind = CLI_TEXT, .text = &args->checkpoint_dir, .value_name = "DIR",
          .help = "save the state there, as safetensors: after each epoch and at the end" },
        { .name = "checkpoint-every", .kind = CLI_INT, .integer = &args->save_every, .value_name = "STEPS",
          .min = 1, .max = INT64_MAX, .help = "save after so many steps instead" },
        { .name = "keep", .kind = CLI_INT, .integer = &args->keep, .default_text = "3", .min = 1,
          .max = 1000000, .help = "how many checkpoints stay" },
        { .name = "resume", .kind = CLI_TEXT, .text = &args->resume_file, .value_name = "[=FILE]",
          .is_value_optional = true, .was_given = &args->has_resume,
          .help = "go on from the newest good checkpoint in --checkpoint DIR, or from FILE" },
        { .name = "log", .kind = CLI_TEXT, .text = &args->log_path, .value_name = "FILE",
          .help = "what happens, as JSON lines" },
        { .name = "log-every", .kind = CLI_INT, .integer = &args->report_every, .value_name = "STEPS",
          .default_text = "50", .min = 1, .max = INT64_MAX, .help = "sum up the loss after so many steps" },
        { .name = "live", .kind = CLI_TEXT, .text = &args->live_port, .value_name = "[=PORT]", .is_value_optional = true,
          .was_given = &args->has_live,
          .help = "show the page of gradmesh report while it trains, on loopback, at the address that is printed" },
        { .name = "trace", .kind = CLI_TEXT, .text = &args->trace.path, .value_name = "FILE",
          .help = "what each worker did when, as a trace that ui.perfetto.dev opens (docs/tracing.md)" },
        { .name = "trace-steps", .kind = CLI_INT, .integer = &args->trace.n_steps, .value_name = "STEPS",
          .default_text = "20", .min = 1, .max = INT64_MAX, .help = "of the last so many steps" },
        { .name = "shard-placement", .kind = CLI_CHOICE, .choice = &args->placement, .choices = cli_train_placements,
          .default_text = "blocks",
          .help = "with --reproducible: who computes which shard; random: drawn anew in each step, to see that\n"
                  "it changes nothing" },
        { .name = "exact-wire", .kind = CLI_CHOICE, .choice = &args->exact_wire, .choices = exact_wires,
          .default_text = "trimmed",
          .help = "with --reproducible: exact sums travel without the bytes that are empty, or as they are" },
        { .name = "compare-steps", .kind = CLI_INT, .integer = &args->compare_steps, .value_name = "STEPS",
          .default_text = "0", .min = 0, .max = INT64_MAX,
          .help = "at the end do the first steps again in one process, and compare the parameters" },
    };
    memcpy(options, own, sizeof own);
    cli_list_recipe_options(&args->recipe, options + N_OWN_OPTIONS);
}

/* ---- what goes together ------------------------------------------------------------------------ */

/* What does not go together with or without --reproducible; 0 or CLI_EXIT_USAGE. */
static int check_reproducible(const struct cli_command *command, const struct cli_train_args *args)
{
    if (!args->recipe.is_reproducible) {
        const char *name = args->placement != GMT_PLACE_BLOCKS ? "--shard-placement"
                           : args->exact_wire != 0             ? "--exact-wire"
                                                               : NULL;
        return name == NULL ? CLI_EXIT_OK : cli_usage_error(command, "%s belongs to --reproducible", name);
    }
    if (args->wire != NULL && strcmp(args->wire, "f32") != 0)
        return cli_usage_error(command,
                               "--wire %s: a reproducible run is exact and rounds nothing on its way; it takes "
                               "--wire f32 only",
                               args->wire);
    if (args->overlap == GMT_OVERLAP_ON)
        return cli_usage_error(command, "--overlap on: a reproducible run exchanges its gradient when it is "
                                        "complete; leave it out");
    return CLI_EXIT_OK;
}

/* What the option table cannot say; 0 or CLI_EXIT_USAGE. */
int cli_check_train_usage(const struct cli_command *command, const struct cli_train_args *args)
{
    int rank, world_size;
    if (args->has_resume && args->resume_file == NULL && args->checkpoint_dir == NULL)
        return cli_usage_error(
            command, "--resume looks in --checkpoint DIR, which is missing; or name a file: "
                     "--resume=FILE");
    if (args->resume_file != NULL && args->resume_file[0] == '\0')
        return cli_usage_error(command, "--resume= wants the name of a file");
    if (args->has_live && cli_live_port(args->live_port) < 0)
        return cli_usage_error(command, "--live=%s: a port is a number from 0 to 65535", args->live_port);
    if (args->save_every > 0 && args->checkpoint_dir == NULL)
        return cli_usage_error(command, "--checkpoint-every wants --checkpoint DIR");
    if (args->has_workers && cli_is_worker(&rank, &world_size) && world_size != args->n_workers)
        return cli_usage_error(
            command,
            "-n %lld would start workers, but this process is already worker %d of "
            "%d: leave -n out",
            (long long)args->n_workers, rank, world_size);
    int status = check_reproducible(command, args);
    if (status == CLI_EXIT_OK)
        status = cli_check_exchange(command, args->transport, args->algorithm, args->wire, args->checksum);
    return status == CLI_EXIT_OK ? cli_check_recipe_usage(command, &args->recipe) : status;
}
