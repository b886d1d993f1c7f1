/* test_sample.c - gradus-sample from inside: keys and values that are kept, drawing, text on its
 * way out. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "decode.h"
#include "check_main.h"
#include "draw.h"
#include "sample.h"
#include "text_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text on its way out ------------------------------------------------------------------ */

/* Puts the bytes one by one; returns what arrived, "|" after each that made something arrive. */
static char *stream_cut(const char *bytes, const char *stop, int cut)
{
    static char seen[256];
    char *written = NULL;
    size_t length = 0, before = 0, used = 0;
    text_stream s = {.file = open_memstream(&written, &length), .stop = stop, .cut = cut};
    ck_assert_ptr_nonnull(s.file);
    for (size_t i = 0; i <= strlen(bytes); i++) {
        if (bytes[i])
            text_stream_put(&s, bytes + i, 1);
        else
            text_stream_end(&s);
        if (length > before) {
            memcpy(seen + used, written + before, length - before);
            used += length - before;
            seen[used++] = '|';
        }
        before = length;
    }
    seen[used] = '\0';
    fclose(s.file);
    free(written);
    return seen;
}

static char *stream_out(const char *bytes, const char *stop)
{
    return stream_cut(bytes, stop, 0);
}

TEST(a_text_does_not_begin_within_a_character)
{
    ck_assert_str_eq(stream_cut("\xb8\xad\xe6\x96\x87 ok", NULL, 3), "\xe6\x96\x87| |o|k|");
    ck_assert_str_eq(stream_cut("a\x80"
                                "b",
                                NULL, 3),
                     "a|\x80|b|");
    ck_assert_str_eq(stream_cut("\x80\x80\x80\x80\x80z", NULL, 3), "\x80|\x80|z|");
    ck_assert_str_eq(stream_cut("\xad", NULL, 3), "");
}

TEST(characters_are_written_whole)
{
    ck_assert_str_eq(stream_out("abc", NULL), "a|b|c|");
    ck_assert_str_eq(stream_out("a\xc3\xa9z", NULL), "a|\xc3\xa9|z|");
    ck_assert_str_eq(stream_out("\xe2\x82\xac\xf0\x9f\x98\x80", NULL),
                     "\xe2\x82\xac|\xf0\x9f\x98\x80|");
    ck_assert_str_eq(stream_out("\xe2\x82zy", NULL), "\xe2\x82z|y|"); /* breaks off */
    ck_assert_str_eq(stream_out("\x80\xff", NULL), "\x80|\xff|");     /* none at all */
    ck_assert_str_eq(stream_out("a\xf0\x9f", NULL), "a|\xf0\x9f|");
}

TEST(nothing_follows_the_stop_text)
{
    ck_assert_str_eq(stream_out("one END two", "END"), "o|n|e| |");
    ck_assert_str_eq(stream_out("ENEND", "END"), "EN|");
    ck_assert_str_eq(stream_out("ENEN", "END"), "EN|EN|");
    ck_assert_str_eq(stream_out("aaab", "aab"), "a|");
    ck_assert_str_eq(stream_out("END", "END"), "");
    ck_assert_str_eq(stream_out("x\xc3\xa9y", "\xc3\xa9"), "x|");
    ck_assert_str_eq(stream_out("a\x80z", "ab"), "a\x80|z|"); /* no character of two bytes */
}

/* ---- Keys and values ---------------------------------------------------------------------- */

enum { VOCAB = 23, LENGTH = 19 };

static const int32_t tokens[LENGTH] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 22, 0, 21, 4};

/* Weights far larger than those that training begins with, so that positions matter. */
static void make_model(model *m, gd_context *ctx, gd_dtype dtype)
{
    const model_config config = {
        .vocab = VOCAB, .layers = 3, .dim = 24, .heads = 4, .kv_heads = 2, .ffn = 40};
    ck_assert_int_eq(model_create(m, ctx, dtype, &config), GD_OK);
    for (int i = 0; i < gd_params_count(m->params); i++) {
        gd_tensor *t = gd_params_at(m->params, i);
        if (gd_tensor_ndim(t) == 2) gd_random_normal(t, 0, 0.3);
    }
}

/* Reads tokens [from, to), and compares the logits with those of the whole model. */
static void compare(decoder *decoder, model *m, int64_t from, int64_t to, double tolerance)
{
    const int64_t shape[2] = {1, to};
    float quick[VOCAB];
    double whole[LENGTH * VOCAB];
    ck_assert_int_eq(decode_read(decoder, tokens + from, to - from, quick), GD_OK);
    ck_assert_int_eq(decoder->length, to);
    gd_tensor *all = gd_tensor_from(m->ctx, GD_INT32, 2, shape, tokens);
    gd_tensor_read_f64(gd_linear(model_hidden(m, all), m->output, NULL), whole, to * VOCAB);
    gd_step_end(m->ctx);
    gd_tensor_free(all);
    ck_assert_no_error(m->ctx);
    for (int v = 0; v < VOCAB; v++)
        ck_assert_double_eq_tol((double)quick[v], whole[(to - 1) * VOCAB + v], tolerance);
}

LOOP_TEST(what_is_kept_is_what_would_be_computed, 3)
{
    const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16};
    const double tolerances[] = {2e-5, 1e-6, 0.1}; /* the logits are float32 */
    gd_context *ctx = gd_context_create(NULL);
    model m;
    decoder decoder;
    make_model(&m, ctx, dtypes[_i]);
    gd_no_grad_begin(ctx);
    ck_assert_int_eq(decoder_create(&decoder, &m, LENGTH), GD_OK);
    for (int round = 0; round < 2; round++) { /* the second time over what the first one left */
        int64_t at = round ? 1 : 7;
        decoder.length = 0;
        compare(&decoder, &m, 0, at, tolerances[_i]);
        for (; at < 12; at++) compare(&decoder, &m, at, at + 1, tolerances[_i]);
        compare(&decoder, &m, at, LENGTH, tolerances[_i]);
    }
    decoder_free(&decoder);
    gd_no_grad_end(ctx);
    model_free(&m);
    gd_context_free(ctx);
}

/* ---- Drawing ------------------------------------------------------------------------------ */

/* The same by sorting all tokens. */
typedef struct place {
    double weight;
    int32_t id;
} place;

static int by_weight(const void *left, const void *right)
{
    const place *a = left, *b = right;
    if (a->weight != b->weight) return a->weight < b->weight ? 1 : -1;
    return a->id - b->id;
}

static int32_t draw_sorted(const draw_options *o, const float *logits, int count, double u)
{
    place *p = calloc((size_t)count, sizeof *p);
    double largest = -INFINITY, sum = 0, passed = 0;
    int kept = count, i = 0;
    for (int v = 0; v < count; v++) largest = fmax(largest, (double)logits[v]);
    for (int v = 0; v < count; v++)
        p[v] = (place){exp(((double)logits[v] - largest) / o->temperature), v};
    if (o->top_k > 0 || o->top_p < 1) qsort(p, (size_t)count, sizeof *p, by_weight);
    if (o->top_k > 0 && o->top_k < count) kept = (int)o->top_k;
    for (int v = 0; v < kept; v++) sum += p[v].weight;
    if (o->top_p > 0 && o->top_p < 1) {
        while (passed < o->top_p * sum && i < kept) passed += p[i++].weight;
        kept = i, sum = passed, passed = 0;
    }
    for (i = 0; i < kept - 1; i++) {
        passed += p[i].weight;
        if (u * sum < passed) break;
    }
    int32_t id = p[i].id;
    free(p);
    return id;
}

TEST(draws_are_those_from_sorted_tokens)
{
    static const int counts[] = {1, 2, 63, 130, 5001};
    static const int64_t ks[] = {0, 0, 1, 2, 40, 6000};
    static const double ps[] = {1, 0.9, 0.35, 0.999}, temperatures[] = {0.05, 0.8, 1, 30};
    static float logits[5001];
    uint32_t words[2];
    int drawn = 0;
    for (int turn = 0; turn < 600; turn++) {
        const int count = counts[turn % 5];
        const draw_options o = {temperatures[turn % 4], ks[turn % 6], ps[turn / 4 % 4]};
        draw_scratch scratch;
        for (int v = 0; v < count; v++) {
            gd_philox((uint64_t)turn, 0, (uint64_t)(4 * v), 2, words);
            double x = (words[0] + 1.0) / 4294967297, y = words[1] / 4294967296.0;
            logits[v] = (float)(3 * sqrt(-2 * log(x)) * cos(6.2831853 * y));
            if (turn % 3 == 0) logits[v] = rintf(2 * logits[v]); /* many are equal */
        }
        ck_assert(draw_scratch_create(&scratch, count));
        for (int i = 0; i < 9; i++) {
            gd_philox((uint64_t)turn, 1, (uint64_t)(4 * i), 1, words);
            const double u = i ? words[0] / 4294967296.0 : 0;
            const int32_t id = draw_token(&scratch, &o, logits, u);
            const int32_t want = draw_sorted(&o, logits, count, u);
            ck_assert_msg(id == want,
                          "turn %d, %d tokens, k %d, p %g, T %g, u %.17g: %d, wanted %d", turn,
                          count, (int)o.top_k, o.top_p, o.temperature, u, id, want);
            drawn += id != 0;
        }
        draw_scratch_free(&scratch);
    }
    ck_assert_int_gt(drawn, 2500);
}

/* Just before and after the places where another token begins. */
TEST(no_rounding_decides_a_draw)
{
    enum { COUNT = 3000 };
    static float logits[COUNT];
    static double weights[COUNT];
    const draw_options o = {.temperature = 0.7};
    double sum = 0, passed = 0;
    draw_scratch scratch;
    uint32_t word;
    for (int v = 0; v < COUNT; v++) {
        gd_philox(9, 0, (uint64_t)(4 * v), 1, &word);
        logits[v] = (float)(5 * (word / 4294967296.0));
        weights[v] = exp((double)logits[v] / o.temperature);
        sum += weights[v];
    }
    ck_assert(draw_scratch_create(&scratch, COUNT));
    for (int v = 0; v < COUNT - 1; v++) {
        passed += weights[v];
        ck_assert_int_eq(draw_token(&scratch, &o, logits, passed / sum - 1e-11), v);
        ck_assert_int_eq(draw_token(&scratch, &o, logits, passed / sum + 1e-11), v + 1);
    }
    draw_scratch_free(&scratch);
}

TEST(a_logit_that_is_not_finite_is_found)
{
    float logits[100];
    for (int v = 0; v < 100; v++) logits[v] = v % 2 ? -3e38f : 3e38f;
    ck_assert_int_eq(draw_find_nonfinite(logits, 100), -1);
    for (int v = 99; v >= 0; v -= 11) {
        logits[v] = v % 3 == 0 ? NAN : v % 3 == 1 ? INFINITY : -INFINITY;
        ck_assert_int_eq(draw_find_nonfinite(logits, 100), v);
    }
}

CHECK_MAIN("sample")
