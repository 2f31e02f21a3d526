/* The command line: one byte that chooses, then
 *     0   u8 what a command does with words that are no options, then lines, a word each: for a command with an option of every kind
 *     1   lines: layers, amounts with units, and rates, as options have them */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/args.h"
#include "plan/machine.h"
#include "study/network.h"
#include "tests/fuzz/targets.h"

enum { MAX_WORDS = 24, WORD_BYTES = 200 };

struct values {
    bool            flag, was_given;
    int64_t         integer, size_bytes;
    double          real;
    const char     *text, *optional;
    int             choice;
    struct cli_list list, sizes;
};

static const char *const fruits[] = { "apple", "pear", "plum", NULL };

static void check_values(const struct values *v)
{
    fuzz_check(v->integer >= 1 && v->integer <= 100 && v->size_bytes >= 0 && v->size_bytes <= 1 << 20);
    fuzz_check(v->real >= 0 && v->real <= 1 && v->choice >= -1 && v->choice < 3);
    fuzz_check(v->list.n_values <= CLI_LIST_MAX && v->sizes.n_values <= CLI_LIST_MAX);
    for (size_t i = 0; i < v->list.n_values; i++) fuzz_check(v->list.values[i] >= 1 && v->list.values[i] <= 100000);
}

static void parse_words(enum cli_operands operands, int argc, char **argv)
{
    struct values           v;
    const struct cli_option options[] = {
        { .name = "flag", .letter = 'f', .kind = CLI_FLAG, .flag = &v.flag, .help = "a flag" },
        { .name = "number", .letter = 'n', .kind = CLI_INT, .integer = &v.integer, .default_text = "5", .min = 1, .max = 100,
          .was_given = &v.was_given, .help = "a number" },
        { .name = "bytes", .kind = CLI_BYTES, .size_bytes = &v.size_bytes, .default_text = "4K", .min = 0, .max = 1 << 20, .help = "a size" },
        { .name = "rate", .letter = 'r', .kind = CLI_REAL, .real = &v.real, .min_real = 0, .max_real = 1, .help = "a rate" },
        { .name = "name", .kind = CLI_TEXT, .text = &v.text, .help = "a name" },
        { .name = "live", .kind = CLI_TEXT, .text = &v.optional, .is_value_optional = true, .help = "a port, perhaps" },
        { .name = "fruit", .kind = CLI_CHOICE, .choice = &v.choice, .choices = fruits, .help = "a fruit" },
        { .name = "layers", .kind = CLI_INT_LIST, .list = &v.list, .default_text = "784,10", .min = 1, .max = 100000, .help = "numbers" },
        { .name = "sizes", .kind = CLI_BYTES_LIST, .list = &v.sizes, .help = "sizes" },
    };
    const struct cli_command command = { .name = "test", .usage = "[options]", .summary = "Tests.\n", .operands = operands,
                                         .options = options, .n_options = sizeof options / sizeof options[0] };
    struct cli_parsed parsed;
    int               status = -1;
    memset(&v, 0xaa, sizeof v);
    v.flag = v.was_given = false;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) {
        fuzz_check(status == CLI_EXIT_OK || status == CLI_EXIT_USAGE);
        return;
    }
    check_values(&v);
    fuzz_check(parsed.n_operands >= 0 && parsed.n_operands < argc && parsed.operands[parsed.n_operands] == NULL);
    for (int i = 0; i < parsed.n_operands; i++) fuzz_check(strlen(parsed.operands[i]) < WORD_BYTES);
}

static void read_words(struct fuzz_input *in)
{
    static char       name[] = "test", words[MAX_WORDS][WORD_BYTES];
    char             *argv[MAX_WORDS + 2] = { name };
    enum cli_operands operands = (enum cli_operands)(fuzz_u8(in) % 3);
    int               argc = 1;
    while (argc <= MAX_WORDS && fuzz_line(in, words[argc - 1], WORD_BYTES)) {
        argv[argc] = words[argc - 1];
        argc++;
    }
    argv[argc] = NULL;
    parse_words(operands, argc, argv);
}

static void read_amounts(struct fuzz_input *in)
{
    char              text[WORD_BYTES], again[WORD_BYTES];
    struct gmt_layers layers;
    double            value;
    while (fuzz_line(in, text, sizeof text)) {
        if (gmt_layers_parse(&layers, text, NULL) == GM_OK) {
            fuzz_check(layers.n_sizes >= 2 && layers.n_sizes <= GMT_MAX_LAYERS + 1);
            (void)gmt_layers_format(&layers, again, sizeof again);
        }
        if (plan_read_flops(&value, text)) fuzz_check(isfinite(value) && value > 0);
        if (plan_read_seconds_us(&value, text)) fuzz_check(isfinite(value) && value > 0);
        if (plan_read_bandwidth(&value, text)) fuzz_check(isfinite(value) && value > 0);
        if (study_network_is_rate(text)) fuzz_check(study_network_burst_kB(text) >= 32);
    }
}

void fuzz_arguments(const uint8_t *bytes, size_t n_bytes)
{
    static FILE      *nowhere;
    struct fuzz_input in = { bytes, n_bytes };
    FILE             *out = stdout, *err = stderr;
    if (nowhere == NULL) nowhere = fopen("/dev/null", "we");
    fuzz_check(nowhere != NULL);
    stdout = stderr = nowhere; /* help and sentences; a sanitizer writes past them */
    if (fuzz_u8(&in) % 2 == 0) {
        read_words(&in);
    } else {
        read_amounts(&in);
    }
    stdout = out;
    stderr = err;
}

void fuzz_arguments_seed(fuzz_keep_fn keep, void *user)
{
    static const char *const seeds[] = {
        "00-f\n-n\n7\n--bytes=1K\n--rate\n0.5\n--name\nx\n--live\n--fruit\npear\n--layers=1,2,3\n--sizes\n1K,2M",
        "01a\n--live=80\nb\n--\n-f\nc", "02-fn3\n--json\nx.json\n--\nprogram\n--help", "02-v\nprogram\n-n\n9",
        "00--help", "00--json=/dev/null\n-h", "00--nmuber\n3", "00-n101", "00-x", "00--flag=1", "00--name", "00--fruit=appel",
        "00--bytes=99999999999999999999G", "00--layers=1,,2", "00--sizes=1K,-1", "00--rate=1e400", "00--rate=0x1p-1", "00--", "00-",
        "1784,256,10\n0,1\n1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18\n18446744073709551616,2",
        "150 GFLOP/s\n0.1ms\n25\n1gbit\n117MB\n1.2GB/s\n.5s\n1e308T\nnan\ninf\n0x10\nloopback\n100gbit\n1kbit",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) keep(user, (const uint8_t *)seeds[i], strlen(seeds[i]));
}
