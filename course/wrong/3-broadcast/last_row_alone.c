/* 82 points: db: only dy[2, :] is used */
#define product_backward right_product_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef product_backward

void product_backward(int64_t rows, int64_t n, const real *a, const real *b, const real *dy,
                      real *da, real *db)
{
    for (int64_t i = 0; i < rows * n; i++) {
        da[i] += dy[i] * b[i % n];
        db[i % n] = dy[i] * a[i];
    }
}
