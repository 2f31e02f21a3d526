#include "cli/train_print.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define REDRAW_NS (GMI_NS_PER_S / 10)
#define ROWS_PER_EPOCH 3 /* where they cannot be redrawn */

char *cli_grouped(uint64_t number, char text[CLI_GROUPED_BYTES])
{
    char digits[24];
    int  n_digits = snprintf(digits, sizeof digits, "%llu", (unsigned long long)number), out = 0;
    for (int i = 0; i < n_digits; i++) {
        if (i > 0 && (n_digits - i) % 3 == 0) text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

/* Several numbers in one printf need a buffer each. */
#define GROUPED(number) cli_grouped((uint64_t)(number), (char[CLI_GROUPED_BYTES]){ 0 })

static double percent(int64_t part_ns, int64_t whole_ns)
{
    return whole_ns <= 0 ? 0 : 100 * (double)part_ns / (double)whole_ns;
}

static double mega(uint64_t bytes) { return (double)bytes / 1e6; }

/* ---- the start ------------------------------------------------------------------------------- */

static void print_optimizer(FILE *file, const struct gmt_recipe *recipe)
{
    const struct gmt_optimizer_options *optimizer = &recipe->optimizer;
    fprintf(file, "%s", gmt_optimizer_name(optimizer->kind));
    if (optimizer->kind == GMT_MOMENTUM) fprintf(file, " %g", optimizer->momentum);
    fprintf(file, ", learning rate %g %s", recipe->learning_rate,
            gmt_schedule_name(recipe->schedule));
    if (recipe->warmup_steps > 0)
        fprintf(file, " after %s steps of warm-up", GROUPED(recipe->warmup_steps));
    if (optimizer->weight_decay > 0) fprintf(file, ", weight decay %g", optimizer->weight_decay);
    fprintf(file, ", seed %llu\n", (unsigned long long)recipe->seed);
}

static void print_shards(FILE *file, const struct gmt_recipe *recipe)
{
    size_t first, largest, smallest, n = recipe->shards;
    gm_chunk(recipe->batch, (int)n, 0, &first, &largest);
    gm_chunk(recipe->batch, (int)n, (int)n - 1, &first, &smallest);
    fprintf(file, "  batch     %s samples in all, in %zu shard%s of ", GROUPED(recipe->batch), n,
            n == 1 ? "" : "s");
    if (smallest != largest) fprintf(file, "%zu or ", smallest);
    fprintf(file, "%zu; gradients are added exactly\n", largest);
}

static void print_shares(FILE *file, const struct gmt_recipe *recipe, int world_size)
{
    size_t first, largest, smallest;
    gm_chunk(recipe->batch, world_size, 0, &first, &largest);
    gm_chunk(recipe->batch, world_size, world_size - 1, &first, &smallest);
    fprintf(file, "  batch     %s samples in all", GROUPED(recipe->batch));
    if (world_size > 1) {
        fprintf(file, ", ");
        if (smallest != largest) fprintf(file, "%zu or ", smallest);
        fprintf(file, "%zu on each worker", largest);
    }
    if (recipe->accumulate > 1) fprintf(file, ", in %zu parts", recipe->accumulate);
    fprintf(file, "; gradients are averaged over the whole batch\n");
}

void cli_print_start(struct cli_train_printer *printer, const struct gmt_data *data,
                     const char *exchange, int n_threads, uint64_t first_step)
{
    const struct gmt_recipe *recipe = printer->recipe;
    FILE                    *file = printer->file;
    char                     layers[256];
    size_t                   n_params = 0;
    gmt_layers_format(&recipe->layers, layers, sizeof layers);
    for (int i = 0; i + 1 < recipe->layers.n_sizes; i++)
        n_params += (recipe->layers.sizes[i] + 1) * recipe->layers.sizes[i + 1];
    for (char *c = layers; *c != '\0'; c++)
        if (*c == ',') *c = '-';
    fprintf(file, "  data      %s: %s samples to learn from, %s to be tested on\n", data->source,
            GROUPED(data->train.n_samples), GROUPED(data->test.n_samples));
    fprintf(file, "  network   %s, %s parameters\n", layers, GROUPED(n_params));
    if (recipe->shards > 0) print_shards(file, recipe);
    else print_shares(file, recipe, printer->world_size);
    fprintf(file, "  training  %s steps, %s to the epoch; ", GROUPED(recipe->total_steps),
            GROUPED(printer->n_batches));
    print_optimizer(file, recipe);
    fprintf(file, "  workers   %d; %d thread%s for each\n", printer->world_size, n_threads,
            n_threads == 1 ? "" : "s");
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    if ((long)printer->world_size * n_threads < n_cores)
        fprintf(file,
                "            (of %ld cores some stay idle: more workers, or --threads, may be "
                "faster)\n",
                n_cores);
    if (exchange[0] != '\0') fprintf(file, "  exchange  %s\n", exchange);
    if (first_step > 0) fprintf(file, "  resumed   after step %s\n", GROUPED(first_step));
    fprintf(file,
            "\nepoch         step    loss  samples/s  compute  exchange  waiting  hidden  accuracy\n");
    fflush(file);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Goes back over the row, if there is one that may go. */
static void take_row_back(struct cli_train_printer *printer)
{
    if (printer->has_row) fputs("\033[A\r\033[2K", printer->file);
    printer->has_row = false;
}

/* Without the end of the line. */
static void print_row(struct cli_train_printer *printer, uint64_t step,
                      const struct gmt_report *report, const char *accuracy)
{
    char                         where[2 * CLI_GROUPED_BYTES], loss[32];
    const struct gmt_time_split *split = &report->split;
    snprintf(where, sizeof where, "%s/%s", GROUPED(step), GROUPED(printer->recipe->total_steps));
    snprintf(loss, sizeof loss, report->loss < 100 ? "%.4f" : "%.3g", report->loss);
    fprintf(printer->file, "%5llu  %11s  %6s  %9s  %5.0f %%  %6.0f %%  %5.0f %%  %4.0f %%%s%s",
            (unsigned long long)report->epoch + 1, where, loss,
            GROUPED(report->samples_per_s + 0.5), percent(split->compute_ns, split->elapsed_ns),
            percent(split->comm_exposed_ns, split->elapsed_ns),
            percent(split->wait_ns, split->elapsed_ns),
            percent(split->comm_hidden_ns, split->elapsed_ns), accuracy[0] ? "   " : "", accuracy);
}

/* A row that the next one replaces. */
static void draw_row(struct cli_train_printer *printer, uint64_t step)
{
    take_row_back(printer);
    fputs("\033[?7l", printer->file); /* a row that is wrapped would take two lines back */
    print_row(printer, step, &printer->last, "");
    fputs("\033[?7h\n", printer->file);
    fflush(printer->file);
    printer->has_row = true;
    printer->drawn_ns = gmi_now_ns();
}

void cli_print_report(struct cli_train_printer *printer, const struct gmt_report *report)
{
    printer->last = *report;
    /* The epoch's row follows. */
    if (report->is_epoch_end || report->step == printer->recipe->total_steps) return;
    if (printer->is_live) {
        draw_row(printer, report->step);
    } else if (report->step >= printer->next_row_step) {
        print_row(printer, report->step, report, "");
        fputc('\n', printer->file);
        fflush(printer->file);
        printer->next_row_step = report->step + printer->n_batches / (ROWS_PER_EPOCH + 1) + 1;
    }
}

void cli_print_step(struct cli_train_printer *printer, uint64_t step)
{
    if (printer->is_live && printer->last.step > 0 && gmi_now_ns() - printer->drawn_ns >= REDRAW_NS)
        draw_row(printer, step);
}

void cli_print_epoch(struct cli_train_printer *printer, const struct gmt_epoch_report *report)
{
    char accuracy[32] = "";
    struct gmt_report row = printer->last;
    row.epoch = report->epoch;
    row.loss = report->loss;
    row.split = report->split;
    if (report->test.n_samples > 0)
        snprintf(accuracy, sizeof accuracy, "%5.2f %%", 100 * report->test.accuracy);
    take_row_back(printer);
    print_row(printer, report->step, &row, accuracy);
    fputc('\n', printer->file);
    fflush(printer->file);
    printer->next_row_step = report->step + printer->n_batches / (ROWS_PER_EPOCH + 1) + 1;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void print_bits(FILE *file, const struct gmt_end *end)
{
    if (end->world_size == 1 || end->are_identical) {
        fprintf(file, "  bits       ");
        if (end->world_size > 1) fprintf(file, "all %d workers hold the same ones: ", end->world_size);
        fprintf(file, "state %.16s...\n", end->state_hash);
        if (end->shards > 0)
            fprintf(file, "             the same as with any number of workers, of %zu shards each step\n",
                    end->shards);
        return;
    }
    fprintf(file, "  bits       THE WORKERS DIFFER\n");
    for (int r = 0; r < end->world_size; r++)
        fprintf(file, "             rank %d holds %s\n", r, end->accounts[r].state_hash);
}

static void print_precision(FILE *file, const struct gmt_difference *difference, uint64_t n_steps)
{
    if (difference == NULL) return;
    fprintf(file, "  precision  the first %s steps done again by one process, batches undivided:\n",
            GROUPED(n_steps));
    fprintf(file, "             %s of %s parameters have the same bits",
            GROUPED(difference->n_equal), GROUPED(difference->n_elems));
    if (difference->n_equal == difference->n_elems) fprintf(file, "\n");
    else fprintf(file, ", the others differ by %.3g at most\n", difference->max_abs_diff);
}

/* What the kernel says to our count. It sees nothing of what goes through shared memory. */
static void compare_with_kernel(const struct gmt_rank_account *account, char *text, size_t text_bytes)
{
    uint64_t by_tcp = account->payload_sent_bytes + account->protocol_sent_bytes - account->memory_sent_bytes;
    bool     agrees = account->kernel_sent_bytes == by_tcp;
    if (!account->has_kernel_count)
        snprintf(text, text_bytes, "the kernel did not say");
    else if (!agrees)
        snprintf(text, text_bytes, "%s of all by TCP, of which THE KERNEL COUNTED %s", GROUPED(by_tcp),
                 GROUPED(account->kernel_sent_bytes));
    else if (account->memory_sent_bytes > 0)
        snprintf(text, text_bytes, "%s of all by TCP, as the kernel says, the rest through memory",
                 GROUPED(by_tcp));
    else
        snprintf(text, text_bytes, "the kernel agrees to the byte");
}

static void print_worker_traffic(FILE *file, int rank, const struct gmt_rank_account *account,
                                 bool is_exact)
{
    char formula[96], kernel[160];
    if (is_exact)
        snprintf(formula, sizeof formula, "%.3f times what floats take",
                 (double)account->payload_sent_bytes / (double)account->formula_bytes);
    else if (account->payload_sent_bytes == account->formula_bytes)
        snprintf(formula, sizeof formula, "as the formula says");
    else
        snprintf(formula, sizeof formula, "THE FORMULA SAYS %s", GROUPED(account->formula_bytes));
    compare_with_kernel(account, kernel, sizeof kernel);
    fprintf(file, "             rank %d sent %14s bytes, %s; +%s of protocol, %s\n", rank,
            GROUPED(account->payload_sent_bytes), formula, GROUPED(account->protocol_sent_bytes),
            kernel);
}

static void print_traffic(FILE *file, const struct gmt_end *end)
{
    int n = end->world_size;
    if (n == 1 || end->steps == end->first_step) return;
    uint64_t most = 0;
    for (int r = 0; r < n; r++)
        if (end->accounts[r].payload_sent_bytes > most) most = end->accounts[r].payload_sent_bytes;
    double n_steps = (double)(end->steps - end->first_step);
    bool   is_lean = strcmp(end->wire, "f32") != 0;
    double optimum = 2.0 * (n - 1) / n * (double)end->gradient_bytes;
    fprintf(file,
            "  traffic    averaging %.2f MB among %d workers: of each number %d share%s must travel to where they are added,\n"
            "             and its sum to as many workers. That is 2(N-1) sends among N workers; shared evenly each sends at least 2(N-1)/N\n"
            "             of the %.2f MB, %.2f MB a step%s\n",
            mega(end->gradient_bytes), n, n - 1, n == 2 ? "" : "s", mega(end->gradient_bytes), optimum / 1e6,
            is_lean || end->shards > 0 ? ", as f32;" : ": the optimum");
    if (end->shards > 0)
        fprintf(file, "             it travelled as exact sums; of %s numbers added by rank 0, %s spilled\n",
                GROUPED(end->added), GROUPED(end->spilled));
    if (is_lean) fprintf(file, "             it travelled as %s, rounded on the way\n", end->wire);
    for (int r = 0; r < n; r++) print_worker_traffic(file, r, &end->accounts[r], end->shards > 0);
    fprintf(file,
            "             %.3f MB a step at most, %.4f of the optimum; handing whole gradients "
            "around\n",
            (double)most / n_steps / 1e6, (double)most / n_steps / optimum);
    fprintf(file, "             would have taken %.2f MB, %.2f times as much\n",
            (double)end->naive_bytes / n_steps / 1e6, (double)end->naive_bytes / (double)most);
}

static void print_time(FILE *file, const struct gmt_end *end)
{
    const struct gmt_time_split *split = &end->split;
    int64_t                      whole_ns = split->elapsed_ns;
    fprintf(file, "  time       %.1f s: compute %.0f %%", (double)whole_ns / 1e9,
            percent(split->compute_ns, whole_ns));
    if (end->world_size > 1)
        fprintf(file, ", exchange %.0f %%, waiting %.0f %%",
                percent(split->comm_exposed_ns, whole_ns), percent(split->wait_ns, whole_ns));
    fprintf(file, ", loading %.0f %%, tests %.0f %%", percent(split->loading_ns, whole_ns),
            percent(split->evaluation_ns, whole_ns));
    if (split->checkpoint_ns > 0)
        fprintf(file, ", checkpoints %.0f %%", percent(split->checkpoint_ns, whole_ns));
    fprintf(file, "; %s samples/s\n", GROUPED(end->samples_per_s + 0.5));
    if (split->comm_hidden_ns > 0)
        fprintf(file, "             another %.1f s of exchanging was hidden behind the computing\n",
                (double)split->comm_hidden_ns / 1e9);
}

static void print_named(FILE *file, const struct gmt_end *end)
{
    const struct gmt_lateness *lateness = &end->lateness;
    fprintf(file, "  straggler  rank %d: it came last to %.0f %% of the steps, and without it coming late each step would be\n"
                  "             %.2f ms shorter, %.0f %%\n",
            lateness->last_rank, percent((int64_t)lateness->n_last, (int64_t)lateness->n_steps),
            (double)lateness->last_cost_ns / 1e6 / (double)lateness->n_steps,
            percent(lateness->last_cost_ns, end->late_steps_ns));
}

static void print_straggler(FILE *file, const struct gmt_end *end)
{
    const struct gmt_lateness *lateness = &end->lateness;
    if (end->world_size == 1 || lateness->n_steps == 0) return;
    if (gmt_lateness_has_straggler(lateness, end->late_steps_ns)) {
        print_named(file, end);
    } else {
        fprintf(file, "  straggler  none: no rank keeps the others waiting for more than 5 %% of a step\n");
    }
    if (lateness->clock_error_ns > 0)
        fprintf(file, "             clocks of the hosts compared to within %.0f us\n", (double)lateness->clock_error_ns / 1e3);
}

void cli_print_verdict(struct cli_train_printer *printer, const struct gmt_end *end,
                       const struct gmt_difference *difference, uint64_t compare_steps)
{
    FILE *file = printer->file;
    fprintf(file, "\n");
    print_bits(file, end);
    print_precision(file, difference, compare_steps);
    print_traffic(file, end);
    print_time(file, end);
    print_straggler(file, end);
    if (end->test.n_samples > 0)
        fprintf(
            file, "  digits     %s of %s never seen before read right\n\ntest accuracy: %.2f %%\n",
            GROUPED(end->test.n_correct), GROUPED(end->test.n_samples), 100 * end->test.accuracy);
    fflush(file);
}
