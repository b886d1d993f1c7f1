/* plain_cpu.c - attention as README.md derives it: all scores of a query at once. It has the interface
 * of attention_*_cpu.c's kernels, which tests compare with it. */
#include "attention/tiles.h"

typedef struct plain {
    attention_sizes z;
    const attention_args *args;
    const gd_tensor *mask;
    attention_dropout dropout;
    heads q, k, v;
    REAL *p, *keep; /* [S]: the weights of a query, and dropout's factors */
} plain;

static gd_status open_plain(const gd_call *call, plain *a)
{
    *a = (plain){.z = attention_sizes_of(call), .args = call->args, .mask = call->input[3]};
    a->dropout = attention_dropout_of(call, &a->z);
    const int64_t keys = gd_round_up(a->z.S, 16);
    a->p = gd_call_scratch(call, 2 * (size_t)keys * sizeof *a->p);
    if (!a->p || input_heads(call, call->input[0], &a->q) ||
        input_heads(call, call->input[1], &a->k) || input_heads(call, call->input[2], &a->v))
        return gd_error_status(call->context);
    a->keep = a->p + keys;
    return GD_OK;
}

/* The offset of [b, h, i, j] in t, which is broadcast to [B, H, T, S]. */
static int64_t mask_at(const gd_tensor *t, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t index[] = {b, h, i, j}, *strides = gd_tensor_strides(t);
    const int ndim = gd_tensor_ndim(t);
    int64_t at = 0;
    for (int d = 0; d < ndim; d++)
        at += gd_tensor_shape(t)[d] == 1 ? 0 : index[4 - ndim + d] * strides[d];
    return at;
}

static bool sees(const plain *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t window = a->args->window;
    if (j < attention_first(&a->z, window, i)) return false;
    if (j >= attention_end(&a->z, a->args->causal, window, i)) return false;
    if (!a->mask || gd_tensor_dtype(a->mask) != GD_INT32) return true;
    return ((const int32_t *)gd_data(a->mask))[mask_at(a->mask, b, h, i, j)] != 0;
}

/* Computes p and keep of query i of head h; returns lse. A query that sees no key has weights 0. */
static REAL weights(const plain *a, int64_t b, int64_t h, int64_t i)
{
    const attention_sizes *z = &a->z;
    const REAL scale = (REAL)a->args->scale, *q = head_of(&a->q, b, i, h);
    const REAL *bias = a->mask && gd_tensor_dtype(a->mask) != GD_INT32 ? gd_data(a->mask) : NULL;
    REAL *p = a->p, most = -(REAL)INFINITY, total = 0;
    for (int64_t j = 0; j < z->S; j++) {
        const REAL *k = head_of(&a->k, b, j, h / z->G);
        REAL s = 0;
        for (int64_t d = 0; d < z->D; d++) s += scale * q[d] * k[d]; /* [score] */
        if (bias) s += bias[mask_at(a->mask, b, h, i, j)];           /* [bias] */
        p[j] = sees(a, b, h, i, j) ? s : -(REAL)INFINITY;
        GD_STEP("s", p[j]);
        if (!(p[j] <= most)) most = p[j];
        a->keep[j] = 1;
    }
    for (int64_t j = 0; j < z->S; j++) total += GD_MATH(exp)(p[j] - most);
    const REAL lse = most + GD_MATH(log)(total);
    GD_STEP("lse", lse);
    for (int64_t j = 0; j < z->S; j++) {
        p[j] = most == -(REAL)INFINITY ? 0 : GD_MATH(exp)(p[j] - lse); /* [p] */
        GD_STEP("p", p[j]);
    }
    if (a->dropout.threshold)
        dropout_row(a->keep, &a->dropout, b * z->H + h, i, 0, gd_round_up(z->S, 16));
    return lse;
}

gd_status GD_REAL_NAME(attention_plain_forward)(const gd_call *call)
{
    plain a;
    if (open_plain(call, &a)) return gd_error_status(call->context);
    const attention_sizes *z = &a.z;
    const heads out = packed_heads(call->output[0]);
    REAL *lse = gd_data(call->save[0]);
    for (int64_t row = 0; row < z->B * z->H * z->T; row++) {
        const int64_t b = row / z->T / z->H, h = row / z->T % z->H, i = row % z->T;
        const REAL l = weights(&a, b, h, i);
        REAL *y = head_of(&out, b, i, h);
        if (lse) lse[row] = l;
        for (int64_t e = 0; e < z->E; e++) {
            y[e] = 0;
            for (int64_t j = 0; j < z->S; j++)
                y[e] += a.keep[j] * a.p[j] * head_of(&a.v, b, j, h / z->G)[e]; /* [y] */
        }
    }
    return GD_OK;
}

/* dx, cleared unless it is added to. */
static heads opened(const gd_call *call, int i)
{
    const gd_tensor *dx = call->dinput[i];
    if (!dx) return (heads){0};
    if (!call->accumulate[i] && gd_tensor_count(dx) > 0)
        memset(gd_data(dx), 0, (size_t)gd_tensor_count(dx) * sizeof(REAL));
    return i < 3 ? packed_heads(dx) : (heads){.data = gd_data(dx)};
}

gd_status GD_REAL_NAME(attention_plain_backward)(const gd_call *call)
{
    plain a;
    if (open_plain(call, &a)) return gd_error_status(call->context);
    const attention_sizes *z = &a.z;
    const heads ys = packed_heads(call->output[0]), dys = packed_heads(call->doutput[0]);
    const heads dqs = opened(call, 0), dks = opened(call, 1), dvs = opened(call, 2);
    REAL *dbias = opened(call, 3).data;
    const REAL scale = (REAL)a.args->scale;
    for (int64_t row = 0; row < z->B * z->H * z->T; row++) {
        const int64_t b = row / z->T / z->H, h = row / z->T % z->H, i = row % z->T, kv = h / z->G;
        const REAL *q = head_of(&a.q, b, i, h), *y = head_of(&ys, b, i, h);
        const REAL *dy = head_of(&dys, b, i, h);
        REAL *dq = dqs.data ? head_of(&dqs, b, i, h) : NULL, delta = 0;
        weights(&a, b, h, i);
        for (int64_t e = 0; e < z->E; e++) delta += dy[e] * y[e]; /* [delta] */
        GD_STEP("delta", delta);
        for (int64_t j = 0; j < z->S; j++) {
            const REAL *k = head_of(&a.k, b, j, kv), *v = head_of(&a.v, b, j, kv);
            const REAL p = a.p[j], keep = a.keep[j];
            REAL *dk = dks.data ? head_of(&dks, b, j, kv) : NULL, dp = 0;
            REAL *dv = dvs.data ? head_of(&dvs, b, j, kv) : NULL;
            for (int64_t e = 0; e < z->E; e++) dp += keep * dy[e] * v[e]; /* [dp] */
            GD_STEP("dp", dp);
            GD_STEP("ds", p == 0 ? 0 : p * (dp - delta));
            if (!sees(&a, b, h, i, j)) continue;
            const REAL ds = p * (dp - delta);                                    /* [ds] */
            for (int64_t d = 0; dq && d < z->D; d++) dq[d] += scale * ds * k[d]; /* [dq] */
            for (int64_t d = 0; dk && d < z->D; d++) dk[d] += scale * ds * q[d]; /* [dk] */
            for (int64_t e = 0; dv && e < z->E; e++) dv[e] += keep * p * dy[e];  /* [dv] */
            if (dbias) dbias[mask_at(call->dinput[3], b, h, i, j)] += ds;        /* [dbias] */
        }
    }
    return GD_OK;
}
