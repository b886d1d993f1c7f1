/* run.c - runs the function forward at the current inputs, and backward in all its variants. */
#include <math.h>
#include <string.h>

#include "gradcheck/check.h"

/* An error if output o is not what it was in the first call. */
static gd_status same_output(gd_checker *c, int o, gd_dtype dtype)
{
    const gd_result *r = &c->output[o];
    const gd_tensor *y = c->out[o];
    if (gd_tensor_dtype(y) == dtype && gd_tensor_ndim(y) == r->ndim &&
        !memcmp(gd_tensor_shape(y), r->shape, (size_t)r->ndim * sizeof *r->shape))
        return GD_OK;
    return gd_fail(c->ctx, GD_ERROR_STATE,
                   "gradcheck: output %d of %s was %s %s in an earlier call and is %s %s now, "
                   "wanted the same in each",
                   o, c->report->op, gd_dtype_name(dtype), gd_check_shape(r->ndim, r->shape).text,
                   gd_dtype_name(gd_tensor_dtype(y)), gd_shape_text(y).text);
}

/* Calls the function with the random state reset, so that random ops repeat. */
static gd_status call_function(gd_checker *c, gd_tensor *const *in, gd_tensor **out)
{
    gd_random_set(c->ctx, (gd_random_state){.seed = c->options.seed});
    return c->apply(c, in, out);
}

gd_status gd_check_forward(gd_checker *c, double *const *y)
{
    bool first = false; /* and with other dtypes than those of the leaves */
    for (int i = 0; i < c->inputs; i++) {
        c->in[i] = c->input[i].measured;
        first = first || (y == c->base && c->in[i] != c->input[i].leaf);
    }
    gd_no_grad_begin(c->ctx);
    gd_status status = call_function(c, c->in, c->out);
    for (int o = 0; o < c->outputs && !status; o++) {
        gd_result *r = &c->output[o];
        if (first) r->measured = gd_tensor_dtype(c->out[o]);
        status = same_output(c, o, r->measured);
        if (r->real && !status) status = gd_tensor_read_f64(c->out[o], y[o], r->count);
    }
    gd_no_grad_end(c->ctx);
    gd_step_end(c->ctx);
    return status;
}

/* ---- The pieces of a backward ------------------------------------------------------------- */

/* A view of a larger tensor, with `values` inside and NaN around it. Sets *large to the larger
 * tensor. */
static gd_tensor *strided_tensor(gd_checker *c, gd_dtype dtype, int ndim, const int64_t *shape,
                                 int64_t count, const double *values, bool wanted, bool reversed,
                                 gd_tensor **large)
{
    gd_inset w = gd_check_inset(ndim, shape, reversed);
    double *all = gd_check_numbers(c, w.count);
    *large = gd_tensor_create(c->ctx, dtype, 1, &w.count);
    if (!all || !*large) return NULL;
    for (int64_t i = 0; i < w.count; i++) all[i] = gd_dtype_is_real(dtype) ? NAN : 0;
    for (int64_t i = 0; i < count; i++) all[gd_check_inset_at(&w, i)] = values[i];
    if (gd_tensor_write_f64(*large, all, w.count)) return NULL;
    if (wanted && gd_tensor_set_requires_grad(*large, true)) return NULL;
    return gd_apply(&gd_check_inset_op, large, 1, &w);
}

/* Fills c->in for the run; source[i] is the tensor that has the gradient of input i. */
static gd_status make_inputs(gd_checker *c, const gd_run *run, gd_tensor **source)
{
    for (int i = 0; i < c->inputs; i++) {
        gd_argument *a = &c->input[i];
        bool wanted = run->wanted ? run->wanted[i] : a->wanted;
        c->in[i] = source[i] = a->leaf;
        if (!a->given || a->again) continue;
        if (gd_dtype_is_real(a->dtype)) gd_tensor_set_requires_grad(a->leaf, wanted);
        if (run->strided)
            c->in[i] = strided_tensor(c, a->dtype, a->ndim, a->shape, a->count, a->value, wanted,
                                      run->reversed, &source[i]);
        if (run->op_made_inputs && gd_dtype_is_real(a->dtype))
            c->in[i] = gd_apply(&gd_check_copy_op, &c->in[i], 1, NULL);
    }
    if (run->same_to > 0) c->in[run->same_to] = c->in[run->same_from];
    return gd_error_status(c->ctx);
}

/* The outputs, passed through an op that copies them if the run asks for it. */
static gd_status make_outputs(gd_checker *c, const gd_run *run)
{
    for (int o = 0; o < c->outputs && run->op_made_outputs; o++)
        if (c->output[o].real) c->out[o] = gd_apply(&gd_check_copy_op, &c->out[o], 1, NULL);
    return gd_error_status(c->ctx);
}

/* Collects the outputs that have a cotangent, and the cotangents. Returns their number, -1 on
 * error. `own` [outputs] gets the tensors to free. */
static int make_cotangents(gd_checker *c, const gd_run *run, double *const *cotangent,
                           gd_tensor **y, gd_tensor **dy, gd_tensor **own)
{
    int count = 0;
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        if (!cotangent[o]) continue;
        /* Of some inputs it may be independent; and a gradient of all. */
        if ((run->wanted || c->higher) && !gd_tensor_requires_grad(c->out[o])) continue;
        if (run->strided) {
            gd_no_grad_begin(c->ctx);
            dy[count] = strided_tensor(c, r->dtype, r->ndim, r->shape, r->count, cotangent[o],
                                       false, run->reversed, &own[o]);
            gd_no_grad_end(c->ctx);
        } else {
            dy[count] = own[o] = gd_tensor_create(c->ctx, r->dtype, r->ndim, r->shape);
            gd_tensor_write_f64(own[o], cotangent[o], r->count);
        }
        y[count++] = c->out[o];
    }
    return gd_error(c->ctx) ? -1 : count;
}

/* Clears the gradients, or sets them to what the walk's are to hold. */
static void prepare_gradients(const gd_checker *c, const gd_walk *walk, gd_tensor *const *source)
{
    for (int i = 0; i < c->inputs; i++) {
        if (!c->input[i].wanted || !source[i]) continue;
        gd_tensor *gradient = gd_grad(source[i]);
        if (!walk->held || !walk->held[i])
            gd_grad_clear(source[i]);
        else if (gradient)
            gd_tensor_write_f64(gradient, walk->held[i], c->input[i].count);
    }
}

static gd_status read_gradient(gd_checker *c, const gd_run *run, const gd_walk *walk, int i,
                               const gd_tensor *gradient)
{
    const gd_argument *a = &c->input[i];
    double *to = walk->gradient[i];
    for (int64_t k = 0; k < a->count && !gradient; k++)
        to[k] = walk->held && walk->held[i] ? walk->held[i][k] : 0;
    if (!gradient) return GD_OK;
    if (!run->strided) return gd_tensor_read_f64(gradient, to, a->count);

    gd_inset w = gd_check_inset(a->ndim, a->shape, run->reversed);
    double *all = gd_check_numbers(c, w.count);
    if (!all) return GD_ERROR_MEMORY;
    gd_status status = gd_tensor_read_f64(gradient, all, w.count);
    for (int64_t k = 0; k < a->count; k++) to[k] = all[gd_check_inset_at(&w, k)];
    return status;
}

/* Runs the op on other data (the same numbers in reverse order) and keeps its tensors, `other`
 * [inputs], until the step ends. This overwrites what the op keeps outside of saves. */
static gd_status interrupt(gd_checker *c, gd_tensor **other)
{
    gd_tensor **out = gd_check_allocate(c, c->outputs, sizeof *out);
    if (!out) return GD_ERROR_MEMORY;
    for (int i = 0; i < c->inputs; i++) {
        const gd_argument *a = &c->input[i];
        if (!a->leaf) continue;
        for (int64_t k = 0; k < a->count; k++) c->moved[k] = a->value[a->count - 1 - k];
        other[i] = gd_tensor_create(c->ctx, a->dtype, a->ndim, a->shape);
        gd_tensor_write_f64(other[i], c->moved, a->count);
        if (a->wanted) gd_tensor_set_requires_grad(other[i], true);
    }
    return c->apply(c, other, out);
}

/* ---- A whole run -------------------------------------------------------------------------- */

/* Gradients by ops of the inputs that want one, in the order of the inputs. */
static gd_status walk_by_ops(gd_checker *c, gd_tensor *const *y, int count, gd_tensor *const *dy,
                             gd_tensor *const *source, gd_tensor **gradient)
{
    gd_tensor **x = gd_check_allocate(c, c->inputs, sizeof(gd_tensor *));
    const gd_gradients_options options = {.cotangents = dy, .differentiable = true, .zeros = true};
    int n = 0;
    if (!x) return GD_ERROR_MEMORY;
    for (int i = 0; i < c->inputs; i++)
        if (c->input[i].wanted) x[n++] = source[i];
    gd_status status = gd_gradients(y, count, &options, x, n, gradient);
    for (int i = c->inputs - 1; i >= 0; i--)
        gradient[i] = c->input[i].wanted ? gradient[--n] : NULL;
    return status;
}

/* Walks the tape. `own` [outputs] gets the cotangents. */
static gd_status walk_tape(gd_checker *c, const gd_run *run, const gd_walk *walk, bool last,
                           gd_tensor **source, gd_tensor **own)
{
    const int64_t capacity = 2 * (int64_t)c->outputs + c->inputs;
    gd_tensor **y = gd_check_allocate(c, capacity, sizeof(gd_tensor *));
    if (!y) return GD_ERROR_MEMORY;
    gd_tensor **dy = y + c->outputs, **gradient = dy + c->outputs;
    prepare_gradients(c, walk, source);
    const int count = make_cotangents(c, run, walk->cotangent, y, dy, own);
    const gd_backward_options options = {.cotangents = dy, .keep_tape = !last};
    gd_status status = gd_error_status(c->ctx);
    if (count > 0 && run->by_ops)
        status = walk_by_ops(c, y, count, dy, source, gradient);
    else if (count > 0)
        status = gd_backward_from(y, count, &options);
    for (int i = 0; i < c->inputs && !status; i++) {
        if (!run->by_ops && source[i]) gradient[i] = gd_grad(source[i]);
        if (walk->gradient[i] && source[i]) status = read_gradient(c, run, walk, i, gradient[i]);
    }
    return status;
}

static gd_status run_and_walk(gd_checker *c, const gd_run *run, gd_tensor **source,
                              gd_tensor **other, gd_tensor **own)
{
    gd_status status = make_inputs(c, run, source);
    if (!status) status = call_function(c, c->in, c->out);
    for (int o = 0; o < c->outputs && !status; o++) status = same_output(c, o, c->output[o].dtype);
    for (int o = 0; o < c->outputs && run->values && !status; o++)
        if (c->output[o].real)
            status = gd_tensor_read_f64(c->out[o], run->values[o], c->output[o].count);
    if (run->interrupted && !status) status = interrupt(c, other);
    if (!status) status = make_outputs(c, run);
    for (int k = 0; k < run->walks && !status; k++)
        status = walk_tape(c, run, &run->walk[k], k == run->walks - 1, source,
                           own + (int64_t)k * c->outputs);
    return status;
}

/* The probe's message has priority: it says more than that an input was written. */
static gd_status restore_inputs(gd_checker *c, double *scratch)
{
    if (c->probe && c->probe->complaint[0]) {
        gd_check_complain(c, -1, "%s", c->probe->complaint);
        c->probe->complaint[0] = 0;
    }
    for (int i = 0; i < c->inputs; i++) {
        gd_argument *a = &c->input[i];
        if (!a->leaf || !a->count) continue;
        gd_status status = gd_tensor_read_f64(a->leaf, scratch, a->count);
        if (status) return status;
        if (!memcmp(scratch, a->value, (size_t)a->count * sizeof *scratch)) continue;
        gd_check_complain(c, i, "the input %s is changed", a->name);
        status = gd_tensor_write_f64(a->leaf, a->value, a->count);
        if (status) return status;
    }
    return GD_OK;
}

gd_status gd_check_run(gd_checker *c, const gd_run *run)
{
    gd_tensor **source = gd_check_allocate(c, c->inputs, sizeof *source);
    gd_tensor **other = gd_check_allocate(c, c->inputs, sizeof *other);
    const int64_t cotangents = (int64_t)run->walks * c->outputs;
    gd_tensor **own = gd_check_allocate(c, cotangents, sizeof *own);
    if (!source || !other || !own) return GD_ERROR_MEMORY;
    gd_status status = run_and_walk(c, run, source, other, own);
    gd_step_end(c->ctx); /* until then the tape may hold a cotangent as a gradient */
    for (int64_t k = 0; k < cotangents; k++) gd_tensor_free(own[k]);
    for (int i = 0; i < c->inputs; i++) {
        gd_tensor *leaf = c->input[i].leaf;
        if (leaf) gd_grad_clear(leaf);
        if (source[i] != leaf) gd_tensor_free(source[i]);
        gd_tensor_free(other[i]);
    }
    return status ? status : restore_inputs(c, c->moved);
}

gd_status gd_check_backward(gd_checker *c, double *const *cotangent, double **gradient)
{
    const gd_walk walk = {.cotangent = cotangent, .gradient = gradient};
    return gd_check_run(c, &(gd_run){.walk = &walk, .walks = 1});
}

const double *gd_check_shake(gd_checker *c, double *const *cotangent, double by)
{
    enum { TIMES = 3 };
    double **u = gd_check_allocate(c, c->outputs, sizeof *u), **gradient[2];
    double *noise = gd_check_numbers(c, c->inputs);
    if (!u || !noise || gd_check_make_gradients(c, &gradient[0])) return NULL;
    if (gd_check_make_gradients(c, &gradient[1])) return NULL;
    for (int o = 0; o < c->outputs; o++)
        if (cotangent[o] && !(u[o] = gd_check_numbers(c, c->output[o].count))) return NULL;
    for (int time = 0; time <= TIMES; time++) {
        for (int o = 0; o < c->outputs; o++) {
            const uint64_t stream = GD_STREAM_SHAKE + 50 * (uint64_t)time + (uint64_t)o;
            if (!u[o]) continue;
            gd_check_signs(u[o], c->output[o].count, c->options.seed, stream);
            for (int64_t k = 0; k < c->output[o].count; k++)
                u[o][k] = cotangent[o][k] * (1 + (time ? by * u[o][k] : 0));
        }
        if (gd_check_backward(c, u, gradient[time > 0])) return NULL;
        for (int i = 0; i < c->inputs && time; i++)
            for (int64_t k = 0; c->input[i].wanted && k < c->input[i].count; k++)
                noise[i] = fmax(noise[i], fabs(gradient[1][i][k] - gradient[0][i][k]));
    }
    return noise;
}
