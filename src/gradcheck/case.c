/* case.c - an op's case as a function with inputs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/check.h"

static gd_status apply_op(gd_checker *c, gd_tensor *const *in, gd_tensor **out)
{
    return gd_apply_multi(&c->f.probe->op, in, c->f.arguments, c->f.args, out);
}

static gd_spec spec_of(const gd_case_input *in)
{
    gd_spec spec = {.ndim = in->ndim};
    memcpy(spec.shape, in->shape, sizeof spec.shape);
    return spec;
}

/* Checks a record and a case before anything is run. */
static gd_status look_at_case(gd_context *ctx, const gd_op *op, const gd_case *check)
{
    const char *name = op->name ? op->name : "", *of = check->name ? check->name : "";
    const bool shapes = op->shape || op->signature;
    if (!op->name || !shapes || gd_op_count(op).outputs < 1)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradcheck: the record of \"%s\" has no %s", name,
                       !op->name ? "name"
                       : !shapes ? "shape() or signature"
                                 : "output");
    bool given = false;
    for (int i = 0; i < check->inputs && i < GD_CASE_MAX_INPUTS; i++) {
        const gd_case_input *in = &check->input[i];
        given = given || !in->absent;
        if ((unsigned)in->fill > GD_FILL_INDEX)
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "gradcheck: %s, case %s: the fill of input %d is %d, wanted one of "
                           "gd_fill_kind",
                           name, of, i, (int)in->fill);
        if (in->ndim < 0 || in->ndim > GD_MAX_DIMS)
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "gradcheck: %s, case %s: ndim of input %d is %d, wanted 0 to %d", name,
                           of, i, in->ndim, GD_MAX_DIMS);
        for (int axis = 0; axis < in->ndim; axis++)
            if (in->shape[axis] < 0)
                return gd_fail(ctx, GD_ERROR_ARGUMENT,
                               "gradcheck: %s, case %s: the shape of input %d is %s, wanted no "
                               "negative dimension",
                               name, of, i, gd_check_shape(in->ndim, in->shape).text);
    }
    if (given && check->inputs <= GD_CASE_MAX_INPUTS) return GD_OK;
    return gd_fail(
        ctx, GD_ERROR_ARGUMENT, "gradcheck: %s, case %s: it has %d inputs%s, wanted 1 to %d", name,
        of, check->inputs, check->inputs > 0 && !given ? ", all absent" : "", GD_CASE_MAX_INPUTS);
}

/* Makes input i of the case: its values and its leaf. False if it has values beyond the dtype's
 * range. */
static bool make_input(gd_checker *c, const gd_case_input *how, int draw, int i)
{
    gd_argument *a = &c->input[i];
    gd_check_copy_name(a->name, sizeof a->name, gd_input_name(c->f.op, i).text);
    a->given = !how->absent;
    a->spec = spec_of(how);
    a->spec.dtype = how->fill == GD_FILL_INDEX ? GD_INT32 : c->dtype;
    a->wanted = a->given && !how->fixed && gd_dtype_is_real(a->spec.dtype);
    a->count = 1;
    a->scale = 1;
    for (int axis = 0; axis < how->ndim; axis++) a->count *= how->shape[axis];
    if (!a->given) return true;
    a->value = gd_check_numbers(c, a->count);
    double *scratch = gd_check_numbers(c, a->count);
    if (!a->value || !scratch) return true;
    /* No perturbation may change the order of two values. */
    double gap = c->options.step * 4 > 0.01 ? c->options.step * 4 : 0.01;
    gd_check_fill(a->value, a->count, how, gap, c->options.seed,
                  (uint64_t)(i + draw * GD_CASE_MAX_INPUTS), scratch);
    memcpy(scratch, a->value, (size_t)a->count * sizeof *scratch);
    gd_check_make_leaf(c, a);
    for (int64_t k = 0; k < a->count; k++)
        if (isinf(a->value[k]) && isfinite(scratch[k])) return false;
    return true;
}

/* Makes all inputs. Returns the last one that has values beyond the dtype's range, if any. */
static const char *make_inputs(gd_checker *c, const gd_op *op, const gd_case *check, int draw)
{
    const char *beyond = NULL;
    const gd_op_counts counts = gd_op_count(op);
    c->inputs = check->inputs > counts.inputs ? check->inputs : counts.inputs;
    c->outputs = counts.outputs;
    c->f = (gd_subject){.apply = apply_op,
                        .op = op,
                        .args = check->args,
                        .probe = gd_check_allocate(c, 1, sizeof *c->f.probe),
                        .arguments = c->inputs,
                        /* Distinct values may become equal in 16 bits. */
                        .kinks = check->kinks || gd_dtype_size(c->dtype) == 2,
                        .may_be_empty = check->may_be_empty};
    c->input = gd_check_allocate(c, c->inputs, sizeof *c->input);
    if (gd_check_failed(c)) return NULL;
    gd_check_probe(c->f.probe, op, c);
    for (int i = 0; i < check->inputs && i < GD_CASE_MAX_INPUTS && !gd_check_failed(c); i++)
        if (!make_input(c, &check->input[i], draw, i)) beyond = c->input[i].name;
    return beyond;
}

/* Whether the op is missing on this device; the report says so. An op without a backward on any
 * device, by design, has nothing to compare. */
static bool unsupported(const gd_op *op, const gd_case *check, gd_gradcheck_report *report)
{
    const bool forward = op->forward[report->device] || op->definition || op->view;
    if (forward && gd_op_has_backward(op, report->device)) return false;
    bool none = true;
    for (int i = 0; i < GD_DEVICE_COUNT; i++) none = none && !gd_op_has_backward(op, (gd_device)i);
    if (forward && none && check->may_be_empty) {
        report->verdict = GD_VERDICT_EMPTY;
        return true;
    }
    report->verdict = GD_VERDICT_UNSUPPORTED;
    snprintf(report->message, sizeof report->message, "%s: there is no %s on this device", op->name,
             forward ? "backward" : "forward");
    return true;
}

static gd_status check_draw(gd_context *ctx, const gd_op *op, const gd_case *check, int draw,
                            const gd_gradcheck_options *options, gd_gradcheck_report *report)
{
    gd_checker c;
    if (ctx && (!op || !check))
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradcheck: %s is NULL", op ? "check" : "op");
    gd_status status = gd_check_begin(&c, ctx, options, report);
    if (!status) status = look_at_case(ctx, op, check);
    if (status) return status;
    gd_check_copy_name(report->op, sizeof report->op, op->name);
    gd_check_copy_name(report->name, sizeof report->name, check->name);
    if (unsupported(op, check, report)) return gd_check_end(&c);
    const char *beyond = make_inputs(&c, op, check, draw);
    if (beyond && !gd_check_failed(&c)) { /* a case for other dtypes */
        report->verdict = GD_VERDICT_EMPTY;
        snprintf(report->message, sizeof report->message, "values of %s are beyond %s", beyond,
                 gd_dtype_name(c.dtype));
    } else if (!gd_check_failed(&c)) {
        gd_check_all(&c);
    }
    return gd_check_end(&c);
}

/* If nothing could be compared because of kinks (a scalar's step crosses one of many), other values
 * are drawn. */
gd_status gd_gradcheck_case(gd_context *ctx, const gd_op *op, const gd_case *check,
                            const gd_gradcheck_options *options, gd_gradcheck_report *report)
{
    enum { DRAWS = 8 };
    gd_status status = check_draw(ctx, op, check, 0, options, report);
    for (int draw = 1; draw < DRAWS && !status && report->verdict == GD_VERDICT_KINK; draw++) {
        gd_gradcheck_report_free(report);
        status = check_draw(ctx, op, check, draw, options, report);
    }
    return status;
}

/* ---- A user's function -------------------------------------------------------------------- */

static gd_status apply_function(gd_checker *c, gd_tensor *const *in, gd_tensor **out)
{
    out[0] = c->f.function(c->f.user, in, c->f.arguments);
    if (!out[0] && !gd_error(c->ctx))
        gd_fail(c->ctx, GD_ERROR_ARGUMENT, "gradcheck: the function %s returned NULL",
                c->report->op);
    if (out[0] && gd_tensor_context(out[0]) != c->ctx)
        gd_fail(c->ctx, GD_ERROR_ARGUMENT,
                "gradcheck: the function %s returned a tensor of another context, wanted one of "
                "the inputs' context",
                c->report->op);
    return gd_error_status(c->ctx);
}

/* Whether input i is an earlier one again. An error if it only shares memory with one: perturbing
 * either would change both. */
static void look_at_earlier(gd_checker *c, int i)
{
    gd_argument *a = &c->input[i];
    for (int k = 0; k < i && !a->again; k++) {
        const gd_argument *b = &c->input[k];
        a->again = b->leaf == a->leaf;
        if (a->again)
            gd_check_copy_name(a->name, sizeof a->name, b->name);
        else if ((a->required || b->required) && gd_check_overlap(a->leaf, b->leaf))
            gd_fail(c->ctx, GD_ERROR_ARGUMENT,
                    "gradcheck: inputs %d and %d share memory, wanted tensors of their own, or the "
                    "same tensor twice",
                    k, i);
    }
    a->wanted = a->wanted && !a->again;
}

static void borrow_input(gd_checker *c, gd_tensor *t, int i)
{
    gd_argument *a = &c->input[i];
    if (!t) return;
    if (*gd_tensor_name(t))
        gd_check_copy_name(a->name, sizeof a->name, gd_tensor_name(t));
    else
        snprintf(a->name, sizeof a->name, "input %d", i);
    a->spec = gd_spec_like(t);
    a->count = gd_tensor_count(t);
    a->wanted = a->required = gd_tensor_requires_grad(t);
    if (gd_tensor_set_requires_grad(t, a->required)) {
        gd_error_clear(c->ctx);
        gd_fail(
            c->ctx, GD_ERROR_ARGUMENT,
            "gradcheck: input %d, %s, was made by an op or freed, wanted a tensor of yours: each "
            "call ends the step",
            i, gd_shape_text(t).text);
        return;
    }
    a->value = gd_check_numbers(c, a->count);
    if (!a->value) return;
    a->leaf = a->measured = t;
    a->given = a->borrowed = true;
    if (a->wanted && !c->given.dtype) c->dtype = c->report->dtype = a->spec.dtype;
    look_at_earlier(c, i);
    gd_check_read_leaf(a);
}

gd_status gd_gradcheck_function(gd_context *ctx, const char *name, gd_function function, void *user,
                                gd_tensor *const *inputs, int count,
                                const gd_gradcheck_options *options, gd_gradcheck_report *report)
{
    gd_checker c;
    if (ctx && (!function || (!inputs && count)))
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradcheck: %s is NULL",
                       function ? "inputs" : "function");
    if (ctx && count < 0)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradcheck: count is %d, wanted at least 0", count);
    gd_status status = gd_check_begin(&c, ctx, options, report);
    if (status) return status;
    gd_check_copy_name(report->op, sizeof report->op, name ? name : "function");
    c.f = (gd_subject){.apply = apply_function,
                       .function = function,
                       .user = user,
                       .arguments = count,
                       .kinks = true};
    c.inputs = count;
    c.outputs = 1;
    c.input = gd_check_allocate(&c, count, sizeof *c.input);
    for (int i = 0; i < count && !gd_check_failed(&c); i++) borrow_input(&c, inputs[i], i);
    if (!gd_check_failed(&c)) gd_check_all(&c);
    return gd_check_end(&c);
}
