/* test.c - assignment 8: the derivative of a derivative, and a network that solves an equation. */
#ifdef COURSE_STUDENT

#include COURSE_FILE
#include "child.h"

#define CALLS(CALL)                                          \
    CALL(slope_backward, n[0], a[0], a[1], a[2], a[3], a[4]) \
    CALL(network_backward, n[0], n[1], a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[8], a[9], a[10])
CHILD_FUNCTIONS(CALLS)

#else

#include <math.h>
#include <stdlib.h>

#include "grader.h"

/* ---- The function of which slope_backward is the second derivative --------------------------- */

static void count(const gd_call *call, int64_t *n)
{
    n[0] = gd_tensor_count(call->input[0]);
}

static void slope(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) a[2][i] = a[1][i] * (1 - tanh(a[0][i]) * tanh(a[0][i]));
}

static void hyperbolic_tangent(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) a[1][i] = tanh(a[0][i]);
}

static gd_status tanh_forward(const gd_call *call)
{
    int64_t n[CHILD_SIZES];
    count(call, n);
    return grader_run_forward(call, n, hyperbolic_tangent);
}

static gd_status tanh_backward(const gd_call *call)
{
    double *x = grader_read(call->input[0]), *dy = grader_read(call->doutput[0]);
    double *dx = grader_read(call->dinput[0]);
    for (int64_t i = 0; x && dy && dx && i < gd_tensor_count(call->dinput[0]); i++)
        dx[i] = (*call->accumulate ? dx[i] : 0) + dy[i] * (1 - tanh(x[i]) * tanh(x[i]));
    if (x && dy && dx) grader_write(call->dinput[0], dx);
    const bool fine = x && dy && dx;
    free(x);
    free(dy);
    free(dx);
    return fine ? GD_OK : gd_call_fail(call, GD_ERROR_MEMORY, "out of memory: numbers of a call");
}

/* s, with dy as g, by the op whose backward is the student's: so the second derivative of tanh
 * is theirs. */
static void tanh_derivative(const gd_call *call)
{
    gd_tensor *inputs[] = {call->input[0], call->doutput[0]};
    call->dinput[0] = grader_apply(inputs, 2);
}

static const gd_case tanh_cases[] = {{.name = "3x5", GD_INPUTS({GD_DIMS(3, 5)})}};
static const gd_op second_order = {.name = "tanh",
                                   .signature = "x[...] -> y[...]",
                                   .inputs = 1,
                                   .outputs = 1,
                                   .backward_reads_inputs = 1,
                                   .forward = {[GD_CPU] = tanh_forward},
                                   .backward = {[GD_CPU] = tanh_backward},
                                   .derivative = tanh_derivative,
                                   GD_CASES(tanh_cases)};

#define X_G(...) GD_INPUTS({GD_DIMS(__VA_ARGS__)}, {GD_DIMS(__VA_ARGS__)})
static const gd_case slope_cases[] = {{.name = "3x5", X_G(3, 5)},
                                      {.name = "one", X_G(1)},
                                      {.name = "33", X_G(33)},
                                      {.name = "2x1x7", X_G(2, 1, 7)},
                                      {.name = "none", X_G(0), .may_be_empty = true}};

/* ---- The network ----------------------------------------------------------------------------- */

static void points_and_hidden(const gd_call *call, int64_t *n)
{
    n[0] = gd_tensor_count(call->input[0]);
    n[1] = gd_tensor_count(call->input[1]);
}

/* a: t, a, b, c; y, y1, y2 */
static void network(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) {
        a[4][i] = a[5][i] = a[6][i] = 0;
        for (int64_t j = 0; j < n[1]; j++) {
            const double h = tanh(a[1][j] * a[0][i] + a[2][j]), by_t = (1 - h * h) * a[1][j];
            a[4][i] += a[3][j] * h;
            a[5][i] += a[3][j] * by_t;
            a[6][i] -= a[3][j] * 2 * h * by_t * a[1][j];
        }
    }
}

#define NETWORK(points, hidden)                                                       \
    GD_INPUTS({GD_DIMS(points), .fixed = true}, {GD_DIMS(hidden)}, {GD_DIMS(hidden)}, \
              {GD_DIMS(hidden)})
static const gd_case network_cases[] = {{.name = "3 points, 5 units", NETWORK(3, 5)},
                                        {.name = "one point", NETWORK(1, 4)},
                                        {.name = "one unit", NETWORK(7, 1)},
                                        {.name = "no points", NETWORK(0, 3), .may_be_empty = true}};

static const grader_function functions[] = {
    {.name = "slope_backward",
     .points = 40,
     .begin = "dg first: s is linear in g. Then dx: the slope of 1 - tanh(x)^2",
     .op = GRADER_OP("slope", "x[...] g[...] -> s[...]", 2, 3, 0, slope_cases),
     .takes = "x g ds dx dg",
     .sizes = count,
     .forward = slope},
    {.name = "network_backward",
     .points = 40,
     .begin = "dc first, in which y, y1 and y2 are linear. For da and db the third derivative of "
              "tanh is needed",
     .op = {.name = "network",
            .signature = "t[P] a[H] b[H] c[H] -> y[P] y1[P] y2[P]",
            .inputs = 4,
            .outputs = 3,
            .backward_reads_inputs = 15,
            GD_CASES(network_cases)},
     .takes = "t a b c dy dy1 dy2 dt da db dc",
     .sizes = points_and_hidden,
     .forward = network}};

/* ---- Training: y'' = -y, y(0) = 1, y'(0) = 0 ------------------------------------------------- */

enum { POINTS = 40, HIDDEN = 20, PARAMETERS = 3 * HIDDEN, STEPS = 3000 };

/* The gradients of the mean of (y'' + y)^2, of (y(0) - 1)^2 and of y'(0)^2 by y, y', y''. */
static void residual(const double *y, const double *y1, const double *y2, double *dy, double *dy1,
                     double *dy2)
{
    for (int i = 0; i < POINTS; i++) {
        dy[i] = dy2[i] = 2 * (y2[i] + y[i]) / POINTS;
        dy1[i] = 0;
    }
    dy[0] += 2 * (y[0] - 1);
    dy1[0] += 2 * y1[0];
}

/* The network's distance from the solution, cos(t), or in *why why a call failed. */
static double solve(grader *g, const char **why)
{
    static double p[PARAMETERS], mean[PARAMETERS], square[PARAMETERS];
    static double t[POINTS], y[3][POINTS], dy[3][POINTS];
    const int64_t n[CHILD_SIZES] = {POINTS, HIDDEN};
    double *const arrays[] = {t, p, p + HIDDEN, p + 2 * HIDDEN, y[0], y[1], y[2]};
    for (int i = 0; i < POINTS; i++) t[i] = 3.0 * i / (POINTS - 1);
    for (int i = 0; i < PARAMETERS; i++) { /* spread evenly: a from -2 to 2, b from -3 to 3 */
        const double at = 2 * fmod(0.5 + 0.6180339887498949 * (i + (double)(g->seed % 100)), 1) - 1;
        p[i] = at * (i < HIDDEN ? 2 : i < 2 * HIDDEN ? 3 : 0.3);
        mean[i] = square[i] = 0;
    }
    *why = NULL;
    for (int k = 0; k < STEPS && !*why; k++) {
        double grad[PARAMETERS] = {0};
        network(n, arrays);
        residual(y[0], y[1], y[2], dy[0], dy[1], dy[2]);
        const student_array passed[] = {{"t", t, POINTS, sizeof *t, false},
                                        {"a", p, HIDDEN, sizeof *t, false},
                                        {"b", p + HIDDEN, HIDDEN, sizeof *t, false},
                                        {"c", p + 2 * HIDDEN, HIDDEN, sizeof *t, false},
                                        {"dy", dy[0], POINTS, sizeof *t, false},
                                        {"dy1", dy[1], POINTS, sizeof *t, false},
                                        {"dy2", dy[2], POINTS, sizeof *t, false},
                                        {"dt", NULL, 0, sizeof *t, false},
                                        {"da", grad, HIDDEN, sizeof *t, true},
                                        {"db", grad + HIDDEN, HIDDEN, sizeof *t, true},
                                        {"dc", grad + 2 * HIDDEN, HIDDEN, sizeof *t, true}};
        *why = student_call(&g->student, false, "network_backward", n, passed, 11);
        const double rate = 0.01 * (1 - (double)k / STEPS); /* Adam */
        for (int i = 0; i < PARAMETERS; i++) {
            mean[i] += 0.1 * (grad[i] - mean[i]);
            square[i] += 0.001 * (grad[i] * grad[i] - square[i]);
            p[i] -= rate * mean[i] / (1 - pow(0.9, k + 1)) /
                    (sqrt(square[i] / (1 - pow(0.999, k + 1))) + 1e-8);
        }
    }
    double squares = 0;
    network(n, arrays);
    for (int i = 0; i < POINTS; i++) squares += (y[0][i] - cos(t[i])) * (y[0][i] - cos(t[i]));
    return sqrt(squares / POINTS);
}

static void learn(grader *g)
{
    grader_row *row = grader_add_row(g, "an oscillator");
    const char *why;
    const double error = solve(g, &why);
    grader_cell(row, 0, 20, !why, "%s", why ? why : "");
    grader_cell(row, 0, 0, error < 0.01,
                "after %d steps y is off by %.3f from cos(t), wanted less than 0.01", (int)STEPS,
                error);
}

const grader_assignment grader_this = {.name = "8-second_order",
                                       .file = "second_order.c",
                                       .functions = functions,
                                       .count = 2,
                                       .more = learn,
                                       .second_order = &second_order};

#endif
