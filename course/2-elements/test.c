/* test.c - assignment 2: five backwards of functions of each element. */
#ifdef COURSE_STUDENT

#include COURSE_FILE
#include "child.h"

#define CALLS(CALL)                             \
    CALL(cube_backward, n[0], a[0], a[1], a[2]) \
    CALL(relu_backward, n[0], a[0], a[1], a[2]) \
    CALL(tanh_backward, n[0], a[0], a[1], a[2]) \
    CALL(silu_backward, n[0], a[0], a[1], a[2]) \
    CALL(divide_backward, n[0], a[0], a[1], a[2], a[3], a[4])
CHILD_FUNCTIONS(CALLS)

#else

#include <math.h>

#include "grader.h"

static void count(const gd_call *call, int64_t *n)
{
    n[0] = gd_tensor_count(call->input[0]);
}

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

static const char one[] = "x[...] -> y[...]", two[] = "a[...] b[...] -> y[...]";
static const grader_function functions[] = {
    {"cube_backward", 20, "a loop over i, in which dx[i] += dy[i] times the slope of x^3 at x[i]",
     GRADER_OP("cube", one, 1, 1, 0, cases), "x dy dx", count, cube},
    {"relu_backward", 20, "dx[i] += dy[i], but only where x[i] is above 0",
     GRADER_OP("relu", one, 1, 1, 0, cases), "x dy dx", count, relu},
    {"tanh_backward", 20, "the slope of tanh can be written with y = tanh(x) alone",
     GRADER_OP("tanh", one, 1, 0, 1, cases), "y dy dx", count, hyperbolic_tangent},
    {"silu_backward", 20, "y is a product of x and s = 1 / (1 + exp(-x)), and both depend on x",
     GRADER_OP("silu", one, 1, 1, 0, cases), "x dy dx", count, silu},
    {"divide_backward", 20, "how does y move with a where b stays, and with b where a stays?",
     GRADER_OP("divide", two, 2, 3, 0, pairs), "a b dy da db", count, divide}};

const grader_assignment grader_this = {
    .name = "2-elements", .file = "elements.c", .functions = functions, .count = 5};

#endif
