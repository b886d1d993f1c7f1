/* test_ranks_started.c - ranks that others start: one that dies, hangs or has other options ends all,
 * and is named; a signal to any saves once; ranks of other runs do not disturb. */
/* Build: a test for each case, runs gradus-train, the CPU's bits. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */

#include "check_main.h"
#include "needs_jansson.h"
#include "started_ranks.h"

/* ---- The end of a rank ---------------------------------------------------------------------- */

#define LONG_RUN                                                        \
    "--data text %s --steps 1000000 --checkpoint-every 20 --keep 1000 " \
    "--accumulate 3 --eval-every 0 --schedule constant --out a --timeout "
static const char long_run[] = LONG_RUN "60";

/* With a shorter timeout, which a busy machine may exceed: then the next one. */
static const char *const silent_runs[] = {LONG_RUN "6", LONG_RUN "20", LONG_RUN "60"};
enum { SILENT_RUNS = sizeof silent_runs / sizeof *silent_runs };

/* Begins a run, and waits until it has made 40 steps. False: it ended before. */
static bool reach_step_40(ranks *all, const char *arguments)
{
    const struct timespec moment = {0, 2000000};
    *all = begin_ranks(arguments);
    while (!exists("a/step-00000040")) {
        siginfo_t end = {0};
        ck_assert_int_eq(waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT), 0);
        if (end.si_pid != 0) return false;
        nanosleep(&moment, NULL);
    }
    return true;
}

static void resumes_well(void)
{
    train_well("--resume auto --out a --steps 41 --processes 2 --timeout 20");
    ck_assert_ptr_eq(strstr(output, " is skipped: "), NULL); /* the newest checkpoint is complete */
}

/* A rank gets a signal after which the others can only end, and name it. */
static void strike(int culprit, int number)
{
    char words[64];
    ranks all;
    bool begun = false;
    for (int i = 0; !begun && i < SILENT_RUNS; i++) {
        begun = reach_step_40(&all, number == SIGSTOP ? silent_runs[i] : long_run);
        if (begun) break;
        for (int r = 0; r < RANKS; r++) end_of(&all, r);
        shell("rm -rf '%s/a'%s", folder, "");
    }
    ck_assert_msg(begun, "%s", text_of("err.0"));
    kill(all.pid[culprit], number);
    for (int r = 0; r < RANKS; r++) {
        if (r == culprit) continue;
        char name[16];
        ck_assert_int_eq(end_of(&all, r), 1);
        snprintf(name, sizeof name, "err.%d", r);
        snprintf(words, sizeof words, "gradus-train: rank %d: ", r);
        program_said(text_of(name), words);
        snprintf(words, sizeof words, ": rank %d is %s\n", culprit,
                 number == SIGKILL ? "gone" : "silent");
        program_said(text_of(name), words);
        ck_assert_int_eq(count_lines(text_of(name)), 1);
    }
    kill(all.pid[culprit], SIGKILL);
    end_of(&all, culprit);
    resumes_well();
}

TEST_CASE("ranks that others start", 0, set_up, tear_down)

LOOP_TEST(the_end_of_a_rank_ends_all, RANKS)
{
    strike(_i, SIGKILL);
}

TEST_CASE("a silent rank", 0, set_up, tear_down)

TEST(the_silence_of_a_rank_ends_all)
{
    strike(0, SIGSTOP);
}

TEST_CASE("a silent last rank", 0, set_up, tear_down)

TEST(the_silence_of_the_last_rank_ends_all)
{
    strike(RANKS - 1, SIGSTOP);
}

TEST_CASE("ranks that others start", 0, set_up, tear_down)

LOOP_TEST(a_signal_to_any_rank_saves_once, RANKS)
{
    ranks all = begin_ranks(long_run);
    wait_for("a/step-00000020");
    kill(all.pid[_i], SIGTERM);
    for (int r = 0; r < RANKS; r++) {
        char name[16];
        snprintf(name, sizeof name, "err.%d", r);
        ck_assert_msg(end_of(&all, r) == 0, "%s", text_of(name));
        ck_assert_str_eq(text_of(name), "");
    }
    program_said(text_of("out.0"), "stopped by a signal; --resume auto continues the run");
    ck_assert_str_eq(text_of("out.1"), "");
    ck_assert_str_eq(text_of("out.2"), "");
    ck_assert(!exists("a/.saving"));
    shell(
        "cd '%s' && test $(grep -c '^saved' out.0) -ge 2 && test $(ls -d a/step-* | wc -l) -le 3%s",
        folder, "");
    /* The newest checkpoint is that of the last step. */
    train_well("--resume auto --out a --steps 1");
    program_said(output, " of 1 steps; a larger --steps N continues it");
}

typedef struct otherwise {
    const char *arguments, *words;
} otherwise;

static const otherwise others[] = {
    {"--data text %s --steps 9 --lr 0.02", "--lr 0.02, on rank 0 --lr 0.01"},
    {"--data text %s --steps 9 --seed 7", "--seed 7, on rank 0 --seed 1"},
    {"--data text %s --steps 9 --out a", "--out a, on rank 0 --out (none)"},
    {"--data other %s --steps 9", "the text is "},
    {"--data missing %s --steps 9", "its text cannot be used"},
    {"--data text %s --steps 9 --dim 15", "--dim 15, on rank 0 --dim 16"},
};

LOOP_TEST(another_configuration_is_named, sizeof others / sizeof *others)
{
    const otherwise *o = &others[_i];
    ranks all = new_ranks();
    char arguments[300];
    snprintf(arguments, sizeof arguments, "%s --timeout 10", o->arguments);
    for (int r = 0; r < RANKS; r++)
        begin_rank(&all, r, r == 1 ? arguments : "--data text %s --steps 9 --timeout 10");
    for (int r = 0; r < RANKS; r++) {
        char name[16];
        ck_assert_int_ne(end_of(&all, r), 0);
        snprintf(name, sizeof name, "err.%d", r);
        program_said(text_of(name), r == 1 ? "rank 1: " : "rank 1 has failed: ");
        if (r != 1 || _i != 4) program_said(text_of(name), o->words);
    }
}

/* ---- Strangers ------------------------------------------------------------------------------ */

/* How often a rank's messages contain the words. */
static int times_said(const char *name, const char *words)
{
    int count = 0;
    for (const char *at = text_of(name); (at = strstr(at, words)); at++) count++;
    return count;
}

static const char short_run[] = "--data text %s --steps 3 --timeout 10";

TEST_CASE("strangers", 0, set_up, tear_down)

/* Without a secret the run starts, after one warning, of rank 0. */
TEST(an_open_group_is_warned_of)
{
    static const char *const variables[] = {"", "TORCHELASTIC_RUN_ID=none", "SLURM_JOB_ID=5",
                                            "TORCHELASTIC_RUN_ID=7"};
    for (int i = 0; i < 4; i++) {
        ranks all = new_ranks();
        all.environment = variables[i];
        for (int r = 0; r < RANKS; r++) begin_rank(&all, r, short_run);
        for (int r = 0; r < RANKS; r++) ck_assert_int_eq(end_of(&all, r), 0);
        program_said(text_of("err.0"), "gradus-train: rank 0: group_create: the group has ");
        program_said(text_of("err.0"), i < 3 ? "has neither an id nor a secret: any program"
                                             : "has an id but no secret: any program");
        ck_assert_int_eq(times_said("err.0", "group_create: "), 1);
        ck_assert_str_eq(text_of("err.1"), "");
        ck_assert_str_eq(text_of("err.2"), "");
        close(all.reserved);
    }
}

typedef struct variables {
    const char *ours, *theirs, *words;
} variables;

static const variables pairs[] = {
    {"GRADUS_GROUP_SECRET=a1b2", "GRADUS_GROUP_SECRET=a1b3", "has another secret"},
    {"GRADUS_GROUP_SECRET=a1b2", "", "has another secret"},
    {"TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_RUN_ID=y", "is of another run"},
    {"SLURM_JOB_ID=7 SLURM_STEP_ID=0", "SLURM_JOB_ID=7 SLURM_STEP_ID=1", "is of another run"},
    {"PMIX_NAMESPACE=a@1", "PMIX_NAMESPACE=a@2", "is of another run"},
    {"TORCHELASTIC_RUN_ID=x GRADUS_GROUP_SECRET=a1b2", "TORCHELASTIC_RUN_ID=x", "another secret"},
};

/* A rank of another run meets a run that waits for its last rank: it is told so, and the run goes
 * on. */
LOOP_TEST(ranks_of_other_runs_do_not_disturb, sizeof pairs / sizeof *pairs)
{
    const variables *v = &pairs[_i];
    ranks all = new_ranks(), other = all;
    all.environment = v->ours;
    other.environment = v->theirs;
    begin_rank(&all, 0, short_run);
    begin_rank(&all, 1, short_run);
    begin_rank(&other, 2, short_run);
    ck_assert_int_eq(end_of(&other, 2), 1);
    program_said(text_of("err.2"), "rank 2: group_create: rank 2 cannot join rank 0 at 127.0.0.1:");
    program_said(text_of("err.2"), v->words);
    begin_rank(&all, 2, short_run);
    for (int r = 0; r < RANKS; r++) ck_assert_int_eq(end_of(&all, r), 0);
    program_said(text_of("out.0"), "step 3/3");
    program_said(text_of("err.0"), "a connection from 127.0.0.1 is rejected: ");
    ck_assert_int_eq(times_said("err.0", "group_create: "), strstr(v->ours, "SECRET") ? 1 : 2);
    close(all.reserved);
}

CHECK_MAIN_UNLESS(program_missing("gradus-train") || jansson_missing(),
                  "several processes that others start", 0, NULL, NULL)
