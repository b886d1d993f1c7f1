/* text_stream.h - writes text as it comes: UTF-8 characters are written whole, to a terminal as
 * programs/terminal.h says, and nothing from the stop text on. */
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
    int cut; /* bytes left out: the rest of a character with which the text may begin */
} text_stream;

/* Adds bytes, writes those that are certain, and flushes. Nothing is written from the stop text
 * on. */
void text_stream_put(text_stream *stream, const void *bytes, size_t count);

/* Writes what is still held back, unless the stop text came. */
void text_stream_end(text_stream *stream);

#endif
