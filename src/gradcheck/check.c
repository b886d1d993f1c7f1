/* check.c - the sequence of a check: outputs, cotangents, gradients by backward, comparison,
 * behaviour, verdict. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradcheck/check.h"

/* ---- Options ------------------------------------------------------------------------------ */

/* Sets the options, with defaults where they are zero. `measured` is the dtype of the forward that
 * is differentiated. The report has them, too. */
static void set_options(gd_checker *c, gd_dtype measured)
{
    const gd_accuracy *m = &gd_check_accuracy[measured], *stored = &gd_check_accuracy[c->dtype];
    gd_gradcheck_options o = c->given;
    if (o.step == 0) o.step = m->step;
    o.rtol = gd_option(o.rtol, fmax(m->rtol, stored->stored_rtol));
    o.atol = gd_option(o.atol, fmax(m->atol, stored->stored_atol));
    if (o.max_elements == 0) o.max_elements = 256;
    if (o.directions == 0) o.directions = 4;
    if (o.directions == GD_ZERO) o.directions = 0;
    if (o.cotangents == 0) o.cotangents = 2;
    if (o.order == 0) o.order = 1;
    c->options = o;
    c->report->step = o.step;
    c->report->rtol = o.rtol;
    c->report->atol = o.atol;
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
    const bool dtype = (uintptr_t)o->dtype == garbage;
    if (dtype || (uintptr_t)o->only_input == garbage)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradcheck: %s is at %p, wanted a %s or NULL",
                       dtype ? "dtype" : "only_input", (void *)garbage, dtype ? "dtype" : "name");
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
    set_options(c, gd_check_measured_dtype(c->dtype));
    report->verdict = GD_VERDICT_PASS;
    report->device = gd_context_device(ctx);
    report->dtype = c->dtype;
    report->order = c->options.order;
    report->seed = c->given.seed;
    report->step_given = c->given.step > 0;
    return GD_OK;
}

/* ---- Outputs ------------------------------------------------------------------------------ */

static void describe_output(gd_checker *c, gd_result *r, const gd_tensor *y)
{
    r->spec = gd_spec_like(y);
    r->measured = r->spec.dtype;
    r->real = gd_dtype_is_real(r->measured);
    r->count = gd_tensor_count(y);
    r->moves = gd_check_allocate(c, r->count, 1);
    r->base = gd_check_numbers(c, 5 * r->count);
    if (!r->base) return;
    r->plus = r->base + r->count, r->minus = r->plus + r->count;
    r->low = r->minus + r->count, r->high = r->low + r->count;
}

static gd_dtype coarser(gd_dtype a, gd_dtype b)
{
    return gd_check_accuracy[b].rounding > gd_check_accuracy[a].rounding ? b : a;
}

/* The root of the mean square of the numbers that are finite. */
static double size_of(const double *x, int64_t count)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) continue;
        sum += x[i] * x[i];
        n++;
    }
    return n ? sqrt(sum / (double)n) : 0;
}

/* Of an output that is 0, such as x^3 at 0, the values at random places near x tell its size. */
static void measure_sizes(gd_checker *c)
{
    bool zero = false;
    for (int o = 0; o < c->outputs && !gd_check_failed(c); o++) {
        gd_result *r = &c->output[o];
        r->size = size_of(r->base, r->count);
        zero = zero || (r->real && r->count && r->size == 0);
    }
    if (!zero || gd_check_failed(c)) return;
    const gd_move none = {.element = -1};
    gd_check_leave(c, &none, 0, 1);
    gd_check_forward(c, 1);
    gd_check_leave(c, &none, 0, 0);
    for (int o = 0; o < c->outputs; o++)
        if (c->output[o].size == 0)
            c->output[o].size = size_of(c->output[o].plus, c->output[o].count);
}

static void look_at_outputs(gd_checker *c)
{
    c->output = gd_check_allocate(c, c->outputs, sizeof *c->output);
    if (!c->output || !c->in || !c->out) return;
    for (int i = 0; i < c->inputs; i++) c->in[i] = c->input[i].leaf;
    gd_check_call_alone(c);
    for (int o = 0; o < c->outputs && !gd_check_failed(c); o++)
        describe_output(c, &c->output[o], c->out[o]);
    gd_step_end(c->ctx);
    gd_check_forward(c, 0);
    measure_sizes(c);

    gd_dtype coarsest = GD_FLOAT64;
    for (int i = 0; i < c->inputs && !gd_check_failed(c); i++)
        if (c->input[i].wanted) coarsest = coarser(coarsest, gd_tensor_dtype(c->input[i].measured));
    for (int o = 0; o < c->outputs; o++)
        if (c->output[o].real) coarsest = coarser(coarsest, c->output[o].measured);
    set_options(c, coarsest);
}

/* ---- Cotangents --------------------------------------------------------------------------- */

/* A random cotangent for each real output, or for output `alone`. */
static void make_set(gd_checker *c, int alone, const double *least)
{
    const int set = c->sets++;
    gd_set *s = &c->set[set];
    *s = (gd_set){.cotangent = gd_check_allocate(c, c->outputs, sizeof *s->cotangent),
                  .alone = alone};
    for (int o = 0; o < c->outputs && s->cotangent; o++) {
        const gd_result *r = &c->output[o];
        if (!r->real || (alone >= 0 && alone != o)) continue;
        const uint64_t stream = GD_STREAM_COTANGENT + 50 * (uint64_t)set + (uint64_t)o;
        double *u = s->cotangent[o] = gd_check_cotangent(c, o, stream);
        if (!u) return;
        const double scale = fmax(r->size, least ? least[o] : 0);
        s->unit = fmax(s->unit, size_of(u, r->count) * scale);
    }
}

static void make_cotangents(gd_checker *c, const double *least)
{
    int real = 0;
    for (int o = 0; o < c->outputs; o++) real += c->output[o].real;
    c->sets = 0;
    c->set = gd_check_allocate(c, c->options.cotangents + real, sizeof *c->set);
    if (!c->set || !real) return;
    for (int set = 0; set < c->options.cotangents; set++) make_set(c, -1, least);
    for (int o = 0; o < c->outputs && real > 1; o++)
        if (c->output[o].real) make_set(c, o, least);
}

/* ---- Gradients by backward ---------------------------------------------------------------- */

/* Numbers the elements of the gradients, and makes room for the values of the largest input. */
static void lay_out(gd_checker *c)
{
    int64_t largest = 1;
    c->length = c->bits = 0;
    for (int i = 0; i < c->inputs; i++) {
        gd_argument *a = &c->input[i];
        if (a->count > largest) largest = a->count;
        a->bit = 0;
        if (!a->wanted) continue;
        a->first = c->length;
        c->length += a->count;
        if (c->bits < 31) a->bit = UINT32_C(1) << c->bits++;
    }
    c->moved = gd_check_numbers(c, largest);
    c->moved_back = gd_check_numbers(c, largest);
    c->moved_near = gd_check_numbers(c, largest);
}

/* ---- Verdicts ----------------------------------------------------------------------------- */

static gd_verdict verdict_of(const gd_checker *c, const gd_gradcheck_input *in)
{
    if (in->behaviour[0] || in->wrong) return GD_VERDICT_FAIL;
    if (in->elements == 0) return c->f.may_be_empty ? GD_VERDICT_EMPTY : GD_VERDICT_VACUOUS;
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

static void make_report_inputs(gd_checker *c)
{
    gd_gradcheck_report *report = c->report;
    int wanted = 0;
    for (int i = 0; i < c->inputs; i++) wanted += c->input[i].wanted;
    if (!wanted) return;
    if (c->options.order > 1) wanted += c->outputs;
    report->input = calloc((size_t)wanted, sizeof *report->input);
    if (!report->input) gd_fail(c->ctx, GD_ERROR_MEMORY, "gradcheck: out of memory: the report");
    for (int i = 0; i < c->inputs && report->input; i++)
        if (c->input[i].wanted) gd_check_report_input(c, i);
}

/* The outputs, cotangents for them, and the gradients by backward. */
static void prepare(gd_checker *c, const double *least)
{
    c->in = gd_check_allocate(c, c->inputs, sizeof(gd_tensor *));
    c->out = gd_check_allocate(c, c->outputs, sizeof(gd_tensor *));
    lay_out(c);
    look_at_outputs(c);
    if (gd_check_failed(c)) return;
    make_cotangents(c, least);
    for (int set = 0; set < c->sets && c->report->inputs && !gd_check_failed(c); set++) {
        c->set[set].gradient = gd_check_gradient(c);
        gd_check_backward(c, c->set[set].cotangent, c->set[set].gradient);
    }
}

/* Whether backward agrees with finite differences, so that gradients by ops may be expected to. */
static bool all_right(const gd_checker *c)
{
    for (int k = 0; k < c->report->inputs; k++)
        if (c->report->input[k].wrong || c->report->input[k].inconclusive) return false;
    return true;
}

/* From the function to its gradient, which is then what is checked. */
static void raise_order(gd_checker *c)
{
    gd_check_definition(c);
    const double *least = gd_check_raise(c);
    if (!gd_check_failed(c)) prepare(c, least);
}

void gd_check_all(gd_checker *c)
{
    const gd_gradcheck_options *o = &c->options;
    const gd_gradcheck_report *report = c->report;
    const bool higher = o->order > 1, all = !higher && !o->only_numbers && !o->only_element;
    const gd_op *op = c->f.op;
    gd_repeat_begin(c->ctx);
    if (!higher) gd_check_choose_input(c);
    if (!gd_check_failed(c)) make_report_inputs(c);
    c->running = !gd_check_failed(c);
    if (c->running) prepare(c, NULL);
    if (report->inputs && c->sets && !gd_check_failed(c)) {
        if (higher) raise_order(c);
        for (int k = 0; k < report->inputs; k++) gd_check_compare(c, &report->input[k]);
        if (all && !gd_check_failed(c)) gd_check_behaviour(c);
        if (all && !gd_check_failed(c) && op && (op->definition || op->derivative) && all_right(c))
            gd_check_definition(c);
    }
    if (!gd_check_failed(c)) give_verdicts(c);
    gd_repeat_end(c->ctx);
}

gd_status gd_check_end(gd_checker *c)
{
    gd_gradcheck_report *report = c->report;
    gd_check_failed(c);
    if (c->running && c->status && c->status != GD_ERROR_MEMORY) { /* an error of the function */
        const bool unsupported = c->status == GD_ERROR_UNSUPPORTED;
        report->verdict = unsupported ? GD_VERDICT_UNSUPPORTED : GD_VERDICT_FAIL;
        for (int k = 0; k < report->inputs; k++) report->input[k].verdict = report->verdict;
        gd_check_copy_name(report->message, sizeof report->message, gd_error(c->ctx));
        gd_error_clear(c->ctx);
        c->status = GD_OK;
    }
    for (int i = 0; i < c->inputs && c->input; i++) {
        gd_argument *a = &c->input[i];
        if (!a->leaf || a->again) continue;
        if (a->borrowed) {
            gd_tensor_write_f64(a->leaf, a->value, a->count);
            gd_grad_clear(a->leaf);
            if (gd_dtype_is_real(a->spec.dtype)) gd_tensor_set_requires_grad(a->leaf, a->required);
        } else {
            if (a->measured != a->leaf) gd_tensor_free(a->measured);
            gd_tensor_free(a->leaf);
        }
    }
    gd_random_set(c->ctx, c->random);
    gd_check_free(c);
    if (c->status) gd_gradcheck_report_free(report);
    return c->status;
}
