/* test.c - assignment 2: five backwards of functions of each element. */
#include "grader.h"

#ifdef COURSE_STUDENT

#define CALLS(CALL)                             \
    CALL(cube_backward, n[0], a[0], a[1], a[2]) \
    CALL(relu_backward, n[0], a[0], a[1], a[2]) \
    CALL(tanh_backward, n[0], a[0], a[1], a[2]) \
    CALL(silu_backward, n[0], a[0], a[1], a[2]) \
    CALL(divide_backward, n[0], a[0], a[1], a[2], a[3], a[4])
CHILD_FUNCTIONS(CALLS)

#else

/* A forward, of the numbers x of the first input. */
#define FORWARD(name, result)                            \
    static void name(const int64_t *n, double *const *a) \
    {                                                    \
        for (int64_t i = 0; i < n[0]; i++) {             \
            const double x = a[0][i];                    \
            result;                                      \
        }                                                \
    }
FORWARD(cube, a[1][i] = x * x * x)
FORWARD(relu, a[1][i] = fmax(x, 0))
FORWARD(hyperbolic_tangent, a[1][i] = tanh(x))
FORWARD(silu, a[1][i] = x / (1 + exp(-x)))
FORWARD(divide, a[2][i] = x / a[1][i])

/* Cases of one input, and of two, of which the second is a divisor. */
#define CASE(title, ...)                                                \
    {                                                                   \
        .name = title, GD_INPUTS({GD_DIMS(__VA_ARGS__)}), .kinks = true \
    }
#define PAIR(title, ...)                                                              \
    {                                                                                 \
        .name = title,                                                                \
        GD_INPUTS({GD_DIMS(__VA_ARGS__)}, {GD_UNIFORM(0.5, 2), GD_DIMS(__VA_ARGS__)}) \
    }
static const gd_case cases[] = {CASE("3x5", 3, 5),
                                CASE("33", 33),
                                CASE("2x1x7", 2, 1, 7),
                                {.name = "none", GD_INPUTS({GD_DIMS(0)}), .may_be_empty = true}};
static const gd_case pairs[] = {
    PAIR("3x5", 3, 5),
    PAIR("33", 33),
    PAIR("2x1x7", 2, 1, 7),
    {.name = "none", GD_INPUTS({GD_DIMS(0)}, {GD_DIMS(0)}), .may_be_empty = true}};

static const grader_function functions[] = {
    {"cube_backward", 20, "a loop over i, in which dx[i] += dy[i] times the slope of x^3 at x[i]",
     "x[...] -> y[...]", "x dy dx", cube, GD_CASES(cases)},
    {"relu_backward", 20, "dx[i] += dy[i], but only where x[i] is above 0", "x[...] -> y[...]",
     "x dy dx", relu, GD_CASES(cases)},
    {"tanh_backward", 20, "the slope of tanh can be written with y = tanh(x) alone",
     "x[...] -> y[...]", "y dy dx", hyperbolic_tangent, GD_CASES(cases)},
    {"silu_backward", 20, "y is a product of x and s = 1 / (1 + exp(-x)), and both depend on x",
     "x[...] -> y[...]", "x dy dx", silu, GD_CASES(cases)},
    {"divide_backward", 20, "how does y move with a where b stays, and with b where a stays?",
     "a[...] b[...] -> y[...]", "a b dy da db", divide, GD_CASES(pairs)}};

const grader_assignment grader_this = {.name = "2-elements", .functions = functions, .count = 5};

#endif
