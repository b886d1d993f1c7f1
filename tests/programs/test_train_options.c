/* test_train_options.c - gradus-train: the configuration file, the data it takes, the log. */
#define _POSIX_C_SOURCE 200809L /* popen, mkdtemp, mkfifo */
#include "check_main.h"
#include "gradus/gradus.h"
#include "program.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char other[PROGRAM_OUTPUT];

enum { TEXT = 20000 };

static char text[TEXT + 16];

/* Words in random order; token files of the same. */
static void set_up(void)
{
    static uint16_t ids[512 + TEXT];
    enter_folder();
    write_words("text", TEXT);
    FILE *file = fopen("text", "r");
    ck_assert_uint_eq(fread(text, 1, TEXT, file), TEXT);
    fclose(file);
    write_bytes("text", text, TEXT);
    write_bytes("val", text, 2000);
    for (int i = 0; i < TEXT; i++) ids[512 + i] = (uint16_t)text[i];
    write_bytes("train_0.bin", ids + 512, TEXT); /* nanoGPT: half of the text */
    const int32_t header[3] = {20240520, 1, TEXT};
    memcpy(ids, header, sizeof header); /* llm.c */
    write_bytes("train_1.bin", ids, sizeof ids);
    write_bytes("val.bin", ids, sizeof ids);
}

/* A small model; must succeed. */
static void run(const char *more, char *to)
{
    char arguments[1024];
    snprintf(arguments, sizeof arguments,
             "--layers 1 --dim 16 --heads 2 --ffn 32 --context 16 --batch 4 --warmup 2 --lr 0.01 "
             "--log-every 1 --eval-every 0 --sample-length 20 --threads 1 %s",
             more);
    program_must(0, arguments, to);
}

/* ---- The configuration file ---------------------------------------------------------------- */

TEST(a_file_says_what_the_command_line_does_not)
{
    static const char config[] = "# a comment\n\n  steps = 7  \r\ndata=text\ntied = true\n"
                                 "schedule = linear\ndry-run = false\n";
    write_bytes("config", config, strlen(config));
    run("--config config", output);
    program_said(output, "step 7/7 ");
    program_said(output, " tied output");
    run("--steps 3 --tied=false --config config", output);
    program_said(output, "step 3/3 ");
    ck_assert_ptr_null(strstr(output, " tied output"));
}

/* As in a file that once was Python. */
TEST(values_may_be_quoted_and_commented)
{
    static const char *const rows[] = {"'%s'", "\"%s\" # here", "%s # here", "\t'%s'\t#'", "%s"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = i < 4 ? "te#xt" : "te#xt 'a'";
        char config[512], value[256];
        write_bytes(name, text, TEXT);
        snprintf(value, sizeof value, rows[i], name);
        snprintf(config, sizeof config,
                 "  # all of it\nsteps = 2 # two\ntied = true\t# \"or\" not\ndata = %s\n", value);
        write_bytes("config", config, strlen(config));
        run("--config config", output);
        program_said(output, "step 2/2 ");
        program_said(output, " tied output");
    }
}

static const struct {
    const char *text, *message;
} bad[] = {
    {"steps = 5\nbogus = 1\n", ":2: bogus is not an option; see --help"},
    {"steps\n", ":1: \"steps\" is not of the form option = value"},
    {"steps = five\n", ":1: steps is \"five\", wanted a whole number"},
    {"\n\ntied = yes", ":3: tied is \"yes\", wanted true or false"},
    {"device = tpu", ":1: device is \"tpu\", wanted cpu|cuda|auto"},
    {"lernrate = 0.1", ":1: lernrate is not an option; did you mean lr? --help lists all"},
    {"\xef\xbb\xbfsteps = five\n", "config:1: steps is \"five\", wanted a whole number"},
    {"\xff\xfes", "it is in UTF-16, wanted UTF-8"},
    {"\xfe\xffs", "it is in UTF-16, wanted UTF-8"},
    {"n_layer = 6", ":1: n_layer is not an option; did you mean layers? --help lists all"},
    {"steps = 5 five # 5\n", ":1: steps is \"5 five\", wanted a whole number"},
    {"steps = '5\n", ":1: steps is \"'5\", wanted a whole number"},
    {"steps = # 5\n", ":1: steps is \"\", wanted a whole number"},
    {"config = x", ":1: a config file cannot name another"},
    {"log = a\nsteps = 1\nlog = b\n", ":3: log is given twice, wanted once"},
    {"= 3", ":1: \"= 3\" is not of the form option = value"},
};

LOOP_TEST(bad_files_are_named, sizeof bad / sizeof *bad)
{
    static const char arguments[] = "--data x --config config";
    write_bytes("config", bad[_i].text, strlen(bad[_i].text));
    program_must(2, arguments, output);
    program_said(output, bad[_i].message);
    write_bytes("config", "steps = 1\0\n", 11);
    program_must(2, arguments, output);
    program_said(output, "it contains a NUL byte");
}

/* ---- Files that are none ------------------------------------------------------------------- */

/* A pipe is read to its end, and waited for where nobody writes yet. */
TEST(pipes_are_read)
{
    run("--data /dev/stdin --steps 1 < text", output);
    ck_assert_int_eq(mkfifo("fifo", 0600), 0);
    run("--data fifo --steps 1 & sleep 1.3; cat text >fifo; echo steps=3 >config; wait $!", other);
    program_said(other, "fifo: waiting for a writer\n");
    ck_assert_int_eq(strncmp(weights(other), weights(output), 16), 0);
    run("--data text --config fifo & cat config >fifo; wait $!", output);
    program_said(output, "step 3/3 ");
}

/* They are not cut, except in the message. */
TEST(long_paths_are_refused)
{
    static const char *const options[] = {"data", "val-data", "tokens", "config",
                                          "out",  "log",      "resume", "init"};
    static const char *const lengths[] = {"4096", "0"};
    char arguments[128], wanted[80];
    for (size_t i = 0; i < 2 * sizeof options / sizeof *options; i++) {
        snprintf(arguments, sizeof arguments, "--%s \"$(printf %%%ss | tr ' ' a)\"", options[i / 2],
                 lengths[i % 2]);
        program_must(2, arguments, output);
        snprintf(wanted, sizeof wanted, "gradus-train: --%s is \"%s", options[i / 2],
                 i % 2 ? "\", " : "aaaaa");
        program_said(output, wanted);
        program_said(output, i % 2 ? "is \"\", wanted" : "aaaaa...\", wanted");
        program_said(output, "wanted a path of 1 to 4095 bytes\n");
        ck_assert_int_eq(count_lines(output), 1);
        ck_assert_uint_lt(strlen(output), 400);
    }
    program_must(1, "--data \"$(printf %4095s | tr ' ' a)\"", output);
    program_said(output, "aaa: File name too long\n");
}

/* ---- Data --------------------------------------------------------------------------------- */

TEST(pieces_are_learned_and_written)
{
    run("--data text --vocab 270 --steps 5", output);
    program_said(output, "(pieces, 270 different)");
    double tokens = number_after(strstr(output, "\ntext "), ": ");
    ck_assert_double_lt(tokens, 0.6 * TEXT);
    ck_assert_double_gt(tokens, 1000);
}

TEST(a_second_file_validates)
{
    run("--data text --val-data val --steps 2", output);
    program_said(output, "20000 tokens (bytes");
    program_said(output, "2000 more for validation: ");
    write_bytes("val", "the \x01 cat", 9);
    program_must(1, "--data text --val-data val", output);
    program_said(output, "byte 4 is 1, which does not occur in the training text");
}

/* Ids where a text is wanted are a text of sorts, and many a text might be ids. */
TEST(ids_and_texts_are_not_confused)
{
    run("--data val.bin --steps 1", output);
    program_said(output, "val.bin: it contains NUL bytes, which are rare in text; use --tokens");
    run("--data text --steps 1", output);
    ck_assert_ptr_null(strstr(output, "bytes of 0"));
    program_must(1, "--tokens text --val-data x --vocab 50257", output);
    program_said(output, "text: it is a text, wanted token ids; use --data FILE for a text");
}

TEST(token_files_are_read)
{
    static const char few[400] = {1};
    run("--tokens 'train_*.bin' --val-data val.bin --vocab 128 --steps 4 --sample-length 5",
        output);
    program_said(output, ": 30000 tokens (ids, 128 different), 20000 more for validation");
    /* One beyond the vocabulary: among those for validation it is found before the first step. */
    program_must(1, "--tokens 'train_*.bin' --val-data val.bin --vocab 60 --steps 4 --context 8",
                 output);
    program_said(output, "val.bin: token ");
    ck_assert_ptr_null(strstr(output, "before the first step"));
    write_bytes("few.bin", few, sizeof few);
    program_must(1, "--tokens 'train_*.bin' --val-data few.bin --vocab 60 --steps 4 --context 8",
                 output);
    const char *said = strstr(strstr(output, "gradus-train: "), "train_");
    int shard, place, id;
    ck_assert_msg(said && sscanf(said, "train_%d.bin: token %d is %d, wanted less than 60, ",
                                 &shard, &place, &id) == 3,
                  "%s", output);
    ck_assert_int_eq(id, text[place]);
    ck_assert_int_ge(id, 60);
    program_must(1, "--tokens 'no*' --val-data x --vocab 60", output);
    program_said(output, "No such file");
}

/* ---- The run ------------------------------------------------------------------------------ */

/* Two batches of 2 are one of 4: the same windows, the same mean. */
TEST(accumulated_batches_are_one_large_one)
{
    run("--data text --steps 6", output);
    run("--data text --steps 6 --batch 2 --accumulate 2", other);
    double a = number_after(output, "step 6/6 | loss "),
           b = number_after(other, "step 6/6 | loss ");
    ck_assert_double_le(fabs(a - b), 2e-4);
    ck_assert(strncmp(weights(output), weights(other), 16) != 0 || a == b);
}

TEST(one_batch_is_learned_by_heart)
{
    run("--data text --steps 150 --overfit-one-batch --schedule constant --batch 1 --weight-decay "
        "0",
        output);
    ck_assert_double_lt(number_after(output, "step 150/150 | loss "), 0.05);
}

TEST(a_dry_run_only_looks)
{
    run("--data text --dry-run", output);
    program_said(output, " parameters, ");
    program_said(output, "operations a token");
    program_said(output, "activations ");
    ck_assert_ptr_null(strstr(output, "step "));
    ck_assert_ptr_null(strstr(output, "validation loss"));
}

/* What a model needs that does not fit, in GiB, before it has taken any, and what would help. */
LOOP_TEST(a_model_that_does_not_fit_is_refused, 3)
{
    static const char *const rows[][3] = {
        {"--dry-run --layers 500 --dim 65536", " GiB before the first step: parameters ",
         " GiB are free; fewer --layers or a smaller --dim need less"},
        {"--layers 500 --dim 65536", " GiB before the first step: parameters ",
         " GiB are free; fewer --layers or a smaller --dim need less"},
        {"--dry-run --layers 20 --dim 64 --context 500 --batch 65536", "a step needs about ",
         " GiB are free; a smaller --batch with a larger --accumulate"}};
    char arguments[512];
    snprintf(arguments, sizeof arguments, "--data text --threads 1 %s", rows[_i][0]);
    const int status = program_run(arguments, output);
    ck_assert_msg(status == 1, "%s: exit status %d\n%s", arguments, status, output);
    program_said(output, rows[_i][1]);
    program_said(output, rows[_i][2]);
    ck_assert_ptr_null(strstr(output, "\nstep "));
}

/* A validation on the training text is remarked on, also on a copy of it. */
TEST(validation_on_the_training_text_is_remarked_on)
{
    static const char words[] = "gradus-train: --val-data is the training text";
    shell("cp text copy");
    run("--data text --steps 1 --val-data copy", output);
    program_said(output, words);
    run("--data text --steps 1", output);
    ck_assert_ptr_null(strstr(output, words));
}

TEST(samples_come_in_between)
{
    run("--data text --steps 3 --sample-every 1", output);
    const char *one = strstr(output, "step 1/3"), *two = strstr(output, "step 2/3");
    ck_assert(one && two && two - one > 20 + 60);
}

TEST(the_log_has_a_line_for_each)
{
    char line[4096];
    run("--data text --steps 5 --eval-every 2 --log log.jsonl", output);
    FILE *file = fopen("log.jsonl", "r");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 6; i++) {
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        size_t length = strlen(line);
        ck_assert(line[0] == '{' && line[length - 2] == '}' && line[length - 1] == '\n');
        if (i == 0) {
            program_said(line, "\"version\": \"");
            program_said(line, "\"text_hash\": \"");
            program_said(line, "\"steps\": 5");
            program_said(line, "\"schedule\": \"cosine\"");
        } else {
            ck_assert_double_eq(number_after(line, "\"step\": "), i);
            ck_assert((strstr(line, "\"val\": null") == NULL) == (i == 2 || i >= 4));
            ck_assert_double_gt(number_after(line, "\"loss\": "), 0);
        }
    }
    ck_assert_ptr_null(fgets(line, sizeof line, file));
    fclose(file);
    ck_assert_ptr_null(strstr(output, ".old"));
    run("--data text --steps 1 --log log.jsonl", output);
    program_said(output, "log.jsonl of an earlier run is now in ");
    ck_assert_int_eq(access("log.jsonl.old", F_OK), 0);
    program_must(1, "--data text --log text", output);
    program_said(output, "text was not changed: it is not a log of gradus-train; choose another");
    program_must(1, "--data text --log /no/such/folder/log", output);
    program_said(output, "cannot write the log /no/such/folder/log: ");
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "options of gradus-train", set_up, leave_folder)
