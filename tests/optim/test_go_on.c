/* test_go_on.c - saving an optimizer with its parameters, and going on from the file: the same
 * bits, the tensors that match, and all or nothing. */
#define _DEFAULT_SOURCE /* truncate, mkdtemp */
#include "counted_memory.h"
#include "frozen_times.h"
#include "own_folder.h"
#include "state_file.h"

static const char path[] = "model.safetensors";

/* ---- A learner whose gradients are random ---------------------------------------------------- */

typedef struct learner {
    gd_context *ctx;
    gd_params *params;
    gd_tensor *mean, *count; /* buffers */
    gd_optimizer *optimizer;
} learner;

static learner make(gd_dtype dtype, int kind, uint64_t seed, const gd_allocator *allocator)
{
    gd_context_options options = {.threads = 1, .seed = seed, .poison = true};
    if (allocator) options.allocator = *allocator;
    learner l = {.ctx = gd_context_create(&options)};
    l.params = gd_params_create(l.ctx, dtype);
    for (int i = 0; i < PARAMETERS; i++)
        gd_params_add(l.params, parameter[i].name, parameter[i].ndim, parameter[i].shape,
                      parameter[i].flags);
    l.mean = gd_params_add_buffer(l.params, "mean", GD_FLOAT32, GD_SHAPE(3));
    l.count = gd_params_add_buffer(l.params, "count", GD_INT32, GD_SHAPE(5));
    gd_params_finish(l.params);
    for (int i = 0; i < PARAMETERS; i++) gd_random_normal(gd_params_at(l.params, i), 0, 1);
    gd_random_normal(l.mean, 0, 1), gd_random_integers(l.count, 0, 1000);
    l.optimizer = optimizer_of_kind(l.params, kind);
    gd_optimizer_average(l.optimizer, 0.9);
    if (dtype == GD_FLOAT16) gd_optimizer_set_loss_scale(l.optimizer, gd_loss_scale_begin(dtype));
    gd_optimizer_set_rate(l.optimizer, 0.01);
    ck_assert_no_error(l.ctx);
    return l;
}

static void destroy(learner *l)
{
    gd_optimizer_free(l->optimizer);
    gd_params_free(l->params);
    gd_context_free(l->ctx);
}

/* Update s, of the parameters that are trained in it. */
static void learn(learner *l, int s)
{
    for (int i = 0; i < PARAMETERS; i++) {
        gd_tensor *t = gd_params_at(l->params, i);
        gd_tensor_set_requires_grad(t, trained_in(i, s));
        gd_tensor *u =
            gd_tensor_create(l->ctx, gd_tensor_dtype(t), gd_tensor_ndim(t), gd_tensor_shape(t));
        gd_random_normal(u, 0, 1);
        if (trained_in(i, s)) gd_backward_from(&t, 1, &(gd_backward_options){.cotangents = &u});
        gd_tensor_free(u);
    }
    gd_optimizer_update(l->optimizer, 0.5);
    gd_params_clear_grads(l->params);
    gd_random_integers(l->count, 0, 1000);
    gd_step_end(l->ctx);
    ck_assert_no_error(l->ctx);
}

/* All that a file has: bytes of every tensor, and the numbers. */
enum { MOST = 8192 };

typedef struct picture {
    size_t used;
    unsigned char bytes[MOST];
} picture;

static void add(picture *p, const void *bytes, size_t count)
{
    ck_assert_uint_le(p->used + count, MOST);
    memcpy(p->bytes + p->used, bytes, count);
    p->used += count;
}

static void add_tensor(picture *p, const gd_tensor *t)
{
    unsigned char bytes[2048];
    const size_t count = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    ck_assert_uint_le(count, sizeof bytes);
    gd_tensor_read(t, bytes, count);
    add(p, bytes, count);
}

static picture picture_of(const learner *l)
{
    picture p = {.used = 0};
    gd_tensor *t;
    for (int i = 0; i < PARAMETERS; i++) add_tensor(&p, gd_params_at(l->params, i));
    for (int i = 0; i < 2; i++) add_tensor(&p, gd_params_buffer_at(l->params, i));
    for (int i = 0; (t = gd_optimizer_state(l->optimizer, i)); i++) add_tensor(&p, t);
    const int64_t steps = gd_optimizer_steps(l->optimizer);
    const gd_loss_scale scale = gd_optimizer_loss_scale(l->optimizer);
    const gd_random_state random = gd_random_get(l->ctx);
    add(&p, &steps, sizeof steps);
    add(&p, &scale.factor, sizeof scale.factor);
    add(&p, &scale.good, sizeof scale.good);
    add(&p, &random.seed, sizeof random.seed);
    add(&p, &random.offset, sizeof random.offset);
    return p;
}

static void ck_assert_same(const learner *a, const learner *b)
{
    const picture p = picture_of(a), q = picture_of(b);
    ck_assert_uint_eq(p.used, q.used);
    ck_assert_mem_eq(p.bytes, q.bytes, p.used);
}

/* ---- Going on -------------------------------------------------------------------------------- */

LOOP_TEST(the_next_steps_have_the_same_bits, 4 * OPTIMIZER_KINDS)
{
    const gd_dtype dtype = (gd_dtype)(_i % 4);
    learner one = make(dtype, _i / 4, 5, NULL), two = make(dtype, _i / 4, 6, NULL);
    for (int s = 0; s < 6; s++) learn(&one, s);
    for (int s = 0; s < 2; s++) learn(&two, s + 9);
    const gd_named_text text = {"epoch", "3"};
    ck_assert_int_eq(gd_optimizer_save(one.optimizer, path, &text, 1), GD_OK);
    ck_assert_int_eq(gd_optimizer_load(two.optimizer, path, NULL), GD_OK);
    ck_assert_same(&one, &two);
    for (int s = 6; s < FROZEN_UPDATES; s++) learn(&one, s), learn(&two, s);
    ck_assert_same(&one, &two);
    gd_safetensors *file = gd_safetensors_open(one.ctx, path);
    ck_assert_str_eq(gd_safetensors_metadata(file, "epoch"), "3");
    gd_safetensors_close(file);
    destroy(&one), destroy(&two);
}

/* The parameters of such a file alone; and the weights of a group that has no optimizer. */
TEST(a_group_loads_the_file_of_an_optimizer)
{
    learner one = make(GD_FLOAT32, 3, 5, NULL), two = make(GD_FLOAT64, 0, 6, NULL);
    double a[TOTAL], b[TOTAL];
    learn(&one, 0);
    gd_optimizer_save(one.optimizer, path, NULL, 0);
    ck_assert_int_eq(gd_params_load(two.params, path), GD_OK);
    read_all(one.params, a), read_all(two.params, b);
    ck_assert_mem_eq(a, b, sizeof a);
    gd_params_save(one.params, path, NULL, 0);
    ck_assert_int_ne(gd_optimizer_load(one.optimizer, path, NULL), GD_OK);
    ck_assert_error(one.ctx, "has no optimizer's state, wanted the state of adamw");
    destroy(&one), destroy(&two);
}

static bool put(void *user, const void *bytes, size_t count)
{
    return fwrite(bytes, 1, count, user) == count;
}

static gd_status pass_states(const gd_optimizer *from, gd_optimizer *to, gd_context *ctx)
{
    FILE *file = fopen(path, "wb");
    ck_assert_int_eq(gd_optimizer_save_states(from, &(gd_output){path, put, file}, NULL, 0), GD_OK);
    fclose(file);
    gd_safetensors *states = gd_safetensors_open(ctx, path);
    for (int64_t i = 0; i < gd_safetensors_count(states); i++)
        ck_assert(!strncmp(gd_safetensors_at(states, i)->name, "optimizer.", 10));
    const gd_status status = gd_optimizer_load_states(to, states);
    gd_safetensors_close(states);
    return status;
}

/* Of 16 bits, too: the masters are states. */
LOOP_TEST(states_without_their_parameters, 2)
{
    const gd_dtype dtype = _i ? GD_BFLOAT16 : GD_FLOAT32;
    learner one = make(dtype, 3, 5, NULL), two = make(dtype, 3, 6, NULL);
    double before[TOTAL], after[TOTAL];
    for (int s = 0; s < 3; s++) learn(&one, s);
    read_all(two.params, before);
    ck_assert_int_eq(pass_states(one.optimizer, two.optimizer, two.ctx), GD_OK);
    read_all(two.params, after);
    ck_assert_mem_eq(before, after, sizeof before);
    gd_params_save(one.params, path, NULL, 0), gd_params_load(two.params, path);
    ck_assert_same(&one, &two);
    /* Only one of the optimizers has an average. */
    gd_optimizer *bare = optimizer_of_kind(one.params, 3);
    ck_assert_int_eq(pass_states(one.optimizer, bare, one.ctx), GD_OK);
    ck_assert_int_eq(gd_optimizer_steps(bare), 3);
    ck_assert_int_eq(pass_states(bare, two.optimizer, two.ctx), GD_OK);
    ck_assert_same(&one, &two);
    gd_optimizer *adam = optimizer_of_kind(one.params, 4);
    ck_assert_int_eq(pass_states(bare, adam, one.ctx), GD_ERROR_IO);
    ck_assert_error(one.ctx, "has the state of adamw, wanted the state of adam");
    ck_assert_int_eq(gd_optimizer_save_states(adam, NULL, NULL, 0), GD_ERROR_ARGUMENT);
    ck_assert_error(one.ctx, "the output has no name, wanted a name and a function");
    gd_optimizer_free(bare), gd_optimizer_free(adam);
    destroy(&one), destroy(&two);
}

/* ---- What matches ---------------------------------------------------------------------------- */

static char told[1024];

static void tell(void *user, const char *name, const char *why)
{
    ck_assert_ptr_eq(user, told);
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s %s\n", name, why);
}

/* A model with another head: what was before it is loaded, with its states and counts. */
TEST(what_matches_is_loaded)
{
    const gd_load_options options = {.matching = true, .unmatched = tell, .user = told};
    gd_context *ctx = test_context(1);
    gd_params *params[2];
    gd_optimizer *adam[2];
    for (int k = 0; k < 2; k++) {
        params[k] = gd_params_create(ctx, GD_FLOAT32);
        gd_params_add(params[k], "body", GD_SHAPE(2, 3), 0);
        gd_params_add(params[k], "head", GD_SHAPE(3 + k), 0);
        gd_params_add(params[k], k ? "new" : "old", GD_SHAPE(2), 0);
        gd_params_finish(params[k]);
        for (int i = 0; i < 3; i++) gd_tensor_fill(gd_params_at(params[k], i), 1 + k);
        adam[k] = gd_adam_create(params[k], NULL);
        gd_backward(gd_sum_all(gd_scale(gd_params_at(params[k], 0), 0)));
        for (int s = 0; s < 3 - 2 * k; s++) gd_optimizer_step(adam[k], 0.1);
        gd_tensor_fill(gd_optimizer_state(adam[k], 0), 4 + k);
        gd_tensor_fill(gd_optimizer_state(adam[k], 1), 0);
    }
    gd_optimizer_save(adam[0], path, NULL, 0);
    told[0] = '\0';
    ck_assert_int_eq(gd_params_load_with(params[1], path, &options), GD_OK);
    ck_assert_str_eq(told, "head has shape [3] in the file, wanted [4]\n"
                           "new is not in the file\n"
                           "old is not of the group\n");
    told[0] = '\0';
    ck_assert_int_eq(gd_optimizer_load(adam[1], path, &options), GD_OK);
    ck_assert_ptr_nonnull(strstr(told, "optimizer.m.head has shape [3] in the file, wanted [4]\n"));
    ck_assert_ptr_nonnull(strstr(told, "optimizer.v.new is not in the file\n"));
    ck_assert_ptr_nonnull(strstr(told, "optimizer.v.old is not of the group\n"));
    ck_assert_int_eq(gd_optimizer_steps(adam[1]), 3);
    /* m / (1 - beta1^t): body in its fourth update, with m = 4, the others in their
     * second, m = 5. */
    gd_optimizer_step(adam[1], 1e-9);
    for (int i = 0; i < 3; i++) {
        const gd_tensor *t = gd_params_at(params[1], i);
        double values[6];
        gd_tensor_read_f64(t, values, gd_tensor_count(t));
        const double m = 0.9 * (i ? 5 : 4), moved = m / (1 - pow(0.9, i ? 2 : 4)) / 1e-8 * 1e-9;
        ck_assert_double_eq_tol(values[0], (i ? 2 : 1) - moved, 1e-5);
    }
    gd_optimizer *lion = gd_lion_create(params[1], NULL); /* its m is another */
    told[0] = '\0';
    ck_assert_int_eq(gd_optimizer_load(lion, path, &options), GD_OK);
    ck_assert_ptr_nonnull(strstr(told, "optimizer.m.body is a state of another optimizer\n"));
    ck_assert_int_eq(gd_optimizer_steps(lion), 0);
    ck_assert_no_error(ctx);
    gd_optimizer_free(lion);
    for (int k = 0; k < 2; k++) gd_optimizer_free(adam[k]), gd_params_free(params[k]);
    gd_context_free(ctx);
}

/* ---- All or nothing -------------------------------------------------------------------------- */

static off_t whole;

static void cut_off(void)
{
    ck_assert_int_eq(truncate(path, whole - 8), 0);
}

static gd_status load(const learner *l, bool alone)
{
    return alone ? gd_params_load(l->params, path) : gd_optimizer_load(l->optimizer, path, NULL);
}

static void save(const learner *l, bool alone)
{
    if (alone)
        gd_params_save(l->params, path, NULL, 0);
    else
        gd_optimizer_save(l->optimizer, path, NULL, 0);
    ck_assert_no_error(l->ctx);
}

/* Whichever allocation fails, or from wherever the file is cut off; of the same dtype and
 * of another. */
LOOP_TEST(a_load_is_all_or_nothing, 8)
{
    const gd_dtype dtype = _i & 1 ? GD_FLOAT64 : GD_FLOAT32;
    const bool alone = _i & 2;
    const bool cuts = _i & 4;
    counted = (counted_memory){.fails_at = -1, .instead = cuts ? cut_off : NULL};
    learner one = make(GD_FLOAT32, 3, 5, NULL);
    learner two = make(dtype, 3, 6, &counting);
    learn(&one, 0), learn(&two, 0), learn(&two, 1);
    save(&one, alone);
    FILE *file = fopen(path, "rb");
    fseek(file, 0, SEEK_END);
    whole = (off_t)ftell(file);
    fclose(file);
    const picture before = picture_of(&two);
    int failed = 0;
    gd_status status = GD_ERROR_IO;
    for (int64_t k = 0; k < 400 && status; k++) {
        counted.calls = 0, counted.fails_at = k;
        status = load(&two, alone);
        counted.fails_at = -1;
        const bool cut = counted.calls > k && cuts;
        if (cut) save(&one, alone);
        if (!status) break;
        failed++;
        gd_error_clear(two.ctx);
        const picture after = picture_of(&two);
        ck_assert_uint_eq(after.used, before.used);
        ck_assert_msg(!memcmp(after.bytes, before.bytes, before.used), "call %lld", (long long)k);
    }
    ck_assert_int_eq(status, GD_OK);
    ck_assert_int_gt(failed, 5);
    const picture after = picture_of(&two);
    ck_assert(memcmp(after.bytes, before.bytes, before.used) != 0);
    destroy(&one), destroy(&two);
}

/* An older file stays, whichever allocation fails. */
TEST(a_save_without_memory_leaves_the_older_file)
{
    counted = (counted_memory){.fails_at = -1};
    learner one = make(GD_FLOAT32, 3, 5, NULL), other = make(GD_FLOAT32, 3, 7, NULL);
    learner two = make(GD_FLOAT32, 3, 6, &counting);
    learn(&one, 0), learn(&two, 0), learn(&two, 1);
    save(&one, false);
    gd_status status = GD_ERROR_IO;
    int failed = 0;
    for (int64_t k = 0; k < 400 && status; k++, failed += status != GD_OK) {
        counted.calls = 0, counted.fails_at = k;
        status = gd_optimizer_save(two.optimizer, path, NULL, 0);
        counted.fails_at = -1;
        if (status) ck_assert_error(two.ctx, "out of memory");
        ck_assert_int_eq(gd_optimizer_load(other.optimizer, path, NULL), GD_OK);
        ck_assert_same(&other, status ? &one : &two);
    }
    ck_assert_int_eq(status, GD_OK);
    ck_assert_int_gt(failed, 5);
    destroy(&one), destroy(&two), destroy(&other);
}

/* ---- Refused --------------------------------------------------------------------------------- */

TEST(what_makes_no_sense_is_refused)
{
    learner one = make(GD_FLOAT32, 3, 5, NULL), adam = make(GD_FLOAT32, 4, 5, NULL);
    learn(&one, 0), learn(&adam, 0);
    gd_optimizer_save(one.optimizer, path, NULL, 0);
    ck_assert_int_ne(gd_optimizer_load(adam.optimizer, path, NULL), GD_OK);
    ck_assert_error(adam.ctx, "has the state of adamw, wanted the state of adam");
    static const struct {
        const char *name, *value, *words;
    } rows[] = {
        {"optimizer.steps", NULL, "has \"\" for \"optimizer.steps\" in its metadata, wanted 0 to"},
        {"optimizer.steps", "-1", "has \"-1\" for \"optimizer.steps\""},
        {"optimizer.steps", "9007199254740993", "wanted 0 to 9007199254740992"},
        {"optimizer.steps.w1", "x", "has \"x\" for \"optimizer.steps.w1\""},
        {"optimizer.loss_scale", "3", "factor is 3 and good 0, wanted a power of two"},
        {"optimizer.loss_scale_good", "1e3", "has \"1e3\" for"},
        {"random.seed", "99999999999999999999", "has \"99999999999999999999\" for"},
    };
    const picture before = picture_of(&one);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gd_optimizer_save(one.optimizer, path, NULL, 0);
        state_write(path, rows[i].name, rows[i].value, NULL);
        ck_assert_int_ne(gd_optimizer_load(one.optimizer, path, NULL), GD_OK);
        ck_assert_error(one.ctx, rows[i].words);
        const picture after = picture_of(&one);
        ck_assert_mem_eq(after.bytes, before.bytes, before.used);
    }
    gd_optimizer_swap_average(one.optimizer);
    ck_assert_int_ne(gd_optimizer_save(one.optimizer, path, NULL, 0), GD_OK);
    ck_assert_error(one.ctx, "optimizer_save: the parameters are their average, wanted");
    ck_assert_int_ne(gd_optimizer_load(one.optimizer, path, NULL), GD_OK);
    ck_assert_error(one.ctx, "optimizer_load: the parameters are their average, wanted");
    gd_optimizer_swap_average(one.optimizer);
    gd_optimizer_save(one.optimizer, path, NULL, -1);
    ck_assert_error(one.ctx, "optimizer_save: given -1 metadata");
    gd_optimizer_save(one.optimizer, path, &(gd_named_text){"optimizer.kind", "mine"}, 1);
    ck_assert_error(one.ctx, "\"optimizer.kind\" occurs twice");
    ck_assert_int_eq(gd_optimizer_save(NULL, path, NULL, 0), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_optimizer_load(NULL, path, NULL), GD_ERROR_ARGUMENT);
    destroy(&one), destroy(&adam);
}

CHECK_MAIN_WITHIN("going on", enter_folder, leave_folder)
