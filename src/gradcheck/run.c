/* run.c - runs the function forward at the current inputs, and backward in all its variants. */
#include <math.h>
#include <string.h>

#include "gradcheck/check.h"
#include "gradus/ops.h"

/* An error if output o is not what it was in the first call. */
static void same_output(gd_checker *c, int o, gd_dtype dtype)
{
    const gd_result *r = &c->output[o];
    const gd_spec now = gd_spec_like(c->out[o]);
    if (now.dtype == dtype && gd_check_same_shape(&now, &r->spec)) return;
    gd_fail(c->ctx, GD_ERROR_STATE,
            "gradcheck: output %d of %s was %s %s in an earlier call and is %s %s now, wanted the "
            "same in each",
            o, c->report->op, gd_dtype_name(dtype),
            gd_check_shape(r->spec.ndim, r->spec.shape).text, gd_dtype_name(now.dtype),
            gd_check_shape(now.ndim, now.shape).text);
}

/* With the random state reset, so that random ops repeat. */
static void call(gd_checker *c)
{
    gd_random_set(c->ctx, (gd_random_state){.seed = c->options.seed});
    gd_check_keep(c, c->f.apply(c, c->in, c->out));
}

void gd_check_call_alone(gd_checker *c)
{
    const bool recorded = c->f.function && !c->higher;
    for (int i = 0; i < c->inputs && recorded; i++)
        if (c->input[i].wanted || c->input[i].required) gd_tensor_set_requires_grad(c->in[i], true);
    if (!recorded) gd_no_grad_begin(c->ctx);
    call(c);
    if (!recorded) gd_no_grad_end(c->ctx);
}

void gd_check_forward(gd_checker *c, int side)
{
    bool first = false; /* and with other dtypes than those of the leaves */
    if (gd_check_failed(c)) return;
    for (int i = 0; i < c->inputs; i++) {
        c->in[i] = c->input[i].measured;
        first = first || (!side && c->in[i] != c->input[i].leaf);
    }
    gd_check_call_alone(c);
    for (int o = 0; o < c->outputs && !gd_check_failed(c); o++) {
        gd_result *r = &c->output[o];
        if (first) r->measured = gd_tensor_dtype(c->out[o]);
        same_output(c, o, r->measured);
        if (!r->real || gd_check_failed(c)) continue;
        gd_tensor_read_f64(c->out[o], !side ? r->base : side > 0 ? r->plus : r->minus, r->count);
    }
    gd_step_end(c->ctx);
}

/* ---- The parts of a backward -------------------------------------------------------------- */

/* A view of all but a border of one element on each side. With `reversed`, the axes of `large` are
 * in the opposite order, so that the last dimension of the view is the slowest in memory. */
static gd_tensor *inside(gd_tensor *large, const gd_spec *s, bool reversed)
{
    int axes[GD_MAX_DIMS];
    gd_tensor *t = large;
    if (!s->ndim) return gd_reshape(gd_narrow(t, 0, 1, 1), 0, NULL);
    for (int axis = 0; axis < s->ndim; axis++) axes[axis] = s->ndim - 1 - axis;
    if (reversed) t = gd_permute(t, axes);
    for (int axis = 0; axis < s->ndim; axis++) t = gd_narrow(t, axis, 1, s->shape[axis]);
    return t;
}

/* A view of a larger tensor, with `values` inside and NaN around it. *leaf gets that tensor, which
 * is otherwise one of the step. */
static gd_tensor *strided_tensor(gd_checker *c, const gd_spec *s, int64_t count,
                                 const double *values, bool reversed, gd_tensor **leaf)
{
    const int ndim = s->ndim ? s->ndim : 1;
    int64_t shape[GD_MAX_DIMS] = {3};
    for (int axis = 0; axis < s->ndim; axis++)
        shape[reversed ? s->ndim - 1 - axis : axis] = s->shape[axis] + 2;
    gd_tensor *large = leaf ? gd_tensor_create(c->ctx, s->dtype, ndim, shape)
                            : gd_constant(c->ctx, s->dtype, ndim, shape, 0);
    if (leaf) *leaf = large;
    if (!large) return NULL;
    gd_tensor_fill(large, gd_dtype_is_real(s->dtype) ? NAN : 0);
    gd_no_grad_begin(c->ctx);
    gd_tensor *view = inside(large, s, reversed);
    gd_tensor_write_f64(view, values, count);
    gd_no_grad_end(c->ctx);
    return view;
}

bool gd_check_requires(const gd_checker *c, const gd_run *run, int i)
{
    const gd_argument *a = &c->input[i];
    return run->some ? (a->bit & run->some) != 0 : a->wanted || a->required;
}

/* Fills c->in for the run; source[i] is the tensor that has the gradient of input i. */
static void make_inputs(gd_checker *c, const gd_run *run, gd_tensor **source)
{
    for (int i = 0; i < c->inputs; i++) {
        gd_argument *a = &c->input[i];
        const bool real = gd_dtype_is_real(a->spec.dtype);
        const bool wanted = gd_check_requires(c, run, i);
        c->in[i] = source[i] = a->leaf;
        if (!a->given || a->again) continue;
        if (real) gd_tensor_set_requires_grad(a->leaf, wanted);
        if (run->strided &&
            strided_tensor(c, &a->spec, a->count, a->value, run->reversed, &source[i])) {
            if (wanted) gd_tensor_set_requires_grad(source[i], true);
            c->in[i] = inside(source[i], &a->spec, run->reversed);
        }
        if (run->op_made_inputs && real) c->in[i] = gd_scale(c->in[i], 1);
    }
    if (run->same_to > 0) c->in[run->same_to] = c->in[run->same_from];
}

/* Collects the outputs that have a cotangent, and the cotangents, which are tensors of the step.
 * Returns their number. */
static int make_cotangents(gd_checker *c, const gd_run *run, double *const *cotangent,
                           gd_tensor **y, gd_tensor **dy)
{
    int count = 0;
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        if (!cotangent[o]) continue;
        /* The output may not depend on some inputs, nor a gradient on any. */
        if ((run->some || c->higher) && !gd_tensor_requires_grad(c->out[o])) continue;
        if (run->strided) {
            dy[count] = strided_tensor(c, &r->spec, r->count, cotangent[o], run->reversed, NULL);
        } else {
            dy[count] = gd_constant(c->ctx, r->spec.dtype, r->spec.ndim, r->spec.shape, 0);
            gd_tensor_write_f64(dy[count], cotangent[o], r->count);
        }
        y[count++] = c->out[o];
    }
    return count;
}

/* Clears the gradients, or sets them to what the walk's are to hold. */
static void prepare_gradients(const gd_checker *c, const gd_walk *walk, gd_tensor *const *source)
{
    for (int i = 0; i < c->inputs; i++) {
        const gd_argument *a = &c->input[i];
        if (!a->wanted || !source[i]) continue;
        gd_tensor *gradient = gd_grad(source[i]);
        if (!(a->bit & walk->exist))
            gd_grad_clear(source[i]);
        else if (gradient)
            gd_tensor_write_f64(gradient, walk->held + a->first, a->count);
    }
}

static void read_gradient(gd_checker *c, const gd_run *run, const gd_walk *walk, int i,
                          gd_tensor *gradient)
{
    const gd_argument *a = &c->input[i];
    double *to = walk->gradient + a->first;
    for (int64_t k = 0; k < a->count && !gradient; k++)
        to[k] = a->bit & walk->exist ? walk->held[a->first + k] : 0;
    if (!gradient) return;
    gd_no_grad_begin(c->ctx);
    if (run->strided) gradient = inside(gradient, &a->spec, run->reversed);
    gd_no_grad_end(c->ctx);
    gd_tensor_read_f64(gradient, to, a->count);
}

/* Runs the op on other data (the same numbers in reverse order) and keeps its tensors, `other`
 * [inputs], until the step ends. This overwrites what the op keeps outside of saves. */
static void interrupt(gd_checker *c, gd_tensor **other)
{
    gd_tensor **out = gd_check_allocate(c, c->outputs, sizeof *out);
    if (!out) return;
    for (int i = 0; i < c->inputs; i++) {
        const gd_argument *a = &c->input[i];
        if (!a->leaf) continue;
        for (int64_t k = 0; k < a->count; k++) c->moved[k] = a->value[a->count - 1 - k];
        other[i] = gd_tensor_create(c->ctx, a->spec.dtype, a->spec.ndim, a->spec.shape);
        gd_tensor_write_f64(other[i], c->moved, a->count);
        if (a->wanted) gd_tensor_set_requires_grad(other[i], true);
    }
    gd_check_keep(c, c->f.apply(c, other, out));
}

/* ---- A whole run -------------------------------------------------------------------------- */

/* Walks the tape, or makes the gradients by ops. */
static void walk_tape(gd_checker *c, const gd_run *run, const gd_walk *walk, bool last,
                      gd_tensor **source)
{
    const int64_t capacity = 2 * ((int64_t)c->outputs + c->inputs);
    gd_tensor **y = gd_check_allocate(c, capacity, sizeof(gd_tensor *));
    if (!y) return;
    gd_tensor **dy = y + c->outputs, **x = dy + c->outputs, **dx = x + c->inputs;
    prepare_gradients(c, walk, source);
    const int count = make_cotangents(c, run, walk->cotangent, y, dy);
    const gd_backward_options plain = {.cotangents = dy, .keep_tape = !last};
    const gd_gradients_options by_ops = {.cotangents = dy, .differentiable = true, .zeros = true};
    int n = 0;
    for (int i = 0; i < c->inputs; i++)
        if (c->input[i].wanted) x[n++] = source[i];
    if (gd_check_failed(c)) return;
    if (count > 0 && walk->by_ops)
        gd_check_keep(c, gd_gradients(y, count, &by_ops, x, n, dx));
    else if (count > 0)
        gd_check_keep(c, gd_backward_from(y, count, &plain));
    for (int i = 0, k = 0; k < n && !gd_check_failed(c); i++) {
        if (!c->input[i].wanted) continue;
        read_gradient(c, run, walk, i, walk->by_ops ? dx[k] : gd_grad(x[k]));
        k++;
    }
}

static void run_and_walk(gd_checker *c, const gd_run *run, gd_tensor **source, gd_tensor **other)
{
    make_inputs(c, run, source);
    if (!gd_check_failed(c)) call(c);
    for (int o = 0; o < c->outputs && !gd_check_failed(c); o++) {
        const gd_result *r = &c->output[o];
        same_output(c, o, r->spec.dtype);
        if (run->outputs && r->real) gd_tensor_read_f64(c->out[o], r->plus, r->count);
    }
    if (run->interrupted && !gd_check_failed(c)) interrupt(c, other);
    for (int o = 0; o < c->outputs && run->op_made_outputs && !gd_check_failed(c); o++)
        if (c->output[o].real) c->out[o] = gd_scale(c->out[o], 1);
    for (int k = 0; k < run->walks && !gd_check_failed(c); k++)
        walk_tape(c, run, &run->walk[k], k == run->walks - 1, source);
}

/* The probe's message has priority: it says more than that an input was written. */
static void restore_inputs(gd_checker *c)
{
    double *now = c->moved;
    if (c->f.probe && c->f.probe->complaint[0]) {
        gd_check_complain(c, -1, "%s", c->f.probe->complaint);
        c->f.probe->complaint[0] = 0;
    }
    for (int i = 0; i < c->inputs; i++) {
        gd_argument *a = &c->input[i];
        if (!a->leaf || !a->count || gd_tensor_read_f64(a->leaf, now, a->count)) continue;
        if (!memcmp(now, a->value, (size_t)a->count * sizeof *now)) continue;
        gd_check_complain(c, i, "the input %s is changed", a->name);
        gd_tensor_write_f64(a->leaf, a->value, a->count);
    }
}

void gd_check_run(gd_checker *c, const gd_run *run)
{
    if (gd_check_failed(c)) return;
    gd_tensor **source = gd_check_allocate(c, 2 * (int64_t)c->inputs, sizeof *source);
    if (!source) return;
    gd_tensor **other = source + c->inputs;
    run_and_walk(c, run, source, other);
    gd_step_end(c->ctx);
    for (int i = 0; i < c->inputs; i++) {
        gd_tensor *leaf = c->input[i].leaf;
        if (leaf) gd_grad_clear(leaf);
        if (source[i] != leaf) gd_tensor_free(source[i]);
        gd_tensor_free(other[i]);
    }
    if (!gd_check_failed(c)) restore_inputs(c);
}

void gd_check_backward(gd_checker *c, double *const *cotangent, double *gradient)
{
    gd_walk walk = {.cotangent = cotangent, .gradient = gradient};
    if (gradient) gd_check_run(c, &(gd_run){.walk = &walk, .walks = 1});
}

double *gd_check_shake(gd_checker *c, double *const *cotangent, double by, bool by_ops)
{
    enum { TIMES = 3 };
    double **u = gd_check_allocate(c, c->outputs, sizeof *u),
           *noise = gd_check_numbers(c, c->inputs);
    double *gradient[2] = {gd_check_gradient(c), gd_check_gradient(c)};
    for (int o = 0; o < c->outputs && u; o++)
        if (cotangent[o]) u[o] = gd_check_numbers(c, c->output[o].count);
    for (int time = 0; time <= TIMES && !gd_check_failed(c); time++) {
        for (int o = 0; o < c->outputs; o++) {
            const uint64_t stream = GD_STREAM_SHAKE + 50 * (uint64_t)time + (uint64_t)o;
            if (!u[o]) continue;
            gd_check_signs(u[o], c->output[o].count, c->options.seed, stream);
            for (int64_t k = 0; k < c->output[o].count; k++)
                u[o][k] = cotangent[o][k] * (1 + (time ? by * u[o][k] : 0));
        }
        gd_walk walk = {.cotangent = u, .gradient = gradient[time > 0], .by_ops = by_ops};
        if (walk.gradient) gd_check_run(c, &(gd_run){.walk = &walk, .walks = 1});
        for (int i = 0; i < c->inputs && time; i++) {
            const int64_t first = c->input[i].first;
            for (int64_t k = first; c->input[i].wanted && k < first + c->input[i].count; k++)
                noise[i] = fmax(noise[i], fabs(gradient[1][k] - gradient[0][k]));
        }
    }
    return gd_check_failed(c) ? NULL : noise;
}
