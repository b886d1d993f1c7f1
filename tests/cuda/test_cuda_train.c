/* test_cuda_train.c - training a transformer on the GPU gives the same losses as on the CPU. */
#include <math.h>

#include "gpu.h"
#include "model.h"

enum { BATCH = 4, CONTEXT = 24, STEPS = 100, VOCAB = 29 };

static const model_config config = {
    .vocab = VOCAB, .layers = 2, .dim = 48, .heads = 4, .kv_heads = 2, .ffn = 96};

static const int64_t shape[2] = {BATCH, CONTEXT};

/* A text with something to learn: most tokens are determined by the token before them. */
static void make_text(int32_t *text, int64_t count)
{
    uint32_t state = 7;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        int32_t follows = i == 0 ? 1 : (5 * text[i - 1] + 1) % VOCAB;
        text[i] = state >> 29 ? follows : (int32_t)(state >> 8) % VOCAB;
    }
}

typedef struct learner {
    model m;
    gd_optimizer *adamw;
    gd_tensor *tokens, *targets;
} learner;

static void learner_create(learner *l, gd_device device, gd_dtype dtype)
{
    gd_context *ctx =
        watched_context((gd_context_options){.device = device, .seed = 3, .threads = 1});
    ck_assert_no_error(ctx);
    model_create(&l->m, ctx, dtype, &config);
    l->m.training = true;
    l->adamw = gd_adamw_create(
        l->m.params, &(gd_adamw_options){.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1});
    gd_optimizer_set_loss_scale(l->adamw, gd_loss_scale_begin(dtype));
    gd_optimizer_set_rate(l->adamw, 3e-3);
    l->tokens = gd_tensor_create(ctx, GD_INT32, 2, shape);
    l->targets = gd_tensor_create(ctx, GD_INT32, 2, shape);
    ck_assert_no_error(ctx);
}

static void learner_free(learner *l)
{
    gd_context *ctx = l->m.ctx;
    gd_optimizer_free(l->adamw);
    model_free(&l->m);
    gd_context_free(ctx);
}

static double loss_on(learner *l, const int32_t *text, bool learn)
{
    gd_context *ctx = l->m.ctx;
    const size_t bytes = BATCH * CONTEXT * sizeof *text;
    gd_tensor_write(l->tokens, text, bytes);
    gd_tensor_write(l->targets, text + 1, bytes);
    gd_tensor *mean = model_loss(&l->m, l->tokens, l->targets);
    if (learn) {
        gd_optimizer_backward(l->adamw, mean, 1);
        gd_optimizer_update(l->adamw, 1);
        gd_params_clear_grads(l->m.params);
    }
    double loss = gd_item(mean);
    gd_step_end(ctx);
    ck_assert_no_error(ctx);
    return loss;
}

TEST(losses_agree_over_100_steps)
{
    enum { TEXT = BATCH * CONTEXT * (STEPS + 1) };
    static int32_t text[TEXT + 1];
    make_text(text, TEXT + 1);
    learner cpu, gpu;
    learner_create(&cpu, GD_CPU, GD_FLOAT32);
    learner_create(&gpu, GD_CUDA, GD_FLOAT32);
    double first = 0, last = 0, worst = 0;
    uint64_t warm = 0;
    for (int step = 0; step < STEPS; step++) {
        const int32_t *here = text + step * BATCH * CONTEXT;
        last = loss_on(&cpu, here, true);
        worst = fmax(worst, fabs(last - loss_on(&gpu, here, true)));
        if (step == 0) first = last;
        if (step == 2) warm = gd_memory(gpu.m.ctx).system_calls;
    }
    printf("losses over %d steps differ by at most %.2e\n", STEPS, worst);
    ck_assert_double_le(worst, 1e-4);
    ck_assert_double_lt(last, first - 0.5);
    if (!getenv("GRADUS_TEST_GUARD")) /* with which nothing is used again */
        ck_assert_uint_eq(gd_memory(gpu.m.ctx).system_calls, warm);

    /* Now with exactly the same weights. */
    for (int i = 0; i < gd_params_count(cpu.m.params); i++) {
        gd_tensor *from = gd_params_at(cpu.m.params, i), *to = gd_params_at(gpu.m.params, i);
        size_t bytes = (size_t)gd_tensor_count(from) * sizeof(float);
        gd_tensor_write(to, gd_tensor_data(from), bytes);
    }
    const int32_t *here = text + STEPS * BATCH * CONTEXT;
    double difference = fabs(loss_on(&cpu, here, false) - loss_on(&gpu, here, false));
    printf("with the same weights the loss differs by %.2e\n", difference);
    ck_assert_double_le(difference, 1e-6);
    learner_free(&cpu);
    learner_free(&gpu);
}

/* Both round every activation to 16 bits at the same places; sums in a different order may round
 * differently, and the difference propagates to later layers. */
LOOP_TEST(losses_agree_in_16_bits, 2)
{
    enum { FEW = 20 };
    static const gd_dtype dtypes[2] = {GD_BFLOAT16, GD_FLOAT16};
    static const double bounds[2] = {1e-2, 2e-3};
    static int32_t text[BATCH * CONTEXT * FEW + 1];
    make_text(text, BATCH * CONTEXT * FEW + 1);
    if (gpu_refuses(dtypes[_i])) return;
    learner cpu, gpu;
    learner_create(&cpu, GD_CPU, dtypes[_i]);
    learner_create(&gpu, GD_CUDA, dtypes[_i]);
    double worst = 0;
    for (int step = 0; step < FEW; step++) {
        const int32_t *here = text + step * BATCH * CONTEXT;
        double off = fabs(loss_on(&cpu, here, true) - loss_on(&gpu, here, true));
        if (step == 0) printf("%s: the first loss differs by %.2e", gd_dtype_name(dtypes[_i]), off);
        worst = fmax(worst, off);
    }
    printf(", losses over %d steps by at most %.2e\n", FEW, worst);
    ck_assert_double_le(worst, bounds[_i]);
    learner_free(&cpu);
    learner_free(&gpu);
}

/* No large tensor is converted internally: bfloat16 needs half the activations of float32, and the
 * scratch memory of each call is far below a float32 copy of the logits, 64 MiB. */
TEST(nothing_large_is_copied_in_16_bits)
{
    static const model_config wide = {
        .vocab = 8192, .layers = 2, .dim = 256, .heads = 4, .kv_heads = 2, .ffn = 704};
    const int64_t tokens[2] = {8, 256};
    double activations[2], workspace[2];
    if (gpu_refuses(GD_BFLOAT16)) return;
    for (int narrow = 0; narrow < 2; narrow++) {
        gd_context *ctx = watched_context((gd_context_options){.device = GD_CUDA, .seed = 3});
        model m;
        model_create(&m, ctx, narrow ? GD_BFLOAT16 : GD_FLOAT32, &wide);
        gd_optimizer *adamw = gd_adamw_create(m.params, NULL);
        gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, 2, tokens);
        gd_random_integers(ids, 0, wide.vocab);
        gd_memory_reset_peak(ctx);
        for (int batch = 0; batch < 2; batch++) {
            gd_backward(model_loss(&m, ids, ids));
            gd_step_end(ctx);
        }
        gd_clip_grad_norm(m.params, 1, NULL);
        gd_optimizer_step(adamw, 1e-3);
        gd_memory_stats memory = gd_memory(ctx);
        activations[narrow] = (double)memory.peak[GD_MEMORY_ACTIVATIONS] / 1048576;
        workspace[narrow] = (double)memory.peak[GD_MEMORY_WORKSPACE] / 1048576;
        ck_assert_no_error(ctx);
        gd_tensor_free(ids);
        gd_optimizer_free(adamw);
        model_free(&m);
        gd_context_free(ctx);
    }
    printf("MiB of activations: %.1f in float32, %.1f in bfloat16; of scratch: %.1f and %.1f\n",
           activations[0], activations[1], workspace[0], workspace[1]);
    ck_assert_double_le(activations[1], 0.55 * activations[0]);
    ck_assert_double_le(workspace[1], 48);
}

CHECK_MAIN_GPU(false, "training on the GPU", NULL, NULL)
