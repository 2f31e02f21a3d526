#include "train/mlp.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "train/bits.h"
#include "train/ops.h"

static int n_layers(const struct gmt_mlp *mlp) { return mlp->params.layers.n_sizes - 1; }
static const size_t *sizes(const struct gmt_mlp *mlp) { return mlp->params.layers.sizes; }

size_t gmt_mlp_n_in(const struct gmt_mlp *mlp) { return sizes(mlp)[0]; }
size_t gmt_mlp_n_classes(const struct gmt_mlp *mlp) { return sizes(mlp)[n_layers(mlp)]; }

/* Memory for max_rows rows of `width`; *is_short when there is none. */
static float *take_rows(const struct gmt_mlp *mlp, size_t width, bool *is_short)
{
    size_t n_elems;
    float *rows = gmi_mul_sizes(mlp->max_rows, width, &n_elems)
                      ? gmi_alloc(n_elems, sizeof(float))
                      : NULL;
    if (rows == NULL) *is_short = true;
    return rows;
}

static gm_status take_buffers(struct gmt_mlp *mlp, gm_error *error)
{
    bool is_short = false;
    size_t widest = 0; /* of the hidden layers: deltas of the logits stay where the logits were */
    for (int l = 1; l <= n_layers(mlp) && !is_short; l++) {
        mlp->activations[l] = take_rows(mlp, sizes(mlp)[l], &is_short);
        if (l < n_layers(mlp) && sizes(mlp)[l] > widest) widest = sizes(mlp)[l];
    }
    for (int i = 0; i < 2 && widest > 0 && !is_short; i++)
        mlp->deltas[i] = take_rows(mlp, widest, &is_short);
    if (!is_short) return GM_OK;
    return gmi_error_set(error, GM_ERR_NOMEM,
                         "no memory for the activations of %zu samples; take a smaller batch or "
                         "accumulate over more micro-batches",
                         mlp->max_rows);
}

gm_status gmt_mlp_init(struct gmt_mlp *mlp, const struct gmt_layers *layers, size_t max_rows,
                       uint64_t seed, gm_error *error)
{
    memset(mlp, 0, sizeof *mlp);
    if (max_rows < 1 || max_rows > INT_MAX) /* a dimension of BLAS is an int */
        return gmi_error_set(error, GM_ERR_ARG, "a batch of %zu samples: expected 1 to %d",
                             max_rows, INT_MAX);
    gm_status status = gmt_params_init(&mlp->params, layers, seed, error);
    if (status != GM_OK) return status;
    mlp->max_rows = max_rows;
    status = take_buffers(mlp, error);
    if (status != GM_OK) gmt_mlp_fini(mlp);
    return status;
}

void gmt_mlp_fini(struct gmt_mlp *mlp)
{
    for (int l = 0; l <= GMT_MAX_LAYERS; l++) gmi_free(mlp->activations[l]);
    for (int i = 0; i < 2; i++) gmi_free(mlp->deltas[i]);
    memset(mlp->activations, 0, sizeof mlp->activations);
    memset(mlp->deltas, 0, sizeof mlp->deltas);
    gmi_free(mlp->row_losses);
    gmi_free(mlp->row_hits);
    mlp->row_losses = NULL;
    mlp->row_hits = NULL;
    gmt_params_fini(&mlp->params);
}

gm_status gmt_mlp_use_bits(struct gmt_mlp *mlp, struct gmt_bits *bits, gm_error *error)
{
    float   *row_losses = gmi_alloc(mlp->max_rows, sizeof *row_losses);
    uint8_t *row_hits = gmi_alloc(mlp->max_rows, sizeof *row_hits);
    if (row_losses == NULL || row_hits == NULL) {
        gmi_free(row_losses);
        gmi_free(row_hits);
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the losses of %zu samples",
                             mlp->max_rows);
    }
    mlp->row_losses = row_losses;
    mlp->row_hits = row_hits;
    mlp->bits = bits;
    return GM_OK;
}

/* ---- forward and backward -------------------------------------------------------------------- */

/* Of layer l: where its weight and bias are in one of the flat arrays. */
static float *weight_in(const struct gmt_mlp *mlp, float *flat, int l)
{
    return flat + mlp->params.tensors[2 * l].first_elem;
}
static float *bias_in(const struct gmt_mlp *mlp, float *flat, int l)
{
    return flat + mlp->params.tensors[2 * l + 1].first_elem;
}

const float *gmt_mlp_forward(struct gmt_mlp *mlp, const float *inputs, size_t n_rows)
{
    GMI_CHECK(n_rows <= mlp->max_rows);
    float *weights = mlp->params.weights;
    const float *x = inputs;
    for (int l = 0; l < n_layers(mlp); l++) {
        float *y = mlp->activations[l + 1];
        bool has_relu = l + 1 < n_layers(mlp);
        const float *w = weight_in(mlp, weights, l), *b = bias_in(mlp, weights, l);
        if (mlp->bits != NULL)
            gmt_bits_linear_forward(mlp->bits, x, w, b, y, n_rows, sizes(mlp)[l],
                                    sizes(mlp)[l + 1], has_relu);
        else
            gmt_linear_forward(x, w, b, y, n_rows, sizes(mlp)[l], sizes(mlp)[l + 1], has_relu);
        x = y;
    }
    return x;
}

/* Of rows [first, end), from what the softmax has left for each. */
static struct gmt_loss sum_rows(const struct gmt_mlp *mlp, size_t first, size_t end)
{
    struct gmt_loss loss = { .n_rows = end - first };
    for (size_t r = first; r < end; r++) {
        loss.loss_sum += (double)mlp->row_losses[r];
        loss.n_correct += mlp->row_hits[r];
    }
    return loss;
}

/* Loss and gradient of the logits that stand in the last activations, in place. */
static struct gmt_loss softmax_loss(struct gmt_mlp *mlp, const uint8_t *labels, size_t n_rows,
                                    float scale)
{
    struct gmt_loss loss = { .n_rows = n_rows };
    float          *logits = mlp->activations[n_layers(mlp)];
    if (mlp->bits == NULL) {
        gmt_softmax_loss(logits, labels, logits, n_rows, gmt_mlp_n_classes(mlp), scale,
                         &loss.loss_sum, &loss.n_correct);
        return loss;
    }
    gmt_bits_softmax_loss(logits, labels, logits, n_rows, gmt_mlp_n_classes(mlp), scale,
                          mlp->row_losses, mlp->row_hits);
    return sum_rows(mlp, 0, n_rows);
}

struct gmt_loss gmt_mlp_loss(struct gmt_mlp *mlp, const float *inputs, const uint8_t *labels,
                             size_t n_rows, float scale)
{
    gmt_mlp_forward(mlp, inputs, n_rows);
    return softmax_loss(mlp, labels, n_rows, scale);
}

/* What the backward pass of a layer is made from. */
struct flow {
    const float *x, *dy;
    size_t       n_rows;
    bool         is_accumulating;
    gmt_ready_fn ready;
    void        *user;
};

/* The gradient by the parameters of layer l, in blocks from the last row to the first: what lies
 * behind a block in the flat array, its bias at first, is complete with it. */
static void backward_params(struct gmt_mlp *mlp, int l, const struct flow *flow)
{
    float *gradients = mlp->params.gradients;
    const struct gmt_tensor *weight = &mlp->params.tensors[2 * l];
    size_t n_in = weight->n_cols, n_out = weight->n_rows, block_rows = gmt_block_rows(weight);
    size_t complete = weight->first_elem + weight->n_elems + weight[1].n_elems;
    gmt_linear_backward_bias(flow->dy, bias_in(mlp, gradients, l), flow->n_rows, n_out,
                             flow->is_accumulating);
    for (size_t end = n_out; end > 0;) {
        size_t first_out = (end - 1) / block_rows * block_rows;
        gmt_linear_backward_weight(flow->x, flow->dy, weight_in(mlp, gradients, l), flow->n_rows,
                                   n_in, n_out, first_out, end - first_out, flow->is_accumulating);
        size_t first_elem = weight->first_elem + first_out * n_in;
        if (flow->ready != NULL) flow->ready(flow->user, first_elem, complete - first_elem);
        complete = first_elem;
        end = first_out;
    }
}

void gmt_mlp_backward(struct gmt_mlp *mlp, const float *inputs, size_t n_rows, bool is_accumulating,
                      gmt_ready_fn ready, void *user)
{
    struct flow flow = { .dy = mlp->activations[n_layers(mlp)], .n_rows = n_rows,
                         .is_accumulating = is_accumulating, .ready = ready, .user = user };
    for (int l = n_layers(mlp) - 1; l >= 0; l--) {
        flow.x = l > 0 ? mlp->activations[l] : inputs;
        backward_params(mlp, l, &flow);
        if (l == 0) break; /* nobody asks for the inputs' gradient */
        float *dx = mlp->deltas[l % 2];
        gmt_linear_backward_input(flow.x, weight_in(mlp, mlp->params.weights, l), flow.dy, dx,
                                  n_rows, sizes(mlp)[l], sizes(mlp)[l + 1], true);
        flow.dy = dx;
    }
}

/* ---- reproducible ---------------------------------------------------------------------------- */

static size_t n_rows_of(const struct gmt_parts *parts)
{
    return parts->n == 0 ? 0 : parts->ends[parts->n - 1];
}

static size_t first_row_of(const struct gmt_parts *parts, size_t part)
{
    return part == 0 ? 0 : parts->ends[part - 1];
}

void gmt_mlp_loss_parts(struct gmt_mlp *mlp, const float *inputs, const uint8_t *labels,
                        const struct gmt_parts *parts, struct gmt_loss *parts_loss)
{
    GMI_CHECK(mlp->bits != NULL);
    gmt_mlp_loss(mlp, inputs, labels, n_rows_of(parts), 1);
    for (size_t p = 0; p < parts->n; p++)
        parts_loss[p] = sum_rows(mlp, first_row_of(parts, p), parts->ends[p]);
}

/* A weight's gradient on its way to the sink of the whole gradient. */
struct part_flow {
    gmt_part_sink_fn sink;
    void            *user;
    size_t           part, first_elem;
};

static void pass_on(void *user, size_t first_elem, const float *values, size_t n_elems)
{
    const struct part_flow *flow = user;
    flow->sink(flow->user, flow->part, flow->first_elem + first_elem, values, n_elems);
}

/* The gradient of one part by the parameters of layer l. */
static void part_params(struct gmt_mlp *mlp, int l, const float *x, const float *dy, size_t n_rows,
                        struct part_flow *flow)
{
    const struct gmt_tensor *weight = &mlp->params.tensors[2 * l], *bias = weight + 1;
    float                   *db = bias_in(mlp, mlp->params.gradients, l);
    gmt_bits_linear_backward_bias(dy, db, n_rows, bias->n_elems, false);
    flow->sink(flow->user, flow->part, bias->first_elem, db, bias->n_elems);
    flow->first_elem = weight->first_elem;
    gmt_bits_linear_backward_weight_to(mlp->bits, x, dy, n_rows, weight->n_cols, weight->n_rows, 0,
                                       weight->n_rows, pass_on, flow);
}

void gmt_mlp_backward_parts(struct gmt_mlp *mlp, const float *inputs, const struct gmt_parts *parts,
                            gmt_part_sink_fn sink, void *user)
{
    struct part_flow flow = { .sink = sink, .user = user };
    const float     *dy = mlp->activations[n_layers(mlp)];
    GMI_CHECK(mlp->bits != NULL);
    for (int l = n_layers(mlp) - 1; l >= 0; l--) {
        const float *x = l > 0 ? mlp->activations[l] : inputs;
        size_t       n_in = sizes(mlp)[l], n_out = sizes(mlp)[l + 1];
        for (size_t p = 0; p < parts->n; p++) {
            size_t first = first_row_of(parts, p);
            flow.part = p;
            part_params(mlp, l, x + first * n_in, dy + first * n_out, parts->ends[p] - first, &flow);
        }
        if (l == 0) break; /* nobody asks for the inputs' gradient */
        float *dx = mlp->deltas[l % 2];
        gmt_bits_linear_backward_input(mlp->bits, x, weight_in(mlp, mlp->params.weights, l), dy, dx,
                                       n_rows_of(parts), n_in, n_out, true);
        dy = dx;
    }
}

/* ---- use ------------------------------------------------------------------------------------- */

struct gmt_loss gmt_mlp_evaluate(struct gmt_mlp *mlp, const float *inputs, const uint8_t *labels,
                                 size_t n_rows)
{
    struct gmt_loss loss = { .n_rows = n_rows };
    while (n_rows > 0) {
        size_t part = gmi_min_size(n_rows, mlp->max_rows);
        struct gmt_loss share = gmt_mlp_loss(mlp, inputs, labels, part, 0);
        loss.loss_sum += share.loss_sum;
        loss.n_correct += share.n_correct;
        inputs += part * gmt_mlp_n_in(mlp);
        labels += part;
        n_rows -= part;
    }
    return loss;
}

void gmt_mlp_predict(struct gmt_mlp *mlp, const float *inputs, size_t n_rows, float *probabilities)
{
    while (n_rows > 0) {
        size_t part = gmi_min_size(n_rows, mlp->max_rows);
        gmt_softmax(gmt_mlp_forward(mlp, inputs, part), probabilities, part,
                    gmt_mlp_n_classes(mlp));
        inputs += part * gmt_mlp_n_in(mlp);
        probabilities += part * gmt_mlp_n_classes(mlp);
        n_rows -= part;
    }
}
