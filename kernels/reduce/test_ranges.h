/* test_ranges.h - var and std over the whole range of a dtype, against long double; for the CPU
 * and for a GPU. */
#ifndef GRADUS_VARIANCE_RANGES_H
#define GRADUS_VARIANCE_RANGES_H

#include <float.h>

#include "op_test.h"

/* x [A, B], reduced over rows or columns, in memory or as the transpose of memory. */
typedef struct variance_problem {
    const char *name;
    double mean, spread; /* of the elements; uniform within mean +- spread */
    bool outlier;        /* the spread is that of a single element, the others are equal */
} variance_problem;

static const variance_problem variance_ranges[] = {
    {"ordinary", 1, 0.5, false},
    {"squares overflow", 1e20, 1e19, false},
    {"far above", 0, 1e30, false},
    {"close to the largest", 0, 3.2e38, false},
    {"all close to the largest", 3e38, 1e37, false},
    {"squares vanish", 0, 1e-30, false},
    {"and far from 0", 1e-20, 1e-25, false},
    {"below the smallest normal number", 0, 1e-40, false},
    {"some units above 0", 0, 3e-44, false},
    {"far from 0", 1e7, 3, false},
    {"by units in the last place", -3e7, 5, false},
    {"one outlier of a unit", 1e7, 1, true},
    {"one outlier", 1, 1e10, true},
    {"one huge outlier", 1e-20, 3e38, true},
    {"equal", 1e7, 0, false},
};
enum { VARIANCE_RANGES = sizeof variance_ranges / sizeof *variance_ranges };

static inline double variance_element(const variance_problem *p, int64_t i, uint64_t *seed)
{
    const double part = random_in(seed, -1, 1);
    if (p->outlier) return p->mean + (i == 2 ? p->spread : 0);
    return p->mean + part * p->spread;
}

/* One group of n elements, `step` apart. */
typedef struct variance_group {
    const double *x, *dx;
    int64_t n, step;
    double y, correction, tolerance;
    bool root;
    const char *name;
} variance_group;

static inline void check_variance_number(const variance_group *g, const char *what, int64_t j,
                                         double got, long double wanted, long double scale)
{
    const long double margin = g->tolerance * scale + 1.5e-45L;
    const bool overflow = fabsl(wanted) > FLT_MAX * (1 - 1e-6L);
    if (overflow && isinf(got)) return;
    if (fabsl(got - wanted) <= margin) return; /* ck_assert for each would take most of the time */
    ck_abort_msg("%s of %s, n %lld, correction %g: %s[%lld] is %.9g instead of %.9Lg",
                 g->root ? "std" : "var", g->name, (long long)g->n, g->correction, what,
                 (long long)j, got, wanted);
}

static inline void check_variance_group(const variance_group *g)
{
    long double mean = 0, squares = 0, largest = 0;
    for (int64_t j = 0; j < g->n; j++) mean += g->x[j * g->step];
    mean /= (long double)g->n;
    for (int64_t j = 0; j < g->n; j++) {
        const long double d = g->x[j * g->step] - mean;
        squares += d * d;
        largest = fmaxl(largest, fabsl(d));
    }
    const long double divisor = (long double)g->n - g->correction, var = squares / divisor;
    const long double y = g->root ? sqrtl(var) : var;
    long double weight = g->root ? 1 / (divisor * y) : 2 / divisor;
    if (squares == 0) weight = 0; /* the gradient at equal elements is 0 */
    check_variance_number(g, "y", 0, g->y, y, y);
    for (int64_t j = 0; j < g->n; j++)
        check_variance_number(g, "dx", j, g->dx[j * g->step], weight * (g->x[j * g->step] - mean),
                              weight * largest);
}

/* [A, B] along an axis, as it is or as a transposed view. */
typedef struct variance_case {
    int64_t A, B;
    int axis;
    bool turned, root;
    double correction, tolerance;
} variance_case;

static inline void check_variance_case(gd_context *ctx, const variance_problem *p, variance_case c)
{
    const int64_t A = c.A, B = c.B;
    const int axis = c.axis;
    const bool turned = c.turned, root = c.root;
    uint64_t seed = 7;
    gd_tensor *leaf = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(turned ? B : A, turned ? A : B));
    double *values = zeros(A * B);
    for (int64_t i = 0; i < A * B; i++) values[i] = variance_element(p, i, &seed);
    gd_tensor_write_f64(leaf, values, A * B);
    free(values);
    gd_tensor_set_requires_grad(leaf, true);
    gd_tensor *x = turned ? gd_transpose(leaf, 0, 1) : leaf;
    gd_tensor *y =
        root ? gd_std(x, &axis, 1, c.correction, false) : gd_var(x, &axis, 1, c.correction, false);
    gd_backward_options options = {.keep_tape = true};
    gd_backward_from(&y, 1, &options);
    ck_assert_no_error(ctx);
    double *xv = values_of(x), *yv = values_of(y);
    gd_tensor *dx = turned ? gd_transpose(gd_grad(leaf), 0, 1) : gd_grad(leaf);
    double *dxv = values_of(dx);
    const int64_t groups = axis ? A : B;
    for (int64_t i = 0; i < groups; i++) {
        const int64_t first = axis ? i * B : i;
        check_variance_group(&(variance_group){.x = xv + first,
                                               .dx = dxv + first,
                                               .n = axis ? B : A,
                                               .step = axis ? 1 : B,
                                               .y = yv[i],
                                               .correction = c.correction,
                                               .tolerance = c.tolerance,
                                               .root = root,
                                               .name = p->name});
    }
    free(xv);
    free(yv);
    free(dxv);
    gd_step_end(ctx);
    gd_tensor_free(leaf);
}

static inline void check_variances(gd_context *ctx, const variance_problem *p, double tolerance)
{
    static const int64_t sizes[][2] = {{1, 8}, {3, 5000}, {700, 5}, {37, 41}, {2, 20000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int way = 0; way < 8; way++) {
            const int64_t A = sizes[i][0], B = sizes[i][1];
            const int axis = way & 1;
            if ((axis ? B : A) < 2) continue;
            const variance_case c = {A, B, axis, way & 2, way & 4, way & 4 ? 0.5 : 1, tolerance};
            check_variance_case(ctx, p, c);
        }
    }
}

/* x [n] in float32 -> y and dx, as PyTorch has them unless * (ops.h). */
static const struct {
    double x[3];
    int64_t n;
    double correction;
    bool root;
    double y, dx[3];
} special_variances[] = {
    {{3, 3, 3}, 3, 1, false, 0, {0, 0, 0}},
    {{3, 3, 3}, 3, 1, true, 0, {0, 0, 0}},
    {{0, 0, 0}, 3, 1, true, 0, {0, 0, 0}},
    {{5}, 1, 0, false, 0, {0}},
    {{5}, 1, 0, true, 0, {0}},
    {{5}, 1, 1, false, NAN, {NAN}},
    {{5}, 1, 1, true, NAN, {NAN}},
    {{5}, 1, 2, false, NAN, {NAN}},
    {{1, 2}, 2, 2, false, INFINITY, {-INFINITY, INFINITY}},
    {{1, 2}, 2, 3, false, INFINITY, {-INFINITY, INFINITY}}, /* * */
    {{1, 2}, 2, 2, true, INFINITY, {NAN, NAN}},
    {{1, 3}, 2, -2, false, 0.5, {-0.5, 0.5}},
    {{1, 2, NAN}, 3, 1, false, NAN, {NAN, NAN, NAN}},
    {{1, 2, NAN}, 3, 1, true, NAN, {NAN, NAN, NAN}},
    {{1, 2, INFINITY}, 3, 1, false, NAN, {-INFINITY, -INFINITY, NAN}},
    {{1, 2, INFINITY}, 3, 1, true, NAN, {NAN, NAN, NAN}},
    {{1, INFINITY, -INFINITY}, 3, 1, true, NAN, {NAN, NAN, NAN}},
};

static inline bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static inline void check_special_variances(gd_context *ctx)
{
    for (size_t i = 0; i < sizeof special_variances / sizeof *special_variances; i++) {
        const int64_t n = special_variances[i].n;
        gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(n));
        gd_tensor_write_f64(x, special_variances[i].x, n);
        gd_tensor_set_requires_grad(x, true);
        gd_tensor *y = (special_variances[i].root ? gd_std : gd_var)(
            x, NULL, 0, special_variances[i].correction, false);
        gd_backward(y);
        const double got = gd_item(y);
        ck_assert_no_error(ctx);
        ck_assert_msg(same_number(got, special_variances[i].y), "case %zu: y is %g", i, got);
        double *dx = values_of(gd_grad(x));
        for (int64_t j = 0; j < n; j++)
            ck_assert_msg(same_number(dx[j], special_variances[i].dx[j]),
                          "case %zu: dx[%lld] is %g", i, (long long)j, dx[j]);
        free(dx);
        gd_step_end(ctx);
        gd_tensor_free(x);
    }
    gd_tensor *empty = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 2));
    double *y = values_of(gd_std(empty, (int[]){0}, 1, 0, false));
    ck_assert(isnan(y[0]) && isnan(y[1]));
    free(y);
    gd_step_end(ctx);
    gd_tensor_free(empty);
}

#endif
