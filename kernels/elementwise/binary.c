/* binary.c - the functions of two variables: records, cases and public functions, made from the
 * table in binary.def; and the rule of broadcasting, which README.md derives. */
#include "elementwise/broadcast.h"
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

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

gd_status gd_broadcast_shape(const gd_call *call, gd_shapes *out)
{
    gd_spec *spec = out->output;
    const int first = first_real(call);
    spec->dtype = gd_tensor_dtype(call->input[first]);
    for (int i = 0; i < call->inputs; i++) {
        gd_dtype dtype = gd_tensor_dtype(call->input[i]);
        if (gd_dtype_is_real(dtype) && dtype != spec->dtype)
            return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is %s, but %s is %s; use gd_cast",
                                gd_input_name(call->op, i).text, gd_dtype_name(dtype),
                                gd_input_name(call->op, first).text, gd_dtype_name(spec->dtype));
        for (int k = 0; k < i; k++)
            if (!fit(call->input[k], call->input[i]))
                return gd_call_fail(
                    call, GD_ERROR_ARGUMENT, "%s %s and %s %s cannot be broadcast together",
                    gd_input_name(call->op, k).text, gd_shape_text(call->input[k]).text,
                    gd_input_name(call->op, i).text, gd_shape_text(call->input[i]).text);
    }
    joint_shape(call, spec);
    return GD_OK;
}

static gd_status binary_shape(const gd_call *call, gd_shapes *out)
{
    if (gd_check_real(call, 0) || gd_check_real(call, 1)) return GD_ERROR_ARGUMENT;
    return gd_broadcast_shape(call, out);
}

/* ---- Cases, the same for all -------------------------------------------------------------- */

#define B GD_UNIFORM(0.7, 2) /* away from 0, for div */

#define CASES(has_kinks)                                                                          \
    {"same", NULL, GD_INPUTS({GD_DIMS(3, 5, 7)}, {B, GD_DIMS(3, 5, 7)}), .kinks = has_kinks},     \
        {"huge", NULL,                                                                            \
         GD_INPUTS({GD_NORMAL(0, 1e3), GD_DIMS(3, 4)}, {GD_UNIFORM(700, 2e3), GD_DIMS(3, 4)}),    \
         .kinks = has_kinks},                                                                     \
        {"tiny", NULL,                                                                            \
         GD_INPUTS({GD_NORMAL(0, 1e-3), GD_DIMS(3, 4)}, {GD_UNIFORM(7e-4, 2e-3), GD_DIMS(3, 4)}), \
         .kinks = has_kinks},                                                                     \
        {"b_row", NULL, GD_INPUTS({GD_DIMS(4, 6)}, {B, GD_DIMS(6)}), .kinks = has_kinks},         \
        {"b_column", NULL, GD_INPUTS({GD_DIMS(4, 6)}, {B, GD_DIMS(4, 1)}), .kinks = has_kinks},   \
        {"b_scalar", NULL, GD_INPUTS({GD_DIMS(4, 6)}, {B, GD_SCALAR}), .kinks = has_kinks},       \
        {"a_row", NULL, GD_INPUTS({GD_DIMS(6)}, {B, GD_DIMS(4, 6)}), .kinks = has_kinks},         \
        {"a_scalar", NULL, GD_INPUTS({GD_SCALAR}, {B, GD_DIMS(2, 3, 4)}), .kinks = has_kinks},    \
        {"both", NULL, GD_INPUTS({GD_DIMS(4, 1)}, {B, GD_DIMS(1, 5)}), .kinks = has_kinks},       \
        {"middle", NULL, GD_INPUTS({GD_DIMS(2, 3, 4)}, {B, GD_DIMS(2, 1, 4)}),                    \
         .kinks = has_kinks},                                                                     \
        {"outer", NULL, GD_INPUTS({GD_DIMS(2, 1, 3, 1)}, {B, GD_DIMS(5, 1, 2)}),                  \
         .kinks = has_kinks},                                                                     \
        {"length1", NULL, GD_INPUTS({GD_DIMS(1)}, {B, GD_DIMS(1)}), .kinks = has_kinks},          \
        {"two_blocks", NULL, GD_INPUTS({GD_DIMS(5, 1367)}, {B, GD_DIMS(1367)}),                   \
         .kinks = has_kinks},                                                                     \
    {                                                                                             \
        "zero_rows", NULL, GD_INPUTS({GD_DIMS(0, 5)}, {B, GD_DIMS(5)}), .may_be_empty = true      \
    }

static const gd_case smooth_cases[] = {CASES(false)};
static const gd_case kinked_cases[] = {CASES(true)};

/* For powers, which need a > 0 and small exponents. */
#define A GD_UNIFORM(0.5, 2)
static const gd_case positive_cases[] = {
    {"same", NULL, GD_INPUTS({A, GD_DIMS(3, 5, 7)}, {GD_DIMS(3, 5, 7)})},
    {"b_row", NULL, GD_INPUTS({A, GD_DIMS(4, 6)}, {GD_DIMS(6)})},
    {"a_scalar", NULL, GD_INPUTS({A, GD_SCALAR}, {GD_DIMS(2, 3, 4)})},
    {"both", NULL, GD_INPUTS({A, GD_DIMS(4, 1)}, {GD_DIMS(1, 5)})},
    {"tiny_a", NULL, GD_INPUTS({GD_UNIFORM(1e-3, 2e-3), GD_DIMS(9)}, {B, GD_DIMS(9)})},
    {"two_blocks", NULL, GD_INPUTS({A, GD_DIMS(5, 1367)}, {GD_DIMS(1367)})},
    {"zero_rows", NULL, GD_INPUTS({GD_DIMS(0, 5)}, {GD_DIMS(5)}), .may_be_empty = true},
};

#define SMOOTH smooth_cases
#define KINKS kinked_cases
#define POSITIVE positive_cases

/* ---- Derivatives -------------------------------------------------------------------------- */

/* The part of dy that goes to a, the larger of the two, half of it where they are equal. */
static gd_tensor *share(gd_tensor *a, gd_tensor *b, gd_tensor *dy)
{
    return unless(gd_lt(a, b), gd_where(gd_eq(a, b), times(dy, 0.5), dy), 0);
}

/* b a^(b - 1), and 0 for b = 0. */
static gd_tensor *base_slope(gd_tensor *a, gd_tensor *b)
{
    gd_tensor *none = is(b, 0), *there = gd_where(none, number(a, 1), a);
    return gd_where(none, number(a, 0), mul(b, gd_pow_tensor(there, plus(b, -1))));
}

/* a^b ln a, and 0 for 0^b, b >= 0. */
static gd_tensor *exponent_slope(gd_tensor *a, gd_tensor *b)
{
    gd_tensor *none = is(only(is(a, 0), only(gd_ge(b, number(b, 0)), number(a, 1))), 1);
    gd_tensor *there = gd_where(none, number(a, 1), a);
    return gd_where(none, number(a, 0), mul(gd_pow_tensor(there, b), gd_log(there)));
}

#define D(op_name, slope)
#define D2(op_name, da, db)                                                         \
    static void op_name##_derivative(const gd_call *call)                           \
    {                                                                               \
        gd_tensor *a = call->input[0], *b = call->input[1], *dy = call->doutput[0]; \
        if (call->dinput[0]) call->dinput[0] = sum_to(da, a);                       \
        if (call->dinput[1]) call->dinput[1] = sum_to(db, b);                       \
    }
#include "elementwise/derivatives.def"

/* ---- Records ------------------------------------------------------------------------------ */

enum { NOTHING, INPUTS };

/* da or db may be written over dy, as each element needs only the dy at its own place. */
#define BINARY(op_name, op_formula, y, da, db, reads, op_cases)            \
    GD_KERNEL(op_name##_forward)                                           \
    GD_KERNEL(op_name##_backward)                                          \
    const gd_op gd_op_##op_name = {                                        \
        .name = #op_name,                                                  \
        .formula = op_formula,                                             \
        .inputs = 2,                                                       \
        .input_names = {"a", "b"},                                         \
        .outputs = 1,                                                      \
        .backward_reads_inputs = (reads) == INPUTS ? GD_ALL_INPUTS : 0,    \
        .dinput_over_doutput = GD_ALL_INPUTS,                              \
        .strided = true,                                                   \
        .same_bits = true,                                                 \
        .shape = binary_shape,                                             \
        .forward = GD_ON_DEVICES(op_name##_forward),                       \
        .backward = GD_ON_DEVICES(op_name##_backward),                     \
        .derivative = op_name##_derivative,                                \
        GD_CASES(op_cases),                                                \
    };                                                                     \
    gd_tensor *gd_##op_name(gd_tensor *a, gd_tensor *b)                    \
    {                                                                      \
        return gd_apply(&gd_op_##op_name, (gd_tensor *[]){a, b}, 2, NULL); \
    }

#include "elementwise/binary.def"
