/* derivation.c - what definitions and derivatives share: adjoints of shapes, and normalisation. */
#include "derivation.h"

#include <string.h>

gd_tensor *sum_to(gd_tensor *g, const gd_tensor *t)
{
    int axes[GD_MAX_DIMS], count = 0;
    const int missing = gd_tensor_ndim(g) - gd_tensor_ndim(t);
    if (!g) return NULL;
    for (int d = 0; d < gd_tensor_ndim(g); d++) {
        const int64_t size = d < missing ? 1 : gd_tensor_shape(t)[d - missing];
        if (d < missing || size != gd_tensor_shape(g)[d]) axes[count++] = d;
    }
    if (count == 0) return g;
    return shaped_as(gd_sum(g, axes, count, true), t);
}

gd_tensor *among_zeros(gd_tensor *g, const gd_tensor *t, int axis, int64_t start)
{
    if (!g) return NULL;
    const int ndim = gd_tensor_ndim(g);
    const int64_t length = gd_tensor_dim(g, axis), size = gd_tensor_dim(t, axis);
    int64_t shape[GD_MAX_DIMS];
    memcpy(shape, gd_tensor_shape(g), (size_t)ndim * sizeof *shape);
    gd_tensor *part[3];
    int parts = 0;
    for (int i = 0; i < 3; i++) {
        shape[axis] = i ? size - start - length : start;
        if (i == 1)
            part[parts++] = g;
        else if (shape[axis] > 0)
            part[parts++] = gd_constant(gd_tensor_context(g), gd_tensor_dtype(g), ndim, shape, 0);
    }
    return parts == 1 ? g : gd_concat(part, parts, axis);
}

gd_tensor *by_channel(gd_tensor *t, const gd_tensor *x)
{
    int64_t shape[GD_MAX_DIMS] = {gd_tensor_dim(t, 0)};
    const int ndim = gd_tensor_ndim(x) - 1;
    for (int d = 1; d < ndim; d++) shape[d] = 1;
    return t ? gd_reshape(t, ndim, shape) : NULL;
}

gd_tensor *of_unit_square(gd_tensor *x, const int *axes, int count, double eps)
{
    return mul(x, gd_rsqrt(plus(gd_mean(square(x), axes, count, true), eps)));
}

gd_tensor *centred(gd_tensor *x, const int *axes, int count)
{
    return sub(x, gd_mean(x, axes, count, true));
}

gd_tensor *scaled_and_shifted(gd_tensor *x, gd_tensor *weight, gd_tensor *bias)
{
    if (weight) x = mul(x, weight);
    return bias ? add(x, bias) : x;
}
