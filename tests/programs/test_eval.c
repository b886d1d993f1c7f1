/* test_eval.c - gradus-eval: the losses that gradus-train found, found again. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen */
#include "check_main.h"
#include "program.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINES = 300 };

static void train(const char *more)
{
    char line[1024];
    snprintf(line, sizeof line,
             "--layers 2 --dim 16 --heads 2 --ffn 24 --context 12 --batch 5 --steps 6 --lr 0.01 "
             "--eval-every 3 --checkpoint-every 3 --keep 0 --sample-length 0 %s",
             more);
    ck_assert_msg(program_run_other("gradus-train", line, output) == 0, "%s\n%s", more, output);
}

static void evaluate(const char *arguments)
{
    int status = program_run_other("gradus-eval", arguments, output);
    ck_assert_msg(status == 0, "%s: exit status %d\n%s", arguments, status, output);
}

static double number(const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(output, key);
    ck_assert_msg(at != NULL, "no %s in %s", key, output);
    return strtod(at + strlen(key), NULL);
}

static void set_up(void)
{
    enter_folder();
    FILE *text = fopen("text", "w"), *second = fopen("second", "w");
    for (int i = 0; i < LINES; i++) {
        fprintf(text, i % 7 % 3 ? "the cat sat. " : "%d of them\n", i);
        fprintf(second, "the cats sat. them %d\n", i * i);
    }
    write_tokens("ids", 50, 16 * LINES);
    write_tokens("few", 20, 16 * LINES);
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4096\n";
    write_bytes("lfs", pointer, sizeof pointer - 1);
    write_bytes("empty", "", 0);
    fclose(text);
    fclose(second);
    train("--data text --out run");
}

/* ---- The same loss ------------------------------------------------------------------------ */

/* The validation loss of a step in the log, a text of digits. */
static void logged(int step, char text[64])
{
    char line[1 << 14], key[32];
    snprintf(key, sizeof key, "{\"step\": %d,", step);
    FILE *file = fopen("log", "r");
    ck_assert_ptr_nonnull(file);
    text[0] = '\0';
    while (fgets(line, sizeof line, file)) {
        const char *val = strstr(line, "\"val\": ");
        if (!strncmp(line, key, strlen(key)) && val) sscanf(val + 7, "%63[0-9.e+-]", text);
    }
    fclose(file);
    ck_assert_msg(text[0] != '\0', "no validation of step %d in the log", step);
}

LOOP_TEST(the_loss_of_the_run_is_found_again, 6)
{
    static const struct {
        const char *train, *data;
    } runs[] = {{"--data text", "--data text"},
                {"--data text --vocab 280 --dropout 0.2", "--data text"},
                {"--data text --val-data second", "--val-data second"},
                {"--data text --dtype f64 --threads 2", "--data text"},
                {"--data text --dtype bf16", "--data text"},
                {"--tokens ids --val-data ids --vocab 60", "--tokens ids"}};
    char line[512], wanted[64], found[64];
    snprintf(line, sizeof line, "%s --log log --out run%d", runs[_i].train, _i);
    train(line);
    for (int step = 3; step <= 6; step += 3) {
        logged(step, wanted);
        for (int kind = 0; kind < 2; kind++) { /* the run's own text; the same named */
            snprintf(line, sizeof line, "run%d/step-%08d --json %s", _i, step,
                     kind ? runs[_i].data : "");
            evaluate(line);
            snprintf(found, sizeof found, "%.9g", number("loss"));
            ck_assert_msg(strtod(found, NULL) == strtod(wanted, NULL) ||
                              number("loss") == strtod(wanted, NULL),
                          "%s: %s, but the run had %s", line, found, wanted);
        }
    }
    double loss = number("loss");
    snprintf(line, sizeof line, "run%d --json --threads 1", _i); /* the newest */
    evaluate(line);
    ck_assert(number("loss") == loss);
    snprintf(line, sizeof line, "run%d --json --batch 3", _i); /* another order of the sum */
    evaluate(line);
    ck_assert_double_eq_tol(number("loss"), loss, 1e-5);
}

/* Ids [at, at + count) in a file of their own, and the loss of `run` on them. */
static double loss_of_part(const char *run, int at, int count)
{
    char line[256];
    shell("tail -c +%d ids | head -c %d >part", 2 * at + 1, 2 * count);
    snprintf(line, sizeof line, "%s --tokens part --json", run);
    evaluate(line);
    return number("loss");
}

/* 4800 ids are 399 windows of 12, in 80 batches of 5, the last of 4: of three, those from windows
 * 0, 130 (batch 26) and 265 on. */
TEST(a_validation_may_take_fewer_batches)
{
    static const int begins[] = {0, 130, 265};
    static const char tokens[] = "--tokens ids --val-data ids --vocab 60 --log log";
    char few[64], line[256];
    double sum = 0;
    snprintf(line, sizeof line, "%s --out three --eval-batches 3", tokens);
    train(line);
    program_said(output, "each validation reads at most 3 x 5 x 12 of them");
    logged(6, few);
    for (int i = 0; i < 3; i++) sum += loss_of_part("three", begins[i] * 12, 5 * 12 + 1);
    ck_assert_double_eq_tol(strtod(few, NULL), sum / 3, 1e-6);
    for (int batches = 80; batches <= 81; batches++) {
        snprintf(line, sizeof line, "%s --steps 6 --resume three --eval-batches %d", tokens,
                 batches);
        train(line); /* no step is left, so that this is all it does */
        const double said = number_after(output, "\nvalidation loss ");
        evaluate("three --json");
        ck_assert_double_eq_tol(said, number("loss"), 5.01e-5); /* of four digits */
    }
}

/* ---- What is printed ---------------------------------------------------------------------- */

TEST(figures_follow_from_the_loss)
{
    train("--data text --vocab 280 --out pieces");
    evaluate("pieces --data second --whole --json");
    double loss = number("loss"), tokens = number("tokens"), bytes = number("bytes");
    ck_assert_double_eq_tol(number("perplexity"), exp(loss), 1e-12 * exp(loss));
    ck_assert_double_eq_tol(number("bits_per_byte"), loss * tokens / bytes / log(2), 1e-12);
    ck_assert_double_gt(bytes, tokens); /* a piece is a byte or more */
    ck_assert(number("windows") * 12 == tokens);
    evaluate("pieces --val-data second --json");
    ck_assert(number("loss") == loss);
    evaluate("pieces --data second --json");
    ck_assert_double_lt(number("tokens"), tokens / 8);
    evaluate("pieces --data second --whole");
    char words[64];
    snprintf(words, sizeof words, "loss %.4f | perplexity %.3f | ", loss, exp(loss));
    program_said(output, words);
    program_said(output, " bits per byte | ");
    program_said(output, "text   second, whole: ");
    train("--tokens ids --val-data ids --vocab 60 --out ids_run");
    evaluate("ids_run --json");
    program_said(output, "\"bytes\": null");
    program_said(output, "\"bits_per_byte\": null");
}

/* All bytes of a text but the first, which nothing predicts, and the last few. */
TEST(bytes_are_counted)
{
    evaluate("run --data text --whole --context 10 --json");
    ck_assert(number("bytes") == number("tokens"));
    ck_assert(number("context") == 10);
    ck_assert_int_eq(strncmp(output, "{", 1), 0);
    evaluate("run --data text --whole --context 13 --json");
    program_said(output, "gradus-eval: --context is 13, but the model was made for 12\n");
    ck_assert(number("context") == 13);
    evaluate("run --data text --whole --context 10 --json");
    FILE *file = fopen("text", "r");
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    fclose(file);
    ck_assert(number("tokens") == (double)((size - 1) / 10 * 10));
}

static const refused_call bad[] = {
    {"", "--model DIR is missing"},
    {"run --data a --tokens b", "--data, --val-data and --tokens cannot be used together"},
    {"run --whole", "--whole needs --data FILE"},
    {"run --data text --token-bytes 2", "--token-bytes is of --tokens, not of a text"},
    {"run --batch x", "--batch is \"x\", wanted a whole number"},
    {"run --prompt x", "--prompt is not an option"},
};

LOOP_TEST(bad_options_are_named, sizeof bad / sizeof *bad)
{
    program_refuses("gradus-eval", 2, &bad[_i]);
}

static const refused_call unusable[] = {
    {"run --token-bytes 2", "--token-bytes is of --tokens, not of a text"},
    {"nowhere", "--model nowhere: No such file or directory"},
    {"run --data nothing", "--data nothing: No such file"},
    {"run --val-data empty", "--val-data empty: it is empty"},
    {"run >/dev/full", "cannot write to stdout: No space left on device"},
    {"run --tokens 'no*'", "no*: No such file or directory"},
    {"run --val-data run/step-00000003/config.json",
     "config.json: byte 0 is 123 ('{'), which is not in the vocabulary of the model"},
    {GRADUS_TEST_DIR "/files/llama/tied", "--data FILE is missing: a text to evaluate on"},
    {"run --data /dev/zero", "--data /dev/zero: it is a device, wanted a file or a pipe"},
    {"run --val-data /dev/zero", "--val-data /dev/zero: it is a device"},
    {"run --tokens /dev/zero", "--tokens /dev/zero: it is not a regular file"},
    {"run --data lfs", "--data lfs: it is a Git LFS pointer; \"git lfs pull\" fetches the file"},
    {"run --tokens lfs", "lfs: it is a Git LFS pointer; \"git lfs pull\" fetches the file"},
    {GRADUS_TEST_DIR "/files/llama/tied --data text",
     "/llama/tied has no tokenizer.json of gradus-train, which a text needs"},
};

LOOP_TEST(unusable_files_are_named, sizeof unusable / sizeof *unusable)
{
    program_refuses("gradus-eval", 1, &unusable[_i]);
}

/* A model of others on token files. */
TEST(models_of_others_are_judged)
{
    evaluate(GRADUS_TEST_DIR "/files/llama/grouped --tokens few --context 16 --json");
    ck_assert_double_gt(number("loss"), 1);
    double loss = number("loss");
    evaluate(GRADUS_TEST_DIR "/files/llama/grouped --tokens few --context 16 --json --dtype f64");
    ck_assert_double_eq_tol(number("loss"), loss, 1e-5);
}

/* Writes the ids of "few" with `width` bytes each. */
static void widen(const char *name, int width)
{
    FILE *from = fopen("few", "r"), *to = fopen(name, "w");
    for (int c; (c = fgetc(from)) != EOF; fgetc(from)) {
        fputc(c, to);
        for (int k = 1; k < width; k++) fputc(0, to);
    }
    fclose(from);
    fclose(to);
}

/* The same ids in files of other widths, which the command line must say; a run says it. */
TEST(wider_ids_are_the_same)
{
    evaluate(GRADUS_TEST_DIR "/files/llama/grouped --tokens few --context 16 --json");
    const double loss = number("loss"), tokens = number("tokens");
    for (int width = 4; width <= 8; width += 4) {
        char line[256];
        widen("wide", width);
        snprintf(line, sizeof line, "%s/files/llama/grouped --tokens wide --context 16 --json",
                 GRADUS_TEST_DIR);
        ck_assert_int_eq(program_run_other("gradus-eval", line, output), 1);
        snprintf(line, sizeof line, "--token-bytes %d reads it so", width);
        program_said(output, line);
        snprintf(line, sizeof line,
                 "%s/files/llama/grouped --tokens wide --token-bytes %d --context 16 --json",
                 GRADUS_TEST_DIR, width);
        evaluate(line);
        ck_assert_double_eq(number("loss"), loss);
        ck_assert_double_eq(number("tokens"), tokens);
    }
    train("--tokens wide --val-data wide --token-bytes 8 --vocab 60 --out wide_run");
    evaluate("wide_run --json");
    ck_assert_double_gt(number("tokens"), tokens * 0.9);
    train("--resume wide_run --steps 9");
    ck_assert_int_eq(program_run_other("gradus-eval", "wide_run --tokens wide", output), 1);
    ck_assert_int_eq(
        program_run_other("gradus-train", "--tokens few --val-data few --vocab 65537", output), 1);
    program_said(output, "uint16 is too small for a vocabulary of 65537 ids");
}

TEST(help_is_complete)
{
    evaluate("--help");
    program_said(output, "Usage: gradus-eval DIR [OPTION...]");
    static const char *const names[] = {"model", "data", "val-data", "tokens",
                                        "whole", "json", "batch",    "context"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) program_said(output, names[i]);
    evaluate("--version");
    ck_assert_str_eq(output, "gradus-eval " GD_VERSION_STRING "\n");
}

CHECK_MAIN_AROUND(program_missing("gradus-eval"), "gradus-eval", set_up, leave_folder)
