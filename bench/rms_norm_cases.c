/* rms_norm_cases.c - the shapes that the CUDA benchmark of the norms times, and the share of the
 * ceiling that each must reach. */
#include "rms_norm_cuda.h"

typedef struct size {
    int64_t rows, cols;
} size;

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* From short rows to wide ones, many rows and few. */
static const size rms_norm_sizes[] = {{32768, 256},  {32768, 768},   {32768, 1024},  {32768, 2048},
                                      {32768, 4096}, {32768, 8192},  {32768, 16384}, {16384, 32768},
                                      {8192, 65536}, {4096, 131072}, {2048, 262144}, {2048, 8192},
                                      {512, 4096},   {64, 4096},     {262144, 128}};
static const size add_rms_norm_sizes[] = {
    {1048576, 128}, {524288, 256}, {262144, 512}, {174720, 768}, {131072, 1024},
    {65536, 2048},  {32768, 4096}, {16384, 8192}, {8192, 16384}, {4096, 32768},
    {2048, 65536},  {16384, 768},  {4096, 4096},  {2048, 8192},  {512, 4096}};
/* Of float32 streams with bfloat16 branches. */
static const size mixed_sizes[] = {{16384, 768}, {32768, 4096}, {8192, 16384}};

/* The widths of real models, and those between where a backward was slow. */
static const int64_t model_widths[] = {2560, 2880, 3072, 3584, 5120, 7168, 12288, 14336, 18432};
static const int64_t slow_widths[] = {1152, 4224, 4480, 7424, 7680, 8448, 9216};

static const int64_t head_widths[] = {64, 80, 96, 128};

static const char sizes_title[] = "Sizes", model_title[] = "Widths of models",
                  slow_title[] = "Widths between", heads_title[] = "Per head",
                  given_title[] = "As given";

/* Rows of that width that make about 2^27 numbers. */
static int64_t rows_of(int64_t cols)
{
    return (INT64_C(1) << 27) / cols / 64 * 64;
}

/* The forward's from 64 MB of traffic on, the backward's from 2^26 numbers on; smaller ones are
 * mostly ramp-up and tail. */
static void set_targets(bench_case *c)
{
    const double count = (double)c->rows * (double)c->cols;
    const double bytes = count * (double)(gd_dtype_size(c->dtype) + gd_dtype_size(c->y_dtype)) *
                         (c->residual ? 2 : 1);
    const bool small = count < 1 << 26 || c->cols < 768 || c->table == slow_title;
    c->forward_target = bytes < 64e6 ? 0.92 : 0.97;
    c->backward_target = small ? 0.92 : c->cols >= 131072 ? 0.90 : 0.95;
    if (c->heads) c->forward_target = 0.95, c->backward_target = 0.93;
}

typedef struct list {
    const bench_options *options;
    bench_case *cases;
    int count;
    bool residual;
} list;

/* A dtype of the tables; mixed precision is one of them. */
typedef struct precision {
    gd_dtype dtype, y_dtype;
} precision;

static const precision precisions[] = {{GD_FLOAT32, GD_FLOAT32},
                                       {GD_BFLOAT16, GD_BFLOAT16},
                                       {GD_FLOAT16, GD_FLOAT16}}, /* only if it is asked for */
    mixed = {GD_FLOAT32, GD_BFLOAT16};

static bool is_asked_for(const bench_options *o, precision p)
{
    if (!o->dtype_given) return p.dtype != GD_FLOAT16;
    return o->mixed ? p.dtype != p.y_dtype : p.dtype == o->dtype && p.y_dtype == o->dtype;
}

/* Appends the shape unless the options leave it out. */
static void append(list *l, const char *table, precision p, size s, int64_t heads)
{
    const bench_options *o = l->options;
    if (!is_asked_for(o, p) || (o->quick && s.rows * s.cols > INT64_C(1) << 26)) return;
    bench_case *c = &l->cases[l->count++];
    *c = (bench_case){.table = table,
                      .dtype = p.dtype,
                      .y_dtype = p.y_dtype,
                      .rows = s.rows,
                      .cols = s.cols,
                      .heads = heads,
                      .residual = l->residual};
    set_targets(c);
}

static void append_sizes(list *l, const char *table, precision p, const size *sizes, int count)
{
    for (int i = 0; i < count; i++) append(l, table, p, sizes[i], 0);
}

static void append_widths(list *l, const char *table, precision p, const int64_t *widths, int count)
{
    for (int i = 0; i < count; i++) append(l, table, p, (size){rows_of(widths[i]), widths[i]}, 0);
}

/* x [2^20, N], with weights for all rows and for each head. */
static void append_heads(list *l, precision p)
{
    static const int64_t counts[] = {1, 8, 32};
    const int64_t asked = l->options->heads;
    for (int i = 0; i < COUNT(head_widths); i++)
        for (int k = 0; k < (asked ? 1 : COUNT(counts)); k++) {
            const int64_t heads = asked ? asked : counts[k];
            append(l, heads_title, p, (size){(1 << 20) / heads * heads, head_widths[i]}, heads);
        }
}

int bench_rms_norm_cases(const bench_options *options, bool residual, bench_case *cases)
{
    list l = {.options = options, .cases = cases, .residual = residual};
    const size given = {options->rows, options->cols};
    const bool tables = !options->rows && !options->heads;
    for (int i = 0; i < COUNT(precisions); i++) {
        if (options->rows) append(&l, given_title, precisions[i], given, options->heads);
        if (tables && !residual)
            append_sizes(&l, sizes_title, precisions[i], rms_norm_sizes, COUNT(rms_norm_sizes));
        if (tables && residual)
            append_sizes(&l, sizes_title, precisions[i], add_rms_norm_sizes,
                         COUNT(add_rms_norm_sizes));
    }
    if (options->rows && options->mixed) append(&l, given_title, mixed, given, options->heads);
    if (tables) append_sizes(&l, sizes_title, mixed, mixed_sizes, COUNT(mixed_sizes));
    for (int i = 0; i < COUNT(precisions) && tables; i++)
        append_widths(&l, model_title, precisions[i], model_widths, COUNT(model_widths));
    if (tables && !residual)
        append_widths(&l, slow_title, precisions[1], slow_widths, COUNT(slow_widths));
    for (int i = 0; i < COUNT(precisions) && !options->rows && !residual; i++)
        append_heads(&l, precisions[i]);
    return l.count;
}
