/* transfer.c - copying elements into tensors and out of them.
 *
 * A packed tensor of the right dtype is one piece of memory, which the device copies. Any other
 * goes through a packed temporary on the device, where services->copy handles strides and
 * dtypes. */
#include "core/core.h"

#include <math.h>

/* Whether the host may read t, or write it. */
static bool is_reachable(const gd_tensor *t, const char *who)
{
    return t && !gd_failed(t->ctx) && gd_tensor_usable(t, who, "tensor") &&
           gd_outside_graph(t->ctx, who);
}

static gd_status check_host(const gd_tensor *t, const char *who, const void *host, size_t bytes)
{
    size_t wanted = (size_t)t->count * gd_dtype_size(t->dtype);
    if (bytes != wanted) {
        const bool wide = t->dtype == GD_INT32 && bytes / 2 == wanted && bytes % 2 == 0;
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: given %zu bytes for %s %s, wanted %zu%s",
                       who, bytes, gd_dtype_name(t->dtype), gd_shape_text(t).text, wanted,
                       wide ? ": numbers of 64 bits are to be converted first" : "");
    }
    if (!host && wanted) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: host memory is NULL, wanted %zu bytes", who,
                       wanted);
    }
    return GD_OK;
}

/* t if it is packed and of this dtype, else a packed temporary of the frame, which begins here.
 * NULL on error. */
static gd_tensor *packed_of(const gd_tensor *t, gd_dtype dtype, gd_call_frame *frame,
                            const char *who)
{
    gd_frame_begin(t->ctx, frame);
    if (dtype == t->dtype && gd_tensor_is_contiguous(t)) return (gd_tensor *)t;
    return gd_frame_tensor(t->ctx, dtype, t->ndim, t->shape, who);
}

static gd_status read_as(const gd_tensor *t, gd_dtype dtype, void *host, const char *who)
{
    gd_context *ctx = t->ctx;
    gd_call_frame frame;
    if (t->count == 0) return GD_OK;
    const gd_tensor *packed = packed_of(t, dtype, &frame, who);
    if (packed && packed != t) ctx->services->copy(gd_layout_of(packed), gd_layout_of(t), ctx);
    if (packed) {
        ctx->device->download(ctx, host, gd_tensor_data(packed),
                              (size_t)t->count * gd_dtype_size(dtype));
    }
    gd_frame_end(ctx, &frame);
    return gd_error_status(ctx);
}

/* `host`: the elements, in `dtype`; NULL: each is `value`. */
static gd_status write_as(gd_tensor *t, gd_dtype dtype, const void *host, double value,
                          const char *who)
{
    gd_context *ctx = t->ctx;
    gd_call_frame frame;
    if (t->count == 0) return GD_OK;
    gd_tensor *packed = packed_of(t, dtype, &frame, who);
    if (packed) gd_new_version(ctx, t->storage);
    if (packed && host) {
        ctx->device->upload(ctx, gd_tensor_data(packed), host,
                            (size_t)t->count * gd_dtype_size(dtype));
    } else if (packed) {
        ctx->services->fill(gd_tensor_data(packed), dtype, value, t->count, ctx);
    }
    if (packed != t && !gd_failed(ctx))
        ctx->services->copy(gd_layout_of(t), gd_layout_of(packed), ctx);
    gd_written(ctx, t->storage);
    gd_frame_end(ctx, &frame);
    return ctx->status;
}

gd_status gd_tensor_read(const gd_tensor *t, void *host, size_t bytes)
{
    if (!is_reachable(t, "tensor_read")) return gd_tensor_status(t);
    if (check_host(t, "tensor_read", host, bytes)) return gd_error_status(t->ctx);
    return read_as(t, t->dtype, host, "tensor_read");
}

gd_status gd_tensor_write(gd_tensor *t, const void *host, size_t bytes)
{
    if (!is_reachable(t, "tensor_write") || !gd_tensor_writable(t, "tensor_write")) {
        return gd_tensor_status(t);
    }
    if (check_host(t, "tensor_write", host, bytes)) return gd_error_status(t->ctx);
    return write_as(t, t->dtype, host, 0, "tensor_write");
}

static gd_status check_count(const gd_tensor *t, const char *who, const double *host, int64_t count)
{
    if (count == t->count && (host || count == 0)) return GD_OK;
    return gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: given %lld elements%s for %s, wanted %lld", who,
                   (long long)count, host ? "" : " at NULL", gd_shape_text(t).text,
                   (long long)t->count);
}

gd_status gd_tensor_read_f64(const gd_tensor *t, double *host, int64_t count)
{
    const char *who = "tensor_read_f64";
    if (!is_reachable(t, who)) return gd_tensor_status(t);
    if (check_count(t, who, host, count)) return gd_error_status(t->ctx);
    return read_as(t, GD_FLOAT64, host, who);
}

static bool is_int32(double value)
{
    return value >= INT32_MIN && value <= INT32_MAX && value == floor(value);
}

gd_status gd_tensor_write_f64(gd_tensor *t, const double *host, int64_t count)
{
    const char *who = "tensor_write_f64";
    if (!is_reachable(t, who) || !gd_tensor_writable(t, who)) return gd_tensor_status(t);
    if (check_count(t, who, host, count)) return gd_error_status(t->ctx);
    for (int64_t i = 0; t->dtype == GD_INT32 && i < count; i++) {
        if (!is_int32(host[i])) {
            return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                           "%s: element %lld is %g, wanted a whole number that int32 can hold", who,
                           (long long)i, host[i]);
        }
    }
    return write_as(t, GD_FLOAT64, host, 0, who);
}

/* For a segment (src/recompute) a copy is one of its ops. */
static const gd_op copy_op = {.name = "tensor_copy", .inputs = 1, .input_names = {"src"}};

gd_status gd_tensor_copy(gd_tensor *dst, const gd_tensor *src)
{
    const char *who = "tensor_copy";
    if (!gd_tensor_writable(dst, who)) return gd_tensor_status(dst);
    gd_context *ctx = dst->ctx;
    if (!src) return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: src is NULL, wanted a tensor", who);
    if (!gd_tensor_usable(src, who, "src")) return gd_error_status(src->ctx);
    if (src->ctx != ctx || !gd_same_shape(dst, src)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: src is %s%s, wanted dst's shape %s%s", who,
                       gd_shape_text(src).text, src->ctx != ctx ? " of another context" : "",
                       gd_shape_text(dst).text, src->ctx != ctx ? " and its context" : "");
    }
    gd_tensor *input = (gd_tensor *)src;
    const gd_call call = {.context = ctx, .op = &copy_op, .inputs = 1, .input = &input};
    if (gd_notify_call(&call, ctx->frame)) return ctx->status;
    if (dst->count == 0) return GD_OK;
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    if (src->storage == dst->storage) { /* the views may overlap: read everything first */
        gd_tensor *aside = gd_frame_tensor(ctx, src->dtype, src->ndim, src->shape, who);
        if (aside) ctx->services->copy(gd_layout_of(aside), gd_layout_of(src), ctx);
        src = aside;
    }
    if (src) {
        gd_new_version(ctx, dst->storage);
        ctx->services->copy(gd_layout_of(dst), gd_layout_of(src), ctx);
        gd_written(ctx, dst->storage);
    }
    gd_frame_end(ctx, &frame);
    return gd_error_status(ctx);
}

gd_status gd_tensor_fill(gd_tensor *t, double value)
{
    if (!gd_tensor_writable(t, "tensor_fill")) return gd_tensor_status(t);
    if (t->dtype == GD_INT32 && !is_int32(value)) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                       "tensor_fill: value is %g, wanted a whole number that int32 can hold",
                       value);
    }
    return write_as(t, t->dtype, NULL, value, "tensor_fill");
}

double gd_item(const gd_tensor *t)
{
    double value = NAN;
    if (!is_reachable(t, "item")) return NAN;
    if (t->count != 1) {
        gd_fail(t->ctx, GD_ERROR_ARGUMENT, "item: the tensor is %s, wanted one element",
                gd_shape_text(t).text);
        return NAN;
    }
    if (read_as(t, GD_FLOAT64, &value, "item")) return NAN;
    if (isnan(value) && t->node)
        gd_notice(
            t->ctx, GD_NOTICE_NAN,
            "item: %s, made by %s, is nan: gd_tape_find_nonfinite names the first op that gave "
            "such a number, and gd_optimizer_update does not update by it",
            gd_shape_text(t).text, gd_called_op(&t->node->call)->name);
    return value;
}
