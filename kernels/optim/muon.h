/* muon.h - what Muon is on every device. */
#ifndef GRADUS_KERNELS_MUON_H
#define GRADUS_KERNELS_MUON_H

#include <math.h>

#include "optim/services.h"

/* The step of Newton and Schulz, X <- a X + (b A + c A A) X with A = X X^T. */
enum { MUON_STEPS = 5 };
#define MUON_A 3.4445
#define MUON_B (-4.7750)
#define MUON_C 2.0315
#define MUON_LEAST 0x1p-968 /* sums of squares below it have lost digits: there is no step */

/* What the learning rate is multiplied by for a matrix of this shape. */
static inline double muon_size(const gd_muon_rule *rule, int64_t rows, int64_t columns)
{
    const double most = (double)(rows > columns ? rows : columns);
    if (rule->match_adamw) return 0.2 * sqrt(most);
    return sqrt(most / (double)columns);
}

#endif
