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

void GD_REAL_NAME(gd_sgd)(void *w, void *v, const void *g, gd_rounded rounded, int64_t n,
                          const gd_sgd_rule *rule, const gd_update_state *state, int threads)
{
#pragma omp parallel for schedule(static) num_threads(gd_threads_for(threads, n))
    for (int64_t i = 0; i < n; i += GD_BLOCK) {
        REAL *weight = (REAL *)w + i;
        const int64_t count = gd_min64(GD_BLOCK, n - i);
        if (rounded.data) gd_master_follow((float *)weight, rounded, i, count);
        sgd_block(weight, v ? (REAL *)v + i : NULL, (const REAL *)g + i, count, rule, state);
        if (rounded.data) gd_master_round(rounded, (float *)weight, i, count);
    }
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

/* The whole model is read once a step, from memory and from the caches of other threads: it is
 * prefetched some blocks ahead. */
void GD_REAL_NAME(gd_adamw)(void *w, void *m, void *v, const void *g, gd_rounded rounded, int64_t n,
                            const gd_adamw_rule *rule, const gd_update_state *state, int threads)
{
    enum { BLOCK = 256, AHEAD = 2 * BLOCK, BYTES = BLOCK * (int)sizeof(REAL) };
    const adamw_factors factors = adamw_factors_of(rule, state);
#pragma omp parallel for schedule(static) num_threads(gd_threads_for(threads, n))
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t ahead = gd_min64(i + AHEAD, n), count = gd_min64(BLOCK, n - i);
        REAL *weight = (REAL *)w + i;
        gd_prefetch_to_write((REAL *)w + ahead, BYTES);
        gd_prefetch_to_write((REAL *)m + ahead, BYTES);
        gd_prefetch_to_write((REAL *)v + ahead, BYTES);
        gd_prefetch((const REAL *)g + ahead, BYTES);
        if (rounded.data) gd_master_follow((float *)weight, rounded, i, count);
        adamw_block(weight, (REAL *)m + i, (REAL *)v + i, (const REAL *)g + i, count, factors);
        if (rounded.data) gd_master_round(rounded, (float *)weight, i, count);
    }
}
