/* test.c - assignment 3: what copies, sums and selects, and a case that shows a fault. */
#include "grader.h"

static void product(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) a[2][i] = a[0][i] * a[1][i % n[2]];
}

static void sum(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[1] * n[3]; i++) {
        a[1][i] = 0;
        for (int64_t j = 0; j < n[2]; j++) a[1][i] += a[0][(i / n[3] * n[2] + j) * n[3] + i % n[3]];
    }
}

static const gd_case sum_cases[] = {{.name = "sum of none", GD_INPUTS({GD_DIMS(3, 0, 2)})}};

/* ---- Rows of a table, of which some are read several times, and some never ------------------ */

static void gather(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[3] * n[2]; i++)
        a[2][i] = a[0][(int64_t)a[1][i / n[2]] * n[2] + i % n[2]];
}

/* ---- A view by strides ----------------------------------------------------------------------- */

static gd_status view_shape(const gd_call *call, gd_shapes *out)
{
    *out->output = gd_spec_like(call->input[0]);
    out->output->ndim = 2;
    memcpy(out->output->shape, call->args, 2 * sizeof(int64_t));
    return GD_OK;
}

static void view(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++) a[1][i * n[1] + j] = a[0][i * n[2] + j * n[3]];
}

/* The shape of y, and the strides. */
static const int64_t rows[] = {3, 5, 0, 1}, transposed[] = {5, 3, 1, 5}, windows[] = {6, 3, 1, 1},
                     apart[] = {3, 4, 9, 2}, nothing[] = {0, 4, 4, 1};
static const gd_case view_cases[] = {{"rows_of_one", rows, GD_INPUTS({GD_DIMS(5)})},
                                     {"transposed", transposed, GD_INPUTS({GD_DIMS(15)})},
                                     {"windows", windows, GD_INPUTS({GD_DIMS(8)})},
                                     {"apart", apart, GD_INPUTS({GD_DIMS(25)})},
                                     {"nothing", nothing, GD_INPUTS({GD_DIMS(4)})}};

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
     "a[M, N] b[N] -> y[M, N]", "a b dy da db", product},
    {"sum_backward", 20, "x[i][j][k] moves y[i][k] alone, and as much as itself",
     "x[M, N, K] -> y[M, K]", "dy dx", sum, .cases = sum_cases, .case_count = 1},
    {"gather_backward", 20, "row i of dy belongs to row index[i] of dtable",
     "table[R, N] index:int32[M] -> y[M, N]", "index dy dtable", gather,
     GRADER_LIKE({0}, {GD_INDEX(0)})},
    {"view_backward", 20, "the loops of the forward, with the arrow turned round", "x -> y",
     "dy dx", view, GD_CASES(view_cases), .args_size = sizeof rows, .shape = view_shape},
    {"outer_case", 5, "one row and one column, and numbers in a[0] and b[0]",
     "a[M] b[N] -> y[M, N]", "a b dy da db", outer, .backward = outer_backward, .faults = faults,
     .most = 16}};

const grader_assignment grader_this = {.name = "3-broadcast", .functions = functions, .count = 5};
