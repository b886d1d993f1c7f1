/* test_gradcheck_program.c - the program gradus-gradcheck, run as a user would. */
#define _POSIX_C_SOURCE 200809L /* popen */
#include "check_main.h"
#include "gradus/gradus.h"
#include "json.h"
#include "program.h"

#include <unistd.h>

static char again[PROGRAM_OUTPUT];

/* ---- What there is ------------------------------------------------------------------------ */

TEST(list_names_every_op)
{
    program_must(0, "--list", output);
    const gd_op *op;
    const char *line = output;
    int i = 0;
    for (; (op = gd_op_at(NULL, i)); i++) {
        char name[64], formula[512];
        int cases = 0;
        ck_assert_msg(sscanf(line, "%63s %d cases %511[^\n]", name, &cases, formula) == 3, "%.80s",
                      line);
        ck_assert_str_eq(name, op->name);
        ck_assert_int_eq(cases, op->case_count);
        ck_assert_str_eq(formula, op->formula);
        line = strchr(line, '\n') + 1;
    }
    ck_assert_int_ge(i, 40);
    ck_assert_str_eq(line, "");
}

TEST(help_and_version)
{
    static const char *const options[] = {
        "--case",    "--dtype",  "--device", "--seed",  "--seeds",   "--input",
        "--at",      "--step",   "--load",   "--order", "--threads", "--json",
        "--verbose", "--record", "--list",   "--help",  "--version"};
    char wanted[64];
    program_must(0, "--help", output);
    program_must(0, "swiglu -h", again);
    ck_assert_str_eq(output, again);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) program_said(output, options[i]);
    snprintf(wanted, sizeof wanted, "gradus-gradcheck %s\n", gd_version());
    program_must(0, "--version", output);
    ck_assert_str_eq(output, wanted);
}

/* ---- An op of a shared object --------------------------------------------------------------- */

TEST(a_loaded_op_is_checked)
{
    const char *path = GRADUS_PROGRAM;
    char cube[1024], arguments[1200];
    snprintf(cube, sizeof cube, "%.*s/examples/cube.so", (int)(strrchr(path, '/') - path), path);
    program_must(2, "--load /dev/null", output);
    program_said(output, "gradus-gradcheck: --load /dev/null: ");
    if (access(cube, R_OK)) return; /* a build without examples */
    for (int order = 1; order <= 3; order++) {
        snprintf(arguments, sizeof arguments, "--load '%s' --order %d", cube, order);
        program_must(0, arguments, output);
        program_said(output, "cube           3x5                      x          [3, 5]");
        program_said(output, "\n1 ops, ");
    }
    snprintf(arguments, sizeof arguments, "mul cube --load '%s'", cube);
    program_must(0, arguments, output);
    program_said(output, "\n2 ops, ");
    snprintf(arguments, sizeof arguments, "cube --case 4x4 --load '%s'", cube);
    program_must(2, arguments, output);
    program_said(output, "cube has no case 4x4; it has 3x5");
    program_must(2, "cube", output);
    program_said(output, "there is no op cube");
}

/* ---- What it checks ----------------------------------------------------------------------- */

LOOP_TEST(everything_passes, !test_brief() ? 1 : 0)
{
    program_must(0, "--record", output);
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        char begin[80];
        snprintf(begin, sizeof begin, "\n%-14s ", op->name);
        if (i > 0) program_said(output, begin);
    }
    long long ops, checks, compared, pass, empty;
    const char *end = strstr(output, "\nlargest relative error ");
    ck_assert_ptr_nonnull(end);
    ck_assert_double_lt(strtod(end + strlen("\nlargest relative error "), NULL), 1e-6);
    end = strstr(end, "\nlargest of smooth cases ");
    ck_assert_ptr_nonnull(end);
    end = strchr(end + 1, '\n');
    ck_assert_int_eq(sscanf(end + 1,
                            "%lld ops, %lld checks, %lld elements compared: %lld PASS, "
                            "%lld EMPTY\n",
                            &ops, &checks, &compared, &pass, &empty),
                     5);
    /* A line for each check, and three that sum up. */
    ck_assert_int_eq(checks, count_lines(output) - 3);
    ck_assert_int_eq(checks, pass + empty);
    ck_assert_int_gt(compared, 10000);
}

TEST(one_op_and_one_case)
{
    program_must(0, "swiglu", output);
    program_said(output,
                 "swiglu         3x17                     gate       [3, 17]          PASS");
    program_said(output,
                 "swiglu         3x17                     up         [3, 17]          PASS");
    program_said(output, "1 ops, 12 checks, 594 elements compared: 9 PASS, 3 EMPTY\n");
}

TEST(a_case_of_one_op)
{
    program_must(0, "swiglu --case 3x17", output);
    ck_assert_int_eq(count_lines(output), 3);
    program_must(0, "swiglu --case 3x17 --input up", output);
    ck_assert_int_eq(count_lines(output), 2);
    program_must(0, "swiglu --case 3x17 --input up --at 50", output);
    program_said(output, "PASS  1 compared");
    program_must(0, "relu --case scalar --input x --at 0", output);
    program_said(output, "PASS  1 compared");
    /* Cases without that input are left out: no VACUOUS, which would be status 1. */
    program_must(0, "rms_norm --input=bias", output);
    ck_assert_ptr_null(strstr(output, "VACUOUS"));
    program_said(output,
                 "rms_norm       bias                     bias       [17]             PASS");
    /* Of all ops, those that have a case of that name. */
    program_must(0, "--case 3x17", output);
    program_said(output, "1 ops, 2 checks, 102 elements compared: 2 PASS\n");
}

TEST(dtypes)
{
    static const char *const names[][2] = {
        {"f64", "float64"}, {"f32", "float32"}, {"f16", "float16"}, {"bf16", "bfloat16"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char arguments[96];
        snprintf(arguments, sizeof arguments, "rms_norm --case bias --dtype %s --json 2>/dev/null",
                 names[i][0]);
        program_must(0, arguments, output);
        ck_assert(json_is(json_member(output, "dtype"), names[i][1]));
        snprintf(arguments, sizeof arguments, "rms_norm --case bias --dtype %s --json 2>/dev/null",
                 names[i][1]);
        program_must(0, arguments, again);
        ck_assert_str_eq(output, again);
    }
}

/* The same seed draws the same numbers, another others; --seeds goes on from --seed. */
TEST(seeds)
{
    const char *second;
    program_must(0, "matmul --case rows3_inner5_cols7 --json --seed 7 2>/dev/null", output);
    program_must(0, "matmul --case rows3_inner5_cols7 --json --seed 7 2>/dev/null", again);
    ck_assert_str_eq(output, again);
    program_must(0, "matmul --case rows3_inner5_cols7 --json --seed 6 --seeds 2 2>/dev/null",
                 again);
    ck_assert_int_eq(count_lines(again), 2);
    ck_assert_ptr_nonnull(second = strchr(again, '\n') + 1);
    ck_assert_str_eq(second, output);
    ck_assert_int_ne(strncmp(again, output, strlen(output)), 0);
}

TEST(threads_change_nothing)
{
    program_must(0, "rms_norm matmul softmax --json 2>/dev/null", output);
    program_must(0, "rms_norm matmul softmax --json --threads 3 2>/dev/null", again);
    ck_assert_str_eq(output, again);
}

TEST(orders)
{
    program_must(0, "tanh softmax --order 2 --json 2>/dev/null", output);
    ck_assert(json_is(json_member(output, "verdict"), "PASS"));
    program_said(output, "\"order\": 2");
    program_said(output, "{\"name\": \"u\"");
    program_must(0, "swiglu --case 3x17 --order 3 --input u --verbose", output);
    program_said(output, "  u [3, 17]: PASS  51 compared, ");
    ck_assert_ptr_null(strstr(output, "up ["));
}

TEST(verbose_says_more)
{
    program_must(0, "swiglu --case 3x17 --verbose", output);
    program_said(output, "gradcheck swiglu  PASS  case 3x17 seed 0  cpu float64  h 1e-05 central");
    program_said(output, "  up [3, 17]: PASS  51 compared, largest error ");
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void check_input(const char *in)
{
    static const char *const numbers[] = {
        "elements",      "compared",         "kinks",    "wrong",  "inconclusive", "directions",
        "largest_error", "largest_gradient", "analytic", "numeric"};
    ck_assert_ptr_nonnull(json_member(in, "name"));
    ck_assert(json_is(json_member(in, "verdict"), "PASS") ||
              json_is(json_member(in, "verdict"), "EMPTY"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *value = json_member(in, numbers[i]);
        ck_assert_msg(value && json_number(value), "%s is no number: %.400s", numbers[i], in);
    }
    double elements = 1;
    const char *size, *shape = json_member(in, "shape");
    for (int d = 0; (size = json_item(shape, d)); d++) elements *= strtod(size, NULL);
    ck_assert(strtod(json_member(in, "elements"), NULL) == elements);
}

TEST(json_is_a_line_for_each_case)
{
    char arguments[1000] = "--json 2>/dev/null";
    const gd_op *op;
    const int each = test_brief() ? 8 : 1;
    for (int i = 0; each > 1 && (op = gd_op_at(NULL, i)); i += each)
        snprintf(arguments + strlen(arguments), 80, " %s", op->name);
    program_must(0, arguments, output);
    const char *at = output;
    for (int i = 0; (op = gd_op_at(NULL, i)); i += each) {
        for (int c = 0; c < op->case_count; c++) {
            const char *end = json_end(at);
            ck_assert_msg(*at == '{' && end && *end == '\n', "not JSON: %.200s", at);
            ck_assert(json_is(json_member(at, "op"), op->name));
            ck_assert(json_is(json_member(at, "case"), op->cases[c].name));
            ck_assert(json_is(json_member(at, "device"), "cpu"));
            ck_assert(json_is(json_member(at, "dtype"), "float64"));
            ck_assert(json_is(json_member(at, "message"), ""));
            ck_assert(strtod(json_member(at, "step"), NULL) > 0);
            const char *in;
            for (int k = 0; (in = json_item(json_member(at, "inputs"), k)); k++) check_input(in);
            at = end + 1;
        }
    }
    ck_assert_str_eq(at, "");
    /* The count goes to the other stream. */
    program_must(0, "swiglu --json >/dev/null", output);
    ck_assert_str_eq(output, "1 ops, 12 checks, 594 elements compared: 9 PASS, 3 EMPTY\n");
}

/* What the test relies on: the reader refuses what is not JSON. */
TEST(json_reader_is_strict)
{
    static const char *const good[] = {"{}", "[]",
                                       ("{\"a\": [1, -0.5e+3, \"\\u00e9\\n\"], \"b\": "
                                        "null}"),
                                       "true", "[[], {}]"};
    static const char *const bad[] = {"{",        "[1,]",    "{\"a\" 1}", "{a: 1}",     "[1 2]",
                                      "nan",      "inf",     "01",        "1.",         "-",
                                      "\"a\nb\"", "\"\\x\"", "{\"a\": }", "\"\\u12\"",  "",
                                      "[1, nan]", "\"open",  "1e",        "[\"a\" : 1]"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *end = json_end(good[i]);
        ck_assert_msg(end && !*end, "refused: %s", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *end = json_end(bad[i]);
        ck_assert_msg(!end || *end, "taken: %s", bad[i]);
    }
}

/* ---- What goes wrong ---------------------------------------------------------------------- */

TEST(a_failed_check_is_status_1)
{
    /* A step far below float32's spacing moves no input. */
    program_must(1, "rms_norm --case bias --dtype f32 --step 1e-12", output);
    program_said(output, "INCONCLUSIVE");
    program_said(output, "again: gradus-gradcheck rms_norm --case bias --seed 0 --dtype float32 "
                         "--step 1e-12 --input ");
    /* The line that it gives repeats it. */
    char line[256];
    const char *arguments = strstr(output, "again: gradus-gradcheck ") + 24;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(arguments, "\n"), arguments);
    program_must(1, line, output);
    program_said(output, "1 ops, 1 checks, 0 elements compared: 1 INCONCLUSIVE\n");
    /* Nothing compared is nothing shown. */
    program_must(1, "swiglu --case empty", output);
    program_said(output, "0 elements compared: 2 EMPTY\n");
}

static const refused_call bad[] = {
    {"nope", "there is no op nope (see --list)"},
    {"swiglu nope", "there is no op nope (see --list)"},
    {"swiglu --case nope",
     "swiglu has no case nope; it has 3x17, large_gates, one, halves_3x2x17, halves_2x3x2x16, "
     "large_halves, empty, empty_halves"},
    {"--case nope", "no op has a case nope"},
    {"--bogus", "--bogus is not an option; see --help"},
    {"--Verbos", "--Verbos is not an option; did you mean --verbose? --help lists all"},
    {"rmsnorm", "there is no op rmsnorm (see --list); did you mean rms_norm?"},
    {"softmax crossentropy",
     "there is no op crossentropy (see --list); did you mean cross_entropy?"},
    {"--list mul", "--list takes neither an OP nor another option"},
    {"--list --json", "--list takes neither an OP nor another option"},
    {"mul --json --verbose", "--verbose has no effect with --json"},
    {"mul --case 3x17 --case one", "--case is given twice, wanted once"},
    {"mul --input a --input=b", "--input is given twice, wanted once"},
    {"--list --bogus", "--bogus is not an option; see --help"},
    {"--seed 99999999999999999999",
     "--seed is \"99999999999999999999\", wanted a whole number from 0 to 9000000000000000000"},
    {"--seeds 0", "--seeds is \"0\", wanted a whole number from 1 to 9000000000000000000"},
    {"--threads 0", "--threads is \"0\", wanted a whole number from 1 to 4096"},
    {"--threads 5000", "--threads is \"5000\", wanted a whole number from 1 to 4096"},
    {"--dtype=int32", "--dtype is \"int32\", wanted f64|f32|f16|bf16"},
    {"--device gpu", "--device is \"gpu\", wanted cpu|cuda"},
    {"--order 4", "--order is \"4\", wanted a whole number from 1 to 3"},
    {"--order 2 --dtype f16", "--order 2 and 3 need --dtype f32 or f64"},
    {"--step 0", "--step is \"0\", wanted a number from 1e-300 to 1e+300"},
    {"swiglu --at 1", "--at also needs one OP, --case and --input"},
    {"swiglu --case 3x17 --input nope", "swiglu, case 3x17: gradcheck: swiglu has no input nope"},
    {"swiglu --case 3x17 --input up --at 51",
     "swiglu, case 3x17: gradcheck: swiglu: element 51 is not in up [3, 17]"},
    {"tanh --case odd --order 2 --input u --at 105", "tanh: element 105 is not in u [3, 5, 7]"},
    {"swiglu --case one --input up --at 1", "element 1 is not in up []"},
    {"swiglu --case 3x17 --input up --at 1,2", "--at is \"1,2\", wanted a whole number"},
};

LOOP_TEST(bad_calls_are_named, sizeof bad / sizeof *bad)
{
    program_refuses("gradus-gradcheck", 2, &bad[_i]);
}

/* Where there is a GPU, the op passes on it, or has no kernel for it. */
TEST(cuda_is_there_or_missed)
{
    int status = program_run("swiglu --device cuda", output);
    if (strncmp(output, "gradus-gradcheck: no CUDA device: ", 34)) {
        int wanted = strstr(output, "UNSUPPORTED") ? 1 : 0;
        ck_assert_msg(status == wanted, "exit status %d\n%s", status, output);
    } else {
        ck_assert_int_eq(status, 2);
        ck_assert_int_eq(count_lines(output), 1);
    }
}

TEST(a_full_disk_is_noticed)
{
    FILE *full = fopen("/dev/full", "w");
    if (!full) return; /* not on this system */
    fclose(full);
    program_must(2, "swiglu >/dev/full", output);
    ck_assert_str_eq(output, "gradus-gradcheck: cannot write to stdout: No space left on device\n");
}

CHECK_MAIN_UNLESS(program_missing("gradus-gradcheck"), "gradcheck_program", NULL, NULL)
