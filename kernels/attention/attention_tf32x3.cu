// attention_tf32x3.cu - the tensor-core kernels for float32.
#include "attention/attention_backward_mma.cuh"
#include "attention/attention_forward_mma.cuh"
#include "attention/tensor_cores.h"

using namespace attention_mma;

const attention_tensor_cores attention_tf32x3 = {
    mma_forward<gd_mma::tf32x3>, mma_backward<gd_mma::tf32x3>, shared_bytes<gd_mma::tf32x3>};
