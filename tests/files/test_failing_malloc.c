/* test_failing_malloc.c - safetensors files and tokenizers written and read while one allocation
 * fails, whichever it is: of the C library, or of the context, whose allocator asks the C library
 * here. A file is then whole or an error, and what is read from it is right or an error. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "check_main.h"
#include "counted_memory.h"
#include "gradus/gradus.h"
#include "own_folder.h"
#include "train/text/tokenizer_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "preload/failing_malloc.c"

static gd_context *ctx;
static const char path[] = "model.safetensors";

static void set_up(void)
{
    ctx = gd_context_create(&(gd_context_options){.threads = 1, .allocator = counting});
    enter_folder();
}

static void tear_down(void)
{
    gd_context_free(ctx);
    remove(path);
    shell("! ls -A | grep ."); /* no temporary file is left */
    leave_folder();
}

/* The number of calls that a job makes while the k-th fails. */
static void fail_at(long k)
{
    failing_malloc_calls = 0;
    failing_malloc_at = k;
}

static long end_failing(void)
{
    failing_malloc_at = -1;
    return failing_malloc_calls;
}

enum { TENSORS = 20 };
static gd_named_tensor tensors[TENSORS];
static char names[TENSORS][40];
static const gd_named_text texts[] = {{"random.seed", "18446744073709551615"},
                                      {"optimizer.kind", "y \xc3\xa9"}};

static void make_tensors(void)
{
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%d.weight", i);
        gd_tensor *t =
            gd_tensor_create(ctx, i % 2 ? GD_FLOAT32 : GD_FLOAT64, 2, (int64_t[]){3, 4 + i});
        gd_tensor_fill(t, i);
        tensors[i] = (gd_named_tensor){names[i], t};
    }
    ck_assert_no_error(ctx);
}

static size_t read_into(const char *name, char *bytes, size_t room)
{
    FILE *file = fopen(name, "rb");
    return file ? read_back(file, bytes, room) : 0;
}

TEST(writing)
{
    enum { ROOM = 1 << 15 };
    static char wanted[ROOM], found[ROOM];
    long failed = 0, whole = 0, used = 1;
    make_tensors();
    ck_assert(!gd_safetensors_write(ctx, path, tensors, TENSORS, texts, 2));
    const size_t size = read_into(path, wanted, ROOM);
    for (long k = 0; k <= used; k++) { /* a job that fails early makes k + 1 calls */
        remove(path);
        fail_at(k);
        const gd_status status = gd_safetensors_write(ctx, path, tensors, TENSORS, texts, 2);
        used = end_failing();
        if (status) ck_assert_int_eq(status, GD_ERROR_MEMORY);
        gd_error_clear(ctx);
        failed += status != GD_OK;
        whole += status == GD_OK;
        ck_assert_msg(read_into(path, found, ROOM) == (status ? 0 : size) &&
                          (status || !memcmp(wanted, found, size)),
                      "allocation %ld of %ld: status %d, and another file", k, used, status);
    }
    printf("writing: %ld allocations failed, %ld of them for good\n", failed + whole, failed);
    ck_assert_int_ge(failed, 3);
}

TEST(reading)
{
    long used = 1, failed = 0;
    make_tensors();
    ck_assert(!gd_safetensors_write(ctx, path, tensors, TENSORS, texts, 2));
    for (long k = 0; k <= used; k++) {
        fail_at(k);
        gd_safetensors *file = gd_safetensors_open(ctx, path);
        used = end_failing();
        const char *why = file ? "" : gd_error(ctx);
        ck_assert_msg(file || (gd_error_status(ctx) == GD_ERROR_MEMORY && errno == ENOMEM),
                      "allocation %ld of %ld: %s", k, used, why);
        failed += !file;
        for (int i = 0; file && i < TENSORS; i++) {
            const gd_safetensors_entry *entry = gd_safetensors_find(file, names[i]);
            ck_assert_msg(entry != NULL, "allocation %ld of %ld: no %s", k, used, names[i]);
            ck_assert(entry->ndim == 2 && entry->shape[0] == 3 && entry->shape[1] == 4 + i);
        }
        for (int i = 0; file && i < 2; i++)
            ck_assert_str_eq(gd_safetensors_metadata(file, texts[i].name), texts[i].text);
        gd_error_clear(ctx);
        gd_safetensors_close(file);
    }
    printf("reading: %ld allocations failed, %ld of them for good\n", used, failed);
    ck_assert_int_gt(failed, 3);
}

/* Of more bytes than the buffer of a stream has. */
LOOP_TEST(tokenizers, 2)
{
    enum { MERGES = 600, ROOM = 1 << 16 };
    static char wanted[ROOM], found[ROOM];
    static const char file[] = "tokenizer.json", config[] = "tokenizer_config.json";
    tokenizer t = {.kind = TOKENIZER_BPE, .vocab = 256 + MERGES};
    ck_assert(bpe_begin(&t.bpe, 256 + MERGES));
    for (int i = 0; i < MERGES; i++) ck_assert(bpe_add(&t.bpe, i % 26 + 'a', i / 26 + 'a'));
    long used = 1, failed = 0;
    size_t size = 0;
    for (long k = -1; k <= used; k++) { /* at first none fails */
        saving to = {.ctx = ctx};
        tokenizer read = {.kind = TOKENIZER_NONE};
        if (!_i || k < 0) remove(file), remove(config);
        ck_assert(folder_open(&to.folder, folder, false));
        fail_at(k);
        const gd_status status =
            _i && k >= 0 ? tokenizer_load(&read, ctx, &to.folder) : tokenizer_save(&t, &to);
        used = end_failing();
        const char *why = gd_error(ctx);
        if (k < 0) size = read_into(file, wanted, ROOM);
        ck_assert_msg(k >= 0 || (!status && size > 16384 && size < ROOM), "%zu bytes", size);
        if (_i && k >= 0)
            ck_assert_msg(status == GD_ERROR_MEMORY || read.vocab == t.vocab ||
                              status == GD_ERROR_IO,
                          "allocation %ld of %ld: %s", k, used, why);
        else if (!status)
            ck_assert_msg(read_into(file, found, ROOM) == size && !memcmp(wanted, found, size),
                          "allocation %ld of %ld: another file", k, used);
        failed += status != GD_OK;
        gd_error_clear(ctx);
        tokenizer_free(&read);
        folder_close(&to.folder);
    }
    printf("%s: %ld allocations failed, %ld of them for good\n", _i ? "reading" : "writing", used,
           failed);
    ck_assert_int_gt(failed, 3);
    remove(file), remove(config);
    tokenizer_free(&t);
}

CHECK_MAIN_WITHIN("failing malloc", set_up, tear_down)

#else

int main(void)
{
    printf("the C library's allocations cannot be replaced here: skipped\n");
    return 77;
}

#endif
