/* test_arguments.c - every function of ops.h with each of its arguments wrong in turn: it neither
 * crashes nor overflows, and its error names the function that was called, and the tensor by its
 * name there. */
#include "check_main.h"
#include "derivation.h"
#include "gradus/gradus.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct given {
    const char *name;
    gd_dtype dtype;
    bool optional;
    int ndim;
    int64_t shape[GD_MAX_DIMS];
} given;

/* How the call of a trial is wrong. Of the last three kinds an error is right, and so is none. */
typedef enum wrong { NOTHING, ABSENT, FREED, STRANGE, DTYPE, MORE_DIMS, OTHER_SIZE, VALUE } wrong;

enum { MOST_TENSORS = 8, EXTREMES = 4 };

static gd_context *ctx, *other;
static gd_tensor *t[MOST_TENSORS], *out[3];
static wrong kind;
static int at;           /* of the tensor, or the number, that is wrong */
static int extreme;      /* which value it has */
static int seen, values; /* numbers of this call, and of the good one */

/* ---- Numbers and pointers of a call, which are wrong in their turn --------------------------- */

static bool is_wrong(void)
{
    const int number = seen++;
    return kind == VALUE && number == at;
}

static int64_t N(int64_t good)
{
    static const int64_t extremes[EXTREMES] = {INT64_MIN, INT64_MAX, INT64_MIN + 1, INT64_MAX / 2};
    return is_wrong() ? extremes[extreme] : good;
}

static int I(int good)
{
    static const int extremes[EXTREMES] = {INT_MIN, INT_MAX, INT_MIN + 1, -9};
    return is_wrong() ? extremes[extreme] : good;
}

static double D(double good)
{
    static const double extremes[EXTREMES] = {NAN, INFINITY, -INFINITY, -1e300};
    return is_wrong() ? extremes[extreme] : good;
}

#define P(pointer) (is_wrong() ? NULL : (pointer))

static const gd_rnn_weights *weights_from(int i)
{
    static gd_rnn_weights w;
    w = (gd_rnn_weights){t[i], t[i + 1], t[i + 2], t[i + 3]};
    return &w;
}

/* ---- A call -------------------------------------------------------------------------------- */

static gd_tensor *tensor_of(const given *g, wrong how)
{
    gd_dtype dtype = g->dtype;
    int ndim = g->ndim;
    int64_t shape[GD_MAX_DIMS];
    memcpy(shape, g->shape, sizeof shape);
    if (how == ABSENT) return NULL;
    if (how == DTYPE) dtype = extreme ? GD_FLOAT64 : dtype == GD_INT32 ? GD_FLOAT32 : GD_INT32;
    if (how == MORE_DIMS) shape[ndim++] = 2;
    if (how == OTHER_SIZE && ndim) shape[extreme ? 0 : ndim - 1] += 3;
    gd_tensor *made = gd_tensor_create(how == STRANGE ? other : ctx, dtype, ndim, shape);
    if (how == FREED) gd_tensor_free(made);
    return made;
}

static void begin(const given *inputs, int count)
{
    gd_tensor *kept = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
    gd_neg(kept); /* so that the headers of what is freed wait for the end of the step */
    for (int i = 0; i < count; i++)
        t[i] = tensor_of(&inputs[i], kind == VALUE || i != at ? NOTHING : kind);
    seen = 0;
    memset(out, 0, sizeof out);
}

static void judge(const char *function, const char *says, const given *inputs, int count)
{
    const char *error = gd_error(ctx);
    char start[100];
    snprintf(start, sizeof start, "%s: ", says);
    if (kind == NOTHING) {
        values = seen;
        ck_assert_msg(error == NULL, "%s: %s", function, error);
    } else if (error) {
        ck_assert_msg(!strncmp(error, start, strlen(start)), "%s, argument %d, kind %d.%d: %s",
                      function, at, (int)kind, extreme, error);
    }
    if (kind >= ABSENT && kind <= STRANGE) {
        const char *name = inputs[at].name, *found = error ? error + strlen(start) : "";
        ck_assert_msg(!strncmp(found, name, strlen(name)) || (kind == ABSENT && count == 1),
                      "%s, kind %d: %s, wanted a sentence about %s", function, (int)kind,
                      error ? error : "no error", name);
    }
    gd_error_clear(ctx), gd_error_clear(other);
    gd_step_end(ctx);
}

/* Whether there is another trial after this one; sets it. */
static bool next(const given *inputs, int count)
{
    if (kind == VALUE) {
        if (++extreme < EXTREMES) return true;
        extreme = 0;
        return ++at < values;
    }
    const int versions = kind == DTYPE || kind == OTHER_SIZE ? 2 : 1;
    if (kind != NOTHING && ++extreme < versions) return true;
    for (extreme = 0; kind < VALUE; kind++, at = -1) {
        while (++at < count) {
            if (kind == NOTHING || (kind == ABSENT && inputs[at].optional)) continue;
            if (kind == STRANGE && at == 0) continue; /* its context is that of the call */
            return true;
        }
    }
    at = 0;
    return values > 0;
}

#define CALL_AS(says, function, expression, ...)                        \
    do {                                                                \
        const given inputs_[] = {__VA_ARGS__};                          \
        const int count_ = (int)(sizeof inputs_ / sizeof *inputs_);     \
        kind = NOTHING, at = -1, extreme = 0;                           \
        ctx = gd_context_create(NULL), other = gd_context_create(NULL); \
        do {                                                            \
            begin(inputs_, count_);                                     \
            (void)(expression);                                         \
            judge(#function, says, inputs_, count_);                    \
        } while (next(inputs_, count_));                                \
        gd_context_free(ctx), gd_context_free(other);                   \
    } while (0)
#define CALL(function, expression, ...) CALL_AS(#function, function, expression, __VA_ARGS__)

/* An input: its name, and its shape. */
#define REAL(name, ...)                               \
    {                                                 \
        name, GD_FLOAT32, false, GD_DIMS(__VA_ARGS__) \
    }
#define MAYBE(name, ...)                             \
    {                                                \
        name, GD_FLOAT32, true, GD_DIMS(__VA_ARGS__) \
    }
#define WHOLE(name, ...)                            \
    {                                               \
        name, GD_INT32, false, GD_DIMS(__VA_ARGS__) \
    }
#define X REAL("x", 3, 4)

TEST(norms_and_products)
{
    CALL(rms_norm, gd_rms_norm(t[0], t[1], D(1e-5)), X, MAYBE("weight", 4));
    CALL_AS("rms_norm", rms_norm_with,
            gd_rms_norm_with(t[0], t[1], t[2],
                             P((&(gd_rms_norm_options){.eps = D(1), .offset = D(1)}))),
            X, MAYBE("weight", 4), MAYBE("bias", 4));
    CALL(add_rms_norm, gd_add_rms_norm(t[0], t[1], t[2], t[3], NULL, P(out)), X,
         REAL("residual", 3, 4), MAYBE("weight", 4), MAYBE("bias", 4));
    CALL(layer_norm, gd_layer_norm(t[0], t[1], t[2], D(1e-5)), X, MAYBE("weight", 4),
         MAYBE("bias", 4));
    CALL(batch_norm,
         gd_batch_norm(t[0], t[1], t[2],
                       P((&(gd_batch_norm_options){D(1), D(0.5), t[3], t[4], false}))),
         X, MAYBE("weight", 4), MAYBE("bias", 4), MAYBE("mean", 4), MAYBE("var", 4));
    CALL(batch_norm,
         gd_batch_norm(t[0], NULL, NULL, (&(gd_batch_norm_options){D(1), 0, t[1], t[2], true})), X,
         REAL("mean", 4), REAL("var", 4));
    CALL(group_norm, gd_group_norm(t[0], N(2), t[1], t[2], D(1e-5)), X, MAYBE("weight", 4),
         MAYBE("bias", 4));
    CALL(matmul, gd_matmul(t[0], t[1]), REAL("a", 3, 4), REAL("b", 4, 5));
    CALL_AS("matmul", matmul_with, gd_matmul_with(t[0], t[1], true, true), REAL("a", 4, 3),
            REAL("b", 5, 4));
    CALL(linear, gd_linear(t[0], t[1], t[2]), X, REAL("weight", 5, 4), MAYBE("bias", 5));
    CALL(embedding, gd_embedding(t[0], t[1]), REAL("table", 3, 4), WHOLE("ids", 2));
}

TEST(images)
{
    const given image = REAL("x", 1, 2, 6, 5);
#define PAIR(good) {N(good), N(good)}
    CALL(conv2d,
         gd_conv2d(t[0], t[1], t[2],
                   P((&(gd_conv_options){PAIR(1), PAIR(1), PAIR(1), N(1), PAIR(0)}))),
         image, REAL("weight", 3, 2, 3, 3), MAYBE("bias", 3));
    CALL(conv1d,
         gd_conv1d(t[0], t[1], t[2],
                   P((&(gd_conv_options){{N(1)}, {N(1), N(0)}, {N(1), N(0)}, N(1), PAIR(0)}))),
         REAL("x", 1, 2, 6), REAL("weight", 3, 2, 3), MAYBE("bias", 3));
    CALL(conv_transpose2d,
         gd_conv_transpose2d(t[0], t[1], t[2],
                             P((&(gd_conv_options){PAIR(2), PAIR(1), PAIR(1), N(1), PAIR(1)}))),
         image, REAL("weight", 2, 3, 3, 3), MAYBE("bias", 3));
    CALL(unfold,
         gd_unfold(t[0], N(2), N(2),
                   P((&(gd_conv_options){PAIR(1), PAIR(1), PAIR(1), N(1), PAIR(0)}))),
         image);
    CALL(fold,
         gd_fold(t[0], N(3), N(3), N(2), N(2),
                 P((&(gd_conv_options){PAIR(1), PAIR(0), PAIR(1), N(1), PAIR(0)}))),
         REAL("x", 1, 8, 4));
#define POOL P((&(gd_pool_options){PAIR(2), PAIR(2), PAIR(1)}))
    CALL(max_pool2d, gd_max_pool2d(t[0], POOL), image);
    CALL(avg_pool2d, gd_avg_pool2d(t[0], POOL), image);
    CALL(pad, gd_pad(t[0], P((&(gd_pad_options){N(1), N(1), N(1), N(1), GD_PAD_REFLECT, D(0)}))),
         image);
    CALL(upsample_nearest, gd_upsample_nearest(t[0], N(2), N(3)), image);
}

TEST(sequences)
{
    const given q = REAL("q", 1, 3, 2, 4), qkv = REAL("qkv", 1, 3, 4, 4);
#define LAYER(G)                                                                   \
    REAL("input", 2 * G, 4), REAL("hidden", 2 * G, 2), MAYBE("input_bias", 2 * G), \
        MAYBE("hidden_bias", 2 * G)
    CALL(lstm, gd_lstm(t[0], P(weights_from(1)), I(1), t[5], t[6], P(&out[0]), P(&out[1])),
         REAL("x", 2, 3, 4), LAYER(4), MAYBE("state", 1, 2, 2), MAYBE("cell", 1, 2, 2));
    CALL(gru, gd_gru(t[0], P(weights_from(1)), I(1), t[5], P(&out[0])), REAL("x", 2, 3, 4),
         LAYER(3), MAYBE("state", 1, 2, 2));
    CALL(lstm_cell, gd_lstm_cell(t[0], t[5], t[6], P(weights_from(1)), P(&out[0])), REAL("x", 2, 4),
         LAYER(4), MAYBE("state", 2, 2), MAYBE("cell", 2, 2));
    CALL(gru_cell, gd_gru_cell(t[0], t[5], P(weights_from(1))), REAL("x", 2, 4), LAYER(3),
         MAYBE("state", 2, 2));
#define ROPE P((&(gd_rope_options){D(100), N(3), false}))
    CALL(rope, gd_rope(t[0], ROPE), REAL("x", 1, 3, 2, 4));
    CALL(rope_qkv, gd_rope_qkv(t[0], N(1), ROPE, P(&out[0]), P(&out[1]), P(&out[2])), qkv);
    CALL(attention,
         gd_attention(t[0], t[1], t[2],
                      P((&(gd_attention_options){true, D(1), D(0.5), t[3], N(2)}))),
         q, REAL("k", 1, 3, 2, 4), REAL("v", 1, 3, 2, 4), MAYBE("mask", 3, 3));
    CALL(rope_attention,
         gd_rope_attention(t[0], N(1), ROPE,
                           P((&(gd_attention_options){true, D(1), D(0.5), NULL, N(2)}))),
         qkv);
    CALL(swiglu, gd_swiglu(t[0], t[1]), REAL("gate", 3, 4), MAYBE("up", 3, 4));
    CALL(dropout, gd_dropout(t[0], D(0.5)), X);
}

TEST(losses)
{
    const gd_reduction r = GD_MEAN;
    const given logits = REAL("logits", 3, 4), targets = WHOLE("targets", 3),
                target = REAL("target", 3, 4), a = REAL("a", 3, 4), b = REAL("b", 3, 4);
#define ENTROPY(weight, smoothing) \
    P((&(gd_cross_entropy_options){(gd_reduction)I(0), I(0), weight, smoothing}))
    CALL(softmax, gd_softmax(t[0], I(-1)), X);
    CALL(log_softmax, gd_log_softmax(t[0], I(-1)), X);
    CALL(cross_entropy, gd_cross_entropy(t[0], t[1]), logits, targets);
    CALL_AS("cross_entropy", cross_entropy_with,
            gd_cross_entropy_with(t[0], t[1], ENTROPY(t[2], D(0.1))), logits, targets,
            MAYBE("weight", 4));
    CALL(linear_cross_entropy, gd_linear_cross_entropy(t[0], t[1], t[2], ENTROPY(NULL, 0)), X,
         REAL("weight", 5, 4), targets);
    CALL(linear_cross_entropy, gd_linear_cross_entropy(t[0], t[1], t[2], ENTROPY(t[3], D(0.1))), X,
         REAL("weight", 5, 4), targets, MAYBE("options->weight", 5));
    CALL(linear_cross_entropy, gd_linear_cross_entropy(t[0], t[1], t[2], NULL), X,
         REAL("weight", 5, 4), REAL("targets", 3, 5));
    CALL(nll_loss, gd_nll_loss(t[0], t[1], ENTROPY(t[2], 0)), REAL("log_probs", 3, 4), targets,
         MAYBE("weight", 4));
    CALL(mse_loss, gd_mse_loss(t[0], t[1], (gd_reduction)I(r)), X, target);
    CALL(l1_loss, gd_l1_loss(t[0], t[1], (gd_reduction)I(r)), X, target);
    CALL(huber_loss, gd_huber_loss(t[0], t[1], D(1), (gd_reduction)I(r)), X, target);
    CALL(smooth_l1_loss, gd_smooth_l1_loss(t[0], t[1], D(1), (gd_reduction)I(r)), X, target);
    CALL(smooth_l1_loss, gd_smooth_l1_loss(t[0], t[1], 0, (gd_reduction)I(r)), X, target);
    CALL(bce_with_logits, gd_bce_with_logits(t[0], t[1], t[2], (gd_reduction)I(r)), X, target,
         MAYBE("pos_weight", 4));
    CALL(kl_div, gd_kl_div(t[0], t[1], true, (gd_reduction)I(r)), X, target);
    CALL(cosine_similarity, gd_cosine_similarity(t[0], t[1], I(-1), D(1e-8)), a, b);
    CALL(cosine_embedding_loss,
         gd_cosine_embedding_loss(t[0], t[1], t[2], D(0.5), (gd_reduction)I(r)), a, b,
         REAL("target", 3));
}

TEST(elementwise)
{
#define OF_ONE(op) CALL(op, gd_##op(t[0]), X)
#define WITH(op, ...) CALL(op, gd_##op(t[0], __VA_ARGS__), X)
#define OF_TWO(op, ...) CALL(op, gd_##op(t[0], t[1]), REAL("a", 3, 4), REAL("b", 3, 4));
#define UNARY(op, ...) OF_ONE(op);
#define SCALAR(op, ...) WITH(op, D(2));
#define RANGE(op, ...) WITH(op, D(-1), D(1));
#define BINARY OF_TWO
#define COMPARE OF_TWO
#include "elementwise/binary.def"
#include "elementwise/compare.def"
#include "elementwise/unary.def"
    CALL(where, gd_where(t[0], t[1], t[2]), WHOLE("condition", 3, 4), REAL("a", 3, 4),
         REAL("b", 3, 4));
    CALL(masked_fill, gd_masked_fill(t[0], t[1], D(1)), X, WHOLE("mask", 3, 4));
}

TEST(reductions)
{
#define AXES P(((const int[]){I(0)})), 1
    WITH(sum, AXES, true);
    WITH(mean, AXES, false);
    WITH(max, AXES, true);
    WITH(min, AXES, false);
    WITH(prod, AXES, true);
    WITH(norm, D(2), AXES, true);
    WITH(logsumexp, AXES, true);
    WITH(var, AXES, D(1), true);
    WITH(std, AXES, D(1), true);
    WITH(any, AXES, true);
    WITH(all, AXES, true);
    CALL(any, gd_any(t[0], NULL, 0, true), WHOLE("x", 3, 4));
    CALL_AS("sum", sum_all, gd_sum_all(t[0]), X);
    CALL_AS("mean", mean_all, gd_mean_all(t[0]), X);
}

TEST(along_an_axis)
{
    const given index = WHOLE("index", 3, 2);
    CALL(gather, gd_gather(t[0], I(1), t[1]), X, index);
    CALL(index_select, gd_index_select(t[0], I(1), t[1]), X, WHOLE("index", 2));
    CALL(scatter_add, gd_scatter_add(t[0], I(1), t[1], t[2]), X, index, REAL("src", 3, 2));
    CALL(nonzero, gd_nonzero(t[0], t[1], t[2]), WHOLE("mask", 3, 4), WHOLE("places", 5),
         WHOLE("count", 1));
    CALL(multinomial, gd_multinomial(t[0]), REAL("weights", 3, 4));
    WITH(cumsum, I(1));
    WITH(argmax, I(1), true);
    WITH(argmin, I(1), true);
    WITH(topk, N(2), I(1), true, P(out));
    WITH(sort, I(1), true, P(out));
    CALL(one_hot, gd_one_hot(t[0], N(5), (gd_dtype)I(0)), WHOLE("ids", 3));
}

TEST(shapes)
{
    const given parts[] = {REAL("x[0]", 3, 4), REAL("x[1]", 3, 4)};
    WITH(reshape, I(2), P(((const int64_t[]){N(4), N(3)})));
    WITH(expand, I(2), P(((const int64_t[]){N(3), N(4)})));
    WITH(permute, P(((const int[]){I(1), I(0), 2})));
    WITH(transpose, I(0), I(1));
    WITH(slice, I(0), N(1), N(2));
    WITH(narrow, I(0), N(1), N(2));
    WITH(unsqueeze, I(1));
    CALL(squeeze, gd_squeeze(t[0], I(0)), REAL("x", 1, 4));
    CALL(concat, gd_concat(P(t), 2, I(0)), parts[0], parts[1]);
    CALL(stack, gd_stack(P(t), 2, I(0)), parts[0], parts[1]);
    WITH(roll, I(1), N(1));
    WITH(flip, AXES);
    WITH(tril, N(0));
    WITH(triu, N(0));
    WITH(split, I(1), 2, P(((const int64_t[]){N(1), N(3)})), P(out));
    OF_ONE(contiguous);
    WITH(cast, (gd_dtype)I(1));
}

/* The rows of this file, and of the tables that it includes, name every function that ops.h
 * declares. */
TEST(no_function_is_missing)
{
    static const char *const files[] = {
        "/include/gradus/ops.h", "/tests/core/test_arguments.c", "/kernels/elementwise/binary.def",
        "/kernels/elementwise/compare.def", "/kernels/elementwise/unary.def"};
    static const char *const forms[] = {"gd_%s(t[0]",  "_ONE(%s)",     "WITH(%s,",
                                        "gd_%s(P(t)",  "\nUNARY(%s,",  "\nSCALAR(%s,",
                                        "\nRANGE(%s,", "\nBINARY(%s,", "\nCOMPARE(%s,"};
    static char text[2][100000];
    size_t used[2] = {0};
    for (int i = 0; i < 5; i++) {
        char path[1000];
        snprintf(path, sizeof path, "%s/..%s", GRADUS_TEST_DIR, files[i]);
        FILE *file = fopen(path, "rb");
        ck_assert_ptr_nonnull(file);
        used[i > 0] += fread(text[i > 0] + used[i > 0], 1, sizeof text[0] - 1 - used[i > 0], file);
        fclose(file);
    }
    int found = 0;
    for (const char *at_ = text[0]; (at_ = strstr(at_, "\nGD_API gd_")); found++) {
        char name[40], row[80];
        const char *function = strstr(at_ += strlen("\nGD_API gd_"), "gd_") + strlen("gd_");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(function, "("), function);
        bool there = false;
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            snprintf(row, sizeof row, forms[i], name);
            there = there || strstr(text[1], row);
        }
        ck_assert_msg(there, "gd_%s has no row", name);
    }
    ck_assert_int_gt(found, 130);
}

CHECK_MAIN("arguments")
