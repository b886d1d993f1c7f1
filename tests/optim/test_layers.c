/* test_layers.c - layers.h, and how parameters begin: the names and shapes of PyTorch's modules,
 * the distribution of the initial values, each layer against the plain ops, its gradients, and what
 * is refused, which leaves a group as it was. */
#include "counted_memory.h"
#include "each_context.h"

static gd_params *params;

static void set_up(void)
{
    setup();
    params = gd_params_create(ctx, GD_FLOAT32);
}

static void tear_down(void)
{
    gd_params_free(params);
    teardown();
}

/* ---- One of each ----------------------------------------------------------------------------- */

typedef struct layer {
    gd_linear_layer linear;
    gd_mlp mlp;
    gd_conv_layer conv;
    gd_norm_layer norm;
    gd_rnn_layers rnn;
    gd_attention_layer attention;
} layer;

static const int64_t widths[] = {4, 6, 3};
static const gd_conv_options twos = {.stride = {2, 2}, .padding = {1, 1}, .groups = 2};

/* What it is called here, its field and how it is made; and PyTorch's state_dict(): the
 * parameters in its order, and then the buffers. */
#define EACH_LAYER(L)                                                                          \
    L(LINEAR, linear, gd_make_linear(p, 0, 4, 6, name), "weight [6, 4] bias [6] ")             \
    L(NO_BIAS, linear, gd_make_linear(p, GD_NO_BIAS | GD_MUON, 4, 6, name), "weight [6, 4] ")  \
    L(MLP, mlp, gd_make_mlp(p, 0, 2, widths, name),                                            \
      "0.weight [6, 4] 0.bias [6] 2.weight [3, 6] 2.bias [3] ")                                \
    L(EMBEDDING, linear, gd_make_embedding(p, 5, 4, name), "weight [5, 4] ")                   \
    L(CONV, conv, gd_make_conv(p, 0, gd_conv2d, 4, 6, 3, 2, &twos, name),                      \
      "weight [6, 2, 3, 2] bias [6] ")                                                         \
    L(CONV_1D, conv, gd_make_conv(p, GD_NO_BIAS, gd_conv1d, 4, 6, 3, 0, NULL, name),           \
      "weight [6, 4, 3] ")                                                                     \
    L(TRANSPOSED_CONV, conv, gd_make_conv(p, 0, gd_conv_transpose2d, 4, 6, 2, 3, &twos, name), \
      "weight [4, 3, 2, 3] bias [6] ")                                                         \
    L(LAYER_NORM, norm, gd_make_norm(p, GD_LAYER_NORM, 0, 4, name), "weight [4] bias [4] ")    \
    L(RMS_NORM, norm, gd_make_norm(p, GD_RMS_NORM, 0, 4, name), "weight [4] ")                 \
    L(GROUP_NORM, norm, gd_make_norm(p, GD_GROUP_NORM, 2, 4, name), "weight [4] bias [4] ")    \
    L(BATCH_NORM, norm, gd_make_norm(p, GD_BATCH_NORM, 0, 4, name),                            \
      "weight [4] bias [4] running_mean [4] running_var [4] ")                                 \
    L(LSTM, rnn, gd_make_rnn(p, 0, 4, 4, 6, 2, name),                                          \
      "weight_ih_l0 [24, 4] weight_hh_l0 [24, 6] bias_ih_l0 [24] bias_hh_l0 [24] "             \
      "weight_ih_l1 [24, 6] weight_hh_l1 [24, 6] bias_ih_l1 [24] bias_hh_l1 [24] ")            \
    L(GRU, rnn, gd_make_rnn(p, 0, 3, 4, 6, 1, name),                                           \
      "weight_ih_l0 [18, 4] weight_hh_l0 [18, 6] bias_ih_l0 [18] bias_hh_l0 [18] ")            \
    L(ATTENTION, attention, gd_make_attention(p, 0, 4, 2, name),                               \
      "in_proj_weight [12, 4] in_proj_bias [12] out_proj.weight [4, 4] out_proj.bias [4] ")    \
    L(BARE_ATTENTION, attention, gd_make_attention(p, GD_NO_BIAS, 4, 2, name),                 \
      "in_proj_weight [12, 4] out_proj.weight [4, 4] ")

#define KIND(kind, field, made, dict) kind,
enum { EACH_LAYER(KIND) LAYERS };
#define DICT(kind, field, made, dict) dict,
static const char *const state_dicts[] = {EACH_LAYER(DICT)};

static layer make(gd_params *p, int kind, const char *name)
{
    layer l = {0};
#define MAKE(kind_, field, made, dict) \
    if (kind == kind_) l.field = made;
    EACH_LAYER(MAKE)
    return l;
}

static gd_tensor *at(const gd_params *p, int i)
{
    const int count = gd_params_count(p);
    return i < count ? gd_params_at(p, i) : gd_params_buffer_at(p, i - count);
}

static int count_all(const gd_params *p)
{
    return gd_params_count(p) + gd_params_buffer_count(p);
}

LOOP_TEST(names_and_shapes, LAYERS)
{
    char text[1024] = "", wanted[1024] = "";
    make(params, _i, _i % 2 ? "a.b" : "");
    ck_assert_no_error(ctx);
    for (int i = 0; i < count_all(params); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s ",
                 gd_tensor_name(at(params, i)), gd_shape_text(at(params, i)).text);
    for (const char *p = state_dicts[_i]; *p; p++) { /* "a.b." before each name */
        const bool begins = p == state_dicts[_i] || (p[-1] == ' ' && *p != '[' && p[-2] == ']');
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s%c",
                 begins && _i % 2 ? "a.b." : "", *p);
    }
    ck_assert_str_eq(text, wanted);
    for (int i = 0; i < gd_params_count(params); i++) {
        const char *name = gd_tensor_name(at(params, i));
        const bool matrix = strstr(name, "weight") && (_i < LAYER_NORM || _i > BATCH_NORM);
        ck_assert_uint_eq(gd_params_flags(params, i),
                          matrix ? GD_DECAY | (unsigned)(_i == NO_BIAS ? GD_MUON : 0) : 0);
    }
}

/* ---- Initial values -------------------------------------------------------------------------- */

/* Uniform numbers within the bounds of PyTorch's modules, or constants; for an embedding normal
 * ones. */
TEST(the_initial_values_are_pytorchs)
{
    const double conv = 1 / sqrt(4 * 3 * 2), back = 1 / sqrt(400 * 2 * 2);
    const struct {
        double bound, constant;
    } wanted[] = {{0.1, 0},  {0.1, 0},    {0, 0}, /* linear; table, which is normal */
                  {conv, 0}, {conv, 0},   {back, 0}, {back, 0}, {0.1, 0},
                  {0.1, 0},  {0.1, 0},    {0.1, 0},  {0.1, 0},  {0.1, 0}, /* rnn */
                  {0.1, 0},  {0.1, 0},    {0.1, 0},  {0.1, 0},  {sqrt(6. / 256), 0},
                  {0, 0},    {1. / 8, 0}, {0, 0},             /* attention */
                  {0, 1},    {0, 0},      {0, 0},    {0, 1}}; /* norm and its buffers */
    gd_make_linear(params, 0, 100, 400, "linear");
    gd_make_embedding(params, 500, 20, "table");
    gd_make_conv(params, 0, gd_conv2d, 8, 400, 3, 2, &(gd_conv_options){.groups = 2}, "conv");
    gd_make_conv(params, 0, gd_conv_transpose2d, 50, 400, 2, 2, NULL, "back");
    gd_make_conv(params, 0, gd_conv1d, 25, 400, 4, 9, NULL, "line");
    gd_make_rnn(params, 0, 4, 20, 100, 2, "rnn");
    gd_make_attention(params, 0, 64, 4, "attention");
    gd_make_norm(params, GD_BATCH_NORM, 0, 8, "norm");
    ck_assert_int_eq(count_all(params), sizeof wanted / sizeof *wanted);
    const gd_random_state before = gd_random_get(ctx);
    ck_assert_int_eq(gd_params_finish(params), GD_OK);
    gd_random_set(ctx, before);
    for (int i = 0; i < count_all(params); i++) {
        const gd_tensor *t = at(params, i);
        gd_tensor *like = gd_tensor_create(ctx, GD_FLOAT32, gd_tensor_ndim(t), gd_tensor_shape(t));
        const bool normal = !strcmp(gd_tensor_name(t), "table.weight");
        gd_tensor_fill(like, wanted[i].constant);
        if (normal) gd_random_normal(like, 0, 1);
        if (wanted[i].bound > 0) gd_random_uniform(like, -wanted[i].bound, wanted[i].bound);
        double *values = values_of(like);
        assert_close(t, values, 4, 0, gd_tensor_name(t));
        free(values);
        gd_tensor_free(like);
    }
}

/* Every kind of gd_init, against the fill that it stands for, in the order in which they
 * were said. */
TEST(each_init_is_its_fill)
{
    static const gd_init inits[] = {{GD_INIT_UNIFORM, -2, 3},       {GD_INIT_NORMAL, 1, 2},
                                    {GD_INIT_FAN, 16, 0},           {GD_INIT_CONSTANT, 7, 0},
                                    {GD_INIT_XAVIER_UNIFORM, 2, 0}, {GD_INIT_XAVIER_NORMAL, 2, 0},
                                    {GD_INIT_ORTHOGONAL, 2, 0},     {GD_INIT_KAIMING_UNIFORM, 2, 0},
                                    {GD_INIT_KAIMING_NORMAL, 2, 0}, {GD_INIT_CONSTANT, 0, 0}};
    gd_tensor *t[10];
    float got[20], wanted[20];
    for (int i = 0; i < 10; i++)
        t[i] = gd_params_addf(params, 0, GD_SHAPE(4, 5), inits[i], "p%d.%s", i, "w");
    gd_tensor *steps = gd_params_add_buffer(params, "steps", GD_INT32, GD_SHAPE(2));
    gd_params_set_init(params, steps, (gd_init){GD_INIT_CONSTANT, 3, 0});
    const gd_random_state before = gd_random_get(ctx);
    ck_assert_int_eq(gd_params_finish(params), GD_OK);
    const gd_random_state after = gd_random_get(ctx);
    ck_assert_str_eq(gd_tensor_name(t[9]), "p9.w");
    gd_random_set(ctx, before);
    gd_tensor *like = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4, 5));
#define IS_FILL(i, fill)                             \
    do {                                             \
        ck_assert_int_eq(fill, GD_OK);               \
        gd_tensor_read(like, wanted, sizeof wanted); \
        gd_tensor_read(t[i], got, sizeof got);       \
        ck_assert_mem_eq(got, wanted, sizeof got);   \
    } while (0)
    IS_FILL(0, gd_random_uniform(like, -2, 3));
    IS_FILL(1, gd_random_normal(like, 1, 2));
    IS_FILL(2, gd_random_uniform(like, -0.25, 0.25));
    IS_FILL(3, gd_tensor_fill(like, 7));
    IS_FILL(4, gd_init_xavier_uniform(like, 2));
    IS_FILL(5, gd_init_xavier_normal(like, 2));
    IS_FILL(6, gd_init_orthogonal(like, 2));
    IS_FILL(7, gd_init_kaiming_uniform(like, GD_FAN_IN, 2));
    IS_FILL(8, gd_init_kaiming_normal(like, GD_FAN_IN, 2));
    IS_FILL(9, gd_tensor_fill(like, 0));
    int32_t numbers[2];
    gd_tensor_read(steps, numbers, sizeof numbers);
    ck_assert(numbers[0] == 3 && numbers[1] == 3);
    ck_assert_uint_eq(gd_random_get(ctx).offset, after.offset);
    gd_tensor_free(like);
}

/* ---- Against the plain ops ------------------------------------------------------------------- */

static gd_tensor *input(int ndim, const int64_t *shape)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, ndim, shape);
    gd_random_normal(x, 0, 1);
    return x;
}

/* Biases of 0 and norms of 1 would hide a mistake. */
static void finish(void)
{
    ck_assert_int_eq(gd_params_finish(params), GD_OK);
    for (int i = 0; i < count_all(params); i++) gd_random_uniform(at(params, i), 0.5, 1.5);
}

static gd_tensor *run_attention(const gd_attention_layer *l, gd_tensor *x, gd_tensor *from)
{
    gd_tensor *part[3];
    for (int i = 0; i < 3; i++) { /* queries, keys, values: each by a product of its own */
        gd_tensor *source = i && from ? from : x;
        gd_tensor *y = gd_linear(source, gd_narrow(l->weight, 0, 4 * i, 4),
                                 l->bias ? gd_narrow(l->bias, 0, 4 * i, 4) : NULL);
        part[i] = gd_reshape(y, GD_SHAPE(2, gd_tensor_dim(source, 1), 2, 2));
    }
    gd_tensor *y = gd_attention(part[0], part[1], part[2], NULL);
    return gd_linear(gd_reshape(y, GD_SHAPE(2, gd_tensor_dim(x, 1), 4)), l->out.weight,
                     l->out.bias);
}

/* The layer, and the ops that it stands for. */
static void run(int kind, const layer *l, gd_tensor **x, gd_tensor *y[2])
{
    gd_tensor *last[2], *right[2];
    gd_batch_norm_options options = l->norm.options;
    switch (kind) {
    case LINEAR:
    case NO_BIAS:
        y[0] = gd_run_linear(&l->linear, x[0]);
        y[1] = gd_linear(x[0], l->linear.weight, l->linear.bias);
        break;
    case MLP:
        y[0] = gd_run_mlp(&l->mlp, x[0], gd_tanh);
        y[1] = gd_tanh(gd_linear(x[0], l->mlp.layers[0].weight, l->mlp.layers[0].bias));
        y[1] = gd_linear(y[1], l->mlp.layers[1].weight, l->mlp.layers[1].bias);
        break;
    case EMBEDDING:
        y[0] = gd_run_embedding(&l->linear, x[1]);
        y[1] = gd_embedding(l->linear.weight, x[1]);
        break;
    case CONV:
        y[0] = gd_run_conv(&l->conv, x[2]);
        y[1] = gd_conv2d(x[2], l->conv.weight, l->conv.bias, &l->conv.options);
        ck_assert_int_eq(gd_tensor_dim(y[0], 2), 3);
        break;
    case CONV_1D:
        y[0] = gd_run_conv(&l->conv, x[3]);
        y[1] = gd_conv1d(x[3], l->conv.weight, NULL, NULL);
        break;
    case TRANSPOSED_CONV:
        y[0] = gd_run_conv(&l->conv, x[2]);
        y[1] = gd_conv_transpose2d(x[2], l->conv.weight, l->conv.bias, &l->conv.options);
        break;
    case LAYER_NORM:
        y[0] = gd_run_norm(&l->norm, x[0], false);
        y[1] = gd_layer_norm(x[0], l->norm.weight, l->norm.bias, 1e-5);
        break;
    case RMS_NORM:
        y[0] = gd_run_norm(&l->norm, x[0], false);
        y[1] = gd_rms_norm(x[0], l->norm.weight, 1e-5);
        break;
    case GROUP_NORM:
        y[0] = gd_run_norm(&l->norm, x[2], false);
        y[1] = gd_group_norm(x[2], 2, l->norm.weight, l->norm.bias, 1e-5);
        break;
    case BATCH_NORM: /* evaluated first, since the batch moves the running statistics */
        options.evaluate = true;
        gd_no_grad_begin(ctx);
        y[1] = gd_batch_norm(x[2], l->norm.weight, l->norm.bias, &options);
        y[0] = gd_sub(gd_run_norm(&l->norm, x[2], true), y[1]);
        gd_no_grad_end(ctx);
        options.evaluate = false, options.mean = options.var = NULL;
        y[0] = gd_add(y[0], gd_run_norm(&l->norm, x[2], false));
        y[1] = gd_batch_norm(x[2], l->norm.weight, l->norm.bias, &options);
        break;
    case LSTM:
        y[0] = gd_run_lstm(&l->rnn, x[0], x[4], x[4], &last[0], &last[1]);
        y[0] = gd_concat(
            (gd_tensor *[]){y[0], gd_transpose(last[0], 0, 1), gd_transpose(last[1], 0, 1)}, 3, 1);
        y[1] = gd_lstm(x[0], l->rnn.weights, 2, x[4], x[4], &right[0], &right[1]);
        y[1] = gd_concat(
            (gd_tensor *[]){y[1], gd_transpose(right[0], 0, 1), gd_transpose(right[1], 0, 1)}, 3,
            1);
        break;
    case GRU:
        y[0] = gd_run_gru(&l->rnn, x[0], NULL, &last[0]);
        y[1] = gd_gru(x[0], l->rnn.weights, 1, NULL, &right[0]);
        break;
    default:
        y[0] = gd_add(gd_run_attention(&l->attention, x[0], NULL, NULL),
                      gd_run_attention(&l->attention, x[0], x[5], NULL));
        y[1] = gd_add(run_attention(&l->attention, x[0], NULL),
                      run_attention(&l->attention, x[0], x[5]));
    }
}

LOOP_TEST(each_layer_is_its_ops, LAYERS)
{
    const layer l = make(params, _i, "layer");
    finish();
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2, 7)), *y[2];
    gd_random_integers(ids, 0, 5);
    gd_tensor *x[] = {input(GD_SHAPE(2, 3, 4)),    ids,
                      input(GD_SHAPE(2, 4, 5, 6)), input(GD_SHAPE(2, 4, 9)),
                      input(GD_SHAPE(2, 2, 6)),    input(GD_SHAPE(2, 5, 4))};
    run(_i, &l, x, y);
    ck_assert_no_error(ctx);
    ck_assert(same_shape(shape_of(y[0]), shape_of(y[1])));
    double gotten[2048], wanted[2048];
    const int64_t n = gd_tensor_count(y[0]);
    gd_tensor_read_f64(y[0], gotten, n), gd_tensor_read_f64(y[1], wanted, n);
    for (int64_t i = 0; i < n; i++)
        ck_assert_double_le(fabs(gotten[i] - wanted[i]), 2e-6 * (1 + fabs(wanted[i])));
    gd_tensor *u = input(gd_tensor_ndim(y[0]), gd_tensor_shape(y[0]));
    gd_backward(gd_sum_all(gd_mul(y[0], u)));
    ck_assert_no_error(ctx);
    for (int i = 0; i < gd_params_count(params); i++) {
        double slope[512], most = 0;
        const gd_tensor *w = gd_params_at(params, i);
        ck_assert_msg(gd_grad(w) != NULL, "%s has no gradient", gd_tensor_name(w));
        gd_tensor_read_f64(gd_grad(w), slope, gd_tensor_count(w));
        for (int k = 0; k < gd_tensor_count(w); k++) most = fmax(most, fabs(slope[k]));
        ck_assert_msg(most > 1e-4, "%s: %g", gd_tensor_name(w), most);
    }
    gd_step_end(ctx);
    for (int i = 0; i < 6; i++) gd_tensor_free(x[i]);
    gd_tensor_free(u);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static bool is_zero(const layer *l)
{
    layer zeros;
    memset(&zeros, 0, sizeof zeros);
    return !memcmp(l, &zeros, sizeof zeros);
}

/* For each part of a layer: if the group has its name, nothing of the layer is added. */
LOOP_TEST(repeated_names_add_nothing, LAYERS)
{
    const layer whole = make(params, _i, "layer");
    const int parts = count_all(params);
    (void)whole;
    for (int i = 0; i < parts; i++) {
        char words[160];
        gd_params *group = gd_params_create(ctx, GD_FLOAT32);
        gd_params_add(group, "first", GD_SHAPE(3), 0);
        gd_params_add(group, gd_tensor_name(at(params, i)), GD_SHAPE(1), 0);
        layer l;
        memset(&l, 0, sizeof l);
        l = make(group, _i, "layer");
        snprintf(words, sizeof words, "name is \"%s\", wanted one that the group does not have yet",
                 gd_tensor_name(at(params, i)));
        ck_assert_error(ctx, words);
        ck_assert(is_zero(&l));
        ck_assert_int_eq(gd_params_count(group), 2);
        ck_assert_int_eq(gd_params_buffer_count(group), 0);
        make(group, _i, "other");
        ck_assert_int_eq(count_all(group), 2 + parts);
        ck_assert_int_eq(gd_params_finish(group), GD_OK);
        gd_params_free(group);
    }
    const layer no_name = make(params, _i, NULL);
    ck_assert_error(ctx,
                    "layer: name is NULL, wanted what comes before the names of its parameters");
    ck_assert(is_zero(&no_name));
    const layer no_group = make(NULL, _i, "layer");
    ck_assert_no_error(ctx);
    ck_assert(is_zero(&no_group));
    ck_assert_int_eq(count_all(params), parts);
}

/* Whichever allocation fails: nothing is added; and a group that was not finished can be, later. */
LOOP_TEST(no_memory_adds_nothing, LAYERS)
{
    counted.fails_at = -1;
    gd_context *c = gd_context_create(&(gd_context_options){.threads = 1, .allocator = counting});
    gd_params *group = gd_params_create(c, GD_FLOAT32);
    int failed = 0;
    for (int k = 0, made = 0; !made; k++) {
        counted.calls = 0, counted.fails_at = k;
        const layer l = make(group, _i, "layer");
        counted.fails_at = -1;
        made = !gd_error(c);
        if (made) break;
        failed++;
        ck_assert_error(c, "memory");
        ck_assert(is_zero(&l));
        ck_assert_int_eq(count_all(group), 0);
    }
    const int buffers = gd_params_buffer_count(group);
    for (int i = 0; i < 9 * 3; i++) { /* the list grows */
        counted.calls = 0, counted.fails_at = i % 3;
        gd_params_add_buffer(group, (char[]){(char)('a' + i / 3), 0}, GD_FLOAT64, GD_SHAPE(200));
        counted.fails_at = -1;
        gd_error_clear(c);
    }
    ck_assert_int_eq(gd_params_buffer_count(group), buffers + 9);
    gd_params_addf(group, 0, GD_SHAPE(3, 3), (gd_init){GD_INIT_ORTHOGONAL, 1, 0}, "q");
    for (int k = 0, finished = 0; !finished; k++) {
        counted.calls = 0, counted.fails_at = k;
        finished = gd_params_finish(group) == GD_OK;
        counted.fails_at = -1;
        if (finished) break;
        failed++;
        ck_assert_error(c, "memory");
        double value;
        ck_assert_int_ne(gd_tensor_read_f64(gd_params_at(group, 0), &value, 1), GD_OK);
        gd_error_clear(c);
    }
    ck_assert_int_gt(failed, 6);
    gd_params_free(group);
    gd_context_free(c);
    ck_assert_int_eq(counted.blocks, 0);
}

/* A layer of zeros, as after an error; none at all. */
TEST(layers_that_were_not_made_do_not_run)
{
#define NO_WEIGHT ": the layer has no weight, wanted one that was made without an error"
    const layer zeros = {0};
    gd_tensor *x = input(GD_SHAPE(2, 3, 4));
    for (int none = 0; none < 2; none++) {
        const layer *l = &zeros;
        REFUSED(gd_run_linear(none ? NULL : &l->linear, x), "run_linear" NO_WEIGHT);
        REFUSED(gd_run_mlp(none ? NULL : &l->mlp, x, gd_relu), "run_mlp" NO_WEIGHT);
        REFUSED(gd_run_embedding(none ? NULL : &l->linear, x), "run_embedding" NO_WEIGHT);
        REFUSED(gd_run_conv(none ? NULL : &l->conv, x), "run_conv" NO_WEIGHT);
        REFUSED(gd_run_norm(none ? NULL : &l->norm, x, false), "run_norm" NO_WEIGHT);
        REFUSED(gd_run_lstm(none ? NULL : &l->rnn, x, NULL, NULL, NULL, NULL),
                "run_lstm" NO_WEIGHT);
        REFUSED(gd_run_gru(none ? NULL : &l->rnn, x, NULL, NULL), "run_gru" NO_WEIGHT);
        REFUSED(gd_run_attention(none ? NULL : &l->attention, x, NULL, NULL),
                "run_attention" NO_WEIGHT);
    }
    const gd_linear_layer l = gd_make_linear(params, 0, 4, 4, "l");
    ck_assert_ptr_null(gd_run_linear(&l, NULL));
    ck_assert_no_error(ctx);
    gd_tensor_free(x);
}

TEST(sizes_that_no_layer_has)
{
    static const int64_t widths[20] = {1, 1};
    gd_make_mlp(params, 0, 0, widths, "m");
    ck_assert_error(ctx,
                    "make_mlp: 0 layers, of widths [...], wanted 1 to 16 layers and their widths");
    gd_make_mlp(params, 0, 17, widths, "m");
    ck_assert_error(ctx, "make_mlp: 17 layers");
    gd_make_mlp(params, 0, 2, NULL, "m");
    ck_assert_error(ctx, "make_mlp: 2 layers, of widths NULL");
    gd_make_rnn(params, 0, 4, 3, 3, 0, "r");
    ck_assert_error(ctx, "make_rnn: count is 0, wanted 1 to 64 layers");
    gd_make_rnn(params, 0, 3, 3, 3, 65, "r");
    ck_assert_error(ctx, "make_rnn: count is 65, wanted 1 to 64 layers");
    gd_make_attention(params, 0, 6, 4, "a");
    ck_assert_error(ctx, "make_attention: heads is 4, wanted a divisor of E, 6");
    gd_make_attention(params, 0, 6, 0, "a");
    ck_assert_error(ctx, "make_attention: heads is 0");
    gd_make_linear(params, 0, -1, 3, "l");
    ck_assert_error(ctx, "-1");
    gd_make_linear(params, 4, 1, 3, "l");
    ck_assert_error(ctx, "params_add: flags is 0x5");
    gd_make_rnn(params, 0, 2, 3, 3, 1, "r");
    ck_assert_error(ctx, "make_rnn: gates is 2, wanted 3 (GRU) or 4 (LSTM)");
    gd_make_norm(params, GD_GROUP_NORM, 0, 4, "n");
    ck_assert_error(ctx, "make_norm: groups is 0, wanted a divisor of 4 channels");
    gd_make_norm(params, GD_GROUP_NORM, 3, 4, "n");
    ck_assert_error(ctx, "make_norm: groups is 3, wanted a divisor of 4 channels");
    const gd_conv_options groups[] = {{.groups = -2}, {.groups = 4}};
    gd_make_conv(params, 0, gd_conv2d, 4, 8, 3, 3, &groups[0], "c");
    ck_assert_error(ctx, "make_conv: groups is -2, wanted a divisor of 4 channels");
    gd_make_conv(params, 0, gd_conv2d, 6, 8, 3, 3, &groups[1], "c");
    ck_assert_error(ctx, "make_conv: groups is 4, wanted a divisor of 6 channels");
    gd_make_conv(params, 0, gd_conv_transpose2d, 8, 6, 3, 3, &groups[1], "c");
    ck_assert_error(ctx, "make_conv: groups is 4, wanted a divisor of 6 channels");
    gd_make_conv(params, 0, NULL, 4, 8, 3, 3, NULL, "c");
    ck_assert_error(ctx, "make_conv: op is NULL");
    ck_assert_int_eq(count_all(params), 0);
    gd_params_truncate(params, -1, 0);
    ck_assert_error(ctx, "params_truncate: count is -1 and buffers is 0, wanted at least 0");
    gd_tensor *x = input(GD_SHAPE(2, 4));
    const gd_mlp one = gd_make_mlp(params, 0, 1, (const int64_t[]){4, 2}, "one");
    const gd_mlp two = gd_make_mlp(params, 0, 2, (const int64_t[]){4, 2, 2}, "two");
    gd_conv_layer conv = gd_make_conv(params, 0, gd_conv2d, 4, 8, 3, 3, NULL, "c");
    gd_params_finish(params);
    ck_assert_ptr_nonnull(gd_run_mlp(&one, x, NULL));
    gd_run_mlp(&two, x, NULL);
    ck_assert_error(ctx, "run_mlp: the function is NULL, wanted an op such as gd_relu");
    conv.op = NULL;
    gd_run_conv(&conv, x);
    ck_assert_error(ctx, "run_conv: the function is NULL, wanted an op such as gd_conv2d");
    gd_step_end(ctx);
    gd_tensor_free(x);
}

TEST(what_cannot_be_an_initial_value)
{
    static const struct {
        gd_init init;
        const char *words;
    } wrong[] = {
        {{(gd_init_kind)9, 0, 0}, "has kind 9, a 0, b 0, wanted a gd_init_kind"},
        {{GD_INIT_CONSTANT, INFINITY, 0}, "a inf, b 0, wanted finite numbers"},
        {{GD_INIT_UNIFORM, 1, 0.5}, "kind 1, a 1, b 0.5, wanted a <= b"},
        {{GD_INIT_NORMAL, 0, -1}, "wanted a deviation b of at least 0"},
        {{GD_INIT_FAN, -1, 0}, "wanted a fan or gain a of at least 0"},
        {{GD_INIT_KAIMING_NORMAL, 1, 0}, "wanted at least two dimensions, which have fans"}};
    for (int i = 0; i < 6; i++) {
        REFUSED(gd_params_addf(params, 0, GD_SHAPE(3), wrong[i].init, "p%d", i), wrong[i].words);
        ck_assert_int_eq(gd_params_count(params), 0);
    }
    const gd_init half = {GD_INIT_UNIFORM, 0, 0.5};
    gd_tensor *ids = gd_params_add_buffer(params, "ids", GD_INT32, GD_SHAPE(2));
    gd_params_set_init(params, ids, half);
    ck_assert_error(
        ctx,
        "params_set_init: \"ids\" [2] has kind 1, a 0, b 0.5, wanted GD_INIT_CONSTANT for int32");
    gd_params_set_init(params, NULL, half);
    ck_assert_error(
        ctx, "params_set_init: the tensor is not of the group, wanted a parameter or buffer");
    REFUSED(gd_params_addf(params, 0, GD_SHAPE(3), half, NULL), "params_add: name is NULL");
    ck_assert_ptr_null(gd_params_addf(NULL, 0, GD_SHAPE(3), half, "p"));
    gd_params_truncate(NULL, 0, 0);
    gd_params_finish(params);
    gd_params_set_init(params, ids, half);
    ck_assert_error(ctx, "params_set_init: called after gd_params_finish, wanted before");
    gd_params_truncate(params, 0, 0);
    ck_assert_error(ctx, "params_truncate: called after gd_params_finish, wanted before");
    ck_assert_int_eq(gd_params_buffer_count(params), 1);
}

CHECK_MAIN_WITHIN("layers", set_up, tear_down)
