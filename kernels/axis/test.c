/* test.c - gather and scatter_add against their plain twins, cumsum, argmax, topk and sort against
 * loops over coordinates, as PyTorch's documentation defines them; and at their edges. */
#include "twin.h"

#include "axis/axis.h"
#include "test_long_gathers.h"
#include "test_long_sorts.h"
#include "one_context.h"

TWIN(gather)
TWIN(scatter_add)

/* A shape of 1 to 3 dimensions; and one that is nowhere larger, or anywhere along the axis. */
static shape random_shape(void)
{
    shape s = {(int)random_size(&seed, 1, 3), {0}};
    for (int d = 0; d < s.ndim; d++) s.dim[d] = random_size(&seed, 1, d ? 9 : 40);
    return s;
}

static shape smaller_shape(shape s, int free_axis)
{
    for (int d = 0; d < s.ndim; d++)
        s.dim[d] = d == free_axis ? random_size(&seed, 0, 30) : random_size(&seed, 1, s.dim[d]);
    return s;
}

LOOP_TEST(gather_is_its_plain_twin, test_rounds(60))
{
    const gd_dtype dtype = dtypes[_i % 4];
    seed = 100 + (uint64_t)_i;
    const shape s = random_shape();
    const int axis = (int)random_below(&seed, s.ndim);
    const shape t = smaller_shape(s, axis);
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)(_i % LAYOUTS), -2, 2, &seed);
    gd_tensor *index = random_tensor(ctx, GD_INT32, t, (enum layout)(_i / 4 % LAYOUTS), 0,
                                     (double)s.dim[axis], &seed);
    const gd_axis_args args = {.axis = axis};
    gd_tensor *const in[] = {x, index};
    assert_twin(gather_twin(), in, 2, &args, 30 * tolerance_of(dtype), &seed);
    assert_called(gd_gather(x, _i % 2 ? axis : axis - s.ndim, index), t, "gather", in, 2, &args);
}

LOOP_TEST(scatter_add_is_its_plain_twin, test_rounds(60))
{
    const gd_dtype dtype = dtypes[_i % 4];
    seed = 100 + (uint64_t)_i;
    const shape s = random_shape();
    const int axis = (int)random_below(&seed, s.ndim);
    shape t = smaller_shape(s, axis), u = t;
    for (int d = 0; d < u.ndim; d++) u.dim[d] += random_below(&seed, 3);
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)(_i % LAYOUTS), -2, 2, &seed);
    gd_tensor *src = random_tensor(ctx, dtype, u, (enum layout)(_i / 4 % LAYOUTS), -2, 2, &seed);
    gd_tensor *index = random_tensor(ctx, GD_INT32, t, (enum layout)(_i / 16 % LAYOUTS), 0,
                                     (double)s.dim[axis], &seed);
    const gd_axis_args args = {.axis = axis};
    gd_tensor *const in[] = {x, index, src};
    assert_twin(scatter_add_twin(), in, 3, &args, 30 * tolerance_of(dtype), &seed);
    assert_called(gd_scatter_add(x, axis, index, src), s, "scatter_add", in, 3, &args);
}

LOOP_TEST(cumsum_is_the_definition, test_rounds(60))
{
    const gd_dtype dtype = dtypes[_i % 4];
    seed = 100 + (uint64_t)_i;
    const shape s = random_shape();
    const int axis = (int)random_below(&seed, s.ndim);
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)(_i % LAYOUTS), -2, 2, &seed);
    double *xv = values_of(x), *want = zeros(count_of(s)), *dx = zeros(count_of(s));
    gd_tensor *y = gd_keep(gd_cumsum(x, _i % 2 ? axis : axis - s.ndim));
    double *dy = backward_random(ctx, y, &seed);
    for (int64_t i = 0; i < count_of(s); i++) {
        int64_t index[GD_MAX_DIMS];
        unravel(s, i, index);
        for (int64_t j = 0; j < s.dim[axis]; j++) {
            const int64_t other = pointed(s, s, i, axis, j);
            if (j <= index[axis]) want[i] += xv[other];
            if (j >= index[axis]) dx[i] += dy[other];
        }
    }
    assert_sums("y", y, want, tolerance_of(dtype));
    assert_sums("dx", gd_grad(x), dx, tolerance_of(dtype));
    free(xv), free(want), free(dx), free(dy);
}

/* Whether a comes before b among the largest (smallest). */
static bool comes_first(const double *v, int64_t a, int64_t b, bool largest)
{
    if (isnan(v[a]) && isnan(v[b])) return a < b;
    if (isnan(v[a]) || isnan(v[b])) return (bool)isnan(v[a]) == largest;
    if (v[a] == v[b]) return a < b;
    return (v[a] > v[b]) == largest;
}

/* The place of each element in the order is how many come before it. */
LOOP_TEST(topk_is_the_sorted_order, test_rounds(60))
{
    const gd_dtype dtype = dtypes[_i % 4];
    seed = 100 + (uint64_t)_i;
    const shape s = random_shape();
    const int axis = (int)random_below(&seed, s.ndim);
    const int64_t n = s.dim[axis], k = _i % 2 ? n : random_size(&seed, 0, n);
    const bool largest = _i % 3;
    shape t = s;
    t.dim[axis] = k;
    gd_tensor *x = gd_tensor_create(ctx, dtype, s.ndim, s.dim), *index;
    double *xv = zeros(count_of(s)), *want = zeros(count_of(t)), *at = zeros(count_of(t)),
           *dx = zeros(count_of(s)), *line = zeros(n);
    for (int64_t i = 0; i < count_of(s); i++) /* of few values, so that many are equal */
        xv[i] = random_chance(&seed, 0.1) ? NAN : floor(random_in(&seed, -4, 4)) / 2;
    gd_tensor_write_f64(x, xv, count_of(s));
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = k == n && _i % 4 < 3 ? gd_sort(x, axis - s.ndim, largest, &index)
                                        : gd_topk(x, k, axis, largest, &index);
    gd_keep(y);
    double *dy = backward_random(ctx, y, &seed);
    for (int64_t i = 0; i < count_of(s); i++) {
        int64_t here[GD_MAX_DIMS], before = 0;
        unravel(s, i, here);
        for (int64_t j = 0; j < n; j++) line[j] = xv[pointed(s, s, i, axis, j)];
        for (int64_t j = 0; j < n; j++) before += comes_first(line, j, here[axis], largest);
        if (before >= k) continue;
        const int64_t to = pointed(s, t, i, axis, before);
        want[to] = xv[i];
        at[to] = (double)here[axis];
        dx[i] = dy[to];
    }
    ck_assert(same_shape(shape_of(y), t) && same_shape(shape_of(index), t));
    assert_sums("values", y, want, 0);
    assert_sums("indices", index, at, 0);
    assert_sums("dx", gd_grad(x), dx, 0);
    if (k > 0 && largest) { /* the first of them */
        gd_tensor *first = gd_argmax(x, axis - s.ndim, true);
        ck_assert_int_eq(gd_tensor_dim(first, axis), 1);
        double *a = values_of(first), *b = values_of(gd_slice(index, axis, 0, 1));
        ck_assert(memcmp(a, b, (size_t)gd_tensor_count(first) * sizeof *a) == 0);
        ck_assert_int_eq(gd_tensor_ndim(gd_argmax(x, axis, false)), s.ndim - 1);
        free(a), free(b);
    }
    free(xv), free(want), free(at), free(dx), free(line), free(dy);
}

/* The examples of PyTorch's documentation: torch.gather, Tensor.scatter_add_, torch.cumsum. */
TEST(the_documented_examples)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){1, 2, 3, 4});
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 2), (int32_t[]){0, 0, 1, 0});
    assert_sums("gather", gd_gather(x, 1, t), (double[]){1, 1, 4, 3}, 0);
    gd_tensor *zero = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 5));
    gd_tensor *ones = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 5));
    gd_tensor_fill(zero, 0), gd_tensor_fill(ones, 1);
    gd_tensor *row = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(1, 5), (int32_t[]){0, 1, 2, 0, 0});
    gd_tensor *two =
        gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 5), (int32_t[]){0, 1, 2, 0, 0, 0, 1, 2, 2, 2});
    assert_sums("one row", gd_scatter_add(zero, 0, row, ones),
                (double[]){1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0}, 0);
    assert_sums("two rows", gd_scatter_add(zero, 0, two, ones),
                (double[]){2, 0, 0, 1, 1, 0, 2, 0, 0, 0, 0, 0, 2, 1, 1}, 0);
    gd_tensor *five = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(5), (float[]){1, 2, 3, 4, 5}), *at;
    assert_sums("cumsum", gd_cumsum(five, 0), (double[]){1, 3, 6, 10, 15}, 0);
    assert_sums("topk", gd_topk(five, 3, 0, true, &at), (double[]){5, 4, 3}, 0);
    assert_sums("its indices", at, (double[]){4, 3, 2}, 0);
}

/* NaN and infinity stay on their line. */
TEST(nan_and_infinity)
{
    const float values[] = {1, INFINITY, -INFINITY, 2, NAN, 3, 4, 5};
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 4), values);
    assert_sums("cumsum", gd_cumsum(x, 1), (double[]){1, INFINITY, NAN, NAN, NAN, NAN, NAN, NAN},
                0);
    assert_sums("argmax", gd_argmax(x, 1, false), (double[]){1, 0}, 0);
    gd_tensor *lowest;
    gd_topk(x, 2, 1, false, &lowest);
    assert_sums("lowest", lowest, (double[]){2, 0, 1, 2}, 0);
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 2), (int32_t[]){0, 3, 1, 3});
    assert_sums("gather", gd_gather(x, 1, t), (double[]){1, 2, 3, 5}, 0);
    gd_tensor *zero = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 2));
    gd_tensor_fill(zero, -0.0); /* keeps its sign, as in any copy */
    double copy[2];
    gd_tensor_read_f64(gd_gather(zero, 0, gd_slice(t, 1, 0, 1)), copy, 2);
    ck_assert(signbit(copy[0]) && signbit(copy[1]));
    gd_tensor_fill(zero, 0);
    gd_tensor *first = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2, 4));
    gd_tensor_fill(first, 1);
    assert_sums("scatter_add", gd_scatter_add(zero, 1, first, x), (double[]){0, NAN, 0, NAN}, 0);
}

/* 200000 times 0.1, summed in float, would be off in the third digit. */
TEST(sums_are_in_double)
{
    enum { N = 200000 };
    gd_tensor *src = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(N));
    gd_tensor *zero = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2));
    gd_tensor *one = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(N));
    gd_tensor_fill(src, 0.1), gd_tensor_fill(zero, 0), gd_tensor_fill(one, 1);
    const double sum = N * (double)0.1f;
    assert_near(gd_scatter_add(zero, 0, one, src), (double[]){0, sum}, 1, (bound){0, 1e-7, 0},
                "added");
    gd_tensor *last = gd_slice(gd_cumsum(src, 0), 0, N - 1, N);
    assert_near(last, &sum, 1, (bound){0, 1e-7, 0}, "summed");
}

LOOP_TEST(long_sorts, 4)
{
    check_long_sorts(ctx, dtypes[_i], &seed);
}

LOOP_TEST(long_gathers_are_the_definition, 4 * (LONG_GATHERS - 1))
{
    check_long_gather(ctx, &long_gathers[_i / 4], dtypes[_i % 4], &seed);
}

TEST(one_hot_rows)
{
    gd_tensor *ids = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 2), (int32_t[]){2, 0, 1, 2});
    for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++) {
        gd_tensor *y = gd_one_hot(ids, 3, (gd_dtype)dtype);
        ck_assert(gd_tensor_dtype(y) == (gd_dtype)dtype);
        ck_assert(same_shape(shape_of(y), SHAPE(2, 2, 3)));
        assert_sums("one_hot", y, (double[]){0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1}, 0);
    }
    gd_tensor *column = gd_slice(ids, 1, 1, 2); /* strided */
    assert_sums("column", gd_one_hot(column, 3, GD_FLOAT32), (double[]){1, 0, 0, 0, 0, 1}, 0);
    gd_tensor *none = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(0));
    ck_assert(same_shape(shape_of(gd_one_hot(none, 0, GD_FLOAT32)), SHAPE(0, 0)));
    REFUSED(gd_one_hot(ids, 2, GD_FLOAT32), "one_hot: ids[0] is 2, wanted 0 to 1");
}

TEST(what_is_refused)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3)), *at = x;
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 0));
    gd_tensor *scalar = gd_tensor_create(ctx, GD_FLOAT32, 0, NULL);
    const int32_t below[] = {0, -1, 2, 0}, above[] = {0, 1, 3, 0};
    gd_tensor *low = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 2), below);
    gd_tensor *high = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 2), above);
    gd_tensor *good = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2, 3));
    gd_tensor_fill(good, 0);
    REFUSED(gd_gather(x, 1, low),
            "gather: element 1 of index [2, 2] is -1, wanted 0 to 2, along axis 1 of x [2, 3]");
    REFUSED(gd_gather(x, 1, high), "gather: element 2 of index [2, 2] is 3, wanted 0 to 2");
    REFUSED(gd_gather(none, 1, good),
            "gather: index is [2, 3], but axis 1 of x [2, 0] has no elements, wanted no indices");
    REFUSED(gd_gather(x, 0, high),
            "gather: element 2 of index [2, 2] is 3, wanted 0 to 1, along axis 0");
    REFUSED(gd_scatter_add(none, 1, good, x),
            "scatter_add: index is [2, 3], but axis 1 of x [2, 0]");
    REFUSED(gd_scatter_add(x, 1, low, x), "scatter_add: element 1 of index [2, 2] is -1");
    REFUSED(gd_argmax(none, 1, false),
            "argmax: axis 1 of x [2, 0] has 0 elements, wanted 1 to 2147483647");
    REFUSED(gd_argmax(scalar, 0, false), "argmax: axis is 0");
    REFUSED(gd_topk(x, 4, 1, true, &at),
            "topk: k is 4, wanted at most 3, the size of axis 1 of x [2, 3]");
    ck_assert_ptr_null(at);
    REFUSED(gd_argmax(gd_expand(scalar, 1, (int64_t[]){INT64_C(1) << 31}), 0, false),
            "argmax: axis 0 of x [2147483648] has 2147483648 elements, wanted 1 to 2147483647");
}

TEST(roll_split_and_index_select)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(2, 3), (double[]){1, 2, 3, 4, 5, 6});
    gd_tensor *u = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(2, 3), (double[]){7, 8, 9, 10, 11, 12});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = gd_keep(gd_roll(x, -1, 4)); /* as by 1 */
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &u});
    assert_close(y, (double[]){3, 1, 2, 6, 4, 5}, 0, 0, "roll");
    assert_close(gd_grad(x), (double[]){8, 9, 7, 11, 12, 10}, 0, 0, "roll's dx");
    assert_close(gd_roll(x, 1, -1), (double[]){2, 3, 1, 5, 6, 4}, 0, 0, "roll back");
    assert_close(gd_roll(x, 0, 0), (double[]){1, 2, 3, 4, 5, 6}, 0, 0, "roll by 0");
    gd_tensor *five = gd_arange(ctx, GD_FLOAT64, 0, 5, 1);
    assert_close(gd_roll(five, 0, INT64_MIN), (double[]){3, 4, 0, 1, 2}, 0, 0, "roll far back");
    assert_close(gd_roll(five, 0, INT64_MAX), (double[]){3, 4, 0, 1, 2}, 0, 0, "roll far");

    gd_tensor *parts[2];
    ck_assert_int_eq(gd_split(x, 1, 2, (int64_t[]){1, 2}, parts), GD_OK);
    assert_close(parts[0], (double[]){1, 4}, 0, 0, "first part");
    assert_close(parts[1], (double[]){2, 3, 5, 6}, 0, 0, "second part");
    ck_assert(gd_split(x, 1, 2, (int64_t[]){1, 1}, parts) && !parts[0] && !parts[1]);
    ck_assert_error(ctx,
                    "split: wanted sizes of at least 0 that add up to 3, the size of axis 1 of x "
                    "[2, 3]");
    ck_assert(gd_split(x, 1, 2, (int64_t[]){3, 1}, parts) != GD_OK);
    ck_assert_error(ctx,
                    "split: wanted sizes of at least 0 that add up to 3, the size of axis 1 of x "
                    "[2, 3]");

    ck_assert(gd_split(x, 1, 2, NULL, parts) && !parts[0]);
    ck_assert_error(ctx, "split: sizes is NULL, wanted [2]");
    ck_assert(gd_split(x, 1, 2, (int64_t[]){1, 2}, NULL));
    ck_assert_error(ctx, "split: parts is NULL, wanted [2]");

    gd_tensor *index = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(4), (int32_t[]){2, 0, 2, 1});
    gd_tensor *z = gd_keep(gd_index_select(x, 1, index));
    gd_tensor_fill(gd_grad(x), 0);
    gd_backward_from(&z, 1, NULL);
    assert_close(z, (double[]){3, 1, 3, 2, 6, 4, 6, 5}, 0, 0, "index_select");
    assert_close(gd_grad(x), (double[]){1, 1, 2, 1, 1, 2}, 0, 0, "index_select's dx");
    REFUSED(gd_index_select(x, 1, u),
            "index_select: index is float64 [2, 3], wanted int32; use gd_cast");
    REFUSED(gd_index_select(x, 0, index),
            "index_select: element 0 of index [4, 1] is 2, wanted 0 to 1");
    REFUSED(gd_roll(x, 2, 1), "roll: axis is 2, wanted one of the 2 dimensions of x [2, 3]");
}

/* ---- Whole numbers ------------------------------------------------------------------------- */

static void ck_assert_ints(const gd_tensor *t, const int32_t *want, int64_t n)
{
    int32_t got[64];
    ck_assert_no_error(ctx);
    ck_assert_int_eq(gd_tensor_dtype(t), GD_INT32);
    ck_assert_int_eq(gd_tensor_count(t), n);
    ck_assert_int_eq(gd_tensor_read(t, got, (size_t)n * sizeof *got), GD_OK);
    for (int64_t i = 0; i < n; i++) ck_assert_int_eq(got[i], want[i]);
}

/* Among them those that are NaN, infinity and denormal, read as floats. */
#define WORDS INT32_MIN, 0x7f800001, 0x7fc00000, 1, -1, INT32_MAX

TEST(whole_numbers_are_moved)
{
    const int32_t words[] = {WORDS};
    gd_tensor *x = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(6), words);
    gd_tensor *index = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(7), (int32_t[]){5, 1, 0, 1, 4, 2, 3});
    const int32_t chosen[] = {words[5], words[1], words[0], words[1], words[4], words[2], words[3]};
    ck_assert_ints(gd_index_select(x, 0, index), chosen, 7);
    ck_assert_ints(gd_gather(x, 0, index), chosen, 7);
    gd_tensor *rows = gd_permute(gd_reshape(x, GD_SHAPE(2, 3)), (int[]){1, 0}); /* [3, 2] */
    gd_tensor *two = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){2, 1});
    ck_assert_ints(gd_index_select(rows, 0, two),
                   (int32_t[]){words[2], words[5], words[1], words[4]}, 4);
    gd_tensor *mask = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){0, 7});
    gd_tensor *five = gd_tensor_from(ctx, GD_INT32, 0, NULL, &(int32_t){5});
    ck_assert_ints(gd_where(mask, rows, five), (int32_t[]){5, words[3], 5, words[4], 5, words[5]},
                   6);
    gd_tensor *parts[] = {gd_slice(x, 0, 4, 6), two, gd_slice(x, 0, 0, 1)};
    ck_assert_ints(gd_concat(parts, 3, 0), (int32_t[]){-1, INT32_MAX, 2, 1, INT32_MIN}, 5);
}

/* Floats hold neither of the first two. */
TEST(whole_numbers_are_compared)
{
    gd_tensor *a =
        gd_tensor_from(ctx, GD_INT32, GD_SHAPE(4), (int32_t[]){16777217, 2147483646, -3, 0});
    gd_tensor *b =
        gd_tensor_from(ctx, GD_INT32, GD_SHAPE(4), (int32_t[]){16777216, INT32_MAX, -3, 0});
    ck_assert_ints(gd_eq(a, b), (int32_t[]){0, 0, 1, 1}, 4);
    ck_assert_ints(gd_ne(a, b), (int32_t[]){1, 1, 0, 0}, 4);
    ck_assert_ints(gd_lt(a, b), (int32_t[]){0, 1, 0, 0}, 4);
    ck_assert_ints(gd_le(a, b), (int32_t[]){0, 1, 1, 1}, 4);
    ck_assert_ints(gd_gt(a, b), (int32_t[]){1, 0, 0, 0}, 4);
    ck_assert_ints(gd_ge(gd_reshape(a, GD_SHAPE(4, 1)), gd_slice(b, 0, 2, 4)),
                   (int32_t[]){1, 1, 1, 1, 1, 0, 1, 1}, 8);
}

TEST(places_of_a_mask)
{
    gd_tensor *mask =
        gd_tensor_from(ctx, GD_INT32, GD_SHAPE(3, 3), (int32_t[]){0, 1, 0, -5, 0, 0, 2, 0, 1});
    gd_tensor *count = gd_tensor_create(ctx, GD_INT32, 0, NULL);
    for (int k = 0; k < 12; k++) {
        const int32_t want[12] = {1, 3, 6, 8};
        gd_tensor *places = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(k));
        gd_tensor_fill(places, 77);
        ck_assert_int_eq(gd_nonzero(mask, places, count), GD_OK);
        ck_assert_ints(places, want, k);
        ck_assert_int_eq((int)gd_item(count), 4);
    }
    gd_tensor *places = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(9));
    gd_nonzero(gd_slice(mask, 0, 0, 0), places, count); /* of nothing */
    ck_assert_int_eq((int)gd_item(count), 0);
    gd_nonzero(gd_permute(mask, (int[]){1, 0}), places, gd_reshape(count, GD_SHAPE(1, 1)));
    ck_assert_ints(places, (int32_t[]){1, 2, 3, 8, 0, 0, 0, 0, 0}, 9);
    ck_assert(gd_nonzero(gd_cast(mask, GD_FLOAT32), places, count));
    ck_assert_error(ctx, "nonzero: mask is float32 [3, 3], wanted int32; use gd_cast");
    ck_assert(gd_nonzero(mask, mask, count));
    ck_assert_error(ctx, "nonzero: places is int32 [3, 3], wanted [K]");
    ck_assert(gd_nonzero(mask, NULL, count));
    ck_assert_error(ctx, "nonzero: places is NULL, wanted a tensor");
}

/* Against the definition, with the same random numbers. */
LOOP_TEST(categories_are_drawn, 4)
{
    enum { ROWS = 3000, V = 5 };
    gd_tensor *w = gd_tensor_create(ctx, dtypes[_i], GD_SHAPE(2, ROWS / 2, V));
    gd_tensor *u = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(ROWS));
    static double weight[ROWS * V], fraction[ROWS];
    static int32_t got[ROWS];
    for (int i = 0; i < ROWS * V; i++) weight[i] = (const double[]){2, 0, 1, 4, 1}[i % V];
    weight[V] = weight[V + 2] = weight[V + 3] = weight[V + 4] = 0; /* row 1 */
    weight[2 * V + 3] = NAN;
    weight[3 * V] = INFINITY;
    gd_tensor_write_f64(w, weight, ROWS * V);
    gd_tensor_set_requires_grad(w, true);
    const gd_random_state state = gd_random_get(ctx);
    gd_random_uniform(u, 0, 1);
    gd_tensor_read_f64(u, fraction, ROWS);
    const gd_random_state after = gd_random_get(ctx);
    gd_random_set(ctx, state);
    gd_tensor *k = gd_multinomial(w);
    ck_assert_no_error(ctx);
    ck_assert(gd_random_get(ctx).offset == after.offset && !gd_tensor_requires_grad(k));
    ck_assert_int_eq(gd_tensor_ndim(k), 2);
    ck_assert_int_eq(gd_tensor_read(k, got, sizeof got), GD_OK);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;
        int want = 0;
        while (want < V && !((sum += weight[i * V + want]) > fraction[i] * 8)) want++;
        ck_assert_int_eq(got[i], i >= 1 && i <= 3 ? -1 : want);
    }
    /* near the smallest number a fraction of the total is rounded, too */
    const double least = ldexp(1, dtypes[_i] == GD_FLOAT64 ? -1074 : -24);
    for (int i = 0; i < ROWS * V; i++) weight[i] = i % V == 1 || i % V == 3 ? least : 0;
    gd_tensor_write_f64(w, weight, ROWS * V);
    gd_tensor_read(gd_multinomial(w), got, sizeof got);
    for (int i = 0; i < ROWS; i++) ck_assert(got[i] == 1 || got[i] == 3);
    gd_tensor *one = gd_multinomial(gd_slice(gd_reshape(w, GD_SHAPE(ROWS * V)), 0, 0, V));
    ck_assert(gd_tensor_ndim(one) == 0 && gd_item(one) >= 0);
    REFUSED(gd_multinomial(k), "multinomial: weights is int32 ");
    REFUSED(gd_multinomial(gd_slice(w, 2, 0, 0)),
            "multinomial: weights is [2, 1500, 0], wanted [..., V] with V > 0");
}

CHECK_MAIN_WITHIN("along one axis", setup, teardown)
