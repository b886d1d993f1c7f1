/* state_file.h - a checkpoint's file, written anew with something else in it. */
#ifndef GRADUS_TEST_STATE_FILE_H
#define GRADUS_TEST_STATE_FILE_H

#include <check.h>
#include <string.h>

#include "gradus/gradus.h"

/* The metadata `name` becomes `text` (NULL: goes); `change`, which may be NULL, may free a tensor and return
 * another. */
static inline void state_write(const char *path, const char *name, const char *text,
                               gd_tensor *(*change)(const char *tensor, gd_tensor *t))
{
    enum { MOST = 160 };
    gd_named_tensor tensors[MOST];
    gd_named_text texts[MOST];
    int64_t count = 0, text_count = 0;
    const gd_named_text *old;
    gd_context *ctx = gd_context_create(NULL);
    gd_safetensors *state = gd_safetensors_open(ctx, path);
    for (; count < gd_safetensors_count(state); count++) {
        const char *tensor = gd_safetensors_at(state, count)->name;
        gd_tensor *t = gd_safetensors_tensor(state, tensor);
        tensors[count] = (gd_named_tensor){tensor, change ? change(tensor, t) : t};
    }
    for (int64_t i = 0; (old = gd_safetensors_metadata_at(state, i)); i++)
        if (strcmp(old->name, name) != 0) texts[text_count++] = *old;
    if (text) texts[text_count++] = (gd_named_text){name, text};
    ck_assert_int_eq(gd_safetensors_write(ctx, path, tensors, count, texts, text_count), GD_OK);
    for (int64_t i = 0; i < count; i++) gd_tensor_free((gd_tensor *)(uintptr_t)tensors[i].tensor);
    gd_safetensors_close(state);
    gd_context_free(ctx);
}

#endif
