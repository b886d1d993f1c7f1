/* test.c - max_pool2d and avg_pool2d against their plain twins, and at their edges. */
#include "twin.h"

#include "one_context.h"
#include "pool/pool.h"

TWIN(max_pool2d)
TWIN(avg_pool2d)

/* A problem on planes [H, W]. */
typedef struct pooling {
    gd_pool_options options;
    bool max;
    int64_t planes, size[2], pooled[2];
} pooling;

static pooling random_pooling(bool max)
{
    pooling p = {.max = max, .planes = random_size(&seed, 1, 5)};
    for (int axis = 0; axis < 2; axis++) {
        const int64_t kernel = random_size(&seed, 1, 5), stride = random_size(&seed, 1, 4);
        const int64_t padding = random_below(&seed, kernel / 2 + 1);
        p.size[axis] = random_size(&seed, kernel, 40);
        p.pooled[axis] = (p.size[axis] + 2 * padding - kernel) / stride + 1;
        p.options.kernel[axis] = kernel;
        p.options.stride[axis] = stride;
        p.options.padding[axis] = padding;
    }
    return p;
}

static gd_tensor *pool(const pooling *p, gd_tensor *x)
{
    return p->max ? gd_max_pool2d(x, &p->options) : gd_avg_pool2d(x, &p->options);
}

LOOP_TEST(pooling_is_its_plain_twin, test_rounds(200))
{
    const gd_dtype dtype = dtypes[_i % 4];
    seed = 300 + (uint64_t)_i;
    const pooling p = random_pooling(_i / 4 % 2);
    const shape s = {3, {p.planes, p.size[0], p.size[1]}};
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)(_i % LAYOUTS), -2, 2, &seed);
    const gd_pool_options *o = &p.options;
    const conv_args args = {.kernel = {o->kernel[0], o->kernel[1]},
                            .stride = {o->stride[0], o->stride[1]},
                            .padding = {o->padding[0], o->padding[1]},
                            .dilation = {1, 1}};
    const gd_op *twin = p.max ? max_pool2d_twin() : avg_pool2d_twin();
    assert_twin(twin, &x, 1, &args, 25 * tolerance_of(dtype), &seed);
    assert_called(pool(&p, x), SHAPE(p.planes, p.pooled[0], p.pooled[1]), twin->name, &x, 1, &args);
}

/* y of one window over x [1, 4], and dx for dy = 1. */
static void check_window(const double *x, double y, const double *dx)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 4));
    gd_tensor_write_f64(t, x, 4);
    gd_tensor_set_requires_grad(t, true);
    gd_tensor *r = gd_keep(gd_max_pool2d(t, &(gd_pool_options){.kernel = {1, 4}}));
    gd_backward(gd_sum(r, NULL, 0, false));
    double *got = values_of(gd_grad(t)), *value = values_of(r);
    ck_assert(*value == y || (isnan(*value) && isnan(y)));
    for (int i = 0; i < 4; i++) ck_assert_double_eq(got[i], dx[i]);
    free(got), free(value);
    gd_step_end(ctx);
    gd_tensor_free(t);
}

TEST(one_element_has_the_gradient)
{
    check_window((double[]){1, 3, 3, 2}, 3, (double[]){0, 1, 0, 0});
    check_window((double[]){-INFINITY, -INFINITY, -INFINITY, -INFINITY}, -INFINITY,
                 (double[]){1, 0, 0, 0});
    check_window((double[]){1, NAN, NAN, 5}, NAN, (double[]){0, 0, 1, 0});
    check_window((double[]){INFINITY, 2, INFINITY, 1}, INFINITY, (double[]){1, 0, 0, 0});
}

TEST(padding_is_no_element)
{
    const double below[4] = {-5, -6, -7, -8};
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(2, 2));
    gd_tensor_write_f64(x, below, 4);
    const gd_pool_options options = {.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}};
    assert_near(gd_max_pool2d(x, &options), below, 1, (bound){0}, "max");
    assert_near(gd_avg_pool2d(x, &options), below, 0.25, (bound){0}, "mean");
    gd_step_end(ctx);
    gd_tensor_free(x);
}

static void refused(gd_tensor *x, gd_pool_options options, const char *words)
{
    REFUSED(gd_max_pool2d(x, &options), words);
    REFUSED(gd_avg_pool2d(x, &options), words);
}

TEST(bad_windows_are_refused)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 5, 4));
    refused(x, (gd_pool_options){.kernel = {2, 0}, .stride = {1, 1}}, "KW is 0, wanted 1 to");
    refused(x, (gd_pool_options){.kernel = {2, 2}, .stride = {-1, 1}}, "stride[0] is -1, wanted 1");
    refused(x, (gd_pool_options){.kernel = {2, 2}, .padding = {2, 0}},
            "padding[0] is 2, wanted at most half of the kernel's 2");
    refused(x, (gd_pool_options){.kernel = {6, 2}},
            "KH is 6, which spans 6 with dilation 1, wanted at most 5, H with its padding");
    refused(x, (gd_pool_options){.kernel = {INT64_MAX, 1}, .stride = {1, 1}},
            "KH is 9223372036854775807, wanted 1 to 1073741824");
    REFUSED(gd_max_pool2d(x, NULL), "KH is 0");
    gd_tensor_free(x);
}

CHECK_MAIN_WITHIN("pooling", setup, teardown)
