/* tensor_cores.h - attention on tensor cores: which kernels take a call. */
#ifndef GRADUS_ATTENTION_TENSOR_CORES_H
#define GRADUS_ATTENTION_TENSOR_CORES_H

#include "attention/attention.h"

typedef struct attention_tensor_cores {
    gd_status (*forward)(const gd_call *call);
    /* angles, if not NULL, are cosines and sines [T, D / 2, 2] in device memory, T = S: dq and dk
     * are turned back by them (rope/README.md), and dinput[0] to [2] are one tensor of all heads,
     * [B, T, H + 2 KV, D], which gets dq, dk and dv. D is a power of 2 from 32 to 256. */
    gd_status (*backward)(const gd_call *call, const float *angles);
    /* The shared memory of a block, for heads whose wider side has this many columns. NULL: less
     * than the devices have for which these kernels are. */
    size_t (*shared)(int64_t widest);
} attention_tensor_cores;

/* One for each format of the factors (mma.cuh), in a file of its own. */
extern const attention_tensor_cores attention_bf16, attention_f16, attention_tf32, attention_tf32x3;
/* On Hopper, for heads of 33 to 128 columns. */
extern const attention_tensor_cores attention_bf16_hopper, attention_f16_hopper;

/* Those for this call; NULL: none, by its dtype, its sizes, its mask or its device. */
const attention_tensor_cores *attention_tensor_cores_for(const gd_call *call);

#endif
