/* gradcheck.h - does this backward belong to this forward?
 *
 * For random inputs x and a random cotangent u, the backward claims dx = J^T u, where J is the
 * Jacobian of the forward. A central difference measures the same thing without it:
 *
 *     d(u . f(x)) / dx_i  =  u . (f(x + h e_i) - f(x - h e_i)) / (2h)  +  O(h^2)
 *
 * where 2h is taken as the difference of the two inputs as they were stored, and the sums run in
 * double. Up to a limit all elements are compared one by one, beyond it a sample of them and
 * several random directions. See docs/numerics.md for the choice of h, and for what a passed check
 * does not show: it compares the backward with our own forward, which needs its own reference.
 *
 * Besides the numbers, the behaviour of the backward is checked: that it gives the same bits twice,
 * adds to existing gradients, overwrites poisoned ones, works for every subset of gradients and
 * without some cotangents (each with each: of up to three wanted gradients every subset may exist
 * already), with 1 thread and 3, when the tape reuses memory and with strided inputs, that it
 * changes neither the inputs nor what the forward saved, that float64 gradients are not rounded to
 * float32, that the op may run on other data between a forward and its backward, that every call
 * returns outputs of the same shapes and dtypes, and that gradients by the record's derivative and
 * definition (gd_gradients with `differentiable`) equal those of the kernels. The context option
 * `poison` makes these checks stricter.
 *
 * All numbers of a report are relative to two scales, so that inputs of 1e-20 are judged as
 * strictly as inputs of 1: steps to scale(x), the standard deviation of the input's values (at
 * least a hundredth of their root mean square), and errors to the largest gradient of that input. A
 * gradient that is all zeros has no such scale; so errors are never measured against less than
 *
 *     atol / rtol * scale(u) * scale(f(x)) / scale(x).
 *
 * Higher orders. With the option `order` 2 what is checked is the gradient of the function,
 *
 *     G(x, u) = (dy/dx)^T u,
 *
 * as a function of the inputs that require a gradient and of the cotangents u of the outputs (a
 * report calls them u, or u[0], u[1] ...): its gradient, of which gd_gradients with
 * `differentiable` lays the tape, is compared with finite differences of G by the kernels. With 3
 * it is the gradient of G . v by x and u, for a random v. First the gradients by ops must equal
 * those of the kernels, and so must an op's outputs and gradients by its definition. There is no
 * other check of behaviour, the dtype is float64 or float32, and every function may have kinks:
 * where the gradient jumps its gradient must be 0, that of one side or, at ties, one beside x. An
 * op whose record has neither a definition nor a derivative is GD_VERDICT_UNSUPPORTED.
 */
#ifndef GRADUS_GRADCHECK_H
#define GRADUS_GRADCHECK_H

#include "gradus/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gd_verdict {
    GD_VERDICT_PASS = 0,
    GD_VERDICT_FAIL, /* the analytic gradient is wrong, not finite, or misbehaves */
    /* every element is at a kink, in a case for all of eight draws of its values; nothing could be
     * compared */
    GD_VERDICT_KINK,
    GD_VERDICT_VACUOUS, /* nothing to compare: no element, or no input requires a gradient */
    /* the same, by the case's own design: zero rows, or values beyond the range of the dtype */
    GD_VERDICT_EMPTY,
    GD_VERDICT_INCONCLUSIVE, /* the numeric derivative is not stable: two steps disagree */
    GD_VERDICT_UNSUPPORTED   /* no such device, dtype or backward */
} gd_verdict;

GD_API const char *gd_verdict_name(gd_verdict verdict); /* "PASS" ... */

/* The defaults depend on the dtype, and are given for float64, float32, float16, bfloat16. 16-bit
 * inputs are too coarse for any step; in an op's case the derivative is then measured on the op's
 * float64 forward, at the 16-bit values. If an output has less precision than the inputs (a cast),
 * the defaults are larger. */
typedef struct gd_gradcheck_options {
    const gd_dtype *dtype; /* of the inputs that are made; unset: float64 */
    uint64_t seed;
    double step;            /* h, relative to scale(x): 1e-5, 1e-2, 1e-5, 1e-5 */
    double rtol;            /* relative to the largest gradient: 1e-6, 1e-3, 1e-2, 0.1 */
    double atol;            /* see above: 1e-9, 1e-4, 1e-3, 1e-2 */
    int64_t max_elements;   /* per input; beyond it a sample of that many. 256 */
    int directions;         /* random directions, if a sample is taken. 4 */
    int cotangents;         /* random cotangents. 2 */
    int order;              /* 1, 2 or 3, see "Higher orders" above. 1 */
    bool only_numbers;      /* skip the checks of behaviour */
    const char *only_input; /* check this input alone, */
    int64_t only_element;   /* and of it this element alone (flat index, GD_ZERO for the first);
                             * skips behaviour, too */
} gd_gradcheck_options;

#define GD_GRADCHECK_SWEEP 6

/* The result for one input. */
typedef struct gd_gradcheck_input {
    char name[64];
    int index; /* among the op's inputs */
    int ndim;
    int64_t shape[GD_MAX_DIMS];
    gd_verdict verdict;
    int64_t elements, compared, kinks, wrong, inconclusive;
    int directions;       /* random directions compared */
    double largest_error; /* |analytic - numeric|, relative as described above */
    double largest_gradient;
    int64_t worst;            /* flat index of the worst element; -1: none */
    double analytic, numeric; /* there */
    /* the likely fault: "a constant factor 1/2", "dy[3, :] is left out", "it is dy y instead of
     * dy y - dy y^2" ...; "" if none is recognised */
    char finding[256];
    char behaviour[256]; /* the check of behaviour that failed, "" if none */
    char remark[384];    /* what is right, but could be better; "" if nothing */

    /* The numeric derivative at several steps, if the worst element is wrong or inconclusive. */
    int sweeps;
    double sweep_step[GD_GRADCHECK_SWEEP], sweep_numeric[GD_GRADCHECK_SWEEP];
    bool sweep_stable;
} gd_gradcheck_input;

typedef struct gd_gradcheck_report {
    char op[64], name[64]; /* op and case; for a function its name and "" */
    gd_verdict verdict;    /* the worst of the inputs': fail, inconclusive, vacuous ... */
    gd_device device;
    gd_dtype dtype;
    int order;
    uint64_t seed;
    double step, rtol, atol;
    bool step_given; /* in the options; false: the default */
    int inputs;      /* that require a gradient */
    gd_gradcheck_input *input;
    char message[512]; /* the library's error, if there was one */
} gd_gradcheck_report;

/* Checks one case of an op's record. The context must have no error and no step in progress (this
 * ends steps of its own), and recording must be on. The random state is left unchanged. Returns
 * GD_OK if the check could be run, whatever its verdict; then, and only then, the report must be
 * freed. An op that fails on its own case gives a verdict too, with the error as the message. */
GD_API gd_status gd_gradcheck_case(gd_context *ctx, const gd_op *op, const gd_case *check,
                                   const gd_gradcheck_options *options,
                                   gd_gradcheck_report *report);

/* A function of yours, built from ops: makes one output from the inputs. */
typedef gd_tensor *(*gd_function)(void *user, gd_tensor *const *inputs, int count);

/* Checks a function at the current values of its inputs:
 *
 *     gd_gradcheck_report report;
 *     if (!gd_gradcheck_function(ctx, "f", f, NULL, (gd_tensor *[]){x, w}, 2, NULL, &report)) {
 *         gd_gradcheck_print(&report, stdout, true);
 *         gd_gradcheck_report_free(&report);
 *     }
 *
 * Checks the gradients of all `inputs` that require one, whose values are perturbed and
 * restored; their gradients are cleared, and those of other tensors that the function uses are
 * added to, as by any backward. The function must give the same result each time for the same
 * inputs; the random state is reset before each call so that dropout repeats. Elements at which
 * the two one-sided slopes differ are skipped as kinks if the gradient is between the slopes, or is
 * made of such a choice for each output.
 * A tensor may be given for several inputs; the first of them is then checked, with a gradient that
 * is the sum over all. Different tensors on the same memory are an error, as are tensors made by
 * ops. The inputs are passed as they are: strided inputs, reused memory and other checks of
 * behaviour are made for ops only. */
GD_API gd_status gd_gradcheck_function(gd_context *ctx, const char *name, gd_function function,
                                       void *user, gd_tensor *const *inputs, int count,
                                       const gd_gradcheck_options *options,
                                       gd_gradcheck_report *report);

/* Prints a report: one line per input, or with `verbose` all details. */
GD_API gd_status gd_gradcheck_print(const gd_gradcheck_report *report, FILE *file, bool verbose);
/* Prints it as one line of JSON; numbers that are not finite become null. */
GD_API gd_status gd_gradcheck_print_json(const gd_gradcheck_report *report, FILE *file);

/* Frees the memory in the report; the struct itself is yours. */
GD_API void gd_gradcheck_report_free(gd_gradcheck_report *report);

#ifdef __cplusplus
}
#endif
#endif
