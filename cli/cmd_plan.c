/* cmd_plan.c - `gradmesh plan`: whether training by several workers will pay, before it is tried; and with --verify, how near
 * that comes.
 *
 *     options -> machine (measured by plan/probe.h, given, or a profile) -> points (plan/points.h) -> text, JSON
 *                                                                             |
 *                                    --verify: predictions to a file first, then each point is run (study/point.h) */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/blas_words.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/plan_args.h"
#include "cli/plan_print.h"
#include "cli/plan_simulate.h"
#include "cli/worker.h"
#include "launch/launcher.h"
#include "plan/own_code.h"
#include "plan/probe.h"
#include "train/bucket.h"

static const char summary[] =
    "Predicts what a training step will take with 1, 2, ... workers, where the time goes, whether more workers pay, up to how\n"
    "many and from which batch on, and what to change first. Measures this machine for that in a few seconds (the real training\n"
    "kernels, by as many workers at once as there will be), or takes what you say it can do: --flops, --bandwidth, --latency, or\n"
    "a saved --profile. Regimes are those of gradmesh scaling:\n"
    "\n"
    "  shared  one process may use all cores; more workers on a machine compete for them. 512 samples a step\n"
    "  light   each worker is bound to one core. 512 samples a step\n"
    "  heavy   each worker is bound to one core. 2048 samples a step\n";

static const char notes[] =
    "--network loopback means that all workers share this machine; a rate, that each has a machine like this one, and that\n"
    "network between them. With --verify these machines are network namespaces of this one (which needs root), share its\n"
    "cores, and are predicted so.\n"
    "\n"
    "--verify writes the predictions to RESULTS/plan.json before anything of it is run, runs every point, and compares: the\n"
    "median error must be within 10 %, and no point on the wrong side of \"pays\" unless it is within 5 % of not mattering.\n"
    "\n"
    "--simulate N,... is another way to plan, for many more workers than can be measured: it steps N workers through the real\n"
    "schedules over simulated links, and has options of its own: gradmesh plan --simulate N --help.\n"
    "\n"
    "Units: --flops 50G; --bandwidth 1gbit (of the line) or 117MB (payload, each second); --latency 25us.\n"
    "Columns: waiting, for the slowest worker; exchange, what of it is not hidden behind computing; ceiling, the speed-up\n"
    "without any exchange; of ideal, the speed-up over the number of workers.\n"
    "\n"
    "exit status: 0 planned, and if verified the bar was held; 1 it was not, or it could not be done; 2 wrong usage.\n"
    "\n"
    "examples:\n"
    "  gradmesh plan\n"
    "  gradmesh plan --model 784,4096,4096,10 --batch 1024 --world 1,2,4,8,16 --network 1gbit,10gbit --price 0.4\n"
    "  gradmesh plan --flops 50G --bandwidth 1gbit --latency 25us --world 1,2,4,8\n"
    "  gradmesh plan --verify\n"
    "  gradmesh plan --simulate 2,16,128,1024\n";
enum { N_PASSES = 2 };

/* ---- the course ----------------------------------------------------------------------------------- */

struct planner {
    const struct cli_plan_args    *args;
    const struct cli_plan_choices *choices;
    const struct cli_parsed       *parsed;
    bool                     is_live;
    struct cli_plan          plan;
    gm_error                 error;
};

static int threads_of(const struct planner *planner, enum study_regime regime)
{
    if (planner->args->has_threads) return (int)planner->args->threads;
    return regime == STUDY_SHARED ? plan_n_cores() : 1;
}

static size_t batch_of(const struct planner *planner, enum study_regime regime)
{
    return planner->args->has_batch ? (size_t)planner->args->batch : study_regime_batch(regime);
}

static const char *transport_of(const struct planner *planner)
{
    if (strcmp(planner->args->transport, "auto") != 0) return planner->args->transport;
    return planner->args->is_verifying ? "tcp" : "shm";
}

static void say(const struct planner *planner, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct planner *planner, const char *format, ...)
{
    va_list args;
    if (planner->is_live) fprintf(stderr, "\r\033[2K");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    if (!planner->is_live) fputc('\n', stderr);
    fflush(stderr);
}

static void stop_saying(const struct planner *planner)
{
    if (planner->is_live) fprintf(stderr, "\r\033[2K");
}

/* ---- the machine ---- */

/* Does any network put all of these workers onto this machine? */
static bool is_crew_wanted(const struct planner *planner, int workers)
{
    const struct cli_plan_choices *c = planner->choices;
    if (workers == 1) return true;
    if (workers > 2 * plan_n_cores() && workers > 4) return false; /* beyond that it only gets more of the same */
    if (planner->args->is_verifying) return true;
    for (int i = 0; i < c->networks.n && c->bandwidth_Bps == 0; i++)
        if (strcmp(c->networks.all[i], "loopback") == 0) return true;
    return workers == 2; /* what an exchange takes of the cores of each */
}

static void add_rows(struct plan_probe *probe, size_t rows)
{
    int at = 0;
    if (rows == 0) rows = 1;
    while (at < probe->n_rows && probe->rows[at] < rows) at++;
    if ((at < probe->n_rows && probe->rows[at] == rows) || probe->n_rows == PLAN_MAX_SPEEDS) return;
    memmove(&probe->rows[at + 1], &probe->rows[at], (size_t)(probe->n_rows++ - at) * sizeof *probe->rows);
    probe->rows[at] = rows;
}

/* The shares that this crew will compute, and where each has a machine of its own, those of all worlds. */
static void choose_rows(const struct planner *planner, struct plan_probe *probe, const struct cli_list *worlds)
{
    const struct cli_plan_choices *c = planner->choices;
    for (int r = 0; r < c->n_regimes; r++) {
        if (threads_of(planner, c->regimes[r]) != probe->threads) continue;
        size_t batch = batch_of(planner, c->regimes[r]), parts = (size_t)planner->args->accumulate;
        size_t share = (batch + (size_t)probe->workers - 1) / (size_t)probe->workers;
        add_rows(probe, (share + parts - 1) / parts);
        if (!planner->args->is_verifying) add_rows(probe, share / (4 * parts)); /* how it falls with smaller shares */
        size_t least = (batch + (size_t)worlds->values[worlds->n_values - 1] - 1) / (size_t)worlds->values[worlds->n_values - 1];
        if (probe->workers == 1 && !planner->args->is_verifying) add_rows(probe, (least + parts - 1) / parts);
    }
}

static gm_status probe_crew(struct planner *planner, int workers, int threads, const struct cli_list *worlds)
{
    struct plan_probe probe = { .layers = planner->choices->layers, .workers = workers, .threads = threads,
                                .transport = transport_of(planner), .wire = planner->choices->wire, .seconds = 0.1 };
    choose_rows(planner, &probe, worlds);
    if (probe.n_rows == 0) return GM_OK;
    say(planner, "measuring this machine: %d worker%s of %d thread%s at once", workers, workers == 1 ? "" : "s", threads,
        threads == 1 ? "" : "s");
    return plan_probe_crew(&planner->plan.machine, &probe, &planner->error);
}

static gm_status probe_machine(struct planner *planner)
{
    const struct cli_plan_choices *c = planner->choices;
    struct cli_list       worlds = planner->args->worlds;
    gm_status             status = GM_OK;
    int64_t               begin_ns = gmi_now_ns();
    cli_say_blas("plan");
    planner->plan.machine.n_cores = plan_n_cores();
    planner->plan.machine.layers = c->layers;
    worlds.values[worlds.n_values < CLI_LIST_MAX ? worlds.n_values++ : CLI_LIST_MAX - 1] = 2;
    for (int i = 0; i < N_PASSES * c->n_regimes && status == GM_OK; i++) {
        int r = i % c->n_regimes, threads = threads_of(planner, c->regimes[r]);
        for (int k = 0; k < r; k++)
            if (threads_of(planner, c->regimes[k]) == threads) threads = 0; /* they were with that regime */
        for (int n = 1; n <= PLAN_MAX_CREWS && threads > 0 && status == GM_OK; n++) {
            bool is_asked = n == 1;
            for (size_t w = 0; w < worlds.n_values; w++) is_asked |= worlds.values[w] == n;
            if (is_asked && is_crew_wanted(planner, n)) status = probe_crew(planner, n, threads, &planner->args->worlds);
        }
    }
    planner->plan.measured_s = (double)(gmi_now_ns() - begin_ns) / 1e9;
    return status;
}

static gm_status find_machine(struct planner *planner)
{
    const struct cli_plan_args *args = planner->args;
    const struct cli_plan_choices   *c = planner->choices;
    struct plan_machine    *machine = &planner->plan.machine;
    gm_status               status = GM_OK;
    plan_machine_init(machine);
    planner->plan.source = "what was given";
    if (args->load_path != NULL) {
        planner->plan.source = args->load_path;
        status = plan_profile_load(machine, args->load_path, &planner->error);
    } else if (c->flops > 0) {
        machine->flops = c->flops;
        machine->n_cores = plan_n_cores();
    } else {
        status = probe_machine(planner);
        machine->has_turns = status == GM_OK && args->save_path != NULL;
        if (machine->has_turns) status = bench_turns_measure(&machine->turns, &planner->error);
        if (machine->has_turns && status == GM_OK) status = plan_measure_own_code(&machine->turns, &planner->error);
    }
    if (status == GM_OK && c->bandwidth_Bps > 0) {
        machine->has_link = true;
        machine->link = (struct plan_link){ c->latency_us > 0 ? c->latency_us : 30, c->bandwidth_Bps };
    }
    if (status == GM_OK && args->save_path != NULL) status = plan_profile_save(machine, args->save_path, &planner->error);
    return status;
}

/* ---- the points ---- */

static struct plan_job job_of(const struct planner *planner, enum study_regime regime, const char *network)
{
    const struct cli_plan_args *args = planner->args;
    const struct plan_machine  *machine = &planner->plan.machine;
    struct plan_job job = { .layers = planner->choices->layers, .batch = batch_of(planner, regime), .accumulate = (size_t)args->accumulate,
                            .threads = threads_of(planner, regime),
                            .bucket_bytes = args->has_bucket_bytes ? (size_t)args->bucket_bytes : GMT_BUCKET_BYTES_AUTO };
    snprintf(job.wire, sizeof job.wire, "%s", planner->choices->wire);
    snprintf(job.transport, sizeof job.transport, "%.7s", transport_of(planner));
    if (machine->has_link && !planner->args->has_networks) {
        job.is_network = true;
        job.link = machine->link;
    } else {
        double latency_us = planner->choices->latency_us > 0 ? planner->choices->latency_us : 30;
        (void)plan_set_network(&job, network, latency_us, args->is_verifying); /* known to be one */
    }
    job.overlaps = args->overlap == 1 || (args->overlap == 2 && job.is_network);
    return job;
}

static bool add_points(struct planner *planner)
{
    const struct cli_plan_choices  *c = planner->choices;
    const struct cli_list *worlds = &planner->args->worlds;
    struct cli_plan       *plan = &planner->plan;
    for (int r = 0; r < c->n_regimes; r++) {
        for (int k = 0; k < c->networks.n; k++) {
            struct plan_job job = job_of(planner, c->regimes[r], c->networks.all[k]);
            const char     *network = plan->machine.has_link && !planner->args->has_networks ? "link" : c->networks.all[k];
            for (size_t i = 0; i < worlds->n_values; i++)
                if (!plan_add_point(&plan->points, &plan->machine, c->regimes[r], network, &job, (int)worlds->values[i])) return false;
        }
    }
    return plan->points.n_points > 0;
}

/* ---- verifying ---- */

static void say_progress(void *user, const struct plan_point *point, int n_done, int n_all)
{
    const struct planner *planner = user;
    say(planner, "running point %d of %d: %s, %s, %d worker%s", n_done + 1, n_all, study_regime_name(point->regime), point->network,
        point->prediction.workers, point->prediction.workers == 1 ? "" : "s");
}

/* To disk, so that nobody can say that it was written afterwards. */
static gm_status record(struct planner *planner)
{
    char              path[1024];
    struct cli_parsed to_file = { .wants_json = true, .json_path = path };
    const char       *dir = planner->args->results;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return gmi_error_set_errno(&planner->error, errno, "cannot make the directory %.200s", dir);
    if ((size_t)snprintf(path, sizeof path, "%s/plan.json", dir) >= sizeof path)
        return gmi_error_set(&planner->error, GM_ERR_ARG, "the name of the directory %.200s is too long", dir);
    cJSON *object = cli_plan_to_json(&planner->plan);
    bool   is_good = cli_write_json(&to_file, "plan", object);
    cJSON_Delete(object);
    return is_good ? GM_OK : gmi_error_set(&planner->error, GM_ERR_SYSTEM, "nothing was run, since the predictions could not be written first");
}

static gm_status verify(struct planner *planner)
{
    gm_status status = record(planner);
    if (status == GM_OK)
        status = plan_measure_points(&planner->plan.points, 0.6, (int)planner->args->n_repeats, say_progress, planner, &planner->error);
    stop_saying(planner);
    if (status != GM_OK) return status;
    planner->plan.is_verified = true;
    planner->plan.verdict = plan_compare(&planner->plan.points);
    return record(planner);
}

/* ---- the whole ---- */

static int say_failure(struct planner *planner)
{
    stop_saying(planner);
    if (planner->error.status == GM_ERR_ABORTED) return LAUNCH_EXIT_SIGNAL + planner->error.sys_errno;
    fprintf(stderr, "gradmesh plan: %s\n", planner->error.text);
    return CLI_EXIT_NO;
}

static int report(struct planner *planner)
{
    FILE *file = cli_text(planner->parsed);
    cli_plan_print_machine(file, &planner->plan);
    cli_plan_print_points(file, &planner->plan);
    if (planner->plan.is_verified) cli_plan_print_verdict(file, &planner->plan);
    else cli_plan_print_formula(file, &planner->plan);
    if (planner->plan.is_verified) fprintf(file, "predictions and measurements: %s/plan.json\n", planner->args->results);
    cJSON *object = planner->parsed->wants_json ? cli_plan_to_json(&planner->plan) : NULL;
    bool   is_written = cli_write_json(planner->parsed, "plan", object);
    cJSON_Delete(object);
    return is_written && (!planner->plan.is_verified || planner->plan.verdict.is_held) ? CLI_EXIT_OK : CLI_EXIT_NO;
}

static int make_plan(const struct cli_command *command, struct planner *planner)
{
    gmi_error_clear(&planner->error);
    planner->plan.samples = (double)planner->args->samples;
    planner->plan.price = planner->args->price;
    if (find_machine(planner) != GM_OK) return say_failure(planner);
    stop_saying(planner);
    if (!add_points(planner)) return cli_usage_error(command, "that makes more than %d points", PLAN_MAX_POINTS);
    if (planner->args->is_verifying && verify(planner) != GM_OK) return say_failure(planner);
    return report(planner);
}

int cli_cmd_plan(int argc, char **argv)
{
    const char *crew = getenv(PLAN_PROBE_VARIABLE);
    if (crew != NULL) return plan_probe_work(crew);
    if (cli_is_plan_simulation(argc, argv)) return cli_plan_simulate(argc, argv);
    struct cli_plan_args         args;
    struct cli_plan_choices           choices;
    struct cli_option        options[CLI_PLAN_OPTIONS];
    struct cli_parsed        parsed;
    int                      status;
    memset(&args, 0, sizeof args);
    cli_plan_list_options(&args, options);
    const struct cli_command command = { .name = "plan", .usage = "[options]", .summary = summary, .notes = notes, .options = options,
                                         .n_options = CLI_PLAN_OPTIONS };
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    status = cli_plan_read_choices(&command, &args, &choices);
    if (status != CLI_EXIT_OK) return status;
    struct planner *planner = gmi_alloc(1, sizeof *planner);
    if (planner == NULL) {
        fprintf(stderr, "gradmesh plan: no memory\n");
        return CLI_EXIT_NO;
    }
    memset(planner, 0, sizeof *planner);
    planner->args = &args;
    planner->choices = &choices;
    planner->parsed = &parsed;
    planner->is_live = cli_is_live(STDERR_FILENO);
    status = make_plan(&command, planner);
    gmi_free(planner);
    return status;
}
