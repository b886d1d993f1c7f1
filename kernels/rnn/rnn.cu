// rnn.cu - the CUDA kernels of lstm and gru: a product with the weight and a kernel on the gates
// for each step, and in the backward one product for dweight after the last. Sums over H are in
// float, or in double for double; what a product reads is of the tensors' dtype.
#include "column_sum.cuh"
#include "matmul/gemm.cuh"
#include "rnn/rnn.h"

#define GD_EXACT_QUOTIENT
#include "rnn/formula.h"

namespace gd_rnn
{

// What a step reads and writes. All [B, T, ...] tensors have their steps T apart, kept ones `kept`.
template <class T>
struct step {
    using C = gd_compute<T>;
    gd_rnn_shape s;
    int64_t t, kept; // the step; how many are saved, T or 1
    const T *gates, *bias, *state, *cell, *dy;
    const C *hidden; // [B, G]: the state's part of the gates; NULL: 0
    T *y, *dgates;
    C *gates_out; // [B, kept, G]: the gates after their functions
    C *cell_or_n; // [B, kept, H]: c of lstm, the state's part of n of gru
    C *dh, *dc;   // [B, H]
    T *dhidden;   // [B, T, G]
    bool add;     // into dgates

    // Which of the saved rows is that of this step.
    __device__ int64_t at(int64_t b) const
    {
        return b * kept + t % kept;
    }
    __device__ C gate_of(int64_t b, int64_t k, bool own) const
    {
        C value = hidden ? hidden[b * s.G + k] : 0;
        if (bias) value += gd_load(bias[k]);
        return own ? value + gd_load(gates[(b * s.T + t) * s.G + k]) : value;
    }
    __device__ C state_before(int64_t b, int64_t j) const
    {
        if (t > 0) return gd_load(y[(b * s.T + t - 1) * s.H + j]);
        return state ? gd_load(state[b * s.H + j]) : 0;
    }
    __device__ C cell_before(int64_t b, int64_t j) const
    {
        if (t > 0) return cell_or_n[(b * kept + (kept == 1 ? 0 : t - 1)) * s.H + j];
        return cell ? gd_load(cell[b * s.H + j]) : 0;
    }
    __device__ C arriving(int64_t b, int64_t j) const
    {
        return dh[b * s.H + j] + (dy ? gd_load(dy[(b * s.T + t) * s.H + j]) : 0);
    }
    __device__ void put(int64_t b, int64_t k, C of_gates, C of_hidden) const
    {
        const int64_t i = (b * s.T + t) * s.G + k;
        if (dgates) dgates[i] = gd_store<T>(add ? gd_load(dgates[i]) + of_gates : of_gates);
        dhidden[i] = gd_store<T>(of_hidden);
    }
};

template <class T>
__global__ void __launch_bounds__(gd_threads) lstm_kernel(step<T> w)
{
    gd_in_turn();
    using C = gd_compute<T>;
    const int64_t H = w.s.H;
    GD_EACH(e, w.s.B * H)
    {
        const int64_t b = e / H, j = e - b * H;
        const C i = sigmoid(w.gate_of(b, j, true)), f = sigmoid(w.gate_of(b, LSTM_F * H + j, true));
        const C g = GD_TANH(w.gate_of(b, LSTM_G * H + j, true));
        const C o = sigmoid(w.gate_of(b, LSTM_O * H + j, true));
        const C c = lstm_cell(i, f, g, w.cell_before(b, j));
        C *a = w.gates_out ? w.gates_out + w.at(b) * w.s.G + j : nullptr;
        if (a) a[0] = i, a[LSTM_F * H] = f, a[LSTM_G * H] = g, a[LSTM_O * H] = o;
        w.cell_or_n[w.at(b) * H + j] = c;
        w.y[(b * w.s.T + w.t) * H + j] = gd_store<T>(o * GD_TANH(c));
    }
}

template <class T>
__global__ void __launch_bounds__(gd_threads) gru_kernel(step<T> w)
{
    gd_in_turn();
    using C = gd_compute<T>;
    const int64_t H = w.s.H;
    GD_EACH(e, w.s.B * H)
    {
        const int64_t b = e / H, j = e - b * H, n_at = GRU_N * H + j;
        const C r = sigmoid(w.gate_of(b, j, true)), z = sigmoid(w.gate_of(b, GRU_Z * H + j, true));
        const C part = w.gate_of(b, n_at, false);
        const C n = GD_TANH(gd_load(w.gates[(b * w.s.T + w.t) * w.s.G + n_at]) + r * part);
        if (w.gates_out) {
            C *a = w.gates_out + w.at(b) * w.s.G + j;
            a[0] = r, a[GRU_Z * H] = z, a[GRU_N * H] = n;
            w.cell_or_n[w.at(b) * H + j] = part;
        }
        w.y[(b * w.s.T + w.t) * H + j] = gd_store<T>(gru_state(z, n, w.state_before(b, j)));
    }
}

// In: dh and dc, what later steps pass on. Out: dc for the step before, and the gradient of the
// gates before their functions.
template <class T>
__global__ void __launch_bounds__(gd_threads) lstm_gradient_kernel(step<T> w)
{
    gd_in_turn();
    using C = gd_compute<T>;
    const int64_t H = w.s.H;
    GD_EACH(e, w.s.B * H)
    {
        const int64_t b = e / H, j = e - b * H;
        const C *a = w.gates_out + w.at(b) * w.s.G + j;
        const C i = a[0], f = a[LSTM_F * H], g = a[LSTM_G * H], o = a[LSTM_O * H];
        const C h = GD_TANH(w.cell_or_n[w.at(b) * H + j]), all = w.arriving(b, j);
        const C dcell = lstm_dc(w.dc[e], all, o, h);
        const C di = lstm_di(dcell, g, i), df = lstm_df(dcell, w.cell_before(b, j), f);
        const C dg = lstm_dg(dcell, i, g), d_o = lstm_do(all, h, o);
        w.put(b, j, di, di);
        w.put(b, LSTM_F * H + j, df, df);
        w.put(b, LSTM_G * H + j, dg, dg);
        w.put(b, LSTM_O * H + j, d_o, d_o);
        w.dc[e] = dcell * f;
    }
}

// In: dh. Out: the part of dh for the step before that goes past the gates, the gradient of the
// gates, and that of the state's part of them, which differs in n.
template <class T>
__global__ void __launch_bounds__(gd_threads) gru_gradient_kernel(step<T> w)
{
    gd_in_turn();
    using C = gd_compute<T>;
    const int64_t H = w.s.H;
    GD_EACH(e, w.s.B * H)
    {
        const int64_t b = e / H, j = e - b * H;
        const C *a = w.gates_out + w.at(b) * w.s.G + j;
        const C r = a[0], z = a[GRU_Z * H], n = a[GRU_N * H], all = w.arriving(b, j);
        const C dn = gru_dn(all, z, n), dr = gru_dr(dn, w.cell_or_n[w.at(b) * H + j], r);
        const C dz = gru_dz(all, w.state_before(b, j), n, z);
        w.put(b, j, dr, dr);
        w.put(b, GRU_Z * H + j, dz, dz);
        w.put(b, GRU_N * H + j, dn, gru_dm(dn, r));
        w.dh[e] = all * z;
    }
}

// to [B, H] = from, whose rows are `apart`; zeros for NULL.
template <class To, class From>
__global__ void copy_kernel(To *to, bool add, const From *from, int64_t apart, gd_rnn_shape s)
{
    gd_in_turn();
    GD_EACH(e, s.B * s.H)
    {
        const int64_t b = e / s.H;
        const gd_compute<To> value = from ? gd_load(from[b * apart + e - b * s.H]) : 0;
        to[e] = gd_store<To>(add ? gd_load(to[e]) + value : value);
    }
}

template <class To, class From>
void copy_rows(const gd_call *call, To *to, bool add, const From *from, int64_t apart,
               const gd_rnn_shape &s)
{
    gd_launch(call, gd_grid_for(s.B * s.H), copy_kernel<To, From>, to, add, from, apart, s);
}

// The state before each step, [B, T, H].
template <class T>
__global__ void states_kernel(T *to, step<T> w)
{
    gd_in_turn();
    GD_EACH(e, w.s.B * w.s.T * w.s.H)
    {
        const int64_t row = e / w.s.H, b = row / w.s.T, j = e - row * w.s.H;
        w.t = row - b * w.s.T;
        to[e] = gd_store<T>(w.state_before(b, j));
    }
}

template <class T>
T *scratch(const gd_call *call, int64_t count)
{
    return (T *)gd_call_scratch(call, (size_t)count * sizeof(T));
}

template <class T>
step<T> step_of(const gd_call *call, bool is_lstm)
{
    using C = gd_compute<T>;
    step<T> w = {};
    w.s = gd_rnn_shape_of(call);
    w.kept = w.s.T;
    w.gates = gd_ptr<const T>(call->input[RNN_GATES]);
    w.bias = gd_ptr<const T>(call->input[RNN_BIAS]);
    w.state = gd_ptr<const T>(call->input[RNN_STATE]);
    w.cell = is_lstm ? gd_ptr<const T>(call->input[RNN_CELL]) : nullptr;
    w.y = gd_ptr<T>(call->output[0]);
    if (!call->save[0]) return w;
    w.gates_out = gd_ptr<C>(call->save[0]);
    w.cell_or_n = gd_ptr<C>(call->save[1]);
    return w;
}

// The dtype of sums, which the kernels on gates read.
template <class T>
constexpr gd_dtype sums = sizeof(gd_compute<T>) == 8 ? GD_FLOAT64 : GD_FLOAT32;

template <class T>
gd_status forward(const gd_call *call, bool is_lstm)
{
    using C = gd_compute<T>;
    step<T> w = step_of<T>(call, is_lstm);
    const gd_rnn_shape s = w.s;
    if (s.B * s.H == 0) return GD_OK;
    C *hidden = scratch<C>(call, s.B * s.G);
    if (!w.cell_or_n) w.kept = 1, w.cell_or_n = scratch<C>(call, s.B * s.H);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    const gd_cuda_matrix weight = {gd_tensor_data(call->input[RNN_WEIGHT]), 1, s.H};
    const gd_grid grid = gd_grid_for(s.B * s.H);
    gd_gemm_workspace workspace = {};
    for (w.t = 0; w.t < s.T; w.t++) {
        const T *before = w.t ? w.y + (w.t - 1) * s.H : w.state;
        w.hidden = before ? hidden : nullptr;
        if (before) {
            gd_gemm product = gd_gemm_of(call->kernel_dtype, s.B, s.G, s.H, {hidden, s.G, 1},
                                         {(void *)before, w.t ? s.T * s.H : s.H, 1}, weight, false);
            product.c_dtype = sums<T>;
            const gd_status status = gd_gemm_cuda(call, product, &workspace);
            if (status) return status;
        }
        if (gd_launch(call, grid, is_lstm ? lstm_kernel<T> : gru_kernel<T>, w))
            return gd_error_status(call->context);
    }
    if (is_lstm) {
        T *last = gd_ptr<T>(call->output[1]);
        if (s.T > 0)
            copy_rows(call, last, false, (const C *)w.cell_or_n + (s.T - 1) % w.kept * s.H,
                      w.kept * s.H, s);
        else
            copy_rows(call, last, false, w.cell, s.H, s);
    }
    return gd_error_status(call->context);
}

// dweight and dbias, from the gradients of all steps.
template <class T>
gd_status add_up(const gd_call *call, const step<T> &w, gd_gemm_workspace *workspace)
{
    const gd_rnn_shape s = w.s;
    const gd_tensor *dweight = call->dinput[RNN_WEIGHT];
    const int64_t rows = s.B * s.T;
    if (dweight) {
        T *states = scratch<T>(call, rows * s.H);
        if (!states) return gd_error_status(call->context);
        gd_launch(call, gd_grid_for(rows * s.H), states_kernel<T>, states, w);
        gd_gemm product =
            gd_gemm_of(call->kernel_dtype, s.G, s.H, rows, {gd_tensor_data(dweight), s.H, 1},
                       {w.dhidden, 1, s.G}, {states, s.H, 1}, call->accumulate[RNN_WEIGHT]);
        product.c_dtype = gd_tensor_dtype(dweight);
        const gd_status status = gd_gemm_cuda(call, product, workspace);
        if (status) return status;
    }
    const gd_row_terms<T> terms = {w.dhidden, s.G};
    return gd_column_sums<1, gd_compute<T>>(call, call->dinput + RNN_BIAS,
                                            call->accumulate + RNN_BIAS, rows, s.G, terms);
}

template <class T>
gd_status backward(const gd_call *call, bool is_lstm)
{
    using C = gd_compute<T>;
    step<T> w = step_of<T>(call, is_lstm);
    const gd_rnn_shape s = w.s;
    const int64_t states = s.B * s.H;
    w.dy = gd_ptr<const T>(call->doutput[0]);
    w.dgates = gd_ptr<T>(call->dinput[RNN_GATES]);
    w.add = call->accumulate[RNN_GATES];
    w.dh = scratch<C>(call, 2 * states);
    w.dhidden = scratch<T>(call, s.B * s.T * s.G);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    w.dc = w.dh + states;
    gd_gemm_workspace workspace = {};
    if (states == 0) return add_up(call, w, &workspace);
    copy_rows(call, w.dh, false, (const C *)nullptr, 0, s);
    const T *dcell = is_lstm ? gd_ptr<const T>(call->doutput[1]) : nullptr;
    copy_rows(call, w.dc, false, dcell, s.H, s);
    const gd_cuda_matrix weight = {gd_tensor_data(call->input[RNN_WEIGHT]), s.H, 1};
    const gd_grid grid = gd_grid_for(states);
    for (w.t = s.T - 1; w.t >= 0; w.t--) {
        if (gd_launch(call, grid, is_lstm ? lstm_gradient_kernel<T> : gru_gradient_kernel<T>, w))
            return gd_error_status(call->context);
        if (w.t == 0 && !call->dinput[RNN_STATE]) break;
        gd_gemm product = gd_gemm_of(call->kernel_dtype, s.B, s.H, s.G, {w.dh, s.H, 1},
                                     {w.dhidden + w.t * s.G, s.T * s.G, 1}, weight, !is_lstm);
        product.c_dtype = sums<T>;
        const gd_status status = gd_gemm_cuda(call, product, &workspace);
        if (status) return status;
    }
    T *dstate = gd_ptr<T>(call->dinput[RNN_STATE]);
    T *dfirst = is_lstm ? gd_ptr<T>(call->dinput[RNN_CELL]) : nullptr;
    if (dstate) copy_rows(call, dstate, call->accumulate[RNN_STATE], (const C *)w.dh, s.H, s);
    if (dfirst) copy_rows(call, dfirst, call->accumulate[RNN_CELL], (const C *)w.dc, s.H, s);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    return add_up(call, w, &workspace);
}

GD_CUDA_KERNEL_OF_T(lstm_forward, forward<T>(call, true))
GD_CUDA_KERNEL_OF_T(lstm_backward, backward<T>(call, true))
GD_CUDA_KERNEL_OF_T(gru_forward, forward<T>(call, false))
GD_CUDA_KERNEL_OF_T(gru_backward, backward<T>(call, false))

} // namespace gd_rnn
