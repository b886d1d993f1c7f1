/* plain_cpu.c - lstm and gru as README.md derives them: a loop over steps, with the products
 * written out. It has the interface of rnn_cpu.c's kernels, which tests compare with it, but saves
 * nothing: the backward goes forward again. */
#include "kernel_cpu.h"
#include "rnn/formula.h"
#include "rnn/rnn.h"

/* A sequence: gates x [T, G], these after their functions, a, the state's part of them, m, and h
 * and c [T + 1, H], which begin a step earlier. Of one step: the gradients d of x and dm of m [G],
 * which differ in gru's n alone, and dh and dc [H] of what the step leaves. */
typedef struct values {
    const REAL *x;
    REAL *a, *m, *h, *c, *d, *dm, *dh, *dc;
} values;

/* Unit j of step t is where these now point, and its gates lie H apart. */
static values unit_of(values q, gd_rnn_shape s, int64_t t, int64_t j)
{
    q.x += t * s.G + j, q.a += t * s.G + j, q.m += t * s.G + j;
    q.h += t * s.H + j, q.c += t * s.H + j;
    q.d += j, q.dm += j, q.dh += j, q.dc += j;
    return q;
}

/* ---- A unit of a step ----------------------------------------------------------------------- */

typedef void unit_task(values u, int64_t H);

static void lstm(values u, int64_t H)
{
    for (int64_t k = 0; k < LSTM_GATE_COUNT; k++) {
        const REAL z = u.x[k * H] + u.m[k * H];
        u.a[k * H] = k == LSTM_G ? GD_TANH(z) : sigmoid(z);
        GD_STEP("gates", u.a[k * H]);
    }
    u.c[H] = lstm_cell(u.a[0], u.a[H], u.a[2 * H], u.c[0]);
    u.h[H] = u.a[3 * H] * GD_TANH(u.c[H]);
    GD_STEP("c", u.c[H]);
}

static void gru(values u, int64_t H)
{
    const REAL r = sigmoid(u.x[0] + u.m[0]), z = sigmoid(u.x[H] + u.m[H]);
    const REAL n = GD_TANH(u.x[2 * H] + r * u.m[2 * H]);
    u.a[0] = r, u.a[H] = z, u.a[2 * H] = n;
    u.h[H] = gru_state(z, n, u.h[0]);
    GD_STEP("r", r);
    GD_STEP("z", z);
    GD_STEP("n", n);
}

/* d and dm from dh and dc, and of these what goes past the gates to the step before. */
static void lstm_gradient(values u, int64_t H)
{
    const REAL i = u.a[0], f = u.a[H], g = u.a[2 * H], o = u.a[3 * H], tanh_c = GD_TANH(u.c[H]);
    const REAL dh = u.dh[0], dc = lstm_dc(u.dc[0], dh, o, tanh_c);
    u.dm[0] = u.d[0] = lstm_di(dc, g, i);
    u.dm[H] = u.d[H] = lstm_df(dc, u.c[0], f);
    u.dm[2 * H] = u.d[2 * H] = lstm_dg(dc, i, g);
    u.dm[3 * H] = u.d[3 * H] = lstm_do(dh, tanh_c, o);
    u.dc[0] = dc * f;
    u.dh[0] = 0;
    GD_STEP("dh", dh);
    GD_STEP("dc", dc);
}

static void gru_gradient(values u, int64_t H)
{
    const REAL r = u.a[0], z = u.a[H], n = u.a[2 * H], dh = u.dh[0], dn = gru_dn(dh, z, n);
    u.dm[0] = u.d[0] = gru_dr(dn, u.m[2 * H], r);
    u.dm[H] = u.d[H] = gru_dz(dh, u.h[0], n, z);
    u.d[2 * H] = dn;
    u.dm[2 * H] = gru_dm(dn, r);
    u.dh[0] = dh * z;
    GD_STEP("dh", dh);
    GD_STEP("dn", dn);
    GD_STEP("dz", u.d[H]);
    GD_STEP("dr", u.d[0]);
}

/* ---- Sequences ------------------------------------------------------------------------------ */

static void go_forward(const gd_call *call, gd_rnn_shape s, values q, unit_task *unit)
{
    const REAL *w = gd_data(call->input[RNN_WEIGHT]), *bias = gd_data(call->input[RNN_BIAS]);
    for (int64_t t = 0; t < s.T; t++) {
        REAL *m = q.m + t * s.G;
        for (int64_t k = 0; k < s.G; k++) {
            m[k] = bias ? bias[k] : 0;
            for (int64_t j = 0; j < s.H; j++) m[k] += w[k * s.H + j] * q.h[t * s.H + j];
        }
        for (int64_t j = 0; j < s.H; j++) unit(unit_of(q, s, t, j), s.H);
    }
}

/* Sequence b, with dh and dc of its end. */
static void go_back(const gd_call *call, gd_rnn_shape s, values q, unit_task *gradient, int64_t b)
{
    const REAL *w = gd_data(call->input[RNN_WEIGHT]), *dy = gd_dy(call, 0), *dm = q.dm;
    REAL *dx = gd_dx(call, RNN_GATES), *dw = gd_dx(call, RNN_WEIGHT), *db = gd_dx(call, RNN_BIAS);
    for (int64_t at = (b + 1) * s.T - 1, t = s.T - 1; t >= 0; t--, at--) {
        const REAL *h = q.h + t * s.H;
        for (int64_t j = 0; j < s.H; j++) {
            q.dh[j] += dy ? dy[at * s.H + j] : 0;
            gradient(unit_of(q, s, t, j), s.H);
        }
        for (int64_t k = 0; k < s.G; k++) {
            if (dx) dx[at * s.G + k] += q.d[k];
            if (db) db[k] += dm[k]; /* [dbias] */
            for (int64_t j = 0; j < s.H; j++) {
                q.dh[j] += dm[k] * w[k * s.H + j];       /* [dstate] */
                if (dw) dw[k * s.H + j] += dm[k] * h[j]; /* [dweight] */
            }
        }
    }
}

/* Forward and, where there is a gradient, backward. */
static gd_status plain(const gd_call *call, unit_task *unit, unit_task *gradient)
{
    const gd_rnn_shape s = gd_rnn_shape_of(call);
    const int64_t TG = s.T * s.G, TH = s.T * s.H, H = s.H;
    const bool cell = call->inputs == LSTM_INPUTS;
    const REAL *state = gd_data(call->input[RNN_STATE]), *dlast = cell ? gd_dy(call, 1) : NULL;
    const REAL *first = cell ? gd_data(call->input[RNN_CELL]) : NULL;
    REAL *y = gd_data(call->output[0]), *last = cell ? gd_data(call->output[1]) : NULL,
         *dx[LSTM_INPUTS];
    REAL *a = gd_call_scratch(call, (size_t)(2 * (TG + TH + s.G) + 4 * H) * sizeof *a);
    if (!a) return gd_error_status(call->context);
    values q = {.a = a, .m = a + TG, .h = a + 2 * TG, .d = a + 2 * (TG + TH + H)};
    q.c = q.h + TH + H, q.dm = q.d + s.G, q.dh = q.dm + s.G, q.dc = q.dh + H;
    for (int i = 0; i < call->inputs; i++) dx[i] = gd_dx_sum(call, i);
    for (int64_t b = 0; b < s.B; b++) {
        q.x = (const REAL *)gd_data(call->input[RNN_GATES]) + b * TG;
        for (int64_t j = 0; j < H; j++) {
            q.h[j] = (REAL)gd_or(state, b * H + j, 0), q.c[j] = (REAL)gd_or(first, b * H + j, 0);
            q.dh[j] = 0, q.dc[j] = (REAL)gd_or(dlast, b * H + j, 0);
        }
        go_forward(call, s, q, unit);
        if (gradient) go_back(call, s, q, gradient, b);
        for (int64_t j = 0; !gradient && j < TH; j++) y[b * TH + j] = q.h[H + j];
        for (int64_t j = 0; j < H; j++) {
            if (last && !gradient) last[b * H + j] = q.c[TH + j];
            if (dx[RNN_STATE]) dx[RNN_STATE][b * H + j] += q.dh[j];
            if (cell && dx[RNN_CELL]) dx[RNN_CELL][b * H + j] += q.dc[j];
        }
    }
    return GD_OK;
}

GD_KERNELS_OF_REAL(lstm_plain, plain(call, lstm, NULL), plain(call, lstm, lstm_gradient))
GD_KERNELS_OF_REAL(gru_plain, plain(call, gru, NULL), plain(call, gru, gru_gradient))
