/* gradus_sample.c - gradus-sample: a trained model in, text out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/clock.h"
#include "console.h"
#include "programs/options.h"
#include "program.h"
#include "prompt.h"
#include "sample.h"
#include "text_file.h"
#include "text_stream.h"
#include "tokenizer_file.h"
#include "trained.h"

/* ---- Options ------------------------------------------------------------------------------ */

typedef struct sample_command {
    trained_options from;
    const char *prompt, *prompt_file, *stop;
    int64_t length, samples, top_k, seed;
    double temperature, top_p;
    bool ids, timing;
} sample_command;

#define AT(field) offsetof(sample_command, field)

static const option_row rows[OPTIONS_MOST] = {
#include "trained.def"
    {.help = "Text"},
    {OPTION_TEXT, "prompt", AT(prompt), .others = "start text",
     .help = "TEXT  the beginning of the text; default: a line break"},
    {OPTION_PATH, "prompt-file", AT(prompt_file),
     .help = "FILE  the prompt from a file; -: from stdin"},
    {OPTION_SWITCH, "ids", AT(ids),
     .help = "  read the prompt and print the text as token ids, without the model's tokenizer"},
    {OPTION_WHOLE, "length", AT(length), "500", 0, 1e12,
     .others = "max_new_tokens max_tokens tokens num_tokens", .help = "N  tokens to write"},
    {OPTION_TEXT, "stop", AT(stop), .others = "eos_token_id stop_token_ids",
     .help = "TEXT  end before this text; with --ids, before any of these ids: \"7 11\""},
    {OPTION_WHOLE, "samples", AT(samples), "1", 1, 1e6, .others = "num_samples",
     .help = "N  texts, with ---- between them"},
    {OPTION_SWITCH, "timing", AT(timing), .help = "  print the time to stderr"},
    {.help = "Sampling"},
    {OPTION_NUMBER, "temperature", AT(temperature), "0.8", 0, 100,
     .help = "X  divides the logits; 0: always the likeliest token"},
    {OPTION_WHOLE, "top-k", AT(top_k), "0", 0, 1e9,
     .help = "K  draw from the K likeliest tokens; 0: from all"},
    {OPTION_NUMBER, "top-p", AT(top_p), "1", 0, 1,
     .help = "P  draw from the fewest tokens that make up this probability; 0 or 1: from all"},
    {OPTION_WHOLE, "seed", AT(seed), "1", 0, 9e15,
     .help = "N  of the random numbers: the same seed gives the same text"},
#include "common.def"
};

static const option_table table = {
    .program = "gradus-sample",
    .usage = "Usage: gradus-sample DIR [OPTION...]\n\n"
             "Generates text with a model of gradus-train, or with another Llama model:\n"
             "the prompt, then each token as soon as it is sampled.\n",
    .operand = "model",
    .rows = rows,
    .tell = console_message,
    .read_file = program_read_config,
};

static bool check(const sample_command *o)
{
    const options_fault faults[] = {
        {!o->from.model, "--model DIR is missing"},
        {o->prompt && o->prompt_file, "--prompt and --prompt-file cannot be used together"},
        {o->stop && !o->stop[0], "--stop must not be empty"},
        {o->stop && strlen(o->stop) > TEXT_STREAM_STOP, "--stop is longer than 255 bytes"},
        {0},
    };
    static const char certain[] = "has no effect with --temperature 0, the likeliest token";
    static const char none[] = "has no effect with --length 0";
    const bool drawn = o->temperature > 0, any = o->length > 0;
    const option_use uses[] = {{"temperature", any, none}, {"stop", any, none},
                               {"top-k", any, none},       {"top-p", any, none},
                               {"seed", any, none},        {"top-k", drawn, certain},
                               {"top-p", drawn, certain},  {0}};
    return options_fit(&o->from.base, faults) && options_used(&o->from.base, uses);
}

typedef struct ids {
    int32_t *id;
    int64_t count;
} ids;

/* ---- Writing ------------------------------------------------------------------------------ */

/* The context of its training, else the model's own; never more than the text needs. */
static int64_t find_context(const trained *t, const sample_command *o, int64_t prompt)
{
    int64_t context = trained_context(t, o->from.context, INT64_MAX);
    int64_t needed = (prompt ? prompt : 1) + o->length;
    return context < needed ? context : needed;
}

/* Text i has its own random numbers, so that it does not depend on the texts before it. */
static gd_status write_text(trained *t, const sample_command *o, const sample_options *sample,
                            int64_t i, int64_t *count)
{
    gd_random_set(t->m.ctx, (gd_random_state){(uint64_t)o->seed, (uint64_t)i << 40});
    gd_status status = sample_text(&t->m, &t->tokenizer, sample, stdout, count);
    printf("\n");
    return status;
}

static gd_status write_all(trained *t, const sample_command *o, const char *prompt, int64_t length,
                           const ids *tokens, const ids *stops)
{
    const sample_options sample = {.prompt = tokens->id,
                                   .prompt_length = tokens->count,
                                   .length = o->length,
                                   .context = find_context(t, o, tokens->count),
                                   .draw = {o->temperature, o->top_k, o->top_p},
                                   .begin = prompt,
                                   .begin_bytes = (size_t)length,
                                   .stop = stops->id ? NULL : o->stop,
                                   .stop_ids = stops->id,
                                   .stop_id_count = stops->count};
    double begun = gd_os_now();
    int64_t all = 0;
    if (strcmp(t->folder, o->from.model) != 0) console_message("the model is %s", t->folder);
    for (int64_t i = 0; i < o->samples && !gd_error(t->m.ctx); i++) {
        int64_t count = 0;
        if (i > 0) printf("----\n");
        write_text(t, o, &sample, i, &count);
        all += count;
    }
    double seconds = gd_os_now() - begun;
    if (o->timing) {
        console_message("%lld tokens in %.3f s, %.1f tok/s", (long long)all, seconds,
                        seconds > 0 ? (double)all / seconds : 0);
    }
    return gd_error_status(t->m.ctx);
}

/* The prompt, NUL-terminated and allocated here; NULL after a message. */
static char *read_prompt(const sample_command *o, int64_t *length)
{
    const char *given = o->prompt ? o->prompt : "";
    if (o->prompt_file) {
        const char *path = strcmp(o->prompt_file, "-") ? o->prompt_file : "/dev/stdin";
        return (char *)text_file_read("--prompt-file", path, INT64_MAX, length);
    }
    *length = (int64_t)strlen(given);
    char *prompt = malloc((size_t)*length + 1);
    if (prompt)
        memcpy(prompt, given, (size_t)*length + 1);
    else
        console_message("out of memory: the prompt");
    return prompt;
}

/* The prompt as tokens, and where there are only ids, those to stop at. False after a message. */
static bool find_ids(const trained *t, const sample_command *o, const char *prompt, int64_t length,
                     ids *tokens, ids *stops)
{
    const bool none = t->tokenizer.kind == TOKENIZER_NONE;
    char room[TOKENIZER_MISSING];
    const char *missing = none && !o->ids ? tokenizer_missing(&t->files, room) : NULL;
    tokens->id = prompt_encode(&t->tokenizer, missing, prompt, length, &tokens->count);
    if (!tokens->id || !none || !o->stop) return tokens->id != NULL;
    stops->id = prompt_read_ids("--stop", missing, o->stop, (int64_t)strlen(o->stop),
                                t->tokenizer.vocab, &stops->count);
    if (stops->id && stops->count == 0) console_message("--stop has no token id");
    return stops->id && stops->count > 0;
}

static int run(gd_context *ctx, options *command)
{
    sample_command *o = (sample_command *)command;
    trained t;
    int64_t length = 0;
    ids tokens = {0}, stops = {0};
    char *prompt = NULL;
    bool refused = false;
    if (!trained_open(&t, ctx, &o->from, o->ids)) {
        prompt = read_prompt(o, &length);
        refused = !prompt || !find_ids(&t, o, prompt, length, &tokens, &stops);
        if (!refused && t.tokenizer.kind == TOKENIZER_NONE && tokens.count > 0)
            prompt[length++] = ' '; /* instead of its NUL: between ids */
        if (!refused) write_all(&t, o, prompt, length, &tokens, &stops);
    }
    if (gd_error(ctx)) console_message("%s", gd_error(ctx));
    free(tokens.id);
    free(stops.id);
    free(prompt);
    trained_close(&t);
    return console_arrived() && !refused && !gd_error(ctx) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    (void)argc; /* argv ends with NULL */
    sample_command command = {0};
    options *base = &command.from.base;
    argv = program_begin(argv);
    options_outcome outcome = program_read_options(base, &table, argv);
    if (outcome == OPTIONS_RUN && !check(&command)) outcome = OPTIONS_BAD;
    return program_main(base, outcome, run);
}
