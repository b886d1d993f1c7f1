/* tokenizer_file.h - a tokenizer beside its model, in the form of Hugging Face's tokenizers.
 *
 * tokenizer.json describes a byte-level BPE: bytes are written as printable characters (those of
 * GPT-2), words are found by a regular expression, merges join what stands side by side. Texts of
 * UTF-8 give the same ids there as here, but for words beyond ASCII of more than 64 bytes, which
 * are cut at other places. */
#ifndef GRADUS_TRAIN_TOKENIZER_FILE_H
#define GRADUS_TRAIN_TOKENIZER_FILE_H

#include "gradus/gradus.h"
#include "tokenizer.h"

/* Writes tokenizer.json and tokenizer_config.json into a folder; nothing for ids without
 * meaning. */
gd_status tokenizer_save(const tokenizer *t, gd_context *ctx, const char *folder);

/* Reads what tokenizer_save wrote, or transformers after it had read that; anything that means
 * something else is an error. TOKENIZER_NONE where the folder has no tokenizer.json. */
gd_status tokenizer_load(tokenizer *t, gd_context *ctx, const char *folder);

#endif
