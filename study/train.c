/* train.c - a small transformer for the page to train: the model of train/model, on the bytes of a
 * text. Results are printed as JSON, one value a call. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/gradus.h"
#include "model.h"

#define EXPORT(name) __attribute__((export_name(#name), visibility("default")))

enum { BATCH = 8, CONTEXT = 64, BYTES = 256 };

static struct {
    gd_context *ctx;
    model m;
    gd_optimizer *optimizer;
    unsigned char *text;
    int64_t length, vocab, steps;
    int32_t id_of[BYTES]; /* -1: does not occur */
    unsigned char byte_of[BYTES];
    uint32_t random;
} now;

static uint32_t draw(uint32_t below)
{
    now.random = now.random * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)now.random * below) >> 32);
}

/* Memory for a text of so many bytes. */
EXPORT(train_text) unsigned char *train_text(int length)
{
    free(now.text);
    now.length = length;
    return now.text = malloc((size_t)length + 1);
}

static void close_run(void)
{
    gd_optimizer_free(now.optimizer);
    if (now.ctx) model_free(&now.m);
    gd_context_free(now.ctx);
    now.optimizer = NULL;
    now.ctx = NULL;
}

/* The bytes that occur, in order, are the vocabulary. */
static void find_vocabulary(void)
{
    for (int b = 0; b < BYTES; b++) now.id_of[b] = -1;
    for (int64_t i = 0; i < now.length; i++) now.id_of[now.text[i]] = 0;
    now.vocab = 0;
    for (int b = 0; b < BYTES; b++) {
        if (now.id_of[b] < 0) continue;
        now.byte_of[now.vocab] = (unsigned char)b;
        now.id_of[b] = (int32_t)now.vocab++;
    }
}

static void print_state(const char *key, double value)
{
    printf("{\"step\":%lld,\"%s\":%.9g,\"vocab\":%lld,\"parameters\":%lld,\"error\":\"%s\"}\n",
           (long long)now.steps, key, isfinite(value) ? value : -1, (long long)now.vocab,
           (long long)(now.ctx ? gd_params_elements(now.m.params) : 0),
           now.ctx && gd_error(now.ctx) ? gd_error(now.ctx) : "");
}

/* Begins anew, with 2 layers of width 64. Prints {"step", "loss", "vocab", "parameters", "error"},
 * the loss that of a uniform guess. */
EXPORT(train_open) void train_open(int seed)
{
    close_run();
    find_vocabulary();
    now.random = (uint32_t)seed;
    now.steps = 0;
    now.ctx = gd_context_create(&(gd_context_options){.threads = 1, .seed = (uint64_t)seed});
    const model_config config = {.vocab = now.vocab,
                                 .layers = 2,
                                 .dim = 64,
                                 .heads = 4,
                                 .kv_heads = 4,
                                 .ffn = 176,
                                 .tied = true};
    model_create(&now.m, now.ctx, GD_FLOAT32, &config);
    now.optimizer = gd_adamw_create(now.m.params, NULL);
    print_state("loss", log((double)now.vocab));
}

/* tokens [B, T] -> logits [B, T, V] */
static gd_tensor *logits_of(gd_tensor *tokens)
{
    return gd_linear(model_hidden(&now.m, tokens), now.m.output, NULL);
}

/* One step on a random batch. Prints the same, with the loss of the batch before the step. */
EXPORT(train_step) void train_step(double rate)
{
    int32_t tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    for (int b = 0; b < BATCH; b++) {
        const uint32_t at = draw((uint32_t)(now.length - CONTEXT - 1));
        for (int t = 0; t < CONTEXT; t++) {
            tokens[b * CONTEXT + t] = now.id_of[now.text[at + (uint32_t)t]];
            targets[b * CONTEXT + t] = now.id_of[now.text[at + (uint32_t)t + 1]];
        }
    }
    gd_tensor *x = gd_tensor_from(now.ctx, GD_INT32, GD_SHAPE(BATCH, CONTEXT), tokens);
    gd_tensor *y = gd_tensor_from(now.ctx, GD_INT32, GD_SHAPE(BATCH, CONTEXT), targets);
    now.m.training = true;
    gd_tensor *loss = gd_cross_entropy(logits_of(x), y);
    gd_backward(loss);
    const double value = gd_item(loss), warm = (double)(now.steps + 1) / 20;
    gd_clip_grad_norm(now.m.params, 1, NULL);
    gd_optimizer_step(now.optimizer, warm < 1 ? rate * warm : rate);
    gd_params_clear_grads(now.m.params);
    gd_step_end(now.ctx);
    gd_tensor_free(x);
    gd_tensor_free(y);
    now.steps++;
    print_state("loss", value);
}

/* Draws from softmax(logits / temperature). */
static int32_t choose(const double *logits, double temperature)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t v = 0; v < now.vocab; v++) largest = fmax(largest, logits[v]);
    for (int64_t v = 0; v < now.vocab; v++) sum += exp((logits[v] - largest) / temperature);
    double left = sum * draw(1u << 24) / (1u << 24);
    for (int64_t v = 0; v < now.vocab; v++) {
        left -= exp((logits[v] - largest) / temperature);
        if (left < 0) return (int32_t)v;
    }
    return (int32_t)now.vocab - 1;
}

/* Prints `length` bytes of text that the model writes, and nothing else. */
EXPORT(train_sample) void train_sample(int length, double temperature)
{
    int32_t window[CONTEXT];
    int64_t count = 1;
    window[0] = now.id_of['\n'] < 0 ? 0 : now.id_of['\n'];
    double *logits = malloc((size_t)(CONTEXT * now.vocab) * sizeof *logits);
    gd_no_grad_begin(now.ctx);
    now.m.training = false;
    for (int i = 0; logits && i < length && !gd_error(now.ctx); i++) {
        gd_tensor *x = gd_tensor_from(now.ctx, GD_INT32, GD_SHAPE(1, count), window);
        gd_tensor_read_f64(logits_of(x), logits, count * now.vocab);
        const int32_t next = choose(logits + (count - 1) * now.vocab, temperature);
        gd_step_end(now.ctx);
        gd_tensor_free(x);
        if (count == CONTEXT) memmove(window, window + 1, sizeof window - sizeof *window), count--;
        window[count++] = next;
        putchar(now.byte_of[next]);
    }
    gd_no_grad_end(now.ctx);
    free(logits);
    fflush(stdout);
}
