/* 85 points: db: the sign is flipped */
#define divide_backward right_divide_backward
#include "../../solutions/2-elements/elements.c"
#undef divide_backward

void divide_backward(int64_t n, const real *a, const real *b, const real *dy, real *da, real *db)
{
    for (int64_t i = 0; i < n; i++) {
        da[i] += dy[i] / b[i];
        db[i] += dy[i] * a[i] / (b[i] * b[i]);
    }
}
