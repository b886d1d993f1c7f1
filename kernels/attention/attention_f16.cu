// attention_f16.cu - the tensor-core kernels for float16.
#include "attention/attention_backward_mma.cuh"
#include "attention/attention_forward_mma.cuh"
#include "attention/tensor_cores.h"

using namespace attention_mma;

const attention_tensor_cores attention_f16 = {mma_forward<gd_mma::f16>, mma_backward<gd_mma::f16>,
                                              shared_bytes<gd_mma::f16>};
