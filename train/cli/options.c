/* options.c - the command line, and --help. See options.h. */
#define _GNU_SOURCE /* getopt_long */
#include "options.h"
#include "console.h"
#include "gradus/gradus.h"
#include "options_value.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table ---------------------------------------------------------------------------- */

#define AT(field) offsetof(options, field)

static const int devices[] = {GD_CPU, GD_CUDA, GD_DEVICE_AUTO};

/* Of all programs. */
static const option_row common[OPTIONS_COMMON] = {
    {.help = "Machine"},
    {OPTION_CHOICE, "device", AT(device), .choices = "cpu cuda auto", .values = devices,
     .help = "cpu|cuda|auto  auto: a GPU where there is one", .passes = true},
    {OPTION_SWITCH, "tf32", AT(tf32),
     .help = "  on a GPU, round the factors of float32 products to TF32: faster"},
    {OPTION_WHOLE, "threads", AT(threads), 0, 4096,
     .help = "N  0: all; the result is the same for any number", .passes = true},
    {.help = "Other"},
    {OPTION_PATH, "config", AT(config),
     .help = "FILE  lines of \"option = value\", which the command line overrides", .passes = true},
};

const option_row *option_at(const option_table *table, int i)
{
    if (i < table->shared_count) return &table->shared[i];
    i -= table->shared_count;
    if (i < table->count) return &table->rows[i];
    i -= table->count;
    return i < OPTIONS_COMMON ? &common[i] : NULL;
}

/* ---- Help --------------------------------------------------------------------------------- */

enum { HELP_COLUMN = 28, HELP_WIDTH = 80 };

/* Words from column `at` on, in lines that begin at HELP_COLUMN. */
static int print_words(const char *text, int at)
{
    while (*(text += strspn(text, " "))) {
        int length = (int)strcspn(text, " ");
        if (at + 1 + length > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN;
        }
        at += printf("%s%.*s", at > HELP_COLUMN ? " " : "", length, text);
        text += length;
    }
    return at;
}

/* NULL where there is nothing to be told; a number below 0 stands for what the help says. */
static const char *default_text(const option_row *row, const options *defaults, options_item *item)
{
    if (option_is_text(row) || row->kind == OPTION_SWITCH) return NULL;
    option_print(defaults, row, item);
    if (row->kind == OPTION_NUMBER)
        snprintf(item->number, sizeof item->number, "%g", strtod(item->text, NULL));
    return item->number[0] == '-' ? NULL : item->number;
}

/* "  --layers N                transformer layers (4)" */
static void print_row(const option_row *row, const options *defaults)
{
    const char *meaning = strstr(row->help, "  ");
    int called = (int)(meaning ? meaning - row->help : (long)strlen(row->help));
    int at = printf("  --%s %.*s", row->name, called, row->help);
    if (meaning) {
        bool fits = at + 2 <= HELP_COLUMN;
        if (!fits) printf("\n");
        printf("%*s", fits ? HELP_COLUMN - at : HELP_COLUMN, "");
        at = print_words(meaning, HELP_COLUMN);
    }
    options_item item;
    const char *value = default_text(row, defaults, &item);
    if (value) {
        char text[40];
        snprintf(text, sizeof text, "(%s)", value);
        print_words(text, at);
    }
    printf("\n");
}

static void print_help(const option_table *table)
{
    printf("%s\nDefaults are in parentheses.\n", table->usage);
    const option_row *row;
    for (int i = 0; (row = option_at(table, i)); i++) {
        if (row->name)
            print_row(row, table->defaults);
        else
            printf("\n%s\n", row->help);
    }
    printf("  --help  --version\n");
}

/* ---- The command line --------------------------------------------------------------------- */

/* What getopt_long returns: above all letters, so that one that is no option is known as such. */
enum { HELP = 256, VERSION, FIRST_ROW };

static void list_options(const option_table *table, struct option longs[OPTIONS_MOST + 3])
{
    const option_row *row;
    int count = 0;
    for (int i = 0; (row = option_at(table, i)); i++) {
        int argument = row->kind == OPTION_SWITCH ? no_argument : required_argument;
        if (row->name) longs[count++] = (struct option){row->name, argument, NULL, FIRST_ROW + i};
    }
    longs[count++] = (struct option){"help", no_argument, NULL, HELP};
    longs[count++] = (struct option){"version", no_argument, NULL, VERSION};
    longs[count] = (struct option){0};
}

/* The word that getopt_long finds fault with. It has gone past it, but for the first of several
 * letters, as in -xy. */
static const char *faulty_word(char **argv)
{
    const char alone[] = {'-', (char)optopt, '\0'};
    bool within = optopt != 0 && optopt < HELP && strcmp(argv[optind - 1], alone) != 0;
    return argv[within ? optind : optind - 1];
}

/* How many options a word like "--wo" or "--word=value" may be short for; *whole: the one that it
 * names. */
static int count_alike(const option_table *table, const char *word, const option_row **whole)
{
    const option_row *row;
    int count = 0;
    if (strncmp(word, "--", 2) != 0) return 0;
    const char *name = word + 2;
    const size_t length = strcspn(name, "=");
    for (int i = 0; (row = option_at(table, i)); i++) {
        if (!row->name || strncmp(row->name, name, length) != 0) continue;
        count++;
        if (!row->name[length]) *whole = row;
    }
    return count;
}

static options_outcome refuse(const option_table *table, const char *word)
{
    const option_row *whole = NULL;
    const char *guess = option_guess(table, word);
    int alike = count_alike(table, word, &whole);
    if (whole)
        console_message("--%s takes no value, but there is %s", whole->name, word);
    else if (alike > 1)
        console_message("%s is short for several options; --help lists them", word);
    else if (guess)
        console_message("%s is not an option; did you mean --%s? --help lists them", word, guess);
    else
        console_message("%s is not an option; --help lists them", word);
    return OPTIONS_BAD;
}

/* Takes either --config alone, or all options, and words that are none. */
static options_outcome read_arguments(options *o, const struct option *longs, int argc, char **argv,
                                      bool config_alone)
{
    const option_table *table = o->table;
    int code;
    optind = 1;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
        if (code == HELP || code == 'h') {
            print_help(table);
            return OPTIONS_DONE;
        }
        if (code == VERSION) {
            printf("%s %s\n", table->program, gd_version());
            return OPTIONS_DONE;
        }
        if (code == '?') return refuse(table, faulty_word(argv));
        if (code == ':') {
            console_message("%s wants a value; --help lists the options", faulty_word(argv));
            return OPTIONS_BAD;
        }
        const option_row *row = option_at(table, code - FIRST_ROW);
        if (config_alone && row->offset != offsetof(options, config)) continue;
        if (!option_give(o, "--", row, optarg)) return OPTIONS_BAD;
    }
    if (!config_alone && optind < argc && table->operand && !options_given(o, table->operand)) {
        if (!option_give(o, "--", option_find(o, table->operand), argv[optind++]))
            return OPTIONS_BAD;
    }
    if (config_alone || optind >= argc) return OPTIONS_RUN;
    console_message("\"%s\" is not an option; --help lists them", argv[optind]);
    return OPTIONS_BAD;
}

options_outcome options_read(options *o, const option_table *table, int argc, char **argv)
{
    struct option longs[OPTIONS_MOST + 3];
    memcpy(o, table->defaults, table->size);
    o->table = table;
    console_program(table->program);
    list_options(table, longs);
    options_outcome outcome = read_arguments(o, longs, argc, argv, true);
    if (outcome == OPTIONS_RUN && o->config && !options_read_file(o, o->config)) {
        outcome = OPTIONS_BAD;
    }
    return outcome == OPTIONS_RUN ? read_arguments(o, longs, argc, argv, false) : outcome;
}

void options_free(options *o)
{
    free(o->config_text);
    o->config_text = NULL;
}
