/* diagnose.h - names the fault behind wrong elements.
 *
 *     evidence.c         the Jacobian, against which findings are verified
 *     hypotheses.def     what may be wrong, the most specific first, and the sentence for it
 *     diagnose.c         tries them in turn
 *     patterns.c         those on what the wrong elements have in common
 *     jacobian.c         those on which dy reaches which gradient, and with what factor
 *     formula.c          numbers as a short formula of inputs and outputs
 */
#ifndef GRADUS_DIAGNOSE_H
#define GRADUS_DIAGNOSE_H

#include "gradcheck/check.h"

/* The gradients that a set of cotangents gives. */
typedef struct gd_columns {
    double *const *cotangent;   /* [outputs] */
    double *analytic, *numeric; /* [count] */
    double scale, slack; /* what errors are relative to, and how far a gradient may be from what
                                 * a finding says it is */
} gd_columns;

/* The result of the comparison of one input, and what findings on it are verified against: the
 * gradients for sets of cotangents, first those of the check, from `first` on, then probes. */
typedef struct gd_evidence {
    gd_checker *c;
    gd_gradcheck_input *out;
    int input;
    const gd_argument *argument;
    int64_t count;     /* elements examined */
    const int64_t *at; /* [count] flat indices, ascending but for those found by directions */
    int set;           /* the set with the worst element */
    int first, measured, sets; /* sets of the check, and all */
    gd_columns *of;            /* [sets] */
    bool *wrong;               /* [count] in any of the sets */
    bool *skip;                /* [count] at a kink, and between its slopes */
    bool unknown;              /* some elements could not be judged */
    bool others;               /* of the elements that were not examined some are wrong */
    bool sure;                 /* the probes are accurate, and the backward repeatable */
    bool one_hot;     /* probe k is dy with a single 1, at element k: the Jacobian's columns */
    bool *used;       /* [probes] any element of the gradient, examined or not, is not 0 */
    bool strays;      /* and one that is not the dy's own */
    gd_slope *slopes; /* scratch: [2 sets] */
    double rtol;
    int which;        /* the hypothesis that is tried, of several of a function */
    char detail[256]; /* and what it has found, in words */

    /* With one-hot probes, the entries of the Jacobian: */
    const gd_result *y;
    int64_t rows, columns; /* elements of the gradient that are known, and of dy */
    int64_t *row;          /* [rows] the former, of those examined */
    double tolerance;
    bool alike;                  /* x and y have the same shape */
    bool linear, same;           /* gradients add up from the entries; are the same for every dy */
    int64_t missing, extra, off; /* entries of that kind; the first missing and extra one: */
    int64_t missing_at, extra_at;
} gd_evidence;

/* Adds the probes to the sets. */
void gd_check_evidence(gd_evidence *s);
/* The slopes along an element of any input, [sets]. */
void gd_check_probe_slopes(const gd_evidence *s, int input, int64_t element, double h,
                           gd_slope *slope);
/* Compares the entries of both Jacobians. */
void gd_check_entries(gd_evidence *s);

/* Describes what is wrong, in out->finding. A finding must hold for every element, every set of
 * cotangents of the check and every probe, so for the whole Jacobian, to within the tolerance of
 * the check and to 1/50 of the error. */
void gd_check_diagnose(gd_evidence *s);
/* Where the wrong elements are, " in row 3"; "" if they share no index. */
gd_text gd_check_where(const gd_evidence *s);

/* Appends to s->detail. */
#define gd_check_add(s, ...) gd_check_say((s)->detail, sizeof(s)->detail, __VA_ARGS__)

/* Of what entries a formula is sought: those of the backward; half the sum of those and the true
 * ones, to which a term is added with the wrong sign; what they lack. */
enum { GD_OURS, GD_MIDDLE, GD_ERROR };
/* What an error may be a multiple of, and along which elements with the same coefficients. */
enum { GD_ONE = 1, GD_GRADIENT = 2, GD_INPUT = 4, GD_ROWS = 8, GD_COLUMNS = 16 };

/* Numbers e by least squares as a f + b g, and the sums of the products. */
typedef struct gd_fit {
    double a, b, ff, fg, gg, fe, ge;
} gd_fit;
void gd_check_add_point(gd_fit *fit, double f, double g, double e);
void gd_check_solve(gd_fit *fit, bool both); /* else b is 0 */

/* The entries, of elements in the sets [first, end), in groups that have an error of their
 * own each. */
typedef struct gd_groups {
    int terms; /* what f is, and g: GD_INPUT beside GD_ONE */
    int first, end;
    /* The group of an entry; -1: it does not count. */
    int64_t (*of)(const gd_evidence *s, const struct gd_groups *groups, int set, int64_t e);
    int64_t count;
    gd_fit *fit;         /* [count] */
    bool others, by_row; /* of factors (jacobian.c) */
    int axis;
    int64_t accurate;
} gd_groups;

/* Finds the fits. Whether they are all of the error of each entry. */
bool gd_check_fits(const gd_evidence *s, gd_groups *groups);

/* Whether a hypothesis holds; s->detail gets what its sentence has in place of %s. */
#define HYPOTHESIS(group, name, which, sentence) bool gd_holds_##name(gd_evidence *s);
#include "gradcheck/diagnose/hypotheses.def"
#undef HYPOTHESIS

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
