/* checkpoint_parts.h - what opening and loading (checkpoint.c) and saving (checkpoint_save.c)
 * share. */
#ifndef GRADUS_TRAIN_CHECKPOINT_PARTS_H
#define GRADUS_TRAIN_CHECKPOINT_PARTS_H

#include "checkpoint.h"
#include "fingerprint.h"

/* Keys of the state's metadata: there, or not; and the fingerprint of the training text, which
 * builds without xxHash take in another way. */
#define CHECKPOINT_UNVALIDATED "unvalidated"
#define CHECKPOINT_TEXT "text_" FINGERPRINT_NAME

/* The other keys of the progress: fields of checkpoint_progress, whole numbers (int64_t) or
 * doubles. */
enum { CHECKPOINT_FIELDS = 6 };
typedef struct checkpoint_field {
    const char *key;
    size_t at;
    bool real;
} checkpoint_field;
extern const checkpoint_field checkpoint_fields[CHECKPOINT_FIELDS];

/* Folders in --out: of a checkpoint, before its step in digits; of one until it is whole, and of an
 * old one that is being removed. */
#define CHECKPOINT_PREFIX "step-"
#define CHECKPOINT_SAVING ".saving"
#define CHECKPOINT_REMOVING ".removing"

/* Removes one of them, as folder_clear. A message says what it held that is not the run's own. */
bool checkpoint_clear(const open_folder *out, const char *name);

/* Tells tokenizers apart: their kind, and a hash of the bytes or of the pieces. */
gd_text checkpoint_tokenizer_text(const tokenizer *t);

/* Makes, opens and locks --out anew after it was removed. False with errno or an error. */
bool checkpoint_open_again(checkpoint *run, gd_context *ctx, const train_options *o);

/* "cannot WHAT PATH: the reason" */
gd_status checkpoint_fail(gd_context *ctx, const char *what, const char *path);

#endif
