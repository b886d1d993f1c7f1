/* options_help.c - --help, from the table of options. See options.h. */
#include "programs/options.h"

#include <string.h>

enum { COLUMN = 28, WIDTH = 80 };

/* "  --layers N                transformer layers (4)" */
static void print_row(const option_row *row, FILE *file)
{
    const char *meaning = strstr(row->help, "  ");
    char text[512];
    int at = fprintf(file, "  --%s %.*s", row->name, (int)(meaning - row->help), row->help);
    if (at + 2 > COLUMN) {
        fprintf(file, "\n");
        at = 0;
    }
    at += fprintf(file, "%*s", COLUMN - at, "");
    snprintf(text, sizeof text, "%s%s%s%s", meaning, row->initial ? " (" : "",
             row->initial ? row->initial : "", row->initial ? ")" : "");
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        if (at + 1 + (int)strlen(word) > WIDTH) at = fprintf(file, "\n%*s", COLUMN, "") - 1;
        at += fprintf(file, "%s%s", at > COLUMN ? " " : "", word);
    }
    fprintf(file, "\n");
}

void options_print_help(const option_table *table, FILE *file)
{
    fprintf(file, "%s\nDefaults are in parentheses.\n", table->usage);
    const option_row *row;
    for (int i = 0; (row = option_at(table, i)); i++) {
        if (row->name)
            print_row(row, file);
        else
            fprintf(file, "\n%s\n", row->help);
    }
    fprintf(file, "  --help  --version\n");
}
