/* test_platform.c - what platform/ promises, the same on every system. */
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
static const char *const made[] = {"a b.txt",
                                   "gr\303\266\303\237e",
                                   "\xe6\xbc\xa2.txt",
                                   "file",
                                   "inner",
                                   "new",
                                   "old",
                                   "from",
                                   "to",
                                   "text",
                                   "far",
                                   "log"};
static char path[128];
static int folder;

static void setup(void)
{
    static int count; /* a test that fails leaves its folder, and so did an earlier run */
    do {
        snprintf(path, sizeof path, "%s %lld-%d", name_of_folder, (long long)gd_os_process(),
                 count++);
    } while (!gd_os_make_folder(gd_os_here, path) && errno == EEXIST);
    folder = gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_FOLDER, 0);
    ck_assert_int_ge(folder, 0);
}

static void teardown(void)
{
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (!gd_os_remove(folder, made[i])) gd_os_remove_folder(folder, made[i]);
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

TEST(names_are_utf8)
{
    for (int i = 0; i < 3; i++) make_with(made[i], made[i]);
    for (int i = 0; i < 3; i++) ck_assert_named(made[i], made[i]);
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

/* ---- Replacing ------------------------------------------------------------------------------ */

/* On Windows from version 10 on, and on file systems that know how; wine is not among them. Where
 * it cannot be, nothing has changed. */
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
    ck_assert(gd_os_remove(to, "file"));
    ck_assert(gd_os_close(to));
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

TEST(line_ends_stay_as_they_are)
{
    static const char text[] = "a\r\nb\n\032c\n";
    make_with("text", text);
    ck_assert_named("text", text);
}

/* Sparse, where the file system can: it is not written. */
TEST(offsets_have_64_bits)
{
    const int64_t far = ((int64_t)5 << 30) + 3;
    const int file = make("far");
    gd_os_status status;
    char found[8] = "";
    ck_assert(gd_os_cut(file, far));
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

CHECK_MAIN_WITHIN("platform", setup, teardown)
