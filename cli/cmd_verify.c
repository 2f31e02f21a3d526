/* cmd_verify.c - `gradmesh verify`: do two runs hold the same bits, and if not, where do they part? */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/train_print.h"
#include "train/verify.h"

static const char summary[] =
    "Compares two checkpoints, two directories of checkpoints, or two logs of `gradmesh train`, bit by bit, and\n"
    "points at the first step, tensor and element that differ.\n";

static const char notes[] =
    "Of directories and logs the steps are compared that both have, from the first on. The log of a reproducible\n"
    "run (--log, --log-every) has a hash of each tensor in every step line, so that it shows step and tensor;\n"
    "checkpoints show the element.\n"
    "\n"
    "exit status: 0 the same; 1 different; 2 wrong usage, or they cannot be compared.\n"
    "\n"
    "examples:\n"
    "  gradmesh verify a.jsonl b.jsonl\n"
    "  gradmesh verify runs/a runs/b --json\n"
    "  gradmesh verify runs/a/step-000000060.safetensors runs/b/step-000000060.safetensors\n";

static const char *const kinds[] = { [GMT_VERIFY_CHECKPOINT] = "checkpoint",
                                     [GMT_VERIFY_DIRECTORY] = "directory",
                                     [GMT_VERIFY_LOG] = "log" };

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* "[3, 71]", or "[3]". */
static const char *place_of(const struct gmt_tensor_difference *d, char text[64])
{
    if (d->n_dims == 2)
        snprintf(text, 64, "[%llu, %llu]", (unsigned long long)(d->first / d->shape[1]),
                 (unsigned long long)(d->first % d->shape[1]));
    else
        snprintf(text, 64, "[%llu]", (unsigned long long)d->first);
    return text;
}

/* ---- for people ---- */

static void print_tensor(FILE *file, const struct gmt_tensor_difference *d, bool is_first)
{
    char different[CLI_GROUPED_BYTES], all[CLI_GROUPED_BYTES], place[64];
    fprintf(file, "  %s", d->name);
    if (d->n_elems > 0)
        fprintf(file, ": %s of %s differ, by %.3g at most", cli_grouped(d->n_different, different),
                cli_grouped(d->n_elems, all), d->max_abs_diff);
    fputc('\n', file);
    if (is_first && d->n_elems > 0)
        fprintf(file, "    first %s: %.9g (0x%08x) and %.9g (0x%08x)\n", place_of(d, place), (double)d->a,
                bits_of(d->a), (double)d->b, bits_of(d->b));
}

static void print_verdict(FILE *file, const struct gmt_verdict *verdict)
{
    char compared[CLI_GROUPED_BYTES];
    if (verdict->are_same) {
        fprintf(file, "the same: ");
        if (verdict->kind == GMT_VERIFY_CHECKPOINT)
            fprintf(file, "every bit of the state after step %llu\n", (unsigned long long)verdict->step);
        else
            fprintf(file, "the states after %s step%s, the last of them step %llu\n",
                    cli_grouped(verdict->n_compared, compared), verdict->n_compared == 1 ? "" : "s",
                    (unsigned long long)verdict->step);
    } else {
        fprintf(file, "DIFFERENT after step %llu%s%s\n", (unsigned long long)verdict->step,
                verdict->reason[0] != '\0' ? ": " : "", verdict->reason);
        for (size_t i = 0; i < verdict->n_tensors; i++) print_tensor(file, &verdict->tensors[i], i == 0);
        if (verdict->n_compared > 1)
            fprintf(file, "  the %s earlier step%s that both have are the same\n",
                    cli_grouped(verdict->n_compared - 1, compared), verdict->n_compared == 2 ? "" : "s");
    }
    if (verdict->are_same && verdict->n_only_a + verdict->n_only_b > 0)
        fprintf(file, "  not compared: %llu step%s that only the first has, %llu that only the second has\n",
                (unsigned long long)verdict->n_only_a, verdict->n_only_a == 1 ? "" : "s",
                (unsigned long long)verdict->n_only_b);
    fflush(file);
}

/* ---- for programs ---- */

static void add_place(cJSON *object, const struct gmt_tensor_difference *d)
{
    char   bits[16];
    cJSON *index = cJSON_AddArrayToObject(object, "index");
    uint64_t row = d->n_dims == 2 ? d->first / d->shape[1] : 0;
    if (d->n_dims == 2) cJSON_AddItemToArray(index, cJSON_CreateNumber((double)row));
    cJSON_AddItemToArray(index, cJSON_CreateNumber((double)(d->first % (d->n_dims == 2 ? d->shape[1] : d->n_elems))));
    cJSON_AddNumberToObject(object, "element", (double)d->first);
    cJSON_AddNumberToObject(object, "a", (double)d->a);
    cJSON_AddNumberToObject(object, "b", (double)d->b);
    snprintf(bits, sizeof bits, "0x%08x", bits_of(d->a));
    cJSON_AddStringToObject(object, "a_bits", bits);
    snprintf(bits, sizeof bits, "0x%08x", bits_of(d->b));
    cJSON_AddStringToObject(object, "b_bits", bits);
}

static cJSON *to_json(const struct gmt_verdict *verdict)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddBoolToObject(object, "same", verdict->are_same);
    cJSON_AddStringToObject(object, "kind", kinds[verdict->kind]);
    cJSON_AddNumberToObject(object, "steps_compared", (double)verdict->n_compared);
    cJSON_AddNumberToObject(object, "step", (double)verdict->step);
    if (verdict->are_same) return object;
    if (verdict->reason[0] != '\0') cJSON_AddStringToObject(object, "reason", verdict->reason);
    if (verdict->n_tensors > 0) {
        cJSON_AddStringToObject(object, "tensor", verdict->tensors[0].name);
        if (verdict->tensors[0].n_elems > 0) add_place(object, &verdict->tensors[0]);
    }
    cJSON *tensors = cJSON_AddArrayToObject(object, "tensors");
    for (size_t i = 0; i < verdict->n_tensors; i++) {
        const struct gmt_tensor_difference *d = &verdict->tensors[i];
        cJSON                              *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "name", d->name);
        if (d->n_elems > 0) {
            cJSON_AddNumberToObject(entry, "elements", (double)d->n_elems);
            cJSON_AddNumberToObject(entry, "different", (double)d->n_different);
            cJSON_AddNumberToObject(entry, "max_abs_diff", d->max_abs_diff);
        }
        cJSON_AddItemToArray(tensors, entry);
    }
    return object;
}

/* ---- the command ---- */

static int verify(const struct cli_parsed *parsed)
{
    struct gmt_verdict *verdict = gmi_alloc(1, sizeof *verdict);
    gm_error            error;
    int                 status = CLI_EXIT_USAGE;
    gmi_error_clear(&error);
    if (verdict == NULL) {
        fprintf(stderr, "gradmesh verify: no memory\n");
    } else if (gmt_verify(parsed->operands[0], parsed->operands[1], verdict, &error) != GM_OK) {
        fprintf(stderr, "gradmesh verify: %s\n", error.text);
    } else {
        print_verdict(cli_text(parsed), verdict);
        cJSON *object = parsed->wants_json ? to_json(verdict) : NULL;
        status = !cli_write_json(parsed, "verify", object) ? CLI_EXIT_USAGE
                 : verdict->are_same                       ? CLI_EXIT_OK
                                                           : CLI_EXIT_NO;
        cJSON_Delete(object);
    }
    gmi_free(verdict);
    return status;
}

int cli_cmd_verify(int argc, char **argv)
{
    const struct cli_command command = { .name = "verify", .usage = "A B", .summary = summary, .notes = notes,
                                         .operands = CLI_OPERANDS_ANYWHERE };
    struct cli_parsed        parsed;
    int                      status;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    if (parsed.n_operands != 2)
        return cli_usage_error(&command, "give two checkpoints, two directories or two logs, not %d names",
                               parsed.n_operands);
    return verify(&parsed);
}
