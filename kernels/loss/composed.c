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

static const gd_option_range cosine_ranges[] = {
    GD_AXIS_RANGE(cosine_args, axis),
    {"eps", GD_FIELD(cosine_args, eps), 0, INFINITY, "0 or more"},
    {0}};

/* a without the axis */
static gd_status cosine_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *a = call->input[0];
    gd_spec *y = out->output;
    *y = (gd_spec){.dtype = gd_tensor_dtype(a)};
    for (int d = 0; d < gd_tensor_ndim(a); d++)
        if (d != ((const cosine_args *)call->args)->axis)
            y->shape[y->ndim++] = gd_tensor_shape(a)[d];
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
                             .signature = "a[...] b[...] -> y",
                             GD_ARGS(cosine_args),
                             .ranges = cosine_ranges,
                             .shape = cosine_shape,
                             .definition = cosine_definition};
    const cosine_args args = {eps, 0, gd_axis_from_start(a, axis), GD_NONE};
    return gd_apply(&op, (gd_tensor *[]){a, b}, 2, &args);
}

static const gd_option_range embedding_ranges[] = {
    {"reduction", GD_FIELD(cosine_args, reduction), GD_MEAN, GD_NONE, "GD_MEAN, GD_SUM or GD_NONE"},
    {0}};

static gd_status embedding_loss_shape(const gd_call *call, gd_shapes *out)
{
    if (((const cosine_args *)call->args)->reduction != GD_NONE) out->output->ndim = 0;
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
                             .signature = "a[..., D] b[..., D] target[...] -> loss[...]",
                             GD_ARGS(cosine_args),
                             .ranges = embedding_ranges,
                             .shape = embedding_loss_shape,
                             .definition = embedding_loss_definition};
    const cosine_args args = {0, margin, -1, reduction};
    return gd_apply(&op, (gd_tensor *[]){a, b, target}, 3, &args);
}
