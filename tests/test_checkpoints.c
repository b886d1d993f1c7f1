/* test_checkpoints.c - gradus-train saved, stopped, killed and resumed: the same bits as without a
 * break, and never half a checkpoint. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "gradus/gradus.h"
#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char folder[] = "/tmp/gradus_checkpoints_XXXXXX";
static char output[PROGRAM_OUTPUT];

/* ---- Running it --------------------------------------------------------------------------- */

static void write_text(const char *name, const char *alphabet)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    uint32_t state = 1;
    for (int i = 0; i < 8000; i++) {
        state = state * 1664525u + 1013904223u;
        fputc(alphabet[(state >> 16) % strlen(alphabet)], file);
    }
    fclose(file);
}

static void set_up(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_text("text", "abcde \n");
    write_text("other", "abcdf \n");
    write_text("same", "edcba \n");
}

static void shell(const char *format, const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static void tear_down(void)
{
    shell("rm -r '%s'%s", folder, "");
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
}

static const char small[] = "--layers 2 --dim 16 --heads 4 --kv-heads 2 --ffn 24 --context 12 "
                            "--batch 4 --warmup 4 --lr 0.01 --dropout 0.1 --eval-every 7 "
                            "--log-every 1000 --sample-length 0 --threads 1";

/* Runs gradus-train in the folder; %s of `arguments` is the small model. */
static int train(const char *arguments)
{
    char line[1024], all[1024];
    snprintf(all, sizeof all, arguments, small);
    snprintf(line, sizeof line, "%s", all);
    ck_assert_int_eq(chdir(folder), 0);
    int status = program_run(line, output);
    ck_assert_int_eq(chdir("/"), 0);
    return status;
}

static void train_well(const char *arguments)
{
    int status = train(arguments);
    ck_assert_msg(status == 0, "%s: exit status %d\n%s", arguments, status, output);
}

static void train_badly(const char *arguments, const char *wanted)
{
    int status = train(arguments);
    ck_assert_msg(status == 1 || status == 2, "%s: exit status %d\n%s", arguments, status, output);
    program_said(output, wanted);
}

static bool exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Every file of both is the same, byte by byte. */
static void assert_same(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, "cd '%s' && diff -r %s %s", folder, a, b);
    ck_assert_msg(system(command) == 0, "%s and %s differ", a, b);
}

static void assert_same_weights(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, "cd '%s' && cmp %s/model.safetensors %s/model.safetensors",
             folder, a, b);
    ck_assert_msg(system(command) == 0, "%s and %s differ", a, b);
}

/* ---- Resuming ----------------------------------------------------------------------------- */

START_TEST(a_resumed_run_has_the_same_bits)
{
    static const char *const kinds[] = {"", "--dtype f64 --tied", "--recompute --clip 0"};
    char line[256];
    snprintf(line, sizeof line,
             "--data text %%s %s --steps 24 --checkpoint-every 8 --keep 0 --out a", kinds[_i]);
    train_well(line);
    ck_assert(exists("a/step-00000008") && exists("a/step-00000016") && exists("a/step-00000024"));
    train_well("--resume a/step-00000008 --out b");
    program_said(output, "from   a/step-00000008");
    assert_same("a/step-00000016", "b/step-00000016");
    assert_same("a/step-00000024", "b/step-00000024");
    train_well("--resume auto --out b"); /* nothing is left to do */
    program_said(output,
                 "from   b/step-00000024\n       which has done 24 steps: none of 24 is left");
    ck_assert_ptr_null(strstr(output, "\nstep "));
    train_well("--data text %s --steps 3 --resume auto --out new"); /* there is none yet */
    ck_assert(exists("new/step-00000003"));
}
END_TEST

/* What was measured, without the time it took. */
static void assert_same_log(const char *a, const char *b)
{
    shell("cd '%s' && for run in %s; do grep -v '\"program\"' $run/log.jsonl |"
          " sed 's/, \"ms\".*//' >$run/measured; done",
          folder, a);
    shell("cd '%s' && cmp %s", folder, b);
}

START_TEST(a_resumed_run_has_the_same_log)
{
    train_well("--data text %s --steps 24 --log-every 1 --out a");
    train_well("--data text %s --steps 24 --log-every 1 --out b --checkpoint-every 8 --keep 0");
    train_well("--resume b/step-00000008 --out b --steps 24"); /* steps 9 to 24 once more */
    assert_same_log("a b", "a/measured b/measured");
    shell("cd '%s' && printf '{\"step\": 25, \"loss\": 1.' >>b/log.jsonl%s", folder, "");
    train_well("--resume auto --out b");
    shell("test $(grep -c . '%s/b/log.jsonl'%s) = 27", folder, ""); /* 24 steps, 3 beginnings */
    shell("cd '%s' && cp text b/log.jsonl%s", folder, "");
    train_badly("--resume auto --out b", "b/log.jsonl is left as it is: it is not a log of");
    shell("cd '%s' && cmp text b/log.jsonl%s", folder, "");
}
END_TEST

START_TEST(options_given_anew_come_before_those_of_the_checkpoint)
{
    train_well("--data text %s --steps 4 --out a");
    train_well("--resume a/step-00000004 --out a --steps 6 --lr 0.003 --min-lr 0.001");
    program_said(output, "6 steps of 1 x 4 x 12 tokens, lr 0.003 to 0.001");
    program_said(output, "2 layers, dim 16, 4 heads, 2 kv heads, ffn 24, context 12, dropout 0.1");
    train_badly("--resume a/step-00000006 --layers 3",
                "--layers is 3, but the model in a/step-00000006 has 2\n");
    train_badly("--resume a/step-00000006 --tied",
                "--tied is true, but the model in a/step-00000006 has false");
    train_badly("--resume a/step-00000006 --data other",
                "which is none of the characters that the model knows");
    train_badly("--resume a/step-00000006 --data same", "was trained on another text; --init");
}
END_TEST

/* Where it holds a run, the newest whole checkpoint is meant; what goes on from there, goes on there. */
START_TEST(the_folder_of_a_run_means_its_newest_checkpoint)
{
    train_well("--data text %s --schedule constant --steps 8 --checkpoint-every 4 --out a");
    train_well("--resume a/ --steps 12 --checkpoint-every 0");
    program_said(output, "from   a/step-00000008\n");
    program_said(output, "saved a/step-00000012\n");
    train_well("--data text %s --schedule constant --steps 12 --out b");
    assert_same_weights("a/step-00000012", "b/step-00000012");
    train_well("--data same --init a --steps 1 --context 8 --out c");
    program_said(output, "from   a/step-00000012\n");
    train_well("--resume a/step-00000012 --steps 13"); /* of one checkpoint, as ever, only --out */
    ck_assert(!exists("a/step-00000013"));
    shell("rm '%s/a/step-00000012/state.safetensors'%s", folder, "");
    train_well("--data same --init a --steps 1 --context 8 --out d");
    program_said(output, "from   a/step-00000012\n"); /* its weights are whole */
    train_badly("--resume a/step-00000012", "has no state.safetensors, without which no run");
    train_well("--resume a --dry-run");
    program_said(output, "a/step-00000012 is passed over: safetensors_open: ");
    program_said(output, "from   a/step-00000008\n");
    shell("rm '%s'/a/*/config.json%s", folder, "");
    train_badly("--resume a", "--resume a: it holds neither a model (config.json) nor a whole");
}
END_TEST

START_TEST(runs_do_not_mix)
{
    train_well("--data text %s --steps 8 --checkpoint-every 4 --out a");
    train_badly("--data text %s --steps 2 --out a",
                "--out a: it holds the checkpoints of a run, up to step 8; --resume auto goes on");
    train_badly("--data text --init a --steps 2 --out a", "--out a: it holds the checkpoints of");
    ck_assert(exists("a/step-00000004") && exists("a/step-00000008"));
    train_well("--data text %s --steps 8 --out a --dry-run");
    train_well("--data text %s --steps 8 --out b --dry-run");
    train_well("--data text %s --steps 1 --out c/d/e"); /* made with all that it is in */
    ck_assert(exists("c/d/e/step-00000001"));
    ck_assert(!exists("b"));
    /* One that goes back keeps what it saves, not only what is newer. */
    train_well("--resume a/step-00000004 --out a --steps 5 --keep 1");
    ck_assert(exists("a/step-00000005"));
}
END_TEST

START_TEST(weights_begin_a_new_run)
{
    train_well("--data text %s --steps 8 --out a");
    train_well("--data same --init a/step-00000008 --steps 2 --context 8 --eval-every 0 --out b "
               "--sample-length 20");
    program_said(output, "2 layers, dim 16, 4 heads, 2 kv heads, ffn 24, context 8, dropout 0");
    program_said(output, "step 2/2");
    /* The pieces are those that the weights know, whatever the text. */
    train_well("--data text --vocab 280 %s --steps 3 --out pieces");
    train_well("--data other --init pieces/step-00000003 --steps 1 --context 8 --out c");
    train_badly("--data other --init pieces/step-00000003 --vocab 300",
                "--vocab and --init: a text");
    train_badly("--resume pieces/step-00000003 --vocab 300",
                "--vocab is 300, but the model in pieces/step-00000003 has 280");
    shell("cd '%s' && cmp pieces/step-00000003/tokenizer.json c/step-00000001/tokenizer.json%s",
          folder, "");
    shell("cd '%s' && sed -i 's/\"Isolated\"/\"Removed\"/' pieces/step-00000003/tokenizer.json%s",
          folder, "");
    train_badly("--data other --init pieces/step-00000003", "is not a tokenizer of this program");
    train_badly("--data text --init no/such", "--init no/such: No such file or directory");
    train_badly("--data text --init text", "--init text: Not a directory");
    train_badly("--data text --init .", "--init .: it holds neither a model (config.json) nor");
}
END_TEST

/* A model of others (tests/llama), of more tokens than the text has. */
START_TEST(the_weights_of_others_can_be_trained_on)
{
    static const char *const models[] = {"grouped", "tied", "bfloat16", "sharded"};
    char line[512];
    snprintf(line, sizeof line,
             "--data text --init %s/llama/%s --steps 30 --lr 0.01 --warmup 2 --context 12 "
             "--log-every 1 --eval-every 0 --sample-length 8 --out b",
             GRADUS_TEST_DIR, models[_i]);
    train_well(line);
    double first = strtod(strstr(output, "| loss ") + 7, NULL);
    double last = strtod(strstr(output, "step 30/30 | loss ") + 18, NULL);
    ck_assert_double_lt(last, 0.7 * first);
    train_well("--resume auto --out b --steps 31"); /* eps and theta are in the folder */
    ck_assert_double_lt(strtod(strstr(output, "step 31/31 | loss ") + 18, NULL), 0.8 * first);
}
END_TEST

static void read_into_output(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    output[fread(output, 1, sizeof output - 1, file)] = '\0';
    fclose(file);
}

/* A line break is written as U+010A and a space as U+0120, as in GPT-2's vocabulary. */
START_TEST(the_tokenizer_lies_beside_the_model)
{
    train_well("--data text %s --steps 1 --out a");
    read_into_output("a/step-00000001/tokenizer.json");
    program_said(output, "\"vocab\": {\n      \"\xc4\x8a\": 0,\n      \"\xc4\xa0\": 1,\n"
                         "      \"a\": 2,\n      \"b\": 3,\n      \"c\": 4,\n      \"d\": 5,\n"
                         "      \"e\": 6\n    },\n    \"merges\": []\n");
    train_well("--data text --vocab 300 %s --steps 1 --out b");
    read_into_output("b/step-00000001/tokenizer.json");
    program_said(output, "\"Regex\": \" ?[^\\\\x00-@");
    program_said(output, "      \"\xc4\x80\": 0,\n"); /* byte 0 is U+0100 */
    program_said(output, "      \"\\\"\": 34,\n");
    program_said(output, "      \"\xc3\xbf\": 255,\n");
    program_said(output, "\"merges\": [\n      [\"");
    ck_assert_int_eq(count_lines(strstr(output, "\"merges\"")), 300 - 256 + 3);
}
END_TEST

START_TEST(some_are_kept)
{
    train_well("--data text %s --steps 20 --checkpoint-every 2 --keep 3 --keep-every 6 --out a");
    for (int step = 1; step <= 20; step++) {
        char name[32];
        snprintf(name, sizeof name, "a/step-%08d", step);
        bool kept = step % 2 == 0 && (step > 14 || step % 6 == 0);
        ck_assert_msg(exists(name) == kept, "%s is %s", name, kept ? "gone" : "there");
    }
    ck_assert(!exists("a/.saving") && !exists("a/.removing"));
}
END_TEST

/* ---- Stopping ----------------------------------------------------------------------------- */

/* Starts the program in the folder with its output in a file, `nap` milliseconds ago. */
static pid_t begin(const char *arguments, int nap)
{
    char line[1024], command[2048];
    snprintf(line, sizeof line, arguments, small);
    snprintf(command, sizeof command, "cd '%s' && exec '%s' %s >log 2>&1", folder,
             (const char *)GRADUS_PROGRAM, line);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_gt(child, 0);
    struct timespec time = {nap / 1000, nap % 1000 * 1000000L};
    nanosleep(&time, NULL);
    return child;
}

/* Waits until the file is there. */
static void wait_for(const char *name)
{
    struct timespec moment = {0, 2000000};
    for (int i = 0; i < 20000 && !exists(name); i++) nanosleep(&moment, NULL);
    ck_assert_msg(exists(name), "%s does not appear", name);
}

START_TEST(signals_save_and_leave)
{
    int status, number = _i ? SIGTERM : SIGINT;
    pid_t child = begin("--data text %s --steps 1000000 --checkpoint-every 5 --out a", 0);
    wait_for("a/step-00000005");
    kill(child, number);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
    train_well("--resume auto --out a --max-seconds 0.01"); /* what it saved is whole */
    program_said(output, "from   a/step-");
}
END_TEST

/* SIGKILL at any moment, saving or not; whatever it leaves, the run comes to the same end. */
START_TEST(killed_again_and_again)
{
    train_well("--data text %s --steps 60 --checkpoint-every 60 --out whole");
    int status, killed = 0;
    for (int i = 0; i < 200; i++) {
        pid_t child = begin("--data text %s --steps 60 --checkpoint-every 1 --resume auto --out a",
                            8 + i * 7 % 23 + i / 8);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        killed += WIFSIGNALED(status);
        if (WIFEXITED(status)) break;
        if (i > 6 && exists("a/step-00000060")) break;
    }
    train_well("--data text %s --steps 60 --checkpoint-every 1 --resume auto --out a");
    printf("killed %d times before the end\n", killed);
    ck_assert_int_gt(killed, 0);
    shell("cmp '%s'/whole/step-00000060/model.safetensors %s/a/step-00000060/model.safetensors",
          folder, folder);
    ck_assert_ptr_null(strstr(output, " is passed over: "));
}
END_TEST

/* ---- What goes wrong on the disk ---------------------------------------------------------- */

START_TEST(a_broken_checkpoint_is_passed_over)
{
    train_well("--data text %s --steps 12 --checkpoint-every 4 --keep 0 --out a");
    shell(
        "cd '%s/a/step-00000012' && head -c 1000 state.safetensors >x && mv x state.safetensors%s",
        folder, "");
    shell("rm '%s/a/step-00000008/config.json'%s", folder, "");
    train_well("--resume auto --out a");
    program_said(output, "a/step-00000012 is passed over: safetensors_open: ");
    program_said(output, "a/step-00000008 is passed over: there is no config.json");
    program_said(output, "from   a/step-00000004");
    ck_assert(exists("a/step-00000012/tokenizer.json"));
    train_well("--resume a/step-00000012 --out b"); /* the broken one was replaced */
}
END_TEST

START_TEST(hostile_checkpoints_are_named)
{
    static const struct {
        const char *file, *text, *wanted;
    } rows[] = {
        {"config.json", "{", "config.json in copy/step-00000002 is no JSON object"},
        {"config.json", "[]", "config.json in copy/step-00000002 is no JSON object"},
        {"config.json", "{\"a\":1,\"a\":2}", "is no JSON object: duplicate object key"},
        {"config.json", "{}", "model_type is not \"llama\""},
        {"config.json", "{\"model_type\":\"llama\"}", "num_attention_heads is not a whole number"},
        {"config.json", "{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "hidden_act is not"},
        {"config.json", "{\"model_type\":\"llama\",\"mlp_bias\":true}", "mlp_bias is not false"},
        {"model.safetensors", "", "not even 8 bytes"},
        {"model.safetensors.index.json", "{}", "has no weight_map"},
        {"model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../b\"}}", "no name of a file"},
        {"model.safetensors.index.json", "{\"weight_map\":{\"a\":\"b\"}}",
         "does not know \"model.embed_tokens.weight\""},
    };
    train_well("--data text %s --steps 2 --out a");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[256];
        shell("cd '%s' && rm -rf copy && cp -r a copy%s", folder, "");
        snprintf(path, sizeof path, "%s/copy/step-00000002/%s", folder, rows[i].file);
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs(rows[i].text, file);
        fclose(file);
        train_badly("--resume copy/step-00000002", rows[i].wanted);
        shell("cd '%s' && rm copy/step-00000002/%s", folder, rows[i].file);
        shell("cd '%s' && mkfifo copy/step-00000002/%s", folder, rows[i].file);
        train_badly("--resume copy/step-00000002", i == 7 ? "not a regular file" : "cannot read");
    }
}
END_TEST

START_TEST(a_disk_that_is_full)
{
    train_well("--data text %s --steps 3 --out a");
    /* ulimit -f: no file may have more than that many blocks of 512 bytes */
    train_well("--version");
    char command[1024], line[512];
    snprintf(line, sizeof line,
             "--data text %s --steps 9 --checkpoint-every 3 --out a --resume auto", small);
    snprintf(command, sizeof command,
             "cd '%s' && trap '' XFSZ && ulimit -f 20 && '%s' %s >log 2>&1; test $? = 1", folder,
             (const char *)GRADUS_PROGRAM, line);
    ck_assert_int_eq(system(command), 0);
    shell("grep -q 'cannot write to it: File too large; training goes on' '%s/log'%s", folder, "");
    ck_assert(exists("a/step-00000003") && !exists("a/step-00000006") && !exists("a/.saving"));
    train_well("--resume auto --out a --steps 6");
    program_said(output, "from   a/step-00000003");
    train_badly("--data text %s --steps 1 --out text/such/folder",
                "cannot make the folder text/such/folder: Not a dir");
    train_badly("--data text %s --steps 1 --out text", "cannot make the folder text: Not a dir");
}
END_TEST

START_TEST(a_disk_that_is_full_ends_a_run_where_asked)
{
    char command[1024], line[512];
    train_well("--data text %s --steps 3 --out a");
    snprintf(line, sizeof line,
             "--steps 9 --checkpoint-every 3 --out a --resume auto --on-save-error stop");
    snprintf(command, sizeof command,
             "cd '%s' && trap '' XFSZ && ulimit -f 20 && '%s' %s >log 2>&1; test $? = 1", folder,
             (const char *)GRADUS_PROGRAM, line);
    ck_assert_int_eq(system(command), 0);
    shell("grep -q 'cannot write to it: File too large$' '%s/log'%s", folder, "");
    shell("! grep -q 'step [789]/9' '%s/log'%s", folder, "");
    ck_assert(exists("a/step-00000003") && !exists("a/step-00000006") && !exists("a/.saving"));
}
END_TEST

/* The folder of the checkpoints vanishes, with the one that it is in. */
START_TEST(a_folder_that_vanishes)
{
    static const char *const more[] = {"", "--on-save-error stop"};
    char line[512];
    int status;
    shell("mkdir '%s/p'%s", folder, "");
    snprintf(line, sizeof line, "--data text %%s --steps 1000000 --checkpoint-every 5 --out p/a %s",
             more[_i]);
    pid_t child = begin(line, 0);
    wait_for("p/a/step-00000005");
    shell("mv '%s/p' '%s/q'", folder, folder);
    if (_i == 0) { /* it goes on without, and tries again */
        shell(
            "until grep -q 'No such file or directory; training goes on' '%s/log'; do sleep 0.02; "
            "done%s",
            folder, "");
        shell("mkdir '%s/p'%s", folder, "");
        struct timespec moment = {0, 2000000};
        while (!exists("p/a")) nanosleep(&moment, NULL);
        kill(child, SIGINT);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == _i, "status 0x%x", status);
    shell("grep -q 'gradus-train: .*No such file or directory' '%s/log'%s", folder, "");
}
END_TEST

/* Those that may still be left out are what is left of those that may. */
START_TEST(steps_left_out_are_counted_across_a_break)
{
    static const char wild[] = " is left out: ";
    int count = 0;
    train_well("--data text --layers 1 --dim 8 --heads 1 --context 8 --lr 1000 --weight-decay 100 "
               "--warmup 0 --clip 0 --steps 12 --skip-nonfinite 20 --out a --sample-length 0");
    for (const char *at = output; (at = strstr(at, wild)); at++) count++;
    ck_assert_int_gt(count, 0);
    ck_assert_int_le(count, 12);
    train_badly("--resume auto --out a --steps 100", "wanted finite numbers");
    for (const char *at = output; (at = strstr(at, wild)); at++) count++;
    ck_assert_int_eq(count, 20);
}
END_TEST

int main(void)
{
    if (program_missing("gradus-train") || safetensors_missing()) return PROGRAM_SKIPPED;
    Suite *suite = suite_create("checkpoints");
    TCase *cases = tcase_create("checkpoints");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, a_resumed_run_has_the_same_bits, 0, 3);
    tcase_add_test(cases, a_resumed_run_has_the_same_log);
    tcase_add_test(cases, options_given_anew_come_before_those_of_the_checkpoint);
    tcase_add_test(cases, the_folder_of_a_run_means_its_newest_checkpoint);
    tcase_add_test(cases, runs_do_not_mix);
    tcase_add_test(cases, weights_begin_a_new_run);
    tcase_add_loop_test(cases, the_weights_of_others_can_be_trained_on, 0, 4);
    tcase_add_test(cases, the_tokenizer_lies_beside_the_model);
    tcase_add_test(cases, some_are_kept);
    tcase_add_loop_test(cases, signals_save_and_leave, 0, 2);
    tcase_add_test(cases, killed_again_and_again);
    tcase_add_test(cases, a_broken_checkpoint_is_passed_over);
    tcase_add_test(cases, hostile_checkpoints_are_named);
    tcase_add_test(cases, a_disk_that_is_full);
    tcase_add_test(cases, a_disk_that_is_full_ends_a_run_where_asked);
    tcase_add_loop_test(cases, a_folder_that_vanishes, 0, 2);
    tcase_add_test(cases, steps_left_out_are_counted_across_a_break);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
