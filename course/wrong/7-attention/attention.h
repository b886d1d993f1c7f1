/* attention.h - the solution as most write it, of which a wrong one defines one part otherwise before
 * it includes this file. */
#include <math.h>
#include <stdlib.h>

#include "../6-rms_norm/rms_norm.h"

#ifndef DELTA
#define DELTA delta += p[j] * dp[j]
#endif
#ifndef END
#define END (i + 1)
#endif
#ifndef DQ
#define DQ dq[i * n + c] += (real)(ds * k[j * n + c])
#endif
#ifndef DK
#define DK dk[j * n + c] += (real)(ds * q[i * n + c])
#endif
#ifndef DV
#define DV dv[j * n + c] += (real)(p[j] * dy[i * n + c])
#endif
#ifndef RESIDUAL
#define RESIDUAL dx[i] += dy[i]
#endif
#ifndef WO
#define WO 1, n
#endif

/* With what probabilities position i reads positions 0 to last - 1: p [last], of one head. */
static void probabilities(int64_t last, int64_t n, int64_t d, const real *q, const real *k,
                          double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < last; j++) {
        p[j] = 0;
        for (int64_t c = 0; c < d; c++) p[j] += (double)q[c] * k[j * n + c];
        p[j] /= sqrt((double)d);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < last; j++) sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j < last; j++) p[j] /= sum;
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
        probabilities(END, n, d, q + i * n + first, k + first, p);
        for (int64_t j = 0; j < END; j++) {
            dp[j] = 0;
            for (int64_t c = first; c < first + d; c++) {
                dp[j] += (double)dy[i * n + c] * v[j * n + c];
                DV;
            }
            DELTA;
        }
        for (int64_t j = 0; j < END; j++) {
            const double ds = p[j] * (dp[j] - delta) / sqrt((double)d);
            for (int64_t c = first; c < first + d; c++) {
                DQ;
                DK;
            }
        }
    }
    free(p);
}

/* y [rows, n] += a b, where an element is `down` or `across` numbers from the next one of
 * its matrix. */
static void multiply(int64_t rows, int64_t inner, int64_t n, const real *a, int64_t a_down,
                     int64_t a_across, const real *b, int64_t b_down, int64_t b_across, real *y)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < inner; k++)
                sum += (double)a[i * a_down + k * a_across] * b[k * b_down + j * b_across];
            y[i * n + j] += (real)sum;
        }
    }
}

static void attention_forward(int64_t t, int64_t heads, int64_t d, const real *q, const real *k,
                              const real *v, real *y, double *p)
{
    const int64_t n = heads * d;
    for (int64_t row = 0; row < heads * t; row++) {
        const int64_t i = row % t, first = row / t * d;
        probabilities(i + 1, n, d, q + i * n + first, k + first, p);
        for (int64_t j = 0; j <= i; j++)
            for (int64_t c = first; c < first + d; c++) y[i * n + c] += (real)(p[j] * v[j * n + c]);
    }
}

void block_backward(int64_t t, int64_t heads, int64_t n, const real *x, const real *g,
                    const real *w, const real *dy, real *dx, real *dg, real *dw)
{
    const int64_t size = t * n;
    const real *wo = w + 3 * n * n;
    /* h; q, k, v; what attention makes of them; and the gradients of these */
    real *h = calloc((size_t)(10 * size + 1), sizeof(real)), *qkv = h + size, *y = h + 4 * size;
    real *dh = h + 5 * size, *dqkv = dh + size, *da = dh + 4 * size;
    double *p = malloc(sizeof(double) * (size_t)(t + 1));
    if (!h || !p) abort();
    for (int64_t i = 0; i < t; i++) {
        double squares = 0;
        for (int64_t k = 0; k < n; k++) squares += (double)x[i * n + k] * x[i * n + k];
        for (int64_t k = 0; k < n; k++)
            h[i * n + k] = (real)(x[i * n + k] * g[k] / sqrt(squares / (double)n + 1e-5));
    }
    for (int i = 0; i < 3; i++) multiply(t, n, n, h, n, 1, w + i * n * n, n, 1, qkv + i * size);
    attention_forward(t, heads, n / heads, qkv, qkv + size, qkv + 2 * size, y, p);

    for (int64_t i = 0; i < size; i++) RESIDUAL;
    multiply(n, t, n, y, 1, n, dy, n, 1, dw + 3 * n * n);
    multiply(t, n, n, dy, n, 1, wo, WO, da);
    attention_backward(t, heads, n / heads, qkv, qkv + size, qkv + 2 * size, da, dqkv, dqkv + size,
                       dqkv + 2 * size);
    for (int i = 0; i < 3; i++) {
        multiply(n, t, n, h, 1, n, dqkv + i * size, n, 1, dw + i * n * n);
        multiply(t, n, n, dqkv + i * size, n, 1, w + i * n * n, 1, n, dh);
    }
    rms_norm_backward(t, n, (real)1e-5, x, g, dh, dx, dg);
    free(h);
    free(p);
}
