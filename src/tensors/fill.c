/* fill.c - random fills of tensors, from the context's stream, and numbers at equal distances. */
#include "core/core.h"

#include <float.h>
#include <math.h>

typedef enum fill_kind { FILL_UNIFORM, FILL_NORMAL, FILL_INTEGERS, FILL_PERMUTATION } fill_kind;

typedef struct fill {
    fill_kind kind;
    const char *name;
    double a, b;       /* low and high, or mean and stddev */
    int64_t low, high; /* FILL_INTEGERS */
} fill;

static uint64_t words_for(const fill *f, const gd_tensor *t)
{
    bool two = f->kind == FILL_PERMUTATION || t->dtype == GD_FLOAT64;
    return (uint64_t)t->count * (two ? 2 : 1);
}

/* Fills packed memory of t's dtype. */
static void fill_packed(const fill *f, gd_tensor *t, uint64_t offset)
{
    gd_context *ctx = t->ctx;
    void *data = gd_tensor_data(t);
    uint64_t seed = ctx->random.seed;
    const gd_services *services = ctx->services;
    switch (f->kind) {
    case FILL_UNIFORM:
        services->uniform(data, t->dtype, t->count, f->a, f->b, seed, offset, ctx);
        break;
    case FILL_NORMAL:
        services->normal(data, t->dtype, t->count, f->a, f->b, seed, offset, ctx);
        break;
    case FILL_INTEGERS:
        services->integers(data, t->count, f->low, f->high, seed, offset, ctx);
        break;
    case FILL_PERMUTATION:
        services->permutation(data, t->count, seed, offset, ctx);
        break;
    }
}

static gd_status check_fill(const fill *f, const gd_tensor *t)
{
    bool whole = f->kind == FILL_INTEGERS || f->kind == FILL_PERMUTATION;
    if (whole != (t->dtype == GD_INT32)) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: the tensor is %s %s, wanted %s", f->name,
                       gd_dtype_name(t->dtype), gd_shape_text(t).text,
                       whole ? "int32" : "a real dtype");
    }
    const double most = t->dtype == GD_FLOAT64 ? DBL_MAX : (double)FLT_MAX;
    if (f->kind == FILL_UNIFORM && !(f->a <= f->b && f->b - f->a <= most)) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                       "%s: low is %g and high is %g, wanted low <= high, both finite and at most "
                       "%g apart",
                       f->name, f->a, f->b, most);
    }
    if (f->kind == FILL_NORMAL && !(f->b >= 0 && isfinite(f->a) && isfinite(f->b))) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                       "%s: mean is %g and stddev is %g, wanted both finite and stddev >= 0",
                       f->name, f->a, f->b);
    }
    if (f->kind == FILL_PERMUTATION && (t->ndim != 1 || t->count > INT32_MAX)) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                       "%s: the tensor is %s, wanted one dimension of at most %d", f->name,
                       gd_shape_text(t).text, INT32_MAX);
    }
    if (f->kind == FILL_INTEGERS &&
        !(f->low < f->high && f->low >= INT32_MIN && f->high <= INT64_C(1) + INT32_MAX)) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                       "%s: low is %lld and high is %lld, wanted low < high within int32", f->name,
                       (long long)f->low, (long long)f->high);
    }
    return GD_OK;
}

static gd_status run_fill(const fill *f, gd_tensor *t)
{
    if (!t) return GD_ERROR_ARGUMENT;
    gd_context *ctx = t->ctx;
    if (!gd_tensor_writable(t, f->name)) return gd_error_status(ctx);
    if (check_fill(f, t)) return gd_error_status(ctx);
    /* The host computes a permutation for a GPU. */
    if (f->kind == FILL_PERMUTATION && !gd_outside_graph(ctx, f->name)) return gd_error_status(ctx);
    if (t->count == 0) return GD_OK;
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    bool packed = gd_tensor_is_contiguous(t);
    gd_tensor *target = packed ? t : gd_frame_tensor(ctx, t->dtype, t->ndim, t->shape, f->name);
    if (target) {
        fill_packed(f, target, gd_random_take(ctx, words_for(f, t)));
        gd_new_version(ctx, t->storage);
        if (!packed) gd_tensor_copy(t, target);
        gd_written(ctx, t->storage);
    }
    gd_frame_end(ctx, &frame);
    return gd_error_status(ctx);
}

gd_status gd_random_uniform(gd_tensor *t, double low, double high)
{
    return run_fill(&(fill){.kind = FILL_UNIFORM, .name = "random_uniform", .a = low, .b = high},
                    t);
}

gd_status gd_random_normal(gd_tensor *t, double mean, double stddev)
{
    return run_fill(&(fill){.kind = FILL_NORMAL, .name = "random_normal", .a = mean, .b = stddev},
                    t);
}

gd_status gd_random_integers(gd_tensor *t, int64_t low, int64_t high)
{
    return run_fill(
        &(fill){.kind = FILL_INTEGERS, .name = "random_integers", .low = low, .high = high}, t);
}

gd_status gd_random_permutation(gd_tensor *t)
{
    return run_fill(&(fill){.kind = FILL_PERMUTATION, .name = "random_permutation"}, t);
}

gd_tensor *gd_arange(gd_context *ctx, gd_dtype dtype, double start, double end, double step)
{
    if (gd_error_status(ctx)) return NULL;
    const double size = ceil((end - start) / step);
    const int64_t count = size > 0 && size < 0x1p52 ? (int64_t)size : 0;
    if (!isfinite(start) || !isfinite(end) || !isfinite(step) || step == 0 || size >= 0x1p52) {
        gd_fail(
            ctx, GD_ERROR_ARGUMENT,
            "arange: start is %g, end %g and step %g, wanted finite numbers, a step other than 0, "
            "and fewer than 2^52 of them",
            start, end, step);
        return NULL;
    }
    gd_tensor *t = gd_tensor_create(ctx, dtype, 1, &count);
    const size_t bytes = (size_t)count * sizeof(double);
    double *value = t ? gd_host_allocate(ctx, bytes, "arange") : NULL;
    for (int64_t i = 0; value && i < count; i++) value[i] = start + (double)i * step;
    if (value) gd_tensor_write_f64(t, value, count);
    gd_host_release(ctx, value, bytes);
    if (!gd_failed(ctx)) return t;
    if (t) gd_tensor_destroy(t);
    return NULL;
}
