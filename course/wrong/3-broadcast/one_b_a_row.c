/* 85 points: db: b[0] does not use dy[1, 0], but b[0] uses dy[0, 1] */
#define product_backward right_product_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef product_backward

void product_backward(int64_t rows, int64_t n, const real *a, const real *b, const real *dy,
                      real *da, real *db)
{
    for (int64_t i = 0; i < rows * n; i++) {
        da[i] += dy[i] * b[i % n];
        db[i / n] += dy[i] * a[i];
    }
}
