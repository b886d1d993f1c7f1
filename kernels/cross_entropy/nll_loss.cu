// nll_loss.cu - the CUDA kernels of nll_loss.
#include "cross_entropy/formula.h"
#include "cross_entropy/rows.cuh"

namespace
{

// One block: the losses, and their sum, each thread every 1024th, then a tree; and the factor of a
// row. A weight of 0 has no part of an infinite loss.
template <class T>
__global__ void __launch_bounds__(1024)
    nll_forward(gd_compute<T> *out, gd_compute<T> *factor_out, const T *x, const T *weight,
                target_list targets, int64_t rows, gd_reduction reduction)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ C shared[32];
    gd_long_sum<C> sum, divisor;
    C counting = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        const int32_t t = targets.target[r];
        C loss = 0;
        if (targets.counts(r)) {
            const C w = weight ? gd_load(weight[t]) : (C)1;
            loss = w == 0 ? (C)0 : -w * gd_load(x[r * targets.vocab + t]);
            divisor.add(w);
            counting = 1;
        } else if (targets.fault && !(targets.use_ignore_index && t == targets.ignore_index)) {
            *targets.fault = 1 + r;
        }
        sum.add(loss);
        if (reduction == GD_NONE) out[r] = loss;
    }
    const C total = gd_sum(sum.value(), shared);
    const C weights = gd_sum(divisor.value(), shared);
    counting = gd_sum(counting, shared);
    if (threadIdx.x > 0) return;
    const bool mean = reduction == GD_MEAN;
    if (reduction != GD_NONE) *out = mean ? total / weights : total;
    if (factor_out) *factor_out = counting == 0 ? 0 : mean ? 1 / weights : 1;
}

// dx, of which the other columns are 0 already, or are to stay as they are.
template <class T>
__global__ void nll_backward(T *dx, const gd_compute<T> *dloss, const gd_compute<T> *factor,
                             const T *weight, target_list targets, int64_t rows, bool none)
{
    gd_in_turn();
    using C = gd_compute<T>;
    GD_EACH(r, rows)
    {
        if (!targets.counts(r)) continue;
        const int32_t t = targets.target[r];
        T *to = dx + r * targets.vocab + t;
        const C w = weight ? gd_load(weight[t]) : (C)1;
        const C value = nll_loss_dx(w, *factor * dloss[none ? r : 0]);
        *to = gd_store<T>(gd_load(*to) + value);
    }
}

} // namespace

static gd_reduction reduction_of(const gd_call *call)
{
    return ((const gd_cross_entropy_args *)call->args)->reduction;
}

extern "C" gd_status nll_loss_forward_cuda(const gd_call *call)
{
    const gd_tensor *x = call->input[0];
    target_list targets = targets_of(call, call->input[1], gd_tensor_dim(x, -1));
    targets.fault = gd_cuda_fault_word(call, targets.vocab);
    return gd_by_dtype(gd_tensor_dtype(x), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        return gd_launch(call, {1, 1024}, nll_forward<T>, gd_ptr<C>(call->output[0]),
                         gd_ptr<C>(call->save[0]), gd_ptr<const T>(x),
                         gd_ptr<const T>(call->input[2]), targets, gd_tensor_count(call->input[1]),
                         reduction_of(call));
    });
}

extern "C" gd_status nll_loss_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    const int64_t rows = gd_tensor_count(call->input[1]);
    const target_list targets = targets_of(call, call->input[1], gd_tensor_dim(dx, -1));
    gd_begin_gradient(call, 0);
    return gd_by_dtype(gd_tensor_dtype(dx), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        return gd_launch(call, gd_grid_for(rows), nll_backward<T>, gd_ptr<T>(dx),
                         gd_ptr<const C>(call->doutput[0]), gd_ptr<const C>(call->save[0]),
                         gd_ptr<const T>(call->input[2]), targets, rows,
                         reduction_of(call) == GD_NONE);
    });
}
