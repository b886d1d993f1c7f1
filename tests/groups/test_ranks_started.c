/* test_ranks_started.c - ranks that others start, as torchrun does: one that dies, does not come,
 * or has other options or files ends all, and is named; a signal to any saves once. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */

#include "check_main.h"
#include "runs.h"

enum { RANKS = 3 };

static pid_t rank_pid[RANKS];

/* Starts a rank in `inside`; rank r writes to the files out.r and err.r. */
static void begin_rank(int rank, const char *inside, const char *arguments)
{
    char command[2048];
    snprintf(command, sizeof command,
             "exec >out.%d 2>err.%d; cd %s && RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d exec '%s' %s",
             rank, rank, inside, rank, RANKS, rank, (const char *)GRADUS_PROGRAM, arguments);
    rank_pid[rank] = fork();
    if (rank_pid[rank] == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
}

/* Rank 1 has arguments of its own. */
static void begin_ranks(const char *ours, const char *theirs)
{
    for (int r = 0; r < RANKS; r++) begin_rank(r, ".", r == 1 ? theirs : ours);
}

static int end_of_rank(int rank)
{
    return end_of(rank_pid[rank]);
}

static const char *said_by(int rank)
{
    char name[16];
    snprintf(name, sizeof name, "err.%d", rank);
    return text_of(name);
}

/* ---- The end of a rank ---------------------------------------------------------------------- */

static const char long_run[] =
    "--data text $small --steps 1000000 --checkpoint-every 20 --keep 1000 --accumulate 3 "
    "--eval-every 0 --schedule constant --out a --timeout 60";

TEST_CASE("a rank that dies", set_up, leave_folder)

LOOP_TEST(the_end_of_a_rank_ends_all, 2)
{
    const int culprit = 2 * _i;
    char words[64];
    begin_ranks(long_run, long_run);
    wait_for("a/step-00000040");
    kill(rank_pid[culprit], SIGKILL);
    for (int r = 0; r < RANKS; r++) {
        if (r == culprit) continue;
        ck_assert_int_eq(end_of_rank(r), 1);
        snprintf(words, sizeof words, "gradus-train: rank %d: ", r);
        program_said(said_by(r), words);
        snprintf(words, sizeof words, ": rank %d is gone\n", culprit);
        program_said(said_by(r), words);
        ck_assert_int_eq(count_lines(said_by(r)), 1);
    }
    end_of_rank(culprit);
    train_well("--resume auto --out a --steps 41 --processes 2 --timeout 20");
    ck_assert_ptr_eq(strstr(output, " is skipped: "), NULL); /* the newest checkpoint is complete */
}

/* One that hangs is waited for as long; tests/groups/test_group_faults.c has it. */
TEST(the_others_wait_for_the_timeout)
{
    for (int r = 0; r < RANKS; r += 2)
        begin_rank(r, ".", "--data text $small --accumulate 3 --out a --timeout 1");
    for (int r = 0; r < RANKS; r += 2) {
        ck_assert_int_eq(end_of_rank(r), 1);
        program_said(said_by(r), "group_create: rank 1 has not come within 1 s");
    }
}

TEST_CASE("a signal", set_up, leave_folder)

LOOP_TEST(a_signal_to_any_rank_saves_once, RANKS)
{
    begin_ranks(long_run, long_run);
    wait_for("a/step-00000020");
    kill(rank_pid[_i], _i ? SIGTERM : SIGINT);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_msg(end_of_rank(r) == 0, "%s", said_by(r));
        ck_assert_str_eq(said_by(r), "");
    }
    program_said(text_of("out.0"), "stopped by a signal; --resume auto continues the run");
    ck_assert_str_eq(text_of("out.1"), "");
    ck_assert_str_eq(text_of("out.2"), "");
    shell("test $(grep -c '^saved' out.0) -ge 2 && test $(ls -d a/step-* | wc -l) -le 3 && ! ls -A "
          "a | grep '^[.]'");
    /* The newest checkpoint is that of the last step. */
    train_well("--resume auto --out a --steps 1");
    program_said(output, " of 1 step; a larger --steps N continues it");
}

/* ---- What is not the same ------------------------------------------------------------------- */

/* A token file of uint16 ids below 90; `odd` is the place of one that is another, -1: none. */
static void write_shard(const char *name, int64_t count, int64_t odd)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    for (int64_t i = 0; i < count; i++) {
        const unsigned id = (unsigned)(i * 7919 % 89) + (i == odd);
        fputc((int)id, file);
        fputc(0, file);
    }
    fclose(file);
}

#define TOKENS(a, v) "--tokens " a " --val-data " v " --vocab 90 $small --steps 9 --out a"

typedef struct otherwise {
    const char *ours, *theirs, *words;
} otherwise;

static const otherwise others[] = {
    {"--data text $small --out a", "--data text $small --lr 0.02 --out a",
     "--lr 0.02, on rank 0 --lr 0.01"},
    {"--data text $small --out a", "--data text $small --seed 7 --out a",
     "--seed 7, on rank 0 --seed 1"},
    {"--data text $small --out a", "--data text $small --dim 15 --out a",
     "--dim 15, on rank 0 --dim 16"},
    {"--data text $small --out a", "--data text $small --out ./a", "--out ./a, on rank 0 --out a"},
    {"--data text $small --out a", "--data other $small --out a", "the text is "},
    {"--data text $small --out a", "--data missing $small --out a", NULL},
    {"--data text $small --val-data text --out a", "--data text $small --val-data same --out a",
     "the validation text is "},
    {"--data text $small --out a", "--data tail $small --out a", "the validation text is "},
    {TOKENS("a.bin", "v.bin"), TOKENS("middle.bin", "v.bin"), "the token files are "},
    {TOKENS("a.bin", "v.bin"), TOKENS("longer.bin", "v.bin"), "the token files are "},
    {TOKENS("a.bin", "v.bin"), TOKENS("a.bin", "w.bin"), "the validation text is "},
};

TEST_CASE("other options and files", set_up, leave_folder)

/* The rank that differs says so, and the others that it has failed, or what differs. */
LOOP_TEST(another_configuration_is_named, sizeof others / sizeof *others)
{
    const otherwise *o = &others[_i];
    char ours[300], theirs[300];
    write_shard("a.bin", 700000, -1);
    write_shard("middle.bin", 700000, 600001); /* after the first mebibyte */
    write_shard("longer.bin", 700001, -1);
    write_shard("v.bin", 600000, -1);
    write_shard("w.bin", 600000, 599999);
    shell("cp text tail && printf x | dd of=tail bs=1 seek=7999 conv=notrunc 2>/dev/null");
    snprintf(ours, sizeof ours, "%s --steps 9 --timeout 20", o->ours);
    snprintf(theirs, sizeof theirs, "%s --steps 9 --timeout 20", o->theirs);
    begin_ranks(ours, theirs);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_ne(end_of_rank(r), 0);
        if (o->words) program_said(said_by(r), o->words);
        if (!o->words) program_said(said_by(r), r == 1 ? "rank 1: " : "its text cannot be used");
    }
}

/* Also after the first mebibyte of the first file, which older checkpoints name alone. */
TEST(a_run_goes_on_with_its_token_files)
{
    write_shard("a.bin", 700000, -1);
    write_shard("b.bin", 700000, 600001);
    train_well("--tokens a.bin --val-data a.bin --vocab 90 $small --steps 2 --eval-every 0 "
               "--eval-batches 1 --out run");
    train_badly("--resume run --tokens b.bin --steps 3",
                "--tokens b.bin: the run in run/step-00000002 was trained on another text");
    train_well("--resume run --tokens a.bin --steps 3");
}

/* Commands that change the model of rank 1, which has the same name as that of the others. */
static const char *const other_models[] = {
    "sed -i 's/\"rms_norm_eps\": [^,]*/\"rms_norm_eps\": 0.001/' config.json",
    "sed -i 's/\"version\"/\"version\" /' tokenizer.json",
    "cp ../../../second/step-00000002/model.safetensors . && rm checksums.xxh3",
};

LOOP_TEST(other_models_are_noticed, sizeof other_models / sizeof *other_models)
{
    train_well("--data text $small --accumulate 3 --steps 2 --out run");
    train_well("--data same $small --accumulate 3 --steps 2 --out second");
    shell("mkdir a b all && ln -s ../all a/out && ln -s ../all b/out && cp -r run a && cp -r run b "
          "&& cd b/run/step-00000002 && %s",
          other_models[_i]);
    for (int r = 0; r < RANKS; r++)
        begin_rank(r, r == 1 ? "b" : "a",
                   "--data ../text $small --steps 4 --timeout 20 --init run --out out");
    for (int r = 0; r < RANKS; r++) {
        ck_assert_msg(end_of_rank(r) == 1, "%s", said_by(r));
        program_said(said_by(r), "this process differs from rank 0: the model is ");
    }
}

TEST(ranks_that_others_start_need_a_folder)
{
    begin_ranks("--data text $small --steps 2", "--data text $small --steps 2");
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(end_of_rank(r), 2);
        program_said(said_by(r), "needs --out DIR, in which the 3 processes meet");
    }
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "several processes that others start", NULL,
                  NULL)
