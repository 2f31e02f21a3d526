#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"

/* ---- a command with an option of each kind --------------------------------------------------- */

struct values {
    bool flag, was_given;
    int64_t integer, size_bytes;
    double real;
    const char *text;
    int choice;
    struct cli_list list, sizes;
};

static const char *const fruits[] = { "apple", "pear", "plum", NULL };

struct outcome {
    bool goes_on;
    int exit_status;
    struct cli_parsed parsed;
    struct values values;
    char said[4096]; /* on standard output and error */
};

/* Parses the words, which end with NULL, with both outputs captured. */
static void parse_into(struct outcome *o, enum cli_operands operands, char **argv)
{
    struct values *v = &o->values;
    /* clang-format off */
    const struct cli_option options[] = {
        { .name = "flag", .letter = 'f', .kind = CLI_FLAG, .flag = &v->flag, .help = "a flag" },
        { .name = "number", .letter = 'n', .kind = CLI_INT, .integer = &v->integer,
          .default_text = "5", .min = 1, .max = 100, .was_given = &v->was_given,
          .help = "a number" },
        { .name = "bytes", .kind = CLI_BYTES, .size_bytes = &v->size_bytes, .default_text = "4K",
          .min = 0, .max = INT64_MAX, .help = "a size" },
        { .name = "rate", .kind = CLI_REAL, .real = &v->real, .min_real = 0, .max_real = 1,
          .help = "a rate" },
        { .name = "name", .kind = CLI_TEXT, .text = &v->text, .help = "a name" },
        { .name = "fruit", .kind = CLI_CHOICE, .choice = &v->choice, .choices = fruits,
          .help = "a fruit" },
        { .name = "layers", .kind = CLI_INT_LIST, .list = &v->list, .default_text = "784,10",
          .min = 1, .max = 100000, .help = "numbers" },
        { .name = "sizes", .kind = CLI_BYTES_LIST, .list = &v->sizes, .help = "sizes" },
    };
    /* clang-format on */
    const struct cli_command command = {
        .name = "test",
        .usage = "[options]",
        .summary = "Tests.\n",
        .notes = "The end.\n",
        .operands = operands,
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    int argc = 0;
    while (argv[argc] != NULL) argc++;

    FILE *file = tmpfile();
    int saved_out = dup(STDOUT_FILENO), saved_err = dup(STDERR_FILENO);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    o->goes_on = cli_parse(&command, argc, argv, &o->parsed, &o->exit_status);
    fflush(stdout);
    dup2(saved_out, STDOUT_FILENO);
    dup2(saved_err, STDERR_FILENO);
    close(saved_out);
    close(saved_err);
    rewind(file);
    o->said[fread(o->said, 1, sizeof o->said - 1, file)] = '\0';
    fclose(file);
}

/* The words are copied, because parsing reorders them. */
#define PARSE(outcome, operands, ...)                                                              \
    char *words_[] = { (char[]){ "test" }, __VA_ARGS__, NULL };                                    \
    parse_into(outcome, operands, words_)
#define W(text) ((char[]){ text })

static void assert_refused(const struct outcome *o, const char *sentence)
{
    assert_false(o->goes_on);
    assert_int_equal(o->exit_status, CLI_EXIT_USAGE);
    char wanted[512];
    snprintf(wanted, sizeof wanted, "gradmesh test: %s; see gradmesh test --help\n", sentence);
    assert_string_equal(o->said, wanted);
}

/* ---- good command lines ---------------------------------------------------------------------- */

static void defaults_are_taken_from_the_table(void **state)
{
    (void)state;
    struct outcome o;
    char *argv[] = { W("test"), NULL };
    parse_into(&o, CLI_OPERANDS_NONE, argv);
    assert_true(o.goes_on);
    assert_string_equal(o.said, "");
    assert_false(o.values.flag);
    assert_false(o.values.was_given);
    assert_int_equal(o.values.integer, 5);
    assert_int_equal(o.values.size_bytes, 4096);
    assert_true(o.values.real == 0);
    assert_null(o.values.text);
    assert_int_equal(o.values.choice, -1);
    assert_int_equal(o.values.list.n_values, 2);
    assert_int_equal(o.values.list.values[0], 784);
    assert_int_equal(o.values.sizes.n_values, 0);
    assert_false(o.parsed.is_verbose || o.parsed.wants_json);
    assert_int_equal(o.parsed.n_operands, 0);
}

static void every_kind_takes_its_value_in_every_spelling(void **state)
{
    (void)state;
    struct outcome o;
    PARSE(&o, CLI_OPERANDS_NONE, W("-fvn7"), W("--bytes=2M"), W("--rate"), W("0.25"), W("--name="),
          W("--fruit"), W("plum"), W("--layers=3,2,1"), W("--sizes"), W("1,2K,3G"));
    assert_true(o.goes_on);
    assert_true(o.values.flag && o.parsed.is_verbose && o.values.was_given);
    assert_int_equal(o.values.integer, 7);
    assert_int_equal(o.values.size_bytes, 2 << 20);
    assert_true(o.values.real == 0.25);
    assert_string_equal(o.values.text, "");
    assert_int_equal(o.values.choice, 2);
    assert_int_equal(o.values.list.n_values, 3);
    assert_int_equal(o.values.list.values[2], 1);
    assert_int_equal(o.values.sizes.values[2], INT64_C(3) << 30);
}

static void the_last_of_two_values_counts(void **state)
{
    (void)state;
    struct outcome o;
    PARSE(&o, CLI_OPERANDS_NONE, W("-n"), W("7"), W("--number=8"));
    assert_int_equal(o.values.integer, 8);
}

static void operands_may_stand_anywhere(void **state)
{
    (void)state;
    struct outcome o;
    PARSE(&o, CLI_OPERANDS_ANYWHERE, W("one"), W("-n"), W("7"), W("two"), W("--flag"), W("--"),
          W("--three"));
    assert_true(o.goes_on);
    assert_int_equal(o.values.integer, 7);
    assert_int_equal(o.parsed.n_operands, 3);
    assert_string_equal(o.parsed.operands[0], "one");
    assert_string_equal(o.parsed.operands[1], "two");
    assert_string_equal(o.parsed.operands[2], "--three");
    assert_null(o.parsed.operands[3]);
}

static void a_program_ends_the_options(void **state)
{
    (void)state;
    struct outcome o;
    PARSE(&o, CLI_OPERANDS_PROGRAM, W("-n7"), W("program"), W("--flag"), W("--"), W("x"));
    assert_true(o.goes_on);
    assert_false(o.values.flag);
    assert_int_equal(o.parsed.n_operands, 4);
    assert_string_equal(o.parsed.operands[0], "program");
    assert_string_equal(o.parsed.operands[2], "--");
}

static void json_takes_the_next_word_unless_it_is_an_option(void **state)
{
    (void)state;
    struct outcome o;
    {
        PARSE(&o, CLI_OPERANDS_NONE, W("--json"), W("-f"));
        assert_true(o.goes_on && o.parsed.wants_json && o.values.flag);
        assert_null(o.parsed.json_path);
    }
    {
        PARSE(&o, CLI_OPERANDS_NONE, W("--json"), W("file"), W("-f"));
        assert_true(o.goes_on && o.parsed.wants_json && o.values.flag);
        assert_string_equal(o.parsed.json_path, "file");
    }
    {
        PARSE(&o, CLI_OPERANDS_NONE, W("--json=file"));
        assert_string_equal(o.parsed.json_path, "file");
    }
    {
        PARSE(&o, CLI_OPERANDS_PROGRAM, W("--json"), W("program"));
        assert_null(o.parsed.json_path);
        assert_int_equal(o.parsed.n_operands, 1);
    }
    {
        PARSE(&o, CLI_OPERANDS_PROGRAM, W("--json"), W("result"), W("--"), W("program"));
        assert_string_equal(o.parsed.json_path, "result");
        assert_int_equal(o.parsed.n_operands, 1);
    }
    {
        PARSE(&o, CLI_OPERANDS_PROGRAM, W("--json"), W("result.json"), W("program"));
        assert_string_equal(o.parsed.json_path, "result.json");
        assert_int_equal(o.parsed.n_operands, 1);
    }
}

static void help_shows_every_option_with_its_default(void **state)
{
    (void)state;
    struct outcome o;
    PARSE(&o, CLI_OPERANDS_NONE, W("--help"), W("--nonsense"));
    assert_false(o.goes_on);
    assert_int_equal(o.exit_status, CLI_EXIT_OK);
    static const char *const wanted[] = {
        "usage: gradmesh test [options]\n",
        "Tests.\n",
        "  -n, --number N ",
        "(default: 5)",
        "--bytes BYTES",
        "--fruit apple|pear|plum",
        "--json[=FILE]",
        "-v, --verbose",
        "-h, --help",
        "The end.\n",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        assert_non_null(strstr(o.said, wanted[i]));
}

/* ---- bad ones -------------------------------------------------------------------------------- */

static void wrong_usage_is_answered_in_one_sentence(void **state)
{
    (void)state;
    /* clang-format off */
    static const struct {
        const char *words[3];
        const char *sentence;
    } cases[] = {
        { { "--number", "x" }, "-n (--number) wants a whole number, not 'x'" },
        { { "--number", "" }, "-n (--number) wants a whole number, not ''" },
        { { "--number=7 " }, "-n (--number) wants a whole number, not '7 '" },
        { { "--number= 7" }, "-n (--number) wants a whole number, not ' 7'" },
        { { "--number=0x7" }, "-n (--number) wants a whole number, not '0x7'" },
        { { "--number=99999999999999999999" }, "-n (--number) wants a whole number, not '99999999999999999999'" },
        { { "-n0" }, "-n (--number) must be from 1 to 100, not 0" },
        { { "-n", "101" }, "-n (--number) must be from 1 to 100, not 101" },
        { { "-n" }, "-n (--number) wants a whole number after it" },
        { { "--rate", "nan" }, "--rate wants a number, not 'nan'" },
        { { "--rate", "1.5" }, "--rate must be from 0 to 1, not 1.5" },
        { { "--bytes=4Q" }, "--bytes wants a size in bytes, such as 65536, 64K, 16M or 1G, not '4Q'" },
        { { "--bytes=9999999999G" }, "--bytes wants a size in bytes, such as 65536, 64K, 16M or 1G, not '9999999999G'" },
        { { "--bytes=-1" }, "--bytes wants a size in bytes, such as 65536, 64K, 16M or 1G, not '-1'" },
        { { "--layers=1,,2" }, "--layers wants whole numbers with commas between them, such as 1,2,4, not '1,,2'" },
        { { "--layers=1,0" }, "--layers must be from 1 to 100000, not 0" },
        { { "--fruit=aple" }, "--fruit is one of apple, pear, plum, not 'aple' (did you mean apple?)" },
        { { "--fruit=kiwi" }, "--fruit is one of apple, pear, plum, not 'kiwi'" },
        { { "--flag=yes" }, "--flag takes no value" },
        { { "--nubmer", "3" }, "unknown option --nubmer (did you mean --number?)" },
        { { "--num=3" }, "unknown option --num (did you mean --number?)" },
        { { "--wholly-unlike" }, "unknown option --wholly-unlike" },
        { { "-x" }, "unknown option -x" },
        { { "-fx" }, "unknown option -x" },
        { { "word" }, "unexpected word 'word'" },
        { { "--", "word" }, "unexpected word 'word'" },
        { { "--json=" }, "--json= wants the name of a file" },
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[3][64], *argv[5] = { W("test") };
        for (int w = 0; w < 3 && cases[i].words[w] != NULL; w++) {
            snprintf(words[w], sizeof words[w], "%s", cases[i].words[w]);
            argv[1 + w] = words[w];
        }
        struct outcome o;
        parse_into(&o, CLI_OPERANDS_NONE, argv);
        assert_refused(&o, cases[i].sentence);
    }
}

/* ---- the parts ------------------------------------------------------------------------------- */

static void whole_numbers_reach_their_limits_and_no_further(void **state)
{
    (void)state;
    int64_t v;
    assert_true(cli_read_int("9223372036854775807", &v) && v == INT64_MAX);
    assert_true(cli_read_int("-9223372036854775808", &v) && v == INT64_MIN);
    assert_false(cli_read_int("9223372036854775808", &v));
    assert_true(cli_read_bytes("8388607T" + 8, &v) == false); /* "" */
    assert_true(cli_read_bytes("8589934591G", &v) && v == INT64_C(8589934591) << 30);
    assert_false(cli_read_bytes("8589934592G", &v));
}

static void the_nearest_name_is_one_that_resembles(void **state)
{
    (void)state;
    static const char *const names[] = { "train", "run", "eval", "predict", NULL };
    assert_string_equal(cli_nearest("trian", names), "train");
    assert_string_equal(cli_nearest("pre", names), "predict");
    assert_string_equal(cli_nearest("rum", names), "run");
    assert_null(cli_nearest("benchmark", names));
    assert_null(cli_nearest("", names));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_taken_from_the_table),
        cmocka_unit_test(every_kind_takes_its_value_in_every_spelling),
        cmocka_unit_test(the_last_of_two_values_counts),
        cmocka_unit_test(operands_may_stand_anywhere),
        cmocka_unit_test(a_program_ends_the_options),
        cmocka_unit_test(json_takes_the_next_word_unless_it_is_an_option),
        cmocka_unit_test(help_shows_every_option_with_its_default),
        cmocka_unit_test(wrong_usage_is_answered_in_one_sentence),
        cmocka_unit_test(whole_numbers_reach_their_limits_and_no_further),
        cmocka_unit_test(the_nearest_name_is_one_that_resembles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
