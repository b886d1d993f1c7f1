/* loss.c - the losses of pairs of elements: records, cases and public functions. README.md has the
 * derivations. */
#include "loss/loss.h"

#include "arguments.h"
#include "derivation.h"

/* ---- The shape rule ----------------------------------------------------------------------- */

static gd_status loss_shape(const gd_call *call, gd_shapes *out)
{
    const int reduction = ((const gd_loss_args *)call->args)->reduction;
    if (reduction == GD_BATCHMEAN && !gd_tensor_ndim(call->input[0]))
        return gd_refuse(call, "x is [], wanted a dimension for GD_BATCHMEAN");
    if (reduction != GD_NONE) out->output[0].ndim = 0;
    return GD_OK;
}

/* ---- By ops ------------------------------------------------------------------------------- */

/* What loss.def has, of all elements: e is x - t. */

static gd_tensor *huber(gd_tensor *e, double p)
{
    gd_tensor *c = gd_clamp(e, -p, p); /* the slope */
    return mul(c, sub(e, times(c, 0.5)));
}

static gd_tensor *smooth_l1(gd_tensor *e, double p)
{
    gd_tensor *c = gd_clamp(times(e, 1 / p), -1, 1);
    return mul(c, sub(e, times(c, p / 2)));
}

/* A probability t of 0 has no part of the loss, but a slope: that of t log t is -inf there, as that
 * of -sqrt(t) is. */
static gd_tensor *kl_div(gd_tensor *x, gd_tensor *t, bool log_target)
{
    gd_tensor *none = is(t, log_target ? -INFINITY : 0);
    gd_tensor *log_t = log_target ? unless(none, t, 0) : gd_log(unless(none, t, 1));
    gd_tensor *loss = mul(log_target ? gd_exp(log_t) : t, sub(log_t, unless(none, x, 0)));
    if (log_target) return unless(none, loss, 0);
    return gd_where(none, gd_neg(gd_sqrt(gd_where(none, t, number(t, 1)))), loss);
}

static gd_tensor *bce_with_logits(gd_tensor *x, gd_tensor *t, gd_tensor *w)
{
    gd_tensor *one = mul(t, gd_softplus(gd_neg(x)));
    return add(mul(minus(1, t), gd_softplus(x)), w ? mul(w, one) : one);
}

/* The sum of a loss's elements, or a mean, as asked. */
static gd_tensor *reduced(const gd_call *call, gd_tensor *elements)
{
    if (((const gd_loss_args *)call->args)->reduction == GD_NONE) return elements;
    return times(gd_sum_all(elements), 1 / gd_loss_divisor(call));
}

#define DEFINITION(name, elements)                          \
    static void name##_definition(const gd_call *call)      \
    {                                                       \
        gd_tensor *x = call->input[0], *t = call->input[1]; \
        const double p = gd_loss_parameter(call);           \
        (void)p;                                            \
        call->output[0] = reduced(call, elements);          \
    }

DEFINITION(mse_loss, square(sub(x, t)))
DEFINITION(l1_loss, gd_abs(sub(x, t)))
DEFINITION(huber_loss, huber(sub(x, t), p))
DEFINITION(smooth_l1_loss, smooth_l1(sub(x, t), p))
DEFINITION(bce_with_logits, bce_with_logits(x, t, call->input[2]))
DEFINITION(kl_div, kl_div(x, t, p != 0))

/* ---- Records ------------------------------------------------------------------------------ */

/* x, t and, of a loss with three inputs, w, which is there if `weighted`. */
#define PAIR(count, weighted, low, high, ...)                \
    .inputs = (count),                                       \
    .input = {{GD_DIMS(__VA_ARGS__)},                        \
              {GD_UNIFORM(low, high), GD_DIMS(__VA_ARGS__)}, \
              {GD_UNIFORM(0.5, 3), GD_DIMS(__VA_ARGS__), .absent = !(weighted)}}

#define REDUCTIONS(most)                                                \
    (most) == GD_BATCHMEAN ? "GD_MEAN, GD_SUM, GD_NONE or GD_BATCHMEAN" \
                           : "GD_MEAN, GD_SUM or GD_NONE"

#define LOSS(op_name, op_formula, value, dx, dt, dw, count, most, low, high, has_kinks, p_value,  \
             positive)                                                                            \
    GD_KERNEL_PAIR(op_name)                                                                       \
    static const gd_option_range op_name##_ranges[] = {                                           \
        {"reduction", GD_FIELD(gd_loss_args, reduction), GD_MEAN, most, REDUCTIONS(most)},        \
        {positive, GD_FIELD(gd_loss_args, p), DBL_TRUE_MIN, INFINITY, "more than 0"},             \
        {0}};                                                                                     \
    static const gd_loss_args op_name##_mean = {p_value, GD_MEAN, 0},                             \
                              op_name##_sum = {p_value, GD_SUM, 0},                               \
                              op_name##_none = {p_value, GD_NONE, 0},                             \
                              op_name##_most = {(most) == GD_BATCHMEAN ? 1 : (p_value), most, 0}; \
    static const gd_case op_name##_cases[] = {                                                    \
        {"none", &op_name##_none, PAIR(count, false, low, high, 3, 5, 7), .kinks = has_kinks},    \
        {"mean", &op_name##_mean, PAIR(count, false, low, high, 4, 9), .kinks = has_kinks},       \
        {"sum", &op_name##_sum, PAIR(count, false, low, high, 2, 3, 3), .kinks = has_kinks},      \
        {"most", &op_name##_most, PAIR(count, false, low, high, 5, 3), .kinks = has_kinks},       \
        {"weighted", &op_name##_mean, PAIR(count, true, low, high, 4, 3), .kinks = has_kinks},    \
        {"one", &op_name##_mean, PAIR(count, false, low, high, 1), .kinks = has_kinks},           \
        {"two_blocks", &op_name##_mean, PAIR(count, false, low, high, 3, 1367),                   \
         .kinks = has_kinks},                                                                     \
        {"empty", &op_name##_sum, PAIR(count, false, low, high, 0, 5), .may_be_empty = true},     \
    };                                                                                            \
    const gd_op gd_op_##op_name = {                                                               \
        .formula = op_formula,                                                                    \
        .signature = (count) == 3 ? "x[...] target[...] pos_weight[...]? -> loss[...]"            \
                                  : "x[...] target[...] -> loss[...]",                            \
        GD_ARGS(gd_loss_args),                                                                    \
        .backward_reads_inputs = GD_ALL_INPUTS,                                                   \
        .ranges = op_name##_ranges,                                                               \
        .shape = loss_shape,                                                                      \
        GD_KERNELS(op_name),                                                                      \
        .definition = op_name##_definition,                                                       \
        GD_CASES(op_name##_cases),                                                                \
    };
#include "loss/loss.def"

/* ---- Public functions --------------------------------------------------------------------- */

#define PAIRS gd_tensor *x, gd_tensor *target
#define ARGS(p) ((gd_loss_args[]){{(p), (int32_t)reduction, 0}})

gd_tensor *gd_mse_loss(PAIRS, gd_reduction reduction) GD_APPLIES(mse_loss, ARGS(0), x, target)

gd_tensor *gd_l1_loss(PAIRS, gd_reduction reduction) GD_APPLIES(l1_loss, ARGS(0), x, target)

gd_tensor *gd_huber_loss(PAIRS, double delta, gd_reduction reduction)
    GD_APPLIES(huber_loss, ARGS(delta), x, target)

gd_tensor *gd_kl_div(PAIRS, bool log_target, gd_reduction reduction)
    GD_APPLIES(kl_div, ARGS(log_target), x, target)

gd_tensor *gd_smooth_l1_loss(gd_tensor *x, gd_tensor *target, double beta, gd_reduction reduction)
{
    if (beta == 0) {
        if (!gd_accepts(&gd_op_smooth_l1_loss, (gd_tensor *[]){x, target}, 2, ARGS(1))) return NULL;
        return gd_l1_loss(x, target, reduction);
    }
    return gd_apply(&gd_op_smooth_l1_loss, (gd_tensor *[]){x, target}, 2, ARGS(beta));
}

/* pos_weight broadcasts; the record's has the shape of x. */
gd_tensor *gd_bce_with_logits(gd_tensor *x, gd_tensor *target, gd_tensor *pos_weight,
                              gd_reduction reduction)
{
    static const gd_op op = {.name = "bce_with_logits",
                             .signature = "x[...] target[...] pos_weight[*]? -> loss[...]"};
    gd_tensor *in[] = {x, target, pos_weight};
    if (pos_weight && !gd_accepts(&op, in, 3, NULL)) return NULL;
    if (pos_weight) in[2] = gd_expand(pos_weight, gd_tensor_ndim(x), gd_tensor_shape(x));
    return gd_apply(&gd_op_bce_with_logits, in, 3, ARGS(0));
}
