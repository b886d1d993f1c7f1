/* planted.c - wrong backwards of lstm and gru, through time. */
#include "planted.h"
#include "rnn/rnn.h"

#include <math.h>
#include <string.h>

enum {
    RNN_RIGHT,
    RNN_NO_TIME,    /* nothing is passed on to the step before */
    RNN_LAST_STEP,  /* dweight of the last step alone */
    RNN_NO_RESET,   /* gru: the state's part of n without r */
    RNN_NO_PAST,    /* gru: dh z is forgotten */
    RNN_NO_FORGET,  /* lstm: dc is passed on without f */
    RNN_CELL_SLOPE, /* lstm: 1 - c^2 instead of 1 - tanh(c)^2 */
    RNN_NO_CELL     /* lstm: what later steps pass on to c is forgotten */
};

enum { MOST = 64 };

/* The state before step t. */
static double before(const planted_math *m, const gd_rnn_shape *s, int64_t b, int64_t t, int64_t j)
{
    if (t > 0) return m->y[0][(b * s->T + t - 1) * s->H + j];
    return m->x[RNN_STATE][b * s->H + j];
}

/* What arrives at element i of output o. */
static double arriving(const planted_math *m, int o, int64_t i)
{
    return m->dy[o] ? m->dy[o][i] : 0;
}

/* Gradients of a row at a step: of the gates, for the input's part u and for the state's v; of the
 * state and the cell, which the gates change to what goes on past them. */
typedef struct gate_gradients {
    double dh[MOST], dc[MOST], u[MOST], v[MOST];
} gate_gradients;

static void lstm_gates(const planted_math *m, const gd_rnn_shape *s, int64_t b, int64_t t,
                       gate_gradients *d)
{
    const int64_t H = s->H, at = b * s->T + t;
    const double *a = m->save[0] + at * s->G, *c = m->save[1] + at * H;
    const double *old = t ? c - H : m->x[RNN_CELL] + b * H;
    for (int64_t j = 0; j < H; j++) {
        const double i = a[j], f = a[H + j], g = a[2 * H + j], o = a[3 * H + j], h = tanh(c[j]);
        const double all = d->dh[j] + arriving(m, 0, at * H + j);
        const double slope = m->variant == RNN_CELL_SLOPE ? 1 - c[j] * c[j] : 1 - h * h;
        const double later = m->variant == RNN_NO_CELL && t + 1 < s->T ? 0 : d->dc[j];
        const double cell = later + all * o * slope;
        d->u[j] = cell * g * i * (1 - i);
        d->u[H + j] = cell * old[j] * f * (1 - f);
        d->u[2 * H + j] = cell * i * (1 - g * g);
        d->u[3 * H + j] = all * h * o * (1 - o);
        d->dc[j] = m->variant == RNN_NO_FORGET ? cell : cell * f;
        d->dh[j] = 0;
    }
    memcpy(d->v, d->u, sizeof d->v);
}

static void gru_gates(const planted_math *m, const gd_rnn_shape *s, int64_t b, int64_t t,
                      gate_gradients *d)
{
    const int64_t H = s->H, at = b * s->T + t;
    const double *a = m->save[0] + at * s->G, *part = m->save[1] + at * H;
    for (int64_t j = 0; j < H; j++) {
        const double r = a[j], z = a[H + j], n = a[2 * H + j];
        const double all = d->dh[j] + arriving(m, 0, at * H + j), dn = all * (1 - z) * (1 - n * n);
        d->v[j] = d->u[j] = dn * part[j] * r * (1 - r);
        d->v[H + j] = d->u[H + j] = all * (before(m, s, b, t, j) - n) * z * (1 - z);
        d->u[2 * H + j] = dn;
        d->v[2 * H + j] = m->variant == RNN_NO_RESET ? dn : dn * r;
        d->dh[j] = m->variant == RNN_NO_PAST ? 0 : all * z;
    }
}

/* One row from the last step to the first. */
static void through_time(const planted_math *m, bool lstm, int64_t b)
{
    const gd_rnn_shape s = gd_rnn_shape_of(m->call);
    const double *W = m->x[RNN_WEIGHT];
    gate_gradients d = {{0}, {0}, {0}, {0}};
    for (int64_t j = 0; lstm && j < s.H; j++) d.dc[j] = arriving(m, 1, b * s.H + j);
    for (int64_t t = s.T - 1; t >= 0; t--) {
        if (lstm)
            lstm_gates(m, &s, b, t, &d);
        else
            gru_gates(m, &s, b, t, &d);
        for (int64_t k = 0; k < s.G; k++) {
            m->g[RNN_GATES][(b * s.T + t) * s.G + k] = d.u[k];
            m->g[RNN_BIAS][k] += d.v[k];
            for (int64_t j = 0; j < s.H; j++) {
                d.dh[j] += d.v[k] * W[k * s.H + j];
                if (m->variant == RNN_LAST_STEP && t + 1 < s.T) continue;
                m->g[RNN_WEIGHT][k * s.H + j] += d.v[k] * before(m, &s, b, t, j);
            }
        }
        if (m->variant == RNN_NO_TIME && t > 0) memset(&d, 0, sizeof d);
    }
    memcpy(m->g[RNN_STATE] + b * s.H, d.dh, (size_t)s.H * sizeof *d.dh);
    if (lstm) memcpy(m->g[RNN_CELL] + b * s.H, d.dc, (size_t)s.H * sizeof *d.dc);
}

static void lstm(planted_math *m)
{
    for (int64_t b = 0; b < gd_rnn_shape_of(m->call).B; b++) through_time(m, true, b);
}

static void gru(planted_math *m)
{
    for (int64_t b = 0; b < gd_rnn_shape_of(m->call).B; b++) through_time(m, false, b);
}

#define RNN(op, number, what, words)                                              \
    {                                                                             \
#op, "sequence", what, .variant = number, .formula = op, .finding = words \
    }

const planted_bug planted_rnn[] = {
    RNN(lstm, RNN_RIGHT, "nothing", NULL),
    RNN(gru, RNN_RIGHT, "nothing", NULL),
    RNN(lstm, RNN_NO_TIME, "no gradient through time", "the gradient is zero throughout"),
    RNN(gru, RNN_NO_TIME, "no gradient through time", "only the first counts: overwritten"),
    RNN(lstm, RNN_LAST_STEP, "dweight of the last step", NULL),
    RNN(gru, RNN_LAST_STEP, "dweight of the last step", "does not use dy[0, 0, 0]"),
    RNN(gru, RNN_NO_RESET, "r is forgotten in the state's part of n", NULL),
    RNN(gru, RNN_NO_PAST, "dh z is forgotten", NULL),
    RNN(lstm, RNN_NO_FORGET, "dc is passed on without f", NULL),
    RNN(lstm, RNN_CELL_SLOPE, "1 - c^2 for the slope of tanh(c)", NULL),
    RNN(lstm, RNN_NO_CELL, "dc of later steps is forgotten", NULL),
    {0},
};
