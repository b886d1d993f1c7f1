/* check.c - a student's backward as an op of the library, and what gradcheck says about it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grader.h"

enum { VALUES, ADDS, LINEAR, SHAPES };

/* The op whose backward is the student's. */
typedef struct graded_op {
    gd_op op; /* first, so that call->op leads here */
    const grader_function *f;
    grader *g;
    bool called, adds; /* in any call, something */
    bool failed;       /* a call: then the student's `why` says how */
    bool test_linear;  /* in the next call */
    bool second_order; /* the case is that of grader_this.second_order */
    char linear[256];  /* how it is not linear in dy; "": it is */
} graded_op;

/* ---- Numbers of tensors ------------------------------------------------------------------- */

/* The tensors of a forward's call, in the order of grader_function.forward. Returns how many. */
static int tensors_of(const gd_call *call, gd_tensor *t[CHILD_ARRAYS])
{
    int count = 0;
    for (int i = 0; i < call->inputs; i++) t[count++] = call->input[i];
    for (int i = 0; i < call->outputs; i++) t[count++] = call->output[i];
    for (int i = 0; i < call->saves; i++) t[count++] = call->save[i];
    return count;
}

void grader_write(gd_tensor *t, const double *x)
{
    void *data = gd_tensor_data(t);
    const bool is_float = gd_tensor_dtype(t) == GD_FLOAT32;
    for (int64_t i = 0; i < gd_tensor_count(t); i++) {
        if (is_float)
            ((float *)data)[i] = (float)x[i];
        else
            ((double *)data)[i] = x[i];
    }
}

double *grader_read(const gd_tensor *t)
{
    double *x = calloc((size_t)gd_tensor_count(t) + 1, sizeof *x);
    if (x) gd_tensor_read_f64(t, x, gd_tensor_count(t));
    return x;
}

gd_status grader_run_forward(const gd_call *call, const int64_t *n,
                             void (*forward)(const int64_t *n, double *const *a))
{
    gd_tensor *t[CHILD_ARRAYS];
    double *a[CHILD_ARRAYS] = {NULL};
    const int count = tensors_of(call, t);
    bool fine = true;
    for (int i = 0; i < count; i++) fine = fine && (!t[i] || (a[i] = grader_read(t[i])));
    if (fine) forward(n, a);
    for (int i = call->inputs; fine && i < count; i++)
        if (t[i]) grader_write(t[i], a[i]);
    for (int i = 0; i < count; i++) free(a[i]);
    return fine ? GD_OK : gd_call_fail(call, GD_ERROR_MEMORY, "out of memory: numbers of a call");
}

static gd_status graded_forward(const gd_call *call)
{
    const grader_function *f = ((const graded_op *)call->op)->f;
    int64_t n[CHILD_SIZES] = {0};
    f->sizes(call, n);
    return grader_run_forward(call, n, f->forward);
}

/* ---- The backward, by the student's function ------------------------------------------------ */

/* What a backward passes to the student's function, under the names that the function has
 * for them. */
typedef struct arrays {
    student_array a[CHILD_ARRAYS];
    char name[CHILD_ARRAYS][16];
    int input[CHILD_ARRAYS]; /* of a gradient; -1: it is none */
    int count, first_dy;
    bool fine; /* no allocation failed */
} arrays;

/* Appends the elements of a tensor; zeros, if only `like` is given. */
static void append(arrays *all, const gd_tensor *t, const gd_tensor *like, int input)
{
    student_array *a = &all->a[all->count];
    *a = (student_array){.name = all->name[all->count], .written = input >= 0};
    all->input[all->count++] = input;
    if (!like) return;
    a->count = gd_tensor_count(like);
    a->size = gd_dtype_size(gd_tensor_dtype(like));
    a->data = calloc((size_t)a->count + 1, a->size);
    all->fine = all->fine && a->data;
    if (a->data && t && a->count) memcpy(a->data, gd_tensor_data(t), (size_t)a->count * a->size);
}

static void collect(const gd_call *call, const char *names, arrays *all)
{
    const gd_op *op = call->op;
    all->count = 0;
    all->fine = true;
    for (int i = 0; i < call->inputs; i++)
        if (op->backward_reads_inputs & GD_BIT(i)) append(all, call->input[i], call->input[i], -1);
    for (int i = 0; i < call->outputs; i++)
        if (op->backward_reads_outputs & GD_BIT(i))
            append(all, call->output[i], call->output[i], -1);
    for (int i = 0; i < call->saves; i++) append(all, call->save[i], call->save[i], -1);
    all->first_dy = all->count;
    for (int i = 0; i < call->outputs; i++) append(all, call->doutput[i], call->output[i], -1);
    for (int i = 0; i < call->inputs; i++) {
        const gd_tensor *x = call->input[i], *dx = call->dinput[i];
        if (x && !gd_dtype_is_real(gd_tensor_dtype(x))) continue;
        append(all, dx && call->accumulate[i] ? dx : NULL, x, i);
    }
    for (int i = 0; i < all->count; i++) {
        int length = 0;
        sscanf(names, "%15s%n", all->name[i], &length);
        names += length;
    }
}

static void release(arrays *all)
{
    for (int i = 0; i < all->count; i++) free(all->a[i].data);
}

static double element(const student_array *a, int64_t i)
{
    return a->size == sizeof(float) ? (double)((const float *)a->data)[i]
                                    : ((const double *)a->data)[i];
}

static void set_element(const student_array *a, int64_t i, double value)
{
    if (a->size == sizeof(float))
        ((float *)a->data)[i] = (float)value;
    else
        ((double *)a->data)[i] = value;
}

/* Calls the student's function. Whether it returned; notes whether it has added anything. */
static bool call_student(graded_op *p, const gd_call *call, const arrays *all)
{
    int64_t n[CHILD_SIZES] = {0};
    double before = 0,
           after = 0; /* what is added to zeros and to what was there changes these sums */
    p->f->sizes(call, n);
    for (int i = 0; i < all->count; i++)
        for (int64_t k = 0; all->input[i] >= 0 && all->a[i].data && k < all->a[i].count; k++)
            before += fabs(element(&all->a[i], k));
    p->called = true;
    p->failed = student_call(&p->g->student, call->kernel_dtype == GD_FLOAT32, p->f->name, n,
                             all->a, all->count) != NULL;
    for (int i = 0; i < all->count && !p->failed; i++)
        for (int64_t k = 0; all->input[i] >= 0 && all->a[i].data && k < all->a[i].count; k++)
            after += fabs(element(&all->a[i], k));
    p->adds = p->adds || after != before;
    return !p->failed;
}

/* Whether f(dy + 2 dy') is f(dy) + 2 f(dy'), where dy' is dy backwards; `got` is what
 * f(dy) gave. */
static void test_linear(graded_op *p, const gd_call *call, const arrays *got)
{
    const double most = 1e-4; /* a function that rounds to float is linear, but for that */
    arrays other, both;
    collect(call, p->f->takes, &other);
    collect(call, p->f->takes, &both);
    bool fine = other.fine && both.fine;
    for (int i = 0; i < got->count && fine; i++) {
        const student_array *dy = &got->a[i];
        for (int64_t k = 0; got->input[i] >= 0 && dy->data && k < dy->count; k++)
            set_element(&other.a[i], k, 0), set_element(&both.a[i], k, 0);
        const bool is_dy = i >= got->first_dy && got->input[i] < 0;
        for (int64_t k = 0; is_dy && k < dy->count; k++) {
            set_element(&other.a[i], k, element(dy, dy->count - 1 - k));
            set_element(&both.a[i], k, element(dy, k) + 2 * element(dy, dy->count - 1 - k));
        }
    }
    fine = fine && call_student(p, call, &other) && call_student(p, call, &both);
    for (int i = 0; i < got->count && fine; i++) {
        double size = 0;
        if (got->input[i] < 0 || !got->a[i].data) continue;
        for (int64_t k = 0; k < got->a[i].count; k++)
            size = fmax(size, fabs(element(&got->a[i], k)) + 2 * fabs(element(&other.a[i], k)));
        for (int64_t k = 0; k < got->a[i].count && !p->linear[0]; k++) {
            const double sum = element(&got->a[i], k) + 2 * element(&other.a[i], k);
            if (fabs(element(&both.a[i], k) - sum) <= most * size) continue;
            snprintf(
                p->linear, sizeof p->linear,
                "it is not linear in dy: %s[%lld] is %.6g for the sum of two dy, and its parts "
                "add up to %.6g",
                got->a[i].name, (long long)k, element(&both.a[i], k), sum);
        }
    }
    release(&other);
    release(&both);
}

static gd_status graded_backward(const gd_call *call)
{
    graded_op *p = (graded_op *)(uintptr_t)call->op;
    arrays all;
    if (p->failed) return gd_call_fail(call, GD_ERROR_STATE, "%s", p->g->student.why);
    collect(call, p->f->takes, &all);
    bool fine = all.fine && call_student(p, call, &all);
    if (fine && p->test_linear) {
        p->test_linear = false;
        test_linear(p, call, &all);
        fine = !p->failed;
    }
    for (int i = 0; i < all.count && fine; i++) {
        gd_tensor *dx = all.input[i] >= 0 ? call->dinput[all.input[i]] : NULL;
        if (dx && all.a[i].count)
            memcpy(gd_tensor_data(dx), all.a[i].data, (size_t)all.a[i].count * all.a[i].size);
    }
    release(&all);
    if (!all.fine) return gd_call_fail(call, GD_ERROR_MEMORY, "out of memory: numbers of a call");
    return fine ? GD_OK : gd_call_fail(call, GD_ERROR_STATE, "%s", p->g->student.why);
}

/* ---- Reports ------------------------------------------------------------------------------- */

/* The indices of an element: "[2, 1]". */
static void say_indices(const gd_gradcheck_input *in, char *text, size_t size)
{
    int64_t index[GD_MAX_DIMS], element = in->worst;
    for (int axis = in->ndim - 1; axis >= 0; axis--) {
        index[axis] = element % in->shape[axis];
        element /= in->shape[axis];
    }
    size_t used = 0;
    text[0] = 0;
    for (int axis = 0; axis < in->ndim && used < size; axis++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld%s", axis ? ", " : "[",
                                 (long long)index[axis], axis == in->ndim - 1 ? "]" : "");
}

static bool is_wrong(const gd_gradcheck_input *in)
{
    return in->wrong || in->inconclusive ||
           (in->verdict != GD_VERDICT_PASS && in->verdict != GD_VERDICT_EMPTY && !in->behaviour[0]);
}

void grader_say(const gd_gradcheck_report *report, char *text, size_t size)
{
    char at[128];
    size_t used = (size_t)snprintf(text, size, "%s", report->message);
    for (int k = 0; k < report->inputs && !report->message[0] && used < size; k++) {
        const gd_gradcheck_input *in = &report->input[k];
        if (!is_wrong(in)) continue;
        used += (size_t)snprintf(text + used, size - used, "%sd%s: ", used ? "; " : "", in->name);
        if (used < size && in->finding[0])
            used += (size_t)snprintf(text + used, size - used, "%s", in->finding);
        if (used >= size || in->worst < 0) continue;
        say_indices(in, at, sizeof at);
        used += (size_t)snprintf(text + used, size - used, "%sd%s%s is %.6g, by differences %.6g%s",
                                 in->finding[0] ? " (" : "", in->name, at, in->analytic,
                                 in->numeric, in->finding[0] ? ")" : "");
    }
    if (!used) snprintf(text, size, "%s", gd_verdict_name(report->verdict));
}

/* ---- A function ---------------------------------------------------------------------------- */

/* Runs gradcheck on a case, and judges its numbers for `column`, and the rest for ADDS. */
static void check_case(graded_op *p, grader_row *row, const gd_case *check, gd_dtype dtype,
                       int column)
{
    gd_context *ctx = gd_context_create(NULL);
    const gd_op *op = p->second_order ? grader_this.second_order : &p->op;
    const gd_gradcheck_options options = {.dtype = &dtype,
                                          .seed = p->g->seed,
                                          .order = p->second_order ? 2 : 1,
                                          .only_numbers = column == SHAPES};
    gd_gradcheck_report report;
    char text[512], where[96];
    snprintf(where, sizeof where, "%s, %s%s", check->name, gd_dtype_name(dtype),
             p->second_order ? ", order 2" : "");
    if (!ctx || gd_gradcheck_case(ctx, op, check, &options, &report)) {
        grader_cell(row, column, 0, false, "%s: %s", where, ctx ? gd_error(ctx) : "out of memory");
        gd_context_free(ctx);
        return;
    }
    bool right = !report.message[0] && report.verdict != GD_VERDICT_UNSUPPORTED &&
                 (report.verdict != GD_VERDICT_VACUOUS);
    const char *behaviour = "";
    for (int k = 0; k < report.inputs; k++) {
        right = right && !is_wrong(&report.input[k]);
        if (!*behaviour) behaviour = report.input[k].behaviour;
    }
    grader_say(&report, text, sizeof text);
    if (p->failed) snprintf(text, sizeof text, "%.500s", p->g->student.why);
    grader_cell(row, column, 0, right, "%s: %s", where, text);
    /* What is added wrongly is another fault than any other behaviour, as rounding to float. */
    const bool of_adding = strstr(behaviour, "exist") != NULL;
    if (column == VALUES && *behaviour)
        grader_cell(row, of_adding ? ADDS : VALUES, 0, false, "%s: %s", where, behaviour);
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
}

/* The op that is being judged, for the derivative of second_order. */
static const gd_op *judged;

gd_tensor *grader_apply(gd_tensor *const *inputs, int count)
{
    return gd_apply(judged, inputs, count, NULL);
}

void grader_check(grader *g, const grader_function *f)
{
    grader_row *row = grader_add_row(g, f->name);
    graded_op p = {.op = f->op, .f = f, .g = g};
    p.op.forward[GD_CPU] = graded_forward;
    p.op.backward[GD_CPU] = graded_backward;
    static const int share[] = {60, 15, 10, 15};
    for (int column = 0; column < GRADER_COLUMNS; column++)
        grader_cell(row, column, f->points * share[column] / 100, true, "%s", "");
    for (int is_float = 0; is_float < 2 && !p.failed; is_float++) {
        p.test_linear = !is_float;
        check_case(&p, row, &f->op.cases[0], is_float ? GD_FLOAT32 : GD_FLOAT64, VALUES);
    }
    judged = &p.op;
    p.second_order = grader_this.second_order && f == grader_this.functions;
    if (p.second_order && !p.failed)
        check_case(&p, row, &grader_this.second_order->cases[0], GD_FLOAT64, VALUES);
    p.second_order = false;
    const bool returned = !p.failed;
    for (int i = 1; i < f->op.case_count && !p.failed; i++)
        check_case(&p, row, &f->op.cases[i], i % 2 ? GD_FLOAT64 : GD_FLOAT32, SHAPES);
    if (p.linear[0]) grader_cell(row, LINEAR, 0, false, "%s", p.linear);
    if (!returned) grader_no_points(row, "%s", row->hint[VALUES]);
    if (returned && p.called && !p.adds)
        grader_no_points(row, "%s adds nothing yet; begin here: %s", f->name, f->begin);
}
