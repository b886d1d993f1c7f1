/* options.c - the command line, and --help. See options.h. */
#include "options.h"
#include "console.h"
#include "gradus/gradus.h"
#include "options_value.h"

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

/* The row whose name begins so, if there is one, or one of just that name; *alike: how many. */
static const option_row *find_row(const option_table *table, const char *name, size_t length,
                                  int *alike)
{
    const option_row *row, *found = NULL;
    *alike = 0;
    for (int i = 0; length > 0 && (row = option_at(table, i)); i++) {
        if (!row->name || strncmp(row->name, name, length) != 0) continue;
        if (!row->name[length]) return row;
        found = row;
        ++*alike;
    }
    return *alike == 1 ? found : NULL;
}

static bool refuse(const option_table *table, const char *word, int alike)
{
    const char *guess = option_guess(table, word);
    if (word[0] != '-')
        console_message("\"%s\" is not an option; see --help", word);
    else if (alike > 1)
        console_message("%s is ambiguous; see --help", word);
    else if (guess)
        console_message("%s is not an option; did you mean --%s? --help lists them", word, guess);
    else
        console_message("%s is not an option; see --help", word);
    return false;
}

/* Takes "--name value", "--name=value", "--switch" or an operand, and moves *word to its last word;
 * the list ends with NULL. False after a message. */
static bool take_option(options *o, char ***word)
{
    const char *text = **word;
    const option_table *table = o->table;
    if (text[0] != '-' && table->operand && !options_given(o, table->operand)) {
        return option_give(o, "--", option_find(o, table->operand), text);
    }
    const bool named = !strncmp(text, "--", 2);
    const size_t length = named ? strcspn(text + 2, "=") : 0;
    int alike;
    const option_row *row = find_row(table, text + 2 * named, length, &alike);
    if (!row) return refuse(table, text, alike);
    const char *value = text[2 + length] ? text + 2 + length + 1 : NULL;
    if (row->kind == OPTION_SWITCH && value) {
        console_message("--%s takes no value, but got %s", row->name, text);
        return false;
    }
    if (row->kind != OPTION_SWITCH && !value) value = *++*word;
    if (row->kind != OPTION_SWITCH && !value) {
        console_message("%s needs a value; see --help", text);
        return false;
    }
    return option_give(o, "--", row, value);
}

static options_outcome read_arguments(options *o, char **argv)
{
    for (char **word = argv + 1; *word; word++) {
        if (!strcmp(*word, "--help") || !strcmp(*word, "-h")) {
            print_help(o->table);
            return OPTIONS_DONE;
        }
        if (!strcmp(*word, "--version")) {
            printf("%s %s\n", o->table->program, gd_version());
            return OPTIONS_DONE;
        }
        if (!take_option(o, &word)) return OPTIONS_BAD;
    }
    return OPTIONS_RUN;
}

static void set_defaults(options *o, const option_table *table)
{
    memcpy(o, table->defaults, table->size);
    o->table = table;
}

/* The command line says which file there is, and comes before it all the same. */
options_outcome options_read(options *o, const option_table *table, char **argv)
{
    console_program(table->program);
    set_defaults(o, table);
    options_outcome outcome = read_arguments(o, argv);
    const char *path = o->config;
    if (outcome != OPTIONS_RUN || !path) return outcome;
    set_defaults(o, table);
    return options_read_file(o, path) ? read_arguments(o, argv) : OPTIONS_BAD;
}

void options_free(options *o)
{
    free(o->config_text);
    o->config_text = NULL;
}
