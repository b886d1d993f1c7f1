/* check.c - the sequence of a check: outputs, cotangents, gradients by backward, comparison,
 * behaviour, verdict. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradcheck/check.h"

/* ---- Options ------------------------------------------------------------------------------ */

/* Sets the defaults of options that are zero. The step balances the truncation error of a central
 * difference against rounding, h^3 ~ eps; docs/numerics.md shows both. `measured` is the dtype of
 * the forward that is differentiated, `stored` that of the inputs and gradients. */
static gd_gradcheck_options with_defaults(gd_gradcheck_options o, gd_dtype measured,
                                          gd_dtype stored)
{
    static const struct {
        double step, rtol, atol;
    } by_measured[GD_DTYPE_COUNT] = {
        [GD_FLOAT64] = {1e-5, 1e-6, 1e-9},
        [GD_FLOAT32] = {1e-2, 1e-3, 1e-4},
        [GD_FLOAT16] = {0.1, 3e-2, 1e-2},
        [GD_BFLOAT16] = {0.2, 0.15, 5e-2},
    };
    static const struct {
        double rtol, atol;
    } by_stored[GD_DTYPE_COUNT] = {[GD_FLOAT16] = {1e-2, 1e-3}, [GD_BFLOAT16] = {0.1, 1e-2}};
    if (o.step == 0) o.step = by_measured[measured].step;
    o.rtol = gd_option(o.rtol, fmax(by_measured[measured].rtol, by_stored[stored].rtol));
    o.atol = gd_option(o.atol, fmax(by_measured[measured].atol, by_stored[stored].atol));
    if (o.max_elements == 0) o.max_elements = 256;
    if (o.directions == 0) o.directions = 4;
    if (o.directions == GD_ZERO) o.directions = 0;
    if (o.cotangents == 0) o.cotangents = 2;
    if (o.order == 0) o.order = 1;
    return o;
}

/* Checks the numbers before it follows a pointer: they show a struct that was never set. */
static gd_status look_at_options(gd_context *ctx, const gd_gradcheck_options *o)
{
    const struct {
        const char *name;
        double value, least;
    } numbers[] = {{"step", o->step, 0},
                   {"rtol", gd_option(o->rtol, 0), 0},
                   {"atol", gd_option(o->atol, 0), 0},
                   {"max_elements", (double)(o->max_elements ? o->max_elements : 1), 1},
                   {"directions", gd_option(o->directions, 0), 0},
                   {"cotangents", o->cotangents ? o->cotangents : 1, 1},
                   {"order", o->order, 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value >= numbers[i].least && isfinite(numbers[i].value)) continue;
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "gradcheck: %s is %g, wanted a finite number of at least %g",
                       numbers[i].name, numbers[i].value, numbers[i].least);
    }
    const uintptr_t garbage = UINTPTR_MAX; /* options filled with 0xff */
    if ((uintptr_t)o->dtype == garbage || (uintptr_t)o->only_input == garbage)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradcheck: %s is at %p, wanted a %s or NULL",
                       (uintptr_t)o->dtype == garbage ? "dtype" : "only_input", (void *)garbage,
                       (uintptr_t)o->dtype == garbage ? "dtype" : "name");
    if (o->dtype && !gd_dtype_is_real(*o->dtype))
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradcheck: dtype is %s, wanted a real one",
                       gd_dtype_name(*o->dtype));
    if (o->order > 3)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradcheck: order is %d, wanted 1, 2 or 3",
                       o->order);
    if (o->order > 1 && o->dtype && gd_dtype_size(*o->dtype) == 2)
        return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                       "gradcheck: order is %d with dtype %s, wanted float32 or float64", o->order,
                       gd_dtype_name(*o->dtype));
    return GD_OK;
}

gd_status gd_check_begin(gd_checker *c, gd_context *ctx, const gd_gradcheck_options *options,
                         gd_gradcheck_report *report)
{
    if (report) *report = (gd_gradcheck_report){.verdict = GD_VERDICT_VACUOUS};
    if (!ctx || !report) return GD_ERROR_ARGUMENT;
    if (gd_error(ctx)) return gd_error_status(ctx);
    *c = (gd_checker){.ctx = ctx, .report = report, .random = gd_random_get(ctx)};
    if (options) c->given = *options;
    if (!gd_grad_enabled(ctx))
        return gd_fail(ctx, GD_ERROR_STATE,
                       "gradcheck: called after gd_no_grad_begin, wanted it after gd_no_grad_end");
    if (look_at_options(ctx, &c->given)) return gd_error_status(ctx);
    c->dtype = c->given.dtype ? *c->given.dtype : GD_FLOAT64;
    c->options = with_defaults(c->given, gd_check_measured_dtype(c->dtype), c->dtype);
    *report = (gd_gradcheck_report){.device = gd_context_device(ctx),
                                    .dtype = c->dtype,
                                    .order = c->options.order,
                                    .seed = c->given.seed,
                                    .step = c->options.step,
                                    .rtol = c->options.rtol,
                                    .atol = c->options.atol};
    return GD_OK;
}

/* ---- Outputs ------------------------------------------------------------------------------ */

static gd_status describe_output(gd_checker *c, int o)
{
    gd_result *r = &c->output[o];
    const gd_tensor *y = c->out[o];
    r->dtype = r->measured = gd_tensor_dtype(y);
    r->real = gd_dtype_is_real(r->dtype);
    r->ndim = gd_tensor_ndim(y);
    r->count = gd_tensor_count(y);
    memcpy(r->shape, gd_tensor_shape(y), (size_t)r->ndim * sizeof *r->shape);
    r->base = c->base[o] = gd_check_numbers(c, r->count);
    r->plus = c->plus[o] = gd_check_numbers(c, r->count);
    r->minus = c->minus[o] = gd_check_numbers(c, r->count);
    r->moves = gd_check_allocate(c, r->count, 1);
    r->low = gd_check_numbers(c, c->kinks ? 2 * r->count : 0);
    r->high = r->low && c->kinks ? r->low + r->count : r->low;
    return r->base && r->plus && r->minus && r->moves && r->low ? GD_OK : GD_ERROR_MEMORY;
}

static gd_dtype coarser(gd_dtype a, gd_dtype b)
{
    return gd_check_precision(b) < gd_check_precision(a) ? b : a;
}

static gd_status look_at_outputs(gd_checker *c)
{
    c->base = gd_check_allocate(c, c->outputs, sizeof *c->base);
    c->plus = gd_check_allocate(c, c->outputs, sizeof *c->plus);
    c->minus = gd_check_allocate(c, c->outputs, sizeof *c->minus);
    c->output = gd_check_allocate(c, c->outputs, sizeof *c->output);
    if (!c->base || !c->plus || !c->minus || !c->output) return GD_ERROR_MEMORY;

    for (int i = 0; i < c->inputs; i++) c->in[i] = c->input[i].leaf;
    gd_random_set(c->ctx, (gd_random_state){.seed = c->options.seed});
    gd_no_grad_begin(c->ctx);
    gd_status status = c->apply(c, c->in, c->out);
    gd_no_grad_end(c->ctx);
    for (int o = 0; o < c->outputs && !status; o++) status = describe_output(c, o);
    gd_step_end(c->ctx);
    if (!status) status = gd_check_forward(c, c->base);

    gd_dtype coarsest = GD_FLOAT64;
    for (int i = 0; i < c->inputs && !status; i++)
        if (c->input[i].wanted) coarsest = coarser(coarsest, gd_tensor_dtype(c->input[i].measured));
    for (int o = 0; o < c->outputs; o++)
        if (c->output[o].real) coarsest = coarser(coarsest, c->output[o].measured);
    c->options = with_defaults(c->given, coarsest, c->dtype);
    return status;
}

/* ---- Cotangents --------------------------------------------------------------------------- */

static double mean_square(const double *x, int64_t count)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) continue;
        sum += x[i] * x[i];
        n++;
    }
    return n ? sum / (double)n : 0;
}

/* A random cotangent for each real output, or for output `alone`. */
static gd_status make_set(gd_checker *c, int set, int alone)
{
    double **u = c->cotangent[set] = gd_check_allocate(c, c->outputs, sizeof *u);
    if (!u) return GD_ERROR_MEMORY;
    c->alone[set] = alone;
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        if (!r->real || (alone >= 0 && alone != o)) continue;
        u[o] = gd_check_cotangent(c, o, GD_STREAM_COTANGENT + 50 * (uint64_t)set + (uint64_t)o);
        if (!u[o]) return GD_ERROR_MEMORY;
        const double size = sqrt(mean_square(r->base, r->count));
        const double scale = fmax(size, c->least ? c->least[o] : 0);
        c->unit[set] = fmax(c->unit[set], sqrt(mean_square(u[o], r->count)) * scale);
    }
    return GD_OK;
}

static gd_status make_cotangents(gd_checker *c)
{
    int real = 0;
    for (int o = 0; o < c->outputs; o++) real += c->output[o].real;
    int sets = c->options.cotangents + (real > 1 ? real : 0);
    c->cotangent = gd_check_allocate(c, sets, sizeof *c->cotangent);
    c->alone = gd_check_allocate(c, sets, sizeof *c->alone);
    c->unit = gd_check_numbers(c, sets);
    c->slope = gd_check_allocate(c, sets, sizeof *c->slope);
    if (!c->cotangent || !c->alone || !c->unit || !c->slope) return GD_ERROR_MEMORY;
    if (!real) return GD_OK;
    for (; c->sets < c->options.cotangents; c->sets++)
        if (make_set(c, c->sets, -1)) return GD_ERROR_MEMORY;
    for (int o = 0; o < c->outputs && real > 1; o++)
        if (c->output[o].real && make_set(c, c->sets++, o)) return GD_ERROR_MEMORY;
    return GD_OK;
}

/* ---- Gradients by backward ---------------------------------------------------------------- */

static gd_status make_analytic(gd_checker *c)
{
    int64_t largest = 1;
    for (int i = 0; i < c->inputs; i++)
        if (c->input[i].count > largest) largest = c->input[i].count;
    c->moved = gd_check_numbers(c, largest);
    c->moved_back = gd_check_numbers(c, largest);
    c->moved_near = gd_check_numbers(c, c->kinks ? largest : 0);
    c->analytic = gd_check_allocate(c, c->sets, sizeof *c->analytic);
    if (!c->moved || !c->moved_back || !c->moved_near || !c->analytic) return GD_ERROR_MEMORY;
    for (int set = 0; set < c->sets; set++) {
        gd_status status = gd_check_make_gradients(c, &c->analytic[set]);
        if (!status) status = gd_check_backward(c, c->cotangent[set], c->analytic[set]);
        if (status) return status;
    }
    return GD_OK;
}

/* ---- Verdicts ----------------------------------------------------------------------------- */

static gd_verdict verdict_of(const gd_checker *c, const gd_gradcheck_input *in)
{
    if (in->behaviour[0] || in->wrong) return GD_VERDICT_FAIL;
    if (in->elements == 0) return c->may_be_empty ? GD_VERDICT_EMPTY : GD_VERDICT_VACUOUS;
    if (in->inconclusive) return GD_VERDICT_INCONCLUSIVE;
    if (in->compared) return GD_VERDICT_PASS;
    return in->kinks ? GD_VERDICT_KINK : GD_VERDICT_VACUOUS;
}

static gd_verdict worse(gd_verdict a, gd_verdict b)
{
    static const int gravity[] = {
        [GD_VERDICT_PASS] = 0,    [GD_VERDICT_EMPTY] = 1,        [GD_VERDICT_KINK] = 2,
        [GD_VERDICT_VACUOUS] = 4, [GD_VERDICT_INCONCLUSIVE] = 5, [GD_VERDICT_UNSUPPORTED] = 3,
        [GD_VERDICT_FAIL] = 6};
    return gravity[a] >= gravity[b] ? a : b;
}

static void give_verdicts(gd_checker *c)
{
    gd_gradcheck_report *report = c->report;
    for (int k = 0; k < report->inputs; k++) {
        gd_gradcheck_input *in = &report->input[k];
        in->verdict = verdict_of(c, in);
        report->verdict = worse(report->verdict, in->verdict);
    }
    if (report->inputs && c->sets) return;
    report->verdict = GD_VERDICT_VACUOUS;
    snprintf(report->message, sizeof report->message, "%s",
             report->inputs ? "no output is real" : "no input requires a gradient");
}

/* ---- The whole check ---------------------------------------------------------------------- */

static gd_status make_report_inputs(gd_checker *c)
{
    gd_gradcheck_report *report = c->report;
    int wanted = 0;
    for (int i = 0; i < c->inputs; i++) wanted += c->input[i].wanted;
    if (!wanted) return GD_OK;
    if (c->options.order > 1) wanted += c->outputs;
    report->input = calloc((size_t)wanted, sizeof *report->input);
    if (!report->input)
        return gd_fail(c->ctx, GD_ERROR_MEMORY, "gradcheck: out of memory: the report");
    for (int i = 0; i < c->inputs; i++)
        if (c->input[i].wanted) gd_check_report_input(c, i);
    return GD_OK;
}

/* The outputs, cotangents for them, and the gradients by backward. */
static gd_status prepare(gd_checker *c)
{
    c->in = gd_check_allocate(c, c->inputs, sizeof(gd_tensor *));
    c->out = gd_check_allocate(c, c->outputs, sizeof(gd_tensor *));
    if (!c->in || !c->out) return GD_ERROR_MEMORY;
    gd_gradcheck_report *report = c->report;
    gd_status status = look_at_outputs(c);
    report->step = c->options.step;
    report->step_given = c->given.step > 0;
    report->rtol = c->options.rtol;
    report->atol = c->options.atol;
    if (!status) status = make_cotangents(c);
    return status || !report->inputs || !c->sets ? status : make_analytic(c);
}

/* Whether backward agrees with finite differences, so that gradients by ops may be expected to. */
static bool all_right(const gd_checker *c)
{
    for (int k = 0; k < c->report->inputs; k++)
        if (c->report->input[k].wrong || c->report->input[k].inconclusive) return false;
    return true;
}

/* From the function to its gradient, which is then what is checked. */
static gd_status raise_order(gd_checker *c)
{
    gd_status status = gd_check_definition(c);
    if (!status) status = gd_check_raise(c);
    if (!status) status = prepare(c);
    if (!status) gd_check_symmetry(c);
    return status;
}

static gd_status check_all(gd_checker *c)
{
    gd_gradcheck_report *report = c->report;
    const bool higher = c->options.order > 1;
    gd_status status = higher ? GD_OK : gd_check_choose_input(c);
    if (!status) status = make_report_inputs(c);
    c->running = !status;
    if (!status) status = prepare(c);
    if (!status && report->inputs && c->sets) {
        if (higher) status = raise_order(c);
        for (int k = 0; k < report->inputs && !status; k++)
            status = gd_check_compare(c, report->input[k].index, &report->input[k]);
        const bool all = !higher && !c->options.only_numbers && !c->options.only_element;
        if (!status && all) status = gd_check_behaviour(c);
        if (!status && all && c->op && (c->op->definition || c->op->derivative) && all_right(c))
            status = gd_check_definition(c);
    }
    if (!status) give_verdicts(c);
    return status;
}

gd_status gd_check_all(gd_checker *c)
{
    gd_repeat_begin(c->ctx);
    const gd_status status = check_all(c);
    gd_repeat_end(c->ctx);
    return status;
}

gd_status gd_check_end(gd_checker *c, gd_status status)
{
    gd_gradcheck_report *report = c->report;
    if (status && c->running && status != GD_ERROR_MEMORY) { /* an error of the function */
        report->verdict = status == GD_ERROR_UNSUPPORTED ? GD_VERDICT_UNSUPPORTED : GD_VERDICT_FAIL;
        for (int k = 0; k < report->inputs; k++) report->input[k].verdict = report->verdict;
        gd_check_copy_name(report->message, sizeof report->message, gd_error(c->ctx));
        gd_error_clear(c->ctx);
        status = GD_OK;
    }
    for (int i = 0; i < c->inputs && c->input; i++) {
        gd_argument *a = &c->input[i];
        if (!a->leaf || a->again) continue;
        if (a->borrowed) {
            gd_tensor_write_f64(a->leaf, a->value, a->count);
            gd_grad_clear(a->leaf);
            if (gd_dtype_is_real(a->dtype)) gd_tensor_set_requires_grad(a->leaf, a->required);
        } else {
            if (a->measured != a->leaf) gd_tensor_free(a->measured);
            gd_tensor_free(a->leaf);
        }
    }
    gd_random_set(c->ctx, c->random);
    gd_check_free(c);
    if (status) gd_gradcheck_report_free(report);
    return status;
}
