/* json.c - see json.h. */
#include "files/json.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(gd_json *j, const char *wrong, size_t at)
{
    if (!j->wrong) j->at += at;
    if (!j->wrong) j->wrong = wrong;
    return false;
}

/* ---- Memory --------------------------------------------------------------------------------- */

static _Thread_local gd_json_arena *arena; /* while this thread parses */
static json_malloc_t former_malloc;
static json_free_t former_free;

static void *allocate(size_t bytes)
{
    enum { ALIGNMENT = 16 };
    if (!arena) return former_malloc(bytes);
    const size_t begin = arena->used;
    arena->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return arena->used <= arena->capacity ? arena->bytes + begin : NULL;
}

static void release(void *memory)
{
    if (!arena || (uintptr_t)memory - (uintptr_t)arena->bytes >= arena->capacity)
        former_free(memory);
}

/* jansson has one allocator for all of a process: what is not ours goes on to the former one. */
static void install(void)
{
    static atomic_int state; /* 1: begun, 2: done */
    int none = 0;
    if (atomic_compare_exchange_strong(&state, &none, 1)) {
        json_get_alloc_funcs(&former_malloc, &former_free);
        json_set_alloc_funcs(allocate, release);
        atomic_store(&state, 2);
    }
    while (atomic_load(&state) != 2) {
    }
}

/* What jansson allocates for a value, at most. Each allocation is rounded up to 16 bytes, and
 * none is used again. With a table of n members, which doubles from 8 on, come tables of less
 * than 4n in all:
 * - the buffer of tokens doubles: 4 bytes for each of the longest; a string is copied twice more;
 * - an array has 48 bytes and a table of 64, an object 80 and 128;
 * - a value has 32 bytes, and a string's text up to 16 of rounding; 32 in the tables of an array;
 * - a member has 64 in the tables of its object, 64 and rounding for its pair, 16 for its name. */
enum { FOR_ANY = 1024, FOR_BYTE = 6, FOR_OPENING = 208 + 80, FOR_COMMA = 80, FOR_COLON = 64 + 96 };

/* Measures the value that is next; false if it is too deep, or has more than `most` bytes. */
static bool measure(gd_json *j, size_t most, size_t *length, size_t *memory)
{
    const char *text = j->text + j->at;
    const size_t rest = j->length - j->at;
    bool quoted = false;
    int depth = 0;
    size_t i = 0;
    j->minus = false;
    *memory = FOR_ANY;
    for (bool ended = false; i < rest && !ended; i++) {
        const char c = text[i];
        if (i == most) return refuse(j, "a value is too long", 0);
        if (quoted) {
            if (c == '\\' && i + 1 < rest) i++;
            quoted = c != '"';
            ended = !quoted && depth == 0;
            continue;
        }
        if (depth == 0 && i > 0 && strchr(",:]} \t\r\n", c)) break;
        quoted = c == '"';
        j->minus = j->minus || c == '-';
        *memory += c == ',' ? FOR_COMMA : c == ':' ? FOR_COLON : 0;
        if (c == '[' || c == '{') {
            *memory += FOR_OPENING;
            if (++depth > GD_JSON_DEPTH) return refuse(j, "it is nested too deeply", i);
        }
        if (c == ']' || c == '}') ended = --depth <= 0;
    }
    *length = i;
    *memory += FOR_BYTE * i;
    return true;
}

static bool reserve(gd_json_arena *a, size_t bytes)
{
    if (bytes > a->capacity) {
        free(a->bytes);
        a->bytes = malloc(bytes);
        a->capacity = a->bytes ? bytes : 0;
    }
    a->used = 0;
    return a->bytes != NULL;
}

static json_t *parse(gd_json *j, gd_json_arena *memory, size_t most)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK;
    size_t length, needed;
    json_t *value = NULL;
    gd_json_peek(j);
    if (j->wrong || !measure(j, most, &length, &needed)) return NULL;
    install();
    if (reserve(memory, needed)) {
        arena = memory;
        value = json_loadb(j->text + j->at, length, flags, &j->error);
        arena = NULL;
    }
    /* Nothing was used if the program has replaced jansson's allocator since the first text. */
    const bool replaced = memory->capacity > 0 && memory->used == 0;
    if (replaced || memory->used > memory->capacity || !memory->bytes) {
        if (replaced) json_decref(value);
        j->memory = true;
        refuse(j, replaced ? "jansson's allocator was replaced" : "out of memory", 0);
        return NULL;
    }
    if (value)
        j->at += (size_t)j->error.position;
    else
        refuse(j, j->error.text, (size_t)j->error.position);
    return value;
}

/* ---- A text --------------------------------------------------------------------------------- */

char gd_json_peek(gd_json *j)
{
    while (j->at < j->length && j->text[j->at] && strchr(" \t\r\n", j->text[j->at])) j->at++;
    return j->at < j->length ? j->text[j->at] : '\0';
}

gd_json gd_json_of(const char *text, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t bytes = sizeof mark - 1;
    const bool marked = length >= bytes && !memcmp(text, mark, bytes);
    return (gd_json){.text = text, .length = length, .at = marked ? bytes : 0};
}

json_t *gd_json_take(gd_json *j, size_t most)
{
    return parse(j, &j->values, most);
}

json_t *gd_json_take_all(gd_json *j)
{
    json_t *value = gd_json_take(j, SIZE_MAX);
    return value && gd_json_end(j) ? value : NULL;
}

bool gd_json_next(gd_json *j, bool object)
{
    const char open = object ? '{' : '[', close = object ? '}' : ']', c = gd_json_peek(j);
    if (j->wrong || (c != close && c != open && c != ','))
        return refuse(j, object ? "a , or } is missing" : "a , or ] is missing", 0);
    j->at++;
    if (c == close) return false;
    if (c == open && gd_json_peek(j) == close) {
        j->at++;
        return false;
    }
    if (!object) return true;
    if (gd_json_peek(j) != '"') return refuse(j, "a name is missing", 0);
    j->name = json_string_value(parse(j, &j->names, SIZE_MAX));
    if (!j->name) return false;
    if (gd_json_peek(j) != ':') return refuse(j, "a : is missing", 0);
    j->at++;
    return true;
}

bool gd_json_end(gd_json *j)
{
    gd_json_peek(j);
    return !j->wrong && (j->at == j->length || refuse(j, "something follows its end", 0));
}

void gd_json_close(gd_json *j)
{
    free(j->names.bytes), free(j->values.bytes);
    j->names = j->values = (gd_json_arena){0};
}
