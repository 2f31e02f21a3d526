/* data_synthetic.c - draws handwritten-like digits, so that training works where no data is.
 *
 *     plan of a digit     points in a box of 70 x 100, several ways to write each digit
 *       | jitter          every point moves a little: no two hands are alike
 *       v smooth curve    a Catmull-Rom spline; a point that is given twice is a corner
 *       v affine          rotation, shear, width, height, position
 *       v elastic         a smooth random field of displacements bends what is left
 *       v ink             a round pen of changing width, anti-aliased
 *       v noise           grain over the whole picture
 *     28 x 28 bytes
 *
 * Sample i is a pure function of (seed, split, i), and the same on every machine: all arithmetic is
 * done with integers, fixed point with 12 fractional bits, and each random number is drawn in a
 * statement of its own, because C leaves open the order in which the parts of an expression are
 * computed.
 *
 * How hard it is was tuned: a linear model must not be enough (about 87 % correct, never more than
 * 92 %), while a network with one hidden layer of 256 learns it (98 %, never less than 97 %). What
 * makes it hard for a linear model is that the same digit lies at different places, angles and
 * widths: the SPREADs below.
 *
 * Sources: splines: Catmull and Rom, "A class of local interpolating splines" (1974). Elastic
 * distortion of digits: Simard, Steinkraus, Platt, "Best practices for convolutional neural
 * networks applied to visual document analysis", ICDAR 2003; here it moves the points of the curve
 * instead of the pixels, which is cheaper and keeps the strokes sharp. */
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "train/data.h"

#define SIDE      28
#define N_PIXELS  (SIDE * SIDE)
#define N_CLASSES 10
#define PIXEL     4096 /* one pixel, or 1.0, in fixed point */

#define STREAM_ORDER  1 /* tags that keep the random streams apart */
#define STREAM_SAMPLE 2

/* ---- how digits are written ----------------------------------------------------------------- */

#define MAX_POINTS  14
#define MAX_STROKES 2
#define BOX_COLS    70
#define BOX_ROWS    100
#define BOX_UNIT    (PIXEL / 5) /* the box is 14 x 20 pixels before it is scaled */

struct stroke {
    uint8_t n_points;
    uint8_t points[MAX_POINTS][2]; /* x to the right, y down */
};
struct plan {
    uint8_t digit, n_strokes;
    struct stroke strokes[MAX_STROKES];
};

/* clang-format off */
#define STROKE(...) { sizeof((uint8_t[][2]){ __VA_ARGS__ }) / 2, { __VA_ARGS__ } }

/* Sorted by digit. */
static const struct plan plans[] = {
    /* 0: round; slender; begun and ended inside */
    {0, 1,
     {STROKE({35, 0}, {12, 12}, {0, 48}, {6, 82}, {30, 100}, {58, 88}, {70, 52}, {60, 14}, {36, 0},
             {26, 4})}},
    {0, 1,
     {STROKE({38, 0}, {20, 15}, {12, 50}, {20, 85}, {36, 100}, {52, 85}, {58, 50}, {50, 14},
             {36, 0})}},
    {0, 1,
     {STROKE({56, 12}, {34, 0}, {10, 22}, {3, 60}, {20, 95}, {48, 95}, {68, 62}, {64, 25}, {44, 4},
             {30, 12})}},
    /* 1: a line; with a flag; with flag and foot */
    {1, 1, {STROKE({36, 0}, {35, 50}, {34, 100})}},
    {1, 1, {STROKE({18, 22}, {30, 10}, {38, 0}, {38, 0}, {38, 50}, {38, 100})}},
    {1, 2,
     {STROKE({16, 20}, {30, 9}, {38, 0}, {38, 0}, {38, 50}, {38, 100}),
      STROKE({14, 100}, {36, 99}, {60, 100})}},
    /* 2: with a flat foot; with a loop; pointed */
    {2, 1,
     {STROKE({5, 22}, {15, 5}, {38, 0}, {60, 12}, {60, 35}, {40, 62}, {5, 98}, {5, 98}, {35, 97},
             {70, 97})}},
    {2, 1,
     {STROKE({8, 20}, {22, 2}, {48, 2}, {62, 22}, {50, 52}, {25, 85}, {8, 97}, {3, 86}, {15, 80},
             {35, 92}, {55, 100}, {70, 92})}},
    {2, 1,
     {STROKE({5, 12}, {35, 0}, {62, 14}, {46, 50}, {8, 100}, {8, 100}, {36, 96}, {66, 96})}},
    /* 3: round; with a flat top; with a knot in the middle */
    {3, 1,
     {STROKE({6, 12}, {28, 0}, {55, 8}, {58, 30}, {42, 45}, {25, 48}, {25, 48}, {48, 50}, {66, 70},
             {58, 92}, {30, 100}, {3, 88})}},
    {3, 1,
     {STROKE({6, 3}, {35, 3}, {62, 2}, {62, 2}, {45, 22}, {28, 40}, {28, 40}, {55, 48}, {66, 70},
             {54, 93}, {28, 100}, {4, 90})}},
    {3, 1,
     {STROKE({8, 15}, {30, 0}, {56, 12}, {50, 36}, {28, 48}, {20, 44}, {28, 40}, {52, 52}, {64, 74},
             {50, 96}, {24, 100}, {4, 86})}},
    /* 4: open; closed; with a bowl */
    {4, 2,
     {STROKE({20, 0}, {12, 30}, {5, 58}, {5, 58}, {35, 58}, {70, 55}),
      STROKE({52, 15}, {50, 60}, {47, 100})}},
    {4, 2,
     {STROKE({50, 0}, {25, 32}, {2, 64}, {2, 64}, {36, 65}, {70, 64}),
      STROKE({50, 0}, {50, 50}, {50, 100})}},
    {4, 2,
     {STROKE({12, 2}, {7, 32}, {20, 52}, {42, 50}, {60, 42}),
      STROKE({62, 0}, {59, 50}, {54, 100})}},
    /* 5: in two strokes; in one; like an S */
    {5, 2,
     {STROKE({14, 3}, {12, 25}, {10, 46}, {10, 46}, {35, 38}, {60, 50}, {66, 72}, {50, 95},
             {25, 100}, {3, 90}),
      STROKE({14, 3}, {38, 3}, {64, 1})}},
    {5, 1,
     {STROKE({64, 2}, {38, 3}, {16, 5}, {16, 5}, {12, 45}, {12, 45}, {38, 40}, {62, 55}, {62, 82},
             {38, 100}, {6, 92})}},
    {5, 1,
     {STROKE({62, 6}, {40, 0}, {16, 10}, {14, 35}, {38, 46}, {60, 62}, {55, 90}, {28, 100},
             {5, 88})}},
    /* 6: with a straight back; a curved one; a small bowl */
    {6, 1,
     {STROKE({50, 0}, {28, 18}, {10, 48}, {6, 75}, {20, 98}, {45, 98}, {60, 78}, {50, 58}, {28, 58},
             {10, 75})}},
    {6, 1,
     {STROKE({60, 5}, {35, 5}, {12, 30}, {3, 65}, {15, 95}, {42, 100}, {64, 80}, {55, 55}, {30, 50},
             {8, 68})}},
    {6, 1,
     {STROKE({32, 0}, {15, 35}, {5, 72}, {18, 98}, {45, 96}, {55, 76}, {40, 60}, {18, 66},
             {8, 80})}},
    /* 7: plain; with a bar; with a serif; curved */
    {7, 1, {STROKE({3, 5}, {35, 4}, {66, 2}, {66, 2}, {48, 40}, {28, 100})}},
    {7, 2,
     {STROKE({3, 5}, {35, 4}, {66, 2}, {66, 2}, {46, 48}, {30, 100}),
      STROKE({20, 54}, {42, 52}, {62, 50})}},
    {7, 1,
     {STROKE({4, 22}, {6, 5}, {6, 5}, {35, 5}, {66, 4}, {66, 4}, {52, 30}, {40, 62}, {36, 100})}},
    {7, 1, {STROKE({5, 12}, {20, 2}, {45, 8}, {66, 3}, {55, 35}, {42, 65}, {32, 100})}},
    /* 8: in one stroke; as two rings */
    {8, 1,
     {STROKE({58, 14}, {38, 0}, {14, 10}, {16, 32}, {38, 48}, {60, 68}, {54, 93}, {30, 100},
             {8, 86}, {16, 62}, {38, 47}, {58, 28}, {58, 12})}},
    {8, 2,
     {STROKE({36, 0}, {16, 8}, {12, 26}, {34, 44}, {56, 28}, {54, 8}, {34, 0}),
      STROKE({34, 44}, {10, 58}, {5, 80}, {34, 100}, {64, 82}, {58, 58}, {34, 44})}},
    /* 9: with a straight tail; a curved tail; leaning */
    {9, 1,
     {STROKE({60, 18}, {40, 2}, {14, 10}, {6, 34}, {24, 50}, {48, 42}, {60, 16}, {60, 16}, {58, 55},
             {52, 100})}},
    {9, 1,
     {STROKE({60, 18}, {40, 2}, {14, 10}, {6, 34}, {24, 50}, {48, 42}, {60, 16}, {62, 50}, {55, 82},
             {35, 100}, {10, 92})}},
    {9, 1,
     {STROKE({55, 12}, {32, 0}, {10, 18}, {12, 42}, {36, 48}, {56, 30}, {57, 10}, {57, 10},
             {50, 55}, {40, 100})}},
};
/* clang-format on */
#define N_PLANS ((int)(sizeof plans / sizeof plans[0]))

/* ---- how much digits differ ----------------------------------------------------------------- */

#define PERCENT(p) ((p)*PIXEL / 100)

#define SPREAD_POINT     PERCENT(80) /* a point of the plan, in pixels */
#define SPREAD_HALF_TURN PERCENT(20) /* tangent of half the angle: 23 degrees either way */
#define SPREAD_SHEAR     PERCENT(45)
#define SCALE_MEAN       PERCENT(90)
#define SPREAD_SCALE     PERCENT(20)  /* of both directions ... */
#define SPREAD_ASPECT    PERCENT(12)  /* ... and of each */
#define SPREAD_SHIFT     PERCENT(300) /* pixels */
#define SPREAD_ELASTIC   PERCENT(220)
#define RADIUS_MIN       PERCENT(55) /* of the pen, in pixels */
#define RADIUS_MAX       PERCENT(140)
#define INK_MIN          190
#define GRAIN_MAX        40

/* -spread .. spread, all alike. */
static int32_t draw_even(struct gmi_rng *rng, int32_t spread)
{
    return (int32_t)gmi_rng_next_below(rng, 2 * (uint64_t)spread + 1) - spread;
}

/* -spread .. spread, the middle more often. */
static int32_t draw_middle(struct gmi_rng *rng, int32_t spread)
{
    int32_t a = draw_even(rng, spread);
    int32_t b = draw_even(rng, spread);
    return (a + b) / 2;
}

static int32_t times(int32_t a, int32_t b)
{
    return (int32_t)((int64_t)a * b / PIXEL);
}

/* ---- shape: from the plan to a curve on the picture ----------------------------------------- */

struct point {
    int32_t x, y; /* pixels, fixed point */
};

#define CURVE_STEPS 6 /* straight pieces between two points of a plan */
#define MAX_CURVE   ((MAX_POINTS - 1) * CURVE_STEPS + 1)

#define N_KNOTS       5 /* of the elastic field, in each direction; 7 pixels apart */
#define KNOT_DISTANCE (SIDE * PIXEL / (N_KNOTS - 1))

/* Everything about a sample's shape that is drawn once. */
struct hand {
    int32_t matrix[2][2];
    struct point middle;
    struct point field[N_KNOTS][N_KNOTS];
    int32_t radius;
};

static struct hand draw_hand(struct gmi_rng *rng)
{
    struct hand hand;
    int32_t t = draw_middle(rng, SPREAD_HALF_TURN);
    int32_t shear = draw_middle(rng, SPREAD_SHEAR);
    int32_t scale = SCALE_MEAN + draw_even(rng, SPREAD_SCALE);
    int32_t width = scale + draw_even(rng, SPREAD_ASPECT);
    int32_t height = scale + draw_even(rng, SPREAD_ASPECT);
    /* Sine and cosine from the tangent of half the angle need no library. */
    int32_t t2 = times(t, t);
    int32_t c = (int32_t)((int64_t)(PIXEL - t2) * PIXEL / (PIXEL + t2));
    int32_t s = (int32_t)((int64_t)2 * t * PIXEL / (PIXEL + t2));

    hand.matrix[0][0] = times(c, width);
    hand.matrix[0][1] = times(times(c, shear) - s, height);
    hand.matrix[1][0] = times(s, width);
    hand.matrix[1][1] = times(times(s, shear) + c, height);
    hand.middle.x = SIDE * PIXEL / 2 + draw_middle(rng, SPREAD_SHIFT);
    hand.middle.y = SIDE * PIXEL / 2 + draw_middle(rng, SPREAD_SHIFT);
    for (int row = 0; row < N_KNOTS; row++) {
        for (int col = 0; col < N_KNOTS; col++) {
            hand.field[row][col].x = draw_middle(rng, SPREAD_ELASTIC);
            hand.field[row][col].y = draw_middle(rng, SPREAD_ELASTIC);
        }
    }
    hand.radius = RADIUS_MIN + (int32_t)gmi_rng_next_below(rng, RADIUS_MAX - RADIUS_MIN + 1);
    return hand;
}

/* Which knot lies before position x, and how far behind it x is: 0 .. 1 with level ends, so that
 * the field has no kinks. Outside of the picture the field goes on as at its border. */
static int32_t locate(int32_t x, int *knot)
{
    int32_t limit = (N_KNOTS - 1) * KNOT_DISTANCE - 1;
    x = x < 0 ? 0 : x > limit ? limit : x;
    *knot = x / KNOT_DISTANCE;
    int32_t t = (int32_t)((int64_t)(x % KNOT_DISTANCE) * PIXEL / KNOT_DISTANCE);
    return times(times(t, t), 3 * PIXEL - 2 * t);
}

static int32_t blend(int32_t a, int32_t b, int32_t t)
{
    return a + times(b - a, t);
}

static struct point bend(const struct hand *hand, struct point p)
{
    int col, row;
    int32_t u = locate(p.x, &col), v = locate(p.y, &row);
    const struct point *above = &hand->field[row][col], *below = &hand->field[row + 1][col];

    p.x += blend(blend(above[0].x, above[1].x, u), blend(below[0].x, below[1].x, u), v);
    p.y += blend(blend(above[0].y, above[1].y, u), blend(below[0].y, below[1].y, u), v);
    return p;
}

static struct point place(const struct hand *hand, struct point p)
{
    struct point q;
    q.x = hand->middle.x + times(hand->matrix[0][0], p.x) + times(hand->matrix[0][1], p.y);
    q.y = hand->middle.y + times(hand->matrix[1][0], p.x) + times(hand->matrix[1][1], p.y);
    return bend(hand, q);
}

/* The spline through b and c with the neighbours a and d, at k / CURVE_STEPS of the way. */
static int32_t spline(int64_t a, int64_t b, int64_t c, int64_t d, int64_t k)
{
    const int64_t n = CURVE_STEPS;
    int64_t value = 2 * b * n * n * n + (c - a) * k * n * n +
                    (2 * a - 5 * b + 4 * c - d) * k * k * n + (3 * b - 3 * c + d - a) * k * k * k;
    return (int32_t)(value / (2 * n * n * n));
}

/* Fills `curve` with the points of one stroke on the picture; returns how many. */
static int trace(struct gmi_rng *rng, const struct hand *hand, const struct stroke *stroke,
                 struct point *curve)
{
    struct point points[MAX_POINTS];
    int last = stroke->n_points - 1, n_curve = 0;

    for (int i = 0; i <= last; i++) {
        /* Both halves of a corner move together. */
        if (i > 0 && memcmp(stroke->points[i], stroke->points[i - 1], 2) == 0) {
            points[i] = points[i - 1];
            continue;
        }
        points[i].x =
            (stroke->points[i][0] - BOX_COLS / 2) * BOX_UNIT + draw_middle(rng, SPREAD_POINT);
        points[i].y =
            (stroke->points[i][1] - BOX_ROWS / 2) * BOX_UNIT + draw_middle(rng, SPREAD_POINT);
    }
    for (int i = 0; i < last; i++) {
        struct point a = points[i > 0 ? i - 1 : 0], b = points[i];
        struct point c = points[i + 1], d = points[i + 2 <= last ? i + 2 : last];
        for (int k = 0; k < CURVE_STEPS; k++) {
            struct point p = { spline(a.x, b.x, c.x, d.x, k), spline(a.y, b.y, c.y, d.y, k) };
            curve[n_curve++] = place(hand, p);
        }
    }
    curve[n_curve++] = place(hand, points[last]);
    return n_curve;
}

/* ---- ink: from a curve to pixels ------------------------------------------------------------ */

/* Squared distance of p from the line between a and b. */
static int64_t distance_squared(struct point p, struct point a, struct point b)
{
    int64_t dx = b.x - a.x, dy = b.y - a.y;
    int64_t px = p.x - a.x, py = p.y - a.y;
    int64_t length2 = dx * dx + dy * dy, along = px * dx + py * dy;

    if (along >= length2) { /* behind b, or a and b are one point */
        px -= dx;
        py -= dy;
    } else if (along > 0) {
        px -= dx * along / length2;
        py -= dy * along / length2;
    }
    return px * px + py * py;
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

/* Draws the line between a and b with a round pen. A pixel is full of ink when its middle is half a
 * pixel inside of the pen's edge, empty half a pixel outside, and in between by the squared
 * distance, which needs no root. Where lines overlap the darker one counts. */
static void ink_line(uint8_t *canvas, struct point a, struct point b, int32_t radius)
{
    int32_t outer = radius + PIXEL / 2, inner = radius > PIXEL / 2 ? radius - PIXEL / 2 : 0;
    int64_t outer2 = (int64_t)outer * outer, inner2 = (int64_t)inner * inner;
    int col_first = clamp(((a.x < b.x ? a.x : b.x) - outer) / PIXEL, 0, SIDE);
    int col_end = clamp(((a.x > b.x ? a.x : b.x) + outer) / PIXEL + 1, 0, SIDE);
    int row_first = clamp(((a.y < b.y ? a.y : b.y) - outer) / PIXEL, 0, SIDE);
    int row_end = clamp(((a.y > b.y ? a.y : b.y) + outer) / PIXEL + 1, 0, SIDE);

    for (int row = row_first; row < row_end; row++) {
        for (int col = col_first; col < col_end; col++) {
            struct point middle = { col * PIXEL + PIXEL / 2, row * PIXEL + PIXEL / 2 };
            int64_t d2 = distance_squared(middle, a, b);
            if (d2 >= outer2) continue;
            int ink = d2 <= inner2 ? 255 : (int)((outer2 - d2) * 255 / (outer2 - inner2));
            uint8_t *pixel = &canvas[row * SIDE + col];
            if (ink > *pixel) *pixel = (uint8_t)ink;
        }
    }
}

/* The pen's width changes evenly from one end of the stroke to the other. */
static void ink_curve(struct gmi_rng *rng, uint8_t *canvas, const struct point *curve, int n_curve,
                      int32_t radius)
{
    int32_t first = radius + draw_even(rng, radius / 4);
    int32_t last = radius + draw_even(rng, radius / 4);

    for (int i = 0; i + 1 < n_curve; i++) {
        ink_line(canvas, curve[i], curve[i + 1], first + (last - first) * i / n_curve);
    }
}

/* Fades the ink and lays grain over the picture; the amount of both differs from sample to sample.
 * */
static void add_noise(struct gmi_rng *rng, uint8_t *canvas)
{
    int ink = INK_MIN + (int)gmi_rng_next_below(rng, 256 - INK_MIN);
    int grain = (int)gmi_rng_next_below(rng, GRAIN_MAX + 1);

    for (int i = 0; i < N_PIXELS; i += 8) {
        uint64_t bits = gmi_rng_next(rng);
        for (int k = 0; k < 8; k++, bits >>= 8) {
            int noise = ((int)(bits & 0xff) - 128) * grain / 128;
            canvas[i + k] = (uint8_t)clamp(canvas[i + k] * ink / 255 + noise, 0, 255);
        }
    }
}

/* ---- samples -------------------------------------------------------------------------------- */

/* Ten samples in a row hold each class once, in an order of their own. */
static int class_of(uint64_t key, size_t index)
{
    struct gmi_rng rng = { gmi_rng_key(gmi_rng_key(key, STREAM_ORDER), index / N_CLASSES), 0 };
    uint8_t order[N_CLASSES] = { 0 };

    for (int i = 0; i < N_CLASSES; i++) {
        int k = (int)gmi_rng_next_below(&rng, (uint64_t)i + 1);
        order[i] = order[k];
        order[k] = (uint8_t)i;
    }
    return order[index % N_CLASSES];
}

static const struct plan *draw_plan(struct gmi_rng *rng, int digit)
{
    int first = 0, count = 0;
    for (int i = N_PLANS - 1; i >= 0; i--) {
        if (plans[i].digit != digit) continue;
        first = i;
        count++;
    }
    GMI_CHECK(count > 0);
    return &plans[first + (int)gmi_rng_next_below(rng, (uint64_t)count)];
}

static void draw_sample(uint64_t key, size_t index, int digit, uint8_t *canvas)
{
    struct gmi_rng rng = { gmi_rng_key(gmi_rng_key(key, STREAM_SAMPLE), index), 0 };
    const struct plan *plan = draw_plan(&rng, digit);
    struct hand hand = draw_hand(&rng);
    struct point curve[MAX_CURVE];

    memset(canvas, 0, N_PIXELS);
    for (int i = 0; i < plan->n_strokes; i++) {
        int n_curve = trace(&rng, &hand, &plan->strokes[i], curve);
        ink_curve(&rng, canvas, curve, n_curve, hand.radius);
    }
    add_noise(&rng, canvas);
}

gm_status gmt_synthetic_make(struct gmt_dataset *dataset, uint64_t seed,
                             enum gmt_synthetic_split split, size_t n_samples, gm_error *error)
{
    uint64_t key = gmi_rng_key(seed, (uint64_t)split);

    gmi_error_clear(error);
    memset(dataset, 0, sizeof *dataset);
    if (n_samples == 0 || n_samples > GMT_SYNTHETIC_MAX_SAMPLES) {
        return gmi_error_set(error, GM_ERR_ARG,
                             "synthetic digits: %zu samples were asked for; 1 to %d can be made",
                             n_samples, GMT_SYNTHETIC_MAX_SAMPLES);
    }
    dataset->pixels = gmi_alloc(n_samples, N_PIXELS);
    dataset->labels = gmi_alloc(n_samples, 1);
    if (dataset->pixels == NULL || dataset->labels == NULL) {
        gmt_dataset_free(dataset);
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %zu synthetic digits of %d bytes",
                             n_samples, N_PIXELS);
    }
    for (size_t i = 0; i < n_samples; i++) {
        int digit = class_of(key, i);
        dataset->labels[i] = (uint8_t)digit;
        draw_sample(key, i, digit, dataset->pixels + i * N_PIXELS);
    }
    dataset->n_samples = n_samples;
    dataset->n_rows = dataset->n_cols = SIDE;
    dataset->n_features = N_PIXELS;
    dataset->n_classes = N_CLASSES;
    strcpy(dataset->source, "synthetic digits");
    return GM_OK;
}
