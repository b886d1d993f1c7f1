/* test_gradcheck_models.c - what gradcheck says of functions, in one table: right ones raise no
 * false alarm and wrong ones fail. Everyday models, whose gradients are 0 but for rounding (a bias
 * before a norm, attention's key bias, all that softmax does not see); ties, where each output may
 * choose, at all orders; functions that are 0 at x, and what leaves out NaN; values of many sizes,
 * strong curvature and rounding inside, which are hard for finite differences; terms and factors
 * that are left out. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 5 };

/* What the values of an input are: normal, or few whole numbers, so that there are ties; zeros;
 * every fifth one NaN; sizes spread over ten powers of 10; one beside the pole at 0; a row, a
 * column or an element of 1e6, or sizes from 1 to it, one after the other. */
typedef enum kind_of_values { NORMAL, TIES, ZEROS, HOLES, SPREAD, POLE, SIZES } kind_of_values;

typedef enum outcome {
    PASSES,
    AT_KINKS,  /* or it passes */
    UNDECIDED, /* or one of both: it does not fail */
    FAILS,
    SKIPPED
} outcome;

typedef struct model {
    const char *name;
    gd_tensor *(*apply)(gd_tensor *const *in);
    outcome float64, float32;
    struct {
        int ndim;
        int64_t shape[4];
        kind_of_values values;
        double offset, factor; /* 0: 1 */
    } in[MOST];
    int order; /* up to which it is checked */
    /* The first ones, as float32 shows too little of some draws; 0: six, by GRADUS_TEST_SEED. */
    uint64_t seeds;
    const char *words[MOST]; /* on each input; NULL: any */
} model;

#define MODEL(name, ...)                         \
    static gd_tensor *name(gd_tensor *const *in) \
    {                                            \
        return __VA_ARGS__;                      \
    }

/* ---- Gradients that are zero but for rounding ------------------------------------------------ */

MODEL(bias_batch_norm, gd_tanh(gd_batch_norm(gd_linear(in[0], in[1], in[2]), NULL, NULL, NULL)))
MODEL(conv_batch_norm,
      gd_silu(gd_batch_norm(gd_conv2d(in[0], in[1], in[2], NULL), NULL, NULL, NULL)))
MODEL(conv_group_norm,
      gd_relu(gd_group_norm(gd_conv2d(in[0], in[1], in[2], NULL), 3, NULL, NULL, 1e-5)))
MODEL(weight_batch_norm, gd_batch_norm(gd_mul(in[0], in[1]), NULL, NULL, NULL))
MODEL(shift_layer_norm, gd_layer_norm(gd_add(in[0], in[1]), in[2], NULL, 1e-5))
MODEL(scale_rms_norm, gd_rms_norm(gd_mul(in[0], in[1]), in[2], 1e-12))
MODEL(shift_softmax, gd_softmax(gd_add(in[0], in[1]), 1))
MODEL(shift_cross_entropy,
      gd_cross_entropy(gd_add(in[0], in[1]), gd_argmax(gd_detach(in[2]), 1, false)))
MODEL(shift_log_softmax, gd_log_softmax(gd_add(gd_matmul(in[0], in[1]), in[2]), 1))
MODEL(logits_sum, gd_sum(gd_softmax(in[0], 1), (int[]){1}, 1, false))
MODEL(norm_sum, gd_sum(gd_layer_norm(in[0], NULL, NULL, 1e-5), (int[]){1}, 1, false))
MODEL(norms_sum, gd_sum(gd_batch_norm(in[0], NULL, NULL, NULL), (int[]){0}, 1, false))
MODEL(difference_of_exps, gd_sub(gd_exp(in[0]), gd_div(gd_exp(gd_scale(in[0], 2)), gd_exp(in[0]))))
MODEL(same_exps, gd_sub(gd_exp(in[0]), gd_exp(in[0])))

static gd_tensor *heads(gd_tensor *x)
{
    return gd_permute(gd_reshape(x, GD_SHAPE(2, 5, 2, 4)), (int[]){0, 2, 1, 3});
}

static gd_tensor *key_bias(gd_tensor *const *in)
{
    gd_tensor *q = heads(gd_linear(in[0], in[1], NULL));
    gd_tensor *k = heads(gd_linear(in[0], in[2], in[3]));
    return gd_attention(q, k, heads(in[0]), NULL);
}

static gd_tensor *key_bias_by_hand(gd_tensor *const *in)
{
    gd_tensor *q = gd_linear(in[0], in[1], NULL), *k = gd_linear(in[0], in[2], in[3]);
    gd_tensor *scores = gd_softmax(gd_matmul_with(q, k, false, true), -1);
    return gd_matmul(scores, in[0]);
}

static gd_tensor *differences(gd_tensor *const *in)
{
    gd_tensor *x = gd_add(in[0], in[1]);
    return gd_sub(gd_slice(x, 1, 1, 6), gd_slice(x, 1, 0, 5));
}

MODEL(cosine, gd_cosine_similarity(gd_mul(in[0], in[2]), in[1], 1, 1e-8))
MODEL(sign_of_one, gd_div(in[0], gd_norm(in[0], 2, (int[]){1}, 1, true)))

static gd_tensor *correlation(gd_tensor *const *in)
{
    gd_tensor *x = gd_sub(in[0], gd_mean(in[0], (int[]){1}, 1, true));
    gd_tensor *unit = gd_div(x, gd_norm(x, 2, (int[]){1}, 1, true));
    return gd_matmul_with(unit, unit, false, true);
}

MODEL(variance, gd_std(gd_add(in[0], in[1]), (int[]){1}, 1, 1, false))

static gd_tensor *twice_bias(gd_tensor *const *in)
{
    gd_tensor *h = gd_batch_norm(gd_linear(in[0], in[1], in[2]), NULL, NULL, NULL);
    return gd_batch_norm(gd_linear(gd_tanh(h), in[3], in[2]), NULL, NULL, NULL);
}

MODEL(mlp, gd_linear(gd_gelu(gd_layer_norm(gd_linear(in[0], in[1], in[2]), NULL, NULL, 1e-5)),
                     in[3], NULL))

/* ---- Ties ------------------------------------------------------------------------------------ */

MODEL(pool, gd_max_pool2d(in[0], &(gd_pool_options){.kernel = {2, 2}, .stride = {1, 1}}))
MODEL(pool_relu,
      gd_max_pool2d(gd_relu(in[0]), &(gd_pool_options){.kernel = {1, 3}, .stride = {1, 1}}))
MODEL(relu_pool, gd_tanh(gd_max_pool2d(gd_relu(gd_add_scalar(in[0], -1)),
                                       &(gd_pool_options){.kernel = {2, 2}, .stride = {1, 1}})))
MODEL(sorted, gd_sort(in[0], 1, false, NULL))
MODEL(sorted_relu, gd_sort(gd_relu(in[0]), 1, true, NULL))
MODEL(median, gd_slice(gd_sort(in[0], 1, false, NULL), 1, 2, 3))
MODEL(top, gd_topk(in[0], 2, 1, true, NULL))
MODEL(largest, gd_concat((gd_tensor *[]){gd_max(in[0], (int[]){1}, 1, true),
                                         gd_min(in[0], (int[]){1}, 1, true)},
                         2, 1))
MODEL(of_two, gd_concat((gd_tensor *[]){gd_maximum(in[0], in[1]), gd_minimum(in[0], in[1])}, 2, 1))
MODEL(losses, gd_concat((gd_tensor *[]){gd_l1_loss(in[0], in[1], GD_NONE), gd_clamp(in[0], -1, 1),
                                        gd_abs(in[0])},
                        3, 1))
MODEL(sorted_squares, gd_sort(gd_mul(in[0], in[0]), 1, false, NULL))
MODEL(largest_square, gd_max(gd_mul(in[0], in[0]), NULL, 0, false))
MODEL(square_or_itself, gd_maximum(gd_mul(in[0], in[0]), in[0]))
MODEL(twice_or_once, gd_maximum(in[0], gd_scale(in[0], 2)))
MODEL(sums_of_sorted, gd_cumsum(gd_sort(gd_mul(in[0], in[0]), 0, true, NULL), 0))

/* ---- Functions that are 0 at x, and NaN ------------------------------------------------------ */

MODEL(cube, gd_mul(gd_mul(in[0], in[0]), in[0]))
MODEL(size_of_cube, gd_abs(cube(in)))
MODEL(times_size, gd_mul(gd_abs(in[0]), in[0]))
MODEL(cube_without_nan,
      gd_sum_all(cube((gd_tensor *[]){gd_masked_fill(in[0], gd_ne(in[0], in[0]), 0)})))

/* ---- Values of many sizes, strong curvature, rounding inside --------------------------------- */

MODEL(logarithm, gd_log(in[0]))

/* The gradient of one factor of two, or of one term. */
MODEL(half_detached_log, gd_mul(logarithm(in), gd_detach(logarithm(in))))
MODEL(sine, gd_sin(in[0]))
MODEL(fast_sine, gd_sin(gd_scale(in[0], 1e4)))
MODEL(half_detached_sine, gd_mul(fast_sine(in), gd_detach(fast_sine(in))))
MODEL(inverse, gd_div(gd_detach(gd_div(in[0], in[0])), in[0]))

MODEL(rounded_inside, gd_cast(gd_sin(gd_cast(in[0], GD_FLOAT32)), GD_FLOAT64))

static gd_tensor *twice_rounded_inside(gd_tensor *const *in)
{
    gd_tensor *y = rounded_inside(in);
    return gd_sub(gd_scale(y, 2), gd_detach(y));
}

/* A straight-through estimator: the gradient is 1, but the function is flat between its steps. */
MODEL(straight_through,
      gd_add(in[0], gd_detach(gd_sub(gd_scale(gd_round(gd_scale(in[0], 256)), 1.0 / 256), in[0]))))

/* The results are multiples of 2^-13, of which finer steps show fewer. */
MODEL(square_beside_1600, gd_add_scalar(gd_add_scalar(gd_mul(in[0], in[0]), 1600), -1600))
MODEL(logsumexp, gd_logsumexp(in[0], (int[]){0}, 1, false))
MODEL(rms_norm, gd_rms_norm(in[0], in[1], 1e-6))
MODEL(half_of_rms_norm, gd_add(rms_norm(in), gd_detach(rms_norm(in))))
MODEL(layer_norm, gd_layer_norm(in[0], in[1], NULL, 1e-6))
MODEL(silu, gd_mul(gd_silu(in[0]), in[1]))
MODEL(part_of_silu, gd_mul(gd_mul(gd_sigmoid(gd_detach(in[0])), in[0]), in[1]))
MODEL(softmax, gd_mul(gd_softmax(in[0], -1), in[1]))
MODEL(log_of_square, gd_mul(gd_log(gd_mul(in[0], in[0])), in[1]))
MODEL(ratio, gd_div(in[1], in[0]))
MODEL(decay, gd_mul(gd_exp(gd_neg(gd_abs(in[0]))), in[1]))
MODEL(scaled_sine, gd_mul(gd_sin(in[0]), in[1]))

/* x z + x w, as products of elements or of matrices, the gradient of whose second term has the
 * wrong sign. */
static gd_tensor *wrong_term(gd_tensor *first, gd_tensor *second)
{
    return gd_add(first, gd_sub(gd_detach(gd_scale(second, 2)), second));
}

MODEL(wrong_product, wrong_term(gd_mul(in[0], in[1]), gd_mul(in[0], in[2])))
MODEL(wrong_matmul, wrong_term(gd_matmul(in[0], in[1]), gd_matmul(in[0], in[2])))

/* ---- Terms and factors that are left out ----------------------------------------------------- */

MODEL(square, gd_mul(in[0], in[0]))
MODEL(half_square, gd_mul(in[0], gd_detach(in[0])))

/* sum(x^2 + x w^2) */
static gd_tensor *without_a_term(gd_tensor *const *in)
{
    gd_tensor *term = gd_mul(gd_mul(in[0], in[1]), in[1]);
    return gd_sum_all(gd_add(square(in), gd_detach(term)));
}

#define MATRIX(m, n)      \
    {                     \
        2, {m, n}, NORMAL \
    }
#define VECTOR(n)      \
    {                  \
        1, {n}, NORMAL \
    }

#define OF_SIZES {{2, {4, 8}, SIZES}, {1, {8}, NORMAL, 1, 0.3}}, .seeds = 10
/* What is said of each input; of a few elements, of more than one-hot cotangents are for, and where
 * each element has one dy. */
#define WRONG_SIGN(n)                                                            \
    .in = {MATRIX(n, n), MATRIX(n, n), MATRIX(n, n)}, .seeds = 1,                \
    .words = {"it is the gradient for -z: a term with z has the wrong sign", "", \
              "the sign is flipped"}

static const model models[] = {
    {"a bias before batch_norm", bias_batch_norm, PASSES, UNDECIDED,
     .in = {MATRIX(6, 4), MATRIX(5, 4), VECTOR(5)}},
    {"a large bias before batch_norm", bias_batch_norm, PASSES, UNDECIDED,
     .in = {{2, {6, 4}, NORMAL, .factor = 1e3}, MATRIX(5, 4), {1, {5}, NORMAL, .factor = 1e3}}},
    {"a small bias before batch_norm", bias_batch_norm, PASSES, UNDECIDED,
     .in = {MATRIX(6, 4), MATRIX(5, 4), {1, {5}, NORMAL, .factor = 1e-4}}},
    {"conv2d's bias before batch_norm", conv_batch_norm, PASSES, UNDECIDED,
     .in = {{4, {2, 2, 4, 4}, NORMAL}, {4, {3, 2, 3, 3}, NORMAL}, VECTOR(3)}},
    {"conv2d's bias before group_norm", conv_group_norm, AT_KINKS, UNDECIDED,
     .in = {{4, {2, 2, 4, 4}, NORMAL}, {4, {3, 2, 3, 3}, NORMAL}, VECTOR(3)}},
    {"a scale before batch_norm", weight_batch_norm, PASSES, UNDECIDED,
     .in = {MATRIX(6, 4), VECTOR(4)}},
    {"a shift before layer_norm", shift_layer_norm, PASSES, UNDECIDED,
     .in = {MATRIX(6, 5), MATRIX(6, 1), VECTOR(5)}},
    {"a scale before rms_norm", scale_rms_norm, PASSES, UNDECIDED,
     .in = {MATRIX(6, 5), MATRIX(6, 1), VECTOR(5)}},
    {"a shift before softmax", shift_softmax, PASSES, UNDECIDED,
     .in = {MATRIX(6, 5), MATRIX(6, 1)}},
    {"a far shift before softmax", shift_softmax, PASSES, UNDECIDED,
     .in = {MATRIX(6, 5), {2, {6, 1}, NORMAL, .offset = 2e3}}},
    {"a shift before cross_entropy", shift_cross_entropy, PASSES, UNDECIDED,
     .in = {MATRIX(5, 6), MATRIX(5, 1), MATRIX(5, 6)}},
    {"a shift before log_softmax", shift_log_softmax, PASSES, UNDECIDED,
     .in = {MATRIX(5, 3), MATRIX(3, 6), MATRIX(5, 1)}},
    {"softmax's sum", logits_sum, PASSES, PASSES, .in = {MATRIX(6, 4)}, .order = 3},
    {"batch_norm's sum", norms_sum, PASSES, PASSES, .in = {MATRIX(6, 4)}, .order = 3},
    {"exp x - exp 2x / exp x", difference_of_exps, PASSES, PASSES, .in = {MATRIX(6, 4)},
     .order = 3},
    {"exp x - exp x", same_exps, PASSES, PASSES, .in = {MATRIX(6, 4)}, .order = 3},
    {"layer_norm's sum", norm_sum, UNDECIDED, UNDECIDED, .in = {MATRIX(5, 6)}},
    {"attention's key bias", key_bias, PASSES, UNDECIDED,
     .in = {{3, {2, 5, 8}, NORMAL}, MATRIX(8, 8), MATRIX(8, 8), VECTOR(8)}},
    {"attention's key bias by hand", key_bias_by_hand, PASSES, UNDECIDED,
     .in = {{3, {2, 5, 4}, NORMAL}, MATRIX(4, 4), MATRIX(4, 4), VECTOR(4)}},
    {"a shift before differences", differences, PASSES, UNDECIDED,
     .in = {MATRIX(5, 6), MATRIX(5, 1)}},
    {"a scale before cosine_similarity", cosine, PASSES, UNDECIDED,
     .in = {MATRIX(5, 6), MATRIX(5, 6), MATRIX(5, 1)}},
    {"a row of one, divided by its norm", sign_of_one, PASSES, UNDECIDED, .in = {MATRIX(8, 1)}},
    {"correlations of two", correlation, PASSES, UNDECIDED, .in = {MATRIX(8, 2)}},
    {"correlations", correlation, PASSES, UNDECIDED, .in = {MATRIX(3, 6)}},
    {"a shift before std", variance, PASSES, UNDECIDED, .in = {MATRIX(5, 6), MATRIX(5, 1)}},
    {"a bias of two layers", twice_bias, PASSES, UNDECIDED,
     .in = {MATRIX(6, 4), MATRIX(5, 4), VECTOR(5), MATRIX(5, 5)}},
    {"linear, layer_norm, gelu, linear", mlp, PASSES, UNDECIDED,
     .in = {MATRIX(6, 4), MATRIX(5, 4), VECTOR(5), MATRIX(3, 5)}},

    {"max_pool2d", pool, AT_KINKS, UNDECIDED, .in = {{4, {1, 2, 4, 4}, TIES}}},
    {"max_pool2d of relu", pool_relu, AT_KINKS, UNDECIDED, .in = {{4, {1, 1, 2, 8}, TIES}},
     .order = 2},
    {"tanh, max_pool2d, relu", relu_pool, AT_KINKS, UNDECIDED, .in = {{4, {1, 1, 4, 5}, TIES}}},
    {"sort", sorted, AT_KINKS, UNDECIDED, .in = {{2, {2, 8}, TIES}}},
    {"sort of relu", sorted_relu, AT_KINKS, UNDECIDED, .in = {{2, {2, 8}, TIES}}},
    {"the median", median, AT_KINKS, UNDECIDED, .in = {{2, {4, 5}, TIES}}},
    {"topk", top, AT_KINKS, UNDECIDED, .in = {{2, {2, 8}, TIES}}},
    {"max and min", largest, AT_KINKS, UNDECIDED, .in = {{2, {3, 6}, TIES}}},
    {"maximum and minimum", of_two, AT_KINKS, UNDECIDED,
     .in = {{2, {3, 4}, TIES}, {2, {3, 4}, TIES}}},
    {"l1_loss, clamp and abs", losses, AT_KINKS, UNDECIDED,
     .in = {{2, {3, 4}, TIES}, {2, {3, 4}, TIES}}},
    {"sort of squares", sorted_squares, AT_KINKS, UNDECIDED, .in = {{2, {2, 8}, TIES}}, .order = 2},
    {"sort of squares at 0", sorted_squares, AT_KINKS, UNDECIDED, .in = {{2, {2, 8}, ZEROS}},
     .order = 2},
    {"the largest square", largest_square, AT_KINKS, UNDECIDED, .in = {{1, {12}, ZEROS}},
     .order = 2},
    {"x^2 or x", square_or_itself, AT_KINKS, UNDECIDED, .in = {{2, {2, 8}, TIES}}, .order = 2},
    {"x or 2x", twice_or_once, AT_KINKS, UNDECIDED, .in = {{1, {9}, ZEROS}}, .order = 2},
    {"sums of sorted squares", sums_of_sorted, AT_KINKS, UNDECIDED, .in = {{1, {24}, TIES}}},

    {"x^3 at 0", cube, PASSES, UNDECIDED, .in = {{1, {24}, ZEROS}}, .order = 2},
    {"|x^3| at 0", size_of_cube, AT_KINKS, UNDECIDED, .in = {{1, {24}, ZEROS}}, .order = 2},
    {"x |x| at 0", times_size, PASSES, UNDECIDED, .in = {{1, {24}, ZEROS}}},
    {"x^3 without NaN", cube_without_nan, PASSES, UNDECIDED, .in = {{1, {24}, HOLES}}, .order = 2},

    {"log of many sizes", logarithm, PASSES, PASSES, .in = {{1, {24}, SPREAD}}, .seeds = 12},
    {"log of many sizes, wrong", half_detached_log, FAILS, SKIPPED, .in = {{1, {24}, SPREAD}},
     .seeds = 12},
    {"sin 1e4 x", fast_sine, PASSES, SKIPPED, .in = {VECTOR(24)}, .seeds = 12},
    {"sin 1e4 x, wrong", half_detached_sine, FAILS, SKIPPED, .in = {VECTOR(24)}, .seeds = 12},
    {"sin at 1e5", sine, PASSES, SKIPPED, .in = {{1, {24}, NORMAL, 1e5}}, .seeds = 12},
    {"sin of 1e5", sine, SKIPPED, UNDECIDED, .in = {{1, {24}, NORMAL, .factor = 1e5}}, .seeds = 12},
    {"1/x beside 0", inverse, SKIPPED, UNDECIDED, .in = {{1, {24}, POLE}}, .seeds = 12},
    {"rounded to float32 inside", rounded_inside, UNDECIDED, SKIPPED, .in = {VECTOR(24)},
     .seeds = 12},
    {"rounded to float32 inside, twice too much", twice_rounded_inside, FAILS, SKIPPED,
     .in = {VECTOR(24)}, .seeds = 12},
    {"flat steps, passed straight through", straight_through, FAILS, SKIPPED, .in = {VECTOR(24)},
     .seeds = 12},
    {"x^2 beside 1600", square_beside_1600, SKIPPED, UNDECIDED, .in = {VECTOR(24)}, .seeds = 12},
    {"logsumexp about 300", logsumexp, SKIPPED, PASSES, .in = {{1, {24}, NORMAL, 300}},
     .seeds = 12},
    {"rms_norm of sizes", rms_norm, PASSES, PASSES, .in = OF_SIZES},
    {"layer_norm of sizes", layer_norm, PASSES, PASSES, .in = OF_SIZES},
    {"silu of sizes", silu, PASSES, PASSES, .in = OF_SIZES},
    {"softmax of sizes", softmax, PASSES, PASSES, .in = OF_SIZES},
    {"log x^2 of sizes", log_of_square, PASSES, PASSES, .in = OF_SIZES},
    {"w / x of sizes", ratio, PASSES, PASSES, .in = OF_SIZES},
    {"exp -|x| of sizes", decay, PASSES, PASSES, .in = OF_SIZES},
    {"sin of sizes", scaled_sine, UNDECIDED, UNDECIDED, .in = OF_SIZES},
    {"half of rms_norm of sizes", half_of_rms_norm, FAILS, FAILS, .in = OF_SIZES},
    {"part of silu of sizes", part_of_silu, FAILS, FAILS, .in = OF_SIZES},

    {"a wrong sign, 2 x 2", wrong_product, FAILS, SKIPPED, WRONG_SIGN(2)},
    {"a wrong sign, 5 x 5", wrong_product, FAILS, SKIPPED, WRONG_SIGN(5)},
    {"a wrong sign, 40 x 40", wrong_product, FAILS, SKIPPED, WRONG_SIGN(40)},
    {"a matmul of wrong sign, 2 x 2", wrong_matmul, FAILS, SKIPPED, WRONG_SIGN(2)},
    {"a matmul of wrong sign, 5 x 5", wrong_matmul, FAILS, SKIPPED, WRONG_SIGN(5)},
    {"a matmul of wrong sign, 40 x 40", wrong_matmul, FAILS, SKIPPED, WRONG_SIGN(40)},

    {"a square", square, PASSES, PASSES, .in = {VECTOR(3)}},
    {"a square beside an input that it ignores", square, PASSES, PASSES,
     .in = {VECTOR(3), VECTOR(2)}},
    {"a square, one of whose factors is detached", half_square, FAILS, FAILS,
     .in = {VECTOR(3), VECTOR(2)}, .words = {"a constant factor 1/2"}},
    {"a term that is detached", without_a_term, FAILS, SKIPPED, .in = {MATRIX(5, 4), MATRIX(5, 4)},
     .words = {"it is 2 dy x instead of 2 dy x + dy w^2"}},
};

static double size_of(int pattern, int64_t i)
{
    const double sizes[] = {i / 8 == 1 ? 1e6 : 1, i % 8 == 2 ? 1e6 : 1, i == 5 ? 1e6 : 1,
                            pow(10, 2 * (double)(i / 8)),
                            pow(10, 6 * fabs(sin(78.233 * (double)(i + 1))))};
    return sizes[pattern];
}

static void fill(gd_tensor *x, kind_of_values how, double offset, double factor, uint64_t draw)
{
    double v[1600];
    const int64_t n = gd_tensor_count(x);
    ck_assert_int_le(n, (int)(sizeof v / sizeof *v));
    gd_random_normal(x, 0, 1);
    gd_tensor_read_f64(x, v, n);
    for (int64_t i = 0; i < n; i++) {
        v[i] = offset + (factor == 0 ? 1 : factor) * v[i];
        if (how == TIES) v[i] = (double)(int)(v[i] + 3) - 3; /* toward 0 */
        if (how == ZEROS) v[i] = 0;
        if (how == HOLES && i % 5 == 2) v[i] = NAN;
        if (how == SPREAD) v[i] = pow(10, -5 + 2 * v[i]);
        if (how == POLE) v[i] = v[i] > 1.5 ? -1e-4 : fabs(v[i]) + 1;
        if (how == SIZES) v[i] *= size_of((int)(draw % 5), i);
    }
    gd_tensor_write_f64(x, v, n);
}

static gd_tensor *apply(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return ((const model *)user)->apply(in);
}

static bool is_fine(outcome wanted, gd_verdict verdict)
{
    if (wanted == UNDECIDED) return verdict != GD_VERDICT_FAIL;
    if (wanted == FAILS) return verdict == GD_VERDICT_FAIL;
    return verdict == GD_VERDICT_PASS || (wanted == AT_KINKS && verdict == GD_VERDICT_KINK);
}

static void check(const model *m, outcome wanted, int order, uint64_t draw, gd_dtype dtype)
{
    const uint64_t seed = m->in[0].values == SIZES ? draw / 5 : draw; /* all five of each */
    static const char *const names[MOST] = {"x", "w", "z", "a", "b"};
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1, .seed = seed});
    gd_tensor *in[MOST];
    gd_gradcheck_report report;
    int count = 0;
    for (; count < MOST && m->in[count].ndim; count++) {
        in[count] = gd_tensor_create(ctx, dtype, m->in[count].ndim, m->in[count].shape);
        fill(in[count], m->in[count].values, m->in[count].offset, m->in[count].factor, draw);
        gd_tensor_set_name(in[count], names[count]);
        gd_tensor_set_requires_grad(in[count], true);
    }
    gd_gradcheck_function(ctx, m->name, apply, (void *)m, in, count,
                          &(gd_gradcheck_options){.order = order, .seed = seed}, &report);
    ck_assert_no_error(ctx);
    ck_assert_int_eq(report.dtype, dtype);
    const bool fine = is_fine(wanted, report.verdict);
    if (!fine) gd_gradcheck_print(&report, stdout, true);
    fflush(stdout);
    ck_assert_msg(fine, "%s in %s, order %d, draw %d: %s", m->name, gd_dtype_name(dtype), order,
                  (int)draw, gd_verdict_name(report.verdict));
    for (int k = 0; k < report.inputs; k++) {
        /* The advice belongs to the verdict. */
        ck_assert(report.verdict != GD_VERDICT_INCONCLUSIVE || !report.input[k].sweep_stable);
        if (m->words[k]) ck_assert_str_eq(report.input[k].finding, m->words[k]);
    }
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
}

static void check_all(const model *m, outcome wanted, gd_dtype dtype)
{
    for (int order = 1; order <= (m->order ? m->order : 1) && wanted != SKIPPED; order++)
        for (uint64_t run = 0; run < (m->seeds ? m->seeds : 6); run++)
            check(m, wanted, order, m->seeds ? run : test_seed() + run, dtype);
}

TEST_CASE("float64", NULL, NULL)

LOOP_TEST(verdicts_are_right_in_float64, (sizeof models / sizeof *models))
{
    check_all(&models[_i], models[_i].float64, GD_FLOAT64);
}

TEST_CASE("float32", NULL, NULL)

LOOP_TEST(verdicts_are_right_in_float32, (sizeof models / sizeof *models))
{
    check_all(&models[_i], models[_i].float32, GD_FLOAT32);
}

/* ---- A choice at ties, of an op that is not the library's ------------------------------------ */

/* y[i] = max(x[i], x[i + 1]); where both are equal, dx gets these parts of dy. */
typedef struct parts {
    double first, second;
    bool right;
} parts;

static gd_status pairs_shape(const gd_call *call, gd_shapes *out)
{
    out->output[0].shape[0] = gd_tensor_dim(call->input[0], 0) - 1;
    return GD_OK;
}

static gd_status pairs_forward(const gd_call *call)
{
    const double *x = gd_tensor_data(call->input[0]);
    double *y = gd_tensor_data(call->output[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->output[0]); i++)
        y[i] = x[i] > x[i + 1] ? x[i] : x[i + 1];
    return GD_OK;
}

static gd_status pairs_backward(const gd_call *call)
{
    const parts *p = call->args;
    const double *x = gd_tensor_data(call->input[0]), *dy = gd_tensor_data(call->doutput[0]);
    double *dx = gd_tensor_data(call->dinput[0]);
    const int64_t n = gd_tensor_count(call->input[0]);
    for (int64_t i = 0; i < n && !call->accumulate[0]; i++) dx[i] = 0;
    for (int64_t i = 0; i < n - 1; i++) {
        const bool tie = x[i] == x[i + 1], first = x[i] > x[i + 1];
        dx[i] += dy[i] * (tie ? p->first : first);
        dx[i + 1] += dy[i] * (tie ? p->second : !first);
    }
    return GD_OK;
}

static const parts kinds[] = {{1, 0, true},       {0, 1, true},      {0.5, 0.5, true},
                              {0.1, 0.9, true},   {1.2, 0, false},   {0, 2, false},
                              {-0.3, 1.3, false}, {0.5, -0.5, false}};

static const gd_op pairs = {.name = "pairs",
                            .signature = "x[N] -> y[N]",
                            .args_size = sizeof(parts),
                            .backward_reads_inputs = GD_BIT(0),
                            .shape = pairs_shape,
                            .forward = {pairs_forward, NULL},
                            .backward = {pairs_backward, NULL}};

static gd_tensor *pairs_of(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return gd_apply(&pairs, in, 1, user);
}

static void ck_choice(gd_context *ctx, const parts *p, const gd_gradcheck_report *report, int seed)
{
    ck_assert_no_error(ctx);
    const bool passes = report->verdict == GD_VERDICT_PASS || report->verdict == GD_VERDICT_KINK;
    ck_assert_msg(p->right ? passes : report->verdict == GD_VERDICT_FAIL,
                  "with %g and %g of dy, seed %d: %s", p->first, p->second, seed,
                  gd_verdict_name(report->verdict));
}

TEST_CASE("ties", NULL, NULL)

LOOP_TEST(each_output_may_choose_at_ties, sizeof kinds / sizeof *kinds)
{
    const parts *p = &kinds[_i];
    const gd_case all_equal = {"all_equal", p, GD_INPUTS({GD_CONSTANT(2), GD_DIMS(6)}),
                               .kinks = true};
    for (int seed = 0; seed < 20; seed++) {
        const gd_gradcheck_options options = {.seed = (uint64_t)seed};
        gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
        gd_gradcheck_report report;
        gd_gradcheck_case(ctx, &pairs, &all_equal, &options, &report);
        ck_choice(ctx, p, &report, seed);
        gd_gradcheck_report_free(&report);

        gd_tensor *x =
            gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(8), (double[]){1, 1, 1, 2, 2, 3, 0, 0});
        gd_tensor_set_requires_grad(x, true);
        gd_gradcheck_function(ctx, "pairs", pairs_of, (void *)p, &x, 1, &options, &report);
        ck_choice(ctx, p, &report, seed);
        gd_gradcheck_report_free(&report);
        gd_context_free(ctx);
    }
}

CHECK_MAIN("gradcheck of models")
