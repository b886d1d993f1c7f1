/* trained.h - a trained model, loaded for use: a Llama folder (llama.h) with its tokenizer and, if
 * it is a checkpoint of gradus-train, the options of its run. */
#ifndef GRADUS_TRAIN_TRAINED_H
#define GRADUS_TRAIN_TRAINED_H

#include "folder.h"
#include "model.h"
#include "programs/options.h"
#include "tokenizer.h"

/* ---- Options ------------------------------------------------------------------------------ */

/* The first member of a program's struct; trained.def has the rows. */
typedef struct trained_options {
    options base;
    const char *model;
    int64_t context; /* 0: see trained_context */
    gd_dtype dtype;
    bool average; /* the moving average of the weights, in their place */
} trained_options;

/* ---- The model ---------------------------------------------------------------------------- */

typedef struct trained {
    char folder[FOLDER_PATH];
    open_folder files; /* the same, opened */
    model m;
    tokenizer tokenizer;   /* TOKENIZER_NONE if the folder has none, or none is needed */
    gd_safetensors *state; /* of a checkpoint; NULL if there is none */
} trained;

/* Opens the model, or the newest complete checkpoint of the run, that the options name; restores
 * --dtype from the run. `ids`: without its tokenizer. On error the context has the message; close
 * it in any case. */
gd_status trained_open(trained *t, gd_context *ctx, trained_options *options, bool ids);
void trained_close(trained *t);

/* The value of an option of its run, as a text; NULL if unknown. */
const char *trained_option(const trained *t, const char *name);

/* The same for a whole number. */
int64_t trained_number(const trained *t, const char *name, int64_t fallback);

/* The context: `wanted`, else that of its training, else that of the model, up to `most`. Prints a
 * message if it is longer than the model was made for. */
int64_t trained_context(const trained *t, int64_t wanted, int64_t most);

#endif
