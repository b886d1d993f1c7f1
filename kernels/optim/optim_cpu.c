/* optim_cpu.c - SGD and AdamW on packed arrays of REAL, in blocks (kernel.h says why).
 *
 * Values that are the same for all elements are computed once, in double. Only float may have
 * 16-bit parameters. */
#include "kernel.h"

#include "optim/optim.h"
#include "stream.h"

/* Rounded as in gd_params_scale_grads, so that both give the same bits. */
static inline REAL scaled(REAL grad, double factor)
{
    return (REAL)(grad * factor);
}

/* v = momentum v + (1 - dampening) g;  w -= lr v, or lr (g + momentum v) for Nesterov's. v is NULL
 * without momentum. g is multiplied by the state's factor, as scaled() does: in a loop of its own,
 * since in double a product and the sum that it goes into would be rounded together. */
static void sgd_block(REAL *restrict w, REAL *restrict v, const REAL *restrict g, int64_t n,
                      const gd_sgd_rule *rule, const gd_update_state *state)
{
    REAL clipped[GD_BLOCK];
    if (state->factor != 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) clipped[i] = scaled(g[i], state->factor);
        g = clipped;
    }
    const REAL lr = (REAL)state->rate, decay = (REAL)rule->weight_decay;
    const REAL momentum = (REAL)rule->momentum, fresh = (REAL)(1 - rule->dampening);
    if (!v) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) w[i] -= lr * (g[i] + decay * w[i]);
    } else if (state->first) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            REAL grad = g[i] + decay * w[i];
            v[i] = grad;
            w[i] -= lr * (rule->nesterov ? grad + momentum * grad : grad);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            REAL grad = g[i] + decay * w[i];
            REAL velocity = momentum * v[i] + fresh * grad;
            v[i] = velocity;
            w[i] -= lr * (rule->nesterov ? grad + momentum * velocity : velocity);
        }
    }
}

typedef struct sgd_work {
    REAL *w, *v;
    const REAL *g;
    gd_rounded rounded;
    int64_t n;
    const gd_sgd_rule *rule;
    const gd_update_state *state;
} sgd_work;

static void sgd_task(const void *work, int64_t block)
{
    const sgd_work *s = work;
    const int64_t i = block * GD_BLOCK, count = gd_min64(GD_BLOCK, s->n - i);
    REAL *weight = s->w + i;
    if (s->rounded.data) gd_master_follow((float *)weight, s->rounded, i, count);
    sgd_block(weight, s->v ? s->v + i : NULL, s->g + i, count, s->rule, s->state);
    if (s->rounded.data) gd_master_round(s->rounded, (float *)weight, i, count);
}

void GD_REAL_NAME(gd_sgd)(void *w, void *v, const void *g, gd_rounded rounded, int64_t n,
                          const gd_sgd_rule *rule, const gd_update_state *state, int threads)
{
    const sgd_work work = {w, v, g, rounded, n, rule, state};
    gd_for_each(gd_threads_for(threads, n), gd_divide_up(n, GD_BLOCK), sgd_task, &work);
}

/* The same for every element. With
 *   rate = lr / (1 - beta1^t),  scale = 1 / sqrt(1 - beta2^t)
 * the update is  w = (1 - lr wd) w - rate m / (scale sqrt(v) + eps). */
typedef struct adamw_factors {
    REAL keep, rate, scale, beta1, fresh1, beta2, fresh2, eps;
    double clip;
} adamw_factors;

static adamw_factors adamw_factors_of(const gd_adamw_rule *rule, const gd_update_state *state)
{
    return (adamw_factors){.keep = (REAL)(1 - state->rate * rule->weight_decay),
                           .rate = (REAL)state->rate_by_bias1,
                           .scale = (REAL)state->root_by_bias2,
                           .beta1 = (REAL)rule->beta1,
                           .fresh1 = (REAL)(1 - rule->beta1),
                           .beta2 = (REAL)rule->beta2,
                           .fresh2 = (REAL)(1 - rule->beta2),
                           .eps = (REAL)rule->eps,
                           .clip = state->factor};
}

static void adamw_block(REAL *restrict w, REAL *restrict m, REAL *restrict v,
                        const REAL *restrict g, int64_t n, adamw_factors f)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const REAL grad = scaled(g[i], f.clip);
        m[i] = f.beta1 * m[i] + f.fresh1 * grad;
        v[i] = f.beta2 * v[i] + f.fresh2 * grad * grad;
        w[i] = f.keep * w[i] - f.rate * m[i] / (f.scale * GD_MATH(sqrt)(v[i]) + f.eps);
    }
}

enum { BLOCK = 256, AHEAD = 2 * BLOCK, BYTES = BLOCK * (int)sizeof(REAL) };

typedef struct adamw_work {
    REAL *w, *m, *v;
    const REAL *g;
    gd_rounded rounded;
    int64_t n;
    adamw_factors factors;
} adamw_work;

/* The whole model is read once a step, from memory and from the caches of other threads: it is
 * prefetched some blocks ahead. */
static void adamw_task(const void *work, int64_t block)
{
    const adamw_work *a = work;
    const int64_t i = block * BLOCK, ahead = gd_min64(i + AHEAD, a->n);
    const int64_t count = gd_min64(BLOCK, a->n - i);
    REAL *weight = a->w + i;
    gd_prefetch_to_write(a->w + ahead, BYTES);
    gd_prefetch_to_write(a->m + ahead, BYTES);
    gd_prefetch_to_write(a->v + ahead, BYTES);
    gd_prefetch(a->g + ahead, BYTES);
    if (a->rounded.data) gd_master_follow((float *)weight, a->rounded, i, count);
    adamw_block(weight, a->m + i, a->v + i, a->g + i, count, a->factors);
    if (a->rounded.data) gd_master_round(a->rounded, (float *)weight, i, count);
}

void GD_REAL_NAME(gd_adamw)(void *w, void *m, void *v, const void *g, gd_rounded rounded, int64_t n,
                            const gd_adamw_rule *rule, const gd_update_state *state, int threads)
{
    const adamw_work work = {w, m, v, g, rounded, n, adamw_factors_of(rule, state)};
    gd_for_each(gd_threads_for(threads, n), gd_divide_up(n, BLOCK), adamw_task, &work);
}
