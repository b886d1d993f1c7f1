/* optim.h - the updates of optim_cpu.c and muon_cpu.c, for float and for double, of which optim.c
 * picks one; and the masters of 16-bit parameters (master.c). */
#ifndef GRADUS_KERNELS_OPTIM_H
#define GRADUS_KERNELS_OPTIM_H

#include "optim/services.h"

void gd_optimize_f32(const gd_update_arrays *arrays, const gd_rule *rule,
                     const gd_update_state *state, int threads);
void gd_optimize_f64(const gd_update_arrays *arrays, const gd_rule *rule,
                     const gd_update_state *state, int threads);

/* `call` gives the temporary memory. */
gd_status gd_muon_f32(const gd_call *call, const gd_update_arrays *arrays, int64_t rows,
                      int64_t columns, const gd_muon_rule *rule, const gd_update_state *state);
gd_status gd_muon_f64(const gd_call *call, const gd_update_arrays *arrays, int64_t rows,
                      int64_t columns, const gd_muon_rule *rule, const gd_update_state *state);

/* For elements [start, start + n) of the parameters; `master` points to the first of them. Before
 * and after an update, as gd_rounded says. */
void gd_master_follow(float *master, gd_rounded rounded, int64_t start, int64_t n);
void gd_master_round(gd_rounded rounded, const float *master, int64_t start, int64_t n);

#endif
