/* test_failing_malloc.c - safetensors files written and read while one allocation of the C library
 * fails, whichever it is: those of jansson, too. A file is then whole or an error. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "check_main.h"
#include "gradus/gradus.h"
#include "needs_jansson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "preload/failing_malloc.c"

static gd_context *ctx;
static char folder[] = "/tmp/gradus_failing_XXXXXX", path[64];

static void set_up(void)
{
    ctx = gd_context_create(&(gd_context_options){.threads = 1});
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
}

static void tear_down(void)
{
    gd_context_free(ctx);
    remove(path);
    ck_assert_int_eq(rmdir(folder), 0); /* no temporary file is left */
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
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
static const gd_named_text texts[] = {{"step", "4"}, {"x", "y \xc3\xa9"}};

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

static size_t read_whole(char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(bytes, 1, room, file) : 0;
    if (file) fclose(file);
    return size;
}

typedef gd_status write_function(gd_context *, const char *, const gd_named_tensor *, int64_t,
                                 const gd_named_text *, int64_t);

LOOP_TEST(writing, 2)
{
    enum { ROOM = 1 << 15 };
    static char wanted[ROOM], found[ROOM];
    write_function *const write = _i ? gd_safetensors_reserve : gd_safetensors_write;
    long failed = 0, whole = 0, used = 1;
    make_tensors();
    ck_assert(!write(ctx, path, tensors, TENSORS, texts, 2));
    const size_t size = read_whole(wanted, ROOM);
    for (long k = 0; k <= used; k++) { /* a job that fails early makes k + 1 calls */
        remove(path);
        fail_at(k);
        const gd_status status = write(ctx, path, tensors, TENSORS, texts, 2);
        used = end_failing();
        if (status) ck_assert_int_eq(status, GD_ERROR_MEMORY);
        gd_error_clear(ctx);
        failed += status != GD_OK;
        whole += status == GD_OK;
        ck_assert_msg(read_whole(found, ROOM) == (status ? 0 : size) &&
                          (status || !memcmp(wanted, found, size)),
                      "allocation %ld of %ld: status %d, and another file", k, used, status);
    }
    printf("writing: %ld allocations failed, %ld of them for good\n", failed + whole, failed);
    ck_assert_int_gt(failed, 100);
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
        if (file) ck_assert_int_eq(gd_safetensors_count(file), TENSORS);
        gd_error_clear(ctx);
        gd_safetensors_close(file);
    }
    printf("reading: %ld allocations failed, %ld of them for good\n", used, failed);
    ck_assert(used > 150 && failed > 3);
}

CHECK_MAIN_UNLESS(jansson_missing(), "failing malloc", 0, set_up, tear_down)

#else

int main(void)
{
    printf("the C library's allocations cannot be replaced here: skipped\n");
    return 77;
}

#endif
