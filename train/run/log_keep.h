/* log_keep.h - what a run that goes on keeps of the log that was there.
 *
 * A run that is resumed at step S does the steps after S again. So its log keeps the lines of what
 * came before, byte for byte, and is cut behind the last of them: at the first line of a later step,
 * or where only damaged ones are left. What is not a log at all is left alone.
 */
#ifndef GRADUS_TRAIN_LOG_KEEP_H
#define GRADUS_TRAIN_LOG_KEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* How every log begins. */
extern const char log_mark[];

enum { LOG_LINE = 1 << 20 }; /* bytes of the longest line that is looked at, with its end */

/* How many bytes of `old`, which stands at its beginning, a run that goes on from `step` keeps; 0
 * where it begins anew. -1: it is not the log of a run on the text of that fingerprint, and *why
 * says so. */
int64_t log_keep(FILE *old, int64_t step, uint64_t text_hash, const char **why);

#endif
