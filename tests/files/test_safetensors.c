/* test_safetensors.c - safetensors files written and read: every dtype and shape, views, files of
 * others, and what happens to the old file when a new one cannot be written. */
#define _XOPEN_SOURCE 700 /* mkdtemp, mkfifo */
#include "check_main.h"
#include "counted_memory.h"
#include "own_folder.h"
#include "safetensors_oracle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static gd_context *ctx;
static const char path[] = "model.safetensors", other[] = "other";

static void set_up(void)
{
    ctx = gd_context_create(NULL);
    enter_folder();
}

static int files_in_folder(void)
{
    int count = 0;
    DIR *list = opendir(folder);
    ck_assert_ptr_nonnull(list);
    for (struct dirent *entry; (entry = readdir(list));) count += entry->d_name[0] != '.';
    closedir(list);
    return count;
}

/* Nothing is left behind but what the test made by these names. */
static void tear_down(void)
{
    gd_context_free(ctx);
    remove(path);
    remove(other);
    ck_assert_int_eq(files_in_folder(), 0);
    leave_folder();
}

/* ---- There and back ----------------------------------------------------------------------- */

/* Writes, then holds the file to the rules and to what was written. */
static void round_trip(const gd_named_tensor *tensors, int64_t count, const gd_named_text *texts,
                       int64_t text_count)
{
    ck_assert_msg(!gd_safetensors_write(ctx, path, tensors, count, texts, text_count), "%s",
                  gd_error(ctx));
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    ck_assert_no_error(ctx);
    gd_safetensors *wrapped = gd_safetensors_wrap(ctx, bytes, size);
    const char *fault = oracle_rules(wrapped, bytes, size);
    if (!fault) fault = oracle_equal(file, tensors, count, texts, text_count);
    ck_assert_msg(!fault, "%s", fault);
    for (int64_t i = 0; i < count; i++) {
        const gd_safetensors_entry *e = gd_safetensors_find(file, tensors[i].name);
        gd_tensor *t = gd_safetensors_tensor(file, tensors[i].name);
        ck_assert_no_error(ctx);
        ck_assert_str_eq(gd_tensor_name(t), tensors[i].name);
        ck_assert_ptr_null(e->data);
        e = gd_safetensors_find(wrapped, tensors[i].name);
        if (e->bytes) ck_assert_mem_eq(gd_tensor_data(t), e->data, e->bytes);
        gd_tensor_free(t);
    }
    gd_safetensors_close(wrapped);
    gd_safetensors_close(file);
    free(bytes);
}

TEST(every_dtype_and_shape)
{
    static const int64_t shapes[][3] = {{2, 3, 5}, {1, 1, 1}, {4, 0, 2}, {0, 0, 0}, {7, 1, 2}};
    gd_named_tensor tensors[64];
    char names[64][24];
    int count = 0;
    for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++) {
        for (int shape = 0; shape < 5; shape++) {
            int ndim = shape % 4;
            gd_tensor *t = gd_tensor_create(ctx, (gd_dtype)dtype, ndim, shapes[shape]);
            double values[30];
            for (int i = 0; i < 30; i++) values[i] = dtype * 100 + i - 10;
            gd_tensor_write_f64(t, values, gd_tensor_count(t));
            snprintf(names[count], sizeof names[count], "%s.%d", gd_dtype_name((gd_dtype)dtype),
                     shape);
            tensors[count] = (gd_named_tensor){names[count], t};
            count++;
        }
    }
    const gd_named_text texts[] = {
        {"format", "pt"}, {"", ""}, {"step \"1\"", "a\nb\t\\ \xc3\xa9 \xf0\x9f\x8e\xb5"}};
    round_trip(tensors, count, texts, 3);
    round_trip(tensors, 1, NULL, 0);
    round_trip(NULL, 0, texts, 1);
    round_trip(NULL, 0, NULL, 0);
}

TEST(bits_of_every_kind_survive)
{
    static const uint32_t bits[] = {0x7fc00001, 0xffc12345, 0x7f800000, 0x80000000, 1, 0x007fffff};
    gd_tensor *t = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(6), bits);
    round_trip(&(gd_named_tensor){"nan", t}, 1, NULL, 0);
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    uint32_t back[6];
    ck_assert(!gd_safetensors_read_bytes(file, gd_safetensors_at(file, 0), 0, back, sizeof back));
    ck_assert_mem_eq(back, bits, sizeof bits);
    gd_safetensors_close(file);
}

TEST(views_are_packed)
{
    float values[24];
    for (int i = 0; i < 24; i++) values[i] = (float)i;
    gd_tensor *t = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4, 6), values);
    gd_tensor *turned = gd_transpose(t, 0, 1), *rows = gd_slice(t, 0, 1, 3);
    gd_tensor *columns = gd_slice(t, 1, 2, 5);
    const gd_named_tensor tensors[] = {{"turned", turned}, {"rows", rows}, {"columns", columns}};
    ck_assert_no_error(ctx);
    round_trip(tensors, 3, NULL, 0);
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    float turned_data[5];
    ck_assert(!gd_safetensors_read_bytes(file, gd_safetensors_find(file, "turned"), 0, turned_data,
                                         sizeof turned_data));
    ck_assert(turned_data[1] == 6 && turned_data[4] == 1);
    /* ... and filled: the middle rows of another tensor. */
    gd_tensor *whole = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(4, 6));
    ck_assert(!gd_safetensors_read(file, "rows", gd_slice(whole, 0, 1, 3)));
    const double *data = gd_tensor_data(whole);
    ck_assert(data[5] == 0 && data[6] == 6 && data[17] == 17 && data[18] == 0);
    gd_safetensors_close(file);
}

TEST(a_tensor_of_a_file_can_be_written_and_the_file_stays)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    ck_assert(!gd_safetensors_write(ctx, path, &(gd_named_tensor){"t", t}, 1, NULL, 0));
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    gd_tensor *copy = gd_safetensors_tensor(file, "t");
    ck_assert(!gd_tensor_fill(copy, 7));
    ck_assert(!gd_safetensors_read(file, "t", t));
    ck_assert(*(const float *)gd_tensor_data(t) == 0);
    gd_safetensors_close(file);
    ck_assert(*(const float *)gd_tensor_data(copy) == 7); /* it outlives the file */
    gd_tensor_free(copy);
}

/* ---- Files of others ---------------------------------------------------------------------- */

/* Written by the reference implementation, safetensors 0.8.0. */
static const char reference[] =
    "\x00\x01\x00\x00\x00\x00\x00\x00{\"__metadata__\":{\"format\":\"pt\"},\"big\":{\"dtype\":\"I64"
    "\",\"shape\":[1],\"data_offsets\":[0,8]},\"w\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_"
    "offsets\":[8,20]},\"ids\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[20,28]},\"h\":{"
    "\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[28,30]}}\x00\x00\x00\x00\x00\x01\x00\x00"
    "\x00\x00\xc0?\x00\x00\x00\xc0\x00\x00\x80>\x07\x00\x00\x00\xff\xff\xff\xff\x00?";

static void check_reference(gd_safetensors *file)
{
    double values[3];
    ck_assert_int_eq(gd_safetensors_count(file), 4);
    ck_assert_str_eq(gd_safetensors_metadata(file, "format"), "pt");
    ck_assert_str_eq(gd_safetensors_at(file, 0)->name, "big");
    ck_assert_str_eq(gd_safetensors_at(file, 0)->format_dtype, "I64");
    gd_tensor *w = gd_safetensors_tensor(file, "w"), *ids = gd_safetensors_tensor(file, "ids");
    gd_tensor *h = gd_safetensors_tensor(file, "h");
    ck_assert_no_error(ctx);
    ck_assert_int_eq(gd_tensor_dim(w, 1), 3);
    gd_tensor_read_f64(w, values, 3);
    ck_assert(values[0] == 1.5 && values[1] == -2 && values[2] == 0.25);
    gd_tensor_read_f64(ids, values, 2);
    ck_assert(values[0] == 7 && values[1] == -1);
    ck_assert_int_eq(gd_tensor_dtype(h), GD_BFLOAT16);
    ck_assert(gd_item(h) == 0.5);
    gd_tensor *wide = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(1));
    ck_assert(!gd_safetensors_read(file, "h", wide));
    ck_assert(gd_item(wide) == 0.5);
    REFUSED(gd_safetensors_tensor(file, "big"),
            "tensor \"big\" holds int64 (I64), wanted F32, F64, BF16, F16 or I32");
    gd_tensor_free(w);
    gd_tensor_free(ids);
    gd_tensor_free(h);
}

/* With one space more in the header nothing is aligned. */
LOOP_TEST(a_file_of_the_reference_implementation, 2)
{
    enum { HEADER = 8 + 256 };
    char moved[sizeof reference];
    memcpy(moved, reference, HEADER);
    moved[0] = 1; /* 257 */
    moved[HEADER] = ' ';
    memcpy(moved + HEADER + 1, reference + HEADER, sizeof reference - 1 - HEADER);
    write_bytes(path, _i ? moved : reference, sizeof reference - !_i);
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    ck_assert_no_error(ctx);
    check_reference(file);
    gd_safetensors_close(file);
}

/* ---- Errors ------------------------------------------------------------------------------- */

TEST(reading_what_is_not_there)
{
    write_bytes(path, reference, sizeof reference - 1);
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    ck_assert_ptr_null(gd_safetensors_find(file, "x"));
    ck_assert_ptr_null(gd_safetensors_find(file, NULL));
    ck_assert_ptr_null(gd_safetensors_metadata(file, "x"));
    ck_assert_ptr_null(gd_safetensors_at(file, 4));
    ck_assert_ptr_null(gd_safetensors_at(file, -1));
    REFUSED(gd_safetensors_tensor(file, "x"), "model.safetensors has no tensor \"x\"");
    ck_assert_int_eq(gd_safetensors_read(file, "w", t), GD_ERROR_IO);
    ck_assert_error(ctx, "tensor \"w\" has shape [1, 3], wanted [3]");
    ck_assert_int_eq(gd_safetensors_read(file, "w", NULL), GD_ERROR_ARGUMENT);
    ck_assert_error(ctx, "tensor is NULL");
    ck_assert_int_eq(gd_safetensors_read(file, "big", t), GD_ERROR_UNSUPPORTED);
    gd_error_clear(ctx);
    gd_safetensors_close(file);
    gd_safetensors_close(NULL);
    ck_assert_int_eq(gd_safetensors_count(NULL), 0);
    ck_assert_ptr_null(gd_safetensors_open(NULL, path));
}

/* As they are written here, and as another program may write them. */
TEST(texts_are_decoded)
{
    static const char text[] = "\"\\/\b\f\n\r\t\x01\x7f \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
    static const char other[] =
        "\x66\0\0\0\0\0\0\0{\"__metadata__\":{\"\\u0061\":\"\\u0022\\\\\\/\\b\\f\\n\\r\\t\\u0001"
        "\\u007f\\u0020\\u00e9\\u20AC\\ud83d\\uDE00\",\"b\":\"\"}}   ";
    const gd_named_text texts[] = {{"a", text}, {"b", ""}};
    ck_assert(!gd_safetensors_write(ctx, path, NULL, 0, texts, 2));
    for (int i = 0; i < 2; i++) {
        gd_safetensors *file =
            i ? gd_safetensors_wrap(ctx, other, sizeof other - 1) : gd_safetensors_open(ctx, path);
        ck_assert_no_error(ctx);
        ck_assert_str_eq(gd_safetensors_metadata(file, "a"), text);
        ck_assert_str_eq(gd_safetensors_metadata(file, "b"), "");
        gd_safetensors_close(file);
    }
}

TEST(names_that_cannot_be_written)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
    static const struct {
        const char *first, *second, *wanted;
    } rows[] = {{"a", "a", "tensor \"a\" occurs twice"},
                {"a", "\xff", "is not UTF-8"},
                {"a", NULL, "the name of tensor 1 is NULL, wanted a string"},
                {"__metadata__", "a", "has a name that the format reserves"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gd_named_tensor pair[] = {{rows[i].first, t}, {rows[i].second, t}};
        gd_named_text texts[] = {{rows[i].first, "x"}, {rows[i].second, "y"}};
        ck_assert_int_eq(gd_safetensors_write(ctx, path, pair, 2, NULL, 0), GD_ERROR_ARGUMENT);
        ck_assert_error(ctx, rows[i].wanted);
        if (i == 3) continue;
        ck_assert_int_eq(gd_safetensors_write(ctx, path, NULL, 0, texts, 2), GD_ERROR_ARGUMENT);
        gd_error_clear(ctx);
    }
    gd_named_text bad = {"a", "\xc3"};
    ck_assert_int_eq(gd_safetensors_write(ctx, path, NULL, 0, &bad, 1), GD_ERROR_ARGUMENT);
    ck_assert_error(ctx, "is not UTF-8");
    const gd_named_text nameless = {NULL, "x"}, textless = {"a", NULL};
    gd_safetensors_write(ctx, path, NULL, 0, &nameless, 1);
    ck_assert_error(ctx, "the name of metadata 0 is NULL, wanted a string");
    gd_safetensors_write(ctx, path, NULL, 0, &textless, 1);
    ck_assert_error(ctx, "the text of metadata 0 is NULL, wanted a string");
    gd_named_tensor none = {"a", NULL};
    ck_assert_int_eq(gd_safetensors_write(ctx, path, &none, 1, NULL, 0), GD_ERROR_ARGUMENT);
    ck_assert_error(ctx, "tensor 0 is NULL");
    ck_assert_int_eq(gd_safetensors_write(ctx, NULL, NULL, 0, NULL, 0), GD_ERROR_ARGUMENT);
    gd_error_clear(ctx);
    ck_assert_int_eq(gd_safetensors_write(ctx, path, NULL, -1, NULL, 0), GD_ERROR_ARGUMENT);
    gd_error_clear(ctx);
    ck_assert_int_eq(files_in_folder(), 0);
}

TEST(places_where_no_file_can_be)
{
    static const char *const wanted[] = {"cannot create it: No such file or directory",
                                         "it exists and is not a regular file",
                                         "it exists and is not a regular file"};
    const char *places[] = {"/no/such/folder/x", folder, "/dev/null"};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(gd_safetensors_write(ctx, places[i], NULL, 0, NULL, 0), GD_ERROR_IO);
        ck_assert_error(ctx, wanted[i]);
    }
    ck_assert_int_eq(mkfifo(other, 0600), 0);
    ck_assert_int_eq(gd_safetensors_write(ctx, other, NULL, 0, NULL, 0), GD_ERROR_IO);
    ck_assert_error(ctx, wanted[1]);
}

/* A disk that is full after `limit` bytes, as far as this process can see. */
TEST(a_write_that_fails_leaves_the_old_file)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1000));
    gd_named_tensor named = {"t", t};
    ck_assert(!gd_safetensors_write(ctx, path, &named, 1, NULL, 0));
    size_t size, again;
    unsigned char *before = read_whole(path, &size);
    gd_tensor_fill(t, 1);
    struct rlimit unlimited;
    getrlimit(RLIMIT_FSIZE, &unlimited);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < size; limit += 37) {
        struct rlimit small = {limit, unlimited.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        gd_status status = gd_safetensors_write(ctx, path, &named, 1, NULL, 0);
        setrlimit(RLIMIT_FSIZE, &unlimited);
        ck_assert_int_eq(status, GD_ERROR_IO);
        ck_assert_error(ctx, "model.safetensors: cannot write to it: File too large");
        unsigned char *after = read_whole(path, &again);
        ck_assert(again == size && !memcmp(before, after, size));
        free(after);
        ck_assert_int_eq(files_in_folder(), 1);
    }
    ck_assert(!gd_safetensors_write(ctx, path, &named, 1, NULL, 0));
    unsigned char *after = read_whole(path, &again);
    ck_assert(again == size && memcmp(before, after, size) != 0);
    free(after);
    free(before);
}

/* Another process shortens the file, to any length, while it is open. */
TEST(a_file_that_shrinks)
{
    enum { N = 5000 };
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(N));
    gd_tensor *wide = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(N));
    const gd_named_tensor named = {"t", t};
    char host[8];
    for (int64_t length = 0; length < 4 * N; length += 1999) {
        ck_assert(!gd_safetensors_write(ctx, path, &named, 1, NULL, 0));
        gd_safetensors *file = gd_safetensors_open(ctx, path);
        const gd_safetensors_entry *e = gd_safetensors_find(file, "t");
        ck_assert_int_eq(truncate(path, length), 0);
        REFUSED(gd_safetensors_tensor(file, "t"),
                "model.safetensors: the file has become shorter since it was opened");
        ck_assert_int_eq(gd_safetensors_read(file, "t", t), GD_ERROR_IO);
        ck_assert_error(ctx, "safetensors_read: ");
        ck_assert_int_eq(gd_safetensors_read(file, "t", wide), GD_ERROR_IO);
        ck_assert_error(ctx, "become shorter");
        ck_assert_int_eq(gd_safetensors_read_bytes(file, e, e->bytes - 8, host, 8), GD_ERROR_IO);
        ck_assert_error(ctx, "safetensors_read_bytes: ");
        gd_safetensors_close(file);
        ck_assert_ptr_null(gd_safetensors_open(ctx, path));
        ck_assert_int_eq(errno, 0); /* its contents are wrong */
        gd_error_clear(ctx);
    }
    ck_assert_ptr_null(gd_safetensors_open(ctx, "/nowhere"));
    ck_assert_int_eq(errno, ENOENT);
    gd_error_clear(ctx);
}

TEST(bytes_of_an_entry)
{
    const int32_t numbers[] = {1, 2, 3, 4};
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(4), numbers);
    ck_assert(!gd_safetensors_write(ctx, path, &(gd_named_tensor){"t", t}, 1, NULL, 0));
    gd_safetensors *file = gd_safetensors_open_descriptor(ctx, open(path, O_RDONLY), "a name");
    const gd_safetensors_entry *e = gd_safetensors_find(file, "t");
    int32_t back[2];
    ck_assert(!gd_safetensors_read_bytes(file, e, 8, back, 8) && back[0] == 3 && back[1] == 4);
    ck_assert(!gd_safetensors_read_bytes(file, e, 16, NULL, 0));
    ck_assert_int_eq(gd_safetensors_read_bytes(file, e, 9, back, 8), GD_ERROR_ARGUMENT);
    ck_assert_error(ctx, "safetensors_read_bytes: given bytes 9 to 17 of \"t\", which has 16");
    ck_assert_int_eq(gd_safetensors_read_bytes(file, e, SIZE_MAX, back, 8), GD_ERROR_ARGUMENT);
    gd_error_clear(ctx);
    ck_assert_int_eq(gd_safetensors_read_bytes(file, NULL, 0, back, 8), GD_ERROR_ARGUMENT);
    ck_assert_error(ctx, "entry is NULL");
    gd_safetensors_close(file);
    REFUSED(gd_safetensors_open_descriptor(ctx, -1, "a name"), "the descriptor is -1");
    ck_assert_ptr_null(gd_safetensors_open_descriptor(ctx, open("/dev/null", O_RDONLY), "a name"));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_error(ctx, "a name: not a regular file");
}

/* ---- No memory ---------------------------------------------------------------------------- */

static gd_status write_and_read(gd_context *with)
{
    const gd_named_text text = {"a", "b"};
    gd_tensor *t = gd_tensor_create(with, GD_FLOAT32, GD_SHAPE(2, 3));
    gd_tensor *wide = gd_tensor_create(with, GD_FLOAT64, GD_SHAPE(2, 3));
    gd_safetensors_write(with, path, &(gd_named_tensor){"t", t}, 1, &text, 1);
    gd_safetensors *file = gd_safetensors_open(with, path);
    gd_tensor_free(gd_safetensors_tensor(file, "t"));
    if (file) gd_safetensors_read(file, "t", wide);
    gd_safetensors_close(file);
    gd_tensor_free(t);
    gd_tensor_free(wide);
    return gd_error_status(with);
}

TEST(every_allocation_may_fail)
{
    int points = 0;
    for (gd_status status = GD_ERROR_MEMORY; status; points++) {
        const gd_context_options options = {.allocator = counting};
        counted = (counted_memory){.fails_at = points};
        gd_context *with = gd_context_create(&options);
        status = with ? write_and_read(with) : GD_ERROR_MEMORY;
        ck_assert(status == GD_OK || status == GD_ERROR_MEMORY);
        if (status && with) {
            gd_error_clear(with);
            counted.fails_at = -1;
            ck_assert_msg(!write_and_read(with), "%s", gd_error(with));
        }
        gd_context_free(with);
        ck_assert_int_eq(counted.blocks, 0);
    }
    ck_assert_int_gt(points, 10);
}

CHECK_MAIN_WITHIN("safetensors", set_up, tear_down)
