/* optim_cpu.c - the optimizers on packed arrays of REAL, in blocks (kernel.h says why).
 *
 * Values that are the same for all elements are computed once, in double. Only float may have
 * 16-bit parameters. */
#include "kernel_cpu.h"
#include "optim/formula.h"
#include "optim/optim.h"
#include "stream.h"
#include "touched.h"

enum { BLOCK = 256, AHEAD = 2 * BLOCK };
enum { UNIT = GD_GRANULE / sizeof(REAL), TOUCHED = GD_TOUCHED_PIECE * UNIT };

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
    static const gd_update_state first = {.made = 1, .factor = 1};
    if (!state) state = &first;
    if (!count) count = &none;
    const double lr = state->rate * rule->rate;
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

/* One block of at most BLOCK elements. */
typedef void rule_block(REAL *restrict w, REAL *const *state, const REAL *restrict g, int64_t n,
                        const numbers *f);

/* for each i: the statements, in g, w and the first `states` of m and v, which are then stored; not
 * where `stays` holds of them */
#define UPDATE_EACH(states, stays, g, w, m, v, ...)                      \
    GD_EACH(i_, n_)                                                      \
    {                                                                    \
        REAL g = gradient_[i_], w = weight_[i_];                         \
        REAL m = states > 0 ? ms_[i_] : 0, v = states > 1 ? vs_[i_] : 0; \
        __VA_ARGS__                                                      \
        const bool old_ = stays;                                         \
        weight_[i_] = old_ ? weight_[i_] : w;                            \
        if (states > 0) ms_[i_] = old_ ? ms_[i_] : m;                    \
        if (states > 1) vs_[i_] = old_ ? vs_[i_] : v;                    \
    }

/* Defines the rule of an optimizer: how weight w and its states m and v change by gradient g, with
 * the numbers f. If f.lazy, elements stay as they are whose gradient is 0. All of these names are
 * the caller's. */
#define UPDATE(name, states, f, g, w, m, v, ...)                                                  \
    static void name(REAL *restrict weight_, REAL *const *state_, const REAL *restrict gradient_, \
                     int64_t n_, const numbers *given_)                                           \
    {                                                                                             \
        REAL *restrict ms_ = state_[0], *restrict vs_ = state_[1];                                \
        const numbers f = *given_;                                                                \
        (void)ms_, (void)vs_;                                                                     \
        if (f.lazy)                                                                               \
            UPDATE_EACH(states, g == 0, g, w, m, v, __VA_ARGS__)                                  \
        else                                                                                      \
            UPDATE_EACH(states, false, g, w, m, v, __VA_ARGS__)                                   \
    }

UPDATE(sgd, 0, f, g, w, m, v, { w -= f.lr * decayed(g, f.decay, w); })

/* The first velocity, m, is the gradient. */
UPDATE(sgd_first, 1, f, g, w, m, v, {
    m = decayed(g, f.decay, w);
    w -= f.lr * sgd_step(m, m, f.momentum, f.nesterov);
})

UPDATE(sgd_later, 1, f, g, w, m, v, {
    const REAL d = decayed(g, f.decay, w);
    m = averaged(m, d, f.momentum, f.fresh);
    w -= f.lr * sgd_step(d, m, f.momentum, f.nesterov);
})

/* It clips itself. */
UPDATE(adamw, 2, f, g, w, m, v, {
    g = clipped(g, f.clip);
    m = averaged(m, g, f.beta1, f.fresh1);
    v = averaged_square(v, g, f.beta2, f.fresh2);
    w = adamw_weight(w, m, v, f.keep, f.rate, f.scale, f.eps);
})

/* AdamW without its decay, of g + wd w. */
UPDATE(adam, 2, f, g, w, m, v, {
    const REAL d = decayed(g, f.decay, w);
    m = averaged(m, d, f.beta1, f.fresh1);
    v = averaged_square(v, d, f.beta2, f.fresh2);
    w = adamw_weight(w, m, v, 1, f.rate, f.scale, f.eps);
})

UPDATE(adagrad, 1, f, g, w, m, v, {
    const REAL d = decayed(g, f.decay, w);
    m += d * d;
    w = adagrad_weight(w, d, m, f.lr, f.eps);
})

UPDATE(lion, 1, f, g, w, m, v, {
    const REAL mixed = averaged(m, g, f.beta1, f.fresh1);
    const REAL sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
    m = averaged(m, g, f.beta2, f.fresh2);
    w = lion_weight(w, sign, f.keep, f.lr);
})

/* The first average is g itself. */
UPDATE(average, 0, f, g, w, m, v, {
    const REAL fresh = f.first ? 1 : f.fresh1;
    w = fresh == 1 ? g : average_weight(w, g, fresh);
})

/* Without momentum there is no velocity, and a mean only if centered: then both are in
 * no memory. */
static void rmsprop(REAL *restrict w, REAL *const *state, const REAL *restrict g, int64_t n,
                    const numbers *given)
{
    REAL none[2][BLOCK] = {{0}}, *restrict v = state[0];
    REAL *restrict velocity = state[1] ? state[1] : none[0], *restrict mean =
                                                                 state[2] ? state[2] : none[1];
    const bool moves = state[1], centered = state[2];
    const numbers f = *given;
    GD_EACH(i, n)
    {
        const REAL d = decayed(g[i], f.decay, w[i]);
        v[i] = averaged_square(v[i], d, f.beta2, f.fresh2);
        mean[i] = averaged(mean[i], d, f.beta2, f.fresh2);
        const REAL around = rmsprop_variance(v[i], mean[i]);
        const REAL step = rmsprop_step(d, !centered ? v[i] : around < 0 ? 0 : around, f.eps);
        velocity[i] = averaged(velocity[i], step, f.momentum, 1);
        w[i] -= f.lr * (moves ? velocity[i] : step);
    }
}

/* The rule of a kind; momentum: SGD's has a velocity. */
static rule_block *rule_of(gd_rule_kind kind, bool momentum, bool first)
{
    static rule_block *const rules[GD_RULE_KINDS] = {
        [GD_RULE_SGD] = sgd,         [GD_RULE_ADAMW] = adamw,     [GD_RULE_ADAM] = adam,
        [GD_RULE_RMSPROP] = rmsprop, [GD_RULE_ADAGRAD] = adagrad, [GD_RULE_LION] = lion,
        [GD_RULE_AVERAGE] = average};
    if (kind != GD_RULE_SGD || !momentum) return rules[kind];
    return first ? sgd_first : sgd_later;
}

/* ---- One pass ----------------------------------------------------------------------------- */

typedef struct update_work {
    const gd_update_arrays *arrays;
    rule_block *block;
    numbers numbers;
} update_work;

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
    if (u->numbers.clip != 1 && u->block != adamw) {
        GD_EACH(k, count) scaled[k] = clipped(g[k], u->numbers.clip);
        g = scaled;
    }
    if (a->rounded.data && u->block == average) { /* the masters are read */
        memcpy(scaled, g, (size_t)count * sizeof *g);
        gd_master_follow((float *)scaled, a->rounded, i, count);
        g = scaled;
    } else if (a->rounded.data) {
        gd_master_follow((float *)w, a->rounded, i, count);
    }
    u->block(w, s, g, count, &u->numbers);
    if (a->rounded.data && u->block != average) gd_master_round(a->rounded, (float *)w, i, count);
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
    fetch(a, ahead, gd_min64(BLOCK, a->n - ahead)); /* beyond the end it costs small models */
    update_elements(u, i, gd_min64(BLOCK, a->n - i));
}

/* What was touched, of which some runs at a time are fetched from anywhere. */
static void update_touched(const void *work, int64_t piece)
{
    enum { RUNS = 4 };
    const update_work *u = work;
    const int64_t begin = piece * TOUCHED, end = gd_min64(begin + TOUCHED, u->arrays->n);
    gd_run next = {begin, begin}, run[RUNS];
    int64_t found = 0;
    for (int64_t done = 0;; done++) {
        for (; found < done + RUNS && gd_next_run(u->arrays->touched, UNIT, end, &next); found++) {
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
    const numbers f = numbers_of(rule, state, arrays->count);
    const update_work work = {arrays, rule_of(rule->kind, arrays->state[0], f.first), f};
    const int64_t n = arrays->n;
    if (arrays->touched)
        gd_for_each(gd_threads_for(threads, n), gd_divide_up(n, TOUCHED), update_touched, &work);
    else
        gd_for_each(gd_threads_for(threads, n), gd_divide_up(n, BLOCK), update_task, &work);
}
