/* plain_cpu.c - cross_entropy as README.md derives it, from the shares c_ij of the classes: with
 * class weights, label smoothing, probabilities, a loss for each row. Where a call has none of
 * these, it is what tests compare the shorter kernels of cross_entropy_cpu.c with. */
#include "cross_entropy/rows_cpu.h"
#include "softmax/sum_exp.h"

/* The share without the weight. */
static double part_of(const loss_rows *s, int64_t i, int64_t j)
{
    double q = s->targets ? j == s->targets[i] : (double)s->given[i * s->vocab + j];
    return cross_entropy_part(q, s->on, s->off);
}

/* c_ij */
static double share_of(const loss_rows *s, int64_t i, int64_t j)
{
    const double part = part_of(s, i, j);
    return part == 0 ? 0 : cross_entropy_share(weight_of(s, j), part);
}

static void soft_row_loss(const void *work, int64_t i)
{
    const loss_rows *s = work;
    const REAL *row = s->x + i * s->vocab;
    const bool counted = row_counts(s, i);
    REAL max = 0;
    const double log_of_sum = counted ? log(gd_sum_exp(row, s->vocab, &max)) : 0;
    double loss = 0;
    for (int64_t j = 0; counted && j < s->vocab; j++) {
        const double c = share_of(s, i, j);
        if (c != 0) loss += c * (log_of_sum - ((double)row[j] - (double)max));
    }
    s->losses[i] = loss;
    if (s->max) s->max[i] = max;
    if (s->log_of_sum) s->log_of_sum[i] = (REAL)log_of_sum;
}

/* The mean is divided by the weights of the targets that count, or by the number of rows. 1 / 0
 * would make inf of what smoothing spreads; the mean over no weight is NaN. */
static double factor_of(const loss_rows *s, int64_t counting)
{
    double divisor = s->targets ? 0 : (double)counting;
    if (s->args->reduction != GD_MEAN) return 1;
    for (int64_t i = 0; s->targets && i < s->rows; i++)
        if (row_counts(s, i)) divisor += weight_of(s, s->targets[i]);
    return divisor == 0 ? (double)NAN : 1 / divisor;
}

GD_KERNEL_OF_REAL(cross_entropy_plain_forward, loss_of_rows(call, soft_row_loss, factor_of))

/* The gradient of a row's loss. */
static double row_cotangent(const loss_rows *s, int64_t i)
{
    return (double)*s->factor * (double)s->dloss[s->args->reduction == GD_NONE ? i : 0];
}

/* log p_ij */
static double log_probability(const loss_rows *s, int64_t i, int64_t j)
{
    return (double)(s->x[i * s->vocab + j] - s->max[i]) - (double)s->log_of_sum[i];
}

static void soft_row_gradient(const void *work, int64_t i)
{
    const loss_rows *s = work;
    REAL *dx = s->dx, *dq = s->dq;
    const bool counted = row_counts(s, i);
    const double g = row_cotangent(s, i);
    double total = 0; /* C_i */
    GD_STEP("m", s->max[i]);
    GD_STEP("l", s->log_of_sum[i]);
    GD_STEP("scale", g);
    for (int64_t j = 0; counted && j < s->vocab; j++) total += share_of(s, i, j);
    for (int64_t j = 0; j < s->vocab; j++) {
        const int64_t at = i * s->vocab + j;
        const double log_p = log_probability(s, i, j);
        const double c = counted ? share_of(s, i, j) : 0, w = s->on * weight_of(s, j);
        const double pull = cross_entropy_pull(total, log_p);
        const double d = counted ? cross_entropy_soft_dx(g, pull, c) : 0;
        const double slope = cross_entropy_soft_dq(g, w, log_p);
        GD_STEP("p", exp(log_p));
        if (dq) dq[at] = (REAL)((s->add_dq ? (double)dq[at] : 0) + slope);
        if (dx) dx[at] = (REAL)((s->add_dx ? (double)dx[at] : 0) + d);
    }
}

/* Columns of dw that a task sums. */
enum { COLUMNS = 64 };

/* dw of a block of columns: the rows in order. */
static void soft_weight_gradient(const void *work, int64_t block)
{
    const loss_rows *s = work;
    const int64_t first = block * COLUMNS, n = gd_min64(COLUMNS, s->vocab - first);
    double sum[COLUMNS] = {0};
    for (int64_t i = 0; i < s->rows; i++) {
        const double g = row_cotangent(s, i);
        for (int64_t k = 0; k < n; k++) {
            const double log_p = log_probability(s, i, first + k);
            sum[k] += cross_entropy_soft_dw(g, part_of(s, i, first + k), log_p);
        }
    }
    REAL *dw = s->dw + first;
    for (int64_t k = 0; k < n; k++) dw[k] = (REAL)((s->add_dw ? (double)dw[k] : 0) + sum[k]);
}

/* dweight comes before dx, which may be x. */
gd_status GD_REAL_NAME(cross_entropy_plain_backward)(const gd_call *call)
{
    const loss_rows s = loss_rows_of(call);
    const int64_t work = 4 * s.rows * s.vocab;
    if (s.dw) gd_each_piece(call, work, gd_divide_up(s.vocab, COLUMNS), soft_weight_gradient, &s);
    return gd_each_piece(call, work, s.rows, soft_row_gradient, &s);
}
