/* prompt.h - the prompt as tokens. */
#ifndef GRADUS_TRAIN_PROMPT_H
#define GRADUS_TRAIN_PROMPT_H

#include "tokenizer.h"

/* Reads ids below `vocab`, separated by blanks or commas, which the caller frees. `what` and
 * `missing`, which may be NULL, begin and end the message. The text is NUL-terminated. NULL after a
 * message. */
int32_t *prompt_read_ids(const char *what, const char *missing, const char *text, int64_t length,
                         int64_t vocab, int64_t *count);

/* The ids of a text, which the caller frees; without a tokenizer the text must be ids.
 * `missing`: why there is none, for messages; NULL: none was asked for. The text is NUL-terminated.
 * NULL after a message. */
int32_t *prompt_encode(const tokenizer *t, const char *missing, const char *text, int64_t length,
                       int64_t *count);

#endif
