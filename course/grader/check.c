/* check.c - a student's backward as an op of the library, and what gradcheck says about it. */
#include <ctype.h>
#include <stdio.h>

#include "grader.h"

enum { VALUES, ADDS, LINEAR, SHAPES };

/* The op whose backward is the student's, or the function's own. */
typedef struct graded_op {
    gd_op op; /* first, so that call->op leads here */
    const grader_function *f;
    grader *g;
    int fault;         /* for f->backward; -1: none */
    bool called, adds; /* in any call, something */
    bool failed;       /* a call: then the student's `why` says how */
    bool test_linear;  /* in the next call */
    char linear[256];  /* how it is not linear in dy; "": it is */
} graded_op;

/* ---- Names: a signature has tensors, and `takes` some of them and gradients ----------------- */

static const char *next_tensor(const char *signature)
{
    signature += strcspn(signature, " [");
    if (*signature == '[') signature += strcspn(signature, "]");
    return signature + strspn(signature, "]? ->");
}

static const char *next_word(const char *takes)
{
    takes += strcspn(takes, " ");
    return takes + strspn(takes, " ");
}

/* The place of a name in a signature, inputs first; -1: it has none. */
static int place_of(const char *signature, const char *name, size_t length)
{
    int place = 0;
    for (const char *s = signature; *s; s = next_tensor(s), place++)
        if (strcspn(s, "[: ") == length && !strncmp(s, name, length)) return place;
    return -1;
}

int grader_inputs(const grader_function *f)
{
    return gd_op_count(&(gd_op){.signature = f->signature}).inputs;
}

/* Of the names in a signature, in their order. */
static const int64_t sizes[][3] = {{3, 5, 7},  {4, 4, 4},  {1, 7, 2},
                                   {5, 1, 33}, {2, 33, 1}, {0, 5, 3}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* A function's case i. */
static gd_case case_of(const grader_function *f, int i, char *title, size_t length)
{
    gd_case c = {.name = title, .inputs = grader_inputs(f), .kinks = f->kinks};
    char names[4] = "";
    const char *s = f->signature;
    if (f->args_size) i += SIZES;
    if (i >= SIZES) c = f->cases[i - SIZES];
    c.may_be_empty = true;
    for (int k = 0; k < c.inputs && i < SIZES; k++, s = next_tensor(s)) {
        gd_case_input *in = &c.input[k];
        *in = f->like[k];
        const bool is_index = in->fill == GD_FILL_INDEX; /* of which none is below 0 */
        if (is_index) in->b = (double)sizes[i][(int)in->b];
        for (const char *p = strchr(s, '[') + 1; *p != ']'; p++) {
            if (!isalnum(*p) && *p != '.') continue;
            if (isalpha(*p) && !strchr(names, *p)) names[strlen(names)] = *p;
            const int64_t size = sizes[i][isalpha(*p) ? strchr(names, *p) - names : in->ndim];
            in->shape[in->ndim++] = isdigit(*p) ? *p - '0' : is_index && in->b <= 0 ? 0 : size;
        }
    }
    const int64_t *n = sizes[i % SIZES];
    snprintf(title, length, strlen(names) == 2 ? "%dx%d" : "%dx%dx%d", (int)n[0], (int)n[1],
             (int)n[2]);
    return c;
}

/* ---- Numbers of tensors ------------------------------------------------------------------- */

static double element(const student_array *a, int64_t i)
{
    if (a->size == sizeof(double)) return ((const double *)a->data)[i];
    return (double)((const float *)a->data)[i];
}

static void set_element(const student_array *a, int64_t i, double value)
{
    if (a->size == sizeof(double))
        ((double *)a->data)[i] = value;
    else
        ((float *)a->data)[i] = (float)value;
}

/* The op's arguments; without any, the count of the first input and the dimensions of all. */
static void sizes_of(const gd_call *call, int64_t n[CHILD_SIZES])
{
    int at = 0;
    memset(n, 0, CHILD_SIZES * sizeof *n);
    if (call->args) memcpy(n, call->args, call->op->args_size);
    if (call->args) return;
    n[at++] = gd_tensor_count(call->input[0]);
    for (int i = 0; i < call->inputs; i++)
        for (int k = 0; call->input[i] && k < gd_tensor_ndim(call->input[i]); k++)
            n[at++] = gd_tensor_dim(call->input[i], k);
}

static gd_status graded_forward(const gd_call *call)
{
    const grader_function *f = ((const graded_op *)call->op)->f;
    const int count = call->inputs + call->outputs;
    double *a[CHILD_ARRAYS] = {NULL};
    int64_t n[CHILD_SIZES];
    for (int i = 0; i < count; i++) {
        const gd_tensor *t = i < call->inputs ? call->input[i] : call->output[i - call->inputs];
        if (!t) continue;
        a[i] = grader_alloc(gd_tensor_count(t), sizeof *a[i]);
        gd_tensor_read_f64(t, a[i], gd_tensor_count(t));
    }
    sizes_of(call, n);
    f->forward(n, a);
    for (int i = call->inputs; i < count; i++) {
        gd_tensor *t = call->output[i - call->inputs];
        const student_array y = {.data = gd_tensor_data(t),
                                 .size = gd_dtype_size(call->kernel_dtype)};
        for (int64_t k = 0; k < gd_tensor_count(t); k++) set_element(&y, k, a[i][k]);
    }
    for (int i = 0; i < count; i++) free(a[i]);
    return GD_OK;
}

/* ---- The backward, by the student's function ------------------------------------------------ */

/* What a backward passes on, in the order of `takes`. */
typedef struct arrays {
    student_array a[CHILD_ARRAYS];
    char name[CHILD_ARRAYS][16];
    gd_tensor *dx[CHILD_ARRAYS]; /* of a gradient, if it is wanted */
    bool is_dy[CHILD_ARRAYS];
    int count;
} arrays;

static void collect(const gd_call *call, arrays *all)
{
    const grader_function *f = ((const graded_op *)call->op)->f;
    *all = (arrays){.count = 0};
    for (const char *word = f->takes; *word; word = next_word(word), all->count++) {
        const int i = all->count;
        const size_t length = strcspn(word, " ");
        int place = place_of(f->signature, word, length);
        const bool is_read = place >= 0;
        if (!is_read) place = place_of(f->signature, word + 1, length - 1);
        const int output = place - call->inputs;
        const gd_tensor *like = output < 0 ? call->input[place] : call->output[output], *t = like;
        if (!is_read && output >= 0) t = call->doutput[output];
        if (!is_read && output < 0) {
            all->dx[i] = call->dinput[place];
            t = all->dx[i] && call->accumulate[place] ? all->dx[i] : NULL;
        }
        all->is_dy[i] = !is_read && output >= 0;
        snprintf(all->name[i], sizeof all->name[i], "%.*s", (int)length, word);
        student_array *a = &all->a[i];
        *a = (student_array){.name = all->name[i], .written = !is_read && output < 0};
        if (!like) continue;
        a->count = gd_tensor_count(like);
        a->size = gd_dtype_size(gd_tensor_dtype(like));
        a->data = grader_alloc(a->count, a->size);
        if (t && a->count) memcpy(a->data, gd_tensor_data(t), (size_t)a->count * a->size);
    }
}

static void release(arrays *all)
{
    for (int i = 0; i < all->count; i++) free(all->a[i].data);
}

/* The sum of the sizes of all gradients, which changes where something is added. */
static double sum_of(const arrays *all)
{
    double sum = 0;
    for (int i = 0; i < all->count; i++)
        for (int64_t k = 0; all->a[i].written && k < all->a[i].count; k++)
            sum += fabs(element(&all->a[i], k));
    return sum;
}

/* Calls the student's function. Whether it returned; notes whether it has added anything. */
static bool call_student(graded_op *p, const gd_call *call, const arrays *all)
{
    const double before = sum_of(all);
    int64_t n[CHILD_SIZES];
    sizes_of(call, n);
    p->called = true;
    p->failed = student_call(&p->g->student, call->kernel_dtype == GD_FLOAT32, p->f->name, n,
                             all->a, all->count) != NULL;
    p->adds = p->adds || (!p->failed && sum_of(all) != before);
    return !p->failed;
}

/* Whether f(-2 dy) is -2 f(dy), which `got` has. */
static void test_linear(graded_op *p, const gd_call *call, const arrays *got)
{
    const double most = 1e-4; /* a function that rounds to float is linear, but for that */
    arrays other;
    collect(call, &other);
    for (int i = 0; i < got->count; i++)
        for (int64_t k = 0; k < got->a[i].count; k++)
            if (got->is_dy[i] || got->a[i].written)
                set_element(&other.a[i], k, got->is_dy[i] ? -2 * element(&got->a[i], k) : 0);
    const bool fine = call_student(p, call, &other);
    for (int i = 0; i < got->count && fine; i++) {
        const student_array *a = &got->a[i], *b = &other.a[i];
        double size = 0;
        for (int64_t k = 0; a->written && k < a->count; k++) size = fmax(size, fabs(element(a, k)));
        for (int64_t k = 0; a->written && k < a->count && !p->linear[0]; k++) {
            if (fabs(element(b, k) + 2 * element(a, k)) <= most * size) continue;
            snprintf(p->linear, sizeof p->linear,
                     "it is not linear in dy: %s[%lld] is %.6g, and for -2 dy %.6g, wanted %.6g",
                     a->name, (long long)k, element(a, k), element(b, k), -2 * element(a, k));
        }
    }
    release(&other);
}

/* By the function's own backward, in float64. */
static void call_own(const graded_op *p, const gd_call *call, const arrays *all)
{
    double *a[CHILD_ARRAYS];
    int64_t n[CHILD_SIZES];
    for (int i = 0; i < all->count; i++) a[i] = all->a[i].data;
    sizes_of(call, n);
    p->f->backward(p->fault, n, a);
}

static gd_status graded_backward(const gd_call *call)
{
    graded_op *p = (graded_op *)(uintptr_t)call->op;
    arrays all;
    if (p->failed) return gd_call_fail(call, GD_ERROR_STATE, "%s", p->g->student.why);
    collect(call, &all);
    if (p->f->backward) {
        call_own(p, call, &all);
    } else if (call_student(p, call, &all) && p->test_linear) {
        p->test_linear = false;
        test_linear(p, call, &all);
    }
    for (int i = 0; i < all.count && !p->failed; i++)
        if (all.dx[i] && all.a[i].count)
            memcpy(gd_tensor_data(all.dx[i]), all.a[i].data,
                   (size_t)all.a[i].count * all.a[i].size);
    release(&all);
    return p->failed ? gd_call_fail(call, GD_ERROR_STATE, "%s", p->g->student.why) : GD_OK;
}

/* The op that grader_check judges, which may be the derivative of one whose backward it is. */
static graded_op judged;

static void graded_derivative(const gd_call *call)
{
    call->dinput[0] =
        gd_apply(&judged.op, (gd_tensor *[]){call->input[0], call->doutput[0]}, 2, NULL);
}

/* The record, of which the names say what there is, and what the backward reads. */
static graded_op make_op(grader *g, const grader_function *f)
{
    graded_op p = {.f = f, .g = g, .fault = -1};
    p.op = (gd_op){.name = f->name,
                   .signature = f->signature,
                   .args_size = f->args_size,
                   .shape = f->shape,
                   .forward = {[GD_CPU] = graded_forward},
                   .backward = {[GD_CPU] = graded_backward}};
    const int inputs = grader_inputs(f);
    for (const char *word = f->takes; *word; word = next_word(word)) {
        const int place = place_of(f->signature, word, strcspn(word, " "));
        if (place >= inputs)
            p.op.backward_reads_outputs |= GD_BIT(place - inputs);
        else if (place >= 0)
            p.op.backward_reads_inputs |= GD_BIT(place);
    }
    return p;
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

static void say_report(const gd_gradcheck_report *report, char *text, size_t size)
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

/* Judges what gradcheck says of a case for `column`, and the rest for ADDS. */
static void judge(const graded_op *p, grader_row *row, const char *where, int column,
                  const gd_gradcheck_report *report)
{
    bool right = !report->message[0] && report->verdict != GD_VERDICT_UNSUPPORTED &&
                 report->verdict != GD_VERDICT_VACUOUS;
    const char *behaviour = "";
    char text[512];
    for (int k = 0; k < report->inputs; k++) {
        right = right && !is_wrong(&report->input[k]);
        if (!*behaviour) behaviour = report->input[k].behaviour;
    }
    say_report(report, text, sizeof text);
    if (p->failed) snprintf(text, sizeof text, "%.500s", p->g->student.why);
    grader_cell(row, column, 0, right, "%s: %s", where, text);
    /* What is added wrongly is another fault than any other behaviour, as rounding to float. */
    const bool of_adding = strstr(behaviour, "exist") != NULL;
    if (column == VALUES && *behaviour)
        grader_cell(row, of_adding ? ADDS : VALUES, 0, false, "%s: %s", where, behaviour);
}

/* Runs gradcheck on a case, of order 2 on one of another op, whose derivative is p. */
static void check_case(const graded_op *p, grader_row *row, int i, gd_dtype dtype, int column,
                       const graded_op *second_order)
{
    char title[32];
    const gd_case check = case_of(second_order ? second_order->f : p->f, i, title, sizeof title);
    gd_context *ctx = gd_context_create(NULL);
    const gd_gradcheck_options options = {.dtype = &dtype,
                                          .seed = p->g->seed,
                                          .order = second_order ? 2 : 1,
                                          .only_numbers = column == SHAPES};
    gd_gradcheck_report report;
    char where[96];
    snprintf(where, sizeof where, "%s, %s%s", check.name, gd_dtype_name(dtype),
             second_order ? ", order 2" : "");
    if (ctx && !gd_gradcheck_case(ctx, second_order ? &second_order->op : &p->op, &check, &options,
                                  &report)) {
        judge(p, row, where, column, &report);
        gd_gradcheck_report_free(&report);
    } else {
        grader_cell(row, column, 0, false, "%s: %s", where, ctx ? gd_error(ctx) : "out of memory");
    }
    gd_context_free(ctx);
}

void grader_check(grader *g, const grader_function *f)
{
    grader_row *row = grader_add_row(g, f->name);
    judged = make_op(g, f);
    static const int share[] = {60, 15, 10, 15};
    for (int column = 0; column < GRADER_COLUMNS; column++)
        grader_cell(row, column, f->points * share[column] / 100, true, "%s", "");
    for (int is_float = 0; is_float < 2 && !judged.failed; is_float++) {
        judged.test_linear = !is_float;
        check_case(&judged, row, 0, is_float ? GD_FLOAT32 : GD_FLOAT64, VALUES, NULL);
    }
    if (f->derivative_of && !judged.failed) {
        graded_op first = make_op(g, f->derivative_of);
        first.op.derivative = graded_derivative;
        check_case(&judged, row, 0, GD_FLOAT64, VALUES, &first);
    }
    const bool returned = !judged.failed;
    for (int i = 1; i < f->case_count + (f->args_size ? 0 : SIZES) && !judged.failed; i++)
        check_case(&judged, row, i, i % 2 ? GD_FLOAT64 : GD_FLOAT32, SHAPES, NULL);
    if (judged.linear[0]) grader_cell(row, LINEAR, 0, false, "%s", judged.linear);
    if (!returned) grader_no_points(row, "%s", row->hint[VALUES]);
    if (returned && judged.called && !judged.adds)
        grader_no_points(row, "%s adds nothing yet; begin here: %s", f->name, f->begin);
}

static gd_tensor *apply(void *op, gd_tensor *const *inputs, int count)
{
    return gd_apply(op, inputs, count, NULL);
}

gd_verdict grader_check_at(grader *g, const grader_function *f, int fault, const gd_case *shapes,
                           double *const *values, char *text, size_t size)
{
    graded_op p = make_op(g, f);
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *inputs[GD_CASE_MAX_INPUTS] = {NULL};
    gd_verdict verdict = GD_VERDICT_UNSUPPORTED;
    const gd_gradcheck_options options = {.seed = g->seed, .rtol = 1e-8};
    gd_gradcheck_report report;
    const char *s = f->signature;
    const int count = grader_inputs(f);
    p.fault = fault;
    for (int i = 0; i < count; i++, s = next_tensor(s)) {
        const gd_case_input *in = &shapes->input[i];
        char name[16];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(s, "["), s);
        inputs[i] = gd_tensor_from(ctx, GD_FLOAT64, in->ndim, in->shape, values[i]);
        gd_tensor_set_name(inputs[i], name);
        gd_tensor_set_requires_grad(inputs[i], true);
    }
    if (!gd_gradcheck_function(ctx, p.op.name, apply, &p, inputs, count, &options, &report)) {
        verdict = report.verdict;
        say_report(&report, text, size);
        gd_gradcheck_report_free(&report);
    }
    if (p.failed) snprintf(text, size, "%s", g->student.why);
    gd_context_free(ctx);
    return verdict;
}
