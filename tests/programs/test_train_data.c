/* test_train_data.c - the training program's data: pieces, token files, the order of windows. */
#define _XOPEN_SOURCE 700 /* mkdtemp, mkstemp, mkfifo */
#include "check_main.h"
#include "own_folder.h"
#include "data.h"
#include "text_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ---- Pieces ------------------------------------------------------------------------------- */

static const char prose[] =
    "the cat sat on the mat, and the cat saw 12345 mats.  The end?\n\n\tthe caf\xc3\xa9 of 2024\n";

static void assert_round_trip(const bpe *b, const uint8_t *text, int64_t length)
{
    int64_t count, at = 0;
    int32_t *ids = bpe_encode(b, text, length, &count);
    ck_assert_ptr_nonnull(ids);
    for (int64_t i = 0; i < count; i++) {
        ck_assert(ids[i] >= 0 && ids[i] < b->vocab);
        ck_assert_int_le(at + b->length[ids[i]], length);
        ck_assert_int_eq(memcmp(text + at, b->bytes[ids[i]], (size_t)b->length[ids[i]]), 0);
        at += b->length[ids[i]];
    }
    ck_assert_int_eq(at, length);
    free(ids);
}

TEST(any_bytes_come_back)
{
    uint8_t noise[5000];
    uint32_t state = 1;
    bpe b;
    ck_assert(bpe_train(&b, (const uint8_t *)prose, sizeof prose - 1, 300));
    ck_assert_int_gt(b.vocab, 258);
    assert_round_trip(&b, (const uint8_t *)prose, sizeof prose - 1);
    assert_round_trip(&b, noise, 0);
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < 5000; i++) {
            uint8_t byte = (uint8_t)next_random(&state);
            noise[i] = kind == 0   ? byte
                       : kind == 1 ? (uint8_t)prose[byte % (sizeof prose - 1)]
                       : kind == 2 ? ' '
                                   : 'a';
        }
        assert_round_trip(&b, noise, 5000);
        assert_round_trip(&b, noise, 1);
    }
    bpe_free(&b);
}

/* By hand. */
TEST(the_most_frequent_pair_is_merged_first)
{
    bpe b;
    const char *text = " abab abab abcd";
    ck_assert(bpe_train(&b, (const uint8_t *)text, (int64_t)strlen(text), 259));
    ck_assert_int_eq(b.vocab, 259);
    ck_assert_int_eq(b.merge[0][0], 'a'); /* ab, 5 times */
    ck_assert_int_eq(b.merge[0][1], 'b');
    ck_assert_int_eq(b.merge[1][0], ' '); /* " ab", 3 times */
    ck_assert_int_eq(b.merge[1][1], 256);
    ck_assert_int_eq(b.merge[2][0], 257); /* " abab", twice */
    ck_assert_int_eq(b.merge[2][1], 256);
    bpe same;
    ck_assert(bpe_begin(&same, 259));
    for (int i = 0; i < 3; i++) ck_assert(bpe_add(&same, b.merge[i][0], b.merge[i][1]));
    for (int32_t i = 0; i < b.vocab; i++) {
        ck_assert_int_eq(b.length[i], same.length[i]);
        ck_assert_int_eq(memcmp(b.bytes[i], same.bytes[i], (size_t)b.length[i]), 0);
    }
    bpe_free(&b);
    bpe_free(&same);
}

enum { TEXT = 6000, MOST = 420 };

/* The merge that comes next, found by counting all pairs anew: the most frequent pair of neighbours
 * within a word that makes no token there is, the first among equals. False: none occurs twice. */
static bool next_merge(const int32_t *token, const bool *begins, int count, const bpe *known,
                       int32_t tokens, int32_t pair[2])
{
    static int counts[MOST][MOST];
    memset(counts, 0, sizeof counts);
    for (int i = 0; i + 1 < count; i++)
        if (!begins[i + 1]) counts[token[i]][token[i + 1]]++;
    int most = 1;
    for (int32_t l = 0; l < tokens; l++) {
        for (int32_t r = 0; r < tokens; r++) {
            if (counts[l][r] <= most) continue;
            size_t ll = (size_t)known->length[l], rl = (size_t)known->length[r];
            bool old = false;
            for (int32_t t = 256; t < tokens && !old; t++)
                old = (size_t)known->length[t] == ll + rl &&
                      !memcmp(known->bytes[t], known->bytes[l], ll) &&
                      !memcmp(known->bytes[t] + ll, known->bytes[r], rl);
            if (old) continue;
            most = counts[l][r], pair[0] = l, pair[1] = r;
        }
    }
    return most > 1;
}

LOOP_TEST(merges_are_those_of_a_fresh_count, 3)
{
    static uint8_t text[TEXT];
    static int32_t token[TEXT];
    static bool begins[TEXT];
    uint32_t state = (uint32_t)_i + 1;
    bpe b;
    for (int i = 0; i < TEXT; i++)
        text[i] = (uint8_t) "aaabbcd   e"[next_random(&state) % (_i ? 11 : 3)];
    for (int64_t at = 0; at < TEXT; at += bpe_word(text + at, TEXT - at)) begins[at] = true;
    for (int i = 0; i < TEXT; i++) token[i] = text[i];
    ck_assert(bpe_train(&b, text, TEXT, MOST));
    int count = TEXT;
    int32_t tokens = 256, pair[2] = {0, 0};
    for (; tokens < MOST && next_merge(token, begins, count, &b, tokens, pair); tokens++) {
        ck_assert_int_lt(tokens, b.vocab);
        ck_assert_int_eq(b.merge[tokens - 256][0], pair[0]);
        ck_assert_int_eq(b.merge[tokens - 256][1], pair[1]);
        int to = 0;
        for (int i = 0; i < count; to++) {
            bool both =
                i + 1 < count && !begins[i + 1] && token[i] == pair[0] && token[i + 1] == pair[1];
            token[to] = both ? tokens : token[i];
            begins[to] = begins[i];
            i += both ? 2 : 1;
        }
        count = to;
    }
    ck_assert_int_eq(b.vocab, tokens);
    bpe_free(&b);
}

TEST(training_stops_where_nothing_repeats)
{
    bpe b;
    ck_assert(bpe_train(&b, (const uint8_t *)"abcdefg", 7, 1000));
    ck_assert_int_eq(b.vocab, 256);
    assert_round_trip(&b, (const uint8_t *)"xyz", 3);
    bpe_free(&b);
    ck_assert(bpe_train(&b, NULL, 0, 256));
    bpe_free(&b);
}

TEST(merges_that_cannot_be_are_refused)
{
    bpe b;
    ck_assert(bpe_begin(&b, 259));
    ck_assert(!bpe_add(&b, 256, 97)); /* later */
    ck_assert(!bpe_add(&b, -1, 98));
    ck_assert(bpe_add(&b, 'a', 'b'));
    ck_assert(!bpe_add(&b, 'a', 'b')); /* twice */
    ck_assert(bpe_add(&b, 'b', 'c'));
    ck_assert(bpe_add(&b, 256, 'c'));
    ck_assert(!bpe_add(&b, 'x', 'y')); /* no room */
    bpe_free(&b);
    ck_assert(bpe_begin(&b, 300));
    for (int i = 0; i < 8; i++) ck_assert(bpe_add(&b, i ? 255 + i : 'a', i ? 255 + i : 'a'));
    ck_assert_int_eq(b.length[b.vocab - 1], 256);
    ck_assert(!bpe_add(&b, 263, 256));                          /* longer than a word */
    ck_assert(bpe_add(&b, 257, 256) && !bpe_add(&b, 256, 257)); /* the same bytes */
    bpe_free(&b);
}

TEST(words_are_cut_as_documented)
{
    static const struct {
        const char *text;
        int64_t length;
    } rows[] = {
        {"cat sat", 3}, {" cat", 4},   {"  cat", 1}, {"12345", 3}, {" 12345", 4},
        {"?!x", 2},     {"\n\n x", 2}, {"   ", 3},   {" ", 1},     {"\xc3\xa9t\xc3\xa9.", 5}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t length = bpe_word((const uint8_t *)rows[i].text, (int64_t)strlen(rows[i].text));
        ck_assert_msg(length == rows[i].length, "\"%s\": %lld, wanted %lld", rows[i].text,
                      (long long)length, (long long)rows[i].length);
    }
}

/* After 64 characters; a space before is not counted. */
TEST(words_have_64_characters_at_most)
{
    static const struct {
        const char *character;
        int bytes; /* that count as a character */
    } rows[] = {{"a", 1},
                {"?", 1},
                {"\xc3\xa9", 2},
                {"\xe6\x97\xa5", 3},
                {"\xf0\x9f\x98\x80", 4},
                {"\xcc\x81", 2},
                {"\xf4\x8f\xbf\xbf", 4},
                {"\xff", 1},
                {"\xc3", 1},
                {"\xe6\x97", 1},
                {"\xed\xa0\x80", 1},
                {"\xc0\xaf", 1},
                {"\xe0\x80\x80", 1},
                {"\xf4\x90\x80\x80", 1},
                {"\x80", 1},
                {"\xf8\x88", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int count = 63; count <= 66; count++) {
            char text[1 + 66 * 4 + 1] = "";
            const int size = (int)strlen(rows[i].character), length = count * size;
            for (int k = 0; k < count; k++) strcat(text, rows[i].character);
            const int most = 64 * rows[i].bytes, wanted = length < most ? length : most;
            const uint8_t *bytes = (const uint8_t *)text;
            ck_assert_int_eq(bpe_word(bytes, length), wanted);
            memmove(text + 1, text, (size_t)length + 1);
            text[0] = ' ';
            ck_assert_int_eq(bpe_word(bytes, length + 1), wanted + 1);
        }
    }
    /* The text may end within a character. */
    ck_assert_int_eq(bpe_word((const uint8_t *)"\xe6\x97\xa5", 2), 2);
}

/* ---- Token files -------------------------------------------------------------------------- */

static const char some_ids[] = "some ids";

enum { GPT2 = 20240520, LLAMA3 = 20240801 };

/* The header of llm.c, and ids. */
static size_t llmc(unsigned char *bytes, int32_t magic, int32_t version, int32_t count,
                   size_t id_bytes)
{
    const int32_t header[3] = {magic, version, count};
    memset(bytes, 0, 1024 + id_bytes);
    memcpy(bytes, header, sizeof header);
    for (size_t i = 0; i < id_bytes; i++) bytes[1024 + i] = (unsigned char)(i + 1);
    return 1024 + id_bytes;
}

TEST(a_name_may_look_like_a_pattern)
{
    char message[TOKENS_MESSAGE];
    token_source source;
    write_bytes("ids[1]", "\1\2\3\4", 4);
    ck_assert_msg(tokens_open(&source, "ids[1]", 0, 9, message), "%s", message);
    ck_assert_int_eq(source.length, 2);
    tokens_close(&source);
}

TEST(both_kinds_are_read)
{
    unsigned char bytes[2048];
    char message[TOKENS_MESSAGE];
    token_source source;
    int32_t ids[3];
    for (int kind = 0; kind < 3; kind++) {
        size_t size = kind == 0   ? (memcpy(bytes, "\1\2\3\4\5\6", 6), (size_t)6)
                      : kind == 1 ? llmc(bytes, GPT2, 1, 3, 6)
                                  : llmc(bytes, LLAMA3, 7, 3, 12);
        write_bytes(some_ids, bytes, size);
        ck_assert_msg(tokens_open(&source, some_ids, 0, 9, message), "%s", message);
        ck_assert_int_eq(source.length, 3);
        ck_assert_int_eq(tokens_read(&source.shard[0], 0, 3, INT32_MAX, ids), -1);
        ck_assert_int_eq(ids[1], kind < 2 ? 0x0403 : 0x08070605);
        ck_assert_int_eq(tokens_read(&source.shard[0], 0, 3, ids[1], ids), 1);
        tokens_close(&source);
    }
}

/* An .npy file with this dictionary, and 3 ids; `version` 1 to 3. */
static size_t npy(unsigned char *bytes, int version, const char *header, int width)
{
    const size_t fixed = version == 1 ? 10 : 12, length = strlen(header) + 1;
    memcpy(bytes, "\x93NUMPY", 6);
    memcpy(bytes + 6, (unsigned char[]){(unsigned char)version, 0, (unsigned char)length, 0, 0, 0},
           fixed - 6);
    memcpy(bytes + fixed, header, length - 1);
    bytes[fixed + length - 1] = '\n';
    for (int i = 0; i < 3 * width; i++)
        bytes[fixed + length + (size_t)i] = i % width < 3 ? (unsigned char)(i + 1) : 0;
    return fixed + length + 3 * (size_t)width;
}

/* Checks the message of a file, NULL: that it is read; ids[1] is the second id. */
static void assert_opens(const unsigned char *bytes, size_t size, int width, int64_t vocab,
                         const char *refusal, int64_t second)
{
    char message[TOKENS_MESSAGE] = "";
    token_source source;
    int32_t ids[3];
    write_bytes(some_ids, bytes, size);
    const bool opened = tokens_open(&source, some_ids, width, vocab, message);
    ck_assert_msg(opened == !refusal, "%s", message);
    if (opened) {
        ck_assert_int_eq(tokens_read(&source.shard[0], 0, 3, INT64_MAX, ids), -1);
        ck_assert_uint_eq((uint32_t)ids[1], (uint32_t)second);
        ck_assert_int_eq(tokens_at(&source.shard[0], 1), second);
    } else {
        ck_assert_msg(strstr(message, refusal) != NULL, "\"%s\": %s", refusal, message);
    }
    tokens_close(&source);
}

TEST(arrays_of_numpy_are_read)
{
    static const struct {
        const char *descr, *order, *shape;
        int width;
        const char *refusal;
    } rows[] = {
        {"'<u2'", "False", "(3,)", 2, NULL},
        {"'<u4'", "False", "(3,)", 4, NULL},
        {"'<i4'", "False", "(3,)", 4, NULL},
        {"'<i8'", "False", "(3, )", 8, NULL},
        {"'>u2'", "False", "(3,)", 2, "its dtype is big-endian uint16 ('>u2')"},
        {"'>i8'", "False", "(3,)", 8, "its dtype is big-endian int64 ('>i8')"},
        {"'<i2'", "False", "(3,)", 2, "its dtype is int16 ('<i2')"},
        {"'<u8'", "False", "(3,)", 8, "its dtype is uint64 ('<u8')"},
        {"'|u1'", "False", "(3,)", 1, "its dtype is uint8 ('|u1')"},
        {"'<f4'", "False", "(3,)", 4, "its dtype is float32 ('<f4'), wanted little-endian uint16"},
        {"'|O'", "False", "(3,)", 8, "its dtype is '|O'"},
        {"[('a', '<u2')]", "False", "(3,)", 2, "its dtype is [('a'"},
        {"'<u2'", "True", "(3,)", 2, "its fortran_order is not False"},
        {"'<u2'", "False", "(3, 1)", 2, "it has the shape (3, 1), wanted one dimension"},
        {"'<u2'", "False", "()", 2, "it has the shape (), wanted one dimension"},
        {"'<u2'", "False", "(-3,)", 2, "it has the shape (-3,)"},
        {"'<u2'", "False", "(4,)", 2, "its header says 4 ids of 2 bytes, but 6 bytes follow it"},
        {"'<u2'", "False", "(9223372036854775807,)", 2, "but 6 bytes follow it"},
        {"'<u2'", "False", "(99999999999999999999,)", 2, "wanted one dimension"},
        {"'<u2'", "False", "(3,", 2, "wanted one dimension"},
        {"'<u2'", "False", "(3\n4)", 2, "it has the shape (3, wanted one dimension"},
        {"'<\n\x1b[2J'", "False", "(3,)", 2, "its dtype is '<, wanted little-endian"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int version = 1; version <= 3; version++) {
            char header[160];
            unsigned char bytes[1024] = {0};
            snprintf(header, sizeof header, "{'descr': %s, 'fortran_order': %s, 'shape': %s, }",
                     rows[i].descr, rows[i].order, rows[i].shape);
            const int width = rows[i].width, first = width + 1;
            const size_t size = npy(bytes, version, header, width);
            int64_t second = first | (first + 1) << 8;
            if (width > 2) second |= (first + 2) << 16;
            assert_opens(bytes, size, 0, 9, rows[i].refusal, second);
            if (rows[i].refusal) continue;
            assert_opens(bytes, size, width, 1 << 20, NULL, second);
            assert_opens(bytes, size, width == 8 ? 4 : 8, 9, "but --token-bytes is", 0);
            assert_opens(bytes, size - 1, 0, 9, "its header says 3 ids of", 0);
            assert_opens(bytes, 40, 0, 9, "its header of NumPy is cut short", 0);
            bytes[6] = 4;
            assert_opens(bytes, size, 0, 9, "its version of NumPy's format is 4.0", 0);
        }
    }
    unsigned char bytes[64] = "";
    assert_opens(bytes, npy(bytes, 1, "{}", 2), 0, 9, "its dtype is ,", 0);
}

/* Nothing in a file without a header says how wide its ids are. */
TEST(ids_without_a_header_have_a_width)
{
    enum { IDS = 100000 };
    static unsigned char bytes[8 * IDS];
    const int widths[] = {2, 4, 8};
    for (int i = 0; i < 3; i++) {
        const int width = widths[i];
        memset(bytes, 0, sizeof bytes);
        for (int k = 0; k < IDS; k++) {
            bytes[k * width] = (unsigned char)k;
            bytes[k * width + 1] = (unsigned char)(1 + k / 256);
        }
        const char *refusal = width == 4   ? "--token-bytes 4 reads it so"
                              : width == 8 ? "--token-bytes 8 reads it so"
                                           : NULL;
        const int counts[] = {5, 4096, 65536, IDS};
        for (int k = 0; k < 4; k++) {
            const size_t size = (size_t)(counts[k] * width);
            assert_opens(bytes, size, 0, 65536, refusal, 0x101);
            assert_opens(bytes, size, 0, 65537, "uint16 is too small for a vocabulary of 65537", 0);
            assert_opens(bytes, size, width, 65537, NULL, 0x101);
            assert_opens(bytes, size - 1, width, 9, "wanted a multiple of", 0);
        }
        /* An upper half that is not 0, somewhere. */
        if (width == 4) bytes[(size_t)IDS * 4 - 1] = 1;
        if (width == 4) assert_opens(bytes, (size_t)IDS * 4, 0, 9, NULL, 0);
    }
    memset(bytes, 0, sizeof bytes); /* of one id */
    assert_opens(bytes, sizeof bytes, 0, 9, NULL, 0);
    const uint32_t wide[3] = {1, 4000000000, 2};
    assert_opens((const unsigned char *)wide, sizeof wide, 4, 1 << 20, NULL, 4000000000);
}

TEST(other_files_are_named)
{
    static const struct {
        const char *begin, *refusal;
    } rows[] = {{"PK\x03\x04", "it is a zip archive, as .npz"},
                {"\x1f\x8b\x08", "compressed by gzip"},
                {"\x28\xb5\x2f\xfd", "compressed by zstd"},
                {"GGUF", "it is a GGUF file; wanted ids"},
                {"PAR1", "a Parquet file"},
                {"\x89HDF\r\n", "an HDF5 file"},
                {"MMIDIDX", "an index of Megatron"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char bytes[100] = "";
        memcpy(bytes, rows[i].begin, strlen(rows[i].begin));
        assert_opens(bytes, sizeof bytes, 0, 9, rows[i].refusal, 0);
    }
}

TEST(what_is_no_token_file_is_refused)
{
    unsigned char bytes[2048];
    char message[TOKENS_MESSAGE];
    token_source source;
    for (int k = 0; k < 13; k++) {
        size_t size = 0;
        if (k == 12) size = (memset(bytes, 'a', 64), 64); /* a text */
        if (k == 0) size = 0;
        if (k == 1) size = (memset(bytes, 1, 3), 3);
        if (k == 2) size = llmc(bytes, GPT2, 2, 3, 6); /* a version of something else */
        if (k == 3) size = llmc(bytes, GPT2, 1, 4, 6); /* fewer ids than it says */
        if (k == 4) size = llmc(bytes, GPT2, 1, 2, 6); /* more */
        if (k == 5) size = llmc(bytes, LLAMA3, 7, 3, 6);
        if (k == 6) size = llmc(bytes, GPT2, 1, -1, 6);
        if (k == 7) size = llmc(bytes, LLAMA3, 7, 0x40000001, 4); /* 4 times that is 4 in 32 bits */
        if (k == 8) size = llmc(bytes, GPT2, 1, 3, 5);
        if (k == 9) size = llmc(bytes, GPT2, 7, 3, 12);
        if (k == 10) size = llmc(bytes, LLAMA3, 1, 3, 6);
        if (k == 11) size = (llmc(bytes, LLAMA3, 7, 3, 12), 1022); /* the header is cut short */
        write_bytes(some_ids, bytes, size);
        ck_assert_msg(!tokens_open(&source, some_ids, 0, 9, message), "row %d", k);
        ck_assert_ptr_nonnull(strstr(message, some_ids));
        ck_assert_int_eq(source.shards, 0);
    }
    ck_assert(!tokens_open(&source, "/", 0, 9, message));
    ck_assert(!tokens_open(&source, "/dev/zero", 0, 9, message));
    ck_assert(!tokens_open(&source, "/no/such/*.bin", 0, 9, message));
    ck_assert_int_eq(mkfifo("pipe", 0600), 0);
    ck_assert(!tokens_open(&source, "pipe", 0, 9, message));
}

/* ---- The order of windows ------------------------------------------------------------------ */

enum { LENGTH = 1000, CONTEXT = 7 };

/* A dataset of LENGTH different ids in two shards. */
static dataset counted(void)
{
    static unsigned char bytes[2][2 * LENGTH];
    dataset data = {.options = {.context = CONTEXT, .seed = 3}, .tokenizer = {.vocab = LENGTH}};
    data.train.shard = calloc(2, sizeof(token_shard));
    ck_assert_ptr_nonnull(data.train.shard);
    data.train.shards = 2;
    for (int i = 0; i < LENGTH; i++) {
        int s = i >= 300, at = s ? i - 300 : i;
        bytes[s][2 * at] = (unsigned char)i;
        bytes[s][2 * at + 1] = (unsigned char)(i >> 8);
    }
    data.train.shard[0] = (token_shard){.ids = bytes[0], .width = 2, .length = 300};
    data.train.shard[1] = (token_shard){.ids = bytes[1], .width = 2, .length = 700};
    data.windows = 299 / CONTEXT - 1 + 699 / CONTEXT - 1;
    return data;
}

TEST(an_epoch_takes_every_window_once)
{
    dataset data = counted();
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    static int first_order[LENGTH];
    int same_place = 0;
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[LENGTH] = {false};
        for (int64_t i = 0; i < data.windows; i++) {
            int32_t x[2 * CONTEXT];
            const int32_t *y = x + CONTEXT;
            ck_assert(!data_read_batch(ctx, &data, epoch * data.windows + i, 1, x));
            for (int t = 0; t < CONTEXT; t++) {
                ck_assert_int_eq(x[t], x[0] + t);
                ck_assert_int_eq(y[t], x[t] + 1);
                ck_assert(!seen[x[t]]);
                seen[x[t]] = true;
            }
            ck_assert(x[0] >= 300 || y[CONTEXT - 1] < 300); /* never across shards */
            if (epoch == 0) first_order[i] = x[0];
            same_place += epoch == 1 && abs(first_order[i] - x[0]) < CONTEXT;
        }
    }
    ck_assert_int_lt(same_place, data.windows / 4);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
    free(data.train.shard);
}

/* ---- What --data names ----------------------------------------------------------------------- */

static void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static void make_files(void)
{
    static const char *const names[] = {"a[1].txt", "a1.txt", "star*.txt", "starry.txt", "p|q.txt",
                                        "x",        "x|y",    "d/b.txt",   "d/a.txt",    "d/a.txt~",
                                        "d/#a#",    "d/.a",   "d/sub/c"};
    ck_assert(!mkdir("d", 0700) && !mkdir("d/sub", 0700) && !mkdir("e", 0700));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) write_text(names[i], "ab");
    write_text("d/log.jsonl", "{\"program\": \"gradus-train\", \"version\": \"0.2.0\"}\n");
    ck_assert(!mkfifo("d/pipe", 0600) && !symlink("a1.txt", "link"));
}

/* What is named; the files that are found, or why none are. */
static const char *const named[][2] = {
    {"a[1].txt", "a[1].txt"},
    {"star*.txt", "star*.txt"},
    {"sta*.txt", "star*.txt starry.txt"},
    {"p|q.txt", "p|q.txt"},
    {"a1.txt|p|q.txt|starry.txt", "a1.txt p|q.txt starry.txt"},
    {"d", "d/a.txt d/b.txt"},
    {"d/*|-", "d/a.txt d/b.txt d/sub/c -"},
    {"d/log.jsonl|d/a.txt~", "d/log.jsonl d/a.txt~"},
    {"none", "none"},
    {"e", "there is no file to be read in e"},
    {"d/a.txt?|e", "there is no file to be read in d/a.txt?"},
    {"x|y", "x|y is a file, and so is a part of its name before |: rename one"},
    {"-|a1.txt|-", "-, standard input, can be read only once"},
    {"a1.txt|./a1.txt", "a1.txt and ./a1.txt are the same file"},
    {"*1.txt|link", "a1.txt and link are the same file"},
    {"d|d/a.txt", "d/a.txt and d/a.txt are the same file"}};

TEST(each_name_is_one_file_or_a_sentence)
{
    make_files();
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        char list[512] = "";
        paths found = {0};
        const bool fine = paths_find(&found, named[i][0]);
        for (size_t k = 0; fine && k < found.count; k++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", k ? " " : "",
                     found.name[k]);
        ck_assert_msg(!strcmp(fine ? list : paths_reason(&found), named[i][1]), "%s: %s",
                      named[i][0], fine ? list : paths_reason(&found));
        paths_free(&found);
    }
}

TEST(a_byte_order_mark_is_not_text)
{
    int64_t length, *ends;
    paths found;
    make_files();
    write_text("a1.txt", "\xef\xbb\xbf"
                         "ab");
    write_text("starry.txt", "\xef\xbb\xbf"
                             "cd\n");
    uint8_t *text = text_file_join("--data", "a1.txt|starry.txt|x", &length, &found, &ends);
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq((char *)text, "abcd\nab");
    const int64_t wanted[] = {2, 5, 7, 3, 3, 0};
    ck_assert(length == 7 && !memcmp(ends, wanted, sizeof wanted));
    free(text), free(ends);
    paths_free(&found);
}

/* A part of the training text, a text that only looks like one, and a token file of several. */
TEST(validation_on_what_is_trained_on_is_noticed)
{
    make_files();
    write_text("x", "the cat sat on the mat");
    write_text("p|q.txt", "cat sat on");
    write_text("a1.txt", "cat mat on");
    static const struct {
        data_options options;
        bool seen;
    } rows[] = {{{.text = "x", .validation = "p|q.txt"}, true},
                {{.text = "starry.txt", .validation = "star*.txt"}, true},
                {{.text = "x", .validation = "a1.txt"}, false},
                {{.tokens = "x|a1.txt", .validation = "a1.txt"}, true},
                {{.tokens = "x", .validation = "a1.txt"}, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dataset data;
        data_options o = rows[i].options;
        o.option = "--data", o.context = 1, o.token_bytes = 2;
        o.vocab = o.tokens ? 1 << 16 : 0;
        ck_assert(data_load(&data, &o));
        ck_assert_msg(data.seen == rows[i].seen, "row %zu", i);
        data_free(&data);
    }
}

CHECK_MAIN_WITHIN("data of gradus-train", enter_folder, leave_folder)
