/* plain_cpu.c - cross_entropy as README.md derives it, from the shares c_ij of the classes. It has the
 * interface of the kernels of cross_entropy_cpu.c and cross_entropy_soft_cpu.c, which tests compare with
 * it, but saves nothing. */
#include "cross_entropy/formula.h"
#include "cross_entropy/targets.h"
#include "loops.h"

typedef struct rows {
    const gd_cross_entropy_args *args;
    const REAL *x, *given, *weight; /* given, the probabilities, or NULL: one target a row */
    const int32_t *targets;
    int64_t count, V;
    double factor; /* of each row's loss */
} rows;

static double weight_of(const rows *r, int64_t j)
{
    return r->weight ? (double)r->weight[j] : 1;
}

/* The divisor of the mean is the sum of the targets' weights, or the number of rows. */
static rows rows_of(const gd_call *call)
{
    const bool numbers = gd_tensor_dtype(call->input[1]) == GD_INT32;
    rows r = {.args = call->args,
              .x = gd_data(call->input[0]),
              .given = numbers ? NULL : gd_data(call->input[1]),
              .weight = gd_data(call->input[2]),
              .targets = numbers ? gd_data(call->input[1]) : NULL,
              .count = gd_row_count(call->input[0]),
              .V = gd_last_dim(call->input[0])};
    double divisor = numbers ? 0 : (double)r.count;
    for (int64_t i = 0; numbers && i < r.count; i++)
        if (target_counts(r.args, r.targets[i])) divisor += weight_of(&r, r.targets[i]);
    r.factor = r.args->reduction == GD_MEAN ? 1 / divisor : 1;
    return r;
}

/* log p_ij and the part of class j in row i, [V]; false if the row is ignored. */
static bool row(const rows *r, int64_t i, double *log_p, double *part)
{
    const REAL *x = r->x + i * r->V;
    const double eps = r->args->smoothing;
    double m = -INFINITY, sum = 0;
    if (r->targets && !target_counts(r->args, r->targets[i])) return false;
    for (int64_t j = 0; j < r->V; j++) m = (double)x[j] > m ? (double)x[j] : m;
    for (int64_t j = 0; j < r->V; j++) sum += exp((double)x[j] - m);
    GD_STEP("m", m);
    GD_STEP("l", log(sum));
    for (int64_t j = 0; j < r->V; j++) {
        const double q = r->given ? (double)r->given[i * r->V + j] : j == r->targets[i];
        log_p[j] = (double)x[j] - m - log(sum);
        GD_STEP("p", exp(log_p[j]));
        part[j] = cross_entropy_part(q, 1 - eps, eps / (double)r->V);
    }
    return true;
}

static double share_of(const rows *r, const double *part, int64_t j)
{
    return part[j] == 0 ? 0 : cross_entropy_share(weight_of(r, j), part[j]);
}

static gd_status plain_forward(const gd_call *call)
{
    const rows r = rows_of(call);
    const bool none = r.args->reduction == GD_NONE;
    REAL *out = gd_data(call->output[0]);
    double *log_p = gd_call_scratch(call, 2 * (size_t)r.V * sizeof *log_p), total = 0;
    if (!log_p) return gd_error_status(call->context);
    for (int64_t i = 0; i < r.count; i++) {
        double *part = log_p + r.V, loss = 0;
        const bool counts = row(&r, i, log_p, part);
        for (int64_t j = 0; counts && j < r.V; j++)
            if (part[j] != 0) loss -= share_of(&r, part, j) * log_p[j];
        total += loss;
        if (none) out[i] = (REAL)loss;
    }
    if (!none) *out = (REAL)(total * r.factor);
    return GD_OK;
}

static gd_status plain_backward(const gd_call *call)
{
    const rows r = rows_of(call);
    const REAL *dloss = gd_dy(call, 0);
    REAL *const to[] = {gd_dx(call, 0), gd_dx(call, 1), gd_dx(call, 2)};
    REAL *dx = to[0], *dq = to[1], *dw = to[2];
    double *log_p = gd_call_scratch(call, 2 * (size_t)r.V * sizeof *log_p);
    if (!log_p) return gd_error_status(call->context);
    for (int k = 0; k < 3; k++)
        for (int64_t e = 0; to[k] && !gd_adds(call, k) && e < gd_tensor_count(call->dinput[k]); e++)
            to[k][e] = 0;
    for (int64_t i = 0; i < r.count; i++) {
        double *part = log_p + r.V, C = 0;
        const double g = r.factor * (double)dloss[r.args->reduction == GD_NONE ? i : 0];
        if (!row(&r, i, log_p, part)) continue;
        GD_STEP("scale", g);
        for (int64_t j = 0; j < r.V; j++) C += share_of(&r, part, j);
        for (int64_t j = 0; j < r.V; j++) {
            const double pull = cross_entropy_pull(C, log_p[j]), c = share_of(&r, part, j);
            const double on = (1 - r.args->smoothing) * weight_of(&r, j);
            if (dx) dx[i * r.V + j] += (REAL)cross_entropy_soft_dx(g, pull, c);
            if (dq) dq[i * r.V + j] += (REAL)cross_entropy_soft_dq(g, on, log_p[j]);
            if (dw) dw[j] += (REAL)cross_entropy_soft_dw(g, part[j], log_p[j]);
        }
    }
    return GD_OK;
}

GD_KERNEL_OF_REAL(cross_entropy_plain_forward, plain_forward(call))
GD_KERNEL_OF_REAL(cross_entropy_plain_backward, plain_backward(call))
