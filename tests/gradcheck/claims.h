/* claims.h - are the words of a report true? Reads a finding of gradcheck sentence by sentence and
 * compares each with the Jacobian of the backward and with the true one, both as plain matrices,
 * with nothing from the library's own code. */
#ifndef GRADUS_CLAIMS_H
#define GRADUS_CLAIMS_H

#include "gradus/gradus.h"

enum { CLAIMS_DIMS = GD_MAX_DIMS, CLAIMS_INPUTS = GD_CASE_MAX_INPUTS };

typedef struct claims_array {
    const char *name;
    int ndim;
    int64_t shape[CLAIMS_DIMS], count;
    double *value; /* NULL: not given */
} claims_array;

typedef struct claims_truth {
    claims_array x, y; /* the input and the output; x and others again as inputs: */
    int inputs;
    claims_array input[CLAIMS_INPUTS];
    const double *ours, *right;          /* [x.count][y.count] both Jacobians */
    const double *others[CLAIMS_INPUTS]; /* [input.count][y.count] the true ones of all inputs */
    double tolerance;                    /* relative to the largest entry */
    bool nonlinear; /* the backward is not linear in dy; `ours` is without what makes it so */
    int64_t nan;    /* elements that are NaN */
    bool garbage;   /* all are added to what their memory held */
} claims_truth;

/* NULL if all that the finding says is true; else what is not, in words. */
const char *claims_false(const claims_truth *truth, const char *finding);

#endif
