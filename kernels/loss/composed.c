/* composed.c - losses that are a few ops: cosine_similarity and cosine_embedding_loss. */
#include "gradus/ops.h"
#include "gradus/autograd.h"

#include <math.h>

/* Whether both are there; else the op's sentence says which is not. */
static bool both_given(const char *op, gd_tensor *a, const char *a_name, gd_tensor *b,
                       const char *b_name)
{
    if (a && b) return true;
    if (a || b)
        gd_fail(gd_tensor_context(a ? a : b), GD_ERROR_ARGUMENT, "%s: %s is NULL, wanted a tensor",
                op, a ? b_name : a_name);
    return false;
}

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

/* Otherwise the error is set. */
static bool known(const char *op, gd_tensor *x, gd_reduction r)
{
    if (r == GD_MEAN || r == GD_SUM || r == GD_NONE) return true;
    gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
            "%s: reduction is %d, wanted GD_MEAN, GD_SUM or GD_NONE", op, (int)r);
    return false;
}

/* Whether t has the shape of x without its last dimension. */
static bool without_last(gd_tensor *t, gd_tensor *x)
{
    const int last = gd_tensor_ndim(x) - 1;
    bool same = last >= 0 && gd_tensor_ndim(t) == last;
    for (int d = 0; same && d < last; d++) same = gd_tensor_dim(t, d) == gd_tensor_dim(x, d);
    return same;
}

/* ---- Cosines ------------------------------------------------------------------------------ */

/* a . b / (|a| |b|) along an axis; squares below `least` count as that, and `more` is added. */
static gd_tensor *cosine(gd_tensor *a, gd_tensor *b, int axis, double least, double more)
{
    gd_tensor *x = widened(a), *y = widened(b);
    gd_tensor *xx = gd_sum(gd_mul(x, x), &axis, 1, false);
    gd_tensor *yy = gd_sum(gd_mul(y, y), &axis, 1, false);
    gd_tensor *one_by_x = gd_rsqrt(gd_add_scalar(gd_clamp(xx, least, INFINITY), more));
    gd_tensor *one_by_y = gd_rsqrt(gd_add_scalar(gd_clamp(yy, least, INFINITY), more));
    gd_tensor *xy = gd_sum(gd_mul(x, y), &axis, 1, false);
    return gd_cast(gd_mul(gd_mul(xy, one_by_x), one_by_y), gd_tensor_dtype(a));
}

static bool alike(const char *op, gd_tensor *a, gd_tensor *b)
{
    bool same = gd_tensor_ndim(a) == gd_tensor_ndim(b) && gd_tensor_ndim(a) > 0 &&
                gd_dtype_is_real(gd_tensor_dtype(a)) && gd_tensor_dtype(a) == gd_tensor_dtype(b);
    for (int d = 0; same && d < gd_tensor_ndim(a); d++)
        same = gd_tensor_dim(a, d) == gd_tensor_dim(b, d);
    if (!same)
        gd_fail(gd_tensor_context(a), GD_ERROR_ARGUMENT,
                "%s: a is %s %s and b %s %s, wanted one real dtype and shape, with a dimension", op,
                gd_dtype_name(gd_tensor_dtype(a)), gd_shape_text(a).text,
                gd_dtype_name(gd_tensor_dtype(b)), gd_shape_text(b).text);
    return same;
}

gd_tensor *gd_cosine_similarity(gd_tensor *a, gd_tensor *b, int axis, double eps)
{
    if (!both_given("cosine_similarity", a, "a", b, "b")) return NULL;
    if (!alike("cosine_similarity", a, b)) return NULL;
    gd_context *ctx = gd_tensor_context(a);
    const int ndim = gd_tensor_ndim(a);
    if (axis < -ndim || axis >= ndim) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "cosine_similarity: axis is %d, wanted one of the %d dimensions of a %s", axis,
                ndim, gd_shape_text(a).text);
        return NULL;
    }
    if (!(eps >= 0)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "cosine_similarity: eps is %g, wanted 0 or more", eps);
        return NULL;
    }
    return cosine(a, b, axis, eps * eps, 0);
}

gd_tensor *gd_cosine_embedding_loss(gd_tensor *a, gd_tensor *b, gd_tensor *target, double margin,
                                    gd_reduction reduction)
{
    const char *op = "cosine_embedding_loss";
    if (!both_given(op, a, "a", b, "b") || !both_given(op, a, "a", target, "target")) return NULL;
    if (!alike(op, a, b)) return NULL;
    if (gd_tensor_dtype(target) != gd_tensor_dtype(a) || !without_last(target, a)) {
        gd_fail(gd_tensor_context(a), GD_ERROR_ARGUMENT,
                "%s: target is %s %s, wanted %s and the shape of a %s without its last dimension",
                op, gd_dtype_name(gd_tensor_dtype(target)), gd_shape_text(target).text,
                gd_dtype_name(gd_tensor_dtype(a)), gd_shape_text(a).text);
        return NULL;
    }
    if (!known(op, a, reduction)) return NULL;

    gd_tensor *one = ones_like(target), *c = cosine(a, b, -1, 0, 1e-12);
    gd_tensor *apart = gd_clamp(gd_add_scalar(c, -margin), 0, INFINITY);
    gd_tensor *none = gd_add_scalar(one, -1);
    gd_tensor *loss = gd_where(gd_eq(target, one), gd_sub(one, c),
                               gd_where(gd_eq(target, gd_neg(one)), apart, none));
    return reduction == GD_NONE ? loss : reduction == GD_SUM ? gd_sum_all(loss) : gd_mean_all(loss);
}
