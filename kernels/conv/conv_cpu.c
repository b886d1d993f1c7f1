/* conv_cpu.c - unfold and fold, and convolutions as products (kernels/matmul/gemm.h) with pieces of
 * the unfolded image.
 *
 * Working in pieces bounds scratch memory: a thread has about PIECE unfolded elements at a time, or
 * WINDOWS windows if those are more.
 *
 * In small images most of the time would go to the ends of short rows, and to products of a few columns.
 * So the images of small planes are joined, in blocks of at most 2 PIECE numbers: each element of a block
 * is a run, its numbers in all images, and rows and products are as many times longer. Blocks and pieces
 * depend on sizes alone, and with them the bits.
 *
 * Threads share blocks and groups, or, where these are fewer than threads, the rows of each product. */
#include "conv/conv.h"
#include "matmul/gemm.h"
#include "reduce/reduction.h"
#include "vector.h"

enum {
    PIECE = 1 << 16,   /* elements: 256 KiB of float, in the second level cache */
    WINDOWS = 96,      /* a piece has at least so many, and whole multiples of the half */
    JOINED = 16,       /* images are joined in multiples of this */
    SHARE = 2048,      /* windows of the channels that are unfolded or folded together */
    PARTIAL = 1 << 22, /* elements of partial sums of a weight's gradient, or one */
    PARTIAL_SUMS = 16  /* and at most so many sums */
};

/* ---- Rows of the columns ------------------------------------------------------------------ */

/* The columns of windows p0 to p1 of an image: row k = (c KH + i) KW + j, column p = oh OW + ow. */
typedef struct columns {
    const conv_sizes *sizes;
    REAL *image;              /* [channels, H, W, run] */
    REAL *data;               /* [channels KH KW, p1 - p0, run] */
    int64_t row;              /* numbers from one row of data to the next; 0: there is one */
    int64_t p0, p1, run;      /* windows; numbers of an element */
    int64_t channels, shares; /* of the image; in so many shares they are unfolded or folded */
    bool add;                 /* to what is there */
} columns;

/* What some windows of a row of the columns, data[begin] to data[end], have of the image: `rows`
 * rows of `width` windows. Row r is at data[row + r row_next]; its windows a to b are numbers of the image,
 * window k the one at image[at + r image_next + k step]; the others are outside of it. Nothing is read or
 * written beyond the two sizes; what a row has after `end` is written later. */
typedef struct part {
    REAL *data, *image;
    int64_t data_size, image_size, begin, end;
    int64_t row, row_next, at, image_next, rows;
    int64_t width, a, b, step;
} part;

typedef void part_function(const part *p, REAL weight, double *sum);

/* Zeros up to data[end] at least: by whole vectors, since what follows is written later. */
static inline void zero(const part *p, int64_t from, int64_t end)
{
    for (; from < end && p->data_size - from >= LANES; from += LANES)
        vec_store(p->data + from, (vec){0});
    for (; from < end; from++) p->data[from] = 0;
}

/* Rows r to `end`, number by number. */
static inline void copy_numbers(const part *p, int64_t r, int64_t end)
{
    const int64_t n = p->b - p->a, step = p->step;
    for (; r < end; r++) {
        const int64_t row = p->row + r * p->row_next;
        REAL *to = p->data + row + p->a;
        const int64_t from = p->at + r * p->image_next + p->a * step;
        zero(p, row, row + p->a);
        if (step == 1 && n > 0)
            memcpy(to, p->image + from, (size_t)n * sizeof *to);
        else
            for (int64_t k = 0; k < n; k++) to[k] = p->image[from + k * step];
        zero(p, row + p->b, row + p->width);
    }
}

/* The lane of number n of a row, or the first or the end. */
static inline lane_number lane_of(int64_t n)
{
    return (lane_number)gd_min64(gd_max64(n, 0), LANES);
}

/* Rows r to `end` by whole vectors, from the beginning of a row, which is aligned more often than a. */
static __attribute__((noinline)) void copy_vectors(const part *p, int64_t r, int64_t end)
{
    const lanes lane = lane_numbers();
    const int64_t a = p->a, b = p->b, width = p->width;
    const int64_t row_next = p->row_next, image_next = p->image_next;
    REAL *to = p->data + p->row + r * row_next;
    const REAL *from = p->image + p->at + r * image_next;
    for (; r < end; r++, to += row_next, from += image_next) {
        for (int64_t k = 0; k < width; k += LANES) {
            vec x = vec_load(from + k);
            if (k < a || k + LANES > b)
                x = vec_choose((lane >= lane_of(a - k)) & (lane < lane_of(b - k)), x, (vec){0});
            vec_store(to + k, x);
        }
    }
}

/* The windows from `begin` to `end` are those of the image, or 0 outside of it. */
static inline void copy_to_row(const part *p, REAL weight, double *sum)
{
    (void)weight, (void)sum;
    const int64_t whole = gd_round_up(p->width, LANES);
    int64_t r0 = 0, r1 = p->step == 1 ? p->rows : 0; /* rows whose vectors fit */
    while (r0 < r1 && p->at + r0 * p->image_next < 0) r0++;
    while (r0 < r1 && (p->at + (r1 - 1) * p->image_next + whole > p->image_size ||
                       p->row + (r1 - 1) * p->row_next + whole > p->data_size))
        r1--;
    zero(p, p->begin, p->row);
    copy_numbers(p, 0, r0);
    if (r0 < r1) copy_vectors(p, r0, r1);
    copy_numbers(p, r1, p->rows);
    zero(p, p->row + p->rows * p->row_next, p->end);
}

/* to[i to_step] += weight from[i from_step] */
static inline void add_numbers(REAL *to, int64_t to_step, const REAL *from, int64_t from_step,
                               int64_t n, REAL weight)
{
    if (to_step == 1 && from_step == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) to[i] += weight * from[i];
    } else {
        for (int64_t i = 0; i < n; i++) to[i * to_step] += weight * from[i * from_step];
    }
}

/* The numbers of a row that are the image's: b - a in both. */
static inline REAL *row_of(const part *p, int64_t r)
{
    return p->data + p->row + r * p->row_next + p->a;
}

static inline REAL *image_of(const part *p, int64_t r)
{
    return p->image + p->at + r * p->image_next + p->a * p->step;
}

/* row += weight image */
static inline void add_to_row(const part *p, REAL weight, double *sum)
{
    (void)sum;
    for (int64_t r = 0; r < p->rows; r++)
        add_numbers(row_of(p, r), 1, image_of(p, r), p->step, p->b - p->a, weight);
}

/* image += weight row */
static inline void add_to_image(const part *p, REAL weight, double *sum)
{
    (void)sum;
    for (int64_t r = 0; r < p->rows; r++)
        add_numbers(image_of(p, r), p->step, row_of(p, r), 1, p->b - p->a, weight);
}

/* sum += row image */
static inline void add_product(const part *p, REAL weight, double *sum)
{
    (void)weight;
    const int64_t n = p->b - p->a;
    for (int64_t r = 0; r < p->rows; r++) {
        const REAL *row = row_of(p, r), *image = image_of(p, r);
        REAL dot = 0;
        if (p->step == 1) {
#pragma omp simd reduction(+ : dot)
            for (int64_t k = 0; k < n; k++) dot += row[k] * image[k];
        } else {
            for (int64_t k = 0; k < n; k++) dot += row[k] * image[k * p->step];
        }
        *sum += (double)dot;
    }
}

static inline void fill(REAL *to, int64_t n, REAL value)
{
    for (int64_t i = 0; i < n; i++) to[i] = value;
}

/* How many windows along an axis begin within the first n elements; n may be negative, or more than
 * there are. */
static inline int64_t windows_within(const conv_sizes *s, int axis, int64_t n)
{
    const int64_t step = s->stride[axis], most = axis ? s->OW : s->OH;
    return n <= 0 ? 0 : gd_min64(most, step == 1 ? n : gd_divide_up(n, step));
}

/* Calls f for the rows of a part whose windows are runs, with a step of more than 1: each run is a row. */
static inline __attribute__((always_inline)) void
each_run(const part *p, int64_t run, part_function *f, REAL weight, double *sum)
{
    part own = *p;
    own.rows = (p->b - p->a) / run, own.row_next = own.width = own.b = run, own.a = 0;
    own.image_next = p->step * run, own.step = 1;
    for (int64_t r = 0; r < p->rows; r++, own.begin = own.end) {
        own.row = p->row + r * p->row_next + p->a;
        own.at = p->at + r * p->image_next + p->a * p->step;
        own.end = r + 1 < p->rows ? own.row + p->b - p->a : p->end;
        f(&own, weight, sum);
    }
}

/* Calls f for what rows (c, i, j) of the columns have of the image, for c from c0 to c1. Windows p0 to p1
 * are those that end a row, whole rows, and those that begin one. */
static inline __attribute__((always_inline)) void each_part(const columns *w, int64_t c0,
                                                            int64_t c1, int64_t i, int64_t j,
                                                            part_function *f, REAL weight,
                                                            double *sum)
{
    const conv_sizes *s = w->sizes;
    const int64_t OW = s->OW, run = w->run, plane = s->H * s->W * run;
    const int64_t later = s->KH * s->KW - i * s->KW - j; /* rows of a channel, with this one */
    const int64_t step = s->stride[1], below = s->stride[0] * s->W * run;
    const int64_t top = i * s->dilation[0] - s->padding[0],
                  left = j * s->dilation[1] - s->padding[1];
    const int64_t top_row = windows_within(s, 0, -top), end_row = windows_within(s, 0, s->H - top);
    const int64_t first = windows_within(s, 1, -left), end = windows_within(s, 1, s->W - left);
    for (int64_t p = w->p0, n, rows; p < w->p1; p += n * rows) {
        const int64_t oh = p > 0 ? p / OW : 0, ow = p - oh * OW; /* divisions are slow */
        n = gd_min64(OW - ow, w->p1 - p);
        rows = n < OW ? 1 : w->p1 - p == OW * s->OH ? s->OH : (w->p1 - p) / OW;
        const int64_t r0 = gd_max64(oh, top_row), r1 = gd_min64(oh + rows, end_row);
        const int64_t a = gd_max64(first - ow, 0), b = gd_min64(end - ow, n);
        part own = {.data_size = later * w->row, .begin = (p - w->p0) * run, .image = w->image};
        own.image_size = w->channels * plane;
        own.end = own.begin + n * rows * run, own.rows = a < b ? gd_max64(r1 - r0, 0) : 0;
        own.row = own.rows > 0 ? (r0 * OW + ow - w->p0) * run : own.end, own.row_next = OW * run;
        own.at = r0 * below + (top * s->W + ow * step + left) * run + c0 * plane;
        own.image_next = below;
        own.width = n * run, own.a = a * run, own.b = b * run, own.step = step;
        for (int64_t c = c0; c < c1; c++, own.at += plane) {
            own.data = w->data + ((c * s->KH + i) * s->KW + j) * w->row;
            if (step == 1 || run == 1 || own.rows <= 0)
                f(&own, weight, sum);
            else
                each_run(&own, run, f, weight, sum);
        }
    }
}

/* So many that the image's part of a share stays in the first level cache. */
static int64_t shares_of(int64_t channels, int64_t windows)
{
    return gd_divide_up(channels, gd_max64(1, SHARE / gd_max64(1, windows)));
}

/* Share t of the channels. */
static void unfold_share(const void *work, int64_t t)
{
    const columns *w = work;
    const conv_sizes *s = w->sizes;
    const int64_t c0 = w->channels * t / w->shares, c1 = w->channels * (t + 1) / w->shares;
    for (int64_t i = 0; i < s->KH; i++) {
        for (int64_t j = 0; j < s->KW; j++) {
            if (w->add)
                each_part(w, c0, c1, i, j, add_to_row, 1, NULL);
            else
                each_part(w, c0, c1, i, j, copy_to_row, 1, NULL);
        }
    }
}

/* The columns are added to the image. */
static void fold_share(const void *work, int64_t t)
{
    const columns *w = work;
    const conv_sizes *s = w->sizes;
    const int64_t c0 = w->channels * t / w->shares, c1 = w->channels * (t + 1) / w->shares;
    for (int64_t i = 0; i < s->KH; i++)
        for (int64_t j = 0; j < s->KW; j++) each_part(w, c0, c1, i, j, add_to_image, 1, NULL);
}

/* ---- The ops unfold and fold -------------------------------------------------------------- */

static void fold_into(const void *work, int64_t t)
{
    const columns *w = work;
    const int64_t plane = w->sizes->H * w->sizes->W, c0 = w->channels * t / w->shares;
    if (!w->add) fill(w->image + c0 * plane, (w->channels * (t + 1) / w->shares - c0) * plane, 0);
    fold_share(work, t);
}

/* All images as one with B C channels: their columns are side by side in the same way. */
static gd_status move_all(const gd_call *call, gd_tensor *image, gd_tensor *cols, bool add,
                          gd_task *task)
{
    if (!image || !cols) return GD_OK;
    const conv_sizes s = conv_sizes_of_columns(call->args, image);
    const int64_t P = conv_positions(&s), count = gd_tensor_count(cols);
    const int threads = gd_threads_for(call->threads, count);
    const columns w = {&s, gd_data(image), gd_data(cols),           P,  0, P,
                       1,  s.B * s.C,      shares_of(s.B * s.C, P), add};
    gd_for_each(threads, w.shares, task, &w);
    return GD_OK;
}

gd_status GD_REAL_NAME(unfold_forward)(const gd_call *call)
{
    return move_all(call, call->input[0], call->output[0], false, unfold_share);
}

gd_status GD_REAL_NAME(unfold_backward)(const gd_call *call)
{
    return move_all(call, call->dinput[0], call->doutput[0], call->accumulate[0], fold_into);
}

gd_status GD_REAL_NAME(fold_forward)(const gd_call *call)
{
    return move_all(call, call->output[0], call->input[0], false, fold_into);
}

gd_status GD_REAL_NAME(fold_backward)(const gd_call *call)
{
    return move_all(call, call->doutput[0], call->dinput[0], call->accumulate[0], unfold_share);
}

/* ---- Blocks and pieces -------------------------------------------------------------------- */

typedef struct conv_work conv_work;
typedef void item_function(const conv_work *w, int64_t item, char *memory);

/* One of the three products of a convolution, for all images and groups. */
struct conv_work {
    conv_sizes sizes;
    int64_t C, O, K, P;     /* of a group: channels, outputs, terms of a product; windows */
    REAL *image, *other;    /* [B, groups, C, H, W] and [B, groups, O, P] */
    const REAL *weight;     /* [groups, O, K] */
    const REAL *bias;       /* of what is computed, or NULL */
    REAL *sums, *dweight;   /* [sum_count, groups, K, O], [groups, O, K] */
    bool add;               /* to what is there */
    int64_t joined, blocks; /* images of a block, at most */
    int64_t columns;        /* of a piece, at most: windows times images */
    int64_t sum_count, items;
    int teams, inner; /* teams of `inner` threads share the items */
    char *scratch;
    size_t image_bytes, other_bytes, piece_bytes, team_bytes;
    item_function *item;
};

/* The images of a block as one, or what is on the other side of it. */
typedef struct side {
    REAL *data;   /* [size, n]: a copy, or the tensor itself if n is 1 */
    REAL *tensor; /* [n, size], of which the rows are `next` apart */
    int64_t next, size;
} side;

/* A block and a group, in the memory of a team. */
typedef struct block {
    int64_t n, windows, row; /* images; windows of a piece; P n */
    side image, other;
    REAL *piece; /* [K, windows, n] */
    void *scratch;
} block;

static block block_of(const conv_work *w, int64_t b, int64_t group, char *memory)
{
    const int64_t plane = w->sizes.H * w->sizes.W, first = b * w->joined;
    block k = {.n = gd_min64(w->joined, w->sizes.B - first)};
    k.windows = gd_min64(w->P, w->columns / k.n);
    k.row = w->P * k.n;
    k.image.next = w->sizes.C * plane, k.image.size = w->C * plane;
    k.other.next = w->sizes.O * w->P, k.other.size = w->O * w->P;
    k.image.tensor = w->image + first * k.image.next + group * k.image.size;
    k.other.tensor = w->other + first * k.other.next + group * k.other.size;
    k.image.data = k.n > 1 ? (REAL *)memory : k.image.tensor;
    memory += w->image_bytes;
    k.other.data = k.n > 1 ? (REAL *)memory : k.other.tensor;
    k.piece = (REAL *)(memory + w->other_bytes);
    k.scratch = memory + w->other_bytes + w->piece_bytes;
    return k;
}

/* to[c, r] = from[r, c] for `rows` rows of `columns`, by squares of vectors but for what remains. */
static void transpose(REAL *to, int64_t to_row, const REAL *from, int64_t from_row, int64_t rows,
                      int64_t columns)
{
    for (int64_t c = 0; c < columns; c += LANES) {
        for (int64_t r = 0; r < rows; r += LANES) {
            const REAL *square = from + r * from_row + c;
            REAL *out = to + c * to_row + r;
            const int64_t n = gd_min64(LANES, rows - r), m = gd_min64(LANES, columns - c);
            if (n == LANES && m == LANES) {
                vec v[LANES];
                for (int64_t i = 0; i < LANES; i++) v[i] = vec_load(square + i * from_row);
                vec_transpose(v);
                for (int64_t i = 0; i < LANES; i++) vec_store(out + i * to_row, v[i]);
                continue;
            }
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) out[i * to_row + j] = square[j * from_row + i];
        }
    }
}

static void join(const side *s, int64_t n)
{
    if (n > 1) transpose(s->data, n, s->tensor, s->next, n, s->size);
}

static void divide(const side *s, int64_t n)
{
    if (n > 1) transpose(s->tensor, s->next, s->data, n, s->size, n);
}

/* What products are added to: what is there, or the bias [channels], or 0. */
static void begin(const conv_work *w, const side *s, int64_t n, int64_t channels, int64_t group)
{
    if (w->add) join(s, n);
    const int64_t plane = s->size * n / gd_max64(1, channels);
    for (int64_t c = 0; c < channels && !w->add; c++)
        fill(s->data + c * plane, plane, w->bias ? w->bias[group * channels + c] : 0);
}

/* How many images are joined: where rows of windows are short, and the columns are larger than the image,
 * which has to be copied; or where an image has too few windows for a product. */
static int64_t joined_images(const conv_work *w)
{
    const conv_sizes *s = &w->sizes;
    const int64_t image = w->C * s->H * s->W, size = gd_max64(1, gd_max64(image, w->O * w->P));
    const bool wanted = w->P < JOINED / 2 || (s->OW < JOINED && w->K * w->P >= 2 * image);
    const int64_t n = gd_round_up(gd_divide_up(WINDOWS, w->P), JOINED);
    const int64_t most = wanted ? gd_min64(n, 2 * PIECE / size / JOINED * JOINED) : 1;
    return gd_max64(1, gd_min64(s->B, most));
}

/* How many columns a piece has: pieces of about PIECE elements, at most half as many more, and equal but
 * for whole vectors. */
static int64_t piece_columns(const conv_work *w)
{
    const int64_t all = w->P * w->joined, K = gd_max64(1, w->K);
    if (conv_is_pointwise(&w->sizes)) return all;
    const int64_t pieces = gd_max64(1, (int64_t)((double)all * (double)K / PIECE + 0.5));
    const int64_t columns = gd_round_up(gd_divide_up(all, pieces), WINDOWS / 2);
    return gd_min64(all, gd_round_up(gd_max64(WINDOWS, columns), w->joined));
}

static conv_work work_of(const gd_call *call, const gd_tensor *image, const gd_tensor *other)
{
    conv_work w = {.sizes = conv_sizes_of(call, image, other),
                   .image = gd_data(image),
                   .other = gd_data(other),
                   .weight = gd_data(call->input[1])};
    const conv_sizes *s = &w.sizes;
    w.C = s->C / s->groups, w.O = s->O / s->groups;
    w.K = conv_terms(s), w.P = conv_positions(s);
    w.joined = joined_images(&w);
    w.blocks = gd_divide_up(s->B, w.joined);
    w.columns = piece_columns(&w);
    w.items = w.blocks * s->groups;
    return w;
}

static void run_team(const void *work, int64_t team)
{
    const conv_work *w = work;
    char *memory = w->scratch + (size_t)team * w->team_bytes;
    for (int64_t i = w->items * team / w->teams; i < w->items * (team + 1) / w->teams; i++)
        w->item(w, i, memory);
}

static size_t whole_lines(int64_t bytes)
{
    return (size_t)gd_round_up(bytes, 64);
}

enum { COLUMNS = -1 }; /* as a size of a product: those of a piece */

/* Runs `item` for all items, with products of a and b of these sizes M, N, K. The scratch of a product
 * suffices for a piece and the last piece, of the first block and the last block. */
static gd_status run_items(const gd_call *call, conv_work *w, item_function *item, gemm_matrix a,
                           gemm_matrix b, const int64_t size[3])
{
    const conv_sizes *s = &w->sizes;
    size_t product = 1;
    if (w->items == 0) return GD_OK;
    for (int i = 0; i < 4; i++) {
        const int64_t images = i & 1 ? s->B - (w->blocks - 1) * w->joined : w->joined;
        const int64_t piece = gd_min64(w->P, w->columns / images) * images;
        const int64_t columns = i & 2 ? w->P * images % piece : piece;
        int64_t n[3];
        for (int d = 0; d < 3; d++) n[d] = size[d] == COLUMNS ? columns : size[d];
        if (i == 0) {
            const int threads = gemm_threads(call->threads, w->items * n[0], n[1], n[2]);
            w->teams = w->items >= threads ? threads : 1;
            w->inner = w->items >= threads ? 1 : threads;
        }
        const size_t bytes = gemm_scratch(a, b, n[0], n[1], n[2], w->inner);
        product = bytes > product ? bytes : product;
    }
    w->item = item;
    if (w->joined > 1) {
        w->image_bytes = whole_lines(w->C * s->H * s->W * w->joined * (int64_t)sizeof(REAL));
        w->other_bytes = whole_lines(w->O * w->P * w->joined * (int64_t)sizeof(REAL));
    }
    w->piece_bytes = conv_is_depthwise(s) ? whole_lines(w->O * w->K * (int64_t)sizeof(double))
                     : conv_is_pointwise(s)
                         ? 0
                         : whole_lines(w->K * w->columns * (int64_t)sizeof(REAL));
    w->team_bytes =
        w->image_bytes + w->other_bytes + w->piece_bytes + whole_lines((int64_t)product);
    w->scratch = gd_call_scratch(call, w->team_bytes * (size_t)w->teams);
    if (!w->scratch) return gd_error_status(call->context);
    gd_for_each(w->teams, w->teams, run_team, w);
    return GD_OK;
}

/* The piece of a block from window p0 on. */
static columns piece_at(const conv_work *w, const block *k, int64_t p0)
{
    const int64_t p1 = gd_min64(w->P, p0 + k->windows);
    return (columns){&w->sizes, k->image.data, k->piece, (p1 - p0) * k->n,         p0,
                     p1,        k->n,          w->C,     shares_of(w->C, p1 - p0), false};
}

/* It as a matrix, unfolded; a pointwise convolution has the image itself. */
static gemm_matrix unfolded(const conv_work *w, const block *k, const columns *c)
{
    if (conv_is_pointwise(&w->sizes)) return (gemm_matrix){k->image.data + c->p0 * k->n, k->row, 1};
    gd_for_each(w->inner, c->shares, unfold_share, c);
    return (gemm_matrix){c->data, c->row, 1};
}

/* For each weight of a depthwise convolution: calls f for its row of the columns, in place of which is
 * a row of `other`, and the image. */
static inline __attribute__((always_inline)) void
each_weight(const conv_work *w, const block *k, const REAL *weight, double *sums, part_function *f)
{
    columns c = piece_at(w, k, 0);
    c.p1 = w->P, c.row = 0;
    for (int64_t e = 0; e < w->O * w->K; e++) {
        c.data = k->other.data + e / w->K * k->row;
        each_part(&c, 0, 1, e % w->K / w->sizes.KW, e % w->sizes.KW, f, weight ? weight[e] : 0,
                  sums ? sums + e : NULL);
    }
}

/* ---- other (+)= weight unfold(image) ------------------------------------------------------ */

static void gather_item(const conv_work *w, int64_t item, char *memory)
{
    const int64_t g = item % w->sizes.groups;
    const block k = block_of(w, item / w->sizes.groups, g, memory);
    const gemm_matrix weight = {w->weight + g * w->O * w->K, w->K, 1};
    const bool depthwise = conv_is_depthwise(&w->sizes), add = w->add || w->bias;
    join(&k.image, k.n);
    if (add || depthwise) begin(w, &k.other, k.n, w->O, g);
    if (depthwise) each_weight(w, &k, weight.data, NULL, add_to_row);
    for (int64_t p0 = 0; p0 < w->P && !depthwise; p0 += k.windows) {
        const columns c = piece_at(w, &k, p0);
        gemm(k.other.data + p0 * k.n, k.row, weight, unfolded(w, &k, &c), w->O, c.row, w->K, add,
             k.scratch, w->inner);
    }
    divide(&k.other, k.n);
}

static gd_status gather(const gd_call *call, conv_work *w)
{
    return run_items(call, w, gather_item, (gemm_matrix){NULL, w->K, 1},
                     (gemm_matrix){NULL, w->P * w->joined, 1}, (int64_t[]){w->O, COLUMNS, w->K});
}

/* ---- image (+)= fold(weight^T other) ------------------------------------------------------ */

static void scatter_item(const conv_work *w, int64_t item, char *memory)
{
    const int64_t g = item % w->sizes.groups;
    const block k = block_of(w, item / w->sizes.groups, g, memory);
    const gemm_matrix weight = {w->weight + g * w->O * w->K, 1, w->K};
    const bool depthwise = conv_is_depthwise(&w->sizes), point = conv_is_pointwise(&w->sizes);
    join(&k.other, k.n);
    begin(w, &k.image, k.n, w->C, g);
    if (depthwise) each_weight(w, &k, weight.data, NULL, add_to_image);
    for (int64_t p0 = 0; p0 < w->P && !depthwise; p0 += k.windows) {
        const columns c = piece_at(w, &k, p0);
        gemm(point ? k.image.data + p0 * k.n : c.data, point ? k.row : c.row, weight,
             (gemm_matrix){k.other.data + p0 * k.n, k.row, 1}, w->K, c.row, w->O, point, k.scratch,
             w->inner);
        if (!point) gd_for_each(w->inner, c.shares, fold_share, &c);
    }
    divide(&k.image, k.n);
}

static gd_status scatter(const gd_call *call, conv_work *w)
{
    return run_items(call, w, scatter_item, (gemm_matrix){NULL, 1, w->K},
                     (gemm_matrix){NULL, w->P * w->joined, 1}, (int64_t[]){w->K, COLUMNS, w->O});
}

/* ---- dweight (+)= other unfold(image)^T --------------------------------------------------- */

/* Its transpose, since a weight has few rows: of the blocks of one sum, which are added in order. */
static void dweight_item(const conv_work *w, int64_t item, char *memory)
{
    const int64_t sum = item / w->sizes.groups, g = item % w->sizes.groups, count = w->K * w->O;
    const int64_t first = w->blocks * sum / w->sum_count,
                  end = w->blocks * (sum + 1) / w->sum_count;
    const bool depthwise = conv_is_depthwise(&w->sizes);
    REAL *to = w->sums + item * count;
    double *sums = (double *)block_of(w, first, g, memory).piece;
    for (int64_t e = 0; depthwise && e < count; e++) sums[e] = 0;
    for (int64_t b = first; b < end; b++) {
        const block k = block_of(w, b, g, memory);
        join(&k.image, k.n);
        join(&k.other, k.n);
        if (depthwise) each_weight(w, &k, NULL, sums, add_product);
        for (int64_t p0 = 0; p0 < w->P && !depthwise; p0 += k.windows) {
            const columns c = piece_at(w, &k, p0);
            gemm(to, w->O, unfolded(w, &k, &c), (gemm_matrix){k.other.data + p0 * k.n, 1, k.row},
                 w->K, w->O, c.row, b > first || p0 > 0, k.scratch, w->inner);
        }
    }
    for (int64_t e = 0; depthwise && e < count; e++) to[e % w->K * w->O + e / w->K] = (REAL)sums[e];
}

/* Row o of the gradient: the sums, transposed back. */
static void add_sums(const void *work, int64_t o)
{
    const conv_work *w = work;
    const REAL *sums = w->sums + o / w->O * w->K * w->O + o % w->O;
    REAL *to = w->dweight + o * w->K;
    for (int64_t k = 0; k < w->K; k++) {
        double sum = w->add ? (double)to[k] : 0;
        for (int64_t i = 0; i < w->sum_count; i++)
            sum += (double)sums[(i * w->sizes.groups * w->K + k) * w->O];
        to[k] = (REAL)sum;
    }
}

static gd_status dweight(const gd_call *call, conv_work *w)
{
    const int64_t count = w->sizes.O * w->K, most = PARTIAL / gd_max64(1, count);
    w->sum_count = gd_min64(gd_min64(w->blocks, PARTIAL_SUMS), gd_max64(1, most));
    w->items = w->sum_count * w->sizes.groups;
    w->sums = gd_call_scratch(call, (size_t)(w->sum_count * count) * sizeof(REAL));
    if (!w->sums) return gd_error_status(call->context);
    gd_status status =
        run_items(call, w, dweight_item, (gemm_matrix){NULL, w->P * w->joined, 1},
                  (gemm_matrix){NULL, 1, w->P * w->joined}, (int64_t[]){w->K, w->O, COLUMNS});
    if (status) return status;
    w->dweight = gd_data(call->dinput[1]);
    w->add = call->accumulate[1];
    gd_for_each(gd_threads_for(call->threads, w->sum_count * count), w->sizes.O, add_sums, w);
    return GD_OK;
}

/* dbias (+)= the sum of dy over images and positions */
static gd_status dbias(const gd_call *call)
{
    const gd_tensor *dy = call->doutput[0];
    gd_reduction r = {.walk = gd_walk_like(dy), .data = {NULL, gd_data(dy)}};
    gd_walk_add(&r.walk, 4, gd_tensor_shape(dy), (int64_t[]){0, 1, 0, 0});
    gd_walk_add_tensor(&r.walk, dy);
    return gd_reduce_into(call->dinput[2], call->accumulate[2], call, &r);
}

/* ---- The ops conv2d and conv_transpose2d -------------------------------------------------- */

gd_status GD_REAL_NAME(conv2d_forward)(const gd_call *call)
{
    conv_work w = work_of(call, call->input[0], call->output[0]);
    w.bias = gd_data(call->input[2]);
    return gather(call, &w);
}

gd_status GD_REAL_NAME(conv_transpose2d_forward)(const gd_call *call)
{
    conv_work w = work_of(call, call->output[0], call->input[0]);
    w.bias = gd_data(call->input[2]);
    return scatter(call, &w);
}

/* Both backwards: of conv2d the image is x and the other side y, and dx is scattered; of
 * conv_transpose2d the image is y and the other side x, and dx is gathered. ([conv2d dx], [conv2d dw],
 * [conv2d db] and those of conv_transpose2d, in plain_cpu.c.) */
static gd_status gradients(const gd_call *call, bool transposed)
{
    const gd_tensor *x = call->input[0], *dx = call->dinput[0], *dy = call->doutput[0];
    gd_status status = GD_OK;
    if (dx) {
        conv_work w = transposed ? work_of(call, dy, dx) : work_of(call, dx, dy);
        w.add = call->accumulate[0];
        status = transposed ? gather(call, &w) : scatter(call, &w);
    }
    if (call->dinput[1] && !status) {
        conv_work w = transposed ? work_of(call, dy, x) : work_of(call, x, dy);
        status = dweight(call, &w);
    }
    return call->dinput[2] && !status ? dbias(call) : status;
}

gd_status GD_REAL_NAME(conv2d_backward)(const gd_call *call)
{
    return gradients(call, false);
}

gd_status GD_REAL_NAME(conv_transpose2d_backward)(const gd_call *call)
{
    return gradients(call, true);
}
