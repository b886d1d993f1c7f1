/* optim_cpu.c - SGD and AdamW on packed arrays of REAL, in blocks (kernel.h says why).
 *
 * What does not change from element to element is computed once, in double. */
#include "kernel.h"

#include "optim/optim.h"

/* v = momentum v + (1 - dampening) g;  w -= lr v, or lr (g + momentum v) for Nesterov's. v is NULL
 * without momentum. */
static void sgd_block(REAL *restrict w, REAL *restrict v, const REAL *restrict g, int64_t n,
                      const gd_sgd_step *step)
{
    const REAL lr = (REAL)step->lr, decay = (REAL)step->weight_decay;
    const REAL momentum = (REAL)step->momentum, fresh = (REAL)(1 - step->dampening);
    if (!v) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) w[i] -= lr * (g[i] + decay * w[i]);
    } else if (step->first) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            REAL grad = g[i] + decay * w[i];
            v[i] = grad;
            w[i] -= lr * (step->nesterov ? grad + momentum * grad : grad);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            REAL grad = g[i] + decay * w[i];
            REAL velocity = momentum * v[i] + fresh * grad;
            v[i] = velocity;
            w[i] -= lr * (step->nesterov ? grad + momentum * velocity : velocity);
        }
    }
}

void GD_REAL_NAME(gd_sgd)(void *w, void *v, const void *g, int64_t n, const gd_sgd_step *step,
                          int threads)
{
#pragma omp parallel for schedule(static) num_threads(gd_threads_for(threads, n))
    for (int64_t i = 0; i < n; i += GD_BLOCK)
        sgd_block((REAL *)w + i, v ? (REAL *)v + i : NULL, (const REAL *)g + i,
                  gd_min64(GD_BLOCK, n - i), step);
}

/* The bias corrections 1 - beta^t are the same for every element, so with
 *   rate = lr / (1 - beta1^t),  scale = 1 / sqrt(1 - beta2^t)
 * the update is  w = (1 - lr wd) w - rate m / (scale sqrt(v) + eps). */
static void adamw_block(REAL *restrict w, REAL *restrict m, REAL *restrict v,
                        const REAL *restrict g, int64_t n, const gd_adamw_step *step)
{
    const double t = (double)step->step;
    const REAL keep = (REAL)(1 - step->lr * step->weight_decay);
    const REAL rate = (REAL)(step->lr / (1 - pow(step->beta1, t)));
    const REAL scale = (REAL)(1 / sqrt(1 - pow(step->beta2, t)));
    const REAL beta1 = (REAL)step->beta1, fresh1 = (REAL)(1 - step->beta1);
    const REAL beta2 = (REAL)step->beta2, fresh2 = (REAL)(1 - step->beta2);
    const REAL eps = (REAL)step->eps;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + fresh1 * g[i];
        v[i] = beta2 * v[i] + fresh2 * g[i] * g[i];
        w[i] = keep * w[i] - rate * m[i] / (scale * GD_MATH(sqrt)(v[i]) + eps);
    }
}

void GD_REAL_NAME(gd_adamw)(void *w, void *m, void *v, const void *g, int64_t n,
                            const gd_adamw_step *step, int threads)
{
#pragma omp parallel for schedule(static) num_threads(gd_threads_for(threads, n))
    for (int64_t i = 0; i < n; i += GD_BLOCK)
        adamw_block((REAL *)w + i, (REAL *)m + i, (REAL *)v + i, (const REAL *)g + i,
                    gd_min64(GD_BLOCK, n - i), step);
}
