/* options.c - the values of options, and the command line. See options.h. */
#include "programs/options.h"
#include "platform/number.h"
#include "programs/guess.h"
#include "programs/terminal.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table ---------------------------------------------------------------------------- */

const option_row *option_at(const option_table *table, int i)
{
    return i < OPTIONS_MOST && table->rows[i].help ? &table->rows[i] : NULL;
}

static const option_row *find(const options *o, const char *name, size_t length)
{
    const option_row *row;
    for (int i = 0; (row = option_at(o->table, i)); i++) {
        if (row->name && !strncmp(row->name, name, length) && !row->name[length]) return row;
    }
    return NULL;
}

bool options_given(const options *o, const char *name)
{
    const option_row *row = find(o, name, strlen(name));
    return row && o->given[row - o->table->rows];
}

GD_PRINTF(2, 3)
static void tell(const options *o, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    gd_os_print_list(text, sizeof text, format, arguments);
    va_end(arguments);
    if (o->table->tell)
        o->table->tell("%s", text);
    else
        terminal_message(o->table->program, "%s", text);
}

/* ---- What may have been meant ------------------------------------------------------------- */

/* The name nearest to the word, among ours and those of other programs; NULL: none is near. */
static const char *nearest(const option_table *table, const char *word)
{
    guess g = guess_begin(word);
    guess_try(&g, "help", "help");
    guess_try(&g, "version", "version");
    const option_row *row;
    for (int i = 0; (row = option_at(table, i)); i++) {
        if (row->name) guess_try(&g, row->name, row->name);
        for (const char *other = row->others; other; other = strchr(other, ' ')) {
            other += strspn(other, " ");
            guess_try(&g, other, row->name);
        }
    }
    return g.name;
}

static bool refuse(const options *o, const char *where, const char *word)
{
    const char *meant = nearest(o->table, word);
    if (meant)
        tell(o, "%s%s is not an option; did you mean %s%s? --help lists all", where, word,
             *where ? "" : "--", meant);
    else
        tell(o, "%s%s is not an option; see --help", where, word);
    return false;
}

/* ---- Values ------------------------------------------------------------------------------- */

/* The i-th of "f32|f64  ..."; NULL past the end. */
static const char *choice_at(const option_row *row, int i, size_t *length)
{
    const char *choice = row->help;
    for (; i > 0; i--) {
        choice += strcspn(choice, "| ");
        if (*choice++ != '|') return NULL;
    }
    *length = strcspn(choice, "| ");
    return choice;
}

static bool read_choice(const option_row *row, const char *text, int *value)
{
    const char *choice;
    size_t length;
    for (int i = 0; (choice = choice_at(row, i, &length)); i++) {
        if (strlen(text) != length || strncmp(choice, text, length) != 0) continue;
        *value = i;
        return true;
    }
    return false;
}

/* The whole text must be the number. */
static bool read_number(const option_row *row, const char *text, double *value)
{
    char *end = NULL;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && !*end && !errno && !text[strcspn(text, "xXnN \t\n\v\f\r")] &&
           *value >= row->low && *value <= row->high &&
           (row->kind == OPTION_NUMBER || *value == floor(*value));
}

/* A double does not have every digit of a large one. */
static bool read_whole(const option_row *row, const char *text, int64_t *value)
{
    double number;
    char *end = NULL;
    if (!read_number(row, text, &number)) return false;
    errno = 0;
    const long long exact = strtoll(text, &end, 10);
    *value = *end ? (int64_t)number : exact; /* "1e6" is whole, too */
    return !errno;
}

static bool read_value(const option_row *row, const char *text, void *value)
{
    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)value = text;
        return true;
    case OPTION_PATH:
        *(const char **)value = text;
        return *text && strlen(text) < OPTIONS_PATH;
    case OPTION_TEXTS:
    case OPTION_PATHS:
        *(const char **)value = text;
        for (size_t length; (length = strcspn(text, "|")) > 0 && length < OPTIONS_PATH; text++)
            if (!*(text += length)) return true;
        return false;
    case OPTION_SWITCH:
        *(bool *)value = !strcmp(text, "true");
        return *(bool *)value || !strcmp(text, "false");
    case OPTION_CHOICE:
        return read_choice(row, text, value);
    case OPTION_WHOLE:
        return read_whole(row, text, value);
    case OPTION_NUMBER:
        return read_number(row, text, value);
    }
    return false;
}

static void print_wanted(const option_row *row, char *wanted, size_t size)
{
    switch (row->kind) {
    case OPTION_WHOLE:
        snprintf(wanted, size, "a whole number from %.0f to %.0f", row->low, row->high);
        return;
    case OPTION_NUMBER:
        snprintf(wanted, size, "a number from %g to %g", row->low, row->high);
        return;
    case OPTION_PATH:
    case OPTION_PATHS:
        snprintf(wanted, size, "a path of 1 to %d bytes", OPTIONS_PATH - 1);
        return;
    case OPTION_CHOICE:
        snprintf(wanted, size, "%.*s", (int)strcspn(row->help, " "), row->help);
        return;
    case OPTION_TEXTS:
        snprintf(wanted, size, "one name or more, with | between");
        return;
    case OPTION_TEXT:
    case OPTION_SWITCH:
        snprintf(wanted, size, "true or false");
        return;
    }
}

static bool is_list(const option_row *row)
{
    return row->kind == OPTION_TEXTS || row->kind == OPTION_PATHS;
}

static bool set(options *o, const char *where, const option_row *row, const char *text)
{
    enum { SHOWN = 256 };
    char wanted[96];
    if (read_value(row, text, (char *)o + row->offset)) return true;
    print_wanted(row, wanted, sizeof wanted);
    tell(o, "%s%s%s is \"%.*s%s\", wanted %s", where, *where ? "" : "--", row->name, SHOWN, text,
         strlen(text) > SHOWN ? "..." : "", wanted);
    return false;
}

/* Adds a text to those that were given before; NULL after a message. */
static const char *join(options *o, const option_row *row, const char *text)
{
    char **joined = &o->own[row - o->table->rows];
    const char *before = *(const char **)((char *)o + row->offset);
    const size_t length = strlen(before);
    const bool more = before == *joined;
    char *grown = realloc(*joined, length + strlen(text) + 2);
    if (!grown) {
        tell(o, "out of memory: --%s", row->name);
        return NULL;
    }
    if (!more) memcpy(grown, before, length);
    grown[length] = '|';
    strcpy(grown + length + 1, text);
    return *joined = grown;
}

bool options_set(options *o, const char *where, const char *word, size_t length, const char *value)
{
    const option_row *row = find(o, word, length);
    if (!row) return refuse(o, where, word);
    char *given = &o->given[row - o->table->rows];
    if (*given == o->reading && (row->kind == OPTION_TEXT || row->kind == OPTION_PATH)) {
        tell(o, "%s%s%s is given twice, wanted once", where, *where ? "" : "--", row->name);
        return false;
    }
    if (*given == o->reading && is_list(row) && !(value = join(o, row, value))) return false;
    *given = o->reading;
    return set(o, where, row, value);
}

/* ---- The command line --------------------------------------------------------------------- */

/* Takes "--name value", "--name=value", "--switch" or an operand, and moves *word to the last word
 * of it. False after a message. */
static bool take_option(options *o, char ***word)
{
    const char *text = **word, *operand = o->table->operand;
    const option_row *taker = operand ? find(o, operand, strlen(operand)) : NULL;
    if (text[0] != '-' && taker && (is_list(taker) || !options_given(o, operand)))
        return options_set(o, "", operand, strlen(operand), text);
    const bool dashed = !strncmp(text, "--", 2);
    const size_t length = dashed ? strcspn(text + 2, "=") : 0;
    const option_row *row = find(o, text + 2 * dashed, length);
    if (!row) return refuse(o, "", text);
    const char *value = text[2 + length] ? text + 2 + length + 1 : NULL;
    if (!value) value = row->kind == OPTION_SWITCH ? "true" : *++*word;
    if (!value) {
        tell(o, "%s needs a value; see --help", text);
        return false;
    }
    bool fine = options_set(o, "", row->name, length, value);
    /* The names that a shell has put in place of a pattern. */
    const bool several = is_list(row) && (!operand || options_given(o, operand));
    for (const char *next; fine && several && (next = (*word)[1]); ++*word) {
        if (next[0] == '-' && next[1]) break;
        fine = options_set(o, "", row->name, length, next);
    }
    return fine;
}

static options_outcome read_arguments(options *o, char **argv)
{
    o->reading++;
    for (char **word = argv + 1; *word; word++) {
        if (!strcmp(*word, "--help") || !strcmp(*word, "-h")) {
            options_print_help(o->table, stdout);
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

/* The command line names the file, and overrides it: it is read before and after. */
options_outcome options_read(options *o, const option_table *table, char **argv)
{
    const option_row *row;
    o->table = table;
    for (int i = 0; (row = option_at(table, i)); i++) {
        if (row->initial) set(o, "", row, row->initial);
    }
    options_outcome outcome = read_arguments(o, argv);
    if (outcome != OPTIONS_RUN || !o->config) return outcome;
    memset(o->given, 0, sizeof o->given);
    o->reading++;
    if (!table->read_file(o, o->config)) return OPTIONS_BAD;
    if (table->operand) /* the command line may still have one */
        o->given[find(o, table->operand, strlen(table->operand)) - table->rows] = 0;
    return read_arguments(o, argv);
}

void options_free(options *o)
{
    free(o->config_text);
    o->config_text = NULL;
    for (int i = 0; i < OPTIONS_MOST; i++) {
        free(o->own[i]);
        o->own[i] = NULL;
    }
}

bool options_fit(const options *o, const options_fault *faults)
{
    for (; faults->message; faults++) {
        if (!faults->found) continue;
        tell(o, "%s", faults->message);
        return false;
    }
    return true;
}

bool options_used(const options *o, const option_use *uses)
{
    for (; uses->name; uses++) {
        if (uses->used || !options_given(o, uses->name)) continue;
        tell(o, "--%s %s", uses->name, uses->message);
        return false;
    }
    return true;
}

/* ---- As texts, and as JSON ----------------------------------------------------------------- */

static void print_value(const options *o, const option_row *row, options_item *item)
{
    const void *value = (const char *)o + row->offset;
    const char *choice;
    size_t length = 0;
    item->row = row;
    item->name = row->name;
    item->text = item->number;
    snprintf(item->key, sizeof item->key, "option.%s", row->name);
    switch (row->kind) {
    case OPTION_TEXT:
    case OPTION_TEXTS:
    case OPTION_PATH:
    case OPTION_PATHS:
        item->text = *(const char *const *)value;
        return;
    case OPTION_SWITCH:
        item->text = *(const bool *)value ? "true" : "false";
        return;
    case OPTION_CHOICE:
        choice = choice_at(row, *(const int *)value, &length);
        snprintf(item->number, sizeof item->number, "%.*s", (int)length, choice);
        return;
    case OPTION_WHOLE:
        snprintf(item->number, sizeof item->number, "%lld", (long long)*(const int64_t *)value);
        return;
    case OPTION_NUMBER:
        snprintf(item->number, sizeof item->number, "%.17g", *(const double *)value);
        return;
    }
}

static bool value_of(const options *o, int i, bool unsaved, options_item *item)
{
    const option_row *row;
    for (int k = 0; (row = option_at(o->table, k)); k++) {
        if (!row->name || (row->unsaved && !unsaved) || i-- > 0) continue;
        print_value(o, row, item);
        return true;
    }
    return false;
}

bool options_value(const options *o, int i, options_item *item)
{
    return value_of(o, i, true, item);
}

bool options_saved(const options *o, int i, options_item *item)
{
    return value_of(o, i, false, item);
}

bool options_agree(const options *o, const char *name, const char *text, options_item *given)
{
    if (!options_given(o, name)) return true;
    print_value(o, find(o, name, strlen(name)), given);
    return !strcmp(given->text, text);
}

bool options_restore(options *o, const char *name, const char *text)
{
    const option_row *row = find(o, name, strlen(name));
    if (!row || options_given(o, name)) return true;
    char **own = &o->own[row - o->table->rows];
    if (terminal_has_controls(text)) {
        tell(o, "the checkpoint: %s is \"%s\", wanted no control characters", name, text);
        return false;
    }
    free(*own);
    *own = malloc(strlen(text) + 1);
    if (*own) return set(o, "the checkpoint: ", row, strcpy(*own, text));
    tell(o, "out of memory: --%s", name);
    return false;
}
