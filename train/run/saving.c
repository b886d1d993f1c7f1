/* saving.c - see saving.h. */
#include "saving.h"
#include "platform/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

gd_status saving_open(saving *to, gd_context *ctx, const char *path)
{
    *to = (saving){.ctx = ctx};
    if (gd_error(ctx) || folder_open(&to->folder, path, false)) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO, "cannot open the folder %s: %s", path, strerror(errno));
}

void saving_close(saving *to)
{
    folder_close(&to->folder);
}

/* ---- One file ------------------------------------------------------------------------------- */

typedef struct output {
    int file;
    fingerprint *sum; /* NULL in a build without xxHash */
} output;

static gd_status fail(const saving *to, const char *name)
{
    return gd_fail(to->ctx, GD_ERROR_IO, "cannot write %s in %s: %s", name, to->folder.path,
                   folder_reason());
}

static gd_status begin(saving *to, const char *name, output *out)
{
    *out = (output){-1, NULL};
    if (gd_error(to->ctx)) return gd_error_status(to->ctx);
    errno = ENFILE;
    if (to->count == SAVING_FILES) return fail(to, name);
    if (FINGERPRINT_IS_XXH3) out->sum = fingerprint_begin();
    if (out->sum || !FINGERPRINT_IS_XXH3) out->file = folder_file(&to->folder, name, FOLDER_CREATE);
    return out->file < 0 ? fail(to, name) : GD_OK;
}

static bool write_bytes(void *user, const void *bytes, size_t count)
{
    const output *out = user;
    if (out->sum) fingerprint_add(out->sum, bytes, count);
    return gd_os_write(out->file, bytes, count);
}

static bool skip_bytes(void *user, size_t count)
{
    const output *out = user;
    return gd_os_skip(out->file, count);
}

static gd_status end(saving *to, const char *name, output *out, bool reserved)
{
    char text[CHECKSUM_TEXT] = "";
    if (out->file >= 0 && !folder_end_file(out->file)) fail(to, name);
    checksums_end(out->sum, text);
    if (gd_error(to->ctx)) return gd_error_status(to->ctx);
    memcpy(to->file[to->count].checksum, text, sizeof text);
    to->file[to->count].name = name;
    to->file[to->count++].reserved = reserved;
    return GD_OK;
}

gd_status saving_text(saving *to, const char *name, const char *text)
{
    output out;
    if (!begin(to, name, &out) && !write_bytes(&out, text, strlen(text))) fail(to, name);
    return end(to, name, &out, false);
}

gd_status saving_tensors(saving *to, const char *name, const gd_named_tensor *tensors,
                         int64_t tensor_count, const gd_named_text *texts, int64_t text_count,
                         bool reserve)
{
    output out;
    char path[FOLDER_PATH];
    const bool named = folder_join(path, to->folder.path, name);
    const gd_output where = {named ? path : name, write_bytes, reserve ? skip_bytes : NULL, &out};
    if (!begin(to, name, &out))
        gd_safetensors_write_to(to->ctx, &where, tensors, tensor_count, texts, text_count);
    return end(to, name, &out, reserve);
}

/* ---- All of them ---------------------------------------------------------------------------- */

const char *saving_checksum(const saving *to, const char *name)
{
    for (int i = 0; i < to->count; i++) {
        if (!strcmp(to->file[i].name, name) && to->file[i].checksum[0]) return to->file[i].checksum;
    }
    return NULL;
}

gd_status saving_end(saving *to)
{
    char list[1024];
    size_t used = 0;
    for (int i = 0; i < to->count && !gd_error(to->ctx); i++) {
        char *sum = to->file[i].checksum;
        const char *name = to->file[i].name;
        if (to->file[i].reserved && !checksums_of(sum, &to->folder, name))
            gd_fail(to->ctx, GD_ERROR_IO, "cannot read %s in %s: %s", name, to->folder.path,
                    folder_reason());
        if (sum[0]) used += (size_t)checksums_print(list + used, sizeof list - used, name, sum);
    }
    if (used > 0) saving_text(to, CHECKSUMS_LIST, list);
    if (!gd_error(to->ctx) && !folder_flush(&to->folder))
        gd_fail(to->ctx, GD_ERROR_IO, "cannot flush %s: %s", to->folder.path, strerror(errno));
    return gd_error_status(to->ctx);
}
