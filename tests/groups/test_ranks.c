/* test_ranks.c - runs of several processes, which gradus-train starts or others, as torchrun does:
 * the same run as with one, for any number; checkpoints that any number can read; how a rank and
 * the starter end; a signal to any saves once; ranks with other options or files are named. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include <math.h>

#include "check_main.h"
#include "runs.h"

/* ---- The same run --------------------------------------------------------------------------- */

enum { STEPS_MOST = 64 };

/* A number of each line in a run's log, which has one for every step. */
static int read_log(const char *run, const char *name, double *number)
{
    char path[160];
    int count = 0;
    snprintf(path, sizeof path, "%s/log.jsonl", run);
    for (const char *at = text_of(path); (at = strstr(at, "{\"step\": ")); at++) {
        ck_assert_int_lt(count, STEPS_MOST);
        number[count++] = number_after(at, name);
        ck_assert_int_eq((int)number_after(at, "\"step\": "), count); /* each once, in order */
    }
    return count;
}

static void assert_near(const char *a, const char *b, double tolerance)
{
    double x[STEPS_MOST], y[STEPS_MOST];
    const int count = read_log(a, "\"loss\": ", x);
    ck_assert_int_gt(count, 4);
    ck_assert_int_eq(read_log(b, "\"loss\": ", y), count);
    for (int i = 0; i < count; i++)
        ck_assert_msg(fabs(x[i] - y[i]) <= tolerance, "step %d: %s has %.9g, %s has %.9g", i + 1, a,
                      x[i], b, y[i]);
}

TEST_CASE("the same run", set_up, leave_folder)

/* Dropout's masks, the batches and validations are the same as with one process; the same number of
 * processes makes the same bits. */
LOOP_TEST(any_number_of_processes_makes_the_same_run, 3)
{
    static const char *const dtypes[] = {"", " --dtype f64", " --dtype bf16"};
    static const double near[] = {2e-5, 1e-9, 2e-2};
    static const char *const names[] = {"one", "two", "again2", "three", "again3"};
    for (int i = 0; i < 5; i++) {
        train_well("--data text $small --log-every 1 --steps 9 --accumulate 5%s --timeout 20 "
                   "--processes %d --out %s",
                   dtypes[_i], 1 + (i + 1) / 2, names[i]);
        program_said(output, "steps of 5 x 4 x 12 tokens");
        ck_assert_ptr_eq(strstr(strstr(output, "step 9/9") + 1, "step 9/9"), NULL);
        assert_near("one", names[i], near[_i]);
    }
    shell("for file in model state; do for n in two:again2 three:again3; do "
          "cmp ${n%%:*}/step-00000009/$file.safetensors ${n#*:}/step-00000009/$file.safetensors "
          "|| exit; done; done");
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

TEST(each_process_has_a_batch_by_default)
{
    train_well("--data text $small --steps 1 --processes 3 --log-every 1");
    program_said(output, "3 processes on cpu, 1 thread");
    program_said(output, "1 step of 3 x 4 x 12 tokens");
    setenv("TMPDIR", folder, 1);
    train_well("--data text $small --steps 2 --processes 2 --dry-run --out never");
    shell("! ls | grep -e never -e gradus");
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
    stop_well(begin_three(), _i ? SIGTERM : SIGINT);
    program_said(text_of("log"), "stopped by a signal");
    ck_assert_ptr_eq(strstr(text_of("log"), "rank"), NULL);
    shell("! ls -A a | grep '^[.]'"); /* nothing is left of the meeting */
}

/* The other ranks have ended, because of one that was killed, before the starter looks: it sees all
 * of them at once, the killed one last. Children are started in the order of ranks. */
LOOP_TEST(the_killed_rank_is_named_first, 3)
{
    char words[64];
    const pid_t starter = begin_three();
    kill(starter, SIGSTOP);
    shell("kill -KILL $(pgrep -P %d | sort -n | sed -n %dp)", (int)starter, _i + 1);
    shell("for i in $(seq 1000); do test $(pgrep -P %d -r Z | wc -l) = 3 && exit; sleep 0.02; done",
          (int)starter);
    kill(starter, SIGCONT);
    ck_assert_int_eq(end_of(starter), 128 + 9);
    snprintf(words, sizeof words, "gradus-train: rank %d was ended by signal 9", _i);
    program_said(text_of("log"), words);
}

/* The ranks save and exit although their parent was killed. */
TEST(nobody_outlives_the_starter)
{
    const pid_t starter = begin_three();
    kill(starter, SIGKILL);
    end_of(starter);
    for (int i = 0; i < 500 && !strstr(text_of("log"), "stopped by a signal"); i++) nap(20);
    program_said(text_of("log"), "stopped by a signal");
    shell("flock -w 10 a true"); /* a is free */
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
    train_badly("--data text $small --steps 1 --gpus 2 --timeout 2", "no CUDA device");
    setenv("WORLD_SIZE", "2", 1);
    train_badly("--data text $small", "WORLD_SIZE is set, but RANK is not");
    setenv("RANK", "0", 1);
    train_badly("--data text $small --processes 2",
                "--processes starts processes, but this one was started as one of several");
    train_badly("--data text $small", "needs --out DIR, in which the 2 processes meet");
    train_badly("--data text $small --out a --timeout 0.5", "rank 1 has not come within 0.5 s");
    setenv("RANK", "5", 1);
    train_badly("--data text $small --out a", "group_create: rank is 5 of 2");
    setenv("WORLD_SIZE", "1", 1);
    setenv("RANK", "0", 1);
    train_well("--data text $small --steps 1");
}

/* ---- Ranks that others start ---------------------------------------------------------------- */

enum { RANKS = 3 };

static pid_t rank_pid[RANKS];

/* Starts all ranks, of which rank 1 has arguments and a folder of its own; rank r writes to out.r
 * and err.r. */
static void begin_ranks(const char *ours, const char *theirs, const char *where)
{
    char command[2048];
    for (int r = 0; r < RANKS; r++) {
        snprintf(command, sizeof command,
                 "exec >out.%d 2>err.%d; cd %s && RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d exec '%s' %s",
                 r, r, r == 1 ? where : ".", r, RANKS, r, (const char *)GRADUS_PROGRAM,
                 r == 1 ? theirs : ours);
        rank_pid[r] = fork();
        if (rank_pid[r]) continue;
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
}

static const char *said_by(int rank)
{
    char name[16];
    snprintf(name, sizeof name, "err.%d", rank);
    return text_of(name);
}

static const char long_run[] =
    "--data text $small --steps 1000000 --checkpoint-every 20 --keep 1000 --accumulate 3 "
    "--eval-every 0 --schedule constant --out a --timeout 60";

TEST_CASE("a rank that dies", set_up, leave_folder)

/* One that hangs is waited for as long as --timeout; test_group_faults.c has it. */
TEST(the_end_of_a_rank_ends_all)
{
    begin_ranks(long_run, long_run, ".");
    wait_for("a/step-00000040");
    kill(rank_pid[2], SIGKILL);
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(end_of(rank_pid[r]), 1);
        program_said(said_by(r), r ? "gradus-train: rank 1: " : "gradus-train: rank 0: ");
        program_said(said_by(r), ": rank 2 is gone\n");
        ck_assert_int_eq(count_lines(said_by(r)), 1);
    }
    end_of(rank_pid[2]);
    train_well("--resume auto --out a --steps 41 --processes 2 --timeout 20");
    ck_assert_ptr_eq(strstr(output, " is skipped: "), NULL); /* the newest checkpoint is complete */
}

TEST_CASE("a signal", set_up, leave_folder)

LOOP_TEST(a_signal_to_any_rank_saves_once, RANKS)
{
    begin_ranks(long_run, long_run, ".");
    wait_for("a/step-00000020");
    kill(rank_pid[_i], _i ? SIGTERM : SIGINT);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_msg(end_of(rank_pid[r]) == 0, "%s", said_by(r));
        ck_assert_str_eq(said_by(r), "");
    }
    program_said(text_of("out.0"), "stopped by a signal; --resume auto continues the run");
    shell("! cat out.1 out.2 | grep .");
    shell("test $(grep -c '^saved' out.0) -ge 2 && test $(ls -d a/step-* | wc -l) -le 3 && ! ls -A "
          "a | grep '^[.]'");
    /* The newest checkpoint is that of the last step. */
    train_well("--resume auto --out a --steps 1");
    program_said(output, " of 1 step; a larger --steps N continues it");
}

/* ---- What is not the same ------------------------------------------------------------------- */

#define TEXT "--data text $small --steps 9 --timeout 20 --out "
#define TOKENS(name) "--tokens " name " --val-data a.bin --vocab 90 $small --steps 9 --out a"

typedef struct otherwise {
    const char *ours, *theirs, *words; /* NULL: rank 1 has no text */
} otherwise;

static const otherwise others[] = {
    {TEXT "a", TEXT "a --lr 0.02", "--lr 0.02, on rank 0 --lr 0.01"},
    {TEXT "a", TEXT "./a", "--out ./a, on rank 0 --out a"},
    {TEXT "a", "--data other $small --steps 9 --out a", "the text is "},
    {TEXT "a", "--data missing $small --steps 9 --out a", NULL},
    {TEXT "a", "--data tail $small --steps 9 --out a", "the validation text is "},
    {TEXT "a --val-data text", TEXT "a --val-data same", "the validation text is "},
    {TOKENS("a.bin"), TOKENS("middle.bin"), "the token files are "},
};

TEST_CASE("other options and files", set_up, leave_folder)

/* The rank that differs says so, and the others that it has failed, or what differs. */
LOOP_TEST(another_configuration_is_named, sizeof others / sizeof *others)
{
    const otherwise *o = &others[_i];
    write_tokens("a.bin", 90, 700000);
    shell("cp text tail && printf x | dd of=tail bs=1 seek=7999 conv=notrunc 2>/dev/null");
    shell("cp a.bin middle.bin && printf Y | dd of=middle.bin bs=1 seek=1200000 conv=notrunc "
          "2>/dev/null; ! cmp -s a.bin middle.bin"); /* after the first mebibyte */
    begin_ranks(o->ours, o->theirs, ".");
    for (int r = 0; r < RANKS; r++) {
        const char *without = r == 1 ? "rank 1: " : "its text cannot be used";
        ck_assert_int_ne(end_of(rank_pid[r]), 0);
        program_said(said_by(r), o->words ? o->words : without);
    }
}

/* Commands that change the model of rank 1, which has the same name as that of the others. */
static const char *const other_models[] = {
    "sed -i 's/\"rms_norm_eps\": [^,]*/\"rms_norm_eps\": 0.001/' config.json",
    "sed -i 's/\"a\":/\"-\":/; s/\"b\":/\"a\":/; s/\"-\":/\"b\":/' tokenizer.json",
    "cp ../../../second/step-00000002/model.safetensors . && rm checksums.xxh3",
};

LOOP_TEST(other_models_are_noticed, sizeof other_models / sizeof *other_models)
{
    static const char start[] = "--data text $small --steps 4 --timeout 20 --init run --out a";
    train_well("--data text $small --steps 2 --out run");
    train_well("--data same $small --steps 2 --out second");
    shell("mkdir a b && ln -s ../a ../text b && cp -r run b && cd b/run/step-00000002 && %s",
          other_models[_i]);
    begin_ranks(start, start, "b");
    for (int r = 0; r < RANKS; r++) {
        ck_assert_msg(end_of(rank_pid[r]) == 1, "%s", said_by(r));
        program_said(said_by(r), "this process differs from rank 0: the model is ");
    }
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "several processes", NULL, NULL)
