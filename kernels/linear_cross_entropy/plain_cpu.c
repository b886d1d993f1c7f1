/* plain_cpu.c - linear_cross_entropy as README.md derives it, row by row. It has the interface of
 * linear_cross_entropy_cpu.c's kernels, which tests compare with it, but saves nothing: the
 * backward computes the logits again. */
#include "cross_entropy/cross_entropy.h"
#include "linear_cross_entropy/linear_cross_entropy.h"
#include "kernel_cpu.h"

/* d = softmax(l) - [j = t] of row i, for its logits l; returns its loss. */
static double row_d(const gd_call *call, int64_t i, double *d)
{
    const head_sizes s = head_sizes_of(call);
    const REAL *x = (const REAL *)gd_data(call->input[0]) + i * s.K, *w = gd_data(call->input[1]);
    const int64_t t = ((const int32_t *)gd_data(call->input[2]))[i];
    double *l = d, largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < s.V; j++) {
        l[j] = 0;
        for (int64_t k = 0; k < s.K; k++) l[j] += (double)x[k] * (double)w[j * s.K + k];
        GD_STEP("l", l[j]);
        largest = fmax(largest, l[j]);
    }
    for (int64_t j = 0; j < s.V; j++) sum += exp(l[j] - largest);
    const double m = largest + log(sum), loss = m - l[t];
    for (int64_t j = 0; j < s.V; j++) {
        d[j] = exp(l[j] - m) - (j == t); /* [d] */
        GD_STEP("d", d[j]);
    }
    return loss;
}

/* Forward and, where there is a dloss, backward. */
static gd_status plain(const gd_call *call)
{
    const head_sizes s = head_sizes_of(call);
    const REAL *x = gd_data(call->input[0]), *w = gd_data(call->input[1]), *dy = gd_dy(call, 0);
    const int32_t *targets = gd_data(call->input[2]);
    REAL *dx = gd_dx_sum(call, 0), *dw = gd_dx_sum(call, 1);
    double *d = gd_call_scratch(call, (size_t)s.V * sizeof *d), loss = 0;
    int64_t counting;
    const gd_status status = targets_counting(call, targets, s.M, s.V, &counting);
    if (status || !d) return status ? status : GD_ERROR_MEMORY;
    const double r = target_factor(call->args, counting), dloss = gd_or(dy, 0, 0);
    const double alpha = dloss * r; /* [alpha] */
    GD_STEP("alpha", alpha);
    for (int64_t i = 0; i < s.M; i++) {
        if (!target_counts(call->args, targets[i])) continue;
        loss += row_d(call, i, d);
        for (int64_t j = 0; j < s.V; j++)
            for (int64_t k = 0; k < s.K; k++) {
                if (dx) dx[i * s.K + k] += (REAL)(alpha * d[j] * (double)w[j * s.K + k]); /* [dx] */
                if (dw) dw[j * s.K + k] += (REAL)(alpha * d[j] * (double)x[i * s.K + k]); /* [dw] */
            }
    }
    if (!dy) *(REAL *)gd_data(call->output[0]) = (REAL)(loss * r);
    return GD_OK;
}

GD_KERNELS_OF_REAL(linear_cross_entropy_plain, plain(call), plain(call))
