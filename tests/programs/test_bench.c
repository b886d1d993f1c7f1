/* test_bench.c - the program gradus-bench, run as a user would, on sizes too small to measure
 * anything: that it runs, and what it prints. No figure is judged. */
#define _POSIX_C_SOURCE 200809L /* popen */
#include "check_main.h"
#include "gradus/gradus.h"
#include "json.h"
#include "program.h"

#include <math.h>

/* It prints so many lines of JSON, the first of which has this name, and a figure above 0. */
static void prints_json(const char *arguments, int lines, const char *name, const char *figure)
{
    program_must(0, arguments, output);
    ck_assert_int_eq(count_lines(output), lines);
    ck_assert_ptr_eq(json_end(output), strchr(output, '\n'));
    ck_assert(json_is(json_member(output, "name"), name));
    ck_assert(strtod(json_member(output, figure), NULL) > 0);
}

TEST(help_names_benchmarks_and_options)
{
    static const char *const words[] = {
        "  rms_norm ",    "  add_rms_norm ", "  step ",      "  --rows M",     "  --cols N",
        "  --dtype f32|", "  --heads H",     "  --tsv FILE", "  --model NAME", "  --batch B",
        "  --threads T",  "  --repeats",     "  --op NAME",  "  --json ",      "  overhead "};
    static const char *const calls[] = {"--help", "-h", "rms_norm --help"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        program_must(0, calls[i], output);
        ck_assert_int_eq(strncmp(output, "Usage: gradus-bench BENCHMARK [options]\n", 40), 0);
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) program_said(output, words[k]);
    }
    program_must(2, "nope", output);
    program_said(output, "gradus-bench: unknown benchmark \"nope\"\n");
    program_must(2, "", output);
    ck_assert_int_eq(strncmp(output, "Usage: gradus-bench BENCHMARK [options]\n", 40), 0);
}

TEST(rms_norm)
{
    program_must(0, "rms_norm --rows 7 --cols 33 --repeats 2 --threads 2", output);
    program_said(output, "rms_norm float32, x [7, 33], weight [33], cpu, 2 threads, median of 2\n");
    program_said(output, "\nrms_norm_forward ");
    program_said(output, "\nrms_norm_backward ");
    program_said(output, "\ncopy (memcpy) ");
    program_must(0, "rms_norm --rows 1 --cols 1 --repeats 1 --threads 1 --dtype f64", output);
    program_said(output, "rms_norm float64, x [1, 1], ");
}

TEST(rms_norm_in_json)
{
    static const char *const names[] = {"rms_norm_forward", "rms_norm_backward", "copy"};
    program_must(0, "rms_norm --rows 7 --cols 33 --repeats 1 --threads 1 --json", output);
    const char *at = output;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *end = json_end(at);
        ck_assert_msg(*at == '{' && end && *end == '\n', "not JSON: %.200s", at);
        ck_assert(json_is(json_member(at, "name"), names[i]));
        ck_assert(strtod(json_member(at, "ms"), NULL) > 0);
        ck_assert(strtod(json_member(at, "gbps"), NULL) > 0);
        ck_assert_ptr_nonnull(json_member(at, "share"));
        at = end + 1;
    }
    ck_assert_str_eq(at, "");
}

/* A whole step of a small model: a line for each op and pass, whose shares add up. */
TEST(a_step)
{
    static const char *const lines[] = {"\nlinear                 forward ",
                                        "\nlinear                 backward ",
                                        "\nrope_attention         forward ",
                                        "\nlinear_cross_entropy   backward ",
                                        "\nrope_attention         backward",
                                        "\nadamw                  update  ",
                                        "\na step: ",
                                        "\nceilings: "};
    program_must(0, "step --batch 1 --repeats 1 --threads 2", output);
    program_said(output, "tiny float32, [1, 64] tokens, cpu, 2 threads\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) program_said(output, lines[i]);
    program_must(0, "step --batch 1 --repeats 1 --threads 2 --dtype f16", output);
    program_said(output, "tiny float16, [1, 64] tokens, cpu, 2 threads\n");
}

TEST(a_step_in_json)
{
    program_must(0, "step --batch 2 --repeats 2 --threads 1 --dtype bf16 --json", output);
    const char *at = output, *end = json_end(at);
    ck_assert(end && *end == '\n');
    ck_assert(json_is(json_member(at, "benchmark"), "step"));
    ck_assert(json_is(json_member(at, "dtype"), "bfloat16"));
    static const char *const numbers[] = {"ms",   "tokens_per_second", "peak_bytes",
                                          "loss", "ceiling_gbps",      "ceiling_tflops"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        ck_assert(strtod(json_member(at, numbers[i]), NULL) > 0);
    double shares = 0, calls = 0;
    for (at = end + 1; *at; at = end + 1) {
        end = json_end(at);
        ck_assert_msg(*at == '{' && end && *end == '\n', "not JSON: %.200s", at);
        shares += strtod(json_member(at, "share"), NULL);
        if (json_is(json_member(at, "name"), "linear"))
            calls += strtod(json_member(at, "calls"), NULL);
    }
    ck_assert_double_eq_tol(shares, 1, 0.01);
    ck_assert_double_eq(calls, 2 * 2 * 4); /* both passes, two layers, four products in each */
}

TEST(overhead)
{
    static const char *const figures[] = {"tanh not recorded ", "\ntanh forward ",
                                          "\ntanh backward ",   "\ntanh step_end ",
                                          "\nmul backward ",    "\nmlp 2-16-16-2 step "};
    program_must(0, "overhead --repeats 1 --threads 1", output);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) program_said(output, figures[i]);
    prints_json("overhead --repeats 1 --threads 1 --json", 9, "tanh not recorded", "ns");
}

TEST(layers)
{
    static const char *const names[] = {"nll_loss", "attention_short", "conv1d", "batch_norm_fixed",
                                        "index_select"};
    program_must(0, "layers --op mse_loss --repeats 1 --threads 2", output);
    program_said(output, "mse_loss          float32: forward ");
    for (size_t i = 0; i < (test_brief() ? 1 : sizeof names / sizeof *names); i++) {
        char line[80];
        snprintf(line, sizeof line, "layers --op %s --repeats 1 --threads 2 --json", names[i]);
        prints_json(line, 1, names[i], "forward_us");
        const double backward = strtod(json_member(output, "backward_us"), NULL);
        ck_assert(isfinite(backward) && backward != 0); /* below 0: less than a copy */
    }
    prints_json("layers --op one_hot --repeats 1 --threads 2 --json", 1, "one_hot", "forward_us");
    ck_assert_double_eq(strtod(json_member(output, "backward_us"), NULL), 0); /* has none */
}

TEST(optimizers)
{
    static const char *const figures[] = {"\nsgd ",     "\nadamw ",    "\nrmsprop_centered ",
                                          "\nadagrad ", "\nlion ",     "\nmuon ",
                                          "GB/s",       "the ceiling", "TFLOP/s"};
    program_must(0, "optimizers --rows 30 --cols 50 --repeats 2 --threads 1", output);
    program_said(output, "one update of 30 x 50 float32 on cpu");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) program_said(output, figures[i]);
    prints_json("optimizers --rows 9 --cols 7 --repeats 1 --dtype bf16 --json", 9, "sgd", "ms");
    prints_json("optimizers --rows 9 --cols 7 --repeats 1 --dtype f16 --json", 9, "sgd", "ms");
}

static const refused_call bad[] = {
    {"rms_norm --bogus", "--bogus is not an option; see --help\n"},
    {"rms_norm --jsno", "--jsno is not an option; did you mean --json? --help lists all\n"},
    {"rms_norm --rows 0", "--rows is \"0\", wanted a whole number from 1 to 1099511627776\n"},
    {"rms_norm --dtype f8", "--dtype is \"f8\", wanted f32|f64|bf16|f16|tf32|mixed\n"},
    {"layers --dtype f16", "--dtype bf16 and f16 need step, optimizers or --device cuda\n"},
    {"rms_norm --threads 5000", "--threads is \"5000\", wanted a whole number from 1 to 4096\n"},
    {"rms_norm --repeats 0", "--repeats is \"0\", wanted a whole number from 1 to 100000\n"},
    {"step --model huge", "unknown model \"huge\", wanted tiny, toy, small"},
    {"step --batch 0", "--batch is \"0\", wanted a whole number from 1 to 1048576\n"},
    {"step --rows 4", "--rows and --cols are for rms_norm, add_rms_norm and optimizers\n"},
    {"step --dtype tf32", "--dtype tf32 needs layers or step, --device cuda\n"},
    {"layers --model toy", "--model and --batch are for step\n"},
    {"step --ladder", "--ladder needs rms_norm --device cuda\n"},
    {"rms_norm --device cuda --ladder --json", "--tsv and --json are not for --ladder\n"},
    {"step --device cuda --heads 8", "--heads needs rms_norm or add_rms_norm, "},
    {"step --quick", "--quick needs rms_norm or add_rms_norm, --device cuda\n"},
    {"add_rms_norm", "add_rms_norm needs --device cuda\n"},
    {"add_rms_norm --device cuda --ladder", "--ladder needs rms_norm --device cuda\n"},
    {"rms_norm --heads 8", "--heads needs rms_norm or add_rms_norm, --device cuda\n"},
    {"rms_norm --tsv figures", "--tsv needs rms_norm or add_rms_norm, "},
    {"rms_norm --dtype mixed", "--dtype mixed needs rms_norm or add_rms_norm, "},
    {"rms_norm --dtype bf16", "--dtype bf16 and f16 need step, optimizers or --device cuda\n"},
    {"layers --rows 4", "--rows and --cols are for rms_norm, add_rms_norm and optimizers\n"},
    {"overhead --dtype f64", "overhead runs in f32: --dtype is not for it\n"},
    {"layers --op mull", "--op is not one of the layers\n"},
    {"step --op mish", "--op is for layers\n"},
    {"layers --op mish --op prod", "--op is given twice, wanted once\n"},
    {"rms_norm --device cuda --ladder --dtype f32", "--heads and --dtype are not for --ladder\n"},
    {"rms_norm --device cuda --quick --rows 8 --cols 8",
     "--quick is for the table of sizes, not for --rows and --cols\n"},
    {"rms_norm --device cuda --repeats 3",
     "--repeats is not for rms_norm and add_rms_norm on a GPU\n"},
    {"layers --quick --device cuda", "--quick needs rms_norm or add_rms_norm, "},
    {"rms_norm --device cuda --rows 8", "on a GPU, --rows and --cols go together\n"},
    {"rms_norm --device cuda --rows 12 --cols 8 --heads 5",
     "--rows must be a multiple of --heads\n"},
};

LOOP_TEST(bad_calls_are_named, sizeof bad / sizeof *bad)
{
    program_refuses("gradus-bench", 2, &bad[_i]);
}

TEST(a_full_disk_is_noticed)
{
    FILE *full = fopen("/dev/full", "w");
    if (!full) return; /* not on this system */
    fclose(full);
    program_must(1, "overhead --repeats 1 --threads 1 >/dev/full", output);
    ck_assert_str_eq(output, "gradus-bench: cannot write to stdout: No space left on device\n");
}

TEST(too_large_is_an_error)
{
    program_must(1, "rms_norm --rows 1099511627776 --cols 1099511627776", output);
    program_said(output, "gradus-bench: tensor_create: shape is [1099511627776, 1099511627776]");
}

CHECK_MAIN_UNLESS(program_missing("gradus-bench"), "bench", NULL, NULL)
