/* test_cuda_sample.c - reading a text token by token on the GPU: replayed graphs give the same bits
 * as launches one by one, and about the logits of the whole text. */
/* Build: links gradus_train_parts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "draw.h"
#include "gpu.h"

enum { VOCAB = 61, LENGTH = 90, PROMPT = 5 };

static void make_model(model *m, gd_context *ctx, gd_dtype dtype)
{
    const model_config config = {
        .vocab = VOCAB, .layers = 3, .dim = 256, .heads = 4, .kv_heads = 2, .ffn = 96};
    ck_assert_int_eq(model_create(m, ctx, dtype, &config), GD_OK);
    for (int i = 0; i < gd_params_count(m->params); i++) {
        gd_tensor *t = gd_params_at(m->params, i);
        if (gd_tensor_ndim(t) == 2) gd_random_normal(t, 0, 0.1);
    }
}

/* Reads tokens [from, to) in both caches; the logits must be the same, and within the tolerance of
 * those of the whole model. */
static void read_both(decoder *graph, decoder *plain, const int32_t *tokens, int64_t from,
                      int64_t to, double tolerance)
{
    float quick[VOCAB], other[VOCAB];
    static double whole[LENGTH * VOCAB];
    model *m = graph->m;
    ck_assert_int_eq(decode_read(graph, tokens + from, to - from), GD_OK);
    ck_assert_int_eq(decode_read(plain, tokens + from, to - from), GD_OK);
    gd_tensor_read(graph->logits, quick, sizeof quick);
    gd_tensor_read(plain->logits, other, sizeof other);
    ck_assert_no_error(m->ctx);
    ck_assert_mem_eq(quick, other, sizeof quick);
    gd_tensor *all = gd_tensor_from(m->ctx, GD_INT32, GD_SHAPE(1, to), tokens);
    gd_tensor_read_f64(model_logits(m, all), whole, to * VOCAB);
    gd_step_end(m->ctx);
    gd_tensor_free(all);
    ck_assert_no_error(m->ctx);
    for (int v = 0; v < VOCAB; v++) {
        const double want = whole[(to - 1) * VOCAB + v];
        ck_assert_msg(fabs((double)quick[v] - want) <= tolerance,
                      "token %d, logit %d is %g, wanted %g", (int)to, v, (double)quick[v], want);
    }
}

LOOP_TEST(a_replayed_token_has_the_same_bits, (test_brief() ? 2 : 4))
{
    const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT64, GD_FLOAT16};
    const double tolerances[] = {2e-4, 0.2, 1e-6, 0.025};
    if (gpu_refuses(dtypes[_i])) return;
    const int length = test_brief() ? PROMPT + 5 : LENGTH; /* under a sanitizer */
    gd_context *ctx = gpu_context();
    model m;
    decoder graph, plain;
    int32_t tokens[LENGTH];
    for (int i = 0; i < LENGTH; i++) tokens[i] = (7 * i * i + 3 * i + 1) % VOCAB;
    make_model(&m, ctx, dtypes[_i]);
    gd_no_grad_begin(ctx);
    decoder_create(&graph, &m, LENGTH);
    decoder_create(&plain, &m, LENGTH);
    gd_graph_free(plain.graph);
    plain.graph = gd_graph_create(ctx, &(gd_graph_options){.off = true});
    for (int round = 0; round < 2; round++) { /* the second time over what the first one left */
        int64_t at = PROMPT;
        graph.length = plain.length = 0;
        read_both(&graph, &plain, tokens, 0, at, tolerances[_i]);
        for (; at < length; at++) read_both(&graph, &plain, tokens, at, at + 1, tolerances[_i]);
    }
    const gd_graph_counts counts = gd_graph_count(graph.graph);
    ck_assert_int_eq(counts.captures, 1);
    ck_assert_int_eq(counts.replays, 2 * (length - PROMPT) - 1);
    ck_assert_int_eq(gd_graph_count(plain.graph).replays, 0);
    decoder_free(&graph);
    decoder_free(&plain);
    gd_no_grad_end(ctx);
    model_free(&m);
    gd_context_free(ctx);
}

/* Tokens drawn one after the other on the device are those that the host draws from the logits. */
LOOP_TEST(the_device_draws_as_the_host_does, 2 * (test_brief() ? 2 : 4))
{
    const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT64, GD_FLOAT16};
    if (gpu_refuses(dtypes[_i / 2])) return;
    const draw_options o = {.temperature = _i % 2 ? 0 : 1.3};
    gd_context *ctx = gpu_context();
    model m;
    decoder chain, single;
    draw_scratch scratch;
    float logits[VOCAB];
    int32_t ids[LENGTH], text[LENGTH] = {7, 3, 1, 4, 1};
    uint32_t word;
    make_model(&m, ctx, dtypes[_i / 2]);
    gd_no_grad_begin(ctx);
    ck_assert(draw_scratch_create(&scratch, VOCAB - 3));
    decoder_create(&chain, &m, LENGTH);
    decoder_create(&single, &m, LENGTH);
    chain.temperature = o.temperature, chain.drawn = VOCAB - 3;
    int differ = 0;
    for (int64_t size = PROMPT, draws = 1; size + draws <= LENGTH; size += draws++) {
        const gd_random_state state = {7, 400 * (uint64_t)draws};
        gd_random_set(ctx, state);
        ck_assert_int_eq(
            decode_sample(&chain, text + chain.length, size - chain.length, draws, ids), draws);
        ck_assert_no_error(ctx);
        for (int64_t i = 0; i < draws; i++) {
            decode_read(&single, text + single.length, size + i - single.length);
            gd_tensor_read(single.logits, logits, sizeof logits);
            gd_philox(state.seed, 0, state.offset + 4 * (uint64_t)i, 1, &word);
            differ += ids[i] != draw_token(&scratch, &o, logits, word / 4294967296.0);
            text[size + i] = ids[i];
        }
    }
    /* The host's logits are float32 */
    ck_assert_msg(differ <= (dtypes[_i / 2] == GD_FLOAT64), "%d of the draws differ", differ);
    draw_scratch_free(&scratch);
    decoder_free(&chain);
    decoder_free(&single);
    gd_no_grad_end(ctx);
    model_free(&m);
    gd_context_free(ctx);
}

/* The draws end before logits that are not finite, and begin there again. */
TEST(draws_stop_at_what_is_not_finite)
{
    gd_context *ctx = gpu_context();
    model m;
    decoder decoder;
    int32_t token = -1, drawn, ids[8];
    make_model(&m, ctx, GD_FLOAT32);
    gd_no_grad_begin(ctx);
    decoder_create(&decoder, &m, LENGTH);
    decoder.drawn = VOCAB;
    do {
        token++;
        decoder.length = 0;
        ck_assert_int_eq(decode_sample(&decoder, &token, 1, 1, &drawn), 1);
    } while (drawn == token);
    gd_tensor_fill(gd_slice(m.embedding, 0, drawn, drawn + 1), (double)NAN);
    gd_step_end(ctx);
    decoder.length = 0;
    ck_assert_int_eq(decode_sample(&decoder, &token, 1, 8, ids), 1);
    ck_assert_int_eq(ids[0], drawn);
    ck_assert_int_eq(decoder.length, 1);
    ck_assert_int_eq(decode_sample(&decoder, &drawn, 1, 8, ids), 0);
    ck_assert_no_error(ctx);
    decoder_free(&decoder);
    gd_no_grad_end(ctx);
    model_free(&m);
    gd_context_free(ctx);
}

/* The groups of threads that have no key left read row 0, and must ignore it. */
TEST(an_infinite_value_stays_infinite)
{
    gd_context *ctx = gpu_context();
    const int32_t place = 2;
    float y[8];
    gd_tensor *qkv = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 1, 3, 8));
    gd_tensor *keys = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 7, 1, 8));
    gd_tensor *values = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 7, 1, 8));
    gd_tensor *position = gd_tensor_from(ctx, GD_INT32, 0, NULL, &place);
    gd_tensor_fill(gd_slice(gd_slice(values, 1, 0, 1), 3, 5, 6), (double)INFINITY);
    gd_tensor_read(gd_attention_decode(qkv, keys, values, position, NULL), y, sizeof y);
    ck_assert_no_error(ctx);
    for (int d = 0; d < 8; d++) ck_assert(d == 5 ? isinf(y[d]) : y[d] == 0);
    gd_context_free(ctx);
}

TEST(a_bad_position_is_reported)
{
    gd_context *ctx = gpu_context();
    const int32_t places[] = {-1, 7};
    gd_tensor *qkv = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 1, 3, 8));
    gd_tensor *keys = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 7, 1, 8));
    gd_tensor *values = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 7, 1, 8));
    gd_tensor *position = gd_tensor_create(ctx, GD_INT32, 0, NULL);
    for (int i = 0; i < 2; i++) {
        gd_tensor_write(position, &places[i], sizeof places[i]);
        gd_attention_decode(qkv, keys, values, position, NULL);
        gd_synchronize(ctx);
        ck_assert_error(ctx, "attention_decode: the index at position 0 is outside [0, 7)");
        gd_error_clear(ctx);
        gd_step_end(ctx);
    }
    gd_context_free(ctx);
}

CHECK_MAIN_GPU(false, "sampling on the GPU", NULL, NULL)
