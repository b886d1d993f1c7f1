/* broadcast.c - backwards of what copies, sums and selects: gradients add. */
#include "course.h"

/* y[i][j] = a[i][j] b[j],  a [rows, n], b [n] */
void product_backward(int64_t rows, int64_t n, const real *a, const real *b, const real *dy,
                      real *da, real *db)
{
    for (int64_t i = 0; i < rows * n; i++) {
        da[i] += dy[i] * b[i % n];
        db[i % n] += dy[i] * a[i];
    }
}

/* y[i][k] = sum over j of x[i][j][k],  x [outer, n, inner] */
void sum_backward(int64_t outer, int64_t n, int64_t inner, const real *dy, real *dx)
{
    for (int64_t i = 0; i < outer * n * inner; i++)
        dx[i] += dy[i / (n * inner) * inner + i % inner];
}

/* y[i][j] = table[index[i]][j],  index [count], y [count, n] */
void gather_backward(int64_t count, int64_t n, const int32_t *index, const real *dy, real *dtable)
{
    for (int64_t i = 0; i < count * n; i++) dtable[index[i / n] * n + i % n] += dy[i];
}

/* y[i][j] = x[i strides[0] + j strides[1]],  y [shape[0], shape[1]] */
void view_backward(const int64_t *shape, const int64_t *strides, const real *dy, real *dx)
{
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++)
            dx[i * strides[0] + j * strides[1]] += dy[i * shape[1] + j];
}

/* A case of y[i][j] = a[i] b[j] that shows a fault: sets both sizes, 1 to 16, and fills a and b. */
void outer_case(int64_t fault, int64_t *rows, int64_t *columns, real *a, real *b)
{
    (void)fault; /* one case shows all: no size is a multiple of four, both signs are there */
    *rows = 3;
    *columns = 5;
    for (int i = 0; i < 3; i++) a[i] = (real)i - (real)0.7;
    for (int j = 0; j < 5; j++) b[j] = (real)1.3 - (real)j;
}
