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
    double factor;         /* of each row's loss */
    double *log_p, *share; /* of a row [V]: log p_ij, and c_ij */
} rows;

/* The part of class j in row i, without the weight of the class. */
static double part_of(const rows *r, int64_t i, int64_t j)
{
    const double eps = r->args->smoothing;
    const double q = r->given ? (double)r->given[i * r->V + j] : j == r->targets[i];
    return cross_entropy_part(q, 1 - eps, eps / (double)r->V);
}

/* The divisor of the mean is the sum of the targets' weights, or the number of rows. */
static rows rows_of(const gd_call *call)
{
    const gd_tensor *targets = call->input[1];
    const bool numbers = gd_tensor_dtype(targets) == GD_INT32;
    rows r = {.args = call->args,
              .x = gd_data(call->input[0]),
              .given = numbers ? NULL : gd_data(targets),
              .weight = gd_data(call->input[2]),
              .targets = numbers ? gd_data(targets) : NULL,
              .count = gd_row_count(call->input[0]),
              .V = gd_last_dim(call->input[0])};
    double divisor = 0;
    for (int64_t i = 0; i < r.count; i++)
        if (!numbers || target_counts(r.args, r.targets[i]))
            divisor += numbers ? gd_or(r.weight, r.targets[i], 1) : 1;
    r.factor = r.args->reduction == GD_MEAN ? 1 / divisor : 1;
    r.log_p = gd_call_scratch(call, 2 * (size_t)r.V * sizeof *r.log_p);
    r.share = r.log_p ? r.log_p + r.V : NULL;
    return r;
}

/* The loss of row i, after its log_p and share. */
static double row_loss(const rows *r, int64_t i)
{
    const REAL *x = r->x + i * r->V;
    double m = -INFINITY, sum = 0, loss = 0;
    for (int64_t j = 0; j < r->V; j++) m = (double)x[j] > m ? (double)x[j] : m;
    for (int64_t j = 0; j < r->V; j++) sum += exp((double)x[j] - m);
    GD_STEP("m", m);
    GD_STEP("l", log(sum));
    for (int64_t j = 0; j < r->V; j++) {
        const double part = part_of(r, i, j);
        r->log_p[j] = (double)x[j] - m - log(sum);
        r->share[j] = part == 0 ? 0 : cross_entropy_share(gd_or(r->weight, j, 1), part);
        if (part != 0) loss -= r->share[j] * r->log_p[j];
        GD_STEP("p", exp(r->log_p[j]));
    }
    return loss;
}

/* Forward and, where there is a dloss, backward. */
static gd_status plain(const gd_call *call)
{
    const rows r = rows_of(call);
    const bool none = r.args->reduction == GD_NONE;
    const REAL *dloss = gd_dy(call, 0);
    REAL *out = dloss ? NULL : gd_data(call->output[0]), *dx = gd_dx_sum(call, 0);
    REAL *dq = gd_dx_sum(call, 1), *dw = gd_dx_sum(call, 2);
    double total = 0;
    if (!r.log_p) return gd_error_status(call->context);
    for (int64_t i = 0; i < r.count; i++) {
        const bool counts = !r.targets || target_counts(r.args, r.targets[i]);
        const double loss = counts ? row_loss(&r, i) : 0;
        if (out && none) out[i] = (REAL)loss;
        total += loss;
        if (out || !counts) continue;
        const double g = r.factor * (double)dloss[none ? i : 0];
        double C = 0;
        GD_STEP("scale", g);
        for (int64_t j = 0; j < r.V; j++) C += r.share[j];
        for (int64_t j = 0; j < r.V; j++) {
            const double log_p = r.log_p[j], pull = cross_entropy_pull(C, log_p);
            const double on = (1 - r.args->smoothing) * gd_or(r.weight, j, 1);
            if (dx) dx[i * r.V + j] += (REAL)cross_entropy_soft_dx(g, pull, r.share[j]);
            if (dq) dq[i * r.V + j] += (REAL)cross_entropy_soft_dq(g, on, log_p);
            if (dw) dw[j] += (REAL)cross_entropy_soft_dw(g, part_of(&r, i, j), log_p);
        }
    }
    if (out && !none) *out = (REAL)(total * r.factor);
    return GD_OK;
}

GD_KERNELS_OF_REAL(cross_entropy_plain, plain(call), plain(call))
