/* test_platform.c - what platform/ promises, the same on every system. */
/* Build: links gradus_program_parts. */
#include <errno.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/memory.h"
#include "platform/number.h"
#include "platform/process.h"
#include "platform/terminal.h"

static const char name_of_folder[] = "ein Ordner mit \xc3\xbc und \xe6\xbc\xa2";
static char path[128];
static int folder;

static bool remove_it(void *user, int in, const char *name)
{
    (void)user;
    return gd_os_remove(in, name) || gd_os_remove_folder(in, name);
}

static void setup(void)
{
    static int count; /* a test that fails leaves its folder, and so did an earlier run */
    snprintf(path, sizeof path, "%s %lld-%d", name_of_folder, (long long)gd_os_process(), count++);
    ck_assert(gd_os_make_folder(gd_os_here, path) || errno == EEXIST);
    folder = gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_FOLDER, 0);
    ck_assert_int_ge(folder, 0);
    ck_assert(gd_os_each_name(folder, remove_it, NULL));
}

static void teardown(void)
{
    ck_assert(gd_os_each_name(folder, remove_it, NULL));
    ck_assert(gd_os_close(folder));
    ck_assert(gd_os_remove_folder(gd_os_here, path));
}

static bool is_windows(void)
{
    return gd_os_nowhere[0] != '/';
}

static int make(const char *name)
{
    const int file =
        gd_os_open(folder, name, GD_OS_READ | GD_OS_WRITE | GD_OS_MAKE | GD_OS_NEW, 0666);
    ck_assert_msg(file >= 0, "%s: %s", name, strerror(errno));
    return file;
}

static void make_with(const char *name, const char *text)
{
    const int file = make(name);
    ck_assert(gd_os_write(file, text, strlen(text)) && gd_os_flush(file) && gd_os_close(file));
}

static void ck_assert_holds(int file, const char *text)
{
    char found[64] = "";
    ck_assert_int_eq(gd_os_read_at(file, found, sizeof found - 1, 0), (int)strlen(text));
    ck_assert_str_eq(found, text);
}

static void ck_assert_named(const char *name, const char *text)
{
    const int file = gd_os_open(folder, name, GD_OS_READ, 0);
    ck_assert_msg(file >= 0, "%s: %s", name, strerror(errno));
    ck_assert_holds(file, text);
    gd_os_close(file);
}

/* ---- Names ---------------------------------------------------------------------------------- */

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

TEST(names_are_utf8)
{
    static const char *const wanted[] = {"a b.txt", "gr\303\266\303\237e", "\xe6\xbc\xa2.txt"};
    names n = {0};
    for (int i = 0; i < 3; i++) make_with(wanted[i], "x");
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

TEST(slashes_of_the_system)
{
    ck_assert_str_eq(gd_os_last_slash("a/b/c"), "/c");
    ck_assert_ptr_null(gd_os_last_slash("c"));
    const char *slash = gd_os_last_slash("a/b\\c");
    ck_assert_str_eq(slash, is_windows() ? "\\c" : "/b\\c");
    make_with("file", "text");
    char name[256];
    snprintf(name, sizeof name, "%s%sfile", path, is_windows() ? "\\" : "//");
    const int file = gd_os_open(gd_os_here, name, GD_OS_READ | GD_OS_NO_LINK, 0);
    ck_assert_int_ge(file, 0);
    ck_assert_holds(file, "text");
    gd_os_close(file);
}

TEST(what_is_not_there_has_its_error)
{
    make_with("file", "");
    ck_assert(gd_os_make_folder(folder, "inner"));
    ck_assert_int_lt(gd_os_open(folder, "none", GD_OS_READ, 0), 0);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_lt(gd_os_open(folder, "none/file", GD_OS_READ, 0), 0);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_lt(gd_os_open(folder, "file", GD_OS_WRITE | GD_OS_MAKE | GD_OS_NEW, 0666), 0);
    ck_assert_int_eq(errno, EEXIST);
    ck_assert_int_lt(gd_os_open(folder, "file", GD_OS_READ | GD_OS_FOLDER, 0), 0);
    ck_assert_int_eq(errno, ENOTDIR);
    ck_assert(!gd_os_make_folder(folder, "inner"));
    ck_assert_int_eq(errno, EEXIST);
    ck_assert(!gd_os_remove(folder, "inner"));
    ck_assert(!gd_os_remove_folder(folder, "file"));
    ck_assert(!gd_os_remove(folder, "none"));
    ck_assert_int_eq(errno, ENOENT);
    ck_assert(!gd_os_rename(folder, "none", "some"));
    ck_assert_int_eq(errno, ENOENT);

    gd_os_status status;
    ck_assert(gd_os_status_at(folder, "inner", true, &status));
    ck_assert_int_eq(status.kind, GD_OS_IS_FOLDER);
    ck_assert(gd_os_status_at(folder, "file", true, &status));
    ck_assert_int_eq(status.kind, GD_OS_IS_FILE);
    ck_assert(!gd_os_status_at(folder, "none", true, &status));
    ck_assert_int_eq(errno, ENOENT);
}

TEST(a_link_is_one)
{
    gd_os_status status;
    ck_assert(gd_os_make_folder(folder, "inner"));
    make_with("inner/file", "text");
    /* On Windows a junction, which wine cannot make. */
    if (!gd_os_link(folder, "link", "inner")) {
        ck_assert(is_windows());
        ck_assert(!gd_os_status_at(folder, "link", false, &status));
    } else {
        ck_assert(gd_os_status_at(folder, "link", false, &status));
        ck_assert_int_eq(status.kind, GD_OS_IS_LINK);
        ck_assert(gd_os_status_at(folder, "link", true, &status));
        ck_assert_int_eq(status.kind, GD_OS_IS_FOLDER);
        ck_assert_int_lt(gd_os_open(folder, "link", GD_OS_READ | GD_OS_NO_LINK, 0), 0);
        ck_assert_named("link/file", "text");
        ck_assert(gd_os_remove(folder, "link"));
    }
    ck_assert_named("inner/file", "text");
    ck_assert(gd_os_remove(folder, "inner/file"));
}

/* ---- Replacing ------------------------------------------------------------------------------ */

/* On Windows from version 10 on, and on file systems that know how; wine is not among them. Where it
 * cannot be, nothing has changed. */
TEST(a_file_is_replaced_while_it_is_open)
{
    gd_os_status before, status;
    make_with("new", "new text");
    make_with("old", "old");
    const int file = gd_os_open(folder, "old", GD_OS_READ, 0);
    ck_assert(gd_os_status_of(file, &before));
    if (!gd_os_rename(folder, "new", "old")) {
        ck_assert_int_eq(errno, EACCES);
        ck_assert(is_windows());
        ck_assert_named("new", "new text");
        ck_assert_named("old", "old");
        gd_os_close(file);
        return;
    }
    ck_assert_named("old", "new text");
    ck_assert_holds(file, "old");
    ck_assert(!gd_os_status_at(folder, "new", false, &status));
    ck_assert(gd_os_status_at(folder, "old", false, &status));
    ck_assert(status.volume != before.volume || status.number != before.number);
    ck_assert(gd_os_status_of(file, &status));
    ck_assert_uint_eq(status.number, before.number);
    gd_os_close(file);
}

TEST(a_file_is_removed_while_it_is_open)
{
    gd_os_status status;
    make_with("file", "text");
    const int file = gd_os_open(folder, "file", GD_OS_READ, 0);
    ck_assert(gd_os_remove(folder, "file"));
    ck_assert_holds(file, "text");
    ck_assert(gd_os_status_of(file, &status));
    ck_assert(status.names == 0 || is_windows()); /* wine says 1 */
    gd_os_close(file);
    ck_assert(!gd_os_status_at(folder, "file", false, &status));
}

TEST(a_folder_with_files_is_not_replaced)
{
    gd_os_status status;
    ck_assert(gd_os_make_folder(folder, "from") && gd_os_make_folder(folder, "to"));
    const int to = gd_os_open(folder, "to", GD_OS_READ | GD_OS_FOLDER, 0);
    const int file = gd_os_open(to, "file", GD_OS_WRITE | GD_OS_MAKE, 0666);
    ck_assert(gd_os_close(file));
    ck_assert(!gd_os_rename(folder, "from", "to"));
    ck_assert(errno == EEXIST || errno == ENOTEMPTY);
    ck_assert(gd_os_status_at(to, "file", false, &status));
    ck_assert(gd_os_status_at(folder, "from", false, &status));

    /* With an exchange, the other folder has the file. */
    if (gd_os_exchange(folder, "from", "to")) {
        ck_assert(gd_os_status_at(folder, "from/file", false, &status));
        ck_assert(!gd_os_status_at(folder, "to/file", false, &status));
    } else {
        ck_assert(gd_os_status_at(folder, "to/file", false, &status));
    }
    ck_assert(gd_os_remove(to, "file"));
    ck_assert(gd_os_close(to));
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

TEST(line_ends_stay_as_they_are)
{
    static const char text[] = "a\r\nb\n\032c\n";
    const int file = make("text");
    FILE *stream = gd_os_stream_of(gd_os_duplicate(file), "w");
    ck_assert_ptr_nonnull(stream);
    fputs(text, stream);
    ck_assert_int_eq(gd_os_stream_at(stream), sizeof text - 1);
    fclose(stream);
    ck_assert_holds(file, text);
    gd_os_close(file);

    gd_os_text made;
    gd_os_text_begin(&made);
    ck_assert_ptr_nonnull(made.file);
    fprintf(made.file, "%s%zu %lld", text, sizeof text, (long long)INT64_MAX);
    ck_assert(gd_os_text_end(&made));
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s%zu %lld", text, sizeof text, (long long)INT64_MAX);
    ck_assert_uint_eq(made.length, strlen(wanted));
    ck_assert_str_eq(made.bytes, wanted);
    free(made.bytes);
}

/* Sparse, where the file system can: it is not written. */
TEST(offsets_have_64_bits)
{
    const int64_t far = ((int64_t)5 << 30) + 3;
    const int file = make("far");
    gd_os_status status;
    char found[8] = "";
    ck_assert(gd_os_skip(file, (size_t)far));
    ck_assert(gd_os_write(file, "end", 3));
    ck_assert(gd_os_status_of(file, &status));
    ck_assert_int_eq(status.size, far + 3);
    ck_assert_int_eq(gd_os_read_at(file, found, 7, far - 2), 5);
    ck_assert_mem_eq(found, "\0\0end", 5);
    ck_assert(gd_os_write_at(file, "E", 1, far));
    ck_assert_int_eq(gd_os_read_at(file, found, 7, far), 3);
    ck_assert_mem_eq(found, "End", 3);
    ck_assert(gd_os_write(file, "!", 1)); /* where the last write() ended */
    ck_assert_int_eq(gd_os_read_at(file, found, 7, far), 4);
    ck_assert_mem_eq(found, "End!", 4);
    ck_assert(gd_os_cut(file, 1) && gd_os_write(file, "x", 1));
    ck_assert(gd_os_status_of(file, &status));
    ck_assert_int_eq(status.size, 2);
    gd_os_close(file);
}

TEST(appending_is_at_the_end)
{
    make_with("log", "one");
    const int file = gd_os_open(folder, "log", GD_OS_WRITE | GD_OS_APPEND, 0);
    const int other = gd_os_open(folder, "log", GD_OS_WRITE | GD_OS_APPEND, 0);
    ck_assert(gd_os_write(file, "2", 1) && gd_os_write(other, "3", 1) && gd_os_write(file, "4", 1));
    ck_assert_named("log", "one234");
    ck_assert(gd_os_lock(file));
    gd_os_close(file);
    gd_os_close(other);
}

/* ---- The rest ------------------------------------------------------------------------------- */

TEST(memory_is_aligned)
{
    for (size_t alignment = 64; alignment <= (size_t)1 << 21; alignment *= 8) {
        char *memory = gd_os_allocate_aligned(alignment, 100);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % alignment, 0);
        memset(memory, 1, 100);
        gd_os_free_aligned(memory);
    }
    ck_assert_ptr_null(gd_os_allocate_aligned(64, SIZE_MAX - 8));
    ck_assert_double_gt(gd_os_memory_available(), 1 << 20);
}

TEST(numbers_have_points)
{
    static const char *const german[] = {"de_DE.UTF-8", "de_DE.utf8", "German_Germany.1252"};
    char text[16], own[16];
    for (int i = 0; i < 3 && !setlocale(LC_ALL, german[i]); i++) continue;
    snprintf(own, sizeof own, "%g", 1.5); /* with a comma, if there is such a locale */
    gd_os_locale locale;
    gd_os_points_begin(&locale);
    snprintf(text, sizeof text, "%g", 1.5);
    gd_os_points_end(&locale);
    ck_assert_str_eq(text, "1.5");
    snprintf(text, sizeof text, "%g", 1.5);
    ck_assert_str_eq(text, own);
    setlocale(LC_ALL, "C");
}

TEST(time_goes_on)
{
    const double begun = gd_os_now();
    gd_os_nap(0.03);
    const double took = gd_os_now() - begun;
    ck_assert_double_ge(took, 0.02);
    ck_assert_double_le(took, 20);
}

TEST(this_process)
{
    ck_assert_int_gt(gd_os_process(), 0);
    ck_assert(gd_os_set_variable("GRADUS_TEST_VARIABLE", "a value"));
    ck_assert_str_eq(getenv("GRADUS_TEST_VARIABLE"), "a value");
    const int nowhere = gd_os_open(gd_os_here, gd_os_nowhere, GD_OS_WRITE, 0);
    ck_assert_int_ge(nowhere, 0);
    gd_os_status status;
    ck_assert(gd_os_status_of(nowhere, &status));
    ck_assert_int_eq(status.kind, GD_OS_IS_DEVICE);
    ck_assert(gd_os_write(nowhere, "x", 1));
    ck_assert(!gd_os_is_terminal(nowhere) || is_windows()); /* where every device is one */
    gd_os_close(nowhere);
}

CHECK_MAIN_WITHIN("platform", 0, setup, teardown)
