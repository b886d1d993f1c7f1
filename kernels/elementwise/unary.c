/* unary.c - the functions of one variable: records, cases and public functions, made from the
 * table in unary.def. README.md has the derivatives. */
#include "gradus/ops.h"
#include "kernel.h"

static gd_status unary_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save, (void)words;
    const gd_tensor *x = call->input[0];
    if (!gd_dtype_is_real(gd_tensor_dtype(x)))
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "x is int32, wanted a real dtype");
    output[0] = gd_spec_like(x);
    return GD_OK;
}

/* ---- Cases, the same for all -------------------------------------------------------------- */

#define CASE(case_name, arguments, low, high, has_kinks, ...)                                \
    {                                                                                        \
        .name = case_name, .args = arguments, .inputs = 1, .kinks = has_kinks,               \
        .input = {{.name = "x", .fill = GD_FILL_UNIFORM, .a = low, .b = high, __VA_ARGS__}}, \
    }

#define EMPTY_CASE(arguments)                                                      \
    {                                                                              \
        .name = "zero_rows", .args = arguments, .inputs = 1, .may_be_empty = true, \
        .input = {{.name = "x", .ndim = 2, .shape = {0, 5}}},                      \
    }

#define CASES(arguments, low, high, low2, high2, has_kinks)                                 \
    CASE("odd", arguments, low, high, has_kinks, .ndim = 3, .shape = {3, 5, 7}),            \
        CASE("range2", arguments, low2, high2, has_kinks, .ndim = 2, .shape = {2, 9}),      \
        CASE("scalar", arguments, low, high, has_kinks, .ndim = 0),                         \
        CASE("length1", arguments, low, high, has_kinks, .ndim = 1, .shape = {1}),          \
        CASE("two_blocks", arguments, low, high, has_kinks, .ndim = 2, .shape = {3, 1367}), \
        EMPTY_CASE(arguments)

/* ---- Records ------------------------------------------------------------------------------ */

enum { NOTHING, INPUT, OUTPUT };

/* dx may be written over dy, as each element needs only the dy at its own place. */
#define RECORD(op_name, op_formula, reads, size)                \
    const gd_op gd_op_##op_name = {                             \
        .name = #op_name,                                       \
        .formula = op_formula,                                  \
        .inputs = 1,                                            \
        .outputs = 1,                                           \
        .args_size = size,                                      \
        .backward_reads_inputs = (reads) == INPUT,              \
        .backward_reads_outputs = (reads) == OUTPUT,            \
        .dinput_over_doutput = 1,                               \
        .shape = unary_shape,                                   \
        .forward = GD_ON_DEVICES(op_name##_forward),            \
        .backward = GD_ON_DEVICES(op_name##_backward),          \
        .cases = op_name##_cases,                               \
        .case_count = sizeof op_name##_cases / sizeof(gd_case), \
    };

#define UNARY(name, formula, y, dx, reads, low, high, low2, high2, kinks)               \
    GD_KERNEL(name##_forward)                                                           \
    GD_KERNEL(name##_backward)                                                          \
    static const gd_case name##_cases[] = {CASES(NULL, low, high, low2, high2, kinks)}; \
    RECORD(name, formula, reads, 0)                                                     \
    gd_tensor *gd_##name(gd_tensor *x)                                                  \
    {                                                                                   \
        return gd_apply(&gd_op_##name, &x, 1, NULL);                                    \
    }

#define SCALAR(name, formula, y, dx, reads, low, high, low2, high2, p_of_cases)              \
    GD_KERNEL(name##_forward)                                                                \
    GD_KERNEL(name##_backward)                                                               \
    static const double name##_p = p_of_cases;                                               \
    static const gd_case name##_cases[] = {CASES(&name##_p, low, high, low2, high2, false)}; \
    RECORD(name, formula, reads, sizeof(double))                                             \
    gd_tensor *gd_##name(gd_tensor *x, double p)                                             \
    {                                                                                        \
        return gd_apply(&gd_op_##name, &x, 1, &p);                                           \
    }

#include "elementwise/unary.def"
