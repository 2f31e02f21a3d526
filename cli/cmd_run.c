/* cmd_run.c - `gradmesh run`: N copies of a program as one job, by the launcher. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/worker.h"
#include "launch/launcher.h"

static const char summary[] = "Starts N copies of a program on this machine as one job and sees "
                              "them to their end. Each is told who\n"
                              "it is by its environment (GRADMESH_RANK, GRADMESH_WORLD_SIZE, "
                              "GRADMESH_STORE, GRADMESH_JOB_ID, GRADMESH_SECRET_FILE;\n"
                              "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, "
                              "MASTER_PORT). When one fails, all are ended.\n";

static const char notes[] =
    "Standard input goes to rank 0 when it is not a terminal. INT, TERM, HUP and QUIT are passed "
    "on to the\n"
    "workers; what has not ended after 3 seconds is killed, and a second Ctrl-C kills at once.\n"
    "\n"
    "exit status: 0 when all workers exit with 0, else that of the worker that failed first (128 + "
    "N when\n"
    "signal N killed it); 128 + N when signal N stopped the launcher; 124 time limit; 126 the "
    "program cannot\n"
    "be run; 127 there is no such program; 1 the job could not be started; 2 wrong usage.\n"
    "\n"
    "examples:\n"
    "  gradmesh run -n 4 -- ./my_program --its-option\n"
    "  gradmesh run -n 2 --timeout 60 -- sh -c 'echo I am $RANK of $WORLD_SIZE'\n";

static const char *end_name(enum launch_end end)
{
    switch (end) {
    case LAUNCH_END_DONE:
        return "done";
    case LAUNCH_END_FAILURE:
        return "failure";
    case LAUNCH_END_SIGNAL:
        return "signal";
    case LAUNCH_END_TIMEOUT:
        return "timeout";
    case LAUNCH_END_OUTPUT:
        return "output";
    case LAUNCH_END_START:
        return "start";
    }
    return "?";
}

static double seconds(int64_t ns)
{
    return (double)ns / (double)GMI_NS_PER_S;
}

static cJSON *rank_to_json(const struct launch_rank *rank, int number)
{
    char how[160];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "rank", number);
    cJSON_AddNumberToObject(object, "pid", rank->pid);
    cJSON_AddNumberToObject(object, "exit_status", rank->exit_status);
    cJSON_AddNumberToObject(object, "signal", rank->signal);
    cJSON_AddBoolToObject(object, "ended_by_launcher", rank->was_ended_by_us);
    cJSON_AddNumberToObject(object, "elapsed_s", seconds(rank->elapsed_ns));
    cJSON_AddStringToObject(object, "how", launch_describe_end(rank, how, sizeof how));
    return object;
}

static cJSON *to_json(const struct launch_result *result, const gm_error *error)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "job_id", result->job_id);
    cJSON_AddNumberToObject(object, "world_size", result->n_ranks);
    cJSON_AddStringToObject(object, "end", end_name(result->end));
    cJSON_AddNumberToObject(object, "exit_status", result->exit_status);
    cJSON_AddNumberToObject(object, "elapsed_s", seconds(result->elapsed_ns));
    cJSON_AddNumberToObject(object, "ranks_joined", result->n_ranks_joined);
    if (result->first_failed >= 0)
        cJSON_AddNumberToObject(object, "first_failed", result->first_failed);
    else cJSON_AddNullToObject(object, "first_failed");
    if (error->status != GM_OK) cJSON_AddStringToObject(object, "error", error->text);
    cJSON *ranks = cJSON_AddArrayToObject(object, "ranks");
    for (int r = 0; result->ranks != NULL && r < result->n_ranks; r++) {
        if (result->ranks[r].was_started)
            cJSON_AddItemToArray(ranks, rank_to_json(&result->ranks[r], r));
    }
    return object;
}

int cli_cmd_run(int argc, char **argv)
{
    static const char *const binds[] = { "none", "cores", NULL };
    int64_t n_workers = 0, port = 0;
    double timeout_s = 0;
    int bind = 0;
    bool no_prefix = false, has_workers = false, is_encrypted = false;
    const char *checksum = NULL, *extra_env[] = { NULL, NULL, NULL };
    char checksum_env[64];
    /* clang-format off */
    const struct cli_option options[] = {
        { .name = "workers", .letter = 'n', .kind = CLI_INT, .integer = &n_workers,
          .was_given = &has_workers, .min = 1, .max = LAUNCH_MAX_WORKERS,
          .help = "how many copies to start" },
        { .name = "port", .kind = CLI_INT, .integer = &port, .default_text = "0",
          .value_name = "PORT",
          .min = 0, .max = 65535, .help = "where the ranks meet, on 127.0.0.1; 0 is any free one" },
        { .name = "timeout", .kind = CLI_REAL, .real = &timeout_s, .default_text = "0",
          .value_name = "SECONDS", .min_real = 0, .max_real = 1e9,
          .help = "end the job after so long; 0 is no limit" },
        { .name = "bind", .kind = CLI_CHOICE, .choice = &bind, .choices = binds,
          .default_text = "none", .help = "cores: rank r may run on the r-th core only" },
        { .name = "encrypt", .kind = CLI_FLAG, .flag = &is_encrypted,
          .help = "encrypt what goes over TCP (TLS 1.3, by the job's secret); not shared memory" },
        { .name = "checksum", .kind = CLI_TEXT, .text = &checksum, .value_name = "off|crc32c",
          .help = "check all that ranks send each other, block by block (default: off)" },
        { .name = "no-prefix", .kind = CLI_FLAG, .flag = &no_prefix,
          .help = "leave out the [R] before each line" },
    };
    const struct cli_command command = {
        .name = "run", .usage = "-n N [options] [--] PROGRAM ARG...", .summary = summary,
        .notes = notes, .operands = CLI_OPERANDS_PROGRAM,
        .options = options, .n_options = sizeof options / sizeof options[0],
    };
    /* clang-format on */
    struct cli_parsed parsed;
    int status;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    if (!has_workers) return cli_usage_error(&command, "say how many workers to start, with -n N");
    if (parsed.n_operands == 0 || parsed.operands[0][0] == '\0') {
        return cli_usage_error(&command, "the program to run is missing");
    }
    if (checksum != NULL && (status = cli_check_exchange(&command, NULL, NULL, NULL, checksum)) != 0) return status;
    size_t n_extra = 0;
    if (is_encrypted) extra_env[n_extra++] = "GRADMESH_ENCRYPT=1";
    if (checksum != NULL) {
        snprintf(checksum_env, sizeof checksum_env, "GRADMESH_CHECKSUM=%s", checksum);
        extra_env[n_extra++] = checksum_env;
    }
    const bool keeps_stdout = parsed.wants_json && parsed.json_path == NULL;
    const struct launch_options launch = {
        .n_workers = (int)n_workers,
        .argv = parsed.operands,
        .extra_env = extra_env,
        .port = (int)port,
        .timeout_ms = timeout_s > 0 ? (int64_t)(timeout_s * 1000) + (timeout_s < 0.001) : 0,
        .bind = (enum launch_bind)bind,
        .prefix_stdout = !no_prefix,
        .prefix_stderr = !no_prefix,
        .colour_stdout = cli_wants_colour(keeps_stdout ? 2 : 1),
        .colour_stderr = cli_wants_colour(2),
        .stdout_to_stderr = keeps_stdout,
        .is_verbose = parsed.is_verbose,
    };
    struct launch_result result;
    gm_error error;
    gmi_error_clear(&error);
    if (launch_run(&launch, &result, &error) != GM_OK)
        fprintf(stderr, "gradmesh run: %s\n", error.text);
    status = result.exit_status;
    if (parsed.wants_json) {
        cJSON *object = to_json(&result, &error);
        if (!cli_write_json(&parsed, "run", object) && status == 0) status = CLI_EXIT_NO;
        cJSON_Delete(object);
    }
    launch_result_fini(&result);
    return status;
}
