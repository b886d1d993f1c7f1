/* module.c - what the pages of the study call: an op of the library run on numbers of the reader's
 * own. Results are printed as JSON, one value a call; text goes in through study_text(), numbers
 * through the arrays that study_input() and study_cotangent() give.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/gradus.h"
#include "planted.h"
#include "print.h"

#ifdef GD_STUDY
#include "rms_norm/rms_norm.h"
#endif

/* ---- Tensors ------------------------------------------------------------------------------ */

/* {"shape": [..], "values": [..]}, or null */
static void print_tensor(const gd_tensor *t)
{
    if (!t) {
        printf("null");
        return;
    }
    int64_t shape[GD_MAX_DIMS], count = gd_tensor_count(t);
    for (int d = 0; d < gd_tensor_ndim(t); d++) shape[d] = gd_tensor_dim(t, d);
    double *values = calloc((size_t)count + 1, sizeof *values);
    if (values) gd_tensor_read_f64(t, values, count);
    printf("{\"shape\":");
    print_shape(gd_tensor_ndim(t), shape);
    printf(",\"values\":");
    print_numbers(values, values ? count : 0);
    putchar('}');
    free(values);
}

static void print_tensors(const char *name, gd_tensor *const *list, int count)
{
    printf(",\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        if (i) putchar(',');
        print_tensor(list[i]);
    }
    putchar(']');
}

/* ---- An op on the reader's numbers -------------------------------------------------------- */

enum { OUTPUTS = 4 };

/* One case of an op's record, at first with its own shapes. */
static struct {
    gd_context *ctx;
    const gd_op *op;
    gd_case check;
    double *input[GD_CASE_MAX_INPUTS], *cotangent[OUTPUTS];
    int outputs;
} now;

/* A copy of the record whose forward shows what it has saved, and whose backward is given. */
typedef gd_status pass(const gd_call *call);
static struct {
    gd_op op;
    const gd_op *real;
    pass *backward;
    bool backwards; /* the pass that is running */
} spy;

static gd_status spy_forward(const gd_call *call)
{
    spy.backwards = false;
    gd_status status = planted_forward(call, spy.real);
    if (!status && call->saves && call->save[0]) print_tensors("saves", call->save, call->saves);
    return status;
}

static gd_status spy_backward(const gd_call *call)
{
    gd_call real = *call;
    real.op = spy.real;
    spy.backwards = true;
    return spy.backward(&real);
}

static int64_t count_of(const gd_case_input *in)
{
    int64_t count = 1;
    for (int d = 0; d < in->ndim; d++) count *= in->shape[d];
    return count;
}

static void close_case(void)
{
    for (int i = 0; i < GD_CASE_MAX_INPUTS; i++) free(now.input[i]);
    for (int k = 0; k < OUTPUTS; k++) free(now.cotangent[k]);
    gd_context_free(now.ctx);
    memset(&now, 0, sizeof now);
}

/* Prints [{name, formula, signature, cases: [{name, inputs: [{name, shape, fill, a, b, ...}]}]}]. */
EXPORT(study_ops) void study_ops(void)
{
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        printf("%s{\"name\":", i ? "," : "[");
        print_text(op->name);
        printf(",\"formula\":");
        print_text(op->formula);
        printf(",\"signature\":");
        print_text(op->signature);
        printf(",\"backward\":%s,\"arguments\":%s,\"cases\":[",
               gd_op_has_backward(op, GD_CPU) ? "true" : "false", op->args_size ? "true" : "false");
        for (int c = 0; c < op->case_count; c++) {
            const gd_case *check = &op->cases[c];
            printf("%s{\"name\":", c ? "," : "");
            print_text(check->name);
            printf(",\"kinks\":%s,\"inputs\":[", check->kinks ? "true" : "false");
            for (int k = 0; k < check->inputs; k++) {
                const gd_case_input *in = &check->input[k];
                printf("%s{\"name\":", k ? "," : "");
                print_text(gd_input_name(op, k).text);
                printf(",\"absent\":%s,\"fixed\":%s,\"fill\":%d,\"a\":%g,\"b\":%g,\"shape\":",
                       in->absent ? "true" : "false", in->fixed ? "true" : "false", in->fill, in->a,
                       in->b);
                print_shape(in->ndim, in->shape);
                putchar('}');
            }
            printf("]}");
        }
        printf("]}");
    }
    puts("]");
}

/* Opens case `index` of the op named by study_text(). False: there is none. */
EXPORT(study_open) bool study_open(int index)
{
    close_case();
    now.op = gd_find_op(NULL, study_text());
    if (!now.op || index < 0 || index >= now.op->case_count) return false;
    now.check = now.op->cases[index];
    return true;
}

/* Gives an input another shape. */
EXPORT(study_shape) void study_shape(int input, int ndim, int d0, int d1, int d2, int d3)
{
    gd_case_input *in = &now.check.input[input];
    const int shape[] = {d0, d1, d2, d3};
    in->ndim = ndim;
    for (int d = 0; d < ndim; d++) in->shape[d] = shape[d];
}

/* Where the values of an input go, and dL/dy of an output of `count` elements (freed by the next
 * study_open). */
EXPORT(study_input) double *study_input(int input)
{
    free(now.input[input]);
    const size_t count = (size_t)count_of(&now.check.input[input]);
    return now.input[input] = calloc(count + 1, sizeof(double));
}

EXPORT(study_cotangent) double *study_cotangent(int output, int count)
{
    free(now.cotangent[output]);
    return now.cotangent[output] = calloc((size_t)count + 1, sizeof(double));
}

static gd_tensor *make_input(int i)
{
    const gd_case_input *in = &now.check.input[i];
    if (in->absent) return NULL;
    const bool whole = in->fill == GD_FILL_INDEX;
    gd_tensor *t = gd_tensor_create(now.ctx, whole ? GD_INT32 : GD_FLOAT64, in->ndim, in->shape);
    if (!t) return NULL;
    for (int64_t k = 0; now.input[i] && k < count_of(in); k++) {
        if (whole)
            ((int32_t *)gd_tensor_data(t))[k] = (int32_t)now.input[i][k];
        else
            ((double *)gd_tensor_data(t))[k] = now.input[i][k];
    }
    if (!whole && !in->fixed) gd_tensor_set_requires_grad(t, true);
    return t;
}

/* Forward, and backward from the cotangents that were given, in float64, by this kernel. Prints
 * {"saves": .., "outputs": .., "gradients": .., "error": .. without the brace that ends it. */
static void run(pass *backward)
{
    gd_context_free(now.ctx);
    now.ctx = gd_context_create(&(gd_context_options){.threads = 1});
    spy.real = now.op;
    spy.op = *now.op;
    spy.backward = backward;
    if (backward != now.op->backward[GD_CPU]) {
        spy.op.kernels = NULL;
        spy.op.backward_reads_inputs = GD_ALL_INPUTS;
    }
    if (backward || now.op->forward[GD_CPU]) spy.op.forward[GD_CPU] = spy_forward;
    if (backward) spy.op.backward[GD_CPU] = spy_backward;
    gd_tensor *input[GD_CASE_MAX_INPUTS] = {NULL}, *output[OUTPUTS] = {NULL};
    gd_tensor *gradient[GD_CASE_MAX_INPUTS] = {NULL}, *cotangent[OUTPUTS] = {NULL};
    printf("{\"op\":");
    print_text(now.op->name);
    for (int i = 0; i < now.check.inputs; i++) input[i] = make_input(i);
    const int outputs = gd_op_count(now.op).outputs;
    gd_apply_multi(&spy.op, input, now.check.inputs, now.check.args, output);
    for (int k = 0; k < outputs && output[k]; k++) gd_keep(output[k]);
    for (int k = 0; k < outputs && output[k] && now.cotangent[k]; k++) {
        int64_t shape[GD_MAX_DIMS];
        for (int d = 0; d < gd_tensor_ndim(output[k]); d++) shape[d] = gd_tensor_dim(output[k], d);
        cotangent[k] = gd_tensor_from(now.ctx, gd_tensor_dtype(output[k]),
                                      gd_tensor_ndim(output[k]), shape, now.cotangent[k]);
    }
    print_tensors("outputs", output, outputs);
    if (gd_op_has_backward(now.op, GD_CPU) && output[0])
        gd_backward_from(output, outputs, &(gd_backward_options){.cotangents = cotangent});
    for (int i = 0; i < now.check.inputs; i++) gradient[i] = input[i] ? gd_grad(input[i]) : NULL;
    print_tensors("gradients", gradient, now.check.inputs);
    printf(",\"error\":");
    print_text(gd_error(now.ctx));
}

EXPORT(study_run) void study_run(void)
{
    run(now.op->backward[GD_CPU]);
    puts("}");
}

/* ---- The steps of a derivation ------------------------------------------------------------ */

#ifdef GD_STUDY
/* The backwards of the plain twins (kernels/NAME/plain_cpu.c), which take what the fast forward has
 * saved; NULL for an op without one. RMSNorm's has another interface, and takes the place of the
 * fast kernels, which both of its ops call. */
#define rms_norm_plain_backward_f64 rms_norm_plain_call
#define GD_OP(name) __attribute__((weak)) pass name##_plain_backward_f64;
#include "op_list.h"
#undef GD_OP

static const struct {
    const char *name;
    pass *backward;
} twins[] = {
#define GD_OP(name) {#name, name##_plain_backward_f64},
#include "op_list.h"
#undef GD_OP
};
#undef rms_norm_plain_backward_f64

void rms_norm_plain_forward_f64(const gd_rms_norm_problem *p, const gd_rms_norm_values *v);
void rms_norm_plain_backward_f64(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g);
void __real_rms_norm_fast_forward_f64(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                      int threads);
void __real_rms_norm_fast_backward_f64(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                       int threads);

static struct {
    bool shown;
    int count;
    struct {
        const char *name;
        bool backwards;
        double value;
    } step[2048]; /* those of the largest example are some 100 */
} list;

void __wrap_rms_norm_fast_forward_f64(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                      int threads)
{
    if (list.shown)
        rms_norm_plain_forward_f64(p, v);
    else
        __real_rms_norm_fast_forward_f64(p, v, threads);
}

void __wrap_rms_norm_fast_backward_f64(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                       int threads)
{
    if (list.shown)
        rms_norm_plain_backward_f64(p, g);
    else
        __real_rms_norm_fast_backward_f64(p, g, threads);
}

void gd_step(const char *name, double value)
{
    if (!list.shown || list.count == sizeof list.step / sizeof *list.step) return;
    list.step[list.count].name = name;
    list.step[list.count].backwards = spy.backwards;
    list.step[list.count++].value = value;
}

/* The same by the op's plain twin, if it has one, and {.., "twin": .., "steps": [[name, backwards,
 * value]]}. */
EXPORT(study_derive) void study_derive(void)
{
    pass *backward = now.op->backward[GD_CPU];
    bool twin = strstr(now.op->name, "rms_norm") != NULL;
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        if (strcmp(twins[i].name, now.op->name) != 0 || !twins[i].backward) continue;
        backward = twins[i].backward;
        twin = true;
    }
    list.shown = true;
    list.count = 0;
    run(backward);
    list.shown = false;
    printf(",\"twin\":%s,\"steps\":[", twin ? "true" : "false");
    for (int i = 0; i < list.count; i++) {
        printf("%s[\"%s\",%d,", i ? "," : "", list.step[i].name, list.step[i].backwards);
        print_number(list.step[i].value);
        putchar(']');
    }
    puts("]}");
}
#endif
