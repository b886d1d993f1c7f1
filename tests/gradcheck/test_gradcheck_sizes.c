/* test_gradcheck_sizes.c - gradcheck of functions of values of very different sizes: a row, a
 * column or an element of 1e6 among values of 1, or sizes spread over that range. A right function
 * never fails, and all but a sine of 1e6, which float32 cannot resolve, pass; a wrong one fails. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <math.h>
#include <string.h>

enum { ROWS = 4, COLUMNS = 8, COUNT = ROWS * COLUMNS };

typedef struct function {
    const char *name;
    gd_tensor *(*of)(gd_tensor *x, gd_tensor *w);
    bool wrong, hard;
} function;

static gd_tensor *rms_norm(gd_tensor *x, gd_tensor *w)
{
    return gd_rms_norm(x, w, 1e-6);
}

static gd_tensor *layer_norm(gd_tensor *x, gd_tensor *w)
{
    return gd_layer_norm(x, w, NULL, 1e-6);
}

static gd_tensor *silu(gd_tensor *x, gd_tensor *w)
{
    return gd_mul(gd_silu(x), w);
}

static gd_tensor *softmax(gd_tensor *x, gd_tensor *w)
{
    return gd_mul(gd_softmax(x, -1), w);
}

static gd_tensor *logarithm(gd_tensor *x, gd_tensor *w)
{
    return gd_mul(gd_log(gd_mul(x, x)), w);
}

static gd_tensor *ratio(gd_tensor *x, gd_tensor *w)
{
    return gd_div(w, x);
}

static gd_tensor *decay(gd_tensor *x, gd_tensor *w)
{
    return gd_mul(gd_exp(gd_neg(gd_abs(x))), w);
}

static gd_tensor *sine(gd_tensor *x, gd_tensor *w)
{
    return gd_mul(gd_sin(x), w);
}

static gd_tensor *half_of_rms_norm(gd_tensor *x, gd_tensor *w)
{
    return gd_add(rms_norm(x, w), rms_norm(gd_detach(x), gd_detach(w)));
}

static gd_tensor *part_of_silu(gd_tensor *x, gd_tensor *w)
{
    return gd_mul(gd_mul(gd_sigmoid(gd_detach(x)), x), w);
}

static const function functions[] = {
    {"rms_norm", rms_norm, false, false},
    {"layer_norm", layer_norm, false, false},
    {"silu", silu, false, false},
    {"softmax", softmax, false, false},
    {"log x^2", logarithm, false, false},
    {"w / x", ratio, false, false},
    {"exp -|x|", decay, false, false},
    {"sin", sine, false, true},
    {"half", half_of_rms_norm, true, false},
    {"part of silu", part_of_silu, true, false},
};

static gd_tensor *call(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return ((const function *)user)->of(in[0], in[1]);
}

/* The size of element i. */
static double one_row(int i)
{
    return i / COLUMNS == 1 ? 1e6 : 1;
}

static double one_column(int i)
{
    return i % COLUMNS == 2 ? 1e6 : 1;
}

static double one_element(int i)
{
    return i == 5 ? 1e6 : 1;
}

static double each_row(int i)
{
    return pow(10, 2 * (i / COLUMNS));
}

static double scattered(int i)
{
    return pow(10, 6 * fabs(sin(78.233 * (i + 1))));
}

static double (*const sizes[])(int) = {one_row, one_column, one_element, each_row, scattered};

static void check(const function *f, double (*size)(int), gd_dtype dtype, uint64_t seed)
{
    function own = *f;
    double value[COUNT];
    gd_gradcheck_report report;
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *in[] = {gd_tensor_create(ctx, dtype, GD_SHAPE(ROWS, COLUMNS)),
                       gd_tensor_create(ctx, dtype, GD_SHAPE(COLUMNS))};
    gd_random_set(ctx, (gd_random_state){.seed = seed});
    gd_random_normal(in[0], 0, 1);
    gd_random_normal(in[1], 1, 0.3);
    gd_tensor_read_f64(in[0], value, COUNT);
    for (int i = 0; i < COUNT; i++) value[i] *= size(i);
    gd_tensor_write_f64(in[0], value, COUNT);
    for (int i = 0; i < 2; i++) gd_tensor_set_requires_grad(in[i], true);
    const gd_gradcheck_options options = {.seed = seed};
    gd_gradcheck_function(ctx, f->name, call, &own, in, 2, &options, &report);
    ck_assert_no_error(ctx);
    const bool fails = report.verdict == GD_VERDICT_FAIL;
    const bool passes = report.verdict == GD_VERDICT_PASS || f->wrong || f->hard;
    if (fails != f->wrong || !passes) gd_gradcheck_print(&report, stdout, true);
    ck_assert_msg(fails == f->wrong && passes, "%s, seed %d, %s: %s", f->name, (int)seed,
                  gd_dtype_name(dtype), gd_verdict_name(report.verdict));
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
}

LOOP_TEST(values_may_have_very_different_sizes, sizeof functions / sizeof *functions)
{
    const function *f = &functions[_i];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (uint64_t seed = 0; seed < 2; seed++) {
            check(f, sizes[k], GD_FLOAT32, seed);
            check(f, sizes[k], GD_FLOAT64, seed);
        }
    }
}

CHECK_MAIN("gradcheck, sizes", 100)
