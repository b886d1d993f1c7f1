/* rows.h - several strided arrays of one shape, divided into pieces of rows for the threads.
 *
 * The index space of a walk is treated as [rows, cols], where cols is the last dimension after
 * merging. A piece is at most GD_PIECE places: a part of one long row, or several short rows.
 * Kernels on rows are written for packed operands only: gd_row_load copies an operand with another
 * stride into a buffer first, so that one loop serves packed, repeated and strided operands, and
 * gives the same bits for all of them. */
#ifndef GRADUS_ROWS_H
#define GRADUS_ROWS_H

#include "kernel.h"
#include "walk.h"

/* A function of the elements of rows, and the numbers that it reads besides them. */
typedef struct gd_row gd_row;

/* to[i] = a function of the operands' elements i, for n elements; `last` may be a condition of
 * int32. Operands are arguments, and so in registers. GD_ROW of loops.h defines one. */
typedef void gd_row_function(void *to, const REAL *in0, const REAL *in1, const REAL *in2,
                             const void *last, const gd_row *row, int64_t n);
struct gd_row {
    gd_row_function *function;
    REAL p, q;
    bool add; /* to what is there */
};

/* 16 KiB, so that a few buffers fit on the stack of any thread. */
enum { GD_PIECE = (1 << 14) / sizeof(REAL) };

typedef struct gd_rows {
    gd_walk walk; /* over the rows */
    int64_t rows, cols;
    int64_t step[GD_WALK_OPERANDS]; /* along a row */
    int64_t height, width;          /* of a piece */
    int64_t pieces_per_row, pieces;
} gd_rows;

static inline gd_rows gd_rows_of(gd_walk walk)
{
    gd_rows rows = {0};
    gd_walk_merge(&walk);
    rows.cols = gd_walk_take_last(&walk, rows.step);
    rows.rows = gd_walk_count(&walk);
    rows.walk = walk;
    rows.width = gd_min64(GD_PIECE, gd_max64(rows.cols, 1));
    rows.height = GD_PIECE / rows.width;
    rows.pieces_per_row = gd_divide_up(rows.cols, rows.width);
    rows.pieces = rows.pieces_per_row * gd_divide_up(rows.rows, rows.height);
    return rows;
}

/* The current part of a row: columns col to col + n - 1. */
typedef struct gd_piece {
    const gd_rows *rows;
    gd_walk walk;
    int64_t row, row_end, col, n;
} gd_piece;

/* for (gd_piece p = gd_piece_begin(&rows, i); gd_piece_valid(&p); gd_piece_next(&p)) */
static inline gd_piece gd_piece_begin(const gd_rows *rows, int64_t index)
{
    gd_piece piece = {.rows = rows, .walk = rows->walk};
    piece.row = index / rows->pieces_per_row * rows->height;
    piece.row_end = gd_min64(piece.row + rows->height, rows->rows);
    piece.col = index % rows->pieces_per_row * rows->width;
    piece.n = gd_min64(rows->width, rows->cols - piece.col);
    gd_walk_seek(&piece.walk, piece.row);
    return piece;
}

static inline bool gd_piece_valid(const gd_piece *piece)
{
    return piece->row < piece->row_end;
}

static inline void gd_piece_next(gd_piece *piece)
{
    piece->row++;
    gd_walk_next(&piece->walk);
}

/* The offset of the piece in operand k. */
static inline int64_t gd_piece_offset(const gd_piece *piece, int k)
{
    return piece->walk.offset[k] + piece->col * piece->rows->step[k];
}

/* n elements of x as a packed array: x itself, or a copy in `buffer` [n]. */
static inline const REAL *gd_row_load(REAL *buffer, const REAL *x, int64_t stride, int64_t n)
{
    if (stride == 1) return x;
    if (stride == 0) {
        const REAL value = n ? *x : 0;
        for (int64_t i = 0; i < n; i++) buffer[i] = value;
    } else {
        for (int64_t i = 0; i < n; i++) buffer[i] = x[i * stride];
    }
    return buffer;
}

/* Operand k of the piece, packed. `x` is the operand's first element. */
static inline const REAL *gd_piece_load(const gd_piece *piece, int k, const REAL *x, REAL *buffer)
{
    return gd_row_load(buffer, x + gd_piece_offset(piece, k), piece->rows->step[k], piece->n);
}

#endif
