/* reduction_cpu.c - sums and maxima over some axes. See reduction.h and README.md. */
#include "loops.h"
#include "reduce/reduction.h"

/* The walk is split in three: the outer axes that are kept, the outer axes that are reduced, and
 * the innermost axis, which is a plain loop. If that one is kept, a vector of results is
 * accumulated over the rows; if it is reduced, each row gives one number.
 *
 * A task is a group of places of `kept`, one strip of columns, and one share of the terms. Shares
 * of one result are combined in order at the end. */
typedef struct plan {
    const gd_reduction *reduction;
    gd_walk kept, reduced;
    bool last_kept;
    int64_t cols, step[GD_WALK_OPERANDS];
    int64_t strips;                   /* of STRIP columns in a row */
    int64_t kept_rows, group, groups; /* places of kept; how many a task takes; how many groups */
    int64_t terms, share, shares;     /* rows to go through (strips of them, if last is reduced) */
    int64_t results;
    double *part; /* [shares, results] */
} plan;

/* Columns taken at once. */
#define STRIP 1024

/* A last axis this short is short. */
#define SHORT 16

/* The walk over those dimensions along which the result moves, or over the others. */
static gd_walk select_axes(const gd_walk *walk, bool kept)
{
    gd_walk selected = *walk;
    for (int d = walk->ndim - 1; d >= 0; d--)
        if ((walk->stride[0][d] != 0) != kept) gd_walk_remove(&selected, d);
    return selected;
}

/* If the last axis is reduced and short, its rows take longer to find than to sum: the last kept
 * axis, if longer, becomes the last one. Its elements are then some apart, but so few that no cache
 * line is left before all of it is used. */
static void move_kept_last(gd_walk *walk)
{
    const int last = walk->ndim - 1;
    int d = last;
    while (d >= 0 && walk->stride[0][d] == 0) d--;
    if (d < 0 || walk->shape[last] > SHORT || walk->shape[last] >= walk->shape[d]) return;
    const gd_walk old = *walk;
    gd_walk_remove(walk, d);
    walk->ndim++;
    walk->shape[last] = old.shape[d];
    for (int k = 0; k < walk->operands; k++) walk->stride[k][last] = old.stride[k][d];
}

/* All numbers depend only on the sizes. The terms are divided if there are few results, so that all
 * threads have work. */
static plan make_plan(const gd_reduction *reduction)
{
    plan p = {.reduction = reduction};
    gd_walk walk = reduction->walk;
    gd_walk_merge(&walk);
    move_kept_last(&walk);
    p.last_kept = walk.ndim > 0 && walk.stride[0][walk.ndim - 1] != 0;
    p.cols = gd_walk_take_last(&walk, p.step);
    p.kept = select_axes(&walk, true);
    p.reduced = select_axes(&walk, false);
    p.strips = gd_divide_up(p.cols, STRIP);
    p.kept_rows = gd_walk_count(&p.kept);
    p.terms = gd_walk_count(&p.reduced) * (p.last_kept ? 1 : p.strips);
    p.results = p.kept_rows * (p.last_kept ? p.cols : 1);

    int64_t work = p.terms * gd_min64(p.cols, STRIP); /* for one place and strip */
    p.group = gd_max64(1, GD_BLOCK / gd_max64(work, 1));
    p.groups = gd_divide_up(p.kept_rows, p.group);
    bool few = p.groups * (p.last_kept ? p.strips : 1) < 32;
    p.shares = few ? gd_max64(1, gd_min64(64, work / (4 * GD_BLOCK))) : 1;
    p.share = gd_divide_up(p.terms, p.shares);
    return p;
}

/* ---- Rows --------------------------------------------------------------------------------- */

/* The larger one; NaN if either is. */
static inline double larger(double a, double b)
{
    return b > a || b != b ? b : a;
}

static void sum_across(double *sum, const REAL *term, int64_t n)
{
    GD_EACH(i, n) sum[i] += (double)term[i];
}

static void max_across(double *max, const REAL *term, int64_t n)
{
    GD_EACH(i, n) max[i] = larger(max[i], (double)term[i]);
}

static double sum_along(const REAL *term, int64_t n)
{
    GD_SUM(sum, i, n, (double)term[i]);
    return sum;
}

static double square_around(REAL term, double centre)
{
    const double d = (double)term - centre;
    return d * d;
}

static void squares_across(double *sum, const REAL *term, const double *centre, int64_t n)
{
    GD_EACH(i, n) sum[i] += square_around(term[i], centre[i]);
}

static double squares_along(const REAL *term, double centre, int64_t n)
{
    GD_SUM(sum, i, n, square_around(term[i], centre));
    return sum;
}

/* A maximum by comparisons loses NaN, so NaN is checked separately. */
static double max_along(const REAL *term, int64_t n)
{
    REAL max = -(REAL)INFINITY;
    int nan = 0;
#pragma omp simd reduction(max : max) reduction(| : nan)
    for (int64_t i = 0; i < n; i++) {
        max = term[i] > max ? term[i] : max;
        nan |= term[i] != term[i];
    }
    return nan ? (double)NAN : (double)gd_reduced_max(max, term, n);
}

/* ---- Tasks -------------------------------------------------------------------------------- */

/* n terms, packed, of the row whose operands start at offset[k], from column `col` on. */
static const REAL *load_terms(const plan *p, const int64_t *offset, int64_t col, int64_t n,
                              REAL buffer[GD_WALK_OPERANDS][STRIP])
{
    const gd_reduction *r = p->reduction;
    const REAL *x[GD_WALK_OPERANDS] = {NULL};
    for (int k = 1; k < r->walk.operands; k++)
        x[k] = gd_row_load(buffer[k], r->data[k] + offset[k] + col * p->step[k], p->step[k], n);
    if (!r->term.function) return x[1];
    for (int k = r->walk.operands; k < GD_WALK_OPERANDS; k++) x[k] = x[1];
    r->term.function(buffer[0], x[1], x[2], x[3], x[1], &r->term, n);
    return buffer[0];
}

/* The terms `first` to `last` - 1 of the results at one place of `kept`: of n neighbours from
 * column `col` on, or of a single one. */
static void reduce_share(const plan *p, const gd_walk *kept, int64_t col, int64_t n, int64_t first,
                         int64_t last, double *result, const double *centre)
{
    REAL buffer[GD_WALK_OPERANDS][STRIP];
    const bool max = p->reduction->max;
    const int64_t strips = p->last_kept ? 1 : gd_max64(p->strips, 1);
    gd_walk reduced = p->reduced;
    for (int64_t i = 0; i < n; i++) result[i] = max ? -(double)INFINITY : 0;
    gd_walk_seek(&reduced, first / strips);
    for (int64_t t = first; t < last; t++) {
        int64_t offset[GD_WALK_OPERANDS];
        for (int k = 1; k < reduced.operands; k++) offset[k] = kept->offset[k] + reduced.offset[k];
        if (p->last_kept) {
            const REAL *term = load_terms(p, offset, col, n, buffer);
            if (max)
                max_across(result, term, n);
            else if (centre)
                squares_across(result, term, centre, n);
            else
                sum_across(result, term, n);
        } else {
            int64_t start = t % strips * STRIP, count = gd_min64(STRIP, p->cols - start);
            const REAL *term = load_terms(p, offset, start, count, buffer);
            if (max)
                *result = larger(*result, max_along(term, count));
            else if (centre)
                *result += squares_along(term, *centre, count);
            else
                *result += sum_along(term, count);
        }
        if ((t + 1) % strips == 0) gd_walk_next(&reduced);
    }
}

static void run_task(const void *work, int64_t task)
{
    const plan *p = work;
    int64_t share = task % p->shares;
    int64_t strips = p->last_kept ? p->strips : 1, strip = task / p->shares % strips;
    int64_t row = task / p->shares / strips * p->group;
    int64_t row_end = gd_min64(row + p->group, p->kept_rows);
    int64_t first = share * p->share, last = gd_min64(first + p->share, p->terms);
    int64_t stride = p->last_kept ? p->cols : 1, col = strip * STRIP;
    int64_t n = p->last_kept ? gd_min64(STRIP, p->cols - col) : 1;
    gd_walk kept = p->kept;
    gd_walk_seek(&kept, row);
    for (; row < row_end; row++) {
        const double *centre = p->reduction->centre;
        double *result = p->part + share * p->results + row * stride + col;
        if (centre) centre += row * stride + col;
        reduce_share(p, &kept, col, n, first, last, result, centre);
        gd_walk_next(&kept);
    }
}

const double *GD_REAL_NAME(gd_reduce)(const gd_call *call, const gd_reduction *reduction)
{
    plan p = make_plan(reduction);
    p.part = gd_call_scratch(call, (size_t)(p.shares * p.results) * sizeof(double));
    if (!p.part) return NULL;
    const int64_t tasks = p.groups * (p.last_kept ? p.strips : 1) * p.shares;
    const int threads = gd_threads_for(call->threads, gd_walk_count(&reduction->walk));
    gd_for_each(threads, tasks, run_task, &p);
    for (int64_t share = 1; share < p.shares; share++) {
        const double *part = p.part + share * p.results;
        for (int64_t i = 0; i < p.results; i++)
            p.part[i] = reduction->max ? larger(p.part[i], part[i]) : p.part[i] + part[i];
    }
    return p.part;
}
