#include "study/study.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- what there is to measure ------------------------------------------------------------------- */

static bool are_same_layers(const struct gmt_layers *a, const struct gmt_layers *b)
{
    return a->n_sizes == b->n_sizes && memcmp(a->sizes, b->sizes, (size_t)a->n_sizes * sizeof a->sizes[0]) == 0;
}

/* One worker exchanges nothing: neither wire nor transport nor network make a difference to it. */
static bool is_base_of(const struct study_point *base, const struct study_point *point)
{
    return base->world_size == 1 && base->regime == point->regime && base->batch == point->batch &&
           are_same_layers(&base->layers, &point->layers);
}

static int find_base(const struct study *study, const struct study_point *point)
{
    for (int i = 0; i < study->n_rows; i++)
        if (is_base_of(&study->rows[i].point, point)) return i;
    return -1;
}

static gm_status add_row(struct study *study, const struct study_point *point, gm_error *error)
{
    if (study->n_rows == STUDY_MAX_ROWS)
        return gmi_error_set(error, GM_ERR_ARG, "more than %d points: take fewer world sizes or regimes", STUDY_MAX_ROWS);
    study->rows[study->n_rows] = (struct study_row){ .point = *point };
    study->n_rows++;
    return GM_OK;
}

gm_status study_add(struct study *study, const struct study_point *point, gm_error *error)
{
    int       base = find_base(study, point);
    gm_status status = GM_OK;
    if (base < 0) {
        struct study_point alone = *point;
        alone.world_size = 1;
        strcpy(alone.network, "loopback");
        strcpy(alone.wire, "f32");
        base = study->n_rows;
        status = add_row(study, &alone, error);
        if (status == GM_OK) study->rows[base].base = base;
    }
    if (status != GM_OK || point->world_size == 1) return status;
    status = add_row(study, point, error);
    if (status == GM_OK) study->rows[study->n_rows - 1].base = base;
    return status;
}

/* ---- measuring ---------------------------------------------------------------------------------- */

/* Rows whose workers compute the same have one ceiling: the first of them. */
static int zero_row_of(const struct study *study, int row)
{
    const struct study_point *point = &study->rows[row].point;
    for (int i = 0; i < row; i++)
        if (study->rows[i].point.world_size == point->world_size && study->rows[i].base == study->rows[row].base) return i;
    return row;
}

static gm_status measure_zero(struct study *study, int row, int repeat, gm_error *error)
{
    struct study_result result;
    struct study_point  point = study->rows[row].point;
    int                 like = zero_row_of(study, row);
    if (like != row) {
        study->rows[row].zero_ms[repeat] = study->rows[like].zero_ms[repeat];
        return GM_OK;
    }
    point.is_zero_comm = true;
    strcpy(point.network, "loopback");
    gm_status status = study_measure(&point, &result, error);
    if (status == GM_OK) study->rows[row].zero_ms[repeat] = result.median_ms;
    return status;
}

/* Once for all rows that it has no part in: it knows one transport and one format. */
static int beside_row_of(const struct study *study, int row)
{
    for (int i = 0; i < row; i++)
        if (study->rows[i].point.world_size == study->rows[row].point.world_size && study->rows[i].base == study->rows[row].base)
            return i;
    return row;
}

static gm_status measure_beside(struct study *study, int row, int repeat, gm_error *error)
{
    int like = beside_row_of(study, row);
    if (study->beside == NULL || strcmp(study->rows[row].point.network, "loopback") != 0) return GM_OK;
    if (like == row) {
        bool      failed_later;
        gm_status status = study_measure_beside(&study->rows[row].point, study->beside, &study->rows[row].beside_ms[repeat],
                                                study->beside_system, &failed_later, error);
        study->n_beside_failed += failed_later;
        return status;
    }
    study->rows[row].beside_ms[repeat] = study->rows[like].beside_ms[repeat];
    return GM_OK;
}

static gm_status measure_row(struct study *study, int i, int repeat, gm_error *error)
{
    struct study_row *row = &study->rows[i];
    gm_status         status = study_measure(&row->point, &row->runs[repeat], error);
    if (status != GM_OK) return status;
    if (row->point.world_size == 1) row->zero_ms[repeat] = row->runs[repeat].median_ms;
    else status = measure_zero(study, i, repeat, error);
    if (status == GM_OK) status = measure_beside(study, i, repeat, error);
    row->n_repeats = repeat + 1;
    return status;
}

gm_status study_run(struct study *study, int n_repeats, study_progress_fn progress, void *user, gm_error *error)
{
    for (int repeat = 0; repeat < n_repeats; repeat++) {
        for (int i = 0; i < study->n_rows; i++) {
            if (progress != NULL)
                progress(user, &study->rows[i].point, repeat * study->n_rows + i, n_repeats * study->n_rows);
            gm_status status = measure_row(study, i, repeat, error);
            if (status != GM_OK) return status;
        }
    }
    return GM_OK;
}

/* ---- what comes of it ------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double study_median(double *values, int n)
{
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* The median over the repeats of one figure, which lies `offset` bytes inside of a result. */
static double median_of(const struct study_row *row, size_t offset)
{
    double values[STUDY_MAX_REPEATS];
    for (int i = 0; i < row->n_repeats; i++) memcpy(&values[i], (const char *)&row->runs[i] + offset, sizeof values[i]);
    return study_median(values, row->n_repeats);
}

static double median_of_times(const double *times_ms, int n)
{
    double values[STUDY_MAX_REPEATS];
    memcpy(values, times_ms, (size_t)n * sizeof *values);
    return study_median(values, n);
}

static size_t rank_offset(int rank, size_t field)
{
    return offsetof(struct study_result, ranks) + (size_t)rank * sizeof(struct study_rank) + field;
}

/* The rank that came last to most steps in most of the repeats. */
static void find_slowest(struct study_row *row)
{
    double costs_ms[STUDY_MAX_REPEATS];
    row->slowest_rank = -1;
    row->slowest_cost_ms = 0;
    for (int r = 0; r < row->point.world_size && row->point.world_size > 1; r++) {
        int n = 0;
        for (int i = 0; i < row->n_repeats; i++)
            if (row->runs[i].last_rank == r && row->runs[i].last_share > 0.5) costs_ms[n++] = row->runs[i].last_cost_ms;
        if (2 * n <= row->n_repeats) continue;
        double cost_ms = study_median(costs_ms, n);
        if (cost_ms < STUDY_SLOW_SHARE * row->median_ms) return;
        row->slowest_rank = r;
        row->slowest_cost_ms = cost_ms;
    }
}

static void finish_ranks(struct study_row *row)
{
    for (int r = 0; r < row->point.world_size; r++)
        row->by_rank[r] = (struct study_rank){
            .compute_ms = median_of(row, rank_offset(r, offsetof(struct study_rank, compute_ms))),
            .comm_exposed_ms = median_of(row, rank_offset(r, offsetof(struct study_rank, comm_exposed_ms))),
            .comm_hidden_ms = median_of(row, rank_offset(r, offsetof(struct study_rank, comm_hidden_ms))),
            .wait_ms = median_of(row, rank_offset(r, offsetof(struct study_rank, wait_ms))),
            .median_ms = median_of(row, rank_offset(r, offsetof(struct study_rank, median_ms))),
            .cpu = row->runs[0].ranks[r].cpu,
        };
    find_slowest(row);
}

static void finish_beside(struct study_row *row, const struct study_row *base, int n)
{
    if (n == 0 || row->beside_ms[0] <= 0) return;
    row->beside_median_ms = median_of_times(row->beside_ms, n);
    row->beside_speedup = base->beside_median_ms / row->beside_median_ms;
    row->beside_ratio = row->beside_median_ms / row->median_ms;
}

/* Ratios are those of the medians, so that they can be checked by the times beside them. */
static void finish_row(struct study_row *row, const struct study_row *base)
{
    int n = row->n_repeats < base->n_repeats ? row->n_repeats : base->n_repeats;
    row->median_ms = median_of(row, offsetof(struct study_result, median_ms));
    row->zero_median_ms = median_of_times(row->zero_ms, n);
    row->speedup = base->median_ms / row->median_ms;
    row->zero_comm_speedup = base->median_ms / row->zero_median_ms;
    row->zero_comm_share = row->zero_median_ms / row->median_ms;
    finish_beside(row, base, n);
    row->efficiency = row->speedup / row->point.world_size;
    row->compute_ms = median_of(row, offsetof(struct study_result, compute_ms));
    row->comm_exposed_ms = median_of(row, offsetof(struct study_result, comm_exposed_ms));
    row->comm_hidden_ms = median_of(row, offsetof(struct study_result, comm_hidden_ms));
    row->wait_ms = median_of(row, offsetof(struct study_result, wait_ms));
    row->cpu_s = median_of(row, offsetof(struct study_result, cpu_s));
    finish_ranks(row);
}

void study_finish(struct study *study)
{
    for (int i = 0; i < study->n_rows; i++) finish_row(&study->rows[i], &study->rows[study->rows[i].base]);
}
