/* safetensors_header.c - reads the header of a safetensors file, and checks the rules of the format
 * (gradus/safetensors.h lists them).
 *
 * A tree of the whole header would take many times the memory of its text. So it is parsed one
 * member at a time. One pass counts, a second one fills in what was counted. */
#include "files/file_kind.h"
#include "files/safetensors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "gradus needs a little-endian processor: elements are read from files as they are"
#endif

/* ---- Dtypes ------------------------------------------------------------------------------- */

static const struct format_dtype {
    const char *name;
    int bits;
    gd_dtype dtype;
} format_dtypes[] = {
    {"F32", 32, GD_FLOAT32},
    {"F64", 64, GD_FLOAT64},
    {"BF16", 16, GD_BFLOAT16},
    {"F16", 16, GD_FLOAT16},
    {"I32", 32, GD_INT32},
    {"I64", 64, GD_DTYPE_COUNT},
    {"I16", 16, GD_DTYPE_COUNT},
    {"I8", 8, GD_DTYPE_COUNT},
    {"U64", 64, GD_DTYPE_COUNT},
    {"U32", 32, GD_DTYPE_COUNT},
    {"U16", 16, GD_DTYPE_COUNT},
    {"U8", 8, GD_DTYPE_COUNT},
    {"BOOL", 8, GD_DTYPE_COUNT},
    {"C64", 64, GD_DTYPE_COUNT},
    {"F8_E4M3", 8, GD_DTYPE_COUNT},
    {"F8_E5M2", 8, GD_DTYPE_COUNT},
    {"F8_E8M0", 8, GD_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, GD_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, GD_DTYPE_COUNT},
    {"F6_E2M3", 6, GD_DTYPE_COUNT},
    {"F6_E3M2", 6, GD_DTYPE_COUNT},
    {"F4", 4, GD_DTYPE_COUNT},
};

enum { FORMAT_DTYPES = sizeof format_dtypes / sizeof *format_dtypes };

const char *gd_safetensors_dtype_name(gd_dtype dtype)
{
    for (int i = 0; i < FORMAT_DTYPES; i++) {
        if (format_dtypes[i].dtype == dtype) return format_dtypes[i].name;
    }
    return NULL;
}

const char gd_safetensors_metadata_name[] = "__metadata__";
const char gd_safetensors_no_jansson[] = "this build of gradus has no jansson (GRADUS_JANSSON)";

#ifdef GD_HAVE_JANSSON
#include "files/json.h"

/* ---- What a file holds -------------------------------------------------------------------- */

static gd_status refuse(const gd_safetensors *file, const char *format, ...) GD_PRINTF(2, 3);

static gd_status refuse(const gd_safetensors *file, const char *format, ...)
{
    char why[400];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return gd_fail(file->ctx, GD_ERROR_IO, "safetensors_open: %s: %s",
                   gd_excerpt_of(file->path).text, why);
}

static gd_status fetch(gd_safetensors *file, size_t offset, void *to, size_t bytes)
{
    if (gd_safetensors_fetch(file, "safetensors_open", offset, to, bytes)) file->reason = errno;
    return gd_error_status(file->ctx);
}

/* Its text, in memory; NULL on error. */
static const char *header_text(gd_safetensors *file, size_t length)
{
    if (file->bytes) return (const char *)file->bytes + GD_SAFETENSORS_LENGTH_BYTES;
    file->header = gd_host_allocate(file->ctx, length, "the header of a safetensors file");
    file->header_bytes = length;
    if (file->header) fetch(file, GD_SAFETENSORS_LENGTH_BYTES, file->header, length);
    return gd_failed(file->ctx) ? NULL : file->header;
}

/* What the file is, if that is known. */
static const char *other_file(gd_safetensors *file)
{
    unsigned char first[GD_FILE_KIND];
    const size_t size = file->size < sizeof first ? file->size : sizeof first;
    if (fetch(file, 0, first, size)) return NULL;
    const char *kind = gd_file_kind(first, size);
    return kind                                                  ? kind
           : gd_file_is_text(first, GD_SAFETENSORS_LENGTH_BYTES) ? "it is a text"
                                                                 : NULL;
}

/* The text of the header, or NULL. */
static const char *find_header(gd_safetensors *file, size_t *length)
{
    unsigned char first[GD_SAFETENSORS_LENGTH_BYTES];
    uint64_t wanted = 0;
    if (file->size < sizeof first) {
        refuse(file, "the file is shorter than 8 bytes, the length of the header");
        return NULL;
    }
    if (fetch(file, 0, first, sizeof first)) return NULL;
    for (size_t i = sizeof first; i > 0; i--) wanted = wanted << 8 | first[i - 1];
    size_t rest = file->size - sizeof first;
    const char *text = NULL, *other = wanted > rest ? other_file(file) : NULL;
    if (other) {
        refuse(file, "%s", other);
    } else if (wanted > GD_SAFETENSORS_HEADER_LIMIT) {
        refuse(file, "the header has %llu bytes, wanted at most %d", (unsigned long long)wanted,
               GD_SAFETENSORS_HEADER_LIMIT);
    } else if (wanted > rest) {
        refuse(file, "the header has %llu bytes, but the file has only %zu after its length",
               (unsigned long long)wanted, rest);
    } else if (wanted == 0) {
        refuse(file, "the header does not begin with {");
    } else if ((text = header_text(file, (size_t)wanted)) && text[0] != '{') {
        refuse(file, "the header does not begin with {");
    }
    *length = (size_t)wanted;
    return gd_failed(file->ctx) ? NULL : text;
}

/* ---- Members, one at a time ---------------------------------------------------------------- */

/* The longest description of a tensor: 64 dimensions of 64 bits fit. */
enum { MOST_DESCRIPTION = 4096, MOST_DIMS = 64 };

/* The state of a pass over the header, which only counts while `chars` is NULL, and then
 * fills in. */
typedef struct walk {
    gd_safetensors *file;
    gd_json json;
    size_t data_begin;
    bool metadata; /* it was there */
    char *chars;   /* for the next text */
    int64_t *dims, entries, texts;
} walk;

static gd_status refuse_json(const walk *w)
{
    if (w->json.memory)
        return gd_fail(w->file->ctx, GD_ERROR_MEMORY, "%s: the header of %s", w->json.wrong,
                       gd_excerpt_of(w->file->path).text);
    return refuse(w->file, "the header is not valid JSON: %s, at byte %zu",
                  gd_excerpt_of(w->json.wrong).text, w->json.at);
}

/* Calls `visit` at the value of each member of an object. */
static gd_status walk_object(walk *w, gd_status (*visit)(walk *w, const char *name))
{
    while (gd_json_next(&w->json, true)) {
        if (visit(w, w->json.name)) return gd_error_status(w->file->ctx);
    }
    return w->json.wrong ? refuse_json(w) : GD_OK;
}

/* The first pass counts the bytes of a text, the second keeps them. */
static const char *keep_text(walk *w, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *kept = w->chars;
    if (kept)
        w->chars = (char *)memcpy(kept, text, bytes) + bytes;
    else
        w->file->char_count += bytes;
    return kept;
}

/* ---- Metadata ------------------------------------------------------------------------------ */

static gd_status visit_metadata(walk *w, const char *name)
{
    gd_safetensors *file = w->file;
    if (gd_json_peek(&w->json) != '"') {
        return refuse(file, "%s: \"%s\" is not a string", gd_safetensors_metadata_name,
                      gd_excerpt_of(name).text);
    }
    const json_t *value = gd_json_take(&w->json, SIZE_MAX);
    if (!value) return refuse_json(w);
    const char *kept = keep_text(w, name), *text = keep_text(w, json_string_value(value));
    if (kept)
        file->metadata[w->texts++] = (gd_named_text){kept, text};
    else
        file->metadata_count++;
    return GD_OK;
}

/* ---- Tensors ------------------------------------------------------------------------------- */

/* The description of a tensor, with fields of the right kinds. */
static const json_t *take_description(walk *w, const char *name)
{
    const bool object = gd_json_peek(&w->json) == '{';
    const json_t *value = object ? gd_json_take(&w->json, MOST_DESCRIPTION) : NULL;
    const json_t *shape = json_object_get(value, "shape");
    if (object && !value)
        refuse_json(w);
    else if (w->json.minus)
        refuse(w->file, "tensor \"%s\": a number has a minus sign", gd_excerpt_of(name).text);
    else if (json_is_array(shape) && json_object_size(value) == 3 &&
             json_array_size(shape) <= MOST_DIMS &&
             json_is_string(json_object_get(value, "dtype")) &&
             json_array_size(json_object_get(value, "data_offsets")) == 2)
        return value;
    else
        refuse(w->file,
               "tensor \"%s\" does not have exactly the fields dtype (a string), shape (at most "
               "%d numbers) "
               "and data_offsets (two numbers)",
               gd_excerpt_of(name).text, MOST_DIMS);
    return NULL;
}

/* A whole number. */
static bool read_size(const json_t *value, int64_t *size)
{
    *size = (int64_t)json_integer_value(value);
    return json_is_integer(value);
}

/* The bytes of a packed tensor; false if they overflow or do not fill whole bytes. */
static bool count_bytes(int ndim, const int64_t *shape, int bits, size_t *bytes)
{
    int64_t count;
    if (!gd_shape_count(ndim, shape, (size_t)(bits < 8 ? 8 : bits) / 8, &count)) return false;
    *bytes = (size_t)(count / 8 * bits + count % 8 * bits / 8);
    return count % 8 * bits % 8 == 0;
}

static gd_status fill_entry(const gd_safetensors *file, gd_safetensors_entry *entry,
                            const json_t *value, int64_t *dims, size_t data_begin)
{
    const gd_excerpt excerpt = gd_excerpt_of(entry->name);
    const char *name = excerpt.text;
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    const struct format_dtype *known = NULL;
    for (int i = 0; i < FORMAT_DTYPES; i++) {
        if (!strcmp(format_dtypes[i].name, dtype)) known = &format_dtypes[i];
    }
    if (!known) {
        return refuse(file, "tensor \"%s\": unknown dtype \"%s\"", name, gd_excerpt_of(dtype).text);
    }
    const size_t ndim = json_array_size(shape);
    for (size_t i = 0; i < ndim; i++) {
        if (!read_size(json_array_get(shape, i), &dims[i])) {
            return refuse(file,
                          "tensor \"%s\": dimension %zu is not a whole number from 0 to 2^63 - 1",
                          name, i);
        }
    }
    int64_t begin, end;
    size_t wanted;
    if (!read_size(json_array_get(offsets, 0), &begin) ||
        !read_size(json_array_get(offsets, 1), &end) || begin > end ||
        (uint64_t)end > file->size - data_begin) {
        return refuse(file, "tensor \"%s\": its data_offsets are not within the %zu bytes of data",
                      name, file->size - data_begin);
    }
    if (!count_bytes((int)ndim, dims, known->bits, &wanted)) {
        return refuse(file,
                      "tensor \"%s\": its shape is too large, or does not "
                      "fill whole bytes",
                      name);
    }
    if (wanted != (size_t)(end - begin)) {
        return refuse(file,
                      "tensor \"%s\": its data_offsets hold %lld bytes, but its shape has %zu",
                      name, (long long)(end - begin), wanted);
    }
    entry->format_dtype = known->name;
    entry->dtype = known->dtype;
    entry->ndim = (int)ndim;
    entry->shape = dims;
    entry->offset = data_begin + (size_t)begin;
    entry->data = file->bytes ? file->bytes + entry->offset : NULL;
    entry->bytes = wanted;
    return GD_OK;
}

static gd_status refuse_duplicate(const gd_safetensors *file, const char *name)
{
    return refuse(file, "the header is not valid JSON: \"%s\" occurs twice",
                  gd_excerpt_of(name).text);
}

static gd_status visit_header(walk *w, const char *name)
{
    gd_safetensors *file = w->file;
    if (!strcmp(name, gd_safetensors_metadata_name)) {
        if (w->metadata) return refuse_duplicate(file, name);
        w->metadata = true;
        if (gd_json_peek(&w->json) == '{') return walk_object(w, visit_metadata);
        return refuse(file, "%s is not an object", gd_safetensors_metadata_name);
    }
    const json_t *value = take_description(w, name);
    if (!value) return gd_error_status(file->ctx);
    const char *kept = keep_text(w, name);
    if (kept) {
        gd_safetensors_entry *entry = &file->entries[w->entries++];
        entry->name = kept;
        fill_entry(file, entry, value, w->dims, w->data_begin);
        w->dims += entry->ndim;
    } else {
        file->count++;
        file->dim_count += (int64_t)json_array_size(json_object_get(value, "shape"));
    }
    return gd_error_status(file->ctx);
}

static gd_status allocate(gd_safetensors *file)
{
    gd_context *ctx = file->ctx;
    const char *what = "the header of a safetensors file";
    file->entries = gd_host_allocate(ctx, (size_t)file->count * sizeof *file->entries, what);
    file->by_name = gd_host_allocate(ctx, (size_t)file->count * sizeof *file->by_name, what);
    file->metadata =
        gd_host_allocate(ctx, (size_t)file->metadata_count * sizeof *file->metadata, what);
    file->dims = gd_host_allocate(ctx, (size_t)file->dim_count * sizeof *file->dims, what);
    file->chars = gd_host_allocate(ctx, file->char_count, what);
    return gd_error_status(ctx);
}

/* ---- All together ------------------------------------------------------------------------- */

/* Sorts by offset; an empty tensor comes before another one at the same offset. */
static int compare_offsets(const void *left, const void *right)
{
    const gd_safetensors_entry *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_names(const void *left, const void *right)
{
    const gd_safetensors_entry *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int compare_texts(const void *left, const void *right)
{
    const gd_named_text *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* Names were kept in the order of the file. */
static int compare_order(const void *left, const void *right)
{
    const gd_named_text *a = left, *b = right;
    return a->name < b->name ? -1 : 1;
}

static gd_status check_names(gd_safetensors *file)
{
    const size_t texts = (size_t)file->metadata_count;
    for (int64_t i = 1; i < file->count; i++) {
        const char *name = file->by_name[i]->name;
        if (!strcmp(name, file->by_name[i - 1]->name)) return refuse_duplicate(file, name);
    }
    qsort(file->metadata, texts, sizeof *file->metadata, compare_texts);
    for (size_t i = 1; i < texts; i++) {
        const char *name = file->metadata[i].name;
        if (!strcmp(name, file->metadata[i - 1].name)) return refuse_duplicate(file, name);
    }
    qsort(file->metadata, texts, sizeof *file->metadata, compare_order);
    return GD_OK;
}

/* Each tensor begins where the one before it ends, the first after the header, and the last ends
 * with the file. */
static gd_status check_tiling(const gd_safetensors *file, size_t data_begin)
{
    size_t end = 0;
    for (int64_t i = 0; i < file->count; i++) {
        const gd_safetensors_entry *entry = &file->entries[i];
        size_t begin = entry->offset - data_begin;
        if (begin != end) {
            return refuse(file,
                          "tensor \"%s\" begins at byte %zu of the data, but the one before "
                          "it ends at %zu",
                          gd_excerpt_of(entry->name).text, begin, end);
        }
        end = begin + entry->bytes;
    }
    size_t rest = file->size - data_begin - end;
    return rest ? refuse(file, "%zu bytes at the end belong to no tensor", rest) : GD_OK;
}

static gd_status walk_header(walk *w)
{
    w->json.at = 0;
    w->metadata = false;
    if (walk_object(w, visit_header)) return gd_error_status(w->file->ctx);
    return gd_json_end(&w->json) ? GD_OK : refuse_json(w);
}

static gd_status walk_twice(gd_safetensors *file, const char *text, size_t length)
{
    walk w = {.file = file,
              .json = {.text = text, .length = length},
              .data_begin = GD_SAFETENSORS_LENGTH_BYTES + length};
    if (!walk_header(&w) && !allocate(file)) {
        w.chars = file->chars;
        file->path = keep_text(&w, file->path);
        w.dims = file->dims;
        walk_header(&w);
    }
    gd_json_close(&w.json);
    return gd_error_status(file->ctx);
}

gd_status gd_safetensors_parse(gd_safetensors *file, const char *path)
{
    size_t length;
    file->path = path;
    file->char_count = strlen(path) + 1;
    const char *text = find_header(file, &length);
    if (!text || walk_twice(file, text, length)) return gd_error_status(file->ctx);
    const size_t data_begin = GD_SAFETENSORS_LENGTH_BYTES + length;
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_offsets);
    for (int64_t i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    if (check_names(file) || check_tiling(file, data_begin)) return gd_error_status(file->ctx);
    gd_host_release(file->ctx, file->header, file->header_bytes);
    file->header = NULL;
    return GD_OK;
}

#else

gd_status gd_safetensors_parse(gd_safetensors *file, const char *path)
{
    file->path = path;
    return gd_fail(file->ctx, GD_ERROR_UNSUPPORTED, "safetensors_open: %s",
                   gd_safetensors_no_jansson);
}

#endif
