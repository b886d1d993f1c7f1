/* tile.h - a small block of a matrix product, held in registers.
 *
 *     c [m, n] (+)= a [m, K] b [K, n],    m <= TILE_ROWS, n = LANES, 2 LANES or, with 32 registers,
 *                                         3 LANES
 *
 * matmul, linear and attention spend their time here. For each k the tile loads row k of b,
 * up to three vectors, and for each row i of a broadcasts a[i, k], multiplies and adds. The sums,
 * up to 8 x 3 vectors, stay in registers over the whole of K: of AVX-512's 32 registers that
 * leaves enough for b and a, and so many independent sums hide the latency of a multiply-add (4
 * cycles, two started in each). Per k it is 24 multiply-adds to 3 + 8 loads, so that arithmetic is
 * the limit, not the cache. Of 16 registers 6 x 2 sums leave as few: 12 multiply-adds to 2 + 6
 * loads. (4 x 3 need one load less, but most widths are whole numbers of 2 vectors, not of 3, and a
 * vector that remains has too few sums to hide the latency.)
 *
 * Every c[i, j] is one sum over k in order, in any tile: how the rows and columns of a product are
 * divided changes no bit of it. Only the division of K matters.
 */
#ifndef GRADUS_TILE_H
#define GRADUS_TILE_H

#include "vector.h"

enum {
    TILE_ROWS = VECTOR_REGISTERS == 32 ? 8 : 6,
    TILE_VECTORS = VECTOR_REGISTERS == 32 ? 3 : 2,
    TILE_COLUMNS = TILE_VECTORS * LANES
};

/* The strides are a's between rows and columns, and c's and b's between rows. `a` packed by
 * columns, with a_row = 1 and a_column = TILE_ROWS, has its own loops. */
typedef void tile_function(REAL *c, int64_t c_row, const REAL *a, int64_t a_row, int64_t a_column,
                           const REAL *b, int64_t b_row, int64_t K, bool accumulate);

/* The tile for constant m and `vectors`, unrolled by the compiler. */
static inline __attribute__((always_inline)) void
tile_of(int m, int vectors, REAL *c, int64_t c_row, const REAL *a, int64_t a_row, int64_t a_column,
        const REAL *b, int64_t b_row, int64_t K, bool accumulate)
{
    vec sum[TILE_ROWS][TILE_VECTORS];
    /* Unrolled by the pragmas, the sums are in registers alone. The compiler does so later, too,
     * but by then stores the zeros to memory. */
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) sum[i][j] = (vec){0};
    }
    /* What was not read by an earlier tile is rarely in the cache: fetch it meanwhile. */
    for (int i = 0; !accumulate && i < m; i++) {
        for (int j = 0; j < vectors; j++) __builtin_prefetch(c + i * c_row + j * LANES, 1);
    }
    for (int64_t k = 0; k < K; k++) {
        vec bk[TILE_VECTORS];
        for (int j = 0; j < vectors; j++) bk[j] = vec_load(b + k * b_row + j * LANES);
        for (int i = 0; i < m; i++) {
            vec aik = vec_all(a[i * a_row + k * a_column]);
            for (int j = 0; j < vectors; j++) sum[i][j] += aik * bk[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) {
            REAL *at = c + i * c_row + j * LANES;
            vec_store(at, accumulate ? vec_load(at) + sum[i][j] : sum[i][j]);
        }
    }
}

/* One function per size: inlined into larger loops, the compiler would run out of registers for
 * the addresses. */
#define TILE(m, vectors)                                                                       \
    static __attribute__((noinline)) void tile_##m##x##vectors(                                \
        REAL *c, int64_t c_row, const REAL *a, int64_t a_row, int64_t a_column, const REAL *b, \
        int64_t b_row, int64_t K, bool accumulate)                                             \
    {                                                                                          \
        if (a_row == 1 && a_column == TILE_ROWS)                                               \
            tile_of(m, vectors, c, c_row, a, 1, TILE_ROWS, b, b_row, K, accumulate);           \
        else                                                                                   \
            tile_of(m, vectors, c, c_row, a, a_row, a_column, b, b_row, K, accumulate);        \
    }

TILE(1, 1)
TILE(1, 2)
TILE(2, 1)
TILE(2, 2)
TILE(4, 1)
TILE(4, 2)
#if VECTOR_REGISTERS == 32
TILE(1, 3)
TILE(2, 3)
TILE(4, 3)
TILE(8, 1)
TILE(8, 2)
TILE(8, 3)
#else
TILE(6, 1)
TILE(6, 2)
#endif

/* tiles[log2 of the rows][vectors - 1], the whole tiles last */
static tile_function *const tiles[][TILE_VECTORS] = {
#if VECTOR_REGISTERS == 32
    {tile_1x1, tile_1x2, tile_1x3},
    {tile_2x1, tile_2x2, tile_2x3},
    {tile_4x1, tile_4x2, tile_4x3},
    {tile_8x1, tile_8x2, tile_8x3},
#else
    {tile_1x1, tile_1x2},
    {tile_2x1, tile_2x2},
    {tile_4x1, tile_4x2},
    {tile_6x1, tile_6x2},
#endif
};
enum { WHOLE_TILE = 3 };

/* Any number of rows, by whole tiles, and 4, 2, 1 for the rest. `a_tile` is the step in a from one
 * whole tile to the next: TILE_ROWS * a_row, unless a is packed. */
static inline void tile_rows(int64_t m, int vectors, REAL *c, int64_t c_row, const REAL *a,
                             int64_t a_row, int64_t a_column, int64_t a_tile, const REAL *b,
                             int64_t b_row, int64_t K, bool accumulate)
{
    for (; m >= TILE_ROWS; m -= TILE_ROWS, a += a_tile, c += TILE_ROWS * c_row) {
        tiles[WHOLE_TILE][vectors - 1](c, c_row, a, a_row, a_column, b, b_row, K, accumulate);
    }
    for (int p = WHOLE_TILE - 1; p >= 0; p--) {
        if (!(m >> p & 1)) continue;
        tiles[p][vectors - 1](c, c_row, a, a_row, a_column, b, b_row, K, accumulate);
        a += a_row << p, c += c_row << p;
    }
}

/* The same over any number of vectors of columns. */
static inline void tile_block(int64_t m, int vectors, REAL *c, int64_t c_row, const REAL *a,
                              int64_t a_row, int64_t a_column, const REAL *b, int64_t b_row,
                              int64_t K, bool accumulate)
{
    while (vectors > 0) {
        int now = vectors == 4 ? 2 : vectors < TILE_VECTORS ? vectors : TILE_VECTORS;
        tile_rows(m, now, c, c_row, a, a_row, a_column, TILE_ROWS * a_row, b, b_row, K, accumulate);
        vectors -= now;
        b += now * LANES, c += now * LANES;
    }
}

#endif
