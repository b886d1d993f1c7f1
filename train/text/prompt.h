/* prompt.h - the prompt as tokens. */
#ifndef GRADUS_TRAIN_PROMPT_H
#define GRADUS_TRAIN_PROMPT_H

#include "tokenizer.h"

/* The ids of a text, which the caller frees; without a tokenizer the text must be ids separated by
 * blanks. The text is NUL-terminated. NULL after a message. */
int32_t *prompt_encode(const tokenizer *t, const char *text, int64_t length, int64_t *count);

#endif
