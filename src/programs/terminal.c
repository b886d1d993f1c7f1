/* terminal.c - see terminal.h. */
#include "programs/terminal.h"
#include "platform/number.h"
#include "platform/terminal.h"
#include "files/utf8.h"

#include <string.h>

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

bool terminal_is(FILE *file)
{
    return gd_os_is_terminal(gd_os_descriptor(file));
}

bool terminal_obeys(uint32_t code)
{
    return is_control(code) || code == 0x061c || /* Arabic letter mark */
           code == 0x200e || code == 0x200f ||   /* marks of direction */
           (code >= 0x2028 && code <= 0x202e) || /* separators, embeddings and overrides */
           (code >= 0x2066 && code <= 0x206f) || /* isolates, and deprecated formats */
           (code >= 0xfff9 && code <= 0xfffb) || /* annotations */
           (code >= 0xe0000 && code <= 0xe007f); /* tags, which are not shown */
}

/* One character of `text` as it is to be seen, NUL-terminated; returns its bytes in `text`. */
static int show(char seen[16], const char *text, size_t length, bool lines)
{
    const unsigned char *c = (const unsigned char *)text;
    const int bytes = gd_utf8_length(c, (int64_t)length);
    const uint32_t code = bytes ? gd_utf8_code(c, bytes) : c[0];
    const bool stays = lines && (code == '\n' || code == '\t');
    if (bytes && (stays || !terminal_obeys(code)))
        snprintf(seen, 16, "%.*s", bytes, text);
    else if (bytes > 1)
        snprintf(seen, 16, code > 0xffff ? "\\U%08lx" : "\\u%04lx", (unsigned long)code);
    else
        snprintf(seen, 16, "\\x%02x", c[0]);
    return bytes ? bytes : 1;
}

size_t terminal_visible(char *buffer, size_t size, const char *text, size_t length, bool lines)
{
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        char seen[16];
        at += (size_t)show(seen, text + at, length - at, lines);
        const size_t bytes = strlen(seen);
        if (used + bytes + 1 > size) break;
        memcpy(buffer + used, seen, bytes);
        used += bytes;
    }
    buffer[used] = '\0';
    return used;
}

void terminal_write(FILE *file, const char *text, size_t length)
{
    if (!terminal_is(file)) {
        fwrite(text, 1, length, file);
        return;
    }
    for (size_t at = 0; at < length;) {
        char seen[16];
        at += (size_t)show(seen, text + at, length - at, true);
        fputs(seen, file);
    }
}

bool terminal_has_controls(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c) {
        const int bytes = gd_utf8_length(c, 4);
        if (is_control(bytes ? gd_utf8_code(c, bytes) : 'A')) return true;
        c += bytes ? bytes : 1;
    }
    return false;
}

void terminal_vmessage(const char *program, const char *format, va_list arguments)
{
    enum { TEXT = 2 * 4096 + 1024 }; /* two paths */
    char text[TEXT], line[4 * TEXT + 128];
    gd_os_print_list(text, sizeof text, format, arguments);
    const int used = snprintf(line, sizeof line, "%.100s: ", program);
    terminal_visible(line + used, sizeof line - (size_t)used - 1, text, strlen(text), false);
    strcat(line, "\n");
    fputs(line, stderr); /* in one write, so that messages of several processes do not mix */
}

void terminal_message(const char *program, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    terminal_vmessage(program, format, arguments);
    va_end(arguments);
}
