/* text_file.h - a text file, whole. */
#ifndef GRADUS_TRAIN_TEXT_FILE_H
#define GRADUS_TRAIN_TEXT_FILE_H

#include <stdint.h>

/* All bytes of a file, or of a pipe until its end, at most `most`, NUL-terminated; NULL after a
 * message, which begins with `option`. A device, which may never end, is refused, unless it is a
 * terminal. Free it. */
uint8_t *text_file_read(const char *option, const char *path, int64_t most, int64_t *length);

#endif
