/* dates.c - dates as people write them, "14 march 1987" or "dec 3, 2021", become 1987-03-14 (Bahdanau et al.
 * 2014, arXiv:1409.0473): a GRU reads the letters, another writes, and at each letter that it writes it looks
 * at all that was read. The picture, dates.png, is where it looks: a row for each letter of the result. */
#include "gallery.h"

enum {
    IN = 20,
    OUT = 10,
    BATCH = 64,
    HIDDEN = 64,
    STEPS = 600,
    TEST = 500,
    LETTERS = 128,
    SHOWN = 6
};

typedef struct net {
    gd_params *params;
    gd_linear_layer letters, key, mix, out;
    gd_rnn_layers reader, writer;
} net;

static net make_net(gd_context *ctx)
{
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const net n = {p,
                   gd_make_embedding(p, LETTERS, HIDDEN, "letters"),
                   gd_make_linear(p, GD_NO_BIAS, HIDDEN, HIDDEN, "key"),
                   gd_make_linear(p, 0, 2 * HIDDEN, HIDDEN, "mix"),
                   gd_make_linear(p, 0, HIDDEN, LETTERS, "out"),
                   gd_make_rnn(p, 0, 3, HIDDEN, HIDDEN, 1, "reader"),
                   gd_make_rnn(p, 0, 3, HIDDEN, HIDDEN, 1, "writer")};
    gd_params_finish(p);
    return n;
}

/* A date as text, with spaces up to IN, and as it is to be. */
static void make_date(int32_t *text, int32_t *wanted, uint64_t *seed)
{
    static const char *const months[] = {"january",   "february", "march",    "april",
                                         "may",       "june",     "july",     "august",
                                         "september", "october",  "november", "december"};
    char from[64], to[64];
    const int day = 1 + (int)(28 * gallery_uniform(seed)), m = (int)(12 * gallery_uniform(seed));
    const int year = 1900 + (int)(150 * gallery_uniform(seed)),
              kind = (int)(4 * gallery_uniform(seed));
    if (kind == 0) snprintf(from, sizeof from, "%d %s %d", day, months[m], year);
    if (kind == 1) snprintf(from, sizeof from, "%d.%d.%d", day, m + 1, year);
    if (kind > 1)
        snprintf(from, sizeof from, "%.*s %d, %d", kind == 2 ? 3 : 9, months[m], day, year);
    snprintf(to, sizeof to, "%d-%02d-%02d", year, m + 1, day);
    for (int i = 0; i < IN; i++) text[i] = i < (int)strlen(from) ? from[i] : ' ';
    for (int i = 0; i < OUT; i++) wanted[i] = to[i];
}

/* text [B, IN], before [B, t]: what was written before each letter -> logits [B, t, LETTERS], and where it
 * looks, *at [B, t, IN] */
static gd_tensor *run(const net *n, gd_tensor *text, gd_tensor *before, gd_tensor **at)
{
    gd_tensor *last,
        *read = gd_run_gru(&n->reader, gd_run_embedding(&n->letters, text), NULL, &last);
    gd_tensor *h = gd_run_gru(&n->writer, gd_run_embedding(&n->letters, before), last, NULL);
    *at = gd_softmax(gd_matmul_with(gd_run_linear(&n->key, h), read, false, true), -1);
    gd_tensor *both[] = {h, gd_matmul(*at, read)};
    return gd_run_linear(&n->out, gd_tanh(gd_run_linear(&n->mix, gd_concat(both, 2, -1))));
}

/* Writes the dates of text [TEST, IN], a letter of all in each pass; the last letters are not used yet. */
static void write_dates(const net *n, gd_context *ctx, gd_tensor *text, int32_t *made, float *at)
{
    static int32_t before[TEST * OUT];
    gd_tensor *looks, *b = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(TEST, OUT));
    gd_no_grad_begin(ctx);
    for (int t = 0; t < OUT; t++) {
        for (int i = 0; i < TEST; i++) before[i * OUT + t] = t ? made[i * OUT + t - 1] : '>';
        gd_tensor_write(b, before, sizeof before);
        gd_tensor_read(gd_argmax(run(n, text, b, &looks), -1, false), made, sizeof before);
        gd_tensor_read(looks, at, sizeof(float[TEST * OUT * IN]));
        gd_step_end(ctx);
    }
    gd_no_grad_end(ctx);
    gd_tensor_free(b);
}

int main(int argc, char **argv)
{
    static int32_t text[TEST][IN], wanted[TEST][OUT], before[BATCH][OUT], made[TEST * OUT];
    static float at[TEST * OUT * IN];
    uint64_t seed = 1;
    int right = 0;
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    const net n = make_net(ctx);
    gd_optimizer *adamw = gd_adamw_create(n.params, &(gd_adamw_options){.weight_decay = 0.01});
    gd_tensor *in = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(BATCH, IN)), *looks;
    gd_tensor *old = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(BATCH, OUT));
    gd_tensor *next = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(BATCH, OUT));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        for (int i = 0; i < BATCH; i++) {
            make_date(text[i], wanted[i], &seed);
            for (int t = 0; t < OUT; t++) before[i][t] = t ? wanted[i][t - 1] : '>';
        }
        gd_tensor_write(in, text, sizeof(int32_t[BATCH][IN]));
        gd_tensor_write(old, before, sizeof before);
        gd_tensor_write(next, wanted, sizeof(int32_t[BATCH][OUT]));
        gd_tensor *loss = gd_cross_entropy(run(&n, in, old, &looks), next);
        gd_backward(loss);
        if (step % 100 == 0) printf("step %3d  %.3f nats a letter\n", step, gd_item(loss));
        gd_optimizer_step(adamw, 0.005 * (1 - (double)step / STEPS));
        gd_params_clear_grads(n.params);
        gd_step_end(ctx);
    }
    for (int i = 0; i < TEST; i++) make_date(text[i], wanted[i], &seed);
    write_dates(&n, ctx, gd_tensor_from(ctx, GD_INT32, GD_SHAPE(TEST, IN), text), made, at);
    for (int i = 0; i < TEST * OUT; i++) right += made[i] == wanted[i / OUT][i % OUT];
    printf("%.1f%% of the letters of %d new dates are right\n", 100. * right / (TEST * OUT), TEST);
    const bool drawn = gallery_grid("dates.png", at, SHOWN, OUT, IN, 3, 10);
    return gallery_end(adamw, n.params, ctx, drawn, right >= 0.95 * TEST * OUT);
}
