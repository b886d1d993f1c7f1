/* swiglu.h - the layout of gate and up: two tensors, or the halves of the rows of one. */
#ifndef GRADUS_SWIGLU_H
#define GRADUS_SWIGLU_H

#include "gradus/autograd.h"

/* Rows of n elements; those of gate and up, and of their gradients, begin `step` elements apart. */
typedef struct swiglu_rows {
    int64_t rows, n, step;
    bool halves; /* up is n elements after gate */
} swiglu_rows;

static inline swiglu_rows swiglu_rows_of(const gd_call *call)
{
    const gd_tensor *gate = call->input[0];
    const int64_t count = gd_tensor_count(gate);
    swiglu_rows r = {1, count, count, false};
    if (call->input[1] || count == 0) return r;
    r.step = gd_tensor_dim(gate, -1);
    r.rows = count / r.step;
    r.n = r.step / 2;
    r.halves = true;
    return r;
}

#endif
