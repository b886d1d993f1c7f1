/* check.h - the internals of gradcheck. It uses the public interface only, so it works on any op
 * and any device.
 *
 *     case.c, fill.c     a function and its inputs, from an op's case or from the user
 *     check.c            the sequence of a check
 *     checker.c          what all of the others use
 *     run.c              forward with perturbed inputs; backward in all its variants
 *     numeric.c          the numeric derivative of one element, and its accuracy
 *     compare.c          which elements, and whether they agree
 *     behaviour.c        everything about a backward but its numbers
 *     higher.c           the second and the third order: the function is a gradient
 *     probe.c            an op's record with instrumented kernels
 *     report.c, json.c   the report as text and as JSON
 *     diagnose/          what is wrong (diagnose.h)
 *
 * All host memory of a check is on one list and is freed with it. The first error is kept, in
 * `status`: functions return nothing, and do nothing once gd_check_failed. */
#ifndef GRADUS_CHECK_H
#define GRADUS_CHECK_H

#include "gradus/gradcheck.h"
#include "gradus/random.h"

typedef struct gd_checker gd_checker;

/* An input of the function. */
typedef struct gd_argument {
    char name[64];
    gd_spec spec;
    int64_t count;
    bool given;      /* false: an optional input, left out */
    bool wanted;     /* has a gradient that this check looks at */
    bool borrowed;   /* the leaf is the user's, and ... */
    bool required;   /* ... requires a gradient, also where this check looks at others alone */
    bool again;      /* the tensor of an earlier input, given once more: only that one counts */
    double *value;   /* [count], as stored in its dtype */
    double scale;    /* the spread of the values; steps are relative to it */
    gd_tensor *leaf; /* holds the values; NULL: not given */
    /* What is perturbed to measure the derivative: the leaf itself, or, for leaves of 16 bits,
     * which are too coarse for any step, a float64 tensor with the same values. */
    gd_tensor *measured;
    int64_t first; /* the first element of its gradient among those of all wanted inputs */
    uint32_t bit;  /* in sets of inputs, for the first 31 wanted ones; else 0 */
} gd_argument;

/* An output of the function. */
typedef struct gd_result {
    gd_spec spec;
    gd_dtype measured; /* of the output computed from the inputs' `measured` */
    bool real;         /* others are ignored */
    int64_t count;
    double size;          /* the root of the mean square of its values, at x or else near it */
    double *base;         /* [count], at the unperturbed inputs */
    double *plus, *minus; /* [count], at perturbed ones */
    double *low, *high;   /* [count], the range of its slopes near x (gd_check_choice) */
    char *moves; /* [count]: whether it moved on this ladder; else it has no rounding error */
} gd_result;

/* The slope of u . f(x) along a move of length h, for one cotangent u. */
typedef struct gd_slope {
    double central, left, right;
    double noise; /* the possible rounding error */
} gd_slope;

/* Cotangents, and what they give. First there are sets of random ones for all outputs at once,
 * then, if there are several outputs, a set for each output alone. */
typedef struct gd_set {
    double **cotangent; /* [outputs]; NULL elements: the output gets none */
    int alone;          /* the output that has one; -1: all */
    double unit;        /* scale(u) * scale(f(x)), the magnitude of a gradient times scale(x) */
    double *gradient;   /* by backward, of all wanted inputs */
    gd_slope slope;     /* the latest (gd_check_slopes) */
} gd_set;

typedef struct gd_probe gd_probe;

/* What is checked. */
typedef struct gd_subject {
    /* Fills out[outputs] with tensors of the step. */
    gd_status (*apply)(gd_checker *c, gd_tensor *const *in, gd_tensor **out);
    const gd_op *op; /* of a case, with its arguments and its instrumented record; else NULL */
    const void *args;
    gd_probe *probe;
    gd_function function; /* of the user's */
    void *user;
    int arguments;     /* the inputs of the op or the user's function: the first ones of all */
    bool kinks;        /* it may have kinks */
    bool may_be_empty; /* having nothing to compare is by design */
} gd_subject;

struct gd_checker {
    gd_context *ctx;
    gd_status status;
    gd_gradcheck_options given, options; /* as given; with all defaults set */
    gd_gradcheck_report *report;
    gd_random_state random; /* of the context, before */
    bool running;           /* errors are now the function's */

    gd_subject f;
    struct gd_higher *higher; /* of a higher order, see there */
    gd_dtype dtype;           /* of the inputs */
    int inputs, outputs, sets;
    gd_argument *input;
    gd_result *output;
    gd_set *set;
    int64_t length; /* the elements of all gradients */
    int bits;       /* the inputs that have a bit */

    /* Room for one call, [inputs] and [outputs], and for the values of the largest input. */
    gd_tensor **in, **out;
    double *moved, *moved_back, *moved_near;
    double **got; /* room for the gradients of several walks (behaviour.c) */

    struct gd_block *blocks; /* the host memory */
};

/* ---- check.c: the sequence of a check ----------------------------------------------------- */

gd_status gd_check_begin(gd_checker *c, gd_context *ctx, const gd_gradcheck_options *options,
                         gd_gradcheck_report *report);
/* Runs everything once inputs and apply are set, and fills the report. */
void gd_check_all(gd_checker *c);
/* Frees everything; turns an error into a verdict if it is the function's. */
gd_status gd_check_end(gd_checker *c);

/* ---- checker.c ---------------------------------------------------------------------------- */

/* Zeroed host memory that lives as long as the check; NULL, with the context's error set, if there
 * is not enough memory. */
void *gd_check_allocate(gd_checker *c, int64_t count, size_t size);
double *gd_check_numbers(gd_checker *c, int64_t count);
/* Room for a gradient of each wanted input. */
double *gd_check_gradient(gd_checker *c);
void gd_check_free(gd_checker *c);
/* Keeps the first error. */
void gd_check_keep(gd_checker *c, gd_status status);
/* Whether there was one, or the context has one. */
bool gd_check_failed(gd_checker *c);

/* How exact a real dtype is. */
typedef struct gd_accuracy {
    double rounding;         /* half a unit in the last place, relative */
    double close;            /* the relative difference that rounding may cause if the same sums are
                              * computed in another way */
    double step, rtol, atol; /* defaults where the forward that is differentiated has it, */
    double stored_rtol, stored_atol; /* and the least where inputs and gradients have it */
} gd_accuracy;
extern const gd_accuracy gd_check_accuracy[GD_DTYPE_COUNT];

/* The dtype of the forward that is differentiated: float64 for 16 bits, which are too coarse. */
gd_dtype gd_check_measured_dtype(gd_dtype dtype);
bool gd_check_same_shape(const gd_spec *a, const gd_spec *b);
/* The largest of the numbers that are finite, without their signs. */
double gd_check_largest(const double *x, int64_t count);
/* Whether two tensors share memory. */
bool gd_check_overlap(const gd_tensor *a, const gd_tensor *b);
/* Makes the leaf of an input from its values, and reads back what was stored. */
void gd_check_make_leaf(gd_checker *c, gd_argument *a);
void gd_check_read_leaf(gd_argument *a); /* values and scale */
/* Applies only_input and only_element; an error if they do not fit the function. */
void gd_check_choose_input(gd_checker *c);
/* A random cotangent for an output, of few enough bits to be exact in its dtype. */
double *gd_check_cotangent(gd_checker *c, int output, uint64_t stream);
/* Appends an input to the report. */
void gd_check_report_input(gd_checker *c, int input);
/* The report on an input; what is about one that wants no gradient, or about none (-1), is reported
 * with the first that does. NULL: there is none. */
gd_gradcheck_input *gd_check_report_on(const gd_checker *c, int input);
/* Notes what is wrong with the behaviour of an input's gradient; the first complaint is kept. */
void gd_check_complain(gd_checker *c, int input, const char *format, ...) GD_PRINTF(3, 4);
void gd_check_copy_name(char *to, size_t size, const char *from);
/* Appends to a text of `size`; to a gd_text. */
void gd_check_say(char *text, size_t size, const char *format, ...) GD_PRINTF(3, 4);
#define gd_check_write(to, ...) gd_check_say((to)->text, sizeof(to)->text, __VA_ARGS__)

/* ---- fill.c ------------------------------------------------------------------------------- */

/* Each use of random numbers has streams of its own; in draw d input i has stream
 * i + GD_CASE_MAX_INPUTS d. */
enum {
    GD_STREAM_COTANGENT = 100, /* + 50 set + output */
    GD_STREAM_HELD = 900,      /* + input: what a gradient holds already */
    GD_STREAM_SAMPLE = 1000,
    GD_STREAM_HIGHER = 1100,    /* + input */
    GD_STREAM_PROBE = 1200,     /* + 50 probe + output */
    GD_STREAM_SHAKE = 1700,     /* + 50 time + output */
    GD_STREAM_DIRECTION = 2000, /* + direction */
    GD_STREAM_NEAR = 3000,      /* + 50 sample + input */
};

/* The values of a case's input, which depend only on the seed and the stream. With GD_FILL_DISTINCT
 * no two are closer than `gap`. */
void gd_check_fill(double *value, int64_t count, const gd_case_input *how, double gap,
                   uint64_t seed, uint64_t stream, double *scratch);
void gd_check_normal(double *value, int64_t count, uint64_t seed, uint64_t stream);
/* Random signs, +1 or -1. */
void gd_check_signs(double *value, int64_t count, uint64_t seed, uint64_t stream);
/* A random number below `limit`. */
int64_t gd_check_below(int64_t limit, uint64_t seed, uint64_t stream, int64_t at);
void gd_check_sort(double *x, int64_t count); /* ascending */

/* ---- run.c -------------------------------------------------------------------------------- */

/* Calls the function with c->in. It is not recorded, except for a user's function, which may
 * contain gd_gradients. */
void gd_check_call_alone(gd_checker *c);
/* Runs the function at the inputs' `measured` without a backward, and reads its outputs: into
 * `plus` if side is 1, `minus` if it is -1, `base` if it is 0. */
void gd_check_forward(gd_checker *c, int side);

/* What a walk's gradients are compared with. */
typedef enum gd_sameness {
    GD_CLOSE,          /* the same but for rounding */
    GD_BITS,           /* the same bits */
    GD_BITS_IF_CLAIMED /* the same bits if the record says so; else a difference by rounding is only
                        * remarked on */
} gd_sameness;

/* One walk over the tape, and what it is to give. */
typedef struct gd_walk {
    double *const *cotangent; /* [outputs]; NULL elements: the output gets none */
    /* The gradients of the inputs `exist` hold `held` when the walk begins; others do not exist. An
     * earlier walk must have made those that do. */
    const double *held;
    uint32_t exist;
    double *gradient; /* gets the gradients; zeros for inputs that got none */

    bool by_ops;         /* they are made by ops, as those of gd_gradients with `differentiable` */
    const double *right; /* what they are to be, without what is held */
    gd_sameness same;
    bool repeat;         /* a NaN must be one again; else nothing is expected instead of one */
    const double *noise; /* [inputs] by gd_check_shake; NULL: not known */
    char when[160];      /* the words for a difference: "with a cotangent of zeros" */
} gd_walk;

/* How to run a forward, and backwards over its tape. */
typedef struct gd_run {
    gd_walk *walk;          /* [walks] */
    int walks;              /* at least 1 */
    uint32_t some;          /* the inputs that require a gradient; 0: all that want one */
    bool outputs;           /* to be read, into `plus` */
    bool op_made_inputs;    /* inputs and outputs are multiplied by 1, so that */
    bool op_made_outputs;   /* their values and gradients are the tape's own, to reuse */
    bool strided, reversed; /* inputs and cotangents are views of larger tensors */
    bool interrupted;       /* the op runs on other data between forward and backward */
    int same_from, same_to; /* if same_to > 0: input same_to is the tensor of same_from */
} gd_run;

/* Whether input i requires a gradient in a run. */
bool gd_check_requires(const gd_checker *c, const gd_run *run, int i);
/* Inputs that were changed are restored, with a complaint. */
void gd_check_run(gd_checker *c, const gd_run *run);
/* One walk for all inputs that want a gradient, by the kernels. */
void gd_check_backward(gd_checker *c, double *const *cotangent, double *gradient);
/* How far the gradients move, at most, [inputs], if each cotangent moves by the fraction `by` of
 * itself, up or down. Terms that cancel move by so much of their own size, and the rounding of
 * terms that always cancel is another one; the gradient itself says nothing about either. NULL
 * on error. */
double *gd_check_shake(gd_checker *c, double *const *cotangent, double by, bool by_ops);

/* ---- probe.c ------------------------------------------------------------------------------ */

/* A record whose kernels fill what is to be written with NaN, call the real kernels, and compare
 * what these must not change. */
struct gd_probe {
    gd_op op; /* first, so that call->op leads here */
    const gd_op *real;
    gd_checker *checker;
    int threads;         /* that the kernels get; 0: the context's */
    double fill;         /* what gradients hold that are to be overwritten: NaN */
    bool spoil;          /* before backward, overwrite what it does not declare as read */
    char complaint[256]; /* the first one */
};
void gd_check_probe(gd_probe *probe, const gd_op *op, gd_checker *c);

/* ---- numeric.c ---------------------------------------------------------------------------- */

/* The largest float16 is 65504, and a measured number may be a little off: whether an infinity is
 * the right result for a number beyond the range. */
bool gd_check_overflows(gd_dtype dtype, double got, double wanted);

/* What to move: one element of an input, or all of it along a direction. */
typedef struct gd_move {
    int input;
    int64_t element;         /* -1: along the direction */
    const double *direction; /* [count] */
} gd_move;

/* Measures the slope of each set. h is relative to the input's scale. Along a direction, c->moved
 * is the move as stored, divided by its length: central estimates sum(gradient * moved). An
 * element's move sets only that element of c->moved. */
void gd_check_slopes(gd_checker *c, const gd_move *move, double h);

typedef enum gd_state {
    GD_STATE_RIGHT = 0,
    GD_STATE_WRONG,
    GD_STATE_KINK,
    GD_STATE_UNSTABLE
} gd_state;

/* Slopes at a ladder of steps, from 16 h down, each a quarter of the one before it. All are
 * multiplied by `shorter`. */
#define GD_RUNGS 8
typedef struct gd_ladder {
    double step[GD_RUNGS];
    gd_slope slope[GD_RUNGS];
    double jump; /* see find_jump; the shorter ladders of an element keep it */
} gd_ladder;

/* The best estimate of the derivative, from the pair of rungs that decides (numeric.c). */
typedef struct gd_estimate {
    double value, error;
    int rung; /* the finer one of the two */
} gd_estimate;

void gd_check_ladder(gd_checker *c, const gd_move *move, int set, double shorter,
                     gd_ladder *ladder);
gd_estimate gd_check_estimate(const gd_ladder *ladder, double tolerance, bool kinks);
bool gd_check_contradicted(const gd_ladder *ladder, const gd_estimate *estimate, double analytic,
                           double tolerance);
/* Whether an analytic slope agrees with the ladder; *numeric is the slope it was compared with. */
gd_state gd_check_judge(const gd_ladder *ladder, double analytic, double tolerance, bool kinks,
                        double *numeric);
/* Whether the function moves by rounding alone: by no more than a gradient's `rounding` explains,
 * or as much within short steps as within long ones. */
bool gd_check_flat(const gd_ladder *ladder, double rounding);
/* Whether what many steps show agrees with an analytic slope: their rounding errors average out.
 * *numeric is then the slope at a step of 0. */
bool gd_check_confirms(gd_checker *c, const gd_move *move, int set, const gd_ladder *ladder,
                       double analytic, double tolerance, double *numeric);
/* Whether the function jumps at x, or is not finite near it: its slopes grow at least as fast as
 * the steps shrink, and no faster than their square. */
bool gd_check_jumps(const gd_ladder *ladder);

/* Moves all inputs by about `radius` of their scale, at random, and in some samples an element of
 * `move` further, so that it is the largest or the smallest; with 0 back to their values. Those of
 * the move's input are then in c->moved_near. */
void gd_check_leave(gd_checker *c, const gd_move *move, int sample, double radius);
/* Judges an element's analytic slope that was not found to be right. GD_STATE_KINK: it is made of a
 * choice for each output at ties: near x, without ties, each output has slopes between which its
 * own may be. A gradient has ties of many kinds: GD_STATE_UNSTABLE if these are other ones. */
gd_state gd_check_choice(gd_checker *c, const gd_move *move, int set, const gd_ladder *ladder,
                         double tolerance);

/* ---- compare.c, behaviour.c, higher.c ----------------------------------------------------- */

void gd_check_compare(gd_checker *c, gd_gradcheck_input *out);
void gd_check_behaviour(gd_checker *c);
/* Whether gradients by ops equal those of the kernels but for rounding. `whose`: "its
 * derivative". */
void gd_check_by_ops(gd_checker *c, const char *whose);
/* Whether definition and derivative agree with the kernels. */
void gd_check_definition(gd_checker *c);
/* Replaces the checked function by its derivative of order options.order - 1. Returns scale(f(x))
 * at least, [outputs], for a gradient that may be 0. */
const double *gd_check_raise(gd_checker *c);

/* ---- report.c ----------------------------------------------------------------------------- */

/* A shape as text, "[4, 64]". */
gd_text gd_check_shape(int ndim, const int64_t *shape);
/* An element's indices likewise, "[2, 17]"; "" without dimensions. */
gd_text gd_check_indices(const gd_spec *spec, int64_t element);
/* One of an element's indices. */
int64_t gd_check_index(const gd_spec *spec, int64_t element, int axis);

#endif
