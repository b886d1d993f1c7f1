/* llama.h - models in the form of Hugging Face's LlamaForCausalLM.
 *
 * Such a model is a folder: config.json has its shape, model.safetensors its weights (or several
 * files have them, and model.safetensors.index.json says which weight is where). Matrices are [out,
 * in] and rotary positions rotate pairs (i, i + D/2), as here, so that only the names differ.
 */
#ifndef GRADUS_TRAIN_LLAMA_H
#define GRADUS_TRAIN_LLAMA_H

#include "folder.h"
#include "model.h"
#include "saving.h"

/* ---- The weights under their names -------------------------------------------------------- */

/* Each weight in the file is one of our parameters, or some rows of one. */
typedef struct llama_weight {
    char name[80];
    gd_tensor *tensor;
    int64_t row, rows; /* rows 0: all of it */
} llama_weight;

/* All weights; NULL, with the context's error set, if there is no memory. Free it with free(). */
llama_weight *llama_weights(const model *m, int64_t *count);

/* A view of the weight, which ends with the step. */
gd_tensor *llama_weight_view(const llama_weight *weight);

/* ---- The folder --------------------------------------------------------------------------- */

/* Writes config.json and model.safetensors; `tokens`, which describes the tokenizer, goes into the
 * metadata. */
gd_status llama_save(const model *m, saving *to, const char *tokens);

/* A model in a folder in another form than this one, such as pytorch_model.bin; NULL: none. */
const char *llama_other_model(const open_folder *in);

/* The file `name` of a folder; NULL on error. */
gd_safetensors *llama_open_file(gd_context *ctx, open_folder *in, const char *name);

/* Reads config.json. A setting that this program does not support is an error that names it. */
gd_status llama_read_config(gd_context *ctx, open_folder *in, model_config *config);

/* Compares the shape of every weight in the folder with the configuration, before anything of the
 * configured size is allocated. */
gd_status llama_check(gd_context *ctx, open_folder *in, const model_config *config);

/* Fills the weights, converting from any real dtype. One that is missing, has
 * another shape, or is not part of this model is an error. With `masters`, an optimizer's state,
 * which gets the weights before they are rounded to 16 bits. */
gd_status llama_load(const model *m, open_folder *in, gd_tensor *masters);

/* Fills the parameters that the file of an optimizer has of a state, such as "master". Returns how
 * many these are. */
int64_t llama_load_state(const model *m, const gd_safetensors *file, const char *state);

/* ---- Which file a weight is in (llama_config.c) ------------------------------------------- */

typedef struct llama_index llama_index;

/* The index of a folder; NULL without an error if it has none. */
llama_index *llama_index_open(gd_context *ctx, open_folder *in);
/* NULL if the index does not list the weight. */
const char *llama_index_file(const llama_index *index, const char *weight);
void llama_index_close(llama_index *index);

#endif
