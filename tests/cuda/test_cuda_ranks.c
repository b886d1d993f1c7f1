/* test_cuda_ranks.c - gradus-train on two GPUs, over NCCL: the same run as on one GPU, the same
 * bits twice, checkpoints for any number of GPUs, and a rank that dies; and a model with buffers.
 * Skipped without two GPUs and NCCL. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#define _DEFAULT_SOURCE   /* MAP_ANONYMOUS */
#include "check_main.h"
#include "ranks.h"
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

/* Batch norm's statistics, of another batch on each rank. Notes the buffers after every update. */
static void learn_statistics(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    enum { ROWS = 6, CHANNELS = 5, BUFFERS = 3 };
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *scale = gd_params_add(params, "scale", GD_SHAPE(CHANNELS), 0);
    const gd_batch_norm_options norm = {
        .mean = gd_params_add_buffer(params, "mean", GD_FLOAT32, GD_SHAPE(CHANNELS)),
        .var = gd_params_add_buffer(params, "var", GD_FLOAT32, GD_SHAPE(CHANNELS))};
    gd_tensor *fixed = gd_params_add_buffer(params, "fixed", GD_FLOAT64, GD_SHAPE(CHANNELS));
    gd_params_finish(params);
    gd_tensor_fill(scale, 1), gd_tensor_fill(fixed, 7 + rank);
    gd_tensor_fill(norm.mean, rank), gd_tensor_fill(norm.var, 1 + rank);
    gd_params_replicate(params, group, NULL);
    gd_optimizer *adamw = gd_adamw_create(params, NULL);
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(ROWS, CHANNELS));
    for (int step = 0; step < 4; step++) {
        gd_random_set(ctx, (gd_random_state){.seed = (uint64_t)(10 * step + rank)});
        gd_random_normal(x, rank, 1);
        gd_params_last_backward(params);
        gd_optimizer_backward(adamw, gd_sum_all(gd_sin(gd_batch_norm(x, scale, NULL, &norm))), 1);
        gd_step_end(ctx);
        gd_optimizer_update(adamw, 1);
        gd_params_clear_grads(params);
        double values[CHANNELS];
        for (int i = 0; i < BUFFERS; i++) {
            gd_tensor_read_f64(gd_params_buffer_at(params, i), values, CHANNELS);
            for (int k = 0; k < CHANNELS; k++) note(mine, values[k]);
        }
    }
    gd_tensor_free(x);
    gd_optimizer_free(adamw);
    gd_params_free(params);
}

/* Every update sends rank 0's: the same bits on both, and those of a run of rank 0 alone. */
TEST(buffers_are_those_of_rank_0)
{
    static double alone[RANK_NUMBERS];
    ranks_device = GD_CUDA, ranks_timeout = 60;
    ranks_run_well(1, learn_statistics);
    const size_t count = (size_t)outcomes[0].count;
    memcpy(alone, outcomes[0].number, count * sizeof *alone);
    ck_assert(alone[count - 1] == 7 && alone[0] != 0 && alone[0] != alone[count / 2]);
    ranks_run_well(2, learn_statistics);
    for (int r = 0; r < 2; r++) {
        ck_assert_uint_eq((size_t)outcomes[r].count, count);
        ck_assert_msg(!memcmp(outcomes[r].number, alone, count * sizeof *alone),
                      "rank %d has other buffers than rank 0 alone", r);
    }
}

CHECK_MAIN_UNLESS(program_missing("gradus-train") || !two_gpus(), "several GPUs", set_up,
                  leave_folder)
