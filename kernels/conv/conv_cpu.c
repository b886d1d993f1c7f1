/* conv_cpu.c - convolutions as products (kernels/matmul/gemm.h) with pieces of the unfolded image.
 *
 * Working in pieces bounds scratch memory: a thread has about PIECE unfolded elements at a time, or
 * WINDOWS windows if those are more.
 *
 * In small images most of the time would go to the ends of short rows, and to products of a few
 * columns. So the images of small planes are joined, in blocks of at most 2 PIECE numbers: each
 * element of a block is a run, its numbers in all images, and rows and products are as many times
 * longer. Blocks and pieces depend on sizes alone, and with them the bits.
 *
 * Threads share blocks and groups, or, where these are fewer than threads, each product's rows. */
#include "conv/columns.h"
#include "matmul/gemm.h"

enum {
    PIECE = 1 << 16,   /* elements: 256 KiB of float, in the second level cache */
    WINDOWS = 96,      /* a piece has at least so many, and whole multiples of the half */
    JOINED = 16,       /* images are joined in multiples of this */
    PARTIAL = 1 << 22, /* elements of partial sums of a weight's gradient, or one */
    PARTIAL_SUMS = 16  /* and at most so many sums */
};

typedef enum product {
    GATHER,  /* other (+)= weight unfold(image) */
    SCATTER, /* image (+)= fold(weight^T other) */
    DWEIGHT  /* sums = (other unfold(image)^T)^T, since a weight has few rows */
} product;

/* A product of a convolution, for all images and groups. */
typedef struct conv_work {
    product product;
    conv_sizes sizes;
    int64_t C, O, K, P;     /* of a group: channels, outputs, terms of a product; windows */
    REAL *image, *other;    /* [B, groups, C, H, W] and [B, groups, O, P] */
    const REAL *weight;     /* [groups, O, K] */
    const REAL *bias;       /* of what is computed, or NULL */
    REAL *sums, *dweight;   /* [parts, groups, K, O], [groups, O, K] */
    bool add;               /* to what is there */
    int64_t joined, blocks; /* images of a block, at most */
    int64_t columns;        /* of a piece, at most: windows times images */
    int64_t parts;          /* of the blocks: the items are parts times groups */
    int inner;              /* threads of an item */
    size_t image_bytes, other_bytes, piece_bytes;
} conv_work;

/* ---- Blocks and pieces -------------------------------------------------------------------- */

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

/* to[c, r] = from[r, c] for `rows` rows of `columns`, as far as possible by squares of vectors. */
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

/* Initialises the output: its old value (add), the bias, or 0. */
static void begin(const conv_work *w, const side *s, int64_t n, int64_t channels, int64_t group)
{
    if (w->add) join(s, n);
    const int64_t plane = s->size * n / gd_max64(1, channels);
    for (int64_t c = 0; c < channels && !w->add; c++) {
        const REAL bias = w->bias ? w->bias[group * channels + c] : 0;
        for (int64_t e = c * plane; e < (c + 1) * plane; e++) s->data[e] = bias;
    }
}

/* How many images are joined: where rows of windows are short, and the columns are larger than the
 * image, which has to be copied; or where an image has too few windows for a product. */
static int64_t joined_images(const conv_work *w)
{
    const conv_sizes *s = &w->sizes;
    const int64_t image = w->C * s->H * s->W, size = gd_max64(1, gd_max64(image, w->O * w->P));
    const bool wanted = w->P < JOINED / 2 || (s->OW < JOINED && w->K * w->P >= 2 * image);
    const int64_t n = gd_round_up(gd_divide_up(WINDOWS, w->P), JOINED);
    const int64_t most = wanted ? gd_min64(n, 2 * PIECE / size / JOINED * JOINED) : 1;
    return gd_max64(1, gd_min64(s->B, most));
}

/* How many columns a piece has: pieces of about PIECE elements, at most half as many more, and
 * equal but for whole vectors. */
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
    w.parts = w.blocks = gd_divide_up(s->B, w.joined);
    w.columns = piece_columns(&w);
    return w;
}

/* The piece of a block from window p0 on. */
static columns piece_at(const conv_work *w, const block *k, int64_t p0)
{
    const int64_t p1 = gd_min64(w->P, p0 + k->windows);
    return (columns){.sizes = &w->sizes,
                     .image = k->image.data,
                     .data = k->piece,
                     .p0 = p0,
                     .p1 = p1,
                     .run = k->n,
                     .channels = w->C,
                     .shares = shares_of(w->C, p1 - p0),
                     .pairing = w->product == SCATTER ? ADD_TO_IMAGE : COPY};
}

/* ---- Products ----------------------------------------------------------------------------- */

/* A product of a piece: c [M, N] (+)= a [M, K] b [K, N]. */
typedef struct piece_product {
    gemm_matrix a, b;
    int64_t M, N, K;
} piece_product;

/* Of the columns [K, n] and the other side [O, n]. */
static piece_product product_of(const conv_work *w, const REAL *weight, gemm_matrix columns,
                                gemm_matrix other, int64_t n)
{
    if (w->product == GATHER) return (piece_product){{weight, w->K, 1}, columns, w->O, n, w->K};
    if (w->product == SCATTER) return (piece_product){{weight, 1, w->K}, other, w->K, n, w->O};
    return (piece_product){columns, gemm_transposed(other), w->K, w->O, n};
}

/* The product of the piece from window p0 on, which is added to what is there, or to sums [K, O]. A
 * pointwise convolution has the image itself in place of columns. */
static void multiply_piece(const conv_work *w, const block *k, int64_t p0, const REAL *weight,
                           REAL *sums, bool add)
{
    const bool point = conv_is_pointwise(&w->sizes), scatter = w->product == SCATTER;
    const columns c = piece_at(w, k, p0);
    const int64_t n = (c.p1 - p0) * k->n, row = point ? k->row : n;
    REAL *data = point ? k->image.data + p0 * k->n : c.data, *other = k->other.data + p0 * k->n;
    if (!point && !scatter) gd_for_each(w->inner, c.shares, pair_share, &c);
    const piece_product x =
        product_of(w, weight, (gemm_matrix){data, row, 1}, (gemm_matrix){other, k->row, 1}, n);
    REAL *to = sums;
    int64_t to_row = w->O;
    if (w->product == GATHER) to = other, to_row = k->row;
    if (scatter) to = data, to_row = row, add = point;
    gemm(to, to_row, x.a, x.b, x.M, x.N, x.K, add, k->scratch, w->inner);
    if (!point && scatter) gd_for_each(w->inner, c.shares, pair_share, &c);
}

/* The products of a block and a group. A depthwise convolution has no columns: each weight has a
 * row of `other` in place of its row of them. */
static void multiply_block(const conv_work *w, const block *k, const REAL *weight, REAL *sums,
                           bool add)
{
    static const pairing pairings[] = {ADD_TO_ROW, ADD_TO_IMAGE, MULTIPLY};
    const columns c = piece_at(w, k, 0);
    const bool depthwise = conv_is_depthwise(&w->sizes);
    for (int64_t e = 0; depthwise && e < w->O * w->K; e++) {
        const rectangle all = {0, 0, w->sizes.OH, w->sizes.OW};
        const int64_t o = e / w->K, at = e % w->K, KW = w->sizes.KW;
        const part p = part_of(&c, all, at / KW, at % KW);
        const double sum =
            pair(&p, pairings[w->product], k->other.data + o * k->row, k->image.data, weight[e]);
        if (sums) sums[at * w->O + o] = (REAL)(sum + (add ? (double)sums[at * w->O + o] : 0));
    }
    for (int64_t p0 = 0; p0 < w->P && !depthwise; p0 += k->windows)
        multiply_piece(w, k, p0, weight, sums, add || (sums && p0 > 0));
}

/* A part of the blocks, for one group. */
static void run_item(const conv_work *w, int64_t item, char *memory)
{
    const int64_t part = item / w->sizes.groups, g = item % w->sizes.groups, count = w->K * w->O;
    const int64_t first = w->blocks * part / w->parts, end = w->blocks * (part + 1) / w->parts;
    const bool gather = w->product == GATHER, scatter = w->product == SCATTER;
    REAL *sums = w->product == DWEIGHT ? w->sums + item * count : NULL;
    for (int64_t b = first; b < end; b++) {
        const block k = block_of(w, b, g, memory);
        const bool add = sums ? b > first : w->add || w->bias;
        if (!scatter) join(&k.image, k.n);
        if (!gather) join(&k.other, k.n);
        if (scatter) begin(w, &k.image, k.n, w->C, g);
        if (gather && (add || conv_is_depthwise(&w->sizes))) begin(w, &k.other, k.n, w->O, g);
        multiply_block(w, &k, w->weight + g * count, sums, add);
        if (!sums) divide(gather ? &k.other : &k.image, k.n);
    }
}

static void run_items(const void *work, int64_t item, int64_t end, void *memory)
{
    for (; item < end; item++) run_item(work, item, memory);
}

static size_t whole_lines(int64_t bytes)
{
    return (size_t)gd_round_up(bytes, 64);
}

/* Bytes of scratch for a product; the last block, and the last piece of one, may be shorter. */
static size_t scratch_of(const conv_work *w)
{
    const gemm_matrix any = {NULL, w->P * w->joined, 1};
    size_t most = 0;
    for (int64_t b = 0; b < w->blocks; b += gd_max64(1, w->blocks - 1)) {
        const int64_t n = gd_min64(w->joined, w->sizes.B - b * w->joined),
                      windows = gd_min64(w->P, w->columns / n);
        for (int64_t p0 = 0; p0 < w->P; p0 += windows) {
            const piece_product x = product_of(w, NULL, any, any, gd_min64(windows, w->P - p0) * n);
            const size_t bytes = gemm_scratch(x.a, x.b, x.M, x.N, x.K, w->inner);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

static gd_status multiply(const gd_call *call, conv_work *w, product product)
{
    const conv_sizes *s = &w->sizes;
    const int64_t items = w->parts * s->groups, bytes_of = (int64_t)sizeof(REAL);
    if (items == 0) return GD_OK;
    w->product = product;
    const int threads = gemm_threads(call->threads, items * w->K, w->columns, w->O);
    w->inner = items >= threads ? 1 : threads;
    size_t bytes = scratch_of(w);
    if (w->joined > 1) {
        w->image_bytes = whole_lines(w->C * s->H * s->W * w->joined * bytes_of);
        w->other_bytes = whole_lines(w->O * w->P * w->joined * bytes_of);
    }
    if (!conv_is_depthwise(s) && !conv_is_pointwise(s))
        w->piece_bytes = whole_lines(w->K * w->columns * bytes_of);
    bytes += w->image_bytes + w->other_bytes + w->piece_bytes;
    return gd_each_range(call, threads > w->inner ? GD_PARALLEL_FROM : 0, items, bytes, run_items,
                         w);
}

/* Row o of the gradient: the sums, transposed back. */
static void add_sums(const void *work, int64_t o)
{
    const conv_work *w = work;
    const REAL *sums = w->sums + o / w->O * w->K * w->O + o % w->O;
    REAL *to = w->dweight + o * w->K;
    for (int64_t k = 0; k < w->K; k++) {
        double sum = w->add ? (double)to[k] : 0;
        for (int64_t i = 0; i < w->parts; i++)
            sum += (double)sums[(i * w->sizes.groups * w->K + k) * w->O];
        to[k] = (REAL)sum;
    }
}

static gd_status dweight(const gd_call *call, conv_work *w)
{
    const int64_t count = w->sizes.O * w->K, most = PARTIAL / gd_max64(1, count);
    w->parts = gd_min64(gd_min64(w->blocks, PARTIAL_SUMS), gd_max64(1, most));
    w->sums = gd_call_scratch(call, (size_t)(w->parts * count) * sizeof(REAL));
    if (!w->sums) return gd_error_status(call->context);
    const gd_status status = multiply(call, w, DWEIGHT);
    if (status) return status;
    w->dweight = gd_data(call->dinput[1]);
    w->add = call->accumulate[1];
    return gd_each_piece(call, w->parts * count, w->sizes.O, add_sums, w);
}

/* dbias[o] (+)= the sum of dy over images and positions */
static void sum_channel(const void *work, int64_t o)
{
    const gd_call *call = work;
    const int64_t *shape = gd_tensor_shape(call->doutput[0]), n = shape[2] * shape[3];
    double total = 0;
    for (int64_t b = 0; b < shape[0]; b++) {
        const REAL *dy = gd_dy(call, 0) + (b * shape[1] + o) * n;
        GD_SUM(sum, i, n, (double)dy[i]);
        total += sum;
    }
    gd_store(gd_dx(call, 2), o, total, gd_adds(call, 2));
}

/* ---- The ops conv2d and conv_transpose2d -------------------------------------------------- */

/* Of conv2d the image is x, and the other side y; of conv_transpose2d the image is y. */
static gd_status conv_forward(const gd_call *call, bool transposed)
{
    const gd_tensor *x = call->input[0], *y = call->output[0];
    conv_work w = transposed ? work_of(call, y, x) : work_of(call, x, y);
    w.bias = gd_data(call->input[2]);
    return multiply(call, &w, transposed ? SCATTER : GATHER);
}

/* dx is the other product. ([conv2d dx], [conv2d dw], [conv2d db] and those of conv_transpose2d, in
 * plain_cpu.c.) */
static gd_status conv_backward(const gd_call *call, bool transposed)
{
    const gd_tensor *x = call->input[0], *dx = call->dinput[0], *dy = call->doutput[0];
    gd_status status = GD_OK;
    if (dx) {
        conv_work w = transposed ? work_of(call, dy, dx) : work_of(call, dx, dy);
        w.add = call->accumulate[0];
        status = multiply(call, &w, transposed ? GATHER : SCATTER);
    }
    if (call->dinput[1] && !status) {
        conv_work w = transposed ? work_of(call, dy, x) : work_of(call, x, dy);
        status = dweight(call, &w);
    }
    if (!call->dinput[2] || status) return status;
    return gd_each_piece(call, gd_tensor_count(dy), gd_tensor_dim(dy, 1), sum_channel, call);
}

GD_KERNEL_OF_REAL(conv2d_forward, conv_forward(call, false))
GD_KERNEL_OF_REAL(conv2d_backward, conv_backward(call, false))
GD_KERNEL_OF_REAL(conv_transpose2d_forward, conv_forward(call, true))
GD_KERNEL_OF_REAL(conv_transpose2d_backward, conv_backward(call, true))
