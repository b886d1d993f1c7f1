/* test_cuda_ops.c - every case of every op on the GPU, forward and backward, against the CPU.
 *
 * float64 and float32 are compared with the CPU in float64; 16-bit dtypes with the CPU in the same
 * dtype, which computes in float32 and rounds once. Each case runs three times: with packed inputs,
 * with inputs that are windows (rows have gaps and begin at odd addresses), and with packed inputs
 * again, which must give the same bits. The backward runs twice over the same tape: the first
 * overwrites the gradients, the second adds to them. Inputs that an op updates are
 * compared, too. */
#include "gpu.h"
#include "op_cases.h"

static void same_bits(const problem *p, gd_dtype dtype, const outcome *a, const outcome *b,
                      tally *t)
{
    for (int k = 0; k < a->parts; k++) {
        if (!memcmp(a->part[k].value, b->part[k].value, (size_t)a->part[k].count * sizeof(double)))
            continue;
        printf("%s, case %s, %s: %s differs from run to run\n", p->op->name, p->c->name,
               gd_dtype_name(dtype), a->part[k].name);
        t->wrong++;
    }
}

/* ---- All cases ---------------------------------------------------------------------------- */

/* Whether the GPU has no products of bfloat16. */
static bool gpu_lacks(const outcome *got, gd_dtype dtype)
{
    if (!got->refused[0]) return false;
    ck_assert_msg(dtype == GD_BFLOAT16 &&
                      strstr(got->refused, "need a GPU of compute capability 8.0"),
                  "%s", got->refused);
    return true;
}

static void check_case(gd_context *gpu, gd_context *cpu, const gd_op *op, const gd_case *c,
                       gd_dtype dtype, tally *t)
{
    problem p = {.op = op, .c = c, .seed = 11};
    gd_dtype reference = dtype == GD_FLOAT32 ? GD_FLOAT64 : dtype;
    outcome want, got, again;
    make_values(&p, cpu, dtype);
    for (int windows = 0; windows < 2; windows++) {
        const layout way = windows ? SLICED : PACKED;
        run_problem(&p, cpu, reference, way, &want);
        ck_assert_msg(!want.refused[0], "%s", want.refused);
        run_problem(&p, gpu, dtype, way, &got);
        const bool lacks = gpu_lacks(&got, dtype);
        t->refused += lacks;
        if (!lacks) compare_outcomes(&p, dtype, windows ? "windows" : "packed", &got, &want, t);
        if (!windows && !lacks && !test_brief()) {
            run_problem(&p, gpu, dtype, way, &again);
            same_bits(&p, dtype, &got, &again, t);
            free_outcome(&again);
        }
        free_outcome(&want);
        free_outcome(&got);
    }
    free_values(&p);
}

/* GRADUS_TEST_OP in the environment names a single op to test; GRADUS_TEST_SHORT leaves out the run
 * for equal bits and half of the dtypes, for slow tools. */
static tally check_all(gd_dtype dtype)
{
    tally t = {0};
    gd_context *gpu = gpu_context();
    gd_context *cpu = gd_context_create(&(gd_context_options){.threads = 1, .poison = true});
    ck_assert_no_error(gpu);
    ck_assert_no_error(cpu);
    const char *only = getenv("GRADUS_TEST_OP");
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        if (only && strcmp(only, op->name)) continue;
        ck_assert_msg(op->forward[GD_CUDA] || op->definition || op->view,
                      "%s has no forward on the GPU", op->name);
        ck_assert_msg(!gd_op_has_backward(op, GD_CPU) || gd_op_has_backward(op, GD_CUDA),
                      "%s has no backward on the GPU", op->name);
        for (int k = 0; k < op->case_count; k++) check_case(gpu, cpu, op, &op->cases[k], dtype, &t);
    }
    gd_context_free(gpu);
    gd_context_free(cpu);
    if (t.refused)
        printf("skipped: %d runs of ops with products that this GPU has not\n", t.refused);
    printf("%s: %d tensors compared, %d wrong; the worst at %.3g of the tolerance: %s\n",
           gd_dtype_name(dtype), t.compared, t.wrong, t.worst, t.where);
    fflush(stdout);
    return t;
}

LOOP_TEST(every_case_agrees_with_the_cpu, 4)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT64, GD_FLOAT16};
    if (_i >= 2 && test_brief()) return;
    tally t = check_all(dtypes[_i]);
    ck_assert_int_eq(t.wrong, 0);
    ck_assert_int_gt(t.compared + t.refused, 0);
}

CHECK_MAIN_GPU(false, "ops on the GPU", NULL, NULL)
