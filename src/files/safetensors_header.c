/* safetensors_header.c - reads the header of a safetensors file, and checks the rules of the format
 * (gradus/safetensors.h lists them).
 *
 * A tree of the whole header would take many times the memory of its text. So the header is parsed
 * one member at a time: jansson parses a name, then its value, and refuses invalid UTF-8, numbers
 * beyond 64 bits and duplicate fields. One pass counts, a second one fills in. */
#include "files/json_depth.h"
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

/* Files that are often in the place of one, by how they begin. */
static const char *other_file(const unsigned char first[GD_SAFETENSORS_LENGTH_BYTES])
{
    static const struct {
        const char *begin, *name;
    } others[] = {{"version ", "a Git LFS pointer; \"git lfs pull\" fetches the file itself"},
                  {"PK\x03\x04", "a zip archive, as PyTorch's .bin, .pt and .pth files are"},
                  {"\x80\x02", "a pickle, as old files of PyTorch are"},
                  {"GGUF", "a GGUF file"},
                  {"\x89HDF", "an HDF5 file"},
                  {"<!DOCTYP", "a web page"},
                  {"<!doctyp", "a web page"},
                  {"<html", "a web page"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!memcmp(first, others[i].begin, strlen(others[i].begin))) return others[i].name;
    }
    for (int i = 0; i < GD_SAFETENSORS_LENGTH_BYTES; i++) {
        const bool blank = first[i] >= '\t' && first[i] <= '\r';
        if (!blank && (first[i] < ' ' || first[i] > '~')) return NULL;
    }
    return "a text";
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
    const char *text = NULL, *other = wanted > rest ? other_file(first) : NULL;
    if (other) {
        refuse(file, "it is %s", other);
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

/* jansson reads -0 as 0. No number in a header has a minus sign. */
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

/* ---- Members, one at a time ---------------------------------------------------------------- */

/* The longest description of a tensor: 64 dimensions of 64 bits fit. */
enum { MOST_DESCRIPTION = 4096, MOST_DIMS = 64 };

/* The state of a pass over the header, which only counts, or fills in. */
typedef struct walk {
    gd_safetensors *file;
    const char *text;
    size_t length, at;
    size_t data_begin;
    bool fills, metadata; /* metadata: it was there */
    char *chars;
    int64_t *dims, entries, texts;
} walk;

static gd_status refuse_json(const walk *w, const json_error_t *error)
{
    /* The text is empty where jansson has not set an error for a failed allocation. */
    if (json_error_code(error) == json_error_out_of_memory || !error->text[0]) {
        return gd_fail(w->file->ctx, GD_ERROR_MEMORY, "out of memory: the header of %s",
                       gd_excerpt_of(w->file->path).text);
    }
    return refuse(w->file, "the header is not valid JSON: %s, at byte %zu",
                  gd_excerpt_of(error->text).text, w->at + (size_t)error->position);
}

/* The next character that is not a blank, 0 at the end. */
static char peek(walk *w)
{
    while (w->at < w->length && strchr(" \t\r\n", w->text[w->at]) && w->text[w->at]) w->at++;
    return w->at < w->length ? w->text[w->at] : '\0';
}

/* Takes one of the characters; false, with the error set, if there is another. */
static bool take(walk *w, const char *wanted)
{
    const char found = peek(w);
    if (found && strchr(wanted, found)) {
        w->at++;
        return true;
    }
    refuse(w->file, "the header is not valid JSON: no %.1s at byte %zu", wanted, w->at);
    return false;
}

enum { HEADER_DEPTH = 20 }; /* as much as a header needs */

/* Takes a text, an array or an object of at most `most` bytes. */
static json_t *take_value(walk *w, size_t most)
{
    json_error_t error;
    const size_t rest = w->length - w->at;
    json_t *value = NULL;
    if (gd_json_is_deep(w->text + w->at, rest < most ? rest : most, HEADER_DEPTH)) {
        refuse(w->file, "the header is nested too deeply at byte %zu", w->at);
        return NULL;
    }
    /* Twice: jansson calls a token invalid if there was no memory for it. */
    for (int attempt = 0; attempt < 2 && !value; attempt++)
        value =
            json_loadb(w->text + w->at, rest < most ? rest : most,
                       JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &error);
    if (value)
        w->at += (size_t)error.position;
    else
        refuse_json(w, &error);
    return value;
}

/* A text, or NULL with the error set. */
static json_t *take_text(walk *w)
{
    if (!take(w, "\"")) return NULL;
    w->at--;
    return take_value(w, SIZE_MAX);
}

/* Calls `visit` at the value of each member of an object. */
static gd_status walk_object(walk *w, gd_status (*visit)(walk *w, const char *name))
{
    if (!take(w, "{")) return gd_error_status(w->file->ctx);
    bool more = peek(w) != '}';
    if (!more) w->at++;
    while (more) {
        json_t *name = take_text(w);
        bool fine = name && take(w, ":") && !visit(w, json_string_value(name)) && take(w, ",}");
        json_decref(name);
        if (!fine) break;
        more = w->text[w->at - 1] == ',';
    }
    return gd_error_status(w->file->ctx);
}

static const char *keep_text(walk *w, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *kept = memcpy(w->chars, text, bytes);
    w->chars += bytes;
    return kept;
}

/* ---- Metadata ------------------------------------------------------------------------------ */

static gd_status visit_metadata(walk *w, const char *name)
{
    gd_safetensors *file = w->file;
    if (peek(w) != '"') {
        return refuse(file, "%s: \"%s\" is not a string", gd_safetensors_metadata_name,
                      gd_excerpt_of(name).text);
    }
    json_t *text = take_text(w);
    if (!text) return gd_error_status(file->ctx);
    if (w->fills) {
        gd_named_text *item = &file->metadata[w->texts++];
        item->name = keep_text(w, name);
        item->text = keep_text(w, json_string_value(text));
    } else {
        file->metadata_count++;
        file->char_count += strlen(name) + json_string_length(text) + 2;
    }
    json_decref(text);
    return GD_OK;
}

/* ---- Tensors ------------------------------------------------------------------------------- */

static gd_status refuse_fields(const gd_safetensors *file, const char *name)
{
    return refuse(file,
                  "tensor \"%s\" does not have exactly the fields dtype (a string), shape (at most "
                  "%d numbers) "
                  "and data_offsets (two numbers)",
                  gd_excerpt_of(name).text, MOST_DIMS);
}

/* The description of a tensor, with fields of the right kinds. */
static json_t *take_description(walk *w, const char *name)
{
    json_t *value = peek(w) == '{' ? take_value(w, MOST_DESCRIPTION) : NULL;
    const json_t *shape = json_object_get(value, "shape");
    if (value && json_is_array(shape) && json_object_size(value) == 3 &&
        json_array_size(shape) <= MOST_DIMS && json_is_string(json_object_get(value, "dtype")) &&
        json_array_size(json_object_get(value, "data_offsets")) == 2) {
        return value;
    }
    refuse_fields(w->file, name);
    json_decref(value);
    return NULL;
}

/* A whole number, not negative. */
static bool read_size(const json_t *value, int64_t *size)
{
    if (!json_is_integer(value)) return false;
    *size = (int64_t)json_integer_value(value);
    return *size >= 0;
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
    size_t ndim = json_array_size(shape);
    for (size_t i = 0; i < ndim; i++) {
        if (!read_size(json_array_get(shape, i), &dims[i])) {
            return refuse(file, "tensor \"%s\": dimension %zu is not a whole number of at least 0",
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
        if (peek(w) == '{') return walk_object(w, visit_metadata);
        return refuse(file, "%s is not an object", gd_safetensors_metadata_name);
    }
    json_t *value = take_description(w, name);
    if (!value) return gd_error_status(file->ctx);
    if (w->fills) {
        gd_safetensors_entry *entry = &file->entries[w->entries++];
        entry->name = keep_text(w, name);
        fill_entry(file, entry, value, w->dims, w->data_begin);
        w->dims += entry->ndim;
    } else {
        file->count++;
        file->dim_count += (int64_t)json_array_size(json_object_get(value, "shape"));
        file->char_count += strlen(name) + 1;
    }
    json_decref(value);
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
    w->at = 0;
    w->metadata = false;
    if (walk_object(w, visit_header)) return gd_error_status(w->file->ctx);
    if (peek(w) || w->at < w->length) {
        return refuse(w->file, "the header is not valid JSON: unexpected data at byte %zu", w->at);
    }
    return GD_OK;
}

gd_status gd_safetensors_parse(gd_safetensors *file, const char *path)
{
    walk w = {.file = file};
    file->path = path;
    file->char_count = strlen(path) + 1;
    w.text = find_header(file, &w.length);
    if (!w.text) return gd_error_status(file->ctx);
    w.data_begin = GD_SAFETENSORS_LENGTH_BYTES + w.length;
    if (walk_header(&w) || allocate(file)) return gd_error_status(file->ctx);
    w.fills = true;
    w.chars = file->chars;
    w.dims = file->dims;
    file->path = keep_text(&w, path);
    if (walk_header(&w)) return gd_error_status(file->ctx);
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_offsets);
    for (int64_t i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    if (check_names(file) || check_tiling(file, w.data_begin)) return gd_error_status(file->ctx);
    if (has_minus(w.text, w.length)) return refuse(file, "a number has a minus sign");
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
