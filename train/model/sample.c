/* sample.c - see sample.h. */
#include "sample.h"
#include "cache.h"
#include "console.h"
#include "stop.h"
#include "text_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    double weight; /* probability times a constant */
    int32_t id;
} candidate;

typedef struct sampler {
    model *m;
    const tokenizer *t;
    const sample_options *options;
    model_cache cache;
    int32_t *window; /* [context], of which `size` are filled */
    int64_t size;
    double *logits;        /* [V] */
    candidate *candidates; /* [V] */
} sampler;

/* ---- Drawing ------------------------------------------------------------------------------ */

/* The likeliest first; among equals, the smaller id. */
static int compare(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->weight != b->weight) return a->weight < b->weight ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

/* How many of the sorted candidates to sample from: at most top_k, and of these the fewest whose
 * probabilities add up to top_p of the total. */
static int64_t cut(const sample_options *o, const candidate *c, int64_t count)
{
    double sum = 0, passed = 0;
    if (o->top_k > 0 && o->top_k < count) count = o->top_k;
    for (int64_t i = 0; i < count; i++) sum += c[i].weight;
    if (o->top_p <= 0 || o->top_p >= 1) return count;
    for (int64_t i = 0; i < count; i++) {
        passed += c[i].weight;
        if (passed >= o->top_p * sum) return i + 1;
    }
    return count;
}

/* Samples an id from the logits, with u uniform in [0, 1). */
static int32_t choose(const sampler *s, double u)
{
    const sample_options *o = s->options;
    int64_t count = s->t->vocab;
    int32_t likeliest = 0;
    double sum = 0, passed = 0;
    for (int64_t v = 1; v < count; v++) {
        if (s->logits[v] > s->logits[likeliest]) likeliest = (int32_t)v;
    }
    if (o->temperature <= 0) return likeliest;
    for (int64_t v = 0; v < count; v++) {
        double weight = exp((s->logits[v] - s->logits[likeliest]) / o->temperature);
        s->candidates[v] = (candidate){weight, (int32_t)v};
    }
    if (o->top_k > 0 || (o->top_p > 0 && o->top_p < 1)) {
        qsort(s->candidates, (size_t)count, sizeof *s->candidates, compare);
        count = cut(o, s->candidates, count);
    }
    for (int64_t i = 0; i < count; i++) sum += s->candidates[i].weight;
    for (int64_t i = 0; i < count; i++) {
        passed += s->candidates[i].weight;
        if (u * sum < passed) return s->candidates[i].id;
    }
    return likeliest;
}

/* ---- The window --------------------------------------------------------------------------- */

static void push(sampler *s, int32_t id)
{
    const int64_t context = s->options->context;
    if (s->size == context) {
        int64_t forgotten = context < 8 ? 1 : context / 8;
        s->size -= forgotten;
        memmove(s->window, s->window + forgotten, (size_t)s->size * sizeof *s->window);
        s->cache.length = 0;
    }
    s->window[s->size++] = id;
}

/* The logits of the token after the window: the model reads the tokens it has not read yet. */
static gd_status predict(sampler *s)
{
    gd_context *ctx = s->m->ctx;
    const int64_t shape[2] = {1, s->size - s->cache.length};
    gd_tensor *tokens = gd_tensor_from(ctx, GD_INT32, 2, shape, s->window + s->cache.length);
    gd_tensor_read_f64(cache_logits(&s->cache, s->m, tokens), s->logits, s->m->config.vocab);
    gd_step_end(ctx);
    gd_tensor_free(tokens);
    return gd_error_status(ctx);
}

static gd_status check_logits(const sampler *s)
{
    for (int64_t v = 0; v < s->t->vocab; v++) {
        if (isfinite(s->logits[v])) continue;
        return gd_fail(s->m->ctx, GD_ERROR_STATE,
                       "the logits are not finite (%g for token %lld): either the weights are not, "
                       "or they overflow the dtype",
                       console_number(s->logits[v]), (long long)v);
    }
    return GD_OK;
}

static gd_status begin(sampler *s)
{
    const sample_options *o = s->options;
    const size_t vocab = (size_t)s->m->config.vocab;
    s->window = calloc((size_t)o->context, sizeof *s->window);
    s->logits = calloc(vocab, sizeof *s->logits);
    s->candidates = calloc(vocab, sizeof *s->candidates);
    if (!s->window || !s->logits || !s->candidates) {
        return gd_fail(s->m->ctx, GD_ERROR_MEMORY, "no memory for a window of %lld tokens",
                       (long long)o->context);
    }
    if (o->prompt_length == 0) {
        s->window[s->size++] = tokenizer_first(s->t);
    } else {
        s->size = o->prompt_length < o->context ? o->prompt_length : o->context;
        memcpy(s->window, o->prompt + (o->prompt_length - s->size),
               (size_t)s->size * sizeof *s->window);
    }
    return cache_create(&s->cache, s->m, o->context);
}

static void end(sampler *s)
{
    cache_free(&s->cache);
    free(s->window);
    free(s->logits);
    free(s->candidates);
}

gd_status sample_text(model *m, const tokenizer *t, const sample_options *options, FILE *file,
                      int64_t *count)
{
    sampler s = {.m = m, .t = t, .options = options};
    text_stream out = {.file = file, .stop = options->stop};
    int64_t done = 0;
    bool training = m->training;
    m->training = false;
    gd_no_grad_begin(m->ctx);
    begin(&s);
    while (done < options->length && !out.stopped && !stop_asked() && !gd_error(m->ctx)) {
        char text[TOKENIZER_ID_TEXT];
        uint32_t word;
        if (predict(&s) || check_logits(&s)) break;
        gd_philox(gd_random_get(m->ctx).seed, 0, gd_random_take(m->ctx, 1), 1, &word);
        int32_t id = choose(&s, word / 4294967296.0);
        size_t length;
        const void *bytes = tokenizer_text_of(t, id, text, &length);
        text_stream_put(&out, bytes, length);
        if (++done < options->length) push(&s, id);
    }
    text_stream_end(&out);
    gd_no_grad_end(m->ctx);
    m->training = training;
    end(&s);
    if (count) *count = done;
    return gd_error_status(m->ctx);
}
