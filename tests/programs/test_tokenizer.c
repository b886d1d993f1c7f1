/* test_tokenizer.c - reading tokenizer.json: what is accepted, and what is refused. What is
 * written is tested in test_checkpoints.c. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "check_main.h"
#include "own_folder.h"
#include "tokenizer_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gd_context *ctx;
static const char path[] = "tokenizer.json";

static void set_up(void)
{
    ctx = gd_context_create(NULL);
    enter_folder();
}

static void tear_down(void)
{
    leave_folder();
    gd_context_free(ctx);
}

static bool load(tokenizer *t)
{
    open_folder in;
    ck_assert(folder_open(&in, folder, true));
    const bool loaded = !tokenizer_load(t, ctx, &in);
    folder_close(&in);
    return loaded;
}

/* ---- Files --------------------------------------------------------------------------------- */

/* The character of a byte, as UTF-8. */
static const char *character(int byte)
{
    static char text[3];
    int code = 0;
    while (tokenizer_byte_of(code) != byte) code++;
    memset(text, 0, sizeof text);
    text[0] = (char)(code < 128 ? code : 0xc0 | code >> 6);
    if (code >= 128) text[1] = (char)(0x80 | (code & 0x3f));
    return text;
}

static void print_words(FILE *file, bool cut)
{
    gd_json_text text = {0};
    tokenizer_print_words(&text, cut);
    fputs(text.bytes, file);
    free(text.bytes);
}

static void write_begin(FILE *file)
{
    fprintf(file,
            "{\"version\": \"1.0\", \"added_tokens\": [], \"decoder\": %s,\n\"pre_tokenizer\": ",
            tokenizer_byte_level);
    print_words(file, true);
    fprintf(file, ",\n\"model\": {\"type\": \"BPE\", \"vocab\": {\n");
    for (int byte = 0; byte < 256; byte++) {
        const char *text = character(byte);
        const bool escaped = *text == '"' || *text == '\\';
        fprintf(file, "%s\"%s%s\": %d", byte ? ", " : "", escaped ? "\\" : "", text, byte);
    }
}

/* A file of pieces; `entries` and `merges` begin with a comma, and without. */
static void write_pieces(const char *entries, const char *merges)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    write_begin(file);
    fprintf(file, "%s}, \"merges\": [%s]}}\n", entries, merges);
    fclose(file);
}

static int64_t count_ids(const tokenizer *t, const char *text)
{
    int64_t count;
    free(bpe_encode(&t->bpe, (const uint8_t *)text, (int64_t)strlen(text), &count));
    return count;
}

/* ---- Words --------------------------------------------------------------------------------- */

/* 22 times U+65E5, of which the merges make one token each: 66 bytes, in one word of 22
 * characters. */
TEST(words_are_counted_in_characters)
{
    char text[22 * 3 + 1] = "";
    tokenizer t;
    for (int i = 0; i < 22; i++) strcat(text, "\xe6\x97\xa5");
    /* U+00E6 stands for e6, U+0139 for 97, U+00A5 for a5 */
    write_pieces(", \"\u00e6\u0139\": 256, \"\u00e6\u0139\u00a5\": 257",
                 "[\"\u00e6\", \"\u0139\"], [\"\u00e6\u0139\", \"\u00a5\"]");
    ck_assert_msg(load(&t), "%s", gd_error(ctx));
    ck_assert_int_eq(t.vocab, 258);
    ck_assert_int_eq(count_ids(&t, text), 22);
    tokenizer_free(&t);
}

/* ---- What is not a tokenizer ---------------------------------------------------------------- */

static const struct {
    const char *entries, *merges;
    bool fits;
} pieces[] = {
    {"", "", true},
    {", \"ab\": 256", "[\"a\", \"b\"]", true},
    {", \"\\u0061b\": 256", "[ \"a\" ,\n\"b\" ]", true},
    {", \"ab\": 256", "", false},                      /* a token of no merge */
    {"", "[\"a\", \"b\"]", false},                     /* a merge of no token */
    {", \"ab\": 257", "[\"a\", \"b\"]", false},        /* beyond the vocabulary */
    {", \"ab\": 97", "[\"a\", \"b\"]", false},         /* of another token */
    {", \"a\": 97", "[\"a\", \"b\"]", false},          /* twice */
    {", \"ac\": 256", "[\"a\", \"b\"]", false},        /* other bytes */
    {", \"ab\": 256.0", "[\"a\", \"b\"]", false},      /* not a whole number */
    {", \"ab\": \"256\"", "[\"a\", \"b\"]", false},    /* */
    {", \"ab\": 256", "[\"a\", \"b\", \"c\"]", false}, /* of three */
    {", \"ab\": 256", "\"a b\"", false},               /* in another form */
    {", \"ab\": 256", "[\"a\", \"bc\"]", false},       /* of an unknown token */
    {", \"ab\": 256, \"b\": 257", "[\"a\", \"b\"], [\"a\", \"b\"]", false}, /* twice */
    {", \"\xe4\x84\x80\xc2\xa1\": 256", "[\"a\", \"b\"]", false}, /* a character beyond U+0800 */
    {", \"\": 256", "[\"a\", \"b\"]", false},
    {", \"ab\": 256", "[\"a\", \"b\"],", false},
    {", \"ab\": 256,", "[\"a\", \"b\"]", false},
};

LOOP_TEST(pieces_must_be_those_of_the_merges, sizeof pieces / sizeof *pieces)
{
    tokenizer t;
    write_pieces(pieces[_i].entries, pieces[_i].merges);
    ck_assert_msg(load(&t) == pieces[_i].fits, "%s: %s", pieces[_i].entries, gd_error(ctx));
    ck_assert_int_eq(t.kind, pieces[_i].fits ? TOKENIZER_BPE : TOKENIZER_NONE);
    if (!pieces[_i].fits)
        ck_assert_ptr_nonnull(strstr(gd_error(ctx), "is not a tokenizer of this"));
    tokenizer_free(&t);
}

/* Parts of the file in other places, twice, or missing. */
TEST(parts_have_their_places)
{
    static const char *const wholes[][2] = {
        {"\"version\": \"1.0\", ", "\"added_tokens\": [], "},
        {"\"version\": \"1.0\", \"version\": \"1.0\", ", "\"added_tokens\": [], "},
        {"", "\"added_tokens\": [], "},
        {"\"version\": \"2.0\", ", "\"added_tokens\": [], "},
        {"\"version\": \"1.0\", ", "\"added_tokens\": [{}], "},
        {"\"version\": \"1.0\", ", "\"added_tokens\": [], \"normalizer\": {\"type\": \"NFC\"}, "},
        {"\"version\": \"1.0\", ", "\"added_tokens\": [], \"type\": \"BPE\", "},
        {"\"version\": \"1.0\", ", "\"added_tokens\": [], \"normalizer\": null, "}};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        tokenizer t;
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fprintf(file, "{%s%s\"decoder\": %s, \"pre_tokenizer\": ", wholes[i][0], wholes[i][1],
                tokenizer_byte_level);
        print_words(file, false);
        fprintf(file, ", \"model\": {\"merges\": [], \"vocab\": {\"a\": 0, \"b\": 1}, "
                      "\"type\": \"BPE\"}}");
        fclose(file);
        const bool fits = i == 0 || i == sizeof wholes / sizeof *wholes - 1;
        ck_assert_msg(load(&t) == fits, "%s%s", wholes[i][0], wholes[i][1]);
        if (fits) ck_assert_int_eq(t.id_of['b'], 1);
        gd_error_clear(ctx);
        tokenizer_free(&t);
    }
}

CHECK_MAIN_WITHIN("tokenizer.json", set_up, tear_down)
