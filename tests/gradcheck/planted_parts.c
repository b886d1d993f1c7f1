/* planted_parts.c - the backwards of matmul, linear, embedding, the ops along an axis, the
 * reductions and the shapes with their classic mistakes. */
#include "planted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matmul/matmul.h"

/* ---- matmul ------------------------------------------------------------------------------- */

enum {
    MATMUL_RIGHT,
    MATMUL_B,         /* da = dc b instead of dc b^T */
    MATMUL_A,         /* db = a dc instead of a^T dc */
    MATMUL_TRANSPOSE, /* da is transposed */
    MATMUL_ORDER,     /* db = dc^T a */
    MATMUL_SHORT,     /* the last term of each sum is missing */
    MATMUL_BATCH      /* db of the last matrix only, where one b serves many */
};

static const matmul_args plain = {false, false};
static const gd_case square = {
    .name = "square4", .args = &plain, GD_INPUTS({GD_DIMS(4, 4)}, {GD_DIMS(4, 4)})};
static const gd_case batch = {
    .name = "one_b_for_three", .args = &plain, GD_INPUTS({GD_DIMS(3, 4, 4)}, {GD_DIMS(4, 4)})};

/* da[i, k] = sum_j dc[i, j] b[k, j], db[k, j] = sum_i a[i, k] dc[i, j] */
static void one_product(const planted_math *m, int64_t n, const double *a, const double *dc,
                        double *da)
{
    const double *b = m->x[1];
    int64_t terms = m->variant == MATMUL_SHORT ? n - 1 : n;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum_a = 0, sum_b = 0;
            for (int64_t k = 0; k < terms; k++) {
                sum_a += dc[i * n + k] * (m->variant == MATMUL_B ? b[k * n + j] : b[j * n + k]);
                if (m->variant == MATMUL_A)
                    sum_b += a[i * n + k] * dc[k * n + j];
                else if (m->variant == MATMUL_ORDER)
                    sum_b += dc[k * n + i] * a[k * n + j];
                else
                    sum_b += a[k * n + i] * dc[k * n + j];
            }
            da[m->variant == MATMUL_TRANSPOSE ? j * n + i : i * n + j] = sum_a;
            if (m->variant == MATMUL_BATCH) m->g[1][i * n + j] = 0;
            m->g[1][i * n + j] += sum_b;
        }
    }
}

static void matmul(planted_math *m)
{
    int64_t n = gd_tensor_dim(m->call->input[1], 0), count = gd_tensor_count(m->call->input[0]);
    for (int64_t at = 0; at < count; at += n * n)
        one_product(m, n, m->x[0] + at, m->dy[0] + at, m->g[0] + at);
}

/* ---- linear ------------------------------------------------------------------------------- */

enum {
    LINEAR_RIGHT,
    LINEAR_BIAS_ROW, /* dbias = the first row of dy */
    LINEAR_BIAS_X,   /* dbias is scaled by x */
    LINEAR_NO_X,     /* dweight without x */
    LINEAR_ROWS      /* dweight without the last row */
};

/* dx = dy weight, dweight = dy^T x, dbias = sum over rows of dy */
static void linear(planted_math *m)
{
    int64_t M = planted_rows(m->call->input[0]), K = planted_columns(m->call->input[0]);
    int64_t N = gd_tensor_dim(m->call->input[1], 0);
    for (int64_t i = 0; i < M; i++) {
        for (int64_t n = 0; n < N; n++) {
            double dy = m->dy[0][i * N + n];
            if (m->variant != LINEAR_BIAS_ROW || i == 0)
                m->g[2][n] += m->variant == LINEAR_BIAS_X ? dy * m->x[0][i * K] : dy;
            for (int64_t k = 0; k < K; k++) {
                double x = m->variant == LINEAR_NO_X ? 1 : m->x[0][i * K + k];
                m->g[0][i * K + k] += dy * m->x[1][n * K + k];
                if (m->variant != LINEAR_ROWS || i + 1 < M) m->g[1][n * K + k] += dy * x;
            }
        }
    }
}

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
    ALL_TIMES_COUNT, /* mean: without 1 / n */
    ALL_TO_FIRST,    /* sum: only the first element */
    ALL_EVERYWHERE,  /* max: the gradient goes to every element */
    ALL_SMALLEST,    /* max: to the smallest */
    ALL_NO_NORM,     /* logsumexp: exp(x) instead of exp(x - y) */
    ALL_NO_MEAN,     /* var, std: x instead of x - mean */
    ALL_NO_ROOT,     /* std: the gradient of var */
    ALL_POPULATION,  /* var, std: 1 / n instead of 1 / (n - 1) */
    ALL_ITSELF,      /* prod: y, with x among the factors */
    ALL_NO_SIGN,     /* norm: |x| instead of x */
    ALL_NO_DIVISOR   /* norm: x instead of x / y */
};

static void mean_all(planted_math *m)
{
    int64_t n = gd_tensor_count(m->call->input[0]);
    for (int64_t i = 0; i < n; i++)
        m->g[0][i] = m->dy[0][0] / (m->variant == ALL_TIMES_COUNT ? 1 : (double)n);
}

static void sum_all(planted_math *m)
{
    int64_t n = m->variant == ALL_TO_FIRST ? 1 : gd_tensor_count(m->call->input[0]);
    for (int64_t i = 0; i < n; i++) m->g[0][i] = m->dy[0][0];
}

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

static void logsumexp_all(planted_math *m)
{
    int64_t n = gd_tensor_count(m->call->input[0]);
    for (int64_t i = 0; i < n; i++)
        m->g[0][i] = m->dy[0][0] * exp(m->x[0][i] - (m->variant == ALL_NO_NORM ? 0 : m->y[0][0]));
}

/* With correction 1. */
static void variance_all(planted_math *m)
{
    int64_t n = gd_tensor_count(m->call->input[0]);
    double mean = 0, share = m->dy[0][0] / (double)(m->variant == ALL_POPULATION ? n : n - 1);
    for (int64_t i = 0; i < n; i++) mean += m->x[0][i] / (double)n;
    const bool root = !strcmp(m->call->op->name, "std") && m->variant != ALL_NO_ROOT;
    share *= root ? 1 / m->y[0][0] : 2;
    for (int64_t i = 0; i < n; i++)
        m->g[0][i] = share * (m->x[0][i] - (m->variant == ALL_NO_MEAN ? 0 : mean));
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
#define MATMUL(own_case, number, what, words)                                                 \
    {                                                                                         \
        "matmul", NULL, what, .finding = words, .own = &own_case, .variant = MATMUL_##number, \
                              .formula = matmul                                               \
    }
#define LINEAR(number, what, finding) \
    BUG("linear", "rows4_5_to_7", linear, LINEAR_##number, what, finding)
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
    MATMUL(square, RIGHT, "nothing", NULL),
    MATMUL(batch, RIGHT, "nothing", NULL),
    MATMUL(square, B, "da with b instead of b^T",
           "the forward's own matrix is applied to dy, not its transpose"),
    MATMUL(square, A, "db with a instead of a^T",
           "the forward's own matrix is applied to dy, not its transpose"),
    MATMUL(square, TRANSPOSE, "da transposed", "transposed"),
    MATMUL(square, ORDER, "db = dc^T a", "transposed"),
    MATMUL(square, SHORT, "one term short", "dy[:, 3] is left out"),
    MATMUL(batch, BATCH, "db of the last matrix of the batch alone", "only dy[2, :, :] is used"),
    LINEAR(RIGHT, "nothing", NULL),
    LINEAR(BIAS_ROW, "dbias of the first row alone", "only dy[0, :] is used"),
    LINEAR(BIAS_X, "dbias times x", "an extra factor for each index along its axis 0"),
    LINEAR(NO_X, "dweight without x", "dy is summed without its factor"),
    LINEAR(ROWS, "dweight without the last row", "dy[3, :] is left out"),
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
    ALL("mean", mean_all, RIGHT, "nothing", NULL),
    ALL("mean", mean_all, TIMES_COUNT, "without 1 / n", "a constant factor 105"),
    ALL("sum", sum_all, RIGHT, "nothing", NULL),
    ALL("sum", sum_all, TO_FIRST, "the first element alone", "zero at the wrong elements"),
    ALL("max", max_all, RIGHT, "nothing", NULL),
    ALL("max", max_all, EVERYWHERE, "the gradient goes everywhere",
        "a gradient where it should be 0"),
    ALL("max", max_all, SMALLEST, "the gradient of the minimum", "zeros in the wrong places"),
    ALL("logsumexp", logsumexp_all, RIGHT, "nothing", NULL),
    ALL("logsumexp", logsumexp_all, NO_NORM, "exp(x) without the sum", "a constant factor 175."),
    ALL("var", variance_all, RIGHT, "nothing", NULL),
    ALL("var", variance_all, NO_MEAN, "x instead of x - mean", "a constant is added"),
    ALL("var", variance_all, POPULATION, "divided by n", "a constant factor 0.990476"),
    ALL("std", variance_all, RIGHT, "nothing", NULL),
    ALL("std", variance_all, NO_MEAN, "x instead of x - mean", "a constant is added"),
    ALL("std", variance_all, NO_ROOT, "the gradient of the variance", "a constant factor"),
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
