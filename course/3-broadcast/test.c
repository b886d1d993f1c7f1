/* test.c - assignment 3: what copies, sums and selects, and a case that shows a fault. */
#include "grader.h"

#ifdef COURSE_STUDENT

#define CALLS(CALL)                                                  \
    CALL(product_backward, n[1], n[2], a[0], a[1], a[2], a[3], a[4]) \
    CALL(sum_backward, n[1], n[2], n[3], a[0], a[1])                 \
    CALL(gather_backward, n[3], n[2], a[0], a[1], a[2])              \
    CALL(view_backward, n, n + 2, a[0], a[1])                        \
    CALL(outer_case, n[0], a[0], (int64_t *)a[0] + 1, a[1], a[2])
CHILD_FUNCTIONS(CALLS)

#else

static void product(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) a[2][i] = a[0][i] * a[1][i % n[2]];
}

static const gd_case product_cases[] = {
    {.name = "3x5", GD_INPUTS({GD_DIMS(3, 5)}, {GD_DIMS(5)})},
    {.name = "5x3", GD_INPUTS({GD_DIMS(5, 3)}, {GD_DIMS(3)})},
    {.name = "1x1", GD_INPUTS({GD_DIMS(1, 1)}, {GD_DIMS(1)})},
    {.name = "no_rows", GD_INPUTS({GD_DIMS(0, 4)}, {GD_DIMS(4)}), .may_be_empty = true}};

static void sum(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[1] * n[3]; i++) {
        a[1][i] = 0;
        for (int64_t j = 0; j < n[2]; j++) a[1][i] += a[0][(i / n[3] * n[2] + j) * n[3] + i % n[3]];
    }
}

static const gd_case sum_cases[] = {
    {.name = "2x3x4", GD_INPUTS({GD_DIMS(2, 3, 4)})},
    {.name = "3x5x1", GD_INPUTS({GD_DIMS(3, 5, 1)})},
    {.name = "1x3x7", GD_INPUTS({GD_DIMS(1, 3, 7)})},
    {.name = "sum_of_none", GD_INPUTS({GD_DIMS(3, 0, 2)}), .may_be_empty = true}};

/* ---- Rows of a table, of which some are read several times, and some never ------------------ */

static void gather(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[3] * n[2]; i++)
        a[2][i] = a[0][(int64_t)a[1][i / n[2]] * n[2] + i % n[2]];
}

static const gd_case gather_cases[] = {
    {.name = "9_of_4x3", GD_INPUTS({GD_DIMS(4, 3)}, {GD_INDEX(4), GD_DIMS(9)})},
    {.name = "3_of_6x5", GD_INPUTS({GD_DIMS(6, 5)}, {GD_INDEX(6), GD_DIMS(3)})},
    {.name = "7_of_1x1", GD_INPUTS({GD_DIMS(1, 1)}, {GD_INDEX(1), GD_DIMS(7)})},
    {.name = "none", GD_INPUTS({GD_DIMS(4, 3)}, {GD_INDEX(4), GD_DIMS(0)}), .may_be_empty = true}};

/* ---- A view by strides ----------------------------------------------------------------------- */

typedef struct view_args {
    int64_t n[4]; /* the shape of y, and the strides */
} view_args;

static gd_status view_shape(const gd_call *call, gd_shapes *out)
{
    const view_args *args = call->args;
    *out->output = gd_spec_like(call->input[0]);
    out->output->ndim = 2;
    memcpy(out->output->shape, args->n, 2 * sizeof *args->n);
    return GD_OK;
}

static void view(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++) a[1][i * n[1] + j] = a[0][i * n[2] + j * n[3]];
}

static const view_args rows = {{3, 5, 0, 1}}, transposed = {{5, 3, 1, 5}}, windows = {{6, 3, 1, 1}},
                       apart = {{3, 4, 9, 2}}, nothing = {{0, 4, 4, 1}};
static const gd_case view_cases[] = {
    {"rows_of_one", &rows, GD_INPUTS({GD_DIMS(5)})},
    {"transposed", &transposed, GD_INPUTS({GD_DIMS(15)})},
    {"windows", &windows, GD_INPUTS({GD_DIMS(8)})},
    {"apart", &apart, GD_INPUTS({GD_DIMS(25)})},
    {"nothing", &nothing, GD_INPUTS({GD_DIMS(4)}), .may_be_empty = true}};

/* ---- The faults: of y[i][j] = a[i] b[j], whose arrays are a, b, dy, da, db ------------------- */

static void outer(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[1] * n[2]; i++) a[2][i] = a[0][i / n[2]] * a[1][i % n[2]];
}

static const char *const faults[] = {"db of the last row alone", "row i at dy[i rows]",
                                     "columns by fours", "da with |b[j]|", NULL};
enum { LAST_ROW, STRIDE, FOURS, SIGN };

static void outer_backward(int fault, const int64_t *n, double *const *a)
{
    const int64_t columns = fault == FOURS ? n[2] - n[2] % 4 : n[2];
    const int64_t stride = fault == STRIDE ? n[1] : n[2];
    for (int64_t i = 0; i < n[1]; i++) {
        for (int64_t j = 0; j < columns; j++) {
            const double dy = a[2][(i * stride + j) % (n[1] * n[2])], b = a[1][j];
            a[3][i] += dy * (fault == SIGN ? fabs(b) : b);
            if (fault != LAST_ROW || i == n[1] - 1) a[4][j] += dy * a[0][i];
        }
    }
}

static const grader_function functions[] = {
    {"product_backward", 20, "da is as a product of elements has it; then, which y does b[j] move?",
     "a[M, N] b[N] -> y[M, N]", "a b dy da db", product, GD_CASES(product_cases)},
    {"sum_backward", 20, "x[i][j][k] moves y[i][k] alone, and as much as itself",
     "x[M, N, K] -> y[M, K]", "dy dx", sum, GD_CASES(sum_cases)},
    {"gather_backward", 20, "row i of dy belongs to row index[i] of dtable",
     "table[R, N] index:int32[M] -> y[M, N]", "index dy dtable", gather, GD_CASES(gather_cases)},
    {"view_backward", 20, "the loops of the forward, with the arrow turned round", "x -> y",
     "dy dx", view, GD_CASES(view_cases), sizeof(view_args), view_shape},
    {"outer_case", 5, "one row and one column, and numbers in a[0] and b[0]",
     "a[M] b[N] -> y[M, N]", "a b dy da db", outer, .backward = outer_backward, .faults = faults,
     .most = 16}};

const grader_assignment grader_this = {.name = "3-broadcast", .functions = functions, .count = 5};

#endif
