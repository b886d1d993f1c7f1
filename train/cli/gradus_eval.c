/* gradus_eval.c - gradus-eval: how well a trained model predicts a text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "platform/clock.h"
#include "console.h"
#include "data.h"
#include "files/json_text.h"
#include "programs/options.h"
#include "programs/terminal.h"
#include "program.h"
#include "tokenizer_file.h"
#include "trained.h"
#include "validate.h"

/* ---- Options ------------------------------------------------------------------------------ */

typedef struct eval_command {
    trained_options from;
    const char *data, *val_data, *tokens;
    int token_bytes;
    int64_t batch;
    bool whole, json;
} eval_command;

#define AT(field) offsetof(eval_command, field)

static const option_row rows[OPTIONS_MOST] = {
#include "trained.def"
    {.help = "Text (default: what the run validated on)"},
    {OPTION_PATHS, "data", AT(data), .others = "text dataset",
     .help = "FILE...  a text, as of gradus-train; its last tenth, which gradus-train does not "
             "train on"},
    {OPTION_SWITCH, "whole", AT(whole), .help = "  all of --data FILE"},
    {OPTION_PATHS, "val-data", AT(val_data), .help = "FILE...  a text for validation: all of it"},
    {OPTION_PATHS, "tokens", AT(tokens),
     .help = "PATTERN...  token files of nanoGPT, llm.c or NumPy (.npy): all of them"},
    {OPTION_CHOICE, "token-bytes", AT(token_bytes), "auto", .others = "token_dtype",
     .help = TOKENS_WIDTHS "  of each id in token files without a header, as nanoGPT's; auto: as "
                           "the run's --tokens, else 2, but not where they seem to have more"},
    {OPTION_WHOLE, "batch", AT(batch), "0", 0, 65536, .others = "batch_size",
     .help = "N  windows at once; 0: as in training, else 8"},
    {.help = "Report"},
    {OPTION_SWITCH, "json", AT(json), .help = "  print a JSON object instead"},
#include "common.def"
};

static const option_table table = {
    .program = "gradus-eval",
    .usage = "Usage: gradus-eval DIR [OPTION...]\n\n"
             "Measures how well a model of gradus-train, or another Llama model, predicts\n"
             "each token of a text from those before it: the mean of -log(probability).\n",
    .operand = "model",
    .rows = rows,
    .tell = console_message,
    .read_file = program_read_config,
};

/* A text has no ids whose width could be said. */
static bool check_width(const eval_command *o, bool tokens)
{
    const option_use uses[] = {{"token-bytes", tokens, "is of --tokens, not of a text"}, {0}};
    return options_used(&o->from.base, uses);
}

static bool check(const eval_command *o)
{
    const options_fault faults[] = {
        {!o->from.model, "--model DIR is missing"},
        {(o->data != NULL) + (o->val_data != NULL) + (o->tokens != NULL) > 1,
         "--data, --val-data and --tokens cannot be used together"},
        {o->whole && !o->data, "--whole needs --data FILE"},
        {0},
    };
    return options_fit(&o->from.base, faults) && check_width(o, !o->data && !o->val_data);
}

/* ---- The text ----------------------------------------------------------------------------- */

/* The text of the command line, else that of the run. */
static data_options find_text(const trained *t, eval_command *o)
{
    data_options found = {.text = o->data, .tokens = o->tokens, .part = DATA_WHOLE};
    if (o->val_data) found.text = o->val_data;
    if (o->data && !o->whole) found.part = DATA_TENTH;
    found.option = o->tokens ? "--tokens" : o->val_data ? "--val-data" : "--data";
    if (!found.text && !found.tokens) {
        const char *validation = trained_option(t, "val-data");
        found.option = validation ? "the run's --val-data" : "the run's --data";
        if (trained_option(t, "tokens")) {
            const char *bytes = trained_option(t, "token-bytes");
            if (bytes) options_restore(&o->from.base, "token-bytes", bytes);
            found.tokens = validation;
        } else {
            found.text = validation ? validation : trained_option(t, "data");
            found.part = validation ? DATA_WHOLE : DATA_TENTH;
        }
    }
    found.vocab = t->tokenizer.vocab;
    found.token_bytes = tokens_width(o->token_bytes);
    found.context = o->from.context;
    return found;
}

static bool load(dataset *data, trained *t, eval_command *o)
{
    data_options wanted = find_text(t, o);
    if (!wanted.text && !wanted.tokens) {
        console_message("--data FILE is missing: a text to evaluate on");
        return false;
    }
    if (wanted.text && t->tokenizer.kind == TOKENIZER_NONE) {
        char missing[TOKENIZER_MISSING];
        console_message("%s " TOKENIZER_WANTED, tokenizer_missing(&t->files, missing));
        return false;
    }
    if (!check_width(o, wanted.tokens)) return false;
    tokenizer own = t->tokenizer;
    if (wanted.text) {
        wanted.tokenizer = &own; /* now the data's */
        t->tokenizer = (tokenizer){0};
    }
    bool loaded = data_load(data, &wanted);
    data->options.tokenizer = NULL; /* `own` ends here */
    return loaded;
}

/* ---- The report --------------------------------------------------------------------------- */

typedef struct evaluation {
    double loss, seconds;
    int64_t windows, tokens, bytes; /* bytes 0: unknown */
} evaluation;

static double bits_per_byte(const evaluation *e)
{
    return e->bytes ? e->loss * (double)e->tokens / (double)e->bytes / log(2) : NAN;
}

static double rate(const evaluation *e)
{
    return e->seconds > 0 ? (double)e->tokens / e->seconds : 0;
}

/* More of it is in ASCII on a terminal. */
static void print_json(const trained *t, const dataset *data, const eval_command *o,
                       const evaluation *e)
{
    bool (*const escaped)(uint32_t) = terminal_is(stdout) ? terminal_obeys : NULL;
    gd_json_text line = {0};
    const data_options *d = &data->options;
    const struct {
        const char *name, *value;
    } texts[] = {{"version", gd_version()},
                 {"device", gd_context_device_name(t->m.ctx)},
                 {"dtype", gd_dtype_name(gd_tensor_dtype(t->m.embedding))},
                 {"model", t->folder},
                 {"text", d->text ? d->text : d->tokens},
                 {"part", d->part == DATA_WHOLE ? "whole" : "last tenth"}};
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"context", (double)o->from.context},
                   {"batch", (double)o->batch},
                   {"windows", (double)e->windows},
                   {"tokens", (double)e->tokens},
                   {"bytes", e->bytes ? (double)e->bytes : NAN},
                   {"loss", e->loss},
                   {"perplexity", exp(e->loss)},
                   {"bits_per_byte", bits_per_byte(e)},
                   {"seconds", e->seconds},
                   {"tokens_per_second", rate(e)}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        gd_json_print(&line, "%s\"%s\": ", i ? ", " : "{", texts[i].name);
        gd_json_print_string(&line, texts[i].value, escaped);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        gd_json_print(&line, ", \"%s\": %s", numbers[i].name,
                      gd_json_number_of(numbers[i].value).text);
    if (line.lacking)
        gd_fail(t->m.ctx, GD_ERROR_MEMORY, "out of memory: the line of --json");
    else
        printf("%s}\n", line.bytes);
    free(line.bytes);
}

/* Before the evaluation, which may take long. */
static void print_beginning(const trained *t, const dataset *data, const eval_command *o,
                            const evaluation *e)
{
    const data_options *d = &data->options;
    console_line("gradus-eval %s on %s, %s", gd_version(), gd_context_device_name(t->m.ctx),
                 gd_dtype_name(gd_tensor_dtype(t->m.embedding)));
    console_line("model  %s: %lld parameters", t->folder,
                 (long long)gd_params_elements(t->m.params));
    console_line("text   %s, %s: %lld token%s in %lld window%s of %lld, %lld at once",
                 d->text ? d->text : d->tokens, d->part == DATA_WHOLE ? "whole" : "last tenth",
                 (long long)e->tokens, console_s(e->tokens), (long long)e->windows,
                 console_s(e->windows), (long long)o->from.context, (long long)o->batch);
}

static void print_end(const evaluation *e)
{
    printf("loss %.4f | perplexity %.3f", e->loss, exp(e->loss));
    if (e->bytes) printf(" | %.4f bits per byte", bits_per_byte(e));
    printf(" | %.2f s | %.0f tok/s\n", e->seconds, rate(e));
}

/* ---- Running it --------------------------------------------------------------------------- */

static void evaluate(trained *t, const dataset *data, const eval_command *o)
{
    evaluation e = {.windows = data->validation_windows,
                    .tokens = data->validation_windows * o->from.context,
                    .bytes = data_validation_bytes(data)};
    if (!o->json) print_beginning(t, data, o, &e);
    const double begun = gd_os_now();
    e.loss = validate(&t->m, data, NULL, o->batch, o->from.context, 0, NULL);
    e.seconds = gd_os_now() - begun;
    if (gd_error(t->m.ctx)) return;
    if (o->json)
        print_json(t, data, o, &e);
    else
        print_end(&e);
    if (isfinite(e.loss)) return;
    gd_fail(t->m.ctx, GD_ERROR_STATE,
            "the loss is not finite (%g): either the weights are not, or they overflow the dtype",
            console_number(e.loss));
}

static int run(gd_context *ctx, options *command)
{
    eval_command *o = (eval_command *)command;
    trained t;
    dataset data;
    bool loaded = false;
    if (!trained_open(&t, ctx, &o->from, o->tokens != NULL)) {
        o->from.context = trained_context(&t, o->from.context, 2048);
        if (o->batch == 0) o->batch = trained_number(&t, "batch", 8);
        loaded = load(&data, &t, o);
    }
    if (loaded) {
        evaluate(&t, &data, o);
        data_free(&data);
    }
    if (gd_error(ctx)) console_message("%s", gd_error(ctx));
    trained_close(&t);
    return console_arrived() && loaded && !gd_error(ctx) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    (void)argc; /* argv ends with NULL */
    eval_command command = {0};
    options *base = &command.from.base;
    argv = program_begin(argv);
    options_outcome outcome = program_read_options(base, &table, argv);
    if (outcome == OPTIONS_RUN && !check(&command)) outcome = OPTIONS_BAD;
    return program_main(base, outcome, run);
}
