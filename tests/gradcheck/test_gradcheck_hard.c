/* test_gradcheck_hard.c - right functions that are hard for finite differences: values of many
 * sizes, strong curvature, rounding inside. None may fail, and those that a shorter step shows must
 * pass. Wrong ones of the same kinds fail. */
/* Build: all symbols. */
#include "check_main.h"
#include "gradcheck/check.h"
#include "gradus/gradus.h"

#include <math.h>

enum { COUNT = 24 };

static gd_context *ctx;
static gd_gradcheck_report report;

static void setup(void)
{
    ctx = gd_context_create(NULL);
}

static void teardown(void)
{
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

static gd_tensor *logarithm(gd_tensor *x)
{
    return gd_log(x);
}

static gd_tensor *fast_sine(gd_tensor *x)
{
    return gd_sin(gd_scale(x, 1e4));
}

static gd_tensor *sine(gd_tensor *x)
{
    return gd_sin(x);
}

static gd_tensor *inverse(gd_tensor *x)
{
    gd_tensor *one = gd_detach(gd_div(x, x));
    return gd_div(one, x);
}

static gd_tensor *rounded_inside(gd_tensor *x)
{
    return gd_cast(gd_sin(gd_cast(x, GD_FLOAT32)), GD_FLOAT64);
}

/* A straight-through estimator: the gradient is 1, but the function is flat between its steps. */
static gd_tensor *straight_through(gd_tensor *x)
{
    gd_tensor *steps = gd_scale(gd_round(gd_scale(x, 256)), 1.0 / 256);
    return gd_add(x, gd_detach(gd_sub(steps, x)));
}

static gd_tensor *twice_rounded_inside(gd_tensor *x)
{
    gd_tensor *y = rounded_inside(x);
    return gd_sub(gd_scale(y, 2), gd_detach(y));
}

/* The gradient without the factor of `inside`. */
static gd_tensor *half_detached(gd_tensor *x)
{
    return gd_mul(gd_log(x), gd_detach(gd_log(x)));
}

static gd_tensor *half_detached_sine(gd_tensor *x)
{
    return gd_mul(fast_sine(x), gd_detach(fast_sine(x)));
}

static double wide(double normal)
{
    return pow(10, -5 + 2 * normal);
}

static double plain(double normal)
{
    return normal;
}

static double offset(double normal)
{
    return 1e5 + normal;
}

static double large(double normal)
{
    return 1e5 * normal;
}

/* One value beside the pole. */
static double beside_zero(double normal)
{
    return normal > 1.5 ? -1e-4 : fabs(normal) + 1;
}

typedef struct hard_case {
    const char *name;
    gd_tensor *(*function)(gd_tensor *x);
    double (*value)(double normal);
    gd_dtype dtype;
    bool passes; /* false: it may be inconclusive */
    bool wrong;  /* it must fail */
} hard_case;

static const hard_case cases[] = {
    {"log of many sizes", logarithm, wide, GD_FLOAT64, true, false},
    {"log of many sizes, float32", logarithm, wide, GD_FLOAT32, true, false},
    {"sin 1e4 x", fast_sine, plain, GD_FLOAT64, true, false},
    {"sin at 1e5", sine, offset, GD_FLOAT64, true, false},
    {"sin of 1e5 in float32", sine, large, GD_FLOAT32, false, false},
    {"1/x beside 0 in float32", inverse, beside_zero, GD_FLOAT32, false, false},
    {"rounded to float32 inside", rounded_inside, plain, GD_FLOAT64, false, false},
    {"log of many sizes, wrong", half_detached, wide, GD_FLOAT64, false, true},
    {"flat steps, passed straight through", straight_through, plain, GD_FLOAT64, false, true},
    {"rounded to float32 inside, twice too much", twice_rounded_inside, plain, GD_FLOAT64, false,
     true},
    {"sin 1e4 x, wrong", half_detached_sine, plain, GD_FLOAT64, false, true},
};

static gd_tensor *call(void *user, gd_tensor *const *inputs, int count)
{
    (void)count;
    return ((const hard_case *)user)->function(inputs[0]);
}

LOOP_TEST(hard_functions_are_judged_rightly, sizeof cases / sizeof *cases)
{
    hard_case c = cases[_i];
    for (uint64_t seed = 0; seed < 12; seed++) {
        double value[COUNT];
        gd_check_normal(value, COUNT, seed, 1);
        for (int i = 0; i < COUNT; i++) value[i] = c.value(value[i]);
        gd_tensor *x = gd_tensor_create(ctx, c.dtype, GD_SHAPE(COUNT));
        gd_tensor_write_f64(x, value, COUNT);
        gd_tensor_set_requires_grad(x, true);
        const gd_gradcheck_options options = {.seed = seed};
        gd_gradcheck_function(ctx, c.name, call, &c, &x, 1, &options, &report);
        ck_assert_no_error(ctx);
        const gd_gradcheck_input *in = &report.input[0];
        const char *verdict = gd_verdict_name(report.verdict);
        ck_assert_msg((report.verdict == GD_VERDICT_FAIL) == c.wrong, "%s, seed %d: %s", c.name,
                      (int)seed, verdict);
        ck_assert_msg(!c.passes || report.verdict == GD_VERDICT_PASS, "%s, seed %d: %s", c.name,
                      (int)seed, verdict);
        /* The advice belongs to the verdict. */
        ck_assert(report.verdict != GD_VERDICT_INCONCLUSIVE || !in->sweep_stable);
        gd_gradcheck_report_free(&report);
        gd_tensor_free(x);
    }
}

CHECK_MAIN_WITHIN("gradcheck of hard functions", 0, setup, teardown)
