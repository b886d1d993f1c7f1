/* copy.c - dst = src for any strides and any pair of dtypes. */
#include "copy/convert.h"
#include "kernel.h"
#include "walk.h"

enum { DST, SRC };

/* A copy as a number of tiles: rows x cols places that two dimensions span, for each place of an
 * outer walk over the other dimensions. */
typedef struct copy_plan {
    gd_walk outer;
    int64_t rows, row_stride[2], tile_rows;
    int64_t cols, col_stride[2], tile_cols;
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

/* If one side lies packed along another dimension than the last, as in a transposition: that
 * dimension; otherwise -1. */
static int transposed_dimension(const gd_walk *walk)
{
    int last = walk->ndim - 1;
    if (last < 1 || (walk->stride[DST][last] == 1 && walk->stride[SRC][last] == 1)) return -1;
    for (int d = 0; d < last; d++)
        if (walk->stride[DST][d] == 1 || walk->stride[SRC][d] == 1) return d;
    return -1;
}

/* Tiles are wide where both sides run along the rows. In a transposition one side runs across
 * them, so that each of its cache lines is read once for every row: a square tile keeps them in
 * the cache until they are used up. */
static copy_plan make_plan(gd_walk walk)
{
    copy_plan plan = {.rows = 1};
    gd_walk_merge(&walk);
    int across = transposed_dimension(&walk);
    if (across >= 0) move_before_last(&walk, across);
    plan.cols = gd_walk_take_last(&walk, plan.col_stride);
    if (walk.ndim) plan.rows = gd_walk_take_last(&walk, plan.row_stride);
    plan.outer = walk;
    plan.tile_cols = across >= 0 ? 32 : GD_BLOCK;
    plan.tile_rows = across >= 0 ? 32 : gd_max64(1, GD_BLOCK / gd_max64(1, plan.cols));
    return plan;
}

void gd_copy_cpu(gd_layout dst, gd_layout src, int threads)
{
    gd_walk walk = gd_walk_over(dst.ndim, dst.shape);
    gd_walk_add(&walk, dst.ndim, dst.shape, dst.strides);
    gd_walk_add(&walk, src.ndim, src.shape, src.strides);
    int64_t count = gd_walk_count(&walk);
    if (count == 0) return;

    const copy_plan plan = make_plan(walk);
    gd_converter *convert = gd_find_converter(dst.dtype, src.dtype);
    const int64_t dst_size = (int64_t)gd_dtype_size(dst.dtype);
    const int64_t src_size = (int64_t)gd_dtype_size(src.dtype);
    const int64_t down = (plan.rows + plan.tile_rows - 1) / plan.tile_rows;
    const int64_t along = (plan.cols + plan.tile_cols - 1) / plan.tile_cols;
    const int64_t tiles = gd_walk_count(&plan.outer) * down * along;
    threads = gd_threads_for(threads, count);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t tile = 0; tile < tiles; tile++) {
        gd_walk at = plan.outer;
        gd_walk_seek(&at, tile / (down * along));
        int64_t row = tile / along % down * plan.tile_rows;
        int64_t col = tile % along * plan.tile_cols;
        int64_t row_end = gd_min64(row + plan.tile_rows, plan.rows);
        int64_t width = gd_min64(plan.tile_cols, plan.cols - col);
        for (; row < row_end; row++) {
            int64_t to = at.offset[DST] + row * plan.row_stride[DST] + col * plan.col_stride[DST];
            int64_t from = at.offset[SRC] + row * plan.row_stride[SRC] + col * plan.col_stride[SRC];
            convert((char *)dst.data + to * dst_size, plan.col_stride[DST],
                    (const char *)src.data + from * src_size, plan.col_stride[SRC], width);
        }
    }
}
