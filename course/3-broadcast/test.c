/* test.c - assignment 3: what copies, sums and selects, and a case that shows a fault. */
#ifdef COURSE_STUDENT

#include COURSE_FILE
#include "child.h"

#define CALLS(CALL)                                                  \
    CALL(product_backward, n[0], n[1], a[0], a[1], a[2], a[3], a[4]) \
    CALL(sum_backward, n[0], n[1], n[2], a[0], a[1])                 \
    CALL(gather_backward, n[0], n[1], a[0], a[1], a[2])              \
    CALL(view_backward, n, n + 2, a[0], a[1])                        \
    CALL(outer_case, n[0], a[0], (int64_t *)a[0] + 1, a[1], a[2])
CHILD_FUNCTIONS(CALLS)

#else

#include <math.h>
#include <string.h>

#include "grader.h"

/* ---- The first dimensions of the input are all sizes -------------------------------------- */

static void dims(const gd_call *call, int64_t *n)
{
    for (int i = 0; i < gd_tensor_ndim(call->input[0]); i++)
        n[i] = gd_tensor_dim(call->input[0], i);
}

static void product(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0] * n[1]; i++) a[2][i] = a[0][i] * a[1][i % n[1]];
}

static const gd_case product_cases[] = {
    {.name = "3x5", GD_INPUTS({GD_DIMS(3, 5)}, {GD_DIMS(5)})},
    {.name = "5x3", GD_INPUTS({GD_DIMS(5, 3)}, {GD_DIMS(3)})},
    {.name = "1x1", GD_INPUTS({GD_DIMS(1, 1)}, {GD_DIMS(1)})},
    {.name = "no_rows", GD_INPUTS({GD_DIMS(0, 4)}, {GD_DIMS(4)}), .may_be_empty = true}};

static void sum(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0] * n[2]; i++) {
        a[1][i] = 0;
        for (int64_t j = 0; j < n[1]; j++) a[1][i] += a[0][(i / n[2] * n[1] + j) * n[2] + i % n[2]];
    }
}

static const gd_case sum_cases[] = {
    {.name = "2x3x4", GD_INPUTS({GD_DIMS(2, 3, 4)})},
    {.name = "3x5x1", GD_INPUTS({GD_DIMS(3, 5, 1)})},
    {.name = "1x3x7", GD_INPUTS({GD_DIMS(1, 3, 7)})},
    {.name = "sum_of_none", GD_INPUTS({GD_DIMS(3, 0, 2)}), .may_be_empty = true}};

/* ---- Rows of a table, of which some are read several times, and some never ------------------ */

static void gather_sizes(const gd_call *call, int64_t *n)
{
    n[0] = gd_tensor_count(call->input[1]);
    n[1] = gd_tensor_dim(call->input[0], 1);
}

static void gather(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0] * n[1]; i++)
        a[2][i] = a[0][(int64_t)a[1][i / n[1]] * n[1] + i % n[1]];
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

static void view_sizes(const gd_call *call, int64_t *n)
{
    memcpy(n, ((const view_args *)call->args)->n, sizeof(view_args));
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

static const grader_function functions[] = {
    {"product_backward", 20, "da is as a product of elements has it; then, which y does b[j] move?",
     GRADER_OP("product", "a[M, N] b[N] -> y[M, N]", 2, 3, 0, product_cases), "a b dy da db", dims,
     product},
    {"sum_backward", 20, "x[i][j][k] moves y[i][k] alone, and as much as itself",
     GRADER_OP("sum", "x[M, N, K] -> y[M, K]", 1, 0, 0, sum_cases), "dy dx", dims, sum},
    {"gather_backward", 20, "row i of dy belongs to row index[i] of dtable",
     GRADER_OP("gather", "table[R, N] index:int32[M] -> y[M, N]", 2, 2, 0, gather_cases),
     "index dy dtable", gather_sizes, gather},
    {"view_backward",
     20,
     "the loops of the forward, with the arrow turned round",
     {.name = "view",
      .inputs = 1,
      .input_names = {"x"},
      .outputs = 1,
      .args_size = sizeof(view_args),
      .shape = view_shape,
      GD_CASES(view_cases)},
     "dy dx",
     view_sizes,
     view}};

/* ---- The faults: of y[i][j] = a[i] b[j], whose arrays are a, b, dy, da, db ------------------- */

static void outer(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0] * n[1]; i++) a[2][i] = a[0][i / n[1]] * a[1][i % n[1]];
}

static const char *const faults[] = {"db of the last row alone", "row i at dy[i rows]",
                                     "columns by fours", "da with |b[j]|"};
enum { LAST_ROW, STRIDE, FOURS, SIGN };

static void outer_backward(int fault, const int64_t *n, double *const *a)
{
    const int64_t columns = fault == FOURS ? n[1] - n[1] % 4 : n[1], stride = n[fault != STRIDE];
    for (int64_t i = 0; i < n[0]; i++) {
        for (int64_t j = 0; j < columns; j++) {
            const double dy = a[2][(i * stride + j) % (n[0] * n[1])], b = a[1][j];
            a[3][i] += dy * (fault == SIGN ? fabs(b) : b);
            if (fault != LAST_ROW || i == n[0] - 1) a[4][j] += dy * a[0][i];
        }
    }
}

static const grader_reverse reverse = {"outer_case",
                                       "one row and one column, and numbers in a[0] and b[0]",
                                       5,
                                       16,
                                       2,
                                       {"0", "1"},
                                       {.name = "outer",
                                        .signature = "a[M] b[N] -> y[M, N]",
                                        .inputs = 2,
                                        .outputs = 1,
                                        .backward_reads_inputs = 3},
                                       outer,
                                       outer_backward,
                                       faults,
                                       4};

static void more(grader *g)
{
    grader_check_reverse(g, &reverse);
}

const grader_assignment grader_this = {
    .name = "3-broadcast", .file = "broadcast.c", .functions = functions, .count = 4, .more = more};

#endif
