/* safetensors_params.c - a group of parameters, and its buffers, as a file. */
#include "files/safetensors.h"
#include "optim/params.h"

#include <string.h>

/* Parameters, then buffers; NULL past the last. */
static gd_tensor *tensor_at(const gd_params *params, int64_t index)
{
    if (index < params->count) return params->list[index].tensor;
    index -= params->count;
    return index < params->buffers ? params->buffer[index] : NULL;
}

static gd_status refused(const gd_params *params)
{
    return params ? gd_error_status(params->ctx) : GD_ERROR_ARGUMENT;
}

gd_status gd_params_save(const gd_params *params, const char *path, const gd_named_text *metadata,
                         int64_t metadata_count)
{
    const char *who = "params_save";
    if (!gd_params_ready(params, who)) return refused(params);
    gd_context *ctx = params->ctx;
    const int64_t count = params->count + params->buffers;
    const size_t bytes = (size_t)(count + 1) * sizeof(gd_named_tensor);
    gd_named_tensor *tensors = gd_host_allocate(ctx, bytes, who);
    for (int64_t i = 0; tensors && i < count; i++) {
        const gd_tensor *t = tensor_at(params, i);
        tensors[i] = (gd_named_tensor){t->name, t};
    }
    if (tensors) gd_safetensors_write(ctx, path, tensors, count, metadata, metadata_count);
    gd_host_release(ctx, tensors, bytes);
    return gd_error_status(ctx);
}

/* PyTorch's batch norm counts its batches, for a momentum of None. */
static bool is_count(const char *name)
{
    static const char tail[] = ".num_batches_tracked";
    const size_t length = strlen(name), end = sizeof tail - 1;
    return length >= end && !strcmp(name + length - end, tail);
}

/* Whether the file has exactly the group's tensors. */
static gd_status check(const gd_params *params, const gd_safetensors *file, const char *who)
{
    gd_tensor *t;
    const gd_safetensors_entry *entry;
    for (int64_t i = 0; (t = tensor_at(params, i)); i++) {
        entry = gd_safetensors_usable(file, t->name, who);
        if (!entry || gd_safetensors_check_shape(file, who, entry, t)) return params->ctx->status;
    }
    for (int64_t i = 0; (entry = gd_safetensors_at(file, i)); i++) {
        if (gd_params_find(params, entry->name) || is_count(entry->name)) continue;
        return gd_fail(params->ctx, GD_ERROR_IO,
                       "%s: %s has a tensor \"%s\", wanted only those of the group", who,
                       gd_excerpt_of(file->path).text, gd_excerpt_of(entry->name).text);
    }
    return gd_error_status(params->ctx);
}

gd_status gd_params_load(gd_params *params, const char *path)
{
    const char *who = "params_load";
    if (!gd_params_ready(params, who)) return refused(params);
    gd_tensor *t;
    gd_safetensors *file = gd_safetensors_open(params->ctx, path);
    if (file && !check(params, file, who)) {
        for (int64_t i = 0; (t = tensor_at(params, i)); i++)
            if (gd_safetensors_read(file, t->name, t)) break;
    }
    gd_safetensors_close(file);
    return gd_error_status(params->ctx);
}
