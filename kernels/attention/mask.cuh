// mask.cuh - a mask, a bias or a window of attention on a GPU, without tensor cores.
#ifndef GD_ATTENTION_MASK_CUH
#define GD_ATTENTION_MASK_CUH

#include "attention/heads.cuh"

template <class T>
struct attention_mask {
    const int32_t *seen; // not 0: the query sees the key; or NULL
    const T *bias;       // added to the score; or NULL
    int64_t stride[4], window;
    bool any;

    // Adds the bias of query t and key s to their score. False: the key is not seen.
    template <class A>
    __device__ bool add(A &score, const attention_sizes &z, int64_t b, int64_t h, int64_t t,
                        int64_t s) const
    {
        if (!any) return true;
        const int64_t at = b * stride[0] + h * stride[1] + t * stride[2] + s * stride[3];
        const int64_t apart = t + z.S - z.T - s;
        if (window && (apart >= window || -apart >= window)) return false;
        if (seen && !seen[at]) return false;
        if (bias) score += gd_load(bias[at]);
        return score != -(A)INFINITY;
    }
};

template <class T>
static inline attention_mask<T> attention_mask_of(const gd_call *call)
{
    const gd_tensor *t = call->input[3];
    attention_mask<T> m = {};
    m.window = ((const attention_args *)call->args)->window;
    m.any = t || m.window;
    if (!t) return m;
    if (gd_tensor_dtype(t) == GD_INT32)
        m.seen = gd_ptr<const int32_t>(t);
    else
        m.bias = gd_ptr<const T>(t);
    const int ndim = gd_tensor_ndim(t);
    for (int d = 0; d < ndim; d++)
        m.stride[4 - ndim + d] = gd_tensor_shape(t)[d] == 1 ? 0 : gd_tensor_strides(t)[d];
    return m;
}

#endif
