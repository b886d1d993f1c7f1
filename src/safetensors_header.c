/* safetensors_header.c - the header of a safetensors file, read, and held to the rules that make a
 * file true (gradus/safetensors.h lists them).
 *
 * jansson turns the text into a tree; it refuses duplicate names, what is not UTF-8, numbers beyond
 * 64 bits and deep nesting. One walk over the tree counts what will be needed, a second fills it
 * in, and then the tree goes. */
#include "safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __BYTE_ORDER__
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors files are little-endian");
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

gd_excerpt gd_excerpt_of(const char *text)
{
    gd_excerpt cut;
    size_t room = sizeof cut.text - 4, i = 0;
    for (; text[i] && i < room; i++) cut.text[i] = text[i];
    if (text[i]) {
        while (i > 0 && ((unsigned char)text[i] & 0xc0) == 0x80) i--; /* not within a character */
        memcpy(cut.text + i, "...", 3);
        i += 3;
    }
    cut.text[i] = '\0';
    return cut;
}

const char gd_safetensors_metadata_name[] = "__metadata__";
const char gd_safetensors_no_jansson[] = "this build of gradus has no jansson (GRADUS_JANSSON)";

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

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

/* The text of the header, or NULL. */
static const char *find_header(const gd_safetensors *file, size_t *length)
{
    uint64_t wanted = 0;
    if (file->size < GD_SAFETENSORS_LENGTH_BYTES) {
        refuse(file, "the file has %zu bytes, wanted 8 for the length of the header", file->size);
        return NULL;
    }
    for (int i = GD_SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--)
        wanted = wanted << 8 | file->bytes[i];
    size_t rest = file->size - GD_SAFETENSORS_LENGTH_BYTES;
    const char *text = (const char *)file->bytes + GD_SAFETENSORS_LENGTH_BYTES;
    if (wanted > GD_SAFETENSORS_HEADER_LIMIT) {
        refuse(file, "the header has %llu bytes, wanted at most %d", (unsigned long long)wanted,
               GD_SAFETENSORS_HEADER_LIMIT);
    } else if (wanted > rest) {
        refuse(file, "the header has %llu bytes, but the file only %zu after its length",
               (unsigned long long)wanted, rest);
    } else if (wanted == 0 || text[0] != '{') {
        refuse(file, "the header does not begin with {");
    } else {
        *length = (size_t)wanted;
        return text;
    }
    return NULL;
}

/* jansson takes -0 for 0. No number of a header has a minus sign. */
static bool has_minus(const char *text, size_t length)
{
    bool within = false; /* a string */
    for (size_t i = 0; i < length; i++) {
        if (within && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            within = !within;
        } else if (!within && text[i] == '-') {
            return true;
        }
    }
    return false;
}

static gd_status refuse_json(const gd_safetensors *file, const json_error_t *error)
{
    if (json_error_code(error) == json_error_out_of_memory) {
        return gd_fail(file->ctx, GD_ERROR_MEMORY, "out of memory: the header of %s",
                       gd_excerpt_of(file->path).text);
    }
    return refuse(file, "the header is not JSON as wanted: %s, at byte %d",
                  gd_excerpt_of(error->text).text, error->position);
}

/* ---- First walk: how much is there, and is it of the right kind ---------------------------- */

static gd_status count_metadata(gd_safetensors *file, json_t *map)
{
    const char *name;
    json_t *text;
    if (!json_is_object(map))
        return refuse(file, "%s is not an object", gd_safetensors_metadata_name);
    json_object_foreach(map, name, text)
    {
        if (!json_is_string(text)) {
            return refuse(file, "%s: \"%s\" is not a text", gd_safetensors_metadata_name,
                          gd_excerpt_of(name).text);
        }
        file->char_count += strlen(name) + json_string_length(text) + 2;
        file->metadata_count++;
    }
    return GD_OK;
}

static gd_status count_header(gd_safetensors *file, json_t *root)
{
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (!strcmp(name, gd_safetensors_metadata_name)) {
            if (count_metadata(file, value)) return gd_error_status(file->ctx);
            continue;
        }
        json_t *shape = json_object_get(value, "shape");
        if (!json_is_object(value) || !json_is_array(shape) || json_object_size(value) != 3 ||
            !json_is_string(json_object_get(value, "dtype")) ||
            json_array_size(json_object_get(value, "data_offsets")) != 2) {
            return refuse(file,
                          "tensor \"%s\" has not just the fields dtype (a text), shape (numbers) "
                          "and data_offsets (two numbers)",
                          gd_excerpt_of(name).text);
        }
        file->count++;
        file->dim_count += (int64_t)json_array_size(shape);
        file->char_count += strlen(name) + 1;
    }
    return GD_OK;
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

/* ---- Second walk -------------------------------------------------------------------------- */

static const char *keep_text(char **chars, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *kept = memcpy(*chars, text, bytes);
    *chars += bytes;
    return kept;
}

/* A whole number from 0. */
static bool read_size(const json_t *value, int64_t *size)
{
    if (!json_is_integer(value)) return false;
    *size = (int64_t)json_integer_value(value);
    return *size >= 0;
}

/* The bytes of a packed tensor; false where they overflow or end within a byte. */
static bool count_bytes(int ndim, const int64_t *shape, int bits, size_t *bytes)
{
    int64_t count;
    if (!gd_shape_count(ndim, shape, (size_t)(bits < 8 ? 8 : bits) / 8, &count)) return false;
    *bytes = (size_t)(count / 8 * bits + count % 8 * bits / 8);
    return count % 8 * bits % 8 == 0;
}

static gd_status fill_entry(gd_safetensors *file, gd_safetensors_entry *entry, json_t *value,
                            int64_t *dims, size_t data_begin)
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
        return refuse(file, "tensor \"%s\": there is no dtype \"%s\"", name,
                      gd_excerpt_of(dtype).text);
    }
    size_t ndim = json_array_size(shape);
    for (size_t i = 0; i < ndim; i++) {
        if (!read_size(json_array_get(shape, i), &dims[i])) {
            return refuse(file, "tensor \"%s\": dimension %zu is not a whole number from 0", name,
                          i);
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
                      "tensor \"%s\": its shape has more bytes than can be, or no whole "
                      "number of them",
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
    entry->data = file->bytes + data_begin + begin;
    entry->bytes = wanted;
    return GD_OK;
}

static gd_status fill_header(gd_safetensors *file, json_t *root, size_t data_begin)
{
    const char *name, *key;
    json_t *value, *text;
    char *chars = file->chars;
    int64_t *dims = file->dims, texts = 0, count = 0;
    file->path = keep_text(&chars, file->path);
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, gd_safetensors_metadata_name) != 0) {
            gd_safetensors_entry *entry = &file->entries[count++];
            entry->name = keep_text(&chars, name);
            if (fill_entry(file, entry, value, dims, data_begin)) break;
            dims += entry->ndim;
            continue;
        }
        json_object_foreach(value, key, text)
        {
            gd_named_text *item = &file->metadata[texts++];
            item->name = keep_text(&chars, key);
            item->text = keep_text(&chars, json_string_value(text));
        }
    }
    return gd_error_status(file->ctx);
}

/* ---- All together ------------------------------------------------------------------------- */

/* By place; of two that begin at one place the empty one comes first. */
static int compare_places(const void *left, const void *right)
{
    const gd_safetensors_entry *a = left, *b = right;
    if (a->data != b->data) return (const char *)a->data < (const char *)b->data ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_names(const void *left, const void *right)
{
    const gd_safetensors_entry *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

/* Each tensor begins where the one before it ends, the first behind the header, and the last ends
 * with the file. */
static gd_status check_tiling(const gd_safetensors *file, size_t data_begin)
{
    const unsigned char *data = file->bytes + data_begin;
    size_t end = 0;
    for (int64_t i = 0; i < file->count; i++) {
        const gd_safetensors_entry *entry = &file->entries[i];
        size_t begin = (size_t)((const unsigned char *)entry->data - data);
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

gd_status gd_safetensors_parse(gd_safetensors *file, const char *path)
{
    size_t length;
    json_error_t error;
    file->path = path;
    file->char_count = strlen(path) + 1;
    const char *text = find_header(file, &length);
    if (!text) return gd_error_status(file->ctx);
    size_t data_begin = GD_SAFETENSORS_LENGTH_BYTES + length;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) return refuse_json(file, &error);
    gd_status status = count_header(file, root);
    if (!status) status = allocate(file);
    if (!status) status = fill_header(file, root, data_begin);
    json_decref(root);
    if (status) return status;
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_places);
    for (int64_t i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    if (check_tiling(file, data_begin)) return gd_error_status(file->ctx);
    return has_minus(text, length) ? refuse(file, "a number has a minus sign") : GD_OK;
}

#else

gd_status gd_safetensors_parse(gd_safetensors *file, const char *path)
{
    file->path = path;
    return gd_fail(file->ctx, GD_ERROR_UNSUPPORTED, "safetensors_open: %s",
                   gd_safetensors_no_jansson);
}

#endif
