/* options.h - the options of a program. One table says everything about each of them: its name, the
 * field it sets, its default, the values it takes, and what it means. The command line, a file of
 * options, --help, and the checkpoints and logs of training are all driven by it.
 *
 * Part of the programs, not of the library. */
#ifndef GRADUS_OPTIONS_H
#define GRADUS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gradus/context.h" /* GD_PRINTF */

/* ---- The table ---------------------------------------------------------------------------- */

typedef enum option_kind {
    OPTION_TEXT,   /* const char * */
    OPTION_TEXTS,  /* const char *, several of them with "|" between; may be given one by one */
    OPTION_PATH,   /* const char *, the name of a file or a folder */
    OPTION_PATHS,  /* const char *, TEXTS that are such names */
    OPTION_WHOLE,  /* int64_t */
    OPTION_NUMBER, /* double */
    OPTION_SWITCH, /* bool; on the command line, no value means true */
    OPTION_CHOICE  /* int, or an enum: the choice's index in the help */
} option_kind;

typedef struct option_row {
    option_kind kind;
    const char *name;    /* "layers"; a row without a name is a heading */
    size_t offset;       /* of the field in the program's struct */
    const char *initial; /* the default, as on the command line; NULL: what the struct holds */
    double low, high;    /* WHOLE, NUMBER: the range */
    const char *help;    /* "N  transformer layers": a word for the value, two spaces, the meaning;
                          * CHOICE: "f32|f64  of weights" */
    const char *others;  /* names in other programs, "n_layer depth": for "did you mean" */
    bool unsaved;        /* left out of checkpoints: where a run begins and ends, and the machine */
} option_row;

enum { OPTIONS_MOST = 80, OPTIONS_PATH = 4096 }; /* bytes of a path, with its NUL */

typedef struct options options;

typedef struct option_table {
    const char *program;    /* "gradus-train" */
    const char *usage;      /* the beginning of --help */
    const char *operand;    /* the option set by a word without "--"; NULL: none */
    const option_row *rows; /* OPTIONS_MOST of them, of which the last are empty */
    /* Prints a message; NULL: terminal_message of the program. */
    void (*tell)(const char *format, ...) GD_PRINTF(1, 2);
    /* Reads a file of options by options_set. False after a message. NULL: there is no --config. */
    bool (*read_file)(options *o, const char *path);
} option_table;

/* The first member of every program's struct. */
struct options {
    const option_table *table;
    char given[OPTIONS_MOST]; /* by the command line or the file: in which reading; 0: not given */
    char reading;             /* that of the command line, of the file, or of the line again */
    char *config_text;        /* of the file; texts among the values point into it */
    char *own[OPTIONS_MOST];  /* TEXTS and PATHS that were given one by one, texts restored */

    /* What common rows may set: */
    const char *config; /* a file of options */
    int device;         /* the choice's index */
    bool tf32;
    int64_t threads; /* 0: all */
};

/* The i-th row; NULL past the end. */
const option_row *option_at(const option_table *table, int i);

/* ---- Reading ------------------------------------------------------------------------------ */

typedef enum options_outcome {
    OPTIONS_RUN,  /* go on */
    OPTIONS_DONE, /* --help or --version was answered: exit with 0 */
    OPTIONS_BAD   /* a message was printed: exit with 2 */
} options_outcome;

/* Reads the command line over the file of options, if one is named, over the defaults. `o` is the
 * first member of the program's struct, which holds zeros, or defaults that are not in the table;
 * `argv` ends with NULL. Free it whatever the outcome. */
options_outcome options_read(options *o, const option_table *table, char **argv);
void options_free(options *o);

/* Whether the command line or the file set the option. */
bool options_given(const options *o, const char *name);

/* Options that do not fit together. */
typedef struct options_fault {
    bool found;
    const char *message; /* NULL ends a list */
} options_fault;

/* False after the message of the first fault found. */
bool options_fit(const options *o, const options_fault *faults);

/* Options that only some values of others give an effect. */
typedef struct option_use {
    const char *name; /* NULL ends a list */
    bool used;
    const char *message; /* of one that is given, but not used: what follows "--NAME " */
} option_use;

/* False after the message of the first option that was given in vain. */
bool options_used(const options *o, const option_use *uses);

/* ---- As texts, for checkpoints ------------------------------------------------------------ */

typedef struct options_item {
    const option_row *row;
    const char *name; /* "layers" */
    char key[40];     /* "option.layers" */
    char number[32];
    const char *text; /* the value as in a file of options; NULL: none */
} options_item;

/* The value of the i-th option, headings not counted, as a text. False past the end. */
bool options_value(const options *o, int i, options_item *item);

/* The i-th option that checkpoints save. False past the end. */
bool options_saved(const options *o, int i, options_item *item);

/* False where an option was given with another value than that of the text; *given gets its own. */
bool options_agree(const options *o, const char *name, const char *text, options_item *given);

/* Sets an option to the value of the text, unless it was given. False after a message. */
bool options_restore(options *o, const char *name, const char *text);

/* ---- Parts of options_read ---------------------------------------------------------------- */

/* Sets the option whose name is the first `length` bytes of `word`. `where` begins the message of
 * an error: "FILE:LINE: ", or "" for the command line. The last of several numbers, choices and
 * switches counts, and all PATHS do; a text or a path that comes twice is an error, since both may
 * be wanted. */
bool options_set(options *o, const char *where, const char *word, size_t length, const char *value);

/* --help (options_help.c). */
void options_print_help(const option_table *table, FILE *file);

#endif
