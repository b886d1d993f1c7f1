/* tokens.h - sequences of token ids, in memory or in files.
 *
 * Two kinds of token files are read. Those of nanoGPT are little-endian uint16 without a header.
 * Those of llm.c begin with 256 little-endian int32: the first two are 20240520 and 1 (GPT-2:
 * uint16 ids) or 20240801 and 7 (Llama 3: uint32), the third is the number of ids, which must fill
 * the file. A pattern such as "train_*.bin" names several files (shards), taken in the order of
 * their names.
 */
#ifndef GRADUS_TRAIN_TOKENS_H
#define GRADUS_TRAIN_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct token_shard {
    const void *ids; /* [length] of `width` bytes each, little-endian; NULL: in the file */
    int width;       /* 1, 2 or 4 */
    int64_t length;
    char *path;    /* NULL: not from a file */
    int64_t begin; /* the first id's byte in the file */
} token_shard;

typedef struct token_source {
    token_shard *shard;
    int shards;
    int64_t length; /* of all shards */
} token_source;

/* Bytes of a message from a function here. */
enum { TOKENS_MESSAGE = 512 };

/* Finds the files that a pattern names. False, with *source empty and `message` filled, if there is
 * none, or one is not a token file. The ids are not read: there may be billions. */
bool tokens_open(token_source *source, const char *pattern, char message[TOKENS_MESSAGE]);

/* A source of one shard in memory from malloc, which it takes over; frees it if there is no memory
 * for the rest. */
bool tokens_own(token_source *source, void *ids, int width, int64_t length);

void tokens_close(token_source *source);

/* Copies ids [at, at + count) of a shard, which must have them. Returns the index of the first one
 * not below `vocab`, -1 if all are, or TOKENS_UNREADABLE with the reason in errno. */
enum { TOKENS_UNREADABLE = -2 };
int64_t tokens_read(const token_shard *shard, int64_t at, int64_t count, int64_t vocab,
                    int32_t *ids);

#endif
