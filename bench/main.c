/* main.c - gradus-bench: measures kernels against ceilings measured in the same run. */
#include "bench.h"
#include "platform/process.h"
#include "programs/guess.h"
#include "programs/spin.h"
#include "programs/terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rms_norm_on_cuda(const bench_options *options)
{
    return bench_rms_norm_cuda(options, false);
}

static int add_rms_norm_on_cuda(const bench_options *options)
{
    return bench_rms_norm_cuda(options, true);
}

static const benchmark benchmarks[] = {
    {"rms_norm", "rms_norm forward and backward against a copy of the same tensor", bench_rms_norm,
     rms_norm_on_cuda},
    {"add_rms_norm", "the same with a residual, on a GPU", NULL, add_rms_norm_on_cuda},
    {"attention", "causal attention, forward and backward", bench_attention, bench_attention},
    {"ops", "every op, forward and backward, on the largest of its cases", bench_ops, NULL},
    {"layers", "layers, from convolution to LSTM, at sizes people train with", bench_layers,
     bench_layers},
    {"toys", "a step of small networks, two with gradients in their loss", bench_toys, bench_toys},
    {"overhead", "what an op on four numbers costs, and a step of a small network", bench_overhead,
     bench_overhead},
    {"optimizers", "an update by each optimizer, against a copy", bench_optimizers,
     bench_optimizers},
    {"step", "where the time of a training step goes, op by op", bench_step, bench_step},
    {"products", "the products of a step by every algorithm of cuBLASLt, on a GPU", NULL,
     bench_products},
};

enum { BENCHMARKS = sizeof benchmarks / sizeof *benchmarks, WRONG_CALL = 2 };

static int usage(FILE *file)
{
    fprintf(file, "Usage: gradus-bench BENCHMARK [options]\n\n");
    for (int i = 0; i < BENCHMARKS; i++)
        fprintf(file, "  %-12s %s\n", benchmarks[i].name, benchmarks[i].summary);
    fprintf(file,
            "\n"
            "  --rows M       rows of x (4096; on a GPU a table of sizes); optimizers: of the\n"
            "                 matrix (1024; on a GPU 4096)\n"
            "  --cols N       columns, likewise\n"
            "  --dtype T      f32 (the default) or f64; on a GPU f32, bf16 or mixed (all), or\n"
            "                 f16; attention, layers, step and products: f32, tf32 (on a\n"
            "                 GPU), bf16 or f16\n"
            "  --device D     cpu, or cuda (all but ops)\n"
            "  --heads H      rms_norm, add_rms_norm on a GPU: weights [H, N] for H heads\n"
            "  --ladder       rms_norm on a GPU: the kernels that lead to it, step by step\n"
            "  --quick        rms_norm, add_rms_norm on a GPU: only the smaller sizes\n"
            "  --tsv FILE     rms_norm, add_rms_norm on a GPU: write the figures to FILE too\n"
            "  --shape S      attention: BxHxTxD (on a GPU a table of shapes)\n"
            "  --threads T    CPU threads (OpenMP's default)\n"
            "  --repeats R    take the median of R runs (21)\n"
            "  --op NAME      ops, layers: only this one\n"
            "  --model NAME   step, products: tiny (the default), toy, small, small-50257\n"
            "                 or shakespeare\n"
            "  --batch B      step, products: sequences of a batch (the model's own number)\n"
            "  --json         one line of JSON per figure\n");
    return file == stdout ? EXIT_SUCCESS : WRONG_CALL;
}

/* A whole number of at least 1; `limit` at most. */
static bool read_count(const char *text, int64_t limit, int64_t *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    return *text && !*end && *value >= 1 && *value <= limit;
}

static bool read_dtype(const char *text, bench_options *options)
{
    options->tf32 = !strcmp(text, "tf32");
    if (options->tf32) text = "f32";
    static const struct {
        const char *name;
        gd_dtype dtype;
    } dtypes[] = {
        {"f32", GD_FLOAT32}, {"f64", GD_FLOAT64}, {"bf16", GD_BFLOAT16}, {"f16", GD_FLOAT16}};
    options->mixed = !strcmp(text, "mixed");
    if (options->mixed) return options->dtype_given = true;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(text, dtypes[i].name)) continue;
        options->dtype = dtypes[i].dtype;
        return options->dtype_given = true;
    }
    return false;
}

static const char *const switches[] = {"--json", "--ladder", "--quick"};
enum { SWITCHES = sizeof switches / sizeof *switches };

/* A switch, which has no value. */
static bool read_switch(bench_options *options, const char *name)
{
    bool *const on[SWITCHES] = {&options->json, &options->ladder, &options->quick};
    for (int i = 0; i < SWITCHES; i++)
        if (!strcmp(name, switches[i])) return *on[i] = true;
    return false;
}

/* The first option that the benchmark cannot take, or that would have no effect; NULL if there is
 * none. */
static const char *contradiction(const benchmark *b, const bench_options *o)
{
    const bool cuda = o->device == GD_CUDA, narrow = gd_dtype_size(o->dtype) == 2;
    const bool step = b->on_cuda == bench_step || b->on_cuda == bench_products;
    const bool attention = b->run == bench_attention, optimizers = b->run == bench_optimizers;
    const bool layers = b->run == bench_layers, toys = b->run == bench_toys;
    const bool norm = b->on_cuda == rms_norm_on_cuda || b->on_cuda == add_rms_norm_on_cuda;
    const struct {
        bool found;
        const char *message;
    } faults[] = {
        {cuda && !b->on_cuda, "ops does not support --device cuda"},
        {o->shape[0] && !attention, "--shape is for attention"},
        {!cuda && !b->run, "add_rms_norm and products need --device cuda"},
        {o->op && b->run != bench_ops && !layers, "--op is for ops and layers"},
        {o->op && layers && !bench_is_layer(o->op), "--op is not one of the layers"},
        {o->op && !layers && !gd_find_op(NULL, o->op), "--op is a layer, and not an op"},
        {(o->model || o->batch) && !step, "--model and --batch are for step and products"},
        {(o->rows || o->cols) && !norm && !optimizers,
         "--rows and --cols are for rms_norm, add_rms_norm and optimizers"},
        {o->ladder && !(norm && cuda && b->run), "--ladder needs rms_norm --device cuda"},
        {o->ladder && (o->tsv || o->json), "--tsv and --json are not for --ladder"},
        {o->ladder && (o->heads || o->dtype_given), "--heads and --dtype are not for --ladder"},
        {o->quick && !(norm && cuda), "--quick needs rms_norm or add_rms_norm, --device cuda"},
        {o->quick && o->rows, "--quick is for the table of sizes, not for --rows and --cols"},
        {o->heads && !(norm && cuda), "--heads needs rms_norm or add_rms_norm, --device cuda"},
        {o->tsv && !(norm && cuda), "--tsv needs rms_norm or add_rms_norm, --device cuda"},
        {o->mixed && !(norm && cuda),
         "--dtype mixed needs rms_norm or add_rms_norm, --device cuda"},
        {norm && cuda && o->repeats, "--repeats is not for rms_norm and add_rms_norm on a GPU"},
        {toys && o->dtype != GD_FLOAT32, "toys runs in f32, or tf32 with --device cuda"},
        {o->tf32 && !(cuda && (step || attention || layers || toys)),
         "--dtype tf32 needs attention, layers, toys, step or products, --device cuda"},
        {b->run == bench_overhead && o->dtype_given, "overhead runs in f32: --dtype is not for it"},
        {narrow && !cuda && !step && !optimizers,
         "--dtype bf16 and f16 need step, optimizers or --device cuda"},
        {o->dtype == GD_FLOAT64 && cuda, "--dtype f64 is for the CPU"},
        {cuda && !o->rows != !o->cols, "on a GPU, --rows and --cols go together"},
        {o->heads && o->rows % o->heads, "--rows must be a multiple of --heads"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i].found) return faults[i].message;
    return NULL;
}

static bool read_shape(const char *text, int64_t *shape)
{
    char end;
    return sscanf(text, "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%c", &shape[0], &shape[1],
                  &shape[2], &shape[3], &end) == 4 &&
           shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0;
}

/* Takes one option with its value; false if the option is unknown, or the value is invalid. */
static bool read_option(bench_options *options, const char *name, const char *value)
{
    int64_t number = 0;
    if (!strcmp(name, "--rows")) return read_count(value, INT64_C(1) << 40, &options->rows);
    if (!strcmp(name, "--cols")) return read_count(value, INT64_C(1) << 40, &options->cols);
    if (!strcmp(name, "--heads")) return read_count(value, INT64_C(1) << 20, &options->heads);
    if (!strcmp(name, "--threads")) {
        bool good = read_count(value, 4096, &number);
        options->threads = (int)number;
        return good;
    }
    if (!strcmp(name, "--repeats")) {
        bool good = read_count(value, 100000, &number);
        options->repeats = (int)number;
        return good;
    }
    if (!strcmp(name, "--batch")) return read_count(value, 1 << 20, &options->batch);
    if (!strcmp(name, "--model")) {
        options->model = value;
        return true;
    }
    if (!strcmp(name, "--shape")) return read_shape(value, options->shape);
    if (!strcmp(name, "--dtype")) return read_dtype(value, options);
    if (!strcmp(name, "--device")) {
        options->device = !strcmp(value, "cuda") ? GD_CUDA : GD_CPU;
        return !strcmp(value, "cuda") || !strcmp(value, "cpu");
    }
    if (!strcmp(name, "--tsv")) {
        options->tsv = value;
        return *value;
    }
    if (!strcmp(name, "--op")) {
        options->op = value;
        return gd_find_op(NULL, value) || bench_is_layer(value);
    }
    return false;
}

/* Whether a text was given, of which there can be one; the last of several numbers counts. */
static bool is_set(const bench_options *o, const char *name)
{
    return (!strcmp(name, "--model") && o->model) || (!strcmp(name, "--op") && o->op) ||
           (!strcmp(name, "--tsv") && o->tsv) || (!strcmp(name, "--shape") && o->shape[0]);
}

/* After an option that read_option does not take; value NULL: there is none. */
static int refuse(const char *name, const char *value)
{
    static const char rows[] = "a whole number from 1 to 1099511627776";
    static const char *const wanted[][2] = {
        {"--rows", rows},
        {"--cols", rows},
        {"--heads", "a whole number from 1 to 1048576"},
        {"--threads", "a whole number from 1 to 4096"},
        {"--repeats", "a whole number from 1 to 100000"},
        {"--batch", "a whole number from 1 to 1048576"},
        {"--model", "the name of a model"},
        {"--shape", "four whole numbers from 1, like 8x12x1024x64"},
        {"--dtype", "f32, f64, tf32, bf16, f16 or mixed"},
        {"--device", "cpu or cuda"},
        {"--tsv", "the name of a file"},
        {"--op", "the name of an op"}};
    const size_t known = sizeof wanted / sizeof *wanted;
    size_t i = 0;
    while (i < known && strcmp(name, wanted[i][0]) != 0) i++;
    guess g = guess_begin(name);
    for (size_t k = 0; k < known; k++) guess_try(&g, wanted[k][0] + 2, wanted[k][0]);
    for (size_t k = 0; k < SWITCHES; k++) guess_try(&g, switches[k] + 2, switches[k]);
    if (i == known && g.name)
        terminal_message("gradus-bench", "unknown option %s (see --help); did you mean %s?", name,
                         g.name);
    else if (i == known)
        terminal_message("gradus-bench", "unknown option %s (see --help)", name);
    else if (!value)
        terminal_message("gradus-bench", "%s needs a value (see --help)", name);
    else
        terminal_message("gradus-bench", "%s is \"%s\", wanted %s", name, value, wanted[i][1]);
    return WRONG_CALL;
}

static const benchmark *find_benchmark(const char *name)
{
    for (int i = 0; i < BENCHMARKS; i++)
        if (!strcmp(name, benchmarks[i].name)) return &benchmarks[i];
    return NULL;
}

static int run(int argc, char **argv)
{
    bench_options options = {.dtype = GD_FLOAT32};
    if (argc < 2) return usage(stderr);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return usage(stdout);
    const benchmark *chosen = find_benchmark(argv[1]);
    if (!chosen) {
        terminal_message("gradus-bench", "unknown benchmark \"%s\"", argv[1]);
        fputc('\n', stderr);
        return usage(stderr);
    }
    for (int i = 2; i < argc; i++) {
        if (read_switch(&options, argv[i])) continue;
        const char *value = argv[i + 1];
        if (is_set(&options, argv[i])) {
            terminal_message("gradus-bench", "%s is given twice, wanted once", argv[i]);
            return WRONG_CALL;
        }
        if (!value || !read_option(&options, argv[i], value)) return refuse(argv[i], value);
        i++;
    }
    const char *bad = contradiction(chosen, &options);
    if (bad) {
        terminal_message("gradus-bench", "%s", bad);
        return WRONG_CALL;
    }
    if (!options.repeats) options.repeats = 21;
    if (options.device == GD_CUDA) return chosen->on_cuda(&options);
    const int64_t usual = chosen->run == bench_optimizers ? 1024 : 4096;
    if (!options.rows) options.rows = usual;
    if (!options.cols) options.cols = usual;
    return chosen->run(&options);
}

int main(int argc, char **argv)
{
    spin_briefly(argv);
    argv = gd_os_begin(argv);
    const int status = run(argc, argv);
    const bool flushed = !fflush(stdout);
    if (flushed && !ferror(stdout)) return status;
    fprintf(stderr, "gradus-bench: cannot write to stdout: %s\n",
            flushed ? "some output was lost" : strerror(errno));
    return EXIT_FAILURE;
}
