/* rnn_cpu.c - the CPU kernels of lstm and gru: a product with the weight and a loop over the
 * gates for each step, and in the backward one product for dweight after the last; plain_cpu.c
 * has the sums. */
#include "inline_exp.h"
#include "kernel_cpu.h"
#include "matmul/gemm.h"
#include "rnn/rnn.h"

#define GD_EXP inline_exp
#define GD_TANH inline_tanh
#include "rnn/formula.h"

/* ---- One step ----------------------------------------------------------------------------- */

/* What row b of a recurrence had before step t: x is [B, kept, n], where steps are saved or only
 * the last, and `first` what it begins from [B, n]. NULL: zeros. */
static const REAL *before_step(const REAL *x, const REAL *first, int64_t kept, int64_t t, int64_t b,
                               int64_t n)
{
    if (t > 0) return x + (b * kept + (t - 1) % kept) * n;
    return first ? first + b * n : NULL;
}

typedef struct rnn_work {
    gd_rnn_shape s;
    int64_t t;         /* the step */
    int64_t kept;      /* steps that are saved: T, or 1 */
    bool is_lstm, add; /* into dgates */
    const REAL *gates, *bias, *state, *cell, *dy, *before;
    REAL *hidden;     /* [B, G]: the state's part of the gates */
    REAL *y, *dgates; /* dgates may be NULL */
    REAL *gates_out;  /* [B, kept, G]: the gates after their functions */
    REAL *cell_or_n;  /* [B, kept, H]: c of lstm, the state's part of n of gru */
    REAL *dh, *dc;    /* [B, H] */
    REAL *dhidden;    /* [B, T, G] */
    void *scratch;    /* of a step's product */
    int threads, product_threads;
} rnn_work;

/* Row b of a step: pointers go to its numbers. `before` is c of lstm, h of gru, of the step before,
 * or NULL for zeros. */
static inline __attribute__((always_inline)) rnn_work row_of(const void *work, int64_t b)
{
    rnn_work w = *(const rnn_work *)work;
    const int64_t H = w.s.H, G = w.s.G, at = b * w.s.T + w.t, kept = b * w.kept + w.t % w.kept;
    w.before = w.is_lstm ? before_step(w.cell_or_n, w.cell, w.kept, w.t, b, H)
                         : before_step(w.y, w.state, w.s.T, w.t, b, H);
    w.y += at * H, w.gates_out += kept * G, w.cell_or_n += kept * H;
    if (w.dy) w.dy += at * H;
    if (w.dgates) w.dgates += at * G;
    if (w.hidden) w.hidden += b * G, w.gates += at * G;
    if (w.dh) w.dh += b * H, w.dc += b * H, w.dhidden += at * G;
    return w;
}

/* p[j], or 0 without p. `other` is read in its place, since a load on a condition keeps a loop from
 * being vectorized. */
static inline REAL value_at(const REAL *p, const REAL *other, int64_t j)
{
    const REAL value = (p ? p : other)[j];
    return p ? value : 0;
}

static void lstm_row(const void *work, int64_t b)
{
    const rnn_work r = row_of(work, b);
    const int64_t H = r.s.H, G = LSTM_G * H, O = LSTM_O * H;
    REAL *a = r.gates_out, *c = r.cell_or_n, *y = r.y;
    GD_EACH(k, r.s.G) a[k] = r.gates[k] + r.hidden[k] + value_at(r.bias, r.gates, k);
    GD_EACH(j, 2 * H) a[j] = sigmoid(a[j]);
    GD_EACH(j, H) a[G + j] = GD_TANH(a[G + j]);
    GD_EACH(j, H) a[O + j] = sigmoid(a[O + j]);
    GD_EACH(j, H) c[j] = lstm_cell(a[j], a[LSTM_F * H + j], a[G + j], value_at(r.before, a, j));
    GD_EACH(j, H) y[j] = a[O + j] * GD_TANH(c[j]);
}

static void gru_row(const void *work, int64_t b)
{
    const rnn_work r = row_of(work, b);
    const int64_t H = r.s.H, Z = GRU_Z * H, N = GRU_N * H;
    REAL *hidden = r.hidden, *a = r.gates_out, *y = r.y;
    GD_EACH(k, r.bias ? r.s.G : 0) hidden[k] += r.bias[k];
    GD_EACH(j, 2 * H) a[j] = sigmoid(r.gates[j] + hidden[j]);
    GD_EACH(j, H)
    {
        r.cell_or_n[j] = hidden[N + j];
        a[N + j] = GD_TANH(r.gates[N + j] + a[j] * hidden[N + j]);
    }
    GD_EACH(j, H) y[j] = gru_state(a[Z + j], a[N + j], value_at(r.before, a, j));
}

/* In: dh and dc, what later steps pass on. Out: dc for the step before, and the gradient of the
 * gates before their functions. */
static void lstm_gradient_row(const void *work, int64_t b)
{
    const rnn_work r = row_of(work, b);
    const int64_t H = r.s.H, F = LSTM_F * H, G = LSTM_G * H, O = LSTM_O * H;
    const REAL *a = r.gates_out, *c = r.cell_or_n;
    REAL *dc = r.dc, *d = r.dhidden;
    GD_EACH(j, H)
    {
        const REAL i = a[j], f = a[F + j], g = a[G + j], o = a[O + j];
        const REAL h = GD_TANH(c[j]), all = r.dh[j] + value_at(r.dy, a, j);
        const REAL dcell = lstm_dc(dc[j], all, o, h);
        d[j] = lstm_di(dcell, g, i);
        d[F + j] = lstm_df(dcell, value_at(r.before, a, j), f);
        d[G + j] = lstm_dg(dcell, i, g);
        d[O + j] = lstm_do(all, h, o);
        dc[j] = dcell * f;
    }
    gd_put(r.dgates, d, r.s.G, r.add);
}

/* In: dh. Out: the part of dh for the step before that goes past the gates, the gradient of the
 * gates, and that of the state's part of them, which differs in n. */
static void gru_gradient_row(const void *work, int64_t b)
{
    const rnn_work r = row_of(work, b);
    const int64_t H = r.s.H, Z = GRU_Z * H, N = GRU_N * H;
    const REAL *a = r.gates_out;
    REAL *dh = r.dh, *d = r.dhidden;
    GD_EACH(j, H)
    {
        const REAL z = a[Z + j], n = a[N + j], all = dh[j] + value_at(r.dy, a, j);
        const REAL dn = gru_dn(all, z, n);
        d[j] = gru_dr(dn, r.cell_or_n[j], a[j]);
        d[Z + j] = gru_dz(all, value_at(r.before, a, j), n, z);
        d[N + j] = dn;
        dh[j] = all * z;
    }
    gd_put(r.dgates, d, r.s.G, r.add);
    GD_EACH(j, H) d[N + j] = gru_dm(d[N + j], a[j]);
}

/* ---- Sequences ---------------------------------------------------------------------------- */

static rnn_work work_of(const gd_call *call)
{
    const gd_rnn_shape s = gd_rnn_shape_of(call);
    const bool is_lstm = call->inputs == LSTM_INPUTS;
    return (rnn_work){.s = s,
                      .kept = s.T,
                      .is_lstm = is_lstm,
                      .add = gd_adds(call, RNN_GATES),
                      .gates = gd_data(call->input[RNN_GATES]),
                      .bias = gd_data(call->input[RNN_BIAS]),
                      .state = gd_data(call->input[RNN_STATE]),
                      .cell = is_lstm ? gd_data(call->input[RNN_CELL]) : NULL,
                      .dy = gd_dy(call, 0),
                      .y = gd_data(call->output[0]),
                      .dgates = gd_dx(call, RNN_GATES),
                      .gates_out = gd_data(call->save[0]),
                      .cell_or_n = gd_data(call->save[1]),
                      .threads = gd_threads_for(call->threads, 4 * s.B * s.G)};
}

static REAL *numbers(const gd_call *call, int64_t count)
{
    return gd_call_scratch(call, (size_t)count * sizeof(REAL));
}

/* Memory and threads for products of these sizes. */
static void *product_scratch(const gd_call *call, gemm_matrix a, gemm_matrix b, int64_t M,
                             int64_t N, int64_t K, int *threads)
{
    *threads = gemm_threads(call->threads, M, N, K);
    return gd_call_scratch(call, gemm_scratch(a, b, M, N, K, *threads));
}

static gd_status rnn_forward(const gd_call *call, gd_task *row)
{
    rnn_work w = work_of(call);
    const gd_rnn_shape s = w.s;
    const gemm_matrix weight = {gd_data(call->input[RNN_WEIGHT]), 1, s.H};
    if (s.B * s.H == 0) return GD_OK;
    if (!call->save[0]) {
        w.kept = 1;
        w.gates_out = numbers(call, s.B * s.G), w.cell_or_n = numbers(call, s.B * s.H);
    }
    w.hidden = numbers(call, s.B * s.G);
    w.scratch = product_scratch(call, (gemm_matrix){w.y, s.T * s.H, 1}, weight, s.B, s.G, s.H,
                                &w.product_threads);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    for (; w.t < s.T; w.t++) {
        const gemm_matrix a = {w.t ? w.y + (w.t - 1) * s.H : w.state, w.t ? s.T * s.H : s.H, 1};
        if (a.data)
            gemm(w.hidden, s.G, a, weight, s.B, s.G, s.H, false, w.scratch, w.product_threads);
        else
            memset(w.hidden, 0, (size_t)(s.B * s.G) * sizeof(REAL));
        gd_for_each(w.threads, s.B, row, &w);
    }
    REAL *last = w.is_lstm ? gd_data(call->output[1]) : NULL;
    for (int64_t b = 0; b < s.B && last; b++) {
        const REAL *c = before_step(w.cell_or_n, w.cell, w.kept, s.T, b, s.H);
        for (int64_t j = 0; j < s.H; j++) last[b * s.H + j] = c ? c[j] : 0;
    }
    return GD_OK;
}

/* dweight and dbias, from the gradients of all steps. */
static gd_status add_up(const gd_call *call, const rnn_work *w)
{
    const gd_rnn_shape s = w->s;
    const int64_t rows = s.B * s.T;
    REAL *dweight = gd_dx(call, RNN_WEIGHT), *dbias = gd_dx(call, RNN_BIAS);
    if (dweight) {
        REAL *states = numbers(call, rows * s.H); /* before each step */
        const gemm_matrix d = {w->dhidden, 1, s.G}, h = {states, s.H, 1};
        int threads;
        void *scratch = product_scratch(call, d, h, s.G, s.H, rows, &threads);
        if (gd_error_status(call->context)) return gd_error_status(call->context);
        for (int64_t i = 0; i < rows; i++) {
            const REAL *before = before_step(w->y, w->state, s.T, i % s.T, i / s.T, s.H);
            for (int64_t j = 0; j < s.H; j++) states[i * s.H + j] = before ? before[j] : 0;
        }
        gemm(dweight, s.H, d, h, s.G, s.H, rows, gd_adds(call, RNN_WEIGHT), scratch, threads);
    }
    if (!dbias) return GD_OK;
    double *sums = gd_call_scratch(call, (size_t)s.G * sizeof *sums);
    if (!sums) return gd_error_status(call->context);
    for (int64_t k = 0; k < s.G; k++) sums[k] = gd_adds(call, RNN_BIAS) ? (double)dbias[k] : 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < s.G; k++) sums[k] += (double)w->dhidden[i * s.G + k];
    for (int64_t k = 0; k < s.G; k++) dbias[k] = (REAL)sums[k];
    return GD_OK;
}

static gd_status rnn_backward(const gd_call *call, gd_task *row)
{
    rnn_work w = work_of(call);
    const gd_rnn_shape s = w.s;
    const int64_t states = s.B * s.H;
    const gemm_matrix weight = {gd_data(call->input[RNN_WEIGHT]), s.H, 1};
    w.dh = numbers(call, 2 * states);
    w.dhidden = numbers(call, s.B * s.T * s.G);
    w.scratch = product_scratch(call, (gemm_matrix){w.dhidden, s.T * s.G, 1}, weight, s.B, s.H, s.G,
                                &w.product_threads);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    w.dc = w.dh + states;
    memset(w.dh, 0, (size_t)(2 * states) * sizeof(REAL));
    if (w.is_lstm && gd_dy(call, 1)) gd_put(w.dc, gd_dy(call, 1), states, false);
    for (w.t = s.T - 1; w.t >= 0 && states; w.t--) {
        gd_for_each(w.threads, s.B, row, &w);
        if (w.t == 0 && !call->dinput[RNN_STATE]) break;
        const gemm_matrix d = {w.dhidden + w.t * s.G, s.T * s.G, 1};
        gemm(w.dh, s.H, d, weight, s.B, s.H, s.G, !w.is_lstm, w.scratch, w.product_threads);
    }
    gd_put(gd_dx(call, RNN_STATE), w.dh, states, gd_adds(call, RNN_STATE));
    if (w.is_lstm) gd_put(gd_dx(call, RNN_CELL), w.dc, states, gd_adds(call, RNN_CELL));
    return add_up(call, &w);
}

GD_KERNELS_OF_REAL(lstm, rnn_forward(call, lstm_row), rnn_backward(call, lstm_gradient_row))
GD_KERNELS_OF_REAL(gru, rnn_forward(call, gru_row), rnn_backward(call, gru_gradient_row))
