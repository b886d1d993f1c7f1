/* reverse.c - does the student's case tell a faulty backward from the right one? */
#include <stdio.h>

#include "grader.h"

/* The student's case for a fault, which is written to a: the sizes, and the inputs. */
static void check_fault(grader *g, const grader_function *f, int fault, grader_row *row,
                        student_array *a, int inputs)
{
    double *values[GD_CASE_MAX_INPUTS];
    gd_case shapes = {.inputs = inputs};
    char text[512];
    if (student_call(&g->student, false, f->name, (int64_t[CHILD_SIZES]){fault}, a, 1 + inputs)) {
        grader_no_points(row, "%s", g->student.why);
        return;
    }
    for (int i = 0; i < inputs; i++) {
        const int64_t size = ((int64_t *)a[0].data)[i];
        values[i] = a[1 + i].data;
        shapes.input[i] = (gd_case_input){GD_DIMS(size)};
        if (size >= 1 && size <= f->most) continue;
        if (size)
            grader_no_points(row, "%s set a size to %lld, wanted 1 to %d", f->name, (long long)size,
                             f->most);
        else
            grader_no_points(row, "%s has not set a size yet; begin here: %s", f->name, f->begin);
        return;
    }
    if (grader_check_at(g, f, -1, &shapes, values, text, sizeof text) != GD_VERDICT_PASS)
        grader_no_points(row,
                         "the right backward does not pass on this case: are its numbers finite?");
    else
        grader_cell(row, 0, 0,
                    grader_check_at(g, f, fault, &shapes, values, text, sizeof text) ==
                        GD_VERDICT_FAIL,
                    "the faulty backward passes on this case: nothing in it shows the fault");
}

void grader_check_reverse(grader *g, const grader_function *f)
{
    const int inputs = grader_inputs(f);
    student_array a[1 + GD_CASE_MAX_INPUTS];
    for (int fault = 0; f->faults[fault]; fault++) {
        grader_row *row = grader_add_row(g, f->faults[fault]);
        grader_cell(row, 0, f->points, true, "%s", "");
        for (int i = 0; i <= inputs; i++) {
            a[i] = (student_array){"an input", NULL, f->most, sizeof(double), true};
            if (i == 0) a[i] = (student_array){"a size", NULL, inputs, sizeof(int64_t), true};
            a[i].data = grader_alloc(a[i].count, a[i].size);
        }
        check_fault(g, f, fault, row, a, inputs);
        for (int i = 0; i <= inputs; i++) free(a[i].data);
    }
}
