/* attention.c - the backwards of causal attention, and of a block around it. */
#include "course.h"

/* p[h][i][j] = softmax over j <= i of q[i][h] . k[j][h] / sqrt(d), y[i][h] = sum over j of
 * p[h][i][j] v[j][h]; q, k, v and their gradients [t, heads, d] */
void attention_backward(int64_t t, int64_t heads, int64_t d, const real *q, const real *k,
                        const real *v, const real *dy, real *dq, real *dk, real *dv)
{
}

/* y = x + attention(h wq, h wk, h wv) wo, h = rms_norm(x) with the weight g and eps = 1e-5; x [t,
 * n], g [n], w [4, n, n]: wq, wk, wv, wo. Head i has the columns from i n / heads on. */
void block_backward(int64_t t, int64_t heads, int64_t n, const real *x, const real *g,
                    const real *w, const real *dy, real *dx, real *dg, real *dw)
{
}
