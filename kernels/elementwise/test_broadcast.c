/* test_broadcast.c - functions of two and three tensors, with broadcast, against formulas in double
 * and plain loops: arithmetic, comparisons, pow, masked_fill, where; ties and NaN. */
#include "one_context.h"

/* ---- Functions of two variables, with broadcast ------------------------------------------- */

typedef gd_tensor *binary(gd_tensor *a, gd_tensor *b);

enum { ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, BINARIES };
static binary *const binaries[] = {gd_add, gd_sub, gd_mul, gd_div, gd_maximum, gd_minimum};
static const char *const binary_names[] = {"add", "sub", "mul", "div", "maximum", "minimum"};

static void evaluate_binary(int which, double a, double b, double *y, double *da, double *db)
{
    double share = a > b ? 1 : a < b ? 0 : 0.5;
    const double value[] = {a + b, a - b, a * b, a / b, a > b ? a : b, a < b ? a : b};
    const double by_a[] = {1, 1, b, 1 / b, share, 1 - share};
    const double by_b[] = {1, -1, a, -a / (b * b), 1 - share, share};
    *y = value[which], *da = by_a[which], *db = by_b[which];
}

typedef struct pair {
    shape a, b, y;
} pair;

static const pair pairs[] = {
    {{2, {5, 7}}, {2, {5, 7}}, {2, {5, 7}}},
    {{2, {5, 7}}, {1, {7}}, {2, {5, 7}}},
    {{1, {7}}, {2, {5, 7}}, {2, {5, 7}}},
    {{2, {5, 7}}, {2, {5, 1}}, {2, {5, 7}}},
    {{2, {5, 1}}, {2, {1, 7}}, {2, {5, 7}}},
    {{2, {5, 7}}, {0, {0}}, {2, {5, 7}}},
    {{0, {0}}, {3, {2, 3, 4}}, {3, {2, 3, 4}}},
    {{3, {2, 1, 4}}, {3, {2, 3, 4}}, {3, {2, 3, 4}}},
    {{4, {2, 1, 3, 1}}, {3, {5, 1, 2}}, {4, {2, 5, 3, 2}}},
    {{4, {1, 1, 1, 1}}, {1, {1}}, {4, {1, 1, 1, 1}}},
    {{0, {0}}, {0, {0}}, {0, {0}}},
    {{2, {0, 7}}, {1, {7}}, {2, {0, 7}}},
    {{2, {3, 0}}, {2, {3, 1}}, {2, {3, 0}}},
    {{2, {2, 5003}}, {1, {5003}}, {2, {2, 5003}}},
    {{2, {2000, 9}}, {1, {9}}, {2, {2000, 9}}},
    {{2, {9000, 3}}, {2, {9000, 1}}, {2, {9000, 3}}},
    {{1, {40000}}, {0, {0}}, {1, {40000}}},
    {{3, {30, 5, 130}}, {3, {30, 1, 130}}, {3, {30, 5, 130}}},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void check_binary(int which, const pair *p, gd_dtype dtype, int layout_a, int layout_b)
{
    const char *name = binary_names[which];
    gd_tensor *a = random_tensor(ctx, dtype, p->a, (enum layout)layout_a, -2, 2, &seed);
    gd_tensor *b = random_tensor(ctx, dtype, p->b, (enum layout)layout_b, 0.5, 2, &seed);
    double *av = values_of(a), *bv = values_of(b);
    int64_t count = count_of(p->y);
    double *y = zeros(count);
    double *da = zeros(count_of(p->a));
    double *db = zeros(count_of(p->b));
    gd_tensor *result = binaries[which](a, b);
    gd_keep(result);
    double *dy = backward_random(ctx, result, &seed);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = broadcast_place(p->a, p->y, i), bt = broadcast_place(p->b, p->y, i);
        double by_a, by_b;
        evaluate_binary(which, av[at], bv[bt], &y[i], &by_a, &by_b);
        da[at] += dy[i] * by_a;
        db[bt] += dy[i] * by_b;
    }
    ck_assert(same_shape(shape_of(result), p->y));
    assert_close(result, y, 2, 0, name);
    /* A sum of n terms has at most n times the rounding of one. */
    double terms_a = (double)count / (double)count_of(p->a);
    double terms_b = (double)count / (double)count_of(p->b);
    if (count_of(p->a)) assert_close(gd_grad(a), da, 4, terms_a, name);
    if (count_of(p->b)) assert_close(gd_grad(b), db, 16, terms_b, name);
    free(av), free(bv), free(y), free(da), free(db), free(dy);
    gd_step_end(ctx);
}

TEST(functions_of_two_variables)
{
    for (int which = 0; which < BINARIES; which++)
        for (int p = 0; p < PAIRS; p++)
            for (int layout = 0; layout < 5; layout++)
                check_binary(which, &pairs[p], (gd_dtype)((which + p + layout) % 4), layout % 3,
                             layout ? (layout + 1) % 3 : PACKED);
}

/* A broadcast by gd_expand has strides of 0 in the middle of a full shape. */
TEST(expanded_operands)
{
    gd_tensor *row = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 5, 1), -1, 1, &seed);
    gd_tensor *b = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(3, 5, 7), -1, 1, &seed);
    gd_tensor *wide = gd_expand(row, GD_SHAPE(3, 5, 7)), *y = gd_mul(wide, b);
    gd_keep(y);
    double *rv = values_of(row), *bv = values_of(b), *dy = backward_random(ctx, y, &seed);
    double wanted[105], d_row[5] = {0};
    for (int i = 0; i < 105; i++) {
        wanted[i] = rv[i / 7 % 5] * bv[i];
        d_row[i / 7 % 5] += dy[i] * bv[i];
    }
    assert_close(y, wanted, 1, 0, "mul");
    assert_close(gd_grad(row), d_row, 4, 21, "mul");
    free(rv), free(bv), free(dy);
}

/* With inputs made by ops, one gradient may be written over dy: the other must not notice. */
TEST(gradients_over_dy)
{
    for (int which = 0; which < BINARIES; which++) {
        gd_tensor *a = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(3, 11), -2, 2, &seed);
        gd_tensor *b = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(3, 11), 0.5, 2, &seed);
        gd_tensor *y = gd_neg(binaries[which](gd_exp(a), gd_sqrt(b)));
        double *av = values_of(a), *bv = values_of(b), *dy = backward_random(ctx, y, &seed);
        double da[33], db[33];
        for (int i = 0; i < 33; i++) {
            double value, by_a, by_b;
            evaluate_binary(which, exp(av[i]), sqrt(bv[i]), &value, &by_a, &by_b);
            da[i] = -dy[i] * by_a * exp(av[i]);
            db[i] = -dy[i] * by_b / (2 * sqrt(bv[i]));
        }
        assert_close(gd_grad(a), da, 64, 1, binary_names[which]);
        assert_close(gd_grad(b), db, 64, 1, binary_names[which]);
        free(av), free(bv), free(dy);
        gd_step_end(ctx);
    }
}

TEST(maximum_of_ties_and_nan)
{
    gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, 2, NAN, 4});
    gd_tensor *b = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, 3, 3, NAN});
    gd_tensor_set_requires_grad(a, true);
    gd_tensor_set_requires_grad(b, true);
    gd_tensor *y = gd_maximum(a, b);
    gd_keep(y);
    gd_backward_from(&y, 1, NULL);
    assert_close(y, (double[]){1, 3, NAN, NAN}, 0, 0, "maximum");
    double ga[4], gb[4];
    gd_tensor_read_f64(gd_grad(a), ga, 4);
    gd_tensor_read_f64(gd_grad(b), gb, 4);
    ck_assert(ga[0] == 0.5 && gb[0] == 0.5 && ga[1] == 0 && gb[1] == 1);
}

/* Where 1 / b overflows, a zero over b is still 0. */
TEST(division_by_tiny_numbers)
{
    gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){0, 1e-30f});
    gd_tensor *b = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){1e-39f, 1e-10f});
    gd_tensor_set_requires_grad(b, true);
    gd_tensor *y = gd_keep(gd_div(a, b));
    gd_backward_from(&y, 1, NULL);
    assert_close(y, (double[]){0, 1e-20}, 4, 0, "div");
    assert_close(gd_grad(b), (double[]){0, -1e-10}, 4, 0, "db");
}

TEST(powers_of_tensors)
{
    const double a[] = {2, 4, 0, 0, 3, -2}, b[] = {3, 0.5, 2, 0, 0, 2};
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(6));
    gd_tensor *p = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(6));
    gd_tensor_write_f64(x, a, 6);
    gd_tensor_write_f64(p, b, 6);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor_set_requires_grad(p, true);
    gd_tensor *y = gd_keep(gd_pow_tensor(x, p));
    gd_backward_from(&y, 1, NULL);
    assert_close(y, (double[]){8, 2, 0, 1, 1, 4}, 4, 0, "y");
    assert_close(gd_grad(x), (double[]){12, 0.25, 0, 0, 0, -4}, 4, 0, "da");
    assert_close(gd_grad(p), (double[]){8 * log(2), 2 * log(4), 0, 0, log(3), NAN}, 4, 0, "db");
}

TEST(comparisons_give_masks)
{
    static gd_tensor *(*const run[])(gd_tensor *, gd_tensor *) = {gd_eq, gd_ne, gd_lt,
                                                                  gd_le, gd_gt, gd_ge};
    static const int32_t wanted[6][4] = {{0, 1, 0, 0}, {1, 0, 1, 1}, {1, 0, 0, 0},
                                         {1, 1, 0, 0}, {0, 0, 1, 0}, {0, 1, 1, 0}};
    for (int k = 0; k < 6; k++) {
        gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, 2, 3, NAN});
        gd_tensor *two = gd_tensor_from(ctx, GD_FLOAT32, 0, NULL, (float[]){2});
        gd_tensor_set_requires_grad(a, true);
        gd_tensor *mask = run[k](a, two);
        int32_t got[4];
        ck_assert_int_eq(gd_tensor_dtype(mask), GD_INT32);
        ck_assert(!gd_tensor_requires_grad(mask));
        gd_tensor_read(mask, got, sizeof got);
        ck_assert_mem_eq(got, wanted[k], sizeof got);
    }
    ck_assert_int_eq(gd_tape_length(ctx), 0);
}

/* What is masked has no gradient, not even an infinite one, and may hold anything. */
TEST(masked_fill_hides_what_it_fills)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){1, NAN, 3, 4});
    gd_tensor *mask = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){0, 1});
    gd_tensor *u = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){5, INFINITY, 6, 7});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = gd_keep(gd_masked_fill(x, mask, -INFINITY));
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &u});
    assert_close(y, (double[]){1, -INFINITY, 3, -INFINITY}, 0, 0, "y");
    assert_close(gd_grad(x), (double[]){5, 0, 6, 0}, 0, 0, "dx");
    REFUSED(gd_clamp(x, 1, 0), "clamp: low is 1 and high is 0, wanted low <= high");
    REFUSED(gd_hardtanh(x, 1, 0), "hardtanh: low is 1 and high is 0, wanted low <= high");
}

TEST(division_by_zero)
{
    gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 0, -1});
    gd_tensor *y = gd_div(a, gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3)));
    assert_close(y, (double[]){INFINITY, NAN, -INFINITY}, 0, 0, "div");
}

/* ---- where -------------------------------------------------------------------------------- */

typedef struct triple {
    shape condition, a, b, y;
} triple;

static const triple triples[] = {
    {{2, {5, 7}}, {2, {5, 7}}, {2, {5, 7}}, {2, {5, 7}}},
    {{1, {7}}, {2, {5, 1}}, {0, {0}}, {2, {5, 7}}},
    {{3, {2, 1, 4}}, {2, {3, 1}}, {1, {4}}, {3, {2, 3, 4}}},
    {{0, {0}}, {1, {1}}, {2, {1, 1}}, {2, {1, 1}}},
    {{2, {0, 3}}, {1, {3}}, {1, {3}}, {2, {0, 3}}},
    {{2, {300, 1}}, {2, {300, 130}}, {1, {130}}, {2, {300, 130}}},
};

static void check_where(const triple *t, gd_dtype dtype, int layout)
{
    gd_tensor *c = random_tensor(ctx, GD_INT32, t->condition, (enum layout)layout, -1, 2, &seed);
    gd_tensor *a = random_tensor(ctx, dtype, t->a, (enum layout)layout, -2, 2, &seed);
    gd_tensor *b = random_tensor(ctx, dtype, t->b, (enum layout)((layout + 1) % 3), -2, 2, &seed);
    double *cv = values_of(c), *av = values_of(a), *bv = values_of(b);
    int64_t count = count_of(t->y);
    double *y = zeros(count);
    double *da = zeros(count_of(t->a));
    double *db = zeros(count_of(t->b));
    gd_tensor *result = gd_where(c, a, b);
    gd_keep(result);
    double *dy = backward_random(ctx, result, &seed);
    for (int64_t i = 0; i < count; i++) {
        bool chosen = cv[broadcast_place(t->condition, t->y, i)] != 0;
        int64_t at = broadcast_place(t->a, t->y, i), bt = broadcast_place(t->b, t->y, i);
        y[i] = chosen ? av[at] : bv[bt];
        *(chosen ? &da[at] : &db[bt]) += dy[i];
    }
    ck_assert(same_shape(shape_of(result), t->y));
    assert_close(result, y, 0, 0, "where");
    if (count_of(t->a)) assert_close(gd_grad(a), da, 2, (double)count, "where");
    if (count_of(t->b)) assert_close(gd_grad(b), db, 2, (double)count, "where");
    free(cv), free(av), free(bv), free(y), free(da), free(db), free(dy);
    gd_step_end(ctx);
}

TEST(where_chooses)
{
    for (size_t t = 0; t < sizeof triples / sizeof *triples; t++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            for (int dtype = 0; dtype < 4; dtype++)
                check_where(&triples[t], (gd_dtype)dtype, layout);
}

/* What is not chosen has no influence, not even by way of 0 times infinity. */
TEST(where_hides_what_is_not_chosen)
{
    gd_tensor *c = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){1, 0});
    gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){1, NAN});
    gd_tensor_set_requires_grad(a, true);
    gd_tensor *y = gd_where(c, a, gd_tensor_create(ctx, GD_FLOAT32, 0, NULL));
    gd_keep(y);
    gd_backward_from(&y, 1, NULL);
    assert_close(y, (double[]){1, 0}, 0, 0, "where");
    assert_close(gd_grad(a), (double[]){1, 0}, 0, 0, "where");
}

CHECK_MAIN_WITHIN("broadcast", setup, teardown)
