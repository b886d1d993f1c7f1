/* text_file.h - a text file, whole, and a part of any file. */
#ifndef GRADUS_TRAIN_TEXT_FILE_H
#define GRADUS_TRAIN_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paths.h"

/* All bytes of a file, or of a pipe until its end, at most `most`, NUL-terminated; NULL after a
 * message, which begins with `option`. A device, which may never end, is refused, unless it is a
 * terminal. Free it. */
uint8_t *text_file_read(const char *option, const char *path, int64_t most, int64_t *length);

/* The same of several texts (paths.h; "-" is stdin), joined as they are, but for the byte order
 * marks with which they begin. The names of the files become those of `found`, ends[i] is where
 * text i ends, and ends[found->count + i] how many bytes its mark has; free these, too. */
uint8_t *text_file_join(const char *option, const char *named, int64_t *length, paths *found,
                        int64_t **ends);

/* Reads `count` bytes of an open file from byte `at` on. False with the reason in errno, ENODATA if
 * the file is too short: a mapped one that shrinks would be a SIGBUS. */
bool text_file_at(int file, void *bytes, size_t count, int64_t at);

/* Why a text is not what it is said to be: Git LFS has left its pointer in place of the file. NULL:
 * it is no pointer. */
const char *text_file_pointer(const void *text, size_t length);

#endif
