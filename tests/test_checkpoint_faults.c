/* test_checkpoint_faults.c - gradus-train where files are broken, and disks full or gone. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "runs.h"

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

static void write_copy(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/copy/step-00000002/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

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
        {"config.json", "{\"model_type\":\"gpt2\"}", "model_type is not \"llama\", but \"gpt2\"\n"},
        {"config.json", "{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "hidden_act is not"},
        {"config.json", "{\"model_type\":\"llama\",\"mlp_bias\":true}", "mlp_bias is not false"},
        {"model.safetensors", "", "not even 8 bytes"},
    };
    train_well("--data text %s --steps 2 --out a");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shell("cd '%s' && rm -rf copy && cp -r a copy%s", folder, "");
        write_copy(rows[i].file, rows[i].text);
        train_badly("--resume copy/step-00000002", rows[i].wanted);
        shell("cd '%s' && rm copy/step-00000002/%s", folder, rows[i].file);
        shell("cd '%s' && mkfifo copy/step-00000002/%s", folder, rows[i].file);
        train_badly("--resume copy/step-00000002", "not a regular file");
    }
}
END_TEST

/* It counts where there is no model.safetensors. */
START_TEST(hostile_indexes_are_named)
{
    static const char index[] = "model.safetensors.index.json";
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"{}", "has no weight_map"},
        {"{\"weight_map\":{\"a\":\"../b\"}}", "no name of a file"},
        {"{\"weight_map\":{\"a\":\"b\"}}", "does not know \"model.embed_tokens.weight\""},
    };
    static const char begin[] = "--data text --init copy/step-00000002 --steps 0";
    train_well("--data text %s --steps 2 --out a");
    shell("cd '%s' && cp -r a copy%s", folder, "");
    write_copy(index, rows[0].text);
    train_well(begin);
    shell("cd '%s' && rm copy/step-00000002/model.safetensors%s", folder, "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_copy(index, rows[i].text);
        train_badly(begin, rows[i].wanted);
    }
    shell("cd '%s' && rm copy/step-00000002/%s", folder, index);
    shell("cd '%s' && mkfifo copy/step-00000002/%s", folder, index);
    train_badly(begin, "not a regular file");
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

int main(void)
{
    if (program_missing("gradus-train") || safetensors_missing()) return PROGRAM_SKIPPED;
    Suite *suite = suite_create("faults of checkpoints");
    TCase *cases = tcase_create("faults");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, a_broken_checkpoint_is_passed_over);
    tcase_add_test(cases, hostile_checkpoints_are_named);
    tcase_add_test(cases, hostile_indexes_are_named);
    tcase_add_test(cases, a_disk_that_is_full);
    tcase_add_test(cases, a_disk_that_is_full_ends_a_run_where_asked);
    tcase_add_loop_test(cases, a_folder_that_vanishes, 0, 2);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
