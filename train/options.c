/* options.c - one table says everything of each option: its name, where its value goes, what values
 * it takes, and what it means. Parsing, --help, the configuration file and the log walk it. */
#define _GNU_SOURCE /* getopt_long */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind { TEXT, WHOLE, REAL_NUMBER, SWITCH, CHOICE } option_kind;

typedef struct option_row {
    const char *name;
    option_kind kind;
    size_t offset; /* in train_options */
    double low, high;
    const char *choices; /* CHOICE: "f32 f64"; the value is that of the same place in `values` */
    const int *values;
    const char *help; /* a row without a name is a heading */
} option_row;

#define AT(field) offsetof(train_options, field)

static const int dtypes[] = {GD_FLOAT32, GD_FLOAT64};
static const int devices[] = {GD_CPU, GD_CUDA, GD_DEVICE_AUTO};
static const int schedules[] = {GD_SCHEDULE_COSINE, GD_SCHEDULE_LINEAR, GD_SCHEDULE_CONSTANT,
                                GD_SCHEDULE_WSD};

static const option_row rows[] = {
    {.help = "Text"},
    {"data", TEXT, AT(data), 0, 0, NULL, NULL, "FILE  any text"},
    {"tokens", TEXT, AT(tokens), 0, 0, NULL, NULL,
     "PATTERN  token files of nanoGPT or llm.c instead; wants --val-data and --vocab"},
    {"val-data", TEXT, AT(val_data), 0, 0, NULL, NULL,
     "FILE  the like for validation; default: the last tenth of the text"},
    {"vocab", WHOLE, AT(vocab), 0, 1048576, NULL, NULL,
     "N  pieces to learn from the text, 256 or more; 0: its characters"},
    {"config", TEXT, AT(config), 0, 0, NULL, NULL,
     "FILE  lines of \"option = value\", which the command line overrides"},
    {.help = "Model"},
    {"layers", WHOLE, AT(layers), 1, 1000, NULL, NULL, "N  transformer layers"},
    {"dim", WHOLE, AT(dim), 2, 65536, NULL, NULL, "N  width of the residual stream"},
    {"heads", WHOLE, AT(heads), 1, 1024, NULL, NULL, "N  query heads; dim / heads is even"},
    {"kv-heads", WHOLE, AT(kv_heads), 0, 1024, NULL, NULL,
     "N  key and value heads; 0: as many as heads"},
    {"ffn", WHOLE, AT(ffn), 0, 1048576, NULL, NULL,
     "N  width of the feed-forward layers; 0: 8/3 dim, to a multiple of 32"},
    {"context", WHOLE, AT(context), 1, 1048576, NULL, NULL, "N  tokens seen at once"},
    {"dropout", REAL_NUMBER, AT(dropout), 0, 0.99, NULL, NULL,
     "P  probability, in both branches of a layer"},
    {"tied", SWITCH, AT(tied), 0, 0, NULL, NULL, "  use the embedding as output projection"},
    {.help = "Training"},
    {"batch", WHOLE, AT(batch), 1, 65536, NULL, NULL, "N  sequences in a step"},
    {"accumulate", WHOLE, AT(accumulate), 1, 65536, NULL, NULL, "N  batches in a step"},
    {"steps", WHOLE, AT(steps), 0, 1e12, NULL, NULL, "N"},
    {"max-seconds", REAL_NUMBER, AT(max_seconds), 0, 1e9, NULL, NULL,
     "S  stop after this time; 0: no limit"},
    {"schedule", CHOICE, AT(schedule), 0, 0, "cosine linear constant wsd", schedules,
     "cosine|linear|constant|wsd  of the learning rate; wsd falls in the last fifth"},
    {"lr", REAL_NUMBER, AT(lr), 0, 1e3, NULL, NULL, "X  highest learning rate"},
    {"min-lr", REAL_NUMBER, AT(min_lr), 0, 1e3, NULL, NULL,
     "X  where it ends; default: a tenth of lr"},
    {"warmup", WHOLE, AT(warmup), 0, 1e12, NULL, NULL, "N  steps of linear warm-up"},
    {"weight-decay", REAL_NUMBER, AT(weight_decay), 0, 100, NULL, NULL, "X  of matrices"},
    {"beta2", REAL_NUMBER, AT(beta2), 0, 0.999999, NULL, NULL, "X  of AdamW; beta1 is 0.9"},
    {"clip", REAL_NUMBER, AT(clip), 0, 1e9, NULL, NULL,
     "X  highest norm of the gradient; 0: no clipping"},
    {"skip-nonfinite", WHOLE, AT(skip_nonfinite), 0, 1e9, NULL, NULL,
     "N  leave out so many steps whose loss or gradient is not finite, then stop"},
    {"recompute", SWITCH, AT(recompute), 0, 0, NULL, NULL,
     "  less memory: compute each layer again in the backward"},
    {"overfit-one-batch", SWITCH, AT(overfit_one_batch), 0, 0, NULL, NULL,
     "  the same batch in every step: its loss must go to 0"},
    {"dry-run", SWITCH, AT(dry_run), 0, 0, NULL, NULL,
     "  print the configuration and the memory of a step, and stop"},
    {.help = "Report"},
    {"log", TEXT, AT(log), 0, 0, NULL, NULL, "FILE  the run as lines of JSON"},
    {"eval-every", WHOLE, AT(eval_every), 0, 1e12, NULL, NULL,
     "N  steps between validations; 0: at the end alone"},
    {"log-every", WHOLE, AT(log_every), 1, 1e12, NULL, NULL, "N  steps to a line"},
    {"sample-every", WHOLE, AT(sample_every), 0, 1e12, NULL, NULL,
     "N  steps between samples; 0: at the end alone"},
    {"sample-length", WHOLE, AT(sample_length), 0, 1e7, NULL, NULL,
     "N  tokens of text in a sample"},
    {"temperature", REAL_NUMBER, AT(temperature), 0, 100, NULL, NULL,
     "X  of sampling; 0: always the likeliest"},
    {.help = "Checkpoints"},
    {"out", TEXT, AT(out), 0, 0, NULL, NULL, "DIR  save checkpoints in this folder"},
    {"checkpoint-every", WHOLE, AT(checkpoint_every), 0, 1e12, NULL, NULL,
     "N  steps between checkpoints; 0: at the end alone"},
    {"keep", WHOLE, AT(keep), 0, 1e9, NULL, NULL, "K  how many of the newest to keep; 0: all"},
    {"keep-every", WHOLE, AT(keep_every), 0, 1e12, NULL, NULL,
     "N  and those of every N-th step; 0: none"},
    {"resume", TEXT, AT(resume), 0, 0, NULL, NULL,
     "DIR|auto  go on from a checkpoint; auto: the newest one in --out, if any"},
    {"init", TEXT, AT(init), 0, 0, NULL, NULL,
     "DIR  begin with the weights of a Llama model in Hugging Face's form"},
    {.help = "Machine"},
    {"dtype", CHOICE, AT(dtype), 0, 0, "f32 f64", dtypes, "f32|f64"},
    {"device", CHOICE, AT(device), 0, 0, "cpu cuda auto", devices, "cpu|cuda|auto"},
    {"threads", WHOLE, AT(threads), 0, 4096, NULL, NULL,
     "N  0: all; the result is the same for any number"},
    {"seed", WHOLE, AT(seed), 0, 9e15, NULL, NULL, "N"},
};

enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS <= (int)OPTIONS_MOST, "`given` has a bit for each");

static const train_options defaults = {.layers = 4,
                                       .dim = 128,
                                       .heads = 4,
                                       .context = 64,
                                       .batch = 12,
                                       .accumulate = 1,
                                       .schedule = GD_SCHEDULE_COSINE,
                                       .steps = 2000,
                                       .lr = 2e-3,
                                       .min_lr = -1,
                                       .warmup = 100,
                                       .weight_decay = 0.1,
                                       .beta2 = 0.99,
                                       .clip = 1,
                                       .eval_every = 500,
                                       .log_every = 100,
                                       .sample_length = 500,
                                       .checkpoint_every = 500,
                                       .keep = 2,
                                       .temperature = 0.8,
                                       .seed = 1};

/* ---- Values as text ----------------------------------------------------------------------- */

static const char *choice_name(const option_row *row, int value, int *length)
{
    const char *choice = row->choices;
    for (int i = 0; row->values[i] != value; i++) choice = strchr(choice, ' ') + 1;
    *length = (int)strcspn(choice, " ");
    return choice;
}

void json_print_string(const char *text, FILE *file)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 32 || *c == 127)
            fprintf(file, "\\u%04x", *c);
        else
            fputc(*c, file);
    }
    fputc('"', file);
}

static void print_json_value(const option_row *row, const char *at, FILE *file)
{
    int64_t whole;
    double number;
    const char *text;
    int value, length;
    switch (row->kind) {
    case TEXT:
        memcpy(&text, at, sizeof text);
        if (text)
            json_print_string(text, file);
        else
            fprintf(file, "null");
        return;
    case WHOLE:
        memcpy(&whole, at, sizeof whole);
        fprintf(file, "%lld", (long long)whole);
        return;
    case REAL_NUMBER:
        memcpy(&number, at, sizeof number);
        fprintf(file, "%.17g", number);
        return;
    case SWITCH:
        fprintf(file, "%s", *(const bool *)at ? "true" : "false");
        return;
    case CHOICE:
        memcpy(&value, at, sizeof value);
        text = choice_name(row, value, &length);
        fprintf(file, "\"%.*s\"", length, text);
        return;
    }
}

void options_print_json(const train_options *options, FILE *file)
{
    for (int i = 0, first = 1; i < ROWS; i++) {
        if (!rows[i].name) continue;
        fprintf(file, "%s\"%s\": ", first ? "" : ", ", rows[i].name);
        print_json_value(&rows[i], (const char *)options + rows[i].offset, file);
        first = 0;
    }
}

/* ---- Help --------------------------------------------------------------------------------- */

static void print_default(const option_row *row)
{
    const char *at = (const char *)&defaults + row->offset;
    int64_t whole;
    double number;
    if (row->kind == WHOLE) {
        memcpy(&whole, at, sizeof whole);
        printf(" (%lld)", (long long)whole);
    } else if (row->kind == REAL_NUMBER) {
        memcpy(&number, at, sizeof number);
        if (number >= 0) printf(" (%g)", number);
    } else if (row->kind == CHOICE) {
        printf(" (%.*s)", (int)strcspn(row->choices, " "), row->choices);
    }
}

static void print_help(void)
{
    printf("Usage: gradus-train --data FILE [OPTION...]\n\n"
           "Trains a Llama-style transformer on a text: RMSNorm, rotary\n"
           "positions, grouped-query attention, SwiGLU; AdamW with warm-up and cosine. Prints a\n"
           "sample of what it learned. Defaults are in parentheses.\n");
    for (int i = 0; i < ROWS; i++) {
        if (!rows[i].name) {
            printf("\n%s\n", rows[i].help);
            continue;
        }
        printf("  --%s %s", rows[i].name, rows[i].help);
        print_default(&rows[i]);
        printf("\n");
    }
    printf("\n  --help  --version\n");
}

/* ---- Values ------------------------------------------------------------------------------- */

/* `where` is "--" on the command line, and "FILE:LINE: " in a file. */
static bool complain(const char *where, const option_row *row, const char *text, const char *wanted)
{
    fprintf(stderr, "gradus-train: %s%s is \"%s\", wanted %s\n", where, row->name, text, wanted);
    return false;
}

/* The whole text must be the number, and the number within the row's range. */
static bool read_number(const char *where, const option_row *row, const char *text, char *at)
{
    char wanted[96], *end = NULL;
    errno = 0;
    double number = strtod(text, &end);
    bool good = end != text && *end == '\0' && errno == 0 && number >= row->low &&
                number <= row->high && strcspn(text, "xXnN ") == strlen(text);
    if (row->kind == WHOLE) {
        int64_t whole = good && number == floor(number) ? (int64_t)number : -1;
        good = good && number == floor(number);
        memcpy(at, &whole, sizeof whole);
    } else {
        memcpy(at, &number, sizeof number);
    }
    snprintf(wanted, sizeof wanted, "a %s from %g to %g",
             row->kind == WHOLE ? "whole number" : "number", row->low, row->high);
    return good || complain(where, row, text, wanted);
}

static bool read_choice(const char *where, const option_row *row, const char *text, char *at)
{
    size_t length = strlen(text);
    const char *choice = row->choices;
    for (int i = 0; *choice; i++) {
        size_t size = strcspn(choice, " ");
        if (size == length && !strncmp(choice, text, size)) {
            memcpy(at, &row->values[i], sizeof(int));
            return true;
        }
        choice += size + (choice[size] == ' ');
    }
    return complain(where, row, text, row->help);
}

static bool read_value(train_options *options, const char *where, const option_row *row,
                       const char *text)
{
    char *at = (char *)options + row->offset;
    switch (row->kind) {
    case TEXT:
        memcpy(at, &text, sizeof text);
        return true;
    case SWITCH: /* without a value on the command line */
        *(bool *)at = !text || !strcmp(text, "true");
        return !text || *(bool *)at || !strcmp(text, "false") ||
               complain(where, row, text, "true or false");
    case CHOICE:
        return read_choice(where, row, text, at);
    case WHOLE:
    case REAL_NUMBER:
        return read_number(where, row, text, at);
    }
    return false;
}

/* The same, for what somebody asked for. */
static bool give_value(train_options *options, const char *where, const option_row *row,
                       const char *text)
{
    options->given |= (uint64_t)1 << (row - rows);
    return read_value(options, where, row, text);
}

/* ---- The configuration file ----------------------------------------------------------------- */

/* All of a file of reasonable size, with a 0 behind it; NULL after a message. */
static char *read_config(const char *path)
{
    enum { MOST = 1 << 20 };
    FILE *file = fopen(path, "rb");
    char *text = file ? malloc(MOST + 1) : NULL;
    size_t size = text ? fread(text, 1, MOST, file) : 0;
    const char *fault = !file                   ? strerror(errno)
                        : !text                 ? "out of memory"
                        : ferror(file)          ? strerror(errno)
                        : size == MOST          ? "it has a megabyte or more"
                        : memchr(text, 0, size) ? "it holds a byte 0"
                                                : NULL;
    if (file) fclose(file);
    if (fault) {
        fprintf(stderr, "gradus-train: --config %s: %s\n", path, fault);
        free(text);
        return NULL;
    }
    text[size] = '\0';
    return text;
}

/* Cuts blanks off both ends. */
static char *trimmed(char *text)
{
    static const char blanks[] = " \t\r";
    text += strspn(text, blanks);
    size_t length = strlen(text);
    while (length && strchr(blanks, text[length - 1])) text[--length] = '\0';
    return text;
}

/* One line: nothing, a comment, or "option = value". */
static bool read_config_line(train_options *options, const char *where, char *line)
{
    char *name = trimmed(line), *equals = strchr(name, '=');
    if (!*name || *name == '#') return true;
    if (!equals) {
        fprintf(stderr, "gradus-train: %s\"%s\" is not of the form option = value\n", where, name);
        return false;
    }
    *equals = '\0';
    name = trimmed(name);
    for (int i = 0; i < ROWS; i++) {
        if (!rows[i].name || strcmp(rows[i].name, name) || rows[i].offset == AT(config)) continue;
        return give_value(options, where, &rows[i], trimmed(equals + 1));
    }
    fprintf(stderr, "gradus-train: %s\"%s\" is not an option; --help lists them\n", where, name);
    return false;
}

static bool read_config_file(train_options *options, const char *path)
{
    options->config_text = read_config(path);
    if (!options->config_text) return false;
    char *line = options->config_text;
    for (int number = 1; line; number++) {
        char where[256], *end = strchr(line, '\n');
        if (end) *end = '\0';
        snprintf(where, sizeof where, "%.200s:%d: ", path, number);
        if (!read_config_line(options, where, line)) return false;
        line = end ? end + 1 : NULL;
    }
    return true;
}

void options_free(train_options *options)
{
    free(options->config_text);
    options->config_text = NULL;
}

/* ---- In checkpoints ----------------------------------------------------------------------- */

/* Options of one run alone: a resumed one does not get them from the checkpoint. */
static bool passes(const option_row *row)
{
    static const char *const names[] = {"out",    "resume",  "init",        "config",
                                        "device", "threads", "max-seconds", "dry-run"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(row->name, names[i])) return true;
    }
    return false;
}

static void print_value(const train_options *options, const option_row *row, options_item *item)
{
    const char *at = (const char *)options + row->offset, *choice;
    int64_t whole;
    double number;
    int value, length;
    item->text = item->number;
    switch (row->kind) {
    case TEXT:
        memcpy(&item->text, at, sizeof item->text);
        return;
    case SWITCH:
        item->text = *(const bool *)at ? "true" : "false";
        return;
    case CHOICE:
        memcpy(&value, at, sizeof value);
        choice = choice_name(row, value, &length);
        snprintf(item->number, sizeof item->number, "%.*s", length, choice);
        return;
    case WHOLE:
        memcpy(&whole, at, sizeof whole);
        snprintf(item->number, sizeof item->number, "%lld", (long long)whole);
        return;
    case REAL_NUMBER:
        memcpy(&number, at, sizeof number);
        snprintf(item->number, sizeof item->number, "%.17g", number);
        return;
    }
}

bool options_saved(const train_options *options, int i, options_item *item)
{
    for (int row = 0; row < ROWS; row++) {
        if (!rows[row].name || passes(&rows[row]) || i-- > 0) continue;
        item->name = rows[row].name;
        snprintf(item->key, sizeof item->key, "option.%s", item->name);
        print_value(options, &rows[row], item);
        return true;
    }
    return false;
}

bool options_restore(train_options *options, const char *name, const char *text, bool must_agree)
{
    for (int i = 0; i < ROWS; i++) {
        if (!rows[i].name || strcmp(rows[i].name, name) != 0) continue;
        if (!(options->given >> i & 1)) {
            return read_value(options, "the checkpoint: ", &rows[i], text);
        }
        options_item given;
        print_value(options, &rows[i], &given);
        if (!must_agree || !strcmp(given.text, text)) return true;
        fprintf(stderr, "gradus-train: --%s is %s, but the checkpoint has %s\n", name, given.text,
                text);
        return false;
    }
    return true;
}

/* ---- What must fit together ---------------------------------------------------------------- */

bool options_check(train_options *o)
{
    if (o->kv_heads == 0) o->kv_heads = o->heads;
    if (o->ffn == 0) o->ffn = (o->dim * 8 / 3 + 31) / 32 * 32;
    if (o->min_lr < 0) o->min_lr = o->lr / 10;
    const char *fault = NULL;
    if (!o->data && !o->tokens)
        fault = "--data FILE is missing: which text shall it learn?";
    else if (o->data && o->tokens)
        fault = "--data and --tokens exclude each other";
    else if (o->tokens && !o->val_data)
        fault = "--tokens wants --val-data PATTERN, the tokens for validation";
    else if (o->tokens && o->vocab == 0)
        fault = "--tokens wants --vocab N, how many different tokens there are";
    else if (o->data && o->vocab != 0 && o->vocab < 256)
        fault = "--vocab is less than 256, the number of different bytes";
    else if (o->dim % o->heads)
        fault = "--dim is not a multiple of --heads";
    else if (o->dim / o->heads % 2)
        fault = "--dim / --heads is odd, but rotary positions turn pairs";
    else if (o->heads % o->kv_heads)
        fault = "--heads is not a multiple of --kv-heads";
    else if (o->min_lr > o->lr)
        fault = "--min-lr is more than --lr";
    if (fault) fprintf(stderr, "gradus-train: %s\n", fault);
    return !fault;
}

/* Where the run begins; what is there says more of the options. */
static bool check_begin(const train_options *o)
{
    const char *fault = NULL;
    if (o->resume && o->init) {
        fault = "--resume and --init: a run begins from one of them";
    } else if (o->resume && !strcmp(o->resume, "auto") && !o->out) {
        fault = "--resume auto looks in --out DIR, which is missing";
    }
    if (fault) fprintf(stderr, "gradus-train: %s\n", fault);
    return !fault;
}

options_outcome options_read(train_options *options, int argc, char **argv)
{
    enum { HELP = ROWS, VERSION };
    struct option longs[ROWS + 3] = {{0}};
    int count = 0, code;
    *options = defaults;
    for (int i = 0; i < ROWS; i++) {
        int argument = rows[i].kind == SWITCH ? no_argument : required_argument;
        if (rows[i].name) longs[count++] = (struct option){rows[i].name, argument, NULL, i};
    }
    longs[count++] = (struct option){"help", no_argument, NULL, HELP};
    longs[count++] = (struct option){"version", no_argument, NULL, VERSION};
    opterr = 0;
    /* Twice: once for the file that --config names, then for what the command line says over it. */
    for (int turn = 0; turn < 2; turn++) {
        optind = 1;
        while ((code = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
            if (code == HELP) {
                print_help();
                return OPTIONS_DONE;
            }
            if (code == VERSION) {
                printf("gradus-train %s\n", gd_version());
                return OPTIONS_DONE;
            }
            if (code == '?' || code == ':') {
                fprintf(stderr, "gradus-train: %s%s; --help lists the options\n", argv[optind - 1],
                        code == ':' ? " wants a value" : " is not an option, or not one like this");
                return OPTIONS_BAD;
            }
            const bool names_file = rows[code].offset == AT(config);
            if (turn == 0 && !names_file) continue;
            if (!give_value(options, "--", &rows[code], optarg)) return OPTIONS_BAD;
        }
        if (turn == 0 && options->config && !read_config_file(options, options->config))
            return OPTIONS_BAD;
    }
    if (optind < argc) {
        fprintf(stderr, "gradus-train: \"%s\" is not an option; --help lists them\n", argv[optind]);
        return OPTIONS_BAD;
    }
    return check_begin(options) ? OPTIONS_RUN : OPTIONS_BAD;
}
