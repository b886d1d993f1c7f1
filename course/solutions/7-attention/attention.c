/* attention.c - the backwards of causal attention, and of a block around it. */
#include "course.h"

#include "solutions/4-matmul/matmul.c"
#include "solutions/6-rms_norm/rms_norm.c"

/* With what probabilities position i reads positions 0 to i: p [i + 1], of one head. */
static void probabilities(int64_t i, int64_t n, int64_t d, const real *q, const real *k, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        p[j] = 0;
        for (int64_t c = 0; c < d; c++) p[j] += (double)q[i * n + c] * k[j * n + c];
        p[j] /= sqrt((double)d);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j <= i; j++) sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j <= i; j++) p[j] /= sum;
}

/* p[h][i][j] = softmax over j <= i of q[i][h] . k[j][h] / sqrt(d), y[i][h] = sum over j of
 * p[h][i][j] v[j][h]; q, k, v and their gradients [t, heads, d] */
void attention_backward(int64_t t, int64_t heads, int64_t d, const real *q, const real *k,
                        const real *v, const real *dy, real *dq, real *dk, real *dv)
{
    const int64_t n = heads * d;
    double *p = malloc(sizeof(double) * 2 * (size_t)(t + 1)), *dp = p + t;
    if (!p) abort();
    for (int64_t row = 0; row < heads * t; row++) {
        const int64_t i = row % t, first = row / t * d;
        double delta = 0;
        probabilities(i, n, d, q + first, k + first, p);
        for (int64_t j = 0; j <= i; j++) {
            dp[j] = 0;
            for (int64_t c = first; c < first + d; c++) {
                dp[j] += (double)dy[i * n + c] * v[j * n + c];
                dv[j * n + c] += (real)(p[j] * dy[i * n + c]);
            }
            delta += p[j] * dp[j];
        }
        for (int64_t j = 0; j <= i; j++) {
            const double ds = p[j] * (dp[j] - delta) / sqrt((double)d);
            for (int64_t c = first; c < first + d; c++) {
                dq[i * n + c] += (real)(ds * k[j * n + c]);
                dk[j * n + c] += (real)(ds * q[i * n + c]);
            }
        }
    }
    free(p);
}

/* y += the values, by the probabilities with which each position reads them. */
static void attend(int64_t t, int64_t heads, int64_t d, const real *q, const real *k, const real *v,
                   real *y, double *p)
{
    const int64_t n = heads * d;
    for (int64_t row = 0; row < heads * t; row++) {
        const int64_t i = row % t, first = row / t * d;
        probabilities(i, n, d, q + first, k + first, p);
        for (int64_t j = 0; j <= i; j++)
            for (int64_t c = first; c < first + d; c++) y[i * n + c] += (real)(p[j] * v[j * n + c]);
    }
}

/* y += a b,  a, y [t, n], b [n, n] */
static void multiply(int64_t t, int64_t n, const real *a, const real *b, real *y)
{
    for (int64_t i = 0; i < t * n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += (double)a[i / n * n + k] * b[k * n + i % n];
        y[i] += (real)sum;
    }
}

/* y = x rstd g */
static void norm(int64_t t, int64_t n, const real *x, const real *g, real *y)
{
    for (int64_t i = 0; i < t; i++, x += n, y += n) {
        double squares = 0;
        for (int64_t k = 0; k < n; k++) squares += (double)x[k] * x[k];
        for (int64_t k = 0; k < n; k++)
            y[k] = (real)(x[k] * g[k] / sqrt(squares / (double)n + 1e-5));
    }
}

/* y = x + attention(h wq, h wk, h wv) wo, h = rms_norm(x) with the weight g and eps = 1e-5; x [t,
 * n], g [n], w [4, n, n]: wq, wk, wv, wo. Head i has the columns from i n / heads on. */
void block_backward(int64_t t, int64_t heads, int64_t n, const real *x, const real *g,
                    const real *w, const real *dy, real *dx, real *dg, real *dw)
{
    const int64_t size = t * n, square = n * n;
    /* h; q, k, v; what attention makes of them; and the gradients of these */
    real *h = calloc((size_t)(10 * size + 1), sizeof(real)), *qkv = h + size, *y = h + 4 * size;
    real *dh = h + 5 * size, *dqkv = dh + size, *da = dh + 4 * size;
    double *p = malloc(sizeof(double) * (size_t)(t + 1));
    if (!h || !p) abort();
    norm(t, n, x, g, h);
    for (int i = 0; i < 3; i++) multiply(t, n, h, w + i * square, qkv + i * size);
    attend(t, heads, n / heads, qkv, qkv + size, qkv + 2 * size, y, p);

    for (int64_t i = 0; i < size; i++) dx[i] += dy[i];
    matmul_backward(t, n, n, y, w + 3 * square, dy, da, dw + 3 * square);
    attention_backward(t, heads, n / heads, qkv, qkv + size, qkv + 2 * size, da, dqkv, dqkv + size,
                       dqkv + 2 * size);
    for (int i = 0; i < 3; i++)
        matmul_backward(t, n, n, h, w + i * square, dqkv + i * size, dh, dw + i * square);
    rms_norm_backward(t, n, (real)1e-5, x, g, dh, dx, dg);
    free(h);
    free(p);
}
