/* check.h - the inside of gradcheck. It uses the public interface only, so it works on any op and
 * any device.
 *
 *     case.c, fill.c     a function and its inputs, from an op's case or from the user
 *     check.c            the order of things
 *     run.c              forward with perturbed inputs; backward in every way there is
 *     numeric.c          the numeric derivative, and what one element's derivative is worth
 *     compare.c          which elements, and whether they agree
 *     census.c           what the wrong ones have in common
 *     jacobian.c         which dy reaches which gradient, and with what factor
 *     formula.c          numbers as a short formula of inputs and outputs
 *     behaviour.c        everything about a backward but its numbers
 *     probe.c            an op's record with a guard in front of its kernels
 *     report.c, json.c   words
 *
 * All host memory of a check hangs on one list (memory.c) and goes with it.
 */
#ifndef GRADUS_CHECK_H
#define GRADUS_CHECK_H

#include "gradus/gradcheck.h"
#include "gradus/random.h"

/* An input of the function. */
typedef struct gd_argument {
    char name[64];
    gd_dtype dtype;
    int ndim;
    int64_t shape[GD_MAX_DIMS];
    int64_t count;
    bool given;      /* false: an optional input, left out */
    bool wanted;     /* has a gradient that this check looks at */
    bool borrowed;   /* the leaf is the user's, and ... */
    bool required;   /* ... requires a gradient */
    double *value;   /* [count], as stored in dtype */
    double scale;    /* how far the values spread; what steps are relative to */
    gd_tensor *leaf; /* holds the values; NULL: not given */
    /* What is perturbed to measure the derivative. The leaf itself, but for leaves of 16 bits, too
     * coarse for any step: then a float64 tensor with the same values. */
    gd_tensor *measured;
} gd_argument;

/* An output of the function. */
typedef struct gd_result {
    gd_dtype dtype;
    gd_dtype measured; /* of the output computed from what is measured */
    bool real;         /* others take no part */
    int ndim;
    int64_t shape[GD_MAX_DIMS];
    int64_t count;
    double *base;         /* [count], at the unperturbed inputs */
    double *plus, *minus; /* [count], at perturbed ones */
    char *moves;          /* [count]: whether it did, on this ladder; others do not round, either */
} gd_result;

/* What to move: one element of an input, or all of it along a direction. */
typedef struct gd_move {
    int input;
    int64_t element;         /* -1: along the direction */
    const double *direction; /* [count] */
} gd_move;

/* The slope of u . f(x) along a move of length h, for one cotangent set. */
typedef struct gd_slope {
    double central, left, right;
    double noise; /* what rounding may contribute */
} gd_slope;

typedef struct gd_probe gd_probe;
typedef struct gd_checker gd_checker;

struct gd_checker {
    gd_context *ctx;
    gd_gradcheck_options given, options; /* as asked for; with all defaults filled in */
    gd_dtype dtype;                      /* of the inputs */
    gd_gradcheck_report *report;
    gd_random_state random; /* of the context, before */
    bool running;           /* from here on an error is the function's */
    bool kinks;             /* there may be kinks */
    bool may_be_empty;      /* nothing to compare is by design */

    /* The function: fills out[outputs] with tensors of the step. */
    gd_status (*apply)(gd_checker *c, gd_tensor *const *in, gd_tensor **out);
    gd_probe *probe; /* of a case */
    const gd_op *op;
    const void *args;
    gd_function function;
    void *user;

    int inputs, outputs;
    gd_argument *input;
    gd_result *output;
    gd_tensor **in, **out; /* room for one call: [inputs], [outputs] */

    /* Cotangents come in sets: cotangent[set][output], NULL for none. First the random ones for
     * all outputs at once, then, where there are several outputs, one for each output alone. */
    int sets;
    double ***cotangent;
    int *alone;   /* [sets]: the output that has one; -1: all */
    double *unit; /* [sets]: scale(u) * scale(f(x)), what a gradient times scale(x) is like */

    double ***analytic;             /* [sets][inputs]: gradients by backward */
    double **plus, **minus, **base; /* [outputs]: those of the outputs, as lists */
    double *moved, *moved_back;     /* room for the largest input */
    gd_slope *slope;                /* room: [sets] */

    struct gd_block *blocks; /* memory.c */
};

/* ---- memory.c ----------------------------------------------------------------------------- */

/* Zeroed host memory that lives as long as the check; NULL, and the context's error set, when there
 * is none. */
void *gd_check_allocate(gd_checker *c, int64_t count, size_t size);
double *gd_check_numbers(gd_checker *c, int64_t count);
void gd_check_free(gd_checker *c);

/* ---- check.c: the order of things --------------------------------------------------------- */

gd_status gd_check_begin(gd_checker *c, gd_context *ctx, const gd_gradcheck_options *options,
                         gd_gradcheck_report *report);
/* Runs everything once inputs and apply are set, and fills the report. */
gd_status gd_check_all(gd_checker *c);
/* Frees all; turns an error of the library into a verdict where it is one. */
gd_status gd_check_end(gd_checker *c, gd_status status);
/* Makes the leaf of an input from its values, and reads back what was stored. */
gd_status gd_check_make_leaf(gd_checker *c, gd_argument *a);
gd_status gd_check_read_leaf(gd_argument *a); /* values and scale */
/* Room for a gradient of each wanted input. */
gd_status gd_check_make_gradients(gd_checker *c, double ***gradient);
/* Notes what is wrong with the behaviour of an input's gradient (-1: of no one in particular);
 * the first complaint stays. */
void gd_check_complain(gd_checker *c, int input, const char *format, ...) GD_PRINTF(3, 4);
void gd_check_copy_name(char *to, size_t size, const char *from);

/* ---- fill.c ------------------------------------------------------------------------------- */

/* Each use of random numbers has streams of its own; input i has stream i. */
enum {
    GD_STREAM_COTANGENT = 100, /* + 50 set + output */
    GD_STREAM_HELD = 900,      /* + input: what a gradient holds already */
    GD_STREAM_SAMPLE = 1000,
    GD_STREAM_DIRECTION = 2000 /* + direction */
};

/* The values of a case's input, which depend on the seed and the stream alone. No two of
 * GD_FILL_DISTINCT are closer than `gap`. */
void gd_check_fill(double *value, int64_t count, const gd_case_input *how, double gap,
                   uint64_t seed, uint64_t stream, double *room);
void gd_check_normal(double *value, int64_t count, uint64_t seed, uint64_t stream);
/* Random signs, +1 or -1. */
void gd_check_signs(double *value, int64_t count, uint64_t seed, uint64_t stream);
/* A random number below `limit`. */
int64_t gd_check_below(int64_t limit, uint64_t seed, uint64_t stream, int64_t at);
void gd_check_sort(double *x, int64_t count); /* ascending */

/* ---- run.c -------------------------------------------------------------------------------- */

/* Runs the function on `in` without recording it and reads its outputs into y[outputs]. */
gd_status gd_check_forward(gd_checker *c, double *const *y);

/* One backward, and how. All zero: the plain one. */
typedef struct gd_run {
    double *const *cotangent; /* [outputs]; NULL elements: none arrives there */
    const bool *wanted;       /* [inputs]; NULL: all that are wanted */
    bool twice;               /* walk the tape twice and take the second's gradients */
    double *const *held;      /* [inputs]: what the gradients hold when the second walk begins */
    double *const *values;    /* [outputs]: room to read the outputs into; NULL: not wanted */
    bool op_made_inputs;      /* inputs and outputs pass through an op that copies them, so that */
    bool op_made_outputs;     /* their values and gradients are the tape's own, to reuse */
    bool strided, reversed;   /* inputs and cotangents are windows on larger tensors */
    bool interrupted;         /* the op runs on other data between forward and backward */
    int same_from, same_to;   /* if same_to > 0: input same_to is the tensor of same_from */
} gd_run;

/* The gradients go to gradient[inputs], where not NULL; zeros where none arrived. Inputs that were
 * changed are restored, with a complaint. */
gd_status gd_check_backward(gd_checker *c, const gd_run *run, double **gradient);

/* An op whose output is a window on a larger tensor, with one element left all around. Reversed,
 * the last dimension is the slowest in memory; else rows are packed, with gaps between them. */
typedef struct gd_window {
    int ndim;
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
    int64_t offset, count; /* of the large tensor's elements */
} gd_window;
extern const gd_op gd_check_window_op, gd_check_copy_op;
gd_window gd_check_window(int ndim, const int64_t *shape, bool reversed);
int64_t gd_check_window_at(const gd_window *w, int64_t element);

/* ---- probe.c ------------------------------------------------------------------------------ */

/* A record whose kernels poison what they are to write, call the real ones, and compare what those
 * must not change. */
struct gd_probe {
    gd_op op; /* first, so that call->op leads here */
    const gd_op *real;
    gd_checker *checker;
    bool spoil;          /* during backward, fill what the record does not say it reads */
    char complaint[256]; /* the first one */
    int reused_doutput, reused_input; /* how often a gradient was given such memory */
};
void gd_check_probe(gd_probe *probe, const gd_op *op, gd_checker *c);

/* ---- numeric.c ---------------------------------------------------------------------------- */

/* h is relative to the input's scale. slope [sets]. Along a direction, c->moved holds the move as
 * it was stored, divided by its length: central is an estimate of sum(gradient * moved). */
gd_status gd_check_slopes(gd_checker *c, const gd_move *move, double h, gd_slope *slope);

typedef enum gd_state {
    GD_STATE_RIGHT = 0,
    GD_STATE_WRONG,
    GD_STATE_KINK,
    GD_STATE_UNSTABLE
} gd_state;

/* Slopes at a ladder of steps, from 16 h down, each a quarter of the one before. */
#define GD_RUNGS 8
typedef struct gd_ladder {
    double step[GD_RUNGS];
    gd_slope slope[GD_RUNGS];
} gd_ladder;

/* The numeric derivative at its best: the pair of rungs that agree best among themselves. */
typedef struct gd_estimate {
    double value, error;
    int rung; /* the finer one of the two */
} gd_estimate;

gd_status gd_check_ladder(gd_checker *c, const gd_move *move, int set, gd_ladder *ladder);
gd_estimate gd_check_estimate(const gd_ladder *ladder, double tolerance, bool kinks);
bool gd_check_contradicted(const gd_ladder *ladder, const gd_estimate *estimate, double analytic,
                           double tolerance);
/* Whether an analytic slope agrees with the ladder; *numeric is what it was held against. */
gd_state gd_check_judge(const gd_ladder *ladder, double analytic, double tolerance, bool kinks,
                        double *numeric);

/* ---- compare.c, census.c, behaviour.c ----------------------------------------------------- */

/* What came of the comparison of one input, seen from one of the cotangent sets. */
typedef struct gd_census {
    gd_checker *c;
    int input;
    const gd_argument *argument;
    int64_t count;          /* elements looked at */
    const int64_t *at;      /* [count] flat indices, ascending but for those found by directions */
    int set, begin, end;    /* the set; those in begin ... end - 1 must fit a finding as well */
    double *const *numeric; /* [sets][count] */
    char *const *state;     /* [sets][count] of gd_state */
    const double *scale;    /* [sets] what errors are relative to */
    const double *slack;    /* [sets] how far a gradient may be from what a finding says it is */
    double rtol;
    double *room; /* [2 count] */
} gd_census;

static inline double gd_census_analytic(const gd_census *s, int set, int64_t e)
{
    return s->c->analytic[set][s->input][s->at[e]];
}

/* float16 ends at 65504, and a measured number may be a little off: whether an infinity stands for
 * one that is larger. */
bool gd_check_overflows(gd_dtype dtype, double got, double wanted);
gd_status gd_check_compare(gd_checker *c, int input, gd_gradcheck_input *out);
/* Finds words for what is wrong: out->finding. A finding must hold for every element, to within the
 * tolerance of the check. */
gd_status gd_check_census(const gd_census *census, gd_gradcheck_input *out);
/* Appends to out->finding. */
void gd_check_say(gd_gradcheck_input *out, const char *format, ...) GD_PRINTF(2, 3);
gd_status gd_check_behaviour(gd_checker *c);

/* ---- jacobian.c, formula.c ---------------------------------------------------------------- */

/* Appends to out->finding what the Jacobian shows, if it shows anything. */
gd_status gd_check_jacobian(const gd_census *census, gd_gradcheck_input *out);

enum { GD_SYMBOLS = 5 };

/* Points at which numbers are known by name. */
typedef struct gd_points {
    int64_t count;
    int symbols;
    const char *name[GD_SYMBOLS];
    double *value[GD_SYMBOLS]; /* [count] */
    const double *weight;      /* [count] of which the targets are multiples; NULL: none */
} gd_points;

/* Finds `target` [count] as a sum of up to `terms` (1 or 2) products of powers of the symbols, each
 * with a fraction before it, to within `tolerance` at each point. Writes it, each term times `unit`
 * ("dy", or ""). False: there is none, or too few points to tell. */
bool gd_check_formula(gd_checker *c, const gd_points *points, const double *target,
                      double tolerance, int terms, const char *unit, gd_text *text);
/* The simple fraction within `tolerance` of x; 0 if there is none. */
double gd_check_fraction(double x, double tolerance, gd_text *text);
/* A factor as the size of an axis, as a fraction, or else as a number. */
gd_text gd_check_factor(const gd_argument *a, double factor, double tolerance);

/* A ratio with the digits in which it differs from 1: "0.5", "1.00004". */
gd_text gd_check_ratio(double ratio);

/* An element's place as text, "[2, 17]"; "" without dimensions. */
gd_text gd_check_place(int ndim, const int64_t *shape, int64_t element);
/* A shape likewise, "[4, 64]". */
gd_text gd_check_shape(int ndim, const int64_t *shape);

#endif
