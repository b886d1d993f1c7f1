/* test_block.c - a whole model against an independent reference: the loss, the logits and every
 * gradient of a two-layer transformer, as PyTorch computes them in float64
 * (make_block_reference.py). Gradcheck can only say that a backward belongs to our forward; this
 * shows that both are the intended model. */
#include "check_main.h"
#include "watched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, DIM = 24, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 6, BATCH = 2, CONTEXT = 7 };

/* ---- The file ----------------------------------------------------------------------------- */

typedef struct record {
    char name[64];
    int ndim;
    int64_t shape[GD_MAX_DIMS];
    int64_t count;
    double *values;
} record;

static record records[64];
static int record_count;

/* The next word of the file, comments skipped; false at its end. */
static bool next_word(FILE *file, char *word)
{
    while (fscanf(file, "%127s", word) == 1) {
        if (word[0] != '#') return true;
        for (int c = fgetc(file); c != '\n' && c != EOF;) c = fgetc(file);
    }
    return false;
}

static void read_record(FILE *file, const char *kind)
{
    char word[128];
    ck_assert_int_lt(record_count, 64);
    record *r = &records[record_count++];
    ck_assert(next_word(file, word));
    snprintf(r->name, sizeof r->name, "%.63s", word);
    if (!strcmp(kind, "tensor")) ck_assert(next_word(file, word)); /* f64 */
    ck_assert(next_word(file, word));
    r->ndim = atoi(word);
    r->count = 1;
    for (int i = 0; i < r->ndim; i++) {
        ck_assert(next_word(file, word));
        r->shape[i] = atoll(word);
        r->count *= r->shape[i];
    }
    r->values = malloc((size_t)r->count * sizeof(double));
    for (int64_t i = 0; i < r->count; i++) {
        ck_assert(next_word(file, word));
        r->values[i] = strtod(word, NULL);
    }
}

static void read_file(void)
{
    char word[128];
    FILE *file = fopen(GRADUS_TEST_DIR "/core/block_reference.txt", "r");
    ck_assert_ptr_nonnull(file);
    while (next_word(file, word)) read_record(file, word);
    fclose(file);
    ck_assert_int_eq(record_count, 46);
}

static void forget_file(void)
{
    for (int i = 0; i < record_count; i++) free(records[i].values);
    record_count = 0;
}

static const record *find(const char *name)
{
    for (int i = 0; i < record_count; i++) {
        if (!strcmp(records[i].name, name)) return &records[i];
    }
    ck_abort_msg("the reference has no %s", name);
    return NULL;
}

/* ---- The model ---------------------------------------------------------------------------- */

static gd_tensor *parameters[64];
static int parameter_count;

static gd_tensor *make(gd_context *ctx, const record *r, gd_dtype dtype)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, r->ndim, r->shape);
    gd_tensor_write_f64(t, r->values, r->count);
    gd_tensor_set_name(t, r->name);
    return t;
}

static gd_tensor *parameter(gd_context *ctx, gd_dtype dtype, int layer, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, layer < 0 ? "%.0d%s" : "layers.%d.%s", layer < 0 ? 0 : layer, name);
    gd_tensor *t = make(ctx, find(full), dtype);
    gd_tensor_set_requires_grad(t, true);
    return parameters[parameter_count++] = t;
}

static gd_tensor *heads(gd_tensor *x, int64_t count)
{
    return gd_reshape(x, 4, (int64_t[]){BATCH, CONTEXT, count, HEAD_DIM});
}

static gd_tensor *attention(gd_context *ctx, gd_dtype dtype, int layer, gd_tensor *h)
{
    gd_tensor *q = gd_linear(h, parameter(ctx, dtype, layer, "wq"), NULL);
    gd_tensor *k = gd_linear(h, parameter(ctx, dtype, layer, "wk"), NULL);
    gd_tensor *v = gd_linear(h, parameter(ctx, dtype, layer, "wv"), NULL);
    gd_attention_options causal = {.causal = true};
    gd_tensor *y = gd_attention(gd_rope(heads(q, HEADS), NULL), gd_rope(heads(k, KV_HEADS), NULL),
                                heads(v, KV_HEADS), &causal);
    y = gd_reshape(y, 3, (int64_t[]){BATCH, CONTEXT, HEADS * HEAD_DIM});
    return gd_linear(y, parameter(ctx, dtype, layer, "wo"), NULL);
}

static gd_tensor *mlp(gd_context *ctx, gd_dtype dtype, int layer, gd_tensor *h)
{
    gd_tensor *gate = gd_linear(h, parameter(ctx, dtype, layer, "w_gate"), NULL);
    gd_tensor *up = gd_linear(h, parameter(ctx, dtype, layer, "w_up"), NULL);
    return gd_linear(gd_swiglu(gate, up), parameter(ctx, dtype, layer, "w_down"), NULL);
}

/* Both ways of writing residual + norm: apart, and fused. */
static gd_tensor *norm(gd_tensor *x, gd_tensor *branch, gd_tensor *weight, bool fused,
                       gd_tensor **sum)
{
    gd_rms_norm_options options = {.eps = 1e-5};
    if (branch && fused) return gd_add_rms_norm(branch, x, weight, NULL, &options, sum);
    *sum = branch ? gd_add(x, branch) : x;
    return gd_rms_norm(*sum, weight, 1e-5);
}

static gd_tensor *model(gd_context *ctx, gd_dtype dtype, bool fused)
{
    gd_tensor *tokens = make(ctx, find("tokens"), GD_INT32);
    gd_tensor *x = gd_embedding(parameter(ctx, dtype, -1, "embedding"), tokens), *branch = NULL;
    for (int layer = 0; layer < LAYERS; layer++) {
        gd_tensor *h = norm(x, branch, parameter(ctx, dtype, layer, "norm1"), fused, &x);
        branch = attention(ctx, dtype, layer, h);
        h = norm(x, branch, parameter(ctx, dtype, layer, "norm2"), fused, &x);
        branch = mlp(ctx, dtype, layer, h);
    }
    gd_tensor *h = norm(x, branch, parameter(ctx, dtype, -1, "norm_final"), fused, &x);
    return gd_linear(h, parameter(ctx, dtype, -1, "output"), NULL);
}

/* ---- The comparison ----------------------------------------------------------------------- */

/* The largest difference, relative to the largest value of the reference. */
static double difference(const gd_tensor *t, const record *r)
{
    double *values = malloc((size_t)r->count * sizeof(double)), worst = 0, scale = 0;
    ck_assert_int_eq(gd_tensor_read_f64(t, values, r->count), GD_OK);
    for (int64_t i = 0; i < r->count; i++) {
        double d = fabs(values[i] - r->values[i]);
        if (!(d <= worst)) worst = d; /* NaN too */
        if (fabs(r->values[i]) > scale) scale = fabs(r->values[i]);
    }
    free(values);
    return worst / scale;
}

static void compare(gd_device device, gd_dtype dtype, bool fused, double tolerance)
{
    gd_context *ctx = watched_context((gd_context_options){.device = device});
    read_file();
    parameter_count = 0;
    gd_tensor *logits = gd_keep(model(ctx, dtype, fused));
    gd_cross_entropy_options ignore = {.ignore_index = -100};
    gd_tensor *targets = make(ctx, find("targets"), GD_INT32);
    gd_tensor *loss = gd_cross_entropy_with(logits, targets, &ignore);
    ck_assert_msg(!gd_backward(loss), "%s", gd_error(ctx));
    ck_assert_double_le(difference(loss, find("loss")), tolerance);
    ck_assert_double_le(difference(logits, find("logits")), tolerance);
    ck_assert_int_eq(parameter_count, 21);
    for (int i = 0; i < parameter_count; i++) {
        char name[96];
        snprintf(name, sizeof name, "grad.%s", gd_tensor_name(parameters[i]));
        ck_assert_ptr_nonnull(gd_grad(parameters[i]));
        double d = difference(gd_grad(parameters[i]), find(name));
        ck_assert_msg(d <= tolerance, "%s differs by %g of its largest value", name, d);
    }
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
    forget_file();
}

TEST(in_float64)
{
    compare(GD_CPU, GD_FLOAT64, false, 1e-10);
    compare(GD_CPU, GD_FLOAT64, true, 1e-10);
}

TEST(in_float32)
{
    compare(GD_CPU, GD_FLOAT32, false, 1e-5);
    compare(GD_CPU, GD_FLOAT32, true, 1e-5);
}

TEST(on_a_gpu)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.device = GD_CUDA});
    bool missing = gd_error(ctx) != NULL;
    if (missing) printf("skipped: %s\n", gd_error(ctx));
    gd_context_free(ctx);
    for (int fused = 0; fused < 2 && !missing; fused++) {
        compare(GD_CUDA, GD_FLOAT64, fused, 1e-10);
        compare(GD_CUDA, GD_FLOAT32, fused, 1e-5);
    }
}

CHECK_MAIN("block", 0)
