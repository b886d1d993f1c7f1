/* safetensors_write.c - tensors into a safetensors file. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

static gd_status check_arguments(gd_context *ctx, const char *path, const gd_named_tensor *tensors,
                                 int64_t tensor_count, const gd_named_text *metadata,
                                 int64_t metadata_count)
{
    const char *who = "safetensors_write";
    if (!path) return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: path is NULL, wanted a file", who);
    if (tensor_count < 0 || metadata_count < 0 || (tensor_count > 0 && !tensors) ||
        (metadata_count > 0 && !metadata)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: given %lld tensors and %lld metadata%s, wanted arrays of 0 or more",
                       who, (long long)tensor_count, (long long)metadata_count,
                       tensors ? "" : " at NULL");
    }
    for (int64_t i = 0; i < tensor_count; i++) {
        const gd_tensor *t = tensors[i].tensor;
        if (!t || t->ctx != ctx) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "%s: tensor %lld is %s, wanted one of this "
                           "context",
                           who, (long long)i, t ? "of another context" : "NULL");
        }
        if (!gd_tensor_usable(t, who, "a tensor")) return gd_error_status(ctx);
    }
    return GD_OK;
}

/* Wide dtypes first, each in the order given. */
static gd_named_tensor *by_width(gd_context *ctx, const gd_named_tensor *tensors, int64_t count)
{
    gd_named_tensor *sorted =
        gd_host_allocate(ctx, (size_t)count * sizeof *sorted, "the tensors of a file");
    int64_t placed = 0;
    for (size_t width = 8; sorted && width > 0; width /= 2) {
        for (int64_t i = 0; i < count; i++) {
            if (gd_dtype_size(tensors[i].tensor->dtype) == width) sorted[placed++] = tensors[i];
        }
    }
    return sorted;
}

/* Straight from the tensor's memory where that is the host's and packed. */
static gd_status write_elements(gd_whole_file *file, const gd_tensor *t)
{
    size_t bytes = (size_t)t->count * gd_dtype_size(t->dtype);
    if (gd_context_device(t->ctx) == GD_CPU && gd_tensor_is_contiguous(t)) {
        return gd_whole_file_write(file, gd_tensor_data(t), bytes);
    }
    void *host = gd_host_allocate(t->ctx, bytes, "a tensor to be written");
    if (host && !gd_tensor_read(t, host, bytes)) gd_whole_file_write(file, host, bytes);
    gd_host_release(t->ctx, host, bytes);
    return gd_error_status(t->ctx);
}

gd_status gd_safetensors_write(gd_context *ctx, const char *path, const gd_named_tensor *tensors,
                               int64_t tensor_count, const gd_named_text *metadata,
                               int64_t metadata_count)
{
    if (gd_error_status(ctx)) return gd_error_status(ctx);
    if (check_arguments(ctx, path, tensors, tensor_count, metadata, metadata_count)) {
        return gd_error_status(ctx);
    }
    size_t bytes = 0;
    gd_whole_file file;
    gd_named_tensor *sorted = by_width(ctx, tensors, tensor_count);
    char *header =
        sorted ? gd_safetensors_print(ctx, sorted, tensor_count, metadata, metadata_count, &bytes)
               : NULL;
    if (header && !gd_whole_file_begin(&file, ctx, "safetensors_write", path)) {
        gd_whole_file_write(&file, header, bytes);
        for (int64_t i = 0; i < tensor_count && !gd_failed(ctx); i++) {
            write_elements(&file, sorted[i].tensor);
        }
        gd_whole_file_end(&file);
    }
    free(header);
    gd_host_release(ctx, sorted, (size_t)tensor_count * sizeof *sorted);
    return gd_error_status(ctx);
}
