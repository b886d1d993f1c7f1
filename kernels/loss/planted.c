/* planted.c - wrong backwards of the losses of pairs. */
#include "planted.h"
#include "loss/loss.h"

#include <math.h>

enum {
    MSE_RIGHT,
    MSE_HALF,       /* without the 2 */
    MSE_SAME_SIGN,  /* the target's gradient is that of x */
    LOSS_SUM,       /* the mean's gradient without 1 / n */
    HUBER_OPEN,     /* the slope of the square everywhere */
    SMOOTH_NO_BETA, /* not divided by beta */
    L1_NO_SIGN,     /* the slope is 1 */
    BCE_RIGHT,
    BCE_NO_WEIGHT, /* without pos_weight */
    BCE_TARGET,    /* sigmoid alone */
    KL_RIGHT,
    KL_TARGET /* the target's slope without the 1 */
};

static double limited(double e, double limit)
{
    return fmin(fmax(e, -limit), limit);
}

typedef struct slope {
    double dx, dt;
} slope;

static slope slopes(int variant, double x, double t, double w, double p)
{
    const double e = x - t, s = 1 / (1 + exp(-x));
    switch (variant) {
    case HUBER_OPEN:
        return (slope){e, -e};
    case L1_NO_SIGN:
        return (slope){1, -1};
    case SMOOTH_NO_BETA:
        return (slope){limited(e, p), -limited(e, p)};
    case BCE_RIGHT:
    case BCE_NO_WEIGHT:
    case BCE_TARGET:
        if (variant == BCE_NO_WEIGHT) w = 1;
        return (slope){variant == BCE_TARGET ? s : (1 - t) * s - w * t * (1 - s),
                       w * log1p(exp(-x)) - log1p(exp(x))};
    case KL_RIGHT:
    case KL_TARGET:
        return (slope){-t, log(t) - x + (variant == KL_RIGHT)};
    default: /* of mse_loss */
        break;
    }
    const double dx = variant == MSE_HALF ? e : 2 * e;
    return (slope){dx, variant == MSE_SAME_SIGN ? dx : -dx};
}

static void loss(planted_math *m)
{
    const gd_loss_args *args = m->call->args;
    const bool none = args->reduction == GD_NONE;
    const double divisor = m->variant == LOSS_SUM ? 1 : gd_loss_divisor(m->call);
    for (int64_t i = 0; i < gd_tensor_count(m->call->input[0]); i++) {
        const double x = m->x[0][i], dy = m->dy[0][none ? i : 0] / divisor;
        const double w = m->call->inputs > 2 && m->call->input[2] ? m->x[2][i] : 1;
        const slope s = slopes(m->variant, x, m->x[1][i], w, args->p);
        m->g[0][i] = dy * s.dx;
        m->g[1][i] = dy * s.dt;
        if (m->call->inputs > 2 && m->call->input[2]) m->g[2][i] = dy * m->x[1][i] * log1p(exp(-x));
    }
}

#define BUG(op, check, number, what, finding)                          \
    {                                                                  \
        op, check, what, finding, .variant = (number), .formula = loss \
    }

const planted_bug planted_losses[] = {
    BUG("mse_loss", "mean", MSE_RIGHT, "nothing", NULL),
    BUG("mse_loss", "none", MSE_HALF, "without the 2", "a constant factor 1/2"),
    BUG("mse_loss", "none", MSE_SAME_SIGN, "the sign of the target's", "the sign is flipped"),
    BUG("mse_loss", "mean", LOSS_SUM, "the sum's gradient", "a constant factor 36"),
    BUG("l1_loss", "none", L1_NO_SIGN, "without the sign", "the sign is flipped"),
    BUG("huber_loss", "none", HUBER_OPEN, "the slope of the square everywhere",
        "it is dy x - dy target"),
    BUG("smooth_l1_loss", "none", SMOOTH_NO_BETA, "not divided by beta", "a constant factor 3/4"),
    BUG("bce_with_logits", "weighted", BCE_RIGHT, "nothing", NULL),
    BUG("bce_with_logits", "weighted", BCE_NO_WEIGHT, "without the weight", NULL),
    BUG("bce_with_logits", "none", BCE_TARGET, "without the target",
        "the term -dy target is missing"),
    BUG("kl_div", "none", KL_RIGHT, "nothing", NULL),
    BUG("kl_div", "none", KL_TARGET, "the target's slope without the 1",
        "it is dy y/target instead of dy + dy y/target"),
    {0},
};
