/* checksums.h - checksums of the files of a checkpoint, to detect damage.
 *
 * The file "checksums.xxh3" in the folder lists the 64-bit XXH3 of every other file there, one line
 * each, "XXH3 (<name>) = <16 hexadecimal digits>", as `xxhsum -H3` prints them. A build without
 * xxHash (GRADUS_XXHASH) writes no list, and prints a message that it does not verify the one it
 * finds.
 */
#ifndef GRADUS_TRAIN_CHECKSUMS_H
#define GRADUS_TRAIN_CHECKSUMS_H

#include "fingerprint.h"
#include "folder.h"
#include "gradus/gradus.h"

/* The files of a checkpoint, the list of checksums last; ends with NULL. */
extern const char *const checksums_files[];

#define CHECKSUMS_LIST "checksums.xxh3"
enum { CHECKSUMS_BYTES = 1024 }; /* of the list, at most */

/* A checksum in hexadecimal digits; "" in a build without xxHash. */
enum { CHECKSUM_TEXT = 17 };

/* Ends the fingerprint of the bytes of a file. */
void checksums_end(fingerprint *sum, char text[CHECKSUM_TEXT]);

/* A line of the list. Returns its length. */
int checksums_print(char *line, size_t room, const char *name, const char *checksum);

/* GD_ERROR_IO if a file in the list exists and differs, or the list cannot be read. A folder
 * without a list passes: not every model comes from gradus-train. *complete: there is a list, and
 * all its files (NULL: not asked for). */
gd_status checksums_verify(gd_context *ctx, open_folder *in, bool *complete);

#endif
