/* tokenizer_file.h - a tokenizer beside its model, in the form of Hugging Face's tokenizers.
 *
 * tokenizer.json describes a byte-level BPE: bytes are written as printable characters (those of
 * GPT-2), words are found by a regular expression, and merges join neighbours. UTF-8 texts give the
 * same ids there as here, except for non-ASCII words of more than 64 bytes, which are cut at other
 * places. */
#ifndef GRADUS_TRAIN_TOKENIZER_FILE_H
#define GRADUS_TRAIN_TOKENIZER_FILE_H

#include "gradus/gradus.h"
#include "tokenizer.h"

/* Writes tokenizer.json and tokenizer_config.json into a folder; nothing for TOKENIZER_NONE. */
gd_status tokenizer_save(const tokenizer *t, gd_context *ctx, const char *folder);

/* Reads a file of tokenizer_save, or one that transformers saved after loading that; anything else
 * is an error. TOKENIZER_NONE if the folder has no tokenizer.json. */
gd_status tokenizer_load(tokenizer *t, gd_context *ctx, const char *folder);

#endif
