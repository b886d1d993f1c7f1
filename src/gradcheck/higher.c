/* higher.c - gradients of gradients: what is checked is the gradient of a function, as a function
 * of the inputs and of the cotangents u of its outputs,
 *
 *     G(x, u) = (dy/dx)^T u,
 *
 * and of third order the gradient of G . v by x and u, with a constant v. Where it is recorded it
 * is made by ops, so that its backward is what definitions and derivatives say; where finite
 * differences call it, its last gradient comes from the kernels, which share nothing with these. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/check.h"

/* The function whose gradient is checked. */
struct gd_higher {
    gd_status (*apply)(gd_checker *c, gd_tensor *const *in, gd_tensor **out);
    int outputs;
    int n, all;    /* how many inputs it is differentiated by; and with the cotangents */
    int *variable; /* [all] these among the inputs */
    int *u;        /* [outputs] the input that is the cotangent of each; -1: none */
    int v;         /* the first input that is a part of v */
    gd_tensor **y, **cotangent; /* room: [outputs] */
    gd_tensor **x, **g;         /* [all] */
};

/* ---- Definition and derivative ------------------------------------------------------------ */

static bool without_kernels(const gd_call *call)
{
    (void)call;
    return false;
}

static void compare_output(gd_checker *c, int o)
{
    const gd_result *r = &c->output[o];
    const double by = gd_check_accuracy[c->dtype].close;
    const double most = by * gd_check_largest(r->base, r->count);
    if (gd_tensor_read_f64(c->out[o], r->plus, r->count)) return;
    for (int64_t k = 0; k < r->count; k++) {
        const double y = r->plus[k], right = r->base[k];
        if (y == right || (isnan(y) && isnan(right)) || fabs(y - right) <= most) continue;
        gd_check_complain(c, -1, "by its definition output %d%s is %.9g instead of %.9g", o,
                          gd_check_indices(&r->spec, k).text, y, right);
        return;
    }
}

/* The outputs by the op's definition. */
static void check_outputs(gd_checker *c)
{
    gd_op *op = &c->f.probe->op;
    for (int i = 0; i < c->inputs; i++) c->in[i] = c->input[i].leaf;
    op->kernels = without_kernels;
    gd_check_call_alone(c);
    op->kernels = c->f.op->kernels;
    for (int o = 0; o < c->outputs && !gd_check_failed(c); o++)
        if (c->output[o].real) compare_output(c, o);
    gd_step_end(c->ctx);
}

void gd_check_definition(gd_checker *c)
{
    const gd_op *op = c->f.op;
    if (op && op->definition && gd_dtype_size(c->dtype) > 2) check_outputs(c);
    gd_check_by_ops(c, !op ? "ops" : op->derivative ? "its derivative" : "its definition");
    if (!op || !op->derivative || !op->definition) return;
    c->f.probe->op.derivative = NULL;
    gd_check_by_ops(c, "its definition");
    c->f.probe->op.derivative = op->derivative;
}

/* ---- The gradient as a function ----------------------------------------------------------- */

static gd_status differentiate(gd_checker *c, gd_tensor *const *in, gd_tensor **out, bool recorded)
{
    struct gd_higher *h = c->higher;
    const bool third = c->options.order > 2;
    int count = 0;
    for (int k = 0; k < h->all; k++) {
        h->x[k] = in[h->variable[k]];
        if (k < h->n || third) gd_tensor_set_requires_grad(h->x[k], true);
    }
    gd_status status = h->apply(c, in, h->y);
    for (int o = 0; o < h->outputs && !status; o++) {
        if (h->u[o] < 0 || !gd_tensor_requires_grad(h->y[o])) continue;
        h->cotangent[count] = in[h->u[o]];
        h->y[count++] = h->y[o];
    }
    const gd_gradients_options first = {
        .cotangents = h->cotangent, .differentiable = recorded || third, .zeros = true};
    if (!status) status = gd_gradients(h->y, count, &first, h->x, h->n, third ? h->g : out);
    if (status || !third) return status;
    const gd_gradients_options second = {
        .cotangents = in + h->v, .differentiable = recorded, .zeros = true};
    return gd_gradients(h->g, h->n, &second, h->x, h->all, out);
}

static gd_status apply_gradient(gd_checker *c, gd_tensor *const *in, gd_tensor **out)
{
    const bool recorded = gd_grad_enabled(c->ctx);
    int hidden = 0;
    for (; !gd_grad_enabled(c->ctx); hidden++) gd_no_grad_end(c->ctx);
    gd_status status = differentiate(c, in, out, recorded);
    for (; hidden > 0; hidden--) gd_no_grad_begin(c->ctx);
    return status;
}

/* ---- The inputs --------------------------------------------------------------------------- */

/* Appends an input with random values. */
static void append(gd_checker *c, const char *name, const gd_spec *spec, int64_t count, bool wanted)
{
    const int i = c->inputs++;
    gd_argument *a = &c->input[i];
    *a = (gd_argument){.spec = *spec, .count = count, .given = true, .wanted = wanted};
    gd_check_copy_name(a->name, sizeof a->name, name);
    if (!count) c->f.may_be_empty = true;
    a->value = gd_check_numbers(c, count);
    if (!a->value) return;
    gd_check_normal(a->value, count, c->options.seed, GD_STREAM_HIGHER + (uint64_t)i);
    gd_check_make_leaf(c, a);
}

static void append_cotangents(gd_checker *c, struct gd_higher *h)
{
    for (int o = 0; o < h->outputs; o++) {
        const gd_result *r = &c->output[o];
        char name[16];
        h->u[o] = -1;
        if (!r->real) continue;
        snprintf(name, sizeof name, h->outputs > 1 ? "u[%d]" : "u", o);
        h->u[o] = h->variable[h->all++] = c->inputs;
        append(c, name, &r->spec, r->count, true);
        gd_check_report_input(c, h->u[o]);
    }
}

/* Leaves one input in the report and the comparison, if the options say so. */
static void choose(gd_checker *c)
{
    gd_gradcheck_report *report = c->report;
    int left = 0;
    c->running = false;
    gd_check_choose_input(c);
    if (gd_check_failed(c)) return;
    c->running = true;
    for (int k = 0; k < report->inputs; k++)
        if (c->input[report->input[k].index].wanted) report->input[left++] = report->input[k];
    report->inputs = left;
}

const double *gd_check_raise(gd_checker *c)
{
    struct gd_higher *h = gd_check_allocate(c, 1, sizeof *h);
    const int most = 2 * c->inputs + c->outputs, all = c->inputs + c->outputs;
    gd_argument *input = gd_check_allocate(c, most, sizeof *input);
    double *least = gd_check_numbers(c, all);
    if (gd_check_failed(c)) return NULL;
    *h = (struct gd_higher){.apply = c->f.apply,
                            .outputs = c->outputs,
                            .variable = gd_check_allocate(c, all, sizeof *h->variable),
                            .u = gd_check_allocate(c, c->outputs, sizeof *h->u),
                            .y = gd_check_allocate(c, c->outputs, sizeof(gd_tensor *)),
                            .cotangent = gd_check_allocate(c, c->outputs, sizeof(gd_tensor *)),
                            .x = gd_check_allocate(c, all, sizeof(gd_tensor *)),
                            .g = gd_check_allocate(c, all, sizeof(gd_tensor *))};
    if (gd_check_failed(c)) return NULL;
    memcpy(input, c->input, (size_t)c->inputs * sizeof *input);
    c->input = input;
    for (int i = 0; i < c->inputs; i++)
        if (input[i].wanted) h->variable[h->n++] = i;
    h->all = h->n;
    append_cotangents(c, h);
    h->v = c->inputs;
    double usual = c->options.order > 2 ? 0 : c->set[0].unit;
    for (int k = 0; k < h->n && c->options.order > 2 && !gd_check_failed(c); k++) {
        const gd_argument *x = &input[h->variable[k]];
        append(c, "v", &x->spec, x->count, false);
        usual = fmax(usual, c->set[0].unit / x->scale);
    }
    for (int k = 0; k < h->all; k++) least[k] = usual / input[h->variable[k]].scale;
    c->higher = h;
    c->f.apply = apply_gradient;
    c->outputs = c->options.order > 2 ? h->all : h->n;
    c->f.kinks = true;
    if (!gd_check_failed(c)) choose(c);
    return least;
}
