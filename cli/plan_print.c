#include "cli/plan_print.h"

#include <math.h>
#include <string.h>

#include "gradmesh.h"

/* ---- words ---------------------------------------------------------------------------------------- */

static const char *rate_text(double per_s, const char *unit, char *text, size_t text_bytes)
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T" };
    int                      p = 0;
    while (per_s >= 1000 && p < 4) {
        per_s /= 1000;
        p++;
    }
    snprintf(text, text_bytes, "%.3g %s%s", per_s, prefixes[p], unit);
    return text;
}

static double gradient_bytes(const struct plan_job *job) { return 4 * plan_n_params(&job->layers); }

static bool begins_table(const struct plan_points *points, int i)
{
    const struct plan_point *p = &points->points[i];
    if (i == 0) return true;
    const struct plan_point *before = p - 1;
    return before->regime != p->regime || (strcmp(before->network, p->network) != 0 && before->prediction.workers != 1);
}

/* ---- the machine ---------------------------------------------------------------------------------- */

static void print_crew(FILE *file, const struct plan_machine *machine, const struct plan_crew *crew)
{
    char   rate[32];
    double flops = plan_sample_flops(&machine->layers);
    for (int i = 0; i < crew->n_speeds; i++) {
        const struct plan_speed *s = &crew->speeds[i];
        fprintf(file, "  %7d %8d %9.0f %10.2f ms   %-14s", crew->workers, crew->threads, s->rows, s->step_ms,
                rate_text(s->rows * flops / (s->step_ms - crew->update_ms) * 1e3, "FLOP/s", rate, sizeof rate));
        if (i == 0 && crew->n_exchanges > 0) {
            const struct plan_exchange *x = &crew->exchanges[0];
            int                         last = x->n_sizes - 1;
            fprintf(file, "%8.2f ms by %s", x->ms[last], x->transport);
        }
        fputc('\n', file);
    }
}

void cli_plan_print_machine(FILE *file, const struct cli_plan *plan)
{
    const struct plan_machine *m = &plan->machine;
    char                       text[256];
    if (m->flops > 0) {
        fprintf(file, "The machine, as given: %s for a worker", rate_text(m->flops, "FLOP/s", text, sizeof text));
        if (m->has_link) fprintf(file, "; %s", rate_text(m->link.bandwidth_Bps, "B/s", text, sizeof text));
        if (m->has_link) fprintf(file, " and %.4g us between workers", m->link.latency_us);
        fprintf(file, "\n\n");
        return;
    }
    fprintf(file, "This machine of %d core%s with network %s", m->n_cores, m->n_cores == 1 ? "" : "s",
            gmt_layers_format(&m->layers, text, sizeof text));
    if (plan->measured_s > 0) fprintf(file, ", measured in %.1f s", plan->measured_s);
    else fprintf(file, ", from %s", plan->source);
    fprintf(file, "\n  at once  threads  samples       a step   each computes    an all-reduce of all gradients\n");
    for (int i = 0; i < m->n_crews; i++) print_crew(file, m, &m->crews[i]);
    fputc('\n', file);
}

/* ---- the points ----------------------------------------------------------------------------------- */

static void print_heading(FILE *file, const struct plan_point *p)
{
    const struct plan_job *job = &p->job;
    char                   layers[256], rate[32];
    fprintf(file, "%s: %d thread%s a worker%s, %zu samples a step, network %s\n", study_regime_name(p->regime), job->threads,
            job->threads == 1 ? "" : "s", job->threads == 1 ? " on a core of its own" : "", job->batch,
            gmt_layers_format(&job->layers, layers, sizeof layers));
    if (!job->is_network) {
        fprintf(file, "all workers on one machine, %s, gradient of %.2f MB as %s, exchanged %s\n", job->transport, gradient_bytes(job) / 1e6,
                job->wire, job->overlaps ? "while it is computed" : "after it is computed");
    } else {
        fprintf(file, "each worker on a machine of its own%s, links of %s and %.3g us, gradient of %.2f MB as %s, exchanged %s\n",
                job->is_emulated ? " (a network namespace; they share this machine's cores)" : "",
                rate_text(job->link.bandwidth_Bps, "B/s", rate, sizeof rate), job->link.latency_us, gradient_bytes(job) / 1e6, job->wire,
                job->overlaps ? "while it is computed" : "after it is computed");
    }
    fprintf(file, "  workers  step ms = compute + waiting + exchange + update   (hidden)  speed-up  ceiling  of ideal  pays%s\n",
            p->was_measured ? "   measured ms    off" : "");
}

static void print_point(FILE *file, const struct plan_point *point, const struct plan_prediction *p)
{
    fprintf(file, "  %7d %8.2f = %7.2f + %7.2f + %8.2f + %6.2f   %8.2f  %8.2f %8.2f  %6.0f %%  %-4s", p->workers, p->step_ms, p->compute_ms,
            p->wait_ms, p->exposed_ms, p->update_ms, p->hidden_ms, p->speedup, p->zero_comm_speedup, 100 * p->efficiency,
            p->workers == 1 ? "-" : p->pays ? "yes" : "NO");
    if (point->was_measured)
        fprintf(file, " %11.2f %+6.1f %%%s", point->measured_ms, 100 * point->error, point->is_wrong_side ? "  WRONG SIDE" : "");
    fputc('\n', file);
}

static void print_price(FILE *file, const struct cli_plan *plan, const struct plan_point *p)
{
    double seconds = plan->samples / (double)p->job.batch * p->prediction.step_ms / 1e3;
    fprintf(file, "  %7d  an epoch of %.0f samples takes %.4g s and costs %.4g\n", p->prediction.workers, plan->samples, seconds,
            seconds / 3600 * p->prediction.workers * plan->price);
}

/* Up to which world it pays, from which batch, and what would help. */
static void print_answers(FILE *file, const struct cli_plan *plan, const struct plan_point *last)
{
    const struct plan_machine *m = &plan->machine;
    struct plan_advice         advice[PLAN_MAX_ADVICE];
    int                        workers = last->prediction.workers;
    if (workers < 2) return;
    int    most = workers < 16 ? 16 : 4 * workers, best = plan_best_world(m, &last->job, most);
    size_t batch = plan_break_even_batch(m, &last->job, workers);
    int    up_to = plan_pays_up_to(m, &last->job, most);
    double speedup = plan_predict(m, &last->job, best).speedup;
    if (best == 1) fprintf(file, "  more than one worker does not pay");
    else if (best == most) fprintf(file, "  it still gets faster with %d workers (%.2f times)", best, speedup);
    else fprintf(file, "  it is fastest with %d workers (%.2f times)", best, speedup);
    if (best > 1 && up_to > 1 && up_to < most) fprintf(file, ", pays up to %d", up_to);
    if (batch > 0) fprintf(file, "; %d workers pay from a batch of %zu on\n", workers, batch);
    else fprintf(file, "; %d workers pay with no batch\n", workers);
    int n = plan_advise(m, &last->job, workers, advice);
    for (int i = 0; i < n; i++)
        fprintf(file, "  %s %+5.0f %% samples/s  %s\n", i == 0 ? "change first:" : "             ", 100 * advice[i].gain, advice[i].text);
    if (n == 0) fprintf(file, "  no single change would give more than 1 %%\n");
}

void cli_plan_print_points(FILE *file, const struct cli_plan *plan)
{
    const struct plan_points *points = &plan->points;
    fprintf(file, "speed-up: how many times as fast as one worker. ceiling: the same if exchanging gradients cost nothing. of ideal: speed-up by\n"
                  "workers. pays: is it faster than one worker?%s\n\n",
            plan->is_verified ? " off: predicted by measured, less 1." : "");
    for (int i = 0; i < points->n_points; i++) {
        const struct plan_point *p = &points->points[i];
        if (begins_table(points, i)) print_heading(file, p);
        print_point(file, p, &p->prediction);
        bool is_last = i + 1 == points->n_points || begins_table(points, i + 1);
        if (!is_last) continue;
        for (int k = i; plan->price > 0 && k >= 0; k--)
            if (begins_table(points, k)) {
                for (; k <= i; k++) print_price(file, plan, &points->points[k]);
                break;
            }
        print_answers(file, plan, p);
        fputc('\n', file);
    }
}

/* ---- the formula ---------------------------------------------------------------------------------- */

/* Alpha and beta that this exchange means: through its smallest and its largest size. */
static void link_of(const struct plan_machine *m, const struct plan_job *job, int n, double *alpha_us, double *beta_Bps)
{
    if (job->is_network) {
        *alpha_us = job->link.latency_us;
        *beta_Bps = job->link.bandwidth_Bps;
        return;
    }
    double all = gradient_bytes(job), few = all / 8;
    double slope = (plan_exchange_ms(m, job, n, all) - plan_exchange_ms(m, job, n, few)) / (all - few);
    double fixed_ms = plan_exchange_ms(m, job, n, few) - slope * few;
    *alpha_us = fmax(0, fixed_ms) * 1e3 / (2 * (n - 1));
    *beta_Bps = slope > 0 ? 2.0 * (n - 1) / n / slope * 1e3 : 0;
}

void cli_plan_print_formula(FILE *file, const struct cli_plan *plan)
{
    const struct plan_point *p = &plan->points.points[plan->points.n_points - 1];
    int                      n = p->prediction.workers > 1 ? p->prediction.workers : 2;
    double                   alpha_us, beta_Bps, c_ms = plan_predict(&plan->machine, &p->job, 1).step_ms;
    char                     beta[32], gamma[32], flops[32];
    link_of(&plan->machine, &p->job, n, &alpha_us, &beta_Bps);
    fprintf(file,
            "How it is reckoned (alpha-beta-gamma). One worker needs C = %.4g ms for a step. N workers need C/N each, and then hand the\n"
            "gradient of S = %.2f MB around the ring: 2(N-1) messages, each of which costs a start alpha and S/N bytes at beta bytes\n"
            "a second, of which half are added up at gamma:  T(N) = C/N + 2(N-1) (alpha + S/(N beta)) + (N-1)/N S/gamma.  Here, with\n"
            "N = %d: alpha = %.3g us, beta = %s, gamma = %s, and a worker computes %s. So N workers pay where\n"
            "C > 2 N alpha + 2 S/beta: what bytes cost does not depend on N, and C grows with the batch alone. The figures above are\n"
            "finer: C at the occupancy and with the rows that each worker will have, the algorithm that the library will choose, what\n"
            "is exchanged beside the backward pass, and cores that are shared (docs/planner.md).\n",
            c_ms, gradient_bytes(&p->job) / 1e6, n, alpha_us, rate_text(beta_Bps, "B/s", beta, sizeof beta),
            rate_text(plan->machine.reduce_Bps, "B/s", gamma, sizeof gamma),
            rate_text(plan_flops_of(&plan->machine, &p->job, n), "FLOP/s", flops, sizeof flops));
}

/* A table's best world, as it was measured; NULL: the table has but one worker, or was not run. */
static const struct plan_point *best_measured(const struct plan_points *points, int first)
{
    const struct plan_point *best = NULL;
    for (int i = first; i < points->n_points && (i == first || !begins_table(points, i)); i++) {
        const struct plan_point *p = &points->points[i];
        if (p->was_measured && p->prediction.workers > 1 && (best == NULL || p->measured_ms < best->measured_ms)) best = p;
    }
    return best;
}

/* Which of it pays, by what was measured and not by what was predicted. */
static void print_measured_answers(FILE *file, const struct plan_points *points)
{
    fprintf(file, "Does it pay here? As measured:\n");
    for (int i = 0; i < points->n_points; i++) {
        const struct plan_point *p = begins_table(points, i) ? best_measured(points, i) : NULL;
        if (p == NULL) continue;
        fprintf(file, "  %-6s  %-10s  ", study_regime_name(p->regime), p->network);
        if (p->measured_pays) fprintf(file, "yes: %d workers are %.2f times as fast as one\n", p->prediction.workers, p->measured_speedup);
        else fprintf(file, "no: %d workers are the best, at %.2f times the speed of one\n", p->prediction.workers, p->measured_speedup);
    }
}

void cli_plan_print_verdict(FILE *file, const struct cli_plan *plan)
{
    const struct plan_verdict *v = &plan->verdict;
    if (v->n_measured == 0) return;
    const struct plan_point *worst = &plan->points.points[v->worst];
    fprintf(file, "%d points predicted and then run: off by %.1f %% in the median (bar: %.0f %%), by %.1f %% at most (%s, %s, %d worker%s);\n",
            v->n_measured, 100 * v->median_error, 100 * PLAN_ERROR_BAR, 100 * v->largest_error, study_regime_name(worst->regime),
            worst->network, worst->prediction.workers, worst->prediction.workers == 1 ? "" : "s");
    if (v->n_wrong_side == 0) fprintf(file, "whether it pays was right wherever the margin is over %.0f %%.\n", 100 * PLAN_MARGIN_BAR);
    else fprintf(file, "whether it pays was WRONG at %d of them by more than the margin of %.0f %%.\n", v->n_wrong_side, 100 * PLAN_MARGIN_BAR);
    fprintf(file, "prediction %s\n\n", v->is_held ? "held" : "NOT held");
    print_measured_answers(file, &plan->points);
    fprintf(file, "\n");
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static cJSON *point_to_json(const struct cli_plan *plan, const struct plan_point *point)
{
    const struct plan_prediction *p = &point->prediction;
    const struct plan_job        *job = &point->job;
    cJSON                        *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "regime", study_regime_name(point->regime));
    cJSON_AddStringToObject(object, "network", point->network);
    cJSON_AddStringToObject(object, "transport", job->is_network ? "tcp" : job->transport);
    cJSON_AddStringToObject(object, "wire", job->wire);
    cJSON_AddBoolToObject(object, "overlap", job->overlaps);
    cJSON_AddNumberToObject(object, "batch", (double)job->batch);
    cJSON_AddNumberToObject(object, "accumulate", (double)job->accumulate);
    cJSON_AddNumberToObject(object, "threads", job->threads);
    cJSON_AddNumberToObject(object, "world_size", p->workers);
    cJSON_AddNumberToObject(object, "predicted_ms", p->step_ms);
    cJSON_AddNumberToObject(object, "predicted_speedup", p->speedup);
    cJSON_AddNumberToObject(object, "zero_comm_speedup", p->zero_comm_speedup);
    cJSON_AddNumberToObject(object, "efficiency", p->efficiency);
    cJSON_AddBoolToObject(object, "pays", p->pays);
    cJSON_AddNumberToObject(object, "compute_ms", p->compute_ms);
    cJSON_AddNumberToObject(object, "wait_ms", p->wait_ms);
    cJSON_AddNumberToObject(object, "comm_exposed_ms", p->exposed_ms);
    cJSON_AddNumberToObject(object, "comm_hidden_ms", p->hidden_ms);
    cJSON_AddNumberToObject(object, "update_ms", p->update_ms);
    cJSON_AddNumberToObject(object, "exchange_ms", p->exchange_ms);
    cJSON_AddNumberToObject(object, "sent_bytes", round(p->sent_bytes));
    cJSON_AddStringToObject(object, "algorithm", p->algorithm);
    double epoch_s = plan->samples / (double)job->batch * p->step_ms / 1e3;
    cJSON_AddNumberToObject(object, "epoch_s", epoch_s);
    if (plan->price > 0) cJSON_AddNumberToObject(object, "epoch_cost", epoch_s / 3600 * p->workers * plan->price);
    if (!point->was_measured) return object;
    const struct study_result *r = &point->result;
    cJSON_AddNumberToObject(object, "measured_ms", point->measured_ms);
    cJSON_AddNumberToObject(object, "measured_speedup", point->measured_speedup);
    cJSON_AddBoolToObject(object, "measured_pays", point->measured_pays);
    cJSON_AddNumberToObject(object, "error", point->error);
    cJSON *parts = cJSON_AddObjectToObject(object, "measured");
    cJSON_AddNumberToObject(parts, "compute_ms", r->compute_ms);
    cJSON_AddNumberToObject(parts, "comm_exposed_ms", r->comm_exposed_ms);
    cJSON_AddNumberToObject(parts, "comm_hidden_ms", r->comm_hidden_ms);
    cJSON_AddNumberToObject(parts, "wait_ms", r->wait_ms);
    return object;
}

/* Of the last point of each table, as the text says it. */
static cJSON *answers_to_json(const struct cli_plan *plan)
{
    const struct plan_points *points = &plan->points;
    cJSON                    *list = cJSON_CreateArray();
    for (int i = 0; i < points->n_points; i++) {
        const struct plan_point *p = &points->points[i];
        struct plan_advice       advice[PLAN_MAX_ADVICE];
        int                      workers = p->prediction.workers;
        if ((i + 1 < points->n_points && !begins_table(points, i + 1)) || workers < 2) continue;
        cJSON *answer = cJSON_CreateObject(), *changes = cJSON_CreateArray();
        cJSON_AddItemToArray(list, answer);
        cJSON_AddStringToObject(answer, "regime", study_regime_name(p->regime));
        cJSON_AddStringToObject(answer, "network", p->network);
        cJSON_AddNumberToObject(answer, "best_world_size", plan_best_world(&plan->machine, &p->job, workers < 16 ? 16 : 4 * workers));
        cJSON_AddNumberToObject(answer, "pays_up_to", plan_pays_up_to(&plan->machine, &p->job, workers < 16 ? 16 : 4 * workers));
        cJSON_AddNumberToObject(answer, "world_size", workers);
        cJSON_AddNumberToObject(answer, "break_even_batch", (double)plan_break_even_batch(&plan->machine, &p->job, workers));
        cJSON_AddItemToObject(answer, "changes", changes);
        int n = plan_advise(&plan->machine, &p->job, workers, advice);
        for (int k = 0; k < n; k++) {
            cJSON *change = cJSON_CreateObject();
            cJSON_AddItemToArray(changes, change);
            cJSON_AddStringToObject(change, "change", advice[k].name);
            cJSON_AddNumberToObject(change, "gain", advice[k].gain);
            cJSON_AddStringToObject(change, "text", advice[k].text);
        }
    }
    return list;
}

cJSON *cli_plan_to_json(const struct cli_plan *plan)
{
    char   layers[256];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "version", gm_version());
    cJSON_AddStringToObject(object, "layers", gmt_layers_format(&plan->points.points[0].job.layers, layers, sizeof layers));
    cJSON_AddNumberToObject(object, "cores", plan->machine.n_cores);
    cJSON_AddNumberToObject(object, "samples", plan->samples);
    cJSON *points = cJSON_AddArrayToObject(object, "points");
    for (int i = 0; i < plan->points.n_points; i++) cJSON_AddItemToArray(points, point_to_json(plan, &plan->points.points[i]));
    cJSON_AddItemToObject(object, "answers", answers_to_json(plan));
    if (!plan->is_verified) return object;
    cJSON *verdict = cJSON_AddObjectToObject(object, "verify");
    cJSON_AddNumberToObject(verdict, "points", plan->verdict.n_measured);
    cJSON_AddNumberToObject(verdict, "median_error", plan->verdict.median_error);
    cJSON_AddNumberToObject(verdict, "largest_error", plan->verdict.largest_error);
    cJSON_AddNumberToObject(verdict, "bar", PLAN_ERROR_BAR);
    cJSON_AddNumberToObject(verdict, "wrong_side", plan->verdict.n_wrong_side);
    cJSON_AddBoolToObject(verdict, "held", plan->verdict.is_held);
    return object;
}
