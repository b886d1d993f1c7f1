/* test_group_meet.c - how ranks meet in a folder: with what earlier runs, other runs and other
 * users have left there, on a file system that shows files late, and not at all. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, mkdtemp */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "platform/process.h"
#include "ranks.h"

static const char *folder;
static int other_host = -1; /* a rank */

/* In place of the system's. */
void gd_os_host(char name[GD_OS_HOST])
{
    memset(name, 0, GD_OS_HOST);
    snprintf(name, GD_OS_HOST, "host-%d", other_host);
}

static void set_up(void)
{
    folder = ranks_folder();
    ranks_timeout = 20;
}

static void tear_down(void)
{
    ranks_remove(folder);
}

static void in_folder(const char *format, const char *name)
{
    char command[300], all[400];
    snprintf(command, sizeof command, format, name, name);
    snprintf(all, sizeof all, "cd '%s' && %s", folder, command);
    ck_assert_int_eq(system(all), 0);
}

static gd_group_options options_of(int ranks)
{
    return (gd_group_options){.ranks = ranks, .timeout = ranks_timeout, .folder = folder};
}

static void say_hello(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    int all[RANKS_MOST] = {0};
    (void)ctx;
    gd_group_all_gather_bytes(group, &rank, sizeof rank, all);
    for (int r = 0; group && r < gd_group_ranks(group); r++) note(mine, all[r]);
}

/* The ranks meet in the folder, and leave it as it was. Rank 0 comes last: the others have seen by
 * then what an earlier one has left. */
static void meet_well(int ranks)
{
    pid_t child[RANKS_MOST];
    ranks_prepare();
    for (int r = ranks - 1; r >= 0; r--) {
        if (r == 0) ranks_sleep(0.2);
        child[r] = ranks_start(options_of(ranks), r, say_hello);
    }
    ranks_wait(child, ranks);
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

TEST_CASE("earlier starts", set_up, tear_down)

/* Ranks that were killed leave their files, of any age: 0 as the ranks have written them, 1 of
 * 1970, 2 of a clock that is ahead. A start before that had more ranks. */
LOOP_TEST(what_an_earlier_start_has_left_does_not_matter, 3)
{
    static const char *const touch[] = {"true", "touch -d 1970-01-02 .start .rank-* .",
                                        "touch -d 2199-01-01 .start .rank-* ."};
    for (int ranks = 4; ranks >= 2; ranks--) {
        ranks_run_as(options_of(ranks), die);
        in_folder("test -e .start && test -e .rank-1", "");
        in_folder(touch[_i], "");
        meet_well(ranks);
        in_folder("! ls -A | grep -v rank-[23]", "");
    }
}

/* Half of a start's ranks come before those of the start that failed have gone. */
TEST(ranks_of_a_start_that_failed_are_not_taken)
{
    ranks_timeout = 1;
    ranks_prepare();
    waitpid(ranks_start(options_of(3), 2, say_hello), NULL, 0);
    rank_failed(2, "group_create: rank 0 has not come within 1 s");
    ranks_timeout = 20;
    meet_well(3);
}

/* ---- Late files ----------------------------------------------------------------------------- */

/* Two hosts, each with its own view of a folder: files get from one to the other after a while, as
 * on NFS. They are renamed, so that they stay the same file. */
static void carry_files(const char *from, const char *to, const char *const *names)
{
    char a[128], b[128];
    for (; *names; names++) {
        snprintf(a, sizeof a, "%s/%s/%s", folder, from, *names);
        snprintf(b, sizeof b, "%s/%s/%s", folder, to, *names);
        if (access(a, F_OK)) continue;
        ranks_sleep(0.3);
        rename(a, b);
    }
}

TEST_CASE("late files", set_up, tear_down)

TEST(files_may_show_late)
{
    static const char *const to_b[] = {".start", ".rank-0", ".memory", NULL};
    static const char *const to_a[] = {".rank-1", NULL};
    char a[100], b[100];
    int status;
    in_folder("mkdir a b", "");
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    ranks_prepare();
    for (int r = 0; r < 2; r++) {
        gd_group_options o = options_of(2);
        o.folder = r ? b : a;
        ranks_start(o, r, say_hello);
    }
    for (int left = 2; left > 0;) {
        carry_files("b", "a", to_a);
        carry_files("a", "b", to_b);
        while (left > 0 && waitpid(-1, &status, WNOHANG) > 0) left--;
        ranks_sleep(0.05);
    }
    ranks_are_well(2);
    ck_assert_double_gt(outcomes[0].seconds, 0.3);
}

/* ---- Other runs, hosts and users ------------------------------------------------------------ */

static void stay(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    say_hello(ctx, group, rank, mine);
    mine->seconds = -1;                                        /* seen by the test: it has met */
    while (!outcomes[RANKS_MOST - 1].count) ranks_sleep(0.01); /* the test has looked */
    say_hello(ctx, group, rank, mine);
}

TEST_CASE("other runs", set_up, tear_down)

/* The second run is refused, also with another number of ranks, and the first goes on. */
TEST(a_second_run_is_refused)
{
    pid_t first[2];
    ranks_prepare();
    for (int r = 0; r < 2; r++) first[r] = ranks_start(options_of(2), r, stay);
    while (!(outcomes[0].seconds < 0 && outcomes[1].seconds < 0)) ranks_sleep(0.01);
    outcome *of_first = outcomes;
    outcomes = NULL;
    ranks_timeout = 1;
    ranks_run_as(options_of(3), say_hello);
    rank_failed(0, "rank 0 cannot meet the others in .rank-0: another run has it locked");
    rank_failed(1, "rank 1 cannot meet the others in .rank-1: another run has it locked");
    rank_failed(2, "rank 0 has not come within 1 s: .start has the wrong size");
    of_first[RANKS_MOST - 1].count = 1;
    ranks_wait(first, 2);
    for (int r = 0; r < 2; r++) ck_assert(of_first[r].ended && !of_first[r].error[0]);
}

TEST(without_gpus_there_is_one_host)
{
    pid_t child[2];
    ranks_prepare();
    for (int r = 0; r < 2; r++) {
        other_host = r;
        child[r] = ranks_start(options_of(2), r, say_hello);
    }
    ranks_wait(child, 2);
    for (int r = 0; r < 2; r++)
        rank_failed(r, "group_create: the ranks are on several hosts, wanted one: without GPUs");
}

TEST(who_does_not_come_is_named)
{
    static const int come[] = {0, 1, 3};
    pid_t child[3];
    ranks_timeout = 1;
    ranks_prepare();
    for (int i = 0; i < 3; i++) child[i] = ranks_start(options_of(4), come[i], say_hello);
    ranks_wait(child, 3);
    rank_failed(0, "group_create: rank 2 has not come within 1 s (3 of 4 have)");
    rank_failed(1, "group_create: rank 2 has not come within 1 s");
    rank_failed(3, "group_create: rank 2 has not come within 1 s");
}

TEST_CASE("other users", set_up, tear_down)

typedef struct hostile {
    const char *make; /* a command, of the file's name */
    const char *name, *words;
    bool by_root;
} hostile;

/* Rank 0 is alone, so that it must not take a file for rank 1's; rank 1 is alone, too. */
static const hostile files[] = {
    {"ln -s /etc/passwd %s", ".rank-1",
     "rank 1 has not come within 0.5 s (1 of 2 have): .rank-1 is a"
     " link",
     false},
    {"ln -s /etc/passwd %s", ".rank-0", "rank 0 cannot meet the others in .rank-0: it is a link",
     false},
    {"mkdir %s", ".rank-0", "rank 0 cannot meet the others in .rank-0: it is not a regular file",
     false},
    {"mkfifo %s", ".rank-0", "rank 0 cannot meet the others in .rank-0: it is not a regular file",
     false},
    {"mkfifo -m 600 %s", ".rank-1", ".rank-1 is not a regular file", false},
    {"(umask 77; echo > %s)", ".rank-1", ".rank-1 has the wrong size", false},
    {"(umask 22; echo > %s)", ".rank-1", ".rank-1 may be read or written by other users", false},
    {"(umask 77; echo > x; ln x %s)", ".rank-1", ".rank-1 has another name, too", false},
    {"(umask 77; echo > %s; chown 12345 %s)", ".rank-1", ".rank-1 belongs to another user", true},
    {"ln -s /etc/passwd %s", ".start", "rank 0 has not come within 0.5 s: .start is a link", false},
    {"(umask 22; echo > %s)", ".start", ".start may be read or written by other users", false},
    {"(umask 77; echo > %s)", ".start", ".start has the wrong size", false},
    {"(umask 77; head -c 400 /dev/zero > %s; chown 12345 %s)", ".start",
     ".start belongs to another user", true},
};

LOOP_TEST(files_of_others_are_not_read, sizeof files / sizeof *files)
{
    const hostile *h = &files[_i];
    if (h->by_root && geteuid() != 0) return;
    const int rank = !strcmp(h->name, ".start");
    in_folder(h->make, h->name);
    ranks_timeout = 0.5;
    ranks_prepare();
    waitpid(ranks_start(options_of(2), rank, say_hello), NULL, 0);
    rank_failed(rank, h->words);
    in_folder("test -e '%s' && test \"$(stat -L -c %%s /etc/passwd)\" != 0", h->name);
}

/* Where others may write in the folder, what they have put in place of rank 0's files goes. */
TEST(files_are_made_for_this_user_alone)
{
    pid_t child[2];
    struct stat s;
    char path[128];
    in_folder("ln -s /nowhere .start.new && (umask 0; echo x > .rank-1; echo x > .start)", "");
    ranks_prepare();
    for (int r = 0; r < 2; r++) child[r] = ranks_start(options_of(2), r, stay);
    while (!(outcomes[0].seconds < 0 && outcomes[1].seconds < 0)) ranks_sleep(0.01);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {".rank-0", ".rank-1", ".start"};
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        ck_assert_int_eq(lstat(path, &s), 0);
        ck_assert_uint_eq(s.st_mode, S_IFREG | 0600);
    }
    outcomes[RANKS_MOST - 1].count = 1;
    ranks_wait(child, 2);
    for (int r = 0; r < 2; r++) ck_assert_str_eq(outcomes[r].error, "");
    ck_assert_int_ne(access("/nowhere", F_OK), 0);
}

CHECK_MAIN("meeting")
