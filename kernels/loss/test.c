/* test.c - the losses of pairs at their edges, with weights, and what is refused. */
#include "one_context.h"

#define RUN(name, call)                                                        \
    static gd_tensor *name(gd_tensor *x, gd_tensor *t, gd_reduction reduction) \
    {                                                                          \
        return call;                                                           \
    }
RUN(huber, gd_huber_loss(x, t, 0.5, reduction))
RUN(smooth_l1, gd_smooth_l1_loss(x, t, 0.25, reduction))
RUN(bce, gd_bce_with_logits(x, t, NULL, reduction))
RUN(kl_div, gd_kl_div(x, t, false, reduction))
RUN(kl_div_log_target, gd_kl_div(x, t, true, reduction))

/* ---- Edges -------------------------------------------------------------------------------- */

static void check_edge(gd_tensor *(*run)(gd_tensor *, gd_tensor *, gd_reduction), double x,
                       double t, double y, double dx, double dt)
{
    for (int dtype = 0; dtype < 2; dtype++) {
        gd_tensor *pair[2];
        for (int k = 0; k < 2; k++) {
            pair[k] = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(21));
            gd_tensor_fill(pair[k], k ? t : x);
            gd_tensor_set_requires_grad(pair[k], true);
        }
        gd_tensor *loss = gd_keep(run(pair[0], pair[1], GD_NONE));
        gd_backward_from(&loss, 1, NULL);
        double want[3][21];
        for (int i = 0; i < 21; i++) want[0][i] = y, want[1][i] = dx, want[2][i] = dt;
        assert_close(loss, want[0], 4, 0, "loss");
        assert_close(gd_grad(pair[0]), want[1], 4, 0, "dx");
        assert_close(gd_grad(pair[1]), want[2], 4, 0, "dt");
        gd_step_end(ctx);
    }
}

TEST(edges)
{
    const double inf = INFINITY;
    check_edge(gd_l1_loss, 2, 2, 0, 0, 0);
    check_edge(gd_l1_loss, NAN, 2, NAN, 0, 0);
    check_edge(gd_mse_loss, NAN, 2, NAN, NAN, NAN);
    check_edge(huber, inf, 0, inf, 0.5, -0.5);
    check_edge(huber, NAN, 0, NAN, NAN, NAN);
    check_edge(huber, 0.5, 0, 0.125, 0.5, -0.5);
    check_edge(smooth_l1, 1e30, 0, 1e30, 1, -1);
    check_edge(bce, 1000, 1, 0, 0, -1000);
    check_edge(bce, 1000, 0, 1000, 1, -1000);
    check_edge(bce, -1000, 1, 1000, -1, 1000);
    check_edge(bce, -50, 0, exp(-50), exp(-50), 50);
    check_edge(bce, NAN, 0.5, NAN, NAN, NAN);
    check_edge(kl_div, -3, 0, 0, 0, -inf);
    check_edge(kl_div, -inf, 0, 0, 0, inf - inf);
    check_edge(kl_div_log_target, -3, -inf, 0, 0, 0);
    check_edge(kl_div_log_target, -inf, -inf, 0, 0, 0);
    check_edge(kl_div_log_target, NAN, -inf, 0, 0, 0);
    check_edge(kl_div_log_target, -1, log(0.5), 0.5 * (log(0.5) + 1), -0.5, 0.5 * (log(0.5) + 2));
}

/* smooth_l1_loss and its slope, of numbers whose products with beta or quotients by it are out of
 * range; a beta that float32 cannot hold is nearly 0, or nearly infinite. huber_loss likewise. */
TEST(any_beta)
{
    static const struct {
        double e, beta, loss, slope;
    } rows[] = {
        {0.3, 1e-30, 0.3, 1},
        {0.3, 1e-44, 0.3, 1},
        {0.3, 1e-46, 0.3, 1},
        {-0.3, 1e-300, 0.3, -1},
        {1e38, 10, 1e38, 1},
        {1e-25, 1e-24, 0.5e-26, 0.1},
        {0, 1e-60, 0, 0},
        {1e30, 1e38, 0.5e22, 1e-8},
        {3e38, 1e300, 0, 0},
        {-1e38, 2e38, 0.25e38, -0.5},
        {INFINITY, 1e-60, INFINITY, 1},
        {2, 1e-60, 2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double slope;
        gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
        gd_tensor *zero = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
        gd_tensor_fill(x, rows[i].e);
        gd_tensor_fill(zero, 0);
        gd_tensor_set_requires_grad(x, true);
        gd_tensor *loss = gd_smooth_l1_loss(x, zero, rows[i].beta, GD_SUM);
        const double value = gd_item(loss);
        gd_backward(loss);
        gd_tensor_read_f64(gd_grad(x), &slope, 1);
        if (rows[i].beta < 1e300) {
            ck_assert(value == rows[i].loss || fabs(value / rows[i].loss - 1) < 1e-6);
            ck_assert_double_eq_tol(slope, rows[i].slope, 1e-6);
        } else {
            ck_assert(isfinite(value) && slope >= 0 && slope <= 1);
        }
        gd_step_end(ctx);
        gd_tensor_free(x);
        gd_tensor_free(zero);
    }
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
    gd_tensor *zero = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
    gd_tensor_fill(x, 2e19);
    gd_tensor_fill(zero, 0);
    ck_assert_double_eq_tol(gd_item(gd_huber_loss(x, zero, 1e300, GD_SUM)), 2e38, 1e32);
    ck_assert_double_ge(gd_item(gd_huber_loss(x, zero, 1e-60, GD_SUM)), 0);
}

TEST(no_elements)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 4));
    ck_assert(isnan(gd_item(gd_mse_loss(x, x, GD_MEAN))));
    ck_assert(gd_item(gd_mse_loss(x, x, GD_SUM)) == 0);
    ck_assert(isnan(gd_item(gd_kl_div(x, x, false, GD_BATCHMEAN))));
}

/* pos_weight of the classes, and its gradient, summed over the rows. */
TEST(positive_weights)
{
    enum { ROWS = 5, CLASSES = 3 };
    gd_tensor *x = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(ROWS, CLASSES), -2, 2, &seed);
    gd_tensor *t = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(ROWS, CLASSES), 0, 1, &seed);
    gd_tensor *w = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(CLASSES), 0.5, 3, &seed);
    double *xv = values_of(x), *tv = values_of(t), *wv = values_of(w);
    gd_tensor *loss = gd_keep(gd_bce_with_logits(x, t, w, GD_SUM));
    gd_backward(loss);
    double sum = 0, dx[ROWS * CLASSES], dw[CLASSES] = {0};
    for (int i = 0; i < ROWS * CLASSES; i++) {
        const double p = 1 / (1 + exp(-xv[i])), c = wv[i % CLASSES] * tv[i];
        sum -= c * log(p) + (1 - tv[i]) * log(1 - p);
        dx[i] = (c + 1 - tv[i]) * p - c;
        dw[i % CLASSES] -= tv[i] * log(p);
    }
    assert_close(loss, &sum, 64, 1, "loss");
    assert_close(gd_grad(x), dx, 64, 1, "dx");
    assert_close(gd_grad(w), dw, 64, 1, "dw");
    free(xv), free(tv), free(wv);
}

/* ---- Losses of a few ops ------------------------------------------------------------------ */

/* nll_loss of log_softmax is cross_entropy, with every option, and so are the gradients. */
LOOP_TEST(nll_is_cross_entropy, 24)
{
    const gd_dtype dtype = (gd_dtype)(_i % 2);
    const int32_t ids[6] = {1, 0, 3, 1, 2, 3};
    gd_tensor *targets = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 3), ids);
    gd_tensor *w = random_tensor(ctx, dtype, (shape){1, {4}}, (enum layout)0, 0.5, 2, &seed);
    gd_tensor_set_requires_grad(w, false);
    gd_tensor *x = random_leaf(ctx, dtype, GD_SHAPE(2, 3, 4), -2, 2, &seed);
    gd_tensor *same = gd_tensor_create(ctx, dtype, GD_SHAPE(2, 3, 4));
    double *xv = values_of(x);
    gd_tensor_write_f64(same, xv, 24);
    gd_tensor_set_requires_grad(same, true);
    const gd_cross_entropy_options o = {.reduction = (gd_reduction)(_i / 2 % 3),
                                        .ignore_index = _i / 6 % 2 ? 1 : 0,
                                        .weight = _i / 12 ? w : NULL};
    gd_tensor *ours = gd_keep(gd_nll_loss(gd_log_softmax(x, -1), targets, &o));
    gd_tensor *theirs = gd_keep(gd_cross_entropy_with(same, targets, &o));
    ck_assert_no_error(ctx);
    ck_assert(same_shape(shape_of(ours), shape_of(theirs)));
    gd_backward_from(&ours, 1, NULL);
    gd_backward_from(&theirs, 1, NULL);
    double *value = values_of(theirs), *dx = values_of(gd_grad(same));
    assert_close(ours, value, 32, 1, "nll_loss");
    assert_close(gd_grad(x), dx, 64, 1, "dx");
    free(xv), free(value), free(dx);
}

/* Ignored rows, and classes of weight 0, may hold anything. */
TEST(nll_of_what_does_not_count)
{
    gd_tensor *x =
        gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3, 2), (float[]){NAN, NAN, -1, -2, -INFINITY, -3});
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(3), (int32_t[]){-100, 1, 0});
    gd_tensor *w = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){0, 0.5});
    gd_tensor_set_requires_grad(x, true);
    gd_cross_entropy_options o = {.ignore_index = -100, .weight = w};
    gd_tensor *mean = gd_keep(gd_nll_loss(x, t, &o));
    gd_backward(mean);
    ck_assert_double_eq(gd_item(mean), 2);
    assert_close(gd_grad(x), (double[]){0, 0, 0, -1, 0, 0}, 0, 0, "dx");
    o.reduction = GD_NONE;
    assert_close(gd_nll_loss(x, t, &o), (double[]){0, 1, 0}, 0, 0, "each");
    gd_tensor_fill(w, 0);
    o.reduction = GD_MEAN;
    ck_assert_double_nan(gd_item(gd_nll_loss(x, t, &o)));
    o.ignore_index = 0;
    REFUSED(gd_nll_loss(x, t, &o), "nll_loss: targets[0] is -100, wanted 0 to 1");
    gd_step_end(ctx); /* whose ops have read w */
    gd_tensor_set_requires_grad(w, true);
    REFUSED(gd_nll_loss(x, t, &o),
            "nll_loss: weight requires a gradient, which class weights have only");
}

TEST(cosines)
{
    gd_tensor *a =
        gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4, 2), (float[]){3, 4, 1, 0, 0, 0, 1, 1});
    gd_tensor *b =
        gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4, 2), (float[]){4, 3, 0, 2, 1, 2, 2, 2});
    gd_tensor *y = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, -1, 1, -1});
    gd_tensor_set_requires_grad(a, true);
    gd_tensor *c = gd_keep(gd_cosine_similarity(a, b, -1, 1e-8));
    assert_close(c, (double[]){0.96, 0, 0, 1}, 8, 1, "cosine_similarity");
    gd_backward_from(&c, 1, NULL);
    /* (b / |b| - c a / |a|) / |a|; of a = 0 b / |b| / eps. */
    assert_close(gd_grad(a), (double[]){0.0448, -0.0336, 0, 1, 1e8 / sqrt(5), 2e8 / sqrt(5), 0, 0},
                 32, 1, "da");
    gd_tensor *loss = gd_cosine_embedding_loss(a, b, y, 0.25, GD_NONE);
    assert_close(loss, (double[]){0.04, 0, 1, 0.75}, 32, 1, "cosine_embedding_loss");
    /* Nothing overflows or vanishes, neither an eps below the range nor vectors near its ends; at
     * the margin the gradient is 0. */
    gd_tensor *far = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3, 2),
                                    (float[]){1e30F, 1e30F, 3e-30F, 4e-30F, 0, 0});
    gd_tensor *ones = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3, 2), (float[]){1, 1, 3, 4, 1, 2});
    gd_tensor_set_requires_grad(far, true);
    c = gd_keep(gd_cosine_similarity(far, ones, 1, 1e-35));
    assert_close(c, (double[]){1, 1, 0}, 8, 1, "cosine_similarity far out");
    gd_tensor *apart = gd_neg(gd_slice(y, 0, 0, 1));
    gd_tensor *zero = gd_slice(far, 0, 2, 3), *one = gd_slice(ones, 0, 2, 3);
    gd_backward(gd_cosine_embedding_loss(zero, one, apart, 0, GD_SUM));
    assert_close(gd_grad(far), (double[]){0, 0, 0, 0, 0, 0}, 0, 1, "at the margin");
    REFUSED(gd_cosine_similarity(a, y, -1, 1e-8),
            "cosine_similarity: b is float32 [4], wanted [...] as in a float32 [4, 2]");
    REFUSED(gd_cosine_embedding_loss(a, NULL, y, 0, GD_MEAN),
            "cosine_embedding_loss: b is NULL, wanted a tensor");
    REFUSED(gd_cosine_similarity(a, b, 2, 1e-8),
            "cosine_similarity: axis is 2, wanted one of the 2 dimensions of a [4, 2]");
    REFUSED(gd_cosine_similarity(a, b, -1, -1), "cosine_similarity: eps is -1, wanted 0 or more");
    REFUSED(gd_cosine_embedding_loss(a, b, a, 0, GD_MEAN),
            "cosine_embedding_loss: target is float32 [4, 2], wanted [...] as in a[..., D] "
            "float32 [4, 2]");
    REFUSED(gd_cosine_embedding_loss(a, b, y, 0, (gd_reduction)9),
            "cosine_embedding_loss: reduction is 9, wanted GD_MEAN, GD_SUM or GD_NONE");
}

TEST(minima)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(2, 2), (double[]){3, -4, 0, 0});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *least = gd_keep(gd_min(x, NULL, 0, false));
    gd_tensor *where = gd_argmin(x, 1, false);
    int32_t places[2];
    gd_tensor_read(where, places, sizeof places);
    ck_assert(gd_item(least) == -4 && places[0] == 1 && places[1] == 0);
}

CHECK_MAIN_WITHIN("loss", setup, teardown)
