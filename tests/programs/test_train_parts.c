/* test_train_parts.c - small parts of the training programs: what a line of the report says, the
 * peak of a device, strings in JSON, prompts. */
#define _GNU_SOURCE /* dup2, tmpfile */
#include "check_main.h"
#include "bpe.h"
#include "files/json_text.h"
#include "prompt.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The report --------------------------------------------------------------------------- */

static gd_context *ctx;

static void set_up(void)
{
    ctx = gd_context_create(NULL);
}

static void tear_down(void)
{
    gd_context_free(ctx);
}

/* The line that report_step prints. */
static const char *line_of(report_clock clock, const log_line *values)
{
    static char line[512];
    run_log log = {0};
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    report_step(&clock, &log, ctx, values);
    dup2(before, STDOUT_FILENO);
    close(before);
    read_back(file, line, sizeof line);
    return line;
}

TEST(a_line_says_what_was_measured)
{
    /* 20 steps in 11.5 s, the first in 2 s, the last 4 in 1 s, of 500 tokens each */
    report_clock clock = {.first = 100,
                          .steps = 200,
                          .tokens_per_step = 500,
                          .seconds = 11.5,
                          .first_took = 2,
                          .since_report = 1,
                          .steps_since = 4};
    log_line v = {
        .step = 120, .loss = 2.5, .mean_loss = 2.31138, .val = NAN, .norm = 0.827, .lr = 3e-4};
    ck_assert_str_eq(line_of(clock, &v),
                     "step 120/200 | loss 2.3114 | eta 0:40 | 250.0 ms | 2.0k tok/s | norm 0.83 | "
                     "lr 3.0e-04 | mem 0 MiB\n");
    v.val = 2.4;
    clock.peak_rate = 8000;
    ck_assert_str_eq(line_of(clock, &v),
                     "step 120/200 | loss 2.3114 | val 2.4000 | eta 0:40 | 250.0 ms | 2.0k tok/s | "
                     "norm 0.83 | lr 3.0e-04 | mfu 25.0% | mem 0 MiB\n");
    clock.max_seconds = 36.5;
    ck_assert_ptr_nonnull(strstr(line_of(clock, &v), " | eta 0:25 |"));
    clock.max_seconds = 5; /* over */
    ck_assert_ptr_nonnull(strstr(line_of(clock, &v), " | eta 0:00 |"));
    clock.max_seconds = 0;
    clock.steps = 15000;
    ck_assert_ptr_nonnull(strstr(line_of(clock, &v), " | eta 2:04:00 |"));
}

/* ---- Peaks -------------------------------------------------------------------------------- */

TEST(peaks_are_known_or_not)
{
    static const char h200[] = "cuda, NVIDIA H200, compute capability 9.0";
    static const char pcie[] = "cuda, NVIDIA H100 PCIe, compute capability 9.0";
    ck_assert(report_peak_flops("cpu, 2 threads", GD_FLOAT32, false) == 0);
    ck_assert(report_peak_flops("cuda, NVIDIA Something", GD_FLOAT32, false) == 0);
    double f32 = report_peak_flops(h200, GD_FLOAT32, false),
           tf32 = report_peak_flops(h200, GD_FLOAT32, true);
    double bf16 = report_peak_flops(h200, GD_BFLOAT16, false);
    ck_assert_double_eq_tol(f32, 494.7e12 / 3, 1e9); /* three products of TF32 */
    ck_assert_double_eq_tol(tf32, 494.7e12, 1e9);
    ck_assert_double_eq_tol(bf16 / tf32, 2, 0.001); /* half the bytes, twice the rate */
    ck_assert(report_peak_flops(h200, GD_FLOAT16, false) == bf16);
    ck_assert(report_peak_flops(pcie, GD_BFLOAT16, false) < bf16);
    ck_assert_double_eq_tol(
        report_peak_flops("cuda, NVIDIA A100-SXM4-80GB, compute capability 8.0", GD_FLOAT32, true),
        156e12, 1e9);
}

/* ---- JSON --------------------------------------------------------------------------------- */

/* A name may have any bytes; those that are not UTF-8 (RFC 3629) are replaced, each by itself. */
TEST(any_bytes_become_valid_json)
{
#define BAD "\\ufffd"
    static const char *const rows[][2] = {
        {"a\"b\\c\n\x7f", "a\\\"b\\\\c\\u000a\\u007f"},
        {"\xc2\x80\xdf\xbf", "\xc2\x80\xdf\xbf"},
        {"\xc1\xbf", BAD BAD}, /* longer than needed */
        {"\xe0\xa0\x80\xed\x9f\xbf", "\xe0\xa0\x80\xed\x9f\xbf"},
        {"\xe0\x9f\xbf", BAD BAD BAD},
        {"\xed\xa0\x80", BAD BAD BAD}, /* a surrogate */
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\xf4\x80\x80\x80", "\xf4\x80\x80\x80"},
        {"\xf0\x8f\xbf\xbf", BAD BAD BAD BAD},
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD}, /* beyond U+10FFFF */
        {"\xf5\x80\xe2\x82", BAD BAD BAD BAD},
        {"\xe2\x82"
         "a",
         BAD BAD "a"}};
#undef BAD
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char wanted[100];
        gd_json_text text = {0};
        gd_json_print_string(&text, rows[i][0], NULL);
        snprintf(wanted, sizeof wanted, "\"%s\"", rows[i][1]);
        ck_assert_str_eq(text.bytes, wanted);
        free(text.bytes);
    }
}

/* ---- Prompts ------------------------------------------------------------------------------ */

TEST(prompts_become_ids)
{
    static const char text[] = "the cat sat on the mat, and the cat sat.\n";
    tokenizer t;
    int64_t count;
    tokenizer_use_bytes(&t, (const uint8_t *)text, sizeof text - 1);
    int32_t *ids = prompt_encode(&t, NULL, "cat", 3, &count);
    ck_assert_int_eq(count, 3);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(t.symbol[ids[i]], "cat"[i]);
    free(ids);
    ids = prompt_encode(&t, NULL, "", 0, &count);
    ck_assert(ids != NULL && count == 0);
    free(ids);
    ck_assert_ptr_null(prompt_encode(&t, NULL, "dog", 3, &count));
    tokenizer_free(&t);
    /* Samples begin with the end of a line, where the text has one. */
    tokenizer_use_bytes(&t, (const uint8_t *)"\ta\n", 3);
    ck_assert_int_eq(t.symbol[tokenizer_first(&t)], '\n');
    tokenizer_free(&t);
    tokenizer_use_bytes(&t, (const uint8_t *)"ab", 2);
    ck_assert_int_eq(tokenizer_first(&t), 0);
    tokenizer_free(&t);
    ck_assert(tokenizer_train(&t, (const uint8_t *)text, sizeof text - 1, 270));
    ids = prompt_encode(&t, NULL, "the dog \xff", 9, &count);
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        ck_assert_int_eq(
            memcmp(&"the dog \xff"[at], t.bpe.bytes[ids[i]], (size_t)t.bpe.length[ids[i]]), 0);
        at += tokenizer_bytes(&t, ids[i]);
    }
    ck_assert_int_eq(at, 9);
    free(ids);
    tokenizer_free(&t);
    t = (tokenizer){.kind = TOKENIZER_NONE, .vocab = 10};
    ids = prompt_encode(&t, NULL, " 3\t0\n9 ", 7, &count);
    ck_assert(count == 3 && ids[0] == 3 && ids[1] == 0 && ids[2] == 9);
    free(ids);
    static const char *const bad[] = {"10", "-1", "+1", "1.5", "x", "1 2x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_ptr_null(prompt_encode(&t, NULL, bad[i], (int64_t)strlen(bad[i]), &count));
}

/* ---- Words -------------------------------------------------------------------------------- */

/* Letters of ASCII and bytes of other characters; digits; blanks; the rest. */
static int kind(int c)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if (c > 127 || (c && strchr(letters, c))) return 0;
    return c && strchr("0123456789", c) ? 1 : c && strchr(" \t\n\v\f\r", c) ? 2 : 3;
}

/* Of every two bytes: one word where they are of a kind, or where a space leads a word in. */
TEST(words_are_of_one_kind)
{
    for (int a = 0; a < 256; a++) {
        for (int b = 0; b < 256; b++) {
            const uint8_t text[2] = {(uint8_t)a, (uint8_t)b};
            const int64_t wanted = kind(a) == kind(b) || a == ' ' ? 2 : 1;
            ck_assert_msg(bpe_word(text, 2) == wanted, "bytes %d %d", a, b);
        }
    }
}

CHECK_MAIN_WITHIN("parts of the training programs", set_up, tear_down)
