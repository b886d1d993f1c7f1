/* llama.h - the model as others know it: Hugging Face's LlamaForCausalLM.
 *
 * Such a model is a folder: config.json says its shape, model.safetensors holds its weights (or
 * several files do, and model.safetensors.index.json says which weight is where). Matrices are
 * [out, in] and rotary positions turn pairs (i, i + D/2), as here, so that nothing but names and
 * files separates the two.
 */
#ifndef GRADUS_TRAIN_LLAMA_H
#define GRADUS_TRAIN_LLAMA_H

#include "model.h"

/* ---- The weights under their names -------------------------------------------------------- */

/* A weight of theirs is a parameter of ours, or some rows of one. */
typedef struct llama_weight {
    char name[80];
    gd_tensor *tensor;
    int64_t row, rows; /* rows 0: all of it */
} llama_weight;

/* All of them; NULL, and the context's error set, without memory. Free it with free(). */
llama_weight *llama_weights(const model *m, int64_t *count);

/* A window on the weight, which ends with the step. */
gd_tensor *llama_weight_view(const llama_weight *weight);

/* Where it lies in the block of all parameters: elements [*begin, *begin + *count). */
void llama_weight_place(const model *m, const llama_weight *weight, int64_t *begin, int64_t *count);

/* The same place of a block that an optimizer keeps for all parameters. */
gd_tensor *llama_state_view(const model *m, const llama_weight *weight, gd_tensor *state);

/* ---- The folder --------------------------------------------------------------------------- */

/* Writes config.json and model.safetensors into a folder; `tokens`, what they are, goes into its
 * metadata. */
gd_status llama_save(const model *m, const char *folder, const char *tokens);

/* Reads config.json. What this program cannot compute is an error that names it. */
gd_status llama_read_config(gd_context *ctx, const char *folder, model_config *config);

/* Compares the shape of every weight in the folder with the configuration, before anything of their
 * size is allocated: the files themselves are no larger than the disk has them. */
gd_status llama_check(gd_context *ctx, const char *folder, const model_config *config);

/* Fills the weights, converting from any real dtype. A weight that is missing, has another shape,
 * or is none of this model's is an error. */
gd_status llama_load(model *m, const char *folder);

/* The same into a block that an optimizer keeps for all parameters. */
gd_status llama_load_state(const model *m, const char *folder, gd_tensor *state);

/* ---- Which file a weight is in (llama_config.c) ------------------------------------------- */

typedef struct llama_index llama_index;

/* The index of a folder; NULL without an error where it has none. */
llama_index *llama_index_open(gd_context *ctx, const char *folder);
/* NULL where the index does not know the weight. */
const char *llama_index_file(const llama_index *index, const char *weight);
void llama_index_close(llama_index *index);

#endif
