/* test_checkpoint_faults.c - gradus-train with damaged files, and with disks that are full or
 * gone. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "runs.h"
#include "state_file.h"

TEST(a_broken_checkpoint_is_passed_over)
{
    train_well("--data text $small --steps 12 --checkpoint-every 4 --keep 0 --out a");
    shell("cd a/step-00000012 && head -c 1000 state.safetensors >x && mv x state.safetensors");
    shell("rm a/step-00000008/config.json");
    train_well("--resume auto --out a");
    program_said(output, "a/step-00000012 is skipped: safetensors_open: ");
    program_said(output, "a/step-00000008 is skipped: there is no config.json");
    program_said(output, "from   a/step-00000004");
    ck_assert(exists("a/step-00000012/tokenizer.json"));
    train_well("--resume a/step-00000012 --out b"); /* the broken one was replaced */
}

/* A run whose checkpoints only lack a permission or a disk does not start over. */
TEST(a_run_that_cannot_resume_does_not_start_over)
{
    train_well("--data text $small --steps 8 --checkpoint-every 4 --out a");
    shell("cd a && for f in step-*/state.safetensors; do truncate -s 1000 $f; done");
    shell("cp -r a before");
    train_badly("--data text $small --resume auto --out a",
                "none of the 2 checkpoints in a can be used; nothing was changed; use another "
                "--out for a new run");
    program_said(output, "a/step-00000008 is skipped: safetensors_open: ");
    program_said(output, "a/step-00000004 is skipped: safetensors_open: ");
    shell("diff -r a before");
    train_well("--data text $small --steps 2 --resume auto --out b");
}

/* The log is not what keeps them apart. */
TEST(two_runs_do_not_share_a_folder)
{
    static const char *const second[] = {"--data text $small --resume auto --out a --log /dev/null",
                                         "--resume a --log /dev/null"};
    pid_t child = begin("--data text $small --steps 1000000 --checkpoint-every 5 --keep 1000 "
                        "--out a --log /dev/null");
    wait_for("a/step-00000005");
    for (int i = 0; i < 2; i++)
        train_badly(second[i], "--out a: another run is saving its checkpoints there");
    train_well("--resume a --dry-run"); /* saves nothing */
    stop_well(child, SIGTERM);
    train_well("--resume a --max-seconds 0.01");
}

static bool has_checksums(void)
{
    return exists("a/step-00000004/checksums.xxh3");
}

TEST(a_flipped_bit_is_noticed)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "state.safetensors", "checksums.xxh3"};
    train_well("--data text $small --steps 8 --checkpoint-every 4 --out a");
    if (!has_checksums()) return; /* a build without xxHash */
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        /* "positions": 12 in config.json; anywhere in the others */
        shell("rm -rf b && cp -r a b && cd b/step-00000008 && "
              "perl -e 'open F, \"+<\", \"%s\"; $at = -s F; $at = int($at * 0.8); seek F, $at, 0; "
              "read F, $c, 1; seek F, $at, 0; print F chr(ord($c) ^ 1)'",
              files[i]);
        train_badly("--resume b/step-00000008", "does not match its checksum in checksums.xxh3");
        train_badly("--data text --init b/step-00000008 --steps 0", "does not match its checksum");
        train_well("--resume b --steps 8");
        program_said(output, "b/step-00000008 is skipped: ");
        program_said(output, "from   b/step-00000004\n");
    }
    shell("rm -rf b && cp -r a b && cd b/step-00000008 && sed -i s/1e-05/1e-06/ config.json && rm "
          "checksums.xxh3");
    train_well("--resume b --steps 9"); /* it was meant */
    program_said(output, "from   b/step-00000008\n");
}

/* Where a run writes is said on its command line, and not by a file from somewhere. */
TEST(a_checkpoint_names_no_file_to_be_written)
{
    train_well("--data text $small --steps 4 --log mine --out a");
    shell("cp mine before");
    train_well("--resume a --steps 5 --out b");
    shell("cmp mine before && test -s b/log.jsonl");
}

static const char state_of_copy[] = "copy/step-00000002/state.safetensors";

/* Foreign texts in a checkpoint neither create a file nor control the terminal. */
TEST(foreign_metadata_is_only_read)
{
    static const char *const rows[][3] = {
        {"option.data", "text\x1b[31m", "data is \"text\\x1b[31m\", wanted no control characters"},
        {"option.data", "text\xc2\x9b[31m", "data is \"text\\u009b[31m\", wanted no control"},
        {"option.schedule", "\a", "wanted no control characters"},
        {"step", "1\x1b[31m", "has no whole number \"step\""},
        {"step", "-5", "has no whole number \"step\""},
        {"best_step", "3", "invalid progress: 2 steps, 0 of them skipped"},
        {"loss_steps", "x", "has no whole number \"loss_steps\""},
        {"best_loss", "1x", "has no number \"best_loss\""},
        {"best_loss", "nan", "invalid progress: 2 steps, 0 of them skipped"},
        {"loss_sum", "1e999", "invalid progress: 2 steps, 0 of them skipped"},
    };
    train_well("--data text $small --steps 2 --out a");
    shell("cp -r a copy && rm -f copy/*/checksums.xxh3");
    state_write(state_of_copy, "option.log", "mine", NULL);
    state_write(state_of_copy, "option.out", "elsewhere", NULL);
    train_well("--resume copy/step-00000002 --steps 3");
    ck_assert(!exists("mine") && !exists("elsewhere"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shell("rm -rf copy && cp -r a copy && rm -f copy/*/checksums.xxh3");
        state_write(state_of_copy, rows[i][0], rows[i][1], NULL);
        train_badly("--resume copy/step-00000002", rows[i][2]);
        ck_assert(!strchr(output, 27) && !strchr(output, 7) && !strstr(output, "\xc2\x9b"));
    }
}

static const char reshaped[] = "optimizer.m.layers.0.w_down";
static int form;

/* Makes another form of that tensor: its transpose, all in one row, or another dtype. */
static gd_tensor *reshape(const char *name, gd_tensor *t)
{
    if (strcmp(name, reshaped) != 0) return t;
    const int64_t rows = gd_tensor_dim(t, 0), columns = gd_tensor_dim(t, 1);
    const int64_t shapes[4][2] = {
        {columns, rows}, {rows * columns}, {rows, columns}, {rows, columns}};
    static const gd_dtype dtypes[4] = {GD_FLOAT32, GD_FLOAT32, GD_INT32, GD_BFLOAT16};
    gd_context *ctx = gd_tensor_context(t);
    gd_tensor_free(t);
    return gd_tensor_create(ctx, dtypes[form], form == 1 ? 1 : 2, shapes[form]);
}

/* As many elements do not make it a state. */
TEST(a_state_of_another_shape_or_dtype)
{
    static const char *const wanted[] = {"has shape [24, 16] in the file, wanted [16, 24]",
                                         "has shape [384] in the file, wanted [16, 24]",
                                         "holds I32", "holds BF16"};
    train_well("--data text $small --steps 2 --out a");
    for (form = 0; form < 4; form++) {
        char words[160];
        shell("rm -rf copy && cp -r a copy && rm -f copy/*/checksums.xxh3");
        state_write(state_of_copy, "changed", "", reshape);
        snprintf(words, sizeof words, "state.safetensors: tensor \"%s\" %s", reshaped,
                 wanted[form]);
        train_badly("--resume copy/step-00000002 --steps 3", words);
    }
}

/* What config.json says is compared with the files before memory of that size is asked for. */
TEST(sizes_that_the_files_do_not_have)
{
    static const struct {
        const char *change, *wanted;
    } rows[] = {
        {"s/.vocab_size.: 7/\"vocab_size\": 100000000/", "does not have the shape [100000000, 16]"},
        {"s/.num_hidden_layers.: 2/\"num_hidden_layers\": 999/",
         "has no tensor \"model.layers.2.input_layernorm.weight\""},
        {"s/.intermediate_size.: 24/\"intermediate_size\": 1048576/",
         "\"model.layers.0.mlp.gate_proj.weight\" does not have the shape [1048576, 16]"},
    };
    train_well("--data text $small --steps 2 --out a");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shell("rm -rf copy && cp -r a copy && rm -f copy/*/checksums.xxh3");
        shell("sed -i '%s' copy/*/config.json", rows[i].change);
        train_badly("--resume copy/step-00000002", rows[i].wanted);
        train_badly("--data text --init copy/step-00000002", rows[i].wanted);
        if (program_run_other("gradus-eval", "--version", output) == 0) {
            ck_assert_int_eq(program_run_other("gradus-eval", "copy --data text", output), 1);
            program_said(output, rows[i].wanted);
        }
    }
}

static void write_copy(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "copy/step-00000002/%s", name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

TEST(hostile_checkpoints_are_named)
{
    static const struct {
        const char *file, *text, *wanted;
    } rows[] = {
        {"config.json", "{", "config.json in copy/step-00000002 is not a JSON object"},
        {"config.json", "[]", "config.json in copy/step-00000002 is not a JSON object"},
        {"config.json", "{\"a\":1,\"a\":2}", "is not a JSON object: duplicate object key"},
        {"config.json", "{}", "model_type is not \"llama\""},
        {"config.json", "{\"model_type\":\"llama\"}", "num_attention_heads is not a whole number"},
        {"config.json", "{\"model_type\":\"gpt2\"}", "model_type is not \"llama\", but \"gpt2\"\n"},
        {"config.json", "{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "hidden_act is not"},
        {"config.json", "{\"model_type\":\"llama\",\"mlp_bias\":true}", "mlp_bias is not false"},
        {"model.safetensors", "", "shorter than 8 bytes"},
        {"tokenizer.json", "{}", "is not a tokenizer of this program"},
        {"tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid x\n",
         "tokenizer.json: it is a Git LFS pointer"},
    };
    train_well("--data text $small --steps 2 --out a");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shell("rm -rf copy && cp -r a copy && rm -f copy/*/checksums.xxh3");
        write_copy(rows[i].file, rows[i].text);
        train_badly("--resume copy/step-00000002", rows[i].wanted);
        shell("rm copy/step-00000002/%s", rows[i].file);
        shell("mkfifo copy/step-00000002/%s", rows[i].file);
        train_badly("--resume copy/step-00000002", "not a regular file");
    }
}

/* It counts where there is no model.safetensors. */
TEST(hostile_indexes_are_named)
{
    static const char index[] = "model.safetensors.index.json";
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"{}", "has no weight_map"},
        {"{\"weight_map\":{\"a\":\"../b\"}}", "not a file name"},
        {"{\"weight_map\":{\"a\":\"b\"}}", "does not list \"model.embed_tokens.weight\""},
    };
    static const char begin[] = "--data text --init copy/step-00000002 --steps 0";
    train_well("--data text $small --steps 2 --out a");
    shell("cp -r a copy && rm -f copy/*/checksums.xxh3");
    write_copy(index, rows[0].text);
    train_well(begin);
    shell("rm copy/step-00000002/model.safetensors");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_copy(index, rows[i].text);
        train_badly(begin, rows[i].wanted);
    }
    shell("rm copy/step-00000002/%s", index);
    shell("mkfifo copy/step-00000002/%s", index);
    train_badly(begin, "not a regular file");
}

TEST(a_disk_that_is_full)
{
    train_well("--data text $small --steps 3 --out a");
    /* ulimit -f: no file may have more than that many blocks of 512 bytes */
    train_well("--version");
    shell("ulimit -f 20 && '%s' --data text $small --steps 9 --checkpoint-every 3 --out a "
          "--resume auto >log 2>&1; test $? = 1",
          (const char *)GRADUS_PROGRAM);
    shell("grep -q 'cannot write to it: File too large; training continues' log");
    ck_assert(exists("a/step-00000003") && !exists("a/step-00000006") && !exists("a/.saving"));
    train_well("--resume auto --out a --steps 6");
    program_said(output, "from   a/step-00000003");
    train_badly("--data text $small --steps 1 --out text/such/folder",
                "cannot make the folder text/such/folder: Not a dir");
    train_badly("--data text $small --steps 1 --out text",
                "cannot make the folder text: Not a dir");
}

TEST(a_disk_that_is_full_ends_a_run_where_asked)
{
    train_well("--data text $small --steps 3 --out a");
    shell("ulimit -f 20 && '%s' --steps 9 --checkpoint-every 3 --out a --resume auto "
          "--on-save-error stop >log 2>&1; test $? = 1",
          (const char *)GRADUS_PROGRAM);
    shell("grep -q 'cannot write to it: File too large$' log");
    shell("! grep -q 'step [789]/9' log");
    ck_assert(exists("a/step-00000003") && !exists("a/step-00000006") && !exists("a/.saving"));
}

/* The folder of the checkpoints is removed, with the one that it is in. */
LOOP_TEST(a_folder_that_vanishes, 2)
{
    static const char *const more[] = {"", "--on-save-error stop"};
    shell("mkdir p");
    pid_t child =
        begin("--data text $small --steps 1000000 --checkpoint-every 5 --keep 1000 --out p/a %s",
              more[_i]);
    wait_for("p/a/step-00000005");
    shell("until rm -rf p 2>/dev/null; do :; done");
    if (_i == 0) { /* it goes on without, and tries again */
        shell("until grep -q 'No such file or directory; training continues' log; do sleep 0.02; "
              "done");
        shell("mkdir p");
        while (!exists("p/a/.lock")) nap(2); /* made anew, and locked */
        train_badly("--resume auto --out p/a", "another run is saving its checkpoints there");
        kill(child, SIGINT);
    }
    ck_assert_int_eq(end_of(child), _i);
    /* It may be in the middle of a save, and miss a file that it has just written. */
    shell("grep -q 'gradus-train: .*%s' log", _i ? "p/a" : "No such file or directory");
}

#define SHORTER "the file (ends before|was replaced or changed after)"
#define GONE "No such file"
#define CHANGED "the file was replaced or changed after"
#define ONES "perl -e 'print pack(\"v*\", (1) x 4000)' " /* other ids, and as many */

/* A token file that becomes shorter, another one, or none: the run ends with an error, after saving
 * its steps if it has a folder, and can be resumed once the file is back. It becomes so before a
 * read or just after one. */
static const struct {
    const char *file, *how, *words, *options;
} vanishing[] = {
    {"ids", ": >ids", SHORTER, ""},
    {"ids", ": >ids", SHORTER, "--out a"},
    {"ids", "truncate -s 100 ids", SHORTER, "--out a"},
    {"ids", "rm ids", GONE, "--out a"},
    {"ids", "tr '\\0' '\\377' <more | dd of=ids conv=notrunc", CHANGED, "--out a"},
    {"ids", ONES "| dd of=ids conv=notrunc", CHANGED, "--out a"},
    {"ids", ONES ">other; touch -r ids other; mv other ids", CHANGED, "--out a"},
    {"ids", "mv more ids", CHANGED, "--out a --processes 2 --accumulate 2"},
    {"others", "mv more others", CHANGED, "--out a"},
    {"others", "rm others", GONE, "--out a --processes 2 --accumulate 2"},
    {"others", ": >others", SHORTER, "--out a --checkpoint-every 2"},
};

LOOP_TEST(tokens_that_vanish_end_a_run, sizeof vanishing / sizeof *vanishing)
{
    shell("head -c 8000 /dev/zero >ids && cp ids others && cp ids more");
    pid_t child = begin("--tokens ids --val-data others --vocab 256 $small --eval-every 7 "
                        "--log-every 1 --steps 1000000 %s",
                        vanishing[_i].options);
    shell("until grep -q '^step 5/' log; do sleep 0.02; done; { %s; } 2>/dev/null",
          vanishing[_i].how);
    ck_assert_int_eq(end_of(child), 1);
    shell("grep -qE '%s: tokens from .* on cannot be read: %s' log", vanishing[_i].file,
          vanishing[_i].words);
    /* The step that was saved is the last one that was made. */
    if (_i == 0) {
        shell("! grep -q '^saved' log");
        return;
    }
    shell("step=$(grep '^step ' log | tail -1 | grep -oE '[0-9]+' | head -1) && "
          "grep -q \"^saved a/step-0*$step$\" log");
    shell("rm -f ids others && head -c 8000 /dev/zero >ids && cp ids others");
    train("--resume a --max-seconds 0.1");
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "faults of checkpoints", set_up, leave_folder)
