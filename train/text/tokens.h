/* tokens.h - sequences of token ids, in memory or in files (token_format.h).
 *
 * A pattern such as "train_*.bin" names several files (shards), taken in the order of their names.
 */
#ifndef GRADUS_TRAIN_TOKENS_H
#define GRADUS_TRAIN_TOKENS_H

#include "platform/file.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct token_shard {
    const void *ids;   /* [length] of `width` bytes each, little-endian; NULL: in the file */
    int width;         /* 1, 2, 4 or 8 */
    bool negative;     /* they are signed */
    const char *dtype; /* of an .npy file, "uint16"; else NULL */
    int64_t length;
    char *path;         /* NULL: not from a file */
    int64_t begin;      /* the first id's byte in the file */
    gd_os_status found; /* the file, when it was opened first */
} token_shard;

typedef struct token_source {
    token_shard *shard;
    int shards;
    int64_t length; /* of all shards */
} token_source;

/* Bytes of a message from a function here. */
enum { TOKENS_MESSAGE = 512 };

/* Finds the files that a pattern names. `width`: the bytes of an id in a file without a header; 0:
 * uint16, unless a vocabulary of `vocab` ids is too large for that, or the ids seem to be wider.
 * False, with *source empty and `message` filled, if there is no file, or one is not a token file.
 * Not all ids are read: there may be billions. */
bool tokens_open(token_source *source, const char *pattern, int width, int64_t vocab,
                 char message[TOKENS_MESSAGE]);

/* --token-bytes: the width of each choice. */
#define TOKENS_WIDTHS "auto|2|4|8"
int tokens_width(int choice);

/* A source of one shard in memory from malloc, which it takes over; frees it if there is no memory
 * for the rest. */
bool tokens_own(token_source *source, void *ids, int width, int64_t length);

void tokens_close(token_source *source);

/* Copies ids [at, at + count) of a shard, which must have them. Returns the index of the first one
 * not below `vocab`, -1 if all are, TOKENS_UNREADABLE with the reason in errno, or TOKENS_CHANGED
 * if another file has the name by now, or it was written to. */
enum { TOKENS_UNREADABLE = -2, TOKENS_CHANGED = -3 };
int64_t tokens_read(const token_shard *shard, int64_t at, int64_t count, int64_t vocab,
                    int32_t *ids);

/* Why ids could not be read, from what tokens_read has returned. */
const char *tokens_reason(int64_t bad);

/* The id at an index, as it is stored: it may be negative, or beyond every vocabulary. 0 if it
 * cannot be read. */
int64_t tokens_at(const token_shard *shard, int64_t at);

#endif
