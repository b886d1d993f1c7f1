/* test_ranks.c - gradus-train as several processes: the same run as with one, for any number;
 * checkpoints that any number of processes can read; a rank that dies, hangs, or has other
 * options. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include <math.h>

#include "check_main.h"
#include "needs_jansson.h"
#include "port.h"
#include "runs.h"

/* ---- Losses --------------------------------------------------------------------------------- */

enum { STEPS_MOST = 64 };

/* A number of each line in a run's log, which has one for every step. */
static int read_log(const char *run, const char *name, double *number)
{
    char path[160], line[4096];
    int count = 0;
    snprintf(path, sizeof path, "%s/%s/log.jsonl", folder, run);
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
    char command[512];
    snprintf(command, sizeof command,
             "cd '%s' && cmp %s/model.safetensors %s/model.safetensors && "
             "cmp %s/state.safetensors %s/state.safetensors",
             folder, a, b, a, b);
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* ---- The same run --------------------------------------------------------------------------- */

/* Dropout's masks, the batches and validations are the same as with one process. */
START_TEST(any_number_of_processes_makes_the_same_run)
{
    static const char *const dtypes[] = {"", " --dtype f64", " --dtype bf16"};
    static const double near[] = {2e-5, 1e-9, 2e-2};
    char arguments[300];
    snprintf(arguments, sizeof arguments,
             "--data text %%s --log-every 1 --steps 9 --accumulate 5%s --out one", dtypes[_i]);
    train_well(arguments);
    for (int ranks = 2; ranks <= 4; ranks++) {
        for (int again = 0; again < 2; again++) {
            snprintf(arguments, sizeof arguments,
                     "--data text %%s --log-every 1 --steps 9 --accumulate 5%s --timeout 20 "
                     "--processes %d --out %s%d",
                     dtypes[_i], ranks, again ? "again" : "several", ranks);
            train_well(arguments);
            ck_assert_ptr_eq(strstr(strstr(output, "step 9/9") + 1, "step 9/9"), NULL);
            program_said(output, "steps of 5 x 4 x 12 tokens");
        }
        snprintf(arguments, sizeof arguments, "several%d", ranks);
        assert_near("one", arguments, near[_i]);
        char a[64], b[64];
        snprintf(a, sizeof a, "several%d/step-00000009", ranks);
        snprintf(b, sizeof b, "again%d/step-00000009", ranks);
        assert_same_files(a, b);
    }
}
END_TEST

/* Continues with 3 processes, then 1, 4 and 2. */
START_TEST(a_run_goes_on_with_another_number)
{
    static const char *const run =
        "--data text %s --log-every 1 --schedule constant --accumulate 4 "
        "--timeout 20 --checkpoint-every 0";
    char arguments[400];
    static const int ranks[] = {3, 0, 4, 2};
    snprintf(arguments, sizeof arguments, "%s --steps 12 --out one", run);
    train_well(arguments);
    for (int i = 0; i < 4; i++) {
        snprintf(arguments, sizeof arguments, "%s --resume auto --processes %d --steps %d --out b",
                 run, ranks[i], 3 * (i + 1));
        train_well(arguments);
    }
    assert_near("one", "b", 2e-5);
    train_badly("--resume auto --processes 5 --out b",
                "--accumulate is 4, but there are 5 processes");
    train_well("--resume b --processes 2 --batch 2 --accumulate 8 --steps 13 --timeout 20");
    program_said(output, "steps of 8 x 2 x 12 tokens");
}
END_TEST

/* Reports of several steps are read in one go before a validation and at the end. Each line has the
 * time of its own step all the same: none is a small part of the usual one, and the sum is the
 * whole. */
START_TEST(every_step_has_a_time_of_its_own)
{
    double ms[STEPS_MOST], seconds[STEPS_MOST];
    train_well("--data text %s --dim 64 --ffn 128 --log-every 1 --eval-every 10 --steps 40 "
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
END_TEST

/* Masters of 16-bit weights are read in slices too. */
START_TEST(sixteen_bits_go_on_with_another_number)
{
    train_well("--data text %s --dtype bf16 --log-every 1 --schedule constant --accumulate 2 "
               "--steps 8 --out one");
    train_well("--data text %s --dtype bf16 --log-every 1 --schedule constant --accumulate 2 "
               "--steps 4 --processes 2 --out b");
    train_well("--resume b --log-every 1 --steps 8");
    assert_near("one", "b", 2e-2);
    train_well("--data text --init one --dtype bf16 --processes 2 --context 12 --steps 1 --out c");
}
END_TEST

START_TEST(each_process_has_a_batch_by_default)
{
    train_well("--data text %s --steps 1 --processes 3 --log-every 1");
    program_said(output, "3 processes on cpu, 1 thread");
    program_said(output, "1 steps of 3 x 4 x 12 tokens");
    train_well("--data text %s --steps 2 --processes 1 --log-every 1");
    program_said(output, "2 steps of 1 x 4 x 12 tokens");
    train_well("--data text %s --steps 2 --processes 2 --dry-run");
}
END_TEST

/* ---- Ranks that others start ---------------------------------------------------------------- */

enum { RANKS = 3 };

typedef struct ranks {
    int port, reserved;
    const char *environment; /* NULL: an id of their own */
    const char *inside;      /* a folder within that of the test, or NULL */
    pid_t pid[RANKS];
} ranks;

static ranks new_ranks(void)
{
    ranks all = {0};
    all.reserved = port_reserve(&all.port);
    return all;
}

/* Starts a rank as torchrun does; rank r writes to the files out.r and err.r. */
static void begin_rank(ranks *all, int rank, const char *arguments)
{
    char line[1024], command[2048], id[64];
    snprintf(line, sizeof line, arguments, small);
    snprintf(id, sizeof id, "TORCHELASTIC_RUN_ID=test-%d-%d", (int)getpid(), all->port);
    snprintf(command, sizeof command,
             "cd '%s/%s' && RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d MASTER_ADDR=127.0.0.1 "
             "MASTER_PORT=%d %s exec '%s' %s >'%s/out.%d' 2>'%s/err.%d'",
             folder, all->inside ? all->inside : ".", rank, RANKS, rank, all->port,
             all->environment ? all->environment : id, (const char *)GRADUS_PROGRAM, line, folder,
             rank, folder, rank);
    all->pid[rank] = fork();
    if (all->pid[rank] == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
}

static ranks begin_ranks(const char *arguments)
{
    ranks all = new_ranks();
    for (int r = 0; r < RANKS; r++) begin_rank(&all, r, arguments);
    return all;
}

static int end_of(ranks *all, int rank)
{
    int status;
    ck_assert_int_eq(waitpid(all->pid[rank], &status, 0), all->pid[rank]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The text of a rank's file, such as "out.1". */
static const char *text_of(const char *name)
{
    static char text[1 << 16];
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

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

START_TEST(the_end_of_a_rank_ends_all)
{
    strike(_i, SIGKILL);
}
END_TEST

START_TEST(the_silence_of_a_rank_ends_all)
{
    strike(_i, SIGSTOP);
}
END_TEST

START_TEST(a_signal_to_any_rank_saves_once)
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
    train_well("--resume auto --out a --steps 1 --timeout 20");
    program_said(output, " of 1 steps; a larger --steps N continues it");
}
END_TEST

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

START_TEST(another_configuration_is_named)
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
END_TEST

/* ---- Other files ---------------------------------------------------------------------------- */

/* A token file of uint16 ids below 90; `odd` is the place of one that is another, -1: none. */
static void write_shard(const char *name, int64_t count, int64_t odd)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    for (int64_t i = 0; i < count; i++) {
        const unsigned id = (unsigned)(i * 7919 % 89) + (i == odd);
        fputc((int)id, file);
        fputc(0, file);
    }
    fclose(file);
}

typedef struct other_file {
    const char *prepare; /* a command, in the folder, before the ranks start */
    const char *ours, *theirs, *words;
} other_file;

/* `%%s` is the small model. Ranks 0 and 2 use the first, rank 1 the second. */
static const other_file other_files[] = {
    {"true", "--data text %s --val-data text", "--data text %s --val-data same",
     "the validation text is "},
    {"true", "--data text %s --val-data text", "--data text %s", "the validation text is "},
    {"cp text tail && printf x | dd of=tail bs=1 seek=7999 conv=notrunc 2>/dev/null",
     "--data text %s", "--data tail %s", "the text is "}, /* its last tenth is for validation */
    {"true", "--tokens a.bin --val-data v.bin --vocab 90 %s",
     "--tokens middle.bin --val-data v.bin --vocab 90 %s", "the token files are "},
    {"true", "--tokens a.bin --val-data v.bin --vocab 90 %s",
     "--tokens longer.bin --val-data v.bin --vocab 90 %s", "the token files are "},
    {"true", "--tokens a.bin --val-data v.bin --vocab 90 %s",
     "--tokens a.bin --val-data w.bin --vocab 90 %s", "the validation text is "},
    {"mkdir x y && cp a.bin v.bin x && cp a.bin y && cp w.bin y/v.bin",
     "--tokens 'x/*.bin' --val-data v.bin --vocab 90 %s",
     "--tokens 'y/*.bin' --val-data v.bin --vocab 90 %s", "the token files are "},
};

START_TEST(other_files_are_noticed)
{
    const other_file *f = &other_files[_i];
    write_shard("a.bin", 700000, -1);
    write_shard("middle.bin", 700000, 600001); /* after the first mebibyte */
    write_shard("longer.bin", 700001, -1);
    write_shard("v.bin", 600000, -1);
    write_shard("w.bin", 600000, 599999);
    shell("cd '%s' && %s", folder, f->prepare);
    ranks all = new_ranks();
    char arguments[300];
    for (int r = 0; r < RANKS; r++) {
        snprintf(arguments, sizeof arguments, "%s --steps 2 --timeout 20",
                 r == 1 ? f->theirs : f->ours);
        begin_rank(&all, r, arguments);
    }
    for (int r = 0; r < RANKS; r++) {
        char name[16];
        ck_assert_int_eq(end_of(&all, r), 1);
        snprintf(name, sizeof name, "err.%d", r);
        program_said(text_of(name), "this process differs from rank 0: ");
        program_said(text_of(name), f->words);
    }
    close(all.reserved);
}
END_TEST

/* Also after the first mebibyte of the first file, which older checkpoints name alone. */
START_TEST(a_run_goes_on_with_its_token_files)
{
    write_shard("a.bin", 700000, -1);
    write_shard("b.bin", 700000, 600001);
    train_well("--tokens a.bin --val-data a.bin --vocab 90 %s --steps 2 --eval-every 0 "
               "--eval-batches 1 --out run");
    train_badly("--resume run --tokens b.bin --steps 3",
                "--tokens b.bin: the run in run/step-00000002 was trained on another text");
    train_well("--resume run --tokens a.bin --steps 3");
}
END_TEST

typedef struct other_model {
    const char *change; /* of the model of rank 1, a command */
    const char *option;
} other_model;

static const other_model other_models[] = {
    {"sed -i 's/\"rms_norm_eps\": [^,]*/\"rms_norm_eps\": 0.001/' config.json", "--init"},
    {"sed -i 's/\"version\"/\"version\" /' tokenizer.json", "--init"},
    {"cp ../../../second/step-00000002/model.safetensors . && rm checksums.xxh3", "--init"},
    {"cp ../../../second/step-00000002/*.safetensors . && rm checksums.xxh3", "--resume"},
};

/* Every rank has a model under the same name; that of rank 1 is another. */
START_TEST(other_models_are_noticed)
{
    const other_model *m = &other_models[_i];
    char arguments[300];
    train_well("--data text %s --accumulate 3 --steps 2 --out run");
    train_well("--data same %s --accumulate 3 --steps 2 --out second");
    shell("cd '%s' && mkdir a b && cp -r run a && cp -r run b && cd b/run/step-00000002 && "
          "cp config.json before && cp tokenizer.json then && %s",
          folder, m->change);
    ranks all = new_ranks();
    snprintf(arguments, sizeof arguments, "--data ../text %%s --steps 4 --timeout 20 %s run",
             m->option);
    for (int r = 0; r < RANKS; r++) {
        all.inside = r == 1 ? "b" : "a";
        begin_rank(&all, r, arguments);
    }
    for (int r = 0; r < RANKS; r++) {
        char name[16];
        snprintf(name, sizeof name, "err.%d", r);
        ck_assert_msg(end_of(&all, r) == 1, "%s", text_of(name));
        program_said(text_of(name), "this process differs from rank 0: the model is ");
    }
    close(all.reserved);
}
END_TEST

/* ---- Strangers ------------------------------------------------------------------------------ */

/* How often a rank's messages contain the words. */
static int times_said(const char *name, const char *words)
{
    int count = 0;
    for (const char *at = text_of(name); (at = strstr(at, words)); at++) count++;
    return count;
}

static const char short_run[] = "--data text %s --steps 3 --timeout 10";

/* Without an id or a secret the run starts, after one warning, of rank 0. */
START_TEST(an_open_group_is_warned_of)
{
    static const char *const variables[] = {"", "TORCHELASTIC_RUN_ID=none", "SLURM_JOB_ID=5"};
    for (int i = 0; i < 3; i++) {
        ranks all = new_ranks();
        all.environment = variables[i];
        for (int r = 0; r < RANKS; r++) begin_rank(&all, r, short_run);
        for (int r = 0; r < RANKS; r++) ck_assert_int_eq(end_of(&all, r), 0);
        program_said(
            text_of("err.0"),
            "gradus-train: rank 0: group_create: the group has neither an id nor a secret");
        ck_assert_int_eq(times_said("err.0", "group_create: "), 1);
        ck_assert_str_eq(text_of("err.1"), "");
        ck_assert_str_eq(text_of("err.2"), "");
        close(all.reserved);
    }
}
END_TEST

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
START_TEST(ranks_of_other_runs_do_not_disturb)
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
    program_said(text_of("err.0"), "a connection from 127.0.0.1 is turned away: ");
    ck_assert_int_eq(times_said("err.0", "group_create: "), 1);
    close(all.reserved);
}
END_TEST

/* ---- Ranks that gradus-train starts --------------------------------------------------------- */

/* Each rank reports it once, and all but rank 0 say that it was rank 0. */
START_TEST(a_disk_that_is_full)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cd '%s' && ulimit -f 8 && '%s' --data text %s --steps 2 --processes 2 --timeout 20 "
             "--out a >log 2>&1; test $? = 1",
             folder, (const char *)GRADUS_PROGRAM, small);
    ck_assert_int_eq(system(command), 0);
    shell("grep -q '^gradus-train: rank 0: safetensors_write: a/.saving/model' '%s/log'%s", folder,
          "");
    shell("grep -q '^gradus-train: rank 1: rank 0: safetensors_write: a/.saving/' '%s/log'%s",
          folder, "");
    shell("! grep -q 'rank 0: rank 0' '%s/log'%s", folder, "");
    ck_assert(!exists("a/step-00000002") && !exists("a/.saving"));
}
END_TEST

START_TEST(the_starter_passes_signals_on)
{
    const pid_t starter =
        begin("--data text %s --steps 1000000 --checkpoint-every 20 --keep 1000 --processes 3 "
              "--eval-every 0 --timeout 20 --out a",
              0);
    int status;
    wait_for("a/step-00000020");
    kill(starter, _i ? SIGTERM : SIGINT);
    ck_assert_int_eq(waitpid(starter, &status, 0), starter);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", text_of("log"));
    program_said(text_of("log"), "stopped by a signal");
    ck_assert_ptr_eq(strstr(text_of("log"), "rank"), NULL);
}
END_TEST

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
START_TEST(the_killed_rank_is_named_first)
{
    struct timespec moment = {0, 20000000};
    char command[64];
    int status;
    const pid_t starter =
        begin("--data text %s --steps 1000000 --checkpoint-every 20 --keep 1000 --processes 3 "
              "--eval-every 0 --timeout 20 --out a",
              0);
    wait_for("a/step-00000020");
    const pid_t culprit = child_of(starter, _i);
    kill(starter, SIGSTOP);
    kill(culprit, SIGKILL);
    snprintf(command, sizeof command, "test $(pgrep -P %d -r Z | wc -l) = 3", (int)starter);
    for (int i = 0; i < 1000 && system(command) != 0; i++) nanosleep(&moment, NULL);
    kill(starter, SIGCONT);
    ck_assert_int_eq(waitpid(starter, &status, 0), starter);
    snprintf(command, sizeof command, "gradus-train: rank %d was ended by signal 9", _i);
    program_said(text_of("log"), command);
    ck_assert_int_eq(WEXITSTATUS(status), 128 + 9);
}
END_TEST

/* The ranks save and exit although their parent was killed. */
START_TEST(nobody_outlives_the_starter)
{
    const pid_t starter =
        begin("--data text %s --steps 1000000 --checkpoint-every 20 --keep 1000 --processes 3 "
              "--eval-every 0 --timeout 20 --out a",
              0);
    wait_for("a/step-00000020");
    kill(starter, SIGKILL);
    waitpid(starter, NULL, 0);
    struct timespec moment = {0, 20000000};
    for (int i = 0; i < 500 && !strstr(text_of("log"), "stopped by a signal"); i++)
        nanosleep(&moment, NULL);
    program_said(text_of("log"), "stopped by a signal");
    shell(
        "cd '%s' && for i in $(seq 200); do flock -n a true && exit 0; sleep 0.05; done; exit 1%s",
        folder, ""); /* the lock of the run is free: rank 0 has ended */
}
END_TEST

START_TEST(what_makes_no_sense_is_refused)
{
    train_badly("--data text %s --processes 2 --gpus 2",
                "--gpus and --processes cannot be used together");
    train_badly("--data text %s --gpus 2 --device cpu", "--processes is for the CPU");
    train_badly("--data text %s --processes 2 --device cuda", "--gpus N takes a GPU for each");
    train_badly("--data text %s --processes 4 --accumulate 3",
                "--accumulate is 3, but there are 4 processes: a step needs at least one batch");
    train_badly("--data text %s --processes 1025", "--processes");
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", "0", 1);
    train_badly("--data text %s --processes 2",
                "--processes starts processes, but this one was started as one of several");
    setenv("RANK", "5", 1);
    train_badly("--data text %s", "group_create: rank is 5 of 2");
    setenv("RANK", "zero", 1);
    train_badly("--data text %s", "RANK is \"zero\", wanted a whole number");
    unsetenv("RANK");
    train_badly("--data text %s", "WORLD_SIZE is set, but RANK is not");
    setenv("WORLD_SIZE", "1", 1);
    setenv("RANK", "0", 1);
    train_well("--data text %s --steps 1");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    train_badly("--data text %s --steps 1 --gpus 2 --timeout 2", "no CUDA device");
}
END_TEST

int main(void)
{
    if (program_missing("gradus-train") || jansson_missing()) return PROGRAM_SKIPPED;
    Suite *suite = suite_create("several processes");
    TCase *same = tcase_create("the same run");
    tcase_add_checked_fixture(same, set_up, tear_down);
    tcase_add_loop_test(same, any_number_of_processes_makes_the_same_run, 0, 3);
    tcase_add_test(same, a_run_goes_on_with_another_number);
    tcase_add_test(same, every_step_has_a_time_of_its_own);
    tcase_add_test(same, sixteen_bits_go_on_with_another_number);
    tcase_add_test(same, each_process_has_a_batch_by_default);
    TCase *started = tcase_create("ranks that others start");
    tcase_add_checked_fixture(started, set_up, tear_down);
    tcase_add_loop_test(started, the_end_of_a_rank_ends_all, 0, RANKS);
    tcase_add_loop_test(started, a_signal_to_any_rank_saves_once, 0, RANKS);
    tcase_add_loop_test(started, another_configuration_is_named, 0, sizeof others / sizeof *others);
    TCase *files = tcase_create("other files");
    tcase_add_checked_fixture(files, set_up, tear_down);
    tcase_add_loop_test(files, other_files_are_noticed, 0,
                        sizeof other_files / sizeof *other_files);
    tcase_add_loop_test(files, other_models_are_noticed, 0,
                        sizeof other_models / sizeof *other_models);
    tcase_add_test(files, a_run_goes_on_with_its_token_files);
    TCase *silence = tcase_create("a silent rank");
    tcase_add_checked_fixture(silence, set_up, tear_down);
    tcase_add_loop_test(silence, the_silence_of_a_rank_ends_all, 0, 1);
    TCase *last = tcase_create("a silent last rank");
    tcase_add_checked_fixture(last, set_up, tear_down);
    tcase_add_loop_test(last, the_silence_of_a_rank_ends_all, RANKS - 1, RANKS);
    TCase *strangers = tcase_create("strangers");
    tcase_add_checked_fixture(strangers, set_up, tear_down);
    tcase_add_test(strangers, an_open_group_is_warned_of);
    tcase_add_loop_test(strangers, ranks_of_other_runs_do_not_disturb, 0,
                        sizeof pairs / sizeof *pairs);
    TCase *starter = tcase_create("ranks that it starts");
    tcase_add_checked_fixture(starter, set_up, tear_down);
    tcase_add_test(starter, a_disk_that_is_full);
    tcase_add_loop_test(starter, the_starter_passes_signals_on, 0, 2);
    tcase_add_loop_test(starter, the_killed_rank_is_named_first, 0, 3);
    tcase_add_test(starter, nobody_outlives_the_starter);
    tcase_add_test(starter, what_makes_no_sense_is_refused);
    suite_add_tcase(suite, same);
    suite_add_tcase(suite, started);
    suite_add_tcase(suite, files);
    suite_add_tcase(suite, silence);
    suite_add_tcase(suite, last);
    suite_add_tcase(suite, strangers);
    suite_add_tcase(suite, starter);
    return check_main(suite);
}
