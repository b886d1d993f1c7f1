/* test_terminal.c - text from elsewhere on a pseudo-terminal: what a terminal would obey is made
 * visible there, and in messages everywhere; a pipe gets the bytes of the rest. */
#define _GNU_SOURCE /* pseudo_terminal.h */
#include "check_main.h"
#include "programs/terminal.h"
#include "pseudo_terminal.h"
#include "text_stream.h"

static char piped[PROGRAM_OUTPUT];

/* ---- Characters ----------------------------------------------------------------------------- */

typedef struct sight {
    const char *text, *line, *lines;
} sight;

static const sight sights[] = {
    {"plain \\ text", "plain \\ text", "plain \\ text"},
    {"a\tb\nc\r\n", "a\\x09b\\x0ac\\x0d\\x0a", "a\tb\nc\\x0d\n"},
    {"\033]52;c;YQ==\a", "\\x1b]52;c;YQ==\\x07", "\\x1b]52;c;YQ==\\x07"},
    {"\x7f\x01", "\\x7f\\x01", "\\x7f\\x01"},
    {"\xc2\x9b[2J\xc2\x80\xc2\x9f", "\\u009b[2J\\u0080\\u009f", "\\u009b[2J\\u0080\\u009f"},
    {"\x9b[2J", "\\x9b[2J", "\\x9b[2J"}, /* the same in eight bits */
    {"\xe2\x80\xae txt.exe", "\\u202e txt.exe", "\\u202e txt.exe"},
    {"\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9", "\\u202a\\u202e\\u2066\\u2069",
     "\\u202a\\u202e\\u2066\\u2069"},
    {"\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c\xe2\x80\xa8\xe2\x80\xa9",
     "\\u200e\\u200f\\u061c\\u2028\\u2029", "\\u200e\\u200f\\u061c\\u2028\\u2029"},
    {"\xf3\xa0\x81\x81", "\\U000e0041", "\\U000e0041"},
    /* No others: accents, Arabic, Hindi with joiners, a family, wide characters. */
    {"caf\xc3\xa9 \xd8\xb3 \xe2\x80\x8d\xe2\x80\x8c \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 "
     "\xe4\xb8\xad",
     "caf\xc3\xa9 \xd8\xb3 \xe2\x80\x8d\xe2\x80\x8c \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 "
     "\xe4\xb8\xad",
     "caf\xc3\xa9 \xd8\xb3 \xe2\x80\x8d\xe2\x80\x8c \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 "
     "\xe4\xb8\xad"},
    {"\xc2\xa0\xe2\x80\xa7\xe2\x80\xaf", "\xc2\xa0\xe2\x80\xa7\xe2\x80\xaf",
     "\xc2\xa0\xe2\x80\xa7\xe2\x80\xaf"},
    /* Not UTF-8: a byte alone, cut off, too long, a surrogate, beyond the last. */
    {"\xff\xe9t\xe9", "\\xff\\xe9t\\xe9", "\\xff\\xe9t\\xe9"},
    {"\xe2\x82", "\\xe2\\x82", "\\xe2\\x82"},
    {"\xc0\x9b", "\\xc0\\x9b", "\\xc0\\x9b"},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80", "\\xed\\xa0\\x80"},
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", "\\xf4\\x90\\x80\\x80"},
};
enum { SIGHTS = sizeof sights / sizeof *sights };

TEST_CASE("characters", NULL, NULL)

LOOP_TEST(what_a_terminal_would_obey_is_seen, SIGHTS)
{
    const sight *s = &sights[_i];
    char room[200];
    ck_assert_uint_eq(terminal_visible(room, sizeof room, s->text, strlen(s->text), false),
                      strlen(s->line));
    ck_assert_str_eq(room, s->line);
    terminal_visible(room, sizeof room, s->text, strlen(s->text), true);
    ck_assert_str_eq(room, s->lines);
}

TEST(what_does_not_fit_is_left_out)
{
    char room[8] = "";
    ck_assert_uint_eq(terminal_visible(room, 8, "abc\033\033", 5, true), 7);
    ck_assert_str_eq(room, "abc\\x1b");
    ck_assert_uint_eq(terminal_visible(room, 7, "abc\033", 4, true), 3);
    ck_assert_uint_eq(terminal_visible(room, 8, "a\0b", 3, true), 6); /* a NUL is a control, too */
    ck_assert_str_eq(room, "a\\x00b");
}

/* ---- A pseudo-terminal ---------------------------------------------------------------------- */

/* Runs a command with both streams on a terminal. False: no terminal. */
static bool run_on_terminal(const char *command)
{
    if (terminal_missing()) return false;
    terminal t = terminal_begin(command, TERMINAL_RAW);
    terminal_end(&t);
    return true;
}

static size_t run_in_pipe(const char *command)
{
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    const size_t used = fread(piped, 1, sizeof piped - 1, pipe);
    piped[used] = '\0';
    pclose(pipe);
    return used;
}

/* Nothing that a terminal obeys but line breaks, tabs and the end of a live line; by another rule
 * than that of the programs: such a byte, or one of these sequences, is there or not. */
static void assert_harmless(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        const bool live = *c == '\r' || !strncmp((const char *)c, "\033[K", 3);
        ck_assert_msg(live || *c == '\n' || *c == '\t' || (*c >= 32 && *c != 127), "%s", text);
        ck_assert_msg(!(*c == 0xc2 && c[1] < 0xa0), "%s", text);
        ck_assert_msg(!(*c == 0xe2 && c[1] == 0x80 && c[2] >= 0xaa && c[2] <= 0xae), "%s", text);
        ck_assert_msg(!(*c == 0xe2 && c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xaf), "%s", text);
        ck_assert_msg(!(*c == 0xe2 && c[1] == 0x80 && (c[2] | 1) == 0x8f), "%s", text);
    }
    /* Valid UTF-8, says the C library. */
    write_bytes("shown", text, strlen(text));
    shell("iconv -f UTF-8 -t UTF-8 shown >/dev/null");
}

/* Replaces what was made visible by what it was; returns the bytes. */
static size_t restore(char *text)
{
    char *out = text;
    for (const char *c = text; *c;) {
        unsigned code = 0;
        if (c[0] == '\\' && c[1] == 'x' && sscanf(c + 2, "%2x", &code) == 1) {
            *out++ = (char)code;
            c += 4;
        } else if (c[0] == '\\' && c[1] == 'u' && sscanf(c + 2, "%4x", &code) == 1) {
            if (code >= 0x800) *out++ = (char)(0xe0 | code >> 12);
            *out++ = (char)(code >= 0x800 ? 0x80 | (code >> 6 & 0x3f) : 0xc0 | code >> 6);
            *out++ = (char)(0x80 | (code & 0x3f));
            c += 6;
        } else {
            *out++ = *c++;
        }
    }
    *out = '\0';
    return (size_t)(out - text);
}

/* ---- Samples -------------------------------------------------------------------------------- */

/* Byte by byte, on a terminal: characters are whole. */
TEST(a_character_in_two_writes_is_one)
{
    static const char text[] =
        "a\xc3\xa9\xe2\x82\xac\033\xf0\x9f\x98\x80\xe2\x80\xae\xe9\n\xe2\x82";
    static const char wanted[] =
        "a\xc3\xa9\xe2\x82\xac\\x1b\xf0\x9f\x98\x80\\u202e\\xe9\n\\xe2\\x82";
    int end;
    char got[200];
    const int master = terminal_open(&end, TERMINAL_RAW);
    if (master < 0) return;
    text_stream s = {.file = fdopen(end, "w")};
    for (size_t i = 0; i < sizeof text - 1; i++) text_stream_put(&s, text + i, 1);
    text_stream_end(&s);
    size_t used = 0;
    for (ssize_t bytes = 1; bytes > 0 && used < strlen(wanted); used += (size_t)bytes)
        bytes = read(master, got + used, sizeof got - 1 - used);
    got[used] = '\0';
    ck_assert_str_eq(got, wanted);
    fclose(s.file);
    close(master);
}

static void set_up(void)
{
    enter_folder();
    write_words("text", 4000);
    program_must(0,
                 "--data text --vocab 258 --layers 1 --dim 8 --heads 1 --ffn 16 --context 8 "
                 "--batch 2 --steps 1 --sample-length 0 --threads 1 --out run",
                 output);
}

/* The path of a program. */
static const char *program(const char *name)
{
    static char path[300];
    const char *own = GRADUS_PROGRAM, *slash = strrchr(own, '/');
    snprintf(path, sizeof path, "'%.*s/%s'", (int)(slash - own), own, name);
    return path;
}

static const char *const prompts[] = {
    "abc", "\033]52;c;aGk=\a \xc2\x9b \xe2\x80\xae caf\xc3\xa9",
    "abc\xe2", /* the sample may complete it */
};

TEST_CASE("samples", set_up, leave_folder)

/* An untrained model draws all bytes. The terminal shows the bytes of the pipe. */
LOOP_TEST(samples_of_any_bytes_are_shown, 3)
{
    char command[1024];
    snprintf(
        command, sizeof command,
        "%s run --prompt '%s' --length 3000 --temperature 2 --samples 2 --threads 1 2>/dev/null",
        program("gradus-sample"), prompts[_i]);
    if (!run_on_terminal(command)) return;
    const size_t bytes = run_in_pipe(command);
    assert_harmless(on_terminal);
    ck_assert_ptr_nonnull(strstr(on_terminal, "\\x1b"));
    ck_assert_ptr_nonnull(memchr(piped, '\033', bytes));
    ck_assert_uint_eq(restore(on_terminal), bytes);
    ck_assert_mem_eq(on_terminal, piped, bytes);
}

TEST(training_shows_its_samples_too)
{
    char command[1024];
    snprintf(
        command, sizeof command,
        "'%s' --data text --vocab 258 --layers 1 --dim 8 --heads 1 --ffn 16 --context 8 "
        "--batch 2 --steps 2 --sample-every 1 --sample-length 2000 --temperature 3 --threads 1",
        (const char *)GRADUS_PROGRAM);
    if (!run_on_terminal(command)) return;
    assert_harmless(on_terminal);
    ck_assert_ptr_nonnull(strstr(on_terminal, "---- sample after step 1"));
    ck_assert_ptr_nonnull(strstr(on_terminal, "\\x1b"));
}

/* ---- Names and messages --------------------------------------------------------------------- */

static const char *const commands[] = {
    "%s/gradus-train --data '%s'",
    "%s/gradus-train --data text --dim '%s'",
    "%s/gradus-train --data text '--%s'",
    "%s/gradus-train '%s'",
    "%s/gradus-train --data text --steps 0 --sample-length 0 --dry-run --out '%s'",
    "%s/gradus-train --data text --init '%s'",
    "cp text '%2$s' && %1$s/gradus-train --data '%2$s' --layers 1 --dim 8 --heads 1 --steps 0 "
    "--sample-length 0",
    "cp -r run 'model%2$s' && %1$s/gradus-train --data text --init 'model%2$s' --dry-run",
    "%s/gradus-sample '%s'",
    "%s/gradus-sample run --top-k '%s'",
    "%s/gradus-sample run --prompt-file '%s'",
    "%s/gradus-eval '%s'",
    "%s/gradus-eval run --data '%s'",
    "cp -r run 'model%2$s' && cp text 'text%2$s' && %1$s/gradus-eval 'model%2$s' --data 'text%2$s'",
    "cp -r run 'model%2$s' && cp text 'text%2$s' && "
    "%1$s/gradus-eval 'model%2$s' --data 'text%2$s' --json",
    "%s/gradus-gradcheck '%s'",
    "%s/gradus-gradcheck add --case '%s'",
    "%s/gradus-gradcheck --case '%s'",
    "%s/gradus-gradcheck '--%s'",
    "%s/gradus-gradcheck add --seed '%s'",
    "%s/gradus-bench '%s'",
    "%s/gradus-bench step --model '%s'",
    "%s/gradus-bench step --dtype '%s'",
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const char *const names[] = {
    "x\033]52;c;aGk=\ay",
    "x\xc2\x9b"
    "2Jy",
    "x\x9b"
    "2Jy",
    "x\xe2\x80\xaetxt.exe",
    "x\xe2\x81\xa7y\x7f",
    "x\ny\rz",
};
enum { NAMES = sizeof names / sizeof *names };

TEST_CASE("messages", set_up, leave_folder)

/* Whatever a name is, and whatever becomes of the command. */
LOOP_TEST(names_are_harmless, COMMANDS)
{
    char bin[300], command[1500];
    const char *own = GRADUS_PROGRAM;
    snprintf(bin, sizeof bin, "%.*s", (int)(strrchr(own, '/') - own), own);
    for (int i = 0; i < NAMES; i++) {
        snprintf(command, sizeof command, commands[_i], bin, names[i]);
        if (!run_on_terminal(command)) return;
        if (strstr(on_terminal, "not found")) return; /* gradus-bench may not be built */
        ck_assert_uint_gt(strlen(on_terminal), 10);
        assert_harmless(on_terminal);
        char errors[sizeof command + 32]; /* to a pipe, whose reader may show them on a terminal */
        snprintf(errors, sizeof errors, "{ %s; } 2>&1 >/dev/null", command);
        run_in_pipe(errors);
        assert_harmless(piped);
    }
}

/* A pipe gets the names' bytes where they are lines of a report. */
TEST(a_pipe_gets_the_names)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cp -r run 'm\xe2\x80\xaen' && %s 'm\xe2\x80\xaen' --data text",
             program("gradus-eval"));
    run_in_pipe(command);
    ck_assert_ptr_nonnull(strstr(piped, "m\xe2\x80\xaen/step-00000001: "));
    if (!run_on_terminal(command)) return;
    ck_assert_ptr_nonnull(strstr(on_terminal, "m\\u202en/step-00000001: "));
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "terminal", NULL, NULL)
