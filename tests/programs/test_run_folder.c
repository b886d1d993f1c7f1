/* test_run_folder.c - gradus-train in a folder where others have put links, files and folders:
 * nothing outside the folder is changed, what is not the run's own stays, and every run saves. Who
 * may only read cannot keep a run out; a model can be read while a run removes it. */
#define _DEFAULT_SOURCE /* flock; mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "runs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

/* A folder of somebody else's, and a file. */
static void make_victims(void)
{
    shell("mkdir victim && touch victim/1 victim/config.json victim/checksums.xxh3 && echo mine "
          ">file");
}

static void check_victims(void)
{
    shell("test \"$(ls victim | xargs)\" = '1 checksums.xxh3 config.json' && test \"$(cat file)\" "
          "= mine");
}

static const char begin_a[] = "--data text $small --steps 4 --checkpoint-every 2 --keep 0 --out a";
static const char go_on[] = "--steps 6 --keep 1 --resume auto --out a";

/* ---- What is in the way --------------------------------------------------------------------- */

/* Each is put at each name that a run makes, replaces or removes. */
static const char *const things[] = {"ln -s ../victim", "ln -s ../file", "ln ../file",
                                     "mkfifo",          "mkdir",         "cp -r ../victim"};
static const char *const places[] = {".saving", ".removing", "step-00000002", "step-00000006",
                                     ".replaced.step-00000004"};
enum { THINGS = sizeof things / sizeof *things, PLACES = sizeof places / sizeof *places };

LOOP_TEST(what_is_in_the_way_stays, THINGS)
{
    const char *thing = things[_i];
    const bool copies = !strncmp(thing, "ln -s", 5) || !strcmp(thing, "ln ../file");
    make_victims();
    for (int i = 0; i < PLACES; i++) {
        shell("rm -rf a");
        train_well(begin_a);
        shell("cd a && rm -rf %s && %s %s", places[i], thing, places[i]);
        const bool newest = !strcmp(places[i], "step-00000006") && !strncmp(thing, "ln -s", 5);
        if (newest) train_badly(go_on, "cannot open a/step-00000006: it is a link");
        train_well(newest ? "--resume a/step-00000004 --steps 6 --keep 1 --out a" : go_on);
        ck_assert_msg(exists("a/step-00000006/checksums.xxh3"), "%s %s", thing, places[i]);
        ck_assert_msg(!exists("a/step-00000004"), "%s %s", thing, places[i]);
        check_victims();
        if (copies) { /* it is there, under the same or another name */
            shell("cd a && test $(find . -maxdepth 1 -type l -o -maxdepth 1 -samefile ../file | "
                  "wc -l) = 1");
        }
    }
}

/* Names that look like a checkpoint that was put aside, but are none: nothing happens to them. */
TEST(folders_of_others_are_not_repaired)
{
    static const char *const names[] = {".replaced.",     ".replaced..",        ".replaced...",
                                        ".replaced.mine", ".replaced.step-4",   ".replaced.step-",
                                        ".replaced.best", ".replaced.log.jsonl"};
    char line[128];
    train_well(begin_a);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        shell("cd a && mkdir %s && touch %s/checksums.xxh3", names[i], names[i]);
    }
    train_well(go_on);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(line, sizeof line, "a/%s/checksums.xxh3", names[i]);
        ck_assert_msg(exists(line), "%s", line);
    }
    ck_assert(exists("a/step-00000006/checksums.xxh3") && !exists("a/step-00000004"));
}

/* Files and folders of the user's in checkpoints that are replaced or removed. */
TEST(what_is_not_the_run_s_own_stays)
{
    train_well(begin_a);
    shell("cd a/step-00000002 && echo 1 >notes && mkdir sub && echo 2 >sub/x");
    shell("cd a/step-00000004 && rm tokenizer_config.json && mkdir tokenizer_config.json && echo 3 "
          ">tokenizer_config.json/x && touch model.safetensors.mine");
    train_well("--resume a/step-00000002 --steps 4 --keep 2 --out a"); /* 4 is replaced */
    program_said(output, "a/step-00000004.rest");
    shell("cd a && test \"$(ls step-00000004.rest | xargs)\" = 'model.safetensors.mine "
          "tokenizer_config.json' && test \"$(cat step-00000004.rest/*/x)\" = 3");
    shell("cd a && mkdir step-00000002.rest");
    train_well("--resume auto --steps 8 --checkpoint-every 2 --keep 1 --out a");
    program_said(output, "a/step-00000002.rest-2");
    shell("cd a && test \"$(ls step-00000002.rest-2 | xargs)\" = 'notes sub' && test \"$(cat "
          "step-00000002.rest-2/sub/x)\" = 2");
    shell("cd a && test \"$(echo step-*)\" = 'step-00000002.rest step-00000002.rest-2 "
          "step-00000004.rest step-00000008'");
}

/* Of a checkpoint that is replaced, and of a log whose last lines are put aside. */
TEST(permissions_stay)
{
    umask(022);
    train_well(begin_a);
    shell("cd a && chmod 700 step-00000004 && chmod 600 step-00000004/model.safetensors log.jsonl");
    train_well("--resume a/step-00000002 --steps 4 --out a");
    shell("cd a && test \"$(stat -c %%a step-00000004 step-00000004/model.safetensors "
          "step-00000004/config.json log.jsonl log.jsonl.old | xargs)\" = '700 600 644 600 600'");
}

TEST(the_link_to_the_best_is_the_run_s_own)
{
    static const char *const rows[] = {"mkdir a/best", "touch a/best", "mkdir a/.best"};
    for (int i = 0; i < 3; i++) {
        shell("rm -rf a && mkdir a && %s", rows[i]);
        train_well("--data text $small --steps 7 --keep-best --out a");
        program_said(output, "cannot create the link best in a: something else has that name");
        ck_assert(exists("a/step-00000007"));
        shell("test ! -L a/best");
    }
    shell("rm -rf a && mkdir a && ln -s ../text a/best && ln -s ../text a/.best");
    train_well("--data text $small --steps 7 --keep-best --out a");
    shell("test $(readlink a/best) = step-00000007 && test -s text");
}

/* ---- The log -------------------------------------------------------------------------------- */

TEST(the_log_is_a_file_of_the_folder)
{
    static const struct {
        const char *thing, *words;
    } rows[] = {{"ln -s ../file", "it is a link"},
                {"ln ../file", "it has another name, too (a hard link)"},
                {"mkfifo", "it is not a regular file"},
                {"mkdir", "it is not a regular file"}};
    static const char *const names[] = {"log.jsonl", "log.jsonl.old"};
    char words[128];
    make_victims();
    for (int i = 0; i < 8; i++) {
        shell("rm -rf a");
        train_well(begin_a);
        shell("cd a && echo owned >>log.jsonl && cp log.jsonl ../before");
        shell("cd a && rm -f %s && %s %s", names[i / 4], rows[i % 4].thing, names[i / 4]);
        snprintf(words, sizeof words, "%s: %s", names[i / 4], rows[i % 4].words);
        train_badly(go_on, words);
        check_victims();
        if (i / 4 == 1) shell("cmp a/log.jsonl before");
        train_well("--steps 6 --resume auto --out a --log elsewhere");
        shell("rm elsewhere");
    }
    shell("touch target && ln -s target named");
    train_well("--data text $small --steps 2 --log named"); /* the user has named it */
    shell("test -L named && test -s target");
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* Only what the user names may be a link. Going on from an older one would overwrite steps. */
TEST(a_linked_checkpoint_is_not_taken)
{
    train_well(begin_a);
    shell("mkdir far && mv a/step-00000004 far && ln -s ../far/step-00000004 a/");
    shell("cp -r a before");
    train_badly(go_on, "cannot open a/step-00000004: it is a link, which is only followed if you "
                       "name it yourself");
    train_badly("--data text --init a --steps 0", "cannot open a/step-00000004: it is a link");
    shell("diff -r a before");
    train_well("--steps 6 --keep 1 --resume a/step-00000004 --out a");
    shell("test -L a/step-00000004 && test -s far/step-00000004/config.json");
    shell("cd a/step-00000006 && mv config.json ../../far && ln -s ../../far/config.json .");
    train_badly("--steps 7 --resume auto --out a",
                "cannot read config.json in a/step-00000006: it is a link");
    train_well("--data text --init a/step-00000006 --steps 0"); /* as Hugging Face's cache has */
}

/* ---- Locks ---------------------------------------------------------------------------------- */

/* The lock of a file that this process may only read. */
static void lock_reading(const char *name, int *file)
{
    struct flock all = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    *file = open(name, O_RDONLY);
    ck_assert_int_ge(*file, 0);
    ck_assert_int_eq(flock(*file, LOCK_EX | LOCK_NB), 0);
    struct stat status;
    if (!fstat(*file, &status) && S_ISREG(status.st_mode))
        ck_assert_int_eq(fcntl(*file, F_SETLK, &all), 0);
}

TEST(a_reader_keeps_no_run_out)
{
    int files[3];
    train_well(begin_a);
    shell("touch a/.lock");
    lock_reading("a", &files[0]);
    lock_reading("a/log.jsonl", &files[1]);
    lock_reading("a/.lock", &files[2]);
    train_well(go_on);
    for (int i = 0; i < 3; i++) close(files[i]);
    ck_assert(!exists("a/.lock"));
    shell("ln -s ../text a/.lock");
    train_badly(go_on, "--out a: cannot lock .lock in it: it is a link");
    shell("rm a/.lock && mkfifo a/.lock");
    train_badly(go_on, "--out a: cannot lock .lock in it: it is not a regular file");
}

TEST(a_lock_can_only_be_opened_by_who_may_write)
{
    static const char *const folder[] = {"755", "775", "777"};
    static const char *const lock[] = {"600", "660", "666"};
    for (int i = 0; i < 3; i++) {
        shell("rm -rf a && mkdir a && chmod %s a", folder[i]);
        pid_t child =
            begin("--data text $small --steps 1000000 --checkpoint-every 5 --keep 0 --out a");
        wait_for("a/step-00000005");
        shell("test $(stat -c %%a a/.lock) = %s", lock[i]);
        stop_well(child, SIGTERM);
    }
}

/* ---- While others move it ------------------------------------------------------------------- */

/* The run has the folder, and not the name: by that another run could make one of its own. */
LOOP_TEST(a_folder_that_is_moved_is_saved_to, 2)
{
    static const char *const processes[] = {"", "--processes 2 --accumulate 2"};
    pid_t child =
        begin("--data text $small --steps 1000000 --checkpoint-every 5 --keep 0 --out p/a %s",
              processes[_i]);
    wait_for("p/a/step-00000005");
    shell("mv p q && until grep -q 'the folder p/a was moved: this run saves in it where it is "
          "now' log; do sleep 0.02; done");
    shell("cd q/a && n=$(ls | wc -l) && until test $(ls | wc -l) -gt $((n + 2)); do sleep 0.02; "
          "done");
    ck_assert(exists("q/a/.lock") && !exists("p"));
    train_badly("--resume auto --out q/a", "another run is saving its checkpoints there");
    stop_well(child, SIGINT);
    shell("test $(grep -c 'was moved' log) = 1 && test ! -e p && test ! -e q/a/.lock");
    train_well("--resume auto --out q/a --steps 1");
    program_said(output, "from   q/a/step-");
}

/* Where the folder was, another run begins: what looks for the first by its name would
 * find that. */
TEST(the_name_of_a_folder_that_was_moved_is_of_one_run)
{
    static const char arguments[] =
        "--data text $small --steps 1000000 --checkpoint-every 5 --keep 0 --resume auto --out a";
    const pid_t first = begin(arguments);
    wait_for("a/step-00000005");
    shell("mv a b && mkdir a"); /* nobody's: the run goes on */
    shell(
        "cd b && n=$(ls | wc -l) && until test $(ls | wc -l) -gt $((n + 2)); do sleep 0.02; done");
    shell("mv log first");
    const pid_t second = begin(arguments);
    ck_assert_int_eq(end_of(first), 1);
    shell("grep -q 'out a: another run is saving its checkpoints under this name; this one has "
          "saved in its own folder, which was moved, and ends' first");
    wait_for("a/step-00000005");
    stop_well(second, SIGINT);
    train_well("--resume auto --out b --steps 1");
}

TEST(what_a_killed_run_has_left_goes)
{
    train_well("--data text $small --steps 6 --checkpoint-every 2 --keep 0 --out a");
    shell("cd a && cp -r step-00000002 .saving && cp -r step-00000002 .removing && rm "
          ".removing/config.json");
    train_well("--resume auto --steps 6 --keep 2 --out a"); /* there is no step left to make */
    shell("cd a && test \"$(ls -A | LC_ALL=C sort | xargs)\" = 'log.jsonl step-00000004 "
          "step-00000006'");
    train_well("--resume a/step-00000006 --steps 6 --keep 1 --out c"); /* a is not its own */
    ck_assert(exists("a/step-00000004") && exists("a/step-00000006"));
}

/* ---- While others write --------------------------------------------------------------------- */

TEST(a_model_is_read_while_a_run_removes_it)
{
    enum { TIMES = 15 };
    if (program_run_other("gradus-eval", "--version", output) != 0 ||
        program_run_other("gradus-sample", "--version", output) != 0)
        return;
    pid_t child = begin("--data text $small --steps 1000000 --checkpoint-every 1 --keep 1 "
                        "--eval-every 0 --out a");
    wait_for("a/log.jsonl");
    nap(200);
    for (int i = 0; i < TIMES; i++) {
        static const char *const names[] = {"gradus-eval", "gradus-sample"};
        static const char *const arguments[] = {"a --data text", "a --length 3 --seed 1"};
        const int end = program_run_other(names[i % 2], arguments[i % 2], output);
        ck_assert_msg(end == 0 && !strstr(output, " is skipped: "), "%s: status %d\n%s",
                      names[i % 2], end, output);
    }
    stop_well(child, SIGTERM);
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "the folder of a run", set_up, leave_folder)
