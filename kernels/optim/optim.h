/* optim.h - the updates of optim_cpu.c, for float and for double; optim.c picks one. */
#ifndef GRADUS_KERNELS_OPTIM_H
#define GRADUS_KERNELS_OPTIM_H

#include "services.h"

void gd_sgd_f32(void *w, void *v, const void *g, int64_t n, const gd_sgd_step *step, int threads);
void gd_sgd_f64(void *w, void *v, const void *g, int64_t n, const gd_sgd_step *step, int threads);
void gd_adamw_f32(void *w, void *m, void *v, const void *g, int64_t n, const gd_adamw_step *step,
                  int threads);
void gd_adamw_f64(void *w, void *m, void *v, const void *g, int64_t n, const gd_adamw_step *step,
                  int threads);

#endif
