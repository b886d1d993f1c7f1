/* test.c - reshape, permute, slice, expand, concat, flip, tril, triu, contiguous, cast and
 * arange, against plain loops over indices. */
#include "one_context.h"

#include "shape/shape.h"

/* ---- A model of a view: which element of the leaf each of its elements is ------------------- */

typedef struct model {
    shape s;
    int64_t *source; /* [count_of(s)] */
} model;

static model model_like(shape s)
{
    model m = {s, calloc((size_t)count_of(s) + 1, sizeof(int64_t))};
    ck_assert_ptr_nonnull(m.source);
    return m;
}

/* The model of the leaf itself. */
static model identity(shape s)
{
    model m = model_like(s);
    for (int64_t i = 0; i < count_of(s); i++) m.source[i] = i;
    return m;
}

static int64_t place_of(shape s, const int64_t *index)
{
    int64_t place = 0;
    for (int d = 0; d < s.ndim; d++) place = place * s.dim[d] + index[d];
    return place;
}

static void replace(model *m, model next)
{
    free(m->source);
    *m = next;
}

static void permute_model(model *m, const int *axes)
{
    model next = model_like(m->s);
    for (int d = 0; d < m->s.ndim; d++) next.s.dim[d] = m->s.dim[axes[d]];
    for (int64_t i = 0; i < count_of(next.s); i++) {
        int64_t index[GD_MAX_DIMS], from[GD_MAX_DIMS];
        unravel(next.s, i, index);
        for (int d = 0; d < m->s.ndim; d++) from[axes[d]] = index[d];
        next.source[i] = m->source[place_of(m->s, from)];
    }
    replace(m, next);
}

static void slice_model(model *m, int axis, int64_t start, int64_t end)
{
    shape s = m->s;
    s.dim[axis] = end - start;
    model next = model_like(s);
    for (int64_t i = 0; i < count_of(s); i++) {
        int64_t index[GD_MAX_DIMS];
        unravel(s, i, index);
        index[axis] += start;
        next.source[i] = m->source[place_of(m->s, index)];
    }
    replace(m, next);
}

static void expand_model(model *m, shape s)
{
    model next = model_like(s);
    for (int64_t i = 0; i < count_of(s); i++)
        next.source[i] = m->source[broadcast_place(m->s, s, i)];
    replace(m, next);
}

/* Whole numbers that float32 would round, and that are no pieces of a float64. */
static double largest_value(gd_dtype dtype)
{
    return dtype == GD_INT32 ? INT32_MAX : 2;
}

/* ---- Random chains of ops ----------------------------------------------------------------- */

static gd_tensor *random_permute(gd_tensor *x, model *m)
{
    int axes[GD_MAX_DIMS], given[GD_MAX_DIMS], ndim = m->s.ndim;
    for (int d = 0; d < ndim; d++) {
        int swap = (int)random_below(&seed, d + 1);
        axes[d] = d;
        axes[d] = axes[swap];
        axes[swap] = d;
    }
    for (int d = 0; d < ndim; d++) given[d] = random_below(&seed, 2) ? axes[d] : axes[d] - ndim;
    permute_model(m, axes);
    return gd_permute(x, given);
}

static gd_tensor *random_transpose(gd_tensor *x, model *m)
{
    int axes[GD_MAX_DIMS], ndim = m->s.ndim;
    if (ndim == 0) return x;
    int a = (int)random_below(&seed, ndim), b = (int)random_below(&seed, ndim);
    for (int d = 0; d < ndim; d++) axes[d] = d == a ? b : d == b ? a : d;
    permute_model(m, axes);
    return gd_transpose(x, a - ndim, b);
}

static gd_tensor *random_slice(gd_tensor *x, model *m)
{
    if (m->s.ndim == 0) return x;
    int axis = (int)random_below(&seed, m->s.ndim);
    int64_t size = m->s.dim[axis], start = random_below(&seed, size + 1);
    int64_t end = start + random_below(&seed, size - start + 1);
    if (random_below(&seed, 4)) start = 0; /* empty slices end a chain's interest */
    slice_model(m, axis, start, end);
    return gd_slice(x, axis, start, end);
}

/* Takes the size apart into random factors. */
static gd_tensor *random_reshape(gd_tensor *x, model *m)
{
    shape s = {0};
    int64_t rest = count_of(m->s), given[GD_MAX_DIMS];
    while (rest > 1 && s.ndim < 5) {
        int64_t factor = 1 + random_below(&seed, rest);
        while (rest % factor) factor--;
        s.dim[s.ndim++] = factor;
        rest /= factor;
    }
    if (rest != 1) s.dim[s.ndim++] = rest;
    if (random_below(&seed, 3) == 0) s.dim[s.ndim++] = 1;
    memcpy(given, s.dim, sizeof given);
    if (s.ndim && count_of(s) && random_below(&seed, 2)) given[random_below(&seed, s.ndim)] = -1;
    m->s = s;
    return gd_reshape(x, s.ndim, given);
}

static gd_tensor *random_expand(gd_tensor *x, model *m)
{
    shape s = m->s;
    if (count_of(s) > 2000) return x;
    for (int d = 0; d < s.ndim; d++)
        if (s.dim[d] == 1) s.dim[d] = random_below(&seed, 4);
    if (s.ndim < 5 && random_below(&seed, 2)) {
        memmove(s.dim + 1, s.dim, (size_t)s.ndim * sizeof *s.dim);
        s.dim[0] = 1 + random_below(&seed, 3);
        s.ndim++;
    }
    expand_model(m, s);
    return gd_expand(x, s.ndim, s.dim);
}

static gd_tensor *pack(gd_tensor *x, model *m)
{
    (void)m;
    gd_tensor *y = gd_contiguous(x);
    ck_assert(y && gd_tensor_is_contiguous(y));
    ck_assert(y != x && (!gd_tensor_is_contiguous(x) || gd_tensor_data(x) == gd_tensor_data(y)));
    return y;
}

typedef gd_tensor *step(gd_tensor *x, model *m);
static step *const steps[] = {random_permute, random_transpose, random_slice,
                              random_reshape, random_expand,    pack};

/* Two chains from one leaf: the values of both, and the sum of their gradients. */
static void check_chains(gd_dtype dtype, shape s)
{
    const double most = largest_value(dtype);
    gd_tensor *leaf = random_leaf(ctx, dtype, s.ndim, s.dim, -most, most, &seed);
    double *x = values_of(leaf), *dx = zeros(count_of(s));
    double largest = 1;
    for (int chain = 0; chain < 2; chain++) {
        model m = identity(s);
        gd_tensor *y = leaf;
        for (int64_t length = 1 + random_below(&seed, 4); length > 0; length--) {
            y = steps[random_below(&seed, 6)](y, &m);
            ck_assert_msg(y != NULL, "%s", gd_error(ctx));
            if (!same_shape(shape_of(y), m.s)) ck_abort_msg("wrong shape");
        }
        int64_t count = count_of(m.s);
        double *wanted = zeros(count);
        for (int64_t i = 0; i < count; i++) wanted[i] = x[m.source[i]];
        assert_close(y, wanted, 0, 0, "values of a chain");
        ck_assert_int_eq(gd_tensor_dtype(y), dtype);
        ck_assert(gd_tensor_requires_grad(y) == (dtype != GD_INT32));
        if (y != leaf && dtype != GD_INT32) {
            double *dy = backward_random(ctx, y, &seed);
            for (int64_t i = 0; i < count; i++) dx[m.source[i]] += dy[i];
            free(dy);
        }
        largest += (double)count / (double)(count_of(s) ? count_of(s) : 1);
        free(wanted), free(m.source);
    }
    /* 16-bit gradients round at every step of the way. */
    bool coarse = dtype == GD_BFLOAT16 || dtype == GD_FLOAT16;
    double lost = coarse ? 16 * rounding_of(dtype) / 0x1p-24 : 4;
    if (gd_grad(leaf)) assert_close(gd_grad(leaf), dx, lost, largest, "gradient of two chains");
    free(x), free(dx);
    gd_step_end(ctx);
    gd_tensor_free(leaf);
}

TEST(random_chains)
{
    const shape shapes[] = {SHAPE(4, 6, 5), SHAPE(2, 1, 3, 4), SHAPE(12),     SHAPE(1),
                            SCALAR_SHAPE,   SHAPE(2, 0, 3),    SHAPE(1, 5, 1)};
    for (int round = 0; round < test_rounds(3000); round++)
        check_chains((gd_dtype)(round % GD_DTYPE_COUNT), shapes[random_below(&seed, 7)]);
}

TEST(large_transpositions)
{
    const shape shapes[] = {SHAPE(130, 257), SHAPE(257, 130), SHAPE(5, 61, 67)};
    for (int round = 0; round < 6; round++) {
        gd_tensor *leaf = random_leaf(ctx, GD_FLOAT32, shapes[round % 3].ndim,
                                      shapes[round % 3].dim, -2, 2, &seed);
        double *x = values_of(leaf), *dx = zeros(gd_tensor_count(leaf));
        for (int backward = 0; backward < 2; backward++) {
            model m = identity(shapes[round % 3]);
            gd_tensor *y = gd_contiguous(random_permute(leaf, &m));
            gd_keep(y);
            double *dy = backward_random(ctx, y, &seed);
            for (int64_t i = 0; i < count_of(m.s); i++) dx[m.source[i]] += dy[i];
            free(dy), free(m.source);
            gd_step_end(ctx);
        }
        assert_close(gd_grad(leaf), dx, 2, 0, "two transpositions");
        free(x), free(dx);
    }
}

/* ---- Views share memory ------------------------------------------------------------------- */

TEST(views_copy_nothing)
{
    gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(4, 6), -1, 1, &seed);
    float *data = gd_tensor_data(x);
    ck_assert_ptr_eq(gd_tensor_data(gd_reshape(x, GD_SHAPE(3, -1))), data);
    ck_assert_ptr_eq(gd_tensor_data(gd_transpose(x, 0, 1)), data);
    ck_assert_ptr_eq(gd_tensor_data(gd_slice(x, 1, 2, 5)), data + 2);
    ck_assert_ptr_eq(gd_tensor_data(gd_slice(x, -2, 1, 3)), data + 6);
    ck_assert_ptr_eq(gd_tensor_data(gd_expand(x, GD_SHAPE(9, 4, 6))), data);
    ck_assert_ptr_eq(gd_tensor_data(gd_reshape(gd_slice(x, 1, 2, 5), GD_SHAPE(2, 2, 3))), data + 2);
    ck_assert_ptr_eq(gd_tensor_data(gd_contiguous(x)), data);
    ck_assert_ptr_ne(gd_tensor_data(gd_reshape(gd_transpose(x, 0, 1), GD_SHAPE(24))), data);
}

/* The kernels of ops that may be views serve where there is no view to make, as here: they copy
 * what the view would show. */
static void check_copy_of_view(const char *name, gd_tensor *view, gd_tensor *x, const void *args)
{
    gd_op op = *gd_find_op(NULL, name);
    op.view = NULL;
    gd_tensor *copy = gd_apply(&op, &x, 1, args);
    ck_assert_msg(copy != NULL, "%s: %s", name, gd_error(ctx));
    ck_assert(gd_tensor_is_contiguous(copy) && same_shape(shape_of(copy), shape_of(view)));
    double *wanted = values_of(view);
    assert_close(copy, wanted, 0, 0, name);
    free(wanted);
}

TEST(views_and_copies_agree)
{
    for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++) {
        gd_tensor *x =
            random_leaf(ctx, (gd_dtype)dtype, GD_SHAPE(3, 1, 5), -100, 100, &seed); /* [3, 1, 5] */
        const gd_shape_args reshape = {.ndim = 2, .shape = {5, 3}};
        check_copy_of_view("reshape", gd_reshape(x, 2, reshape.shape), x, &reshape);
        check_copy_of_view("contiguous", gd_contiguous(x), x, NULL);
    }
}

/* What is not recorded is a constant, and freeing it leaves x [1, 1, 3]: none of them is
 * x itself. */
TEST(no_function_returns_its_argument)
{
    static const gd_pad_options no_pad;
    static const gd_pool_options of_one = {.kernel = {1, 1}};
    const double values[] = {1, 2, 3};
    const int64_t whole = 3;
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(1, 1, 3), values), *part = NULL;
    gd_tensor_set_requires_grad(x, true);
    gd_no_grad_begin(ctx);
    gd_split(x, 2, 1, &whole, &part);
    gd_tensor *const unchanged[] = {
        gd_reshape(x, 3, gd_tensor_shape(x)),
        gd_expand(x, 3, gd_tensor_shape(x)),
        gd_permute(x, (int[]){0, 1, 2}),
        gd_transpose(x, 1, 1),
        gd_slice(x, 2, 0, 3),
        gd_narrow(x, 2, 0, 3),
        gd_contiguous(x),
        gd_cast(x, GD_FLOAT64),
        gd_concat(&x, 1, 2),
        gd_squeeze(gd_stack(&x, 1, 0), 0),
        gd_roll(x, 2, 0),
        gd_roll(x, 2, -6),
        gd_flip(x, (int[]){0}, 0),
        gd_flip(x, (int[]){0, 1}, 2),
        gd_tril(x, 2),
        part,
        gd_dropout(x, 0),
        gd_pad(x, &no_pad),
        gd_upsample_nearest(x, 1, 1),
        gd_max_pool2d(x, &of_one),
        gd_sum(x, (int[]){0}, 0, false),
        gd_cumsum(x, 0),
        gd_scale(x, 1),
        gd_clamp(x, -INFINITY, INFINITY),
    };
    gd_no_grad_end(ctx);
    for (size_t i = 0; i < sizeof unchanged / sizeof *unchanged; i++) {
        ck_assert_msg(unchanged[i] && unchanged[i] != x, "number %zu", i);
        gd_backward(gd_sum_all(gd_mul(x, unchanged[i])));
        assert_close(gd_grad(x), values, 0, 0, "dx");
        gd_grad_clear(x);
        gd_tensor_free(unchanged[i]);
        assert_close(x, values, 0, 0, "x");
    }
}

/* ---- concat ------------------------------------------------------------------------------- */

static void check_concat(gd_dtype dtype, int count, shape s, int axis, int layout)
{
    gd_tensor *x[4];
    double *xv[4], *dx[4], *dy = NULL;
    const double most = largest_value(dtype);
    shape whole = s;
    whole.dim[axis] = 0;
    for (int k = 0; k < count; k++) {
        shape part = s;
        part.dim[axis] = random_below(&seed, 5);
        whole.dim[axis] += part.dim[axis];
        x[k] = random_tensor(ctx, dtype, part, (enum layout)layout, -most, most, &seed);
        xv[k] = values_of(x[k]);
        dx[k] = zeros(count_of(part));
    }
    gd_tensor *y = gd_concat(x, count, axis - s.ndim);
    gd_keep(y);
    ck_assert(y && same_shape(shape_of(y), whole));
    ck_assert_int_eq(gd_tensor_dtype(y), dtype);
    ck_assert(gd_tensor_requires_grad(y) == (dtype != GD_INT32));
    if (dtype != GD_INT32) dy = backward_random(ctx, y, &seed);
    double *wanted = zeros(count_of(whole));
    for (int64_t i = 0; i < count_of(whole); i++) {
        int64_t index[GD_MAX_DIMS] = {0};
        int k = 0;
        unravel(whole, i, index);
        for (; index[axis] >= gd_tensor_dim(x[k], axis); k++)
            index[axis] -= gd_tensor_dim(x[k], axis);
        int64_t place = place_of(shape_of(x[k]), index);
        wanted[i] = xv[k][place];
        if (dy) dx[k][place] = dy[i];
    }
    assert_close(y, wanted, 0, 0, "concat");
    for (int k = 0; k < count; k++) {
        if (dy && gd_tensor_count(x[k])) assert_close(gd_grad(x[k]), dx[k], 0, 0, "concat");
        free(xv[k]), free(dx[k]);
    }
    free(dy), free(wanted);
    gd_step_end(ctx);
}

TEST(concat_joins)
{
    for (int round = 0; round < test_rounds(300); round++)
        check_concat((gd_dtype)(round % GD_DTYPE_COUNT), 1 + round % 4, SHAPE(2, 3, 4), round % 3,
                     round % 7 % 3);
}

/* ---- cast --------------------------------------------------------------------------------- */

TEST(casts_round_and_carry_gradients)
{
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                gd_tensor *x = random_tensor(ctx, (gd_dtype)from, SHAPE(3, 7), (enum layout)layout,
                                             -2, 2, &seed);
                double *xv = values_of(x), *dx;
                gd_tensor *y = gd_cast(x, (gd_dtype)to);
                gd_keep(y);
                dx = backward_random(ctx, y, &seed);
                ck_assert_int_eq((int)gd_tensor_dtype(y), to);
                assert_close(y, xv, 0, 0, "cast");
                assert_close(gd_grad(x), dx, 0, 0, "gradient of cast");
                free(xv), free(dx);
                gd_step_end(ctx);
            }
}

/* Each of these lies beside the middle between two numbers of the wanted dtype, by less than
 * float32 can tell. */
TEST(casts_round_once)
{
    double y;
    const double above = 1 + 0x1p-8 + 0x1p-40;
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(1), &above);
    gd_tensor_read_f64(gd_cast(x, GD_BFLOAT16), &y, 1);
    ck_assert(y == 1 + 0x1p-7);
    const int32_t whole = (1 << 24) + (1 << 16) + 1;
    x = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(1), &whole);
    gd_tensor_read_f64(gd_cast(x, GD_BFLOAT16), &y, 1);
    ck_assert(y == (1 << 24) + (1 << 17));
    gd_tensor_read_f64(gd_cast(x, GD_FLOAT32), &y, 1);
    ck_assert(y == (1 << 24) + (1 << 16));
    gd_tensor_read_f64(gd_cast(x, GD_FLOAT16), &y, 1);
    ck_assert(isinf(y));
}

TEST(casts_from_and_to_whole_numbers)
{
    const double given[] = {0.9, -0.9, 3.5, -3.5, 1e30, -1e30, NAN};
    const double wanted[] = {0, 0, 3, -3, 2147483647, -2147483648.0, 0};
    for (int dtype = 0; dtype < 3; dtype++) {
        gd_tensor *x = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(7));
        gd_tensor_write_f64(x, given, 7);
        gd_tensor_set_requires_grad(x, true);
        gd_tensor *y = gd_cast(x, GD_INT32);
        ck_assert_int_eq((int)gd_tensor_dtype(y), GD_INT32);
        ck_assert(!gd_tensor_requires_grad(y));
        assert_close(y, wanted, 0, 0, "to int32");
        gd_tensor *back = gd_cast(y, (gd_dtype)dtype);
        ck_assert(!gd_tensor_requires_grad(back));
        assert_close(back, wanted, 0, 0, "from int32");
    }
}

/* ---- flip, tril, triu, arange and other names --------------------------------------------- */

/* Of every dtype, any layout, added and not. */
TEST(flips_and_triangles)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    const shape s = {3, {2, 4, 5}};
    const int axes[] = {-1, 0};
    for (int k = 0; k < 80; k++) {
        const int op = k % 5; /* flip of two axes, of all, of none; tril; triu */
        const int64_t diagonal = k / 5 % 8 - 4;
        gd_tensor *x =
            random_tensor(ctx, dtypes[k / 20], s, (enum layout)(k % LAYOUTS), -2, 2, &seed);
        gd_tensor *y = op < 3 ? gd_flip(x, op == 1 ? NULL : axes, op == 0 ? 2 : 0)
                              : (op == 3 ? gd_tril : gd_triu)(x, diagonal);
        gd_tensor *twice = gd_add(y, gd_scale(x, 0.5)); /* so that a gradient is added to one */
        double *xv = values_of(x), *want = zeros(40), *dx = zeros(40);
        double *dy = backward_random(ctx, gd_keep(twice), &seed);
        for (int i = 0; i < 40; i++) {
            const int a = i / 20, b = i / 5 % 4, c = i % 5;
            const int from = op == 0 ? (1 - a) * 20 + b * 5 + 4 - c : op == 1 ? 39 - i : i;
            const bool kept = op < 3 || (op == 3 ? c - b <= diagonal : c - b >= diagonal);
            want[i] = (kept ? xv[from] : 0) + 0.5 * xv[i];
            dx[from] += kept ? dy[i] : 0;
            dx[i] += 0.5 * dy[i];
        }
        assert_close(twice, want, 2, 1, "y");
        assert_close(gd_grad(x), dx, 4, 1, "dx");
        free(xv), free(want), free(dx), free(dy);
        gd_step_end(ctx);
    }
    gd_tensor *ids =
        gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 2), (int32_t[]){1, 2, 3, 1 << 24 | 1});
    assert_close(gd_flip(ids, NULL, 0), (double[]){1 << 24 | 1, 3, 2, 1}, 0, 0, "ids");
    assert_close(gd_triu(ids, 0), (double[]){1, 2, 0, 1 << 24 | 1}, 0, 0, "ids");
    assert_close(gd_tril(ids, INT64_MIN), (double[]){0, 0, 0, 0}, 0, 0, "nothing");
    assert_close(gd_tril(ids, INT64_MAX), (double[]){1, 2, 3, 1 << 24 | 1}, 0, 0, "everything");
    gd_tensor *nan = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 2));
    gd_tensor_fill(nan, NAN);
    assert_close(gd_tril(nan, 0), (double[]){NAN, 0, NAN, NAN}, 0, 0, "NaN is replaced");
    REFUSED(gd_flip(nan, (int[]){0, -2}, 2), "flip: axis -2 of x [2, 2] is listed twice");
    REFUSED(gd_flip(nan, (int[]){2}, 1),
            "flip: axis is 2, wanted one of the 2 dimensions of x [2, 2]");
}

TEST(ranges)
{
    gd_tensor *t = gd_arange(ctx, GD_INT32, 3, -4, -2);
    assert_close(t, (double[]){3, 1, -1, -3}, 0, 0, "down");
    gd_tensor_free(t);
    t = gd_arange(ctx, GD_FLOAT32, 0, 1, 0.25);
    assert_close(t, (double[]){0, 0.25, 0.5, 0.75}, 0, 0, "without the end");
    gd_tensor_free(t);
    t = gd_arange(ctx, GD_FLOAT16, 0, 5000, 1);
    ck_assert_int_eq(gd_tensor_dim(t, 0), 5000);
    ck_assert_double_eq(gd_item(gd_slice(t, 0, 4999, 5000)), 5000); /* of 11 bits */
    gd_tensor_free(t);
    t = gd_arange(ctx, GD_FLOAT32, 2, 2, 1);
    ck_assert_int_eq(gd_tensor_count(t), 0);
    gd_tensor_free(t);
    t = gd_arange(ctx, GD_FLOAT32, 2, 1, 1);
    ck_assert_int_eq(gd_tensor_count(t), 0);
    gd_tensor_free(t);
    REFUSED(gd_arange(ctx, GD_FLOAT32, 0, 1, 0),
            "arange: start is 0, end 1 and step 0, wanted finite numbers, a step other");
    REFUSED(gd_arange(ctx, GD_FLOAT32, 0, INFINITY, 1), "arange: start is 0, end inf and step 1");
    REFUSED(gd_arange(ctx, GD_INT32, 0, 2, 0.5),
            "element 1 is 0.5, wanted a whole number that int32 can hold");
}

TEST(dimensions_of_size_1_come_and_go)
{
    gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(3, 5), -1, 1, &seed);
    gd_tensor *front = gd_unsqueeze(x, 0), *back = gd_unsqueeze(x, -1), *same = gd_squeeze(back, 2);
    ck_assert_text_eq(gd_shape_text(front), "[1, 3, 5]");
    ck_assert_text_eq(gd_shape_text(back), "[3, 5, 1]");
    ck_assert_text_eq(gd_shape_text(same), "[3, 5]");
    ck_assert_ptr_eq(gd_tensor_data(same), gd_tensor_data(x));
    gd_tensor *part = gd_narrow(x, 1, 2, 3);
    ck_assert_text_eq(gd_shape_text(part), "[3, 3]");
    ck_assert_ptr_eq(gd_tensor_data(part), (float *)gd_tensor_data(x) + 2);
    REFUSED(gd_squeeze(x, 1), "squeeze: axis 1 of x [3, 5] has size 5, wanted 1");
    REFUSED(gd_unsqueeze(x, 3), "unsqueeze: axis is 3");
    REFUSED(gd_narrow(x, 1, 3, INT64_MAX), "narrow: start is 3");
}

TEST(stack_joins_along_a_new_axis)
{
    enum { MANY = 37 };
    gd_tensor *x[MANY];
    for (int i = 0; i < MANY; i++) {
        x[i] = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){(float)i, (float)-i});
        gd_tensor_set_requires_grad(x[i], true);
    }
    for (int axis = -2; axis < 2; axis++) {
        gd_tensor *y = gd_keep(gd_stack(x, MANY, axis));
        bool front = axis == 0 || axis == -2;
        ck_assert_text_eq(gd_shape_text(y), front ? "[37, 2]" : "[2, 37]");
        double values[2 * MANY], dx[2];
        gd_tensor_read_f64(y, values, 2 * MANY);
        for (int i = 0; i < MANY; i++) {
            ck_assert_double_eq(values[front ? 2 * i : i], i);
            ck_assert_double_eq(values[front ? 2 * i + 1 : MANY + i], -i);
        }
        gd_backward(gd_sum_all(gd_mul(y, y)));
        gd_tensor_read_f64(gd_grad(x[5]), dx, 2);
        ck_assert(dx[0] == 10 && dx[1] == -10);
        for (int i = 0; i < MANY; i++) gd_grad_clear(x[i]);
        gd_step_end(ctx);
    }
    ck_assert_ptr_null(gd_stack((gd_tensor *[]){x[0], NULL}, 2, 0));
    gd_error_clear(ctx);
}

CHECK_MAIN_WITHIN("shape", setup, teardown)
