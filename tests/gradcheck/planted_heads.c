/* planted_heads.c - the backwards of cross_entropy, attention and rope with their classic mistakes. */
#include "planted.h"

#include <math.h>
#include <stdlib.h>

#include "attention/attention.h"
#include "cross_entropy/cross_entropy.h"

/* ---- cross_entropy, mean ------------------------------------------------------------------ */

enum {
    ENTROPY_RIGHT,
    ENTROPY_NO_MEAN,     /* without 1 / n */
    ENTROPY_NO_TARGET,   /* without - 1 at the target */
    ENTROPY_NEXT_TARGET, /* - 1 one further */
    ENTROPY_COLUMNS,     /* 1 / V instead of 1 / n */
    ENTROPY_ALL,         /* the mean over ignored rows, too */
    ENTROPY_NOT_IGNORED, /* ignored rows get a gradient */
    ENTROPY_NO_DY        /* as if the loss were the end */
};

/* dlogits = dy / n (softmax - onehot(target)), n the rows that count */
static void cross_entropy(planted_math *m)
{
    const gd_cross_entropy_args *args = m->call->args;
    int64_t rows = planted_rows(m->call->input[0]), V = planted_columns(m->call->input[0]);
    int64_t counted = 0;
    for (int64_t i = 0; i < rows; i++) {
        bool ignored = args->use_ignore_index && m->x[1][i] == args->ignore_index;
        counted += !ignored || m->variant == ENTROPY_ALL;
    }
    double factor = m->variant == ENTROPY_NO_DY ? 1 : m->dy[0][0];
    if (m->variant == ENTROPY_COLUMNS) factor /= (double)V;
    if (m->variant != ENTROPY_COLUMNS && m->variant != ENTROPY_NO_MEAN) factor /= (double)counted;
    for (int64_t i = 0; i < rows; i++) {
        const double *x = m->x[0] + i * V;
        int64_t target = (int64_t)m->x[1][i];
        bool ignored = args->use_ignore_index && target == args->ignore_index;
        if (ignored && m->variant != ENTROPY_NOT_IGNORED) continue;
        if (m->variant == ENTROPY_NEXT_TARGET) target = (target + 1) % V;
        double sum = 0;
        for (int64_t j = 0; j < V; j++) sum += exp(x[j] - x[0]);
        for (int64_t j = 0; j < V; j++) {
            double p = exp(x[j] - x[0]) / sum;
            bool one = j == target && m->variant != ENTROPY_NO_TARGET;
            m->g[0][i * V + j] = factor * (p - one);
        }
    }
}

/* ---- cross_entropy of weighted, smoothed probabilities, a loss a row ---------------------- */

enum {
    SOFT_RIGHT,
    SOFT_NO_TOTAL,     /* p instead of the sum of the shares times p */
    SOFT_NO_WEIGHT,    /* dtargets without the weight */
    SOFT_NO_SMOOTHING, /* as if eps were 0 */
    SOFT_NO_MAX,       /* dtargets with -x instead of L - x */
    SOFT_LAST_ROW      /* dweight of the last row alone */
};

/* c = w ((1 - eps) q + eps / V), dlogits = dloss (sum(c) softmax - c),
 * dtargets = dloss (1 - eps) w (logsumexp - x), dweight = sum of dloss c / w (logsumexp - x) */
static void soft_cross_entropy(planted_math *m)
{
    const int64_t rows = planted_rows(m->call->input[0]), V = planted_columns(m->call->input[0]);
    double eps = ((const gd_cross_entropy_args *)m->call->args)->smoothing;
    if (m->variant == SOFT_NO_SMOOTHING) eps = 0;
    for (int64_t i = 0; i < rows; i++) {
        const double *x = m->x[0] + i * V, *q = m->x[1] + i * V, *w = m->x[2], g = m->dy[0][i];
        double sum = 0, total = 0;
        for (int64_t j = 0; j < V; j++) {
            sum += exp(x[j]);
            total += w[j] * ((1 - eps) * q[j] + eps / (double)V);
        }
        if (m->variant == SOFT_NO_TOTAL) total = 1;
        for (int64_t j = 0; j < V; j++) {
            const double c = w[j] * ((1 - eps) * q[j] + eps / (double)V);
            const double below = (m->variant == SOFT_NO_MAX ? 0 : log(sum)) - x[j];
            m->g[0][i * V + j] = g * (total * exp(x[j]) / sum - c);
            m->g[1][i * V + j] = g * (1 - eps) * (m->variant == SOFT_NO_WEIGHT ? 1 : w[j]) * below;
            if (m->variant == SOFT_LAST_ROW) m->g[2][j] = 0;
            m->g[2][j] += g * (c / w[j]) * (log(sum) - x[j]);
        }
    }
}

/* ---- linear_cross_entropy, mean ----------------------------------------------------------- */

enum {
    HEAD_RIGHT,
    HEAD_NO_TARGET, /* dlogits without - 1 at the target */
    HEAD_LAST_PIECE /* dweight of the last two rows alone: pieces overwrite each other */
};

/* dlogits = dloss / M (softmax(x weight^T) - onehot), dx = dlogits weight, dweight = dlogits^T x */
static void linear_cross_entropy(planted_math *m)
{
    const int64_t M = planted_rows(m->call->input[0]), K = planted_columns(m->call->input[0]);
    const int64_t V = gd_tensor_dim(m->call->input[1], 0);
    double *p = calloc((size_t)V, sizeof *p);
    for (int64_t i = 0; i < M; i++) {
        const double *x = m->x[0] + i * K, *w = m->x[1];
        double sum = 0;
        for (int64_t j = 0; j < V; j++) {
            double logit = 0;
            for (int64_t k = 0; k < K; k++) logit += x[k] * w[j * K + k];
            sum += p[j] = exp(logit);
        }
        for (int64_t j = 0; j < V; j++) {
            const bool one = j == (int64_t)m->x[2][i] && m->variant != HEAD_NO_TARGET;
            const double d = m->dy[0][0] / (double)M * (p[j] / sum - one);
            for (int64_t k = 0; k < K; k++) {
                m->g[0][i * K + k] += d * w[j * K + k];
                if (m->variant != HEAD_LAST_PIECE || i >= M - 2) m->g[1][j * K + k] += d * x[k];
            }
        }
    }
    free(p);
}

/* ---- nll_loss ------------------------------------------------------------------------------ */

enum {
    NLL_RIGHT,
    NLL_SIGN,
    NLL_NO_WEIGHT,
    NLL_ROWS,       /* the mean over the rows, not over their weights */
    NLL_NOT_IGNORED /* ignored rows get a gradient */
};

/* dlog_probs = -dloss w[target] / sum of w[target] at the targets that count */
static void nll_loss(planted_math *m)
{
    const gd_cross_entropy_args *args = m->call->args;
    const int64_t rows = planted_rows(m->call->input[0]), V = planted_columns(m->call->input[0]);
    double divisor = 0;
    for (int64_t i = 0; i < rows; i++) {
        const double t = m->x[1][i];
        if (!args->use_ignore_index || t != args->ignore_index)
            divisor += m->variant == NLL_ROWS ? 1 : m->x[2][(int64_t)t];
    }
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = (int64_t)m->x[1][i];
        const bool ignored = args->use_ignore_index && t == args->ignore_index;
        if (ignored && m->variant != NLL_NOT_IGNORED) continue;
        const double w = m->variant == NLL_NO_WEIGHT ? 1 : m->x[2][t];
        m->g[0][i * V + t] = (m->variant == NLL_SIGN ? 1 : -1) * m->dy[0][0] * w / divisor;
    }
}

/* ---- attention, causal, grouped queries --------------------------------------------------- */

enum {
    ATTENTION_RIGHT,
    ATTENTION_NO_DELTA,    /* dS = P dP */
    ATTENTION_NO_SCALE,    /* dq without the scale */
    ATTENTION_SCALE_V,     /* dv with the scale */
    ATTENTION_OVERWRITE,   /* the last query overwrites dk of the first key */
    ATTENTION_WRONG_HEAD,  /* key head h modulo KV instead of h / G */
    ATTENTION_NO_MASK,     /* the backward sees the future */
    ATTENTION_DP_FOR_P,    /* dv from dP instead of P */
    ATTENTION_NO_BIAS,     /* the backward forgets the bias */
    ATTENTION_SCALED_BIAS, /* dbias with the scale */
    ATTENTION_ONE_COPY     /* dbias of the last head alone */
};

typedef struct heads {
    int64_t T, S, H, KV, D, E;
    double scale;
} heads;

/* One query: q [D], dy [E]; keys [S, KV, D], values [S, KV, E] of its head. */
static void one_query(const planted_math *m, const heads *z, int64_t t, int64_t h, double *p)
{
    int64_t head = m->variant == ATTENTION_WRONG_HEAD ? h % z->KV : h / (z->H / z->KV);
    int64_t seen = m->variant == ATTENTION_NO_MASK ? z->S : t + 1 + z->S - z->T;
    const double *q = m->x[0] + (t * z->H + h) * z->D, *dy = m->dy[0] + (t * z->H + h) * z->E;
    double sum = 0, delta = 0, *dp = p + z->S, *dq = m->g[0] + (t * z->H + h) * z->D;
    for (int64_t s = 0; s < seen; s++) {
        const double *k = m->x[1] + (s * z->KV + head) * z->D;
        const double *v = m->x[2] + (s * z->KV + head) * z->E;
        p[s] = dp[s] = 0;
        for (int64_t d = 0; d < z->D; d++) p[s] += z->scale * q[d] * k[d];
        if (m->x[3] && m->variant != ATTENTION_NO_BIAS) p[s] += m->x[3][t * z->S + s];
        for (int64_t e = 0; e < z->E; e++) dp[s] += dy[e] * v[e];
        sum += p[s] = exp(p[s]);
    }
    for (int64_t s = 0; s < seen; s++) delta += (p[s] /= sum) * dp[s];
    if (m->variant == ATTENTION_NO_DELTA) delta = 0;
    for (int64_t s = 0; s < seen; s++) {
        double ds = p[s] * (dp[s] - delta) * z->scale;
        double dv = m->variant == ATTENTION_DP_FOR_P ? dp[s] : p[s];
        if (m->variant == ATTENTION_SCALE_V) dv *= z->scale;
        double *dk = m->g[1] + (s * z->KV + head) * z->D;
        if (m->x[3]) {
            double *db = m->g[3] + t * z->S + s;
            *db = (m->variant == ATTENTION_ONE_COPY ? 0 : *db) +
                  (m->variant == ATTENTION_SCALED_BIAS ? ds : ds / z->scale);
        }
        for (int64_t d = 0; d < z->D; d++) {
            dq[d] += (m->variant == ATTENTION_NO_SCALE ? ds / z->scale : ds) *
                     m->x[1][(s * z->KV + head) * z->D + d];
            if (m->variant == ATTENTION_OVERWRITE && t + 1 == z->T && s == 0) dk[d] = 0;
            dk[d] += ds * q[d];
        }
        for (int64_t e = 0; e < z->E; e++) m->g[2][(s * z->KV + head) * z->E + e] += dv * dy[e];
    }
}

/* P = softmax(scale q k^T), dv = P^T dy, dP = dy v^T, delta = sum(P dP), dS = P (dP - delta),
 * dq = scale dS k, dk = scale dS^T q; q [1, T, H, D], k [1, S, KV, D], v [1, S, KV, E],
 * mask [T, S] or NULL */
static void attention(planted_math *m)
{
    const attention_args *args = m->call->args;
    const int64_t *q = gd_tensor_shape(m->call->input[0]), *v = gd_tensor_shape(m->call->input[2]);
    heads z = {q[1], v[1], q[2], v[2], q[3], v[3], args->scale};
    double *room = calloc((size_t)z.S * 2, sizeof *room);
    for (int64_t t = 0; t < z.T; t++)
        for (int64_t h = 0; h < z.H; h++) one_query(m, &z, t, h, room);
    free(room);
}

static const attention_args biased_args = {.causal = true, .scale = 0.5};
static const gd_case biased = {.name = "bias_of_all_heads",
                               .args = &biased_args,
                               GD_INPUTS({GD_DIMS(1, 5, 4, 3)}, {GD_DIMS(1, 6, 2, 3)},
                                         {GD_DIMS(1, 6, 2, 2)}, {GD_DIMS(5, 6)})};

/* ---- rope, halves ------------------------------------------------------------------------- */

enum {
    ROPE_RIGHT,
    ROPE_FORWARD,     /* turned forward again */
    ROPE_POSITION,    /* without the position of the first row */
    ROPE_INTERLEAVED, /* pairs (2i, 2i + 1) */
    ROPE_FREQUENCY    /* base^(-i/D) */
};

/* dx is dy turned back. x [B, T, H, D] */
static void rope(planted_math *m)
{
    const gd_rope_options *args = m->call->args;
    const int64_t *n = gd_tensor_shape(m->call->input[0]);
    int64_t half = n[3] / 2;
    for (int64_t row = 0; row < n[0] * n[1] * n[2]; row++) {
        const double *dy = m->dy[0] + row * n[3];
        double *dx = m->g[0] + row * n[3];
        double position = (double)(row / n[2] % n[1]);
        if (m->variant != ROPE_POSITION) position += (double)args->position;
        for (int64_t i = 0; i < half; i++) {
            double power = (m->variant == ROPE_FREQUENCY ? -1.0 : -2.0) * (double)i / (double)n[3];
            double angle = position * pow(args->base, power);
            if (m->variant != ROPE_FORWARD) angle = -angle;
            bool interleaved = m->variant == ROPE_INTERLEAVED;
            int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
            dx[a] = dy[a] * cos(angle) - dy[b] * sin(angle);
            dx[b] = dy[a] * sin(angle) + dy[b] * cos(angle);
        }
    }
}

/* ---- rope_qkv and rope_attention, halves -------------------------------------------------- */

enum {
    QKV_RIGHT,
    QKV_VALUES, /* v is turned back, too */
    QKV_KEYS    /* k is not */
};

/* A head of D, at a position from 0, turned by the angles times `sign`. */
static void turn(double *to, const double *from, int64_t D, int64_t position, double sign)
{
    for (int64_t i = 0; i < D / 2; i++) {
        const double angle = sign * (double)position * pow(1e4, -2.0 * (double)i / (double)D);
        const double a = from[i], b = from[i + D / 2];
        to[i] = a * cos(angle) - b * sin(angle);
        to[i + D / 2] = a * sin(angle) + b * cos(angle);
    }
}

/* qkv [B, T, 3, D]: one head of each. */
static void rope_qkv(planted_math *m)
{
    const int64_t *n = gd_tensor_shape(m->call->input[0]);
    for (int64_t row = 0; row < n[0] * n[1] * 3; row++) {
        const int64_t part = row % 3, D = n[3];
        const double turned[] = {-1, m->variant == QKV_KEYS ? 0 : -1,
                                 m->variant == QKV_VALUES ? -1 : 0};
        if (m->dy[part])
            turn(m->g[0] + row * D, m->dy[part] + row / 3 * D, D, row / 3 % n[1], turned[part]);
    }
}

/* Turns dq and dk forward again: as if rope had no backward. */
static void turned_again(planted_op *p, const gd_call *call, double *g, int64_t count)
{
    (void)p;
    const int64_t *n = gd_tensor_shape(call->input[0]);
    for (int64_t row = 0; row < count / n[3]; row++)
        if (row % 3 < 2) turn(g + row * n[3], g + row * n[3], n[3], row / 3 % n[1], 1);
}

/* ---- The list ----------------------------------------------------------------------------- */

#define BUG(op, check, function, number, what, finding)                  \
    {                                                                    \
        op, check, what, finding, .variant = number, .formula = function \
    }
#define ENTROPY(check, number, what, finding) \
    BUG("cross_entropy", check, cross_entropy, ENTROPY_##number, what, finding)
#define SOFT(number, what, finding) \
    BUG("cross_entropy", "probabilities_and_all", soft_cross_entropy, SOFT_##number, what, finding)
#define NLL(number, what, finding) \
    BUG("nll_loss", "ignore_12x3", nll_loss, NLL_##number, what, finding)
#define ATTENTION(number, what, finding) \
    BUG("attention", "groups", attention, ATTENTION_##number, what, finding)
#define BIAS(number, what, finding)                                                      \
    {                                                                                    \
        "attention", NULL, what, finding, .own = &biased, .variant = ATTENTION_##number, \
                                          .formula = attention                           \
    }
#define ROPE(number, what, finding) \
    BUG("rope", "halves_from_12", rope, ROPE_##number, what, finding)

#define HEAD(number, what, finding) \
    BUG("linear_cross_entropy", "mean_5x3x11", linear_cross_entropy, HEAD_##number, what, finding)
#define QKV(number, what, finding) \
    BUG("rope_qkv", "one_each_2x5x3x8", rope_qkv, QKV_##number, what, finding)

const planted_bug planted_heads[] = {
    ENTROPY("mean_5x11", RIGHT, "nothing", NULL),
    ENTROPY("ignore_12x3", RIGHT, "nothing", NULL),
    ENTROPY("mean_5x11", NO_MEAN, "without the mean's 1 / n",
            "a constant factor 5, the size of axis 0"),
    ENTROPY("mean_5x11", NO_TARGET, "without the target", "one element of each row is off"),
    ENTROPY("mean_5x11", NEXT_TARGET, "the target one further",
            "and the next by the opposite: its value is one place further"),
    ENTROPY("mean_5x11", COLUMNS, "divided by the vocabulary", "a constant factor 5/11"),
    ENTROPY("ignore_12x3", ALL, "ignored rows counted", "a constant factor 2/3"),
    ENTROPY("ignore_12x3", NOT_IGNORED, "ignored rows not ignored",
            "a gradient where it should be 0"),
    ENTROPY("mean_5x11", NO_DY, "without the loss's own gradient", "dy is not used"),
    SOFT(RIGHT, "nothing", NULL),
    SOFT(NO_TOTAL, "softmax without the sum of the shares",
         "the true gradient sums to 0 along axis 2, this one does not"),
    SOFT(NO_WEIGHT, "dtargets without the class weights", "a factor for each column: a weight"),
    SOFT(NO_SMOOTHING, "the smoothing forgotten", "a constant factor 5/4"),
    SOFT(NO_MAX, "dtargets without the logsumexp", NULL),
    SOFT(LAST_ROW, "dweight of the last row alone", "only dy[1, 1] is used"),
    HEAD(RIGHT, "nothing", NULL),
    HEAD(NO_TARGET, "dlogits without the target",
         "the true gradient sums to 0 along axis 0, this one does not"),
    HEAD(LAST_PIECE, "dweight of the last piece of rows", NULL),
    NLL(RIGHT, "nothing", NULL),
    NLL(SIGN, "the sign", "the sign is flipped"),
    NLL(NO_WEIGHT, "without the class weights", "a factor for each row"),
    NLL(ROWS, "divided by the rows, not their weights", "a constant factor"),
    NLL(NOT_IGNORED, "ignored rows not ignored", "a gradient where it should be 0"),
    ATTENTION(RIGHT, "nothing", NULL),
    ATTENTION(NO_DELTA, "delta is missing",
              "the true gradient sums to 0 along axis 1, this one does not"),
    ATTENTION(NO_SCALE, "dq without the scale", "a constant factor 2"),
    ATTENTION(SCALE_V, "dv with the scale", "a constant factor 1/2"),
    ATTENTION(OVERWRITE, "dk overwritten by a later query", "only the last 3 count"),
    ATTENTION(WRONG_HEAD, "the wrong key head",
              "v[0, 0, 0, 0] does not use dy[0, 0, 1, 0], but v[0, 0, 0, 0] uses dy[0, "
              "0, 4, 0]"),
    ATTENTION(NO_MASK, "the backward sees the future",
              "v[0, 1, 0, 0] uses dy[0, 0, 0, 0], though that y does not depend on it"),
    ATTENTION(DP_FOR_P, "dP instead of P in dv", "it is not linear in dy"),
    BIAS(RIGHT, "nothing", NULL),
    BIAS(NO_BIAS, "the bias forgotten", NULL),
    BIAS(SCALED_BIAS, "dbias with the scale", "a constant factor 1/2"),
    BIAS(ONE_COPY, "dbias of one head, not their sum", "only dy[0, :, 3, :] is used"),
    ROPE(RIGHT, "nothing", NULL),
    ROPE(FORWARD, "the positive angle",
         "the forward's own matrix is applied to dy, not its transpose"),
    ROPE(POSITION, "the first position forgotten", "x[0, 0, 0, 0] does not use dy[0, 0, 0, 3]"),
    ROPE(INTERLEAVED, "the other pairs",
         "does not use dy[0, 0, 0, 3], but x[0, 0, 0, 0] uses dy[0, 0, 0, 1]"),
    ROPE(FREQUENCY, "the exponent halved", NULL),
    QKV(RIGHT, "nothing", NULL),
    QKV(VALUES, "v is turned back, too", "all at 2 along axis 2"),
    QKV(KEYS, "k is not turned back", "all at 1 along axis 2"),
    {"rope_attention", "full", "dq and dk are not turned back", NULL, .spoil = turned_again},
    BUG(NULL, NULL, NULL, 0, NULL, NULL),
};
