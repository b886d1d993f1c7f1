/* checksums.h - checksums of a checkpoint, to detect damage.
 *
 * The file "checksums.xxh3" in the folder lists the 64-bit XXH3 of every other file there, one line
 * each, "XXH3 (<name>) = <16 hexadecimal digits>", as `xxhsum -H3` prints them. A build without
 * xxHash (GRADUS_XXHASH) writes no list, and prints a message that it does not verify the one it
 * finds.
 */
#ifndef GRADUS_TRAIN_CHECKSUMS_H
#define GRADUS_TRAIN_CHECKSUMS_H

#include "gradus/gradus.h"

enum { CHECKSUM_TEXT = 17 };

/* The checksum of a file in a folder, in hexadecimal digits; false if it cannot be read, or in a
 * build without xxHash. */
bool checksums_of(char text[CHECKSUM_TEXT], const char *folder, const char *name);

/* Writes the list, with those of the files that exist. */
gd_status checksums_save(gd_context *ctx, const char *folder);

/* GD_ERROR_IO if a file in the list exists and differs, or the list cannot be parsed. A folder
 * without a list passes: not every model comes from gradus-train. */
gd_status checksums_verify(gd_context *ctx, const char *folder);

#endif
