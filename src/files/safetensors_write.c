/* safetensors_write.c - tensors into a safetensors file. */
#include "files/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- The header --------------------------------------------------------------------------- */

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

static gd_status refuse_name(gd_context *ctx, const char *what, const char *name, const char *why)
{
    return gd_fail(ctx, GD_ERROR_ARGUMENT, "safetensors_write: %s \"%s\" %s", what,
                   gd_excerpt_of(name).text, why);
}

static gd_status refuse_memory(gd_context *ctx)
{
    return gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: the header of a safetensors file");
}

/* A text as JSON; NULL, with the reason, if there is no memory or it is not UTF-8. */
static json_t *print_text(gd_context *ctx, const char *what, const char *text)
{
    json_t *value = json_string(text);
    if (value) return value;
    json_t *unchecked = json_string_nocheck(text);
    if (unchecked && !(value = json_string(text))) { /* so it was not for lack of memory */
        refuse_name(ctx, what, text, "is not UTF-8");
    } else if (!unchecked) {
        refuse_memory(ctx);
    }
    json_decref(unchecked);
    return value;
}

/* object[name] = value; takes ownership of the value. */
static gd_status put(gd_context *ctx, json_t *object, const char *what, const char *name,
                     json_t *value)
{
    json_t *checked = print_text(ctx, what, name);
    json_decref(checked);
    if (checked && json_object_get(object, name)) refuse_name(ctx, what, name, "occurs twice");
    if (gd_failed(ctx)) {
        json_decref(value);
        return gd_error_status(ctx);
    }
    if (!json_object_set_new(object, name, value)) return GD_OK;
    return refuse_memory(ctx);
}

static json_t *print_tensor(const gd_tensor *t, int64_t begin, int64_t end)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->ndim; i++) {
        if (json_array_append_new(shape, json_integer(t->shape[i]))) {
            json_decref(shape);
            return NULL;
        }
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", gd_safetensors_dtype_name(t->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static gd_status print_all(gd_context *ctx, json_t *root, const gd_named_tensor *tensors,
                           int64_t tensor_count, const gd_named_text *metadata,
                           int64_t metadata_count)
{
    if (metadata_count > 0) {
        json_t *map = json_object();
        if (json_object_set_new(root, gd_safetensors_metadata_name, map)) return refuse_memory(ctx);
        for (int64_t i = 0; i < metadata_count; i++) {
            json_t *text = print_text(ctx, "metadata", metadata[i].text);
            if (put(ctx, map, "metadata", metadata[i].name, text)) return gd_error_status(ctx);
        }
    }
    int64_t begin = 0;
    for (int64_t i = 0; i < tensor_count; i++) {
        const gd_tensor *t = tensors[i].tensor;
        int64_t end = begin + t->count * (int64_t)gd_dtype_size(t->dtype);
        if (tensors[i].name && !strcmp(tensors[i].name, gd_safetensors_metadata_name)) {
            return refuse_name(ctx, "tensor", gd_safetensors_metadata_name,
                               "has a name that the format reserves");
        }
        if (put(ctx, root, "tensor", tensors[i].name, print_tensor(t, begin, end))) break;
        begin = end;
    }
    return gd_error_status(ctx);
}

char *gd_safetensors_print(gd_context *ctx, const gd_named_tensor *tensors, int64_t tensor_count,
                           const gd_named_text *metadata, int64_t metadata_count, size_t *bytes)
{
    enum { ALIGNMENT = 64 };
    json_t *root = json_object();
    char *header = NULL;
    size_t length = 0;
    if (root && !print_all(ctx, root, tensors, tensor_count, metadata, metadata_count)) {
        length = json_dumpb(root, NULL, 0, JSON_COMPACT);
        *bytes = (GD_SAFETENSORS_LENGTH_BYTES + length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        header = length ? malloc(*bytes) : NULL;
    }
    size_t padded = header ? *bytes - GD_SAFETENSORS_LENGTH_BYTES : 0;
    if (padded > GD_SAFETENSORS_HEADER_LIMIT) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "safetensors_write: the header has %zu bytes, wanted at most %d", padded,
                GD_SAFETENSORS_HEADER_LIMIT);
    } else if (header) {
        memset(header, ' ', *bytes);
        for (int i = 0; i < GD_SAFETENSORS_LENGTH_BYTES; i++) {
            header[i] = (char)(unsigned char)((uint64_t)padded >> (8 * i));
        }
        char *text = header + GD_SAFETENSORS_LENGTH_BYTES;
        if (json_dumpb(root, text, length, JSON_COMPACT) != length) refuse_memory(ctx);
    } else {
        refuse_memory(ctx);
    }
    json_decref(root);
    if (!gd_failed(ctx)) return header;
    free(header);
    return NULL;
}

#else

char *gd_safetensors_print(gd_context *ctx, const gd_named_tensor *tensors, int64_t tensor_count,
                           const gd_named_text *metadata, int64_t metadata_count, size_t *bytes)
{
    (void)tensors, (void)tensor_count, (void)metadata, (void)metadata_count, (void)bytes;
    gd_fail(ctx, GD_ERROR_UNSUPPORTED, "safetensors_write: %s", gd_safetensors_no_jansson);
    return NULL;
}

#endif

/* ---- The contents ------------------------------------------------------------------------- */

static gd_status check_arguments(gd_context *ctx, const gd_named_tensor *tensors,
                                 int64_t tensor_count, const gd_named_text *metadata,
                                 int64_t metadata_count)
{
    const char *who = "safetensors_write";
    if (tensor_count < 0 || metadata_count < 0 || (tensor_count > 0 && !tensors) ||
        (metadata_count > 0 && !metadata)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: given %lld tensors%s and %lld metadata%s, wanted arrays of 0 or more",
                       who, (long long)tensor_count, tensors ? "" : " at NULL",
                       (long long)metadata_count, metadata ? "" : " at NULL");
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
        if (!tensors[i].name) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "%s: the name of tensor %lld is NULL, wanted a string", who,
                           (long long)i);
        }
    }
    for (int64_t i = 0; i < metadata_count; i++) {
        if (metadata[i].name && metadata[i].text) continue;
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: the %s of metadata %lld is NULL, wanted a string", who,
                       metadata[i].name ? "text" : "name", (long long)i);
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

static gd_status put_bytes(gd_context *ctx, const gd_output *to, const void *bytes, size_t count)
{
    if (count == 0 || to->write(to->user, bytes, count)) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO, "safetensors_write: %s: cannot write to it: %s",
                   gd_excerpt_of(to->name).text, strerror(errno));
}

static gd_status skip_bytes(gd_context *ctx, const gd_output *to, size_t count)
{
    if (to->skip(to->user, count)) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO, "safetensors_write: %s: cannot resize it: %s",
                   gd_excerpt_of(to->name).text, strerror(errno));
}

/* Writes the tensor's memory itself if it is packed and on the host. */
static gd_status write_elements(const gd_output *to, const gd_tensor *t)
{
    gd_context *ctx = t->ctx;
    size_t bytes = (size_t)t->count * gd_dtype_size(t->dtype);
    if (to->skip) return skip_bytes(ctx, to, bytes);
    if (gd_context_device(ctx) == GD_CPU && gd_tensor_is_contiguous(t))
        return put_bytes(ctx, to, gd_tensor_data(t), bytes);
    void *host = gd_host_allocate(ctx, bytes, "a tensor to be written");
    if (host && !gd_tensor_read(t, host, bytes)) put_bytes(ctx, to, host, bytes);
    gd_host_release(ctx, host, bytes);
    return gd_error_status(ctx);
}

/* The contents of a file: what is written, in order, and its header. */
typedef struct contents {
    gd_named_tensor *sorted;
    int64_t count;
    char *header;
    size_t header_bytes;
} contents;

static gd_status prepare(contents *c, gd_context *ctx, const gd_named_tensor *tensors,
                         int64_t tensor_count, const gd_named_text *metadata,
                         int64_t metadata_count)
{
    *c = (contents){.count = tensor_count};
    if (gd_error_status(ctx) ||
        check_arguments(ctx, tensors, tensor_count, metadata, metadata_count))
        return gd_error_status(ctx);
    c->sorted = by_width(ctx, tensors, tensor_count);
    if (c->sorted)
        c->header = gd_safetensors_print(ctx, c->sorted, tensor_count, metadata, metadata_count,
                                         &c->header_bytes);
    return gd_error_status(ctx);
}

static gd_status write_contents(gd_context *ctx, const contents *c, const gd_output *to)
{
    put_bytes(ctx, to, c->header, c->header_bytes);
    for (int64_t i = 0; i < c->count && !gd_failed(ctx); i++)
        write_elements(to, c->sorted[i].tensor);
    return gd_error_status(ctx);
}

static void discard(contents *c, gd_context *ctx)
{
    free(c->header);
    gd_host_release(ctx, c->sorted, (size_t)c->count * sizeof *c->sorted);
}

gd_status gd_safetensors_write_to(gd_context *ctx, const gd_output *to,
                                  const gd_named_tensor *tensors, int64_t tensor_count,
                                  const gd_named_text *metadata, int64_t metadata_count)
{
    contents c;
    if (gd_error_status(ctx)) return gd_error_status(ctx);
    if (!to || !to->name || !to->write)
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "safetensors_write: the output has no %s, wanted a name and a function",
                       to && to->name ? "write" : "name");
    if (!prepare(&c, ctx, tensors, tensor_count, metadata, metadata_count))
        write_contents(ctx, &c, to);
    discard(&c, ctx);
    return gd_error_status(ctx);
}

/* ---- A file on disk ----------------------------------------------------------------------- */

/* `elements`: those of the tensors, or zeros. */
static gd_status write_file(gd_context *ctx, const char *path, const gd_named_tensor *tensors,
                            int64_t tensor_count, const gd_named_text *metadata,
                            int64_t metadata_count, bool elements)
{
    contents c;
    gd_whole_file file;
    const gd_output to = {path, gd_whole_file_write, elements ? NULL : gd_whole_file_skip, &file};
    if (gd_error_status(ctx)) return gd_error_status(ctx);
    if (!path)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "safetensors_write: path is NULL, wanted a file");
    if (!prepare(&c, ctx, tensors, tensor_count, metadata, metadata_count) &&
        !gd_whole_file_begin(&file, ctx, "safetensors_write", path)) {
        write_contents(ctx, &c, &to);
        gd_whole_file_end(&file);
    }
    discard(&c, ctx);
    return gd_error_status(ctx);
}

gd_status gd_safetensors_write(gd_context *ctx, const char *path, const gd_named_tensor *tensors,
                               int64_t tensor_count, const gd_named_text *metadata,
                               int64_t metadata_count)
{
    return write_file(ctx, path, tensors, tensor_count, metadata, metadata_count, true);
}

gd_status gd_safetensors_reserve(gd_context *ctx, const char *path, const gd_named_tensor *tensors,
                                 int64_t tensor_count, const gd_named_text *metadata,
                                 int64_t metadata_count)
{
    return write_file(ctx, path, tensors, tensor_count, metadata, metadata_count, false);
}
