/* test_group_meet.c - how ranks meet in a folder: with what earlier runs, other runs and other
 * users have left there, on a file system that shows files late, and not at all. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, mkdtemp, nanosleep */
#include <stdlib.h>
#include <sys/stat.h>

#include "platform/process.h"
#include "ranks.h"

static int host; /* of the ranks that are started next */

/* In place of the system's. */
void gd_os_host(char name[GD_OS_HOST])
{
    memset(name, 0, GD_OS_HOST);
    snprintf(name, GD_OS_HOST, "host-%d", host);
}

static void say_hello(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    int all[RANKS_MOST] = {0};
    (void)ctx;
    gd_group_all_gather_bytes(group, &rank, sizeof rank, all);
    for (int r = 0; group && r < gd_group_ranks(group); r++) note(mine, all[r]);
}

static pid_t start(int ranks, int rank, const char *where, rank_body *body)
{
    return ranks_start(
        (gd_group_options){.ranks = ranks, .timeout = ranks_timeout, .folder = where}, rank, body);
}

/* Starts some of the ranks in the folder, one after the other, and waits for their end. Of an even
 * number rank 0 comes last: the others have seen by then what an earlier one has left; of an odd
 * one it comes first. */
static void meet(int ranks, unsigned which, rank_body *body)
{
    pid_t child[RANKS_MOST];
    int count = 0;
    ranks_prepare();
    for (int i = 0; i < ranks; i++) {
        const int r = ranks % 2 ? i : ranks - 1 - i;
        if (which >> r & 1) child[count++] = start(ranks, r, ".", body), nap(70);
    }
    ranks_wait(child, count);
}

enum { ALL = 31 };

static void meet_well(int ranks)
{
    meet(ranks, ALL, say_hello);
    ranks_are_well(ranks);
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < ranks; k++) ck_assert_double_eq(outcomes[r].number[k], k);
}

/* ---- What earlier runs have left ------------------------------------------------------------ */

static void die(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)ctx, (void)group, (void)rank, (void)mine;
    raise(SIGKILL);
}

TEST_CASE("earlier starts", enter_folder, leave_folder)

/* Ranks that were killed leave their files, of any age: 0 as the ranks have written them, 1 of
 * 1970, 2 of a clock that is ahead. A start before that had more ranks. */
LOOP_TEST(what_an_earlier_start_has_left_does_not_matter, 3)
{
    static const char *const touch[] = {"true", "touch -d 1970-01-02 .start .rank-* .",
                                        "touch -d 2199-01-01 .start .rank-* ."};
    for (int ranks = 4; ranks >= 2; ranks--) {
        meet(ranks, ALL, die);
        shell("test -e .start && test -e .rank-1 && %s", touch[_i]);
        meet_well(ranks);
        shell("! ls -A | grep -v rank-[23]");
    }
}

/* A rank of a start that failed has left its file. */
TEST(who_does_not_come_is_named)
{
    ranks_timeout = 1;
    meet(4, 1 << 0 | 1 << 1 | 1 << 3, say_hello);
    rank_failed(0, "group_create: rank 2 has not come within 1 s (3 of 4 have)");
    rank_failed(1, "group_create: rank 2 has not come within 1 s");
    rank_failed(3, "group_create: rank 2 has not come within 1 s");
    ck_assert_double_lt(outcomes[0].seconds, 5);
    meet(4, 1 << 2, say_hello);
    rank_failed(2, "group_create: rank 0 has not come within 1 s");
    ranks_timeout = 20;
    meet_well(4);
}

/* ---- Late files ----------------------------------------------------------------------------- */

TEST_CASE("late files", enter_folder, leave_folder)

/* Two hosts, each with its own view of a folder: files get from one to the other after a while, as
 * on NFS. They are renamed, so that they stay the same file. */
TEST(files_may_show_late)
{
    static const char *const names[] = {"a/.start", "a/.rank-0", "a/.memory", "b/.rank-1"};
    char late[16];
    shell("mkdir a b");
    ranks_prepare();
    start(2, 0, "a", say_hello);
    start(2, 1, "b", say_hello);
    for (int left = 2; left > 0; nap(50)) {
        for (int i = 0; i < 4; i++) {
            snprintf(late, sizeof late, "%c%s", names[i][0] == 'a' ? 'b' : 'a', names[i] + 1);
            if (access(names[i], F_OK)) continue;
            nap(300);
            rename(names[i], late);
        }
        while (left > 0 && waitpid(-1, NULL, WNOHANG) > 0) left--;
    }
    ranks_are_well(2);
    ck_assert_double_gt(outcomes[0].seconds, 0.3);
}

/* ---- Other runs, hosts and users ------------------------------------------------------------ */

static void stay(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    say_hello(ctx, group, rank, mine);
    mine->seconds = -1;                              /* seen by the test: it has met */
    while (!outcomes[RANKS_MOST - 1].count) nap(10); /* the test has looked */
    say_hello(ctx, group, rank, mine);
}

TEST_CASE("other runs", enter_folder, leave_folder)

/* The second run is refused, also with another number of ranks, and the first goes on. Its files
 * are for this user alone, whatever others who may write in the folder have put in their place. */
TEST(a_second_run_is_refused)
{
    static const char *const names[] = {".rank-0", ".rank-1", ".start"};
    pid_t first[2];
    struct stat s;
    shell("ln -s /nowhere .start.new && (umask 0; echo x > .rank-1; echo x > .start)");
    ranks_prepare();
    for (int r = 0; r < 2; r++) first[r] = start(2, r, ".", stay);
    while (!(outcomes[0].seconds < 0 && outcomes[1].seconds < 0)) nap(10);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(lstat(names[i], &s), 0);
        ck_assert_uint_eq(s.st_mode, S_IFREG | 0600);
    }
    outcome *of_first = outcomes;
    outcomes = NULL;
    ranks_timeout = 1;
    meet(3, ALL, say_hello);
    rank_failed(0, "rank 0 cannot meet the others in .rank-0: another run has it locked");
    rank_failed(1, "rank 1 cannot meet the others in .rank-1: another run has it locked");
    rank_failed(2, "rank 0 has not come within 1 s: .start has the wrong size");
    of_first[RANKS_MOST - 1].count = 1;
    ranks_wait(first, 2);
    outcomes = of_first;
    ranks_are_well(2);
    ck_assert_int_ne(access("/nowhere", F_OK), 0);
}

TEST(without_gpus_there_is_one_host)
{
    pid_t child[2];
    ranks_prepare();
    for (host = 0; host < 2; host++) child[host] = start(2, host, ".", say_hello);
    ranks_wait(child, 2);
    for (int r = 0; r < 2; r++)
        rank_failed(r, "group_create: the ranks are on several hosts, wanted one: without GPUs");
}

TEST_CASE("other users", enter_folder, leave_folder)

typedef struct hostile {
    const char *make, *name; /* a command before the file's name */
    int rank;                /* which is alone */
    const char *words;
} hostile;

/* Rank 0 must not take a file for rank 1's, nor rank 1 one for .start. */
static const hostile files[] = {
    {"ln -s /etc/passwd", ".rank-1", 0, "not come within 0.5 s (1 of 2 have): .rank-1 is a link"},
    {"ln -s /etc/passwd", ".rank-0", 0, "cannot meet the others in .rank-0: it is a link"},
    {"mkdir", ".rank-0", 0, "cannot meet the others in .rank-0: it is not a regular file"},
    {"mkfifo -m 600", ".rank-1", 0, ".rank-1 is not a regular file"},
    {"umask 77; echo >", ".rank-1", 0, ".rank-1 has the wrong size"},
    {"umask 22; echo >", ".rank-1", 0, ".rank-1 may be read or written by other users"},
    {"umask 77; echo > x; ln x", ".rank-1", 0, ".rank-1 has another name, too"},
    {"install -m 600 -o 12345 /dev/null", ".rank-1", 0, ".rank-1 belongs to another user"},
    {"ln -s /etc/passwd", ".start", 1, "rank 0 has not come within 0.5 s: .start is a link"},
};

LOOP_TEST(files_of_others_are_not_read, sizeof files / sizeof *files)
{
    const hostile *h = &files[_i];
    if (strstr(h->make, "install") && geteuid() != 0) return; /* only root can make such a file */
    shell("%s %s", h->make, h->name);
    ranks_timeout = 0.5;
    meet(2, 1U << h->rank, say_hello);
    rank_failed(h->rank, h->words);
    shell("test -e %s && test -s /etc/passwd", h->name);
}

CHECK_MAIN("meeting")
