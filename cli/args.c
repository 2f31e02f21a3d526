#include "cli/args.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"

/* A help line, a suggestion and getopt_long itself need the command's own options and the common
 * ones as one list. Options are known to getopt_long by FIRST_CODE + index, so that no letter
 * collides. */
enum { FIRST_CODE = 256, OPERAND_CODE = 1, N_COMMON = 3 };

struct table {
    const struct cli_command *command;
    struct cli_option common[N_COMMON]; /* verbose, json, help */
    bool wants_help;
};

static size_t n_options(const struct table *t)
{
    return t->command->n_options + N_COMMON;
}

static const struct cli_option *option_at(const struct table *t, size_t i)
{
    return i < t->command->n_options ? &t->command->options[i]
                                     : &t->common[i - t->command->n_options];
}

/* --json is the one option whose value may be missing. */
static bool is_json(const struct table *t, const struct cli_option *o)
{
    return o == &t->common[1];
}

static void table_init(struct table *t, const struct cli_command *command,
                       struct cli_parsed *parsed)
{
    *t = (struct table){ .command = command };
    t->common[0] = (struct cli_option){ .name = "verbose",
                                        .letter = 'v',
                                        .kind = CLI_FLAG,
                                        .flag = &parsed->is_verbose,
                                        .help = "say more on standard error" };
    t->common[1] = (struct cli_option){
        .name = "json",
        .kind = CLI_TEXT,
        .text = &parsed->json_path,
        .was_given = &parsed->wants_json,
        .help =
            command->operands == CLI_OPERANDS_PROGRAM
                ? "the result as one JSON object, on standard output (all else goes to standard\n"
                  "error) or in FILE: --json=FILE, or --json FILE.json"
                : "the result as one JSON object, on standard output (all else goes to standard\n"
                  "error) or in FILE"
    };
    t->common[2] = (struct cli_option){ .name = "help",
                                        .letter = 'h',
                                        .kind = CLI_FLAG,
                                        .flag = &t->wants_help,
                                        .help = "print this and stop" };
}

/* ---- numbers --------------------------------------------------------------------------------- */

bool cli_read_int(const char *text, int64_t *value)
{
    if (!isdigit((unsigned char)text[0]) &&
        !((text[0] == '-' || text[0] == '+') && isdigit((unsigned char)text[1]))) {
        return false;
    }
    char *end;
    errno = 0;
    intmax_t v = strtoimax(text, &end, 10);
    if (*end != '\0' || errno != 0 || v < INT64_MIN || v > INT64_MAX) return false;
    *value = (int64_t)v;
    return true;
}

bool cli_read_real(const char *text, double *value)
{
    if (text[0] == '\0' || isspace((unsigned char)text[0])) return false;
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    /* A result too small for a double is as good as zero; one too large is not a number to work
     * with. */
    if (*end != '\0' || !isfinite(v)) return false;
    *value = v;
    return true;
}

bool cli_read_bytes(const char *text, int64_t *size_bytes)
{
    size_t n_digits = strspn(text, "0123456789");
    char digits[24];
    if (n_digits == 0 || n_digits >= sizeof digits) return false;
    memcpy(digits, text, n_digits);
    digits[n_digits] = '\0';
    int64_t v;
    if (!cli_read_int(digits, &v)) return false;
    int shift = 0;
    const char *unit = text + n_digits;
    if (*unit != '\0') {
        const char *known = strchr("KMG", toupper((unsigned char)*unit));
        if (known == NULL || unit[1] != '\0') return false;
        shift = 10 * (int)(known - "KMG" + 1);
    }
    return !__builtin_mul_overflow(v, INT64_C(1) << shift, size_bytes);
}

/* ---- messages -------------------------------------------------------------------------------- */

int cli_usage_error(const struct cli_command *command, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "gradmesh %s: %s; see gradmesh %s --help\n", command->name, text,
            command->name);
    return CLI_EXIT_USAGE;
}

/* How many letters must be changed, added, left out or swapped with their neighbour (Damerau, "A
 * technique for computer detection and correction of spelling errors", CACM 1964). */
static size_t edit_distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a >= MAX || n_b >= MAX) return MAX;
    size_t d[MAX + 1][MAX + 1];
    for (size_t i = 0; i <= n_a; i++) d[i][0] = i;
    for (size_t j = 0; j <= n_b; j++) d[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (is_swap && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n_a][n_b];
}

const char *cli_nearest(const char *word, const char *const *names)
{
    const char *nearest = NULL;
    size_t n_word = strlen(word);
    size_t limit = n_word < 3 ? 1 : n_word < 6 ? 2 : 3;
    size_t best = limit + 1;
    for (; n_word && *names != NULL; names++) {
        /* The beginning of a name is a better guess than anything that merely resembles it. */
        size_t distance = strncmp(*names, word, n_word) == 0 ? 0 : edit_distance(word, *names);
        if (distance < best && distance < strlen(*names)) {
            best = distance;
            nearest = *names;
        }
    }
    return nearest;
}

static int unknown_option(const struct table *t, const char *word)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *names[n_options(t) + 1];
    for (size_t i = 0; i < n_options(t); i++) names[i] = option_at(t, i)->name;
    names[n_options(t)] = NULL;
    const char *nearest = cli_nearest(name, names);
    if (nearest == NULL) return cli_usage_error(t->command, "unknown option --%s", name);
    return cli_usage_error(t->command, "unknown option --%s (did you mean --%s?)", name, nearest);
}

static const char *what_is_wanted(enum cli_kind kind)
{
    switch (kind) {
    case CLI_INT:
        return "a whole number";
    case CLI_REAL:
        return "a number";
    case CLI_BYTES:
        return "a size in bytes, such as 65536, 64K, 16M or 1G";
    case CLI_INT_LIST:
        return "whole numbers with commas between them, such as 1,2,4";
    case CLI_BYTES_LIST:
        return "sizes in bytes with commas between them, such as 4K,1M";
    default:
        return "a value";
    }
}

/* "--lr", or "-n (--workers)" for an option that people know by its letter. */
static const char *spelled(const struct cli_option *o, char *text, size_t text_bytes)
{
    if (o->letter) snprintf(text, text_bytes, "-%c (--%s)", o->letter, o->name);
    else snprintf(text, text_bytes, "--%s", o->name);
    return text;
}

static bool wrong_value(const struct cli_command *command, const struct cli_option *o,
                        const char *value)
{
    char name[80];
    cli_usage_error(command, "%s wants %s, not '%s'", spelled(o, name, sizeof name),
                    what_is_wanted(o->kind), value);
    return false;
}

static bool out_of_range(const struct cli_command *command, const struct cli_option *o,
                         const char *value)
{
    char name[80], low[24], high[24];
    spelled(o, name, sizeof name);
    if (o->kind == CLI_REAL) {
        snprintf(low, sizeof low, "%g", o->min_real);
        snprintf(high, sizeof high, "%g", o->max_real);
    } else {
        snprintf(low, sizeof low, "%" PRId64, o->min);
        snprintf(high, sizeof high, "%" PRId64, o->max);
    }
    bool has_no_end = o->kind == CLI_REAL ? isinf(o->max_real) : o->max == INT64_MAX;
    if (has_no_end) cli_usage_error(command, "%s must be at least %s, not %s", name, low, value);
    else cli_usage_error(command, "%s must be from %s to %s, not %s", name, low, high, value);
    return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_in_range(const struct cli_option *o, int64_t v)
{
    return (o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max);
}

static bool take_list(const struct cli_command *command, const struct cli_option *o,
                      const char *value)
{
    o->list->n_values = 0;
    const char *at = value;
    for (;;) {
        char word[32];
        size_t n_word = strcspn(at, ",");
        if (n_word >= sizeof word) return wrong_value(command, o, value);
        memcpy(word, at, n_word);
        word[n_word] = '\0';
        int64_t v;
        bool is_number =
            o->kind == CLI_INT_LIST ? cli_read_int(word, &v) : cli_read_bytes(word, &v);
        if (!is_number) return wrong_value(command, o, value);
        if (!is_in_range(o, v)) return out_of_range(command, o, word);
        if (o->list->n_values == CLI_LIST_MAX) {
            cli_usage_error(command, "--%s takes at most %d numbers", o->name, CLI_LIST_MAX);
            return false;
        }
        o->list->values[o->list->n_values++] = v;
        if (at[n_word] == '\0') return true;
        at += n_word + 1;
    }
}

static bool take_choice(const struct cli_command *command, const struct cli_option *o,
                        const char *value)
{
    char all[512] = "";
    size_t used = 0;
    for (int i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(o->choices[i], value) == 0) {
            *o->choice = i;
            return true;
        }
        int n = snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", o->choices[i]);
        used += n > 0 && (size_t)n < sizeof all - used ? (size_t)n : 0;
    }
    const char *nearest = cli_nearest(value, o->choices);
    cli_usage_error(command, "--%s is one of %s, not '%s'%s%s%s", o->name, all, value,
                    nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
    return false;
}

/* Gives the option its value; false after a usage error. `value` is NULL for a flag that was given.
 */
static bool take_value(const struct cli_command *command, const struct cli_option *o,
                       const char *value)
{
    if (o->kind == CLI_FLAG) {
        *o->flag = value == NULL;
        return true;
    }
    if (o->kind == CLI_TEXT) {
        *o->text = value;
        return true;
    }
    GMI_CHECK(value != NULL); /* getopt_long sees to that */
    switch (o->kind) {
    case CLI_CHOICE:
        return take_choice(command, o, value);
    case CLI_INT_LIST:
    case CLI_BYTES_LIST:
        return take_list(command, o, value);
    case CLI_REAL: {
        bool is_free = o->min_real == 0 && o->max_real == 0;
        if (!cli_read_real(value, o->real)) return wrong_value(command, o, value);
        if (is_free || (*o->real >= o->min_real && *o->real <= o->max_real)) return true;
        return out_of_range(command, o, value);
    }
    case CLI_INT:
    case CLI_BYTES: {
        bool is_number = o->kind == CLI_INT ? cli_read_int(value, o->integer)
                                            : cli_read_bytes(value, o->size_bytes);
        if (!is_number) return wrong_value(command, o, value);
        return is_in_range(o, *o->integer) || out_of_range(command, o, value);
    }
    default:
        return false;
    }
}

static void take_default(const struct table *t, const struct cli_option *o)
{
    if (o->was_given != NULL) *o->was_given = false;
    if (o->default_text != NULL) {
        /* A default that its own option would refuse is a mistake of ours. */
        GMI_CHECK(o->kind != CLI_FLAG && take_value(t->command, o, o->default_text));
        return;
    }
    switch (o->kind) {
    case CLI_FLAG:
        *o->flag = false;
        break;
    case CLI_INT:
        *o->integer = 0;
        break;
    case CLI_BYTES:
        *o->size_bytes = 0;
        break;
    case CLI_REAL:
        *o->real = 0;
        break;
    case CLI_TEXT:
        *o->text = NULL;
        break;
    case CLI_CHOICE:
        *o->choice = -1;
        break;
    case CLI_INT_LIST:
    case CLI_BYTES_LIST:
        o->list->n_values = 0;
        break;
    }
}

/* ---- help ------------------------------------------------------------------------------------ */

static const char *value_name(const struct table *t, const struct cli_option *o)
{
    if (is_json(t, o)) return "[=FILE]";
    if (o->value_name != NULL) return o->value_name;
    switch (o->kind) {
    case CLI_FLAG:
        return "";
    case CLI_INT:
        return "N";
    case CLI_REAL:
        return "X";
    case CLI_BYTES:
        return "BYTES";
    case CLI_TEXT:
        return "TEXT";
    case CLI_CHOICE:
        return "NAME";
    case CLI_INT_LIST:
        return "N,N,...";
    case CLI_BYTES_LIST:
        return "BYTES,...";
    }
    return "";
}

/* "  -n, --workers N"; choices are spelled out where the value's name would stand. */
static void left_column(const struct table *t, const struct cli_option *o, char *text,
                        size_t text_bytes)
{
    char values[128] = "";
    if (o->kind == CLI_CHOICE && o->value_name == NULL) {
        size_t used = 0;
        for (int i = 0; o->choices[i] != NULL && used < sizeof values; i++) {
            used += (size_t)snprintf(values + used, sizeof values - used, "%s%s", i ? "|" : "",
                                     o->choices[i]);
        }
    } else {
        snprintf(values, sizeof values, "%s", value_name(t, o));
    }
    char letter[8] = "   ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c,", o->letter);
    snprintf(text, text_bytes, "  %s --%s%s%s", letter, o->name,
             values[0] && values[0] != '[' ? " " : "", values);
}

static void print_help(const struct table *t)
{
    enum { HELP_COLUMN = 28 };
    printf("usage: gradmesh %s %s\n\n%s\noptions:\n", t->command->name, t->command->usage,
           t->command->summary);
    for (size_t i = 0; i < n_options(t); i++) {
        const struct cli_option *o = option_at(t, i);
        char left[192];
        left_column(t, o, left, sizeof left);
        printf("%-*s", HELP_COLUMN, left);
        if (strlen(left) >= HELP_COLUMN) printf("\n%-*s", HELP_COLUMN, "");
        for (const char *c = o->help; *c; c++) {
            putchar(*c);
            if (*c == '\n') printf("%-*s", HELP_COLUMN, "");
        }
        if (o->default_text != NULL && o->default_text[0])
            printf(" (default: %s)", o->default_text);
        putchar('\n');
    }
    if (t->command->notes != NULL) printf("\n%s", t->command->notes);
}

/* ---- the command line ------------------------------------------------------------------------ */

/* The file that belongs to a bare --json: the next word, unless that is an option. Where a program
 * may follow, only a word that cannot be meant as one: it ends in .json, or the "--" comes after
 * it. */
static char *json_file(const struct cli_command *command, int argc, char **argv)
{
    if (optind >= argc || argv[optind][0] == '-' || argv[optind][0] == '\0') return NULL;
    char *word = argv[optind];
    if (command->operands == CLI_OPERANDS_PROGRAM) {
        size_t n_word = strlen(word);
        bool is_named_so = n_word > 5 && strcmp(word + n_word - 5, ".json") == 0;
        bool is_before_dashes = optind + 1 < argc && strcmp(argv[optind + 1], "--") == 0;
        if (!is_named_so && !is_before_dashes) return NULL;
    }
    optind++;
    return word;
}

/* A run of an hour must not end with a result that cannot be written. */
static bool can_write_json(const struct cli_command *command, const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (path[0] == '\0') {
        cli_usage_error(command, "--json= wants the name of a file");
        return false;
    }
    if (slash == NULL) snprintf(folder, sizeof folder, ".");
    else snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path);
    /* A pipe or a device is written as it stands; a file is written beside itself and renamed. */
    if (access(path, W_OK) == 0 || access(folder, W_OK) == 0) return true;
    cli_usage_error(command, "--json cannot write %s: %s", path, strerror(errno));
    return false;
}

/* What getopt_long could not take: says it and returns the exit status. */
static int refuse(const struct table *t, int answer, const char *word)
{
    const struct cli_option *o =
        optopt >= FIRST_CODE ? option_at(t, (size_t)(optopt - FIRST_CODE)) : NULL;
    for (size_t i = 0; o == NULL && optopt && i < n_options(t); i++) {
        if (option_at(t, i)->letter == optopt) o = option_at(t, i);
    }
    char name[80];
    if (answer == ':' && o != NULL) {
        bool is_choice = o->kind == CLI_CHOICE;
        return cli_usage_error(t->command, "%s wants %s after it", spelled(o, name, sizeof name),
                               is_choice ? "one of its names" : what_is_wanted(o->kind));
    }
    if (strncmp(word, "--", 2) != 0)
        return cli_usage_error(t->command, "unknown option -%c", optopt);
    if (o != NULL) return cli_usage_error(t->command, "--%s takes no value", o->name);
    return unknown_option(t, word);
}

/* getopt_long accepts unique beginnings of names. A script that relies on one breaks when an option
 * is added, so only whole names count. */
static bool is_whole_name(const char *word, const struct cli_option *o)
{
    if (strncmp(word, "--", 2) != 0) return true; /* a letter */
    size_t n_name = strcspn(word + 2, "=");
    return n_name == strlen(o->name) && strncmp(word + 2, o->name, n_name) == 0;
}

/* The tables that getopt_long wants. `letters` begins with what decides about operands. */
static void fill_getopt(const struct table *t, struct option *longs, char *letters)
{
    *letters++ = t->command->operands == CLI_OPERANDS_PROGRAM ? '+' : '-';
    *letters++ = ':';
    for (size_t i = 0; i < n_options(t); i++) {
        const struct cli_option *o = option_at(t, i);
        bool takes_value = o->kind != CLI_FLAG;
        longs[i] =
            (struct option){ .name = o->name,
                             .val = FIRST_CODE + (int)i,
                             .has_arg = is_json(t, o) || o->is_value_optional ? optional_argument
                                        : takes_value                         ? required_argument
                                                                              : no_argument };
        if (!o->letter) continue;
        *letters++ = o->letter;
        if (takes_value) *letters++ = ':';
    }
    longs[n_options(t)] = (struct option){ 0 };
    *letters = '\0';
}

static size_t index_of_answer(const struct table *t, int answer)
{
    if (answer >= FIRST_CODE) return (size_t)(answer - FIRST_CODE);
    size_t i = 0;
    while (option_at(t, i)->letter != answer) i++;
    return i;
}

bool cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_parsed *parsed,
               int *exit_status)
{
    *parsed = (struct cli_parsed){ 0 };
    *exit_status = CLI_EXIT_USAGE;
    struct table t;
    table_init(&t, command, parsed);
    for (size_t i = 0; i < n_options(&t); i++) take_default(&t, option_at(&t, i));

    struct option longs[n_options(&t) + 1];
    char letters[2 * n_options(&t) + 3];
    fill_getopt(&t, longs, letters);
    optind = 0; /* glibc's way to start afresh */
    opterr = 0;
    for (;;) {
        /* The word that is read next, for messages. Operands are returned in their order ('-') or
         * end the reading ('+'), so getopt_long never moves words around. */
        char *word = argv[optind ? optind : 1];
        int answer = getopt_long(argc, argv, letters, longs, NULL);
        if (answer == -1 || word == NULL) break;
        if (answer == OPERAND_CODE) {
            if (command->operands == CLI_OPERANDS_NONE) {
                cli_usage_error(command, "unexpected word '%s'", optarg);
                return false;
            }
            argv[1 + parsed->n_operands++] = optarg; /* never beyond what was read */
            continue;
        }
        if (answer == '?' || answer == ':') {
            refuse(&t, answer, word);
            return false;
        }
        const struct cli_option *o = option_at(&t, index_of_answer(&t, answer));
        if (!is_whole_name(word, o)) {
            unknown_option(&t, word);
            return false;
        }
        char *value = is_json(&t, o) && optarg == NULL ? json_file(command, argc, argv) : optarg;
        if (is_json(&t, o) && value != NULL && !can_write_json(command, value)) return false;
        if (!take_value(command, o, value)) return false;
        if (o->was_given != NULL) *o->was_given = true;
        if (t.wants_help) {
            print_help(&t);
            *exit_status = CLI_EXIT_OK;
            return false;
        }
    }
    if (command->operands == CLI_OPERANDS_NONE && optind < argc) {
        cli_usage_error(command, "unexpected word '%s'", argv[optind]);
        return false;
    }
    if (command->operands == CLI_OPERANDS_PROGRAM) {
        parsed->operands = argv + optind;
        parsed->n_operands = argc - optind;
    } else {
        parsed->operands = argv + 1;
        while (optind < argc) argv[1 + parsed->n_operands++] = argv[optind++];
        argv[1 + parsed->n_operands] = NULL;
    }
    return true;
}
