/* test_cuda_sample.c - reading a text token by token on the GPU gives about the logits of the whole
 * text. */
#include <math.h>

#include "decode.h"
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

/* Reads tokens [from, to); the logits must be within the tolerance of those of the whole model. */
static void compare(decoder *d, const int32_t *tokens, int64_t from, int64_t to, double tolerance)
{
    float quick[VOCAB];
    static double whole[LENGTH * VOCAB];
    model *m = d->m;
    ck_assert_int_eq(decode_read(d, tokens + from, to - from, quick), GD_OK);
    gd_tensor *all = gd_tensor_from(m->ctx, GD_INT32, GD_SHAPE(1, to), tokens);
    gd_tensor_read_f64(gd_linear(model_hidden(m, all), m->output, NULL), whole, to * VOCAB);
    gd_step_end(m->ctx);
    gd_tensor_free(all);
    ck_assert_no_error(m->ctx);
    for (int v = 0; v < VOCAB; v++) {
        const double want = whole[(to - 1) * VOCAB + v];
        ck_assert_msg(fabs((double)quick[v] - want) <= tolerance,
                      "token %d, logit %d is %g, wanted %g", (int)to, v, (double)quick[v], want);
    }
}

LOOP_TEST(tokens_one_by_one_have_the_logits_of_the_text, (test_brief() ? 2 : 4))
{
    const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT64, GD_FLOAT16};
    const double tolerances[] = {2e-4, 0.2, 1e-6, 0.025};
    if (gpu_refuses(dtypes[_i])) return;
    const int length = test_brief() ? PROMPT + 5 : LENGTH; /* under a sanitizer */
    gd_context *ctx = gpu_context();
    model m;
    decoder d;
    int32_t tokens[LENGTH];
    for (int i = 0; i < LENGTH; i++) tokens[i] = (7 * i * i + 3 * i + 1) % VOCAB;
    make_model(&m, ctx, dtypes[_i]);
    gd_no_grad_begin(ctx);
    decoder_create(&d, &m, LENGTH);
    for (int round = 0; round < 2; round++) { /* the second time over what the first one left */
        int64_t at = PROMPT;
        d.length = 0;
        compare(&d, tokens, 0, at, tolerances[_i]);
        for (; at < length; at++) compare(&d, tokens, at, at + 1, tolerances[_i]);
    }
    decoder_free(&d);
    gd_no_grad_end(ctx);
    model_free(&m);
    gd_context_free(ctx);
}

CHECK_MAIN_GPU(false, "sampling on the GPU", NULL, NULL)
