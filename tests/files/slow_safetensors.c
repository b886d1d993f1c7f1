/* slow_safetensors.c - safetensors files with a million tensors, and headers at the limit. */
#include "check_main.h"
#include "gradus/gradus.h"
#include "safetensors_oracle.h"

#include <stdlib.h>
#include <string.h>

static gd_context *ctx;

static void set_up(void)
{
    ctx = gd_context_create(NULL);
}

static void tear_down(void)
{
    gd_context_free(ctx);
}

static void put_length(unsigned char *bytes, uint64_t length)
{
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(length >> (8 * i));
}

/* Tensors of one byte, or none in every third, last ones first in the header. */
TEST(a_million_tensors)
{
    enum { MANY = 1000000, ROOM = 80 };
    unsigned char *bytes = malloc((size_t)MANY * (ROOM + 1));
    ck_assert_ptr_nonnull(bytes);
    char *at = (char *)bytes + 8;
    int end = MANY - (MANY + 2) / 3, data = end;
    *at++ = '{';
    for (int i = MANY - 1; i >= 0; i--) {
        int size = i % 3 != 0;
        at += sprintf(at, "\"t%d\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]}%c", i,
                      size, end - size, end, i ? ',' : '}');
        end -= size;
    }
    size_t header = (size_t)(at - (char *)bytes) - 8, size = 8 + header + (size_t)data;
    put_length(bytes, header);
    memset(at, 7, (size_t)data);
    gd_safetensors *file = gd_safetensors_wrap(ctx, bytes, size);
    ck_assert_no_error(ctx);
    ck_assert_int_eq(gd_safetensors_count(file), MANY);
    const char *fault = oracle_rules(file, bytes, size);
    ck_assert_msg(!fault, "%s", fault);
    ck_assert_str_eq(gd_safetensors_find(file, "t999998")->format_dtype, "U8");
    gd_safetensors_close(file);

    put_length(bytes, header); /* one byte more than the tensors have */
    REFUSED(gd_safetensors_wrap(ctx, bytes, size + 1), "1 bytes at the end belong to no tensor");
    free(bytes);
}

/* 100,000,000 bytes are the most; one more is refused before anything is read. */
TEST(headers_at_the_limit)
{
    static const char begin[] = "{\"__metadata__\":{\"a\":\"", end[] = "\"}}";
    const size_t limit = 100000000;
    unsigned char *bytes = malloc(8 + limit + 1);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes + 8, 'x', limit + 1);
    memcpy(bytes + 8, begin, sizeof begin - 1);
    memcpy(bytes + 8 + limit - (sizeof end - 1), end, sizeof end - 1);
    put_length(bytes, limit);
    gd_safetensors *file = gd_safetensors_wrap(ctx, bytes, 8 + limit);
    ck_assert_no_error(ctx);
    ck_assert_uint_eq(strlen(gd_safetensors_metadata(file, "a")),
                      limit - (sizeof begin - 1) - (sizeof end - 1));
    gd_safetensors_close(file);
    put_length(bytes, limit + 1);
    REFUSED(gd_safetensors_wrap(ctx, bytes, 8 + limit + 1),
            "the header has 100000001 bytes, wanted at most 100000000");
    free(bytes);
}

CHECK_MAIN_WITHIN("safetensors, large", set_up, tear_down)
