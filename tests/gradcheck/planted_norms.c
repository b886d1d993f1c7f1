/* planted_norms.c - the backwards of rms_norm, add_rms_norm, batch_norm and group_norm with their
 * classic mistakes. */
#include "planted.h"

#include <math.h>
#include <string.h>

#include "batch_norm/batch_norm.h"

/* ---- rms_norm ----------------------------------------------------------------------------- */

enum {
    RMS_RIGHT,
    RMS_NO_WEIGHT,    /* h = dy instead of dy * weight */
    RMS_NO_MEAN_TERM, /* dx = rstd h */
    RMS_SQUARED,      /* the mean term with rstd^2 instead of rstd^3 */
    RMS_DW_WITHOUT_X, /* dweight = sum dy */
    RMS_DW_ROWS,      /* dweight without the last row */
    RMS_DEGREES,      /* mean over N - 1 */
    RMS_SIGN,         /* dx = rstd (h + xhat mean(h xhat)) */
    RMS_DW_RSTD,      /* dweight = sum dy x */
    RMS_NEXT_ROW,     /* rstd of the next row */
    RMS_STALE         /* rstd of the call before */
};

typedef struct rms_row {
    const double *x, *dy;
    double rstd, *dx;
    bool last;
} rms_row;

/* dx = rstd (h - xhat mean(h xhat)), h = dy weight; dweight = sum over rows of dy xhat. */
static void rms_backward(const planted_math *m, int64_t N, rms_row r, double *dw)
{
    const double *x = r.x, *dy = r.dy, rstd = r.rstd, *w = m->x[1];
    double dot = 0, power = m->variant == RMS_SQUARED ? 1 : rstd;
    for (int64_t j = 0; j < N; j++) {
        double h = m->variant == RMS_NO_WEIGHT ? dy[j] : dy[j] * w[j];
        dot += h * x[j] * rstd;
    }
    double mean = dot / (double)(m->variant == RMS_DEGREES ? N - 1 : N);
    if (m->variant == RMS_NO_MEAN_TERM) mean = 0;
    if (m->variant == RMS_SIGN) mean = -mean;
    for (int64_t j = 0; j < N; j++) {
        double h = m->variant == RMS_NO_WEIGHT ? dy[j] : dy[j] * w[j];
        double xhat = x[j] * rstd;
        r.dx[j] = rstd * h - power * xhat * mean;
        if (m->variant == RMS_DW_WITHOUT_X) xhat = 1;
        if (m->variant == RMS_DW_RSTD) xhat = x[j];
        if (m->variant != RMS_DW_ROWS || !r.last) dw[j] += dy[j] * xhat;
    }
}

static void rms_norm(planted_math *m)
{
    static double stale[64];
    const gd_tensor *x = m->call->input[0];
    int64_t M = planted_rows(x), N = planted_columns(x);
    for (int64_t i = 0; i < M; i++) {
        double rstd = m->save[0][m->variant == RMS_NEXT_ROW ? (i + 1) % M : i];
        if (m->variant == RMS_STALE && i < 64) {
            double old = stale[i];
            stale[i] = rstd;
            if (old != 0) rstd = old;
        }
        rms_backward(m, N,
                     (rms_row){.x = m->x[0] + i * N,
                               .dy = m->dy[0] + i * N,
                               .rstd = rstd,
                               .last = i == M - 1,
                               .dx = m->g[0] + i * N},
                     m->g[1]);
    }
}

/* ---- add_rms_norm ------------------------------------------------------------------------- */

enum {
    ADD_RIGHT,
    ADD_NO_DSUM,   /* the gradient of the sum is forgotten */
    ADD_ONES,      /* one that did not come is taken for ones */
    ADD_NO_SECOND, /* residual gets nothing */
    ADD_NO_DY      /* dweight as if dy had not come when dsum did not */
};

static void add_rms_norm(planted_math *m)
{
    const gd_tensor *x = m->call->input[0];
    int64_t M = planted_rows(x), N = planted_columns(x);
    planted_math inner = {.x = {NULL, m->x[2]}, .variant = RMS_RIGHT};
    for (int64_t i = 0; i < M && m->dy[0]; i++) {
        if (m->variant == ADD_NO_DY && !m->dy[1]) break;
        rms_backward(&inner, N,
                     (rms_row){.x = m->y[1] + i * N,
                               .dy = m->dy[0] + i * N,
                               .rstd = m->save[0][i],
                               .last = false,
                               .dx = m->g[0] + i * N},
                     m->g[2]);
    }
    for (int64_t k = 0; k < M * N; k++) {
        double dsum = m->dy[1] ? m->dy[1][k] : m->variant == ADD_ONES ? 1 : 0;
        if (m->variant != ADD_NO_DSUM) m->g[0][k] += dsum;
        m->g[1][k] = m->variant == ADD_NO_SECOND ? 0 : m->g[0][k];
    }
}

/* ---- batch_norm --------------------------------------------------------------------------- */

enum {
    BATCH_RIGHT,
    BATCH_CONSTANTS, /* as if mean and rstd were constants: the backward of evaluation */
    BATCH_NO_PROJECTION,
    BATCH_UNBIASED, /* the variance over n - 1 in the backward */
    BATCH_ROWS,     /* the mean over the channels of an example */
    BATCH_OTHER_CHANNEL
};

/* dx = w rstd (dy - mean(dy) - xhat mean(dy xhat)), x [B, C] */
static void batch_norm(planted_math *m)
{
    const int64_t B = planted_rows(m->call->input[0]), C = planted_columns(m->call->input[0]);
    const double *mean = m->save[0], *rstd = m->save[1];
    for (int64_t e = 0; e < B * C; e++) {
        const int64_t c = e % C;
        m->g[1][c] += m->dy[0][e] * (m->x[0][e] - mean[c]) * rstd[c];
        m->g[2][c] += m->dy[0][e];
    }
    for (int64_t e = 0; e < B * C; e++) {
        const int64_t c = e % C, at = m->variant == BATCH_OTHER_CHANNEL ? (c + 1) % C : c;
        double n = (double)(m->variant == BATCH_UNBIASED ? B - 1 : B);
        double mean_d = m->g[2][at] / (double)B, mean_dx = m->g[1][at] / n;
        if (m->variant == BATCH_ROWS) {
            mean_d = 0;
            for (int64_t k = 0; k < C; k++) mean_d += m->dy[0][e / C * C + k] / (double)C;
        }
        if (m->variant == BATCH_CONSTANTS) mean_d = mean_dx = 0;
        if (m->variant == BATCH_NO_PROJECTION) mean_dx = 0;
        const double xhat = (m->x[0][e] - mean[c]) * rstd[c];
        m->g[0][e] = m->x[1][c] * rstd[c] * (m->dy[0][e] - mean_d - xhat * mean_dx);
    }
}

/* ---- batch_norm_fixed --------------------------------------------------------------------- */

enum {
    FIXED_RIGHT,
    FIXED_TRAINING, /* the mean over the batch is taken away, as in training */
    FIXED_VARIANCE  /* divided by var + eps, not by its root */
};

/* dx = w rstd dy, x [B, C] */
static void batch_norm_fixed(planted_math *m)
{
    const double eps = ((const gd_batch_norm_args *)m->call->args)->eps;
    const int64_t n = gd_tensor_count(m->call->input[0]), C = planted_columns(m->call->input[0]);
    for (int64_t e = 0; e < n; e++) m->g[2][e % C] += m->dy[0][e];
    for (int64_t e = 0; e < n; e++) {
        const int64_t c = e % C;
        const double var = m->x[4][c] + eps, rstd = 1 / sqrt(var);
        const double less = m->variant == FIXED_TRAINING ? m->g[2][c] * (double)C / (double)n : 0;
        m->g[0][e] =
            m->x[1][c] * (m->variant == FIXED_VARIANCE ? 1 / var : rstd) * (m->dy[0][e] - less);
        m->g[1][c] += m->dy[0][e] * (m->x[0][e] - m->x[3][c]) * rstd;
    }
}

/* ---- group_norm --------------------------------------------------------------------------- */

enum {
    GROUP_RIGHT,
    GROUP_CHANNELS,   /* the means over each channel, as batch_norm's */
    GROUP_WEIGHT_LATE /* the means of dy instead of h, times the weight */
};

/* Case "images": x [2, 4, 3, 5], two groups of two channels of 15 places. */
static void group_norm(planted_math *m)
{
    enum { CHANNELS = 4, EACH = 2, PLACES = 15, SIZE = EACH * PLACES };
    const int64_t rows = gd_tensor_count(m->call->input[0]) / SIZE;
    for (int64_t e = 0; e < rows * SIZE; e++) {
        const int64_t row = e / SIZE, c = e / PLACES % CHANNELS;
        const double mean = m->save[0][row], rstd = m->save[1][row];
        const int64_t width = m->variant == GROUP_CHANNELS ? PLACES : SIZE;
        const int64_t first = e / width * width;
        double sum = 0, product = 0;
        for (int64_t k = first; k < first + width; k++) {
            const double w =
                m->variant == GROUP_WEIGHT_LATE ? m->x[1][c] : m->x[1][k / PLACES % CHANNELS];
            sum += m->dy[0][k] * w / (double)width;
            product += m->dy[0][k] * w * (m->x[0][k] - mean) * rstd / (double)width;
        }
        const double xhat = (m->x[0][e] - mean) * rstd;
        m->g[0][e] = rstd * (m->dy[0][e] * m->x[1][c] - sum - xhat * product);
        m->g[1][c] += m->dy[0][e] * xhat;
        m->g[2][c] += m->dy[0][e];
    }
}

/* ---- The list ----------------------------------------------------------------------------- */

#define RMS(number, what, ...)                                                                \
    {                                                                                         \
        "rms_norm", "rows4_cols64", what, .variant = number, .formula = rms_norm, __VA_ARGS__ \
    }
#define ADD(number, what, ...)                                                            \
    {                                                                                     \
        "add_rms_norm", "rows4_cols64", what, .variant = number, .formula = add_rms_norm, \
                                              __VA_ARGS__                                 \
    }
#define GROUP(number, what, words)                                                               \
    {                                                                                            \
        "group_norm", "images", what, .variant = number, .formula = group_norm, .finding = words \
    }
#define BATCH(number, what, words)                                                     \
    {                                                                                  \
        "batch_norm", "no_statistics", what, .variant = number, .formula = batch_norm, \
                                             .finding = words                          \
    }

#define FIXED(number, what, words)                                                        \
    {                                                                                     \
        "batch_norm_fixed", "rows", what, .variant = number, .formula = batch_norm_fixed, \
                                          .finding = words                                \
    }

const planted_bug planted_norms[] = {
    RMS(RMS_RIGHT, "nothing", .finding = NULL),
    RMS(RMS_NO_WEIGHT, "the weight is forgotten", .finding = "dy has an extra factor 1/weight"),
    RMS(RMS_NO_MEAN_TERM, "the mean term is missing",
        .finding = "off by a multiple of the input: each element uses only its own dy"),
    RMS(RMS_SQUARED, "rstd squared instead of cubed",
        .finding = "the dy of other elements has an extra factor x weight/y"),
    RMS(RMS_DW_WITHOUT_X, "dweight without xhat",
        .finding = "the summed term is dy instead of dy y/weight"),
    RMS(RMS_DW_ROWS, "dweight without the last row", .finding = "dy[3, :] is left out"),
    RMS(RMS_DEGREES, "the mean over N - 1",
        .finding = "an extra factor n/(n - 1), n = 64 the size of axis 1"),
    RMS(RMS_SIGN, "the sign of the mean term",
        .finding = "the dy of other elements has the wrong sign"),
    RMS(RMS_DW_RSTD, "dweight without rstd",
        .finding = "the summed term is dy x instead of dy y/weight"),
    RMS(RMS_NEXT_ROW, "rstd of the next row",
        .finding = "an extra factor for each index along its axis 0"),
    RMS(RMS_STALE, "rstd of the call before", .finding = "different bits", .seeds = 2),
    ADD(ADD_RIGHT, "nothing", .finding = NULL),
    ADD(ADD_NO_DSUM, "the gradient of the sum is forgotten",
        .finding = "zero throughout, with a gradient for output 1 alone"),
    ADD(ADD_ONES, "a missing gradient is taken for ones",
        .finding = "a constant is added, with a gradient for output 0 alone"),
    ADD(ADD_NO_SECOND, "residual gets nothing", .finding = "zero throughout"),
    ADD(ADD_NO_DY, "dweight waits for the gradient of the sum",
        .finding = "zero throughout, with a gradient for output 0 alone"),
    GROUP(GROUP_RIGHT, "nothing", NULL),
    GROUP(GROUP_CHANNELS, "the means over each channel", "does not use dy[0, 1, 0, 0]"),
    GROUP(GROUP_WEIGHT_LATE, "the weight outside of the means",
          "the forward's own matrix is applied to dy, not its transpose"),
    BATCH(BATCH_RIGHT, "nothing", NULL),
    BATCH(BATCH_CONSTANTS, "mean and rstd as constants",
          "each element uses only its own dy: a sum along axis 0 is missing"),
    BATCH(BATCH_NO_PROJECTION, "mean(dy xhat) is missing", NULL),
    BATCH(BATCH_UNBIASED, "mean(dy xhat) over n - 1", NULL),
    BATCH(BATCH_ROWS, "the mean over the channels",
          "uses dy[0, 1], though that y does not depend on it"),
    BATCH(BATCH_OTHER_CHANNEL, "the sums of another channel", "x[0, 0] does not use dy[1, 0]"),
    FIXED(FIXED_RIGHT, "nothing", NULL),
    FIXED(FIXED_TRAINING, "dx as in training", "though that y does not depend on it"),
    FIXED(FIXED_VARIANCE, "divided by the variance", "a factor for each column"),
    {NULL, NULL, NULL, .finding = NULL},
};
