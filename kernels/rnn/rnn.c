/* rnn.c - the ops lstm and gru, which are the recurrent part of a layer, and the layers and cells
 * made of them. README.md has the derivation. */
#include "rnn/rnn.h"
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

GD_KERNEL_PAIR(lstm)
GD_KERNEL_PAIR(gru)

/* ---- By ops ------------------------------------------------------------------------------- */

/* Step t of gates [B, T, G H], or gate g of a step [B, G H]. */
static gd_tensor *step_of(gd_tensor *gates, int64_t t)
{
    return gd_squeeze(gd_narrow(gates, 1, t, 1), 1);
}

static gd_tensor *gate(gd_tensor *gates, int g, int64_t H)
{
    return gd_narrow(gates, 1, g * H, H);
}

/* A state that is not given is zeros. */
static gd_tensor *state_or_zeros(const gd_call *call, int i)
{
    const gd_rnn_shape s = gd_rnn_shape_of(call);
    if (call->input[i]) return call->input[i];
    return gd_constant(call->context, call->dtype, 2, (int64_t[]){s.B, s.H}, 0);
}

/* The states of the steps so far, one after the other. */
typedef struct states {
    gd_tensor *part[64];
    int count;
} states;

static gd_tensor *joined(states *y)
{
    if (y->count > 1) y->part[0] = gd_concat(y->part, y->count, 1);
    y->count = 1;
    return y->part[0];
}

static void append(states *y, gd_tensor *state)
{
    if (y->count == sizeof y->part / sizeof *y->part) joined(y);
    y->part[y->count++] = gd_unsqueeze(state, 1);
}

/* c = s(f) c + s(i) tanh(g); y = s(o) tanh(c) */
static void lstm_definition(const gd_call *call)
{
    const gd_rnn_shape s = gd_rnn_shape_of(call);
    gd_tensor *y = state_or_zeros(call, RNN_STATE), *c = state_or_zeros(call, RNN_CELL);
    states all = {.count = 0};
    for (int64_t t = 0; t < s.T; t++) {
        gd_tensor *z = add(step_of(call->input[RNN_GATES], t),
                           gd_linear(y, call->input[RNN_WEIGHT], call->input[RNN_BIAS]));
        c = add(mul(gd_sigmoid(gate(z, LSTM_F, s.H)), c),
                mul(gd_sigmoid(gate(z, LSTM_I, s.H)), gd_tanh(gate(z, LSTM_G, s.H))));
        y = mul(gd_sigmoid(gate(z, LSTM_O, s.H)), gd_tanh(c));
        append(&all, y);
    }
    call->output[0] = s.T ? joined(&all) : all_of(call->output[0], 0);
    call->output[1] = s.T || call->input[RNN_CELL] ? c : all_of(call->output[1], 0);
}

/* n = tanh(a_n + s(r) b_n); y = (1 - s(z)) n + s(z) y, with a = gates[t] and b = y
 * weight^T + bias */
static void gru_definition(const gd_call *call)
{
    const gd_rnn_shape s = gd_rnn_shape_of(call);
    gd_tensor *y = state_or_zeros(call, RNN_STATE);
    states all = {.count = 0};
    for (int64_t t = 0; t < s.T; t++) {
        gd_tensor *a = step_of(call->input[RNN_GATES], t),
                  *b = gd_linear(y, call->input[RNN_WEIGHT], call->input[RNN_BIAS]),
                  *ab = add(a, b);
        gd_tensor *r = gd_sigmoid(gate(ab, GRU_R, s.H)), *z = gd_sigmoid(gate(ab, GRU_Z, s.H));
        gd_tensor *n = gd_tanh(add(gate(a, GRU_N, s.H), mul(r, gate(b, GRU_N, s.H))));
        y = add(mul(minus(1, z), n), mul(z, y));
        append(&all, y);
    }
    call->output[0] = s.T ? joined(&all) : all_of(call->output[0], 0);
}

/* ---- Records ------------------------------------------------------------------------------ */

/* B sequences of T steps of G gates of H columns; the other inputs. */
#define CASE(name, B, T, G, H, ...)                                                           \
    {                                                                                         \
        name, NULL,                                                                           \
            GD_INPUTS({GD_DIMS(B, T, (G) * (H))}, {GD_NORMAL(0, 0.5), GD_DIMS((G) * (H), H)}, \
                      __VA_ARGS__),                                                           \
            .may_be_empty = (B) * (T) == 0                                                    \
    }

static const gd_case lstm_cases[] = {
    CASE("sequence", 2, 4, 4, 3, {GD_DIMS(12)}, {GD_DIMS(2, 3)}, {GD_DIMS(2, 3)}),
    CASE("from_zero", 3, 3, 4, 5, GD_ABSENT, GD_ABSENT, GD_ABSENT),
    CASE("one_step", 2, 1, 4, 2, {GD_DIMS(8)}, {GD_DIMS(2, 2)}, {GD_DIMS(2, 2)}),
    CASE("state_alone", 1, 2, 4, 2, GD_ABSENT, {GD_DIMS(1, 2)}, GD_ABSENT),
    CASE("one_column", 1, 5, 4, 1, {GD_DIMS(4)}, GD_ABSENT, {GD_DIMS(1, 1)}),
    CASE("bias_alone", 1, 3, 4, 1, {GD_DIMS(4)}, GD_ABSENT, GD_ABSENT),
    CASE("no_examples", 0, 2, 4, 2, GD_ABSENT, GD_ABSENT, GD_ABSENT),
    CASE("no_steps", 2, 0, 4, 2, GD_ABSENT, GD_ABSENT, GD_ABSENT),
};

static const gd_case gru_cases[] = {
    CASE("sequence", 2, 4, 3, 3, {GD_DIMS(9)}, {GD_DIMS(2, 3)}),
    CASE("from_zero", 3, 3, 3, 5, GD_ABSENT, GD_ABSENT),
    CASE("one_step", 2, 1, 3, 2, {GD_DIMS(6)}, {GD_DIMS(2, 2)}),
    CASE("one_column", 1, 5, 3, 1, {GD_DIMS(3)}, GD_ABSENT),
    CASE("bias_alone", 2, 3, 3, 2, {GD_DIMS(6)}, GD_ABSENT),
    CASE("no_examples", 0, 2, 3, 2, GD_ABSENT, GD_ABSENT),
    CASE("no_steps", 2, 0, 3, 2, GD_ABSENT, GD_ABSENT),
};

const gd_op gd_op_lstm = {
    .formula = "i, f, g, o = gates[t] + y[t-1] weight^T + bias; c = s(f) c + s(i) tanh(g); "
               "y[t] = s(o) tanh(c)",
    .signature = "gates[B, T, 4H] weight[4H, H] bias[4H]? state[B, H]? cell[B, H]? -> "
                 "y[B, T, H] c[B, H]; gates:compute[B, T, 4H] cells:compute[B, T, H]",
    .backward_reads_inputs = GD_BIT(RNN_WEIGHT) | GD_BIT(RNN_STATE) | GD_BIT(RNN_CELL),
    .backward_reads_outputs = GD_BIT(0),
    .dinput_float32 = GD_BIT(RNN_WEIGHT) | GD_BIT(RNN_BIAS),
    GD_KERNELS(lstm),
    .definition = lstm_definition,
    GD_CASES(lstm_cases),
};

const gd_op gd_op_gru = {
    .formula =
        "r, z, n: gates[t], and y[t-1] weight^T + bias; y[t] = (1 - s(z)) tanh(n + s(r) n') + "
        "s(z) y[t-1]",
    .signature = "gates[B, T, 3H] weight[3H, H] bias[3H]? state[B, H]? -> "
                 "y[B, T, H]; gates:compute[B, T, 3H] hidden:compute[B, T, H]",
    .backward_reads_inputs = GD_BIT(RNN_WEIGHT) | GD_BIT(RNN_STATE),
    .backward_reads_outputs = GD_BIT(0),
    .dinput_float32 = GD_BIT(RNN_WEIGHT) | GD_BIT(RNN_BIAS),
    GD_KERNELS(gru),
    .definition = gru_definition,
    GD_CASES(gru_cases),
};

/* ---- Layers ------------------------------------------------------------------------------- */

/* What a caller of layers or a cell has: `count` layers, or 0 for a cell. H: the columns of a
 * layer, 0 for any. */
typedef struct layer_args {
    int count;
    int64_t H;
} layer_args;

static gd_status layer_shape(const gd_call *call, gd_shapes *out)
{
    (void)out;
    const layer_args *args = call->args;
    const gd_tensor *x = call->input[0], *hidden = call->input[2];
    if (args->count && gd_tensor_dim(x, 1) < 1)
        return gd_refuse(call, "x is %s, wanted at least one step", gd_shape_text(x).text);
    if (args->H && gd_tensor_dim(hidden, 1) != args->H)
        return gd_refuse(call, "hidden is %s, wanted %lld columns, as in the first layer",
                         gd_shape_text(hidden).text, (long long)args->H);
    for (int i = 5; args->count && i < call->inputs; i++)
        if (call->input[i] && gd_tensor_dim(call->input[i], 0) != args->count)
            return gd_refuse(call, "%s is %s, wanted one of %d layers",
                             gd_input_name(call->op, i).text, gd_shape_text(call->input[i]).text,
                             args->count);
    return GD_OK;
}

#define LAYER(x, gates, state)                                                              \
    x " input[" gates ", I] hidden[" gates ", H] input_bias[" gates "]? hidden_bias[" gates \
      "]? state" state "? cell" state "?"

/* Whether all that is given fits, layer k of w in particular; else the error says what does not. */
static bool accepts(const char *who, bool is_lstm, const layer_args *args, int k, gd_tensor *x,
                    const gd_rnn_weights *w, gd_tensor *state, gd_tensor *cell)
{
    static const char *const signatures[2][2] = {
        {LAYER("x[B, I]", "3H", "[B, H]"), LAYER("x[B, T, I]", "3H", "[L, B, H]")},
        {LAYER("x[B, I]", "4H", "[B, H]"), LAYER("x[B, T, I]", "4H", "[L, B, H]")}};
    enum { INPUTS = 7 };
    char name[48];
    snprintf(name, sizeof name, args->count > 1 ? "%s: layers[%d]" : "%s", who, k);
    const gd_op layer = {
        .name = name, .signature = signatures[is_lstm][args->count > 0], .shape = layer_shape};
    gd_tensor *const inputs[INPUTS] = {x,     w->input, w->hidden, w->input_bias, w->hidden_bias,
                                       state, cell};
    return gd_accepts(&layer, inputs, INPUTS, args);
}

/* x [B, T, I] -> y [B, T, H], of one layer; *cell: c after the last step. state, cell:
 * NULL for 0. */
static gd_tensor *run_layer(bool is_lstm, gd_tensor *x, const gd_rnn_weights *w, gd_tensor *state,
                            gd_tensor **cell)
{
    gd_tensor *gates = gd_linear(x, w->input, w->input_bias), *output[2] = {NULL, NULL};
    gd_tensor *inputs[] = {gates, w->hidden, w->hidden_bias, state, *cell};
    gd_apply_multi(is_lstm ? &gd_op_lstm : &gd_op_gru, inputs, is_lstm ? LSTM_INPUTS : GRU_INPUTS,
                   NULL, output);
    *cell = output[1];
    return output[0];
}

/* State k of states [L, B, H]: [B, H]; NULL for NULL. */
static gd_tensor *state_of(gd_tensor *states, int k)
{
    if (!states) return NULL;
    gd_tensor *one = gd_narrow(states, 0, k, 1);
    return one ? gd_reshape(one, 2, gd_tensor_shape(one) + 1) : NULL;
}

/* Adds a state [B, H], or [B, 1, H], to a list as [1, B, H]. */
static gd_tensor *as_state(gd_tensor *t)
{
    if (!t) return NULL;
    const int64_t shape[] = {1, gd_tensor_dim(t, 0), gd_tensor_dim(t, -1)};
    return gd_reshape(t, 3, shape);
}

static gd_tensor *run_layers(bool is_lstm, gd_tensor *x, const gd_rnn_weights *layers, int count,
                             gd_tensor *state, gd_tensor *cell, gd_tensor **last_state,
                             gd_tensor **last_cell)
{
    const char *who = is_lstm ? "lstm" : "gru";
    layer_args args = {count, 0};
    gd_tensor *states[GD_RNN_MOST_LAYERS], *cells[GD_RNN_MOST_LAYERS];
    if (last_state) *last_state = NULL;
    if (last_cell) *last_cell = NULL;
    if (!layers || count < 1 || count > GD_RNN_MOST_LAYERS) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT, "%s: there are %d layers, wanted 1 to %d",
                who, layers ? count : 0, GD_RNN_MOST_LAYERS);
        return NULL;
    }
    for (int k = 0; k < count; k++) {
        if (!accepts(who, is_lstm, &args, k, x, &layers[k], state, cell)) return NULL;
        args.H = gd_tensor_dim(layers[k].hidden, 1);
        gd_tensor *c = state_of(cell, k);
        x = run_layer(is_lstm, x, &layers[k], state_of(state, k), &c);
        if (!x) return NULL;
        if (last_state) states[k] = as_state(gd_narrow(x, 1, gd_tensor_dim(x, 1) - 1, 1));
        if (last_cell) cells[k] = as_state(c);
    }
    if (last_state) *last_state = gd_concat(states, count, 0);
    if (last_cell) *last_cell = gd_concat(cells, count, 0);
    return x;
}

gd_tensor *gd_lstm(gd_tensor *x, const gd_rnn_weights *layers, int count, gd_tensor *state,
                   gd_tensor *cell, gd_tensor **last_state, gd_tensor **last_cell)
{
    return run_layers(true, x, layers, count, state, cell, last_state, last_cell);
}

gd_tensor *gd_gru(gd_tensor *x, const gd_rnn_weights *layers, int count, gd_tensor *state,
                  gd_tensor **last_state)
{
    return run_layers(false, x, layers, count, state, NULL, last_state, NULL);
}

/* ---- Cells -------------------------------------------------------------------------------- */

/* A sequence of one step. x [B, I] -> [B, H] */
static gd_tensor *run_cell(bool is_lstm, gd_tensor *x, gd_tensor *state, gd_tensor **cell,
                           const gd_rnn_weights *w)
{
    const char *who = is_lstm ? "lstm_cell" : "gru_cell";
    const layer_args args = {0, 0};
    if (!w) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT, "%s: weights is NULL, wanted a layer's",
                who);
        return NULL;
    }
    if (!accepts(who, is_lstm, &args, 0, x, w, state, *cell)) return NULL;
    const int64_t shape[] = {gd_tensor_dim(x, 0), 1, gd_tensor_dim(x, 1)};
    gd_tensor *y = run_layer(is_lstm, gd_reshape(x, 3, shape), w, state, cell);
    if (!y) return NULL;
    const int64_t result[] = {gd_tensor_dim(y, 0), gd_tensor_dim(y, 2)};
    return gd_reshape(y, 2, result);
}

gd_tensor *gd_lstm_cell(gd_tensor *x, gd_tensor *state, gd_tensor *cell,
                        const gd_rnn_weights *weights, gd_tensor **next_cell)
{
    gd_tensor *y = run_cell(true, x, state, &cell, weights);
    if (next_cell) *next_cell = y ? cell : NULL;
    return y;
}

gd_tensor *gd_gru_cell(gd_tensor *x, gd_tensor *state, const gd_rnn_weights *weights)
{
    gd_tensor *none = NULL;
    return run_cell(false, x, state, &none, weights);
}
