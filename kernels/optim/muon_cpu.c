/* muon_cpu.c - Muon's update of one matrix; kernels/optim/README.md derives it. */
#include "loops.h"
#include "matmul/gemm.h"
#include "optim/formula.h"
#include "optim/muon.h"
#include "optim/optim.h"

/* for each i of a block (GD_BLOCK) of n elements */
#define EACH_OF_BLOCK(i, block, n) \
    GD_PRAGMA(omp simd)            \
    for (int64_t i = (block)*GD_BLOCK; i < gd_min64((n), ((block) + 1) * GD_BLOCK); i++)

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
    const muon_work u = *(const muon_work *)work;
    const REAL momentum = (REAL)u.rule->momentum, fresh = (REAL)(1 - u.rule->momentum);
    const REAL *g = u.arrays->g;
    REAL *m = u.arrays->state[0], *x = u.x;
    const double clip = u.state->factor;
    const bool nesterov = u.rule->nesterov;
    EACH_OF_BLOCK(i, block, u.n) x[i] = (REAL)(g[i] * clip);
    EACH_OF_BLOCK(i, block, u.n)
    {
        m[i] = averaged(m[i], x[i], momentum, fresh);
        x[i] = nesterov ? averaged(m[i], x[i], momentum, fresh) : m[i];
    }
}

static void scale_task(const void *work, int64_t block)
{
    const muon_work u = *(const muon_work *)work;
    EACH_OF_BLOCK(i, block, u.n) u.x[i] = (REAL)(u.x[i] * u.factor);
}

/* square = b A + c A A, of A and A A. */
static void polynomial_task(const void *work, int64_t block)
{
    const muon_work u = *(const muon_work *)work;
    EACH_OF_BLOCK(i, block, u.n)
    u.square[i] = (REAL)MUON_B * u.gram[i] + (REAL)MUON_C * u.square[i];
}

/* w = (1 - lr wd) w - lr size x */
static void step_task(const void *work, int64_t block)
{
    const muon_work u = *(const muon_work *)work;
    const int64_t first = block * GD_BLOCK, n = gd_min64(GD_BLOCK, u.n - first);
    const double lr = u.state->rate * u.rule->rate;
    const REAL keep = (REAL)(1 - lr * u.rule->weight_decay), rate = (REAL)(lr * u.factor);
    REAL *w = u.arrays->w;
    const gd_rounded rounded = u.arrays->rounded;
    if (rounded.data) gd_master_follow((float *)w + first, rounded, first, n);
    EACH_OF_BLOCK(i, block, u.n) w[i] = keep * w[i] - rate * u.x[i];
    if (rounded.data) gd_master_round(rounded, (float *)w + first, first, n);
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
    const gemm_matrix x = {u->x, columns, 1}, turned = gemm_transposed(x);
    const gemm_matrix gram = {u->gram, small, 1}, square = {u->square, small, 1};
    const bool tall = rows > columns;
    gemm(u->gram, small, tall ? turned : x, tall ? x : turned, small, small,
         gd_max64(rows, columns), false, scratch, threads);
    gemm(u->square, small, gram, gram, small, small, small, false, scratch, threads);
    u->n = small * small;
    run_blocks(threads, polynomial_task, u);
    memcpy(next, u->x, (size_t)n * sizeof *next);
    u->n = n;
    u->x = next;
    u->factor = MUON_A;
    run_blocks(threads, scale_task, u);
    gemm(next, columns, tall ? x : square, tall ? square : x, rows, columns, small, true, scratch,
         threads);
}

/* The largest of the three products' temporary memory. */
static size_t scratch_bytes(int64_t rows, int64_t columns, int threads)
{
    const int64_t small = gd_min64(rows, columns), large = gd_max64(rows, columns);
    const gemm_matrix x = {NULL, columns, 1}, turned = gemm_transposed(x),
                      square = {NULL, small, 1};
    const bool tall = rows > columns;
    const size_t a =
        gemm_scratch(tall ? turned : x, tall ? x : turned, small, small, large, threads);
    const size_t b = gemm_scratch(square, square, small, small, small, threads);
    const size_t c =
        gemm_scratch(tall ? x : square, tall ? square : x, rows, columns, small, threads);
    return a > b && a > c ? a : b > c ? b : c;
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
