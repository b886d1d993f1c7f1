/* bits.c - prints a hash of every tensor that the library's ops and optimizers compute, for
 * scripts/bits, which compares two builds.
 *
 *   bits [--device cuda] [OP...]            OP CASE DTYPE LAYOUT TENSOR COUNT HASH
 *   bits [--device cuda] --values [OP...]   the numbers instead of the hash, one a line
 *
 * It needs only public calls, and draws its numbers itself, so that it can be linked with any
 * version of the library. An OP may also be the name of an optimizer. */
#include "gradus/gradus.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUTS = 8 };

static bool values;
static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* ---- Random numbers: splitmix64 ------------------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static double uniform(uint64_t stream, int64_t i)
{
    return (double)(mix(mix(stream) + (uint64_t)i) >> 11) * 0x1p-53;
}

/* A sum of uniform numbers instead of a logarithm and a cosine, which C libraries round
 * differently. */
static double normal(uint64_t stream, int64_t i)
{
    double sum = -6;
    for (int k = 0; k < 12; k++) sum += uniform(stream, 12 * i + k);
    return sum;
}

static double fill(const gd_case_input *in, uint64_t stream, int64_t i)
{
    switch (in->fill) {
    case GD_FILL_UNIFORM:
        return in->a + (in->b - in->a) * uniform(stream, i);
    case GD_FILL_CONSTANT:
        return in->a;
    case GD_FILL_INDEX:
        return floor(in->a + (in->b - in->a) * uniform(stream, i));
    case GD_FILL_NORMAL:
        return in->a + (in->b == 0 ? 1 : in->b) * normal(stream, i);
    case GD_FILL_DISTINCT:
        break;
    }
    return normal(stream, i);
}

/* ---- Printing ------------------------------------------------------------------------------ */

static double *numbers(int64_t count)
{
    double *n = malloc(((size_t)count + 1) * sizeof *n);
    if (!n) {
        fprintf(stderr, "bits: out of memory\n");
        exit(1);
    }
    return n;
}

/* All NaN are equal: which operand's sign and payload a sum keeps is the processor's business. */
static void print_tensor(const char *where, const char *name, const gd_tensor *t)
{
    const int64_t count = t ? gd_tensor_count(t) : 0;
    double *value = numbers(count);
    if (t) gd_tensor_read_f64(t, value, count);
    uint64_t hash = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t word = 0x7ff8000000000000;
        if (!isnan(value[i])) memcpy(&word, &value[i], sizeof word);
        hash = mix(hash ^ word);
        if (values) printf("%s %s %" PRId64 " %.17g\n", where, name, i, value[i]);
    }
    if (!values) printf("%s %s %" PRId64 " %016" PRIx64 "\n", where, name, count, hash);
    free(value);
}

/* ---- Ops ----------------------------------------------------------------------------------- */

/* The leaf of an input, in which its rows have gaps if it is `strided`: one element before each and
 * two after it. *input is the tensor without the gaps. */
static gd_tensor *make_input(gd_context *ctx, const gd_case_input *in, gd_dtype dtype,
                             uint64_t stream, bool strided, gd_tensor **input)
{
    const bool index = in->fill == GD_FILL_INDEX;
    const int64_t row = in->ndim ? in->shape[in->ndim - 1] : 1;
    int64_t shape[GD_MAX_DIMS], count = 1;
    strided = strided && in->ndim > 0;
    memcpy(shape, in->shape, sizeof shape);
    if (strided) shape[in->ndim - 1] += 3;
    for (int d = 0; d < in->ndim; d++) count *= shape[d];
    double *value = numbers(count);
    for (int64_t i = 0; i < count; i++) value[i] = fill(in, stream, i);
    gd_tensor *t = gd_tensor_create(ctx, index ? GD_INT32 : dtype, in->ndim, shape);
    gd_tensor_write_f64(t, value, count);
    if (!index && !in->fixed) gd_tensor_set_requires_grad(t, true);
    *input = strided ? gd_slice(t, -1, 1, 1 + row) : t;
    free(value);
    return t;
}

static gd_tensor *make_cotangent(gd_context *ctx, const gd_tensor *y, uint64_t stream)
{
    const gd_case_input in = {.fill = GD_FILL_NORMAL, .fixed = true};
    const int64_t count = gd_tensor_count(y);
    double *value = numbers(count);
    for (int64_t i = 0; i < count; i++) value[i] = fill(&in, stream, i);
    gd_tensor *t = gd_tensor_create(ctx, gd_tensor_dtype(y), gd_tensor_ndim(y), gd_tensor_shape(y));
    gd_tensor_write_f64(t, value, count);
    free(value);
    return t;
}

/* Both passes; the second backward adds to the gradients of the first. */
static void run_case(gd_context *ctx, const gd_op *op, const gd_case *c, gd_dtype dtype,
                     bool strided)
{
    const bool backward = op->backward[GD_CPU] || op->definition;
    gd_tensor *leaf[GD_CASE_MAX_INPUTS] = {NULL}, *input[GD_CASE_MAX_INPUTS] = {NULL};
    gd_tensor *output[OUTPUTS] = {NULL}, *cotangent[OUTPUTS] = {NULL};
    char where[200], name[64];
    snprintf(where, sizeof where, "%s %s %s %s", op->name, c->name, gd_dtype_name(dtype),
             strided ? "strided" : "packed");
    gd_random_set(ctx, (gd_random_state){.seed = 5});
    for (int i = 0; i < c->inputs; i++) {
        if (c->input[i].absent) continue;
        leaf[i] = make_input(ctx, &c->input[i], dtype, 100 + (uint64_t)i, strided, &input[i]);
    }
    int outputs = 0;
    gd_apply_multi(op, input, c->inputs, c->args, output);
    while (outputs < OUTPUTS && output[outputs]) outputs++;
    for (int i = 0; i < outputs && !gd_error_status(ctx); i++) {
        snprintf(name, sizeof name, "output%d", i);
        print_tensor(where, name, gd_keep(output[i]));
        if (backward) cotangent[i] = make_cotangent(ctx, output[i], 200 + (uint64_t)i);
    }
    for (int i = 0; i < c->inputs && !gd_error_status(ctx); i++) {
        if (!input[i] || !(op->updates_inputs & GD_BIT(i))) continue;
        snprintf(name, sizeof name, "%s-updated", gd_input_name(op, i).text);
        print_tensor(where, name, input[i]);
    }
    const gd_backward_options options = {.cotangents = cotangent, .keep_tape = true};
    for (int pass = 1; pass <= 2 && backward && !gd_error_status(ctx); pass++) {
        gd_backward_from(output, outputs, &options);
        for (int i = 0; i < c->inputs && !gd_error_status(ctx); i++) {
            if (!leaf[i] || !gd_tensor_requires_grad(leaf[i])) continue;
            snprintf(name, sizeof name, "d%s%s", gd_input_name(op, i).text,
                     pass == 2 ? "-added" : "");
            print_tensor(where, name, gd_grad(leaf[i]));
        }
    }
    if (gd_error_status(ctx)) printf("%s refused: %s\n", where, gd_error(ctx));
    gd_error_clear(ctx);
    gd_step_end(ctx);
    for (int i = 0; i < outputs; i++) gd_tensor_free(cotangent[i]);
    for (int i = 0; i < c->inputs; i++) gd_tensor_free(leaf[i]);
}

static void run_op(gd_context *ctx, const gd_op *op)
{
    for (int d = 0; d < DTYPES; d++)
        for (int i = 0; i < op->case_count; i++)
            for (int strided = 0; strided < 2; strided++)
                run_case(ctx, op, &op->cases[i], dtypes[d], strided);
}

/* ---- Optimizers ---------------------------------------------------------------------------- */

#define MAKE(name, ...)                     \
    static gd_optimizer *name(gd_params *p) \
    {                                       \
        return __VA_ARGS__;                 \
    }

MAKE(make_sgd, gd_sgd_create(p, &(gd_sgd_options){.momentum = 0.9, .weight_decay = 0.1}))
MAKE(make_adamw, gd_adamw_create(p, NULL))
MAKE(make_adam, gd_adam_create(p, &(gd_adam_options){.weight_decay = 0.1}))
MAKE(make_rmsprop, gd_rmsprop_create(p, &(gd_rmsprop_options){.momentum = 0.9, .centered = true}))
MAKE(make_adagrad, gd_adagrad_create(p, NULL))
MAKE(make_lion, gd_lion_create(p, &(gd_lion_options){.weight_decay = 0.1}))
MAKE(make_muon, gd_muon_create(p, NULL))

static const struct optimizer {
    const char *name;
    gd_optimizer *(*make)(gd_params *params);
} optimizers[] = {{"sgd", make_sgd},         {"adamw", make_adamw},     {"adam", make_adam},
                  {"rmsprop", make_rmsprop}, {"adagrad", make_adagrad}, {"lion", make_lion},
                  {"muon", make_muon}};

/* Ten updates of a matrix and a vector, with gradients 2 w a, and with clipping in every second. */
static void run_optimizer(gd_context *ctx, const struct optimizer *o, gd_dtype dtype)
{
    char where[64];
    snprintf(where, sizeof where, "%s - %s -", o->name, gd_dtype_name(dtype));
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *w[] = {gd_params_add(params, "w", 2, (int64_t[]){19, 33}, GD_DECAY | GD_MUON),
                      gd_params_add(params, "b", 1, (int64_t[]){35}, 0)};
    gd_params_finish(params);
    gd_tensor *a[2];
    for (int i = 0; i < 2; i++) {
        a[i] = make_cotangent(ctx, w[i], 300 + (uint64_t)i);
        gd_tensor *first = make_cotangent(ctx, w[i], 400 + (uint64_t)i);
        gd_tensor_copy(w[i], first);
        gd_tensor_free(first);
    }
    gd_optimizer *optimizer = o->make(params);
    gd_optimizer_average(optimizer, 0.9);
    for (int step = 0; step < 10; step++) {
        gd_params_clear_grads(params);
        for (int i = 0; i < 2; i++)
            gd_backward(gd_sum(gd_mul(gd_mul(w[i], w[i]), a[i]), NULL, 0, false));
        if (step % 2) gd_clip_grad_norm(params, 1, NULL);
        gd_optimizer_step(optimizer, 0.01);
        gd_step_end(ctx);
    }
    for (int i = 0; i < 2; i++) print_tensor(where, gd_tensor_name(w[i]), w[i]);
    gd_tensor *state;
    for (int i = 0; (state = gd_optimizer_state(optimizer, i)); i++)
        print_tensor(where, gd_tensor_name(state), state);
    if (gd_error_status(ctx)) printf("%s refused: %s\n", where, gd_error(ctx));
    gd_error_clear(ctx);
    for (int i = 0; i < 2; i++) gd_tensor_free(a[i]);
    gd_optimizer_free(optimizer);
    gd_params_free(params);
}

int main(int argc, char **argv)
{
    gd_context_options options = {.threads = 1, .poison = true};
    int first = 1;
    for (; first < argc && argv[first][0] == '-'; first++) {
        if (!strcmp(argv[first], "--values")) {
            values = true;
        } else if (first + 1 < argc && !strcmp(argv[first], "--device")) {
            options.device = strcmp(argv[++first], "cuda") ? GD_CPU : GD_CUDA;
        } else {
            fprintf(stderr, "Usage: bits [--device cuda] [--values] [OP...]\n");
            return 2;
        }
    }
    gd_context *ctx = gd_context_create(&options);
    if (!ctx || gd_error_status(ctx)) {
        fprintf(stderr, "bits: %s\n", ctx ? gd_error(ctx) : "out of memory");
        gd_context_free(ctx);
        return 1;
    }
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(ctx, i)); i++) {
        bool wanted = first == argc;
        for (int k = first; k < argc; k++) wanted |= !strcmp(argv[k], op->name);
        if (wanted) run_op(ctx, op);
    }
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        bool wanted = first == argc;
        for (int k = first; k < argc; k++) wanted |= !strcmp(argv[k], optimizers[i].name);
        for (int d = 0; d < DTYPES && wanted; d++) run_optimizer(ctx, &optimizers[i], dtypes[d]);
    }
    gd_context_free(ctx);
    return fflush(stdout) || ferror(stdout);
}
