/* test.c - lstm and gru against the same layers made of other ops, and at their edges. */
#include "twin.h"

#include "one_context.h"

TWIN(lstm)
TWIN(gru)

/* ---- Made of other ops -------------------------------------------------------------------- */

/* Columns k H ... (k + 1) H - 1 of gates [B, G H]. */
static gd_tensor *gate(gd_tensor *gates, int k, int64_t H)
{
    return gd_slice(gates, -1, k * H, (k + 1) * H);
}

static gd_tensor *one_minus(gd_tensor *x)
{
    return gd_add_scalar(gd_neg(x), 1);
}

static gd_tensor *lstm_step(gd_tensor *x, gd_tensor *h, gd_tensor **c, const gd_rnn_weights *w,
                            int64_t H)
{
    gd_tensor *all =
        gd_add(gd_linear(x, w->input, w->input_bias), gd_linear(h, w->hidden, w->hidden_bias));
    gd_tensor *i = gd_sigmoid(gate(all, 0, H)), *f = gd_sigmoid(gate(all, 1, H));
    gd_tensor *g = gd_tanh(gate(all, 2, H)), *o = gd_sigmoid(gate(all, 3, H));
    *c = gd_add(gd_mul(f, *c), gd_mul(i, g));
    return gd_mul(o, gd_tanh(*c));
}

static gd_tensor *gru_step(gd_tensor *x, gd_tensor *h, const gd_rnn_weights *w, int64_t H)
{
    gd_tensor *a = gd_linear(x, w->input, w->input_bias),
              *m = gd_linear(h, w->hidden, w->hidden_bias);
    gd_tensor *r = gd_sigmoid(gd_add(gate(a, 0, H), gate(m, 0, H)));
    gd_tensor *z = gd_sigmoid(gd_add(gate(a, 1, H), gate(m, 1, H)));
    gd_tensor *n = gd_tanh(gd_add(gate(a, 2, H), gd_mul(r, gate(m, 2, H))));
    return gd_add(gd_mul(one_minus(z), n), gd_mul(z, h));
}

/* Place k of x along an axis, without the axis. */
static gd_tensor *at(gd_tensor *x, int axis, int64_t k)
{
    int64_t shape[GD_MAX_DIMS];
    int ndim = 0;
    for (int d = 0; d < gd_tensor_ndim(x); d++)
        if (d != axis) shape[ndim++] = gd_tensor_dim(x, d);
    return gd_reshape(gd_narrow(x, axis, k, 1), ndim, shape);
}

enum { MOST_LAYERS = 3, MOST_STEPS = 8, MOST_LEAVES = 3 + 4 * MOST_LAYERS };

typedef struct problem {
    bool lstm;
    int64_t B, T, I, H;
    int layers, leaves;
    gd_tensor *x, *state, *cell; /* the last two may be NULL */
    gd_rnn_weights w[MOST_LAYERS];
    gd_tensor *leaf[MOST_LEAVES];
} problem;

static gd_tensor *add_leaf(problem *p, gd_dtype dtype, shape s)
{
    gd_tensor *t = random_leaf(ctx, dtype, s.ndim, s.dim, -0.8, 0.8, &seed);
    p->leaf[p->leaves++] = t;
    return t;
}

static problem random_problem(bool lstm, gd_dtype dtype)
{
    problem p = {.lstm = lstm,
                 .B = random_size(&seed, 1, 4),
                 .T = random_size(&seed, 1, MOST_STEPS),
                 .I = random_size(&seed, 1, 5),
                 .H = random_size(&seed, 1, 9),
                 .layers = (int)random_size(&seed, 1, MOST_LAYERS)};
    const int64_t G = (lstm ? 4 : 3) * p.H;
    p.x = add_leaf(&p, dtype, (shape){3, {p.B, p.T, p.I}});
    if (random_chance(&seed, 0.6)) p.state = add_leaf(&p, dtype, (shape){3, {p.layers, p.B, p.H}});
    if (lstm && random_chance(&seed, 0.6))
        p.cell = add_leaf(&p, dtype, (shape){3, {p.layers, p.B, p.H}});
    const bool bias = random_chance(&seed, 0.7);
    for (int k = 0; k < p.layers; k++) {
        p.w[k].input = add_leaf(&p, dtype, (shape){2, {G, k ? p.H : p.I}});
        p.w[k].hidden = add_leaf(&p, dtype, (shape){2, {G, p.H}});
        if (!bias) continue;
        p.w[k].input_bias = add_leaf(&p, dtype, (shape){1, {G}});
        p.w[k].hidden_bias = add_leaf(&p, dtype, (shape){1, {G}});
    }
    return p;
}

typedef struct results {
    gd_tensor *y, *state, *cell;
} results;

static results fused(const problem *p)
{
    results r = {NULL, NULL, NULL};
    r.y = p->lstm ? gd_lstm(p->x, p->w, p->layers, p->state, p->cell, &r.state, &r.cell)
                  : gd_gru(p->x, p->w, p->layers, p->state, &r.state);
    return r;
}

static results composed(const problem *p)
{
    gd_tensor *zero = gd_tensor_create(ctx, gd_tensor_dtype(p->x), GD_SHAPE(p->B, p->H));
    gd_tensor *x[MOST_STEPS], *last[MOST_LAYERS], *cells[MOST_LAYERS];
    const int64_t flat[] = {1, p->B, p->H}, step[] = {p->B, 1, p->H};
    for (int64_t t = 0; t < p->T; t++) x[t] = at(p->x, 1, t);
    for (int k = 0; k < p->layers; k++) {
        gd_tensor *h = p->state ? at(p->state, 0, k) : zero,
                  *c = p->cell ? at(p->cell, 0, k) : zero;
        for (int64_t t = 0; t < p->T; t++)
            x[t] = h = p->lstm ? lstm_step(x[t], h, &c, &p->w[k], p->H)
                               : gru_step(x[t], h, &p->w[k], p->H);
        last[k] = gd_reshape(h, 3, flat), cells[k] = gd_reshape(c, 3, flat);
    }
    for (int64_t t = 0; t < p->T; t++) x[t] = gd_reshape(x[t], 3, step);
    return (results){gd_concat(x, (int)p->T, 1), gd_concat(last, p->layers, 0),
                     p->lstm ? gd_concat(cells, p->layers, 0) : NULL};
}

/* A loss in which every result counts, each element with a factor of its own. */
static gd_tensor *loss_of(const results *r)
{
    gd_tensor *loss = NULL;
    gd_tensor *const parts[] = {r->y, r->state, r->cell};
    for (int i = 0; i < 3; i++) {
        if (!parts[i]) continue;
        gd_tensor *part = gd_sum(gd_mul(gd_sin(parts[i]), parts[i]), NULL, 0, false);
        loss = loss ? gd_add(loss, gd_scale(part, 0.5 + i)) : part;
    }
    return loss;
}

LOOP_TEST(layers_are_what_they_are_made_of, test_rounds(120))
{
    const gd_dtype dtype = _i % 3 ? GD_FLOAT64 : GD_FLOAT32;
    const double tolerance = _i % 3 ? 1e-12 : 1e-5;
    seed = 900 + (uint64_t)_i;
    problem p = random_problem(_i / 3 % 2, dtype);
    double *want[MOST_LEAVES + 3], *got;
    for (int pass = 0; pass < 2; pass++) {
        results r = pass ? fused(&p) : composed(&p);
        ck_assert_no_error(ctx);
        gd_keep(r.y), gd_keep(r.state);
        if (r.cell) gd_keep(r.cell);
        gd_backward(loss_of(&r));
        ck_assert_no_error(ctx);
        gd_tensor *const outputs[] = {r.y, r.state, r.cell};
        for (int i = 0; i < 3 + p.leaves; i++) {
            gd_tensor *t = i < 3 ? outputs[i] : gd_grad(p.leaf[i - 3]);
            char what[32];
            snprintf(what, sizeof what, i < 3 ? "output %d" : "gradient %d", i < 3 ? i : i - 3);
            if (i < 3 && !t) continue;
            got = values_of(t);
            if (pass)
                arrays_near(got, want[i], gd_tensor_count(t), (bound){1, tolerance * 8, 0}, dtype,
                            what);
            if (pass)
                free(got), free(want[i]);
            else
                want[i] = got;
        }
        for (int i = 0; i < p.leaves; i++) gd_grad_clear(p.leaf[i]);
        gd_step_end(ctx);
    }
}

/* What is saved for a backward changes no bit of the forward. */
TEST(without_recording_the_same_bits)
{
    for (int lstm = 0; lstm < 2; lstm++) {
        seed = 50 + (uint64_t)lstm;
        problem p = random_problem(lstm, GD_FLOAT32);
        results r = fused(&p);
        double *y = values_of(r.y), *state = values_of(r.state);
        gd_no_grad_begin(ctx);
        r = fused(&p);
        gd_no_grad_end(ctx);
        double *again = values_of(r.y), *state_again = values_of(r.state);
        ck_assert(!memcmp(y, again, (size_t)gd_tensor_count(r.y) * sizeof *y));
        ck_assert(!memcmp(state, state_again, (size_t)gd_tensor_count(r.state) * sizeof *y));
        free(y), free(state), free(again), free(state_again);
        gd_step_end(ctx);
    }
}

TEST(cells_are_steps)
{
    seed = 31;
    problem p = random_problem(true, GD_FLOAT64);
    p.layers = 1, p.state = p.cell = NULL;
    double *want = values_of(fused(&p).y);
    gd_tensor *h = NULL, *c = NULL, *y[MOST_STEPS];
    const int64_t step[] = {p.B, 1, p.H};
    for (int64_t t = 0; t < p.T; t++) {
        h = gd_lstm_cell(at(p.x, 1, t), h, c, &p.w[0], &c);
        y[t] = gd_reshape(h, 3, step);
    }
    assert_near(gd_concat(y, (int)p.T, 1), want, 1, (bound){1, 1e-15, 0}, "y");
    free(want);
    problem q = random_problem(false, GD_FLOAT64);
    q.layers = 1, q.T = 1, q.x = gd_narrow(q.x, 1, 0, 1), q.state = NULL;
    want = values_of(fused(&q).y);
    assert_near(gd_gru_cell(at(q.x, 1, 0), NULL, &q.w[0]), want, 1, (bound){1, 1e-15, 0},
                "y of gru");
    free(want);
    gd_step_end(ctx);
}

/* Gates far out: the functions are at their limits, and no gradient is NaN. */
TEST(saturated_gates)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        gd_tensor *gates = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 3, 8));
        gd_tensor *weight = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(8, 2)), *y[2];
        gd_tensor_fill(gates, sign * 1e30);
        gd_tensor_set_requires_grad(gates, true);
        gd_tensor *inputs[] = {gates, weight, NULL, NULL, NULL};
        gd_apply_multi(gd_find_op(NULL, "lstm"), inputs, 5, NULL, y);
        gd_keep(y[0]);
        gd_backward(gd_sum(y[0], NULL, 0, false));
        double *got = values_of(y[0]), *dx = values_of(gd_grad(gates));
        for (int i = 0; i < 6; i++)
            ck_assert(sign > 0 ? fabs(got[i] - tanh(1 + i / 2)) < 1e-6 : got[i] == 0);
        for (int i = 0; i < 24; i++) ck_assert(isfinite(dx[i]));
        free(got), free(dx);
        gd_step_end(ctx);
        gd_tensor_free(gates), gd_tensor_free(weight);
    }
}

TEST(bad_input_is_refused)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3, 4));
    gd_tensor *row = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4));
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 0, 4));
    gd_rnn_weights w = {gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(6, 4)),
                        gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(6, 2)), NULL, NULL};
    REFUSED(gd_lstm(x, &w, 1, NULL, NULL, NULL, NULL),
            "lstm: input is float32 [6, 4], wanted [4H, I]");
    REFUSED(gd_gru(x, &w, 0, NULL, NULL), "gru: there are 0 layers, wanted 1 to 64");
    REFUSED(gd_gru(row, &w, 1, NULL, NULL), "gru: x is float32 [4], wanted [B, T, I]");
    REFUSED(gd_gru(none, &w, 1, NULL, NULL), "gru: x is [2, 0, 4], wanted at least one step");
    REFUSED(gd_gru_cell(x, NULL, &w), "gru_cell: x is float32 [2, 3, 4], wanted [B, I]");
    gd_tensor *state = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 3, 2));
    gd_rnn_weights two[2] = {
        {w.input, gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(6, 2)), NULL, NULL}, w};
    REFUSED(gd_gru_cell(row, NULL, NULL), "gru_cell: weights is NULL, wanted a layer's");
    REFUSED(gd_lstm_cell(row, NULL, NULL, NULL, NULL), "lstm_cell: weights is NULL");
    REFUSED(gd_gru(x, two, 2, NULL, NULL),
            "gru: layers[1]: input is float32 [6, 4], wanted [3H, I] with I = 2");
    two[0].input_bias = row;
    REFUSED(gd_gru(x, two, 1, NULL, NULL),
            "gru: input_bias is float32 [4], wanted [3H] with H = 2");
    ck_assert_ptr_null(gd_gru(NULL, two, 1, NULL, NULL));
    REFUSED(NULL, "gru: x is NULL, wanted a tensor");
    gd_tensor_free(two[0].hidden);
    gd_tensor *const all[] = {x, row, none, w.input, w.hidden, state};
    for (int i = 0; i < 6; i++) gd_tensor_free(all[i]);
}

/* The kernels against the loop over steps of the derivation. */
LOOP_TEST(kernels_are_their_plain_twins, test_rounds(64))
{
    const gd_dtype dtype = dtypes[_i % 4];
    const bool is_lstm = _i / 4 % 2, given = _i / 8 % 2;
    seed = 800 + (uint64_t)_i;
    const int64_t B = random_size(&seed, 1, 4), T = random_size(&seed, 1, 6),
                  H = random_size(&seed, 1, 20), G = (is_lstm ? 4 : 3) * H;
    const layout way = (layout)(_i / 16 % LAYOUTS);
    gd_tensor *in[] = {random_tensor(ctx, dtype, SHAPE(B, T, G), way, -1, 1, &seed),
                       random_tensor(ctx, dtype, SHAPE(G, H), PACKED, -1, 1, &seed),
                       given ? random_tensor(ctx, dtype, SHAPE(G), PACKED, -1, 1, &seed) : NULL,
                       given ? random_tensor(ctx, dtype, SHAPE(B, H), way, -1, 1, &seed) : NULL,
                       given ? random_tensor(ctx, dtype, SHAPE(B, H), way, -1, 1, &seed) : NULL};
    const gd_op *twin = is_lstm ? lstm_twin() : gru_twin();
    assert_twin(twin, in, is_lstm ? 5 : 4, NULL, 100 * tolerance_of(dtype), &seed);
}

CHECK_MAIN_WITHIN("recurrent layers", setup, teardown)
