// prod.cu - the CUDA kernels of prod.
#include "reduce/result.cuh"

namespace gd_reductions
{

// number 2^exponent, which may be too large or too small for a V, of all terms but the zeros.
template <class V>
struct product {
    V number;
    int zeros; // 2 stands for more, too
    long long exponent;

    // A product of two whose numbers are from 0.5 to 1.
    __device__ static product of(V number, long long exponent, int zeros)
    {
        const bool small = fabs(number) < (V)0.5;
        return {small ? number * 2 : number, min(zeros, 2), small ? exponent - 1 : exponent};
    }
};

template <class V>
__device__ inline V scaled_by(V number, V exponent)
{
    return ldexp(number, (int)fmax((V)-5000, fmin((V)5000, exponent)));
}

template <class V>
struct product_of {
    gd_itself term;
    V *save[PRODUCT_SAVES]; // may be NULL

    __device__ product<V> identity() const
    {
        return {1, 0, 0};
    }
    __device__ product<V> combine(product<V> a, V x) const
    {
        if (x == 0) return {a.number, min(a.zeros + 1, 2), a.exponent};
        int exponent;
        const V number = number_of(x, &exponent);
        return product<V>::of(a.number * number, a.exponent + exponent, a.zeros);
    }
    __device__ product<V> combine(product<V> a, product<V> b) const
    {
        return product<V>::of(a.number * b.number, a.exponent + b.exponent, a.zeros + b.zeros);
    }
    __device__ V result(product<V> total, int64_t r) const
    {
        const long long most = 1 << 20; // exact in float
        const V exponent = (V)max(-most, min(most, total.exponent));
        if (save[SAVE_NUMBER]) save[SAVE_NUMBER][r] = total.number;
        if (save[SAVE_EXPONENT]) save[SAVE_EXPONENT][r] = exponent;
        if (save[SAVE_ZEROS]) save[SAVE_ZEROS][r] = (V)total.zeros;
        return total.zeros ? 0 * total.number : scaled_by(total.number, exponent);
    }
};

template <class T>
static gd_status prod(const gd_call *call)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[0])};
    const result_layout layout = layout_of_result(call);
    product_of<gd_compute<T>> reduction = {};
    for (int i = 0; i < PRODUCT_SAVES; i++)
        reduction.save[i] = gd_ptr<gd_compute<T>>(call->save[i]);
    return gd_cuda_reduce<T>(call, gd_ptr<T>(call->output[0]), false, layout.of(nullptr),
                             call->input[0], in, reduction);
}

// dy times the product of all elements of the group but x. formula.h's prod zeros and prod are written
// out: as calls they compile to other code.
struct by_others {
    template <class V>
    __device__ V operator()(V number, V exponent, V zeros, V dy, V x) const
    {
        const V product = dy * number;
        int own;
        if (zeros > 1 || (zeros == 1 && x != 0)) return 0 * product;
        if (zeros == 1) x = 1;
        const V own_number = number_of(x, &own);
        return scaled_by(product / own_number, exponent - (V)own);
    }
};

template <class T>
static gd_status prod_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const auto part = [&](const gd_tensor *t) { return layout.of(gd_tensor_data(t)); };
    const gd_layout in[] = {part(call->save[SAVE_NUMBER]), part(call->save[SAVE_EXPONENT]),
                            part(call->save[SAVE_ZEROS]), part(call->doutput[0]),
                            gd_cuda_layout(x)};
    return gd_map<T, gd_compute<T>, 3>(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x, in,
                                       by_others());
}

GD_CUDA_KERNEL_OF_T(prod_forward, prod<T>(call))
GD_CUDA_KERNEL_OF_T(prod_backward, prod_backward<T>(call))

} // namespace gd_reductions
