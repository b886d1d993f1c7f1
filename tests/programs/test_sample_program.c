/* test_sample_program.c - gradus-sample, run as a user would, on models of gradus-train. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen */
#include "check_main.h"
#include "program.h"

#include <stdlib.h>
#include <unistd.h>

static char other[PROGRAM_OUTPUT];

static void sample_aloud(const char *arguments, char *to)
{
    int status = program_run_other("gradus-sample", arguments, to);
    ck_assert_msg(status == 0, "%s: exit status %d\n%s", arguments, status, to);
}

/* What it says on stderr is left out. */
static void sample(const char *arguments, char *to)
{
    char line[1024];
    snprintf(line, sizeof line, "%s 2>/dev/null", arguments);
    sample_aloud(line, to);
}

/* Runs of gradus-train: of bytes, of pieces, of ids. */
static void set_up(void)
{
    static const char small[] = "--layers 2 --dim 16 --heads 2 --ffn 24 --context 12 --batch 4 "
                                "--lr 0.01 --eval-every 0 --threads 1 --temperature 0";
    char line[1024];
    enter_folder();
    FILE *file = fopen("text", "w");
    for (int i = 0; i < 400; i++) fputs(i % 3 ? "the caf\xc3\xa9 sat. " : "one of them\n", file);
    fclose(file);
    write_tokens("ids", 50, 6400);
    write_bytes("zero", "3\0 4", 4);
    static const char *const kinds[] = {"--data text --out run --steps 40 --checkpoint-every 20",
                                        "--data text --vocab 300 --out pieces --steps 40",
                                        ("--tokens ids --val-data ids --vocab 60 --out ids_run "
                                         "--steps 5")};
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "%s --sample-length 60 %s", small, kinds[i]);
        ck_assert_msg(program_run_other("gradus-train", line, i ? other : output) == 0, "%s",
                      i ? other : output);
    }
}

TEST(a_checkpoint_writes_what_its_run_wrote)
{
    char *begin = strstr(output, "---- sample, temperature 0\n"), text[1024];
    ck_assert_ptr_nonnull(begin);
    begin = strchr(begin, '\n') + 1;
    char *end = strstr(begin, "\n----\n");
    ck_assert(end && end - begin < 1000);
    snprintf(text, sizeof text, "%.*s\n", (int)(end - begin), begin);
    sample("run --temperature 0 --length 60", other);
    ck_assert_str_eq(other, text);
    sample("--model run/step-00000040 --temperature 0 --length 60 --threads 2 --seed 4", other);
    ck_assert_str_eq(other, text);
    sample("run --top-k 1 --length 60", other);
    ck_assert_str_eq(other, text);
    sample("run --top-p 1e-9 --length 60", other);
    ck_assert_str_eq(other, text);
    sample("run --temperature 1e-9 --length 60", other);
    ck_assert_str_eq(other, text);
}

TEST(texts_continue_a_prompt)
{
    sample("pieces --prompt 'the caf' --length 40 --temperature 1", output);
    ck_assert_int_eq(strncmp(output, "the caf", 7), 0);
    sample("pieces --prompt 'the caf' --length 40 --temperature 1", other);
    ck_assert_str_eq(output, other); /* the same seed */
    sample("pieces --prompt 'the caf' --length 40 --temperature 1 --seed 2", other);
    ck_assert_str_ne(output, other);
    sample("pieces --prompt 'the caf' --length 40 --temperature 1 --samples 2", other);
    ck_assert_int_eq(strncmp(output, other, strlen(output)), 0);
    ck_assert_int_eq(strncmp(other + strlen(output), "----\nthe caf", 12), 0);
    sample("pieces --prompt-file text --length 5", output); /* longer than the context */
    sample("pieces --prompt-file - --length 0 <text", output);
    sample("pieces --prompt-file text --length 0", other);
    ck_assert_str_eq(output, other);
    sample("pieces --prompt 'abc' --length 0", output);
    ck_assert_str_eq(output, "abc\n");
    sample("pieces --prompt '' --length 0", output);
    ck_assert_str_eq(output, "\n");
    sample("run --prompt 'the caf' --length 200 --temperature 0 --stop sat", output);
    ck_assert_ptr_null(strstr(output, "sat"));
    sample_aloud("run --length 3 --timing 2>&1 >/dev/null", output);
    ck_assert_str_eq(strtok(output, "\n"), "gradus-sample: the model is run/step-00000040");
    ck_assert_int_eq(strncmp(strtok(NULL, "\n"), "gradus-sample: 3 tokens in ", 27), 0);
    sample_aloud("run --length 3 --timing", output);
    program_said(output, "\ngradus-sample: 3 tokens in ");
    sample("run --context 1 --length 20", output); /* it forgets at once */
    ck_assert_uint_ge(strlen(output), 20);
}

/* A model on the command line overrides that of the file of options, with its name or without. */
TEST(a_file_of_options_names_a_model)
{
    char from_file[PROGRAM_OUTPUT];
    shell("printf 'model = pieces\nlength = 9\n' >options");
    sample("pieces --length 9", other);
    sample("--config options", from_file);
    ck_assert_str_eq(from_file, other);
    sample("run --length 9", other);
    sample("run --config options", from_file);
    ck_assert_str_eq(from_file, other);
    sample("--model run --config options", from_file);
    ck_assert_str_eq(from_file, other);
}

TEST(ids_are_taken_where_they_mean_nothing)
{
    sample("ids_run --prompt '3 4 59' --length 4", output);
    ck_assert_int_eq(strncmp(output, "3 4 59 ", 7), 0);
    int a, b, c, d;
    ck_assert_int_eq(sscanf(output + 7, "%d %d %d %d", &a, &b, &c, &d), 4);
    sample("run --ids --prompt '3 4' --length 1", output);
    ck_assert_int_eq(sscanf(output, "%d %d %d %d", &a, &b, &c, &d), 3);
}

/* Not at a digit of another id; at the first of several. */
TEST(ids_stop_before_ids)
{
    static const char begin[] = "ids_run --prompt '3 4' --length 60 --temperature 3 ";
    char whole[PROGRAM_OUTPUT], line[256], wanted[PROGRAM_OUTPUT];
    sample(begin, whole);
    for (int stop = 0; stop < 60; stop++) {
        char id[16];
        snprintf(id, sizeof id, " %d ", stop);
        const char *first = strstr(whole + 3, id), *other = strstr(whole + 3, " 59 ");
        const char *end = first && (!other || first < other) ? first : other;
        const int length = end ? (int)(end + 1 - whole) : (int)strlen(whole) - 1;
        snprintf(wanted, sizeof wanted, "%.*s\n", length, whole);
        snprintf(line, sizeof line, "%s --stop '59,%d'", begin, stop);
        sample(line, output);
        ck_assert_str_eq(output, wanted);
    }
    sample("run --ids --prompt '3 4' --length 9 --stop 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14", output);
    ck_assert_str_eq(output, "3 4 \n");
}

static const refused_call bad[] = {
    {"", "--model DIR is missing"},
    {"run more", "more is not an option"},
    {"run --prompt a --prompt-file b", "--prompt and --prompt-file cannot be used together"},
    {"run --stop ''", "--stop must not be empty"},
    {"run --temperature 0 --top-k 3", "--top-k has no effect with --temperature 0"},
    {"run --temperature 0 --top-p 0.5", "--top-p has no effect with --temperature 0"},
    {"run --text x", "did you mean --prompt?"},
    {"run --tokens 3", "did you mean --length?"},
    {"run --length 0 --temperature 1", "--temperature has no effect with --length 0"},
    {"run --length 0 --stop x", "--stop has no effect with --length 0"},
    {"run --tf32 --device cpu", "--tf32 is for a GPU"},
    {"run --prompt a --prompt b", "--prompt is given twice, wanted once"},
    {"run --model run", "--model is given twice, wanted once"},
    {"run --top-p 1.5", "--top-p is \"1.5\", wanted a number from 0 to 1"},
    {"run --length -1", "--length is \"-1\""},
    {"run --samples 0", "--samples is \"0\""},
    {"run --config /dev/zero", "--config /dev/zero: it is a device, wanted a file"},
};

LOOP_TEST(bad_options_are_named, sizeof bad / sizeof *bad)
{
    program_refuses("gradus-sample", 2, &bad[_i]);
}

static const refused_call unusable[] = {
    {"run --tf32 --dtype f64", "--tf32 needs --dtype f32"},
    {"nowhere", "--model nowhere: No such file or directory"},
    {".", "--model .: it has neither a model (config.json) nor a complete checkpoint (step-N)"},
    {"text", "--model text: Not a directory"},
    {"run --prompt x", "byte 0 of the prompt is 120 ('x'), which is not in"},
    {"run --prompt-file nothing", "--prompt-file nothing: No such file"},
    {"run --prompt-file .", "--prompt-file .: Is a directory"},
    {"run --prompt-file /dev/zero", "--prompt-file /dev/zero: it is a device, wanted a file"},
    {"ids_run --prompt '3 60'", "the prompt has \"60\", wanted a token id"},
    {"ids_run --prompt '3 x'", "the prompt has \"x\", wanted"},
    {"ids_run --prompt '-3'", "the prompt has \"-3\", wanted"},
    {"ids_run --prompt x", "ids_run/step-00000005 has no tokenizer.json"},
    {"run --ids --stop 15", "--stop has \"15\", wanted a token id, a whole number from 0 to 14"},
    {"run --ids --stop '3 x'", "--stop has \"x\", wanted a token id"},
    {"run --ids --stop ' '", "--stop has no token id"},
    {"ids_run --stop end", "--stop has \"end\", wanted a token id"},
    {"ids_run --prompt-file zero", "the prompt has \"\", wanted"},
    {"run/step-00000040 --length 3 >/dev/full", "cannot write to stdout: No space left on device"},
};

LOOP_TEST(unusable_files_are_named, sizeof unusable / sizeof *unusable)
{
    program_refuses("gradus-sample", 1, &unusable[_i]);
}

TEST(a_checkpoint_that_is_not_whole_is_passed_over)
{
    shell("cp -r run half && rm half/step-*40/config.json");
    sample_aloud("half --length 5", output);
    program_said(output, "gradus-sample: the model is half/step-00000020\n");
    program_said(output,
                 "gradus-sample: half/step-00000040 is skipped: there is no config.json in half/");
}

/* The last four bytes of the weights become a NaN. */
TEST(nonfinite_logits_are_reported)
{
    char command[512];
    shell("cp -r run/step-00000040 nan && rm -f nan/checksums.xxh3 && "
          "truncate -s -4 nan/model.safetensors && "
          "printf '\\000\\000\\300\\177' >>nan/model.safetensors");
    static const char *const ways[] = {"", "--temperature 0", "--top-k 3", "--samples 3"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(command, sizeof command, "nan --length 9 %s", ways[i]);
        ck_assert_int_eq(program_run_other("gradus-sample", command, output), 1);
        program_said(output, "gradus-sample: the logits are not finite (");
        ck_assert_int_eq(count_lines(output), 2); /* what there is of the text; the message */
    }
    ck_assert_int_eq(program_run_other("gradus-eval", "nan --json", output), 1);
    program_said(output, "\"loss\": null");
    program_said(output, "gradus-eval: the loss is not finite (");
}

TEST(help_is_complete)
{
    sample("--help", output);
    program_said(output, "Usage: gradus-sample DIR [OPTION...]");
    static const char *const names[] = {"model", "prompt", "length", "temperature", "top-k",
                                        "top-p", "seed",   "device", "threads",     "dtype"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) program_said(output, names[i]);
    sample("--version", output);
    ck_assert_str_eq(output, "gradus-sample " GD_VERSION_STRING "\n");
}

CHECK_MAIN_AROUND(program_missing("gradus-sample"), "gradus-sample", set_up, leave_folder)
