/* test_cuda_ranks.c - gradus-train on two GPUs, over NCCL: the same run as on one GPU, the same
 * bits twice, checkpoints for any number of GPUs, and a rank that dies; and a model with buffers.
 * Skipped without two GPUs and NCCL. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#define _DEFAULT_SOURCE   /* MAP_ANONYMOUS */
#include "check_main.h"
#include "rank_buffers.h"
#include "runs.h"

/* Whether there are two GPUs and NCCL, by a run that fails for no other reason. */
static bool two_gpus(void)
{
    char command[1024];
    snprintf(command, sizeof command,
             "'%s' --data '%s/runs.h' --layers 1 --dim 16 --heads 2 --context 8 --steps 1 "
             "--sample-length 0 --gpus 2 --timeout 60 2>&1 >/dev/null | "
             "grep -e 'no CUDA device' -e 'several GPUs need NCCL'",
             (const char *)GRADUS_PROGRAM, GRADUS_TEST_DIR);
    if (system(command) != 0) return true;
    printf("skipped: it takes two GPUs, and a build with NCCL\n");
    return false;
}

static const char *const kinds[] = {"", " --dtype bf16", " --dtype f16", " --tf32"};
static const double near[] = {1e-4, 2e-2, 2e-2, 1e-2};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void run(const char *kind, const char *more)
{
    train_well("--data text $small --log-every 1 --steps 9 --accumulate 4 --timeout 60%s %s", kind,
               more);
}

/* The last loss of a run. */
static double last_loss(void)
{
    const char *at = output;
    for (const char *next; (next = strstr(at + 1, "| loss "));) at = next;
    return number_after(at, "| loss ");
}

LOOP_TEST(two_gpus_make_the_run_of_one, KINDS)
{
    run(kinds[_i], "--gpus 1 --out one");
    const double one = last_loss();
    run(kinds[_i], "--gpus 2 --out two");
    ck_assert_double_eq_tol(last_loss(), one, near[_i]);
    run(kinds[_i], "--gpus 2 --no-graph --out again"); /* waits for other ranks elsewhere */
    shell("cmp two/step-00000009/model.safetensors again/step-00000009/model.safetensors && cmp "
          "two/step-00000009/state.safetensors again/step-00000009/state.safetensors");
}

LOOP_TEST(another_number_goes_on, KINDS)
{
    run(kinds[_i], "--schedule constant --gpus 1 --out one");
    const double one = last_loss();
    run(kinds[_i], "--schedule constant --gpus 2 --steps 5 --out two");
    run(kinds[_i], "--resume auto --gpus 1 --steps 7 --out two");
    run(kinds[_i], "--resume auto --gpus 2 --out two");
    ck_assert_double_eq_tol(last_loss(), one, near[_i]);
}

TEST(the_end_of_a_rank_ends_all)
{
    const pid_t starter =
        begin("--data text $small --steps 1000000 --checkpoint-every 20 --keep 1000 --gpus 2 "
              "--eval-every 0 --schedule constant --timeout 5 --out a");
    int status;
    wait_for("a/step-00000040");
    shell("kill -KILL $(pgrep -P %d | tail -n 1)",
          (int)starter); /* the last process is that of rank 1 */
    ck_assert_int_eq(waitpid(starter, &status, 0), starter);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    shell("grep -q 'rank 1 was ended by signal 9' log && grep -q 'rank 1 is gone' log || { cat "
          "log; false; }");
    train_well("--resume auto --out a --gpus 2 --steps 41");
}

TEST(buffers_are_the_same)
{
    ranks_device = GD_CUDA, ranks_timeout = 60;
    buffers_are_those_of_rank_0(2);
}

CHECK_MAIN_UNLESS(program_missing("gradus-train") || !two_gpus(), "several GPUs", set_up,
                  leave_folder)
