/* custom_op.c - an op from outside the library: Swish with a slope that is learned
 * (Ramachandran et al. 2017, arXiv:1710.05941), its backward, and the proof that they agree.
 *
 *     y = x s,  s = 1 / (1 + exp(-beta x))         x [..., N], beta [N] -> y [..., N]
 *
 * With ds/dz = s (1 - s) for z = beta x, the chain rule gives
 *
 *     dx    = dy (s + x s (1 - s) beta)
 *     dbeta = sum over rows of  dy x s (1 - s) x
 */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

/* Element i of a packed tensor of either real type, for a kernel that need not be fast. */
static double get(const gd_tensor *t, int64_t i)
{
    const void *data = gd_tensor_data(t);
    return gd_tensor_dtype(t) == GD_FLOAT64 ? ((const double *)data)[i]
                                            : (double)((const float *)data)[i];
}

static void put(gd_tensor *t, int64_t i, double value)
{
    void *data = gd_tensor_data(t);
    if (gd_tensor_dtype(t) == GD_FLOAT64) {
        ((double *)data)[i] = value;
    } else {
        ((float *)data)[i] = (float)value;
    }
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static gd_status forward(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *beta = call->input[1];
    const int64_t n = gd_tensor_dim(beta, 0);
    for (int64_t i = 0; i < gd_tensor_count(x); i++) {
        double value = get(x, i);
        put(call->output[0], i, value * sigmoid(get(beta, i % n) * value));
    }
    return GD_OK;
}

/* Adds into a gradient that holds something already, and overwrites one that does not. */
static void give(const gd_call *call, int input, int64_t i, double value)
{
    gd_tensor *dinput = call->dinput[input];
    put(dinput, i, call->accumulate[input] ? get(dinput, i) + value : value);
}

static gd_status backward(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *beta = call->input[1], *dy = call->doutput[0];
    const int64_t n = gd_tensor_dim(beta, 0), count = gd_tensor_count(x);
    if (call->dinput[0]) { /* NULL: dx is not needed */
        for (int64_t i = 0; i < count; i++) {
            double slope = get(beta, i % n), value = get(x, i), s = sigmoid(slope * value);
            give(call, 0, i, get(dy, i) * (s + value * s * (1 - s) * slope));
        }
    }
    if (call->dinput[1]) {
        for (int64_t column = 0; column < n; column++) {
            double sum = 0;
            for (int64_t i = column; i < count; i += n) {
                double value = get(x, i), s = sigmoid(get(beta, column) * value);
                sum += get(dy, i) * value * s * (1 - s) * value;
            }
            give(call, 1, column, sum);
        }
    }
    return GD_OK;
}

/* What the op is, in ops: for gradients that are differentiated again, and in place of kernels. */
static void definition(const gd_call *call)
{
    gd_tensor *x = call->input[0], *beta = call->input[1];
    call->output[0] = gd_mul(x, gd_sigmoid(gd_mul(x, beta)));
}

/* The same, but dx forgets that s depends on x as well. */
static gd_status wrong_backward(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *beta = call->input[1], *dy = call->doutput[0];
    const int64_t n = gd_tensor_dim(beta, 0);
    for (int64_t i = 0; call->dinput[0] && i < gd_tensor_count(x); i++) {
        give(call, 0, i, get(dy, i) * sigmoid(get(beta, i % n) * get(x, i)));
    }
    gd_call only_beta = *call;
    only_beta.dinput = (gd_tensor *[]){NULL, call->dinput[1]};
    return backward(&only_beta);
}

static const gd_case cases[] = {
    {"5x7", NULL, GD_INPUTS({GD_DIMS(5, 7)}, {GD_NORMAL(1, 1), GD_DIMS(7)})},
    {"large", NULL, GD_INPUTS({GD_NORMAL(0, 20), GD_DIMS(9)}, {GD_DIMS(9)})},
};

static const gd_op swish = {
    .name = "swish",
    .formula = "y = x / (1 + exp(-beta x))",
    /* what fits, and what the output looks like; a call that does not fit is an error of one sentence */
    .signature = "x[..., N] beta[N] -> y[..., N]",
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1), /* the tape keeps both until then */
    .forward = {[GD_CPU] = forward},
    .backward = {[GD_CPU] = backward},
    .definition = definition,
    GD_CASES(cases),
};

static gd_tensor *apply_swish(gd_tensor *x, gd_tensor *beta)
{
    return gd_apply(&swish, (gd_tensor *[]){x, beta}, 2, NULL);
}

/* Runs every case; returns how many pass. */
static int check(gd_context *ctx, const gd_op *op)
{
    int passed = 0;
    for (int i = 0; i < op->case_count; i++) {
        gd_gradcheck_report report;
        if (gd_gradcheck_case(ctx, op, &op->cases[i], NULL, &report)) break;
        gd_gradcheck_print(&report, stdout, false);
        passed += report.verdict == GD_VERDICT_PASS;
        gd_gradcheck_report_free(&report);
    }
    return passed;
}

int main(void)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_register_op(ctx, &swish);
    int right = check(ctx, &swish);

    gd_op wrong = swish;
    wrong.name = "wrong_swish";
    wrong.backward[GD_CPU] = wrong_backward;
    int caught = wrong.case_count - check(ctx, &wrong);

    /* The definition alone makes the same op, without kernels, for CPU and GPU. */
    gd_op by_ops = swish;
    by_ops.name = "swish_by_ops";
    by_ops.forward[GD_CPU] = by_ops.backward[GD_CPU] = NULL;
    int defined = check(ctx, &by_ops);

    /* Like any other op: it nests, and gradients flow through it. */
    gd_tensor *beta = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 1, 1});
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 3), (float[]){1, 2, 3, -1, -2, -3});
    gd_tensor_set_requires_grad(beta, true);
    gd_backward(gd_sum_all(apply_swish(x, beta)));
    double dbeta[3] = {0};
    gd_tensor_read_f64(gd_grad(beta), dbeta, 3);
    printf("dbeta = %.4f %.4f %.4f\n", dbeta[0], dbeta[1], dbeta[2]);
    gd_step_end(ctx);

    /* By its definition the gradient has a gradient, too; here x is its own beta. */
    gd_tensor *y = apply_swish(beta, beta), *dy = NULL, *ddy = NULL;
    gd_gradients(&y, 1, &(gd_gradients_options){.differentiable = true}, &beta, 1, &dy);
    gd_gradients(&dy, 1, NULL, &beta, 1, &ddy);
    double second[3] = {0};
    gd_tensor_read_f64(ddy, second, 3);
    printf("the second derivative of x / (1 + exp(-x^2)) at 1 is %.4f\n", second[0]);
    gd_step_end(ctx);

    /* And it says what is wrong with a bad call. */
    gd_tensor *bad = apply_swish(x, gd_slice(beta, 0, 0, 2));
    printf("%s\n", gd_error(ctx) ? gd_error(ctx) : "nothing was wrong");

    bool good =
        right == 2 && caught == 2 && defined == 2 && !bad && fabs(dbeta[0] - 2 * 0.1966119) < 1e-6;
    gd_context_free(ctx);
    return good && fflush(stdout) == 0 ? 0 : 1;
}
