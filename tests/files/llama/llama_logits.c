/* llama_logits.c - logits of a Llama folder for tokens in a safetensors file, into another.
 *     llama_logits FOLDER TOKENS LOGITS
 * TOKENS holds "tokens", I32 [B, T]; LOGITS will hold "logits", F32 [B, T, V]. For
 * scripts/compare-transformers. */
#include "logits.h"

#include <stdio.h>

static void run(gd_context *ctx, const char *folder, const char *from, const char *to)
{
    model m;
    gd_safetensors *file = gd_safetensors_open(ctx, from);
    gd_tensor *tokens = gd_safetensors_tensor(file, "tokens");
    if (!llama_open(&m, ctx, GD_FLOAT32, folder)) {
        gd_named_tensor logits = {"logits", llama_logits(&m, tokens)};
        gd_safetensors_write(ctx, to, &logits, 1, NULL, 0);
    }
    gd_step_end(ctx);
    gd_tensor_free(tokens);
    gd_safetensors_close(file);
    model_free(&m);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: llama_logits FOLDER TOKENS LOGITS\n");
        return 2;
    }
    gd_context *ctx = gd_context_create(NULL);
    run(ctx, argv[1], argv[2], argv[3]);
    bool failed = gd_error(ctx) != NULL;
    if (failed) fprintf(stderr, "llama_logits: %s\n", gd_error(ctx));
    gd_context_free(ctx);
    return failed;
}
