/* test_core.c - contexts report the first error and run nothing after it; memory is counted, reused
 * and returned; tensors are read and written as they lie. */
#define _POSIX_C_SOURCE 200809L /* fork */
#include "check_main.h"
#include "gradus/gradus.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Contexts and errors ------------------------------------------------------------------ */

TEST_CASE("contexts", NULL, NULL)

/* A reason stands behind what may be long. */
TEST(a_long_message_loses_its_middle)
{
    char path[4096], wanted[1024];
    gd_context *ctx = gd_context_create(NULL);
    for (int length = 600; length < 4096; length += length < 800 ? 1 : 500) {
        memset(path, 'a', (size_t)length);
        path[length] = '\0';
        ck_assert_int_eq(gd_fail(ctx, GD_ERROR_IO, "cannot open %s: no such file", path),
                         GD_ERROR_IO);
        size_t size = strlen(gd_error(ctx));
        snprintf(wanted, sizeof wanted, "cannot open %.200s", path);
        ck_assert_int_eq(strncmp(gd_error(ctx), wanted, 212), 0);
        ck_assert_str_eq(gd_error(ctx) + size - 17, "aaa: no such file");
        ck_assert(strstr(gd_error(ctx), " ... ") != NULL || size == (size_t)length + 26);
        gd_error_clear(ctx);
    }
    gd_context_free(ctx);
}

TEST(a_message_is_one_line)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_fail(ctx, GD_ERROR_IO, "near %s: bad", "a\nb\t\x7f\x1b[2J \xc3\xa9");
    ck_assert_str_eq(gd_error(ctx), "near a?b???[2J \xc3\xa9: bad");
    gd_error_clear(ctx);
    /* the same in eight bits, alone, behind a character and in a broken one; others stay */
    gd_fail(ctx, GD_ERROR_IO, "%s",
            "\x9b"
            "2J \xc2\x9b \xc3\xa9\x9b \xe2\x82\xac\x80 \xe2 \x85 \xf0\x9f\x91\xa8");
    ck_assert_str_eq(gd_error(ctx), "?2J ?? \xc3\xa9? \xe2\x82\xac? \xe2 ? \xf0\x9f\x91\xa8");
    gd_context_free(ctx);
}

/* What is cut stays UTF-8, without a byte that is a control character by itself. */
TEST(a_long_message_has_whole_characters)
{
    static char path[12000];
    gd_context *ctx = gd_context_create(NULL);
    for (int length = 300; length < 6000; length += length < 320 ? 1 : 5600) {
        path[0] = '\0';
        for (int i = 0; i < length; i++) memcpy(path + 2 * i, "\xc3\x9b", 3);
        for (int shift = 0; shift < 2; shift++) {
            gd_fail(ctx, GD_ERROR_IO, "%.*s%s%s", shift, "a", path, path);
            const char *c = gd_error(ctx) + shift;
            for (; *c; c += *c == ' ' || *c == '.' ? 1 : 2)
                ck_assert_msg(*c == ' ' || *c == '.' || !memcmp(c, "\xc3\x9b", 2), "%s", c);
            gd_error_clear(ctx);
        }
    }
    gd_context_free(ctx);
}

TEST(the_first_error_stays)
{
    gd_context *ctx = gd_context_create(NULL);
    ck_assert_ptr_nonnull(ctx);
    ck_assert_ptr_null(gd_error(ctx));
    ck_assert_int_eq(gd_fail(ctx, GD_ERROR_IO, "first %d", 1), GD_ERROR_IO);
    ck_assert_int_eq(gd_fail(ctx, GD_ERROR_MEMORY, "second"), GD_ERROR_IO);
    ck_assert_str_eq(gd_error(ctx), "first 1");
    ck_assert_ptr_null(gd_tensor_create(ctx, GD_FLOAT32, 0, NULL));
    gd_error_clear(ctx);
    ck_assert_ptr_null(gd_error(ctx));
    ck_assert_ptr_nonnull(gd_tensor_create(ctx, GD_FLOAT32, 0, NULL));
    gd_context_free(ctx);
}

TEST(a_missing_cuda_device_is_reported)
{
    gd_context_options options = {.device = GD_CUDA};
    gd_context *ctx = gd_context_create(&options);
    ck_assert_ptr_nonnull(ctx);
    if (gd_error(ctx)) {
        ck_assert_int_eq(strncmp(gd_error(ctx), "no CUDA device: ", 16), 0);
        ck_assert_int_eq(gd_error_status(ctx), GD_ERROR_DEVICE);
        ck_assert_ptr_null(gd_tensor_create(ctx, GD_FLOAT32, 0, NULL));
        gd_error_clear(ctx); /* does not make a device */
        ck_assert_ptr_null(gd_tensor_create(ctx, GD_FLOAT32, 0, NULL));
    }
    gd_context_free(ctx);

    options.device = GD_DEVICE_AUTO;
    ctx = gd_context_create(&options);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

TEST(wrong_options_are_reported)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.device = (gd_device)42});
    ck_assert_int_eq(strncmp(gd_error(ctx), "context: device is 42, wanted GD_CPU", 36), 0);
    gd_context_free(ctx);
    ctx = gd_context_create(&(gd_context_options){.threads = -1});
    ck_assert_str_eq(gd_error(ctx), "context: threads is -1, wanted 0 to 4096");
    gd_error_clear(ctx); /* the default instead */
    ck_assert_int_ge(gd_context_threads(ctx), 1);
    ck_assert_ptr_nonnull(gd_tensor_create(ctx, GD_FLOAT32, 0, NULL));
    gd_context_free(ctx);
    ctx = gd_context_create(&(gd_context_options){.threads = 100000});
    ck_assert_str_eq(gd_error(ctx), "context: threads is 100000, wanted 0 to 4096");
    gd_error_clear(ctx);
    ck_assert_int_lt(gd_context_threads(ctx), 100000);
    gd_context_free(ctx);
}

TEST(the_cpu_has_no_stream_and_is_never_behind)
{
    gd_context *ctx = gd_context_create(NULL);
    ck_assert_ptr_null(gd_context_stream(ctx));
    ck_assert_int_eq(gd_synchronize(ctx), GD_OK);
    gd_fail(ctx, GD_ERROR_IO, "something");
    ck_assert_int_eq(gd_synchronize(ctx), GD_ERROR_IO);
    ck_assert_int_eq(gd_synchronize(NULL), GD_ERROR_MEMORY);
    gd_context_free(ctx);
}

TEST(every_status_has_a_name)
{
    for (int a = GD_OK; a <= GD_ERROR_IO; a++) {
        ck_assert_str_ne(gd_status_name((gd_status)a), gd_status_name((gd_status)99));
        for (int b = GD_OK; b < a; b++)
            ck_assert_str_ne(gd_status_name((gd_status)a), gd_status_name((gd_status)b));
    }
    ck_assert_str_eq(gd_status_name(GD_ERROR_MEMORY), "out of memory");
}

TEST(null_is_answered_quietly)
{
    gd_context_free(NULL);
    gd_tensor_free(NULL);
    gd_step_end(NULL);
    gd_memory_trim(NULL);
    ck_assert_str_eq(gd_error(NULL), "out of memory");
    ck_assert_ptr_null(gd_tensor_create(NULL, GD_FLOAT32, 0, NULL));
    ck_assert_int_eq(gd_backward(NULL), GD_ERROR_ARGUMENT);
    ck_assert_ptr_null(gd_grad(NULL));
    ck_assert_int_eq(gd_tensor_count(NULL), 0);
    ck_assert(isnan(gd_item(NULL)));
    ck_assert_str_eq(gd_status_name((gd_status)99), "unknown status");
    ck_assert_str_eq(gd_dtype_name((gd_dtype)99), "unknown dtype");
}

/* ---- Memory ------------------------------------------------------------------------------- */

TEST(memory_is_counted_by_class_and_reused)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 2, (int64_t[]){10, 100});
    gd_memory_stats stats = gd_memory(ctx);
    ck_assert_uint_eq(stats.current[GD_MEMORY_OTHER], 4000);
    ck_assert_uint_eq(stats.current_total, 4000);
    gd_tensor_set_requires_grad(t, true);
    ck_assert_uint_eq(gd_memory(ctx).current[GD_MEMORY_PARAMETERS], 4000);
    ck_assert_uint_eq(gd_memory(ctx).current[GD_MEMORY_OTHER], 0);
    ck_assert_uint_ge(stats.held, 4000);
    uint64_t calls = stats.system_calls;
    gd_tensor_free(t);
    ck_assert_uint_eq(gd_memory(ctx).current_total, 0);
    ck_assert_uint_eq(gd_memory(ctx).peak_total, 4000);
    for (int i = 0; i < 100; i++) {
        t = gd_tensor_create(ctx, GD_FLOAT32, 1, (int64_t[]){1000});
        gd_tensor_free(t);
    }
    ck_assert_uint_eq(gd_memory(ctx).system_calls, calls);
    gd_memory_reset_peak(ctx);
    ck_assert_uint_eq(gd_memory(ctx).peak_total, 0);
    gd_memory_trim(ctx);
    ck_assert_uint_eq(gd_memory(ctx).held, 0);
    gd_context_free(ctx);
}

TEST(every_size_comes_back_to_its_class)
{
    gd_context *ctx = gd_context_create(NULL);
    for (int64_t bytes = 1; bytes < 3000000; bytes += 1 + bytes / 3) {
        gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &bytes);
        ck_assert_ptr_nonnull(t);
        ck_assert_uint_eq((uintptr_t)gd_tensor_data(t) % 64, 0);
        size_t held = gd_memory(ctx).held;
        ck_assert_uint_ge(held, (size_t)bytes * 4);
        /* at most a quarter, and what rounding to 64 bytes adds, is lost */
        ck_assert_uint_le(held, (size_t)bytes * 5 + 128);
        memset(gd_tensor_data(t), 1, (size_t)bytes * 4);
        gd_tensor_free(t);
        gd_memory_trim(ctx);
    }
    gd_context_free(ctx);
}

TEST(poison_shows_in_fresh_memory)
{
    gd_context_options options = {.poison = true};
    gd_context *ctx = gd_context_create(&options);
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, (int64_t[]){3}); /* zeros all the same */
    ck_assert_double_eq(((float *)gd_tensor_data(t))[2], 0);
    gd_context_free(ctx);
}

/* ---- Tensors ------------------------------------------------------------------------------ */

static gd_context *ctx;

static void open_context(void)
{
    ctx = gd_context_create(NULL);
}

static void close_context(void)
{
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

TEST_CASE("tensors", open_context, close_context)

TEST(a_tensor_knows_its_shape)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT64, 3, (int64_t[]){2, 3, 4});
    ck_assert_int_eq(gd_tensor_ndim(t), 3);
    ck_assert_int_eq(gd_tensor_count(t), 24);
    ck_assert_int_eq(gd_tensor_dim(t, 1), 3);
    ck_assert_int_eq(gd_tensor_dim(t, -1), 4);
    ck_assert_int_eq(gd_tensor_dim(t, 3), 0);
    ck_assert_int_eq(gd_tensor_strides(t)[0], 12);
    ck_assert(gd_tensor_is_contiguous(t));
    ck_assert_text_eq(gd_shape_text(t), "[2, 3, 4]");
    ck_assert_text_eq(gd_shape_text(NULL), "(none)");
    ck_assert_str_eq(gd_tensor_name(t), "");
    gd_tensor_set_name(t, "weight");
    ck_assert_str_eq(gd_tensor_name(t), "weight");
    gd_tensor *scalar = gd_tensor_create(ctx, GD_FLOAT64, 0, NULL);
    ck_assert_int_eq(gd_tensor_count(scalar), 1);
    gd_tensor *empty = gd_tensor_create(ctx, GD_FLOAT64, 2, (int64_t[]){0, 5});
    ck_assert_int_eq(gd_tensor_count(empty), 0);
    ck_assert_ptr_null(gd_tensor_data(empty));
    ck_assert_int_eq(gd_tensor_read(empty, NULL, 0), GD_OK);
}

TEST(values_go_in_and_come_out)
{
    const float values[6] = {1, -2, 3.5f, 0, 1e30f, -7};
    gd_tensor *t = gd_tensor_from(ctx, GD_FLOAT32, 2, (int64_t[]){2, 3}, values);
    float back[6] = {0};
    ck_assert_int_eq(gd_tensor_read(t, back, sizeof back), GD_OK);
    ck_assert_mem_eq(values, back, sizeof back);
    double wide[6];
    ck_assert_int_eq(gd_tensor_read_f64(t, wide, 6), GD_OK);
    for (int i = 0; i < 6; i++) ck_assert_double_eq(wide[i], (double)values[i]);
    wide[1] = 0.1;
    ck_assert_int_eq(gd_tensor_write_f64(t, wide, 6), GD_OK);
    ck_assert_int_eq(gd_tensor_read(t, back, sizeof back), GD_OK);
    ck_assert_float_eq(back[1], 0.1f);
    ck_assert_int_eq(gd_tensor_fill(t, 2), GD_OK);
    gd_tensor *other = gd_tensor_create(ctx, GD_FLOAT64, 2, (int64_t[]){2, 3});
    ck_assert_int_eq(gd_tensor_copy(other, t), GD_OK);
    ck_assert_int_eq(gd_tensor_read(other, wide, sizeof wide), GD_OK);
    ck_assert_double_eq(wide[5], 2);
    gd_tensor *whole = gd_tensor_create(ctx, GD_INT32, 1, (int64_t[]){2});
    ck_assert_int_eq(gd_tensor_write_f64(whole, (double[]){3, -4}, 2), GD_OK);
    int32_t ints[2];
    ck_assert_int_eq(gd_tensor_read(whole, ints, sizeof ints), GD_OK);
    ck_assert_int_eq(ints[1], -4);
}

/* Writing to a view changes what it shows and nothing else. */
TEST(values_go_into_views)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 2, (int64_t[]){3, 4});
    gd_tensor *middle = gd_slice(t, 1, 1, 3); /* columns 1 and 2 */
    float all[12], part[6];
    ck_assert_int_eq(gd_tensor_fill(middle, 7), GD_OK);
    ck_assert_int_eq(gd_tensor_read(t, all, sizeof all), GD_OK);
    for (int i = 0; i < 12; i++) ck_assert_float_eq(all[i], i % 4 == 1 || i % 4 == 2 ? 7 : 0);
    for (int i = 0; i < 6; i++) part[i] = (float)i;
    ck_assert_int_eq(gd_tensor_write(gd_transpose(middle, 0, 1), part, sizeof part), GD_OK);
    ck_assert_int_eq(gd_tensor_read(middle, part, sizeof part), GD_OK);
    for (int i = 0; i < 6; i++) ck_assert_float_eq(part[i], (float)(i % 2 * 3 + i / 2));
    ck_assert_int_eq(gd_tensor_read(t, all, sizeof all), GD_OK);
    for (int i = 0; i < 12; i++)
        if (i % 4 == 0 || i % 4 == 3) ck_assert_float_eq(all[i], 0);
    gd_tensor *none = gd_slice(t, 1, 2, 2);
    ck_assert_int_eq(gd_tensor_fill(none, 7), GD_OK);
    ck_assert_int_eq(gd_tensor_copy(none, none), GD_OK);
    ck_assert_int_eq(gd_tensor_write(none, NULL, 0), GD_OK);
}

TEST(wrapped_memory_is_the_callers)
{
    float values[4] = {1, 2, 3, 4};
    gd_tensor *t = gd_tensor_wrap(ctx, GD_FLOAT32, 1, (int64_t[]){4}, values);
    ck_assert_ptr_eq(gd_tensor_data(t), values);
    gd_tensor_fill(t, 9);
    ck_assert_float_eq(values[3], 9);
    ck_assert_uint_eq(gd_memory(ctx).current_total, 0);
    gd_tensor_free(t);
    ck_assert_float_eq(values[3], 9);
}

TEST(huge_shapes_are_refused)
{
    const int64_t huge = INT64_C(1) << 62;
    REFUSED(gd_tensor_create(ctx, GD_FLOAT32, 1, &huge),
            "tensor_create: shape is [4611686018427387904]");
    REFUSED(gd_tensor_create(ctx, GD_FLOAT32, 3, (int64_t[]){huge, 4, 0}), "at most");
    REFUSED(gd_tensor_create(ctx, GD_FLOAT32, 2, (int64_t[]){INT64_C(1) << 32, INT64_C(1) << 32}),
            "at most");
    REFUSED(gd_tensor_create(ctx, GD_FLOAT32, 2, (int64_t[]){3, -1}), "no negative dimension");
    REFUSED(gd_tensor_create(ctx, GD_FLOAT32, 9, (int64_t[9]){0}), "ndim is 9, wanted 0 to 8");
}

TEST_CASE("contexts", NULL, NULL)

/* OpenMP's threads are not in the child; nor may it wait for them. */
TEST(a_forked_child_works)
{
    enum { N = 300 };
    static float before[N * N], after[N * N];
    const int64_t shape[] = {N, N};
    gd_context *parent = gd_context_create(&(gd_context_options){.threads = 2});
    gd_tensor *x = gd_tensor_create(parent, GD_FLOAT32, 2, shape);
    gd_random_normal(x, 0, 1);
    gd_tensor_read(gd_gelu(gd_matmul(x, x)), before, sizeof before);
    ck_assert_no_error(parent);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        alarm(60);
        gd_tensor_read(gd_gelu(gd_matmul(x, x)), after, sizeof after);
        bool fine = !gd_error(parent) && !memcmp(before, after, sizeof before);
        gd_context *own = gd_context_create(NULL);
        gd_tensor *y = gd_tensor_create(own, GD_FLOAT32, 2, shape);
        gd_tensor_fill(y, 1);
        gd_tensor_read(gd_matmul(y, y), after, sizeof after);
        _exit(fine && after[N] == N && gd_context_threads(own) == 1 ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
    ck_assert_int_eq(gd_context_threads(parent), 2);
    gd_tensor_free(x);
    gd_context_free(parent);
}

CHECK_MAIN("core")
