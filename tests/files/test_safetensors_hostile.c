/* test_safetensors_hostile.c - safetensors files that lie: each is refused with a sentence that
 * says why, and what is accepted holds every rule (safetensors_oracle.h). */
#define _XOPEN_SOURCE 700 /* mkdtemp, mkfifo */
#include "check_main.h"
#include "counted_memory.h"
#include "gradus/gradus.h"
#include "own_folder.h"
#include "safetensors_oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static gd_context *ctx;

static void set_up(void)
{
    ctx = gd_context_create(NULL);
    enter_folder();
}

static void tear_down(void)
{
    gd_context_free(ctx);
    leave_folder();
}

/* A file of a length, a header and zeros, in memory. */
static unsigned char *make(uint64_t length, const char *header, size_t header_bytes, size_t data,
                           size_t *size)
{
    unsigned char *bytes = calloc(1, 8 + header_bytes + data + 1);
    ck_assert_ptr_nonnull(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(bytes + 8, header, header_bytes);
    *size = 8 + header_bytes + data;
    return bytes;
}

/* Refused with a sentence that contains `wanted`, or accepted where that is NULL. */
static void judge(const unsigned char *bytes, size_t size, const char *wanted, const char *what)
{
    gd_safetensors *file = gd_safetensors_wrap(ctx, bytes, size);
    if (!wanted) {
        ck_assert_msg(file != NULL, "%s: %s", what, gd_error(ctx));
        const char *fault = oracle_rules(file, bytes, size);
        if (!fault) fault = oracle_round_trip(ctx, file);
        ck_assert_msg(!fault, "%s: accepted, with %s", what, fault);
        ck_assert_no_error(ctx);
    } else {
        ck_assert_msg(!file, "%s: accepted, wanted \"%s\"", what, wanted);
        ck_assert_msg(gd_error_status(ctx) == GD_ERROR_IO, "%s: %s", what, gd_error(ctx));
        ck_assert_error(ctx, wanted);
    }
    gd_safetensors_close(file);
}

/* ---- Headers ------------------------------------------------------------------------------ */

#define FIELDS(dtype, shape, offsets) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(dtype, shape, offsets) "{\"a\":" FIELDS(dtype, shape, offsets) "}"
#define TWO(first, second) \
    "{\"a\":" FIELDS("F32", "[1]", first) ",\"b\":" FIELDS("F32", "[1]", second) "}"

static const char not_json[] = "the header is not valid JSON: ";
static const char not_fields[] = "does not have exactly the fields dtype";
static const char not_within[] = "its data_offsets are not within";
static const char not_bytes[] = "its shape is too large";
static const char not_size[] = "its data_offsets hold ";

static const struct {
    const char *header;
    size_t data; /* bytes */
    const char *wanted;
} headers[] = {
    {"{}", 0, NULL},
    {"{} \n", 0, NULL},
    {ONE("F32", "[]", "[0,4]"), 4, NULL},
    {ONE("F32", "[2,3]", "[0,24]"), 24, NULL},
    {ONE("F32", "[2,0,3]", "[0,0]"), 0, NULL},
    {ONE("I64", "[2]", "[0,16]"), 16, NULL},
    {ONE("F4", "[2]", "[0,1]"), 1, NULL},
    {ONE("F8_E8M0", "[3]", "[0,3]"), 3, NULL},
    {ONE("F6_E2M3", "[4]", "[0,3]"), 3, NULL},
    {ONE("F32", "[1,1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, NULL}, /* more axes than a tensor has */
    {TWO("[4,8]", "[0,4]"), 8, NULL},
    {"{\"b\":" FIELDS("F32", "[0]", "[0,0]") ",\"a\":" FIELDS("F32", "[1]", "[0,4]") "}", 4, NULL},
    {"{\"__metadata__\":{}}", 0, NULL},
    {"{\"__metadata__\":{\"\":\"\",\"\\u00e9\":\"\\n\\\"\xc3\xa9\"}}", 0, NULL},

    /* not the text that it should be */
    {"{", 0, not_json},
    {"", 0, "does not begin with {"},
    {" {}", 0, "does not begin with {"},
    {"\xef\xbb\xbf{}", 0, "does not begin with {"},
    {"[]", 0, "does not begin with {"},
    {"null", 0, "does not begin with {"},
    {"\"a\"", 0, "does not begin with {"},
    {"{}{}", 0, not_json},
    {"{}x", 0, not_json},
    {"{\"a\":1,}", 0, not_fields},
    {"{\"__metadata__\":{},}", 0, not_json},
    {"{\"__metadata__\" {}}", 0, not_json},
    {"{\"__metadata__\":{} \"a\":1}", 0, not_json},
    {"{\"__metadata__\":{\"a\":\"1\"", 0, not_json},
    {"{'a':1}", 0, not_json},
    {"{\"\xff\":1}", 0, not_json},
    {"{\"\xc0\xaf\":1}", 0, not_json},         /* too long a form */
    {"{\"\xed\xa0\x80\":1}", 0, not_json},     /* a surrogate */
    {"{\"\xf4\x90\x80\x80\":1}", 0, not_json}, /* beyond U+10FFFF */
    {"{\"\\ud800\":1}", 0, not_json},
    {"{\"a\\u0000b\":1}", 0, not_json},
    {"{\"a\x01\":1}", 0, not_json},
    {"{\"a\n\":1}", 0, not_json},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, not_json},
    {"{\"a\":" FIELDS("F32", "[]", "[0,4]") ",\"\\u0061\":" FIELDS("F32", "[]", "[0,4]") "}", 4,
     not_json},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
     not_json},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, not_json},

    /* metadata */
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":null}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "__metadata__: \"a\" is not a string"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: \"a\" is not a string"},
    {"{\"__metadata__\":{\"a\":\"x\\u0000y\"}}", 0, not_json},

    /* fields */
    {"{\"a\":1}", 0, not_fields},
    {"{\"a\":[]}", 0, not_fields},
    {"{\"a\":{}}", 0, not_fields},
    {"{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, not_fields},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, not_fields},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, not_fields},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":0}}", 4, not_fields},
    {"{\"a\":{\"dtype\":7,\"shape\":[],\"data_offsets\":[0,4]}}", 4, not_fields},
    {ONE("F32", "1", "[0,4]"), 4, not_fields},
    {ONE("F32", "{}", "[0,4]"), 4, not_fields},
    {ONE("F32", "[]", "[0,4,4]"), 4, not_fields},
    {ONE("F32", "[]", "[4]"), 4, not_fields},
    {ONE("F32", "[]", "{}"), 4, not_fields},
    {ONE("F31", "[]", "[0,4]"), 4, "unknown dtype \"F31\""},
    {ONE("f32", "[]", "[0,4]"), 4, "unknown dtype \"f32\""},
    {ONE("", "[]", "[0,4]"), 4, "unknown dtype \"\""},

    /* shapes */
    {ONE("F32", "[-1]", "[0,4]"), 4, "a number has a minus sign"},
    {ONE("F32", "[-0]", "[0,0]"), 0, "a number has a minus sign"},
    {"{\"-\\\"-\":" FIELDS("F32", "[]", "[0,4]") "}", 4, NULL},
    {ONE("F32", "[1,1.0]", "[0,4]"), 4, "dimension 1 is not a whole number from 0 to 2^63 - 1"},
    {ONE("F32", "[1e0]", "[0,4]"), 4, "dimension 0 is not a whole number from 0 to 2^63 - 1"},
    {ONE("F32", "[\"1\"]", "[0,4]"), 4, "dimension 0 is not a whole number from 0 to 2^63 - 1"},
    {ONE("F32", "[null]", "[0,4]"), 4, "dimension 0 is not a whole number from 0 to 2^63 - 1"},
    {ONE("F32", "[[1]]", "[0,4]"), 4, "dimension 0 is not a whole number from 0 to 2^63 - 1"},
    {ONE("F32", "[01]", "[0,4]"), 4, not_json},
    {ONE("F32", "[18446744073709551616]", "[0,0]"), 0, not_json},
    {ONE("F32", "[9223372036854775808]", "[0,0]"), 0, not_json},
    {ONE("F32", "[1e999]", "[0,0]"), 0, not_json},
    {ONE("F32", "[4294967296,1073741824]", "[0,0]"), 0, not_bytes},          /* 2^64: 0 */
    {ONE("F32", "[4611686018427387905]", "[0,4]"), 4, not_bytes},            /* 2^64 + 4: 4 */
    {ONE("U8", "[4294967297,4294967296]", "[0,4294967296]"), 8, not_within}, /* 2^32 */
    {ONE("U8", "[274177,67280421310721]", "[0,1]"), 1, not_bytes}, /* 2^64 + 1: 1, the right size */
    {ONE("F32", "[0,9223372036854775807]", "[0,0]"), 0, not_bytes},
    {ONE("F32", "[9223372036854775807,9223372036854775807,0]", "[0,0]"), 0, not_bytes},
    {ONE("F4", "[1]", "[0,1]"), 1, not_bytes},
    {ONE("F6_E3M2", "[3]", "[0,2]"), 2, not_bytes},

    /* places */
    {ONE("F32", "[1]", "[4,0]"), 4, not_within},
    {ONE("F32", "[1]", "[0,5]"), 4, not_within},
    {ONE("F32", "[2]", "[0,8]"), 7, not_within},
    {ONE("F32", "[1]", "[-4,0]"), 4, "a number has a minus sign"},
    {ONE("F32", "[1]", "[0,4.0]"), 4, not_within},
    {ONE("F32", "[1]", "[0,18446744073709551615]"), 4, not_json},
    {ONE("F32", "[1]", "[9223372036854775804,9223372036854775807]"), 4, not_within},
    {ONE("F32", "[1]", "[0,3]"), 4, not_size},
    {ONE("F32", "[2]", "[0,4]"), 4, not_size},
    {ONE("F32", "[0]", "[0,4]"), 4, not_size},
    {TWO("[0,4]", "[0,4]"), 8, "begins at byte 0 of the data, but the one before it ends at 4"},
    {TWO("[0,4]", "[2,6]"), 8, "\"b\" begins at byte 2 of the data"},
    {TWO("[0,4]", "[5,9]"), 9, "\"b\" begins at byte 5 of the data"},
    {TWO("[1,5]", "[5,9]"), 9, "\"a\" begins at byte 1 of the data"},
    {"{\"a\":" FIELDS("F32", "[1]", "[0,4]") ",\"b\":" FIELDS("F32", "[0]", "[2,2]") "}", 4,
     "begins at byte 2 of the data"},
    {ONE("F32", "[1]", "[0,4]"), 5, "1 bytes at the end belong to no tensor"},
    {"{}", 1, "1 bytes at the end belong to no tensor"},
};

LOOP_TEST(headers_are_held_to_the_rules, sizeof headers / sizeof *headers)
{
    size_t size, length = strlen(headers[_i].header);
    unsigned char *bytes = make(length, headers[_i].header, length, headers[_i].data, &size);
    judge(bytes, size, headers[_i].wanted, headers[_i].header);
    free(bytes);
}

static const struct {
    uint64_t length;
    const char *wanted;
} lengths[] = {{0, "does not begin with {"},
               {1, not_json},
               {2, NULL},
               {3, "the header has 3 bytes, but the file has only 2"},
               {100000000, "but the file has only 2 after its length"},
               {100000001, "the header has 100000001 bytes, wanted at most 100000000"},
               {UINT64_MAX, "the header has 18446744073709551615 bytes, wanted at most"},
               {UINT64_MAX - 7, "wanted at most"}, /* with the 8 before it: 0 */
               {UINT64_MAX - 5, "wanted at most"}, /* with the 8 before it: 2 */
               {(uint64_t)1 << 63, "wanted at most"}};

LOOP_TEST(lengths_are_held_to_the_rules, sizeof lengths / sizeof *lengths)
{
    size_t size;
    unsigned char *bytes = make(lengths[_i].length, "{}", 2, 0, &size);
    judge(bytes, size, lengths[_i].wanted, "a length");
    free(bytes);
}

/* Other files under its name; a header may have as many bytes as a mark, if the file has them. */
TEST(other_files_are_named)
{
    static const struct {
        const char *begin, *wanted;
    } rows[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
         "it is a Git LFS pointer; \"git lfs pull\" fetches the file itself"},
        {"PK\x03\x04\x14\x00\x08\x08", "it is a zip archive, as .npz and PyTorch's .bin"},
        {"\x80\x02\x8a\nl\xfc\x9c\x46", "it is a pickle"},
        {"GGUF\x03\1\1\1", "it is a GGUF file"},
        {"<!DOCTYPE html>", "it is a web page"},
        {"Entry not found", "it is a text"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char bytes[64] = "";
        strcpy(bytes, rows[i].begin);
        judge((const unsigned char *)bytes, sizeof bytes, rows[i].wanted, rows[i].begin);
    }
    size_t size;
    char header[640];
    memset(header, ' ', sizeof header);
    memcpy(header, "{}", 2);
    unsigned char *bytes = make(0x280, header, sizeof header, 0, &size); /* 80 02 */
    judge(bytes, size, NULL, "a header of 640 bytes");
    free(bytes);
}

TEST(names_are_nothing_but_names)
{
    static const char *const names[] = {
        "",         "../../etc/passwd", "/",           "\\u0001\\u001b[2J",
        "\xc3\xa9", "a b\\n",           "__metadata_", "CON"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char header[256];
        snprintf(header, sizeof header, "{\"%s\":%s}", names[i], FIELDS("F32", "[1]", "[0,4]"));
        size_t size, length = strlen(header);
        unsigned char *bytes = make(length, header, length, 4, &size);
        judge(bytes, size, NULL, names[i]);
        /* In a sentence no name can write on the terminal. */
        snprintf(header, sizeof header, "{\"%s\":%s}", names[i], FIELDS("F32", "[1]", "[0,3]"));
        memcpy(bytes + 8, header, length);
        gd_safetensors *file = gd_safetensors_wrap(ctx, bytes, size);
        ck_assert_ptr_null(file);
        for (const char *c = gd_error(ctx); *c; c++) ck_assert((unsigned char)*c >= 0x20);
        gd_error_clear(ctx);
        free(bytes);
    }
}

/* ---- Large things ------------------------------------------------------------------------- */

/* `repeat` times open, a middle, and `repeat` times close. */
static void judge_nested(const char *begin, char open, const char *middle, char close,
                         const char *end, const char *wanted)
{
    enum { DEEP = 200000 };
    size_t length = strlen(begin) + strlen(middle) + strlen(end) + 2 * DEEP, size;
    char *header = malloc(length + 1), *at = header;
    ck_assert_ptr_nonnull(header);
    at += sprintf(at, "%s", begin);
    memset(at, open, DEEP);
    at += DEEP;
    at += sprintf(at, "%s", middle);
    memset(at, close, DEEP);
    at += DEEP;
    sprintf(at, "%s", end);
    unsigned char *bytes = make(length, header, length, 0, &size);
    judge(bytes, size, wanted, "nested");
    free(bytes);
    free(header);
}

TEST(what_is_deep_or_long_is_no_danger)
{
    judge_nested("{\"a\":", '[', "", ']', "}", not_fields);
    judge_nested("{\"__metadata__\":", '[', "", ']', "}", "__metadata__ is not an object");
    judge_nested("{\"a\":{\"x\":", '[', "", ']', "}}", "it is nested too deeply, at byte 109");
    judge_nested("{\"__metadata__\":{\"a\":\"", 'x', "", 'y', "\"}}", NULL);
    judge_nested("{", ' ', "", ' ', "}", NULL);
    judge_nested("{\"", 'n', "\":" FIELDS("F32", "[0]", "[0,0]") "}", ' ', " ", NULL);
    judge_nested("{\"", 'n', "\":1}", ' ', " ", not_fields);
}

/* ---- What it may cost --------------------------------------------------------------------- */

/* Headers of some megabytes: `begin`, then `item` again and again, with a number where it has
 * %d. */
static const struct {
    const char *begin, *item, *end;
    bool accepted;
} large[] = {
    {"{\"a\":[", "0,", "0]}", false},
    {"{\"a\":"
     "{\"dtype\":\"F32\",\"shape\":[",
     "0,", "0],\"data_offsets\":[0,0]}}", false},
    {"{\"__metadata__\":[", "0,", "0]}", false},
    {"{\"__metadata__\":{\"a\":[", "0,", "0]}}", false},
    {"{\"__metadata__\":{", "\"\":\"\",", "\"\":\"\"}}", false},
    {"{", "\"\":{},", "\"\":{}}", false},
    {"{\"__metadata__\":{\"a\":\"", "xy", "\"}}", true},
    {"{\"__metadata__\":{", "\"%d\":\"\",", "\"\":\"\"}}", true},
    {"{", "\"%d\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,0]},",
     "\"\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,0]}}", false}, /* half a byte */
    {"{", "\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},",
     "\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", true},
    {"{",
     "\"%d\":{\"dtype\":\"U8\",\"shape\":[0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
     "\"data_offsets\":[0,0]},",
     "\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", true},
};

/* Four times its own size, and no more, besides what jansson needs (test_json.c). */
LOOP_TEST(a_header_takes_what_it_may, sizeof large / sizeof *large)
{
    enum { SIZE = 3 << 20 };
    char *header = malloc(SIZE + 512);
    ck_assert_ptr_nonnull(header);
    int used = sprintf(header, "%s", large[_i].begin);
    for (int i = 0; used < SIZE; i++) used += sprintf(header + used, large[_i].item, i);
    used += sprintf(header + used, "%s", large[_i].end);
    size_t size;
    unsigned char *bytes = make((uint64_t)used, header, (size_t)used, 0, &size);
    free(header);
    gd_context *own = gd_context_create(&(gd_context_options){.allocator = counting});
    const int64_t before = counted.bytes;
    gd_safetensors *file = gd_safetensors_wrap(own, bytes, size);
    ck_assert_msg(large[_i].accepted ? file != NULL : gd_error_status(own) == GD_ERROR_IO, "%s",
                  gd_error(own));
    ck_assert_int_le(counted.most - before, 4 * used);
    gd_safetensors_close(file);
    gd_context_free(own);
    ck_assert_int_eq(counted.bytes, 0);
    free(bytes);
}

/* ---- A good file, spoiled ----------------------------------------------------------------- */

static const char good[] = "{\"__metadata__\":{\"step\":\"12\"},\"w\":" FIELDS(
    "F32", "[2,3]", "[0,24]") ",\"ids\":" FIELDS("I32", "[2]", "[24,32]") ",\"h\":" //
    FIELDS("BF16", "[1]", "[32,34]") "}  ";

TEST(cut_short_at_every_byte)
{
    size_t size;
    unsigned char *bytes = make(sizeof good - 1, good, sizeof good - 1, 34, &size);
    judge(bytes, size, NULL, "whole");
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *shorter = malloc(cut + 1); /* so that a read past the end is seen */
        ck_assert_ptr_nonnull(shorter);
        memcpy(shorter, bytes, cut);
        judge(shorter, cut, cut < 8 + sizeof good - 1 ? "the " : "its data_offsets are not within",
              "cut short");
        free(shorter);
    }
    free(bytes);
}

/* Each byte of length and header takes other values, one at a time: refused or harmless. */
TEST(every_byte_of_the_header_changed)
{
    size_t size;
    int refused = 0, accepted = 0;
    unsigned char *bytes = make(sizeof good - 1, good, sizeof good - 1, 34, &size);
    for (size_t i = 0; i < 8 + sizeof good - 1; i++) {
        unsigned char kept = bytes[i];
        static const unsigned char flips[] = {1, 2, 4, 8, 16, 32, 64, 128, 255};
        for (size_t k = 0; k < sizeof flips; k++) {
            bytes[i] = kept ^ flips[k];
            gd_safetensors *file = gd_safetensors_wrap(ctx, bytes, size);
            const char *fault = file ? oracle_rules(file, bytes, size) : NULL;
            if (file && !fault) fault = oracle_round_trip(ctx, file);
            ck_assert_msg(!fault, "byte %zu as 0x%02x: accepted, with %s", i, bytes[i], fault);
            ck_assert(file ? !gd_error(ctx) : gd_error_status(ctx) == GD_ERROR_IO);
            gd_error_clear(ctx);
            gd_safetensors_close(file);
            refused += !file;
            accepted += file != NULL;
        }
        bytes[i] = kept;
    }
    printf("header bytes changed: %d refused, %d accepted and true to every rule\n", refused,
           accepted);
    ck_assert_int_gt(refused, 1000);
    ck_assert_int_gt(accepted, 10); /* in names, say */
    free(bytes);
}

/* ---- What is no file ---------------------------------------------------------------------- */

static void refuse_path(const char *path, const char *wanted)
{
    REFUSED(gd_safetensors_open(ctx, path), wanted);
}

TEST(paths_that_are_no_files)
{
    refuse_path("/no/such/file", "safetensors_open: /no/such/file: No such file or directory");
    refuse_path("", "No such file");
    refuse_path(NULL, "path is NULL");
    refuse_path("/tmp", "/tmp: not a regular file");
    refuse_path("/dev/zero", "/dev/zero: not a regular file");
    refuse_path("/dev/null", "/dev/null: not a regular file");
    ck_assert_int_eq(mkfifo("fifo", 0600), 0);
    refuse_path("fifo", "not a regular file");
    for (size_t bytes = 0; bytes < 8; bytes++) {
        write_bytes("short", "12345678", bytes);
        refuse_path("short", "shorter than 8 bytes");
    }
}

CHECK_MAIN_WITHIN("safetensors, hostile", set_up, tear_down)
