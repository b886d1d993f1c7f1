/* unary_cpu.c - the CPU kernels of the functions of one variable (unary.def). */
#include "kernel.h"
#include "vector_math.h"

/* ---- Functions that need a word ----------------------------------------------------------- */

/* 1 / (1 + e^-x) overflows for large negative x. Multiplied by e^x above and below, it does not:
 * e^x / (1 + e^x). Either way the exponential is of -|x|, at most 1. */
static inline REAL sigmoid(REAL x)
{
    REAL e = GD_MATH(exp)(-GD_MATH(fabs)(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* (x s)' = s + x s', and s' = s (1 - s) for the sigmoid s. */
static inline REAL silu_slope(REAL x)
{
    REAL s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

/* Phi(x) = (1 + erf(x / sqrt 2)) / 2 = erfc(-x / sqrt 2) / 2, which keeps its digits for negative
 * x, where 1 + erf cancels. */
static inline REAL normal_cdf(REAL x)
{
    return GD_MATH(erfc)(x * -(REAL)0.70710678118654752440) / 2;
}

/* (x Phi(x))' = Phi(x) + x phi(x), phi(x) = e^(-x^2 / 2) / sqrt(2 pi). */
static inline REAL gelu_slope(REAL x)
{
    REAL density = GD_MATH(exp)(x * x / -2) * (REAL)0.39894228040143267794;
    return normal_cdf(x) + x * density;
}

#define SQRT_2_OVER_PI ((REAL)0.79788456080286535588)
#define GELU_CUBIC ((REAL)0.044715)

static inline REAL gelu_tanh(REAL x)
{
    REAL u = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
    return x * (1 + GD_MATH(tanh)(u)) / 2;
}

/* With t = tanh(u): (1 + t) / 2 + x (1 - t^2) u' / 2, u' = sqrt(2 / pi) (1 + 3 0.044715 x^2). From
 * |x| = 20 on 1 - t^2 is 0, and x stays there so that x u' cannot become infinite. */
static inline REAL gelu_tanh_slope(REAL x)
{
    REAL c = x > 20 ? 20 : x < -20 ? -20 : x;
    REAL t = GD_MATH(tanh)(SQRT_2_OVER_PI * (c + GELU_CUBIC * c * c * c));
    REAL du = SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * c * c);
    return (1 + t + c * (1 - t * t) * du) / 2;
}

/* Squares are worth a short cut. */
static inline REAL power(REAL x, REAL p)
{
    return p == 2 ? x * x : p == 1 ? x : GD_MATH(pow)(x, p);
}

/* ---- Rows, by table ----------------------------------------------------------------------- */

typedef void value_row(REAL *y, const REAL *x, REAL p, int64_t n);
/* `read` is x or y, whichever the table says. */
typedef void gradient_row(REAL *dx, bool add, const REAL *dy, const REAL *read, REAL p, int64_t n);

#define UNARY(name, formula, value, gradient, ...)                              \
    static void name##_row(REAL *y_row, const REAL *x_row, REAL p, int64_t n)   \
    {                                                                           \
        (void)p;                                                                \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                     \
        {                                                                       \
            const REAL x = x_row[i];                                            \
            y_row[i] = value;                                                   \
        }                                                                       \
    }                                                                           \
    static void name##_gradient_row(REAL *dx_row, bool add, const REAL *dy_row, \
                                    const REAL *read_row, REAL p, int64_t n)    \
    {                                                                           \
        (void)p;                                                                \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                     \
        {                                                                       \
            const REAL dy = dy_row[i], x = read_row[i], y = x;                  \
            (void)x, (void)y;                                                   \
            dx_row[i] = (add ? dx_row[i] : 0) + (gradient);                     \
        }                                                                       \
    }
#define SCALAR UNARY
#include "elementwise/unary.def"
#undef UNARY
#undef SCALAR

/* ---- The loop over blocks ----------------------------------------------------------------- */

static REAL parameter(const gd_call *call)
{
    return call->args ? (REAL) * (const double *)call->args : 0;
}

static gd_status forward(const gd_call *call, value_row *row)
{
    REAL *y = gd_data(call->output[0]);
    const REAL *x = gd_data(call->input[0]);
    const REAL p = parameter(call);
    const int64_t n = gd_tensor_count(call->output[0]);
    const int threads = gd_threads_for(call->threads, n);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < n; i += GD_BLOCK) row(y + i, x + i, p, gd_min64(GD_BLOCK, n - i));
    return GD_OK;
}

/* The record says what the backward reads; where it reads nothing but dy, dy stands in. */
static gd_status backward(const gd_call *call, gradient_row *row)
{
    if (!call->dinput[0]) return GD_OK;
    REAL *dx = gd_data(call->dinput[0]);
    const REAL *dy = gd_data(call->doutput[0]), *read = dy;
    if (call->op->backward_reads_inputs) read = gd_data(call->input[0]);
    if (call->op->backward_reads_outputs) read = gd_data(call->output[0]);
    const REAL p = parameter(call);
    const bool add = call->accumulate[0];
    const int64_t n = gd_tensor_count(call->dinput[0]);
    const int threads = gd_threads_for(call->threads, n);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < n; i += GD_BLOCK)
        row(dx + i, add, dy + i, read + i, p, gd_min64(GD_BLOCK, n - i));
    return GD_OK;
}

/* ---- The kernels -------------------------------------------------------------------------- */

#define UNARY(name, ...)                                         \
    gd_status GD_REAL_NAME(name##_forward)(const gd_call *call)  \
    {                                                            \
        return forward(call, name##_row);                        \
    }                                                            \
    gd_status GD_REAL_NAME(name##_backward)(const gd_call *call) \
    {                                                            \
        return backward(call, name##_gradient_row);              \
    }
#define SCALAR UNARY
#include "elementwise/unary.def"
