/* master.c - float32 masters of parameters in 16 bits.
 *
 * bfloat16 has 8 bits of mantissa: near 1 its numbers are 1/128 apart, and an update of 1/1000
 * would always be rounded away. So updates go to a float32 copy, the master, and the ops read the
 * rounded master (Micikevicius et al. 2018, arXiv:1710.03740). */
#include "optim/optim.h"

#include "copy/convert.h"
#include "kernel.h"

enum { PIECE = 256 };

static char *rounded_at(gd_rounded rounded, int64_t start)
{
    return (char *)rounded.data + (size_t)start * sizeof(uint16_t);
}

/* Loops over pieces, so that widened values stay in the cache. Compared as numbers: a master of 0
 * and a parameter of -0 agree. */
void gd_master_follow(float *master, gd_rounded rounded, int64_t start, int64_t n)
{
    gd_converter *narrow = gd_find_converter(rounded.dtype, GD_FLOAT32);
    gd_converter *widen = gd_find_converter(GD_FLOAT32, rounded.dtype);
    uint16_t as_rounded[PIECE];
    float ours[PIECE], theirs[PIECE];
    for (int64_t first = 0; first < n; first += PIECE) {
        const int64_t count = gd_min64(PIECE, n - first);
        float *w = master + first;
        narrow(as_rounded, 1, w, 1, count);
        widen(ours, 1, as_rounded, 1, count);
        widen(theirs, 1, rounded_at(rounded, start + first), 1, count);
        for (int64_t i = 0; i < count; i++) w[i] = ours[i] == theirs[i] ? w[i] : theirs[i];
    }
}

void gd_master_round(gd_rounded rounded, const float *master, int64_t start, int64_t n)
{
    gd_find_converter(rounded.dtype, GD_FLOAT32)(rounded_at(rounded, start), 1, master, 1, n);
}
