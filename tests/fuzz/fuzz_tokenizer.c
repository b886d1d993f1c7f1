/* fuzz_tokenizer.c - any bytes as tokenizer.json: refused with a message, or a tokenizer that is
 * the same when it is written and read again, and whose ids stand for the bytes they came from. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "fuzz.h"
#include "tokenizer_file.h"

#include <unistd.h>

static gd_context *ctx;

/* What it writes, allocated here. */
static char *written(const tokenizer *t, size_t *length)
{
    saving to = {.ctx = ctx};
    demand(folder_open(&to.folder, fuzz_folder(), false), "the folder");
    unlink(fuzz_path("tokenizer.json"));
    unlink(fuzz_path("tokenizer_config.json"));
    demand(!tokenizer_save(t, &to), "saved");
    char *text = folder_read_text(&to.folder, "tokenizer.json", 64 << 20, length);
    demand(text != NULL, "the file that was saved");
    folder_close(&to.folder);
    return text;
}

static gd_status load(tokenizer *t)
{
    open_folder in;
    demand(folder_open(&in, fuzz_folder(), true), "the folder");
    tokenizer_load(t, ctx, &in);
    folder_close(&in);
    return gd_error_status(ctx);
}

static void check(const tokenizer *t)
{
    tokenizer second;
    size_t length, again_length;
    demand(t->kind != TOKENIZER_NONE && t->vocab > 0, "a tokenizer");
    char *text = written(t, &length);
    demand(!load(&second), "what was saved is read");
    demand(second.kind == t->kind && second.vocab == t->vocab, "the same tokenizer");
    char *again = written(&second, &again_length);
    demand(length == again_length && !memcmp(again, text, length), "the same file");
    free(text);
    free(again);
    tokenizer_free(&second);
    if (t->kind == TOKENIZER_BYTES) {
        for (int64_t id = 0; id < t->vocab; id++) {
            demand(t->id_of[t->symbol[id]] == id, "each byte has its id");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    tokenizer t;
    if (!ctx) ctx = gd_context_create(NULL);
    fuzz_file("tokenizer.json", bytes, size);
    if (!load(&t)) check(&t);
    demand(!gd_error(ctx) || !strchr(gd_error(ctx), '\n'), "a sentence");
    gd_error_clear(ctx);
    tokenizer_free(&t);
    return 0;
}
