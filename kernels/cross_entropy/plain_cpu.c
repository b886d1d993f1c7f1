/* plain_cpu.c - cross_entropy as README.md derives it, from the shares c_ij of the classes: with
 * class weights, label smoothing, probabilities, a loss for each row. Where a call has none of
 * these, it is what tests compare the shorter kernels of cross_entropy_cpu.c with. */
#include "cross_entropy/formula.h"
#include "cross_entropy/cross_entropy.h"
#include "loops.h"
#include "softmax/sum_exp.h"

typedef struct soft_rows {
    const gd_cross_entropy_args *args;
    const REAL *x, *weight; /* weight NULL: ones */
    const REAL *given;      /* the probabilities; NULL: one target a row */
    const int32_t *targets;
    int64_t rows, vocab;
    double on, off;         /* a target's part, and what smoothing spreads: 1 - eps and eps / V */
    REAL *max, *log_of_sum; /* [rows], saved; NULL in a forward without a backward */
    double *losses;
    REAL factor, *dx, *dq, *dw;
    const REAL *dloss;
    bool add_dx, add_dq, add_dw;
} soft_rows;

static soft_rows soft_rows_of(const gd_call *call)
{
    const bool numbers = gd_tensor_dtype(call->input[1]) == GD_INT32;
    soft_rows s = {.args = call->args,
                   .x = gd_data(call->input[0]),
                   .weight = gd_data(call->input[2]),
                   .given = numbers ? NULL : gd_data(call->input[1]),
                   .targets = numbers ? gd_data(call->input[1]) : NULL,
                   .rows = gd_row_count(call->input[0]),
                   .vocab = gd_last_dim(call->input[0]),
                   .max = gd_data(call->save[0]),
                   .log_of_sum = gd_data(call->save[1]),
                   .dloss = gd_dy(call, 0),
                   .dx = gd_dx(call, 0),
                   .dq = gd_dx(call, 1),
                   .dw = gd_dx(call, 2),
                   .add_dx = gd_adds(call, 0),
                   .add_dq = gd_adds(call, 1),
                   .add_dw = gd_adds(call, 2)};
    s.on = 1 - s.args->smoothing;
    s.off = s.args->smoothing / (double)gd_max64(s.vocab, 1);
    return s;
}

static bool row_counts(const soft_rows *s, int64_t i)
{
    return !s->targets || target_counts(s->args, s->targets[i]);
}

static double weight_of(const soft_rows *s, int64_t j)
{
    return s->weight ? (double)s->weight[j] : 1;
}

/* The share without the weight. */
static double part_of(const soft_rows *s, int64_t i, int64_t j)
{
    double q = s->targets ? j == s->targets[i] : (double)s->given[i * s->vocab + j];
    return cross_entropy_part(q, s->on, s->off);
}

/* c_ij */
static double share_of(const soft_rows *s, int64_t i, int64_t j)
{
    const double part = part_of(s, i, j);
    return part == 0 ? 0 : cross_entropy_share(weight_of(s, j), part);
}

/* The divisor of the mean: the sum of the weights of the targets not ignored, or the number of
 * rows. */
static double divisor_of(const soft_rows *s)
{
    double sum = s->targets ? 0 : (double)s->rows;
    for (int64_t i = 0; s->targets && i < s->rows; i++)
        if (row_counts(s, i)) sum += weight_of(s, s->targets[i]);
    return sum;
}

static void soft_row_loss(const void *work, int64_t i)
{
    const soft_rows *s = work;
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

gd_status GD_REAL_NAME(cross_entropy_plain_forward)(const gd_call *call)
{
    soft_rows s = soft_rows_of(call);
    REAL *factor_out = gd_data(call->save[2]), *out = gd_data(call->output[0]);
    int64_t counting = s.rows;
    gd_status status = GD_OK;
    if (s.targets) status = targets_counting(call, s.targets, s.rows, s.vocab, &counting);
    if (status) return status;
    s.losses = gd_call_scratch(call, (size_t)s.rows * sizeof *s.losses);
    if (!s.losses) return GD_ERROR_MEMORY;
    gd_each_piece(call, 4 * s.rows * s.vocab, s.rows, soft_row_loss, &s);
    const double divisor = s.args->reduction == GD_MEAN ? divisor_of(&s) : 1;
    /* 1 / 0 would make inf of what smoothing spreads; the mean over no weight is NaN. */
    const double factor = divisor == 0 ? (double)NAN : 1 / divisor;
    if (factor_out) *factor_out = (REAL)(counting ? factor : 0);
    double sum = 0;
    for (int64_t i = 0; i < s.rows; i++) {
        sum += s.losses[i];
        if (s.args->reduction == GD_NONE) out[i] = (REAL)s.losses[i];
    }
    if (s.args->reduction != GD_NONE) *out = (REAL)(sum * factor);
    return GD_OK;
}

/* The gradient of a row's loss. */
static double row_cotangent(const soft_rows *s, int64_t i)
{
    return (double)s->factor * (double)s->dloss[s->args->reduction == GD_NONE ? i : 0];
}

/* log p_ij */
static double log_probability(const soft_rows *s, int64_t i, int64_t j)
{
    return (double)(s->x[i * s->vocab + j] - s->max[i]) - (double)s->log_of_sum[i];
}

static void soft_row_gradient(const void *work, int64_t i)
{
    const soft_rows *s = work;
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
    const soft_rows *s = work;
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
    soft_rows s = soft_rows_of(call);
    const int64_t work = 4 * s.rows * s.vocab;
    s.factor = *(const REAL *)gd_data(call->save[2]);
    if (s.dw) gd_each_piece(call, work, gd_divide_up(s.vocab, COLUMNS), soft_weight_gradient, &s);
    return gd_each_piece(call, work, s.rows, soft_row_gradient, &s);
}
