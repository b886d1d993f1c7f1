/* text_file.h - a text file, whole. */
#ifndef GRADUS_TRAIN_TEXT_FILE_H
#define GRADUS_TRAIN_TEXT_FILE_H

#include <stdint.h>

/* All bytes of a file, or of a pipe until its end; NULL after a message. Free it. */
uint8_t *text_file_read(const char *path, int64_t *length);

#endif
