/* main.c - gradus-bench: measures kernels against ceilings that are measured beside them. */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const benchmark benchmarks[] = {
    {"rms_norm", "rms_norm forward and backward against a copy of the same tensor", bench_rms_norm},
    {"attention", "causal attention, forward and backward", bench_attention},
    {"ops", "every op, forward and backward, on the largest of its cases", bench_ops},
};

enum { BENCHMARKS = sizeof benchmarks / sizeof *benchmarks, WRONG_CALL = 2 };

static int usage(FILE *file)
{
    fprintf(file, "usage: gradus-bench BENCHMARK [options]\n\n");
    for (int i = 0; i < BENCHMARKS; i++)
        fprintf(file, "  %-10s %s\n", benchmarks[i].name, benchmarks[i].summary);
    fprintf(file,
            "\n"
            "  --rows M       rows of x (4096; on a GPU a table of sizes)\n"
            "  --cols N       columns of x (4096)\n"
            "  --dtype T      f32 (the default) or f64; rms_norm on a GPU: f32 or bf16, or both\n"
            "  --shape BxHxTxD  of attention (on a GPU a table of shapes)\n"
            "  --tf32         attention of float32 as TF32\n"
            "  --device D     cpu, or cuda (rms_norm, attention)\n"
            "  --ladder       rms_norm on a GPU: the kernels by which one gets there\n"
            "  --quick        rms_norm on a GPU: the smaller sizes alone\n"
            "  --threads T    CPU threads (what OpenMP suggests)\n"
            "  --repeats R    take the median of so many (21)\n"
            "  --op NAME      ops: this one alone\n"
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
    static const struct {
        const char *name;
        gd_dtype dtype;
    } dtypes[] = {{"f32", GD_FLOAT32}, {"f64", GD_FLOAT64}, {"bf16", GD_BFLOAT16}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(text, dtypes[i].name)) continue;
        options->dtype = dtypes[i].dtype;
        return options->dtype_given = true;
    }
    return false;
}

/* A switch, which has no value. */
static bool read_switch(bench_options *options, const char *name)
{
    if (!strcmp(name, "--json")) return options->json = true;
    if (!strcmp(name, "--tf32")) return options->tf32 = true;
    if (!strcmp(name, "--ladder")) return options->ladder = true;
    if (!strcmp(name, "--quick")) return options->quick = true;
    return false;
}

/* Names the first of the options that do not go together; NULL if all do. */
static const char *contradiction(const char *benchmark, const bench_options *o)
{
    const bool cuda = o->device == GD_CUDA, norm = !strcmp(benchmark, "rms_norm");
    const bool attention = !strcmp(benchmark, "attention");
    if (cuda && !norm && !attention) return "--device cuda is for rms_norm and attention";
    if ((o->shape[0] || o->tf32) && !attention) return "--shape and --tf32 are for attention";
    if (attention && cuda) return NULL;
    if (o->ladder && !cuda) return "--ladder wants rms_norm --device cuda";
    if (o->quick && !cuda) return "--quick wants rms_norm --device cuda";
    if (o->op && norm) return "--op is for ops";
    if (o->dtype == GD_BFLOAT16 && !cuda) return "--dtype bf16 wants --device cuda";
    if (o->dtype == GD_FLOAT64 && cuda) return "--dtype f64 is for the CPU";
    if (cuda && !o->rows != !o->cols) return "on a GPU, --rows and --cols go together";
    return NULL;
}

static bool read_shape(const char *text, int64_t *shape)
{
    char end;
    return sscanf(text, "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%c", &shape[0], &shape[1],
                  &shape[2], &shape[3], &end) == 4 &&
           shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0;
}

/* Takes one option with its value; false if it is none, or the value is wrong. */
static bool read_option(bench_options *options, const char *name, const char *value)
{
    int64_t number = 0;
    if (!strcmp(name, "--rows")) return read_count(value, INT64_C(1) << 40, &options->rows);
    if (!strcmp(name, "--cols")) return read_count(value, INT64_C(1) << 40, &options->cols);
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
    if (!strcmp(name, "--shape")) return read_shape(value, options->shape);
    if (!strcmp(name, "--dtype")) return read_dtype(value, options);
    if (!strcmp(name, "--device")) {
        options->device = !strcmp(value, "cuda") ? GD_CUDA : GD_CPU;
        return !strcmp(value, "cuda") || !strcmp(value, "cpu");
    }
    if (!strcmp(name, "--op")) {
        options->op = value;
        return gd_find_op(NULL, value) != NULL;
    }
    return false;
}

int main(int argc, char **argv)
{
    bench_options options = {.dtype = GD_FLOAT32, .repeats = 21};
    if (argc < 2) return usage(stderr);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return usage(stdout);
    for (int i = 2; i < argc; i++) {
        if (read_switch(&options, argv[i])) continue;
        if (i + 1 < argc && read_option(&options, argv[i], argv[i + 1])) {
            i++;
        } else {
            fprintf(stderr, "gradus-bench: cannot make sense of %s %s\n", argv[i],
                    i + 1 < argc ? argv[i + 1] : "");
            return WRONG_CALL;
        }
    }
    const char *bad = contradiction(argv[1], &options);
    if (bad) {
        fprintf(stderr, "gradus-bench: %s\n", bad);
        return WRONG_CALL;
    }
    if (options.device == GD_CUDA && !strcmp(argv[1], "rms_norm"))
        return bench_rms_norm_cuda(&options);
    if (!options.rows) options.rows = 4096;
    if (!options.cols) options.cols = 4096;
    for (int i = 0; i < BENCHMARKS; i++)
        if (!strcmp(argv[1], benchmarks[i].name)) return benchmarks[i].run(&options);
    fprintf(stderr, "gradus-bench: there is no benchmark \"%s\"\n\n", argv[1]);
    return usage(stderr);
}
