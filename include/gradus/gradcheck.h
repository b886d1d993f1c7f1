/* gradcheck.h - does this backward belong to this forward?
 *
 * For random inputs x and a random cotangent u, the backward claims dx = J^T u, where J is the
 * Jacobian of the forward. A central difference measures the same thing without it:
 *
 *     d(u . f(x)) / dx_i  =  u . (f(x + h e_i) - f(x - h e_i)) / (2h)  +  O(h^2)
 *
 * where 2h is taken as the difference of the two inputs as they were stored, and the sums run in
 * double. Elements are compared one by one up to a limit, beyond it a sample of them and several
 * random directions. See docs/numerics.md for the choice of h, and for what a passed check does
 * not say: it compares the backward with our own forward, which needs a reference of its own.
 *
 * Besides the numbers a check looks at how the backward behaves: runs it twice (same bits), adds
 * into gradients that hold something, writes over poisoned ones, asks for every subset of
 * gradients, leaves cotangents out, lets the tape reuse memory, passes strided inputs, and verifies
 * that neither the inputs nor what the forward saved was changed, and that the op may run on other
 * data between a forward and its backward. A context with the option `poison` makes these checks
 * sharper.
 *
 * All real numbers of a report are relative to two scales, so that inputs of 1e-20 are judged as
 * strictly as inputs of 1: steps to scale(x), the standard deviation of the input's values (at
 * least a hundredth of their root mean square), and errors to the largest gradient of that input.
 * A gradient that is zero throughout has no such scale; so errors are never measured against less
 * than
 *
 *     atol / rtol * scale(u) * scale(f(x)) / scale(x).
 */
#ifndef GRADUS_GRADCHECK_H
#define GRADUS_GRADCHECK_H

#include "gradus/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gd_verdict {
    GD_VERDICT_PASS = 0,
    GD_VERDICT_FAIL,         /* the analytic gradient is wrong, not finite, or misbehaves */
    GD_VERDICT_KINK,         /* every element lies at a kink; nothing could be compared */
    GD_VERDICT_VACUOUS,      /* nothing to compare: no element, or no input wants a gradient */
    GD_VERDICT_EMPTY,        /* the same, by the case's own design (zero rows) */
    GD_VERDICT_INCONCLUSIVE, /* the numeric derivative itself is not stable: two steps disagree */
    GD_VERDICT_UNSUPPORTED   /* no such device, dtype or backward */
} gd_verdict;

GD_API const char *gd_verdict_name(gd_verdict verdict); /* "PASS" ... */

/* The defaults depend on the dtype: here for float64, float32, float16, bfloat16. Inputs of 16 bits are too coarse to be moved by any step; in an op's case the
 * derivative is then measured on the op's float64 forward, at the values that the 16 bits hold.
 * Where an output has less precision than the inputs (a cast), the defaults are larger. */
typedef struct gd_gradcheck_options {
    const gd_dtype *dtype; /* of the inputs that are made; unset: float64 */
    uint64_t seed;
    double step;            /* h, relative to scale(x): 1e-5, 1e-2, 1e-5, 1e-5 */
    double rtol;            /* relative to the largest gradient: 1e-6, 1e-3, 1e-2, 0.1 */
    double atol;            /* see above: 1e-9, 1e-4, 1e-3, 1e-2 */
    int64_t max_elements;   /* per input; beyond it a sample of that many. 256 */
    int directions;         /* random directions, where a sample is taken. 4 */
    int cotangents;         /* random cotangents. 2 */
    bool only_numbers;      /* skip the checks of behaviour */
    const char *only_input; /* check this input alone, */
    int64_t only_element;   /* and of it this element alone (flat index, GD_ZERO for the first);
                             * skips behaviour, too */
} gd_gradcheck_options;

#define GD_GRADCHECK_SWEEP 6

/* What became of one input; see the report for words. */
typedef struct gd_gradcheck_input {
    char name[64];
    int index; /* among the op's inputs */
    int ndim;
    int64_t shape[GD_MAX_DIMS];
    gd_verdict verdict;
    int64_t elements, compared, kinks, wrong, inconclusive;
    int directions;       /* random directions compared, besides */
    double largest_error; /* |analytic - numeric|, relative as described above */
    double largest_gradient;
    int64_t worst;                     /* flat index of the worst element; -1: none */
    double analytic, numeric;          /* there */
    double ratio_median, ratio_spread; /* analytic / numeric over the wrong elements; NaN: none */
    char finding[256];   /* what is wrong: "a constant factor 1/2", "dy[3, :] is left out", "it is
                          * dy y instead of dy y - dy y^2" ...; "" if nothing is recognised */
    char behaviour[256]; /* the check of behaviour that failed, "" if none */

    /* Of a wrong or inconclusive worst element: the numeric derivative at several steps. */
    int sweeps;
    double sweep_step[GD_GRADCHECK_SWEEP], sweep_numeric[GD_GRADCHECK_SWEEP];
    bool sweep_stable;
} gd_gradcheck_input;

typedef struct gd_gradcheck_report {
    char op[64], name[64]; /* op and case; for a function its name and "" */
    gd_verdict verdict;    /* the worst of the inputs': fail, inconclusive, vacuous ... */
    gd_device device;
    gd_dtype dtype;
    uint64_t seed;
    double step, rtol, atol;
    bool step_given; /* in the options; false: the default */
    int inputs;      /* that want a gradient */
    gd_gradcheck_input *input;
    char message[512]; /* the library's error, where there was one */
} gd_gradcheck_report;

/* Checks one case of an op's record. No error may stand in the context, no step be under way (this
 * ends steps of its own), and recording not be off (gd_no_grad_begin). The random state is left as
 * it was. Returns GD_OK if the check could be run, whatever its verdict; then, and only then, the
 * report must be freed. An op that fails on its own case is a verdict too, with the error as
 * the message. */
GD_API gd_status gd_gradcheck_case(gd_context *ctx, const gd_op *op, const gd_case *check,
                                   const gd_gradcheck_options *options,
                                   gd_gradcheck_report *report);

/* A function of yours, built from ops: makes one output from the inputs. */
typedef gd_tensor *(*gd_function)(void *user, gd_tensor *const *inputs, int count);

/* Checks a function at the present values of its inputs, and says all about it:
 *
 *     gd_gradcheck_report report;
 *     if (!gd_gradcheck_function(ctx, "f", f, NULL, (gd_tensor *[]){x, w}, 2, NULL, &report)) {
 *         gd_gradcheck_print(&report, stdout, true);
 *         gd_gradcheck_report_free(&report);
 *     }
 *
 * Checks the gradients of all `inputs` that require one, whose values are perturbed and
 * restored; their gradients are cleared, and those of other tensors that the
 * function uses are added to, as by any backward. The function must give the same result each
 * time for the same inputs; the random state is reset before each call so that dropout repeats.
 * Elements at which the two one-sided slopes differ are left out as kinks if the gradient lies
 * between the slopes. The inputs are passed as they are: strided ones, memory that is used again and
 * other questions to a record are asked of ops alone. */
GD_API gd_status gd_gradcheck_function(gd_context *ctx, const char *name, gd_function function,
                                       void *user, gd_tensor *const *inputs, int count,
                                       const gd_gradcheck_options *options,
                                       gd_gradcheck_report *report);

/* Prints a report for people: one line per input, and if `verbose` all about it instead. */
GD_API gd_status gd_gradcheck_print(const gd_gradcheck_report *report, FILE *file, bool verbose);
/* The same as one line of JSON; numbers that are not finite become null. */
GD_API gd_status gd_gradcheck_print_json(const gd_gradcheck_report *report, FILE *file);

/* Frees what the report holds; the report itself is yours. */
GD_API void gd_gradcheck_report_free(gd_gradcheck_report *report);

#ifdef __cplusplus
}
#endif
#endif
