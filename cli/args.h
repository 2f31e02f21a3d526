/* args.h - command-line options from a table, and the help that is generated from the same table.
 *
 * A command describes its options once, each with the variable that receives the value; cli_parse
 * then understands, checks and fills them, and prints --help. What it prints about wrong usage is
 * one sentence. Numbers are taken as a whole or not at all, and within their range.
 *
 *     int64_t n_workers;
 *     const struct cli_option options[] = {
 *         { .name = "workers", .letter = 'n', .kind = CLI_INT, .integer = &n_workers, .value_name =
 * "N", .default_text = "4", .min = 1, .max = 4096, .help = "how many workers to start" },
 *     };
 *     const struct cli_command command = { .name = "run", .options = options, .n_options = 1, ...
 * }; struct cli_parsed parsed; int status; if (!cli_parse(&command, argc, argv, &parsed, &status))
 * return status;
 *
 * Every command has --help, --verbose and --json without asking. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLI_EXIT_OK = 0,
    CLI_EXIT_NO = 1,    /* the thing checked is not so, or the work could not be done */
    CLI_EXIT_USAGE = 2, /* wrong usage */
};

enum cli_kind {
    CLI_FLAG,  /* takes no value; sets *flag */
    CLI_INT,   /* a whole number */
    CLI_REAL,  /* a finite decimal number */
    CLI_BYTES, /* a whole number, with K, M or G as powers of 1024 */
    CLI_TEXT,
    CLI_CHOICE,   /* one of `choices`; receives its index */
    CLI_INT_LIST, /* whole numbers with commas between them */
    CLI_BYTES_LIST,
};

#define CLI_LIST_MAX 64

struct cli_list {
    size_t n_values;
    int64_t values[CLI_LIST_MAX];
};

struct cli_option {
    const char *name; /* long name, without the dashes */
    char letter;      /* short name, or 0 */
    enum cli_kind kind;
    union { /* what receives the value, by kind */
        bool *flag;
        int64_t *integer;
        double *real;
        int64_t *size_bytes;
        const char **text; /* points into argv, or at default_text */
        int *choice;
        struct cli_list *list;
    };
    const char *value_name;     /* what help calls the value, "FILE"; NULL: by kind */
    const char *default_text;   /* taken like a value before the command line is read;
                                   NULL: false, 0, NULL, an empty list, -1 for a choice */
    const char *help;           /* one line */
    int64_t min, max;           /* whole numbers, sizes and each number of a list; both 0: any */
    double min_real, max_real;  /* both 0: any */
    const char *const *choices; /* ends with NULL */
    bool is_value_optional;     /* CLI_TEXT only: --name alone gives NULL, --name=TEXT a value */
    bool *was_given;            /* may be NULL; tells "default" and "asked for" apart */
};

enum cli_operands {
    CLI_OPERANDS_NONE, /* a word that is no option is an error */
    CLI_OPERANDS_ANYWHERE,
    CLI_OPERANDS_PROGRAM, /* options end at the first word that is none: it and the rest are a
                             command */
};

struct cli_command {
    const char *name;    /* "run" */
    const char *usage;   /* what follows the name: "[options] [--] PROGRAM ARG..." */
    const char *summary; /* a paragraph, lines ended by newlines */
    const char *notes;   /* after the options; may be NULL */
    enum cli_operands operands;
    const struct cli_option *options;
    size_t n_options;
};

struct cli_parsed {
    bool is_verbose;
    bool wants_json;
    const char *json_path; /* NULL: standard output */
    int n_operands;
    char **operands; /* inside argv, which is reordered; ends with NULL */
};

/* Reads the options of argv[1 .. argc - 1]. True: go on. False: *exit_status holds what to leave
 * with, and everything has been said: 0 after --help, CLI_EXIT_USAGE after a usage error. */
bool cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_parsed *parsed,
               int *exit_status);

/* Prints "gradmesh NAME: <sentence>; see gradmesh NAME --help" on standard error and returns
 * CLI_EXIT_USAGE. For what a table cannot say, such as options that exclude each other. */
int cli_usage_error(const struct cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The name among `names` (which ends with NULL) that `word` probably meant, or NULL. */
const char *cli_nearest(const char *word, const char *const *names);

/* The parts of cli_parse that are useful alone: the whole of `text` as a number. False: it is none,
 * or does not fit. */
bool cli_read_int(const char *text, int64_t *value);
bool cli_read_real(const char *text, double *value);
bool cli_read_bytes(const char *text, int64_t *size_bytes);

#endif
