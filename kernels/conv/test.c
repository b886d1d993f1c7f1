/* test.c - unfold, fold, conv1d, conv2d and conv_transpose2d against their plain twins, and at
 * their edges. Their sizes are as PyTorch's documentation defines them. */
#include "conv/conv.h"
#include "one_context.h"
#include "twin.h"

TWIN(unfold)
TWIN(fold)
TWIN(conv2d)
TWIN(conv_transpose2d)

/* A convolution: an image [B, C, H, W] and its windows. */
typedef struct conv {
    gd_conv_options o;
    int64_t B, C, H, W, O, KH, KW, OH, OW;
} conv;

static int64_t windows(int64_t n, int64_t kernel, const gd_conv_options *o, int axis)
{
    return (n + 2 * o->padding[axis] - o->dilation[axis] * (kernel - 1) - 1) / o->stride[axis] + 1;
}

static conv random_conv(bool larger)
{
    conv c = {.o = {.groups = random_size(&seed, 1, 3)}};
    for (int i = 0; i < 2; i++) {
        c.o.stride[i] = random_size(&seed, 1, 3);
        c.o.padding[i] = random_size(&seed, 0, 3);
        c.o.dilation[i] = random_size(&seed, 1, 3);
    }
    const int64_t most = larger ? 9 : 3;
    c.B = random_size(&seed, 1, 3);
    c.C = c.o.groups * random_size(&seed, 1, most);
    c.O = c.o.groups * random_size(&seed, 1, most);
    c.KH = random_size(&seed, 1, 4), c.KW = random_size(&seed, 1, 4);
    c.H = c.o.dilation[0] * (c.KH - 1) + 1 + random_size(&seed, 0, larger ? 30 : 6);
    c.W = c.o.dilation[1] * (c.KW - 1) + 1 + random_size(&seed, 0, larger ? 40 : 8);
    c.OH = windows(c.H, c.KH, &c.o, 0), c.OW = windows(c.W, c.KW, &c.o, 1);
    return c;
}

static double tolerance(gd_dtype dtype)
{
    return 3 * tolerance_of(dtype);
}

static conv_args args_of(const conv *c)
{
    conv_args args = {.kernel = {c->KH, c->KW}, .size = {c->H, c->W}, .groups = c->o.groups};
    for (int i = 0; i < 2; i++) {
        const int64_t size = i ? c->W : c->H, kernel = i ? c->KW : c->KH, n = i ? c->OW : c->OH;
        args.stride[i] = c->o.stride[i];
        args.padding[i] = c->o.padding[i];
        args.dilation[i] = c->o.dilation[i];
        args.output_padding[i] = size + 2 * args.padding[i] - (n - 1) * args.stride[i] -
                                 args.dilation[i] * (kernel - 1) - 1;
    }
    return args;
}

/* Both convolutions go between an image [B, C, H, W] and other [B, O, OH, OW]: the adjoint, from
 * the latter, gives any image with that many windows, as output_padding says. */
static void check_conv(int i, bool adjoint)
{
    const gd_dtype dtype = dtypes[i % 4];
    conv c = random_conv(i % 3 == 0);
    if (i % 5 == 1 && i % 3) c.B = random_size(&seed, 15, 40); /* joined images */
    conv_args args = args_of(&c);
    if (adjoint) memcpy(c.o.output_padding, args.output_padding, sizeof args.output_padding);
    if (!adjoint) memset(args.output_padding, 0, sizeof args.output_padding);
    const shape from = SHAPE(c.B, c.C, c.H, c.W), to = SHAPE(c.B, c.O, c.OH, c.OW);
    const shape xs = adjoint ? to : from, ys = adjoint ? from : to;
    const shape ws = SHAPE(c.O, c.C / c.o.groups, c.KH, c.KW);
    gd_tensor *x = random_tensor(ctx, dtype, xs, (enum layout)(i % LAYOUTS), -1, 1, &seed);
    gd_tensor *w = random_tensor(ctx, dtype, ws, (enum layout)(i / 4 % LAYOUTS), -1, 1, &seed);
    gd_tensor *bias =
        i % 5 == 4 ? NULL : random_tensor(ctx, dtype, SHAPE(ys.dim[1]), PACKED, -1, 1, &seed);
    /* The twin adds db term by term: the error of n sums, each of sqrt(n) or less. */
    const double terms = bias ? (double)(c.B * (c.H * c.W + c.OH * c.OW)) : 0;
    const double added = terms / 4 * rounding_of(dtype == GD_FLOAT64 ? dtype : GD_FLOAT32);
    gd_tensor *const in[] = {x, w, bias};
    assert_twin(adjoint ? conv_transpose2d_twin() : conv2d_twin(), in, 3, &args,
                tolerance(dtype) + added, &seed);
    gd_tensor *y = (adjoint ? gd_conv_transpose2d : gd_conv2d)(x, w, bias, &c.o);
    assert_called(y, ys, adjoint ? "conv_transpose2d" : "conv2d", in, 3, &args);
}

LOOP_TEST(conv2d_is_its_plain_twin, test_rounds(120))
{
    seed = 100 + (uint64_t)_i;
    check_conv(_i, false);
}

LOOP_TEST(conv_transpose2d_is_the_adjoint, test_rounds(120))
{
    seed = 200 + (uint64_t)_i;
    check_conv(_i, true);
}

LOOP_TEST(unfold_and_fold_are_their_plain_twins, test_rounds(80))
{
    const gd_dtype dtype = dtypes[_i % 4];
    const bool fold = _i / 4 % 2;
    seed = 300 + (uint64_t)_i;
    conv c = random_conv(_i % 3 == 0);
    c.o.groups = 1, c.O = 1;
    const shape image = SHAPE(c.B, c.C, c.H, c.W),
                columns = SHAPE(c.B, c.C * c.KH * c.KW, c.OH * c.OW);
    const shape from = fold ? columns : image, to = fold ? image : columns;
    gd_tensor *x = random_tensor(ctx, dtype, from, (enum layout)(_i % LAYOUTS), -1, 1, &seed);
    conv_args args = args_of(&c);
    args.output_padding[0] = args.output_padding[1] = 0;
    assert_twin(fold ? fold_twin() : unfold_twin(), &x, 1, &args, tolerance(dtype), &seed);
    gd_tensor *y = fold ? gd_fold(x, c.H, c.W, c.KH, c.KW, &c.o) : gd_unfold(x, c.KH, c.KW, &c.o);
    assert_called(y, to, fold ? "fold" : "unfold", &x, 1, &args);
}

TEST(conv1d_is_a_conv2d_of_one_row)
{
    const gd_conv_options one = {.stride = {2}, .padding = {3}, .dilation = {2}, .groups = 2};
    const gd_conv_options two = {
        .stride = {1, 2}, .padding = {0, 3}, .dilation = {1, 2}, .groups = 2};
    gd_tensor *x = random_tensor(ctx, GD_FLOAT32, SHAPE(3, 4, 29), PACKED, -1, 1, &seed);
    gd_tensor *w = random_tensor(ctx, GD_FLOAT32, SHAPE(6, 2, 5), PACKED, -1, 1, &seed);
    gd_tensor *bias = random_tensor(ctx, GD_FLOAT32, SHAPE(6), PACKED, -1, 1, &seed);
    gd_tensor *y = gd_keep(gd_conv1d(x, w, bias, &one));
    gd_tensor *want = gd_conv2d(gd_unsqueeze(x, 2), gd_unsqueeze(w, 2), bias, &two);
    ck_assert(same_shape(shape_of(y), SHAPE(3, 6, 14)));
    double *values = values_of(want);
    assert_sums("y", y, values, 0);
    free(backward_random(ctx, y, &seed));
    ck_assert_ptr_nonnull(gd_grad(w));
    gd_tensor *plain = gd_conv1d(x, gd_slice(w, 1, 0, 2), NULL, &(gd_conv_options){.groups = 2});
    ck_assert(same_shape(shape_of(plain), SHAPE(3, 6, 25)));
    free(values);
}

/* The bits must not depend on the threads: sizes with pieces of windows, of channels, several sums
 * of dweight, and fewer images than threads. */
static void run_with_threads(int threads, int which, result_bits *first)
{
    static const struct {
        int64_t x[4], w[4];
        gd_conv_options o;
    } of[] = {
        {{19, 8, 20, 21}, {12, 8, 3, 3}, {.padding = {1, 1}}},
        {{1, 48, 40, 33}, {40, 48, 3, 3}, {.stride = {1, 2}}},
        {{2, 12, 40, 41}, {24, 4, 5, 3}, {.groups = 3, .dilation = {2, 1}}},
        {{3, 96, 17, 16}, {80, 96, 1, 1}, {.groups = 1}},
        {{2, 64, 30, 30}, {64, 1, 3, 3}, {.groups = 64}},
        /* joined images: a last block of fewer, groups, depthwise, single windows, strides */
        {{50, 24, 2, 2}, {32, 24, 3, 3}, {.padding = {1, 1}}},
        {{37, 24, 7, 5}, {16, 12, 3, 3}, {.padding = {1, 1}, .groups = 2}},
        {{21, 16, 4, 6}, {16, 1, 3, 3}, {.padding = {1, 1}, .groups = 16}},
        {{120, 32, 1, 1}, {32, 32, 1, 1}, {.groups = 1}},
        {{19, 8, 9, 9}, {12, 8, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    };
    gd_context *c = test_context(threads);
    uint64_t s = 9;
    gd_tensor *x = random_leaf(c, GD_FLOAT32, 4, of[which].x, -1, 1, &s);
    gd_tensor *w = random_leaf(c, GD_FLOAT32, 4, of[which].w, -1, 1, &s);
    gd_tensor *b = random_leaf(c, GD_FLOAT32, 1, of[which].w, -1, 1, &s);
    gd_tensor *y = gd_keep(gd_conv2d(x, w, b, &of[which].o));
    gd_tensor *back = gd_keep(gd_conv_transpose2d(y, w, NULL, &of[which].o));
    gd_tensor *loss = gd_sum_all(gd_mul(back, back));
    ck_assert_int_eq(gd_backward(loss), GD_OK);
    gd_tensor *all[] = {back, y, gd_grad(x), gd_grad(w), gd_grad(b)};
    assert_same_bits(first, all, 5);
    ck_assert_no_error(c);
    gd_context_free(c);
}

LOOP_TEST(bits_are_those_of_one_thread, 10)
{
    static const int threads[] = {1, 2, 3, 7};
    result_bits first = {0};
    for (int i = 0; i < 4; i++) run_with_threads(threads[i], _i, &first);
    free(first.all);
}

/* NaN reaches the windows that it is in, and no others; padding is 0, not NaN. */
TEST(nan_stays_in_its_windows)
{
    float v[25] = {0};
    v[12] = NAN;
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(1, 1, 5, 5), v);
    gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 1, 2, 2));
    gd_tensor_fill(w, 1);
    double *y = values_of(gd_conv2d(x, w, NULL, &(gd_conv_options){.padding = {1, 1}}));
    for (int64_t i = 0; i < 36; i++) {
        const int64_t h = i / 6, j = i % 6;
        ck_assert_int_eq(isnan(y[i]) != 0, (h == 2 || h == 3) && (j == 2 || j == 3));
    }
    free(y);
}

TEST(nothing_in_nothing_out)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 0, 4, 4));
    gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 0, 2, 2));
    gd_tensor *bias = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 2, 3});
    double *y = values_of(gd_conv2d(x, w, bias, NULL));
    for (int i = 0; i < 54; i++) ck_assert_double_eq(y[i], i / 9 % 3 + 1);
    gd_tensor *none =
        gd_conv2d(gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 2, 4, 4)),
                  gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 2, 2, 2)), bias, NULL);
    ck_assert(same_shape(shape_of(none), SHAPE(0, 3, 3, 3)));
    gd_tensor *wide =
        gd_conv_transpose2d(gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 0, 2, 2)),
                            gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 3, 2, 2)), bias, NULL);
    double *z = values_of(wide);
    for (int i = 0; i < 27; i++) ck_assert_double_eq(z[i], i / 9 + 1);
    free(y), free(z);
}

static gd_tensor *of(int ndim, const int64_t *shape)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, ndim, shape);
    gd_tensor_fill(t, 1);
    return t;
}

/* A number that is set to 0 by its name is 0. */
TEST(zero_is_zero)
{
    const gd_conv_options none = {.padding = {GD_ZERO, GD_ZERO}};
    gd_tensor *x = random_tensor(ctx, GD_FLOAT32, SHAPE(1, 2, 4, 4), PACKED, -1, 1, &seed);
    gd_tensor *w = random_tensor(ctx, GD_FLOAT32, SHAPE(2, 2, 3, 3), PACKED, -1, 1, &seed);
    double *want = values_of(gd_conv2d(x, w, NULL, NULL));
    assert_sums("y", gd_conv2d(x, w, NULL, &none), want, 0);
    free(want);
}

TEST(what_is_refused)
{
    gd_tensor *x = of(GD_SHAPE(2, 4, 5, 6)), *w = of(GD_SHAPE(6, 4, 3, 3));
    gd_tensor *bias = of(GD_SHAPE(6)), *flat = of(GD_SHAPE(2, 4, 5));
    typedef gd_conv_options options;
    REFUSED(gd_conv2d(x, w, bias, &(options){.dilation = {1, 3}}),
            "conv2d: KW is 3, which spans 7 with dilation 3, wanted at most 6, W with its padding");
    REFUSED(gd_conv2d(x, w, bias, &(options){.groups = 3}),
            "conv2d: groups is 3, wanted a divisor of the 4 channels of x [2, 4, 5, 6]");
    REFUSED(gd_conv2d(x, of(GD_SHAPE(6, 1, 3, 3)), bias, &(options){.groups = 4}),
            "conv2d: groups is 4, wanted a divisor of the 6 outputs of weight [6, 1, 3, 3]");
    REFUSED(gd_conv2d(x, w, bias, &(options){.groups = -1}), "conv2d: groups is -1");
    REFUSED(gd_conv2d(x, w, bias, &(options){.groups = GD_ZERO}), "conv2d: groups is 0, wanted a");
    REFUSED(gd_conv2d(x, of(GD_SHAPE(6, 4, 0, 3)), NULL, NULL), "conv2d: KH is 0, wanted 1 to");
    REFUSED(gd_conv1d(x, flat, NULL, NULL), "conv1d: x is float32 [2, 4, 5, 6], wanted [B, C, L]");
    REFUSED(gd_conv1d(flat, x, NULL, NULL),
            "conv1d: weight is float32 [2, 4, 5, 6], wanted [O, I, K]");
    REFUSED(gd_conv1d(flat, flat, NULL, &(options){.padding = {1, 1}}),
            "conv1d: padding[1] is 1, wanted 0: there is one axis");
    gd_tensor *k = of(GD_SHAPE(6, 4, 3));
    REFUSED(gd_conv1d(flat, of(GD_SHAPE(6, 4, 6)), NULL, NULL),
            "conv1d: K is 6, which spans 6 with dilation 1, wanted at most 5, L with its padding");
    REFUSED(
        gd_conv1d(flat, of(GD_SHAPE(6, 3, 3)), NULL, NULL),
        "conv1d: weight has shape [6, 3, 3], wanted [O, C / groups, K] with C 4 of x [2, 4, 5]");
    REFUSED(gd_conv1d(flat, k, of(GD_SHAPE(5)), NULL),
            "conv1d: bias is float32 [5], wanted [O] with O = 6");
    REFUSED(gd_conv1d(flat, k, NULL, &(options){.stride = {-2}}),
            "conv1d: stride[0] is -2, wanted 1");
    REFUSED(gd_conv1d(flat, k, NULL, &(options){.groups = 3}),
            "conv1d: groups is 3, wanted a divisor");
    REFUSED(gd_conv1d(flat, k, NULL, &(options){.output_padding = {1}}),
            "conv1d: output_padding[0] is 1, wanted 0: it is of conv_transpose2d");
    gd_tensor *t = of(GD_SHAPE(4, 3, 3, 3));
    REFUSED(
        gd_conv_transpose2d(x, t, NULL, &(options){.padding = {4}}),
        "conv_transpose2d: padding[0] is 4, which leaves y no rows for x [2, 4, 5, 6] and weight");
    REFUSED(gd_conv_transpose2d(x, t, NULL, &(options){.stride = {2}, .output_padding = {2}}),
            "conv_transpose2d: output_padding[0] is 2, wanted less than stride 2 or dilation 1");
    REFUSED(gd_unfold(x, 0, 2, NULL), "unfold: KH is 0, wanted 1 to");
    REFUSED(gd_unfold(x, 6, 2, NULL), "unfold: KH is 6, which spans 6");
    REFUSED(gd_fold(flat, -1, 4, 2, 2, NULL), "fold: height is -1, wanted 0 to");
}

CHECK_MAIN_WITHIN("convolution", setup, teardown)
