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
    const gd_tensor *ids = call->input[0];
    if (gd_tensor_dtype(ids) != GD_INT32 || gd_tensor_ndim(ids) == GD_MAX_DIMS) {
        return gd_call_fail(
            call, GD_ERROR_ARGUMENT, "ids is %s %s, wanted int32 with at most %d dimensions",
            gd_dtype_name(gd_tensor_dtype(ids)), gd_shape_text(ids).text, GD_MAX_DIMS - 1);
    }
    if (args->classes < 0 || args->classes > INT32_MAX) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "classes is %lld, wanted 0 to %d",
                            (long long)args->classes, INT32_MAX);
    }
    if (args->dtype < 0 || args->dtype >= GD_DTYPE_COUNT) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "dtype is %d, wanted one of gd_dtype",
                            (int)args->dtype);
    }
    out->output[0] = gd_spec_like(ids);
    out->output[0].dtype = args->dtype;
    out->output[0].shape[out->output[0].ndim++] = args->classes;
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
    .inputs = 1,
    .input_names = {"ids"},
    .outputs = 1,
    .args_size = sizeof(gd_one_hot_args),
    .plain_args = true,
    .shape = one_hot_shape,
    .forward = GD_ON_DEVICES(one_hot_forward),
    GD_CASES(cases),
};

gd_tensor *gd_one_hot(gd_tensor *ids, int64_t classes, gd_dtype dtype)
{
    const gd_one_hot_args args = {classes, dtype, 0};
    return gd_apply(&gd_op_one_hot, &ids, 1, &args);
}
