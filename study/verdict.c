#include "study/verdict.h"

#include <string.h>

/* A difference of less than this is what the machine does by itself. */
#define NOISE 0.03

/* ---- judging ------------------------------------------------------------------------------------ */

static bool is_same_setting(const struct study_row *a, const struct study_row *b)
{
    return a->base == b->base && strcmp(a->point.network, b->point.network) == 0 && strcmp(a->point.wire, b->point.wire) == 0 &&
           strcmp(a->point.transport, b->point.transport) == 0 && a->point.overlap == b->point.overlap;
}

const struct study_row *study_best_of(const struct study *study, const struct study_row *row)
{
    const struct study_row *best = row;
    for (int i = 0; i < study->n_rows; i++) {
        const struct study_row *each = &study->rows[i];
        if (each->point.world_size > 1 && is_same_setting(each, row) && each->median_ms < best->median_ms) best = each;
    }
    return best;
}

enum study_eater study_eater_of(const struct study_row *row)
{
    int    n = row->point.world_size;
    double ideal_ms = row->median_ms * row->speedup / n;
    double hardware_ms = row->zero_median_ms - ideal_ms, lost_ms = row->median_ms - ideal_ms;
    if (lost_ms < NOISE * row->median_ms) return STUDY_EATEN_BY_NOTHING;
    if (hardware_ms >= lost_ms / 2) return STUDY_EATEN_BY_HARDWARE;
    return row->wait_ms > row->comm_exposed_ms ? STUDY_EATEN_BY_WAITING : STUDY_EATEN_BY_EXCHANGE;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const char *setting_of(const struct study_row *row, char *text, size_t text_bytes)
{
    const struct study_point *point = &row->point;
    bool                      is_plain = strcmp(point->wire, "f32") == 0;
    if (point->world_size == 1) snprintf(text, text_bytes, "alone");
    else
        snprintf(text, text_bytes, "%s%s%s%s", strcmp(point->network, "loopback") == 0 ? row->runs[0].transport : point->network,
                 is_plain ? "" : " ", is_plain ? "" : point->wire, row->runs[0].is_overlapping ? " overlap" : "");
    return text;
}

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static void print_row(FILE *file, const struct study_row *row)
{
    char   setting[64], slow[16] = "-";
    double whole_ms = row->compute_ms + row->comm_exposed_ms + row->wait_ms;
    if (row->slowest_rank >= 0) snprintf(slow, sizeof slow, "%d", row->slowest_rank);
    fprintf(file, "%-6s  %7d  %-16s %10.3f  %8.2f  %8.2f  %5.0f %%  %5.0f %%  %6.0f %%  %5.0f %%  %4.0f %%  %9s\n",
            study_regime_name(row->point.regime), row->point.world_size, setting_of(row, setting, sizeof setting),
            row->median_ms, row->speedup, row->zero_comm_speedup, 100 * row->zero_comm_share,
            percent(row->compute_ms, whole_ms), percent(row->comm_exposed_ms, whole_ms), percent(row->wait_ms, whole_ms),
            percent(row->comm_hidden_ms, whole_ms), slow);
}

void study_print_table(FILE *file, const struct study *study)
{
    fprintf(file, "regime  workers  by               step in ms  speed-up   ceiling  of that  compute  exchange  waiting  hidden  slow rank\n");
    for (int i = 0; i < study->n_rows; i++) {
        if (i > 0 && study->rows[i].base == i) fprintf(file, "\n");
        print_row(file, &study->rows[i]);
    }
    fprintf(file, "speed-up: how many times as fast as one worker. ceiling: the same if exchanging gradients cost nothing; of that: how much\n"
                  "of it is reached. compute, exchange, waiting: where a step goes; waiting is for the rank that comes last. hidden: exchanged\n"
                  "while gradients were still computed. slow rank: keeps the others waiting for more than %.0f %% of a step; -: none does.\n",
            100 * STUDY_SLOW_SHARE);
}

void study_print_beside(FILE *file, const struct study *study)
{
    if (study->beside == NULL) return;
    fprintf(file, "\nregime  workers  by               step in ms  %24s  times as fast\n", study->beside_system);
    for (int i = 0; i < study->n_rows; i++) {
        const struct study_row *row = &study->rows[i];
        char                    setting[64];
        if (row->beside_median_ms > 0)
            fprintf(file, "%-6s  %7d  %-16s %10.3f  %24.3f  %13.2f\n", study_regime_name(row->point.regime), row->point.world_size,
                    setting_of(row, setting, sizeof setting), row->median_ms, row->beside_median_ms, row->beside_ratio);
    }
    if (study->n_beside_failed > 0)
        fprintf(file, "In %d runs a worker of %s failed after rank 0 had reported the result, which counts; what it said is above.\n",
                study->n_beside_failed, study->beside_system);
}

/* ---- the words ---------------------------------------------------------------------------------- */

/* Was a leaner wire format measured in the same setting, and was no faster? */
static bool has_lean_failed(const struct study *study, const struct study_row *row)
{
    for (int i = 0; i < study->n_rows; i++) {
        const struct study_row *other = &study->rows[i];
        bool is_like = other->base == row->base && other->point.world_size == row->point.world_size &&
                       other->point.overlap == row->point.overlap && strcmp(other->point.network, row->point.network) == 0 &&
                       strcmp(other->point.transport, row->point.transport) == 0;
        bool is_leaner = strcmp(other->point.wire, row->point.wire) != 0 && strcmp(other->point.wire, "f32") != 0;
        if (is_like && is_leaner && other->median_ms >= row->median_ms) return true;
    }
    return false;
}

/* Bytes that are already few cannot be made fewer by the same means. */
static const char *what_helps(const struct study *study, const struct study_row *row)
{
    if (strcmp(row->point.wire, "int8") == 0 || has_lean_failed(study, row)) return "A larger batch or a faster network";
    if (strcmp(row->point.wire, "f32") == 0) return "A larger batch, --wire bf16 or a faster network";
    return "A larger batch, --wire int8 or a faster network";
}

static void print_slow_rank(FILE *file, const struct study_row *row)
{
    char core[32] = "";
    if (row->point.world_size == 1) return;
    if (row->slowest_rank < 0) {
        fprintf(file, "         Of these %d none is slow: no rank keeps the others waiting for more than %.0f %% of a step.\n",
                row->point.world_size, 100 * STUDY_SLOW_SHARE);
        return;
    }
    if (row->by_rank[row->slowest_rank].cpu >= 0) snprintf(core, sizeof core, " (on core %d)", row->by_rank[row->slowest_rank].cpu);
    fprintf(file, "         Rank %d%s is slow: without it coming late each step would be %.2f ms shorter, %.0f %%.\n",
            row->slowest_rank, core, row->slowest_cost_ms, percent(row->slowest_cost_ms, row->median_ms));
}

static void print_eater(FILE *file, const struct study *study, const struct study_row *row)
{
    double exchange_ms = row->comm_exposed_ms, wait_ms = row->wait_ms;
    switch (study_eater_of(row)) {
    case STUDY_EATEN_BY_NOTHING: fprintf(file, "         Nothing worth naming is lost.\n"); break;
    case STUDY_EATEN_BY_HARDWARE:
        fprintf(file, "         Most of what is missing to %d times is the machine: %d trainings side by side that exchange\n"
                      "         nothing would be %.2f times as fast, since they share its cores and memory.\n",
                row->point.world_size, row->point.world_size, row->zero_comm_speedup);
        break;
    case STUDY_EATEN_BY_EXCHANGE:
        fprintf(file, "         Most of what is missing goes to the exchange of gradients: %.2f of %.2f ms. %s\n"
                      "         make it weigh less.\n", exchange_ms, row->median_ms, what_helps(study, row));
        break;
    case STUDY_EATEN_BY_WAITING:
        fprintf(file, "         Most of what is missing is waiting for ranks that come late: %.2f of %.2f ms.\n", wait_ms,
                row->median_ms);
        break;
    }
    print_slow_rank(file, row);
}

static void print_setting(FILE *file, const struct study *study, const struct study_row *row)
{
    char                    setting[64];
    const struct study_row *best = study_best_of(study, row);
    fprintf(file, "%-6s %s, %zu samples a step: ", study_regime_name(row->point.regime),
            setting_of(best, setting, sizeof setting), row->point.batch);
    if (best->speedup > 1 + NOISE)
        fprintf(file, "it pays. %d workers are %.2f times as fast as one (%.2f of %.2f ms).\n", best->point.world_size,
                best->speedup, best->median_ms, study->rows[best->base].median_ms);
    else if (best->speedup > 1 - NOISE)
        fprintf(file, "it makes no difference: %d workers take as long as one.\n", best->point.world_size);
    else
        fprintf(file, "it does not pay. Even %d workers are slower than one: %.2f ms for a step instead of %.2f.\n",
                best->point.world_size, best->median_ms, study->rows[best->base].median_ms);
    print_eater(file, study, best);
}

void study_print_verdict(FILE *file, const struct study *study)
{
    for (int i = 0; i < study->n_rows; i++) {
        const struct study_row *row = &study->rows[i];
        bool                    is_first = row->point.world_size > 1;
        for (int k = 0; k < i && is_first; k++)
            is_first = study->rows[k].point.world_size == 1 || !is_same_setting(&study->rows[k], row);
        if (is_first) print_setting(file, study, row);
    }
}
