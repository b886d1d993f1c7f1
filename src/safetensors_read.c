/* safetensors_read.c - an open safetensors file, and tensors from it. */
#define _POSIX_C_SOURCE 200809L /* open, fstat, mmap */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Opening ------------------------------------------------------------------------------ */

static gd_status refuse_file(gd_context *ctx, const char *path, const char *why)
{
    return gd_fail(ctx, GD_ERROR_IO, "safetensors_open: %s: %s", gd_excerpt_of(path).text, why);
}

static gd_safetensors *create(gd_context *ctx)
{
    gd_safetensors *file = gd_host_allocate(ctx, sizeof *file, "a safetensors file");
    if (file) *file = (gd_safetensors){.ctx = ctx};
    return file;
}

static gd_safetensors *finish(gd_safetensors *file, const char *path)
{
    if (!gd_failed(file->ctx) && !gd_safetensors_parse(file, path)) return file;
    gd_safetensors_close(file);
    return NULL;
}

/* Private memory that may be written: a write copies the page and leaves the file alone. */
static void map(gd_safetensors *file, const char *path, int descriptor)
{
    struct stat status;
    if (fstat(descriptor, &status)) {
        refuse_file(file->ctx, path, strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        refuse_file(file->ctx, path, "not a regular file");
    } else if (status.st_size < GD_SAFETENSORS_LENGTH_BYTES) {
        refuse_file(file->ctx, path, "the file is shorter than 8 bytes, the length of the header");
    } else {
        size_t size = (size_t)status.st_size;
        void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
        if (bytes == MAP_FAILED) {
            refuse_file(file->ctx, path, strerror(errno));
            return;
        }
        file->bytes = bytes;
        file->size = size;
        file->mapped = true;
    }
}

/* O_NONBLOCK: opening a FIFO must not wait for a writer. */
gd_safetensors *gd_safetensors_open(gd_context *ctx, const char *path)
{
    if (gd_error_status(ctx)) return NULL;
    if (!path) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "safetensors_open: path is NULL, wanted a file");
        return NULL;
    }
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor < 0) {
        refuse_file(ctx, path, strerror(errno));
        return NULL;
    }
    gd_safetensors *file = create(ctx);
    if (file) map(file, path, descriptor);
    close(descriptor); /* the mapping stays */
    return file ? finish(file, path) : NULL;
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
    file->bytes = bytes;
    file->size = size;
    return finish(file, "(memory)");
}

void gd_safetensors_close(gd_safetensors *file)
{
    if (!file) return;
    gd_context *ctx = file->ctx;
    if (file->mapped) munmap((void *)(uintptr_t)file->bytes, file->size);
    gd_host_release(ctx, file->entries, (size_t)file->count * sizeof *file->entries);
    gd_host_release(ctx, file->by_name, (size_t)file->count * sizeof *file->by_name);
    gd_host_release(ctx, file->metadata, (size_t)file->metadata_count * sizeof *file->metadata);
    gd_host_release(ctx, file->dims, (size_t)file->dim_count * sizeof *file->dims);
    gd_host_release(ctx, file->chars, file->char_count);
    gd_host_release(ctx, file, sizeof *file);
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

/* The entry, if it can become a tensor. */
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
    } else if (entry->dtype == GD_DTYPE_COUNT || entry->ndim > GD_MAX_DIMS) {
        gd_fail(file->ctx, GD_ERROR_UNSUPPORTED,
                "%s: %s: tensor \"%s\" is %s with %d dimensions; wanted a dtype of gd_dtype and at "
                "most %d dimensions",
                who, path.text, excerpt.text, entry->format_dtype, entry->ndim, GD_MAX_DIMS);
        entry = NULL;
    }
    return entry;
}

static gd_tensor *window_or_copy(const gd_safetensors *file, const gd_safetensors_entry *entry)
{
    gd_context *ctx = file->ctx;
    void *data = (void *)(uintptr_t)entry->data;
    bool aligned = (uintptr_t)data % gd_dtype_size(entry->dtype) == 0;
    if (file->mapped && aligned && gd_context_device(ctx) == GD_CPU) {
        return gd_tensor_wrap(ctx, entry->dtype, entry->ndim, entry->shape, data);
    }
    return gd_tensor_from(ctx, entry->dtype, entry->ndim, entry->shape, data);
}

gd_tensor *gd_safetensors_tensor(const gd_safetensors *file, const char *name)
{
    const gd_safetensors_entry *entry = usable(file, name, "safetensors_tensor");
    gd_tensor *t = entry ? window_or_copy(file, entry) : NULL;
    if (t) gd_tensor_set_name(t, name);
    return t;
}

gd_status gd_safetensors_read(const gd_safetensors *file, const char *name, gd_tensor *tensor)
{
    if (!file) return GD_ERROR_ARGUMENT;
    const char *who = "safetensors_read";
    gd_context *ctx = file->ctx;
    const gd_safetensors_entry *entry = usable(file, name, who);
    if (!entry) return gd_error_status(ctx);
    if (!tensor) return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: tensor is NULL, wanted one", who);
    gd_tensor *source = window_or_copy(file, entry);
    if (!source) return gd_error_status(ctx);
    if (source->ndim != tensor->ndim ||
        memcmp(source->shape, tensor->shape, (size_t)source->ndim * sizeof *source->shape) != 0) {
        gd_fail(ctx, GD_ERROR_IO, "%s: %s: tensor \"%s\" has shape %s, wanted %s", who,
                gd_excerpt_of(file->path).text, gd_excerpt_of(name).text,
                gd_shape_text(source).text, gd_shape_text(tensor).text);
    }
    if (!gd_failed(ctx)) gd_tensor_copy(tensor, source);
    gd_tensor_free(source);
    return gd_error_status(ctx);
}
