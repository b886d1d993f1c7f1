/* test_long_gathers.h - gd_gather, gd_index_select and gd_scatter_add along long axes, on the CPU
 * and on a GPU, which sorts the index there. */
#ifndef GRADUS_LONG_GATHERS_H
#define GRADUS_LONG_GATHERS_H

#include "op_test.h"

/* The place in an array of shape s of the element at `index`. */
static inline int64_t place_of(shape s, const int64_t *index)
{
    int64_t place = 0;
    for (int d = 0; d < s.ndim; d++) place = place * s.dim[d] + index[d];
    return place;
}

/* Where element `place` of an array of shape `from` points in one of shape `to`: to the same
 * coordinates, but `at` along the axis. */
static inline int64_t pointed(shape from, shape to, int64_t place, int axis, int64_t at)
{
    int64_t index[GD_MAX_DIMS];
    unravel(from, place, index);
    index[axis] = at;
    return place_of(to, index);
}

static const struct long_gather {
    const char *name;
    int axis;
    shape x, index; /* 1-D for x of more dimensions: gd_index_select */
    double equal;   /* the part of the indices that is x's middle */
} long_gathers[] = {
    {"one line", 0, {1, {70001}}, {1, {90007}}, 0.3},
    {"of few", 0, {1, {7}}, {1, {10009}}, 0},
    {"in many", 0, {1, {100003}}, {1, {33}}, 0},
    {"all equal", 0, {1, {600}}, {1, {20001}}, 1},
    {"none", 0, {1, {5000}}, {1, {0}}, 0},
    {"rows", 1, {2, {5, 1025}}, {2, {4, 2049}}, 0.1},
    {"middle", 1, {3, {3, 700, 5}}, {3, {2, 900, 5}}, 0.1},
    {"columns", 0, {2, {515, 33}}, {2, {600, 31}}, 0.5},
    {"short lines", 2, {3, {9, 30, 500}}, {3, {9, 30, 512}}, 0.1},
    {"one of each line", 1, {2, {40, 3000}}, {2, {39, 1}}, 0.5},
    {"few of each line", 1, {2, {40, 3000}}, {2, {39, 3}}, 0.5},
    {"tiny lines", 2, {3, {9, 30, 8}}, {3, {9, 29, 7}}, 0.3},
    {"short", 1, {2, {11, 150}}, {2, {11, 130}}, 0.1},
    {"a line of a block", 1, {2, {3, 5000}}, {2, {3, 4096}}, 0.1},
    {"all equal in a block", 0, {1, {257}}, {1, {1024}}, 1},
    {"selected rows", 0, {2, {700, 131}}, {1, {1501}}, 0.2},
    {"selected planes", 1, {3, {3, 700, 5}}, {1, {1500}}, 0.2},
    {"selected columns", 2, {3, {2, 33, 601}}, {1, {1100}}, 0.2},
    /* the last is for a GPU */
    {"more than are sorted at once", 1, {2, {4, 20001}}, {2, {3, 1400001}}, 0.1},
};
enum { LONG_GATHERS = sizeof long_gathers / sizeof *long_gathers };

/* A sum of `rows` in float32, in chunks, and rounded. */
static inline bound sum_bound(gd_dtype dtype)
{
    return (bound){1, dtype == GD_FLOAT64 ? 1e-13 : 3e-6, dtype == GD_FLOAT64 ? 0 : 1.01};
}

/* dy has a NaN, which only the element that it comes from gets. The gradient is written, and added
 * to. */
static inline void check_long_gather(gd_context *ctx, const struct long_gather *g, gd_dtype dtype,
                                     uint64_t *seed)
{
    const int64_t n = g->x.dim[g->axis], own = count_of(g->index), nx = count_of(g->x);
    const bool select = g->index.ndim < g->x.ndim;
    gd_tensor *x = random_leaf(ctx, dtype, g->x.ndim, g->x.dim, -1, 1, seed);
    gd_tensor *index = gd_tensor_create(ctx, GD_INT32, g->index.ndim, g->index.dim);
    double *xv = values_of(x), *at = zeros(own);
    for (int64_t i = 0; i < own; i++)
        at[i] = (double)(random_chance(seed, g->equal) ? n / 2 : random_below(seed, n - 1));
    if (own > 9) at[own / 3] = (double)(n - 1); /* the only one there: of the line */
    gd_tensor_write_f64(index, at, own);
    gd_tensor *y = select ? gd_index_select(x, g->axis, index) : gd_gather(x, g->axis, index);
    ck_assert_msg(y != NULL, "%s: %s", g->name, gd_error(ctx));
    gd_keep(y);
    const shape t = shape_of(y);
    const int64_t count = count_of(t);
    gd_tensor *dy = random_leaf(ctx, dtype, t.ndim, t.dim, -1, 1, seed);
    double *dyv = values_of(dy), *want = zeros(count), *dx = zeros(nx), *sum = zeros(nx);
    if (count > 9) dyv[select ? 0 : own / 3] = NAN;
    gd_tensor_write_f64(dy, dyv, count);
    memcpy(sum, xv, (size_t)nx * sizeof *sum);
    for (int64_t i = 0; i < count; i++) {
        int64_t place[GD_MAX_DIMS] = {0};
        unravel(t, i, place);
        const int64_t from = pointed(t, g->x, i, g->axis, (int64_t)at[select ? place[g->axis] : i]);
        want[i] = xv[from];
        dx[from] += dyv[i];
        sum[from] += dyv[i];
    }
    assert_sums(g->name, y, want, 0);
    result_bits first = {0};
    for (int turn = 0; turn < 3; turn++) { /* written twice; then added to */
        if (turn == 1) gd_grad_clear(x);
        gd_backward_options options = {.cotangents = &dy, .keep_tape = true};
        gd_backward_from(&y, 1, &options);
        ck_assert_no_error(ctx);
        assert_near(gd_grad(x), dx, turn == 2 ? 2 : 1, sum_bound(dtype), g->name);
        if (turn < 2) assert_same_bits(&first, (gd_tensor *[]){gd_grad(x)}, 1);
    }
    if (!select) {
        gd_tensor *z = gd_scatter_add(x, g->axis, index, dy);
        ck_assert_no_error(ctx);
        assert_near(z, sum, 1, sum_bound(dtype), g->name);
    }
    free(first.all);
    free(xv), free(at), free(dyv), free(want), free(dx), free(sum);
}

#endif
