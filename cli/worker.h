/* worker.h - what `train` and `parity` share: starting themselves N times, joining as one of N,
 * and saying what went wrong with the exit status that tells the launcher whose fault it was. */
#ifndef CLI_WORKER_H
#define CLI_WORKER_H

#include <stdbool.h>

#include "cli/args.h"
#include "gradmesh.h"

enum { CLI_EXIT_PEER_FAILED = 3 }; /* another rank failed, not this one */

/* Whether a gradmesh launcher started this process, and as what. A process that was started by
 * hand or by another launcher is not one, and finds its place by gm_comm_options_from_env. */
bool cli_is_worker(int *rank, int *world_size);

/* This program's command line again, to be kept before cli_parse, which uses argv up: a list
 * that ends with NULL, of which the words stay argv's. NULL: no memory. Freed with gmi_free. */
char **cli_own_words(int argc, char **argv);

/* Runs this program N times with its own words; the copies find themselves to be workers.
 * Returns the exit status of the job. With is_live the workers draw their progress for a
 * terminal, which they cannot see through the launcher's pipes. */
int cli_launch_self(const struct cli_command *command, int n_workers, char **own_words,
                    const struct cli_parsed *parsed, bool is_live);

/* The same, when the copies meet in worlds smaller than the whole, so that none is missed there. */
int cli_launch_self_in_small_worlds(const struct cli_command *command, int n_workers,
                                    char **own_words, const struct cli_parsed *parsed);

/* With -n 1 nothing needs to be started; the line that the launcher prints for each worker is
 * said here. */
void cli_say_pid(void);

/* Whether a live line may be drawn: the stream is a terminal, or the launcher in front of us saw
 * one. */
bool cli_is_live(int fd);

struct cli_join {
    const char *command;       /* "train" */
    int         world_size;    /* 1: alone, whatever the environment says; 0: as the environment says */
    bool        is_verbose;
    const char *transport, *algorithm, *wire, *checksum; /* NULL: as the environment says */
    const char *fingerprint;
    bool        is_encrypted;  /* or as the environment says */
    const char *group; /* NULL: one communicator is enough */
    int         trace_events; /* 0: no trace */
};

/* Whether the library knows what has these names (NULL: not asked for), so that
 * a wrong one is one sentence, with the list of those that there are, before anything is started.
 * CLI_EXIT_OK or CLI_EXIT_USAGE. */
int cli_check_exchange(const struct cli_command *command, const char *transport,
                       const char *algorithm, const char *wire, const char *checksum);

/* Who this process will be, without joining. GM_ERR_ARG: the environment is wrong. */
GM_MUST_USE gm_status cli_place(const struct cli_join *join, int *rank, int *world_size,
                                gm_error *error);

/* Joins. The library's log lines go to standard error. Statuses of gm_comm_create. */
GM_MUST_USE gm_status cli_join(gm_comm **comm, const struct cli_join *join, gm_error *error);

/* Whether exchanging while computing can win time here, and why, as a clause. */
struct cli_room {
    bool is_enough;
    char reason[96];
};

struct cli_room cli_look_for_room(int world_size, int n_threads);

/* Prints a failure as one line on standard error and returns the exit status:
 * CLI_EXIT_PEER_FAILED when another rank is to blame, else CLI_EXIT_NO. */
int cli_failed(const char *command, int rank, int world_size, const gm_error *error);

#endif
