/* json.c - see json.h. */
#include "json.h"
#include "console.h"
#include "files/json_depth.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "programs/terminal.h"
#include "programs/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_CHARACTER = 4 }; /* bytes; the text ends with NUL */

bool json_is_utf8(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c && utf8_length(c, LONGEST_CHARACTER) > 0) c += utf8_length(c, LONGEST_CHARACTER);
    return !*c;
}

#ifdef GD_HAVE_JANSSON

size_t json_begin(const char *text, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t bytes = sizeof mark - 1;
    return length >= bytes && !memcmp(text, mark, bytes) ? bytes : 0;
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    for (int attempt = 0; !memory && attempt < 10; attempt++) {
        gd_os_nap(0.1);
        memory = malloc(bytes);
    }
    if (memory) return memory;
    console_message("out of memory: %zu bytes", bytes);
    gd_os_leave(EXIT_FAILURE);
}

void json_watch_memory(void)
{
    json_set_alloc_funcs(allocate, free);
}

/* Twice: jansson calls a token invalid if there was no memory for it. */
json_t *json_parse(const char *text, size_t length, json_error_t *why)
{
    if (gd_json_is_deep(text, length, JSON_DEPTH)) {
        *why = (json_error_t){.text = "it is nested too deeply"};
        return NULL;
    }
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES, why);
    if (!value) value = json_loadb(text, length, JSON_REJECT_DUPLICATES, why);
    if (!value && !why->text[0]) snprintf(why->text, sizeof why->text, "out of memory");
    return value;
}

#else

void json_watch_memory(void) {}

#endif

/* In JSON a character beyond U+FFFF is two of these (RFC 8259). */
static void print_code(uint32_t code, FILE *file)
{
    if (code < 0x10000)
        fprintf(file, "\\u%04lx", (unsigned long)code);
    else
        fprintf(file, "\\u%04lx\\u%04lx", (unsigned long)(0xd7c0 + (code >> 10)),
                (unsigned long)(0xdc00 + (code & 0x3ff)));
}

/* The name of a file can be any bytes. On a terminal more of them are written in ASCII: it is the
 * same string. */
void json_print_string(const char *text, FILE *file)
{
    const bool terminal = terminal_is(file);
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        const int length = utf8_length(c, LONGEST_CHARACTER);
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (length == 0 || *c < 32 || *c == 127 ||
                 (terminal && terminal_obeys(utf8_code(c, length))))
            print_code(length ? utf8_code(c, length) : 0xfffd, file);
        else
            fprintf(file, "%.*s", length, (const char *)c);
        c += length ? length : 1;
    }
    fputc('"', file);
}

void json_print_number(double number, FILE *file)
{
    static const int digits[] = {6, 9, 17};
    char text[32] = "null";
    for (int i = 0; i < 3 && isfinite(number); i++) {
        snprintf(text, sizeof text, "%.*g", digits[i], number);
        if (strtod(text, NULL) == number) break;
    }
    fputs(text, file);
}
