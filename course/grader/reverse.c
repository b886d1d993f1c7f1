/* reverse.c - does the student's case tell a faulty backward from the right one? */
#include <stdio.h>
#include <stdlib.h>

#include "grader.h"

enum { SIZES = 4 };

/* The op with one of its backwards. */
typedef struct reverse_op {
    gd_op op; /* first, so that call->op leads here */
    const grader_reverse *r;
    const int64_t *n;
    int fault;
} reverse_op;

static gd_status reverse_forward(const gd_call *call)
{
    const reverse_op *p = (const reverse_op *)call->op;
    return grader_run_forward(call, p->n, p->r->forward);
}

static gd_status reverse_backward(const gd_call *call)
{
    const reverse_op *p = (const reverse_op *)call->op;
    double *a[CHILD_ARRAYS] = {NULL};
    const int inputs = call->inputs;
    bool fine = true;
    for (int i = 0; i < inputs; i++) {
        const gd_tensor *dx = call->dinput[i] && call->accumulate[i] ? call->dinput[i] : NULL;
        const size_t count = (size_t)gd_tensor_count(call->input[i]);
        a[i] = grader_read(call->input[i]);
        a[inputs + 1 + i] = dx ? grader_read(dx) : calloc(count + 1, sizeof(double));
        fine = fine && a[i] && a[inputs + 1 + i];
    }
    a[inputs] = grader_read(call->doutput[0]);
    fine = fine && a[inputs];
    if (fine) p->r->backward(p->fault, p->n, a);
    for (int i = 0; i < inputs && fine; i++)
        if (call->dinput[i]) grader_write(call->dinput[i], a[inputs + 1 + i]);
    for (int i = 0; i < CHILD_ARRAYS; i++) free(a[i]);
    return fine ? GD_OK : gd_call_fail(call, GD_ERROR_MEMORY, "out of memory: numbers of a call");
}

static gd_tensor *apply_reverse(void *op, gd_tensor *const *inputs, int count)
{
    return gd_apply(op, inputs, count, NULL);
}

/* Runs gradcheck with one backward on the student's values. */
static gd_verdict judge(const grader *g, const reverse_op *p, double *const *values)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *inputs[GD_CASE_MAX_INPUTS] = {NULL};
    gd_verdict verdict = GD_VERDICT_UNSUPPORTED;
    gd_gradcheck_report report;
    for (int i = 0; i < p->op.inputs; i++) {
        int64_t shape[SIZES];
        int ndim = 0;
        for (const char *d = p->r->dims[i]; *d; d++) shape[ndim++] = p->n[*d - '0'];
        inputs[i] = gd_tensor_from(ctx, GD_FLOAT64, ndim, shape, values[i]);
        gd_tensor_set_requires_grad(inputs[i], true);
    }
    const gd_gradcheck_options options = {.seed = g->seed};
    if (!gd_gradcheck_function(ctx, p->op.name, apply_reverse, (void *)(uintptr_t)p, inputs,
                               p->op.inputs, &options, &report)) {
        verdict = report.verdict;
        gd_gradcheck_report_free(&report);
    }
    gd_context_free(ctx);
    return verdict;
}

static void check_fault(grader *g, const grader_reverse *r, int fault, grader_row *row,
                        student_array *a)
{
    int64_t n[CHILD_SIZES] = {fault}, *size = a[0].data;
    double *values[GD_CASE_MAX_INPUTS];
    for (int i = 0; i < r->op.inputs; i++) values[i] = a[1 + i].data;
    if (student_call(&g->student, false, r->name, n, a, 1 + r->op.inputs)) {
        grader_no_points(row, "%s", g->student.why);
        return;
    }
    for (int i = 0; i < r->sizes; i++) {
        if (size[i] >= 1 && size[i] <= r->most) continue;
        if (size[i])
            grader_no_points(row, "%s set a size to %lld, wanted 1 to %d", r->name,
                             (long long)size[i], r->most);
        else
            grader_no_points(row, "%s has not set a size yet; begin here: %s", r->name, r->begin);
        return;
    }
    reverse_op p = {.op = r->op, .r = r, .n = size, .fault = -1};
    p.op.forward[GD_CPU] = reverse_forward;
    p.op.backward[GD_CPU] = reverse_backward;
    if (judge(g, &p, values) != GD_VERDICT_PASS) {
        grader_no_points(row,
                         "the right backward does not pass on this case: are its numbers finite?");
        return;
    }
    p.fault = fault;
    grader_cell(row, 0, 0, judge(g, &p, values) == GD_VERDICT_FAIL,
                "the faulty backward passes on this case: nothing in it shows the fault");
}

void grader_check_reverse(grader *g, const grader_reverse *r)
{
    student_array a[1 + GD_CASE_MAX_INPUTS];
    int64_t count = 1;
    for (int i = 0; i < r->sizes; i++) count *= r->most;
    for (int fault = 0; fault < r->count; fault++) {
        grader_row *row = grader_add_row(g, r->faults[fault]);
        bool fine = true;
        grader_cell(row, 0, r->points, true, "%s", "");
        for (int i = 0; i <= r->op.inputs; i++) {
            a[i] = (student_array){"an input", NULL, count, sizeof(double), true};
            if (i == 0) a[i] = (student_array){"a size", NULL, r->sizes, sizeof(int64_t), true};
            a[i].data = calloc((size_t)a[i].count, a[i].size);
            fine = fine && a[i].data;
        }
        if (fine) check_fault(g, r, fault, row, a);
        if (!fine) grader_no_points(row, "%s", "out of memory");
        for (int i = 0; i <= r->op.inputs; i++) free(a[i].data);
    }
}
