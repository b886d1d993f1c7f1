/* plain_cpu.c - attention as README.md derives it: all scores of a query at once. It has the
 * interface of attention_*_cpu.c's kernels, which tests compare with it. */
#include "attention/tiles.h"
#include "kernel_cpu.h"

typedef struct plain {
    attention_sizes z;
    const attention_args *args;
    const gd_tensor *mask;
    attention_dropout dropout;
    heads q, k, v, y, dy, dq, dk, dv;
    REAL *p, *keep; /* [S]: the weights of a query, and dropout's factors */
} plain;

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

/* The row, or NULL of a gradient that is not wanted. */
static REAL *row_of(const heads *x, int64_t b, int64_t row, int64_t head)
{
    return x->data ? head_of(x, b, row, head) : NULL;
}

/* What query i of head h adds to the gradients. */
static void query_gradient(const plain *a, const gd_call *call, int64_t b, int64_t h, int64_t i)
{
    const attention_sizes *z = &a->z;
    const REAL scale = (REAL)a->args->scale, *q = head_of(&a->q, b, i, h);
    const REAL *y = head_of(&a->y, b, i, h), *dy = head_of(&a->dy, b, i, h);
    REAL *dq = row_of(&a->dq, b, i, h), *dbias = gd_dx(call, 3), delta = 0;
    for (int64_t e = 0; e < z->E; e++) delta += dy[e] * y[e]; /* [delta] */
    GD_STEP("delta", delta);
    for (int64_t j = 0; j < z->S; j++) {
        const int64_t kv = h / z->G;
        const REAL *k = head_of(&a->k, b, j, kv), *v = head_of(&a->v, b, j, kv);
        REAL *dk = row_of(&a->dk, b, j, kv), *dv = row_of(&a->dv, b, j, kv);
        REAL p = a->p[j], keep = a->keep[j], dp = 0;
        for (int64_t e = 0; e < z->E; e++) dp += keep * dy[e] * v[e]; /* [dp] */
        GD_STEP("dp", dp);
        GD_STEP("ds", p == 0 ? 0 : p * (dp - delta));
        if (!sees(a, b, h, i, j)) continue;
        const REAL ds = p * (dp - delta);                                    /* [ds] */
        for (int64_t d = 0; dq && d < z->D; d++) dq[d] += scale * ds * k[d]; /* [dq] */
        for (int64_t d = 0; dk && d < z->D; d++) dk[d] += scale * ds * q[d]; /* [dk] */
        for (int64_t e = 0; dv && e < z->E; e++) dv[e] += keep * p * dy[e];  /* [dv] */
        if (dbias) dbias[mask_at(call->dinput[3], b, h, i, j)] += ds;        /* [dbias] */
    }
}

static heads gradient_heads(const gd_call *call, int i)
{
    return gd_dx_sum(call, i) ? packed_heads(call->dinput[i]) : (heads){0};
}

/* Forward, and of a call with a dy the backward. */
static gd_status attend(const gd_call *call)
{
    plain a = {.z = attention_sizes_of(call), .args = call->args, .mask = call->input[3]};
    const attention_sizes *z = &a.z;
    REAL *const lse = gd_data(call->save[0]);
    a.dropout = attention_dropout_of(call, z);
    a.p = gd_call_scratch(call, 2 * (size_t)gd_round_up(z->S, 16) * sizeof *a.p);
    if (!a.p || input_heads(call, call->input[0], &a.q) ||
        input_heads(call, call->input[1], &a.k) || input_heads(call, call->input[2], &a.v))
        return gd_error_status(call->context);
    a.keep = a.p + gd_round_up(z->S, 16);
    a.y = packed_heads(call->output[0]);
    if (call->doutput) a.dy = packed_heads(call->doutput[0]);
    a.dq = gradient_heads(call, 0), a.dk = gradient_heads(call, 1), a.dv = gradient_heads(call, 2);
    gd_dx_sum(call, 3);
    for (int64_t row = 0; row < z->B * z->H * z->T; row++) {
        const int64_t b = row / z->T / z->H, h = row / z->T % z->H, i = row % z->T;
        const REAL l = weights(&a, b, h, i);
        if (call->doutput) {
            query_gradient(&a, call, b, h, i);
            continue;
        }
        REAL *y = head_of(&a.y, b, i, h);
        if (lse) lse[row] = l;
        for (int64_t e = 0; e < z->E; e++) {
            y[e] = 0;
            for (int64_t j = 0; j < z->S; j++)
                y[e] += a.keep[j] * a.p[j] * head_of(&a.v, b, j, h / z->G)[e]; /* [y] */
        }
    }
    return GD_OK;
}

GD_KERNELS_OF_REAL(attention_plain, attend(call), attend(call))
