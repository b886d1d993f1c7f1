/* checksums.h - notices a bit that flipped in a checkpoint.
 *
 * The file "checksums.xxh3" in the folder lists the 64-bit XXH3 of every other file there, one line
 * each, "XXH3 (<name>) = <16 hexadecimal digits>", as `xxhsum -H3` prints them. A build without xxHash
 * (GRADUS_XXHASH) writes no list, and says that it does not verify the one it finds.
 */
#ifndef GRADUS_TRAIN_CHECKSUMS_H
#define GRADUS_TRAIN_CHECKSUMS_H

#include "gradus/gradus.h"

enum { CHECKSUM_TEXT = 17 };

/* The checksum of a file in a folder, in hexadecimal digits; false where it cannot be read, or by a
 * build without xxHash. */
bool checksums_of(char text[CHECKSUM_TEXT], const char *folder, const char *name);

/* Writes the list for those of the files that are in the folder. */
gd_status checksums_save(gd_context *ctx, const char *folder);

/* GD_ERROR_IO where a file of the list is there and is another, or the list cannot be parsed. A
 * folder without a list has nothing to verify: not every model is a checkpoint of ours. */
gd_status checksums_verify(gd_context *ctx, const char *folder);

#endif
