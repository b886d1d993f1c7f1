/* test_train.c - the program gradus-train, run as a user would, on a text made here. */
#define _POSIX_C_SOURCE 200809L /* popen, mkdtemp */
#include "check_main.h"
#include "gradus/gradus.h"
#include "program.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEXT_BYTES = 30000, VOCAB = 17 };

/* ---- Running it --------------------------------------------------------------------------- */

static void set_up(void)
{
    enter_folder();
    write_words("text", TEXT_BYTES);
    write_words("short", 100);
    write_bytes("ab", "ab", 2);
    write_tokens("ids", 9, 3000);
    shell("mkdir empty && touch nothing");
}

/* A small model on the text; `more` adds to or overrides the arguments. Must succeed. */
static void train(const char *more, char *output)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments,
             "--data text --layers 2 --dim 32 --heads 4 --ffn 48 --context 16 --batch 8 --steps 20 "
             "--warmup 5 --lr 0.01 --log-every 1 --eval-every 0 --sample-length 0 --threads 1 %s",
             more);
    program_must(0, arguments, output);
}

typedef struct line {
    long long step, steps;
    double loss, val, norm, lr; /* val NaN: not there */
} line;

/* Reads the step lines, each of which must be one to the last character; returns how many. */
static int read_lines(const char *output, line *lines, int room)
{
    int count = 0;
    for (const char *at = output; at && *at; at = strchr(at, '\n'), at += at != NULL) {
        if (strncmp(at, "step ", 5) != 0) continue;
        line l = {.val = NAN};
        int end = 0;
        double ms, rate, memory;
        long long minutes, seconds;
        char unit[8] = "";
        sscanf(at, "step %lld/%lld | loss %lf%n", &l.step, &l.steps, &l.loss, &end);
        ck_assert_msg(end > 0, "not a step line: %.80s", at);
        const char *rest = at + end;
        end = 0;
        sscanf(rest, " | val %lf%n", &l.val, &end);
        rest += end;
        end = 0;
        sscanf(rest, " | eta %lld:%lld | %lf ms | %lf%7s tok/s | norm %lf | lr %lf | mem %lf MiB%n",
               &minutes, &seconds, &ms, &rate, unit, &l.norm, &l.lr, &memory, &end);
        if (end == 0) {
            sscanf(rest,
                   " | eta %lld:%lld | %lf ms | %lf tok/s | norm %lf | lr %lf | mem %lf MiB%n",
                   &minutes, &seconds, &ms, &rate, &l.norm, &l.lr, &memory, &end);
        }
        ck_assert_msg(end > 0 && rest[end] == '\n', "not a step line: %.120s", at);
        ck_assert(ms > 0 && rate > 0);
        ck_assert_int_lt(count, room);
        lines[count++] = l;
    }
    return count;
}

static char second[PROGRAM_OUTPUT];
static line first_lines[64], second_lines[64];

/* Both runs gave the same numbers, to the last digit printed and to the last bit of the weights. */
static void assert_same_run(const char *a, const char *b)
{
    train(a, output);
    train(b, second);
    int count = read_lines(output, first_lines, 64);
    ck_assert_int_eq(count, 20);
    ck_assert_int_eq(read_lines(second, second_lines, 64), count);
    for (int i = 0; i < count; i++) {
        ck_assert(first_lines[i].loss == second_lines[i].loss);
        ck_assert(first_lines[i].norm == second_lines[i].norm);
    }
    ck_assert_int_eq(strncmp(weights(output), weights(second), 16), 0);
}

/* ---- Options ------------------------------------------------------------------------------ */

TEST(help_names_every_option)
{
    static const char options[] =
        "data layers dim heads kv-heads ffn context batch steps lr max-seconds min-lr warmup clip "
        "weight-decay dropout tied dtype device threads seed help eval-every log-every recompute "
        "sample-length beta2 temperature skip-nonfinite out checkpoint-every keep keep-every "
        "resume init on-save-error tf32 eval-batches optimizer momentum average";
    char names[sizeof options], flag[32];
    program_must(0, "-h", second);
    program_must(0, "--help", output);
    ck_assert_str_eq(output, second);
    ck_assert_int_eq(strncmp(output, "Usage: gradus-train ", 20), 0);
    memcpy(names, options, sizeof options);
    for (const char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        snprintf(flag, sizeof flag, "--%s ", name);
        program_said(output, flag);
    }
    program_said(output, "--version\n");
}

TEST(version_is_the_librarys)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "gradus-train %s\n", gd_version());
    ck_assert_int_eq(program_run("--version", output), 0);
    ck_assert_str_eq(output, wanted);
}

static const refused_call bad[] = {
    {"", "--data FILE is missing"},
    {"--data x --layer-s 2", "--layer-s is not an option; did you mean --layers?"},
    {"--learning_rate 1e-3",
     "--learning_rate is not an option; did you mean --lr? --help lists all"},
    {"--n_layer=6", "--n_layer=6 is not an option; did you mean --layers?"},
    {"--max_iters 5", "--max_iters is not an option; did you mean --steps?"},
    {"--weight_decay 1", "--weight_decay is not an option; did you mean --weight-decay?"},
    {"--lernrate 1", "--lernrate is not an option; did you mean --lr? --help lists all"},
    {"--vocabulary 1", "--vocabulary is not an option; did you mean --vocab?"},
    {"--qwerty 1", "--qwerty is not an option; see --help"},
    {"--dropuot 1", "--dropuot is not an option; did you mean --dropout?"},
    {"-data x", "-data is not an option; did you mean --data?"},
    {"--compile", "--compile is not an option; see --help"},
    {"--lay 3", "--lay is not an option"},
    {"--bogus", "--bogus is not an option"},
    {"-z", "-z is not an option"},
    {"-zy --data x", "-zy is not an option; see --help"},
    {"--steps 3 stray", "stray is not an option; see --help"},
    {"--layers", "--layers needs a value"},
    {"--tied=1 --data x", "--tied is \"1\", wanted true or false"},
    {"--layers 0", "--layers is \"0\", wanted a whole number from 1 to 1000"},
    {"--layers 2.5", "--layers is \"2.5\", wanted a whole number"},
    {"--steps 2q", "--steps is \"2q\", wanted a whole number"},
    {"--steps ''", "--steps is \"\", wanted a whole number"},
    {"--layers ' 3'", "--layers is \" 3\", wanted a whole number"},
    {"--layers '\t3'", "--layers is \"\\x093\", wanted a whole number"},
    {"--steps -1", "--steps is \"-1\", wanted a whole number from 0"},
    {"--steps 1e400", "--steps is \"1e400\", wanted a whole number"},
    {"--batch 0x10", "--batch is \"0x10\", wanted a whole number"},
    {"--lr nan", "--lr is \"nan\", wanted a number from 0"},
    {"--lr inf", "--lr is \"inf\", wanted a number from 0"},
    {"--lr -1e-3", "--lr is \"-1e-3\", wanted a number from 0"},
    {"--dropout 1", "--dropout is \"1\", wanted a number from 0 to 0.99"},
    {"--dtype f8", "--dtype is \"f8\", wanted f32|f64|bf16|f16\n"},
    {"--device gpu", "--device is \"gpu\", wanted cpu|cuda|auto"},
    {"--data x --dim 30 --heads 4", "--dim is 30, wanted a multiple of --heads, 4\n"},
    {"--data x --dim 12 --heads 4", "--dim / --heads is 12 / 4, wanted an even number"},
    {"--data x --heads 4 --kv-heads 3", "--heads is 4, wanted a multiple of --kv-heads, 3\n"},
    {"--data x --lr 1e-3 --min-lr 1e-2", "--min-lr is 0.01, wanted at most --lr, 0.001\n"},
    {"--data x --schedule constant --min-lr 0", "--min-lr is never reached"},
    {"--data x --dtype f64 --tf32", "--tf32 needs --dtype f32"},
    {"--data x --optimizer adamax",
     "--optimizer is \"adamax\", wanted adamw|adam|sgd|rmsprop|adagrad|lion|muon\n"},
    {"--data x --optimizer lion --momentum 0.9", "--momentum is of --optimizer sgd, rmsprop"},
    {"--data x --average 1", "--average is \"1\", wanted a number from 0 to 0.999999"},
    {"--ema_decay 0.9", "--ema_decay is not an option; did you mean --average?"},
    {"--data x --optimizer sgd --beta2 0.5", "--beta2 is of --optimizer adamw, adam, rmsprop"},
    {"--data x --optimizer adagrad --beta2 0.99", "--beta2 is of --optimizer adamw, adam"},
    {"--data x --token-bytes 2", "--token-bytes is of --tokens, not of a text"},
    {"--data x --tf32 --device cpu", "--tf32 is for a GPU"},
    {"--data x --no-graph --device cpu", "--no-graph is for a GPU"},
    {"--data x --timeout 5", "--timeout is of several processes, and this run is one"},
    {"--data x --sample-length 0 --temperature 1", "--temperature has no effect with --sample-"},
    {"--data x --sample-length 0 --sample-every 9", "--sample-every has no effect with --sample-"},
    {"--data x --average 0.9", "--average needs --out DIR: without it no checkpoint is saved"},
    {"--data x --keep 3", "--keep needs --out DIR: without it no checkpoint is saved"},
    {"--data x --checkpoint-every 3", "--checkpoint-every needs --out DIR"},
    {"--data x --keep-best", "--keep-best needs --out DIR"},
    {"--data x --on-save-error stop", "--on-save-error needs --out DIR"},
    {"--data x --dry-run --out y --keep 0 --keep-every 9",
     "--keep-every has no effect with --keep 0, which keeps all"},
    {"--data x --dry-run --out y --checkpoint-every 0 --keep-every 9",
     "--keep-every has no effect with --checkpoint-every 0"},
    {"--data x --dry-run --out y --checkpoint-every 0 --on-save-error stop",
     "--on-save-error has no effect with --checkpoint-every 0: there is only the last"},
    {"--data x --log a --log b", "--log is given twice, wanted once"},
    {"--config /dev/null --config /dev/null", "--config is given twice, wanted once"},
    {"--data x --on-save-error die", "--on-save-error is \"die\", wanted continue|stop"},
    {"--data x --resume a --init b", "--resume and --init cannot be used together"},
    {"--data x --resume auto", "--resume auto needs --out DIR, the folder of the run"},
    {"--data x --tokens y", "--data and --tokens cannot be used together"},
    {"--tokens x", "--tokens needs --val-data PATTERN"},
    {"--tokens x --val-data y", "--tokens needs --vocab N"},
    {"--data x --vocab 255", "--vocab is 255, wanted at least 256"},
    {"--data x --schedule step", "--schedule is \"step\", wanted constant|linear|cosine|wsd"},
    {"--config /no/such/file", "--config /no/such/file: No such file"},
    {"--data text --config /dev/zero", "--config /dev/zero: it is a device"},
    {"--num_epochs 3", "--num_epochs is not an option; did you mean --epochs?"},
    {"--data x --epochs 3 --steps 9", "--epochs and --steps cannot be used together"},
    {"--data x --eval-every 0 --patience 2", "--patience needs --eval-every N: there is only one"},
};

LOOP_TEST(bad_options_are_named, sizeof bad / sizeof *bad)
{
    program_refuses("gradus-train", 2, &bad[_i]);
}

static const refused_call unusable[] = {
    {"--data /no/such/text", "--data /no/such/text: No such file"},
    {"--data empty", "there is no file to be read in empty"},
    {"--data nothing", "--data nothing: it is empty"},
    {"--data short", "are too few, wanted at least 65 each for a context of 64"},
    {"--data ab --context 8",
     "--data ab: 1 token for training and 1 for validation are too few, wanted"},
    {"--context 200 --data text --val-data short",
     ": --val-data short: 101 tokens are too few, wanted at least 201 for a context of 200\n"},
    {"--context 200 --data short --val-data text",
     ": --data short: 101 tokens are too few, wanted at least 201 for a context of 200\n"},
    {"--data /dev/zero", "--data /dev/zero: it is a device, wanted a file or a pipe\n"},
    {"--data /dev/null", "--data /dev/null: it is a device, wanted a file or a pipe\n"},
    {"--data text --val-data /dev/zero", "--val-data /dev/zero: it is a device"},
    {"--tokens /dev/zero --val-data x --vocab 9", "--tokens /dev/zero: it is not a regular"},
    {"--tokens ids --val-data /dev/zero --vocab 9", "--val-data /dev/zero: it is not a regular"},
};

LOOP_TEST(unusable_texts_are_named, sizeof unusable / sizeof *unusable)
{
    program_refuses("gradus-train", 1, &unusable[_i]);
}

/* Cuts the text in three and trains on the pieces, named in other ways. */
TEST(several_files_are_one_text)
{
    static const char *const ways[] = {"--data cut/1 --data cut/2 --data cut/3",
                                       "--data cut/1 cut/2 cut/3",
                                       "--data 'cut/1|cut/2|cut/3'",
                                       "--data cut",
                                       "--data 'cut/[123]'",
                                       "--data cut/1 cut/2 - <cut/3",
                                       "--data - <text",
                                       "--config names --steps 20"};
    char arguments[1024];
    shell("mkdir cut && cd cut && head -c 9999 ../text >1 && "
          "tail -c +10000 ../text | head -c 5001 >2 && tail -c +15001 ../text >3 && "
          "cat 1 2 3 | cmp - ../text && mkdir .hidden deeper && touch .x deeper/x && "
          "printf 'data = cut/1\ndata = cut/2|cut/3\n' >../names");
    train("", output);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(arguments, sizeof arguments,
                 "%s --log log --layers 2 --dim 32 --heads 4 --ffn 48 --context 16 --batch 8 "
                 "--steps 20 --warmup 5 --lr 0.01 --eval-every 0 --sample-length 0 --threads 1",
                 ways[i]);
        program_must(0, arguments, second);
        ck_assert_int_eq(strncmp(weights(output), weights(second), 16), 0);
        if (i != 6) program_said(second, " (3 files): ");
    }
    shell(
        "grep -q '\"files\": \\[\"cut/1\", \"cut/2\", \"cut/3\"\\], \"val_files\": \\[\\]' log && "
        "printf '\\303' >cut/4");
    program_must(1, "--data text --val-data cut/1 cut/4",
                 second); /* in the last of several files */
    program_said(second, "/4: byte 0 is 195, which does not occur in the training text");
    program_must(2, "--data - --val-data -", second);
    program_said(second, "--data and --val-data cannot both be -, standard input");
}

/* Nobody is kept from it. */
TEST(useless_rates_give_a_warning)
{
    train("--lr 0 --steps 6", output);
    program_said(output, "gradus-train: --lr is 0: the weights do not change\n");
    train("--steps 4", output);
    program_said(output,
                 "gradus-train: --warmup is 5, but there are 4 steps: the rate stays below");
}

TEST(write_errors_are_reported)
{
    program_must(1, "--data text --layers 1 --dim 8 --heads 2 --context 8 --steps 1 >/dev/full",
                 output);
    ck_assert_str_eq(output, "gradus-train: cannot write to stdout: No space left on device\n");
}

TEST(a_reader_that_leaves_ends_a_run_quietly)
{
    program_must(0,
                 "--data text --layers 1 --dim 8 --heads 2 --context 8 --log-every 1 "
                 "--max-seconds 60 --steps 1000000 2>told | head -n 3",
                 output); /* of head */
    ck_assert_int_eq(count_lines(output), 3);
    shell("test -e told && test ! -s told");
}

/* ---- Training ----------------------------------------------------------------------------- */

TEST(the_loss_falls)
{
    train("--eval-every 8", output);
    int count = read_lines(output, first_lines, 64);
    ck_assert_int_eq(count, 20);
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE,
                                  .rate = 0.01,
                                  .final_rate = 0.001,
                                  .steps = 20,
                                  .warmup_steps = 5};
    for (int i = 0; i < count; i++) {
        const line *l = &first_lines[i];
        ck_assert_int_eq(l->step, i + 1);
        ck_assert_int_eq(l->steps, 20);
        ck_assert(l->norm > 0);
        ck_assert_double_eq_tol(l->lr / gd_schedule_rate(&schedule, i), 1, 0.06); /* two digits */
        ck_assert(isnan(l->val) == (l->step % 8 != 0 && l->step != 20));
    }
    /* Small weights know nothing: every one of the bytes is as likely as any other. */
    ck_assert_double_eq_tol(first_lines[0].loss, log(VOCAB), 0.05);
    ck_assert_double_lt(first_lines[19].loss, first_lines[0].loss - 0.5);
    program_said(output, " MiB before the first step: parameters ");
    double final = number_after(output, "\nvalidation loss ");
    ck_assert_double_eq(final, first_lines[19].val);
    ck_assert_double_eq_tol(final, first_lines[19].loss, 0.3);
    ck_assert_double_lt(final, first_lines[15].val);
}

/* A line shows the mean loss of the steps since the one before, also of those that a validation
 * divides; the first step has one of its own. */
TEST(a_line_shows_the_mean_since_the_last)
{
    static const int steps[] = {1, 6, 8, 12, 16, 18, 20};
    enum { LINES = sizeof steps / sizeof *steps };
    train("--eval-every 8", output);
    read_lines(output, first_lines, 64);
    train("--eval-every 8 --log-every 6", second);
    ck_assert_int_eq(read_lines(second, second_lines, 64), LINES);
    for (int i = 0, step = 0; i < LINES; i++) {
        const int since = steps[i] - step;
        double sum = 0;
        for (; step < steps[i]; step++) sum += first_lines[step].loss;
        ck_assert_int_eq(second_lines[i].step, steps[i]);
        ck_assert_double_eq_tol(second_lines[i].loss, sum / since, 1.01e-4); /* four decimals */
    }
}

TEST(no_steps_is_a_model_that_knows_nothing)
{
    train("--steps 0", output);
    ck_assert_int_eq(read_lines(output, first_lines, 64), 0);
    ck_assert_double_eq_tol(number_after(output, "\nvalidation loss "), log(VOCAB), 0.02);
}

TEST(the_same_seed_repeats_and_another_does_not)
{
    assert_same_run("--dropout 0.1 --seed 3", "--dropout 0.1 --seed 3");
    train("--dropout 0.1 --seed 4", second);
    read_lines(second, second_lines, 64);
    ck_assert(first_lines[19].loss != second_lines[19].loss);
    ck_assert(strncmp(weights(output), weights(second), 16) != 0);
}

/* Wide enough for the kernels to use both threads. */
TEST(threads_change_nothing)
{
    assert_same_run("--dim 64 --context 48 --dropout 0.1", "--dim 64 --context 48 --dropout 0.1 "
                                                           "--threads 2");
}

/* Recomputing adds in another order, so the last digits may differ; dropout repeats. */
TEST(recomputing_is_the_same_model_in_less_memory)
{
    train("--layers 6 --dropout 0.1", output);
    train("--layers 6 --dropout 0.1 --recompute", second);
    ck_assert_int_eq(read_lines(output, first_lines, 64), 20);
    ck_assert_int_eq(read_lines(second, second_lines, 64), 20);
    for (int i = 0; i < 20; i++) {
        ck_assert_double_eq_tol(first_lines[i].loss, second_lines[i].loss, 2e-3);
    }
    double kept = number_after(output, "activations "),
           again = number_after(second, "activations ");
    ck_assert_double_lt(again, kept / 2);
}

/* embedding and output, final norm, and a layer's wq, wk, wv, wo, three of ffn, two norms */
static double parameters(int kv_heads, bool tied)
{
    int layer = 2 * 32 * 32 + 2 * 32 * 8 * kv_heads + 3 * 32 * 48 + 2 * 32;
    return (tied ? 1 : 2) * VOCAB * 32 + 32 + 2 * layer;
}

TEST(every_shape_of_model_learns)
{
    static const struct {
        const char *arguments;
        int kv_heads;
        bool tied;
    } rows[] = {{"--kv-heads 2", 2, false},
                {"--kv-heads 1 --tied", 1, true},
                {"--dtype f64", 4, false},
                {"--dtype f64 --tied --recompute --dropout 0.2", 4, true},
                {"--batch 1 --context 1 --lr 0.001", 4, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        train(rows[i].arguments, output);
        read_lines(output, first_lines, 64);
        const char *line = strstr(output, " parameters, ");
        ck_assert_ptr_nonnull(line);
        while (line[-1] != ' ') line--;
        ck_assert(strtod(line, NULL) == parameters(rows[i].kv_heads, rows[i].tied));
        ck_assert_double_lt(number_after(output, "\nvalidation loss "), log(VOCAB) - 0.01);
    }
}

TEST(the_time_limit_ends_a_run)
{
    train("--steps 1000000 --max-seconds 0.3 --log-every 1000000", output);
    ck_assert_int_eq(read_lines(output, first_lines, 64), 2); /* the first and the last */
    ck_assert_int_eq(first_lines[0].step, 1);
    ck_assert_int_lt(first_lines[1].step, 1000000);
    ck_assert_ptr_nonnull(strstr(output, "\nvalidation loss "));
}

TEST(a_run_that_diverges_stops)
{
    char arguments[256] = "--data text --layers 1 --dim 8 --heads 1 --context 8 --lr 1000 "
                          "--weight-decay 100 --warmup 0 --clip 0 --log-every 1 --threads 1";
    ck_assert_int_eq(program_run(arguments, output), 1);
    ck_assert_ptr_nonnull(strstr(output, "gradus-train: step "));
    ck_assert_ptr_nonnull(strstr(output, "wanted finite numbers; a lower --lr may help"));
    ck_assert_ptr_null(strstr(output, "-nan"));
    program_said(output, "; the first op whose output is not finite is #");
    ck_assert_ptr_null(strstr(output, "validation loss"));
    strcat(arguments, " --skip-nonfinite 2");
    ck_assert_int_eq(program_run(arguments, output), 1);
    const char *out = strstr(output, " is skipped: the loss is ");
    ck_assert(out && (out = strstr(out + 1, " is skipped: the loss is ")));
    ck_assert_ptr_null(strstr(out + 1, " is skipped: "));
    ck_assert_ptr_null(strstr(output, "-nan"));
}

/* ---- The sample --------------------------------------------------------------------------- */

TEST(the_sample_looks_like_the_text)
{
    train("--steps 150 --log-every 1000 --sample-length 200", output);
    const char *begin = strstr(output, "---- sample, temperature 0.8\n");
    ck_assert_ptr_nonnull(begin);
    begin = strchr(begin, '\n') + 1;
    const char *end = begin + 200;
    ck_assert_str_eq(end, "\n----\n");
    int known = 0;
    for (int w = 0; w < PROGRAM_WORDS; w++) {
        const char *word = word_of(w);
        for (const char *at = begin; (at = strstr(at, word)) && at < end; at++)
            known += (int)strlen(word);
    }
    ck_assert_msg(known > 100, "only %d of 200 characters are words of the text:\n%s", known,
                  begin);
    train("--steps 20 --sample-length 100 --temperature 0", output);
    ck_assert_ptr_nonnull(strstr(output, "---- sample, temperature 0\n"));
}

CHECK_MAIN_AROUND(program_missing("gradus-train"), "train", set_up, leave_folder)
