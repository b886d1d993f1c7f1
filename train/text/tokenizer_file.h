/* tokenizer_file.h - a tokenizer beside its model, in the form of Hugging Face's tokenizers.
 *
 * tokenizer.json describes a byte-level BPE: bytes are written as printable characters (those of
 * GPT-2), words are found by a regular expression, and merges join neighbours. UTF-8 texts give the
 * same ids there as here. */
#ifndef GRADUS_TRAIN_TOKENIZER_FILE_H
#define GRADUS_TRAIN_TOKENIZER_FILE_H

#include "gradus/gradus.h"
#include "files/json_text.h"
#include "saving.h"
#include "tokenizer.h"

/* Writes tokenizer.json and tokenizer_config.json; nothing for TOKENIZER_NONE. */
gd_status tokenizer_save(const tokenizer *t, saving *to);

/* Reads a file of tokenizer_save, or one that transformers saved after loading that; anything else
 * is an error (tokenizer_read.c). TOKENIZER_NONE if the folder has no tokenizer.json. */
gd_status tokenizer_load(tokenizer *t, gd_context *ctx, open_folder *in);

/* Says that a folder has no tokenizer.json, and which tokenizers it has instead. */
#define TOKENIZER_WANTED "of gradus-train, which a text needs; --tokens takes token ids instead"
enum { TOKENIZER_MISSING = 4096 + 256 };
const char *tokenizer_missing(const open_folder *in, char room[TOKENIZER_MISSING]);

/* ---- What is written, which is all that is read ------------------------------------------- */

/* Writes the JSON object "pre_tokenizer"; `cut`: with words of at most 64 characters, else each
 * byte is a token. */
void tokenizer_print_words(gd_json_text *to, bool cut);

extern const char tokenizer_byte_level[]; /* the JSON object "decoder" */

/* The byte for which a character stands; -1: none. */
int tokenizer_byte_of(int character);

#endif
