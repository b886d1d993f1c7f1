/* prompt.h - what a text shall go on from, as tokens. */
#ifndef GRADUS_TRAIN_PROMPT_H
#define GRADUS_TRAIN_PROMPT_H

#include "tokenizer.h"

/* The ids of a text, allocated here; where the tokens have no meaning, the text is the ids
 * themselves, with blanks between them. A byte 0 stands behind the text. NULL after a message. */
int32_t *prompt_encode(const tokenizer *t, const char *text, int64_t length, int64_t *count);

#endif
