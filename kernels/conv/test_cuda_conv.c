/* test_cuda_conv.c - convolutions on the GPU against the CPU: those in pieces of images, of windows
 * and of channels, and those for which there are other kernels. (Small ones: test_cuda_ops.c) */
#include "gpu_outcome.h"
#include "op_test.h"

typedef struct problem {
    int64_t x[4], weight[4];
    gd_conv_options options;
} problem;

static const problem problems[] = {
    {{1, 64, 200, 210}, {8, 64, 3, 3}, {.padding = {1, 1}}},              /* windows, channels */
    {{1, 64, 230, 200}, {8, 32, 3, 3}, {.groups = 2, .padding = {0, 1}}}, /* in two groups */
    {{41, 32, 56, 56}, {16, 32, 3, 3}, {.stride = {1, 1}}},               /* images */
    {{33, 16, 64, 64}, {24, 16, 1, 1}, {.groups = 1}},                    /* points */
    {{9, 6, 301, 299}, {12, 1, 5, 4}, {.groups = 6, .stride = {2, 1}}},   /* depthwise */
    {{3, 32, 29, 56}, {32, 1, 3, 3}, {.groups = 32, .padding = {1, 1}}},
    {{2, 40, 14, 14}, {40, 1, 7, 7}, {.groups = 40, .padding = {3, 3}}},
    {{3, 32, 17, 19},
     {80, 32, 3, 3},
     {.padding = {1, 2}}}, /* in 16 bits without columns, as those below */
    {{2, 64, 23, 25}, {96, 32, 3, 2}, {.groups = 2, .stride = {2, 3}, .output_padding = {1, 2}}},
    {{2, 32, 21, 18}, {48, 32, 3, 5}, {.stride = {2, 1}, .dilation = {3, 2}, .padding = {4, 1}}},
    {{3, 48, 1, 301}, {64, 48, 1, 5}, {.padding = {0, 2}}},
    {{1, 35, 11, 13},
     {21, 35, 4, 4},
     {.stride = {4, 2}, .padding = {3, 0}}}, /* channels of no whole step */
};

/* A leaf of random values between -size and size: no regular ones, whose sums would cancel. */
static gd_tensor *leaf(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape, double size,
                       uint64_t seed)
{
    return random_leaf(ctx, dtype, ndim, shape, -size, size, &seed);
}

/* y = conv2d(x), z = conv_transpose2d(y); gradients of x and both weights, and of the bias. x is a
 * view that begins where no pack does. */
static outcome run_conv(gd_context *ctx, gd_dtype dtype, const void *problem_)
{
    const problem *p = problem_;
    const double size = 1 / sqrt((double)(p->weight[1] * p->weight[2] * p->weight[3]));
    gd_conv_options windows = p->options;
    memset(windows.output_padding, 0, sizeof windows.output_padding);
    const int64_t count = p->x[0] * p->x[1] * p->x[2] * p->x[3] + 1;
    gd_tensor *all = leaf(ctx, dtype, 1, &count, 1, 3),
              *w = leaf(ctx, dtype, 4, p->weight, size, 5);
    gd_tensor *b = leaf(ctx, dtype, 1, p->weight, 1, 7),
              *v = leaf(ctx, dtype, 4, p->weight, size, 9);
    gd_tensor *y = NULL, *z = NULL, *dz = NULL;
    for (int i = 0; i < 2; i++) { /* the second backward adds to the gradients */
        y = gd_keep(gd_conv2d(gd_reshape(gd_slice(all, 0, 1, count), 4, p->x), w, b, &windows));
        z = gd_keep(gd_conv_transpose2d(y, v, NULL, &p->options));
        if (z && !dz) dz = leaf(ctx, dtype, 4, gd_tensor_shape(z), 1, 11);
        gd_backward_from(&z, 1, &(gd_backward_options){.cotangents = &dz});
    }
    ck_assert_no_error(ctx);
    outcome out = {0};
    add_part(&out, "y", y);
    add_part(&out, "z", z);
    add_part(&out, "dx", gd_grad(all));
    add_part(&out, "dw", gd_grad(w));
    add_part(&out, "db", gd_grad(b));
    add_part(&out, "dv", gd_grad(v));
    ck_assert_no_error(ctx);
    gd_step_end(ctx);
    return out;
}

enum { PROBLEMS = sizeof problems / sizeof *problems, PIECES = 4 };

static void compare(gd_dtype dtype, int i)
{
    /* In bfloat16 y is rounded before z and the gradients are computed from it, not always
     * alike. */
    if (!gpu_refuses(dtype))
        compare_with_cpu(run_conv, dtype, &problems[i], dtype == GD_FLOAT32 ? 2e-5 : 0x1p-7);
}

TEST_CASE("pieces", NULL, NULL)

/* Under a sanitizer there are fewer; some have trouble with cuBLAS's kernels. */
LOOP_TEST(products_are_those_of_the_cpu, 2 * PIECES)
{
    const int i = _i / 2;
    if (!(test_brief() && i < 3))
        compare(_i % 2 == 0 ? GD_FLOAT32 : i % 2 ? GD_BFLOAT16 : GD_FLOAT16, i);
}

TEST_CASE("other_kernels", NULL, NULL)

LOOP_TEST(other_kernels_compute_what_the_cpu_does, 3 * (PROBLEMS - PIECES))
{
    static const gd_dtype dtypes[] = {GD_BFLOAT16, GD_FLOAT16, GD_FLOAT32};
    compare(dtypes[_i % 3], PIECES + _i / 3);
}

CHECK_MAIN_GPU(false, "convolution on a GPU", NULL, NULL)
