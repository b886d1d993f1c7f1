/* planted_spoilers.c - mistakes of any backward: a factor, a row, a flag, a piece of memory. */
#include "planted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The numbers are off ------------------------------------------------------------------ */

static int64_t largest(const double *g, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (fabs(g[i]) > fabs(g[at])) at = i;
    return at;
}

EACH(times, was[i] * s->factor)
EACH(times_largest, was[i] * (i == largest(was, s->n) ? s->factor : 1))
EACH(by_threads, was[i] * s->call->threads)
EACH(one_nan, i == s->n / 2 ? NAN : was[i])
EACH(one_infinite, i == s->n - 1 ? INFINITY : was[i])
EACH(tiny_bias, was[i] + s->factor * fabs(was[largest(was, s->n)]))

/* One element is multiplied, which is the largest in the first call. */
static void times_one(const planted_gradient *s)
{
    if (s->p->calls == 1) s->p->at = largest(s->g, s->n);
    s->g[s->p->at] *= s->factor;
}

/* ---- Rows and columns --------------------------------------------------------------------- */

static double mean(const double *g, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += g[i] / (double)n;
    return sum;
}

/* Element i of the gradient of an output. */
static double dy_at(const planted_gradient *s, int output, int64_t i)
{
    const gd_tensor *dy = s->call->doutput[output];
    return dy ? ((const double *)gd_tensor_data(dy))[i] : 0;
}

EACH(without_last_row, i < s->n - s->columns ? was[i] : 0)
EACH(times_row, was[i] * (1 + (double)(i / s->columns)))
EACH(times_column, was[i] * (1 + (double)(i % s->columns)))
EACH(minus_row_mean, was[i] - mean(was + i / s->columns * s->columns, s->columns))
/* add, b a row under those of a: db of one row of dy alone. */
EACH(first_row_of_dy, dy_at(s, 0, i))
EACH(last_row_of_dy, dy_at(s, 0, gd_tensor_count(s->call->doutput[0]) - s->n + i))

/* scatter_add along the last axis: dx is 0 where something was added. */
static void zero_where_added(const planted_gradient *s)
{
    const gd_tensor *index = s->call->input[1];
    const int32_t *at = gd_tensor_data(index);
    const int64_t k = planted_columns(index);
    for (int64_t i = 0; i < gd_tensor_count(index); i++) s->g[i / k * s->columns + at[i]] = 0;
}

/* ---- With one of two cotangents ------------------------------------------------------------ */

EACH(ones_for_dsum, s->call->doutput[1] ? was[i] : was[i] + 1)
EACH(zero_without_dsum, s->call->doutput[1] ? was[i] : 0)
EACH(without_dsum, was[i] - dy_at(s, 1, i))

/* ---- The right numbers elsewhere ---------------------------------------------------------- */

static int64_t smallest(const double *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] < x[at]) at = i;
    return at;
}

/* max: the smallest element gets the gradient of the largest. */
EACH(to_the_smallest,
     i == smallest(gd_tensor_data(s->call->input[0]), s->n) ? was[largest(was, s->n)] : 0)
EACH(one_further, was[(i + s->n - 1) % s->n])
EACH(one_row_further, was[(i + s->n - s->columns) % s->n])
EACH(reversed, was[s->n - 1 - i])
EACH(transposed, was[i % (s->n / s->columns) * s->columns + i / (s->n / s->columns)])

/* ---- Flags -------------------------------------------------------------------------------- */

#define BACKWARD(name, status)                 \
    static gd_status name(const gd_call *call) \
    {                                          \
        return status;                         \
    }

/* Runs the true backward with other accumulate flags. */
static gd_status with_flags(const gd_call *call, bool accumulate)
{
    bool flags[PLANTED_MAX];
    for (int i = 0; i < PLANTED_MAX; i++) flags[i] = accumulate;
    gd_call other = *call;
    other.accumulate = flags;
    return planted_true(&other);
}

BACKWARD(always_overwrites, with_flags(call, false))
BACKWARD(always_adds, with_flags(call, true))
BACKWARD(adds_to_all_or_none, with_flags(call, call->accumulate[0]))

/* What one gradient is must not hang on whether another is wanted. */
static gd_status needs_the_other(const gd_call *call)
{
    gd_status status = planted_true(call);
    gd_tensor *dx = call->dinput[0];
    if (dx && !call->dinput[1] && !call->accumulate[0]) gd_tensor_fill(dx, 0);
    return status;
}

static gd_status only_the_first(const gd_call *call)
{
    gd_tensor *dinput[PLANTED_MAX] = {call->dinput[0]};
    if (!call->dinput[0]) return planted_true(call);
    gd_call other = *call;
    other.dinput = dinput;
    for (int i = 1; i < call->inputs; i++)
        if (call->dinput[i] && !call->accumulate[i]) gd_tensor_fill(call->dinput[i], 0);
    return planted_true(&other);
}

/* Adds to gradient `last` only if `also` holds. */
static gd_status adds_only_if(const gd_call *call, int last, bool also)
{
    bool flags[PLANTED_MAX] = {false};
    for (int i = 0; i < call->inputs; i++) flags[i] = call->accumulate[i] && (i != last || also);
    gd_call other = *call;
    other.accumulate = flags;
    return planted_true(&other);
}

/* The first layer, whose x needs no gradient, while gradients accumulate. */
BACKWARD(adds_beside_the_first, adds_only_if(call, 1, call->dinput[0] != NULL))
BACKWARD(adds_with_the_first, adds_only_if(call, 1, !call->dinput[0] || call->accumulate[0]))
BACKWARD(adds_without_the_first, adds_only_if(call, 2,
                                              !(call->dinput[0] && call->accumulate[0] &&
                                                call->dinput[1] && !call->accumulate[1])))
BACKWARD(adds_the_last_beside_others,
         adds_only_if(call, 3, call->dinput[0] || call->dinput[1] || call->dinput[2]))
BACKWARD(adds_with_both_cotangents, adds_only_if(call, 2, call->doutput[0] && call->doutput[1]))
BACKWARD(adds_alone_with_both_cotangents,
         adds_only_if(call, 2, call->dinput[0] || call->doutput[1]))

/* x is right alone, and with one cotangent, but not both. */
static gd_status forgets_alone_with_one_cotangent(const gd_call *call)
{
    gd_status status = planted_true(call);
    gd_tensor *dx = call->dinput[0];
    if (dx && !call->dinput[2] && !call->doutput[0] && !call->accumulate[0]) gd_tensor_fill(dx, 1);
    return status;
}

/* softmax: its sum along the other axis. */
static gd_status along_the_other_axis(const gd_call *call)
{
    gd_call other = *call;
    int axis = 0;
    other.args = &axis;
    return planted_true(&other);
}

static gd_status exchanges_the_first_two(const gd_call *call)
{
    gd_tensor *dinput[PLANTED_MAX] = {call->dinput[1], call->dinput[0]};
    bool flags[PLANTED_MAX] = {call->accumulate[1], call->accumulate[0]};
    gd_call other = *call;
    other.dinput = dinput;
    other.accumulate = flags;
    return planted_true(&other);
}

/* rms_norm of four rows: rstd is what was saved for the backward before. */
static gd_status takes_the_rstd_before(const gd_call *call)
{
    enum { ROWS = 4 };
    static double before[ROWS];
    double *rstd = gd_tensor_data(call->save[0]), right[ROWS];
    memcpy(right, rstd, sizeof right);
    if (before[0] != 0) memcpy(rstd, before, sizeof before);
    gd_status status = planted_true(call);
    memcpy(rstd, right, sizeof right);
    memcpy(before, right, sizeof right);
    return status;
}

static gd_status does_nothing(const gd_call *call)
{
    (void)call;
    return GD_OK;
}

/* ---- Not the same twice ------------------------------------------------------------------- */

EACH(counts_calls, was[i] * (1 + 1e-14 * s->p->calls))

/* A reduction whose order hangs on something else. */
EACH(in_the_last_bit, s->p->calls % 3 && i == s->n / 3 ? nextafter(was[i], INFINITY) : was[i])

/* ---- Memory ------------------------------------------------------------------------------- */

static gd_status writes_an_input(const gd_call *call)
{
    gd_status status = planted_true(call);
    double *x = gd_tensor_data(call->input[0]);
    x[0] += 1e-9;
    return status;
}

static gd_status writes_a_save(const gd_call *call)
{
    gd_status status = planted_true(call);
    double *save = gd_tensor_data(call->save[0]);
    save[0] *= 1 + 1e-12;
    return status;
}

static gd_status writes_its_output(const gd_call *call)
{
    gd_status status = planted_true(call);
    double *y = gd_tensor_data(call->output[0]);
    y[0] = 0;
    return status;
}

static gd_status writes_the_cotangent(const gd_call *call)
{
    gd_status status = planted_true(call);
    double *dy = gd_tensor_data(call->doutput[0]);
    if (!call->dinput[0] || gd_tensor_data(call->dinput[0]) != (void *)dy) dy[0] = 0;
    return status;
}

static void reads_fresh_scratch(const planted_gradient *s)
{
    const double *scratch = gd_call_scratch(s->call, (size_t)s->n * sizeof *s->g);
    for (int64_t i = 0; i < s->n; i++) s->g[i] += scratch[i];
}

static void allow_dx_over_dy(gd_op *op)
{
    op->dinput_over_doutput |= 1;
}

static void allow_dx_over_x(gd_op *op)
{
    op->dinput_over_input |= 1;
}

/* dx is cleared first; where it is dy's memory, or x's, nothing is left of that. */
static gd_status clears_dx_first(const gd_call *call)
{
    if (call->dinput[0] && !call->accumulate[0]) gd_tensor_fill(call->dinput[0], 0);
    return planted_true(call);
}

static void hide_inputs(gd_op *op)
{
    op->backward_reads_inputs = 0;
}

static void hide_output(gd_op *op)
{
    op->backward_reads_outputs = 0;
}

/* Takes the rows of a strided input for packed ones. */
static void claim_strides(gd_op *op)
{
    op->strided = true;
}

/* ---- The list ----------------------------------------------------------------------------- */

#define SPOIL(op, check, what, finding, ...)           \
    {                                                  \
        op, check, what, finding, .spoil = __VA_ARGS__ \
    }
#define MISUSE(op, check, what, finding, ...)             \
    {                                                     \
        op, check, what, finding, .backward = __VA_ARGS__ \
    }

const planted_bug planted_spoilers[] = {
    SPOIL("exp", "odd", "as often as there are threads", "with 3 threads", by_threads),
    SPOIL("tanh", "odd", "one element 1% off", "a single element is off, by 1%", times_one,
          .factor = 1.01),
    SPOIL("tanh", "odd", "the largest element 1% off",
          "a single element is off, by 1%, another one with each dy", times_largest,
          .factor = 1.01),
    SPOIL("rope", "halves_2x5x3x8", "one element of 240 0.01% off",
          "a single element is off, by 0.01%", times_one, .factor = 1.0001),
    SPOIL("cross_entropy", "mean_5x11", "one element 1% off", "a single element is off, by -1%",
          times_one, .factor = 0.99),
    SPOIL("linear", "rows4_5_to_7", "one element of dbias zero",
          "a single element is off, by -100%", times_one, .factor = 0, .input = 2),
    SPOIL("logsumexp", "wide", "one element of 3000 2% off", "a single element is off, by 2%",
          times_one, .factor = 1.02),
    SPOIL("matmul", "larger", "one element of 3710 2% off", "a single element is off, by 2%",
          times_one, .factor = 1.02, .input = 1),
    SPOIL("exp", "odd", "one NaN", "NaN", one_nan),
    SPOIL("sum", "rows", "one infinity", "infinite", one_infinite),
    SPOIL("attention", NULL, "a millionth of the largest too much, everywhere",
          "a constant is added", tiny_bias, .factor = 3e-6),
    SPOIL("rms_norm", "rows4_cols64", "the last row of dx is missing", "all in row 3 (the last)",
          without_last_row),
    SPOIL("rms_norm", "rows4_cols64", "each row has a factor", "a factor for each row", times_row),
    SPOIL("softmax", "rows5_cols17", "each column has a factor", "a factor for each column",
          times_column),
    SPOIL("mul", "same", "the mean of each row is taken off", "each row is off by a constant",
          minus_row_mean),
    SPOIL("gelu", "odd", "one element further", "moved by one element", one_further),
    SPOIL("layer_norm", "rows4_cols64", "one row further", "moved by one row", one_row_further),
    SPOIL("sub", "same", "backwards", "the right values in the wrong places", reversed),
    SPOIL("permute", "3x5", "transposed", "transposed", transposed),
    SPOIL("linear", "rows4_5_to_7", "dweight transposed", "transposed", transposed, .input = 1),
    SPOIL("add", "b_row", "db of the first row alone", "only dy[0, :] is used", first_row_of_dy,
          .input = 1),
    SPOIL("add", "b_row", "db of the last row alone", "only dy[3, :] is used", last_row_of_dy,
          .input = 1),
    SPOIL("expand", "scalar_to_7", "the first copy alone", "only dy[0] is used", first_row_of_dy),
    SPOIL("expand", "scalar_to_7", "the mean instead of the sum", "a constant factor 1/7", times,
          .factor = 1.0 / 7),
    SPOIL("max", "all", "the gradient of the minimum", "zeros in the wrong places",
          to_the_smallest),
    SPOIL("scatter_add", "rows", "dx overwritten by what was added", "zero at the wrong elements",
          zero_where_added),
    SPOIL("add_rms_norm", "rows4_cols64", "the gradient of the sum is forgotten",
          "zero throughout, with a gradient for output 1 alone", without_dsum),
    SPOIL("add_rms_norm", "rows4_cols64", "a missing gradient is taken for ones",
          "a constant is added, with a gradient for output 0 alone", ones_for_dsum),
    SPOIL("add_rms_norm", "rows4_cols64", "residual gets nothing", "zero throughout", times,
          .factor = 0, .input = 1),
    SPOIL("add_rms_norm", "rows4_cols64", "dweight waits for the gradient of the sum",
          "zero throughout, with a gradient for output 0 alone", zero_without_dsum, .input = 2),

    MISUSE("softmax", "rows5_cols17", "= for +=", "to an existing gradient", always_overwrites),
    MISUSE("linear", "rows4_5_to_7", "= for +=", "to an existing gradient", always_overwrites),
    MISUSE("embedding", "v11_c5_ids2x7", "= for +=", "to an existing gradient", always_overwrites),
    MISUSE("mul", "same", "one += for both gradients", "when only that of a exists",
           adds_to_all_or_none),
    MISUSE("cross_entropy", "probabilities", "one += for both gradients",
           "when only that of logits exists", adds_to_all_or_none),
    MISUSE("linear", "rows4_5_to_7", "dweight overwritten if dx is not wanted",
           "when only weight requires a gradient, added to one that exists", adds_beside_the_first),
    MISUSE("rms_norm", "rows4_cols64", "dweight overwritten if dx is not wanted",
           "when only weight requires a gradient, added to one that exists", adds_beside_the_first),
    MISUSE("linear", "rows4_5_to_7", "dweight overwritten where dx is",
           "when only that of weight exists", adds_with_the_first),
    MISUSE("linear", "rows4_5_to_7", "dbias overwritten if dx is added to and dweight is not",
           "when only that of x, bias exists", adds_without_the_first),
    MISUSE("attention", "bias", "dbias overwritten if no other is wanted",
           "when only mask requires a gradient, added to one that exists",
           adds_the_last_beside_others),
    MISUSE("add_rms_norm", "rows4_cols64", "dweight overwritten without both cotangents",
           "existing gradient, with a gradient for output 0 alone", adds_with_both_cotangents),
    MISUSE("add_rms_norm", "rows4_cols64", "the same if dx is not wanted",
           "added to one that exists, with a gradient for output 0 alone",
           adds_alone_with_both_cotangents),
    MISUSE("add_rms_norm", "rows4_cols64", "dx of the sum's gradient alone, without dweight",
           "requires a gradient, with a gradient for output 1 alone",
           forgets_alone_with_one_cotangent),
    MISUSE("layer_norm", "rows4_cols64", "+= for =", "are added to what their memory held, a NaN",
           always_adds),
    MISUSE("matmul", "rows3_inner5_cols7", "+= for =", "are added to what their memory held, a NaN",
           always_adds),
    MISUSE("swiglu", "3x17", "dgate forgotten when dup is not wanted", "when only gate",
           needs_the_other),
    MISUSE("rms_norm", "rows4_cols64", "dweight forgotten beside dx", "zero throughout",
           only_the_first),
    MISUSE("softmax", "rows5_cols17", "the sum along the wrong axis",
           "a sum runs along axis 0 instead of axis 1", along_the_other_axis),
    MISUSE("swiglu", "3x17", "dgate and dup exchanged", "it is the gradient of up",
           exchanges_the_first_two),
    MISUSE("rms_norm", "rows4_cols64", "rstd of the call before", "different bits",
           takes_the_rstd_before, .seeds = 2),
    MISUSE("relu", "odd", "writes nothing", "105 of 105 are not written", does_nothing),

    SPOIL("attention", NULL, "a factor that grows with the calls", "different bits", counts_calls),
    SPOIL("rms_norm", "rows4_cols64", "one last bit, every other time", "different bits",
          in_the_last_bit, .input = 1),

    MISUSE("layer_norm", "rows4_cols64", "writes x", "the backward changes input 0",
           writes_an_input),
    MISUSE("cross_entropy", "mean_5x11", "writes the logits", "the backward changes input 0",
           writes_an_input),
    MISUSE("layer_norm", "rows4_cols64", "writes what was saved", "the forward saved",
           writes_a_save),
    MISUSE("softmax", "rows5_cols17", "writes its output", "the backward changes output 0",
           writes_its_output),
    MISUSE("add", "same", "writes dy", "changes the gradient of output 0", writes_the_cotangent),
    SPOIL("rms_norm", "rows4_cols64", "reads fresh scratch", "NaN", reads_fresh_scratch),
    MISUSE("swiglu", "3x17", "dx over dy, but dx is cleared first", "reuse memory", clears_dx_first,
           .edit = allow_dx_over_dy),
    MISUSE("silu", "odd", "dx over x, but dx is cleared first", "reuse memory", clears_dx_first,
           .edit = allow_dx_over_x),
    MISUSE("layer_norm", "rows4_cols64", "does not declare that it reads x", "does not declare",
           planted_true, .edit = hide_inputs),
    MISUSE("softmax", "rows5_cols17", "does not declare that it reads y", "does not declare",
           planted_true, .edit = hide_output),
    MISUSE("layer_norm", "rows4_cols64", "takes any strides, but reads packed rows",
           "inputs and cotangents", planted_true, .edit = claim_strides),
    {NULL, NULL, NULL, NULL, .input = 0},
};
