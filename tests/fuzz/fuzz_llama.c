/* fuzz_llama.c - any bytes as a model's config.json, or as the index of its weights: refused with a
 * message, or a supported shape that is the same when saved and read again. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "fuzz.h"
#include "llama.h"

#include <unistd.h>

static gd_context *ctx;

static bool is_small(const model_config *c)
{
    return c->vocab <= 32 && c->layers <= 2 && c->dim <= 32 && c->ffn <= 32;
}

static void save_and_read(const model_config *c)
{
    model m;
    model_config again;
    saving to = {.ctx = ctx};
    demand(!model_create(&m, ctx, GD_FLOAT32, c), "a small model can be made");
    demand(folder_open(&to.folder, fuzz_folder(), false), "the folder");
    unlink(fuzz_path("config.json"));
    unlink(fuzz_path("model.safetensors"));
    demand(!llama_save(&m, &to, "ids") && !llama_read_config(ctx, &to.folder, &again), "saved");
    demand(again.vocab == c->vocab && again.layers == c->layers && again.dim == c->dim &&
               again.heads == c->heads && again.kv_heads == c->kv_heads && again.ffn == c->ffn &&
               again.tied == c->tied && again.positions == c->positions && again.eps == c->eps &&
               again.rope_base == c->rope_base,
           "the same comes back");
    demand(!llama_load(&m, &to.folder, NULL), "its weights too");
    folder_close(&to.folder);
    model_free(&m);
}

static void read_config(const uint8_t *bytes, size_t size)
{
    model_config c;
    fuzz_file("config.json", bytes, size);
    open_folder in;
    demand(folder_open(&in, fuzz_folder(), true), "the folder");
    const bool read = !llama_read_config(ctx, &in, &c);
    folder_close(&in);
    if (!read) return;
    demand(c.vocab > 0 && c.vocab <= INT32_MAX && c.layers > 0 && c.layers <= 1000, "a size");
    demand(c.heads > 0 && c.dim % c.heads == 0 && c.dim / c.heads % 2 == 0, "heads that fit");
    demand(c.kv_heads > 0 && c.heads % c.kv_heads == 0 && c.ffn > 0, "groups that fit");
    demand(c.eps > 0 && c.eps <= 1 && c.rope_base >= 1 && c.positions > 0, "numbers that can be");
    if (is_small(&c)) save_and_read(&c);
}

static void read_index(const uint8_t *bytes, size_t size)
{
    static const char name[] = "model.safetensors.index.json";
    const char *path = fuzz_file(name, bytes, size);
    open_folder in;
    demand(folder_open(&in, fuzz_folder(), true), "the folder");
    llama_index *index = llama_index_open(ctx, &in);
    folder_close(&in);
    const char *file = index ? llama_index_file(index, "a") : NULL;
    demand(!file || (file[0] && file[0] != '.' && !strchr(file, '/')), "a file of the folder");
    llama_index_close(index);
    remove(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (!ctx) {
        const gd_context_options options = {.threads = 1};
        ctx = gd_context_create(&options);
    }
    if (size == 0) return 0;
    if (bytes[0] == 'i') {
        read_index(bytes + 1, size - 1);
    } else {
        read_config(bytes, size);
    }
    demand(!gd_error(ctx) || !strchr(gd_error(ctx), '\n'), "a sentence");
    gd_error_clear(ctx);
    demand(gd_memory(ctx).current_total == 0, "no tensor is left");
    return 0;
}
