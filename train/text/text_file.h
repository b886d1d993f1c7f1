/* text_file.h - a text file, whole. */
#ifndef GRADUS_TRAIN_TEXT_FILE_H
#define GRADUS_TRAIN_TEXT_FILE_H

#include <stdint.h>

/* All bytes of a file, or of a pipe until its end, at most `most`, with a 0 behind them; NULL after
 * a message, which names the option that named the file. A device, which may never end, is none,
 * unless it is a terminal. Free it. */
uint8_t *text_file_read(const char *option, const char *path, int64_t most, int64_t *length);

#endif
