/* claims_reader.h - reading a finding beside both Jacobians: words and numbers, and what is true of
 * rows. */
#ifndef GRADUS_CLAIMS_READER_H
#define GRADUS_CLAIMS_READER_H

#include "claims.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const claims_truth *t;
    const char *at; /* what is not read yet */
    double largest, slack;
    const char *wrong; /* the first sentence that is false */
    bool by_row;       /* formulas are over the elements of x, each of which has one dy */
} reader;

static inline double ours(const reader *c, int64_t r, int64_t k)
{
    return c->t->ours[r * c->t->y.count + k];
}

static inline double right(const reader *c, int64_t r, int64_t k)
{
    return c->t->right[r * c->t->y.count + k];
}

static inline int64_t rows(const reader *c)
{
    return c->t->x.count;
}

static inline int64_t columns(const reader *c)
{
    return c->t->y.count;
}

static inline int64_t index_of(const claims_array *a, int64_t element, int axis)
{
    for (int k = a->ndim - 1; k > axis; k--) element /= a->shape[k];
    return element % a->shape[axis];
}

static inline bool same(const reader *c, double a, double b)
{
    return fabs(a - b) <= c->slack;
}

static inline void judge(reader *c, bool truth, const char *sentence)
{
    if (!truth && !c->wrong) c->wrong = sentence;
}

/* Whether the text comes next; then it is read. */
static inline bool next(reader *c, const char *text)
{
    const size_t length = strlen(text);
    if (strncmp(c->at, text, length) != 0) return false;
    c->at += length;
    return true;
}

static inline double number(reader *c)
{
    char *end;
    double value = strtod(c->at, &end);
    c->at = end;
    if (*end == '/' && end[1] >= '0' && end[1] <= '9') {
        value /= strtod(end + 1, &end);
        c->at = end;
    }
    return value;
}

/* ---- Rows --------------------------------------------------------------------------------- */

static inline double row_gap(const reader *c, int64_t r)
{
    double gap = 0;
    for (int64_t k = 0; k < columns(c); k++) gap = fmax(gap, fabs(ours(c, r, k) - right(c, r, k)));
    return gap;
}

static inline bool row_wrong(const reader *c, int64_t r)
{
    return row_gap(c, r) > c->slack;
}

static inline bool row_is(const reader *c, int64_t r, const double *j, double factor)
{
    for (int64_t k = 0; k < columns(c); k++)
        if (fabs(ours(c, r, k) - factor * j[k]) > c->slack * fmax(1, fabs(factor))) return false;
    return true;
}

static inline bool row_is_multiple(const reader *c, int64_t r, double factor)
{
    return row_is(c, r, c->t->right + r * columns(c), factor);
}

/* How many rows are more off than `slack`. */
static inline double rows_off(const reader *c, double slack)
{
    double n = 0;
    for (int64_t r = 0; r < rows(c); r++) n += row_gap(c, r) > slack;
    return n;
}

static inline bool wrong_rows_are(const reader *c, double factor)
{
    for (int64_t r = 0; r < rows(c); r++)
        if (row_wrong(c, r) && !row_is_multiple(c, r, factor)) return false;
    return true;
}

static inline bool row_zero(const reader *c, const double *j, int64_t r, double most)
{
    for (int64_t k = 0; k < columns(c); k++)
        if (fabs(j[r * columns(c) + k]) > most) return false;
    return true;
}

/* "all in row 3 (the last)" */
static inline void where_all(reader *c)
{
    const claims_array *x = &c->t->x;
    int axis = -1;
    next(c, "all ");
    if (next(c, "in column "))
        axis = x->ndim - 1;
    else if (next(c, "in row "))
        axis = 0;
    else
        judge(c, next(c, "at "), "all at");
    const int64_t index = (int64_t)number(c);
    if (next(c, " along axis ")) axis = (int)number(c);
    if (axis < 0) axis = 0;
    if (next(c, " (the last)")) judge(c, index == x->shape[axis] - 1, "(the last)");
    for (int64_t r = 0; r < rows(c); r++)
        judge(c, !row_wrong(c, r) || index_of(x, r, axis) == index, "all in ...");
}

/* ", all in row 3", ", at 4 of 12 elements", or nothing. Returns whether there was something. */
static inline bool where(reader *c)
{
    if (next(c, ", at ")) {
        const double some = number(c);
        const bool all = next(c, " of ") && number(c) == (double)rows(c) && next(c, " elements");
        judge(c, all && some >= rows_off(c, c->slack) && some <= rows_off(c, c->slack / 50),
              "at N of M elements");
        return true;
    }
    if (strncmp(c->at, ", all ", 6) != 0) return false;
    next(c, ", ");
    where_all(c);
    return true;
}

static inline double row_distance(const reader *c, int64_t r, int64_t from)
{
    double most = 0;
    for (int64_t k = 0; k < columns(c); k++)
        most = fmax(most, fabs(ours(c, r, k) - right(c, from, k)));
    return most;
}

/* Whether each row is one of the true ones: the nearest that is not taken. */
static inline bool permutation(const reader *c)
{
    bool *taken = calloc((size_t)rows(c), 1), all = true;
    for (int64_t r = 0; r < rows(c) && all; r++) {
        int64_t best = -1;
        for (int64_t from = 0; from < rows(c); from++)
            if (!taken[from] && (best < 0 || row_distance(c, r, from) < row_distance(c, r, best)))
                best = from;
        taken[best] = true;
        all = row_distance(c, r, best) <= c->slack;
    }
    free(taken);
    return all;
}

static inline bool shifted(const reader *c, int64_t by)
{
    for (int64_t r = 0; r < rows(c); r++)
        if (!row_is(c, (r + by) % rows(c), c->t->right + r * columns(c), 1)) return false;
    return true;
}

static inline bool transposed_places(const reader *c)
{
    const claims_array *x = &c->t->x;
    const int64_t n = x->ndim ? x->shape[x->ndim - 1] : 1, m = rows(c) / n;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            if (!row_is(c, j * m + i, c->t->right + (i * n + j) * columns(c), 1)) return false;
    return true;
}

static inline bool alike(const reader *c)
{
    const claims_array *x = &c->t->x, *y = &c->t->y;
    return x->ndim == y->ndim && !memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape);
}

/* ---- Formulas (claims_formula.c) ------------------------------------------------------------ */

void claims_entries_are(reader *c, double a, double b, const char *sentence);
bool claims_factor_number(reader *c, double *factor);
enum { EACH_ROW = -1, EACH_COLUMN = -2 }; /* else an axis of dy */
bool claims_one_factor(const reader *c, int by, bool others);
void claims_dy_factor(reader *c, bool others);

#endif
