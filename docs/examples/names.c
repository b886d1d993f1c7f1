/* names.c - a character GRU reads names of towns and makes up new ones. names.png shows its state: a
 * column for each letter of some new names, a row for each of its first numbers. */
#include "gallery.h"

enum { LETTERS = 27, LONGEST = 16, HIDDEN = 64, BATCH = 32, STEPS = 400, SHOWN = 6 };

/* Each between spaces; a letter is 1 to 26, and 0, which is not a letter, begins and ends a name. */
static const char names[] =
    "aberdeen amsterdam antwerp athens augsburg avignon barcelona basel bergen berlin bern bilbao "
    "birmingham bologna bonn bordeaux bratislava bremen brest brighton bristol bruges brussels "
    "bucharest budapest cadiz cambridge canterbury cardiff catania chester cologne copenhagen "
    "cordoba cork coventry cracow delft derby dijon dortmund dover dresden dublin dundee durham "
    "edinburgh eindhoven erfurt exeter ferrara florence frankfurt freiburg galway gdansk geneva "
    "genoa ghent gibraltar glasgow gloucester gothenburg granada graz grenoble groningen haarlem "
    "hamburg hannover heidelberg helsinki innsbruck inverness istanbul karlsruhe kassel katowice "
    "kiel klagenfurt koblenz lausanne leeds leicester leiden leipzig lille limerick limoges "
    "lincoln linz lisbon liverpool ljubljana lodz london lublin lucerne lund luxembourg lyon "
    "maastricht madrid mainz malaga malmo manchester mannheim marburg marseille milan minsk modena "
    "monaco munich munster namur nancy nantes naples narvik newcastle nice nijmegen norwich "
    "nottingham nuremberg odense oldenburg oporto orleans oslo ostend oxford padua palermo paris "
    "parma passau pavia perpignan perugia pisa plymouth poitiers porto portsmouth potsdam poznan "
    "prague preston ravenna reading regensburg reims rennes riga rimini rome rostock rotterdam "
    "rouen salamanca salisbury salzburg santander segovia seville sheffield siena sofia "
    "southampton stavanger stockholm strasbourg stuttgart swansea tallinn tampere tarragona "
    "tilburg "
    "toledo toulon toulouse tours trier trieste trondheim turin turku uppsala utrecht valencia "
    "valladolid venice verona vienna vigo vilnius warsaw weimar winchester worcester wuppertal "
    "york zagreb zaragoza zurich ";

typedef struct net {
    gd_params *params;
    gd_linear_layer table, out;
    gd_rnn_layers gru;
} net;

static net make_net(gd_context *ctx)
{
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const net n = {p, gd_make_embedding(p, LETTERS, HIDDEN, "table"),
                   gd_make_linear(p, 0, HIDDEN, LETTERS, "out"),
                   gd_make_rnn(p, 0, 3, HIDDEN, HIDDEN, 1, "gru")};
    gd_params_finish(p);
    return n;
}

/* ids [B, T], state [1, B, HIDDEN] or NULL -> logits of what comes next [B, T, LETTERS] */
static gd_tensor *forward(const net *n, gd_tensor *ids, gd_tensor *state, gd_tensor **last)
{
    gd_tensor *h = gd_run_gru(&n->gru, gd_run_embedding(&n->table, ids), state, last);
    return gd_run_linear(&n->out, h);
}

/* A name drawn letter by letter; its states, and its length. The state goes to the host and back, since
 * a step ends with each letter. */
static int make_name(const net *n, gd_context *ctx, char *name, float *states, uint64_t *seed)
{
    static const float zeros[HIDDEN];
    gd_tensor *state = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(1, 1, HIDDEN), zeros);
    gd_tensor *id = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(1, 1));
    int length = 0;
    gd_no_grad_begin(ctx);
    for (int32_t letter = 0; length < LONGEST && !gd_error(ctx); length++) {
        float p[LETTERS], chance = (float)gallery_uniform(seed);
        gd_tensor *last;
        gd_tensor_write(id, &letter, sizeof letter);
        gd_tensor *logits = forward(n, id, state, &last);
        gd_tensor_read(gd_softmax(gd_scale(logits, 1 / 0.8), -1), p, sizeof p);
        gd_tensor_read(last, states + length * HIDDEN, HIDDEN * sizeof *states);
        gd_tensor_write(state, states + length * HIDDEN, HIDDEN * sizeof *states);
        gd_step_end(ctx);
        for (letter = 0; letter + 1 < LETTERS && chance >= p[letter]; letter++) chance -= p[letter];
        if (letter == 0) break;
        name[length] = (char)('a' + letter - 1);
    }
    gd_no_grad_end(ctx);
    gd_tensor_free(state), gd_tensor_free(id);
    name[length] = '\0';
    return length;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    const char *start[sizeof names / 2];
    int count = 0;
    uint64_t seed = 1;
    for (const char *at = names; *at; at = strchr(at, ' ') + 1) start[count++] = at;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    const net n = make_net(ctx);
    gd_optimizer *adamw = gd_adamw_create(n.params, &(gd_adamw_options){.weight_decay = 0.01});
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(BATCH, LONGEST));
    gd_tensor *next = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(BATCH, LONGEST));
    const gd_cross_entropy_options options = {.ignore_index = -1};
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE, .rate = 0.005, .steps = STEPS};
    double loss = 0;
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        int32_t in[BATCH][LONGEST] = {{0}}, out[BATCH][LONGEST];
        for (int b = 0; b < BATCH; b++) { /* what follows the end of a name is ignored */
            const char *name = start[(int)(count * gallery_uniform(&seed))];
            bool ended = false;
            for (int t = 0; t < LONGEST; t++) {
                const int32_t letter = ended ? -1 : name[t] == ' ' ? 0 : name[t] - 'a' + 1;
                out[b][t] = letter;
                if (t + 1 < LONGEST) in[b][t + 1] = letter > 0 ? letter : 0;
                ended = ended || letter == 0;
            }
        }
        gd_tensor_write(ids, in, sizeof in), gd_tensor_write(next, out, sizeof out);
        gd_tensor *nats = gd_cross_entropy_with(forward(&n, ids, NULL, NULL), next, &options);
        gd_backward(nats);
        loss = step ? 0.95 * loss + 0.05 * gd_item(nats) : gd_item(nats);
        if (step % 100 == 0) printf("step %3d  %.3f nats a letter\n", step, loss);
        gd_optimizer_step(adamw, gd_schedule_rate(&schedule, step));
        gd_params_clear_grads(n.params);
        gd_step_end(ctx);
    }
    static float states[SHOWN][LONGEST * HIDDEN], picture[SHOWN][24 * LONGEST];
    int letters = 0;
    for (int i = 0; i < SHOWN; i++) {
        char name[LONGEST + 1];
        letters += make_name(&n, ctx, name, states[i], &seed);
        printf("%s\n", name);
        for (int k = 0; k < 24 * LONGEST; k++)
            picture[i][k] = states[i][k % LONGEST * HIDDEN + k / LONGEST];
    }
    printf("%.3f nats a letter, %d letters in %d new names\n", loss, letters, SHOWN);
    const bool drawn = gallery_grid("names.png", picture[0], SHOWN, 24, LONGEST, 3, 6);
    return gallery_end(adamw, n.params, ctx, drawn, loss < 1.6 && letters >= 3 * SHOWN);
}
