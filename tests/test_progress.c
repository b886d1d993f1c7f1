/* test_progress.c - gradus-train on a pseudo-terminal, where a line redraws itself, and elsewhere,
 * where it prints plain lines; the remaining text is the same. */
#define _GNU_SOURCE /* posix_openpt, TIOCSWINSZ */
#include "check_main.h"
#include "program.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static char text_path[] = "/tmp/gradus_progress_XXXXXX";
static char raw[PROGRAM_OUTPUT], shown[PROGRAM_OUTPUT], plain[PROGRAM_OUTPUT];

static void set_up(void)
{
    int file = mkstemp(text_path);
    ck_assert_int_ge(file, 0);
    for (int i = 0; i < 500; i++) ck_assert_int_eq(write(file, "a text of some length", 21), 21);
    close(file);
}

static void tear_down(void)
{
    remove(text_path);
}

static void arguments(const char *more, char *line, size_t size)
{
    snprintf(line, size,
             "--data %s --layers 1 --dim 8 --heads 1 --ffn 16 --context 8 --batch 2 --lr 0.01 "
             "--sample-length 0 --threads 1 %s",
             text_path, more);
}

/* The master of a pseudo-terminal, or -1 where there are none, as in a root without /dev/pts. */
static int open_master(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master >= 0 && !grantpt(master) && !unlockpt(master)) return master;
    if (master >= 0) close(master);
    return -1;
}

/* Runs it with stdout and stderr on a terminal of so many columns; `raw` gets what it wrote. */
static void run_on_terminal(const char *environment, int columns, const char *more)
{
    char line[512], command[1024];
    size_t used = 0;
    ssize_t got;
    int status, master = open_master();
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    ck_assert_int_ge(master, 0);
    ck_assert_int_eq(ioctl(master, TIOCSWINSZ, &size), 0);
    arguments(more, line, sizeof line);
    snprintf(command, sizeof command, "exec env -u NO_COLOR TERM=xterm %s '%s' %s", environment,
             (const char *)GRADUS_PROGRAM, line);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(slave, 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(slave, STDOUT_FILENO);
        dup2(slave, STDERR_FILENO);
        close(master);
        close(slave);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(slave);
    while ((got = read(master, raw + used, sizeof raw - 1 - used)) > 0) used += (size_t)got;
    raw[used] = '\0';
    close(master);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x\n%s", status, raw);
}

/* What a terminal that knows CR, LF and "erase to the end of the line" shows in the end. */
static void show(int columns, int *drawn)
{
    size_t begin = 0, end = 0, at = 0; /* the current line, and the place in it */
    *drawn = 0;
    for (const char *c = raw; *c; c++) {
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

/* Digits that time decides are not compared, nor how many there are. */
static void blank_times(char *text)
{
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        char *newline = strchr(line, '\n'), *lr = strstr(line, " | lr ");
        next = newline ? newline + 1 : line + strlen(line);
        bool timed = lr && lr < next;
        for (char *c = line; c < next; c++) {
            bool after = (timed && c > lr) || !strncmp(line, "validation loss", 15);
            if (!after || !strchr("0123456789.kM", *c)) *to++ = *c;
        }
    }
    *to = '\0';
}

START_TEST(a_terminal_sees_a_line_that_redraws_itself)
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
END_TEST

START_TEST(what_stays_is_what_a_file_would_hold)
{
    char line[512];
    static const char more[] = "--steps 60 --log-every 20 --eval-every 30 --sample-every 15";
    int drawn;
    run_on_terminal("", 200, more);
    show(200, &drawn);
    ck_assert_int_ge(drawn, 1);
    arguments(more, line, sizeof line);
    program_must(0, line, plain);
    blank_times(shown);
    blank_times(plain);
    ck_assert_str_eq(shown, plain);
}
END_TEST

START_TEST(elsewhere_lines_are_plain)
{
    static const char *const environments[] = {"TERM=dumb", "NO_COLOR=1", "TERM="};
    char line[512];
    for (int i = 0; i < 3; i++) {
        run_on_terminal(environments[i], 200, "--steps 20 --log-every 5");
        ck_assert_ptr_null(strchr(raw, '\033'));
        for (const char *c = raw; *c; c++) ck_assert(*c != '\r' || c[1] == '\n'); /* the tty's */
    }
    arguments("--steps 20 --log-every 5", line, sizeof line);
    program_must(0, line, plain);
    for (const char *c = plain; *c; c++) ck_assert(*c == '\n' || !iscntrl((unsigned char)*c));
}
END_TEST

int main(void)
{
    int master = open_master();
    if (master < 0) fprintf(stderr, "no pseudo-terminals here: skipped\n");
    if (master < 0 || program_missing("gradus-train")) return PROGRAM_SKIPPED;
    close(master);
    Suite *suite = suite_create("progress");
    TCase *cases = tcase_create("progress");
    tcase_add_unchecked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, a_terminal_sees_a_line_that_redraws_itself, 0, 2);
    tcase_add_test(cases, what_stays_is_what_a_file_would_hold);
    tcase_add_test(cases, elsewhere_lines_are_plain);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
