/* test_ranks.c - gradus-train starts several processes: the same run as with one, for any number;
 * checkpoints that any number of processes can read; how a rank and the starter end. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include <math.h>

#include "check_main.h"
#include "runs.h"

/* ---- Losses --------------------------------------------------------------------------------- */

enum { STEPS_MOST = 64 };

/* A number of each line in a run's log, which has one for every step. */
static int read_log(const char *run, const char *name, double *number)
{
    char path[160], line[4096];
    int count = 0;
    snprintf(path, sizeof path, "%s/log.jsonl", run);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s is missing", path);
    while (fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "{\"step\": ");
        if (!at) continue;
        ck_assert_int_lt(count, STEPS_MOST);
        number[count++] = number_after(line, name);
        ck_assert_int_eq((int)number_after(line, "\"step\": "), count); /* each once, in order */
    }
    fclose(file);
    return count;
}

static void assert_near(const char *a, const char *b, double tolerance)
{
    double x[STEPS_MOST], y[STEPS_MOST];
    const int count = read_log(a, "\"loss\": ", x);
    ck_assert_int_gt(count, 4);
    ck_assert_int_eq(read_log(b, "\"loss\": ", y), count);
    for (int i = 0; i < count; i++) {
        ck_assert_msg(fabs(x[i] - y[i]) <= tolerance, "step %d: %s has %.9g, %s has %.9g", i + 1, a,
                      x[i], b, y[i]);
    }
}

static void assert_same_files(const char *a, const char *b)
{
    shell("for file in model state; do cmp %s/step-00000009/$file.safetensors "
          "%s/step-00000009/$file.safetensors || exit; done",
          a, b);
}

/* ---- The same run --------------------------------------------------------------------------- */

TEST_CASE("the same run", set_up, leave_folder)

/* Dropout's masks, the batches and validations are the same as with one process; the same number of
 * processes makes the same bits. */
LOOP_TEST(any_number_of_processes_makes_the_same_run, 3)
{
    static const char *const dtypes[] = {"", " --dtype f64", " --dtype bf16"};
    static const double near[] = {2e-5, 1e-9, 2e-2};
    char names[6][32] = {"one"};
    for (int i = 0; i < 6; i++) {
        const int ranks = (i + 3) / 2;
        if (i) snprintf(names[i], sizeof names[i], "%s%d", i % 2 ? "first" : "again", ranks);
        train_well("--data text $small --log-every 1 --steps 9 --accumulate 5%s --timeout 20 "
                   "--processes %d --out %s",
                   dtypes[_i], i ? ranks : 1, names[i]);
        program_said(output, "steps of 5 x 4 x 12 tokens");
        if (i == 0) continue;
        ck_assert_ptr_eq(strstr(strstr(output, "step 9/9") + 1, "step 9/9"), NULL);
        assert_near(names[0], names[i], near[_i]);
        if (i % 2 == 0) assert_same_files(names[i - 1], names[i]);
    }
}

/* Continues with 3 processes, then 1, 4 and 2. */
TEST(a_run_goes_on_with_another_number)
{
    static const char *const run =
        "--data text $small --log-every 1 --schedule constant --accumulate 4 "
        "--checkpoint-every 0";
    static const int ranks[] = {3, 0, 4, 2};
    train_well("%s --steps 12 --out one", run);
    for (int i = 0; i < 4; i++) {
        train_well("%s --resume auto --timeout 20 --processes %d --steps %d --out b", run, ranks[i],
                   3 * (i + 1));
    }
    assert_near("one", "b", 2e-5);
    train_badly("--resume auto --processes 5 --out b",
                "--accumulate is 4, but there are 5 processes");
    train_well("--resume b --processes 2 --batch 2 --accumulate 8 --steps 13 --timeout 20");
    program_said(output, "steps of 8 x 2 x 12 tokens");
}

/* Reports of several steps are read in one go before a validation and at the end. Each line has the
 * time of its own step all the same: none is a small part of the usual one, and the sum is the
 * whole. */
TEST(every_step_has_a_time_of_its_own)
{
    double ms[STEPS_MOST], seconds[STEPS_MOST];
    train_well("--data text $small --dim 64 --ffn 128 --log-every 1 --eval-every 10 --steps 40 "
               "--processes 2 --timeout 20 --out a");
    const int count = read_log("a", "\"ms\": ", ms);
    ck_assert_int_eq(count, 40);
    ck_assert_int_eq(read_log("a", "\"seconds\": ", seconds), count);
    for (int i = 1; i < count; i++) {
        ck_assert_double_eq_tol(seconds[i] - seconds[i - 1], ms[i] / 1e3, 1e-6);
        ck_assert_msg(ms[i] > seconds[count - 1] * 1e3 / count / 50,
                      "step %d took %g ms of %g s for %d steps", i + 1, ms[i], seconds[count - 1],
                      count);
    }
}

/* Masters of 16-bit weights are read in slices too. */
TEST(sixteen_bits_go_on_with_another_number)
{
    train_well("--data text $small --dtype bf16 --log-every 1 --schedule constant --accumulate 2 "
               "--steps 8 --out one");
    train_well("--data text $small --dtype bf16 --log-every 1 --schedule constant --accumulate 2 "
               "--steps 4 --processes 2 --out b");
    train_well("--resume b --log-every 1 --steps 8");
    assert_near("one", "b", 2e-2);
    train_well("--data text --init one --dtype bf16 --processes 2 --context 12 --steps 1 --out c");
}

TEST(each_process_has_a_batch_by_default)
{
    train_well("--data text $small --steps 1 --processes 3 --log-every 1");
    program_said(output, "3 processes on cpu, 1 thread");
    program_said(output, "1 step of 3 x 4 x 12 tokens");
    train_well("--data text $small --steps 2 --processes 1 --log-every 1");
    program_said(output, "2 steps of 1 x 4 x 12 tokens");
    train_well("--data text $small --steps 2 --processes 2 --dry-run --out never 2>&1; "
               "ls -d never /tmp/gradus-?????? 2>/dev/null; true");
    ck_assert_ptr_eq(strstr(output, "/gradus-"), NULL);
    ck_assert(!exists("never"));
}

/* ---- Ranks that gradus-train starts --------------------------------------------------------- */

TEST_CASE("ranks that it starts", set_up, leave_folder)

/* Each rank reports it once, and all but rank 0 say that it was rank 0. */
TEST(a_disk_that_is_full)
{
    shell("ulimit -f 1600 && '%s' --data text $small --dim 192 --steps 2 --processes 2 --timeout "
          "20 --out a >log 2>&1; test $? = 1",
          (const char *)GRADUS_PROGRAM);
    shell("grep -q '^gradus-train: rank 0: safetensors_write: a/.saving/model' log");
    shell("grep -q '^gradus-train: rank 1: rank 0: safetensors_write: a/.saving/' log");
    shell("! grep -q 'rank 0: rank 0' log");
    ck_assert(!exists("a/step-00000002") && !exists("a/.saving"));
}

/* Starts three ranks, and waits until they have saved. */
static pid_t begin_three(void)
{
    const pid_t starter =
        begin("--data text $small --steps 1000000 --checkpoint-every 20 --keep 1000 --processes 3 "
              "--eval-every 0 --timeout 20 --out a");
    wait_for("a/step-00000020");
    return starter;
}

LOOP_TEST(the_starter_passes_signals_on, 2)
{
    const pid_t starter = begin_three();
    stop_well(starter, _i ? SIGTERM : SIGINT);
    program_said(text_of("log"), "stopped by a signal");
    ck_assert_ptr_eq(strstr(text_of("log"), "rank"), NULL);
    shell("! ls -A a | grep '^[.]'"); /* nothing is left of the meeting */
}

/* The process of a rank: children are started in this order. */
static pid_t child_of(pid_t starter, int rank)
{
    char command[64];
    int pid = 0;
    snprintf(command, sizeof command, "pgrep -P %d | sort -n | sed -n %dp", (int)starter, rank + 1);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_int_eq(fscanf(pipe, "%d", &pid), 1);
    pclose(pipe);
    return pid;
}

/* The other ranks have ended, because of one that was killed, before the starter looks: it sees all
 * of them at once, the killed one last. */
LOOP_TEST(the_killed_rank_is_named_first, 3)
{
    char command[64];
    const pid_t starter = begin_three();
    const pid_t culprit = child_of(starter, _i);
    kill(starter, SIGSTOP);
    kill(culprit, SIGKILL);
    snprintf(command, sizeof command, "test $(pgrep -P %d -r Z | wc -l) = 3", (int)starter);
    for (int i = 0; i < 1000 && system(command) != 0; i++) nap(20);
    kill(starter, SIGCONT);
    ck_assert_int_eq(end_of(starter), 128 + 9);
    snprintf(command, sizeof command, "gradus-train: rank %d was ended by signal 9", _i);
    program_said(text_of("log"), command);
}

/* The ranks save and exit although their parent was killed. */
TEST(nobody_outlives_the_starter)
{
    const pid_t starter = begin_three();
    kill(starter, SIGKILL);
    end_of(starter);
    for (int i = 0; i < 500 && !strstr(text_of("log"), "stopped by a signal"); i++) nap(20);
    program_said(text_of("log"), "stopped by a signal");
    shell(
        "for i in $(seq 200); do flock -n a true && exit 0; sleep 0.05; done; exit 1"); /* a is free */
}

TEST(what_makes_no_sense_is_refused)
{
    train_badly("--data text $small --processes 2 --gpus 2",
                "--gpus and --processes cannot be used together");
    train_badly("--data text $small --gpus 2 --device cpu", "--processes is for the CPU");
    train_badly("--data text $small --processes 2 --device cuda", "--gpus N takes a GPU for each");
    train_badly("--data text $small --processes 4 --accumulate 3",
                "--accumulate is 3, but there are 4 processes: a step needs at least one batch");
    train_badly("--data text $small --processes 1025", "--processes");
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", "0", 1);
    train_badly("--data text $small --processes 2",
                "--processes starts processes, but this one was started as one of several");
    setenv("RANK", "5", 1);
    train_badly("--data text $small --out a", "group_create: rank is 5 of 2");
    setenv("RANK", "zero", 1);
    train_badly("--data text $small", "RANK is \"zero\", wanted a whole number");
    unsetenv("RANK");
    train_badly("--data text $small", "WORLD_SIZE is set, but RANK is not");
    setenv("WORLD_SIZE", "1", 1);
    setenv("RANK", "0", 1);
    train_well("--data text $small --steps 1");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    train_badly("--data text $small --steps 1 --gpus 2 --timeout 2", "no CUDA device");
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "several processes", NULL, NULL)
