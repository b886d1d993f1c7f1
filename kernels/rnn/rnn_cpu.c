/* rnn_cpu.c - the CPU kernels of lstm and gru: a product with the weight and a loop over the gates for
 * each step, and in the backward one product for dweight after the last; plain_cpu.c has the sums. */
#include "inline_exp.h"
#include "matmul/gemm.h"
#include "rnn/rnn.h"

#define GD_EXP inline_exp
#define GD_TANH inline_tanh
#include "rnn/formula.h"

/* ---- One step ----------------------------------------------------------------------------- */

typedef struct rnn_work {
    gd_rnn_shape s;
    int64_t t;    /* the step */
    int64_t kept; /* steps that are saved: T, or 1 */
    bool add;     /* into dgates */
    const REAL *gates, *bias, *state, *cell, *dy;
    REAL *hidden;     /* [B, G]: the state's part of the gates */
    REAL *y, *dgates; /* dgates may be NULL */
    REAL *gates_out;  /* [B, kept, G]: the gates after their functions */
    REAL *cell_or_n;  /* [B, kept, H]: c of lstm, the state's part of n of gru */
    REAL *dh, *dc;    /* [B, H] */
    REAL *dhidden;    /* [B, T, G] */
} rnn_work;

static const REAL *previous(const rnn_work *w, const REAL *first, const REAL *all, int64_t steps,
                            int64_t b)
{
    const gd_rnn_shape s = w->s;
    if (w->t > 0) return all + (b * steps + (steps == 1 ? 0 : w->t - 1)) * s.H;
    return first ? first + b * s.H : NULL;
}

/* p[j], or 0 without p. `other` is read in its place, since a load on a condition keeps a loop from being
 * vectorized. */
static inline REAL value_at(const REAL *p, const REAL *other, int64_t j)
{
    const REAL value = (p ? p : other)[j];
    return p ? value : 0;
}

static void lstm_row(const void *work, int64_t b)
{
    const rnn_work *w = work;
    const gd_rnn_shape s = w->s;
    const int64_t H = s.H, at = b * w->kept + w->t % w->kept;
    const REAL *x = w->gates + (b * s.T + w->t) * s.G, *hidden = w->hidden + b * s.G;
    const REAL *before = previous(w, w->cell, w->cell_or_n, w->kept, b);
    REAL *a = w->gates_out + at * s.G, *c = w->cell_or_n + at * H, *y = w->y + (b * s.T + w->t) * H;
#pragma omp simd
    for (int64_t k = 0; k < s.G; k++) a[k] = x[k] + hidden[k] + value_at(w->bias, x, k);
#pragma omp simd
    for (int64_t j = 0; j < 2 * H; j++) a[j] = sigmoid(a[j]);
#pragma omp simd
    for (int64_t j = LSTM_G * H; j < (LSTM_G + 1) * H; j++) a[j] = GD_TANH(a[j]);
#pragma omp simd
    for (int64_t j = LSTM_O * H; j < (LSTM_O + 1) * H; j++) a[j] = sigmoid(a[j]);
#pragma omp simd
    for (int64_t j = 0; j < H; j++)
        c[j] = lstm_cell(a[LSTM_I * H + j], a[LSTM_F * H + j], a[LSTM_G * H + j],
                         value_at(before, a, j));
#pragma omp simd
    for (int64_t j = 0; j < H; j++) y[j] = a[LSTM_O * H + j] * GD_TANH(c[j]);
}

static void gru_row(const void *work, int64_t b)
{
    const rnn_work *w = work;
    const gd_rnn_shape s = w->s;
    const int64_t H = s.H, at = b * w->kept + w->t % w->kept;
    const REAL *x = w->gates + (b * s.T + w->t) * s.G, *bias = w->bias;
    const REAL *before = previous(w, w->state, w->y, s.T, b);
    REAL *hidden = w->hidden + b * s.G, *a = w->gates_out + at * s.G, *part = w->cell_or_n + at * H;
    REAL *y = w->y + (b * s.T + w->t) * H;
    const int64_t biases = bias ? s.G : 0;
#pragma omp simd
    for (int64_t k = 0; k < biases; k++) hidden[k] += bias[k];
#pragma omp simd
    for (int64_t j = 0; j < 2 * H; j++) a[j] = sigmoid(x[j] + hidden[j]);
#pragma omp simd
    for (int64_t j = 0; j < H; j++) {
        const int64_t n = GRU_N * H + j;
        part[j] = hidden[n];
        a[n] = GD_TANH(x[n] + a[j] * hidden[n]);
    }
#pragma omp simd
    for (int64_t j = 0; j < H; j++) {
        y[j] = gru_state(a[GRU_Z * H + j], a[GRU_N * H + j], value_at(before, a, j));
    }
}

/* dgates[b, t] (+)= d */
static void put_gates(const rnn_work *w, int64_t b, const REAL *d)
{
    const gd_rnn_shape s = w->s;
    REAL *to = w->dgates ? w->dgates + (b * s.T + w->t) * s.G : NULL;
    if (to && !w->add) memcpy(to, d, (size_t)s.G * sizeof *to);
    if (!to || !w->add) return;
#pragma omp simd
    for (int64_t k = 0; k < s.G; k++) to[k] += d[k];
}

/* In: dh and dc, what later steps pass on. Out: dc for the step before, and the gradient of the gates
 * before their functions. */
static void lstm_gradient_row(const void *work, int64_t b)
{
    const rnn_work *w = work;
    const gd_rnn_shape s = w->s;
    const int64_t H = s.H, at = b * s.T + w->t;
    const REAL *a = w->gates_out + at * s.G, *c = w->cell_or_n + at * H;
    const REAL *before = previous(w, w->cell, w->cell_or_n, s.T, b);
    const REAL *dy = w->dy ? w->dy + at * H : NULL;
    REAL *dh = w->dh + b * H, *dc = w->dc + b * H, *d = w->dhidden + at * s.G;
#pragma omp simd
    for (int64_t j = 0; j < H; j++) {
        const REAL i = a[j], f = a[LSTM_F * H + j], g = a[LSTM_G * H + j], o = a[LSTM_O * H + j];
        const REAL h = GD_TANH(c[j]), all = dh[j] + value_at(dy, a, j);
        const REAL dcell = lstm_dc(dc[j], all, o, h);
        d[j] = lstm_di(dcell, g, i);
        d[LSTM_F * H + j] = lstm_df(dcell, value_at(before, a, j), f);
        d[LSTM_G * H + j] = lstm_dg(dcell, i, g);
        d[LSTM_O * H + j] = lstm_do(all, h, o);
        dc[j] = dcell * f;
    }
    put_gates(w, b, d);
}

/* In: dh. Out: the part of dh for the step before that goes past the gates, the gradient of the gates,
 * and that of the state's part of them, which differs in n. */
static void gru_gradient_row(const void *work, int64_t b)
{
    const rnn_work *w = work;
    const gd_rnn_shape s = w->s;
    const int64_t H = s.H, at = b * s.T + w->t;
    const REAL *a = w->gates_out + at * s.G, *part = w->cell_or_n + at * H;
    const REAL *before = previous(w, w->state, w->y, s.T, b);
    const REAL *dy = w->dy ? w->dy + at * H : NULL;
    REAL *dh = w->dh + b * H, *d = w->dhidden + at * s.G;
#pragma omp simd
    for (int64_t j = 0; j < H; j++) {
        const REAL r = a[j], z = a[GRU_Z * H + j], n = a[GRU_N * H + j];
        const REAL all = dh[j] + value_at(dy, a, j);
        const REAL dn = gru_dn(all, z, n);
        d[j] = gru_dr(dn, part[j], r);
        d[GRU_Z * H + j] = gru_dz(all, value_at(before, a, j), n, z);
        d[GRU_N * H + j] = dn;
        dh[j] = all * z;
    }
    put_gates(w, b, d);
#pragma omp simd
    for (int64_t j = 0; j < H; j++) d[GRU_N * H + j] = gru_dm(d[GRU_N * H + j], a[j]);
}

/* ---- Sequences ---------------------------------------------------------------------------- */

typedef struct rnn_product {
    void *scratch;
    int threads;
} rnn_product;

static rnn_product product_of(const gd_call *call, gemm_matrix a, gemm_matrix b, int64_t M,
                              int64_t N, int64_t K)
{
    const int threads = gemm_threads(call->threads, M, N, K);
    return (rnn_product){gd_call_scratch(call, gemm_scratch(a, b, M, N, K, threads)), threads};
}

static gd_status rnn_forward(const gd_call *call, bool is_lstm)
{
    const gd_rnn_shape s = gd_rnn_shape_of(call);
    const bool saves = call->save[0];
    rnn_work w = {.s = s, .kept = saves ? s.T : 1};
    if (s.B * s.H == 0) return GD_OK;
    w.gates = gd_data(call->input[RNN_GATES]);
    w.bias = gd_data(call->input[RNN_BIAS]);
    w.state = gd_data(call->input[RNN_STATE]);
    w.cell = is_lstm ? gd_data(call->input[RNN_CELL]) : NULL;
    w.y = gd_data(call->output[0]);
    w.hidden = gd_call_scratch(call, (size_t)(s.B * s.G) * sizeof(REAL));
    REAL *own = saves ? NULL : gd_call_scratch(call, (size_t)(s.B * (s.G + s.H)) * sizeof(REAL));
    w.gates_out = saves ? gd_data(call->save[0]) : own;
    w.cell_or_n = saves ? gd_data(call->save[1]) : own ? own + s.B * s.G : NULL;
    const gemm_matrix weight = {gd_data(call->input[RNN_WEIGHT]), 1, s.H};
    const rnn_product product =
        product_of(call, (gemm_matrix){w.y, s.T * s.H, 1}, weight, s.B, s.G, s.H);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    const int threads = gd_threads_for(call->threads, 4 * s.B * s.G);
    for (w.t = 0; w.t < s.T; w.t++) {
        const REAL *before = w.t ? w.y + (w.t - 1) * s.H : w.state;
        const gemm_matrix a = {before, w.t ? s.T * s.H : s.H, 1};
        if (before)
            gemm(w.hidden, s.G, a, weight, s.B, s.G, s.H, false, product.scratch, product.threads);
        else
            memset(w.hidden, 0, (size_t)(s.B * s.G) * sizeof(REAL));
        gd_for_each(threads, s.B, is_lstm ? lstm_row : gru_row, &w);
    }
    if (!is_lstm) return GD_OK;
    REAL *last = gd_data(call->output[1]);
    for (int64_t b = 0; b < s.B; b++) {
        const REAL *c = s.T      ? w.cell_or_n + (b * w.kept + (s.T - 1) % w.kept) * s.H
                        : w.cell ? w.cell + b * s.H
                                 : NULL;
        for (int64_t j = 0; j < s.H; j++) last[b * s.H + j] = c ? c[j] : 0;
    }
    return GD_OK;
}

/* The state before each step, [B, T, H]. NULL: no memory. */
static REAL *states_before(const gd_call *call, const rnn_work *w)
{
    const gd_rnn_shape s = w->s;
    REAL *states = gd_call_scratch(call, (size_t)(s.B * s.T * s.H) * sizeof *states);
    for (int64_t b = 0; b < s.B && states; b++) {
        REAL *to = states + b * s.T * s.H;
        if (s.T && w->state) memcpy(to, w->state + b * s.H, (size_t)s.H * sizeof *to);
        if (s.T && !w->state) memset(to, 0, (size_t)s.H * sizeof *to);
        if (s.T > 1) memcpy(to + s.H, w->y + b * s.T * s.H, (size_t)((s.T - 1) * s.H) * sizeof *to);
    }
    return states;
}

/* dweight and dbias, from the gradients of all steps. */
static gd_status add_up(const gd_call *call, const rnn_work *w)
{
    const gd_rnn_shape s = w->s;
    const int64_t rows = s.B * s.T;
    REAL *dweight = gd_data(call->dinput[RNN_WEIGHT]), *dbias = gd_data(call->dinput[RNN_BIAS]);
    if (dweight) {
        const REAL *states = states_before(call, w);
        const gemm_matrix d = {w->dhidden, 1, s.G}, h = {states, s.H, 1};
        const rnn_product p = product_of(call, d, h, s.G, s.H, rows);
        if (gd_error_status(call->context)) return gd_error_status(call->context);
        gemm(dweight, s.H, d, h, s.G, s.H, rows, call->accumulate[RNN_WEIGHT], p.scratch,
             p.threads);
    }
    if (!dbias) return GD_OK;
    double *sums = gd_call_scratch(call, (size_t)s.G * sizeof *sums);
    if (!sums) return gd_error_status(call->context);
    for (int64_t k = 0; k < s.G; k++) sums[k] = call->accumulate[RNN_BIAS] ? (double)dbias[k] : 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < s.G; k++) sums[k] += (double)w->dhidden[i * s.G + k];
    for (int64_t k = 0; k < s.G; k++) dbias[k] = (REAL)sums[k];
    return GD_OK;
}

static void put_state(const gd_call *call, int input, const REAL *d, int64_t count)
{
    REAL *to = gd_data(call->dinput[input]);
    for (int64_t k = 0; to && k < count; k++) to[k] = call->accumulate[input] ? to[k] + d[k] : d[k];
}

static gd_status rnn_backward(const gd_call *call, bool is_lstm)
{
    const gd_rnn_shape s = gd_rnn_shape_of(call);
    const int64_t states = s.B * s.H;
    rnn_work w = {.s = s, .kept = s.T, .add = call->accumulate[RNN_GATES]};
    w.state = gd_data(call->input[RNN_STATE]);
    w.cell = is_lstm ? gd_data(call->input[RNN_CELL]) : NULL;
    w.y = gd_data(call->output[0]);
    w.dy = gd_data(call->doutput[0]);
    w.gates_out = gd_data(call->save[0]);
    w.cell_or_n = gd_data(call->save[1]);
    w.dgates = gd_data(call->dinput[RNN_GATES]);
    w.dh = gd_call_scratch(call, (size_t)(2 * states) * sizeof(REAL));
    w.dhidden = gd_call_scratch(call, (size_t)(s.B * s.T * s.G) * sizeof(REAL));
    const gemm_matrix weight = {gd_data(call->input[RNN_WEIGHT]), s.H, 1};
    const gemm_matrix first = {w.dhidden, s.T * s.G, 1};
    const rnn_product product = product_of(call, first, weight, s.B, s.H, s.G);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    w.dc = w.dh + states;
    memset(w.dh, 0, (size_t)(2 * states) * sizeof(REAL));
    if (is_lstm && call->doutput[1] && states)
        memcpy(w.dc, gd_data(call->doutput[1]), (size_t)states * sizeof(REAL));
    const int threads = gd_threads_for(call->threads, 4 * s.B * s.G);
    for (w.t = s.T - 1; w.t >= 0 && states; w.t--) {
        gd_for_each(threads, s.B, is_lstm ? lstm_gradient_row : gru_gradient_row, &w);
        if (w.t == 0 && !call->dinput[RNN_STATE]) break;
        const gemm_matrix d = {w.dhidden + w.t * s.G, s.T * s.G, 1};
        gemm(w.dh, s.H, d, weight, s.B, s.H, s.G, !is_lstm, product.scratch, product.threads);
    }
    put_state(call, RNN_STATE, w.dh, states);
    if (is_lstm) put_state(call, RNN_CELL, w.dc, states);
    return add_up(call, &w);
}

gd_status GD_REAL_NAME(lstm_forward)(const gd_call *call)
{
    return rnn_forward(call, true);
}

gd_status GD_REAL_NAME(lstm_backward)(const gd_call *call)
{
    return rnn_backward(call, true);
}

gd_status GD_REAL_NAME(gru_forward)(const gd_call *call)
{
    return rnn_forward(call, false);
}

gd_status GD_REAL_NAME(gru_backward)(const gd_call *call)
{
    return rnn_backward(call, false);
}
