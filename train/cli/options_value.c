/* options_value.c - the values of options: read from a text, printed as text and as JSON. */
#include "options_value.h"
#include "console.h"
#include "folder.h"
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *value_of(options *o, const option_row *row)
{
    return (char *)o + row->offset;
}

/* ---- Reading ------------------------------------------------------------------------------ */

static bool complain(const char *where, const option_row *row, const char *text, const char *wanted)
{
    console_message("%s%s is \"%s\", wanted %s", where, row->name, text, wanted);
    return false;
}

/* The whole text must be the number, and the number within the row's range. */
static bool read_number(const char *where, const option_row *row, const char *text, void *value)
{
    const bool whole = row->kind == OPTION_WHOLE;
    char wanted[96], *end = NULL;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || *end || errno || strcspn(text, "xXnN ") < strlen(text) ||
        !(number >= row->low && number <= row->high) || (whole && number != floor(number))) {
        const char *format = whole ? "a whole number from %.0f to %.0f" : "a number from %g to %g";
        snprintf(wanted, sizeof wanted, format, row->low, row->high);
        return complain(where, row, text, wanted);
    }
    if (whole)
        *(int64_t *)value = (int64_t)number;
    else
        *(double *)value = number;
    return true;
}

static bool read_choice(const char *where, const option_row *row, const char *text, void *value)
{
    size_t length = strlen(text);
    const char *choice = row->choices;
    for (int i = 0; *choice; i++) {
        size_t size = strcspn(choice, " ");
        if (size == length && !strncmp(choice, text, size)) {
            *(int *)value = row->values[i];
            return true;
        }
        choice += size + (choice[size] == ' ');
    }
    char wanted[96]; /* the help begins with the choices */
    const char *end = strstr(row->help, "  ");
    snprintf(wanted, sizeof wanted, "%.*s", (int)(end - row->help), row->help);
    return complain(where, row, text, wanted);
}

/* What does not fit into a path of ours would be cut somewhere. */
static bool read_path(const char *where, const option_row *row, const char *text, void *value)
{
    size_t length = strlen(text);
    if (length == 0) return complain(where, row, text, "the name of a file or a folder");
    if (length >= FOLDER_PATH) {
        console_message("%s%s is a path of %zu bytes, wanted %d at most: %.40s...", where,
                        row->name, length, FOLDER_PATH - 1, text);
        return false;
    }
    *(const char **)value = text;
    return true;
}

bool option_is_text(const option_row *row)
{
    return row->kind == OPTION_TEXT || row->kind == OPTION_PATH;
}

bool option_read(options *o, const char *where, const option_row *row, const char *text)
{
    void *value = value_of(o, row);
    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)value = text;
        return true;
    case OPTION_PATH:
        return read_path(where, row, text, value);
    case OPTION_SWITCH:
        *(bool *)value = !text || !strcmp(text, "true");
        return *(bool *)value || !strcmp(text, "false") ||
               complain(where, row, text, "true or false");
    case OPTION_CHOICE:
        return read_choice(where, row, text, value);
    case OPTION_WHOLE:
    case OPTION_NUMBER:
        return read_number(where, row, text, value);
    }
    return false;
}

static uint64_t bit_of(const options *o, const option_row *row)
{
    int i = 0;
    while (option_at(o->table, i) != row) i++;
    return (uint64_t)1 << i;
}

bool option_give(options *o, const char *where, const option_row *row, const char *text)
{
    o->given |= bit_of(o, row);
    return option_read(o, where, row, text);
}

/* ---- Printing ----------------------------------------------------------------------------- */

void option_print(const options *o, const option_row *row, options_item *item)
{
    const void *value = (const char *)o + row->offset;
    const char *choice = row->choices;
    item->text = item->number;
    switch (row->kind) {
    case OPTION_TEXT:
    case OPTION_PATH:
        item->text = *(const char *const *)value;
        return;
    case OPTION_SWITCH:
        item->text = *(const bool *)value ? "true" : "false";
        return;
    case OPTION_CHOICE:
        for (int i = 0; row->values[i] != *(const int *)value; i++)
            choice = strchr(choice, ' ') + 1;
        snprintf(item->number, sizeof item->number, "%.*s", (int)strcspn(choice, " "), choice);
        return;
    case OPTION_WHOLE:
        snprintf(item->number, sizeof item->number, "%lld", (long long)*(const int64_t *)value);
        return;
    case OPTION_NUMBER:
        snprintf(item->number, sizeof item->number, "%.17g", *(const double *)value);
        return;
    }
}

void options_print_json(const options *o, FILE *file)
{
    const char *comma = "";
    const option_row *row;
    for (int i = 0; (row = option_at(o->table, i)); i++) {
        options_item item;
        if (!row->name) continue;
        option_print(o, row, &item);
        fprintf(file, "%s\"%s\": ", comma, row->name);
        comma = ", ";
        if (item.text && (option_is_text(row) || row->kind == OPTION_CHOICE))
            json_print_string(item.text, file);
        else
            fprintf(file, "%s", item.text ? item.text : "null");
    }
}

/* ---- In checkpoints ----------------------------------------------------------------------- */

const option_row *option_find(const options *o, const char *name)
{
    const option_row *row;
    for (int i = 0; (row = option_at(o->table, i)); i++) {
        if (row->name && !strcmp(row->name, name)) return row;
    }
    return NULL;
}

bool options_given(const options *o, const char *name)
{
    const option_row *row = option_find(o, name);
    return row && (o->given & bit_of(o, row));
}

bool options_saved(const options *o, int i, options_item *item)
{
    const option_row *row;
    for (int k = 0; (row = option_at(o->table, k)); k++) {
        if (!row->name || row->passes || i-- > 0) continue;
        item->name = row->name;
        snprintf(item->key, sizeof item->key, "option.%s", item->name);
        option_print(o, row, item);
        return true;
    }
    return false;
}

bool options_agree(const options *o, const char *name, const char *text, options_item *given)
{
    if (!options_given(o, name)) return true;
    option_print(o, option_find(o, name), given);
    return !strcmp(given->text, text);
}

bool options_restore(options *o, const char *name, const char *text)
{
    const option_row *row = option_find(o, name);
    if (!row || options_given(o, name)) return true;
    if (console_has_controls(text)) {
        console_message("the checkpoint: %s is \"%s\", wanted no control characters", name, text);
        return false;
    }
    return option_read(o, "the checkpoint: ", row, text);
}
