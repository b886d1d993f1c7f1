/* composed.c - losses that are a few ops: cosine_similarity and cosine_embedding_loss. */
#include "gradus/ops.h"
#include "core/services.h"

#include <math.h>

/* Sums and quotients of 16-bit numbers are of float32. */
static gd_tensor *widened(gd_tensor *x)
{
    const bool wide = gd_tensor_dtype(x) == GD_FLOAT32 || gd_tensor_dtype(x) == GD_FLOAT64;
    return wide ? x : gd_cast(x, GD_FLOAT32);
}

static gd_tensor *ones_like(gd_tensor *x)
{
    return gd_add_scalar(gd_masked_fill(x, gd_eq(x, x), 0), 1);
}

/* ---- Cosines ------------------------------------------------------------------------------ */

/* x / max(|x|, eps) along an axis: no square overflows or vanishes. */
static gd_tensor *unit(gd_tensor *x, int axis, double eps)
{
    return gd_div(x, gd_clamp(gd_norm(x, 2, &axis, 1, true), eps, INFINITY));
}

/* a . b / (sqrt(a . a + 1e-12) sqrt(b . b + 1e-12)) along the last axis, as PyTorch's loss has it. */
static gd_tensor *cosine(gd_tensor *a, gd_tensor *b)
{
    const int last = -1;
    gd_tensor *x = widened(a), *y = widened(b);
    gd_tensor *by_x = gd_rsqrt(gd_add_scalar(gd_sum(gd_mul(x, x), &last, 1, false), 1e-12));
    gd_tensor *by_y = gd_rsqrt(gd_add_scalar(gd_sum(gd_mul(y, y), &last, 1, false), 1e-12));
    gd_tensor *xy = gd_sum(gd_mul(x, y), &last, 1, false);
    return gd_cast(gd_mul(gd_mul(xy, by_x), by_y), gd_tensor_dtype(a));
}

typedef struct cosine_args {
    int axis;
    double eps;
    gd_reduction reduction;
} cosine_args;

/* a, b, and the target of cosine_embedding_loss */
static gd_status cosine_shape(const gd_call *call, gd_shapes *out)
{
    (void)out;
    const cosine_args *args = call->args;
    const gd_tensor *a = call->input[0], *b = call->input[1];
    const int ndim = gd_tensor_ndim(a);
    bool same = gd_tensor_ndim(b) == ndim && ndim > 0 && gd_dtype_is_real(gd_tensor_dtype(a)) &&
                gd_tensor_dtype(a) == gd_tensor_dtype(b);
    for (int d = 0; same && d < ndim; d++) same = gd_tensor_dim(a, d) == gd_tensor_dim(b, d);
    if (!same)
        return gd_call_fail(
            call, GD_ERROR_ARGUMENT,
            "a is %s %s and b %s %s, wanted one real dtype and shape, with a dimension",
            gd_dtype_name(gd_tensor_dtype(a)), gd_shape_text(a).text,
            gd_dtype_name(gd_tensor_dtype(b)), gd_shape_text(b).text);
    if (args->axis < -ndim || args->axis >= ndim)
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "axis is %d, wanted one of the %d dimensions of a %s", args->axis, ndim,
                            gd_shape_text(a).text);
    if (!(args->eps >= 0))
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "eps is %g, wanted 0 or more", args->eps);
    return GD_OK;
}

gd_tensor *gd_cosine_similarity(gd_tensor *a, gd_tensor *b, int axis, double eps)
{
    static const gd_op op = {
        .name = "cosine_similarity", .inputs = 2, .input_names = {"a", "b"}, .shape = cosine_shape};
    const cosine_args args = {axis, eps, GD_NONE};
    if (!gd_accepts(&op, (gd_tensor *[]){a, b}, 2, &args)) return NULL;
    gd_tensor *product = gd_mul(unit(widened(a), axis, eps), unit(widened(b), axis, eps));
    return gd_cast(gd_sum(product, &axis, 1, false), gd_tensor_dtype(a));
}

static gd_status embedding_loss_shape(const gd_call *call, gd_shapes *out)
{
    const gd_reduction reduction = ((const cosine_args *)call->args)->reduction;
    const gd_tensor *a = call->input[0], *target = call->input[2];
    const int last = gd_tensor_ndim(a) - 1;
    if (cosine_shape(call, out)) return GD_ERROR_ARGUMENT;
    bool same = gd_tensor_dtype(target) == gd_tensor_dtype(a) && gd_tensor_ndim(target) == last;
    for (int d = 0; same && d < last; d++) same = gd_tensor_dim(target, d) == gd_tensor_dim(a, d);
    if (!same)
        return gd_call_fail(
            call, GD_ERROR_ARGUMENT,
            "target is %s %s, wanted %s and the shape of a %s without its last dimension",
            gd_dtype_name(gd_tensor_dtype(target)), gd_shape_text(target).text,
            gd_dtype_name(gd_tensor_dtype(a)), gd_shape_text(a).text);
    if (reduction != GD_MEAN && reduction != GD_SUM && reduction != GD_NONE)
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "reduction is %d, wanted GD_MEAN, GD_SUM or GD_NONE", (int)reduction);
    return GD_OK;
}

gd_tensor *gd_cosine_embedding_loss(gd_tensor *a, gd_tensor *b, gd_tensor *target, double margin,
                                    gd_reduction reduction)
{
    static const gd_op op = {.name = "cosine_embedding_loss",
                             .inputs = 3,
                             .input_names = {"a", "b", "target"},
                             .shape = embedding_loss_shape};
    const cosine_args args = {-1, 0, reduction};
    if (!gd_accepts(&op, (gd_tensor *[]){a, b, target}, 3, &args)) return NULL;

    gd_tensor *one = ones_like(target), *c = cosine(a, b);
    gd_tensor *apart = gd_relu(gd_add_scalar(c, -margin));
    gd_tensor *none = gd_add_scalar(one, -1);
    gd_tensor *loss = gd_where(gd_eq(target, one), gd_sub(one, c),
                               gd_where(gd_eq(target, gd_neg(one)), apart, none));
    return reduction == GD_NONE ? loss : reduction == GD_SUM ? gd_sum_all(loss) : gd_mean_all(loss);
}
