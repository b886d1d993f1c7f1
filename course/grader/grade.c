/* grade.c - grades one assignment: prints a table, and writes JSON.
 *   grade-N [--seeds FILE] [--json FILE] STUDENT_FILE
 * Its status is 0 if all points were given, 1 if not, and 2 if it could not grade. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grader.h"

static const char *const usual_columns[GRADER_COLUMNS] = {"values", "adds", "linear", "shapes"};

static const char *column_name(int column)
{
    return (grader_this.columns[0] ? grader_this.columns : usual_columns)[column];
}

/* ---- Rows ---------------------------------------------------------------------------------- */

grader_row *grader_add_row(grader *g, const char *name)
{
    if (g->rows == GRADER_ROWS) {
        fprintf(stderr, "%s has more than %d rows\n", grader_this.name, (int)GRADER_ROWS);
        exit(2);
    }
    grader_row *row = &g->row[g->rows++];
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

void *grader_alloc(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    if (memory) return memory;
    fprintf(stderr, "%s: out of memory\n", grader_this.name);
    exit(2);
}

void grader_adam(double *p, double *moments, const double *grad, int count, int k, double rate)
{
    for (int i = 0; i < count; i++) {
        double *mean = &moments[i], *square = &moments[count + i];
        *mean += 0.1 * (grad[i] - *mean);
        *square += 0.001 * (grad[i] * grad[i] - *square);
        const double root = sqrt(*square / (1 - pow(0.999, k + 1)));
        p[i] -= rate * *mean / (1 - pow(0.9, k + 1)) / (root + 1e-8);
    }
}

void grader_cell(grader_row *row, int column, int of, bool good, const char *format, ...)
{
    if (of) row->of[column] = row->got[column] = of;
    if (good) return;
    row->got[column] = 0;
    if (row->hint[column][0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(row->hint[column], sizeof row->hint[column], format, args);
    va_end(args);
}

void grader_no_points(grader_row *row, const char *format, ...)
{
    char hint[sizeof *row->hint];
    va_list args;
    va_start(args, format);
    vsnprintf(hint, sizeof hint, format, args);
    va_end(args);
    for (int column = 0; column < GRADER_COLUMNS; column++)
        row->got[column] = 0, row->hint[column][0] = 0;
    memcpy(row->hint[0], hint, sizeof hint);
}

static int sum(const int *of)
{
    int all = 0;
    for (int column = 0; column < GRADER_COLUMNS; column++) all += of[column];
    return all;
}

static int total(const grader *g, bool got)
{
    int all = 0;
    for (int i = 0; i < g->rows; i++) all += sum(got ? g->row[i].got : g->row[i].of);
    return all;
}

/* ---- The table ----------------------------------------------------------------------------- */

static void print_points(int got, int of)
{
    char text[32] = "";
    if (of) snprintf(text, sizeof text, "%d/%d", got, of);
    printf("%9s", text);
}

/* Whether a hint says what one before it in the row has said. */
static bool is_said(const grader_row *row, int column)
{
    for (int before = 0; before < column; before++)
        if (!strcmp(row->hint[before], row->hint[column])) return true;
    return false;
}

static void print_table(const grader *g)
{
    printf("%-28s", grader_this.name);
    for (int column = 0; column < GRADER_COLUMNS; column++)
        printf("%9s", column_name(column) ? column_name(column) : "");
    printf("%9s\n", "points");
    for (int i = 0; i < g->rows; i++) {
        const grader_row *row = &g->row[i];
        printf("  %-26s", row->name);
        for (int column = 0; column < GRADER_COLUMNS; column++)
            print_points(row->got[column], row->of[column]);
        print_points(sum(row->got), sum(row->of));
        putchar('\n');
        for (int column = 0; column < GRADER_COLUMNS; column++)
            if (row->hint[column][0] && !is_said(row, column))
                printf("    %s: %s\n", column_name(column), row->hint[column]);
    }
    printf("  %-62s", g->student.file);
    print_points(total(g, true), total(g, false));
    putchar('\n');
    if (g->student.printed[0]) printf("  %s\n", g->student.printed);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void write_text(FILE *file, const char *before, const char *text)
{
    fprintf(file, "%s\"", before);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(file, "\\%c", *p);
        else if (*p < ' ')
            fprintf(file, "\\u%04x", *p);
        else
            fputc(*p, file);
    }
    fputc('"', file);
}

static void write_row(FILE *file, const grader_row *row)
{
    write_text(file, "{\"name\": ", row->name);
    for (int column = 0; column < GRADER_COLUMNS; column++) {
        if (!row->of[column]) continue;
        write_text(file, ", ", column_name(column));
        fprintf(file, ": {\"points\": %d, \"of\": %d", row->got[column], row->of[column]);
        write_text(file, ", \"hint\": ", row->hint[column]);
        fputc('}', file);
    }
    fputc('}', file);
}

static bool write_json(const grader *g, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return false;
    write_text(file, "{\"assignment\": ", grader_this.name);
    write_text(file, ", \"file\": ", g->student.file);
    fprintf(file, ", \"seed\": %llu, \"points\": %d, \"of\": %d, \"rows\": [",
            (unsigned long long)g->seed, total(g, true), total(g, false));
    for (int i = 0; i < g->rows; i++) {
        if (i) fputs(", ", file);
        write_row(file, &g->row[i]);
    }
    fputs("]}\n", file);
    const bool failed = ferror(file) != 0;
    return fclose(file) == 0 && !failed;
}

/* ---- The program --------------------------------------------------------------------------- */

static int fail(const char *what, const char *which, const char *why)
{
    fprintf(stderr, "%s: %s%s%s\n", grader_this.name, what, which, why);
    return 2;
}

/* The seed of this assignment, in a file with lines of its number and its seed. */
static bool read_seed(const char *path, uint64_t *seed)
{
    FILE *file = fopen(path, "r");
    char line[256];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        int number;
        found = sscanf(line, "%d %" SCNu64, &number, seed) == 2 && number == atoi(grader_this.name);
    }
    if (file) fclose(file);
    return found;
}

/* Judges all functions; those of a file that cannot be called have no points. */
static void grade(grader *g, const char *path)
{
    char calls[4096];
    snprintf(calls, sizeof calls, "%s/%s/calls.h", COURSE_FOLDER, grader_this.name);
    const char *why = student_begin(&g->student, path, calls);
    if (why) {
        grader_row *row = grader_add_row(g, "the file");
        grader_cell(row, 0, 100, false, "%s", why);
    }
    for (int i = 0; i < grader_this.count && !why; i++) {
        const grader_function *f = &grader_this.functions[i];
        (f->faults ? grader_check_reverse : grader_check)(g, f);
    }
    if (grader_this.more && !why) grader_this.more(g);
    student_end(&g->student);
}

int main(int argc, char **argv)
{
    static grader g;
    const char *seeds = COURSE_FOLDER "/seeds", *json = NULL, *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seeds") && i + 1 < argc)
            seeds = argv[++i];
        else if (!strcmp(argv[i], "--json") && i + 1 < argc)
            json = argv[++i];
        else if (argv[i][0] != '-' && !path)
            path = argv[i];
        else
            return fail("unknown argument ", argv[i], ", wanted [--seeds FILE] [--json FILE] FILE");
    }
    if (!path) return fail("no file, wanted [--seeds FILE] [--json FILE] FILE", "", "");
    if (!read_seed(seeds, &g.seed)) return fail("there is no seed for it in ", seeds, "");
    grade(&g, path);
    print_table(&g);
    if (json && !write_json(&g, json)) return fail("cannot write ", json, "");
    if (fflush(stdout)) return fail("cannot write the table", "", "");
    return total(&g, true) == total(&g, false) ? 0 : 1;
}
