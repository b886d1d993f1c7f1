/* compare_cpu.c - the CPU kernels of the comparisons (compare.def), with broadcast. */
#include "elementwise/pairs.h"

static gd_status compare_forward(const gd_call *call, pair_row *row)
{
    gd_walk walk = gd_walk_like(call->output[0]);
    gd_walk_add_tensor(&walk, call->output[0]);
    for (int i = 0; i < 2; i++) gd_walk_add_tensor(&walk, call->input[i]);
    return for_each_pair(call, walk, gd_data(call->input[0]), gd_data(call->input[1]), row);
}

#define COMPARE(name, formula, condition)                                            \
    static void name##_row(void *y, const REAL *a_row, const REAL *b_row, int64_t n) \
    {                                                                                \
        int32_t *y_row = y;                                                          \
        for (int64_t i = 0; i < n; i++) {                                            \
            const REAL a = a_row[i], b = b_row[i];                                   \
            y_row[i] = condition;                                                    \
        }                                                                            \
    }                                                                                \
    gd_status GD_REAL_NAME(name##_forward)(const gd_call *call)                      \
    {                                                                                \
        return compare_forward(call, name##_row);                                    \
    }
#include "elementwise/compare.def"
