/* test_model.c - the transformer of train/: its fused products against the same done one by one
 * with other ops, its loss, and where it drops. */
#include "check_main.h"
#include "llama.h"
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 5, V = 11, C = 16, H = 4, KV = 2, D = C / H, FFN = 12, LAYERS = 2 };

static gd_context *ctx;
static model m;
static gd_tensor *tokens, *targets;

static void set_up_with(double dropout)
{
    const model_config config = {.vocab = V,
                                 .layers = LAYERS,
                                 .dim = C,
                                 .heads = H,
                                 .kv_heads = KV,
                                 .ffn = FFN,
                                 .dropout = dropout};
    const int64_t shape[2] = {B, T};
    ctx = gd_context_create(&(gd_context_options){.threads = 2, .seed = 7});
    model_create(&m, ctx, GD_FLOAT64, &config);
    for (int i = 0; i < gd_params_count(m.params); i++) {
        gd_random_normal(gd_params_at(m.params, i), 0.5, 0.3); /* norms, too */
    }
    tokens = gd_tensor_create(ctx, GD_INT32, 2, shape);
    targets = gd_tensor_create(ctx, GD_INT32, 2, shape);
    gd_random_integers(tokens, 0, V);
    gd_random_integers(targets, 0, V);
    ck_assert_no_error(ctx);
}

static void tear_down(void)
{
    model_free(&m);
    gd_context_free(ctx);
}

/* ---- The same model out of other ops ------------------------------------------------------ */

/* The weight under Hugging Face's name. */
static gd_tensor *weight(const char *format, int layer)
{
    char name[80];
    int64_t count;
    gd_tensor *found = NULL;
    snprintf(name, sizeof name, format, layer);
    llama_weight *weights = llama_weights(&m, &count);
    for (int64_t i = 0; i < count; i++) {
        if (!strcmp(weights[i].name, name)) found = llama_weight_view(&weights[i]);
    }
    free(weights);
    ck_assert_msg(found != NULL, "there is no %s", name);
    return found;
}

static gd_tensor *heads(gd_tensor *h, const char *name, int layer, int64_t count)
{
    return gd_reshape(gd_linear(h, weight(name, layer), NULL), 4, (int64_t[]){B, T, count, D});
}

static gd_tensor *norm(gd_tensor *x, const char *name, int layer)
{
    return gd_rms_norm(x, weight(name, layer), 1e-5);
}

static gd_tensor *plain_loss(void)
{
    gd_tensor *x = gd_embedding(weight("model.embed_tokens.weight", 0), tokens);
    for (int l = 0; l < LAYERS; l++) {
        const gd_attention_options causal = {.causal = true};
        gd_tensor *h = norm(x, "model.layers.%d.input_layernorm.weight", l);
        gd_tensor *q = heads(h, "model.layers.%d.self_attn.q_proj.weight", l, H);
        gd_tensor *k = heads(h, "model.layers.%d.self_attn.k_proj.weight", l, KV);
        gd_tensor *v = heads(h, "model.layers.%d.self_attn.v_proj.weight", l, KV);
        gd_tensor *a = gd_attention(gd_rope(q, NULL), gd_rope(k, NULL), v, &causal);
        a = gd_reshape(a, 3, (int64_t[]){B, T, C});
        x = gd_add(x, gd_linear(a, weight("model.layers.%d.self_attn.o_proj.weight", l), NULL));
        h = norm(x, "model.layers.%d.post_attention_layernorm.weight", l);
        gd_tensor *gate = gd_linear(h, weight("model.layers.%d.mlp.gate_proj.weight", l), NULL);
        gd_tensor *up = gd_linear(h, weight("model.layers.%d.mlp.up_proj.weight", l), NULL);
        h = gd_mul(gd_silu(gate), up);
        x = gd_add(x, gd_linear(h, weight("model.layers.%d.mlp.down_proj.weight", l), NULL));
    }
    gd_tensor *logits =
        gd_linear(norm(x, "model.norm.weight", 0), weight("lm_head.weight", 0), NULL);
    return gd_cross_entropy(logits, targets);
}

/* All gradients, one behind the other. */
static double *gradients(gd_tensor *loss, double *value)
{
    double *all = calloc((size_t)gd_params_elements(m.params), sizeof *all), *at = all;
    gd_backward(loss);
    ck_assert_no_error(ctx);
    *value = gd_item(loss);
    for (int i = 0; i < gd_params_count(m.params); i++) {
        const gd_tensor *t = gd_params_at(m.params, i);
        gd_tensor_read_f64(gd_grad(t), at, gd_tensor_count(t));
        at += gd_tensor_count(t);
    }
    gd_params_clear_grads(m.params);
    gd_step_end(ctx);
    ck_assert_no_error(ctx);
    return all;
}

TEST(fused_products_are_the_single_ones)
{
    double loss, plain;
    set_up_with(0);
    double *got = gradients(model_loss(&m, tokens, targets), &loss);
    double *want = gradients(plain_loss(), &plain);
    ck_assert_double_eq_tol(loss, plain, 1e-12);
    for (int64_t i = 0; i < gd_params_elements(m.params); i++) {
        ck_assert_msg(fabs(got[i] - want[i]) <= 1e-11 * (1 + fabs(want[i])),
                      "gradient %lld is %.17g, wanted %.17g", (long long)i, got[i], want[i]);
    }
    free(got), free(want);
    tear_down();
}

/* The parameters: every weight of Hugging Face's once, and each in one piece. */
TEST(products_that_read_the_same_are_one)
{
    int64_t count, elements = 0;
    set_up_with(0);
    ck_assert_int_eq(gd_params_count(m.params), 3 + 6 * LAYERS);
    llama_weight *weights = llama_weights(&m, &count);
    ck_assert_int_eq(count, 3 + 9 * LAYERS);
    for (int64_t i = 0; i < count; i++) {
        const gd_tensor *view = llama_weight_view(&weights[i]);
        ck_assert(gd_tensor_is_contiguous(view));
        elements += gd_tensor_count(view);
    }
    ck_assert_int_eq(elements, gd_params_elements(m.params));
    free(weights);
    tear_down();
}

static int count_of(const char *text, const char *word)
{
    int count = 0;
    for (; (text = strstr(text, word)); text++) count++;
    return count;
}

/* Words that an op takes of the random stream. */
static uint64_t taken(uint64_t words)
{
    return (words + 3) / 4 * 4;
}

/* After the embedding, on the weights of attention, and behind the two branches of each layer;
 * nowhere, unless it trains. */
TEST(dropout_where_it_belongs)
{
    char text[16384] = "";
    set_up_with(0.25);
    for (int training = 0; training < 2; training++) {
        m.training = training;
        const uint64_t before = gd_random_get(ctx).offset;
        model_loss(&m, tokens, targets);
        /* half a word each; of attention a tile of 16 x 16 for each head */
        const uint64_t words =
            (1 + 2 * LAYERS) * taken(B * T * C / 2) + LAYERS * taken(B * H * 16 * 16 / 2);
        ck_assert_uint_eq(gd_random_get(ctx).offset - before, training ? words : 0);
        FILE *file = tmpfile();
        gd_tape_print(ctx, file);
        read_back(file, text, sizeof text);
        ck_assert_int_eq(count_of(text, " dropout("), training ? 1 + 2 * LAYERS : 0);
        gd_step_end(ctx);
    }
    const char *embedding = strstr(text, " embedding("), *next = strchr(embedding, '\n');
    ck_assert(strstr(next, " dropout(") < strstr(next, " rms_norm("));
    tear_down();
}

CHECK_MAIN("model")
