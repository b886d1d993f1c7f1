/* one_hot.c - the op one_hot: a row for each id, with a 1 in the id's place. */
#include "axis/axis.h"

GD_KERNEL(one_hot_forward)

typedef struct gd_one_hot_args {
    int64_t classes;
    gd_dtype dtype;
    int unused;
} gd_one_hot_args;

static gd_status one_hot_shape(const gd_call *call, gd_shapes *out)
{
    const gd_one_hot_args *args = call->args;
    out->output[0].dtype = args->dtype;
    out->output[0].shape[out->output[0].ndim - 1] = args->classes;
    return GD_OK;
}

static const gd_one_hot_args five = {5, GD_FLOAT32, 0}, whole = {3, GD_INT32, 0};

static const gd_case cases[] = {
    {"rows", &five, GD_INPUTS({GD_INDEX(5), GD_DIMS(4, 7)}), .may_be_empty = true},
    {"whole_numbers", &whole, GD_INPUTS({GD_INDEX(3), GD_DIMS(9)}), .may_be_empty = true},
    {"one", &five, GD_INPUTS({GD_INDEX(5), GD_SCALAR}), .may_be_empty = true},
    {"no_ids", &five, GD_INPUTS({GD_INDEX(5), GD_DIMS(0)}), .may_be_empty = true},
};

const gd_op gd_op_one_hot = {
    .name = "one_hot",
    .formula = "y[..., j] = (j == ids[...])",
    .signature = "ids:int32[...] -> y[..., 1]",
    GD_RANGES(
        {"classes", GD_FIELD(gd_one_hot_args, classes), 0, INT32_MAX, "0 to 2147483647"},
        {"dtype", GD_FIELD(gd_one_hot_args, dtype), 0, GD_DTYPE_COUNT - 1, "one of gd_dtype"}),
    GD_ARGS(gd_one_hot_args),
    .shape = one_hot_shape,
    .forward = GD_ON_DEVICES(one_hot_forward),
    GD_BUILT_IN,
    GD_CASES(cases),
};

gd_tensor *gd_one_hot(gd_tensor *ids, int64_t classes, gd_dtype dtype)
    GD_APPLIES(one_hot, (&(gd_one_hot_args){classes, dtype, 0}), ids)
