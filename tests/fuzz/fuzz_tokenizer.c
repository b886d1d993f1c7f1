/* fuzz_tokenizer.c - any bytes as tokenizer.json: refused with a sentence, or a tokenizer that
 * writes the very same file, and whose ids stand for the bytes they came from. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "folder.h"
#include "fuzz.h"
#include "tokenizer_file.h"

static gd_context *ctx;

static void check(const tokenizer *t, const uint8_t *bytes, size_t size)
{
    char path[FOLDER_PATH];
    size_t length;
    demand(t->kind != TOKENIZER_NONE && t->vocab > 0, "a tokenizer");
    demand(!tokenizer_save(t, ctx, fuzz_folder()), "saved");
    demand(folder_join(path, fuzz_folder(), "tokenizer.json"), "a path");
    char *again = folder_read_text(path, 64 << 20, &length);
    demand(again && length == size && !memcmp(again, bytes, size), "the same file");
    free(again);
    if (t->kind == TOKENIZER_CHARACTERS) {
        for (int64_t id = 0; id < t->vocab; id++) {
            demand(t->id_of[t->symbol[id]] == id, "each character has its id");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    tokenizer t;
    if (!ctx) ctx = gd_context_create(NULL);
    fuzz_file("tokenizer.json", bytes, size);
    if (!tokenizer_load(&t, ctx, fuzz_folder())) check(&t, bytes, size);
    demand(!gd_error(ctx) || !strchr(gd_error(ctx), '\n'), "a sentence");
    gd_error_clear(ctx);
    tokenizer_free(&t);
    return 0;
}
