/* test.c - batch_norm against its plain twins, with its running statistics; and what is refused.
 * When these are updated, tests/optim/test_buffers.c says. */
#include "twin.h"

#include "batch_norm/batch_norm.h"
#include "one_context.h"

TWIN(batch_norm)
TWIN(batch_norm_fixed)

/* What a batch x [B, C, S] makes of the running statistics, with a momentum of 0.25. */
static void track(const gd_tensor *x, double *mean, double *var)
{
    const int64_t B = gd_tensor_dim(x, 0), C = gd_tensor_dim(x, 1), n = gd_tensor_count(x) / C;
    double *values = values_of(x);
    for (int64_t c = 0; c < C; c++) {
        long double sum = 0, squares = 0;
        const double *first = values + c * (n / B);
        for (int64_t k = 0; k < n; k++) sum += first[k / (n / B) * C * (n / B) + k % (n / B)];
        for (int64_t k = 0; k < n; k++) {
            const long double away = first[k / (n / B) * C * (n / B) + k % (n / B)] - sum / n;
            squares += away * away;
        }
        mean[c] += 0.25 * ((double)sum / (double)n - mean[c]);
        var[c] += 0.25 * ((double)squares / (double)(n - 1) - var[c]);
    }
    free(values);
}

static gd_tensor *filled(gd_dtype dtype, int64_t count, double low, double high, bool grad)
{
    gd_tensor *t = random_tensor(ctx, dtype, (shape){1, {count}}, (enum layout)0, low, high, &seed);
    gd_tensor_set_requires_grad(t, grad);
    return t;
}

LOOP_TEST(it_is_its_plain_twin, test_rounds(160))
{
    const gd_dtype dtype = dtypes[_i % 4];
    const bool evaluate = _i / 4 % 2, places = _i / 8 % 2, running = evaluate || _i / 16 % 2;
    seed = 700 + (uint64_t)_i;
    shape s = SHAPE(random_size(&seed, 2, 9), random_size(&seed, 1, 40));
    if (places) s = SHAPE(s.dim[0], s.dim[1], random_size(&seed, 1, 4), random_size(&seed, 1, 5));
    const int64_t C = s.dim[1];
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)(_i % LAYOUTS), 3, 7, &seed);
    gd_tensor *w = random_chance(&seed, 0.7) ? filled(dtype, C, 0.5, 2, true) : NULL;
    gd_tensor *b = random_chance(&seed, 0.7) ? filled(dtype, C, -1, 1, true) : NULL;
    gd_tensor *mean = running ? filled(GD_FLOAT32, C, 4, 6, false) : NULL;
    gd_tensor *var = running ? filled(GD_FLOAT32, C, 0.5, 2, false) : NULL;
    gd_tensor *const in[] = {x, w, b, mean, var};
    const gd_batch_norm_args args = {.eps = 1e-3, .momentum = 0.25};
    const gd_op *twin = evaluate ? batch_norm_fixed_twin() : batch_norm_twin();
    assert_twin(twin, in, BATCH_INPUTS, &args, 100 * tolerance_of(dtype), &seed);
    double *new_mean = running ? values_of(mean) : NULL, *new_var = running ? values_of(var) : NULL;
    const gd_batch_norm_options options = {
        .eps = 1e-3, .momentum = 0.25, .mean = mean, .var = var, .evaluate = evaluate};
    gd_tensor *y = gd_batch_norm(x, w, b, &options);
    if (running && !evaluate) track(x, new_mean, new_var);
    if (running) assert_sums("mean", mean, new_mean, 1e-5), assert_sums("var", var, new_var, 1e-5);
    assert_called(y, s, twin->name, in, BATCH_INPUTS, &args);
    free(new_mean), free(new_var);
}

/* ---- Edges -------------------------------------------------------------------------------- */

/* Far from 0 a float32 mean has lost the digits that the deviation needs. */
TEST(far_from_zero)
{
    enum { N = 4096 };
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(N, 1));
    gd_random_normal(x, 1e5, 1);
    gd_tensor *y = gd_batch_norm(x, NULL, NULL, NULL);
    double *xv = values_of(x), *yv = values_of(y), mean = 0, var = 0;
    for (int i = 0; i < N; i++) mean += xv[i] / N;
    for (int i = 0; i < N; i++) var += (xv[i] - mean) * (xv[i] - mean) / N;
    for (int i = 0; i < N; i++) ck_assert(fabs(yv[i] - (xv[i] - mean) / sqrt(var + 1e-5)) < 1e-5);
    free(xv), free(yv);
    gd_step_end(ctx);
    gd_tensor_free(x);
}

TEST(bad_input_is_refused)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3, 4));
    gd_tensor *row = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    gd_tensor *one = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 3));
    gd_tensor *four = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4));
#define WITH(...) &(gd_batch_norm_options){__VA_ARGS__}
    REFUSED(gd_batch_norm(one, NULL, NULL, NULL),
            "x is [1, 3], wanted more than one element of each channel");
    REFUSED(gd_group_norm(x, 2, NULL, NULL, 1e-5),
            "groups is 2, wanted a divisor of the 3 channels of x [2, 3, 4]");
    REFUSED(gd_group_norm(x, 0, NULL, NULL, 1e-5), "groups is 0, wanted a divisor");
    gd_tensor_set_requires_grad(row, true);
    REFUSED(gd_batch_norm(x, NULL, NULL, WITH(.mean = row, .var = row)),
            "mean requires a gradient, wanted a tensor that does not");
    gd_tensor_free(x), gd_tensor_free(row), gd_tensor_free(one), gd_tensor_free(four);
}

CHECK_MAIN_WITHIN("batch_norm", setup, teardown)
