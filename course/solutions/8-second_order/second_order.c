/* second_order.c - the derivative of a derivative, and a network that solves an equation. */
#include "course.h"

#include <math.h>

/* s = g (1 - tanh(x)^2): what the backward of tanh makes of g */
void slope_backward(int64_t n, const real *x, const real *g, const real *ds, real *dx, real *dg)
{
    for (int64_t i = 0; i < n; i++) {
        const double y = tanh(x[i]), slope = 1 - y * y;
        dx[i] += (real)(-2 * y * slope * g[i] * ds[i]);
        dg[i] += (real)(slope * ds[i]);
    }
}

/* y[i] = sum over j of c[j] tanh(a[j] t[i] + b[j]), y1 and y2 its first and second derivative by
 * t[i]; t, y, y1, y2 [points], a, b, c [hidden] */
void network_backward(int64_t points, int64_t hidden, const real *t, const real *a, const real *b,
                      const real *c, const real *dy, const real *dy1, const real *dy2, real *da,
                      real *db, real *dc)
{
    for (int64_t j = 0; j < hidden; j++) {
        double by_a = 0, by_b = 0, by_c = 0;
        for (int64_t i = 0; i < points; i++) {
            /* tanh and its first three derivatives by z = a t + b */
            const double s0 = tanh(a[j] * t[i] + b[j]), s1 = 1 - s0 * s0, s2 = -2 * s0 * s1;
            const double s3 = -2 * s1 * (1 - 3 * s0 * s0);
            const double by_z =
                c[j] * (dy[i] * s1 + dy1[i] * s2 * a[j] + dy2[i] * s3 * a[j] * a[j]);
            by_a += by_z * t[i] + c[j] * (dy1[i] * s1 + 2 * dy2[i] * s2 * a[j]);
            by_b += by_z;
            by_c += dy[i] * s0 + dy1[i] * s1 * a[j] + dy2[i] * s2 * a[j] * a[j];
        }
        da[j] += (real)by_a;
        db[j] += (real)by_b;
        dc[j] += (real)by_c;
    }
}
