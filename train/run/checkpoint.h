/* checkpoint.h - saving a run, and resuming it.
 *
 *     OUT/step-00000500/config.json           a Llama folder (llama.h), which others can read
 *                       model.safetensors
 *                       tokenizer.json        (tokenizer_file.h)
 *                       state.safetensors     the optimizer's states, such as AdamW's m
 *                                             and v, and the masters of 16-bit weights, and the
 *                                             random state (gd_optimizer_save_states); in the
 *                                             metadata also the steps, the text's fingerprint and
 *                                             the options
 *                       checksums.xxh3        of all of them (checksums.h)
 *
 * A resumed run gives the same bits as one that was not interrupted: dropout comes from the random
 * state, batches and the learning rate from the step.
 *
 * A checkpoint appears whole or not at all: it is written to OUT/.saving, flushed to the disk, read
 * again and compared with its checksums, and renamed. Only then old ones go: they are renamed to
 * OUT/.removing before their files are removed. Files in a checkpoint that are not the run's stay,
 * in OUT/step-N.rest. Links in OUT are not followed (folder.h); OUT/.lock keeps a second run out.
 */
#ifndef GRADUS_TRAIN_CHECKPOINT_H
#define GRADUS_TRAIN_CHECKPOINT_H

#include "data.h"
#include "folder.h"
#include "model.h"
#include "train_options.h"

/* The best validation. */
typedef struct checkpoint_best {
    int64_t step; /* 0: there was none */
    double loss;
} checkpoint_best;

/* The losses of the steps since the last line of the report (report.h). */
typedef struct checkpoint_losses {
    int64_t steps; /* whose loss is finite */
    double sum;
} checkpoint_losses;

/* How far a run has come. */
typedef struct checkpoint_progress {
    int64_t step;    /* steps done */
    int64_t skipped; /* of these, skipped (--skip-nonfinite) */
    checkpoint_best best;
    checkpoint_losses losses;
    bool unvalidated; /* a signal left out the validation of `step`: the resumed run makes it */
} checkpoint_progress;

typedef struct checkpoint {
    char folder[FOLDER_PATH]; /* "" for a new run */
    open_folder files;        /* the same, opened */
    model_config config;      /* of the folder */
    gd_safetensors *state;    /* NULL with --init, which takes only weights */
    checkpoint_progress progress;
    tokenizer tokenizer; /* TOKENIZER_NONE if the folder has none; then one is made from the text */
    open_folder out;     /* --out: rank 0 saves there, wherever it is moved, and has it locked */
    int lock;            /* its lock; -1: none */
    bool moved;          /* it was said that the name of --out does not lead there any more */
} checkpoint;

/* ---- Which one (checkpoint_find.c) --------------------------------------------------------- */

/* The file beside the model that --resume needs. */
#define CHECKPOINT_STATE "state.safetensors"

/* "step-N" */
gd_text checkpoint_name_of(int64_t step);

/* The steps of all that are in a folder, in ascending order; -1 on error. Free *steps. */
int64_t checkpoint_list(const open_folder *out, int64_t **steps);

/* Whether a checkpoint is whole: its files can be read, belong together and are as they were
 * written. `resume`: one without a state is not. *complete as for checksums_verify. */
gd_status checkpoint_check(gd_context *ctx, open_folder *files, bool resume, bool *complete);

/* Opens the newest whole checkpoint in --out; none if there is no step-N at all. Prints a message
 * for each one that is skipped, because its contents are wrong; if all are, that is an error. One
 * that cannot be read (for lack of a permission, of descriptors or memory, or because the disk
 * fails) is not skipped, but an error: a run that went on from an older one would overwrite it. The
 * files stay readable if they are removed meanwhile. */
gd_status checkpoint_newest(gd_context *ctx, const char *out, open_folder *files);

/* Opens the folder of the model that `path`, given as `option`, names: itself if it has a
 * config.json, else the newest whole checkpoint in it. `resume`: one with a state. */
gd_status checkpoint_find(gd_context *ctx, const char *option, const char *path, bool resume,
                          open_folder *files);

/* ---- Beginning (checkpoint.c) --------------------------------------------------------------- */

/* Makes and locks the folder --out. Opens the checkpoint of --resume or --init, and sets the
 * options that were not given: those of the model, and with --resume all of the run. `--resume
 * auto` takes the newest complete checkpoint in --out, or begins a new run if there is none. Close
 * it in any case. */
gd_status checkpoint_open(checkpoint *from, gd_context *ctx, train_options *options);

/* An error if the folder was moved and another run saves under its name by now: whoever looks for
 * this run by its name, also to resume it, would find the other. */
gd_status checkpoint_check_name(const checkpoint *run, gd_context *ctx,
                                const train_options *options);

void checkpoint_close(checkpoint *from);

/* ---- Loading (checkpoint.c) ------------------------------------------------------------------ */

/* Fills the weights. The text must be encoded with the vocabulary they were trained with; with
 * --resume it must be the same text. */
gd_status checkpoint_load_model(checkpoint *from, model *m, const dataset *data);

/* Fills the optimizer's state and sets the random state. A run in 16 bits may be resumed in another
 * dtype, and vice versa: masters then become weights, or weights masters, unrounded. With --init
 * the masters begin as the weights. */
gd_status checkpoint_load_state(checkpoint *from, const model *m, gd_optimizer *optimizer);

/* Closes its files once all is loaded: when the run removes them the disk has their space again,
 * and Windows lets them go. */
void checkpoint_close_files(checkpoint *from);

/* ---- Saving (checkpoint_save.c) ------------------------------------------------------------- */

/* Saves as OUT/step-N, and removes what --keep does not keep. With --keep-best the checkpoint of
 * the best validation stays too, and the link OUT/best points at it. A folder that was moved is
 * saved to where it is, after a message; one that was removed is made anew and locked. */
gd_status checkpoint_save(checkpoint *run, const model *m, const dataset *data,
                          const train_options *options, gd_optimizer *optimizer,
                          const checkpoint_progress *progress);

/* Removes what --keep does not keep and a run that was killed has left. Only of --out that has the
 * checkpoint of this step, from which the run is resumed. */
void checkpoint_tidy(const checkpoint *run, const train_options *options,
                     const checkpoint_progress *progress);

#endif
