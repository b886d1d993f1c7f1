/* sample.c - see sample.h. */
#include "sample.h"
#include "decode.h"
#include "console.h"
#include "stop.h"
#include "text_stream.h"

#include <stdlib.h>
#include <string.h>

typedef struct sampler {
    model *m;
    const tokenizer *t;
    const sample_options *options;
    decoder decoder;
    int32_t *window; /* [context], of which `size` are filled */
    int64_t size;
    float *logits; /* [V] */
    draw_scratch scratch;
} sampler;

/* ---- The window --------------------------------------------------------------------------- */

static void push(sampler *s, int32_t id)
{
    const int64_t context = s->options->context;
    if (s->size == context) {
        int64_t forgotten = context < 8 ? 1 : context / 8;
        s->size -= forgotten;
        memmove(s->window, s->window + forgotten, (size_t)s->size * sizeof *s->window);
        s->decoder.length = 0;
    }
    s->window[s->size++] = id;
}

/* The logits of the token after the window: the model reads the tokens it has not read yet. */
static gd_status predict(sampler *s)
{
    const int64_t read = s->decoder.length;
    return decode_read(&s->decoder, s->window + read, s->size - read, s->logits);
}

static gd_status check_logits(const sampler *s)
{
    const int64_t v = draw_find_nonfinite(s->logits, s->t->vocab);
    if (v < 0) return GD_OK;
    return gd_fail(s->m->ctx, GD_ERROR_STATE,
                   "the logits are not finite (%g for token %lld): either the weights are not, "
                   "or they overflow the dtype",
                   console_number((double)s->logits[v]), (long long)v);
}

/* ---- Drawing ------------------------------------------------------------------------------ */

/* Draws the next token. */
static gd_status draw_next(sampler *s, int32_t *id)
{
    gd_context *ctx = s->m->ctx;
    uint32_t word;
    if (predict(s) || check_logits(s)) return gd_error_status(ctx);
    gd_philox(gd_random_get(ctx).seed, 0, gd_random_take(ctx, 1), 1, &word);
    *id = draw_token(&s->scratch, &s->options->draw, s->logits, word / 4294967296.0);
    return GD_OK;
}

static gd_status begin(sampler *s)
{
    const sample_options *o = s->options;
    s->window = calloc((size_t)o->context, sizeof *s->window);
    s->logits = calloc((size_t)s->m->config.vocab, sizeof *s->logits);
    if (!draw_scratch_create(&s->scratch, s->t->vocab) || !s->window || !s->logits) {
        return gd_fail(s->m->ctx, GD_ERROR_MEMORY, "out of memory: a window of %lld tokens",
                       (long long)o->context);
    }
    if (o->prompt_length == 0) {
        s->window[s->size++] = tokenizer_first(s->t);
    } else {
        s->size = o->prompt_length < o->context ? o->prompt_length : o->context;
        memcpy(s->window, o->prompt + (o->prompt_length - s->size),
               (size_t)s->size * sizeof *s->window);
    }
    decoder_create(&s->decoder, s->m, o->context);
    return gd_error_status(s->m->ctx);
}

static void end(sampler *s)
{
    decoder_free(&s->decoder);
    free(s->window);
    free(s->logits);
    draw_scratch_free(&s->scratch);
}

static bool is_stop(const sample_options *o, int32_t id)
{
    for (int64_t i = 0; i < o->stop_id_count; i++)
        if (o->stop_ids[i] == id) return true;
    return false;
}

gd_status sample_text(model *m, const tokenizer *t, const sample_options *options, FILE *file,
                      int64_t *count)
{
    sampler s = {.m = m, .t = t, .options = options};
    text_stream out = {.file = file, .cut = options->prompt_length > 0 ? 0 : 3};
    int64_t done = 0;
    bool training = m->training;
    m->training = false;
    gd_no_grad_begin(m->ctx);
    if (options->begin) text_stream_put(&out, options->begin, options->begin_bytes);
    out.stop = options->stop;
    begin(&s);
    while (done < options->length && !out.stopped && !stop_asked() && !gd_error(m->ctx)) {
        char text[TOKENIZER_ID_TEXT];
        size_t length;
        int32_t id = 0;
        if (draw_next(&s, &id)) break;
        out.stopped = is_stop(options, id);
        if (out.stopped) break;
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
