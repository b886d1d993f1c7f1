/* reduce.c - the ops sum, mean, max, logsumexp, var, std, prod, norm, any and all. See
 * README.md. */
#include "reduce/reduce.h"
#include "arguments.h"
#include "gradus/ops.h"

GD_KERNEL_PAIR(sum)
GD_KERNEL_PAIR(mean)
GD_KERNEL_PAIR(max)
GD_KERNEL_PAIR(logsumexp)
GD_KERNEL_PAIR(var)
GD_KERNEL_PAIR(std)
GD_KERNEL_PAIR(norm)

/* ---- Arguments and shapes ----------------------------------------------------------------- */

static gd_status check_axes(const gd_call *call, const gd_reduce_args *args)
{
    const gd_tensor *x = call->input[0];
    const int ndim = gd_tensor_ndim(x);
    unsigned seen = 0;
    if (args->all) return GD_OK;
    if (args->count < 0 || args->count > ndim)
        return gd_refuse(call, "given %d axes, but x %s has %d dimensions", args->count,
                         gd_shape_text(x).text, ndim);
    for (int i = 0; i < args->count; i++) {
        int axis = args->axes[i];
        if (axis < -ndim || axis >= ndim)
            return gd_refuse(call, "axis is %d, wanted one of the %d dimensions of x %s", axis,
                             ndim, gd_shape_text(x).text);
        unsigned bit = 1u << (axis < 0 ? axis + ndim : axis);
        if (seen & bit)
            return gd_refuse(call, "axis %d of x %s is listed twice", axis, gd_shape_text(x).text);
        seen |= bit;
    }
    return GD_OK;
}

static gd_status reduce_shape(const gd_call *call, gd_shapes *out)
{
    const gd_reduce_args *args = call->args;
    const gd_tensor *x = call->input[0];
    const int ndim = gd_tensor_ndim(x);
    if (check_axes(call, args)) return GD_ERROR_ARGUMENT;

    const unsigned reduced = gd_reduced_axes(args, ndim);
    gd_spec *y = out->output;
    *y = (gd_spec){.dtype = gd_tensor_dtype(x)};
    for (int d = 0; d < ndim; d++) {
        bool kept = !(reduced >> d & 1);
        if (kept || args->keep_dims) y->shape[y->ndim++] = kept ? gd_tensor_shape(x)[d] : 1;
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

/* ---- Records ------------------------------------------------------------------------------ */

/* What users give a reduction, and its arguments of it. */
#define OF_AXES gd_tensor *x, const int *axes, int count, bool keep_dims
#define AXES args_of(axes, count, keep_dims)

static gd_reduce_args args_of(const int *axes, int count, bool keep_dims)
{
    gd_reduce_args args = {.all = !axes, .keep_dims = keep_dims, .count = count};
    for (int i = 0; axes && i < count && i < GD_MAX_DIMS; i++) args.axes[i] = axes[i];
    return args;
}

/* In a record: of a real x; what all reductions with a gradient have; some save results. */
#define OF_X(args, results) GD_ARGS(args), .signature = "x -> " results
#define REDUCES(op, args, results) \
    OF_X(args, results), .strided = true, GD_KERNELS(op), .derivative = gd_##op##_derivative

/* A reduction whose arguments are its axes; `reads`: the backward reads x and y. */
#define REDUCTION(op, op_formula, cases, reads)            \
    const gd_op gd_op_##op = {                             \
        .formula = op_formula,                             \
        REDUCES(op, gd_reduce_args, "y"),                  \
        .backward_reads_inputs = (reads) ? GD_BIT(0) : 0,  \
        .backward_reads_outputs = (reads) ? GD_BIT(0) : 0, \
        .shape = reduce_shape,                             \
        GD_CASES(cases),                                   \
    };                                                     \
    gd_tensor *gd_##op(OF_AXES) GD_APPLIES(op, (gd_reduce_args[]){AXES}, x)
REDUCTION(sum, "y = sum of x over axes", smooth_cases, false)
REDUCTION(mean, "y = (sum of x over axes) / n", smooth_cases, false)
REDUCTION(max, "y = max of x over axes", distinct_cases, true)
REDUCTION(logsumexp, "y = ln(sum of e^x over axes)", smooth_cases, true)

/* The squares are summed around the mean, in a second pass: the mean of squares minus the square of
 * the mean would cancel far from 0. Saved is what d = x - mean and the weight of d in the backward
 * are computed from. On the CPU, in double: the mean, and the deviation of std. On a GPU, where
 * double is slow and squares of float overflow, they are of x scaled by a power of two
 * (reduce.cu). */
static gd_status std_shape(const gd_call *call, gd_shapes *out)
{
    const gd_variance_args *args = call->args;
    if (reduce_shape(call, out)) return GD_ERROR_ARGUMENT;
    if (!isfinite(args->correction))
        return gd_refuse(call, "correction is %g, wanted a finite number", args->correction);
    const bool cpu = gd_context_device(call->context) == GD_CPU;
    for (int i = 0; i < VARIANCE_SAVES; i++) {
        out->save[i] = out->output[0];
        out->save[i].dtype = cpu ? GD_FLOAT64 : call->dtype;
    }
    if (cpu) out->save[SAVE_REST].ndim = out->save[SAVE_SCALE].ndim = -1;
    return GD_OK;
}

static gd_status var_shape(const gd_call *call, gd_shapes *out)
{
    const gd_status status = std_shape(call, out);
    out->save[SAVE_DEVIATION].ndim = -1;
    return status;
}

static const gd_variance_args all_sample = {{.all = true}, 1},
                              all_kept_1 = {{.all = true, .keep_dims = true}, 1},
                              none_0 = {{.count = 0}, 0}, first_1 = {{.count = 1, .axes = {0}}, 1},
                              last_0 = {{.count = 1, .axes = {-1}}, 0},
                              last_kept_1 = {{.count = 1, .axes = {-1}, .keep_dims = true}, 1},
                              middle_half = {{.count = 1, .axes = {1}}, 0.5},
                              outer_two_1 = {{.count = 2, .axes = {2, 0}}, 1},
                              last_more = {{.count = 1, .axes = {-1}}, -2};

#define VARIANCE_CASES                                                            \
    {"all", &all_sample, GD_INPUTS({GD_DIMS(3, 5, 7)})},                          \
        {"all_kept", &all_kept_1, GD_INPUTS({GD_DIMS(4, 9)})},                    \
        {"columns", &first_1, GD_INPUTS({GD_DIMS(6, 11)})},                       \
        {"rows", &last_0, GD_INPUTS({GD_DIMS(6, 11)})},                           \
        {"rows_kept", &last_kept_1, GD_INPUTS({GD_DIMS(2, 3, 5)})},               \
        {"middle", &middle_half, GD_INPUTS({GD_DIMS(2, 5, 3)})},                  \
        {"outer_two", &outer_two_1, GD_INPUTS({GD_DIMS(3, 2, 5)})},               \
        {"more_than_n", &last_more, GD_INPUTS({GD_DIMS(4, 6)})},                  \
        {"pairs", &last_kept_1, GD_INPUTS({GD_DISTINCT, GD_DIMS(3, 2)})},         \
        {"wide", &last_0, GD_INPUTS({GD_DIMS(2, 1500)})},                         \
        {"offset", &last_0, GD_INPUTS({.a = 50, GD_DIMS(3, 8)})},                 \
        {"tiny", &last_kept_1, GD_INPUTS({GD_NORMAL(0, 1e-9), GD_DIMS(3, 8)})},   \
        {"huge", &last_kept_1, GD_INPUTS({GD_NORMAL(1e9, 1e8), GD_DIMS(3, 8)})},  \
        {"zero_rows", &last_0, GD_INPUTS({GD_DIMS(0, 4)}), .may_be_empty = true}, \
    {                                                                             \
        "zero_columns", &last_0, GD_INPUTS({GD_DIMS(4, 0)}), .may_be_empty = true \
    }

/* The variance of single elements is 0, with gradient 0; the deviation has a kink there. */
static const gd_case var_cases[] = {
    VARIANCE_CASES,
    {"none", &none_0, GD_INPUTS({GD_DIMS(3, 4)}), .may_be_empty = true},
    {"length1", &last_0, GD_INPUTS({GD_DIMS(3, 1)}), .may_be_empty = true}};
static const gd_case std_cases[] = {VARIANCE_CASES};

const gd_op gd_op_var = {
    .formula = "y = (sum of (x - mean)^2 over axes) / (n - correction)",
    REDUCES(var, gd_variance_args, "y; mean deviation rest scale"),
    .backward_reads_inputs = GD_BIT(0),
    .shape = var_shape,
    GD_CASES(var_cases),
};

const gd_op gd_op_std = {
    .formula = "y = sqrt((sum of (x - mean)^2 over axes) / (n - correction))",
    REDUCES(std, gd_variance_args, "y; mean deviation rest scale"),
    .backward_reads_inputs = GD_BIT(0),
    .shape = std_shape,
    GD_CASES(std_cases),
};

/* Products of many numbers are of numbers near 1. */
#define NEAR_1 GD_UNIFORM(0.9, 1.1)

static const gd_case prod_cases[] = {
    {"all", &all, GD_INPUTS({NEAR_1, GD_DIMS(3, 5, 7)})},
    {"all_kept", &all_kept, GD_INPUTS({GD_DIMS(2, 3)})},
    {"none", &none, GD_INPUTS({GD_DIMS(3, 4)})},
    {"columns", &first, GD_INPUTS({GD_DIMS(6, 11)})},
    {"rows", &last, GD_INPUTS({GD_DIMS(6, 5)})},
    {"rows_kept", &last_kept, GD_INPUTS({GD_DIMS(2, 3, 5)})},
    {"middle", &middle, GD_INPUTS({GD_DIMS(2, 5, 3)})},
    {"outer_two", &outer_two, GD_INPUTS({NEAR_1, GD_DIMS(3, 2, 5)})},
    {"scalar", &all, GD_INPUTS({GD_SCALAR})},
    {"length1", &last, GD_INPUTS({GD_DIMS(3, 1)})},
    {"wide", &last, GD_INPUTS({NEAR_1, GD_DIMS(2, 1500)})},
    {"zero_rows", &last, GD_INPUTS({GD_DIMS(0, 4)}), .may_be_empty = true},
    {"zero_columns", &last, GD_INPUTS({GD_DIMS(4, 0)}), .may_be_empty = true},
    {"signs", &last, GD_INPUTS({GD_NORMAL(0, 1), GD_DIMS(5, 6)})},
    {"one_zero", &last, GD_INPUTS({GD_CONSTANT(0), GD_DIMS(3, 1)})},
    {"small", &last, GD_INPUTS({GD_NORMAL(0.05, 0.01), GD_DIMS(4, 3)})},
    {"large", &last, GD_INPUTS({GD_NORMAL(30, 3), GD_DIMS(4, 3)})},
};

const gd_op gd_op_prod = {
    .name = "prod",
    .formula = "y = product of x over axes",
    OF_X(gd_reduce_args, "y"),
    GD_BUILT_IN,
    .shape = reduce_shape,
    .definition = gd_prod_definition,
    GD_CASES(prod_cases),
};

static gd_status norm_shape(const gd_call *call, gd_shapes *out)
{
    const gd_norm_args *args = call->args;
    if (reduce_shape(call, out)) return GD_ERROR_ARGUMENT;
    if (isnan(args->p)) return gd_refuse(call, "p is %g, wanted a number or an infinity", args->p);
    for (int i = 0; i < NORM_SAVES; i++) {
        out->save[i] = out->output[0];
        out->save[i].dtype = call->dtype;
    }
    return GD_OK;
}

static const gd_norm_args all_2 = {{.all = true}, 2}, first_1_norm = {{.count = 1, .axes = {0}}, 1},
                          last_2 = {{.count = 1, .axes = {-1}, .keep_dims = true}, 2},
                          last_max = {{.count = 1, .axes = {-1}}, INFINITY},
                          last_min = {{.count = 1, .axes = {-1}}, -INFINITY},
                          middle_3 = {{.count = 1, .axes = {1}}, 3},
                          outer_half = {{.count = 2, .axes = {2, 0}}, 0.5},
                          last_minus = {{.count = 1, .axes = {-1}}, -1.5},
                          last_count = {{.count = 1, .axes = {-1}}, 0};

static const gd_case norm_cases[] = {
    {"all", &all_2, GD_INPUTS({GD_DIMS(3, 5, 7)})},
    {"rows", &last_2, GD_INPUTS({GD_DIMS(6, 11)})},
    {"columns_p1", &first_1_norm, GD_INPUTS({GD_DIMS(6, 11)}), .kinks = true},
    {"middle_p3", &middle_3, GD_INPUTS({GD_DIMS(2, 5, 3)})},
    {"outer_p0.5", &outer_half, GD_INPUTS({GD_UNIFORM(0.5, 2), GD_DIMS(3, 2, 5)})},
    {"rows_p-1.5", &last_minus, GD_INPUTS({GD_UNIFORM(0.5, 2), GD_DIMS(4, 5)})},
    {"largest", &last_max, GD_INPUTS({GD_DISTINCT, GD_DIMS(5, 7)}), .kinks = true},
    {"smallest", &last_min, GD_INPUTS({GD_UNIFORM(0.5, 2), GD_DIMS(5, 7)}), .kinks = true},
    {"not_zero", &last_count, GD_INPUTS({GD_UNIFORM(0.5, 2), GD_DIMS(3, 4)}), .may_be_empty = true},
    {"scalar", &all_2, GD_INPUTS({GD_SCALAR})},
    {"wide", &last_2, GD_INPUTS({GD_DIMS(2, 1500)})},
    {"zeros", &last_2, GD_INPUTS({GD_CONSTANT(0), GD_DIMS(3, 4)}), .may_be_empty = true,
     .kinks = true},
    {"tiny", &last_2, GD_INPUTS({GD_NORMAL(0, 1e-9), GD_DIMS(3, 8)})},
    {"huge", &last_2, GD_INPUTS({GD_NORMAL(1e9, 1e8), GD_DIMS(3, 8)})},
    {"zero_rows", &last_2, GD_INPUTS({GD_DIMS(0, 4)}), .may_be_empty = true},
    {"zero_columns", &last_2, GD_INPUTS({GD_DIMS(4, 0)}), .may_be_empty = true},
};

const gd_op gd_op_norm = {
    .formula = "y = (sum of |x|^p over axes)^(1/p)",
    REDUCES(norm, gd_norm_args, "y; unit slope"),
    .backward_reads_inputs = GD_BIT(0),
    .shape = norm_shape,
    GD_CASES(norm_cases),
};

static gd_status found_shape(const gd_call *call, gd_shapes *out)
{
    const gd_status status = reduce_shape(call, out);
    out->output[0].dtype = GD_INT32;
    return status;
}

static const gd_case found_cases[] = {
    {"all", &all, GD_INPUTS({GD_DIMS(3, 5, 7)}), .may_be_empty = true},
    {"columns", &first, GD_INPUTS({GD_DIMS(6, 11)}), .may_be_empty = true},
    {"zeros", &last_kept, GD_INPUTS({GD_CONSTANT(0), GD_DIMS(6, 11)}), .may_be_empty = true},
    {"outer_two", &outer_two, GD_INPUTS({GD_DIMS(3, 2, 5)}), .may_be_empty = true},
    {"zero_columns", &last, GD_INPUTS({GD_DIMS(4, 0)}), .may_be_empty = true},
};

/* Whole numbers, without a gradient; of whole numbers as float32, which are 0 only for 0. */
static gd_tensor *find(const gd_op *op, OF_AXES)
{
    const bool whole = gd_tensor_dtype(x) == GD_INT32;
    if (whole && !gd_tensor_usable(x, op->name, "x")) return NULL;
    if (whole) x = gd_cast(x, GD_FLOAT32);
    return gd_apply(op, &x, 1, (gd_reduce_args[]){AXES});
}

#define FOUND(op, op_formula)                                \
    GD_KERNEL(op##_forward)                                  \
    const gd_op gd_op_##op = {                               \
        .name = #op,                                         \
        .formula = op_formula,                               \
        OF_X(gd_reduce_args, "y"),                           \
        .strided = true,                                     \
        GD_BUILT_IN,                                         \
        .shape = found_shape,                                \
        .forward = GD_ON_DEVICES(op##_forward),              \
        GD_CASES(found_cases),                               \
    };                                                       \
    gd_tensor *gd_##op(OF_AXES)                              \
    {                                                        \
        return find(&gd_op_##op, x, axes, count, keep_dims); \
    }
FOUND(any, "y = whether one of x over axes is not 0")
FOUND(all, "y = whether none of x over axes is 0")

/* ---- Functions ---------------------------------------------------------------------------- */

gd_tensor *gd_prod(OF_AXES) GD_APPLIES(prod, (gd_reduce_args[]){AXES}, x)

gd_tensor *gd_var(gd_tensor *x, const int *axes, int count, double correction, bool keep_dims)
    GD_APPLIES(var, (&(gd_variance_args){AXES, correction}), x)

gd_tensor *gd_std(gd_tensor *x, const int *axes, int count, double correction, bool keep_dims)
    GD_APPLIES(std, (&(gd_variance_args){AXES, correction}), x)

gd_tensor *gd_norm(gd_tensor *x, double p, const int *axes, int count, bool keep_dims)
    GD_APPLIES(norm, (&(gd_norm_args){AXES, p}), x)

gd_tensor *gd_sum_all(gd_tensor *x)
{
    return gd_sum(x, NULL, 0, false);
}

gd_tensor *gd_mean_all(gd_tensor *x)
{
    return gd_mean(x, NULL, 0, false);
}

static void min_definition(const gd_call *call)
{
    gd_tensor *x = gd_neg(call->input[0]);
    call->output[0] = gd_neg(gd_apply(&gd_op_max, &x, 1, call->args));
}

gd_tensor *gd_min(OF_AXES)
{
    static const gd_op min = {.name = "min",
                              OF_X(gd_reduce_args, "y"),
                              .shape = reduce_shape,
                              .definition = min_definition};
    return gd_apply(&min, &x, 1, (gd_reduce_args[]){AXES});
}
