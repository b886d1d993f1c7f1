/* test_cuda_runs.c - gradus-train on a GPU gives the same bits with graphs, without them, and when
 * resumed. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "gpu.h"
#include "runs.h"

static void assert_same_files(const char *a, const char *b)
{
    shell("diff -r -x log.jsonl %s", a);
    shell("cmp %s", b);
}

static const char *const kinds[] = {"",
                                    "--accumulate 3",
                                    "--dtype bf16 --recompute",
                                    "--dtype f16 --accumulate 2",
                                    "--clip 0.05 --log-every 1",
                                    "--tf32 --overfit-one-batch",
                                    "--optimizer adam --dtype bf16 --average 0.9",
                                    "--optimizer sgd --average 0.9",
                                    "--optimizer rmsprop --momentum 0.5 --dtype f16",
                                    "--optimizer adagrad",
                                    "--optimizer lion --dtype bf16 --average 0.9",
                                    "--optimizer muon"};
/* Those before the first with an optimizer of its own: test_cuda_graph has graphs of all
 * optimizers. */
enum { KINDS = sizeof kinds / sizeof *kinds, GRAPHS = 6 };

static void run(const char *more, const char *out)
{
    train_well(
        "--data text $small --device cuda --steps 24 --checkpoint-every 8 --keep 0 %s --out %s",
        more, out);
    program_said(output, " on cuda, ");
}

static bool refused(const char *kind)
{
    return strstr(kind, "bf16") && gpu_refuses(GD_BFLOAT16);
}

LOOP_TEST(a_graph_leaves_no_trace, GRAPHS)
{
    char more[256];
    if (refused(kinds[_i])) return;
    run(kinds[_i], "a");
    snprintf(more, sizeof more, "%s --no-graph", kinds[_i]);
    run(more, "b");
    assert_same_files("a b", "a/step-00000024/model.safetensors b/step-00000024/model.safetensors");
}

LOOP_TEST(a_resumed_run_has_the_same_bits, KINDS)
{
    if (refused(kinds[_i])) return;
    run(kinds[_i], "a");
    train_well("--device cuda --resume a/step-00000008 --out b");
    train_well("--device cuda --resume a/step-00000008 --out c --no-graph");
    assert_same_files("a/step-00000016 b/step-00000016",
                      "a/step-00000024/model.safetensors c/step-00000024/model.safetensors");
    assert_same_files("a/step-00000024 b/step-00000024",
                      "a/step-00000024/state.safetensors c/step-00000024/state.safetensors");
}

/* The message names the step and the op although the host was some steps ahead; the weights are
 * those before the step. */
LOOP_TEST(a_step_that_is_not_finite_is_named, 6)
{
    /* In float16 a product overflows. In float32 the GPU's sum of squares does (see the top of
     * ops.h), so the forward stays finite and the gradients do not. */
    static const char *const overflows[][2] = {
        {"--dtype f16", "the first op whose output is not finite is"},
        {"--dtype f32", "every output of the forward is finite, so it came from a backward"}};
    static const char *const ways[2] = {"", "--no-graph"};
    static char said[2][PROGRAM_OUTPUT];
    char line[256];
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "--data text $small --device cuda --steps 60 --lr 1e3 --clip 0 "
                 "--schedule constant --warmup 0 --skip-nonfinite %d %s %s",
                 _i / 2, overflows[_i % 2][0], ways[i]);
        train_badly(line, overflows[_i % 2][1]);
        /* without the progress lines, which have times */
        said[i][0] = '\0';
        for (char *at = output; (at = strstr(at, "gradus-train: ")); at++) {
            strncat(said[i], at, strcspn(at, "\n") + 1);
        }
    }
    ck_assert_str_eq(said[0], said[1]);
}

TEST(auto_takes_the_gpu_and_says_so)
{
    train_well("--data text $small --steps 2");
    program_said(output, " on cuda, ");
}

CHECK_MAIN_GPU(program_missing("gradus-train"), "gradus-train on the GPU", set_up, leave_folder)
