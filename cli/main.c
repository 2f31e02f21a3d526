/* main.c - the program `gradmesh`: the table of its subcommands, and nothing else. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "gradmesh.h"

static const struct {
    const char *name;
    int (*function)(int argc, char **argv);
    const char *summary;
} commands[] = {
    { "run", cli_cmd_run, "start N copies of a program and see them to their end" },
    { "train", cli_cmd_train, "train a network, by one process or by N" },
    { "eval", cli_cmd_eval, "count what a checkpoint gets right" },
    { "predict", cli_cmd_predict, "show what a checkpoint takes pictures for" },
    { "parity", cli_cmd_parity, "compare training by N processes with training by one" },
    { "verify", cli_cmd_verify, "find where two runs part: checkpoints or logs, bit by bit" },
    { "check", cli_cmd_check, "see whether every pair of ranks can talk, and how well" },
    { "status", cli_cmd_status, "ask the jobs that run here what their ranks are doing" },
    { "bench", cli_cmd_bench, "measure the collectives, and what the machine can carry" },
    { "scaling", cli_cmd_scaling, "see whether training by several workers pays here" },
    { "report", cli_cmd_report, "make one page of charts and words from what was recorded" },
    { "plan", cli_cmd_plan, "predict whether training by several workers pays, and check that here" },
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *file)
{
    fprintf(file, "usage: gradmesh COMMAND [options]\n\n"
                  "Data-parallel training with collectives over plain TCP.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++) {
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(file, "\n'gradmesh COMMAND --help' explains one; 'gradmesh --version' prints the version.\n");
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS + 1] = { NULL };
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *nearest = cli_nearest(name, names);
    fprintf(stderr, "gradmesh: %s '%s'%s%s%s; see gradmesh --help\n",
            name[0] == '-' ? "unknown option" : "unknown command", name, nearest ? " (did you mean '" : "",
            nearest ? nearest : "", nearest ? "'?)" : "");
    return CLI_EXIT_USAGE;
}

static int run_command(const char *name, int argc, char **argv)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) return commands[i].function(argc, argv);
    }
    return unknown_command(name);
}

/* What a full disk swallowed must not look like success. Who closed standard output on purpose gets EBADF. */
static int check_written(int exit_status)
{
    errno = 0;
    bool is_written = fflush(stdout) == 0 && !ferror(stdout);
    if (is_written || errno == EBADF || exit_status != CLI_EXIT_OK) return exit_status;
    fprintf(stderr, "gradmesh: cannot write standard output%s%s\n", errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    return CLI_EXIT_NO;
}

static int answer(int argc, char **argv)
{
    const char *word = argc < 2 ? "" : argv[1];
    bool        is_help = strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
    if (argc < 2) {
        print_help(stderr);
        return CLI_EXIT_USAGE;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("gradmesh %s\n", gm_version());
        return CLI_EXIT_OK;
    }
    if (is_help && argc > 2) {
        char  help[] = "--help";
        char *help_argv[] = { argv[2], help, NULL };
        return run_command(argv[2], 2, help_argv);
    }
    if (is_help) {
        print_help(stdout);
        return CLI_EXIT_OK;
    }
    return run_command(word, argc - 1, argv + 1);
}

int main(int argc, char **argv) { return check_written(answer(argc, argv)); }
