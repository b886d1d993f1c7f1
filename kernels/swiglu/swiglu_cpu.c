/* swiglu_cpu.c - the CPU kernels of swiglu: one pass each, in blocks (kernel.h says why). */
#include "inline_exp.h"

enum { BLOCK = 512, AT_ONCE = 64 / (int)sizeof(REAL) };

/* sigmoid(z) = 1 / (1 + exp(-z)), with an exponential that is never more than 1. */
static inline REAL sigmoid(REAL z)
{
    REAL e = inline_exp(z < 0 ? z : -z);
    return (z < 0 ? e : 1) / (1 + e);
}

#define LIMIT ((REAL)1000)

/* Where sigmoid(z) is 0, silu(z) = z sigmoid(z) is 0 too, and not the NaN of -inf * 0. */
static inline REAL within(REAL z)
{
    return z < -LIMIT ? -LIMIT : z;
}

gd_status GD_REAL_NAME(swiglu_forward)(const gd_call *call)
{
    const REAL *gate = gd_data(call->input[0]), *up = gd_data(call->input[1]);
    REAL *y = gd_data(call->output[0]);
    int64_t n = gd_tensor_count(call->output[0]);
#pragma omp parallel for num_threads(gd_threads_for(call->threads, n)) schedule(static)
    for (int64_t block = 0; block < n; block += BLOCK) {
        int64_t end = gd_min64(block + BLOCK, n);
#pragma omp simd simdlen(AT_ONCE)
        for (int64_t i = block; i < end; i++) {
            REAL z = gate[i];
            y[i] = within(z) * sigmoid(z) * up[i];
        }
    }
    return GD_OK;
}

/* With s = sigmoid(gate):  dgate = dy up s (1 + gate (1 - s)),  dup = dy gate s. */
gd_status GD_REAL_NAME(swiglu_backward)(const gd_call *call)
{
    const REAL *gate = gd_data(call->input[0]), *up = gd_data(call->input[1]);
    const REAL *dy = gd_data(call->doutput[0]);
    REAL *dgate = gd_data(call->dinput[0]), *dup = gd_data(call->dinput[1]);
    bool add_gate = call->accumulate[0], add_up = call->accumulate[1];
    int64_t n = gd_tensor_count(call->input[0]);
#pragma omp parallel for num_threads(gd_threads_for(call->threads, n)) schedule(static)
    for (int64_t block = 0; block < n; block += BLOCK) {
        REAL for_gate[BLOCK], for_up[BLOCK];
        int64_t size = gd_min64(BLOCK, n - block);
#pragma omp simd simdlen(AT_ONCE)
        for (int64_t i = 0; i < size; i++) {
            REAL z = gate[block + i], d = dy[block + i], s = sigmoid(z);
            REAL high = z > LIMIT ? LIMIT : within(z); /* s is 1 there, and inf * 0 no number */
            for_gate[i] = d * up[block + i] * (s * (1 + high * (1 - s)));
            for_up[i] = d * (within(z) * s);
        }
        for (int64_t i = 0; dgate && i < size; i++) {
            dgate[block + i] = add_gate ? dgate[block + i] + for_gate[i] : for_gate[i];
        }
        for (int64_t i = 0; dup && i < size; i++) {
            dup[block + i] = add_up ? dup[block + i] + for_up[i] : for_up[i];
        }
    }
    return GD_OK;
}
