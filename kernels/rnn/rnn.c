/* rnn.c - the ops lstm and gru, which are the recurrent part of a layer, and the layers and cells made
 * of them. README.md has the derivation. */
#include "rnn/rnn.h"
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

GD_KERNEL(lstm_forward)
GD_KERNEL(lstm_backward)
GD_KERNEL(gru_forward)
GD_KERNEL(gru_backward)

/* ---- The ops ------------------------------------------------------------------------------ */

static gd_status wanted(const gd_call *call, int i, const char *shape)
{
    return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is %s, wanted %s",
                        gd_input_name(call->op, i).text, gd_shape_text(call->input[i]).text, shape);
}

/* Fails unless input i, if it is given, has this shape of at most three dimensions. */
static gd_status check_shape(const gd_call *call, int i, int ndim, const int64_t *shape)
{
    const gd_tensor *t = call->input[i];
    bool same = !t || gd_tensor_ndim(t) == ndim;
    char text[96] = "";
    for (int d = 0, n = 0; d < ndim; d++) {
        same = same && (!t || gd_tensor_dim(t, d) == shape[d]);
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld%s", d ? ", " : "[",
                      (long long)shape[d], d + 1 < ndim ? "" : "]");
    }
    return same ? GD_OK : wanted(call, i, text);
}

/* Fails unless input i is a weight [gate_count H, H]. */
static gd_status check_hidden(const gd_call *call, int i, int gate_count)
{
    const gd_tensor *t = call->input[i];
    char shape[32];
    if (gd_check_one_dtype(call)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_ndim(t) == 2 && gd_tensor_dim(t, 0) == gate_count * gd_tensor_dim(t, 1))
        return GD_OK;
    snprintf(shape, sizeof shape, "[%d H, H]", gate_count);
    return wanted(call, i, shape);
}

/* gates [B, T, G H], weight [G H, H], bias [G H], state and cell [B, H] -> y [B, T, H] */
static gd_status check(const gd_call *call, int gate_count, gd_spec *output)
{
    const gd_tensor *gates = call->input[RNN_GATES];
    if (check_hidden(call, RNN_WEIGHT, gate_count)) return GD_ERROR_ARGUMENT;
    const int64_t H = gd_tensor_dim(call->input[RNN_WEIGHT], 1), rows = gate_count * H;
    char shape[96];
    if (gd_tensor_ndim(gates) != 3 || gd_tensor_dim(gates, 2) != rows) {
        snprintf(shape, sizeof shape, "[B, T, %lld]", (long long)rows);
        return wanted(call, RNN_GATES, shape);
    }
    *output = gd_spec_like(gates);
    output->shape[2] = H;
    if (check_shape(call, RNN_BIAS, 1, &rows)) return GD_ERROR_ARGUMENT;
    for (int i = RNN_STATE; i < call->inputs; i++)
        if (check_shape(call, i, 2, (int64_t[]){output->shape[0], H})) return GD_ERROR_ARGUMENT;
    return GD_OK;
}

/* Saves the gates after their functions, and every c. */
static gd_status lstm_shape(const gd_call *call, gd_shapes *out)
{
    const gd_status status = check(call, LSTM_GATE_COUNT, out->output);
    if (status) return status;
    out->output[1] = out->output[0];
    out->output[1].ndim = 2;
    out->output[1].shape[1] = out->output[0].shape[2];
    out->save[0] = gd_spec_like(call->input[RNN_GATES]);
    out->save[1] = out->output[0];
    out->save[0].dtype = out->save[1].dtype = call->dtype;
    return GD_OK;
}

/* Saves the gates after their functions, and the state's part of n. */
static gd_status gru_shape(const gd_call *call, gd_shapes *out)
{
    const gd_status status = check(call, GRU_GATE_COUNT, out->output);
    if (status) return status;
    out->save[0] = gd_spec_like(call->input[RNN_GATES]);
    out->save[1] = out->output[0];
    out->save[0].dtype = out->save[1].dtype = call->dtype;
    return GD_OK;
}

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

/* n = tanh(a_n + s(r) b_n); y = (1 - s(z)) n + s(z) y, with a = gates[t] and b = y weight^T + bias */
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

#define SMALL GD_NORMAL(0, 0.5)

static const gd_case lstm_cases[] = {
    {"sequence", NULL,
     GD_INPUTS({GD_DIMS(2, 4, 12)}, {SMALL, GD_DIMS(12, 3)}, {GD_DIMS(12)}, {GD_DIMS(2, 3)},
               {GD_DIMS(2, 3)})},
    {"from_zero", NULL,
     GD_INPUTS({GD_DIMS(3, 3, 20)}, {SMALL, GD_DIMS(20, 5)}, GD_ABSENT, GD_ABSENT, GD_ABSENT)},
    {"one_step", NULL,
     GD_INPUTS({GD_DIMS(2, 1, 8)}, {SMALL, GD_DIMS(8, 2)}, {GD_DIMS(8)}, {GD_DIMS(2, 2)},
               {GD_DIMS(2, 2)})},
    {"state_alone", NULL,
     GD_INPUTS({GD_DIMS(1, 2, 8)}, {SMALL, GD_DIMS(8, 2)}, GD_ABSENT, {GD_DIMS(1, 2)}, GD_ABSENT)},
    {"one_column", NULL,
     GD_INPUTS({GD_DIMS(1, 5, 4)}, {SMALL, GD_DIMS(4, 1)}, {GD_DIMS(4)}, GD_ABSENT,
               {GD_DIMS(1, 1)})},
    {"bias_alone", NULL,
     GD_INPUTS({GD_DIMS(1, 3, 4)}, {SMALL, GD_DIMS(4, 1)}, {GD_DIMS(4)}, GD_ABSENT, GD_ABSENT)},
    {"no_examples", NULL,
     GD_INPUTS({GD_DIMS(0, 2, 8)}, {SMALL, GD_DIMS(8, 2)}, GD_ABSENT, GD_ABSENT, GD_ABSENT),
     .may_be_empty = true},
    {"no_steps", NULL,
     GD_INPUTS({GD_DIMS(2, 0, 8)}, {SMALL, GD_DIMS(8, 2)}, GD_ABSENT, GD_ABSENT, GD_ABSENT),
     .may_be_empty = true},
};

static const gd_case gru_cases[] = {
    {"sequence", NULL,
     GD_INPUTS({GD_DIMS(2, 4, 9)}, {SMALL, GD_DIMS(9, 3)}, {GD_DIMS(9)}, {GD_DIMS(2, 3)})},
    {"from_zero", NULL,
     GD_INPUTS({GD_DIMS(3, 3, 15)}, {SMALL, GD_DIMS(15, 5)}, GD_ABSENT, GD_ABSENT)},
    {"one_step", NULL,
     GD_INPUTS({GD_DIMS(2, 1, 6)}, {SMALL, GD_DIMS(6, 2)}, {GD_DIMS(6)}, {GD_DIMS(2, 2)})},
    {"one_column", NULL,
     GD_INPUTS({GD_DIMS(1, 5, 3)}, {SMALL, GD_DIMS(3, 1)}, {GD_DIMS(3)}, GD_ABSENT)},
    {"bias_alone", NULL,
     GD_INPUTS({GD_DIMS(2, 3, 6)}, {SMALL, GD_DIMS(6, 2)}, {GD_DIMS(6)}, GD_ABSENT)},
    {"no_examples", NULL,
     GD_INPUTS({GD_DIMS(0, 2, 6)}, {SMALL, GD_DIMS(6, 2)}, GD_ABSENT, GD_ABSENT),
     .may_be_empty = true},
    {"no_steps", NULL, GD_INPUTS({GD_DIMS(2, 0, 6)}, {SMALL, GD_DIMS(6, 2)}, GD_ABSENT, GD_ABSENT),
     .may_be_empty = true},
};

const gd_op gd_op_lstm = {
    .name = "lstm",
    .formula = "i, f, g, o = gates[t] + y[t-1] weight^T + bias; c = s(f) c + s(i) tanh(g); "
               "y[t] = s(o) tanh(c)",
    .inputs = LSTM_INPUTS,
    .input_names = {"gates", "weight", "bias", "state", "cell"},
    .optional_inputs = GD_BIT(RNN_BIAS) | GD_BIT(RNN_STATE) | GD_BIT(RNN_CELL),
    .outputs = 2,
    .saves = 2,
    .backward_reads_inputs = GD_BIT(RNN_WEIGHT) | GD_BIT(RNN_STATE) | GD_BIT(RNN_CELL),
    .backward_reads_outputs = GD_BIT(0),
    .dinput_float32 = GD_BIT(RNN_WEIGHT) | GD_BIT(RNN_BIAS),
    .same_bits = true,
    .shape = lstm_shape,
    .forward = GD_ON_DEVICES(lstm_forward),
    .backward = GD_ON_DEVICES(lstm_backward),
    .definition = lstm_definition,
    GD_CASES(lstm_cases),
};

const gd_op gd_op_gru = {
    .name = "gru",
    .formula =
        "r, z, n: gates[t], and y[t-1] weight^T + bias; y[t] = (1 - s(z)) tanh(n + s(r) n') + "
        "s(z) y[t-1]",
    .inputs = GRU_INPUTS,
    .input_names = {"gates", "weight", "bias", "state"},
    .optional_inputs = GD_BIT(RNN_BIAS) | GD_BIT(RNN_STATE),
    .outputs = 1,
    .saves = 2,
    .backward_reads_inputs = GD_BIT(RNN_WEIGHT) | GD_BIT(RNN_STATE),
    .backward_reads_outputs = GD_BIT(0),
    .dinput_float32 = GD_BIT(RNN_WEIGHT) | GD_BIT(RNN_BIAS),
    .same_bits = true,
    .shape = gru_shape,
    .forward = GD_ON_DEVICES(gru_forward),
    .backward = GD_ON_DEVICES(gru_backward),
    .definition = gru_definition,
    GD_CASES(gru_cases),
};

/* ---- Layers ------------------------------------------------------------------------------- */

/* What a caller of layers or a cell has: x of ndim dimensions, [B, T, I] or [B, I], for `count` layers, or
 * 0 for a cell. H: the columns of a layer, 0 for any. */
typedef struct layer_args {
    int gate_count, ndim, count;
    int64_t H;
} layer_args;

/* x, input [G H, I], hidden [G H, H], both biases [G H] */
static gd_status layer_shape(const gd_call *call, gd_shapes *out)
{
    (void)out;
    const layer_args *args = call->args;
    const gd_tensor *x = call->input[0];
    if (gd_tensor_ndim(x) != args->ndim || (args->ndim == 3 && gd_tensor_dim(x, 1) < 1))
        return wanted(call, 0, args->ndim == 3 ? "[B, T, I] of at least one step" : "[B, I]");
    if (check_hidden(call, 2, args->gate_count)) return GD_ERROR_ARGUMENT;
    const int64_t H = args->H ? args->H : gd_tensor_dim(call->input[2], 1);
    const int64_t rows = args->gate_count * H, columns[] = {0, gd_tensor_dim(x, -1), H};
    for (int i = 1; i < call->inputs; i++)
        if (check_shape(call, i, i < 3 ? 2 : 1, (int64_t[]){rows, columns[i < 3 ? i : 0]}))
            return GD_ERROR_ARGUMENT;
    return GD_OK;
}

/* x, hidden, state and cell [count, B, H], or [B, H] */
static gd_status states_shape(const gd_call *call, gd_shapes *out)
{
    (void)out;
    const layer_args *args = call->args;
    const int64_t shape[] = {args->count, gd_tensor_dim(call->input[0], 0),
                             gd_tensor_dim(call->input[1], 1)};
    if (gd_check_one_dtype(call)) return GD_ERROR_ARGUMENT;
    for (int i = 2; i < call->inputs; i++)
        if (check_shape(call, i, args->ndim, shape + (args->count ? 0 : 1)))
            return GD_ERROR_ARGUMENT;
    return GD_OK;
}

/* Whether all that is given fits, layer k of w in particular; else the error says what does not. */
static bool accepts(const char *who, const layer_args *args, int k, gd_tensor *x,
                    const gd_rnn_weights *w, gd_tensor *state, gd_tensor *cell)
{
    char name[48];
    if (args->count > 1) {
        snprintf(name, sizeof name, "%s: layers[%d]", who, k);
        who = name;
    }
    const gd_op layer = {.name = who,
                         .inputs = 5,
                         .input_names = {"x", "input", "hidden", "input_bias", "hidden_bias"},
                         .optional_inputs = GD_BIT(3) | GD_BIT(4),
                         .shape = layer_shape};
    const gd_op states = {.name = who,
                          .inputs = 4,
                          .input_names = {"x", "hidden", "state", "cell"},
                          .optional_inputs = GD_BIT(2) | GD_BIT(3),
                          .shape = states_shape};
    gd_tensor *const weights[] = {x, w->input, w->hidden, w->input_bias, w->hidden_bias};
    return gd_accepts(&layer, weights, 5, args) &&
           gd_accepts(&states, (gd_tensor *[]){x, w->hidden, state, cell}, 4, args);
}

/* x [B, T, I] -> y [B, T, H], of one layer; *cell: c after the last step. state, cell: NULL for 0. */
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
    layer_args args = {is_lstm ? LSTM_GATE_COUNT : GRU_GATE_COUNT, 3, count, 0};
    gd_tensor *states[GD_RNN_MOST_LAYERS], *cells[GD_RNN_MOST_LAYERS];
    if (last_state) *last_state = NULL;
    if (last_cell) *last_cell = NULL;
    if (!layers || count < 1 || count > GD_RNN_MOST_LAYERS) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT, "%s: there are %d layers, wanted 1 to %d",
                who, layers ? count : 0, GD_RNN_MOST_LAYERS);
        return NULL;
    }
    for (int k = 0; k < count; k++) {
        if (!accepts(who, &args, k, x, &layers[k], state, cell)) return NULL;
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
    const layer_args args = {is_lstm ? LSTM_GATE_COUNT : GRU_GATE_COUNT, 2, 0, 0};
    if (!w) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT, "%s: weights is NULL, wanted a layer's",
                who);
        return NULL;
    }
    if (!accepts(who, &args, 0, x, w, state, *cell)) return NULL;
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
