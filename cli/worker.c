#include "cli/worker.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/output.h"
#include "launch/launcher.h"

#define LIVE_VARIABLE "GRADMESH_PROGRESS"

_Static_assert((int)CLI_EXIT_PEER_FAILED == (int)LAUNCH_EXIT_PEER_FAILED,
               "one meaning, one number");

static bool read_place(const char *name, int *number)
{
    const char *text = getenv(name);
    int64_t     value;
    if (text == NULL || !cli_read_int(text, &value) || value < 0 || value > INT_MAX) return false;
    *number = (int)value;
    return true;
}

bool cli_is_worker(int *rank, int *world_size)
{
    return read_place("GRADMESH_RANK", rank) && read_place("GRADMESH_WORLD_SIZE", world_size) &&
           *world_size > 0;
}

bool cli_is_live(int fd)
{
    const char *said = getenv(LIVE_VARIABLE);
    if (said != NULL && strcmp(said, "live") == 0) return true;
    const char *term = getenv("TERM");
    return isatty(fd) == 1 && term != NULL && strcmp(term, "dumb") != 0;
}

/* The file of this program, by its name where it still has one, so that ps shows something
 * readable. */
static void own_path(char path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    if (n <= 0 || access(path, X_OK) != 0) snprintf(path, PATH_MAX, "/proc/self/exe");
}

char **cli_own_words(int argc, char **argv)
{
    char **words = gmi_alloc((size_t)argc + 2, sizeof *words);
    if (words != NULL) memcpy(words + 1, argv, (size_t)argc * sizeof *words); /* [0] is the program */
    return words;
}

static int launch_self(const struct cli_command *command, int n_workers, char **own_words,
                       const struct cli_parsed *parsed, bool is_live, bool has_small_worlds)
{
    char path[PATH_MAX];
    own_path(path);
    own_words[0] = path;
    const char *const extra_env[] = { is_live ? LIVE_VARIABLE "=live" : LIVE_VARIABLE "=plain",
                                      NULL };
    struct launch_options options = { .n_workers = n_workers,
                                      .argv = own_words,
                                      .extra_env = extra_env,
                                      .has_small_worlds = has_small_worlds,
                                      .is_verbose = parsed->is_verbose };
    struct launch_result  result;
    gm_error              error;
    gmi_error_clear(&error);
    if (launch_run(&options, &result, &error) != GM_OK)
        fprintf(stderr, "gradmesh %s: %s\n", command->name, error.text);
    int status = result.exit_status;
    launch_result_fini(&result);
    return status;
}

int cli_launch_self(const struct cli_command *command, int n_workers, char **own_words,
                    const struct cli_parsed *parsed, bool is_live)
{
    return launch_self(command, n_workers, own_words, parsed, is_live, false);
}

int cli_launch_self_in_small_worlds(const struct cli_command *command, int n_workers,
                                    char **own_words, const struct cli_parsed *parsed)
{
    return launch_self(command, n_workers, own_words, parsed, false, true);
}

void cli_say_pid(void) { fprintf(stderr, "rank 0 pid %ld\n", (long)getpid()); }

/* ---- joining --------------------------------------------------------------------------------- */

/* A world of one takes the names and needs no network. */
int cli_check_exchange(const struct cli_command *command, const char *transport,
                       const char *algorithm, const char *wire, const char *checksum)
{
    gm_comm_options options;
    gm_comm        *comm;
    gm_error        error;
    gm_comm_options_default(&options);
    options.rank = 0;
    options.world_size = 1;
    options.transport = transport;
    options.algorithm = algorithm;
    options.wire = wire;
    options.checksum = checksum;
    gmi_error_clear(&error);
    gm_status status = gm_comm_create(&comm, &options, &error);
    gm_comm_destroy(comm);
    return status == GM_OK ? CLI_EXIT_OK : cli_usage_error(command, "%s", error.text);
}

static void print_log_line(void *user, gm_log_level level, const char *line)
{
    static const char *const names[] = { "error", "warning", "info", "debug" };
    fprintf(stderr, "gradmesh %s: %s: %s\n", (const char *)user, names[level], line);
}

static gm_status fill_options(gm_comm_options *options, const struct cli_join *join,
                              gm_error *error)
{
    gm_comm_options_default(options);
    gm_status status = gm_comm_options_from_env(options, error);
    if (status != GM_OK) return status;
    if (join->world_size == 1) {
        options->rank = 0;
        options->world_size = 1;
    }
    if (join->transport != NULL) options->transport = join->transport;
    if (join->algorithm != NULL) options->algorithm = join->algorithm;
    if (join->wire != NULL) options->wire = join->wire;
    if (join->checksum != NULL) options->checksum = join->checksum;
    if (join->is_verbose && options->log_level < GM_LOG_INFO) options->log_level = GM_LOG_INFO;
    if (join->is_encrypted) options->encrypt = 1;
    options->fingerprint = join->fingerprint;
    options->group = join->group;
    options->trace_events = join->trace_events;
    options->log = print_log_line;
    options->log_user = (void *)(uintptr_t)join->command; /* only read */
    return GM_OK;
}

gm_status cli_place(const struct cli_join *join, int *rank, int *world_size, gm_error *error)
{
    gm_comm_options options;
    gm_status       status = fill_options(&options, join, error);
    *rank = status == GM_OK ? options.rank : 0;
    *world_size = status == GM_OK ? options.world_size : 1;
    return status;
}

gm_status cli_join(gm_comm **comm, const struct cli_join *join, gm_error *error)
{
    gm_comm_options options;
    *comm = NULL;
    gm_status status = fill_options(&options, join, error);
    return status == GM_OK ? gm_comm_create(comm, &options, error) : status;
}

/* ---- room for overlap ------------------------------------------------------------------------ */

static int n_own_cores(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN); /* more than a mask of this size can tell */
    return n_cores > 0 ? (int)n_cores : 1;
}

static bool is_loopback(const char *address)
{
    static const char *const names[] = { "localhost", "127.", "::1", "[::1]" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(address, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* How many of the workers are on this machine. Where no launcher says: all of them when they meet
 * over loopback, else as if this one were alone. */
static int n_local_workers(int world_size)
{
    static const char *const names[] = { "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "MPI_LOCALNRANKS" };
    int n_local;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (read_place(names[i], &n_local) && n_local > 0 && n_local <= world_size) return n_local;
    gm_comm_options options;
    gm_comm_options_default(&options);
    if (gm_comm_options_from_env(&options, NULL) != GM_OK) return world_size;
    const char *meeting = options.store != NULL ? options.store : options.master_addr;
    return meeting == NULL || is_loopback(meeting) ? world_size : 1;
}

struct cli_room cli_look_for_room(int world_size, int n_threads)
{
    struct cli_room room;
    int n_cores = n_own_cores(), n_local = n_local_workers(world_size);
    if (n_local < world_size) { /* what is on its way over a network needs no core */
        room.is_enough = true;
        snprintf(room.reason, sizeof room.reason, "other workers are on other machines");
        return room;
    }
    /* Within a machine moving bytes is work like any other: it wants a core beside those that
     * compute. */
    room.is_enough = n_cores >= (int64_t)n_local * (n_threads + 1);
    snprintf(room.reason, sizeof room.reason, "%d core%s for %d worker%s of %d thread%s", n_cores,
             n_cores == 1 ? "" : "s", n_local, n_local == 1 ? "" : "s", n_threads,
             n_threads == 1 ? "" : "s");
    return room;
}

/* ---- failing --------------------------------------------------------------------------------- */

static bool is_anothers_fault(int rank, const gm_error *error)
{
    switch (error->status) {
    case GM_ERR_PEER_LOST: return true;
    case GM_ERR_ABORTED:
    case GM_ERR_TIMEOUT: return error->culprit >= 0 && error->culprit != rank;
    default: return false;
    }
}

int cli_failed(const char *command, int rank, int world_size, const gm_error *error)
{
    /* The library's sentences begin with the rank that reports. */
    char   prefix[24];
    size_t prefix_bytes = (size_t)snprintf(prefix, sizeof prefix, "rank %d: ", rank);
    bool   has_prefix = world_size == 1 || strncmp(error->text, prefix, prefix_bytes) == 0;
    fprintf(stderr, "gradmesh %s: %s%s\n", command, has_prefix ? "" : prefix, error->text);
    return is_anothers_fault(rank, error) ? CLI_EXIT_PEER_FAILED : CLI_EXIT_NO;
}
