/* copy.c - dst = src for any strides and any pair of dtypes. */
#include "copy/convert.h"
#include "kernel.h"
#include "walk.h"

enum { DST, SRC };

/* Side of a square tile. */
#define TILE 32

/* A copy as a number of tiles: rows x cols places that two dimensions span, for each place of an
 * outer walk over the other dimensions. */
typedef struct copy_plan {
    gd_walk outer;
    bool transposed;
    int64_t rows, row_stride[2], tile_rows;
    int64_t cols, col_stride[2], tile_cols;
    gd_converter *convert, *move; /* from src's dtype to dst's; from dst's to dst's */
    int64_t dst_size, src_size;   /* of one element, in bytes */
} copy_plan;

/* Makes dimension `from` the last but one. */
static void move_before_last(gd_walk *walk, int from)
{
    gd_walk old = *walk;
    int to = walk->ndim - 2;
    for (int d = from; d <= to; d++) {
        int source = d < to ? d + 1 : from;
        walk->shape[d] = old.shape[source];
        for (int k = 0; k < walk->operands; k++) walk->stride[k][d] = old.stride[k][source];
    }
}

/* If one side is packed along another dimension than the last, as in a transposition: that
 * dimension; otherwise -1. */
static int transposed_dimension(const gd_walk *walk)
{
    int last = walk->ndim - 1;
    if (last < 1 || (walk->stride[DST][last] == 1 && walk->stride[SRC][last] == 1)) return -1;
    for (int d = 0; d < last; d++)
        if (walk->stride[DST][d] == 1 || walk->stride[SRC][d] == 1) return d;
    return -1;
}

static copy_plan make_plan(gd_layout dst, gd_layout src, gd_walk walk)
{
    copy_plan plan = {.rows = 1};
    gd_walk_merge(&walk);
    int across = transposed_dimension(&walk);
    plan.transposed = across >= 0;
    if (plan.transposed) move_before_last(&walk, across);
    plan.cols = gd_walk_take_last(&walk, plan.col_stride);
    if (walk.ndim) plan.rows = gd_walk_take_last(&walk, plan.row_stride);
    plan.outer = walk;
    plan.tile_cols = plan.transposed ? TILE : GD_BLOCK;
    plan.tile_rows = plan.transposed ? TILE : gd_max64(1, GD_BLOCK / gd_max64(1, plan.cols));
    plan.convert = gd_find_converter(dst.dtype, src.dtype);
    plan.move = gd_find_converter(dst.dtype, dst.dtype);
    plan.dst_size = (int64_t)gd_dtype_size(dst.dtype);
    plan.src_size = (int64_t)gd_dtype_size(src.dtype);
    return plan;
}

/* Row by row; both sides run along the rows. */
static void copy_rows(const copy_plan *p, char *dst, const char *src, int64_t rows, int64_t cols)
{
    for (int64_t row = 0; row < rows; row++)
        p->convert(dst + row * p->row_stride[DST] * p->dst_size, p->col_stride[DST],
                   src + row * p->row_stride[SRC] * p->src_size, p->col_stride[SRC], cols);
}

/* One side runs across the rows. Each side is accessed in its own order, line by line, and the
 * transposition is done in a tile of [rows, TILE] in the first-level cache. */
static void copy_turned(const copy_plan *p, char *dst, const char *src, int64_t rows, int64_t cols)
{
    double tile_memory[TILE * TILE]; /* room for any dtype */
    char *tile = (char *)tile_memory;
    if (p->row_stride[SRC] <= p->col_stride[SRC]) { /* src runs down the columns */
        for (int64_t col = 0; col < cols; col++)
            p->convert(tile + col * p->dst_size, TILE, src + col * p->col_stride[SRC] * p->src_size,
                       p->row_stride[SRC], rows);
        for (int64_t row = 0; row < rows; row++)
            p->move(dst + row * p->row_stride[DST] * p->dst_size, p->col_stride[DST],
                    tile + row * TILE * p->dst_size, 1, cols);
    } else { /* dst does */
        for (int64_t row = 0; row < rows; row++)
            p->convert(tile + row * TILE * p->dst_size, 1,
                       src + row * p->row_stride[SRC] * p->src_size, p->col_stride[SRC], cols);
        for (int64_t col = 0; col < cols; col++)
            p->move(dst + col * p->col_stride[DST] * p->dst_size, p->row_stride[DST],
                    tile + col * p->dst_size, TILE, rows);
    }
}

typedef struct tiles {
    const copy_plan *plan;
    char *dst;
    const char *src;
    int64_t down, along; /* how many there are */
} tiles;

static void copy_tile(const void *work, int64_t tile)
{
    const tiles *w = work;
    const copy_plan *plan = w->plan;
    gd_walk at = plan->outer;
    gd_walk_seek(&at, tile / (w->down * w->along));
    int64_t row = tile / w->along % w->down * plan->tile_rows;
    int64_t col = tile % w->along * plan->tile_cols;
    int64_t to = at.offset[DST] + row * plan->row_stride[DST] + col * plan->col_stride[DST];
    int64_t from = at.offset[SRC] + row * plan->row_stride[SRC] + col * plan->col_stride[SRC];
    (plan->transposed ? copy_turned : copy_rows)(
        plan, w->dst + to * plan->dst_size, w->src + from * plan->src_size,
        gd_min64(plan->tile_rows, plan->rows - row), gd_min64(plan->tile_cols, plan->cols - col));
}

/* ---- Packed arrays of one dtype ------------------------------------------------------------- */

typedef struct bytes {
    char *dst;
    const char *src;
    int64_t count, block;
} bytes;

static void copy_block(const void *work, int64_t i)
{
    const bytes *w = work;
    const int64_t at = i * w->block;
    memcpy(w->dst + at, w->src + at, (size_t)gd_min64(w->block, w->count - at));
}

/* ---- Any ------------------------------------------------------------------------------------ */

static void copy_by_tiles(gd_layout dst, gd_layout src, int threads)
{
    gd_walk walk = gd_walk_over(dst.ndim, dst.shape);
    gd_walk_add(&walk, dst.ndim, dst.shape, dst.strides);
    gd_walk_add(&walk, src.ndim, src.shape, src.strides);
    const copy_plan plan = make_plan(dst, src, walk);
    const tiles w = {&plan, dst.data, src.data, gd_divide_up(plan.rows, plan.tile_rows),
                     gd_divide_up(plan.cols, plan.tile_cols)};
    gd_for_each(threads, gd_walk_count(&plan.outer) * w.down * w.along, copy_tile, &w);
}

void gd_copy_cpu(gd_layout dst, gd_layout src, gd_context *ctx)
{
    int64_t count = 1;
    for (int d = 0; d < dst.ndim; d++) count *= dst.shape[d];
    const int threads = gd_threads_for(gd_context_threads(ctx), count);
    const int64_t size = (int64_t)gd_dtype_size(dst.dtype);
    const bytes w = {dst.data, src.data, count * size, GD_BLOCK * size};
    if (count == 0) return;
    if (dst.dtype == src.dtype && gd_is_packed(dst.ndim, dst.shape, dst.strides) &&
        gd_is_packed(src.ndim, src.shape, src.strides))
        gd_for_each(threads, gd_divide_up(count, GD_BLOCK), copy_block, &w);
    else
        copy_by_tiles(dst, src, threads);
}
