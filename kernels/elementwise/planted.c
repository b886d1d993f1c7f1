/* planted.c - elementwise derivatives remembered wrongly. */
#include "planted.h"

#include <math.h>

/* ---- One variable: dx = dy * slope -------------------------------------------------------- */

enum {
    EXP_X,         /* x instead of e^x */
    LOG_X,         /* x instead of 1 / x */
    LOG1P_LOG,     /* 1 / x instead of 1 / (1 + x) */
    EXPM1_Y,       /* y instead of y + 1 */
    ERF_NO_FACTOR, /* without 2 / sqrt(pi) */
    SOFTPLUS_SIGN, /* the sigmoid of -x */
    SQRT_HALF,     /* 1 / y instead of 1 / (2 y) */
    RSQRT_SQUARED, /* y^2 instead of y^3 */
    SIN_SIN,
    COS_SIGN,
    TANH_Y,      /* 1 - y instead of 1 - y^2 */
    SIGMOID_Y,   /* y instead of y (1 - y) */
    SILU_GATE,   /* sigmoid(x) alone */
    GELU_CDF,    /* Phi(x) without x phi(x) */
    RELU_ALL,    /* 1 on both sides */
    RELU_MINUS,  /* 1 on the wrong side */
    ABS_NO_SIGN, /* 1 */
    POW_NO_FACTOR,
    POW_EXPONENT, /* x^3 instead of x^2 */
    SCALE_TWICE,
    TERM_FACTOR, /* the term as a factor */
    NEG_SIGN,
    RECIPROCAL_SIGN,
    RECIPROCAL_Y,   /* -y instead of -y^2 */
    ATAN_NO_SQUARE, /* 1 / (1 + x) instead of 1 / (1 + x^2) */
    MISH_GATE,      /* tanh(softplus(x)) alone */
    LEAKY_ZERO,     /* 0 for negative x, as relu's */
    ELU_NO_ALPHA,   /* e^x for negative x */
    ELU_Y,          /* y for negative x, instead of y + alpha */
    HARDTANH_ALL,   /* 1 outside, too */
    CLAMP_LOW,      /* 1 above the upper limit, too */
    ROUND_THROUGH,  /* 1 instead of 0 */
    GELU_TANH_RIGHT,
    GELU_TANH_CDF,   /* (1 + t) / 2 without what x moves in t */
    GELU_TANH_INNER, /* t' without u' */
    GELU_TANH_CUBIC  /* u' without the factor 3 of the cube */
};

static double gelu_tanh_slope_but(int variant, double x)
{
    const double c = sqrt(2 / acos(-1)), t = tanh(c * (x + 0.044715 * x * x * x));
    const double cubic = variant == GELU_TANH_CUBIC ? 1 : 3;
    const double du = variant == GELU_TANH_INNER ? 1 : c * (1 + cubic * 0.044715 * x * x);
    const double inner = variant == GELU_TANH_CDF ? 0 : x * (1 - t * t) * du;
    return (1 + t + inner) / 2;
}

static double slope(int variant, double x, double y)
{
    switch (variant) {
    case EXP_X:
    case LOG_X:
        return x;
    case LOG1P_LOG:
        return 1 / x;
    case EXPM1_Y:
        return y;
    case ERF_NO_FACTOR:
        return exp(-x * x);
    case SOFTPLUS_SIGN:
        return 1 / (1 + exp(x));
    case TERM_FACTOR:
        return 0.75;
    case CLAMP_LOW:
        return x >= -1;
    case SQRT_HALF:
        return 1 / y;
    case RSQRT_SQUARED:
        return -y * y / 2;
    case SIN_SIN:
    case COS_SIGN:
        return sin(x);
    case TANH_Y:
        return 1 - y;
    case SIGMOID_Y:
        return y;
    case SILU_GATE:
        return 1 / (1 + exp(-x));
    case GELU_CDF:
        return (1 + erf(x / sqrt(2))) / 2;
    case RELU_MINUS:
        return x < 0;
    case POW_NO_FACTOR:
        return x * x;
    case POW_EXPONENT:
        return 3 * x * x * x;
    case SCALE_TWICE:
        return 6.25;
    case RECIPROCAL_SIGN:
        return y * y;
    case RECIPROCAL_Y:
        return -y;
    case ATAN_NO_SQUARE:
        return 1 / (1 + fabs(x));
    case MISH_GATE:
        return tanh(log1p(exp(x)));
    case LEAKY_ZERO:
        return x > 0;
    case ELU_NO_ALPHA:
        return x > 0 ? 1 : exp(x);
    case ELU_Y:
        return x > 0 ? 1 : y;
    case GELU_TANH_RIGHT:
    case GELU_TANH_CDF:
    case GELU_TANH_INNER:
    case GELU_TANH_CUBIC:
        return gelu_tanh_slope_but(variant, x);
    default: /* RELU_ALL, ABS_NO_SIGN, NEG_SIGN, HARDTANH_ALL, ROUND_THROUGH */
        return 1;
    }
}

static void unary(planted_math *m)
{
    for (int64_t i = 0; i < gd_tensor_count(m->call->input[0]); i++)
        m->g[0][i] = m->dy[0][i] * slope(m->variant, m->x[0][i], m->y[0][i]);
}

/* ---- Two variables of one shape ----------------------------------------------------------- */

enum {
    ADD_SIGN,      /* db = -dy */
    SUB_NO_SIGN,   /* db = dy */
    MUL_OWN,       /* da = dy a */
    DIV_NO_SIGN,   /* db = dy a / b^2 */
    DIV_NO_SQUARE, /* db = -dy a / b */
    MAXIMUM_BOTH,  /* both take all */
    MAXIMUM_LESS,  /* the smaller one takes it */
    MINIMUM_MORE,  /* the larger one takes it */
    POWER_NO_LOG   /* db = dy y */
};

static void binary(planted_math *m)
{
    for (int64_t i = 0; i < gd_tensor_count(m->call->output[0]); i++) {
        double a = m->x[0][i], b = m->x[1][i], dy = m->dy[0][i], da = dy, db = dy;
        switch (m->variant) {
        case ADD_SIGN:
            db = -dy;
            break;
        case MUL_OWN:
            da = dy * a;
            db = dy * b;
            break;
        case DIV_NO_SIGN:
            da = dy / b;
            db = dy * a / (b * b);
            break;
        case DIV_NO_SQUARE:
            da = dy / b;
            db = -dy * a / b;
            break;
        case MAXIMUM_LESS:
            da = a < b ? dy : 0;
            db = a < b ? 0 : dy;
            break;
        case MINIMUM_MORE:
            da = a > b ? dy : 0;
            db = a > b ? 0 : dy;
            break;
        case POWER_NO_LOG:
            da = dy * b * pow(a, b - 1);
            db = dy * m->y[0][i];
            break;
        default: /* SUB_NO_SIGN, MAXIMUM_BOTH */
            break;
        }
        m->g[0][i] = da;
        m->g[1][i] = db;
    }
}

/* ---- Broadcast: b is one row under the rows of a ------------------------------------------ */

enum { ROW_RIGHT, ROW_FIRST, ROW_LAST };

/* y = a + b */
static void add_row(planted_math *m)
{
    int64_t n = gd_tensor_count(m->call->input[0]), columns = gd_tensor_count(m->call->input[1]);
    for (int64_t i = 0; i < n; i++) {
        bool counts = m->variant == ROW_RIGHT || (m->variant == ROW_FIRST && i < columns) ||
                      (m->variant == ROW_LAST && i >= n - columns);
        m->g[0][i] = m->dy[0][i];
        if (counts) m->g[1][i % columns] += m->dy[0][i];
    }
}

/* ---- where -------------------------------------------------------------------------------- */

enum { WHERE_RIGHT, WHERE_INVERSE, WHERE_BOTH };

static void where(planted_math *m)
{
    for (int64_t i = 0; i < gd_tensor_count(m->call->output[0]); i++) {
        bool first = m->x[0][i] != 0;
        if (m->variant == WHERE_INVERSE) first = !first;
        m->g[1][i] = first || m->variant == WHERE_BOTH ? m->dy[0][i] : 0;
        m->g[2][i] = !first || m->variant == WHERE_BOTH ? m->dy[0][i] : 0;
    }
}

/* ---- masked_fill --------------------------------------------------------------------------- */

enum { MASK_RIGHT, MASK_ALL };

/* The mask is a row. */
static void masked_fill(planted_math *m)
{
    const int64_t columns = gd_tensor_count(m->call->input[1]);
    for (int64_t i = 0; i < gd_tensor_count(m->call->input[0]); i++)
        m->g[0][i] = m->variant == MASK_RIGHT && m->x[1][i % columns] != 0 ? 0 : m->dy[0][i];
}

/* ---- The list ----------------------------------------------------------------------------- */

#define BUG(op, check, function, number, what, finding)                  \
    {                                                                    \
        op, check, what, finding, .variant = number, .formula = function \
    }
#define UNARY(op, number, what, finding) BUG(op, "odd", unary, number, what, finding)
#define BINARY(op, number, what, finding) BUG(op, "same", binary, number, what, finding)

const planted_bug planted_elements[] = {
    UNARY("exp", EXP_X, "dy x", "it is dy x instead of dy y"),
    UNARY("log", LOG_X, "dy x", "it is dy x instead of dy/x"),
    UNARY("log1p", LOG1P_LOG, "dy/x, as log's", "it is dy/x"),
    UNARY("expm1", EXPM1_Y, "dy y, as exp's", "it is dy y instead of dy + dy y"),
    UNARY("erf", ERF_NO_FACTOR, "without 2 / sqrt(pi)", "a constant factor 0.886227"),
    UNARY("softplus", SOFTPLUS_SIGN, "the sigmoid of -x", NULL),
    UNARY("clamp", CLAMP_LOW, "the lower limit alone", "a gradient where it should be 0"),
    UNARY("sqrt", SQRT_HALF, "without the half", "a constant factor 2"),
    UNARY("rsqrt", RSQRT_SQUARED, "y squared, not cubed", "it is -1/2 dy/x instead of -1/2 dy y/x"),
    UNARY("sin", SIN_SIN, "dy sin(x)", "it is dy y"),
    UNARY("cos", COS_SIGN, "the sign", "the sign is flipped"),
    UNARY("tanh", TANH_Y, "1 - y", "it is dy - dy y instead of dy - dy y^2"),
    UNARY("sigmoid", SIGMOID_Y, "without 1 - y", "it is dy y instead of dy y - dy y^2"),
    UNARY("silu", SILU_GATE, "the sigmoid alone", "it is dy y/x"),
    UNARY("gelu", GELU_CDF, "without x phi(x)", "it is dy y/x"),
    UNARY("reciprocal", RECIPROCAL_SIGN, "the sign", "the sign is flipped"),
    UNARY("reciprocal", RECIPROCAL_Y, "y, not y squared", "it is -dy/x instead of -dy/x^2"),
    UNARY("atan", ATAN_NO_SQUARE, "x, not x squared", NULL),
    UNARY("mish", MISH_GATE, "the gate alone", "it is dy y/x"),
    UNARY("leaky_relu", LEAKY_ZERO, "0 for negative x",
          "the gradient is zero at the wrong elements"),
    UNARY("elu", ELU_NO_ALPHA, "without alpha", "a constant factor 4/3, at"),
    UNARY("elu", ELU_Y, "y, not y + alpha", NULL),
    UNARY("hardtanh", HARDTANH_ALL, "1 outside, too", "a gradient where it should be 0"),
    UNARY("round", ROUND_THROUGH, "1 instead of 0", "the true gradient is zero throughout"),
    UNARY("floor", ROUND_THROUGH, "1 instead of 0", "the true gradient is zero throughout"),
    UNARY("ceil", ROUND_THROUGH, "1 instead of 0", "the true gradient is zero throughout"),
    UNARY("sign", ROUND_THROUGH, "1 instead of 0", "the true gradient is zero throughout"),
    UNARY("gelu_tanh", GELU_TANH_RIGHT, "nothing", NULL),
    UNARY("gelu_tanh", GELU_TANH_CDF, "without the slope of tanh", "it is dy y/x"),
    UNARY("gelu_tanh", GELU_TANH_INNER, "without the inner derivative", NULL),
    UNARY("gelu_tanh", GELU_TANH_CUBIC, "without the 3 of the cube", NULL),
    UNARY("relu", RELU_ALL, "1 on both sides", "a gradient where it should be 0"),
    UNARY("relu", RELU_MINUS, "1 on the wrong side", "zeros in the wrong places"),
    UNARY("abs", ABS_NO_SIGN, "without the sign", "the sign is flipped"),
    UNARY("pow", POW_NO_FACTOR, "without the exponent", "a constant factor 1/3"),
    UNARY("pow", POW_EXPONENT, "the exponent stays", "it is 3 dy y instead of 3 dy x^2"),
    UNARY("scale", SCALE_TWICE, "the factor twice", "a constant factor -5/2"),
    UNARY("add_scalar", TERM_FACTOR, "the term as a factor", "a constant factor 3/4"),
    UNARY("neg", NEG_SIGN, "the sign", "the sign is flipped"),
    BINARY("add", ADD_SIGN, "the sign of db", "the sign is flipped"),
    BINARY("sub", SUB_NO_SIGN, "the sign of db", "the sign is flipped"),
    BINARY("mul", MUL_OWN, "a and b exchanged", "it is the gradient of b"),
    BINARY("div", DIV_NO_SIGN, "the sign of db", "the sign is flipped"),
    BINARY("div", DIV_NO_SQUARE, "b, not b squared, in db", "it is -dy y instead of -dy y/b"),
    BINARY("maximum", MAXIMUM_BOTH, "both take all", "a gradient where it should be 0"),
    BINARY("maximum", MAXIMUM_LESS, "the smaller takes it", "zeros in the wrong places"),
    BINARY("minimum", MINIMUM_MORE, "the larger takes it", "zeros in the wrong places"),
    BINARY("pow_tensor", POWER_NO_LOG, "db without ln(a)", "it is dy y"),
    BUG("masked_fill", "mask_row", masked_fill, MASK_RIGHT, "nothing", NULL),
    BUG("masked_fill", "mask_row", masked_fill, MASK_ALL, "dy where the mask is, too",
        "a gradient where it should be 0"),
    BUG("add", "b_row", add_row, ROW_RIGHT, "nothing", NULL),
    BUG("add", "b_row", add_row, ROW_FIRST, "db of the first row alone", "only dy[0, :] is used"),
    BUG("add", "b_row", add_row, ROW_LAST, "db of the last row alone", "only dy[3, :] is used"),
    BUG("where", "same", where, WHERE_RIGHT, "nothing", NULL),
    BUG("where", "same", where, WHERE_INVERSE, "the other one", "zeros in the wrong places"),
    BUG("where", "same", where, WHERE_BOTH, "both take all", "a gradient where it should be 0"),
    BUG(NULL, NULL, NULL, 0, NULL, NULL),
};
