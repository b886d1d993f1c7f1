/* composed.c - losses that are a few ops, their definitions: cosine_similarity and
 * cosine_embedding_loss. */
#include "arguments.h"
#include "derivation.h"

static gd_tensor *ones_like(gd_tensor *x)
{
    return gd_add_scalar(gd_masked_fill(x, gd_eq(x, x), 0), 1);
}

/* ---- Cosines ------------------------------------------------------------------------------ */

/* max(|x|, eps) along an axis: no square overflows or vanishes. */
static gd_tensor *length(gd_tensor *x, int axis, double eps)
{
    return gd_clamp(gd_norm(x, 2, &axis, 1, true), eps, INFINITY);
}

/* a . b / (sqrt(a . a + 1e-12) sqrt(b . b + 1e-12)) along the last axis, as PyTorch's
 * loss has it. */
static gd_tensor *cosine(gd_tensor *a, gd_tensor *b)
{
    const int last = -1;
    gd_tensor *by_a = gd_rsqrt(plus(gd_sum(square(a), &last, 1, false), 1e-12));
    gd_tensor *by_b = gd_rsqrt(plus(gd_sum(square(b), &last, 1, false), 1e-12));
    return mul(mul(gd_sum(mul(a, b), &last, 1, false), by_a), by_b);
}

typedef struct cosine_args {
    double eps, margin;
    int axis;
    gd_reduction reduction;
} cosine_args;

/* a, b, and the target of cosine_embedding_loss */
static gd_status cosine_shape(const gd_call *call, gd_shapes *out)
{
    const cosine_args *args = call->args;
    const gd_tensor *a = call->input[0], *b = call->input[1];
    gd_spec *y = out->output;
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
    *y = (gd_spec){.dtype = gd_tensor_dtype(a)};
    for (int d = 0; d < ndim; d++)
        if (d != args->axis && d != args->axis + ndim) y->shape[y->ndim++] = gd_tensor_dim(a, d);
    return GD_OK;
}

static void cosine_definition(const gd_call *call)
{
    const cosine_args *args = call->args;
    gd_tensor *a = call->input[0], *b = call->input[1];
    b = gd_div(b, length(b, args->axis, args->eps)); /* so that no product overflows */
    gd_tensor *dot = gd_sum(mul(a, b), &args->axis, 1, true);
    call->output[0] = shaped_as(gd_div(dot, length(a, args->axis, args->eps)), call->output[0]);
}

gd_tensor *gd_cosine_similarity(gd_tensor *a, gd_tensor *b, int axis, double eps)
{
    static const gd_op op = {.name = "cosine_similarity",
                             .inputs = 2,
                             .input_names = {"a", "b"},
                             .outputs = 1,
                             GD_ARGS(cosine_args),
                             .shape = cosine_shape,
                             .definition = cosine_definition};
    const cosine_args args = {eps, 0, axis, GD_NONE};
    return gd_apply(&op, (gd_tensor *[]){a, b}, 2, &args);
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
    if (reduction != GD_NONE) out->output->ndim = 0;
    return GD_OK;
}

static void embedding_loss_definition(const gd_call *call)
{
    const cosine_args *args = call->args;
    gd_tensor *target = call->input[2];
    gd_tensor *one = ones_like(target), *c = cosine(call->input[0], call->input[1]);
    gd_tensor *apart = gd_relu(plus(c, -args->margin)), *none = plus(one, -1);
    gd_tensor *loss = gd_where(gd_eq(target, one), sub(one, c),
                               gd_where(gd_eq(target, gd_neg(one)), apart, none));
    call->output[0] = args->reduction == GD_NONE  ? loss
                      : args->reduction == GD_SUM ? gd_sum_all(loss)
                                                  : gd_mean_all(loss);
}

gd_tensor *gd_cosine_embedding_loss(gd_tensor *a, gd_tensor *b, gd_tensor *target, double margin,
                                    gd_reduction reduction)
{
    static const gd_op op = {.name = "cosine_embedding_loss",
                             .inputs = 3,
                             .input_names = {"a", "b", "target"},
                             .outputs = 1,
                             GD_ARGS(cosine_args),
                             .shape = embedding_loss_shape,
                             .definition = embedding_loss_definition};
    const cosine_args args = {0, margin, -1, reduction};
    return gd_apply(&op, (gd_tensor *[]){a, b, target}, 3, &args);
}
