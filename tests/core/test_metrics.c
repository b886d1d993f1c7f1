/* test_metrics.c - the numbers of a run as lines of JSON (metrics.h). */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "check_main.h"
#include "gradus/gradus.h"
#include "own_folder.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static gd_context *ctx;
static const char path[] = "log.jsonl";
static char text[4096];
static int notices;

static void note(void *user, const char *sentence)
{
    (void)user, (void)sentence;
    notices++;
}

static void set_up(void)
{
    enter_folder();
    notices = 0;
    ctx = gd_context_create(&(gd_context_options){.threads = 1, .notice = note});
}

static void tear_down(void)
{
    leave_folder();
    gd_context_free(ctx);
}

static const char *contents(void)
{
    read_back(fopen(path, "r"), text, sizeof text);
    return text;
}

static void append(const char *bytes)
{
    FILE *file = fopen(path, "a");
    fputs(bytes, file);
    fclose(file);
}

/* Steps from `first` to `last`, with lines of those that 3 divides, and of the first. */
static void run(int first, int last)
{
    const gd_metrics_options options = {.steps = last, .every = 3};
    gd_metrics *log = gd_metrics_open(ctx, path, &options);
    for (int step = first; step <= last; step++)
        GD_METRICS(log, step, {"loss", 1. / step}, {"val", step == 3 ? 0.5 : (double)NAN});
    ck_assert_int_eq(gd_metrics_close(log), GD_OK);
    ck_assert_no_error(ctx);
}

/* The first line, and then these beginnings of lines, each of which ends as it should. */
static void check_lines(const char *const *lines, int count)
{
    const char *at = contents(), first[] = "{\"program\": \"gd_metrics\", \"version\": \"";
    for (int i = 0; i < count; i++) {
        const char *wanted = lines[i] ? lines[i] : first, *end = strchr(at, '\n');
        ck_assert_msg(!strncmp(at, wanted, strlen(wanted)), "%s: %s", wanted, at);
        ck_assert_ptr_nonnull(end);
        ck_assert_int_eq(end[-1], '}');
        ck_assert(!lines[i] || strstr(at, ", \"seconds\": ") < end);
        at = end + 1;
    }
    ck_assert_str_eq(at, "");
}

TEST(lines_of_a_run_that_goes_on)
{
    run(1, 4);
    append("{\"step\": 5, \"lo"); /* a program that was killed, or a full disk */
    run(5, 6);
    const char *const lines[] = {
        NULL, "{\"step\": 1, \"loss\": 1, \"val\": null, \"ms\": null, ",
        "{\"step\": 3, \"loss\": 0.333333333, \"val\": 0.5, \"ms\": ", NULL,
        "{\"step\": 6, \"loss\": 0.166666667, \"val\": null, \"ms\": "};
    check_lines(lines, 5);
}

TEST(steps_from_0)
{
    gd_metrics *log = gd_metrics_open(ctx, path, NULL);
    for (int step = 0; step < 2; step++) GD_METRICS(log, step, {"loss", 1});
    ck_assert_int_eq(gd_metrics_close(log), GD_OK);
    ck_assert_ptr_nonnull(strstr(contents(), "{\"step\": 0, \"loss\": 1, \"ms\": null, "));
    ck_assert_ptr_null(strstr(text, "{\"step\": 1, \"loss\": 1, \"ms\": null, "));
}

TEST(refusals)
{
    append("a text of yours\n");
    REFUSED(gd_metrics_open(ctx, path, NULL), "it is no log, wanted a new file or one that");
    ck_assert_str_eq(contents(), "a text of yours\n");
    REFUSED(gd_metrics_open(ctx, "/no/such/folder/log", NULL), "No such file or directory");
    REFUSED(gd_metrics_open(ctx, "/tmp", NULL), "Is a directory");
    REFUSED(gd_metrics_open(ctx, "/dev/null", NULL), "it is not a regular file");
    REFUSED(gd_metrics_open(ctx, NULL, &(gd_metrics_options){.every = -1}), "every -1, wanted 0");
    gd_metrics *log = gd_metrics_open(ctx, NULL, NULL); /* progress alone */
    ck_assert_int_eq(GD_METRICS(log, 1, {"loss", 1}), GD_OK);
    ck_assert_int_ne(GD_METRICS(log, 1, {"a \"quote\"", 1}), GD_OK);
    ck_assert_error(ctx, "metrics_write: name 0 is not one, wanted 1 to 64 characters");
    ck_assert_int_eq(gd_metrics_close(log), GD_OK);
    ck_assert_int_eq(gd_metrics_write(NULL, 1, NULL, 0), GD_OK);
    ck_assert_int_eq(gd_metrics_close(NULL), GD_OK);
    ck_assert_ptr_null(gd_metrics_open(NULL, path, NULL));
}

/* A run goes on where its log cannot be written; the end says so. */
TEST(a_file_that_may_not_grow)
{
    gd_metrics *log = gd_metrics_open(ctx, path, NULL);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){150, RLIM_INFINITY}), 0);
    for (int step = 1; step < 9; step++) GD_METRICS(log, step, {"loss", 1});
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}); /* for Check */
    ck_assert_no_error(ctx);
    ck_assert_int_eq(notices, 1);
    ck_assert_int_eq(gd_metrics_close(log), GD_ERROR_IO);
    ck_assert_error(ctx, "metrics_close: lines were lost: File too large");
    const char *const lines[] = {NULL, "{\"step\": 1, \"loss\": 1, "};
    check_lines(lines, 2); /* nothing of the second */
}

CHECK_MAIN_WITHIN("metrics", set_up, tear_down)
