#include "train/bits_product.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "train/bits_crew.h"
#include "train/bits_variant.h"

/* So much of k is worked on at once: a packed panel then leaves room in a nearest cache of 32 KB.
 */
#define BLOCK_K 320
/* So much of k is packed of an a stored by k, and so many rows of c are worked on at once. */
#define CHUNK_K 4096
#define BLOCK_I 1024
/* With so few strips of a it does not pay to pack what they read; nor with so few k. */
#define FEW_STRIPS      3
#define FEW_K           16
#define PACKED_A_ELEMS  ((size_t)96 << 10)
#define SINK_ELEMS      ((size_t)32 << 10)
#define PANEL_ELEMS     ((size_t)BLOCK_K * GMT_BITS_MAX_PANEL)
#define SUMS_ELEMS      ((size_t)2 * BLOCK_I * GMT_BITS_MAX_PANEL)
#define ELEMS_OF_THREAD (PACKED_A_ELEMS + SINK_ELEMS + PANEL_ELEMS + SUMS_ELEMS)

struct gmt_bits {
    struct gmt_crew *crew;
    int n_threads;
    float *memory; /* (n_threads, ELEMS_OF_THREAD) */
    pthread_mutex_t sink_lock;
};

/* What each thread found out about itself, the first complaint kept. */
struct inspection {
    pthread_mutex_t *lock;
    gm_status status;
    gm_error error;
};

static void inspect(void *user, int thread)
{
    (void)thread;
    struct inspection *inspection = user;
    gm_error error = { 0 };
    gm_status status = gmt_bits_check_thread(&error);
    if (status == GM_OK) return;
    pthread_mutex_lock(inspection->lock);
    inspection->status = status;
    inspection->error = error;
    pthread_mutex_unlock(inspection->lock);
}

static gm_status check_threads(struct gmt_bits *bits, gm_error *error)
{
    struct inspection inspection = { .lock = &bits->sink_lock, .status = GM_OK };
    gmt_crew_run(bits->crew, inspect, &inspection);
    if (inspection.status == GM_OK) return GM_OK;
    return gmi_error_set(error, inspection.status, "%s", inspection.error.text);
}

gm_status gmt_bits_open(struct gmt_bits **bits, int n_threads, gm_error *error)
{
    GMI_CHECK(n_threads >= 1);
    struct gmt_bits *made = gmi_alloc(1, sizeof *made);
    *bits = NULL;
    if (made == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the kernels");
    made->n_threads = n_threads;
    pthread_mutex_init(&made->sink_lock, NULL);
    made->memory = gmi_alloc((size_t)n_threads * ELEMS_OF_THREAD, sizeof(float));
    gm_status status = GM_OK;
    if (made->memory == NULL)
        status = gmi_error_set(error, GM_ERR_NOMEM,
                               "no memory for the kernels of %d threads (1 MB each)", n_threads);
    if (status == GM_OK) status = gmt_crew_open(&made->crew, n_threads, error);
    if (status == GM_OK) status = check_threads(made, error);
    if (status == GM_OK) *bits = made;
    else gmt_bits_close(made);
    return status;
}

void gmt_bits_close(struct gmt_bits *bits)
{
    if (bits == NULL) return;
    gmt_crew_close(bits->crew);
    pthread_mutex_destroy(&bits->sink_lock);
    gmi_free(bits->memory);
    gmi_free(bits);
}

/* ---- one thread's part ----------------------------------------------------------------------- */

/* Ranges of i, j and k that are worked on. */
struct range {
    size_t first, end;
};
static size_t length(struct range r)
{
    return r.end - r.first;
}

/* Range number `part` of n_parts as equal as can be. */
static struct range part_of(struct range whole, size_t part, size_t n_parts)
{
    size_t n = length(whole);
    return (struct range){ whole.first + n * part / n_parts,
                           whole.first + n * (part + 1) / n_parts };
}

static size_t divide_up(size_t n, size_t by)
{
    return (n + by - 1) / by;
}

/* Rows cut into as few strips as possible, of lengths that differ by 1 at most. */
struct strips {
    size_t n, shorter, n_longer;
};

static struct strips cut(size_t n_rows, size_t longest)
{
    size_t n = divide_up(n_rows, longest);
    return (struct strips){ n, n_rows / n, n_rows % n };
}

static struct range next_strip(const struct strips *strips, size_t number, size_t first)
{
    return (struct range){ first, first + strips->shorter + (number < strips->n_longer) };
}

static bool are_few(const struct strips *strips)
{
    return strips->n <= FEW_STRIPS;
}

struct worker {
    struct gmt_bits *bits;
    const struct gmt_bits_variant *variant;
    const struct gmt_bits_product *product;
    float *packed_a; /* [strip][k][variant->strip] of a chunk of k */
    float *panel;    /* [k][n_vectors * n_lanes] of a block of k */
    float *sums;     /* [strip][variant->strip][variant->panel]: tiles between two blocks of k */
    float *staged;   /* what the sink gets */

    struct strips strips; /* of the rows that are worked on */

    /* where c is for now: the product's, or `staged` */
    float *c;
    size_t c_stride;
    struct range c_i, c_j; /* c[0][0] is (c_i.first, c_j.first) */
};

static void pack_a(struct worker *w, struct range i, struct range k)
{
    const struct gmt_bits_matrix *a = &w->product->a;
    size_t strip = w->variant->strip;
    struct range rows = { i.first, i.first };
    for (size_t s = 0; s < w->strips.n; s++) {
        rows = next_strip(&w->strips, s, rows.end);
        w->variant->pack(a->elems + k.first * a->stride + rows.first, a->stride, length(rows),
                         length(k), w->packed_a + s * strip * length(k), strip);
    }
}

static void pack_panel(struct worker *w, struct range j, struct range k, size_t width)
{
    const struct gmt_bits_matrix *b = &w->product->b;
    if (b->is_by_k)
        w->variant->pack(b->elems + k.first * b->stride + j.first, b->stride, length(j), length(k),
                         w->panel, width);
    else
        w->variant->pack_transposed(b->elems + j.first * b->stride + k.first, b->stride, length(j),
                                    length(k), w->panel, width);
}

static float *c_at(const struct worker *w, size_t i, size_t j)
{
    size_t row = i - w->c_i.first, col = j - w->c_j.first;
    return w->product->is_by_j ? w->c + row * w->c_stride + col : w->c + col * w->c_stride + row;
}

/* The sums of a tile before its first block of k. */
static void begin_sums(const struct worker *w, float *sums, struct range i, struct range j,
                       bool is_continuing)
{
    size_t stride = w->variant->panel;
    for (size_t r = 0; r < length(i); r++, sums += stride)
        if (is_continuing) memcpy(sums, c_at(w, i.first + r, j.first), length(j) * sizeof *sums);
        else
            for (size_t l = 0; l < stride; l++) sums[l] = w->product->start[i.first + r];
}

static void relu(float *values, size_t n)
{
    for (size_t v = 0; v < n; v++) values[v] = values[v] < 0 ? 0 : values[v];
}

/* Puts a tile where it belongs. */
static void end_sums(const struct worker *w, float *sums, struct range i, struct range j)
{
    size_t stride = w->variant->panel;
    if (w->product->has_relu) relu(sums, length(i) * stride);
    if (w->product->is_by_j)
        for (size_t r = 0; r < length(i); r++)
            memcpy(c_at(w, i.first + r, j.first), sums + r * stride, length(j) * sizeof *sums);
    else
        for (size_t col = 0; col < length(j); col++) {
            float *to = c_at(w, i.first, j.first + col);
            for (size_t r = 0; r < length(i); r++) to[r] = sums[r * stride + col];
        }
}

/* Where strip number s of a, its row `first`, begins in block k of the chunk. */
static const float *strip_of_a(const struct worker *w, size_t s, size_t first, struct range chunk,
                               struct range k)
{
    const struct gmt_bits_matrix *a = &w->product->a;
    if (!a->is_by_k) return a->elems + first * a->stride + k.first;
    if (are_few(&w->strips)) return a->elems + k.first * a->stride + first;
    return w->packed_a + (s * length(chunk) + k.first - chunk.first) * w->variant->strip;
}

/* A block of k of all tiles of a panel. */
static void multiply_panel(struct worker *w, struct range i, struct range j, struct range chunk,
                           struct range k)
{
    const struct gmt_bits_product *p = w->product;
    const struct gmt_bits_variant *variant = w->variant;
    bool is_full = length(j) == variant->panel;
    struct gmt_bits_tile tile = { .n_vectors = variant->panel / variant->n_lanes,
                                  .n_k = length(k),
                                  .a_stride = p->a.stride,
                                  .is_by_k = p->a.is_by_k,
                                  .b_stride = variant->panel,
                                  .from_stride = variant->panel };
    if (!is_full) {
        tile.n_vectors = divide_up(length(j), variant->n_lanes);
        tile.b_stride = tile.n_vectors * variant->n_lanes;
    }
    bool is_first = k.first == chunk.first, is_last = k.end == chunk.end;
    bool is_continuing = p->is_continuing || chunk.first > 0;
    bool goes_to_c = is_last && p->is_by_j && !p->has_relu && tile.b_stride == length(j);
    bool has_sums = !is_first || is_continuing || p->start != NULL;
    if (p->a.is_by_k && !are_few(&w->strips)) tile.a_stride = variant->strip;
    if (is_full && p->b.is_by_k && (are_few(&w->strips) || p->n_k <= FEW_K)) {
        tile.b = p->b.elems + k.first * p->b.stride + j.first;
        tile.b_stride = p->b.stride;
    } else {
        tile.b = w->panel;
        pack_panel(w, j, k, tile.b_stride);
    }

    struct range rows = { i.first, i.first };
    for (size_t s = 0; s < w->strips.n; s++) {
        rows = next_strip(&w->strips, s, rows.end);
        float *sums = w->sums + s * variant->strip * variant->panel;
        if (is_first && has_sums) begin_sums(w, sums, rows, j, is_continuing);
        tile.n_i = length(rows);
        tile.a = strip_of_a(w, s, rows.first, chunk, k);
        tile.from = has_sums ? sums : NULL;
        tile.to = goes_to_c ? c_at(w, rows.first, j.first) : sums;
        tile.to_stride = goes_to_c ? w->c_stride : variant->panel;
        variant->tile(&tile);
        if (is_last && !goes_to_c) end_sums(w, sums, rows, j);
    }
}

static void multiply_chunk(struct worker *w, struct range i, struct range j, struct range chunk)
{
    size_t width = w->variant->panel, n_blocks = divide_up(length(chunk), BLOCK_K);
    for (size_t first = j.first; first < j.end; first += width) {
        struct range panel = { first, gmi_min_size(first + width, j.end) };
        if (n_blocks <= 1) multiply_panel(w, i, panel, chunk, chunk);
        else
            for (size_t block = 0; block < n_blocks; block++)
                multiply_panel(w, i, panel, chunk, part_of(chunk, block, n_blocks));
    }
}

static void give_to_sink(struct worker *w)
{
    const struct gmt_bits_product *p = w->product;
    pthread_mutex_lock(&w->bits->sink_lock);
    for (size_t i = w->c_i.first; i < w->c_i.end; i++)
        p->sink(p->sink_user, p->sink_first + i * p->n_j + w->c_j.first, c_at(w, i, w->c_j.first),
                length(w->c_j));
    pthread_mutex_unlock(&w->bits->sink_lock);
}

/* Some rows of c, in groups of columns: what the sink gets at a time, or all. */
static void multiply_rows(struct worker *w, struct range i, struct range j)
{
    const struct gmt_bits_product *p = w->product;
    size_t n_chunks = p->a.is_by_k && p->n_k > 0 ? divide_up(p->n_k, CHUNK_K) : 1;
    size_t panel = w->variant->panel, group = length(j);
    w->strips = cut(length(i), w->variant->strip);
    if (p->sink != NULL) group = gmi_min_size(group, SINK_ELEMS / length(i) / panel * panel);
    for (size_t first = j.first; first < j.end; first += group) {
        struct range columns = { first, gmi_min_size(first + group, j.end) };
        if (p->sink != NULL) {
            w->c_i = i;
            w->c_j = columns;
            w->c_stride = group;
        }
        for (size_t chunk = 0; chunk < n_chunks; chunk++) {
            struct range k = part_of((struct range){ 0, p->n_k }, chunk, n_chunks);
            if (p->a.is_by_k && !are_few(&w->strips) && (n_chunks > 1 || first == j.first))
                pack_a(w, i, k);
            multiply_chunk(w, i, columns, k);
        }
        if (p->sink != NULL) give_to_sink(w);
    }
}

static void multiply_part(struct worker *w, struct range i, struct range j)
{
    const struct gmt_bits_product *p = w->product;
    size_t strip = w->variant->strip, block = BLOCK_I / strip * strip;
    if (p->a.is_by_k) {
        size_t chunk = gmi_min_size(p->n_k, CHUNK_K);
        if (chunk > 0)
            block =
                gmi_min_size(block, gmi_max_size(PACKED_A_ELEMS / chunk / strip * strip, strip));
    }
    size_t n_blocks = divide_up(length(i), block);
    for (size_t b = 0; b < n_blocks; b++) {
        /* in whole strips but for the last block */
        struct range rows = { i.first + b * block, gmi_min_size(i.first + (b + 1) * block, i.end) };
        multiply_rows(w, rows, j);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

struct job {
    struct gmt_bits *bits;
    const struct gmt_bits_variant *variant;
    const struct gmt_bits_product *product;
};

/* Threads divide the panels, or the strips where there are fewer panels than threads. */
static void work(void *user, int thread)
{
    GMI_CHECK(gmt_bits_thread_mode_is_right()); /* a library may have changed it since the start */
    const struct job *job = user;
    const struct gmt_bits_product *p = job->product;
    float *memory = job->bits->memory + (size_t)thread * ELEMS_OF_THREAD;
    struct worker w = { .bits = job->bits,
                        .variant = job->variant,
                        .product = p,
                        .packed_a = memory,
                        .panel = memory + PACKED_A_ELEMS };
    w.sums = w.panel + PANEL_ELEMS;
    w.staged = w.sums + SUMS_ELEMS;
    w.c = p->sink != NULL ? w.staged : p->c;
    w.c_stride = p->c_stride;
    size_t n_threads = (size_t)job->bits->n_threads, part = (size_t)thread;
    size_t panels = divide_up(p->n_j, job->variant->panel);
    struct range i = { 0, p->n_i }, j = { 0, p->n_j };
    if (panels >= n_threads) {
        struct range mine = part_of((struct range){ 0, panels }, part, n_threads);
        j.first = mine.first * job->variant->panel;
        j.end = gmi_min_size(mine.end * job->variant->panel, p->n_j);
    } else {
        struct range strips = { 0, divide_up(p->n_i, job->variant->strip) };
        struct range mine = part_of(strips, part, n_threads);
        i.first = mine.first * job->variant->strip;
        i.end = gmi_min_size(mine.end * job->variant->strip, p->n_i);
    }
    if (length(i) > 0 && length(j) > 0) multiply_part(&w, i, j);
}

void gmt_bits_multiply(struct gmt_bits *bits, const struct gmt_bits_product *product)
{
    if (product->n_i == 0 || product->n_j == 0) return;
    struct job job = { bits, gmt_bits_chosen(), product };
    gmt_crew_run(bits->crew, work, &job);
}
