/* binary.c - the functions of two variables: records, cases and public functions, made from the
 * table in binary.def. */
#include "derivation.h"
#include "gradus/ops.h"
#include "kernel.h"

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
#define BINARY(op_name, op_formula, y, da, db, reads, op_cases)         \
    GD_KERNEL_PAIR(op_name)                                             \
    const gd_op gd_op_##op_name = {                                     \
        .formula = op_formula,                                          \
        .signature = "a[*] b[*] -> y[*]",                               \
        .backward_reads_inputs = (reads) == INPUTS ? GD_ALL_INPUTS : 0, \
        .dinput_over_doutput = GD_ALL_INPUTS,                           \
        .strided = true,                                                \
        GD_KERNELS(op_name),                                            \
        .derivative = op_name##_derivative,                             \
        GD_CASES(op_cases),                                             \
    };                                                                  \
    gd_tensor *gd_##op_name(gd_tensor *a, gd_tensor *b) GD_APPLIES(op_name, NULL, a, b)

#include "elementwise/binary.def"
