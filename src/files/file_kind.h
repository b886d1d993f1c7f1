/* file_kind.h - what a file is that lies where another one was wanted. Compiled into the library
 * and into the programs. */
#ifndef GRADUS_FILE_KIND_H
#define GRADUS_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>

enum { GD_FILE_KIND = 24 }; /* bytes that tell all of them */

/* Git LFS has left its pointer in place of the file. */
extern const char gd_file_pointer[];

/* A sentence by its first bytes, as "it is a GGUF file"; NULL if they are not known. */
const char *gd_file_kind(const void *first, size_t size);

/* Whether there are only printable bytes and blanks. */
bool gd_file_is_text(const void *first, size_t size);

#endif
