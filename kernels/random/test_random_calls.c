/* test_random_calls.c - calls in random order, sensible or not: views of what is freed, backwards
 * through what was written to, steps ended halfway. Every refusal is an error, and at the end all
 * memory is back in the pool. The sanitizers and valgrind check the rest. */
#include "check_main.h"
#include "gradus/gradus.h"

enum { SEQUENCES = 1000, CALLS = 250, MAX_YOURS = 24, MAX_MADE = 1024 };

static gd_context *ctx;
static gd_tensor *yours[MAX_YOURS], *made[MAX_MADE]; /* by the user; by ops in this step */
static int yours_count, made_count;
static gd_params *params;
static gd_optimizer *optimizer;
static uint64_t state;
static int64_t refused, backwards;

/* A number from 0 to n - 1. */
static int pick(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

static gd_tensor *any(void)
{
    if (pick(4) == 0) return gd_params_at(params, pick(2));
    if (made_count && pick(3)) return made[pick(made_count)];
    return yours_count ? yours[pick(yours_count)] : gd_params_at(params, 0);
}

/* What an op returned, unless it is a tensor that we have already (gd_contiguous,
 * gd_recompute). */
static void note(gd_tensor *t)
{
    for (int i = 0; i < yours_count; i++) {
        if (yours[i] == t) return;
    }
    if (t && t != gd_params_at(params, 0) && t != gd_params_at(params, 1) &&
        made_count < MAX_MADE) {
        made[made_count++] = t;
    }
}

static void note_backward(gd_status status)
{
    backwards += status == GD_OK;
}

static gd_tensor *segment(void *user, gd_tensor *const *inputs, int count)
{
    gd_tensor *y = gd_tanh(inputs[0]);
    if (count > 1) y = gd_mul(y, inputs[1]);
    if (user) y = gd_dropout(gd_recompute(ctx, segment, NULL, &y, 1), 0.3);
    return y;
}

/* ---- Tensors and gradients ------------------------------------------------------------------ */

static void make(void)
{
    if (yours_count == MAX_YOURS) return;
    const gd_dtype dtype = pick(10) ? GD_FLOAT32 : (gd_dtype)pick(GD_DTYPE_COUNT);
    const int64_t shape[] = {pick(8) ? 3 : pick(2), 3, 3};
    gd_tensor *t = gd_tensor_create(ctx, dtype, pick(5) ? 2 : pick(4), shape);
    if (!t) return;
    yours[yours_count++] = t;
    if (!gd_dtype_is_real(dtype)) return;
    gd_random_normal(t, 0, 1);
    gd_tensor_set_requires_grad(t, pick(3) > 0);
}

static void change_one(void)
{
    if (made_count && pick(2)) gd_tensor_free(made[pick(made_count)]);
    if (pick(8) == 0) gd_tensor_fill(any(), 1);
    if (pick(8) == 0) gd_tensor_copy(any(), any());
    if (yours_count == 0 || pick(4)) return;
    const int i = pick(yours_count);
    gd_tensor_free(yours[i]);
    yours[i] = yours[--yours_count];
}

static void go_back(void)
{
    note_backward(gd_backward(gd_sum(any(), NULL, 0, false)));
}

static void go_back_from_two(void)
{
    gd_tensor *outputs[] = {any(), any()};
    note_backward(gd_backward_from(outputs, 2, &(gd_backward_options){.keep_tape = pick(2)}));
}

static void read_gradient(void)
{
    gd_tensor *t = any();
    if (gd_grad(t)) note(gd_mul(pick(4) ? gd_detach(gd_grad(t)) : gd_grad(t), t));
    if (pick(3) == 0) gd_grad_clear(t);
}

static void end_step(void)
{
    if (pick(3)) return;
    gd_step_end(ctx);
    made_count = 0;
}

static void update(void)
{
    gd_clip_grad_norm(params, 1, NULL);
    gd_optimizer_step(optimizer, 0.01);
    if (pick(2)) gd_params_clear_grads(params);
}

static void switch_recording(void)
{
    if (!gd_grad_enabled(ctx)) {
        gd_no_grad_end(ctx);
    } else if (pick(6) == 0) {
        gd_no_grad_begin(ctx);
    }
}

/* ---- Ops ------------------------------------------------------------------------------------ */

static void apply_elementwise(void)
{
    gd_tensor *a = any(), *b = any();
    gd_tensor *y[] = {gd_add(a, b), gd_mul(a, b), gd_exp(gd_tanh(a)), gd_maximum(a, b), gd_relu(a)};
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) note(y[i]);
}

static void apply_rows(void)
{
    gd_tensor *a = any(), *ids = gd_tensor_create(ctx, GD_INT32, 1, (int64_t[]){3});
    note(gd_softmax(a, -1));
    note(gd_rms_norm(a, NULL, 1e-5));
    note(gd_matmul_with(a, any(), pick(2), pick(2)));
    note(gd_mean(a, NULL, 0, pick(2)));
    note(gd_cross_entropy(a, ids));
    gd_tensor_free(ids);
}

static void apply_views(void)
{
    gd_tensor *a = any(), *pair[] = {a, any()};
    note(gd_transpose(a, 0, -1));
    note(gd_slice(a, 0, 0, gd_tensor_dim(a, 0)));
    note(gd_reshape(a, 1, (int64_t[]){-1}));
    note(gd_expand(a, GD_SHAPE(2, 3, 3)));
    note(gd_concat(pair, 2, 0));
    note(gd_contiguous(a));
    note(gd_cast(a, (gd_dtype)pick(GD_DTYPE_COUNT)));
}

static void apply_marks(void)
{
    note(gd_detach(any()));
    gd_keep(any());
    gd_retain_grad(any());
    gd_tape_record_norms(ctx, pick(2));
    gd_tape_find_nonfinite(ctx, NULL, 0);
}

static void apply_segment(void)
{
    gd_tensor *inputs[] = {any(), any()};
    note(gd_recompute(ctx, segment, pick(2) ? ctx : NULL, inputs, 1 + pick(2)));
}

/* ---- Sequences ------------------------------------------------------------------------------ */

static void (*const calls[])(void) = {
    make,          change_one,  go_back,           go_back_from_two, read_gradient, end_step,
    update,        apply_rows,  apply_elementwise, apply_rows,       apply_views,   apply_marks,
    apply_segment, apply_views, switch_recording,  go_back,
};

static void open_all(int sequence)
{
    state = (uint64_t)sequence;
    ctx = gd_context_create(&(gd_context_options){.seed = state, .poison = pick(2)});
    params = gd_params_create(ctx, (gd_dtype)pick(GD_INT32));
    gd_params_add(params, "w", GD_SHAPE(3, 3), GD_DECAY);
    gd_params_add(params, "b", GD_SHAPE(3), 0);
    gd_params_finish(params);
    optimizer = gd_adamw_create(params, NULL);
    ck_assert_no_error(ctx);
    yours_count = made_count = 0;
}

/* In either order: a step may outlive what it looks at. */
static void close_all(void)
{
    const bool step_first = pick(2);
    if (step_first) gd_step_end(ctx);
    for (int i = 0; i < yours_count; i++) gd_tensor_free(yours[i]);
    gd_optimizer_free(optimizer);
    gd_params_free(params);
    if (!step_first) gd_step_end(ctx);
    ck_assert_uint_eq(gd_memory(ctx).current_total, 0);
    gd_context_free(ctx);
}

TEST(random_calls)
{
    for (int sequence = 0; sequence < SEQUENCES; sequence++) {
        open_all(sequence);
        for (int i = pick(CALLS); i >= 0; i--) {
            calls[pick((int)(sizeof calls / sizeof *calls))]();
            refused += gd_error(ctx) != NULL;
            gd_error_clear(ctx);
        }
        close_all();
    }
    ck_assert_int_gt(refused, SEQUENCES); /* both happened often */
    ck_assert_int_gt(backwards, SEQUENCES);
}

CHECK_MAIN("random calls")
