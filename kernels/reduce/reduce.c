/* reduce.c - sum, mean, max and logsumexp over any axes: arguments, shapes, records, cases.
 * README.md has the derivations. */
#include "reduce/reduce.h"
#include "gradus/ops.h"
#include "kernel.h"

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
            return gd_call_fail(call, GD_ERROR_ARGUMENT, "axis %d is not an axis of x %s", axis,
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
    if (!gd_dtype_is_real(gd_tensor_dtype(x)))
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "x is int32, wanted a real dtype");
    gd_status status = check_axes(call, args);
    if (status) return status;

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

#define CASE(case_name, arguments, empty, how, low, high, n, ...)                                \
    {                                                                                            \
        .name = case_name, .args = arguments, .inputs = 1, .may_be_empty = empty,                \
        .input = {                                                                               \
            {.name = "x", .fill = how, .a = low, .b = high, .ndim = n, .shape = {__VA_ARGS__}}}, \
    }

/* `how`: GD_FILL_DISTINCT for max, which has kinks where elements are equal. */
#define CASES(how)                                                   \
    CASE("all", &all, false, how, 0, 1, 3, 3, 5, 7),                 \
        CASE("all_kept", &all_kept, false, how, 0, 1, 2, 4, 9),      \
        CASE("none", &none, false, how, 0, 1, 2, 3, 4),              \
        CASE("columns", &first, false, how, 0, 1, 2, 6, 11),         \
        CASE("rows", &last, false, how, 0, 1, 2, 6, 11),             \
        CASE("rows_kept", &last_kept, false, how, 0, 1, 3, 2, 3, 5), \
        CASE("middle", &middle, false, how, 0, 1, 3, 2, 5, 3),       \
        CASE("outer_two", &outer_two, false, how, 0, 1, 3, 3, 2, 5), \
        CASE("scalar", &all, false, how, 0, 1, 0, 0),                \
        CASE("length1", &last, false, how, 0, 1, 2, 3, 1),           \
        CASE("wide", &last, false, how, 0, 1, 2, 2, 1500),           \
        CASE("offset", &last, false, how, 50, 1, 2, 3, 8),           \
        CASE("zero_rows", &last, true, how, 0, 1, 2, 0, 4),          \
        CASE("zero_columns", &last, true, how, 0, 1, 2, 4, 0)

static const gd_case smooth_cases[] = {CASES(GD_FILL_NORMAL)};
static const gd_case distinct_cases[] = {CASES(GD_FILL_DISTINCT)};

/* ---- Records and functions ---------------------------------------------------------------- */

const gd_op gd_op_sum = {
    .name = "sum",
    .formula = "y = sum of x over axes",
    .inputs = 1,
    .outputs = 1,
    .args_size = sizeof(gd_reduce_args),
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
    .outputs = 1,
    .args_size = sizeof(gd_reduce_args),
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
    .outputs = 1,
    .args_size = sizeof(gd_reduce_args),
    .backward_reads_inputs = 1,
    .backward_reads_outputs = 1,
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
    .outputs = 1,
    .args_size = sizeof(gd_reduce_args),
    .backward_reads_inputs = 1,
    .backward_reads_outputs = 1,
    .strided = true,
    .shape = reduce_shape,
    .forward = GD_ON_DEVICES(logsumexp_forward),
    .backward = GD_ON_DEVICES(logsumexp_backward),
    .cases = smooth_cases,
    .case_count = sizeof smooth_cases / sizeof *smooth_cases,
};

static gd_tensor *reduce(const gd_op *op, gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    gd_reduce_args args = {.all = !axes, .keep_dims = keep_dims, .count = count};
    for (int i = 0; axes && i < count && i < GD_MAX_DIMS; i++) args.axes[i] = axes[i];
    return gd_apply(op, &x, 1, &args);
}

gd_tensor *gd_sum(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return reduce(&gd_op_sum, x, axes, count, keep_dims);
}

gd_tensor *gd_mean(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return reduce(&gd_op_mean, x, axes, count, keep_dims);
}

gd_tensor *gd_max(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return reduce(&gd_op_max, x, axes, count, keep_dims);
}

gd_tensor *gd_logsumexp(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return reduce(&gd_op_logsumexp, x, axes, count, keep_dims);
}
