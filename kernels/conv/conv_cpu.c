/* conv_cpu.c - unfold and fold, and convolutions as products (kernels/matmul/gemm.h) with pieces of
 * the unfolded image.
 *
 * The pieces bound the temporary memory: of the columns of an image a thread has 2 PIECE elements at a
 * time, or 144 windows if those are more. The pieces depend on sizes alone, and with them the bits.
 *
 * At small images half of the time would be spent on what is around the few elements of a row. So, of
 * a stride of 1 across, unfold moves whole vectors, without regard to where a row ends; and fold, of
 * short rows, has the sums of a vector of the image in a register.
 *
 * Threads share images and groups, or, where these are fewer than threads, the rows of each product. */
#include "conv/conv.h"
#include "matmul/gemm.h"
#include "vector.h"

enum {
    PIECE = 1 << 16,   /* elements: 256 KiB of float, in the second level cache */
    WINDOWS = 96,      /* a piece has at least so many, and whole multiples of the half */
    PARTIAL = 1 << 22, /* elements of partial sums of a weight's gradient, or one */
    PARTIAL_SUMS = 16  /* and at most so many sums */
};

/* ---- unfold and fold ---------------------------------------------------------------------- */

/* The columns of an image: row k = (c KH + i) KW + j, column p = oh OW + ow. */
typedef struct columns {
    const conv_sizes *sizes;
    REAL *image; /* [channels, H, W] */
    REAL *data;  /* columns p0 to p1 of all rows */
    int64_t row; /* from one row to the next; 0 in a depthwise one: all rows are the same */
    int64_t p0, p1;
    int64_t channels; /* of the image; for unfolding */
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
    for (int64_t i = 0; i < n; i++) to[i] = add ? to[i] + from[i * step] : from[i * step];
}

/* Lanes a to b - 1 of x, and 0 in the others. */
static inline vec lanes_within(vec x, lane_number a, lane_number b)
{
    const lanes lane = lane_numbers();
    return vec_choose((lane >= a) & (lane < b), x, (vec){0});
}

/* The lane of element n of a row, or the first or the end. */
static inline lane_number lane_of(int64_t n)
{
    return (lane_number)gd_min64(gd_max64(n, 0), LANES);
}

/* Rows [rows, n] at to (+)= those at from, but 0 before a and from b on. In whole vectors: after each
 * row up to LANES - 1 elements are written, too, or 0 is added to them. */
static inline void take_rows(REAL *to, const REAL *from, int64_t from_row, int64_t rows, int64_t n,
                             int64_t a, int64_t b, bool add)
{
    if (n <= LANES && !add) { /* a loop of a load and a store */
        for (; rows > 0; rows--, to += n, from += from_row)
            vec_store(to, lanes_within(vec_load(from), lane_of(a), lane_of(b)));
        return;
    }
    for (; rows > 0; rows--, to += n, from += from_row) {
        for (int64_t i = 0; i < n; i += LANES) {
            vec x = vec_load(from + i);
            if (i < a || i + LANES > b) x = lanes_within(x, lane_of(a - i), lane_of(b - i));
            vec_store(to + i, add ? vec_load(to + i) + x : x);
        }
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

/* How many windows along an axis begin within the first n elements; n may be negative, or more than
 * there are. */
static inline int64_t windows_within(const conv_sizes *s, int axis, int64_t n)
{
    const int64_t step = s->stride[axis], most = axis ? s->OW : s->OH;
    return n <= 0 ? 0 : gd_min64(most, step == 1 ? n : gd_divide_up(n, step));
}

/* Windows p0 to p1 of row (c, i, j) of the columns. */
static inline void move_row(const columns *w, int64_t c, int64_t i, int64_t j, int64_t p0,
                            int64_t p1, move what)
{
    const conv_sizes *s = w->sizes;
    const int64_t k = (c * s->KH + i) * s->KW + j;
    if (p0 >= p1) return;
    const int64_t left = j * s->dilation[1] - s->padding[1], step = s->stride[1];
    /* The windows whose element is inside the image: ow from `first` to `end`. */
    const int64_t first = windows_within(s, 1, -left);
    const int64_t end = gd_max64(first, windows_within(s, 1, s->W - left));
    const int64_t down = s->stride[0], OW = s->OW;
    const bool add = w->add;
    int64_t oh = p0 / OW, ow = p0 - oh * OW, rest = p1 - p0;
    int64_t h = oh * down + i * s->dilation[0] - s->padding[0];
    REAL *row = w->data + k * w->row + p0 - w->p0, *image = w->image + c * s->H * s->W;
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
        if (what == UNFOLD) take(to, at, step, b - a, add);
        if (what == FOLD) put(at, step, to, 1, b - a, 1);
        if (what == GATHER) put(to, 1, at, step, b - a, w->weight);
        if (what == SCATTER) put(at, step, to, 1, b - a, w->weight);
        if (what == DOT) *w->sum += (double)dot(to, at, step, b - a);
    }
}

/* Windows p0 to p1 of row (c, i, j) of the columns, of a stride of 1 across, whose elements are inside
 * the image from its top to its bottom; rows r0 to r1 of windows are whole. These are moved by vectors:
 * what they read beyond a row of the image is another row's and does not count; what they write beyond
 * a row of windows is written again, or, with `add`, has 0 added to it. */
static inline void unfold_row(const columns *w, int64_t c, int64_t i, int64_t j, int64_t p0,
                              int64_t p1, int64_t r0, int64_t r1)
{
    const conv_sizes *s = w->sizes;
    const int64_t OW = s->OW, plane = s->H * s->W, below = s->stride[0] * s->W;
    const int64_t left = j * s->dilation[1] - s->padding[1], whole = gd_round_up(OW, LANES);
    const int64_t a = windows_within(s, 1, -left), b = windows_within(s, 1, s->W - left);
    const int64_t row = ((c * s->KH + i) * s->KW + j) * w->row - w->p0; /* in data */
    const int64_t row_end = (c + 1) * s->KH * s->KW * w->row;           /* of the channel's */
    const int64_t at =
        c * plane + (i * s->dilation[0] - s->padding[0]) * s->W + left; /* in image */
    while (r0 < r1 && at + r0 * below < 0) r0++;
    while (r0 < r1 && (at + (r1 - 1) * below + whole > w->channels * plane ||
                       row + (r1 - 1) * OW + whole > row_end))
        r1--;
    if (r0 >= r1) {
        move_row(w, c, i, j, p0, p1, UNFOLD);
        return;
    }
    move_row(w, c, i, j, p0, r0 * OW, UNFOLD);
    take_rows(w->data + row + r0 * OW, w->image + at + r0 * below, below, r1 - r0, OW, a, b,
              w->add);
    move_row(w, c, i, j, r1 * OW, p1, UNFOLD);
}

static void unfold_channel(const void *work, int64_t c)
{
    const columns *w = work;
    const conv_sizes *s = w->sizes;
    const int64_t OW = s->OW, begin = gd_divide_up(w->p0, OW), end = w->p1 / OW;
    for (int64_t i = 0; i < s->KH; i++) {
        const int64_t above = s->padding[0] - i * s->dilation[0];
        const int64_t r0 = windows_within(s, 0, above), r1 = windows_within(s, 0, s->H + above);
        const int64_t p0 = gd_min64(w->p1, gd_max64(w->p0, r0 * OW));
        const int64_t p1 = gd_max64(p0, gd_min64(w->p1, r1 * OW));
        for (int64_t j = 0; j < s->KW; j++) {
            if (s->stride[1] != 1) {
                move_row(w, c, i, j, w->p0, w->p1, UNFOLD);
                continue;
            }
            REAL *row = w->data + ((c * s->KH + i) * s->KW + j) * w->row - w->p0;
            if (!w->add) clear(row + w->p0, p0 - w->p0);
            unfold_row(w, c, i, j, p0, p1, gd_max64(begin, r0), gd_min64(end, r1));
            if (!w->add) clear(row + p1, w->p1 - p1);
        }
    }
}

/* x and what the columns, of a stride of 1 across, have of these elements of the image: of row h of
 * channel c, from w0 on; beyond the row, anything. The sums stay in registers, and are of the terms in
 * order. */
static inline vec fold_vector(const columns *w, int64_t c, int64_t h, int64_t w0, vec x)
{
    const conv_sizes *s = w->sizes;
    const int64_t OW = s->OW, size = s->KH * s->KW * w->row, down = s->stride[0];
    const REAL *data = w->data + c * size;
    const lanes lane = lane_numbers();
    for (int64_t i = 0; i < s->KH; i++) {
        const int64_t h_in = h + s->padding[0] - i * s->dilation[0];
        const int64_t oh = down == 1 ? h_in : h_in / down;
        if (h_in < 0 || oh * down != h_in || oh >= s->OH) continue;
        const int64_t p = oh * OW - w->p0; /* a piece may begin and end within a row */
        const int64_t first = gd_max64(0, -p), end = gd_min64(OW, w->p1 - oh * OW);
        int64_t ow = w0 + s->padding[1], from = i * s->KW * w->row + p + ow;
        for (int64_t j = 0; j < s->KW; j++, ow -= s->dilation[1], from += w->row - s->dilation[1]) {
            const lane_number a = (lane_number)(first - ow), b = (lane_number)(end - ow);
            vec term;
            if (from >= 0 && from + LANES <= size) {
                term = vec_load(data + from);
            } else {
                REAL some[LANES] = {0};
                for (int64_t l = gd_max64(a, 0); l < gd_min64(b, LANES); l++)
                    some[l] = data[from + l];
                term = vec_load(some);
            }
            x += vec_choose((lane >= a) & (lane < b), term, (vec){0});
        }
    }
    return x;
}

/* Of rows of at most LANES windows. */
static void fold_short_rows(const columns *w, int64_t c)
{
    const conv_sizes *s = w->sizes;
    REAL *image = w->image + c * s->H * s->W;
    /* Its rows that the windows meet. */
    const int64_t top = w->p0 / s->OW * s->stride[0] - s->padding[0];
    const int64_t bottom =
        (w->p1 - 1) / s->OW * s->stride[0] - s->padding[0] + (s->KH - 1) * s->dilation[0];
    for (int64_t h = gd_max64(0, top); h < gd_min64(s->H, bottom + 1); h++) {
        for (int64_t w0 = 0; w0 < s->W; w0 += LANES) {
            const int64_t n = gd_min64(LANES, s->W - w0), at = h * s->W + w0;
            const bool last = at + LANES > s->H * s->W;
            REAL some[LANES] = {0}, *to = last ? some : image + at;
            for (int64_t l = 0; last && l < n; l++) some[l] = image[at + l];
            const vec x = vec_load(to), sum = fold_vector(w, c, h, w0, x);
            vec_store(to, vec_choose(lane_numbers() < (lane_number)n, sum, x)); /* the row alone */
            for (int64_t l = 0; last && l < n; l++) image[at + l] = some[l];
        }
    }
}

static void fold_channel(const void *work, int64_t c)
{
    const columns *w = work;
    const conv_sizes *s = w->sizes;
    if (s->stride[1] == 1 && s->OW <= LANES) {
        fold_short_rows(w, c);
        return;
    }
    for (int64_t i = 0; i < s->KH; i++)
        for (int64_t j = 0; j < s->KW; j++) move_row(w, c, i, j, w->p0, w->p1, FOLD);
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
    const columns w = {.sizes = &s,
                       .image = gd_data(image),
                       .data = gd_data(cols),
                       .row = P,
                       .p1 = P,
                       .channels = s.B * s.C,
                       .add = add};
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
    const columns c = {.sizes = &w->sizes,
                       .image = image,
                       .data = piece,
                       .row = p1 - p0,
                       .p0 = p0,
                       .p1 = p1,
                       .channels = w->sizes.C / w->sizes.groups};
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
    const int64_t i = k / w->sizes.KW, j = k % w->sizes.KW;
    if (what == GATHER) move_row(&c, 0, i, j, 0, c.p1, GATHER);
    if (what == SCATTER) move_row(&c, 0, i, j, 0, c.p1, SCATTER);
    if (what == DOT) move_row(&c, 0, i, j, 0, c.p1, DOT);
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

/* dx, dw and db are [conv2d dx], [conv2d dw] and [conv2d db] in plain_cpu.c. */
gd_status GD_REAL_NAME(conv2d_backward)(const gd_call *call)
{
    gd_status status = GD_OK;
    if (call->dinput[0]) {
        conv_work w = work_of(call, call->dinput[0], call->doutput[0]);
        w.add = call->accumulate[0];
        status = scatter(call, &w);
    }
    if (call->dinput[1] && !status) {
        conv_work w = work_of(call, call->input[0], call->doutput[0]);
        status = dweight(call, &w);
    }
    if (call->dinput[2] && !status) status = dbias(call);
    return status;
}

gd_status GD_REAL_NAME(conv_transpose2d_forward)(const gd_call *call)
{
    conv_work w = work_of(call, call->output[0], call->input[0]);
    w.bias = gd_data(call->input[2]);
    return scatter(call, &w);
}

/* dx, dw and db are [conv_transpose2d dx], [conv_transpose2d dw] and [conv_transpose2d db] in plain_cpu.c. */
gd_status GD_REAL_NAME(conv_transpose2d_backward)(const gd_call *call)
{
    gd_status status = GD_OK;
    if (call->dinput[0]) {
        conv_work w = work_of(call, call->doutput[0], call->dinput[0]);
        w.add = call->accumulate[0];
        status = gather(call, &w);
    }
    if (call->dinput[1] && !status) {
        conv_work w = work_of(call, call->doutput[0], call->input[0]);
        status = dweight(call, &w);
    }
    if (call->dinput[2] && !status) status = dbias(call);
    return status;
}
