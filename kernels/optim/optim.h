/* optim.h - the updates of optim_cpu.c, for float and for double, of which optim.c picks one; and
 * the masters of 16-bit parameters (master.c). */
#ifndef GRADUS_KERNELS_OPTIM_H
#define GRADUS_KERNELS_OPTIM_H

#include "core/services.h"

void gd_sgd_f32(void *w, void *v, const void *g, gd_rounded rounded, int64_t n,
                const gd_sgd_rule *rule, const gd_update_state *state, int threads);
void gd_sgd_f64(void *w, void *v, const void *g, gd_rounded rounded, int64_t n,
                const gd_sgd_rule *rule, const gd_update_state *state, int threads);
void gd_adamw_f32(void *w, void *m, void *v, const void *g, gd_rounded rounded, int64_t n,
                  const gd_adamw_rule *rule, const gd_update_state *state, int threads);
void gd_adamw_f64(void *w, void *m, void *v, const void *g, gd_rounded rounded, int64_t n,
                  const gd_adamw_rule *rule, const gd_update_state *state, int threads);

/* For elements [start, start + n) of the parameters; `master` points to the first of them. Before
 * and after an update, as gd_rounded says. */
void gd_master_follow(float *master, gd_rounded rounded, int64_t start, int64_t n);
void gd_master_round(gd_rounded rounded, const float *master, int64_t start, int64_t n);

#endif
