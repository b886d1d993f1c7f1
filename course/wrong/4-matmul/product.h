/* product.h - a product's backward as most write it, of which a wrong solution defines one part
 * otherwise before it includes this file. linear_backward is the solution's. */
#define matmul_backward right_matmul_backward
#include "../../solutions/4-matmul/matmul.c"
#undef matmul_backward

#ifndef TERMS
#define TERMS k
#endif
#ifndef DA
#define DA da[i * k + p] += dy[i * n + j] * b[p * n + j]
#endif
#ifndef DB
#define DB db[p * n + j] += dy[i * n + j] * a[i * k + p]
#endif

void matmul_backward(int64_t m, int64_t k, int64_t n, const real *a, const real *b, const real *dy,
                     real *da, real *db)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < TERMS; p++) {
                DA;
                DB;
            }
}
