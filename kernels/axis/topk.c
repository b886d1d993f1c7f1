/* topk.c - the ops topk, sort and argmax: where the largest elements are. They give whole numbers,
 * so they have no backward; the values that gd_topk and gd_sort return are gathered, and gather has
 * one. */
#include "axis/axis.h"
#include "arguments.h"

GD_KERNEL(topk_forward)
GD_KERNEL(sort_forward)

extern const gd_op gd_op_topk, gd_op_sort;

static gd_status topk_shape(const gd_call *call, gd_shapes *out)
{
    const gd_axis_args *args = call->args;
    const gd_tensor *x = call->input[0];
    const int64_t n = gd_tensor_dim(x, args->axis);
    const bool all = call->op == &gd_op_sort;
    if (all ? args->k != n : call->op == &gd_op_topk && args->k > n)
        return gd_refuse(call, "k is %lld, wanted %s%lld, the size of axis %d of x %s",
                         (long long)args->k, all ? "" : "at most ", (long long)n, args->axis,
                         gd_shape_text(x).text);
    if (n < args->k || n > INT32_MAX)
        return gd_refuse(call, "axis %d of x %s has %lld elements, wanted %lld to %d", args->axis,
                         gd_shape_text(x).text, (long long)n, (long long)args->k, INT32_MAX);
    out->output[0].shape[args->axis] = args->k;
    return GD_OK;
}

static const gd_option_range ranges[] = {GD_AXIS_RANGE(gd_axis_args, axis),
                                         {"k", GD_FIELD(gd_axis_args, k), 0, INFINITY, "0 or more"},
                                         {0}};

/* An order of the elements along an axis, and a record of one. */
#define OF_AXIS                                                                     \
    .signature = "x[...] -> y:int32[...]", GD_ARGS(gd_axis_args), .ranges = ranges, \
    .shape = topk_shape, .strided = true, GD_BUILT_IN

#define ORDER(op, op_formula, kernel)     \
    const gd_op gd_op_##op = {            \
        .name = #op,                      \
        .formula = op_formula,            \
        OF_AXIS,                          \
        .forward = GD_ON_DEVICES(kernel), \
        GD_CASES(op##_cases),             \
    };

static const gd_axis_args first = {.axis = 0, .k = 1}, second = {.axis = 1, .k = 1},
                          three = {.axis = 1, .k = 3}, low = {.axis = 0, .smallest = true, .k = 2};

static const gd_case argmax_cases[] = {
    {"rows", &second, GD_INPUTS({GD_DIMS(3, 7)}), .may_be_empty = true},
    {"columns", &first, GD_INPUTS({GD_DIMS(9, 4)}), .may_be_empty = true},
    {"ties", &second, GD_INPUTS({GD_CONSTANT(2), GD_DIMS(2, 5)}), .may_be_empty = true},
    {"no_rows", &second, GD_INPUTS({GD_DIMS(0, 4)}), .may_be_empty = true},
};

static const gd_case topk_cases[] = {
    {"three_of_each_row", &three, GD_INPUTS({GD_DIMS(4, 9)}), .may_be_empty = true},
    {"all", &three, GD_INPUTS({GD_DIMS(4, 3)}), .may_be_empty = true},
    {"smallest_of_columns", &low, GD_INPUTS({GD_DIMS(6, 5)}), .may_be_empty = true},
    {"ties", &three, GD_INPUTS({GD_CONSTANT(2), GD_DIMS(2, 5)}), .may_be_empty = true},
    {"no_rows", &three, GD_INPUTS({GD_DIMS(0, 4)}), .may_be_empty = true},
};

ORDER(topk, "y = where the k largest of x along an axis are, the largest first", topk_forward)

static const gd_axis_args rising = {.axis = 1, .smallest = true, .k = 9},
                          falling = {.axis = 1, .k = 9},
                          columns = {.axis = 0, .smallest = true, .k = 6};

static const gd_case sort_cases[] = {
    {"rising", &rising, GD_INPUTS({GD_DIMS(4, 9)}), .may_be_empty = true},
    {"falling", &falling, GD_INPUTS({GD_DIMS(4, 9)}), .may_be_empty = true},
    {"columns", &columns, GD_INPUTS({GD_DIMS(6, 5)}), .may_be_empty = true},
    {"ties", &falling, GD_INPUTS({GD_CONSTANT(2), GD_DIMS(2, 9)}), .may_be_empty = true},
    {"no_rows", &rising, GD_INPUTS({GD_DIMS(0, 9)}), .may_be_empty = true},
};

ORDER(sort, "y = where the elements of x along an axis are, in order", sort_forward)

ORDER(argmax, "y = where the largest of x along an axis is", topk_forward)

gd_tensor *gd_argmax(gd_tensor *x, int axis, bool keep_dims)
{
    gd_axis_args args = gd_axis_args_of(x, axis);
    args.k = 1;
    gd_tensor *index = gd_apply(&gd_op_argmax, &x, 1, &args);
    return keep_dims || !index ? index : gd_squeeze(index, args.axis);
}

/* The index, and what it gathers. */
static gd_tensor *values_by(const gd_op *op, gd_tensor *x, const gd_axis_args *args,
                            gd_tensor **indices)
{
    gd_tensor *index = gd_apply(op, &x, 1, args);
    gd_tensor *values = index ? gd_gather(x, args->axis, index) : NULL;
    if (indices) *indices = values ? index : NULL;
    return values;
}

gd_tensor *gd_sort(gd_tensor *x, int axis, bool descending, gd_tensor **indices)
{
    gd_axis_args args = gd_axis_args_of(x, axis);
    args.k = gd_tensor_dim(x, args.axis);
    args.smallest = !descending;
    return values_by(&gd_op_sort, x, &args, indices);
}

gd_tensor *gd_topk(gd_tensor *x, int64_t k, int axis, bool largest, gd_tensor **indices)
{
    gd_axis_args args = gd_axis_args_of(x, axis);
    args.k = k;
    args.smallest = !largest;
    return values_by(&gd_op_topk, x, &args, indices);
}

gd_tensor *gd_argmin(gd_tensor *x, int axis, bool keep_dims)
{
    static const gd_op argmin = {.name = "argmin", OF_AXIS};
    gd_axis_args args = gd_axis_args_of(x, axis);
    args.k = 1;
    if (!gd_accepts(&argmin, &x, 1, &args)) return NULL;
    return gd_argmax(gd_neg(x), axis, keep_dims);
}
