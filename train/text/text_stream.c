/* text_stream.c - see text_stream.h. */
#include "text_stream.h"
#include "programs/terminal.h"

#include <string.h>

/* How many bytes a character of UTF-8 has, by its first; 1 where no character begins like this. */
static size_t character_length(unsigned char first)
{
    return first >= 0xf0 && first < 0xf8   ? 4
           : first >= 0xe0 && first < 0xf0 ? 3
           : first >= 0xc0 && first < 0xe0 ? 2
                                           : 1;
}

/* The number of pending bytes that belong to the first character; *whole says whether it is
 * complete. The bytes of an invalid sequence count as characters of their own. */
static size_t first_character(const text_stream *s, bool *whole)
{
    size_t length = character_length(s->held[0]), have = 1;
    while (have < length && have < s->count && (s->held[have] & 0xc0) == 0x80) have++;
    *whole = have == length || have < s->count;
    return have == length ? length : 1;
}

/* Writes from the front what can be neither an incomplete character nor the beginning of the stop
 * text. */
static void write_sure(text_stream *s)
{
    const bool rest = s->cut > 0 && s->count == 1 && (s->held[0] & 0xc0) == 0x80;
    s->cut = rest ? s->cut - 1 : 0;
    if (rest) s->count = 0;
    size_t stop = s->stop ? strlen(s->stop) : 0;
    while (s->count > 0) {
        size_t same = s->count < stop ? s->count : stop;
        bool whole, matches = stop > 0 && !memcmp(s->held, s->stop, same);
        if (matches && s->count >= stop) {
            s->stopped = true;
            s->count = 0;
            return;
        }
        size_t length = first_character(s, &whole);
        if (matches || !whole) return;
        terminal_write(s->file, (const char *)s->held, length);
        s->count -= length;
        memmove(s->held, s->held + length, s->count);
    }
}

void text_stream_put(text_stream *s, const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    for (size_t i = 0; i < count && !s->stopped; i++) {
        s->held[s->count++] = next[i];
        write_sure(s);
    }
    fflush(s->file);
}

void text_stream_end(text_stream *s)
{
    terminal_write(s->file, (const char *)s->held, s->count);
    fflush(s->file);
    s->count = 0;
}
