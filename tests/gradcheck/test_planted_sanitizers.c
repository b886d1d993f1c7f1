/* test_planted_sanitizers.c - each sanitizer that the tests are built with reports a fault of its
 * kind: one that is off, or suppressed, would find nothing in the other tests either. */
#define _XOPEN_SOURCE 700 /* fork, pipe */
#include "check_main.h"
#include "gradus/gradus.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int eleven = 11, most = INT_MAX;
static int *volatile place;

static void read_past_the_end(void)
{
    place = malloc(10 * sizeof *place);
    eleven = place[eleven - 1];
}

static void read_what_was_freed(void)
{
    place = malloc(sizeof *place);
    free(place);
    eleven = *place;
}

/* A tensor of three numbers; the block that the pool has for it is larger. */
static volatile float *three_numbers(gd_guard guard, bool freed)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.guard = guard});
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    volatile float *data = gd_tensor_data(t);
    if (freed) gd_tensor_free(t);
    return data;
}

static void read_past_a_tensor(void)
{
    eleven = (int)three_numbers(GD_GUARD_NONE, false)[3];
}

static void read_a_freed_tensor(void)
{
    eleven = (int)three_numbers(GD_GUARD_NONE, true)[0];
}

static void read_behind_a_margin_begins(void)
{
    eleven = (int)three_numbers(GD_GUARD_MARGINS, false)[3];
}

static void read_where_a_margin_ends(void)
{
    eleven = (int)three_numbers(GD_GUARD_MARGINS, false)[-1];
}

static void write_far_into_a_margin(void)
{
    three_numbers(GD_GUARD_MARGINS, false)[100] = 0;
}

static void read_past_an_exact_end(void)
{
    eleven = (int)three_numbers(GD_GUARD_EXACT, false)[3];
}

static void leak(void)
{
    place = malloc(1000);
    place = NULL;
}

static void overflow(void)
{
    most = most + eleven;
}

static void shift_too_far(void)
{
    most = 1 << (3 * eleven);
}

static int shared;

static void *count(void *argument)
{
    for (int i = 0; i < 10000; i++) shared++;
    return argument;
}

static void race(void)
{
    pthread_t other;
    pthread_create(&other, NULL, count, NULL);
    count(NULL);
    pthread_join(other, NULL);
}

static const struct {
    const char *sanitizer;
    void (*fault)(void);
    const char *report;
} rows[] = {
    {"address", read_past_the_end, "heap-buffer-overflow"},
    {"address", read_what_was_freed, "heap-use-after-free"},
    {"address", read_past_a_tensor, "use-after-poison"},
    {"address", read_a_freed_tensor, "use-after-poison"},
    {"address", read_behind_a_margin_begins, "use-after-poison"},
    {"address", read_where_a_margin_ends, "use-after-poison"},
    {"address", write_far_into_a_margin, "use-after-poison"},
    {"address", read_past_an_exact_end, "heap-buffer-overflow"},
    {"address", leak, "detected memory leaks"},
    {"undefined", overflow, "signed integer overflow"},
    {"undefined", shift_too_far, "shift exponent 33"},
    {"thread", race, "data race"},
};

static bool is_on(const char *sanitizer)
{
    return strstr(GRADUS_SANITIZE, sanitizer) != NULL;
}

LOOP_TEST(it_is_reported, sizeof rows / sizeof *rows)
{
    char said[1 << 16];
    int ends[2], status;
    if (!is_on(rows[_i].sanitizer)) return;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        rows[_i].fault();
        exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(ends[0], said + used, sizeof said - 1 - used)) > 0;)
        used += (size_t)got;
    said[used] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) || WEXITSTATUS(status) != 0, "%s: nothing is wrong",
                  rows[_i].report);
    ck_assert_msg(strstr(said, rows[_i].report) != NULL, "not reported: %s\n%s", rows[_i].report,
                  said);
}

static bool sanitizer_missing(void)
{
    if (!GRADUS_SANITIZE[0]) printf("no sanitizer: skipped\n");
    return !GRADUS_SANITIZE[0];
}

CHECK_MAIN_UNLESS(sanitizer_missing(), "sanitizers", NULL, NULL)
