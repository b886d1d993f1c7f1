/* test_overhead.c - what an op must not cost: memory from the system in the steady state, and
 * OpenMP where one thread runs. gradus-bench overhead has the times. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "check_main.h"
#include "counted_memory.h"

#include <stdlib.h>

/* ---- Memory ------------------------------------------------------------------------------ */

/* Linear layers, broadcasting, a reduction that needs temporary memory, and an update. */
static void train_step(gd_tensor *x, gd_tensor *targets, gd_params *params, gd_optimizer *adamw)
{
    gd_tensor *w = gd_params_at(params, 0), *b = gd_params_at(params, 1);
    gd_tensor *hidden = gd_add(gd_matmul(gd_tanh(x), w), b);
    gd_backward(gd_cross_entropy(gd_linear(hidden, w, b), targets));
    gd_optimizer_step(adamw, 1e-3);
    gd_params_clear_grads(params);
    gd_step_end(gd_tensor_context(x));
}

TEST(a_step_allocates_nothing_after_the_first_ones)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1, .allocator = counting});
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "w", GD_SHAPE(5, 5), GD_DECAY);
    gd_params_add(params, "b", GD_SHAPE(5), 0);
    gd_params_finish(params);
    gd_optimizer *adamw = gd_adamw_create(params, NULL);
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(7, 5));
    gd_tensor *targets = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(7));
    for (int i = 0; i < 3; i++) train_step(x, targets, params, adamw);
    const int64_t before = counted.calls;
    for (int i = 0; i < 10; i++) train_step(x, targets, params, adamw);
    ck_assert_no_error(ctx);
    ck_assert_int_eq(counted.calls, before);
    gd_optimizer_free(adamw);
    gd_params_free(params);
    gd_tensor_free(x);
    gd_tensor_free(targets);
    gd_context_free(ctx);
}

/* ---- OpenMP ------------------------------------------------------------------------------ */

/* GCC compiles a parallel region to a call of GOMP_parallel. Here it is ours, which counts. Without
 * AVX products are BLAS's, which has regions of its own. */
#if defined(_OPENMP) && defined(__AVX__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_REGIONS 1
#include <dlfcn.h>

typedef void region(void (*body)(void *), void *data, unsigned threads, unsigned flags);

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);

static int64_t regions;

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags)
{
    union {
        void *found;
        region *call;
    } real = {dlsym(RTLD_NEXT, "GOMP_parallel")};
    regions += threads == 1; /* gradcheck runs large cases on two threads, too */
    real.call(body, data, threads, flags);
}

TEST(one_thread_enters_no_parallel_region)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        for (int k = 0; k < op->case_count; k++) {
            gd_gradcheck_report report;
            regions = 0;
            gd_gradcheck_case(ctx, op, &op->cases[k], NULL, &report);
            gd_gradcheck_report_free(&report);
            ck_assert_msg(regions == 0, "%s, case %s: %lld regions", op->name, op->cases[k].name,
                          (long long)regions);
        }
    }
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}
#endif

CHECK_MAIN("overhead")
