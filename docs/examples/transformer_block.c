/* transformer_block.c - one block of a Llama-style transformer, forwards, backwards, and one step
 * of descent; prints the tape. */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

enum { BATCH = 2, CONTEXT = 8, DIM = 16, HEADS = 4, KV_HEADS = 2, HEAD = 4, FFN = 40, VOCAB = 11 };

typedef struct block {
    gd_tensor *embedding; /* [VOCAB, DIM], the output matrix as well */
    gd_tensor *attention_norm, *wq, *wk, *wv, *wo;
    gd_tensor *ffn_norm, *gate, *up, *down;
    gd_tensor *final_norm;
} block;

static void add_parameters(gd_params *p, block *b)
{
    b->embedding = gd_params_add(p, "embedding", GD_SHAPE(VOCAB, DIM), GD_DECAY);
    b->attention_norm = gd_params_add(p, "attention_norm", GD_SHAPE(DIM), 0);
    b->wq = gd_params_add(p, "wq", GD_SHAPE(HEADS * HEAD, DIM), GD_DECAY);
    b->wk = gd_params_add(p, "wk", GD_SHAPE(KV_HEADS * HEAD, DIM), GD_DECAY);
    b->wv = gd_params_add(p, "wv", GD_SHAPE(KV_HEADS * HEAD, DIM), GD_DECAY);
    b->wo = gd_params_add(p, "wo", GD_SHAPE(DIM, HEADS * HEAD), GD_DECAY);
    b->ffn_norm = gd_params_add(p, "ffn_norm", GD_SHAPE(DIM), 0);
    b->gate = gd_params_add(p, "gate", GD_SHAPE(FFN, DIM), GD_DECAY);
    b->up = gd_params_add(p, "up", GD_SHAPE(FFN, DIM), GD_DECAY);
    b->down = gd_params_add(p, "down", GD_SHAPE(DIM, FFN), GD_DECAY);
    b->final_norm = gd_params_add(p, "final_norm", GD_SHAPE(DIM), 0);
    gd_params_finish(p);
    for (int i = 0; i < gd_params_count(p); i++) {
        gd_tensor *t = gd_params_at(p, i);
        if (gd_params_flags(p, i) & GD_DECAY) {
            gd_random_normal(t, 0, 0.2);
        } else {
            gd_tensor_fill(t, 1);
        }
    }
}

/* x [BATCH, CONTEXT, n HEAD] as n heads. */
static gd_tensor *heads(gd_tensor *x, int64_t n)
{
    return gd_reshape(x, GD_SHAPE(BATCH, CONTEXT, n, HEAD));
}

/* Every position attends to itself and earlier ones. */
static gd_tensor *attend(const block *b, gd_tensor *x)
{
    gd_tensor *q = gd_rope(heads(gd_linear(x, b->wq, NULL), HEADS), NULL);
    gd_tensor *k = gd_rope(heads(gd_linear(x, b->wk, NULL), KV_HEADS), NULL);
    gd_tensor *v = heads(gd_linear(x, b->wv, NULL), KV_HEADS);
    gd_tensor *y = gd_attention(q, k, v, &(gd_attention_options){.causal = true});
    return gd_linear(gd_reshape(y, GD_SHAPE(BATCH, CONTEXT, HEADS * HEAD)), b->wo, NULL);
}

/* The same function of every position. */
static gd_tensor *feed_forward(const block *b, gd_tensor *x)
{
    gd_tensor *hidden = gd_swiglu(gd_linear(x, b->gate, NULL), gd_linear(x, b->up, NULL));
    return gd_linear(hidden, b->down, NULL);
}

/* tokens [BATCH, CONTEXT] -> the mean of -log p(target) */
static gd_tensor *loss_of(const block *b, gd_tensor *tokens, gd_tensor *targets)
{
    const gd_rms_norm_options norm = {.eps = 1e-5};
    gd_tensor *stream = gd_embedding(b->embedding, tokens);
    gd_tensor *x = gd_rms_norm(stream, b->attention_norm, norm.eps);
    x = gd_add_rms_norm(attend(b, x), stream, b->ffn_norm, NULL, &norm, &stream);
    x = gd_add_rms_norm(feed_forward(b, x), stream, b->final_norm, NULL, &norm, NULL);
    return gd_cross_entropy(gd_linear(x, b->embedding, NULL), targets);
}

static double loss_without_tape(gd_context *ctx, const block *b, gd_tensor *tokens,
                                gd_tensor *targets)
{
    gd_no_grad_begin(ctx);
    double loss = gd_item(loss_of(b, tokens, targets));
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    return loss;
}

/* dloss/dw[0] by a central difference. */
static double numeric_gradient(gd_context *ctx, const block *b, gd_tensor *w, gd_tensor *tokens,
                               gd_tensor *targets)
{
    const double h = 1e-5;
    double *first = gd_tensor_data(w); /* the parameters here are doubles, on the CPU */
    if (!first) return NAN;
    double kept = *first;
    *first = kept + h;
    double above = loss_without_tape(ctx, b, tokens, targets);
    *first = kept - h;
    double below = loss_without_tape(ctx, b, tokens, targets);
    *first = kept;
    return (above - below) / (2 * h);
}

int main(void)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 7});
    gd_params *params = gd_params_create(ctx, GD_FLOAT64);
    block b = {0};
    add_parameters(params, &b);
    gd_tensor *tokens = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(BATCH, CONTEXT));
    gd_tensor *targets = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(BATCH, CONTEXT));
    gd_random_integers(tokens, 0, VOCAB);
    gd_random_integers(targets, 0, VOCAB);

    gd_tape_record_norms(ctx, true);
    gd_tensor *loss = loss_of(&b, tokens, targets);
    gd_backward(loss);
    double before = gd_item(loss);
    gd_tape_print(ctx, stdout);
    gd_step_end(ctx);

    int right = 0;
    printf("\n%-16s %-10s %12s %12s\n", "parameter", "shape", "dL/dw[0]", "difference");
    for (int i = 0; i < gd_params_count(params); i++) {
        gd_tensor *w = gd_params_at(params, i);
        const double *dw = gd_tensor_data(gd_grad(w));
        double numeric = numeric_gradient(ctx, &b, w, tokens, targets);
        double analytic = dw ? dw[0] : NAN;
        printf("%-16s %-10s %12.8f %12.1e\n", gd_tensor_name(w), gd_shape_text(w).text, analytic,
               analytic - numeric);
        right += fabs(analytic - numeric) < 1e-8;
    }

    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    gd_optimizer_step(sgd, 0.1);
    double after = loss_without_tape(ctx, &b, tokens, targets);
    printf("\nloss %.6f, after one step %.6f\n", before, after);
    if (gd_error(ctx)) printf("%s\n", gd_error(ctx));

    bool good = right == gd_params_count(params) && after < before && !gd_error(ctx);
    gd_optimizer_free(sgd);
    gd_params_free(params);
    gd_context_free(ctx);
    return good && fflush(stdout) == 0 ? 0 : 1;
}
