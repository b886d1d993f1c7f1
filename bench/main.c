/* main.c - gradus-bench: measures kernels against ceilings measured in the same run. */
#include "bench.h"
#include "platform/process.h"
#include "programs/options.h"
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
    {"layers", "ops, from sums to LSTM, at sizes people train with", bench_layers, bench_layers},
    {"overhead", "what an op on four numbers costs, and a step of a small network", bench_overhead,
     bench_overhead},
    {"optimizers", "an update by each optimizer, against a copy", bench_optimizers,
     bench_optimizers},
    {"step", "where the time of a training step goes, op by op", bench_step, bench_step},
};

enum { BENCHMARKS = sizeof benchmarks / sizeof *benchmarks, WRONG_CALL = 2 };

/* ---- The command line ----------------------------------------------------------------------- */

typedef struct command {
    options base;
    const char *benchmark;
    int dtype;
    int64_t repeats;
    bench_options bench;
} command;

#define AT(field) offsetof(command, field)

static const option_row rows[OPTIONS_MOST] = {
    {OPTION_TEXT, "benchmark", AT(benchmark), .help = "NAME  \"--benchmark\" may be left out"},
    {OPTION_WHOLE, "rows", AT(bench.rows), NULL, 1, 1099511627776,
     .help = "M  of x (4096; on a GPU a table of sizes); optimizers: of the matrix (1024; on a GPU "
             "4096)"},
    {OPTION_WHOLE, "cols", AT(bench.cols), NULL, 1, 1099511627776, .help = "N  likewise"},
    {OPTION_CHOICE, "dtype", AT(dtype),
     .help = "f32|f64|bf16|f16|tf32|mixed  f32 (the default) or f64; on a GPU f32, bf16 or mixed "
             "(all), "
             "or f16; layers and step: f32, tf32 (on a GPU), bf16 or f16"},
    {OPTION_CHOICE, "device", AT(base.device), "cpu", .help = "cpu|cuda  where to run"},
    {OPTION_WHOLE, "heads", AT(bench.heads), NULL, 1, 1048576,
     .help = "H  rms_norm, add_rms_norm on a GPU: weights [H, N] for H heads"},
    {OPTION_SWITCH, "ladder", AT(bench.ladder),
     .help = "  rms_norm on a GPU: the kernels that lead to it, step by step"},
    {OPTION_SWITCH, "quick", AT(bench.quick),
     .help = "  rms_norm, add_rms_norm on a GPU: only the smaller sizes"},
    {OPTION_PATH, "tsv", AT(bench.tsv),
     .help = "FILE  rms_norm, add_rms_norm on a GPU: write the figures to FILE too"},
    {OPTION_WHOLE, "threads", AT(base.threads), NULL, 1, 4096,
     .help = "T  of the CPU (OpenMP's default)"},
    {OPTION_WHOLE, "repeats", AT(repeats), NULL, 1, 100000,
     .help = "R  take the median of R runs (21)"},
    {OPTION_TEXT, "op", AT(bench.op), .help = "NAME  layers: only this one"},
    {OPTION_TEXT, "model", AT(bench.model),
     .help = "NAME  step: tiny (the default), toy, small, small-50257 or shakespeare"},
    {OPTION_WHOLE, "batch", AT(bench.batch), NULL, 1, 1048576,
     .help = "B  step: sequences of a batch (the model's own number)"},
    {OPTION_SWITCH, "json", AT(bench.json), .help = "  one line of JSON per figure"},
};

static char usage[1200] = "Usage: gradus-bench BENCHMARK [options]\n\n";
static const option_table table = {
    .program = "gradus-bench", .usage = usage, .operand = "benchmark", .rows = rows};

static void list_benchmarks(void)
{
    for (int i = 0; i < BENCHMARKS; i++) {
        const size_t used = strlen(usage);
        snprintf(usage + used, sizeof usage - used, "  %-12s %s\n", benchmarks[i].name,
                 benchmarks[i].summary);
    }
}

/* False after the message of an option that the benchmark cannot take, or that would have no
 * effect. */
static bool check(const command *c, const benchmark *b)
{
    const bench_options *o = &c->bench;
    const bool cuda = o->device == GD_CUDA, narrow = gd_dtype_size(o->dtype) == 2;
    const bool step = b->run == bench_step, optimizers = b->run == bench_optimizers;
    const bool layers = b->run == bench_layers;
    const bool norm = b->on_cuda == rms_norm_on_cuda || b->on_cuda == add_rms_norm_on_cuda;
    const options_fault faults[] = {
        {!cuda && !b->run, "add_rms_norm needs --device cuda"},
        {o->op && !layers, "--op is for layers"},
        {o->op && !bench_is_layer(o->op), "--op is not one of the layers"},
        {(o->model || o->batch) && !step, "--model and --batch are for step"},
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
        {o->tf32 && !(cuda && (step || layers)),
         "--dtype tf32 needs layers or step, --device cuda"},
        {b->run == bench_overhead && o->dtype_given, "overhead runs in f32: --dtype is not for it"},
        {narrow && !cuda && !step && !optimizers,
         "--dtype bf16 and f16 need step, optimizers or --device cuda"},
        {o->dtype == GD_FLOAT64 && cuda, "--dtype f64 is for the CPU"},
        {cuda && !o->rows != !o->cols, "on a GPU, --rows and --cols go together"},
        {o->heads && o->rows % o->heads, "--rows must be a multiple of --heads"},
        {0},
    };
    return options_fit(&c->base, faults);
}

/* Fills what is not a row's field. */
static void complete(command *c)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};
    enum { TF32 = 4, MIXED };
    bench_options *o = &c->bench;
    o->dtype_given = options_given(&c->base, "dtype");
    o->dtype = c->dtype < TF32 ? dtypes[c->dtype] : GD_FLOAT32;
    o->tf32 = c->dtype == TF32;
    o->mixed = c->dtype == MIXED;
    o->device = (gd_device)c->base.device;
    o->threads = (int)c->base.threads;
    o->repeats = (int)c->repeats;
}

static int run(command *c)
{
    const benchmark *chosen = benchmarks, *const end = benchmarks + BENCHMARKS;
    bench_options *o = &c->bench;
    if (!c->benchmark) return options_print_help(&table, stderr), WRONG_CALL;
    while (chosen < end && strcmp(c->benchmark, chosen->name) != 0) chosen++;
    if (chosen == end) {
        terminal_message(table.program, "unknown benchmark \"%s\"", c->benchmark);
        fputc('\n', stderr);
        return options_print_help(&table, stderr), WRONG_CALL;
    }
    complete(c);
    if (!check(c, chosen)) return WRONG_CALL;
    if (!o->repeats) o->repeats = 21;
    if (o->device == GD_CUDA) return chosen->on_cuda(o);
    const int64_t usual = chosen->run == bench_optimizers ? 1024 : 4096;
    if (!o->rows) o->rows = usual;
    if (!o->cols) o->cols = usual;
    return chosen->run(o);
}

int main(int argc, char **argv)
{
    command c = {0};
    (void)argc; /* argv ends with NULL */
    spin_briefly(argv);
    argv = gd_os_begin(argv);
    list_benchmarks();
    const options_outcome outcome = options_read(&c.base, &table, argv);
    const int status = outcome == OPTIONS_RUN    ? run(&c)
                       : outcome == OPTIONS_DONE ? EXIT_SUCCESS
                                                 : WRONG_CALL;
    options_free(&c.base);
    const bool flushed = !fflush(stdout);
    if (flushed && !ferror(stdout)) return status;
    fprintf(stderr, "gradus-bench: cannot write to stdout: %s\n",
            flushed ? "some output was lost" : strerror(errno));
    return EXIT_FAILURE;
}
