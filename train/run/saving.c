/* saving.c - see saving.h. */
#include "saving.h"
#include "platform/file.h"

#include <errno.h>
#include <string.h>

/* ---- One file ------------------------------------------------------------------------------- */

typedef struct output {
    int file;         /* -1: none */
    fingerprint *sum; /* NULL in a build without xxHash */
    char path[FOLDER_PATH];
} output;

static gd_status fail(const saving *to, const char *name)
{
    return gd_fail(to->ctx, GD_ERROR_IO, "cannot write %s in %s: %s", name, to->folder.path,
                   folder_reason());
}

static gd_status begin(saving *to, const char *name, output *out)
{
    *out = (output){.file = -1};
    if (gd_error(to->ctx)) return gd_error_status(to->ctx);
    if (FINGERPRINT_IS_XXH3) out->sum = fingerprint_begin();
    if (folder_join(out->path, to->folder.path, name) && (out->sum || !FINGERPRINT_IS_XXH3))
        out->file = folder_file(&to->folder, name, FOLDER_CREATE);
    return out->file < 0 ? fail(to, name) : GD_OK;
}

static bool write_bytes(void *user, const void *bytes, size_t count)
{
    const output *out = user;
    if (out->sum) fingerprint_add(out->sum, bytes, count);
    return gd_os_write(out->file, bytes, count);
}

static gd_status end(saving *to, const char *name, output *out)
{
    char text[CHECKSUM_TEXT] = "";
    if (out->file >= 0 && !folder_end_file(out->file)) fail(to, name);
    checksums_end(out->sum, text);
    if (text[0])
        to->used += (size_t)checksums_print(to->checksums + to->used,
                                            sizeof to->checksums - to->used, name, text);
    return gd_error_status(to->ctx);
}

gd_status saving_text(saving *to, const char *name, const char *text)
{
    output out;
    if (!begin(to, name, &out) && !write_bytes(&out, text, strlen(text))) fail(to, name);
    return end(to, name, &out);
}

gd_status saving_tensors(saving *to, const char *name, const gd_named_tensor *tensors,
                         int64_t tensor_count, const gd_named_text *texts, int64_t text_count)
{
    output out;
    const gd_output where = {out.path, write_bytes, &out};
    if (!begin(to, name, &out))
        gd_safetensors_write_to(to->ctx, &where, tensors, tensor_count, texts, text_count);
    return end(to, name, &out);
}

gd_status saving_states(saving *to, const char *name, const gd_optimizer *optimizer,
                        const gd_named_text *texts, int64_t text_count, bool first)
{
    output out = {.file = -1};
    const gd_output where = {out.path, write_bytes, &out};
    if (first) begin(to, name, &out);
    gd_optimizer_save_states(optimizer, &where, texts, text_count);
    return first ? end(to, name, &out) : gd_error_status(to->ctx);
}

/* ---- All of them ---------------------------------------------------------------------------- */

gd_status saving_end(saving *to)
{
    if (to->used > 0) saving_text(to, CHECKSUMS_LIST, to->checksums);
    if (!gd_error(to->ctx) && !folder_flush(&to->folder))
        gd_fail(to->ctx, GD_ERROR_IO, "cannot flush %s: %s", to->folder.path, strerror(errno));
    return gd_error_status(to->ctx);
}
