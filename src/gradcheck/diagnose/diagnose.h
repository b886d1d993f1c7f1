/* diagnose.h - names the fault behind wrong elements.
 *
 *     evidence.c     the Jacobian, against which findings are verified
 *     patterns.c     what the wrong elements have in common
 *     jacobian.c     which dy reaches which gradient, and with what factor
 *     formula.c      numbers as a short formula of inputs and outputs
 */
#ifndef GRADUS_DIAGNOSE_H
#define GRADUS_DIAGNOSE_H

#include "gradcheck/check.h"

/* The result of the comparison of one input, and what findings on it are verified against: the
 * gradients for sets of cotangents, first those of the check, from `first` on, then probes. */
typedef struct gd_evidence {
    gd_checker *c;
    int input;
    const gd_argument *argument;
    int64_t count;     /* elements examined */
    const int64_t *at; /* [count] flat indices, ascending except for those found by directions */
    int set;           /* the set with the worst element */
    int first, measured, sets;    /* sets of the check, and all */
    double *const **cotangent;    /* [sets][outputs]; not of one-hot probes */
    double **analytic, **numeric; /* [sets][count] */
    bool *wrong;                  /* [count] in any of the sets */
    bool *skip;                   /* [count] at a kink, and between its slopes */
    bool unknown;                 /* some elements could not be judged */
    double *scale, *slack; /* [sets] what errors are relative to, and how far a gradient may be
                            * from what a finding says it is */
    bool others;           /* of the elements that were not examined some are wrong */
    bool sure;             /* the probes are accurate, and the backward repeatable */
    bool one_hot;          /* probe k is dy with a single 1, at element k: the Jacobian's columns */
    bool *used;            /* [probes] any element of the gradient, examined or not, is not 0 */
    bool strays;           /* and one that is not the dy's own */
    double *slopes;        /* scratch: [3 sets] */
    double rtol;
    double *scratch; /* [2 count] */
} gd_evidence;

/* ---- evidence.c --------------------------------------------------------------------------- */

/* Adds the probes to the sets. */
gd_status gd_check_evidence(gd_evidence *s);
int64_t gd_check_most_sets(const gd_checker *c);
/* The slopes along an element of any input, and their rounding errors: [sets]. */
gd_status gd_check_probe_slopes(const gd_evidence *s, int input, int64_t element, double h,
                                double *slope, double *noise);

/* ---- patterns.c --------------------------------------------------------------------------- */

/* Describes what is wrong, in out->finding. A finding must hold for every element, to within the
 * tolerance of the check. */
gd_status gd_check_diagnose(gd_evidence *evidence, gd_gradcheck_input *out);

/* ---- jacobian.c, formula.c ---------------------------------------------------------------- */

/* Appends what the Jacobian shows, if anything, to out->finding. */
gd_status gd_check_jacobian(const gd_evidence *evidence, gd_gradcheck_input *out);

enum { GD_SYMBOLS = 5 };

/* Points with the values of named symbols. */
typedef struct gd_points {
    int64_t count;
    int symbols;
    const char *name[GD_SYMBOLS];
    double *value[GD_SYMBOLS]; /* [count] */
    const double *weight;      /* [count] the targets are multiples of it; NULL: of 1 */
} gd_points;

/* Finds `target` [count] as a sum of up to `terms` (1 or 2) products of powers of the symbols, with
 * fractions as coefficients, to within `tolerance` at each point. Writes it, each term times `unit`
 * ("dy", or ""). False: none fits, or there are too few points. */
bool gd_check_formula(gd_checker *c, const gd_points *points, const double *target,
                      double tolerance, int terms, const char *unit, gd_text *text);
/* The simple fraction within `tolerance` of x; 0 if there is none. */
double gd_check_fraction(double x, double tolerance, gd_text *text);
/* A factor as text: the size of an axis, a fraction, or else a number. */
gd_text gd_check_factor(const gd_argument *a, double factor, double tolerance);

#endif
