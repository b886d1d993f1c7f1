/* plain_cpu.c - lstm and gru as README.md derives them: a loop over steps, with the products written out.
 * It has the interface of rnn_cpu.c's kernels, which tests compare with it, but saves nothing: the
 * backward goes forward again. */
#include "loops.h"
#include "rnn/formula.h"
#include "rnn/rnn.h"

/* A sequence: gates x and dx [T, G], y and dy [T, H]; w [G, H]. Of step t are the gates after their
 * functions, a [G], the state's part of them, m [G], h and c [H], which begin a step earlier. */
typedef struct sequence {
    gd_rnn_shape s;
    const REAL *x, *w, *bias, *dy;
    REAL *a, *m, *h, *c;
    REAL *d, *dm, *dh, *dc; /* of one step; dm is d but for gru's n */
} sequence;

static void lstm_step(const sequence *q, const REAL *x, REAL *a, const REAL *m, const REAL *c,
                      REAL *c_new, REAL *h_new)
{
    const int64_t H = q->s.H;
    for (int64_t j = 0; j < H; j++) {
        const REAL i = sigmoid(x[j] + m[j]), f = sigmoid(x[H + j] + m[H + j]),
                   g = GD_TANH(x[2 * H + j] + m[2 * H + j]),
                   o = sigmoid(x[3 * H + j] + m[3 * H + j]);
        a[j] = i, a[H + j] = f, a[2 * H + j] = g, a[3 * H + j] = o;
        c_new[j] = lstm_cell(i, f, g, c[j]);
        h_new[j] = o * GD_TANH(c_new[j]);
        GD_STEP("gates", i);
        GD_STEP("gates", f);
        GD_STEP("gates", g);
        GD_STEP("gates", o);
        GD_STEP("c", c_new[j]);
    }
}

static void gru_step(const sequence *q, const REAL *x, REAL *a, const REAL *m, const REAL *h,
                     REAL *h_new)
{
    const int64_t H = q->s.H;
    for (int64_t j = 0; j < H; j++) {
        const REAL r = sigmoid(x[j] + m[j]), z = sigmoid(x[H + j] + m[H + j]),
                   n = GD_TANH(x[2 * H + j] + r * m[2 * H + j]);
        a[j] = r, a[H + j] = z, a[2 * H + j] = n;
        h_new[j] = gru_state(z, n, h[j]);
        GD_STEP("r", r);
        GD_STEP("z", z);
        GD_STEP("n", n);
    }
}

static void go_forward(const sequence *q, bool is_lstm)
{
    const int64_t H = q->s.H, G = q->s.G;
    for (int64_t t = 0; t < q->s.T; t++) {
        const REAL *x = q->x + t * G, *h = q->h + t * H, *c = q->c + t * H;
        REAL *a = q->a + t * G, *m = q->m + t * G, *h_new = q->h + (t + 1) * H;
        for (int64_t k = 0; k < G; k++) {
            m[k] = q->bias ? q->bias[k] : 0;
            for (int64_t j = 0; j < H; j++) m[k] += q->w[k * H + j] * h[j];
        }
        if (is_lstm)
            lstm_step(q, x, a, m, c, q->c + (t + 1) * H, h_new);
        else
            gru_step(q, x, a, m, h, h_new);
    }
}

/* d and dm of step t from dh and dc, and of these what goes past the gates to the step before. */
static void step_gradient(const sequence *q, int64_t t, bool is_lstm)
{
    const int64_t H = q->s.H, G = q->s.G;
    const REAL *a = q->a + t * G, *m = q->m + t * G, *c = q->c + t * H, *h = q->h + t * H;
    for (int64_t j = 0; j < H; j++) {
        const REAL dh = q->dh[j] + (q->dy ? q->dy[t * H + j] : 0);
        REAL *d = q->d + j, *dm = q->dm + j;
        GD_STEP("dh", dh);
        if (is_lstm) {
            const REAL i = a[j], f = a[H + j], g = a[2 * H + j], o = a[3 * H + j];
            const REAL tanh_c = GD_TANH(c[H + j]), dc = lstm_dc(q->dc[j], dh, o, tanh_c);
            dm[0] = d[0] = lstm_di(dc, g, i);
            dm[H] = d[H] = lstm_df(dc, c[j], f);
            dm[2 * H] = d[2 * H] = lstm_dg(dc, i, g);
            dm[3 * H] = d[3 * H] = lstm_do(dh, tanh_c, o);
            q->dc[j] = dc * f;
            q->dh[j] = 0;
            GD_STEP("dc", dc);
        } else {
            const REAL r = a[j], z = a[H + j], n = a[2 * H + j], dn = gru_dn(dh, z, n);
            dm[0] = d[0] = gru_dr(dn, m[2 * H + j], r);
            dm[H] = d[H] = gru_dz(dh, h[j], n, z);
            d[2 * H] = dn;
            dm[2 * H] = gru_dm(dn, r);
            q->dh[j] = dh * z;
            GD_STEP("dn", dn);
            GD_STEP("dz", d[H]);
            GD_STEP("dr", d[0]);
        }
    }
}

/* Memory for a sequence; false, with the error set, if there is none. */
static bool sequence_of(const gd_call *call, sequence *q)
{
    const gd_rnn_shape s = gd_rnn_shape_of(call);
    const int64_t each[] = {s.T * s.G, s.T * s.G, (s.T + 1) * s.H, (s.T + 1) * s.H, s.G, s.G,
                            s.H,       s.H};
    REAL **const of[] = {&q->a, &q->m, &q->h, &q->c, &q->d, &q->dm, &q->dh, &q->dc};
    *q = (sequence){
        .s = s, .w = gd_data(call->input[RNN_WEIGHT]), .bias = gd_data(call->input[RNN_BIAS])};
    for (int i = 0; i < 8; i++) {
        *of[i] = gd_call_scratch(call, (size_t)each[i] * sizeof(REAL));
        if (!*of[i]) return false;
    }
    return true;
}

/* Sequence b from its first state on. */
static void begin_sequence(const gd_call *call, sequence *q, int64_t b, bool is_lstm)
{
    const gd_rnn_shape s = q->s;
    const REAL *h = gd_data(call->input[RNN_STATE]);
    const REAL *c = is_lstm ? gd_data(call->input[RNN_CELL]) : NULL;
    q->x = (const REAL *)gd_data(call->input[RNN_GATES]) + b * s.T * s.G;
    for (int64_t j = 0; j < s.H; j++) {
        q->h[j] = h ? h[b * s.H + j] : 0;
        q->c[j] = c ? c[b * s.H + j] : 0;
    }
    go_forward(q, is_lstm);
}

static gd_status plain_forward(const gd_call *call, bool is_lstm)
{
    sequence q;
    if (!sequence_of(call, &q)) return gd_error_status(call->context);
    const gd_rnn_shape s = q.s;
    REAL *y = gd_data(call->output[0]), *last = is_lstm ? gd_data(call->output[1]) : NULL;
    for (int64_t b = 0; b < s.B; b++) {
        begin_sequence(call, &q, b, is_lstm);
        memcpy(y + b * s.T * s.H, q.h + s.H, (size_t)(s.T * s.H) * sizeof *y);
        if (last) memcpy(last + b * s.H, q.c + s.T * s.H, (size_t)s.H * sizeof *last);
    }
    return GD_OK;
}

static gd_status plain_backward(const gd_call *call, bool is_lstm)
{
    sequence q;
    if (!sequence_of(call, &q)) return gd_error_status(call->context);
    const gd_rnn_shape s = q.s;
    const REAL *dlast = is_lstm ? gd_dy(call, 1) : NULL;
    REAL *dx = gd_dx(call, RNN_GATES), *dw = gd_dx(call, RNN_WEIGHT), *db = gd_dx(call, RNN_BIAS);
    REAL *dstate = gd_dx(call, RNN_STATE), *dcell = is_lstm ? gd_dx(call, RNN_CELL) : NULL;
    for (int i = 0; i < call->inputs; i++)
        if (call->dinput[i] && !call->accumulate[i] && gd_tensor_count(call->dinput[i]))
            memset(gd_dx(call, i), 0, (size_t)gd_tensor_count(call->dinput[i]) * sizeof(REAL));
    for (int64_t b = 0; b < s.B; b++) {
        begin_sequence(call, &q, b, is_lstm);
        q.dy = gd_dy(call, 0) ? gd_dy(call, 0) + b * s.T * s.H : NULL;
        for (int64_t j = 0; j < s.H; j++) q.dh[j] = 0, q.dc[j] = dlast ? dlast[b * s.H + j] : 0;
        for (int64_t t = s.T - 1; t >= 0; t--) {
            step_gradient(&q, t, is_lstm);
            const REAL *h = q.h + t * s.H, *w = q.w, *dm = q.dm;
            for (int64_t k = 0; k < s.G; k++) {
                if (dx) dx[(b * s.T + t) * s.G + k] += q.d[k];
                if (db) db[k] += dm[k]; /* [dbias] */
                for (int64_t j = 0; j < s.H; j++) {
                    q.dh[j] += dm[k] * w[k * s.H + j];       /* [dstate] */
                    if (dw) dw[k * s.H + j] += dm[k] * h[j]; /* [dweight] */
                }
            }
        }
        for (int64_t j = 0; j < s.H; j++) {
            if (dstate) dstate[b * s.H + j] += q.dh[j];
            if (dcell) dcell[b * s.H + j] += q.dc[j];
        }
    }
    return GD_OK;
}

GD_KERNEL_OF_REAL(lstm_plain_forward, plain_forward(call, true))
GD_KERNEL_OF_REAL(lstm_plain_backward, plain_backward(call, true))
GD_KERNEL_OF_REAL(gru_plain_forward, plain_forward(call, false))
GD_KERNEL_OF_REAL(gru_plain_backward, plain_backward(call, false))
