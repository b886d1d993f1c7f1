/* gemm_amx_cpu.c - float32 products by AMX, the matrix unit of Intel's processors since 2023.
 *
 * AMX multiplies bfloat16 numbers and adds in float32, at 16 times the rate of AVX-512's float32.
 * A bfloat16 has 8 bits of significand, a float32 24, so a float32 is the sum of three bfloat16
 * numbers (Henry, Tang & Heinecke 2019, "Leveraging the bfloat16 artificial intelligence datatype
 * for higher-precision computations"):
 *
 *     x = high + middle + low,    |middle| <= 2^-8 |x|,    |low| <= 2^-17 |x|
 *     a b = high high + (high middle + middle high) + (high low + middle middle + low high)
 *
 * The three products that are left out add up to at most 2^-24 |a b|, the rounding of one float32
 * product. AMX takes numbers below 2^-126 for 0: numbers below 2^-109 lose digits, an error below
 * 2^-125 times the other factor.
 *
 * One instruction multiplies 16 lines (rows) of a by 16 lines (columns) of b, in 32 terms, and adds
 * to 16 x 16 sums. A tile of a or b is 16 x 16 pairs of terms, of a as [line][pair], of b as
 * [pair][line]. Two tiles each of a and b and their four tiles of sums fill the eight registers.
 *
 *     for each DEPTH terms of the sums
 *       for each COLUMNS columns:       split b     second level cache
 *         for each BLOCK rows:          split a
 *           for each BLOCK columns:     multiply, add to c
 *
 * Every element's sums are the same in any block and any thread.
 */
#include "gemm.h"
#include "platform/process.h"
#include "vector.h"

#if GEMM_AMX

#include <immintrin.h>
#include <stdatomic.h>

enum {
    LINES = 16, /* of a tile */
    TERMS = 32,
    TILE = LINES * TERMS / 2, /* pairs */
    PARTS = 3,
    BLOCK = 2 * LINES,       /* lines of two tiles, which are adjacent in memory */
    STEP = PARTS * 2 * TILE, /* pairs of a block in TERMS terms: [part][half][tile] */
    DEPTH = 512,
    COLUMNS = 384,
    WHOLE_BLOCK = DEPTH / TERMS * STEP
};
_Static_assert(GEMM_AMX_SCRATCH == (COLUMNS / BLOCK + 1) * WHOLE_BLOCK * sizeof(uint32_t),
               "scratch");

typedef uint32_t pairs __attribute__((vector_size(VECTOR_BYTES)));

/* a, whose lines are its rows, or b, whose lines are its columns. */
typedef struct operand {
    const float *data;
    int64_t line, term; /* strides */
} operand;

/* x from a line and a term on. */
static operand from(operand x, int64_t line, int64_t term)
{
    x.data += line * x.line + term * x.term;
    return x;
}

/* ---- Splitting ---------------------------------------------------------------------------- */

/* The parts of 16 pairs of terms, each to its tile. The bits after the first 16 are rounded away;
 * what remains of x is exact, and its third part has no such bits. */
static inline void split(uint32_t *to, vec first, vec second)
{
    for (int p = 0; p < PARTS; p++, to += 2 * TILE) {
        pairs f = (pairs)first, s = (pairs)second;
        if (p < PARTS - 1) f = (f + 0x8000) & 0xffff0000u, s = (s + 0x8000) & 0xffff0000u;
        vec_store((float *)to, (vec)(f >> 16 | s));
        first -= (vec)f, second -= (vec)s;
    }
}

/* Half a block in TERMS terms, of an x whose lines or terms are adjacent in memory, with these
 * strides. Pair i is of the terms i and 16 + i. */
static void split_tile(uint32_t *to, const float *x, int64_t line, int64_t term, bool lines_first)
{
    const int64_t next = term == 1 ? line : term;
    vec firsts[16], seconds[16];
    for (int i = 0; i < 16; i++, x += next) {
        firsts[i] = vec_load(x);
        seconds[i] = vec_load(x + 16 * term);
    }
    if ((term == 1) != lines_first) vec_transpose(firsts), vec_transpose(seconds);
    for (int i = 0; i < 16; i++) split(to + i * LANES, firsts[i], seconds[i]);
}

/* The same of any x, of which only so many lines and terms exist; the others are zeros. */
static void split_edge(uint32_t *to, const float *x, int64_t line, int64_t term, bool lines_first,
                       int64_t lines, int64_t terms)
{
    float edge[LINES * TERMS] = {0};
    for (int64_t i = 0; i < gd_min64(lines, LINES); i++) {
        for (int64_t k = 0; k < gd_min64(terms, TERMS); k++)
            edge[i * TERMS + k] = x[i * line + k * term];
    }
    split_tile(to, edge, TERMS, 1, lines_first);
}

/* A block of x, of which only `lines` lines may exist, in all terms: [step][part][half][tile]. */
static void split_block(uint32_t *to, operand x, int64_t lines, int64_t terms, bool lines_first)
{
    bool adjacent = x.line == 1 || x.term == 1;
    for (int half = 0; half < 2; half++, to += TILE, lines -= LINES) {
        const float *tile = x.data + half * LINES * x.line;
        for (int64_t k = 0; k < terms; k += TERMS, tile += TERMS * x.term) {
            uint32_t *at = to + k / TERMS * STEP;
            if (adjacent && lines >= LINES && terms - k >= TERMS)
                split_tile(at, tile, x.line, x.term, lines_first);
            else
                split_edge(at, tile, x.line, x.term, lines_first, lines, terms - k);
        }
    }
}

/* ---- Multiplying -------------------------------------------------------------------------- */

/* Registers 0 to 3: sums; 4, 5: a; 6, 7: b. */
#define LOAD_A(p)                                            \
    do {                                                     \
        _tile_loadd(4, a + (p)*2 * TILE, 64);                \
        if (two) _tile_loadd(5, a + ((p)*2 + 1) * TILE, 64); \
    } while (0)
#define LOAD_B(p)                                   \
    do {                                            \
        _tile_loadd(6, b + (p)*2 * TILE, 64);       \
        _tile_loadd(7, b + ((p)*2 + 1) * TILE, 64); \
    } while (0)
#define MULTIPLY()                   \
    do {                             \
        _tile_dpbf16ps(0, 4, 6);     \
        _tile_dpbf16ps(1, 4, 7);     \
        if (two) {                   \
            _tile_dpbf16ps(2, 5, 6); \
            _tile_dpbf16ps(3, 5, 7); \
        }                            \
    } while (0)

/* sums [BLOCK, BLOCK] = a b, of two split blocks, the lower half of them only where a has two
 * tiles. */
static void multiply_blocks(float *sums, const uint32_t *a, const uint32_t *b, int64_t steps,
                            bool two)
{
    enum { HIGH, MIDDLE, LOW };
    __asm__ volatile("" ::: "memory"); /* gcc's intrinsics do not say that they read memory */
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; s++, a += STEP, b += STEP) {
        LOAD_A(LOW);
        LOAD_B(HIGH);
        MULTIPLY();
        LOAD_A(MIDDLE);
        MULTIPLY();
        LOAD_B(MIDDLE);
        MULTIPLY();
        LOAD_A(HIGH);
        MULTIPLY();
        LOAD_B(LOW);
        MULTIPLY();
        LOAD_B(HIGH);
        MULTIPLY();
    }
    _tile_stored(0, sums, BLOCK * sizeof *sums);
    _tile_stored(1, sums + LINES, BLOCK * sizeof *sums);
    _tile_stored(2, sums + LINES * BLOCK, BLOCK * sizeof *sums);
    _tile_stored(3, sums + LINES * BLOCK + LINES, BLOCK * sizeof *sums);
}

/* 0 times a number that is not finite is NaN. */
static bool all_finite(const float *sums)
{
    vec zero[4] = {{0}};
    for (int i = 0; i < BLOCK * BLOCK; i += 4 * LANES) {
        for (int v = 0; v < 4; v++) zero[v] += vec_load(sums + i + v * LANES) * (vec){0};
    }
    return vec_sum((zero[0] + zero[1]) + (zero[2] + zero[3])) == 0;
}

/* The parts of an infinity are infinite and NaN. So sums [m, n] that are not finite are taken
 * again, of the numbers themselves. */
static void repair(float *sums, operand a, operand b, int64_t m, int64_t n, int64_t terms)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            if (isfinite(sums[i * BLOCK + j])) continue;
            for (int64_t k = 0; k < terms && !isnan(sum); k++)
                sum += a.data[i * a.line + k * a.term] * b.data[j * b.line + k * b.term];
            sums[i * BLOCK + j] = sum;
        }
    }
}

/* c [m, n] (+)= sums */
static void store_sums(float *c, int64_t c_row, const float *sums, int64_t m, int64_t n, bool add)
{
    for (int64_t i = 0; i < m; i++, c += c_row, sums += BLOCK) {
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES) {
            vec sum = vec_load(sums + j);
            vec_store(c + j, add ? vec_load(c + j) + sum : sum);
        }
        for (; j < n; j++) c[j] = add ? c[j] + sums[j] : sums[j];
    }
}

/* ---- A product ---------------------------------------------------------------------------- */

static bool is_allowed(void)
{
    enum { UNKNOWN, YES, NO };
    static atomic_int allowed;
    if (allowed == UNKNOWN) allowed = gd_os_ask_for_amx() ? YES : NO;
    return allowed == YES;
}

bool GD_REAL_NAME(gd_gemm_amx_takes)(int64_t M, int64_t N, int64_t K)
{
    return M >= 2 * BLOCK && N >= 2 * BLOCK && K >= TERMS && is_allowed();
}

/* c [m, N] (+)= a b, m <= BLOCK, in some of the terms, for which b is split already. */
static void multiply_rows(float *c, int64_t c_row, operand a, operand b, int64_t m, int64_t N,
                          int64_t terms, bool add, uint32_t *a_split, const uint32_t *b_split)
{
    float sums[BLOCK * BLOCK] __attribute__((aligned(VECTOR_BYTES)));
    int64_t steps = gd_divide_up(terms, TERMS);
    split_block(a_split, a, m, terms, true);
    for (int64_t j = 0; j < N; j += BLOCK, b_split += steps * STEP) {
        int64_t n = gd_min64(BLOCK, N - j);
        multiply_blocks(sums, a_split, b_split, steps, m > LINES);
        if (!all_finite(sums)) repair(sums, a, from(b, j, 0), m, n, terms);
        store_sums(c + j, c_row, sums, m, n, add);
    }
}

void GD_REAL_NAME(gd_gemm_amx)(REAL *c, int64_t c_row, gemm_matrix a, gemm_matrix b, int64_t M,
                               int64_t N, int64_t K, bool accumulate, void *scratch)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } eight_tiles = {.palette = 1,
                     .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                     .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    operand rows = {a.data, a.row, a.column}, columns = {b.data, b.column, b.row};
    uint32_t *a_split = scratch, *b_split = a_split + WHOLE_BLOCK;
    _tile_loadconfig(&eight_tiles);
    for (int64_t k = 0; k < K; k += DEPTH) {
        int64_t terms = gd_min64(DEPTH, K - k), steps = gd_divide_up(terms, TERMS);
        for (int64_t j = 0; j < N; j += COLUMNS) {
            int64_t n = gd_min64(COLUMNS, N - j);
            for (int64_t i = 0; i < n; i += BLOCK)
                split_block(b_split + i / BLOCK * steps * STEP, from(columns, j + i, k), n - i,
                            terms, false);
            for (int64_t i = 0; i < M; i += BLOCK)
                multiply_rows(c + i * c_row + j, c_row, from(rows, i, k), from(columns, j, k),
                              gd_min64(BLOCK, M - i), n, terms, accumulate || k > 0, a_split,
                              b_split);
        }
    }
    _tile_release(); /* a thread that does not use the registers is switched faster */
}

#endif
