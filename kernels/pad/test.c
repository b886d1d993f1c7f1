/* test.c - pad and upsample_nearest against the definition, place by place, and at their edges. */
#include "one_context.h"

/* Walks from place i of an axis, outside it by any number, to the place that is shown; -1: none. */
static int64_t shown(int64_t i, int64_t n, gd_pad_mode mode)
{
    if (i >= 0 && i < n) return i;
    if (mode == GD_PAD_CONSTANT) return -1;
    const int64_t edge = i < 0 ? 0 : n - 1, steps = i < 0 ? -i : i - (n - 1);
    if (mode == GD_PAD_REPLICATE) return edge;
    return i < 0 ? edge + steps : edge - steps;
}

LOOP_TEST(pad_is_the_definition, test_rounds(120))
{
    const gd_dtype dtype = dtypes[_i % 4];
    const gd_pad_mode mode = (gd_pad_mode)(_i / 4 % 3);
    seed = 500 + (uint64_t)_i;
    const int64_t planes = random_size(&seed, 1, 4), H = random_size(&seed, 1, 9),
                  W = random_size(&seed, 1, 30);
    const int64_t tall = mode == GD_PAD_REFLECT ? H : 5, wide = mode == GD_PAD_REFLECT ? W : 9;
    const gd_pad_options o = {.left = random_below(&seed, wide),
                              .right = random_below(&seed, wide),
                              .top = random_below(&seed, tall),
                              .bottom = random_below(&seed, tall),
                              .mode = mode,
                              .value = 0.75};
    gd_tensor *x = random_tensor(ctx, dtype, (shape){3, {planes, H, W}},
                                 (enum layout)(_i % LAYOUTS), -2, 2, &seed);
    gd_tensor *y = gd_keep(gd_pad(x, &o));
    double *xv = values_of(x), *dy = backward_random(ctx, y, &seed);
    double *want = zeros(gd_tensor_count(y)), *dx = zeros(planes * H * W);
    const int64_t rows = o.top + H + o.bottom, cols = o.left + W + o.right;
    ck_assert(same_shape(shape_of(y), (shape){3, {planes, rows, cols}}));
    for (int64_t e = 0; e < planes * rows * cols; e++) {
        const int64_t a = shown(e / cols % rows - o.top, H, mode),
                      b = shown(e % cols - o.left, W, mode);
        const int64_t place = (e / cols / rows * H + a) * W + b;
        want[e] = a < 0 || b < 0 ? o.value : xv[place];
        if (a >= 0 && b >= 0) dx[place] += dy[e];
    }
    assert_sums("y", y, want, 0);
    assert_sums("dx", gd_grad(x), dx, tolerance_of(dtype) * 8);
    free(xv), free(dy), free(want), free(dx);
}

TEST(one_row_can_have_columns_added)
{
    const double x[3] = {1, 2, 3}, mirrored[7] = {3, 2, 1, 2, 3, 2, 1};
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    gd_tensor_write_f64(t, x, 3);
    const gd_pad_options both = {.left = 2, .right = 2, .mode = GD_PAD_REFLECT};
    assert_near(gd_pad(t, &both), mirrored, 1, (bound){0}, "y");
    assert_near(gd_pad(t, NULL), x, 1, (bound){0}, "nothing added");
    gd_step_end(ctx);
    gd_tensor_free(t);
}

TEST(upsampling_repeats)
{
    const double x[4] = {1, 2, 3, 4}, y[12] = {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4};
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(1, 2, 2));
    gd_tensor_write_f64(t, x, 4);
    gd_tensor_set_requires_grad(t, true);
    assert_near(gd_upsample_nearest(t, 1, 3), y, 1, (bound){0}, "y");
    gd_tensor *twice = gd_upsample_nearest(t, 2, 2);
    ck_assert(same_shape(shape_of(twice), (shape){3, {1, 4, 4}}));
    gd_backward(gd_sum(gd_mul(twice, twice), NULL, 0, false));
    assert_near(gd_grad(t), x, 8, (bound){0}, "dx"); /* four times 2 x */
    gd_step_end(ctx);
    gd_tensor_free(t);
}

static void refused(gd_tensor *x, gd_pad_options options, const char *words)
{
    REFUSED(gd_pad(x, &options), words);
}

TEST(bad_frames_are_refused)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3, 4));
    gd_tensor *row = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4));
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 4));
    refused(x, (gd_pad_options){.left = -1}, "-1 and 0 columns are to be added, wanted 0 or more");
    refused(x, (gd_pad_options){.bottom = INT64_MAX}, "pad: 0 and 9223372036854775807 rows");
    refused(x, (gd_pad_options){.top = 3, .mode = GD_PAD_REFLECT},
            "3 rows are to be reflected, but x [2, 3, 4] has 3, of which the outermost is not");
    refused(row, (gd_pad_options){.top = 1}, "x is [4], wanted [..., H, W], to add rows");
    refused(none, (gd_pad_options){.top = 1, .mode = GD_PAD_REPLICATE},
            "x [0, 4] has no rows to replicate");
    REFUSED(gd_upsample_nearest(row, 2, 2),
            "upsample_nearest: x [4] is to be repeated 2 x 2 times");
    REFUSED(gd_upsample_nearest(x, 0, 2), "x [2, 3, 4] is to be repeated 0 x 2 times");
    ck_assert_ptr_null(gd_upsample_nearest(NULL, 2, 2));
    gd_tensor_free(x), gd_tensor_free(row), gd_tensor_free(none);
}

CHECK_MAIN_WITHIN("padding", setup, teardown)
