/* where.c - y = a where the condition holds, else b. */
#include "elementwise/broadcast.h"
#include "gradus/ops.h"
#include "kernel.h"

GD_KERNEL(where_forward)
GD_KERNEL(where_backward)

static gd_status where_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save, (void)words;
    static const char *const names[] = {"condition", "a", "b"};
    for (int i = 0; i < 3; i++) {
        gd_dtype dtype = gd_tensor_dtype(call->input[i]);
        if (gd_dtype_is_real(dtype) != (i > 0))
            return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is %s, wanted %s", names[i],
                                gd_dtype_name(dtype), i ? "a real dtype" : "int32");
    }
    return gd_broadcast_shape(call, names, output);
}

#define DIMS(...)   \
    {               \
        __VA_ARGS__ \
    }

#define CASE(case_name, empty, c_ndim, c_dims, a_ndim, a_dims, b_ndim, b_dims) \
    {                                                                          \
        .name = case_name, .inputs = 3, .may_be_empty = empty,                 \
        .input = {                                                             \
            {.name = "condition",                                              \
             .fill = GD_FILL_INDEX,                                            \
             .a = 0,                                                           \
             .b = 2,                                                           \
             .fixed = true,                                                    \
             .ndim = c_ndim,                                                   \
             .shape = DIMS c_dims},                                            \
            {.name = "a", .ndim = a_ndim, .shape = DIMS a_dims},               \
            {.name = "b", .ndim = b_ndim, .shape = DIMS b_dims},               \
        },                                                                     \
    }

static const gd_case cases[] = {
    CASE("same", false, 2, (5, 7), 2, (5, 7), 2, (5, 7)),
    CASE("condition_row", false, 1, (7), 2, (5, 7), 2, (5, 7)),
    CASE("condition_column", false, 2, (5, 1), 2, (5, 7), 1, (7)),
    CASE("a_scalar", false, 2, (5, 7), 0, (0), 2, (5, 7)),
    CASE("b_scalar", false, 3, (2, 5, 7), 2, (5, 7), 0, (0)),
    CASE("all_outer", false, 3, (2, 1, 1), 2, (3, 1), 1, (4)),
    CASE("length1", false, 1, (1), 1, (1), 1, (1)),
    CASE("two_blocks", false, 2, (4, 1367), 2, (4, 1367), 1, (1367)),
    CASE("zero_rows", true, 2, (0, 5), 1, (5), 2, (0, 5)),
};

const gd_op gd_op_where = {
    .name = "where",
    .formula = "y = condition ? a : b",
    .inputs = 3,
    .outputs = 1,
    .backward_reads_inputs = 1,
    .strided = true,
    .shape = where_shape,
    .forward = GD_ON_DEVICES(where_forward),
    .backward = GD_ON_DEVICES(where_backward),
    .cases = cases,
    .case_count = sizeof cases / sizeof *cases,
};

gd_tensor *gd_where(gd_tensor *condition, gd_tensor *a, gd_tensor *b)
{
    return gd_apply(&gd_op_where, (gd_tensor *[]){condition, a, b}, 3, NULL);
}
