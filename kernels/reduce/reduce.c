/* reduce.c - the ops sum, mean, max and logsumexp. README.md has the derivations. */
#include "reduce/reduce.h"
#include "arguments.h"
#include "gradus/ops.h"

GD_KERNEL(sum_forward)
GD_KERNEL(sum_backward)
GD_KERNEL(mean_forward)
GD_KERNEL(mean_backward)
GD_KERNEL(max_forward)
GD_KERNEL(max_backward)
GD_KERNEL(logsumexp_forward)
GD_KERNEL(logsumexp_backward)

/* ---- Arguments and shapes ----------------------------------------------------------------- */

static gd_status check_axes(const gd_call *call, const gd_reduce_args *args)
{
    const gd_tensor *x = call->input[0];
    const int ndim = gd_tensor_ndim(x);
    unsigned seen = 0;
    if (args->all) return GD_OK;
    if (args->count < 0 || args->count > ndim)
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "given %d axes, but x %s has %d dimensions",
                            args->count, gd_shape_text(x).text, ndim);
    for (int i = 0; i < args->count; i++) {
        int axis = args->axes[i];
        if (axis < -ndim || axis >= ndim)
            return gd_call_fail(call, GD_ERROR_ARGUMENT,
                                "axis is %d, wanted one of the %d dimensions of x %s", axis, ndim,
                                gd_shape_text(x).text);
        unsigned bit = 1u << (axis < 0 ? axis + ndim : axis);
        if (seen & bit)
            return gd_call_fail(call, GD_ERROR_ARGUMENT, "axis %d of x %s is listed twice", axis,
                                gd_shape_text(x).text);
        seen |= bit;
    }
    return GD_OK;
}

static gd_status reduce_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save, (void)words;
    const gd_reduce_args *args = call->args;
    const gd_tensor *x = call->input[0];
    const int ndim = gd_tensor_ndim(x);
    if (gd_check_real(call, 0) || check_axes(call, args)) return GD_ERROR_ARGUMENT;

    const unsigned reduced = gd_reduced_axes(args, ndim);
    output->dtype = gd_tensor_dtype(x);
    output->ndim = 0;
    for (int d = 0; d < ndim; d++) {
        bool kept = !(reduced >> d & 1);
        if (kept || args->keep_dims)
            output->shape[output->ndim++] = kept ? gd_tensor_shape(x)[d] : 1;
    }
    return GD_OK;
}

/* ---- Cases -------------------------------------------------------------------------------- */

static const gd_reduce_args all = {.all = true};
static const gd_reduce_args all_kept = {.all = true, .keep_dims = true};
static const gd_reduce_args none = {.count = 0};
static const gd_reduce_args first = {.count = 1, .axes = {0}};
static const gd_reduce_args last = {.count = 1, .axes = {-1}};
static const gd_reduce_args last_kept = {.count = 1, .axes = {-1}, .keep_dims = true};
static const gd_reduce_args middle = {.count = 1, .axes = {1}};
static const gd_reduce_args outer_two = {.count = 2, .axes = {2, 0}};

/* `fill` is GD_DISTINCT for max, which has kinks where elements are equal. */
#define CASES(fill)                                                             \
    {"all", &all, GD_INPUTS({fill, GD_DIMS(3, 5, 7)})},                         \
        {"all_kept", &all_kept, GD_INPUTS({fill, GD_DIMS(4, 9)})},              \
        {"none", &none, GD_INPUTS({fill, GD_DIMS(3, 4)})},                      \
        {"columns", &first, GD_INPUTS({fill, GD_DIMS(6, 11)})},                 \
        {"rows", &last, GD_INPUTS({fill, GD_DIMS(6, 11)})},                     \
        {"rows_kept", &last_kept, GD_INPUTS({fill, GD_DIMS(2, 3, 5)})},         \
        {"middle", &middle, GD_INPUTS({fill, GD_DIMS(2, 5, 3)})},               \
        {"outer_two", &outer_two, GD_INPUTS({fill, GD_DIMS(3, 2, 5)})},         \
        {"scalar", &all, GD_INPUTS({fill, GD_SCALAR})},                         \
        {"length1", &last, GD_INPUTS({fill, GD_DIMS(3, 1)})},                   \
        {"wide", &last, GD_INPUTS({fill, GD_DIMS(2, 1500)})},                   \
        {"offset", &last, GD_INPUTS({fill, .a = 50, GD_DIMS(3, 8)})},           \
        {"zero_rows", &last, GD_INPUTS({GD_DIMS(0, 4)}), .may_be_empty = true}, \
    {                                                                           \
        "zero_columns", &last, GD_INPUTS({GD_DIMS(4, 0)}), .may_be_empty = true \
    }

static const gd_case smooth_cases[] = {CASES(.fill = GD_FILL_NORMAL)};
static const gd_case distinct_cases[] = {CASES(GD_DISTINCT)};

/* ---- Records and functions ---------------------------------------------------------------- */

const gd_op gd_op_sum = {
    .name = "sum",
    .formula = "y = sum of x over axes",
    .inputs = 1,
    .input_names = {"x"},
    .outputs = 1,
    .args_size = sizeof(gd_reduce_args),
    .plain_args = true,
    .strided = true,
    .shape = reduce_shape,
    .forward = GD_ON_DEVICES(sum_forward),
    .backward = GD_ON_DEVICES(sum_backward),
    .cases = smooth_cases,
    .case_count = sizeof smooth_cases / sizeof *smooth_cases,
};

const gd_op gd_op_mean = {
    .name = "mean",
    .formula = "y = (sum of x over axes) / n",
    .inputs = 1,
    .input_names = {"x"},
    .outputs = 1,
    .args_size = sizeof(gd_reduce_args),
    .plain_args = true,
    .strided = true,
    .shape = reduce_shape,
    .forward = GD_ON_DEVICES(mean_forward),
    .backward = GD_ON_DEVICES(mean_backward),
    .cases = smooth_cases,
    .case_count = sizeof smooth_cases / sizeof *smooth_cases,
};

const gd_op gd_op_max = {
    .name = "max",
    .formula = "y = max of x over axes",
    .inputs = 1,
    .input_names = {"x"},
    .outputs = 1,
    .args_size = sizeof(gd_reduce_args),
    .plain_args = true,
    .backward_reads_inputs = GD_BIT(0),
    .backward_reads_outputs = GD_BIT(0),
    .strided = true,
    .shape = reduce_shape,
    .forward = GD_ON_DEVICES(max_forward),
    .backward = GD_ON_DEVICES(max_backward),
    .cases = distinct_cases,
    .case_count = sizeof distinct_cases / sizeof *distinct_cases,
};

const gd_op gd_op_logsumexp = {
    .name = "logsumexp",
    .formula = "y = ln(sum of e^x over axes)",
    .inputs = 1,
    .input_names = {"x"},
    .outputs = 1,
    .args_size = sizeof(gd_reduce_args),
    .plain_args = true,
    .backward_reads_inputs = GD_BIT(0),
    .backward_reads_outputs = GD_BIT(0),
    .strided = true,
    .shape = reduce_shape,
    .forward = GD_ON_DEVICES(logsumexp_forward),
    .backward = GD_ON_DEVICES(logsumexp_backward),
    .cases = smooth_cases,
    .case_count = sizeof smooth_cases / sizeof *smooth_cases,
};

static gd_reduce_args args_of(const int *axes, int count, bool keep_dims)
{
    gd_reduce_args args = {.all = !axes, .keep_dims = keep_dims, .count = count};
    for (int i = 0; axes && i < count && i < GD_MAX_DIMS; i++) args.axes[i] = axes[i];
    return args;
}

static gd_tensor *reduce(const gd_op *op, gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    const gd_reduce_args args = args_of(axes, count, keep_dims);
    return gd_apply(op, &x, 1, &args);
}

gd_tensor *gd_sum(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return reduce(&gd_op_sum, x, axes, count, keep_dims);
}

gd_tensor *gd_sum_all(gd_tensor *x)
{
    return gd_sum(x, NULL, 0, false);
}

gd_tensor *gd_mean_all(gd_tensor *x)
{
    return gd_mean(x, NULL, 0, false);
}

gd_tensor *gd_mean(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return reduce(&gd_op_mean, x, axes, count, keep_dims);
}

/* The checks of the ops that a function is made of, in its own name. */
static bool valid_for(const char *name, gd_tensor *x, const gd_reduce_args *args)
{
    const gd_op op = {.name = name, .input_names = {"x"}};
    gd_context *ctx = gd_tensor_context(x);
    const gd_call call = {.context = ctx, .op = &op, .inputs = 1, .input = &x};
    return !gd_error(ctx) && !gd_check_real(&call, 0) && !check_axes(&call, args);
}

/* sum((x - mean)^2) / (n - correction), or its root, in two passes: the mean of squares minus the
 * square of the mean would cancel far from 0. 16-bit x goes through float32: in float16 squares
 * overflow from 256 on and sums of them sooner, and a mean of 16 bits is no center. */
static gd_tensor *variance(const char *name, gd_tensor *x, const int *axes, int count,
                           double correction, bool keep_dims, bool root)
{
    const gd_reduce_args args = args_of(axes, count, keep_dims);
    if (!x || !valid_for(name, x, &args)) return NULL;
    if (!isfinite(correction)) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
                "%s: correction is %g, wanted a finite number", name, correction);
        return NULL;
    }
    const gd_dtype dtype = gd_tensor_dtype(x);
    const bool narrow = dtype == GD_BFLOAT16 || dtype == GD_FLOAT16;
    if (narrow) x = gd_cast(x, GD_FLOAT32);
    gd_tensor *mean = gd_mean(x, axes, count, true);
    gd_tensor *d = gd_sub(x, mean), *sum = gd_sum(gd_mul(d, d), axes, count, keep_dims);
    if (!sum) return NULL;
    const int64_t results = gd_tensor_count(mean);
    const double n = results ? (double)(gd_tensor_count(x) / results) : 0;
    gd_tensor *y = gd_scale(sum, 1 / fmax(n - correction, 0));
    if (root) y = gd_sqrt(y);
    return narrow ? gd_cast(y, dtype) : y;
}

gd_tensor *gd_var(gd_tensor *x, const int *axes, int count, double correction, bool keep_dims)
{
    return variance("var", x, axes, count, correction, keep_dims, false);
}

gd_tensor *gd_std(gd_tensor *x, const int *axes, int count, double correction, bool keep_dims)
{
    return variance("std", x, axes, count, correction, keep_dims, true);
}

gd_tensor *gd_max(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return reduce(&gd_op_max, x, axes, count, keep_dims);
}

gd_tensor *gd_logsumexp(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return reduce(&gd_op_logsumexp, x, axes, count, keep_dims);
}
