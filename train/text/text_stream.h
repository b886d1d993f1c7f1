/* text_stream.h - text on its way out, byte by byte, as a person or a program may read it at once:
 * characters of UTF-8 are written whole, and nothing of a text that ends it all. */
#ifndef GRADUS_TRAIN_TEXT_STREAM_H
#define GRADUS_TRAIN_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TEXT_STREAM_STOP = 255 }; /* the longest stop text */

typedef struct text_stream {
    FILE *file;
    const char *stop; /* where the text ends; NULL or "": nowhere */
    unsigned char held[TEXT_STREAM_STOP + 8];
    size_t count; /* bytes held back: the beginning of a character or of the stop text */
    bool stopped;
} text_stream;

/* Writes what is sure, and flushes it. Nothing is written behind the stop text. */
void text_stream_put(text_stream *stream, const void *bytes, size_t count);

/* Writes what is still held back, if the stop text did not come. */
void text_stream_end(text_stream *stream);

#endif
