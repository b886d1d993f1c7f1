/* binary.c - the functions of two variables: records, cases and public functions, made from the
 * table in binary.def; and the rule of broadcasting, which README.md derives. */
#include "elementwise/broadcast.h"
#include "gradus/ops.h"
#include "kernel.h"

/* ---- Shapes ------------------------------------------------------------------------------- */

/* Dimension `axis` of a shape, counted from the right: 1 where it is missing. */
static int64_t dim_from_right(const gd_tensor *t, int axis)
{
    int ndim = gd_tensor_ndim(t);
    return axis < ndim ? gd_tensor_shape(t)[ndim - 1 - axis] : 1;
}

/* NumPy's rule: align the shapes at the right; sizes must be equal, or one of them 1. */
static bool fit(const gd_tensor *a, const gd_tensor *b)
{
    for (int axis = 0; axis < GD_MAX_DIMS; axis++) {
        int64_t m = dim_from_right(a, axis), n = dim_from_right(b, axis);
        if (m != n && m != 1 && n != 1) return false;
    }
    return true;
}

/* The shape that all inputs are repeated to, once they fit. */
static void joint_shape(const gd_call *call, gd_spec *spec)
{
    spec->ndim = 0;
    for (int i = 0; i < call->inputs; i++) {
        int ndim = gd_tensor_ndim(call->input[i]);
        if (ndim > spec->ndim) spec->ndim = ndim;
    }
    for (int axis = 0; axis < spec->ndim; axis++) {
        int64_t size = 1;
        for (int i = 0; i < call->inputs && size == 1; i++)
            size = dim_from_right(call->input[i], axis);
        spec->shape[spec->ndim - 1 - axis] = size;
    }
}

/* The first real input, which decides the dtype. */
static int first_real(const gd_call *call)
{
    for (int i = 0; i < call->inputs; i++)
        if (gd_dtype_is_real(gd_tensor_dtype(call->input[i]))) return i;
    return 0;
}

gd_status gd_broadcast_shape(const gd_call *call, const char *const *names, gd_spec *spec)
{
    const int first = first_real(call);
    spec->dtype = gd_tensor_dtype(call->input[first]);
    for (int i = 0; i < call->inputs; i++) {
        gd_dtype dtype = gd_tensor_dtype(call->input[i]);
        if (i > first && dtype != spec->dtype)
            return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is %s, but %s is %s; use gd_cast",
                                names[i], gd_dtype_name(dtype), names[first],
                                gd_dtype_name(spec->dtype));
        for (int k = 0; k < i; k++)
            if (!fit(call->input[k], call->input[i]))
                return gd_call_fail(call, GD_ERROR_ARGUMENT,
                                    "%s %s and %s %s cannot be broadcast together", names[k],
                                    gd_shape_text(call->input[k]).text, names[i],
                                    gd_shape_text(call->input[i]).text);
    }
    joint_shape(call, spec);
    return GD_OK;
}

static gd_status binary_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save, (void)words;
    static const char *const names[] = {"a", "b"};
    for (int i = 0; i < 2; i++)
        if (!gd_dtype_is_real(gd_tensor_dtype(call->input[i])))
            return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is int32, wanted a real dtype",
                                names[i]);
    return gd_broadcast_shape(call, names, output);
}

/* ---- Cases, the same for all -------------------------------------------------------------- */

#define DIMS(...)   \
    {               \
        __VA_ARGS__ \
    }

/* b stays away from 0, for div. */
#define CASE(case_name, has_kinks, empty, scale, a_ndim, a_dims, b_ndim, b_dims)   \
    {                                                                              \
        .name = case_name, .inputs = 2, .kinks = has_kinks, .may_be_empty = empty, \
        .input = {                                                                 \
            {.name = "a", .b = scale, .ndim = a_ndim, .shape = DIMS a_dims},       \
            {.name = "b",                                                          \
             .fill = GD_FILL_UNIFORM,                                              \
             .a = 0.7 * (scale),                                                   \
             .b = 2 * (scale),                                                     \
             .ndim = b_ndim,                                                       \
             .shape = DIMS b_dims},                                                \
        },                                                                         \
    }

#define CASES(kinks)                                                   \
    CASE("same", kinks, false, 1, 3, (3, 5, 7), 3, (3, 5, 7)),         \
        CASE("huge", kinks, false, 1e3, 2, (3, 4), 2, (3, 4)),         \
        CASE("tiny", kinks, false, 1e-3, 2, (3, 4), 2, (3, 4)),        \
        CASE("b_row", kinks, false, 1, 2, (4, 6), 1, (6)),             \
        CASE("b_column", kinks, false, 1, 2, (4, 6), 2, (4, 1)),       \
        CASE("b_scalar", kinks, false, 1, 2, (4, 6), 0, (0)),          \
        CASE("a_row", kinks, false, 1, 1, (6), 2, (4, 6)),             \
        CASE("a_scalar", kinks, false, 1, 0, (0), 3, (2, 3, 4)),       \
        CASE("both", kinks, false, 1, 2, (4, 1), 2, (1, 5)),           \
        CASE("middle", kinks, false, 1, 3, (2, 3, 4), 3, (2, 1, 4)),   \
        CASE("outer", kinks, false, 1, 4, (2, 1, 3, 1), 3, (5, 1, 2)), \
        CASE("length1", kinks, false, 1, 1, (1), 1, (1)),              \
        CASE("two_blocks", kinks, false, 1, 2, (5, 1367), 1, (1367)),  \
        CASE("zero_rows", kinks, true, 1, 2, (0, 5), 1, (5))

/* ---- Records ------------------------------------------------------------------------------ */

enum { NOTHING, INPUTS };

/* da or db may be written over dy, as each element needs only the dy at its own place. */
#define BINARY(op_name, op_formula, y, da, db, reads, has_kinks)           \
    GD_KERNEL(op_name##_forward)                                           \
    GD_KERNEL(op_name##_backward)                                          \
    static const gd_case op_name##_cases[] = {CASES(has_kinks)};           \
    const gd_op gd_op_##op_name = {                                        \
        .name = #op_name,                                                  \
        .formula = op_formula,                                             \
        .inputs = 2,                                                       \
        .outputs = 1,                                                      \
        .backward_reads_inputs = (reads) == INPUTS ? GD_ALL_INPUTS : 0,    \
        .dinput_over_doutput = 3,                                          \
        .strided = true,                                                   \
        .shape = binary_shape,                                             \
        .forward = GD_ON_DEVICES(op_name##_forward),                       \
        .backward = GD_ON_DEVICES(op_name##_backward),                     \
        .cases = op_name##_cases,                                          \
        .case_count = sizeof op_name##_cases / sizeof(gd_case),            \
    };                                                                     \
    gd_tensor *gd_##op_name(gd_tensor *a, gd_tensor *b)                    \
    {                                                                      \
        return gd_apply(&gd_op_##op_name, (gd_tensor *[]){a, b}, 2, NULL); \
    }

#include "elementwise/binary.def"
