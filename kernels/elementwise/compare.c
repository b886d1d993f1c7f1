/* compare.c - the comparisons: records, cases and public functions, made from the table in
 * compare.def. A mask is a step function, whose gradient is 0 wherever it exists, so the records
 * have no backward, and nothing is recorded. */
#include "gradus/ops.h"
#include "kernel.h"

static const gd_case cases[] = {
    {"same", NULL, GD_INPUTS({GD_DIMS(3, 5, 7)}, {GD_DIMS(3, 5, 7)}), .may_be_empty = true},
    {"equal", NULL, GD_INPUTS({GD_CONSTANT(2), GD_DIMS(9)}, {GD_CONSTANT(2), GD_DIMS(9)}),
     .may_be_empty = true},
    {"b_row", NULL, GD_INPUTS({GD_DIMS(4, 6)}, {GD_DIMS(6)}), .may_be_empty = true},
    {"b_scalar", NULL, GD_INPUTS({GD_DIMS(4, 6)}, {GD_SCALAR}), .may_be_empty = true},
    {"both", NULL, GD_INPUTS({GD_DIMS(4, 1)}, {GD_DIMS(1, 5)}), .may_be_empty = true},
    {"two_blocks", NULL, GD_INPUTS({GD_DIMS(5, 1367)}, {GD_DIMS(1367)}), .may_be_empty = true},
    {"zero_rows", NULL, GD_INPUTS({GD_DIMS(0, 5)}, {GD_DIMS(5)}), .may_be_empty = true},
};

/* Doubles hold all whole numbers of 32 bits. */
static gd_tensor *compared(const gd_op *op, gd_tensor *a, gd_tensor *b)
{
    const bool whole = a && b && gd_tensor_dtype(a) == GD_INT32 && gd_tensor_dtype(b) == GD_INT32;
    gd_tensor *in[] = {whole ? gd_cast(a, GD_FLOAT64) : a, whole ? gd_cast(b, GD_FLOAT64) : b};
    return gd_apply(op, in, 2, NULL);
}

#define COMPARE(op_name, op_formula, condition)         \
    GD_KERNEL(op_name##_forward)                        \
    const gd_op gd_op_##op_name = {                     \
        .name = #op_name,                               \
        .formula = op_formula,                          \
        .signature = "a[*] b[*] -> y:int32[*]",         \
        .strided = true,                                \
        .forward = GD_ON_DEVICES(op_name##_forward),    \
        GD_BUILT_IN,                                    \
        GD_CASES(cases),                                \
    };                                                  \
    gd_tensor *gd_##op_name(gd_tensor *a, gd_tensor *b) \
    {                                                   \
        return compared(&gd_op_##op_name, a, b);        \
    }

#include "elementwise/compare.def"
