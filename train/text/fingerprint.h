/* fingerprint.h - 64 bits that tell the contents of files apart: do all processes of a run read the
 * same ones, and does a resumed run? XXH3; in a build without xxHash, FNV-1a. */
#ifndef GRADUS_TRAIN_FINGERPRINT_H
#define GRADUS_TRAIN_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef GD_HAVE_XXHASH
enum { FINGERPRINT_IS_XXH3 = true };
#define FINGERPRINT_NAME "xxh3"
#else
enum { FINGERPRINT_IS_XXH3 = false };
#define FINGERPRINT_NAME "fnv1a"
#endif

/* Files of together up to this many bytes are read whole: in some seconds. */
#define FINGERPRINT_WHOLE ((int64_t)4 << 30)

uint64_t fingerprint_bytes(const void *data, size_t bytes);

/* One of bytes that come in pieces. NULL, with errno, if there is no memory; its end frees it. */
typedef struct fingerprint fingerprint;
fingerprint *fingerprint_begin(void);
void fingerprint_add(fingerprint *f, const void *data, size_t bytes);
uint64_t fingerprint_end(fingerprint *f);

/* Adds every `stride`-th mebibyte of an opened file of `size` bytes, and the last one. False with
 * the reason in errno. */
bool fingerprint_add_file(fingerprint *f, int file, int64_t size, int64_t stride);

/* Covers regular files, in this order, and their sizes. If they have more than `whole` bytes, it
 * reads only one of several mebibytes, evenly over every file, and its last one: together about
 * `whole` bytes. False with the reason in errno, and *failed the index of the file, if one
 * cannot be read. */
bool fingerprint_files(const char *const *paths, int count, int64_t whole, uint64_t *print,
                       int *failed);

#endif
