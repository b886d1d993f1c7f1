/* test_json.c - the memory that is counted before jansson parses a text: no text of any kind
 * needs more. */
#include "check_main.h"
#include "files/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts of `count` items, each as dense as JSON permits. %d is the number of the item. */
static const struct {
    const char *begin, *item, *end;
} kinds[] = {
    {"[0", ",0", "]"},
    {"[\"\"", ",\"\"", "]"},
    {"[[]", ",[]", "]"},
    {"[{}", ",{}", "]"},
    {"[[0]", ",[0]", "]"},
    {"[{\"\":0}", ",{\"\":0}", "]"},
    {"[{\"\":\"\"}", ",{\"\":\"\"}", "]"},
    {"[{\"\":{}}", ",{\"\":{}}", "]"},
    {"[1.5", ",1e1", "]"},
    {"[null", ",true", "]"},
    {"{\"\":0", ",\"%d\":0", "}"},
    {"{\"\":\"\"", ",\"%d\":\"\"", "}"},
    {"{\"\":[]", ",\"%d\":[]", "}"},
    {"{\"\":{}", ",\"%d\":{}", "}"},
    {"{\"\":{\"\":\"\"}", ",\"%d\":{\"\":\"\"}", "}"},
    {"{\"0123456789abcde\":\"\"", ",\"0123456789abcde%d\":\"0123456789abcde\"", "}"},
    {"\"", "x", "\""},
    {"\"", "\xc3\xa9", "\""},
    {"[\"", "\\u20ac", "\"]"},
    {"{\"", "x", "\":{}}"},
    {"[0.0", "0", "]"},
    {"[{},{\"\":\"", "x", "\"},{}]"},
};

enum { KINDS = sizeof kinds / sizeof *kinds, LONGEST = 1 << 22 };

static char text[LONGEST];

static json_t *take(gd_json *json)
{
    *json = (gd_json){.text = text, .length = strlen(text)};
    return gd_json_take(json, SIZE_MAX);
}

/* What a program has from jansson is the program's, and a text that could not be guarded
 * is refused. */
static int calls;

static void *count_malloc(size_t bytes)
{
    calls++;
    return malloc(bytes);
}

TEST(the_allocator_of_the_program)
{
    gd_json json;
    json_set_alloc_funcs(count_malloc, free);
    json_t *own = json_pack("{s:s}", "a", "b");
    const int before = calls;
    strcpy(text, "{\"c\": [1, \"d\"]}");
    ck_assert_ptr_nonnull(take(&json));
    ck_assert_int_eq(calls, before);
    json_object_set_new(own, "e", json_string("f"));
    ck_assert_int_gt(calls, before);
    gd_json_close(&json);
    char *printed = json_dumps(own, JSON_COMPACT);
    ck_assert_str_eq(printed, "{\"a\":\"b\",\"e\":\"f\"}");
    free(printed);
    json_decref(own);
    json_malloc_t guarded;
    json_free_t freeing;
    json_get_alloc_funcs(&guarded, &freeing);
    json_set_alloc_funcs(count_malloc, free);
    ck_assert_ptr_null(take(&json));
    ck_assert(json.memory);
    ck_assert_str_eq(json.wrong, "jansson's allocator was replaced");
    gd_json_close(&json);
    json_set_alloc_funcs(guarded, freeing);
}

/* The part of its memory that the text takes. */
static double fill_of(int kind, int count)
{
    gd_json json;
    int used = sprintf(text, "%s", kinds[kind].begin);
    for (int i = 0; i < count; i++) used += sprintf(text + used, kinds[kind].item, i);
    sprintf(text + used, "%s", kinds[kind].end);
    ck_assert_msg(take(&json) && gd_json_end(&json), "%d of %s: %s, %zu of %zu bytes", count,
                  kinds[kind].item, json.wrong, json.values.used, json.values.capacity);
    const double fill = (double)json.values.used / (double)json.values.capacity;
    gd_json_close(&json);
    return fill;
}

LOOP_TEST(no_text_needs_more_than_was_counted, KINDS)
{
    double most = 0;
    for (int count = 0; count < 50000; count += count < 300 ? 1 : count / 2) {
        const double fill = fill_of(_i, count);
        if (fill > most) most = fill;
    }
    printf("%s: at most %.2f of the memory is used\n", kinds[_i].item, most);
}

/* Arrays, objects, and both in turn, also where the text ends within them. */
LOOP_TEST(nested_values, 3 * 2)
{
    static const char *const open[] = {"[", "{\"\":", "[{\"\":"}, *const close[] = {"]", "}", "}]"};
    const int kind = _i / 2, levels = kind == 2 ? 2 : 1;
    for (int depth = 1; depth <= GD_JSON_DEPTH / levels + 1; depth++) {
        gd_json json;
        *text = '\0';
        for (int i = 0; i < depth; i++) strcat(text, open[kind]);
        strcat(text, "\"\"");
        for (int i = 0; i < depth && _i % 2; i++) strcat(text, close[kind]);
        const bool deep = depth * levels > GD_JSON_DEPTH;
        ck_assert_int_eq(take(&json) != NULL, _i % 2 && !deep);
        ck_assert_msg(!json.memory, "%d levels take %zu of %zu bytes", depth, json.values.used,
                      json.values.capacity);
        if (deep) ck_assert_str_eq(json.wrong, "it is nested too deeply");
        gd_json_close(&json);
    }
}

CHECK_MAIN("JSON")
