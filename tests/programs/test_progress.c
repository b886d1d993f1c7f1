/* test_progress.c - gradus-train on a pseudo-terminal, where a line redraws itself, and elsewhere,
 * where it prints plain lines; the remaining text is the same. */
#define _GNU_SOURCE /* pseudo_terminal.h */
#include "check_main.h"
#include "pseudo_terminal.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static char shown[PROGRAM_OUTPUT];

static void set_up(void)
{
    enter_folder();
    shell("for i in $(seq 500); do printf 'a text of some length'; done >text");
}

static void arguments(const char *more, char *line, size_t size)
{
    snprintf(line, size,
             "--data text --layers 1 --dim 8 --heads 1 --ffn 16 --context 8 --batch 2 --lr 0.01 "
             "--sample-length 0 --threads 1 %s",
             more);
}

static terminal begin_on_terminal(const char *environment, int columns, const char *more)
{
    char line[512], command[1024];
    arguments(more, line, sizeof line);
    snprintf(command, sizeof command, "exec env -u NO_COLOR -u COLUMNS TERM=xterm %s '%s' %s",
             environment, (const char *)GRADUS_PROGRAM, line);
    return terminal_begin(command, columns);
}

static void run_on_terminal(const char *environment, int columns, const char *more)
{
    terminal t = begin_on_terminal(environment, columns, more);
    const int status = terminal_end(&t);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x\n%s", status,
                  on_terminal);
}

/* What a terminal that knows CR, LF and "erase to the end of the line" shows in the end. */
static void show(int columns, int *drawn)
{
    size_t begin = 0, end = 0, at = 0; /* the current line, and the place in it */
    *drawn = 0;
    for (const char *c = on_terminal; *c; c++) {
        if (*c == '\r') {
            at = begin;
        } else if (*c == '\n') {
            shown[end++] = '\n';
            begin = at = end;
        } else if (*c == '\033') {
            ck_assert_msg(!strncmp(c, "\033[K", 3), "another sequence: %.5s", c + 1);
            ck_assert_msg(at - begin < (size_t)columns, "a live line of %zu columns on %d",
                          at - begin, columns);
            *drawn += at > begin;
            end = at;
            c += 2;
        } else {
            shown[at++] = *c;
            if (at > end) end = at;
        }
    }
    shown[end] = '\0';
}

/* Digits that time decides are not compared, nor how many there are: those of a step's line from
 * the ETA to the speed. */
static void blank_times(char *text)
{
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        const char *newline = strchr(line, '\n'), *end = strstr(line, " | norm ");
        const char *begin = strncmp(line, "validation loss", 15) ? strstr(line, " | eta ") : line;
        next = newline ? (char *)newline + 1 : line + strlen(line);
        if (begin == line) end = next;
        for (char *c = line; c < next; c++) {
            const bool timed = begin && begin < next && c > begin && c < end;
            if (!timed || !strchr("0123456789.kM:", *c)) *to++ = *c;
        }
    }
    *to = '\0';
}

LOOP_TEST(a_terminal_sees_a_line_that_redraws_itself, 2)
{
    static const char more[] =
        "--steps 100000000 --max-seconds 0.5 --log-every 100000000 --eval-every 0";
    const int columns = _i ? 40 : 200;
    int drawn;
    run_on_terminal("", columns, more);
    show(columns, &drawn);
    ck_assert_int_ge(drawn, 3);
    ck_assert_int_le(drawn, 8); /* ten a second */
    const char *step = strstr(shown, "\nstep 1/");
    ck_assert_ptr_nonnull(step);
    ck_assert_ptr_nonnull(step = strstr(step + 1, "\nstep "));
    ck_assert_ptr_null(strstr(step + 1, "\nstep ")); /* the first line and the last stay */
    ck_assert_ptr_nonnull(strstr(step, "\nvalidation loss "));
}

/* No line is wider than the terminal, and the most important fields of a step are there. One that
 * does not know its width (0) is as wide as COLUMNS says, or 80. */
LOOP_TEST(nothing_wraps, 6)
{
    static const struct {
        int columns, width;
        const char *environment, *least, *never;
    } rows[] = {{200, 200, "", " MiB\n", NULL},     {80, 80, "COLUMNS=40", " tok/s", " MiB\n"},
                {0, 80, "", " tok/s", " MiB\n"},    {0, 60, "COLUMNS=60", " | eta 0:00", " ms"},
                {50, 50, "", " | val ", " | eta "}, {40, 40, "", " | loss ", " | val "}};
    int drawn;
    run_on_terminal(rows[_i].environment, rows[_i].columns,
                    "--steps 1200 --log-every 600 --eval-every 600 --sample-every 600 "
                    "--sample-length 3");
    show(rows[_i].width, &drawn);
    for (char *line = shown, *end; (end = strchr(line, '\n')); line = end + 1)
        ck_assert_msg(end - line < rows[_i].width, "%d columns: %.*s", rows[_i].width,
                      (int)(end - line), line);
    const char *step = strstr(shown, "\nstep 1200/1200 | loss ");
    ck_assert_ptr_nonnull(step);
    char line[256];
    snprintf(line, sizeof line, "%.*s\n", (int)strcspn(step + 1, "\n"), step + 1);
    program_said(line, rows[_i].least);
    if (rows[_i].never) ck_assert_msg(!strstr(line, rows[_i].never), "%s", line);
    program_said(shown, "\n---- sample after step 600, ");
}

/* Ctrl-C is answered while the step goes on; a second one ends the run at once. */
LOOP_TEST(an_interrupt_is_answered_at_once, 4)
{
    static const struct {
        bool out, twice;
        const char *first, *last;
    } rows[] = {{false, false, "without saving: there is no --out; again to stop now\r\n",
                 "\r\nstopped by a signal; nothing was saved, without --out\r\n"},
                {true, false, "gradus-train: stopping after this step; again to stop now\r\n",
                 "\r\nstopped by a signal; --resume auto continues the run\r\n"},
                {false, true, "again to stop now\r\n",
                 "gradus-train: stopped at once; nothing was saved\r\n"},
                {true, true, "again to stop now\r\n",
                 "gradus-train: stopped at once; the newest checkpoint is that of step 1\r\n"}};
    terminal t = begin_on_terminal(
        "", 100,
        rows[_i].out ? "--batch 20000 --accumulate 9 --steps 9 --checkpoint-every 1 --out run"
                     : "--batch 20000 --accumulate 9 --steps 9");
    terminal_read(&t, rows[_i].out ? "saved " : "step 1/9");
    kill(t.child, SIGINT);
    terminal_read(&t, rows[_i].first);
    ck_assert_ptr_null(strstr(on_terminal, "step 3/9"));
    if (rows[_i].twice) nap(100);
    if (rows[_i].twice) kill(t.child, SIGINT);
    const int status = terminal_end(&t);
    program_said(on_terminal, rows[_i].last);
    if (rows[_i].twice)
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    else
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* gradus-eval shows how far it is: on stderr, too, while stdout is a file. */
LOOP_TEST(an_evaluation_shows_its_progress, 2)
{
    char program[256], command[1024];
    int drawn;
    run_on_terminal("", 80, "--steps 1 --out run");
    snprintf(program, sizeof program, "%s", (const char *)GRADUS_PROGRAM);
    strcpy(strrchr(program, '-'), "-eval");
    snprintf(command, sizeof command, "exec env -u NO_COLOR TERM=xterm '%s' run %s", program,
             _i ? "--json >/dev/null" : "");
    terminal t = terminal_begin(command, 80);
    ck_assert_int_eq(terminal_end(&t), 0);
    program_said(on_terminal, "\rvalidation 1/");
    program_said(on_terminal, " | eta 0:0");
    show(80, &drawn);
    ck_assert_int_ge(drawn, 1);
    if (_i)
        ck_assert_str_eq(shown, "");
    else
        program_said(shown, "\nloss ");
    ck_assert_ptr_null(strstr(shown, "validation"));
}

TEST(what_stays_is_what_a_file_would_hold)
{
    char line[512];
    static const char more[] = "--steps 60 --log-every 20 --eval-every 30 --sample-every 15 "
                               "--sample-length 3";
    int drawn;
    run_on_terminal("", 200, more);
    show(200, &drawn);
    ck_assert_int_ge(drawn, 1);
    arguments(more, line, sizeof line);
    program_must(0, line, output);
    blank_times(shown);
    blank_times(output);
    ck_assert_str_eq(shown, output);
}

TEST(elsewhere_lines_are_plain)
{
    static const char *const environments[] = {"TERM=dumb", "NO_COLOR=1", "TERM="};
    char line[512];
    for (int i = 0; i < 3; i++) {
        run_on_terminal(environments[i], 200, "--steps 20 --log-every 5");
        ck_assert_ptr_null(strchr(on_terminal, '\033'));
        for (const char *c = on_terminal; *c; c++)
            ck_assert(*c != '\r' || c[1] == '\n'); /* the tty's */
    }
    arguments("--steps 20 --log-every 5", line, sizeof line);
    program_must(0, line, output);
    for (const char *c = output; *c; c++) ck_assert(*c == '\n' || !iscntrl((unsigned char)*c));
}

CHECK_MAIN_UNLESS(terminal_missing() || program_missing("gradus-train"), "progress", set_up,
                  leave_folder)
