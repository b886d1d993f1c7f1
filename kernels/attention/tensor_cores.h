/* tensor_cores.h - attention on tensor cores: which kernels take a call. */
#ifndef GRADUS_ATTENTION_TENSOR_CORES_H
#define GRADUS_ATTENTION_TENSOR_CORES_H

#include "attention/attention.h"

typedef struct attention_tensor_cores {
    gd_status (*forward)(const gd_call *call);
    gd_status (*backward)(const gd_call *call);
} attention_tensor_cores;

/* One for each format of the factors (mma.cuh), in a file of its own. */
extern const attention_tensor_cores attention_bf16, attention_f16, attention_tf32, attention_tf32x3;
/* On Hopper, for heads of 33 to 128 columns. */
extern const attention_tensor_cores attention_bf16_hopper, attention_f16_hopper;

/* Those for this call; NULL: none, by its dtype, its sizes or its device. */
const attention_tensor_cores *attention_tensor_cores_for(const gd_call *call);

#endif
