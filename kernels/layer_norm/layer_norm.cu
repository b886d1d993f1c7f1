// layer_norm.cu - the CUDA kernels of layer_norm.
#include "column_sum.cuh"
#include "layer_norm/formula.h"
#include "layer_norm/layer_norm.h"
#include "mean_parts.cuh"
#include "team.cuh"

// ---- Forward ----------------------------------------------------------------------------------

// A team for each row of x [M, N]. The second pass over the row, which is in a cache by now, sums d
// = x - high and d^2: the mean of d is the error of `high`, and var = mean(d^2) - mean(d)^2 does
// not cancel, since mean(d) is near 0.
template <class T, int V, bool BLOCK>
__global__ static void __launch_bounds__(gd_team_most(BLOCK))
    row_forward(T *y, const T *x, const T *w, const T *b, mean_kept<gd_compute<T>> *mean_out,
                gd_compute<T> *rstd_out, int64_t rows, int64_t n, gd_compute<T> eps)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    for (int64_t r = team.row; r < rows; r += team.step) {
        const T *from = x + r * n;
        C sum = 0, squares = 0;
        for (int64_t p = team.rank; p < n / V; p += team.size) {
            const gd_pack<T, V> px = gd_pack<T, V>::load(from, p);
            for (int v = 0; v < V; v++) sum += gd_load(px[v]);
        }
        mean_parts<C> mean = {team.sum(sum, shared) / (C)n, 0};
        sum = 0;
        for (int64_t p = team.rank; p < n / V; p += team.size) {
            const gd_pack<T, V> px = gd_pack<T, V>::load(from, p);
            for (int v = 0; v < V; v++) {
                const C d = gd_load(px[v]) - mean.high;
                sum += d;
                squares += d * d;
            }
        }
        mean.low = team.sum(sum, shared) / (C)n;
        const C var = team.sum(squares, shared) / (C)n - mean.low * mean.low;
        const C rstd = 1 / sqrt((var < 0 ? 0 : var) + eps);
        for (int64_t p = team.rank; p < n / V; p += team.size) {
            gd_pack<T, V> px = gd_pack<T, V>::load(from, p), pw = {}, pb = {};
            if (w) pw = gd_pack<T, V>::load(w, p);
            if (b) pb = gd_pack<T, V>::load(b, p);
            for (int v = 0; v < V; v++) {
                const C xhat = layer_norm_xhat(mean.from(gd_load(px[v])), rstd);
                const C scaled = w ? xhat * gd_load(pw[v]) : xhat;
                px[v] = gd_store<T>(b ? scaled + gd_load(pb[v]) : scaled);
            }
            px.store(y + r * n, p);
        }
        if (team.rank > 0) continue;
        if (mean_out) save_mean(mean_out + r, mean);
        if (rstd_out) rstd_out[r] = rstd;
    }
}

extern "C" gd_status layer_norm_forward_cuda(const gd_call *call)
{
    const gd_layer_norm_args *args = (const gd_layer_norm_args *)call->args;
    const int64_t n = gd_last_dim(call->input[0]), rows = gd_row_count(call->input[0]);
    if (rows * n == 0) return GD_OK;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const T *x = gd_ptr<T>(call->input[0]), *w = gd_ptr<T>(call->input[1]),
                *b = gd_ptr<T>(call->input[2]);
        T *y = gd_ptr<T>(call->output[0]);
        const bool packed = gd_rows_pack<T>(n, x, y, w, b);
        return gd_by_team<T>(rows, n, packed, [&](auto grid, auto pack, auto block) {
            return gd_launch(call, grid, row_forward<T, pack, block>, y, x, w, b,
                             gd_ptr<mean_kept<C>>(call->save[0]), gd_ptr<C>(call->save[1]), rows, n,
                             (C)gd_option_of_dtype(call->dtype, args->eps));
        });
    });
}

// ---- Backward: dx -------------------------------------------------------------------------------

// dx may be dy.
template <class T, int V, bool BLOCK>
__global__ static void __launch_bounds__(gd_team_most(BLOCK))
    row_backward(T *dx, const T *x, const T *w, const T *dy,
                 const mean_kept<gd_compute<T>> *mean_in, const gd_compute<T> *rstd_in,
                 int64_t rows, int64_t n, bool add)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    for (int64_t r = team.row; r < rows; r += team.step) {
        const mean_parts<C> mean = saved_mean(mean_in[r]);
        const C rstd = rstd_in[r];
        C sum_h = 0, sum_hx = 0;
        for (int64_t p = team.rank; p < n / V; p += team.size) {
            const gd_pack<T, V> px = gd_pack<T, V>::load(x + r * n, p),
                                pd = gd_pack<T, V>::load(dy + r * n, p);
            gd_pack<T, V> pw = {};
            if (w) pw = gd_pack<T, V>::load(w, p);
            for (int v = 0; v < V; v++) {
                const C d = gd_load(pd[v]);
                const C h = w ? layer_norm_h(d, C(gd_load(pw[v]))) : d;
                sum_h += h;
                sum_hx += h * mean.from(gd_load(px[v]));
            }
        }
        const C mean_h = layer_norm_mean(team.sum(sum_h, shared), (C)n);
        const C mean_hx = layer_norm_mean(team.sum(sum_hx, shared), (C)n) * rstd;
        for (int64_t p = team.rank; p < n / V; p += team.size) {
            const gd_pack<T, V> px = gd_pack<T, V>::load(x + r * n, p),
                                pd = gd_pack<T, V>::load(dy + r * n, p);
            gd_pack<T, V> pw = {}, out = {};
            if (w) pw = gd_pack<T, V>::load(w, p);
            if (add) out = gd_pack<T, V>::load(dx + r * n, p);
            for (int v = 0; v < V; v++) {
                const C d = gd_load(pd[v]);
                const C h = w ? layer_norm_h(d, C(gd_load(pw[v]))) : d;
                const C xhat = layer_norm_xhat(mean.from(gd_load(px[v])), rstd);
                const C value = layer_norm_dx(h, mean_h, xhat, mean_hx, rstd);
                out[v] = gd_store<T>(add ? gd_load(out[v]) + value : value);
            }
            out.store(dx + r * n, p);
        }
    }
}

// ---- Backward: dweight and dbias ----------------------------------------------------------------

// Column sums of dy xhat and of dy.
template <class T>
struct weight_terms {
    const T *x, *dy; // [M, N]
    const mean_kept<gd_compute<T>> *mean;
    const gd_compute<T> *rstd;
    int64_t N;

    __device__ void add(int64_t row, int64_t column, gd_compute<T> *sum) const
    {
        using C = gd_compute<T>;
        const C d = gd_load(dy[row * N + column]);
        const C centred = saved_mean(mean[row]).from(gd_load(x[row * N + column]));
        sum[0] += layer_norm_dw(d, layer_norm_xhat(centred, rstd[row]));
        sum[1] += d;
    }
};

extern "C" gd_status layer_norm_backward_cuda(const gd_call *call)
{
    const int64_t n = gd_last_dim(call->input[0]), rows = gd_row_count(call->input[0]);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const T *x = gd_ptr<T>(call->input[0]), *w = gd_ptr<T>(call->input[1]),
                *dy = gd_ptr<T>(call->doutput[0]);
        using C = gd_compute<T>;
        const mean_kept<C> *mean = gd_ptr<mean_kept<C>>(call->save[0]);
        const C *rstd = gd_ptr<C>(call->save[1]);
        T *dx = gd_ptr<T>(call->dinput[0]);
        // First: dx may be written over dy.
        const weight_terms<T> terms = {x, dy, mean, rstd, n};
        const gd_status status =
            gd_column_sums<2, C>(call, call->dinput + 1, call->accumulate + 1, rows, n, terms);
        if (status) return status;
        if (!dx || rows * n == 0) return GD_OK;
        const bool packed = gd_rows_pack<T>(n, x, dy, dx, w);
        return gd_by_team<T>(rows, n, packed, [&](auto grid, auto pack, auto block) {
            return gd_launch(call, grid, row_backward<T, pack, block>, dx, x, w, dy, mean, rstd,
                             rows, n, call->accumulate[0]);
        });
    });
}
