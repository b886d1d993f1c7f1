/* test.c - assignment 8: the derivative of a derivative, and a network that solves an equation. */
#include "grader.h"

/* ---- The backward of tanh, and that of it ---------------------------------------------------- */

static void hyperbolic_tangent(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) a[1][i] = tanh(a[0][i]);
}

static void slope(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) a[2][i] = a[1][i] * (1 - tanh(a[0][i]) * tanh(a[0][i]));
}

/* a: x, dy, dx */
static void tanh_backward(int fault, const int64_t *n, double *const *a)
{
    (void)fault;
    for (int64_t i = 0; i < n[0]; i++) a[2][i] += a[1][i] * (1 - tanh(a[0][i]) * tanh(a[0][i]));
}

static const grader_function tangent = {.name = "tanh",
                                        .signature = "x[...] -> y[...]",
                                        .takes = "x dy dx",
                                        .forward = hyperbolic_tangent,
                                        .backward = tanh_backward};

/* ---- The network ----------------------------------------------------------------------------- */

/* a: t, a, b, c; y, y1, y2 */
static void network(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) {
        a[4][i] = a[5][i] = a[6][i] = 0;
        for (int64_t j = 0; j < n[2]; j++) {
            const double h = tanh(a[1][j] * a[0][i] + a[2][j]), by_t = (1 - h * h) * a[1][j];
            a[4][i] += a[3][j] * h;
            a[5][i] += a[3][j] * by_t;
            a[6][i] -= a[3][j] * 2 * h * by_t * a[1][j];
        }
    }
}

static const grader_function functions[] = {
    {"slope_backward", 40, "dg first: s is linear in g. Then dx: the slope of 1 - tanh(x)^2",
     "x[...] g[...] -> s[...]", "x g ds dx dg", slope, .derivative_of = &tangent},
    {"network_backward", 40,
     "dc first, in which y, y1 and y2 are linear. For da and db the third derivative of tanh is "
     "needed",
     "t[P] a[H] b[H] c[H] -> y[P] y1[P] y2[P]", "t a b c dy dy1 dy2 da db dc", network,
     GRADER_LIKE({.fixed = true})}};

/* ---- Training: y'' = -y, y(0) = 1, y'(0) = 0, y(3) = 0 --------------------------------------- */

enum { POINTS = 40, HIDDEN = 20, PARAMETERS = 3 * HIDDEN, STEPS = 3000, END = 10 };

/* The mean of (y'' + y)^2, (y(0) - 1)^2, y'(0)^2 and END y(3)^2; and its gradients, for y, y'
 * and y''. No y has none of them, so that the least loss is not 0, and no gradient of it zeros. */
static double loss_of(double y[3][POINTS], double dy[3][POINTS])
{
    const double begin = y[0][0] - 1, slope = y[1][0], end = y[0][POINTS - 1];
    double loss = begin * begin + slope * slope + END * end * end;
    for (int i = 0; i < POINTS; i++) {
        const double residual = y[2][i] + y[0][i];
        loss += residual * residual / POINTS;
        dy[0][i] = dy[2][i] = 2 * residual / POINTS;
        dy[1][i] = 0;
    }
    dy[0][0] += 2 * begin;
    dy[1][0] += 2 * slope;
    dy[0][POINTS - 1] += 2 * END * end;
    return loss;
}

/* The loss after all steps; in *why, why a call failed. */
static double solve(grader *g, const char **why)
{
    static double p[PARAMETERS], moments[2 * PARAMETERS];
    static double t[POINTS], y[3][POINTS], dy[3][POINTS];
    const int64_t n[CHILD_SIZES] = {POINTS, POINTS, HIDDEN};
    double *const arrays[] = {t, p, p + HIDDEN, p + 2 * HIDDEN, y[0], y[1], y[2]};
    for (int i = 0; i < POINTS; i++) t[i] = 3.0 * i / (POINTS - 1);
    for (int i = 0; i < PARAMETERS; i++) { /* spread evenly: a from -2 to 2, b from -3 to 3 */
        const double at = 2 * fmod(0.5 + 0.6180339887498949 * (i + (double)(g->seed % 100)), 1) - 1;
        p[i] = at * (i < HIDDEN ? 2 : i < 2 * HIDDEN ? 3 : 0.3);
    }
    *why = NULL;
    for (int k = 0; k < STEPS && !*why; k++) {
        double grad[PARAMETERS] = {0};
        network(n, arrays);
        loss_of(y, dy);
        const student_array passed[] = {{"t", t, POINTS, sizeof *t, false},
                                        {"a", p, HIDDEN, sizeof *t, false},
                                        {"b", p + HIDDEN, HIDDEN, sizeof *t, false},
                                        {"c", p + 2 * HIDDEN, HIDDEN, sizeof *t, false},
                                        {"dy", dy[0], POINTS, sizeof *t, false},
                                        {"dy1", dy[1], POINTS, sizeof *t, false},
                                        {"dy2", dy[2], POINTS, sizeof *t, false},
                                        {"da", grad, HIDDEN, sizeof *t, true},
                                        {"db", grad + HIDDEN, HIDDEN, sizeof *t, true},
                                        {"dc", grad + 2 * HIDDEN, HIDDEN, sizeof *t, true}};
        *why = student_call(&g->student, false, "network_backward", n, passed, 10);
        grader_adam(p, moments, grad, PARAMETERS, k, 0.01 * (1 - (double)k / STEPS));
    }
    network(n, arrays);
    return loss_of(y, dy);
}

static void learn(grader *g)
{
    grader_row *row = grader_add_row(g, "an oscillator");
    const char *why;
    const double loss = solve(g, &why);
    grader_cell(row, 0, 20, !why, "%s", why ? why : "");
    grader_cell(row, 0, 0, loss < 0.166,
                "after %d steps the loss is %.4f, wanted less than 0.166; the least is 0.1653",
                (int)STEPS, loss);
}

const grader_assignment grader_this = {
    .name = "8-second_order", .functions = functions, .count = 2, .more = learn};
