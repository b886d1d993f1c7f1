/* test.c - assignment 2: five backwards of functions of each element. */
#include "grader.h"

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

static const grader_function functions[] = {
    {"cube_backward", 20, "a loop over i, in which dx[i] += dy[i] times the slope of x^3 at x[i]",
     "x[...] -> y[...]", "x dy dx", cube},
    {"relu_backward", 20, "dx[i] += dy[i], but only where x[i] is above 0", "x[...] -> y[...]",
     "x dy dx", relu, .kinks = true},
    {"tanh_backward", 20, "the slope of tanh can be written with y = tanh(x) alone",
     "x[...] -> y[...]", "y dy dx", hyperbolic_tangent},
    {"silu_backward", 20, "y is a product of x and s = 1 / (1 + exp(-x)), and both depend on x",
     "x[...] -> y[...]", "x dy dx", silu},
    {"divide_backward", 20, "how does y move with a where b stays, and with b where a stays?",
     "a[...] b[...] -> y[...]", "a b dy da db", divide, GRADER_LIKE({0}, {GD_UNIFORM(0.5, 2)})}};

const grader_assignment grader_this = {.name = "2-elements", .functions = functions, .count = 5};
