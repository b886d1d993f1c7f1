/* token_format.c - see token_format.h. */
#include "token_format.h"
#include "files/file_kind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(char why[TOKEN_FORMAT_WHY], const char *text)
{
    snprintf(why, TOKEN_FORMAT_WHY, "%s", text);
    return false;
}

/* The ids must be all that follows the header. */
static bool fills(const token_format *format, size_t size, char why[TOKEN_FORMAT_WHY])
{
    const size_t rest = size - (size_t)format->begin, width = (size_t)format->width;
    if (format->length >= 0 && rest % width == 0 && rest / width == (size_t)format->length)
        return true;
    snprintf(why, TOKEN_FORMAT_WHY, "its header says %lld ids of %d bytes, but %zu bytes follow it",
             (long long)format->length, format->width, rest);
    return false;
}

/* ---- llm.c -------------------------------------------------------------------------------- */

enum { LLMC_HEADER = 256 * 4 };

static const struct {
    int32_t magic, version;
    int width;
} llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

enum { LLMC_KINDS = sizeof llmc_kinds / sizeof *llmc_kinds };

static int32_t word_at(const unsigned char *p)
{
    return (int32_t)(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

/* The first 16 bits of the marks are beyond the ids of GPT-2, so that no file of nanoGPT has
 * them. */
static size_t llmc_kind(const unsigned char *bytes, size_t size)
{
    size_t kind = 0;
    while (kind < LLMC_KINDS && (size < 4 || llmc_kinds[kind].magic != word_at(bytes))) kind++;
    return kind;
}

static bool find_llmc(token_format *format, size_t kind, const unsigned char *bytes, size_t size,
                      char why[TOKEN_FORMAT_WHY])
{
    if (size < LLMC_HEADER) {
        snprintf(why, TOKEN_FORMAT_WHY, "it has %zu bytes, fewer than the header of llm.c", size);
        return false;
    }
    const int32_t version = word_at(bytes + 4);
    *format = (token_format){
        .width = llmc_kinds[kind].width, .begin = LLMC_HEADER, .length = word_at(bytes + 8)};
    if (version == llmc_kinds[kind].version) return fills(format, size, why);
    snprintf(why, TOKEN_FORMAT_WHY, "its header has version %d, wanted %d after %d", version,
             llmc_kinds[kind].version, llmc_kinds[kind].magic);
    return false;
}

/* ---- NumPy -------------------------------------------------------------------------------- */

static const char npy_mark[] = "\x93NUMPY";

/* The header's text, a Python dictionary, and where the ids begin. */
static bool npy_header(char text[TOKEN_FORMAT_FIRST + 1], int64_t *begin,
                       const unsigned char *bytes, size_t size, char why[TOKEN_FORMAT_WHY])
{
    const size_t have = size < TOKEN_FORMAT_FIRST ? size : TOKEN_FORMAT_FIRST;
    const int version = have > 7 ? bytes[6] : 0;
    const size_t fixed = version == 1 ? 10 : 12;
    if (have < fixed) return refuse(why, "its header of NumPy is cut short");
    if (version < 1 || version > 3) {
        snprintf(why, TOKEN_FORMAT_WHY, "its version of NumPy's format is %d.%d, wanted 1 to 3",
                 version, bytes[7]);
        return false;
    }
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    if (version > 1) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > have - fixed) return refuse(why, "its header of NumPy is cut short or too long");
    memcpy(text, bytes + fixed, length);
    text[length] = '\0';
    *begin = (int64_t)(fixed + length);
    return true;
}

/* What follows 'key': in the header; "" if it is not there. */
static const char *npy_value(const char *header, const char *key)
{
    char name[24];
    snprintf(name, sizeof name, "'%s':", key);
    const char *at = strstr(header, name);
    return at ? at + strlen(name) + strspn(at + strlen(name), " ") : "";
}

/* The characters of a value of the file that a message shows: up to one of `end`, of one line. */
static int shown(const char *value, const char *end)
{
    int count = 0;
    while (count < 48 && value[count] >= ' ' && value[count] <= '~' && !strchr(end, value[count]))
        count++;
    return count;
}

/* '<u2' and its like. */
static bool npy_dtype(token_format *format, const char *value, char why[TOKEN_FORMAT_WHY])
{
    static const struct {
        const char *descr, *name;
        int width;
    } kinds[] = {{"'<u2'", "uint16", 2},
                 {"'<u4'", "uint32", 4},
                 {"'<i4'", "int32", 4},
                 {"'<i8'", "int64", 8}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strncmp(value, kinds[i].descr, strlen(kinds[i].descr)) != 0) continue;
        format->width = kinds[i].width;
        format->negative = kinds[i].name[0] == 'i';
        format->dtype = kinds[i].name;
        return true;
    }
    static const char wanted[] = "wanted little-endian uint16, uint32, int32 or int64";
    static const struct {
        char code;
        const char *name;
    } names[] = {{'i', "int"}, {'u', "uint"}, {'f', "float"}, {'c', "complex"}};
    const int length = shown(value, ",");
    snprintf(why, TOKEN_FORMAT_WHY, "its dtype is %.*s, %s", length, value, wanted);
    const long bytes = length > 4 ? strtol(value + 3, NULL, 10) : 0;
    for (size_t i = 0; bytes > 0 && bytes <= 32 && i < sizeof names / sizeof *names; i++) {
        if (names[i].code != value[2]) continue;
        snprintf(why, TOKEN_FORMAT_WHY, "its dtype is %s%s%ld (%.*s), %s",
                 value[1] == '>' ? "big-endian " : "", names[i].name, 8 * bytes, length, value,
                 wanted);
    }
    return false;
}

/* "(2000,)" */
static bool npy_shape(token_format *format, const char *value, char why[TOKEN_FORMAT_WHY])
{
    char *end = NULL;
    errno = 0;
    const long long length = value[0] == '(' ? strtoll(value + 1, &end, 10) : -1;
    bool flat = end && end != value + 1 && !errno && length >= 0 && *end == ',';
    flat = flat && end[1 + strspn(end + 1, " ")] == ')';
    format->length = length;
    if (flat) return true;
    const int count = shown(value, ")");
    snprintf(why, TOKEN_FORMAT_WHY, "it has the shape %.*s, wanted one dimension",
             count + (value[count] == ')'), value);
    return false;
}

static bool find_npy(token_format *format, const unsigned char *bytes, size_t size,
                     char why[TOKEN_FORMAT_WHY])
{
    char text[TOKEN_FORMAT_FIRST + 1];
    *format = (token_format){0};
    if (!npy_header(text, &format->begin, bytes, size, why)) return false;
    if (!npy_dtype(format, npy_value(text, "descr"), why)) return false;
    if (!npy_shape(format, npy_value(text, "shape"), why)) return false;
    if (strncmp(npy_value(text, "fortran_order"), "False", 5) != 0)
        return refuse(why, "its fortran_order is not False, wanted an array in C order");
    return fills(format, size, why);
}

/* ---- No header ---------------------------------------------------------------------------- */

static bool find_headerless(token_format *format, int width, const unsigned char *bytes,
                            size_t size, char why[TOKEN_FORMAT_WHY])
{
    enum { ENOUGH = 64 }; /* bytes of a text: two letters are an id that may be in the vocabulary */
    const size_t first = size < TOKEN_FORMAT_FIRST ? size : TOKEN_FORMAT_FIRST;
    const char *kind = gd_file_kind(bytes, first);
    if (kind) {
        snprintf(why, TOKEN_FORMAT_WHY, "%s%s", kind,
                 kind == gd_file_pointer ? "" : "; wanted ids");
        return false;
    }
    if (size >= ENOUGH && gd_file_is_text(bytes, first))
        return refuse(why, "it is a text, wanted token ids; use --data FILE for a text");
    *format = (token_format){.width = width ? width : 2, .negative = width == 8};
    format->headerless = true;
    format->length = (int64_t)(size / (size_t)format->width);
    if (size % (size_t)format->width == 0) return true;
    if (width)
        snprintf(why, TOKEN_FORMAT_WHY, "it has %zu bytes, wanted a multiple of %d", size, width);
    else
        snprintf(why, TOKEN_FORMAT_WHY, "it has %zu bytes, wanted an even number for uint16 ids",
                 size);
    return false;
}

bool token_format_halves(const unsigned char *ids, size_t bytes, int64_t count[2])
{
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        if (ids[i + 2] || ids[i + 3]) return false;
        count[0] += ids[i] || ids[i + 1];
        count[1] += i % 8 == 0 && (ids[i] || ids[i + 1]);
    }
    return true;
}

/* ---- Any ---------------------------------------------------------------------------------- */

bool token_format_find(token_format *format, int width, const unsigned char *first, size_t size,
                       char why[TOKEN_FORMAT_WHY])
{
    const size_t kind = llmc_kind(first, size), mark = sizeof npy_mark - 1;
    const bool npy = size >= mark && !memcmp(first, npy_mark, mark);
    if (!npy && kind == LLMC_KINDS) return find_headerless(format, width, first, size, why);
    if (!(npy ? find_npy(format, first, size, why) : find_llmc(format, kind, first, size, why)))
        return false;
    if (!width || width == format->width) return true;
    snprintf(why, TOKEN_FORMAT_WHY, "its header says ids of %d bytes, but --token-bytes is %d",
             format->width, width);
    return false;
}
