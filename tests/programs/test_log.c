/* test_log.c - the log of gradus-train: what a resumed run keeps of it, and that lines are written
 * whole or not at all. */
#define _XOPEN_SOURCE 700 /* mkdtemp, mkfifo */
#include "check_main.h"
#include "json.h"
#include "log.h"
#include "log_keep.h"
#include "own_folder.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 1 << 16 };

static const char path[] = "log.jsonl";
static char text[ROOM];
static gd_context *ctx;
static model m;
static const dataset data = {.files = {0xabcdef}};

static void set_up(void)
{
    const model_config small = {
        .vocab = 2, .layers = 1, .dim = 2, .heads = 1, .kv_heads = 1, .ffn = 1};
    enter_folder();
    ctx = gd_context_create(NULL);
    ck_assert_int_eq(model_create(&m, ctx, GD_FLOAT32, &small), GD_OK);
}

static void tear_down(void)
{
    model_free(&m);
    gd_context_free(ctx);
    shell("! ls -A | grep -v -x -e log.jsonl -e log.jsonl.old"); /* there is nothing else */
    leave_folder();
}

static size_t read_log(void)
{
    return read_back(fopen(path, "rb"), text, ROOM);
}

static train_options defaults(void)
{
    char *argv[] = {"gradus-train", NULL};
    train_options options;
    ck_assert_int_eq(train_options_read(&options, argv), OPTIONS_RUN);
    return options;
}

static bool begin(run_log *log, int64_t step)
{
    train_options options = defaults();
    options.log = path;
    return !log_open(log, &options, &data, &m, step);
}

/* ---- What is kept -------------------------------------------------------------------------- */

#define HEAD(hash, step)                                                                 \
    "{\"program\": \"gradus-train\", \"text_hash\": \"" hash "\", \"first_step\": " step \
    ", \"options\": {}}\n"
#define BEGIN(step) HEAD("0000000000abcdef", step)
#define STEP(step) "{\"step\": " step ", \"loss\": 1.5, \"val\": null}\n"

/* A log, where the run goes on, and how much is kept: all before the `|`, or all. */
static const struct {
    int64_t step;
    const char *log;
} kept[] = {
    {2, BEGIN("0") STEP("1") STEP("2") "|" STEP("3") STEP("4")},
    {2, BEGIN("0") STEP("1") "|" STEP("3") STEP("2")}, /* the end of a run that went further */
    {9, BEGIN("0") STEP("1") STEP("2")},
    {9, BEGIN("0") STEP("4") BEGIN("4") STEP("6") BEGIN("7") STEP("9") "|" STEP("12")},
    {6, BEGIN("0") STEP("4") BEGIN("4") STEP("6") "|" BEGIN("6") STEP("7")},
    {6, BEGIN("0") STEP("6") "|" BEGIN("6")},
    {4, "|" BEGIN("5") STEP("6")},
    {5, "|" BEGIN("5") STEP("6")},
    {0, "|" BEGIN("0") STEP("1")},
    {0, "|{\"program\": \"gradus-train\" and anything"},
    {9, "|"},
    {9, "|{\"progr"},                                          /* torn */
    {9, "|{\"program\": \"gradus-train\", \"version\": \"0."}, /* torn */
    {9, BEGIN("0") STEP("1") "|{\"step\": 2, \"lo"},
    {9, BEGIN("0") STEP("1") "|{\"step\": 2, \"loss\": 1.5}"},
    {9, BEGIN("0") STEP("1") "|{\"step\": 2, \"lo" STEP("12")},
    {9, BEGIN("0") STEP("1") "{\"step\": 2, \"lo\n" STEP("3") "|{\"step\": 4, \"lo" STEP("5")},
    {9, BEGIN("0") STEP("1") STEP("1") STEP("2")},
    {9, BEGIN("0") STEP("2") BEGIN("1") STEP("3")},
};

/* Lines that cannot be parsed, or say what none of ours does. */
static const char *const damaged[] = {
    "\n",
    "{}\n",
    "[2]\n",
    STEP("2.0"),
    STEP("-2"),
    STEP("\"2\""),
    STEP("18446744073709551618"),
    "{\"step\": 2, \"step\": 2}\n",
    "{\"step\": 2, \"loss\": nan}\n",
    "{\"step\": 2, \"loss\": \"1\"}\n",
    "{\"step\": 2, \"\xff\": 1}\n",
    "{\"step\": 2, \"lo" STEP("2"),
    "{\"program\": \"gradus-train\", \"first_step\": 1}\n",
    "\xef\xbb\xbf" STEP("2"), /* only a file may begin with a byte order mark */
};

/* Everything that the log does not keep. */
static void assert_aside(const char *wanted)
{
    char found[2048] = "";
    FILE *file = fopen("log.jsonl.old", "rb");
    ck_assert((file != NULL) == (*wanted != 0));
    if (file) read_back(file, found, sizeof found);
    ck_assert_str_eq(found, wanted);
}

/* A run that goes on from `step` keeps so much of the log that begins with it. */
static void assert_kept(const char *old, size_t keep, int64_t step)
{
    run_log log;
    write_bytes(path, old, strlen(old));
    ck_assert(begin(&log, step));
    log_write(&log, &(log_line){.step = step + 1});
    log_close(&log);
    read_log();
    ck_assert_msg(!strncmp(text, old, keep), "not kept: %s", text);
    const char *next = text + keep, *end = strchr(next, '\n');
    ck_assert_msg(end && json_end(next) == end, "not one line: %s", next);
    ck_assert(json_is(json_member(next, "program"), "gradus-train"));
    ck_assert_int_eq(strtol(json_member(next, "first_step"), NULL, 10), step);
    ck_assert(json_end(end + 1) && json_end(end + 1)[1] == '\0');
    ck_assert_int_eq(strtol(json_member(end + 1, "step"), NULL, 10), step + 1);
    assert_aside(old + keep);
}

LOOP_TEST(what_came_before_is_kept, sizeof kept / sizeof *kept)
{
    char old[2048];
    const char *bar = strchr(kept[_i].log, '|');
    size_t keep = bar ? (size_t)(bar - kept[_i].log) : strlen(kept[_i].log);
    snprintf(old, sizeof old, "%.*s%s", (int)keep, kept[_i].log, bar ? bar + 1 : "");
    assert_kept(old, keep, kept[_i].step);
}

LOOP_TEST(what_stands_behind_a_damaged_line_is_kept, sizeof damaged / sizeof *damaged)
{
    char old[2048];
    int keep = snprintf(old, sizeof old, "%s%s%s", BEGIN("0") STEP("1"), damaged[_i],
                        STEP("3") BEGIN("3") STEP("4"));
    snprintf(old + keep, sizeof old - (size_t)keep, "%s%s", damaged[_i], STEP("10"));
    assert_kept(old, (size_t)keep, 9);
}

/* One that is longer than any of ours. */
TEST(what_stands_behind_a_line_without_end_is_kept)
{
    run_log log;
    size_t head = strlen(BEGIN("0")), tail = strlen(STEP("1")), size = head + tail + 3 * LOG_LINE;
    char *old = malloc(size + 1);
    memset(old, 'x', size);
    memcpy(old, BEGIN("0"), head);
    memcpy(old + LOG_LINE + head - 1, STEP("7"), tail); /* perhaps where one looks again */
    old[size - tail - 1] = '\n';
    memcpy(old + size - tail, STEP("1"), tail);
    write_bytes(path, old, size);
    ck_assert(begin(&log, 5));
    ck_assert_int_gt(log.size, (int64_t)size);
    log_close(&log);
    free(old);
}

/* The run may be one that has nothing to do with it. */
TEST(a_log_of_another_run_is_set_aside)
{
    run_log log;
    static const char one[] = BEGIN("0") STEP("1") STEP("2");
    for (int i = 0; i < 2; i++) {
        write_bytes(path, one, strlen(one));
        ck_assert(begin(&log, 0));
        log_close(&log);
    }
    assert_aside(BEGIN("0") STEP("1") STEP("2") BEGIN("0") STEP("1") STEP("2"));
}

TEST(a_byte_0_is_the_end)
{
    run_log log;
    char old[512];
    size_t keep = (size_t)sprintf(old, "%s%s", BEGIN("0"), STEP("1"));
    memset(old + keep, 0, 100);
    strcpy(old + keep + 50, "}\n");
    write_bytes(path, old, keep + 100);
    ck_assert(begin(&log, 5));
    log_close(&log);
    size_t size = read_log();
    ck_assert_uint_eq(strlen(text), size);
    ck_assert(!strncmp(text, old, keep) && text[keep] == '{');
}

static const struct {
    int64_t step;
    const char *log;
} foreign[] = {
    {0, "A text that somebody wrote.\n"},
    {0, "{\"version\": \"1.0\"}\n"},
    {0, "{\"program\": \"gradus-trail\"}\n"},
    {5, "\n"},
    {5, STEP("1") STEP("2")},
    {5, " " BEGIN("0")},
    {5, HEAD("0000000000abcdee", "0") STEP("1")},
    {5, HEAD("0000000000abcdef0", "0") STEP("1")},
    {5, HEAD("", "0") STEP("1")},
    {5, BEGIN("\"0\"") STEP("1")},
    {5, "{\"program\": \"gradus-train\"}\n"},
    {5, "{\"program\": \"gradus-train\"\n"},
};

LOOP_TEST(what_is_no_log_of_this_run_is_left_alone, sizeof foreign / sizeof *foreign)
{
    run_log log;
    write_bytes(path, foreign[_i].log, strlen(foreign[_i].log));
    ck_assert(!begin(&log, foreign[_i].step));
    log_write(&log, &(log_line){.step = 1});
    log_close(&log);
    read_log();
    ck_assert_str_eq(text, foreign[_i].log);
}

/* ---- What is written ----------------------------------------------------------------------- */

TEST(the_first_line_holds_the_run)
{
    run_log log;
    train_options options = defaults();
    options.log = path;
    options.data = "caf\xc3\xa9 \xff\xc3\"\n";
    options.seed = 7;
    ck_assert_int_eq(log_open(&log, &options, &data, &m, 0), GD_OK);
    log_close(&log);
    read_log();
    const char *chosen = json_member(text, "options");
    ck_assert(json_end(text) && !strcmp(json_end(text), "\n"));
    ck_assert(json_is(json_member(text, "version"), gd_version()));
    ck_assert(json_is(json_member(text, "text_hash"), "0000000000abcdef"));
    ck_assert_int_eq(strtol(json_member(chosen, "seed"), NULL, 10), 7);
    ck_assert(json_is(json_member(chosen, "data"), "caf\xc3\xa9 \\ufffd\\ufffd\\\"\\u000a"));
    ck_assert(json_member(chosen, "batch") && json_member(chosen, "lr"));
}

TEST(the_folder_has_a_log_of_its_own)
{
    run_log log;
    train_options options = defaults();
    options.out = ".";
    ck_assert_int_eq(log_open(&log, &options, &data, &m, 0), GD_OK);
    ck_assert_str_eq(log.path, "./log.jsonl");
    log_write(&log, &(log_line){.step = 3, .loss = 1.25, .mean_loss = 1.5, .val = NAN});
    log_close(&log);
    read_log();
    ck_assert_str_eq(
        strchr(text, '\n') + 1,
        "{\"step\": 3, \"loss\": 1.25, \"mean_loss\": 1.5, \"val\": null, \"norm\": 0, "
        "\"lr\": 0, \"ms\": 0, \"tokens_per_second\": 0, \"seconds\": 0}\n");
    options.out = NULL;
    ck_assert_int_eq(log_open(&log, &options, &data, &m, 0), GD_OK);
    log_write(&log, &(log_line){.step = 1}); /* to nowhere */
    log_close(&log);
}

/* A file may grow to a limit in the midst of a line, and later beyond it. */
TEST(a_full_disk_leaves_whole_lines)
{
    run_log log;
    struct rlimit limit, before;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert(begin(&log, 0));
    log_write(&log, &(log_line){.step = 1});
    size_t whole = read_log();
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = whole + 10;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    log_write(&log, &(log_line){.step = 2});
    log_write(&log, &(log_line){.step = 3});
    ck_assert(log.failed);
    ck_assert_uint_eq(read_log(), whole);
    setrlimit(RLIMIT_FSIZE, &before);
    log_write(&log, &(log_line){.step = 4});
    log_close(&log);
    read_log();
    ck_assert_int_eq(strncmp(text + whole, "{\"step\": 4, ", 12), 0);
    ck_assert_ptr_eq(strchr(text + whole, '\n') + 1, text + strlen(text));
}

TEST(a_log_that_is_deleted_is_missed)
{
    run_log log;
    ck_assert(begin(&log, 0));
    log_write(&log, &(log_line){.step = 1, .val = NAN});
    ck_assert(!log.failed);
    ck_assert_int_eq(remove(path), 0);
    log_write(&log, &(log_line){.step = 2, .val = NAN});
    ck_assert(log.failed);
    log_close(&log);
}

TEST(a_pipe_is_just_written_to)
{
    run_log log;
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    ck_assert_int_ge(reader, 0);
    ck_assert(begin(&log, 3));
    log_write(&log, &(log_line){.step = 4});
    log_close(&log);
    ssize_t size = read(reader, text, ROOM - 1);
    ck_assert_int_gt(size, 0);
    text[size] = '\0';
    ck_assert_int_eq(strncmp(strchr(text, '\n') + 1, "{\"step\": 4, ", 12), 0);
    close(reader);
}

TEST(two_runs_do_not_share_a_log)
{
    run_log log, second;
    ck_assert(begin(&log, 0));
    ck_assert(!begin(&second, 0));
    ck_assert_ptr_nonnull(strstr(gd_error(ctx), "is being written by another run"));
    gd_error_clear(ctx);
    log_write(&log, &(log_line){.step = 1});
    log_close(&log);
    read_log();
    ck_assert_ptr_nonnull(strstr(text, "\n{\"step\": 1, "));
    ck_assert(begin(&second, 1));
    log_close(&second);
}

/* A reader that leaves does not end the run. */
TEST(a_pipe_may_close)
{
    run_log log;
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    ck_assert(begin(&log, 0));
    close(reader);
    log_write(&log, &(log_line){.step = 1});
    ck_assert(log.failed);
    log_close(&log);
}

CHECK_MAIN_WITHIN("log of gradus-train", set_up, tear_down)
