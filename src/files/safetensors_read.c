/* safetensors_read.c - an open safetensors file, and tensors from it. */
#include "files/safetensors.h"
#include "platform/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Opening ------------------------------------------------------------------------------ */

static const char opening[] = "safetensors_open";

static gd_safetensors *create(gd_context *ctx)
{
    gd_safetensors *file = gd_host_allocate(ctx, sizeof *file, "a safetensors file");
    if (!file) return NULL;
    *file = (gd_safetensors){.ctx = ctx, .descriptor = -1};
    gd_context_hold(ctx);
    return file;
}

/* Finds its size, and checks that it is one: opening a FIFO or a device says nothing. */
static gd_status measure(gd_safetensors *file, const char *path)
{
    gd_os_status status;
    if (!gd_os_status_of(file->descriptor, &status)) {
        file->reason = errno;
        return gd_safetensors_refuse(file->ctx, opening, path, strerror(errno));
    }
    if (status.kind != GD_OS_IS_FILE) {
        file->reason = EINVAL;
        return gd_safetensors_refuse(file->ctx, opening, path, "not a regular file");
    }
    file->size = (size_t)status.size;
    return GD_OK;
}

/* errno becomes the reason of the system, or 0 if the contents are at fault. */
static gd_safetensors *finish(gd_safetensors *file, const char *path)
{
    gd_status status = file->bytes ? GD_OK : measure(file, path);
    if (!status) status = gd_safetensors_parse(file, path);
    if (!status) return file;
    const int why = status == GD_ERROR_MEMORY ? ENOMEM : file->reason;
    gd_safetensors_close(file);
    errno = why;
    return NULL;
}

gd_safetensors *gd_safetensors_open_descriptor(gd_context *ctx, int descriptor, const char *name)
{
    gd_safetensors *file = NULL;
    if (!gd_error_status(ctx) && (descriptor < 0 || !name))
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the descriptor is %d and the name %s, wanted both",
                opening, descriptor, name ? name : "NULL");
    if (!gd_error_status(ctx)) file = create(ctx);
    if (file) {
        file->descriptor = descriptor;
        return finish(file, name);
    }
    gd_os_close(descriptor);
    errno = ENOMEM;
    return NULL;
}

/* GD_OS_NO_WAIT: opening a FIFO must not wait for a writer. */
gd_safetensors *gd_safetensors_open(gd_context *ctx, const char *path)
{
    if (gd_error_status(ctx)) return NULL;
    if (!path) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: path is NULL, wanted a file", opening);
        return NULL;
    }
    const int descriptor = gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_NO_WAIT, 0);
    if (descriptor >= 0) return gd_safetensors_open_descriptor(ctx, descriptor, path);
    const int why = errno;
    gd_safetensors_refuse(ctx, opening, path, strerror(why));
    errno = why;
    return NULL;
}

gd_safetensors *gd_safetensors_wrap(gd_context *ctx, const void *bytes, size_t size)
{
    if (gd_error_status(ctx)) return NULL;
    if (!bytes && size > 0) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "safetensors_wrap: file is NULL, wanted %zu bytes", size);
        return NULL;
    }
    gd_safetensors *file = create(ctx);
    if (!file) return NULL;
    file->bytes = bytes ? bytes : (const void *)"";
    file->size = size;
    return finish(file, "(memory)");
}

void gd_safetensors_close(gd_safetensors *file)
{
    if (!file) return;
    gd_context *ctx = file->ctx;
    gd_os_close(file->descriptor);
    gd_host_release(ctx, file->header, file->header_bytes);
    gd_host_release(ctx, file->entries, (size_t)file->count * sizeof *file->entries);
    gd_host_release(ctx, file->by_name, (size_t)file->count * sizeof *file->by_name);
    gd_host_release(ctx, file->metadata, (size_t)file->metadata_count * sizeof *file->metadata);
    gd_host_release(ctx, file->dims, (size_t)file->dim_count * sizeof *file->dims);
    gd_host_release(ctx, file->chars, file->char_count);
    gd_host_release(ctx, file, sizeof *file);
    gd_context_drop(ctx);
}

/* ---- Looking ------------------------------------------------------------------------------ */

int64_t gd_safetensors_count(const gd_safetensors *file)
{
    return file ? file->count : 0;
}

const gd_safetensors_entry *gd_safetensors_at(const gd_safetensors *file, int64_t index)
{
    return file && index >= 0 && index < file->count ? &file->entries[index] : NULL;
}

const gd_safetensors_entry *gd_safetensors_find(const gd_safetensors *file, const char *name)
{
    int64_t low = 0, high = file && name ? file->count : 0;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, file->by_name[middle]->name);
        if (order == 0) return file->by_name[middle];
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

const gd_named_text *gd_safetensors_metadata_at(const gd_safetensors *file, int64_t index)
{
    return file && index >= 0 && index < file->metadata_count ? &file->metadata[index] : NULL;
}

const char *gd_safetensors_metadata(const gd_safetensors *file, const char *name)
{
    for (int64_t i = 0; file && name && i < file->metadata_count; i++) {
        if (!strcmp(file->metadata[i].name, name)) return file->metadata[i].text;
    }
    return NULL;
}

/* ---- Tensors ------------------------------------------------------------------------------ */

/* "float" of "F8_E4M3" */
static const char *family_of(const char *dtype)
{
    return dtype[0] == 'F'   ? "float"
           : dtype[0] == 'I' ? "int"
           : dtype[0] == 'U' ? "uint"
           : dtype[0] == 'C' ? "complex"
                             : "bool";
}

/* The entry, if it can become a tensor; else NULL, and the error is set. */
static const gd_safetensors_entry *usable(const gd_safetensors *file, const char *name,
                                          const char *who)
{
    if (!file || gd_failed(file->ctx)) return NULL;
    const gd_excerpt path = gd_excerpt_of(file->path),
                     excerpt = gd_excerpt_of(name ? name : "(NULL)");
    const gd_safetensors_entry *entry = gd_safetensors_find(file, name);
    if (!entry) {
        gd_fail(file->ctx, GD_ERROR_IO, "%s: %s has no tensor \"%s\"", who, path.text,
                excerpt.text);
    } else if (entry->dtype == GD_DTYPE_COUNT) {
        gd_fail(file->ctx, GD_ERROR_UNSUPPORTED,
                "%s: %s: tensor \"%s\" holds %s%.0d (%s), wanted F32, F64, BF16, F16 or I32", who,
                path.text, excerpt.text, family_of(entry->format_dtype),
                atoi(entry->format_dtype + 1), entry->format_dtype);
        entry = NULL;
    } else if (entry->ndim > GD_MAX_DIMS) {
        gd_fail(file->ctx, GD_ERROR_UNSUPPORTED,
                "%s: %s: tensor \"%s\" has %d dimensions, wanted at most %d", who, path.text,
                excerpt.text, entry->ndim, GD_MAX_DIMS);
        entry = NULL;
    }
    return entry;
}

/* Whether elements can be read straight into its memory. */
static bool is_plain(const gd_tensor *t, gd_dtype dtype)
{
    return t->dtype == dtype && gd_context_device(t->ctx) == GD_CPU && gd_tensor_is_contiguous(t);
}

/* Fills a tensor of the entry's dtype and shape. */
static gd_status fill(const gd_safetensors *file, const gd_safetensors_entry *entry,
                      const char *who, gd_tensor *t)
{
    gd_context *ctx = file->ctx;
    if (is_plain(t, entry->dtype)) {
        gd_new_version(ctx, t->storage);
        gd_safetensors_fetch(file, who, entry->offset, gd_tensor_data(t), entry->bytes);
        gd_written(ctx, t->storage);
        return gd_error_status(ctx);
    }
    if (entry->data) return gd_tensor_write(t, entry->data, entry->bytes);
    void *host = gd_host_allocate(ctx, entry->bytes, "a tensor of a file");
    if (host && !gd_safetensors_fetch(file, who, entry->offset, host, entry->bytes))
        gd_tensor_write(t, host, entry->bytes);
    gd_host_release(ctx, host, entry->bytes);
    return gd_error_status(ctx);
}

static gd_tensor *make_tensor(const gd_safetensors *file, const gd_safetensors_entry *entry,
                              const char *who)
{
    gd_tensor *t = gd_tensor_create(file->ctx, entry->dtype, entry->ndim, entry->shape);
    if (!t || !fill(file, entry, who, t)) return t;
    gd_tensor_free(t);
    return NULL;
}

gd_tensor *gd_safetensors_tensor(const gd_safetensors *file, const char *name)
{
    const char *who = "safetensors_tensor";
    const gd_safetensors_entry *entry = usable(file, name, who);
    gd_tensor *t = entry ? make_tensor(file, entry, who) : NULL;
    if (t) gd_tensor_set_name(t, name);
    return t;
}

bool gd_safetensors_has_shape(const gd_safetensors_entry *entry, const gd_tensor *t)
{
    return t->ndim == entry->ndim &&
           !memcmp(t->shape, entry->shape, (size_t)entry->ndim * sizeof *entry->shape);
}

gd_text gd_safetensors_shape_text(const gd_safetensors_entry *entry)
{
    gd_tensor shown = {.ndim = entry->ndim < GD_MAX_DIMS ? entry->ndim : GD_MAX_DIMS};
    memcpy(shown.shape, entry->shape, (size_t)shown.ndim * sizeof *entry->shape);
    return gd_shape_text(&shown);
}

gd_status gd_safetensors_read(const gd_safetensors *file, const char *name, gd_tensor *tensor)
{
    if (!file) return GD_ERROR_ARGUMENT;
    const char *who = "safetensors_read";
    gd_context *ctx = file->ctx;
    const gd_safetensors_entry *entry = usable(file, name, who);
    if (!entry) return gd_error_status(ctx);
    if (!tensor) return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: tensor is NULL, wanted one", who);
    if (!gd_tensor_writable(tensor, who)) return gd_error_status(ctx);
    if (!gd_safetensors_has_shape(entry, tensor))
        return gd_fail(ctx, GD_ERROR_IO, "%s: %s: tensor \"%s\" has shape %s, wanted %s", who,
                       gd_excerpt_of(file->path).text, gd_excerpt_of(entry->name).text,
                       gd_safetensors_shape_text(entry).text, gd_shape_text(tensor).text);
    if (is_plain(tensor, entry->dtype)) return fill(file, entry, who, tensor);
    gd_tensor *source = make_tensor(file, entry, who);
    if (source) gd_tensor_copy(tensor, source);
    gd_tensor_free(source);
    return gd_error_status(ctx);
}

gd_status gd_safetensors_read_bytes(const gd_safetensors *file, const gd_safetensors_entry *entry,
                                    size_t offset, void *host, size_t bytes)
{
    if (!file) return GD_ERROR_ARGUMENT;
    const char *who = "safetensors_read_bytes";
    if (gd_failed(file->ctx)) return gd_error_status(file->ctx);
    if (!entry || (!host && bytes > 0))
        return gd_fail(file->ctx, GD_ERROR_ARGUMENT, "%s: %s is NULL", who,
                       entry ? "host" : "entry");
    if (offset > entry->bytes || bytes > entry->bytes - offset)
        return gd_fail(file->ctx, GD_ERROR_ARGUMENT,
                       "%s: given bytes %zu to %zu of \"%s\", which has %zu", who, offset,
                       offset + bytes, gd_excerpt_of(entry->name).text, entry->bytes);
    return gd_safetensors_fetch(file, who, entry->offset + offset, host, bytes);
}
