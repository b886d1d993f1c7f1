/* attention.c - the backwards of causal attention, and of a block around it. */
#include <math.h>
#include <stdlib.h>

#include "course.h"

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

/* y [rows, n] += a b, where an element is `down` or `across` numbers from the next one of
 * its matrix. */
static void multiply(int64_t rows, int64_t inner, int64_t n, const real *a, int64_t a_down,
                     int64_t a_across, const real *b, int64_t b_down, int64_t b_across, real *y)
{
    for (int64_t i = 0; i < rows * n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += (double)a[i / n * a_down + k * a_across] * b[k * b_down + i % n * b_across];
        y[i] += (real)sum;
    }
}

/* One over the root mean square of a row. */
static double rstd_of(int64_t n, const real *x)
{
    double squares = 0;
    for (int64_t k = 0; k < n; k++) squares += (double)x[k] * x[k];
    return 1 / sqrt(squares / (double)n + 1e-5);
}

static void norm_backward(int64_t t, int64_t n, const real *x, const real *g, const real *dy,
                          real *dx, real *dg)
{
    for (int64_t i = 0; i < t; i++, x += n, dy += n, dx += n) {
        const double rstd = rstd_of(n, x);
        double dot = 0;
        for (int64_t k = 0; k < n; k++) dot += (double)dy[k] * g[k] * x[k] * rstd;
        for (int64_t k = 0; k < n; k++) {
            const double xhat = x[k] * rstd;
            dx[k] += (real)(rstd * ((double)dy[k] * g[k] - xhat * dot / (double)n));
            dg[k] += (real)(dy[k] * xhat);
        }
    }
}

void block_backward(int64_t t, int64_t heads, int64_t n, const real *x, const real *g,
                    const real *w, const real *dy, real *dx, real *dg, real *dw)
{
    const int64_t size = t * n, square = n * n;
    /* h; q, k, v; what attention makes of them; and the gradients of these */
    real *h = calloc((size_t)(10 * size + 1), sizeof(real)), *qkv = h + size, *y = h + 4 * size;
    real *dh = h + 5 * size, *dqkv = dh + size, *da = dh + 4 * size;
    double *p = malloc(sizeof(double) * (size_t)(t + 1));
    if (!h || !p) abort();
    for (int64_t i = 0; i < size; i++) h[i] = (real)(x[i] * g[i % n] * rstd_of(n, x + i / n * n));
    for (int i = 0; i < 3; i++) multiply(t, n, n, h, n, 1, w + i * square, n, 1, qkv + i * size);
    attend(t, heads, n / heads, qkv, qkv + size, qkv + 2 * size, y, p);

    for (int64_t i = 0; i < size; i++) dx[i] += dy[i];
    multiply(n, t, n, y, 1, n, dy, n, 1, dw + 3 * square);
    multiply(t, n, n, dy, n, 1, w + 3 * square, 1, n, da);
    attention_backward(t, heads, n / heads, qkv, qkv + size, qkv + 2 * size, da, dqkv, dqkv + size,
                       dqkv + 2 * size);
    for (int i = 0; i < 3; i++) {
        multiply(n, t, n, h, 1, n, dqkv + i * size, n, 1, dw + i * square);
        multiply(t, n, n, dqkv + i * size, n, 1, w + i * square, 1, n, dh);
    }
    norm_backward(t, n, x, g, dh, dx, dg);
    free(h);
    free(p);
}
