/* test_launch.c - parts of runs on several devices from inside: fingerprints of files, messages of
 * ranks that are not what they should be. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, mkdtemp */
#include <errno.h>
#include <stdlib.h>

#include "fingerprint.h"
#include "launch.h"
#include "own_folder.h"
#include "ranks.h"

/* ---- Fingerprints --------------------------------------------------------------------------- */

enum { MIB = 1 << 20 };

/* `bytes` bytes, of which the one at `odd` is another. */
static void write_file(const char *name, int64_t bytes, int64_t odd)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    for (int64_t i = 0; i < bytes; i++) putc((int)(i * 31 >> 3 & 255) ^ (i == odd), file);
    ck_assert_int_eq(fclose(file), 0);
}

static uint64_t print_of(const char *first, const char *second, int64_t whole)
{
    const char *const paths[] = {first, second};
    uint64_t print;
    int failed;
    ck_assert(fingerprint_files(paths, second ? 2 : 1, whole, &print, &failed));
    return print;
}

TEST_CASE("fingerprints", enter_folder, leave_folder)

/* Ten pieces, the last of one byte. */
TEST(every_byte_of_a_file_counts)
{
    static const int64_t places[] = {0, 1, MIB - 1, MIB, 5 * MIB + 77, 9 * MIB};
    const int64_t bytes = 9 * MIB + 1;
    write_file("a", bytes, -1);
    const uint64_t a = print_of("a", NULL, FINGERPRINT_WHOLE);
    ck_assert_uint_eq(print_of("a", NULL, FINGERPRINT_WHOLE), a);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        write_file("b", bytes, places[i]);
        ck_assert_uint_ne(print_of("b", NULL, FINGERPRINT_WHOLE), a);
    }
    write_file("b", bytes - 1, -1);
    ck_assert_uint_ne(print_of("b", NULL, FINGERPRINT_WHOLE), a);
    write_file("c", 1, -1);
    ck_assert_uint_ne(print_of("b", "c", FINGERPRINT_WHOLE), a); /* nor where files are cut */
    ck_assert_uint_ne(print_of("b", "c", FINGERPRINT_WHOLE), print_of("c", "b", FINGERPRINT_WHOLE));
}

/* Nine mebibytes and a byte, of which three may be read: pieces 0, 4, 8 and the last. */
TEST(of_large_files_pieces_count)
{
    static const int64_t read[] = {0, 4 * MIB + 9, 9 * MIB - 1, 9 * MIB};
    static const int64_t unread[] = {MIB, 4 * MIB - 1, 5 * MIB, 7 * MIB};
    const int64_t bytes = 9 * MIB + 1, whole = 3 * MIB;
    write_file("a", bytes, -1);
    const uint64_t a = print_of("a", NULL, whole);
    for (int i = 0; i < 4; i++) {
        write_file("b", bytes, read[i]);
        ck_assert_uint_ne(print_of("b", NULL, whole), a);
        write_file("b", bytes, unread[i]);
        ck_assert_uint_eq(print_of("b", NULL, whole), a);
    }
    write_file("b", bytes - 1, -1);
    ck_assert_uint_ne(print_of("b", NULL, whole), a);
}

TEST(files_that_cannot_be_read_are_named)
{
    const char *const paths[] = {"a", "missing", "."};
    uint64_t print;
    int failed;
    write_file("a", 3, -1);
    ck_assert(!fingerprint_files(paths, 2, MIB, &print, &failed));
    ck_assert_int_eq(failed, 1);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert(!fingerprint_files(paths + 2, 1, MIB, &print, &failed));
}

/* ---- Texts without an end ------------------------------------------------------------------- */

static int what;

/* Rank 0 sends letters without a NUL where a text belongs. */
static void send_letters(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    enum { LINES = 20000, WHY = 768 }; /* of gd_group_agree */
    static char letters[LINES], all[2 * WHY];
    char *arguments[] = {"gradus-train", "--data", "text", NULL};
    train_options o;
    (void)mine;
    memset(letters, 'A', sizeof letters);
    if (rank == 0 && what == 0) {
        gd_group_broadcast_bytes(group, letters, LINES);
        gd_group_all_gather_bytes(group, NULL, 0, NULL);
    } else if (rank == 0) {
        gd_group_all_gather_bytes(group, letters, WHY, all);
    } else if (what == 0) {
        train_options_read(&o, arguments);
        o.group = group;
        launch_compare(&o, ctx, NULL, "");
    } else {
        gd_group_agree(group);
    }
}

TEST_CASE("letters", NULL, NULL)

LOOP_TEST(letters_without_end_are_harmless, 2)
{
    what = _i;
    ranks_timeout = 5;
    ranks_run(2, send_letters);
    rank_failed(1, what == 0 ? "this process differs from rank 0: the device is the CPU, on rank 0 "
                               "AAAAAAAA"
                             : "rank 0: AAAAAAAA");
}

CHECK_MAIN("launch")
