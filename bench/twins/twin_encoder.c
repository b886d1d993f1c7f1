/* twin_encoder.c - two blocks of an encoder tell the classes of sentences, whose padding
 * nobody sees. */
#include "twin.h"

enum { B = 32, T = 24, V = 100, E = 64, HEADS = 4, BLOCKS = 2, CLASSES = 4, STEPS = 60 };

typedef struct block {
    gd_norm_layer norm1, norm2;
    gd_attention_layer attention;
    gd_mlp mlp;
} block;

static block make(gd_params *p, int i)
{
    block b;
    b.norm1 = gd_make_norm(p, GD_LAYER_NORM, 0, E, gd_format("blocks.%d.norm1", i).text);
    b.attention = gd_make_attention(p, 0, E, HEADS, gd_format("blocks.%d.attention", i).text);
    b.norm2 = gd_make_norm(p, GD_LAYER_NORM, 0, E, gd_format("blocks.%d.norm2", i).text);
    b.mlp = gd_make_mlp(p, 0, 2, (int64_t[]){E, 4 * E, E}, gd_format("blocks.%d.mlp", i).text);
    return b;
}

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_linear_layer words = gd_make_embedding(p, V, E, "words");
    const gd_linear_layer places = gd_make_embedding(p, T, E, "places");
    block blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = make(p, i);
    const gd_linear_layer out = gd_make_linear(p, 0, E, CLASSES, "out");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *ids = twin_ints(ctx, 1, V, GD_SHAPE(STEPS * B, T));
    gd_tensor *lengths = twin_ints(ctx, 2, T, GD_SHAPE(STEPS * B, 1));
    gd_tensor *labels = twin_ints(ctx, 3, CLASSES, GD_SHAPE(STEPS * B));
    int32_t count[T];
    for (int i = 0; i < T; i++) count[i] = i;
    gd_tensor *place = gd_tensor_wrap(ctx, GD_INT32, GD_SHAPE(1, T), count);
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *seen = gd_le(place, gd_narrow(lengths, 0, step * B, B)); /* [B, T] */
        const gd_attention_options o = {.mask = gd_reshape(seen, GD_SHAPE(B, 1, 1, T))};
        gd_tensor *x = gd_run_embedding(&words, gd_narrow(ids, 0, step * B, B));
        x = gd_add(x, gd_run_embedding(&places, place));
        for (int i = 0; i < BLOCKS; i++) {
            const block *b = &blocks[i];
            x = gd_add(x,
                       gd_run_attention(&b->attention, gd_run_norm(&b->norm1, x, false), NULL, &o));
            x = gd_add(x, gd_run_mlp(&b->mlp, gd_run_norm(&b->norm2, x, false), gd_gelu));
        }
        gd_tensor *kept = gd_cast(gd_reshape(seen, GD_SHAPE(B, 1, T)), GD_FLOAT32);
        x = gd_div(gd_matmul(kept, x), gd_sum(kept, (int[]){2}, 1, true)); /* [B, 1, E] */
        gd_tensor *logits = gd_reshape(gd_run_linear(&out, x), GD_SHAPE(B, CLASSES));
        gd_tensor *loss = gd_cross_entropy(logits, gd_narrow(labels, 0, step * B, B));
        twin_update(adamw, 0.001, p, loss);
    }
    return twin_end(p, adamw);
}
