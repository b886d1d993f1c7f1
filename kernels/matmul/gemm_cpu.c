/* gemm_cpu.c - matrix products of any size, from tiles (tile.h) or by BLAS.
 *
 * A tile needs the rows of b close together, and the TILE_ROWS elements of a's column k adjacent.
 * With other strides they are copied into that order first ("packed"), in pieces that stay in the
 * caches (Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication"):
 *
 *     for each K_BLOCK terms of the sums (K_CHUNK, where c stays in the caches)
 *       for as many columns of b as PACK_LIMIT holds:        pack b     second level cache
 *         for each ROWS rows of a and c
 *           for each K_CHUNK terms:                          pack a     first level cache
 *             for each panel of TILE_COLUMNS columns
 *               tile_rows
 *
 * Each thread takes a range of rows of c (of columns, where there are few rows) and packs b for
 * itself. That is more copying than packing once for all threads, but faster: the copy stays in the
 * thread's own cache, and no thread waits for another. And neighbouring rows of an activation stay
 * with one thread from op to op.
 *
 * The bits of c[i, j] depend on where K is split, which depends only on sizes and strides.
 */
#include "gemm.h"
#include "stream.h"
#include "tile.h"

enum {
    K_BLOCK = 512, /* terms of a sum between two passes through c */
    K_CHUNK = 128, /* with TILE_COLUMNS of b, and ROWS of a: in the first level cache */
    ROWS = 8 * TILE_ROWS,
    PACK_FROM = 256,      /* rows of c from which on b is always packed */
    PACK_LIMIT = 1 << 18, /* elements of b packed at a time: in the second level cache */
    PIECE = 384,          /* least terms of a piece of a sum */
    PIECES = 8            /* most pieces of a sum */
};

typedef struct product {
    REAL *c;
    int64_t c_row;
    gemm_matrix a, b;
    int64_t M, N, K;
    bool accumulate;
} product;

/* x from row i and column j on. */
static gemm_matrix part(gemm_matrix x, int64_t i, int64_t j)
{
    x.data += i * x.row + j * x.column;
    return x;
}

/* ---- Packing ------------------------------------------------------------------------------ */

/* to [K, width] = b [K, n], with zeros after column n. */
static void pack_b(REAL *to, int64_t width, gemm_matrix b, int64_t n, int64_t K)
{
    for (int64_t j0 = 0; j0 < width; j0 += LANES, to += LANES) {
        const REAL *data = b.data + j0 * b.column;
        int64_t lanes = gd_min64(LANES, n - j0);
        if (b.row == 1) { /* the next columns, while these are transposed */
            for (int64_t j = j0 + LANES; j < gd_min64(j0 + 2 * LANES, n); j++)
                gd_prefetch(b.data + j * b.column, K * (int64_t)sizeof(REAL));
        }
        if (lanes == LANES && b.column == 1) {
            for (int64_t k = 0; k < K; k++) vec_store(to + k * width, vec_load(data + k * b.row));
        } else {
            int64_t k = 0;
            for (; lanes == LANES && b.row == 1 && k + LANES <= K; k += LANES) {
                vec square[LANES];
                for (int j = 0; j < LANES; j++) square[j] = vec_load(data + j * b.column + k);
                vec_transpose(square);
                for (int i = 0; i < LANES; i++) vec_store(to + (k + i) * width, square[i]);
            }
            for (; k < K; k++) {
                for (int64_t j = 0; j < LANES; j++) {
                    to[k * width + j] = j < lanes ? data[k * b.row + j * b.column] : 0;
                }
            }
        }
    }
}

/* Tiles of TILE_ROWS rows, each stored column after column. Of a transposed a, the `next` rows
 * after these are fetched meanwhile: they are far apart in memory, where no hardware foresees
 * them. */
static void pack_a(REAL *to, gemm_matrix a, int64_t m, int64_t next, int64_t K)
{
    int64_t whole = a.row == 1 ? m / TILE_ROWS * TILE_ROWS : 0;
    for (int64_t k = 0; k < K; k++) {
        if (whole) gd_prefetch(a.data + k * a.column + m, next * (int64_t)sizeof(REAL));
        for (int64_t i = 0; i < whole; i += TILE_ROWS) {
            memcpy(to + i * K + k * TILE_ROWS, a.data + k * a.column + i, TILE_ROWS * sizeof(REAL));
        }
    }
    for (int64_t i = whole; i < m; i++) {
        REAL *row = to + i / TILE_ROWS * TILE_ROWS * K + i % TILE_ROWS;
        for (int64_t k = 0; k < K; k++) row[k * TILE_ROWS] = a.data[i * a.row + k * a.column];
    }
}

/* ---- One thread's part -------------------------------------------------------------------- */

/* c [m, n] (+)= a [m, K] b [K, n] for n <= TILE_COLUMNS. The tiles of the last, narrower vector
 * pass through a buffer. */
static void panel_rows(int64_t m, int64_t n, REAL *c, int64_t c_row, const REAL *a, int64_t a_row,
                       int64_t a_column, int64_t a_tile, const REAL *b, int64_t b_row, int64_t K,
                       bool accumulate)
{
    int vectors = (int)gd_divide_up(n, LANES);
    if (n == vectors * LANES) {
        tile_rows(m, vectors, c, c_row, a, a_row, a_column, a_tile, b, b_row, K, accumulate);
        return;
    }
    REAL edge[TILE_ROWS * TILE_COLUMNS];
    for (int64_t i0 = 0; i0 < m; i0 += TILE_ROWS, a += a_tile, c += TILE_ROWS * c_row) {
        int64_t rows = gd_min64(TILE_ROWS, m - i0);
        tile_rows(rows, vectors, edge, TILE_COLUMNS, a, a_row, a_column, a_tile, b, b_row, K,
                  false);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < n; j++) {
                REAL sum = edge[i * TILE_COLUMNS + j];
                c[i * c_row + j] = accumulate ? c[i * c_row + j] + sum : sum;
            }
        }
    }
}

/* Whether b's rows are used in place: few rows of c use b too seldom to pay for packing. */
static bool b_in_place(const product *p)
{
    return p->M < PACK_FROM && p->b.column == 1 &&
           p->N * gd_min64(p->K, 2 * PACK_LIMIT) <= 2 * PACK_LIMIT;
}

/* Columns n0 to n1 and terms k0 to k1 of rows m0 to m1. `packed` holds the result of
 * pack_columns, a_packed has place for ROWS rows. In its caller, the loops of packing
 * would spill. */
static __attribute__((noinline)) void multiply_block(const product *p, int64_t m0, int64_t m1,
                                                     int64_t n0, int64_t n1, int64_t k0, int64_t k1,
                                                     const REAL *packed, REAL *a_packed)
{
    bool in_place = b_in_place(p);
    for (int64_t i = m0; i < m1; i += ROWS) {
        int64_t m = gd_min64(ROWS, m1 - i);
        for (int64_t k = k0; k < k1; k += K_CHUNK) {
            int64_t K = gd_min64(K_CHUNK, k1 - k);
            gemm_matrix a = part(p->a, i, k);
            int64_t a_tile = TILE_ROWS * a.row;
            if (a.column != 1) {
                pack_a(a_packed, a, m, gd_min64(ROWS, m1 - i - m), K);
                a = (gemm_matrix){a_packed, 1, TILE_ROWS};
                a_tile = TILE_ROWS * K;
            }
            for (int64_t j = n0; j < n1; j += TILE_COLUMNS) {
                int64_t n = gd_min64(TILE_COLUMNS, n1 - j), b_row = gd_round_up(n, LANES);
                const REAL *b = packed + (j - n0) * (k1 - k0) + (k - k0) * b_row;
                if (in_place && n == b_row) b = part(p->b, k, j).data, b_row = p->b.row;
                panel_rows(m, n, p->c + i * p->c_row + j, p->c_row, a.data, a.row, a.column, a_tile,
                           b, b_row, K, p->accumulate || k > 0);
            }
        }
    }
}

/* The panels of columns n0 to n1, one after the other, for terms k0 to k1. */
static void pack_columns(const product *p, int64_t n0, int64_t n1, int64_t k0, int64_t k1,
                         REAL *packed)
{
    bool in_place = b_in_place(p);
    for (int64_t j = n0; j < n1; j += TILE_COLUMNS) {
        int64_t n = gd_min64(TILE_COLUMNS, n1 - j), width = gd_round_up(n, LANES);
        if (in_place && n == width) continue;
        pack_b(packed + (j - n0) * (k1 - k0), width, part(p->b, k0, j), n, k1 - k0);
    }
}

/* How many columns of b are packed at a time. */
static int64_t packed_columns(int64_t K)
{
    int64_t columns = PACK_LIMIT / gd_max64(1, gd_min64(K, K_BLOCK));
    return columns / TILE_COLUMNS * TILE_COLUMNS;
}

/* Elements of ROWS rows of a, packed; a multiple of LANES. */
static int64_t packed_rows(int64_t M, int64_t K)
{
    return gd_round_up(gd_min64(ROWS, gd_round_up(M, TILE_ROWS)) * gd_min64(K, K_CHUNK), LANES);
}

/* Rows m0 to m1, and columns n0 (a multiple of TILE_COLUMNS) to n1. `packed`: packed_elements. */
static void multiply(const product *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1, REAL *packed)
{
    int64_t columns = packed_columns(p->K);
    REAL *a_packed = packed;
    packed += packed_rows(p->M, p->K);
    /* If passes through c cost little, pack less at a time. */
    int64_t terms = p->M * p->N <= 2 * PACK_LIMIT ? K_CHUNK : K_BLOCK;
    for (int64_t k0 = 0; k0 < p->K; k0 += terms) {
        int64_t k1 = gd_min64(k0 + terms, p->K);
        for (int64_t j0 = n0; j0 < n1; j0 += columns) {
            int64_t j1 = gd_min64(j0 + columns, n1);
            pack_columns(p, j0, j1, k0, k1, packed);
            multiply_block(p, m0, m1, j0, j1, k0, k1, packed, a_packed);
        }
    }
}

/* ---- All of it ---------------------------------------------------------------------------- */

/* Whether the product is BLAS's: beyond the sizes at which the tiles were measured against it and
 * found faster (README.md), and if the code is not compiled for wide vectors, which a BLAS detects
 * at run time; but not if a size does not fit in BLAS's int. */
static bool by_blas(int64_t M, int64_t N, int64_t K)
{
#ifdef GD_HAVE_BLAS
    const double LARGE = 0x1p32; /* multiply-adds: a cube of 1625 */
    if (N > INT32_MAX || K > INT32_MAX) return false;
    return VECTOR_BYTES < 32 || (double)M * (double)N * (double)K > LARGE;
#else
    (void)M, (void)N, (void)K;
    return false;
#endif
}

/* Elements of temporary memory of a thread. */
static int64_t packed_elements(int64_t M, int64_t N, int64_t K)
{
    return packed_rows(M, K) +
           gd_min64(K, K_BLOCK) * gd_min64(packed_columns(K), gd_round_up(N, LANES));
}

/* A long sum into a small c, such as the gradient of a weight, is divided into pieces of this many
 * terms, for any number of threads. */
static int64_t piece_length(int64_t M, int64_t N, int64_t K)
{
    int64_t pieces = M * N <= PACK_LIMIT ? gd_min64(K / PIECE, PIECES) : 1;
    return pieces > 1 ? gd_round_up(gd_divide_up(K, pieces), K_CHUNK) : gd_max64(K, 1);
}

size_t GD_REAL_NAME(gd_gemm_scratch)(gemm_matrix a, gemm_matrix b, int64_t M, int64_t N, int64_t K,
                                     int threads)
{
    if (by_blas(M, N, K)) return gemm_blas_scratch(a, b, M, N, K);
    int64_t sums = gd_max64(0, gd_divide_up(K, piece_length(M, N, K)) - 1) * M * N;
    return (size_t)(threads * packed_elements(M, N, K) + sums) * sizeof(REAL);
}

/* Piece `piece` of the sums of p: the first goes to c, the others to `sums` [pieces - 1, M, N]. */
static product piece_of(const product *p, int64_t piece, int64_t length, REAL *sums)
{
    product q = *p;
    q.a = part(p->a, 0, piece * length);
    q.b = part(p->b, piece * length, 0);
    q.K = gd_min64(length, p->K - piece * length);
    if (piece > 0) {
        q.c = sums + (piece - 1) * p->M * p->N;
        q.c_row = p->N;
        q.accumulate = false;
    }
    return q;
}

/* One product on several threads. */
typedef struct team {
    product product;
    int64_t length, pieces; /* of the sums */
    int64_t elements;       /* packed_elements */
    REAL *sums, *packed;    /* packed: as many for each thread */
    int threads;
} team;

/* What thread t does: its share of all rows of tiles, of all groups of columns, of all
 * pieces. A share may begin and end inside a group. */
static void multiply_share(const void *work, int64_t t)
{
    const team *w = work;
    const product *p = &w->product;
    const int64_t length = w->length, pieces = w->pieces, threads = w->threads;
    REAL *packed = w->packed + t * w->elements;
    int64_t down = gd_divide_up(p->M, TILE_ROWS), across = gd_divide_up(p->N, TILE_COLUMNS);
    /* Columns are divided, too, where there are few rows. */
    const int64_t for_piece = gd_divide_up(threads, pieces);
    const int64_t groups = down >= across || down >= 4 * for_piece ? 1 : for_piece;
    int64_t all = pieces * groups * down, from = all * t / threads, to = all * (t + 1) / threads;
    while (from < to) {
        int64_t group = from / down % groups, first = from % down;
        int64_t last = gd_min64(first + to - from, down);
        product q = piece_of(p, from / down / groups, length, w->sums);
        multiply(&q, first * TILE_ROWS, gd_min64(last * TILE_ROWS, q.M),
                 across * group / groups * TILE_COLUMNS,
                 gd_min64(across * (group + 1) / groups * TILE_COLUMNS, q.N), packed);
        from += last - first;
    }
}

/* Row i of c += that of every piece but the first, in order. */
static void add_pieces(const void *work, int64_t i)
{
    const team *w = work;
    const product *p = &w->product;
    int64_t pieces = w->pieces;
    REAL *c = p->c + i * p->c_row;
    for (const REAL *sum = w->sums + i * p->N; pieces > 1; pieces--, sum += p->M * p->N) {
#pragma omp simd
        for (int64_t j = 0; j < p->N; j++) c[j] += sum[j];
    }
}

void GD_REAL_NAME(gd_gemm)(REAL *c, int64_t c_row, gemm_matrix a, gemm_matrix b, int64_t M,
                           int64_t N, int64_t K, bool accumulate, void *scratch, int threads)
{
    if (K == 0) { /* sums of nothing */
        for (int64_t i = 0; i < M && N > 0 && !accumulate; i++) {
            memset(c + i * c_row, 0, (size_t)N * sizeof *c);
        }
        return;
    }
    if (by_blas(M, N, K)) {
        gemm_blas(c, c_row, a, b, M, N, K, accumulate, scratch, threads);
        return;
    }
    const int64_t length = piece_length(M, N, K), elements = packed_elements(M, N, K);
    const team w = {.product = {c, c_row, a, b, M, N, K, accumulate},
                    .length = length,
                    .pieces = gd_divide_up(K, length),
                    .elements = elements,
                    .sums = (REAL *)scratch + threads * elements,
                    .packed = scratch,
                    .threads = threads};
    gd_for_each(threads, threads, multiply_share, &w);
    if (w.pieces > 1) gd_for_each(threads, M, add_pieces, &w);
}
