/* optim.c - the optimizer updates that the core asks for (src/services.h). */
#include "kernel.h"

#include "optim/optim.h"

void gd_sgd_cpu(void *w, void *v, const void *g, gd_dtype dtype, gd_rounded rounded, int64_t n,
                const gd_sgd_step *step, gd_context *ctx)
{
    if (dtype == GD_FLOAT64)
        gd_sgd_f64(w, v, g, rounded, n, step, gd_context_threads(ctx));
    else
        gd_sgd_f32(w, v, g, rounded, n, step, gd_context_threads(ctx));
}

void gd_adamw_cpu(void *w, void *m, void *v, const void *g, gd_dtype dtype, gd_rounded rounded,
                  int64_t n, const gd_adamw_step *step, gd_context *ctx)
{
    if (dtype == GD_FLOAT64)
        gd_adamw_f64(w, m, v, g, rounded, n, step, gd_context_threads(ctx));
    else
        gd_adamw_f32(w, m, v, g, rounded, n, step, gd_context_threads(ctx));
}
