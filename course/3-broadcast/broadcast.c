/* broadcast.c - backwards of what copies, sums and selects: gradients add. */
#include "course.h"

/* y[i][j] = a[i][j] b[j],  a [rows, n], b [n] */
void product_backward(int64_t rows, int64_t n, const real *a, const real *b, const real *dy,
                      real *da, real *db)
{
}

/* y[i][k] = sum over j of x[i][j][k],  x [outer, n, inner] */
void sum_backward(int64_t outer, int64_t n, int64_t inner, const real *dy, real *dx) {}

/* y[i][j] = table[index[i]][j],  index [count], y [count, n] */
void gather_backward(int64_t count, int64_t n, const int32_t *index, const real *dy, real *dtable)
{
}

/* y[i][j] = x[i strides[0] + j strides[1]],  y [shape[0], shape[1]] */
void view_backward(const int64_t *shape, const int64_t *strides, const real *dy, real *dx) {}

/* A case of y[i][j] = a[i] b[j] that shows a fault: sets both sizes, 1 to 16, and fills a and b. */
void outer_case(int64_t fault, int64_t *rows, int64_t *columns, real *a, real *b) {}
