/* log_keep.h - what a resumed run keeps of the log.
 *
 * A run resumed at step S does the steps after S again. So its log keeps the lines up to S, byte
 * for byte, and is cut after the last of them: at the first line of a later step, or where only
 * damaged lines follow. A file that is not a log is not changed.
 */
#ifndef GRADUS_TRAIN_LOG_KEEP_H
#define GRADUS_TRAIN_LOG_KEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The beginning of every log. */
extern const char log_mark[];

enum { LOG_LINE = 1 << 20 }; /* bytes of the longest line that is checked, with its newline */

/* How many bytes of `old`, read from its beginning, a run resumed at `step` keeps; 0 if the log
 * begins anew. -1: it is not the log of a run on the text of that fingerprint, and *why says so. */
int64_t log_keep(FILE *old, int64_t step, uint64_t text_hash, const char **why);

#endif
