/* conv_cpu.c - unfold and fold, and convolutions as products (kernels/matmul/gemm.h) with pieces of
 * the unfolded image.
 *
 * The pieces bound the temporary memory: of the columns of an image a thread has 2 PIECE elements at a
 * time, or 144 windows if those are more. The pieces depend on sizes alone, and with them the bits.
 * Threads share images and groups, or, where these are fewer than threads, the rows of each product. */
#include "conv/conv.h"
#include "matmul/gemm.h"
#include "vector.h"

enum {
    PIECE = 1 << 16,         /* elements: 256 KiB of float, in the second level cache */
    HALF = VECTOR_BYTES / 2, /* bytes */
    WINDOWS = 96,            /* a piece has at least so many, and whole multiples of the half */
    PARTIAL = 1 << 22,       /* elements of partial sums of a weight's gradient, or one */
    PARTIAL_SUMS = 16        /* and at most so many sums */
};

/* ---- unfold and fold ---------------------------------------------------------------------- */

/* The columns of an image: row k = (c KH + i) KW + j, column p = oh OW + ow. */
typedef struct columns {
    const conv_sizes *sizes;
    REAL *image; /* [channels, H, W] */
    REAL *data;  /* columns p0 to p1 of all rows */
    int64_t row; /* from one row to the next; 0 in a depthwise one: all rows are the same */
    int64_t p0, p1;
    bool add;
    REAL weight; /* of a row */
    double *sum;
} columns;

/* What to do with a row r of the columns and what it has of the image x. */
typedef enum move {
    UNFOLD,  /* r (+)= x, and 0 outside of the image */
    FOLD,    /* x += r */
    GATHER,  /* r += weight x */
    SCATTER, /* x += weight r */
    DOT      /* sum += r x */
} move;

/* to [n] (+)= from, where the image has an element; 0 is what unfold takes outside of it. */
static inline void take(REAL *to, const REAL *from, int64_t step, int64_t n, bool add)
{
    if (add) {
        for (int64_t i = 0; i < n; i++) to[i] += from[i * step];
    } else if (step == 1 && n >= LANES) {
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) vec_store(to + i, vec_load(from + i));
        if (i < n) vec_store(to + n - LANES, vec_load(from + n - LANES));
    } else if (step == 1 && n >= LANES / 2) { /* the first and the last half vector */
        memcpy(to, from, HALF);
        memcpy(to + n - LANES / 2, from + n - LANES / 2, HALF);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
    }
}

/* to[i step] += weight from[i from_step] */
static inline void put(REAL *to, int64_t step, const REAL *from, int64_t from_step, int64_t n,
                       REAL weight)
{
    if (step == 1 && from_step == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) to[i] += weight * from[i];
    } else {
        for (int64_t i = 0; i < n; i++) to[i * step] += weight * from[i * from_step];
    }
}

static inline REAL dot(const REAL *a, const REAL *b, int64_t step, int64_t n)
{
    REAL sum = 0;
    if (step == 1) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    } else {
        for (int64_t i = 0; i < n; i++) sum += a[i] * b[i * step];
    }
    return sum;
}

static inline void clear(REAL *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = 0;
}

/* Row k of the columns. */
static inline void move_row(const columns *w, int64_t k, move what)
{
    const conv_sizes *s = w->sizes;
    const int64_t j = k % s->KW, i = k / s->KW % s->KH, c = k / (s->KW * s->KH);
    const int64_t left = j * s->dilation[1] - s->padding[1], step = s->stride[1];
    /* The windows whose element is inside the image: ow from `first` to `end`. */
    const int64_t first = left < 0 ? gd_min64(s->OW, gd_divide_up(-left, step)) : 0;
    const int64_t inside = s->W - left;
    const int64_t end =
        gd_max64(first, inside > 0 ? gd_min64(s->OW, gd_divide_up(inside, step)) : 0);
    const int64_t down = s->stride[0], OW = s->OW;
    const bool add = w->add;
    int64_t oh = w->p0 / OW, ow = w->p0 - oh * OW, rest = w->p1 - w->p0;
    int64_t h = oh * down + i * s->dilation[0] - s->padding[0];
    REAL *row = w->data + k * w->row, *image = w->image + (c * s->H) * s->W;
    for (int64_t n; rest > 0; row += n, rest -= n, ow = 0, h += down) {
        n = gd_min64(OW - ow, rest);
        int64_t a = first, b = end;
        if (n < OW) { /* a piece may begin and end within a row */
            a = gd_min64(gd_max64(first, ow), ow + n);
            b = gd_max64(a, gd_min64(end, ow + n));
        }
        if (h < 0 || h >= s->H) b = a;
        if (what == UNFOLD && !add && a > ow) clear(row, a - ow);
        if (what == UNFOLD && !add && ow + n > b) clear(row + b - ow, ow + n - b);
        if (b == a) continue;
        REAL *at = image + h * s->W + a * step + left, *to = row + a - ow;
        if (what == UNFOLD) take(to, at, step, b - a, add); /* [fold] */
        if (what == FOLD) put(at, step, to, 1, b - a, 1);   /* [unfold] */
        if (what == GATHER) put(to, 1, at, step, b - a, w->weight);
        if (what == SCATTER) put(at, step, to, 1, b - a, w->weight);
        if (what == DOT) *w->sum += (double)dot(to, at, step, b - a);
    }
}

static void unfold_channel(const void *work, int64_t c)
{
    const columns *w = work;
    const int64_t window = w->sizes->KH * w->sizes->KW;
    for (int64_t k = c * window; k < (c + 1) * window; k++) move_row(w, k, UNFOLD);
}

static void fold_channel(const void *work, int64_t c)
{
    const columns *w = work;
    const int64_t window = w->sizes->KH * w->sizes->KW;
    for (int64_t k = c * window; k < (c + 1) * window; k++) move_row(w, k, FOLD);
}

/* ---- The ops unfold and fold -------------------------------------------------------------- */

static void fold_into(const void *work, int64_t c)
{
    const columns *w = work;
    const int64_t plane = w->sizes->H * w->sizes->W;
    if (!w->add) clear(w->image + c * plane, plane);
    fold_channel(work, c);
}

/* All images as one with B C channels: their columns are side by side in the same way. */
static gd_status move_all(const gd_call *call, gd_tensor *image, gd_tensor *cols, bool add,
                          gd_task *task)
{
    const conv_sizes s = conv_sizes_of_columns(call->args, image);
    const int64_t P = conv_positions(&s);
    const columns w = {
        .sizes = &s, .image = gd_data(image), .data = gd_data(cols), .row = P, .p1 = P, .add = add};
    gd_for_each(gd_threads_for(call->threads, gd_tensor_count(cols)), s.B * s.C, task, &w);
    return GD_OK;
}

gd_status GD_REAL_NAME(unfold_forward)(const gd_call *call)
{
    return move_all(call, call->input[0], call->output[0], false, unfold_channel);
}

gd_status GD_REAL_NAME(unfold_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return move_all(call, call->dinput[0], call->doutput[0], call->accumulate[0], fold_into);
}

gd_status GD_REAL_NAME(fold_forward)(const gd_call *call)
{
    return move_all(call, call->output[0], call->input[0], false, fold_into);
}

gd_status GD_REAL_NAME(fold_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return move_all(call, call->doutput[0], call->dinput[0], call->accumulate[0], unfold_channel);
}

/* ---- Pieces of work ----------------------------------------------------------------------- */

/* One of the three products of a convolution, for all images and groups. */
typedef struct conv_work {
    conv_sizes sizes;
    REAL *image, *other; /* [B, C, H, W] and [B, O, OH, OW] */
    const REAL *weight;  /* [O, terms] */
    const REAL *bias;    /* of what is computed, or NULL */
    REAL *sums;          /* of the weight's gradient: [sum_count, groups, terms, O / groups] */
    int64_t sum_count;
    int64_t windows; /* of a piece */
    bool add;
    int64_t items;
    int teams, inner; /* teams of `inner` threads share the items */
    char *scratch;
    size_t piece_bytes, team_bytes;
    void (*item)(const struct conv_work *w, int64_t item, REAL *piece, void *scratch);
} conv_work;

static void run_team(const void *work, int64_t team)
{
    const conv_work *w = work;
    char *memory = w->scratch + (size_t)team * w->team_bytes;
    for (int64_t i = w->items * team / w->teams; i < w->items * (team + 1) / w->teams; i++)
        w->item(w, i, (REAL *)memory, memory + w->piece_bytes);
}

/* The bytes for the product of a [M, K] and b [K, N], and for its last piece, where one of M, N, K is
 * `last` in place of `whole`. */
static size_t product_bytes(gemm_matrix a, gemm_matrix b, const int64_t size[3], int cut,
                            int64_t last, int threads)
{
    int64_t n[3] = {size[0], size[1], size[2]};
    const size_t whole = gemm_scratch(a, b, n[0], n[1], n[2], threads);
    n[cut] = last;
    const size_t rest = gemm_scratch(a, b, n[0], n[1], n[2], threads);
    return whole > rest ? whole : rest;
}

/* Runs w->item for all items. `size`: M, N, K of its products of matrices a and b, of which `cut` is
 * in pieces of a total; piece: elements of the columns of one. */
static gd_status run_items(const gd_call *call, conv_work *w, gemm_matrix a, gemm_matrix b,
                           const int64_t size[3], int cut, int64_t total, int64_t piece)
{
    const int threads = gemm_threads(call->threads, w->items * size[0], size[1], size[2]);
    const bool apart = w->items >= threads;
    w->teams = apart ? threads : 1;
    w->inner = apart ? 1 : threads;
    const int64_t rest = size[cut] > 0 ? total % size[cut] : 0;
    const size_t bytes =
        product_bytes(a, b, size, cut, rest ? rest : size[cut], w->inner) + sizeof(REAL);
    w->piece_bytes = ((size_t)piece * sizeof(REAL) + 63) / 64 * 64;
    w->team_bytes = w->piece_bytes + (bytes + 63) / 64 * 64;
    w->scratch = gd_call_scratch(call, w->team_bytes * (size_t)w->teams);
    if (!w->scratch) return gd_error_status(call->context);
    gd_for_each(w->teams, w->teams, run_team, w);
    return GD_OK;
}

/* How many windows a piece has: pieces of about PIECE elements, at most half as many more, and equal
 * but for whole vectors. */
static int64_t piece_windows(const conv_sizes *s)
{
    const int64_t P = conv_positions(s), K = gd_max64(1, conv_terms(s));
    const int64_t pieces = gd_max64(1, (int64_t)((double)P * (double)K / PIECE + 0.5));
    const int64_t windows = gd_round_up(gd_divide_up(P, pieces), WINDOWS / 2);
    return gd_max64(1, gd_min64(P, gd_max64(WINDOWS, windows)));
}

static conv_work work_of(const gd_call *call, const gd_tensor *image, const gd_tensor *other)
{
    conv_work w = {.sizes = conv_sizes_of(call, image, other),
                   .image = gd_data(image),
                   .other = gd_data(other),
                   .weight = gd_data(call->input[1])};
    const conv_sizes *s = &w.sizes;
    w.items = s->B * s->groups;
    w.windows = conv_is_pointwise(s) ? conv_positions(s) : piece_windows(s);
    return w;
}

/* The columns of windows p0 to p1 of an image [C / groups, H, W]: in `piece`, or the image. */
static gemm_matrix unfolded(const conv_work *w, REAL *image, int64_t p0, int64_t p1, REAL *piece)
{
    const int64_t P = conv_positions(&w->sizes);
    if (conv_is_pointwise(&w->sizes)) return (gemm_matrix){image + p0, P, 1};
    const columns c = {
        .sizes = &w->sizes, .image = image, .data = piece, .row = p1 - p0, .p0 = p0, .p1 = p1};
    gd_for_each(w->inner, w->sizes.C / w->sizes.groups, unfold_channel, &c);
    return (gemm_matrix){piece, p1 - p0, 1};
}

static REAL *image_at(const conv_work *w, int64_t b, int64_t g)
{
    const conv_sizes *s = &w->sizes;
    return w->image + (b * s->C + g * (s->C / s->groups)) * s->H * s->W;
}

static REAL *other_at(const conv_work *w, int64_t b, int64_t g)
{
    const conv_sizes *s = &w->sizes;
    return w->other + (b * s->O + g * (s->O / s->groups)) * conv_positions(s);
}

/* rows [n, size] = bias[i], or 0 */
static void begin_rows(REAL *rows, int64_t n, int64_t size, const REAL *bias)
{
    for (int64_t i = 0; i < n; i++) {
        const REAL value = bias ? bias[i] : 0;
        for (int64_t p = 0; p < size; p++) rows[i * size + p] = value;
    }
}

/* ---- Depthwise ---------------------------------------------------------------------------- */

/* Row k of the columns of a channel, with output o of its group: no product of matrices. */
static void move_depthwise(const conv_work *w, REAL *image, REAL *other, REAL weight, int64_t k,
                           double *sum, move what)
{
    const columns c = {.sizes = &w->sizes,
                       .image = image,
                       .data = other,
                       .p1 = conv_positions(&w->sizes),
                       .weight = weight,
                       .sum = sum};
    if (what == GATHER) move_row(&c, k, GATHER);
    if (what == SCATTER) move_row(&c, k, SCATTER);
    if (what == DOT) move_row(&c, k, DOT);
}

/* ---- other (+)= weight unfold(image) ------------------------------------------------------ */

static void gather_item(const conv_work *w, int64_t item, REAL *piece, void *scratch)
{
    const conv_sizes *s = &w->sizes;
    const int64_t b = item / s->groups, g = item % s->groups, P = conv_positions(s);
    const int64_t O = s->O / s->groups, K = conv_terms(s);
    REAL *image = image_at(w, b, g), *other = other_at(w, b, g);
    const gemm_matrix weight = {w->weight + g * O * K, K, 1};
    const bool depthwise = conv_is_depthwise(s);
    if (w->bias || (depthwise && !w->add))
        begin_rows(other, O, P, w->bias ? w->bias + g * O : NULL);
    for (int64_t i = 0; depthwise && i < O * K; i++)
        move_depthwise(w, image, other + i / K * P, weight.data[i], i % K, NULL, GATHER);
    if (depthwise) return;
    for (int64_t p0 = 0; p0 < P; p0 += w->windows) {
        const int64_t p1 = gd_min64(P, p0 + w->windows);
        const gemm_matrix cols = unfolded(w, image, p0, p1, piece);
        gemm(other + p0, P, weight, cols, O, p1 - p0, K, w->add || w->bias, scratch, w->inner);
    }
}

static gd_status gather(const gd_call *call, conv_work *w)
{
    const int64_t K = conv_terms(&w->sizes), P = conv_positions(&w->sizes);
    const int64_t size[3] = {w->sizes.O / w->sizes.groups, w->windows, K};
    w->item = gather_item;
    return run_items(call, w, (gemm_matrix){NULL, K, 1}, (gemm_matrix){NULL, w->windows, 1}, size,
                     1, P, conv_is_pointwise(&w->sizes) ? 0 : K * w->windows);
}

/* ---- image (+)= fold(weight^T other) ------------------------------------------------------ */

static void scatter_item(const conv_work *w, int64_t item, REAL *piece, void *scratch)
{
    const conv_sizes *s = &w->sizes;
    const int64_t b = item / s->groups, g = item % s->groups, P = conv_positions(s);
    const int64_t O = s->O / s->groups, C = s->C / s->groups, K = conv_terms(s);
    REAL *image = image_at(w, b, g), *other = other_at(w, b, g);
    const gemm_matrix weight = {w->weight + g * O * K, 1, K};
    if (!w->add) begin_rows(image, C, s->H * s->W, w->bias ? w->bias + g * C : NULL);
    for (int64_t i = 0; conv_is_depthwise(s) && i < O * K; i++)
        move_depthwise(w, image, other + i / K * P, weight.data[i], i % K, NULL, SCATTER);
    if (conv_is_depthwise(s)) return;
    for (int64_t p0 = 0; p0 < P; p0 += w->windows) {
        const int64_t p1 = gd_min64(P, p0 + w->windows);
        const gemm_matrix part = {other + p0, P, 1};
        const bool point = conv_is_pointwise(s);
        gemm(point ? image + p0 : piece, point ? P : p1 - p0, weight, part, K, p1 - p0, O, point,
             scratch, w->inner);
        const columns c = {
            .sizes = s, .image = image, .data = piece, .row = p1 - p0, .p0 = p0, .p1 = p1};
        if (!point) gd_for_each(w->inner, C, fold_channel, &c);
    }
}

static gd_status scatter(const gd_call *call, conv_work *w)
{
    const int64_t K = conv_terms(&w->sizes), P = conv_positions(&w->sizes);
    const int64_t size[3] = {K, w->windows, w->sizes.O / w->sizes.groups};
    w->item = scatter_item;
    return run_items(call, w, (gemm_matrix){NULL, 1, K}, (gemm_matrix){NULL, P, 1}, size, 1, P,
                     conv_is_pointwise(&w->sizes) ? 0 : K * w->windows);
}

/* ---- dweight (+)= other unfold(image)^T --------------------------------------------------- */

/* Its transpose, since a weight has few rows: of the images of one sum, which are added in order. */
static void dweight_item(const conv_work *w, int64_t item, REAL *piece, void *scratch)
{
    const conv_sizes *s = &w->sizes;
    const int64_t sum = item / s->groups, g = item % s->groups, P = conv_positions(s);
    const int64_t O = s->O / s->groups, K = conv_terms(s);
    REAL *to = w->sums + item * K * O;
    const int64_t first = s->B * sum / w->sum_count, end = s->B * (sum + 1) / w->sum_count;
    for (int64_t i = 0; conv_is_depthwise(s) && i < O * K; i++) {
        double total = 0;
        for (int64_t b = first; b < end; b++)
            move_depthwise(w, image_at(w, b, g), other_at(w, b, g) + i / K * P, 0, i % K, &total,
                           DOT);
        to[i % K * O + i / K] = (REAL)total;
    }
    if (conv_is_depthwise(s)) return;
    bool add = false;
    for (int64_t b = first; b < end; b++) {
        REAL *image = image_at(w, b, g);
        for (int64_t p0 = 0; p0 < P; p0 += w->windows) {
            const int64_t p1 = gd_min64(P, p0 + w->windows);
            const gemm_matrix cols = unfolded(w, image, p0, p1, piece);
            const gemm_matrix other = {other_at(w, b, g) + p0, 1, P};
            gemm(to, O, cols, other, K, O, p1 - p0, add, scratch, w->inner);
            add = true;
        }
    }
    if (!add) clear(to, K * O);
}

typedef struct sum_work {
    const conv_work *work;
    REAL *dweight;
    bool add;
} sum_work;

/* Row o of the gradient: the sums, transposed back. */
static void add_sums(const void *work, int64_t o)
{
    const sum_work *a = work;
    const conv_work *w = a->work;
    const conv_sizes *s = &w->sizes;
    const int64_t O = s->O / s->groups, K = conv_terms(s), g = o / O;
    REAL *to = a->dweight + o * K;
    for (int64_t k = 0; k < K; k++) {
        double sum = a->add ? (double)to[k] : 0;
        for (int64_t i = 0; i < w->sum_count; i++)
            sum += (double)w->sums[((i * s->groups + g) * K + k) * O + o % O];
        to[k] = (REAL)sum;
    }
}

static gd_status dweight(const gd_call *call, conv_work *w)
{
    const conv_sizes *s = &w->sizes;
    const int64_t K = conv_terms(s), P = conv_positions(s), count = gd_max64(1, s->O * K);
    const int64_t size[3] = {K, s->O / s->groups, w->windows};
    w->sum_count = gd_min64(gd_min64(s->B, PARTIAL_SUMS), gd_max64(1, PARTIAL / count));
    w->items = w->sum_count * s->groups;
    w->sums = gd_call_scratch(call, (size_t)(w->sum_count * s->O * K) * sizeof(REAL));
    if (!w->sums) return gd_error_status(call->context);
    w->item = dweight_item;
    gd_status status =
        run_items(call, w, (gemm_matrix){NULL, w->windows, 1}, (gemm_matrix){NULL, 1, P}, size, 2,
                  P, conv_is_pointwise(s) ? 0 : K * w->windows);
    if (status) return status;
    const sum_work sums = {w, gd_data(call->dinput[1]), call->accumulate[1]};
    gd_for_each(gd_threads_for(call->threads, w->sum_count * s->O * K), s->O, add_sums, &sums);
    return GD_OK;
}

/* ---- dbias (+)= the sum of dy over images and positions ----------------------------------- */

typedef struct bias_work {
    const REAL *dy;
    REAL *dbias;
    int64_t B, O, P;
    bool add;
} bias_work;

static void sum_channel(const void *work, int64_t o)
{
    const bias_work *w = work;
    double total = 0;
    for (int64_t b = 0; b < w->B; b++) {
        const REAL *dy = w->dy + (b * w->O + o) * w->P;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t p = 0; p < w->P; p++) sum += (double)dy[p];
        total += sum;
    }
    w->dbias[o] = (REAL)((w->add ? (double)w->dbias[o] : 0) + total);
}

static gd_status dbias(const gd_call *call)
{
    const gd_tensor *dy = call->doutput[0];
    const bias_work w = {.dy = gd_data(dy),
                         .dbias = gd_data(call->dinput[2]),
                         .B = gd_tensor_dim(dy, 0),
                         .O = gd_tensor_dim(dy, 1),
                         .P = gd_tensor_dim(dy, 2) * gd_tensor_dim(dy, 3),
                         .add = call->accumulate[2]};
    gd_for_each(gd_threads_for(call->threads, gd_tensor_count(dy)), w.O, sum_channel, &w);
    return GD_OK;
}

/* ---- The ops conv2d and conv_transpose2d -------------------------------------------------- */

gd_status GD_REAL_NAME(conv2d_forward)(const gd_call *call)
{
    conv_work w = work_of(call, call->input[0], call->output[0]);
    w.bias = gd_data(call->input[2]);
    return gather(call, &w);
}

gd_status GD_REAL_NAME(conv2d_backward)(const gd_call *call)
{
    gd_status status = GD_OK;
    if (call->dinput[0]) {
        conv_work w = work_of(call, call->dinput[0], call->doutput[0]);
        w.add = call->accumulate[0];
        status = scatter(call, &w); /* [conv2d dx] */
    }
    if (call->dinput[1] && !status) {
        conv_work w = work_of(call, call->input[0], call->doutput[0]);
        status = dweight(call, &w); /* [conv2d dw] */
    }
    if (call->dinput[2] && !status) status = dbias(call); /* [conv2d db] */
    return status;
}

gd_status GD_REAL_NAME(conv_transpose2d_forward)(const gd_call *call)
{
    conv_work w = work_of(call, call->output[0], call->input[0]);
    w.bias = gd_data(call->input[2]);
    return scatter(call, &w);
}

gd_status GD_REAL_NAME(conv_transpose2d_backward)(const gd_call *call)
{
    gd_status status = GD_OK;
    if (call->dinput[0]) {
        conv_work w = work_of(call, call->doutput[0], call->dinput[0]);
        w.add = call->accumulate[0];
        status = gather(call, &w); /* [conv_transpose2d dx] */
    }
    if (call->dinput[1] && !status) {
        conv_work w = work_of(call, call->doutput[0], call->input[0]);
        status = dweight(call, &w); /* [conv_transpose2d dw] */
    }
    if (call->dinput[2] && !status) status = dbias(call); /* [conv_transpose2d db] */
    return status;
}
