/* test_program_files.c - what platform/file.h promises to the programs beyond the library. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "platform/file.h"

static char path[] = "/tmp/gradus_files_XXXXXX";
static int folder;

static bool remove_it(void *user, int in, const char *name)
{
    (void)user;
    return gd_os_remove(in, name) || gd_os_remove_folder(in, name);
}

static void setup(void)
{
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(path));
    folder = gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_FOLDER, 0);
    ck_assert_int_ge(folder, 0);
}

static void teardown(void)
{
    ck_assert(gd_os_each_name(folder, remove_it, NULL));
    ck_assert(gd_os_close(folder) && gd_os_remove_folder(gd_os_here, path));
}

static int make(const char *name, const char *text)
{
    const int file =
        gd_os_open(folder, name, GD_OS_READ | GD_OS_WRITE | GD_OS_MAKE | GD_OS_NEW, 0666);
    ck_assert_msg(file >= 0, "%s: %s", name, strerror(errno));
    ck_assert(gd_os_write(file, text, strlen(text)));
    return file;
}

static void ck_assert_holds(int file, const char *text)
{
    char found[64] = "";
    ck_assert_int_eq(gd_os_read_at(file, found, sizeof found - 1, 0), (int)strlen(text));
    ck_assert_str_eq(found, text);
}

typedef struct names {
    int count;
    char seen[8][64];
} names;

static bool note_name(void *user, int in, const char *name)
{
    names *n = user;
    ck_assert_int_ge(in, 0);
    ck_assert_int_lt(n->count, 8);
    snprintf(n->seen[n->count++], sizeof n->seen[0], "%s", name);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

TEST(names_are_listed_and_found)
{
    static const char *const wanted[] = {"a b.txt", "gr\303\266\303\237e", "\xe6\xbc\xa2.txt"};
    names n = {0};
    for (int i = 0; i < 3; i++) gd_os_close(make(wanted[i], "x"));
    ck_assert(gd_os_each_name(folder, note_name, &n));
    ck_assert_int_eq(n.count, 3);
    qsort(n.seen, 3, sizeof n.seen[0], compare_names);
    for (int i = 0; i < 3; i++) ck_assert_str_eq(n.seen[i], wanted[i]);

    char pattern[256], **paths;
    size_t count;
    snprintf(pattern, sizeof pattern, "%s/*.txt", path);
    ck_assert(gd_os_find_paths(pattern, &paths, &count));
    ck_assert_uint_eq(count, 2);
    for (size_t i = 0; i < count; i++) {
        FILE *stream = gd_os_stream_of(gd_os_open(gd_os_here, paths[i], GD_OS_READ, 0), "rb");
        ck_assert_ptr_nonnull(stream);
        ck_assert_int_eq(getc(stream), 'x');
        fclose(stream);
    }
    ck_assert_str_eq(strstr(paths[0], "a b"), "a b.txt");
    gd_os_free_paths(paths, count);
    snprintf(pattern, sizeof pattern, "%s/*.none", path);
    ck_assert(!gd_os_find_paths(pattern, &paths, &count));
    ck_assert_int_eq(errno, 0);
}

TEST(a_link_is_one)
{
    gd_os_status status;
    ck_assert(gd_os_make_folder(folder, "inner"));
    gd_os_close(make("inner/file", "text"));
    ck_assert(gd_os_link(folder, "link", "inner"));
    ck_assert(gd_os_status_at(folder, "link", false, &status));
    ck_assert_int_eq(status.kind, GD_OS_IS_LINK);
    ck_assert(gd_os_status_at(folder, "link", true, &status));
    ck_assert_int_eq(status.kind, GD_OS_IS_FOLDER);
    ck_assert_int_lt(gd_os_open(folder, "link", GD_OS_READ | GD_OS_NO_LINK, 0), 0);
    const int file = gd_os_open(folder, "link/file", GD_OS_READ, 0);
    ck_assert_holds(file, "text");
    gd_os_close(file);
    ck_assert(gd_os_remove(folder, "inner/file"));
}

/* Where the file system cannot exchange names, nothing has changed. */
TEST(names_are_exchanged)
{
    gd_os_close(make("one", "1")), gd_os_close(make("two", "2"));
    const bool exchanged = gd_os_exchange(folder, "one", "two");
    const int one = gd_os_open(folder, "one", GD_OS_READ, 0);
    ck_assert_holds(one, exchanged ? "2" : "1");
    gd_os_close(one);
}

TEST(a_stream_has_the_bytes_as_they_are)
{
    static const char text[] = "a\r\nb\n\032c\n";
    const int file = make("text", "");
    FILE *stream = gd_os_stream_of(gd_os_duplicate(file), "w");
    ck_assert_ptr_nonnull(stream);
    fputs(text, stream);
    ck_assert_int_eq(gd_os_stream_at(stream), sizeof text - 1);
    fclose(stream);
    ck_assert_holds(file, text);
    ck_assert(gd_os_lock(file));
    gd_os_close(file);
}

CHECK_MAIN_WITHIN("program files", setup, teardown)
