/* planted_parts.c - the backwards of embedding, the ops along an axis, some reductions and the shapes with their classic mistakes. */
#include "planted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- embedding ---------------------------------------------------------------------------- */

enum {
    EMBEDDING_RIGHT,
    EMBEDDING_OVERWRITES, /* repeated ids */
    EMBEDDING_NEXT,       /* into the row after */
    EMBEDDING_LAST        /* without the last id */
};

/* dtable[ids[i], :] += dy[i, :] */
static void embedding(planted_math *m)
{
    int64_t V = gd_tensor_dim(m->call->input[0], 0), C = gd_tensor_dim(m->call->input[0], 1);
    int64_t ids = gd_tensor_count(m->call->input[1]);
    for (int64_t i = 0; i < ids - (m->variant == EMBEDDING_LAST); i++) {
        int64_t row = (int64_t)m->x[1][i];
        if (m->variant == EMBEDDING_NEXT) row = (row + 1) % V;
        for (int64_t c = 0; c < C; c++) {
            if (m->variant == EMBEDDING_OVERWRITES) m->g[0][row * C + c] = 0;
            m->g[0][row * C + c] += m->dy[0][i * C + c];
        }
    }
}

/* ---- Along the last axis: gather, scatter_add, cumsum ------------------------------------- */

enum {
    AXIS_RIGHT,
    AXIS_OVERWRITES, /* gather: of equal indices the last one counts */
    AXIS_IN_ORDER,   /* gather, scatter_add: as if index were 0, 1, 2 ... */
    AXIS_FIRST_LINE, /* as if every line had the index of the first */
    AXIS_NO_X,       /* scatter_add: dx is missing where something was added */
    AXIS_FORWARD,    /* cumsum: from the beginning again */
    AXIS_WITHOUT     /* cumsum: without the element itself */
};

/* Where in its line element i of index [M, m] points. */
static int64_t pointed(const planted_math *m, int64_t i)
{
    const int64_t n = planted_columns(m->call->input[1]);
    if (m->variant == AXIS_IN_ORDER) return i % n;
    return (int64_t)m->x[1][m->variant == AXIS_FIRST_LINE ? i % n : i];
}

/* dx[r, index[r, i]] += dy[r, i] */
static void gather(planted_math *m)
{
    const int64_t n = planted_columns(m->call->input[0]), k = planted_columns(m->call->input[1]);
    for (int64_t i = 0; i < gd_tensor_count(m->call->input[1]); i++) {
        double *to = m->g[0] + i / k * n + pointed(m, i);
        *to = (m->variant == AXIS_OVERWRITES ? 0 : *to) + m->dy[0][i];
    }
}

/* dx = dy, dsrc[r, i] = dy[r, index[r, i]]; src has the shape of index */
static void scatter_add(planted_math *m)
{
    const int64_t n = planted_columns(m->call->input[0]), k = planted_columns(m->call->input[1]);
    for (int64_t i = 0; i < gd_tensor_count(m->call->input[0]); i++) m->g[0][i] = m->dy[0][i];
    for (int64_t i = 0; i < gd_tensor_count(m->call->input[1]); i++) {
        const int64_t at = i / k * n + pointed(m, i);
        m->g[2][i] = m->dy[0][at];
        if (m->variant == AXIS_NO_X) m->g[0][at] = 0;
    }
}

/* dx[r, j] = the sum of dy[r, i] over i >= j */
static void cumsum(planted_math *m)
{
    const int64_t n = planted_columns(m->call->input[0]),
                  count = gd_tensor_count(m->call->input[0]);
    for (int64_t at = 0; at < count; at++) {
        for (int64_t i = at / n * n; i < at / n * n + n; i++) {
            bool counts = m->variant == AXIS_FORWARD ? i <= at : i >= at;
            if (m->variant == AXIS_WITHOUT && i == at) counts = false;
            if (counts) m->g[0][at] += m->dy[0][i];
        }
    }
}

/* ---- Reductions over all of x ------------------------------------------------------------- */

enum {
    ALL_RIGHT,
    ALL_EVERYWHERE, /* max: the gradient goes to every element */
    ALL_SMALLEST,   /* max: to the smallest */
    ALL_ITSELF,     /* prod: y, with x among the factors */
    ALL_NO_SIGN,    /* norm: |x| instead of x */
    ALL_NO_DIVISOR  /* norm: x instead of x / y */
};

static void max_all(planted_math *m)
{
    int64_t n = gd_tensor_count(m->call->input[0]), at = 0;
    for (int64_t i = 0; i < n; i++) {
        bool better = m->x[0][i] > m->x[0][at];
        if (m->variant == ALL_SMALLEST) better = m->x[0][i] < m->x[0][at];
        if (better) at = i;
        if (m->variant == ALL_EVERYWHERE) m->g[0][i] = m->dy[0][0];
    }
    m->g[0][at] = m->dy[0][0];
}

/* Over the last axis. */
static void prod_rows(planted_math *m)
{
    const int64_t n = gd_tensor_count(m->call->input[0]), N = planted_columns(m->call->input[0]);
    for (int64_t i = 0; i < n; i++) {
        const double part = m->dy[0][i / N] * m->y[0][i / N];
        m->g[0][i] = part / (m->variant == ALL_ITSELF ? 1 : m->x[0][i]);
    }
}

/* With p = 2. */
static void norm_all(planted_math *m)
{
    int64_t n = gd_tensor_count(m->call->input[0]);
    for (int64_t i = 0; i < n; i++) {
        const double x = m->variant == ALL_NO_SIGN ? fabs(m->x[0][i]) : m->x[0][i];
        m->g[0][i] = m->dy[0][0] * x / (m->variant == ALL_NO_DIVISOR ? 1 : m->y[0][0]);
    }
}

/* ---- Shapes ------------------------------------------------------------------------------- */

enum {
    SHAPE_RIGHT,
    SHAPE_NO_SUM,   /* expand: the first copy instead of the sum of all */
    SHAPE_AVERAGE,  /* expand: the mean */
    SHAPE_NOT_BACK, /* permute: dy as it lies */
    SHAPE_FIRST,    /* concat: every part takes dy from its beginning */
    SHAPE_ALL,      /* tril: dy where y is 0, too */
    SHAPE_DIAGONAL, /* triu: without the diagonal */
    SHAPE_ORDER,    /* reshape: column by column */
    SHAPE_STRIDES,  /* contiguous: dx lies as x does */
    SHAPE_ROUNDED,  /* cast: through float32 */
    SHAPE_START     /* slice: at the beginning of x */
};

/* The elements in the same order: reshape, contiguous, cast. x [A, B] */
static void same_order(planted_math *m)
{
    const gd_tensor *x = m->call->input[0];
    const int64_t A = gd_tensor_dim(x, 0), B = gd_tensor_dim(x, 1), *stride = gd_tensor_strides(x);
    for (int64_t i = 0; i < A * B; i++) {
        int64_t to = i;
        if (m->variant == SHAPE_ORDER) to = i % A * B + i / A;
        if (m->variant == SHAPE_STRIDES) to = i / B * stride[0] + i % B * stride[1];
        const double dy = m->dy[0][i];
        if (to >= 0 && to < A * B)
            m->g[0][to] = m->variant == SHAPE_ROUNDED ? (double)(float)dy : dy;
    }
}

/* Rows 1 to 3 of x [4, N] */
static void slice_rows(planted_math *m)
{
    const int64_t N = planted_columns(m->call->input[0]);
    const int64_t first = m->variant == SHAPE_START ? 0 : N;
    for (int64_t i = 0; i < gd_tensor_count(m->call->output[0]); i++)
        m->g[0][first + i] = m->dy[0][i];
}

/* x [] expanded to [n] */
static void expand_scalar(planted_math *m)
{
    int64_t n = gd_tensor_count(m->call->output[0]);
    for (int64_t i = 0; i < (m->variant == SHAPE_NO_SUM ? 1 : n); i++) m->g[0][0] += m->dy[0][i];
    if (m->variant == SHAPE_AVERAGE) m->g[0][0] /= (double)n;
}

/* x [A, B] with its axes exchanged */
static void permute_two(planted_math *m)
{
    int64_t A = gd_tensor_dim(m->call->input[0], 0), B = gd_tensor_dim(m->call->input[0], 1);
    for (int64_t i = 0; i < A * B; i++)
        m->g[0][i] = m->dy[0][m->variant == SHAPE_NOT_BACK ? i : i % B * A + i / B];
}

/* Along the first axis, so that dy is one part after the other. */
static void concat_rows(planted_math *m)
{
    const double *dy = m->dy[0];
    for (int k = 0; k < m->call->inputs; k++) {
        int64_t n = gd_tensor_count(m->call->input[k]);
        for (int64_t i = 0; i < n; i++) m->g[k][i] = dy[i];
        if (m->variant != SHAPE_FIRST) dy += n;
    }
}

/* x [A, B], its rows in reverse. */
static void flip_rows(planted_math *m)
{
    int64_t A = gd_tensor_dim(m->call->input[0], 0), B = gd_tensor_dim(m->call->input[0], 1);
    for (int64_t i = 0; i < A * B; i++)
        m->g[0][i] = m->dy[0][m->variant == SHAPE_NOT_BACK ? i : (A - 1 - i / B) * B + i % B];
}

/* x [N, N] */
static void tril(planted_math *m)
{
    int64_t N = gd_tensor_dim(m->call->input[0], 1);
    for (int64_t i = 0; i < N * N; i++)
        m->g[0][i] = i % N <= i / N || m->variant == SHAPE_ALL ? m->dy[0][i] : 0;
}

static void triu(planted_math *m)
{
    int64_t N = gd_tensor_dim(m->call->input[0], 1);
    for (int64_t i = 0; i < N * N; i++)
        m->g[0][i] = i % N >= i / N + (m->variant == SHAPE_DIAGONAL) ? m->dy[0][i] : 0;
}

/* ---- The list ----------------------------------------------------------------------------- */

#define BUG(op, check, function, number, what, finding)                  \
    {                                                                    \
        op, check, what, finding, .variant = number, .formula = function \
    }
#define EMBEDDING(number, what, finding) \
    BUG("embedding", "v11_c5_ids2x7", embedding, EMBEDDING_##number, what, finding)
#define GATHER(check, number, what, finding) \
    BUG("gather", check, gather, AXIS_##number, what, finding)
#define SCATTER(number, what, finding) \
    BUG("scatter_add", "rows", scatter_add, AXIS_##number, what, finding)
#define CUMSUM(number, what, finding) BUG("cumsum", "rows", cumsum, AXIS_##number, what, finding)
#define ALL(op, function, number, what, finding) \
    BUG(op, "all", function, ALL_##number, what, finding)

const planted_bug planted_parts[] = {
    EMBEDDING(RIGHT, "nothing", NULL),
    EMBEDDING(OVERWRITES, "repeated ids overwrite", "only the last counts: overwritten"),
    EMBEDDING(NEXT, "the row after", "moved by one row"),
    EMBEDDING(LAST, "the last id is left out", "dy[1, 6, :] is left out"),
    GATHER("every_index_repeated", RIGHT, "nothing", NULL),
    GATHER("every_index_repeated", OVERWRITES, "repeated indices overwrite",
           "only the last counts: overwritten"),
    GATHER("rows", IN_ORDER, "the index forgotten",
           "x[0, 1] does not use dy[0, 2], but x[0, 0] uses dy[0, 0]"),
    GATHER("rows", FIRST_LINE, "the index of the first line",
           "x[1, 1] does not use dy[1, 0], but x[1, 1] uses dy[1, 1]"),
    SCATTER(RIGHT, "nothing", NULL),
    SCATTER(IN_ORDER, "the index forgotten",
            "src[0, 0] does not use dy[0, 3], but src[0, 0] uses dy[0, 0]"),
    SCATTER(FIRST_LINE, "the index of the first line",
            "src[1, 0] does not use dy[1, 1], but src[1, 0] uses dy[1, 3]"),
    SCATTER(NO_X, "dx overwritten by what was added", "zero at the wrong elements"),
    CUMSUM(RIGHT, "nothing", NULL),
    CUMSUM(FORWARD, "summed from the beginning",
           "the forward's own matrix is applied to dy, not its transpose"),
    CUMSUM(WITHOUT, "without the element itself", "x[0, 0] does not use dy[0, 0]"),
    ALL("max", max_all, RIGHT, "nothing", NULL),
    ALL("max", max_all, EVERYWHERE, "the gradient goes everywhere",
        "a gradient where it should be 0"),
    ALL("max", max_all, SMALLEST, "the gradient of the minimum", "zeros in the wrong places"),
    BUG("prod", "rows", prod_rows, ALL_RIGHT, "nothing", NULL),
    BUG("prod", "rows", prod_rows, ALL_ITSELF, "x itself among the factors", NULL),
    ALL("norm", norm_all, RIGHT, "nothing", NULL),
    ALL("norm", norm_all, NO_SIGN, "without the sign", "the sign is flipped"),
    ALL("norm", norm_all, NO_DIVISOR, "x instead of x / y", "a constant factor"),
    BUG("expand", "scalar_to_7", expand_scalar, SHAPE_RIGHT, "nothing", NULL),
    BUG("expand", "scalar_to_7", expand_scalar, SHAPE_NO_SUM, "the first copy alone",
        "only dy[0] is used"),
    BUG("expand", "scalar_to_7", expand_scalar, SHAPE_AVERAGE, "the mean instead of the sum",
        "a constant factor 1/7"),
    BUG("permute", "3x5", permute_two, SHAPE_RIGHT, "nothing", NULL),
    BUG("permute", "3x5", permute_two, SHAPE_NOT_BACK, "not permuted back", "transposed"),
    BUG("concat", "rows", concat_rows, SHAPE_RIGHT, "nothing", NULL),
    BUG("concat", "rows", concat_rows, SHAPE_FIRST, "every part from the beginning",
        "does not use dy[2, 0], but x[1][0, 0] uses dy[0, 0]"),
    BUG("flip", "columns", flip_rows, SHAPE_RIGHT, "nothing", NULL),
    BUG("flip", "columns", flip_rows, SHAPE_NOT_BACK, "not turned back",
        "the right values in the wrong places"),
    BUG("tril", "square", tril, SHAPE_RIGHT, "nothing", NULL),
    BUG("tril", "square", tril, SHAPE_ALL, "dy everywhere", "a gradient where it should be 0"),
    BUG("triu", "square", triu, SHAPE_RIGHT, "nothing", NULL),
    BUG("triu", "square", triu, SHAPE_DIAGONAL, "without the diagonal",
        "zero at the wrong elements"),
    BUG("reshape", "3x4_to_6x2", same_order, SHAPE_RIGHT, "nothing", NULL),
    BUG("reshape", "3x4_to_6x2", same_order, SHAPE_ORDER, "column by column",
        "the right values in the wrong places"),
    BUG("contiguous", "3x4", same_order, SHAPE_RIGHT, "nothing", NULL),
    BUG("contiguous", "3x4", same_order, SHAPE_STRIDES, "dx laid out as x",
        "with strided inputs and cotangents"),
    BUG("cast", "to_float64", same_order, SHAPE_RIGHT, "nothing", NULL),
    BUG("cast", "to_float64", same_order, SHAPE_ROUNDED, "rounded to float32", "float32"),
    BUG("slice", "rows", slice_rows, SHAPE_RIGHT, "nothing", NULL),
    BUG("slice", "rows", slice_rows, SHAPE_START, "at the beginning of x", "moved by"),
    BUG(NULL, NULL, NULL, 0, NULL, NULL),
};
