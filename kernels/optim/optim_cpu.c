/* optim_cpu.c - the optimizers on packed arrays of REAL, in blocks (kernel.h says why).
 *
 * Values that are the same for all elements are computed once, in double. Only float may have
 * 16-bit parameters. */
#include "loops.h"
#include "optim/formula.h"
#include "optim/optim.h"
#include "stream.h"
#include "touched.h"

enum { BLOCK = 256, AHEAD = 2 * BLOCK };

/* The same for every element. `decay` is what is added to the gradient, `keep` what the weight is
 * multiplied by; AdamW's rate = lr / (1 - beta1^t) and scale = 1 / sqrt(1 - beta2^t). */
typedef struct numbers {
    REAL lr, keep, decay, rate, scale, beta1, fresh1, beta2, fresh2, eps, momentum, fresh;
    bool nesterov, first, lazy;
    double clip; /* of each gradient */
} numbers;

static numbers numbers_of(const gd_rule *rule, const gd_update_state *state,
                          const gd_update_count *count)
{
    static const gd_update_count none;
    const double lr = state->rate * rule->rate;
    if (!count) count = &none;
    const double late =
        rule->kind == GD_RULE_ADAGRAD ? 1 + (double)(count->made - 1) * rule->rate_decay : 1;
    return (numbers){.lr = (REAL)(lr / late),
                     .keep = (REAL)(1 - lr * rule->weight_decay),
                     .decay = (REAL)rule->weight_decay,
                     .rate = (REAL)(count->rate_by_bias1 * rule->rate),
                     .scale = (REAL)count->root_by_bias2,
                     .beta1 = (REAL)rule->beta1,
                     .fresh1 = (REAL)(1 - rule->beta1),
                     .beta2 = (REAL)rule->beta2,
                     .fresh2 = (REAL)(1 - rule->beta2),
                     .eps = (REAL)gd_option_of_dtype(
                         sizeof(REAL) == sizeof(double) ? GD_FLOAT64 : GD_FLOAT32, rule->eps),
                     .momentum = (REAL)rule->momentum,
                     .fresh = (REAL)(1 - rule->dampening),
                     .nesterov = rule->nesterov,
                     .lazy = rule->lazy,
                     .first = (rule->kind == GD_RULE_AVERAGE ? state->made : count->made) == 1,
                     .clip = rule->kind == GD_RULE_AVERAGE ? 1 : state->factor};
}

/* ---- Rules -------------------------------------------------------------------------------- */

/* Rounded as in gd_params_scale_grads, so that both give the same bits. */
static inline REAL clipped(REAL grad, double clip)
{
    return (REAL)(grad * clip);
}

/* One block of at most BLOCK elements: w, its states s[0], s[1], s[2], NULL where there are none,
 * and its gradients, which only AdamW's clips itself. */
typedef void rule_block(REAL *restrict w, REAL *const *s, const REAL *restrict g, int64_t n,
                        const numbers *f);

/* The first velocity is the gradient. v is NULL without momentum. */
static void sgd_block(REAL *restrict w, REAL *const *s, const REAL *restrict g, int64_t n,
                      const numbers *f)
{
    REAL *restrict v = s[0];
    const REAL lr = f->lr, decay = f->decay, momentum = f->momentum, fresh = f->fresh;
    if (!v) {
        GD_EACH(i, n) w[i] -= lr * decayed(g[i], decay, w[i]);
    } else if (f->first) {
        GD_EACH(i, n)
        {
            v[i] = decayed(g[i], decay, w[i]);
            w[i] -= lr * sgd_step(v[i], v[i], momentum, f->nesterov);
        }
    } else {
        GD_EACH(i, n)
        {
            const REAL grad = decayed(g[i], decay, w[i]);
            v[i] = averaged(v[i], grad, momentum, fresh);
            w[i] -= lr * sgd_step(grad, v[i], momentum, f->nesterov);
        }
    }
}

static void adamw_block(REAL *restrict w, REAL *const *s, const REAL *restrict g, int64_t n,
                        const numbers *given)
{
    REAL *restrict m = s[0], *restrict v = s[1];
    const numbers f = *given;
    GD_EACH(i, n)
    {
        const REAL grad = clipped(g[i], f.clip);
        m[i] = averaged(m[i], grad, f.beta1, f.fresh1);
        v[i] = averaged_square(v[i], grad, f.beta2, f.fresh2);
        w[i] = adamw_weight(w[i], m[i], v[i], f.keep, f.rate, f.scale, f.eps);
    }
}

/* AdamW without its decay, of g + wd w. */
static void adam_block(REAL *restrict w, REAL *const *s, const REAL *restrict g, int64_t n,
                       const numbers *given)
{
    REAL coupled[BLOCK];
    numbers f = *given;
    GD_EACH(i, n) coupled[i] = decayed(g[i], f.decay, w[i]);
    f.keep = 1;
    f.clip = 1;
    adamw_block(w, s, coupled, n, &f);
}

/* `mean` is NULL unless centered, `velocity` without momentum. */
static void rmsprop_block(REAL *restrict w, REAL *const *s, const REAL *restrict g, int64_t n,
                          const numbers *given)
{
    REAL *restrict v = s[0], *restrict velocity = s[1], *restrict mean = s[2];
    const numbers f = *given;
    REAL step[BLOCK], variance[BLOCK];
    GD_EACH(i, n)
    {
        step[i] = decayed(g[i], f.decay, w[i]);
        variance[i] = v[i] = averaged_square(v[i], step[i], f.beta2, f.fresh2);
    }
    if (mean) {
        GD_EACH(i, n)
        {
            mean[i] = averaged(mean[i], step[i], f.beta2, f.fresh2);
            const REAL centered = rmsprop_variance(v[i], mean[i]);
            variance[i] = centered < 0 ? 0 : centered;
        }
    }
    GD_EACH(i, n) step[i] = rmsprop_step(step[i], variance[i], f.eps);
    if (velocity) {
        GD_EACH(i, n) step[i] = velocity[i] = averaged(velocity[i], step[i], f.momentum, 1);
    }
    GD_EACH(i, n) w[i] -= f.lr * step[i];
}

static void adagrad_block(REAL *restrict w, REAL *const *s, const REAL *restrict g, int64_t n,
                          const numbers *given)
{
    REAL *restrict v = s[0];
    const numbers f = *given;
    GD_EACH(i, n)
    {
        const REAL grad = decayed(g[i], f.decay, w[i]);
        v[i] += grad * grad;
        w[i] = adagrad_weight(w[i], grad, v[i], f.lr, f.eps);
    }
}

static void lion_block(REAL *restrict w, REAL *const *s, const REAL *restrict g, int64_t n,
                       const numbers *given)
{
    REAL *restrict m = s[0];
    const numbers f = *given;
    GD_EACH(i, n)
    {
        const REAL mixed = averaged(m[i], g[i], f.beta1, f.fresh1);
        const REAL sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
        m[i] = averaged(m[i], g[i], f.beta2, f.fresh2);
        w[i] = lion_weight(w[i], sign, f.keep, f.lr);
    }
}

/* The first average is g itself. */
static void average_block(REAL *restrict w, REAL *const *s, const REAL *restrict g, int64_t n,
                          const numbers *f)
{
    (void)s;
    const REAL fresh = f->first ? 1 : f->fresh1;
    GD_EACH(i, n) w[i] = fresh == 1 ? g[i] : average_weight(w[i], g[i], fresh);
}

static rule_block *const blocks[GD_RULE_KINDS] = {
    [GD_RULE_SGD] = sgd_block,         [GD_RULE_ADAMW] = adamw_block,
    [GD_RULE_ADAM] = adam_block,       [GD_RULE_RMSPROP] = rmsprop_block,
    [GD_RULE_ADAGRAD] = adagrad_block, [GD_RULE_LION] = lion_block,
    [GD_RULE_AVERAGE] = average_block};

/* ---- One pass ----------------------------------------------------------------------------- */

typedef struct update_work {
    const gd_update_arrays *arrays;
    rule_block *block;
    numbers numbers;
} update_work;

/* Elements whose gradient is 0 stay as they are. */
static void lazy_block(const update_work *u, REAL *w, REAL *const *s, const REAL *g, int64_t n)
{
    REAL *const now[] = {w, s[0], s[1]}; /* AdamW and Adam have two states */
    REAL before[3][BLOCK];
    for (int k = 0; k < 3; k++) memcpy(before[k], now[k], (size_t)n * sizeof *w);
    u->block(w, s, g, n, &u->numbers);
    const double clip = u->block == adamw_block ? u->numbers.clip : 1;
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < n; i++)
            if (clipped(g[i], clip) == 0) now[k][i] = before[k][i];
}

/* Elements [i, i + count), at most BLOCK.
 *
 * Gradients are clipped in a loop of its own, since in double a product and the sum that it goes
 * into would be rounded together; AdamW has no such sum. */
static void update_elements(const update_work *u, int64_t i, int64_t count)
{
    const gd_update_arrays *a = u->arrays;
    REAL *w = (REAL *)a->w + i, *s[GD_RULE_STATES] = {NULL}, scaled[BLOCK];
    const REAL *g = (const REAL *)a->g + i;
    for (int k = 0; k < GD_RULE_STATES; k++)
        if (a->state[k]) s[k] = (REAL *)a->state[k] + i;
    if (u->numbers.clip != 1 && u->block != adamw_block) {
        GD_EACH(k, count) scaled[k] = clipped(g[k], u->numbers.clip);
        g = scaled;
    }
    if (a->rounded.data) gd_master_follow((float *)w, a->rounded, i, count);
    if (u->numbers.lazy)
        lazy_block(u, w, s, g, count);
    else
        u->block(w, s, g, count, &u->numbers);
    if (a->rounded.data) gd_master_round(a->rounded, (float *)w, i, count);
}

/* Prefetches n elements of each array. */
static inline void fetch(const gd_update_arrays *a, int64_t i, int64_t n)
{
    const int64_t bytes = n * (int64_t)sizeof(REAL);
    gd_prefetch_to_write((REAL *)a->w + i, bytes);
    gd_prefetch((const REAL *)a->g + i, bytes);
    for (int k = 0; k < GD_RULE_STATES; k++)
        if (a->state[k]) gd_prefetch_to_write((REAL *)a->state[k] + i, bytes);
}

/* The whole model is read once a step, from memory and from the caches of other threads: it is
 * prefetched some blocks ahead. */
static void update_task(const void *work, int64_t block)
{
    const update_work *u = work;
    const gd_update_arrays *a = u->arrays;
    const int64_t i = block * BLOCK, ahead = gd_min64(i + AHEAD, a->n);
    fetch(a, ahead, BLOCK);
    update_elements(u, i, gd_min64(BLOCK, a->n - i));
}

/* Touched rows, of which some at a time are fetched from anywhere. */
static void update_rows(const void *work, int64_t piece)
{
    enum { UNIT = 64 / sizeof(REAL), RUNS = 4 };
    const update_work *u = work;
    const gd_touched *rows = u->arrays->rows;
    int64_t row = piece * GD_TOUCHED_PIECE;
    const int64_t last = gd_min64(row + GD_TOUCHED_PIECE, gd_row_limit(rows));
    gd_run next = {0, 0}, run[RUNS];
    int64_t found = 0;
    for (int64_t done = 0;; done++) {
        for (; found < done + RUNS && gd_next_run(rows, UNIT, last, &row, &next); found++) {
            fetch(u->arrays, next.begin, gd_min64(BLOCK, next.end - next.begin));
            run[found % RUNS] = next;
        }
        if (done == found) return;
        const gd_run now = run[done % RUNS];
        for (int64_t i = now.begin; i < now.end; i += BLOCK)
            update_elements(u, i, gd_min64(BLOCK, now.end - i));
    }
}

void GD_REAL_NAME(gd_optimize)(const gd_update_arrays *arrays, const gd_rule *rule,
                               const gd_update_state *state, int threads)
{
    const update_work work = {.arrays = arrays,
                              .block = blocks[rule->kind],
                              .numbers = numbers_of(rule, state, arrays->count)};
    const int64_t n = arrays->n;
    if (arrays->rows)
        gd_for_each(gd_threads_for(threads, n),
                    gd_divide_up(gd_row_limit(arrays->rows), GD_TOUCHED_PIECE), update_rows, &work);
    else
        gd_for_each(gd_threads_for(threads, n), gd_divide_up(n, BLOCK), update_task, &work);
}
