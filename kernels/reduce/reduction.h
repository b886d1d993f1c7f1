/* reduction.h - sums and maxima over some axes, for the reductions and for the gradients of
 * operands that were broadcast.
 *
 * Both are the same problem. y = a + b with b [N] repeated over the rows of y [M, N] has db = the
 * sum of dy over the rows; and sum(x) over the rows has dx = dy repeated over them. Seen as a walk
 * (walk.h) over the large shape, the result is an operand with stride 0 along the axes to reduce:
 *
 *     result[kept] = sum over the reduced axes of  term(operand 1, operand 2, operand 3)
 */
#ifndef GRADUS_REDUCTION_H
#define GRADUS_REDUCTION_H

#include "rows.h"

typedef struct gd_reduction {
    gd_walk walk;                       /* operand 0: the result, packed; 1 to 3: the inputs */
    const REAL *data[GD_WALK_OPERANDS]; /* [0] is not used */
    gd_row term;                        /* its function may be NULL: operand 1 itself */
    bool max;                           /* the largest term (NaN if there is one), not the sum */
    const double *centre;               /* [results] or NULL: sum (term - centre)^2, in double */
} gd_reduction;

/* The results, packed, in temporary memory of the call; summed in double. Over no elements: 0, or
 * -inf for max. NULL, with the error set, if there is no memory. */
const double *GD_REAL_NAME(gd_reduce)(const gd_call *call, const gd_reduction *reduction);

/* dx = (add ? dx : 0) + the results, rounded once; dx is packed. */
static inline gd_status gd_reduce_into(const gd_tensor *dx, bool add, const gd_call *call,
                                       const gd_reduction *reduction)
{
    const double *result = GD_REAL_NAME(gd_reduce)(call, reduction);
    if (!result) return gd_error_status(call->context);
    REAL *out = gd_data(dx);
    for (int64_t i = 0; i < gd_tensor_count(dx); i++)
        out[i] = (REAL)((add ? out[i] : 0) + result[i]);
    return GD_OK;
}

#endif
