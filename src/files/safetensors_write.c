/* safetensors_write.c - tensors into a safetensors file. */
#include "files/safetensors.h"
#include "files/json_text.h"
#include "files/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- The header --------------------------------------------------------------------------- */

static gd_status refuse_name(gd_context *ctx, const char *what, const char *name, const char *why)
{
    return gd_fail(ctx, GD_ERROR_ARGUMENT, "safetensors_write: %s \"%s\" %s", what,
                   gd_excerpt_of(name).text, why);
}

static void print_tensor(gd_json_text *to, const gd_tensor *t, int64_t begin, int64_t end)
{
    gd_json_print(to, ":{\"dtype\":\"%s\",\"shape\":[", gd_safetensors_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++)
        gd_json_print(to, i ? ",%lld" : "%lld", (long long)t->shape[i]);
    gd_json_print(to, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)end);
}

static void print_all(gd_json_text *to, gd_file_contents c)
{
    int64_t begin = 0;
    gd_json_print(to, "{");
    if (c.metadata_count > 0) gd_json_print(to, "\"%s\":{", gd_safetensors_metadata_name);
    for (int64_t i = 0; i < c.metadata_count; i++) {
        if (i > 0) gd_json_print(to, ",");
        gd_json_print_string(to, c.metadata[i].name, NULL);
        gd_json_print(to, ":");
        gd_json_print_string(to, c.metadata[i].text, NULL);
    }
    if (c.metadata_count > 0) gd_json_print(to, c.tensor_count > 0 ? "}," : "}");
    for (int64_t i = 0; i < c.tensor_count; i++) {
        const gd_tensor *t = c.tensors[i].tensor;
        const int64_t end = begin + t->count * (int64_t)gd_dtype_size(t->dtype);
        if (i > 0) gd_json_print(to, ",");
        gd_json_print_string(to, c.tensors[i].name, NULL);
        print_tensor(to, t, begin, end);
        begin = end;
    }
    gd_json_print(to, "}");
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Refuses a name that is not UTF-8, occurs twice, or is reserved. */
static gd_status check_names(gd_context *ctx, const char *what, const char **names, int64_t count)
{
    qsort(names, (size_t)count, sizeof *names, compare_texts);
    for (int64_t i = 0; i < count; i++) {
        if (!gd_utf8_text(names[i])) return refuse_name(ctx, what, names[i], "is not UTF-8");
        if (i > 0 && !strcmp(names[i], names[i - 1]))
            return refuse_name(ctx, what, names[i], "occurs twice");
        if (*what == 't' && !strcmp(names[i], gd_safetensors_metadata_name))
            return refuse_name(ctx, what, names[i], "has a name that the format reserves");
    }
    return GD_OK;
}

static gd_status check_all_names(gd_context *ctx, gd_file_contents c)
{
    const size_t bytes = (size_t)(c.tensor_count + c.metadata_count) * sizeof(char *);
    const char **names = gd_host_allocate(ctx, bytes, "the names of a file");
    if (!names) return gd_error_status(ctx);
    for (int64_t i = 0; i < c.tensor_count; i++) names[i] = c.tensors[i].name;
    for (int64_t i = 0; i < c.metadata_count; i++) names[c.tensor_count + i] = c.metadata[i].name;
    if (!check_names(ctx, "metadata", names + c.tensor_count, c.metadata_count))
        check_names(ctx, "tensor", names, c.tensor_count);
    gd_host_release(ctx, names, bytes);
    for (int64_t i = 0; i < c.metadata_count && !gd_failed(ctx); i++)
        if (!gd_utf8_text(c.metadata[i].text))
            refuse_name(ctx, "metadata", c.metadata[i].text, "is not UTF-8");
    return gd_error_status(ctx);
}

char *gd_safetensors_print(gd_context *ctx, gd_file_contents c, size_t *bytes)
{
    enum { ALIGNMENT = 64, LENGTH = GD_SAFETENSORS_LENGTH_BYTES };
    gd_json_text header = {0};
    if (check_all_names(ctx, c)) return NULL;
    gd_json_print(&header, "%*s", LENGTH, "");
    print_all(&header, c);
    gd_json_print(&header, "%*s", (int)(-header.length % ALIGNMENT), "");
    const size_t padded = header.length - LENGTH;
    if (header.lacking)
        gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: the header of a safetensors file");
    else if (padded > GD_SAFETENSORS_HEADER_LIMIT)
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "safetensors_write: the header has %zu bytes, wanted at most %d", padded,
                GD_SAFETENSORS_HEADER_LIMIT);
    for (int i = 0; i < LENGTH && !gd_failed(ctx); i++)
        header.bytes[i] = (char)(unsigned char)((uint64_t)padded >> (8 * i));
    *bytes = header.length;
    if (!gd_failed(ctx)) return header.bytes;
    free(header.bytes);
    return NULL;
}

/* ---- The contents ------------------------------------------------------------------------- */

static gd_status check_arguments(gd_context *ctx, gd_file_contents c)
{
    const char *who = "safetensors_write";
    if (c.tensor_count < 0 || c.metadata_count < 0 || (c.tensor_count > 0 && !c.tensors) ||
        (c.metadata_count > 0 && !c.metadata)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: given %lld tensors%s and %lld metadata%s, wanted arrays of 0 or more",
                       who, (long long)c.tensor_count, c.tensors ? "" : " at NULL",
                       (long long)c.metadata_count, c.metadata ? "" : " at NULL");
    }
    for (int64_t i = 0; i < c.tensor_count; i++) {
        const gd_tensor *t = c.tensors[i].tensor;
        if (!t || t->ctx != ctx) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "%s: tensor %lld is %s, wanted one of this "
                           "context",
                           who, (long long)i, t ? "of another context" : "NULL");
        }
        if (!gd_tensor_usable(t, who, "a tensor")) return gd_error_status(ctx);
        if (!c.tensors[i].name) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "%s: the name of tensor %lld is NULL, wanted a string", who,
                           (long long)i);
        }
    }
    for (int64_t i = 0; i < c.metadata_count; i++) {
        if (c.metadata[i].name && c.metadata[i].text) continue;
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: the %s of metadata %lld is NULL, wanted a string", who,
                       c.metadata[i].name ? "text" : "name", (long long)i);
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
    if (!to || count == 0 || to->write(to->user, bytes, count)) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO, "safetensors_write: %s: cannot write to it: %s",
                   gd_excerpt_of(to->name).text, strerror(errno));
}

/* Writes the tensor's memory itself if it is packed and on the host. */
static gd_status write_elements(const gd_output *to, const gd_tensor *t)
{
    gd_context *ctx = t->ctx;
    size_t bytes = (size_t)t->count * gd_dtype_size(t->dtype);
    if (!to || gd_failed(ctx)) return ctx->status;
    if (gd_context_device(ctx) == GD_CPU && gd_tensor_is_contiguous(t))
        return put_bytes(ctx, to, gd_tensor_data(t), bytes);
    void *host = gd_host_allocate(ctx, bytes, "a tensor to be written");
    if (host && !gd_tensor_read(t, host, bytes)) put_bytes(ctx, to, host, bytes);
    gd_host_release(ctx, host, bytes);
    return gd_error_status(ctx);
}

gd_status gd_safetensors_write_by(gd_context *ctx, const gd_output *to, gd_file_contents c,
                                  gd_supply *supply, void *user)
{
    char *header = NULL;
    size_t header_bytes = 0;
#ifndef GD_HAVE_JANSSON
    gd_fail(ctx, GD_ERROR_UNSUPPORTED, "safetensors_write: %s", gd_safetensors_no_jansson);
#endif
    if (gd_error_status(ctx) || check_arguments(ctx, c)) return gd_error_status(ctx);
    gd_named_tensor *sorted = by_width(ctx, c.tensors, c.tensor_count);
    c.tensors = sorted;
    if (sorted) header = gd_safetensors_print(ctx, c, &header_bytes);
    if (header) put_bytes(ctx, to, header, header_bytes);
    for (int64_t i = 0; header && i < c.tensor_count; i++) {
        if (supply ? !supply(user, &sorted[i]) : gd_failed(ctx)) break;
        write_elements(to, sorted[i].tensor);
    }
    free(header);
    gd_host_release(ctx, sorted, (size_t)c.tensor_count * sizeof *sorted);
    return gd_error_status(ctx);
}

gd_status gd_safetensors_check_output(gd_context *ctx, const gd_output *to)
{
    if (to && to->name && to->write) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_ARGUMENT,
                   "safetensors_write: the output has no %s, wanted a name and a function",
                   to && to->name ? "write" : "name");
}

gd_status gd_safetensors_write_to(gd_context *ctx, const gd_output *to,
                                  const gd_named_tensor *tensors, int64_t tensor_count,
                                  const gd_named_text *metadata, int64_t metadata_count)
{
    if (gd_error_status(ctx) || gd_safetensors_check_output(ctx, to)) return gd_error_status(ctx);
    return gd_safetensors_write_by(
        ctx, to, (gd_file_contents){tensors, tensor_count, metadata, metadata_count}, NULL, NULL);
}

gd_status gd_safetensors_write(gd_context *ctx, const char *path, const gd_named_tensor *tensors,
                               int64_t tensor_count, const gd_named_text *metadata,
                               int64_t metadata_count)
{
    gd_whole_file file;
    const gd_output to = {path, gd_whole_file_write, &file};
    if (gd_whole_file_begin(&file, ctx, "safetensors_write", path)) return gd_error_status(ctx);
    gd_safetensors_write_to(ctx, &to, tensors, tensor_count, metadata, metadata_count);
    return gd_whole_file_end(&file);
}
