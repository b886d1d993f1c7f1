/* checkpoint.h - what a run leaves on the disk, and what it begins from.
 *
 *     OUT/step-00000500/config.json           a Llama folder (llama.h), which others can read
 *                       model.safetensors
 *                       tokenizer.json        (tokenizer_file.h)
 *                       state.safetensors     AdamW's m and v, and the masters of 16-bit weights,
 *                                             under their names; in the metadata the steps, the
 *                                             random state, the text's fingerprint, the loss scale
 *                                             and the options
 *                       checksums.xxh3        of all of them (checksums.h)
 *
 * The state's metadata has the checksum of the model too, so that the model of one step is not taken
 * with the state of another.
 *
 * A run that goes on from there does bit for bit what it would have done without the break: dropout
 * comes from the random state, batches and the learning rate from the step.
 *
 * A checkpoint appears whole or not at all: it is written to OUT/.saving, flushed to the disk, and
 * renamed. Old ones are renamed to OUT/.removing before they are taken apart.
 */
#ifndef GRADUS_TRAIN_CHECKPOINT_H
#define GRADUS_TRAIN_CHECKPOINT_H

#include "data.h"
#include "folder.h"
#include "model.h"
#include "train_options.h"

/* The best validation. */
typedef struct checkpoint_best {
    int64_t step; /* after so many; 0: there was none */
    double loss;
} checkpoint_best;

/* How far a run has come. */
typedef struct checkpoint_progress {
    int64_t step;        /* how many were done */
    int64_t skipped;     /* of these, left out (--skip-nonfinite) */
    gd_loss_scale scale; /* adapts: of a run in float16 */
    checkpoint_best best;
} checkpoint_progress;

typedef struct checkpoint {
    char folder[FOLDER_PATH]; /* "" where the run begins with nothing */
    model_config config;      /* of the folder */
    gd_safetensors *state;    /* NULL where only weights are taken (--init) */
    checkpoint_progress progress;
    tokenizer tokenizer; /* TOKENIZER_NONE where the folder has none; then the text makes one */
    int lock;            /* a descriptor that keeps other runs out of --out; -1 */
} checkpoint;

/* ---- Which one (checkpoint_find.c) --------------------------------------------------------- */

/* What lies beside the model, and a run needs to go on. */
#define CHECKPOINT_STATE "state.safetensors"

/* OUT/step-N; false, with ENAMETOOLONG, where it does not fit. */
bool checkpoint_path(char path[FOLDER_PATH], const char *out, int64_t step);

/* The steps of all that are in a folder, in ascending order; -1 on error. Free *steps. */
int64_t checkpoint_list(const char *out, int64_t **steps);

/* The newest in --out that is whole; "" where there is no folder step-N at all. Those passed over
 * are told; where none is left, that is an error: nothing is trained again that may only need a
 * permission or a disk. */
gd_status checkpoint_newest(gd_context *ctx, const char *out, char folder[FOLDER_PATH]);

/* The folder of a model that is meant by `path`, given as `option`: itself where it has a
 * config.json, else the newest whole checkpoint in it. `resume`: one that a run can go on from. */
gd_status checkpoint_find(gd_context *ctx, const char *option, const char *path, bool resume,
                          char folder[FOLDER_PATH]);

/* ---- Beginning ------------------------------------------------------------------------------ */

/* Makes the folder --out, and locks it for this run alone. Opens what --resume or --init names, and fills the options that were not
 * given: those of the model, and with --resume all that the run had. `--resume auto` takes the
 * newest checkpoint of --out that is whole, or begins anew where there has been none. Close it
 * whatever comes. */
gd_status checkpoint_open(checkpoint *from, gd_context *ctx, train_options *options);

/* What the options say of texts is the checkpoint's memory: close it last. */
void checkpoint_close(checkpoint *from);

/* Fills the weights. The text must be cut into the tokens that they were trained on; to be resumed,
 * it must be the same text. */
gd_status checkpoint_load_model(const checkpoint *from, model *m, const dataset *data);

/* Fills the optimizer's state and sets the random state. A run in 16 bits may go on in another
 * dtype, and the other way round: its weights are then what its masters are, and its masters what
 * its weights are, unrounded. Where only weights are taken, masters begin with these. */
gd_status checkpoint_load_state(const checkpoint *from, const model *m, gd_optimizer *adamw);

/* ---- The best validation (checkpoint_best.c) ------------------------------------------------ */

enum { CHECKPOINT_NUMBER = 32 }; /* bytes of a number in the metadata, as text */

/* A loss as the metadata has it, and the best as it stands there; a state without it had none. */
void checkpoint_print_best(char text[CHECKPOINT_NUMBER], double loss);
checkpoint_best checkpoint_read_best(const checkpoint *from);

/* Has the link OUT/best lead to OUT/step-N, if that is there. */
gd_status checkpoint_link_best(gd_context *ctx, const char *out, int64_t step);

/* ---- Saving --------------------------------------------------------------------------------- */

/* Saves as OUT/step-N, and removes what --keep does not keep. With --keep-best the checkpoint of the
 * best validation stays, too, and the link OUT/best leads to it. */
gd_status checkpoint_save(const model *m, const dataset *data, const train_options *options,
                          gd_optimizer *adamw, const checkpoint_progress *progress);

#endif
