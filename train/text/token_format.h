/* token_format.h - what a token file holds, found from its beginning.
 *
 *   llm.c      256 little-endian int32: the first two are 20240520 and 1 (GPT-2: uint16 ids) or
 *              20240801 and 7 (Llama 3: uint32), the third is the number of ids
 *   NumPy      .npy of version 1 to 3: one dimension of uint16, uint32, int32 or int64
 *   no header  as nanoGPT's: ids of 2, 4 or 8 bytes, little-endian; nothing in the file says which
 *
 * The ids must fill the file.
 */
#ifndef GRADUS_TRAIN_TOKEN_FORMAT_H
#define GRADUS_TRAIN_TOKEN_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKEN_FORMAT_FIRST = 4096, TOKEN_FORMAT_WHY = 256 };

typedef struct token_format {
    int width;         /* bytes of an id: 2, 4 or 8 */
    bool negative;     /* ids are signed */
    bool headerless;   /* the width is not from the file */
    const char *dtype; /* as NumPy calls it; NULL: it is not an .npy */
    int64_t begin;     /* the first id's byte in the file */
    int64_t length;    /* ids */
} token_format;

/* Finds the format of a file of `size` bytes from its first ones, TOKEN_FORMAT_FIRST or all.
 * `width` is the user's word for the width of ids, 0 if there is none. False, and why, if it is not
 * a token file. */
bool token_format_find(token_format *format, int width, const unsigned char *first, size_t size,
                       char why[TOKEN_FORMAT_WHY]);

/* Adds the numbers of 16-bit ids at even indices that are not 0: count[0] all of them, count[1]
 * those at every fourth index. The bytes are a multiple of 8, or the last of a file. False if an id
 * at an odd index is not 0: then they are not halves of wider ids. */
bool token_format_halves(const unsigned char *ids, size_t bytes, int64_t count[2]);

#endif
