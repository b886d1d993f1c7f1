/* muon_cpu.c - Muon's update of one matrix; kernels/optim/README.md derives it. */
#include "matmul/gemm.h"
#include "optim/muon.h"
#include "optim/optim.h"

/* What tasks over blocks of GD_BLOCK elements need. */
typedef struct muon_work {
    const gd_update_arrays *arrays;
    const gd_muon_rule *rule;
    const gd_update_state *state;
    REAL *x, *gram, *square;
    int64_t n;
    double factor; /* of what a task scales */
} muon_work;

/* m = momentum m + (1 - momentum) g;  x = m, or momentum m + (1 - momentum) g for Nesterov's. */
static void momentum_task(const void *work, int64_t block)
{
    const muon_work *u = work;
    const int64_t first = block * GD_BLOCK, end = gd_min64(u->n, first + GD_BLOCK);
    const REAL momentum = (REAL)u->rule->momentum, fresh = (REAL)(1 - u->rule->momentum);
    const REAL *restrict g = u->arrays->g;
    REAL *restrict m = u->arrays->state[0], *restrict x = u->x;
    const double clip = u->state->factor;
#pragma omp simd
    for (int64_t i = first; i < end; i++) x[i] = (REAL)(g[i] * clip);
#pragma omp simd
    for (int64_t i = first; i < end; i++) {
        m[i] = momentum * m[i] + fresh * x[i];
        x[i] = u->rule->nesterov ? momentum * m[i] + fresh * x[i] : m[i];
    }
}

static void scale_task(const void *work, int64_t block)
{
    const muon_work *u = work;
    const int64_t first = block * GD_BLOCK, end = gd_min64(u->n, first + GD_BLOCK);
    REAL *x = u->x;
#pragma omp simd
    for (int64_t i = first; i < end; i++) x[i] = (REAL)(x[i] * u->factor);
}

/* square = b A + c A A, of A and A A. */
static void polynomial_task(const void *work, int64_t block)
{
    const muon_work *u = work;
    const int64_t first = block * GD_BLOCK, end = gd_min64(u->n, first + GD_BLOCK);
    const REAL *restrict gram = u->gram;
    REAL *restrict square = u->square;
#pragma omp simd
    for (int64_t i = first; i < end; i++)
        square[i] = (REAL)MUON_B * gram[i] + (REAL)MUON_C * square[i];
}

/* w = (1 - lr wd) w - lr size x */
static void step_task(const void *work, int64_t block)
{
    const muon_work *u = work;
    const int64_t first = block * GD_BLOCK, end = gd_min64(u->n, first + GD_BLOCK);
    const double lr = u->state->rate * u->rule->rate;
    const REAL keep = (REAL)(1 - lr * u->rule->weight_decay), rate = (REAL)(lr * u->factor);
    REAL *restrict w = u->arrays->w;
    const REAL *restrict x = u->x;
    const gd_rounded rounded = u->arrays->rounded;
    if (rounded.data) gd_master_follow((float *)w + first, rounded, first, end - first);
#pragma omp simd
    for (int64_t i = first; i < end; i++) w[i] = keep * w[i] - rate * x[i];
    if (rounded.data) gd_master_round(rounded, (float *)w + first, first, end - first);
}

static void run_blocks(int threads, gd_task *task, const muon_work *work)
{
    gd_for_each(gd_threads_for(threads, work->n), gd_divide_up(work->n, GD_BLOCK), task, work);
}

/* X <- a X + (b A + c A A) X with A = X X^T, or, for a matrix of more rows than columns,
 * X <- a X + X (b A + c A A) with A = X^T X: the transpose of the former, of a smaller A. */
static void newton_schulz_step(muon_work *u, REAL *next, int64_t rows, int64_t columns,
                               void *scratch, int threads)
{
    const int64_t n = rows * columns, small = gd_min64(rows, columns);
    const gemm_matrix x = {u->x, columns, 1}, gram = {u->gram, small, 1};
    const gemm_matrix square = {u->square, small, 1};
    const bool tall = rows > columns;
    if (tall)
        gemm(u->gram, small, gemm_transposed(x), x, small, small, rows, false, scratch, threads);
    else
        gemm(u->gram, small, x, gemm_transposed(x), small, small, columns, false, scratch, threads);
    gemm(u->square, small, gram, gram, small, small, small, false, scratch, threads);
    u->n = small * small;
    run_blocks(threads, polynomial_task, u);
    memcpy(next, u->x, (size_t)n * sizeof *next);
    u->n = n;
    REAL *const old = u->x;
    u->x = next;
    u->factor = MUON_A;
    run_blocks(threads, scale_task, u);
    const gemm_matrix from = {old, columns, 1};
    gemm(next, columns, tall ? from : square, tall ? square : from, rows, columns, small, true,
         scratch, threads);
}

/* The largest of the three products' temporary memory. */
static size_t scratch_bytes(int64_t rows, int64_t columns, int threads)
{
    const int64_t small = gd_min64(rows, columns), large = gd_max64(rows, columns);
    const gemm_matrix wide = {NULL, columns, 1}, square = {NULL, small, 1};
    const bool tall = rows > columns;
    const gemm_matrix turned = gemm_transposed(wide);
    const size_t bytes[3] = {
        gemm_scratch(tall ? turned : wide, tall ? wide : turned, small, small, large, threads),
        gemm_scratch(square, square, small, small, small, threads),
        gemm_scratch(tall ? wide : square, tall ? square : wide, rows, columns, small, threads)};
    size_t most = bytes[0];
    for (int i = 1; i < 3; i++) most = bytes[i] > most ? bytes[i] : most;
    return most;
}

gd_status GD_REAL_NAME(gd_muon)(const gd_call *call, const gd_update_arrays *arrays, int64_t rows,
                                int64_t columns, const gd_muon_rule *rule,
                                const gd_update_state *state)
{
    const int64_t n = rows * columns, small = gd_min64(rows, columns);
    if (n == 0) return GD_OK;
    const int threads = call->threads;
    const size_t bytes = (size_t)n * sizeof(REAL);
    muon_work u = {.arrays = arrays, .rule = rule, .state = state, .n = n};
    REAL *next = gd_call_scratch(call, bytes);
    u.x = gd_call_scratch(call, bytes);
    u.gram = gd_call_scratch(call, (size_t)(small * small) * sizeof(REAL));
    u.square = gd_call_scratch(call, (size_t)(small * small) * sizeof(REAL));
    void *scratch = gd_call_scratch(call, scratch_bytes(rows, columns, threads));
    if (gd_error_status(call->context)) return gd_error_status(call->context);

    run_blocks(threads, momentum_task, &u);
    double squares;
    gd_services_of[GD_CPU]->sum_squares(&squares, u.x, arrays->dtype, n, NULL, call->context);
    u.factor = squares < MUON_LEAST ? 0 : 1 / sqrt(squares);
    run_blocks(threads, scale_task, &u);
    for (int step = 0; step < MUON_STEPS; step++) {
        REAL *old = u.x;
        newton_schulz_step(&u, next, rows, columns, scratch, threads);
        next = old;
    }
    u.factor = muon_size(rule, rows, columns);
    run_blocks(threads, step_task, &u);
    return GD_OK;
}
