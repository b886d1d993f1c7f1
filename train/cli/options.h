/* options.h - what a program of ours can be told. One table a program says everything of each of
 * its options: its name, where its value goes, what values it takes, and what it means. The command
 * line, the file of options, --help, checkpoints and the log walk it.
 */
#ifndef GRADUS_TRAIN_OPTIONS_H
#define GRADUS_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- The table ---------------------------------------------------------------------------- */

typedef enum option_kind {
    OPTION_TEXT,   /* const char * */
    OPTION_PATH,   /* const char *, the name of a file or a folder */
    OPTION_WHOLE,  /* int64_t */
    OPTION_NUMBER, /* double */
    OPTION_SWITCH, /* bool; takes no value on the command line */
    OPTION_CHOICE  /* int, of an enum */
} option_kind;

typedef struct option_row {
    option_kind kind;
    const char *name;    /* "layers"; a row without a name is a heading */
    size_t offset;       /* of the value in the program's struct */
    double low, high;    /* WHOLE, NUMBER: what it may be */
    const char *help;    /* "N  transformer layers": what its value is called, and what it means */
    const char *choices; /* CHOICE: "f32 f64"; the value is that of the same place in `values` */
    const int *values;
    const char *others; /* what other programs call it, "n_layer depth": to guess what was meant */
    bool passes; /* concerns one run alone: a resumed one does not get it from the checkpoint */
} option_row;

/* Rows of a table, and how many of these are the same for all programs (options.c). */
enum { OPTIONS_MOST = 64, OPTIONS_COMMON = 6 };

typedef struct option_table {
    const char *program;      /* "gradus-train" */
    const char *usage;        /* how --help begins */
    const char *operand;      /* the option that a word without "--" gives; NULL: none */
    const option_row *shared; /* rows of several programs, which come first; NULL: none */
    int shared_count;
    const option_row *rows; /* its own */
    int count;
    const void *defaults; /* the program's struct, `size` bytes */
    size_t size;
} option_table;

/* The first member of every program's struct, with what all programs can be told. */
typedef struct options {
    const option_table *table;
    uint64_t given;    /* a bit for each row that the command line or the file named */
    char *config_text; /* what was read from `config`; texts among the values point into it */

    const char *config; /* a file of options */
    int device;         /* gd_device */
    bool tf32;
    int64_t threads; /* 0: all */
} options;

/* The rows of a table, one after the other: shared ones, its own, those of all programs. NULL past
 * the end. */
const option_row *option_at(const option_table *table, int i);

/* ---- Reading ------------------------------------------------------------------------------ */

typedef enum options_outcome {
    OPTIONS_RUN,  /* go on */
    OPTIONS_DONE, /* --help or --version was answered: exit with 0 */
    OPTIONS_BAD   /* a message was printed: exit with 2 */
} options_outcome;

/* Reads the command line over the configuration file, if one is named, over the defaults; `o` is
 * the first member of a struct of the table's size; `argv` ends with NULL. Free it whatever the
 * outcome. */
options_outcome options_read(options *o, const option_table *table, char **argv);
void options_free(options *o);

/* Whether the command line or the file named the option. */
bool options_given(const options *o, const char *name);

/* ---- As texts, for checkpoints ------------------------------------------------------------ */

typedef struct options_item {
    const char *name; /* "layers" */
    char key[40];     /* "option.layers" */
    char number[32];
    const char *text; /* the value, as in a file of options; NULL: it has none */
} options_item;

/* The i-th option that a run keeps when it is resumed: not where it begins and ends, nor the
 * machine. False past the end. */
bool options_saved(const options *o, int i, options_item *item);

/* Whether an option, if it was given, has the value that such a text says. *given gets it. */
bool options_agree(const options *o, const char *name, const char *text, options_item *given);

/* Sets an option to such a text, unless it was given. False after a message. The options keep a
 * pointer to the text. */
bool options_restore(options *o, const char *name, const char *text);

/* ---- As JSON ------------------------------------------------------------------------------ */

/* Writes all options as the members of a JSON object, without its braces. */
void options_print_json(const options *o, FILE *file);

#endif
