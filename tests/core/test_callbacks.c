/* test_callbacks.c - what a program must not do inside its ops, hooks, watchers, segments and other
 * functions that the library calls: every such call is refused in a sentence, or harmless, and the
 * program goes on. Memory that is released is overwritten, so that a later use of it is seen. */
#define _XOPEN_SOURCE 700
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_main.h"
#include "gradus/gradus.h"

/* ---- What there is --------------------------------------------------------------------------- */

static gd_context *ctx;
static gd_params *params, *others;
static gd_tensor *w, *b, *x, *mine,
    *running; /* w and b: parameters; x: of the user, with a gradient */
static gd_tensor *step_tensor;
static gd_optimizer *optimizer;
static gd_graph *graph, *idle;
static gd_group *alone;
static gd_safetensors *file;
static bool done; /* the misdeed, which is done once */

static void *take(void *user, size_t alignment, size_t bytes)
{
    (void)user;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give(void *user, void *memory, size_t bytes)
{
    (void)user;
    if (memory) memset(memory, 0xdd, bytes);
    free(memory);
}

/* ---- Misdeeds -------------------------------------------------------------------------------- */

static gd_tensor *neg_segment(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_neg(in[0]);
}

static gd_status no_step(void *user)
{
    (void)user;
    return GD_OK;
}

static void no_hook(void *user, gd_tensor *leaf)
{
    (void)user, (void)leaf;
}

static double value;
static gd_update_report report;

/* Each is one call of the interface. */
#define MISDEEDS(DO)                                                                  \
    DO(params_free, gd_params_free(params))                                           \
    DO(params_free_of_others, gd_params_free(others))                                 \
    DO(optimizer_free, gd_optimizer_free(optimizer))                                  \
    DO(graph_free, gd_graph_free(graph))                                              \
    DO(graph_free_of_another, gd_graph_free(idle))                                    \
    DO(group_free, gd_group_free(alone))                                              \
    DO(context_free, gd_context_free(ctx))                                            \
    DO(tensor_free_of_x, gd_tensor_free(x))                                           \
    DO(tensor_free_of_mine, gd_tensor_free(mine))                                     \
    DO(tensor_free_of_step, gd_tensor_free(step_tensor))                              \
    DO(tensor_free_of_parameter, gd_tensor_free(w))                                   \
    DO(tensor_free_of_grad, gd_tensor_free(gd_grad(x)))                               \
    DO(safetensors_close, gd_safetensors_close(file))                                 \
    DO(step_end, gd_step_end(ctx))                                                    \
    DO(backward, gd_backward(gd_sum_all(x)))                                          \
    DO(backward_of_step, gd_backward(step_tensor))                                    \
    DO(recompute, gd_recompute(ctx, neg_segment, NULL, &x, 1))                        \
    DO(graph_run, gd_graph_run(graph, no_step, NULL))                                 \
    DO(graph_create, gd_graph_free(gd_graph_create(ctx, NULL)))                       \
    DO(params_create, gd_params_free(gd_params_create(ctx, GD_FLOAT32)))              \
    DO(params_add, gd_params_add(params, "late", GD_SHAPE(2), 0))                     \
    DO(params_finish, gd_params_finish(params))                                       \
    DO(params_clear_grads, gd_params_clear_grads(params))                             \
    DO(params_scale_grads, gd_params_scale_grads(params, 2))                          \
    DO(params_set_factors, gd_params_set_factors(params, w, 2, 2))                    \
    DO(clip_grad_norm, gd_clip_grad_norm(params, 1, &value))                          \
    DO(adamw_create, gd_optimizer_free(gd_adamw_create(params, NULL)))                \
    DO(optimizer_step, gd_optimizer_step(optimizer, 0.1))                             \
    DO(optimizer_update, gd_optimizer_update(optimizer, 1))                           \
    DO(optimizer_backward, gd_optimizer_backward(optimizer, gd_sum_all(w), 1))        \
    DO(optimizer_report, gd_optimizer_report(optimizer, true, &report))               \
    DO(optimizer_average, gd_optimizer_average(optimizer, 0.5))                       \
    DO(optimizer_swap_average, gd_optimizer_swap_average(optimizer))                  \
    DO(optimizer_set_steps, gd_optimizer_set_steps(optimizer, 3))                     \
    DO(optimizer_save, gd_optimizer_save(optimizer, "/nowhere/file", NULL, 0))        \
    DO(optimizer_load, gd_optimizer_load(optimizer, "/nowhere/file", NULL))           \
    DO(params_load, gd_params_load(params, "/nowhere/file"))                          \
    DO(params_replicate, gd_params_replicate(others, alone, NULL))                    \
    DO(memory_trim, gd_memory_trim(ctx))                                              \
    DO(synchronize, gd_synchronize(ctx))                                              \
    DO(error_clear, gd_error_clear(ctx))                                              \
    DO(on_gradient, gd_on_gradient(ctx, no_hook, NULL))                               \
    DO(on_gradient_none, gd_on_gradient(ctx, NULL, NULL))                             \
    DO(watch_ops_none, gd_watch_ops(ctx, NULL, NULL))                                 \
    DO(no_grad_begin, gd_no_grad_begin(ctx))                                          \
    DO(no_grad_end, gd_no_grad_end(ctx))                                              \
    DO(repeat_begin, gd_repeat_begin(ctx))                                            \
    DO(repeat_end, gd_repeat_end(ctx))                                                \
    DO(set_requires_grad, gd_tensor_set_requires_grad(x, false))                      \
    DO(set_requires_grad_of_w, gd_tensor_set_requires_grad(w, false))                 \
    DO(grad_clear, gd_grad_clear(x))                                                  \
    DO(retain_grad, gd_retain_grad(step_tensor))                                      \
    DO(keep, gd_keep(step_tensor))                                                    \
    DO(tensor_fill, gd_tensor_fill(x, 3))                                             \
    DO(tensor_fill_of_w, gd_tensor_fill(w, 3))                                        \
    DO(tensor_copy, gd_tensor_copy(x, mine))                                          \
    DO(tensor_create, gd_tensor_free(gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(9)))) \
    DO(random_set, gd_random_set(ctx, (gd_random_state){.seed = 3}))                  \
    DO(random_normal, gd_random_normal(x, 0, 1))                                      \
    DO(tape_norms, gd_tape_record_norms(ctx, true))                                   \
    DO(op, gd_mul(x, x))

#define NAME(name, call) #name,
static const char *const misdeed_names[] = {MISDEEDS(NAME)};
enum { MISDEED_COUNT = sizeof misdeed_names / sizeof *misdeed_names };

static int misdeed;

static void misbehave(void)
{
    int which = 0;
    if (done) return;
    done = true;
#define DO_IT(name, call) \
    if (which++ == misdeed) (void)(call);
    MISDEEDS(DO_IT)
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

enum {
    OP_SHAPE,
    OP_FORWARD,
    OP_BACKWARD,
    HOOK,
    WATCHER,
    WATCHER_AFTER,
    WATCHER_BACKWARD,
    SEGMENT,
    SEGMENT_AGAIN,
    GRAPH_FUNCTION,
    OUTPUT,
    CALLBACKS
};
static const char *const callback_names[CALLBACKS] = {
    "op's shape",       "op's forward",     "op's backward",         "hook",
    "watcher before",   "watcher after",    "watcher of a backward", "segment",
    "repeated segment", "graph's function", "output of a file"};

static int callback;

static void in_callback(int which)
{
    if (which == callback) misbehave();
}

static gd_status shape(const gd_call *call, gd_shapes *out)
{
    (void)call, (void)out;
    in_callback(OP_SHAPE);
    return GD_OK;
}

static gd_status forward(const gd_call *call)
{
    in_callback(OP_FORWARD);
    const float *from = gd_tensor_data(call->input[0]);
    float *to = gd_tensor_data(call->output[0]);
    for (int i = 0; from && to && i < 3; i++) to[i] = from[i];
    return GD_OK;
}

static gd_status backward(const gd_call *call)
{
    in_callback(OP_BACKWARD);
    const float *from = gd_tensor_data(call->doutput[0]);
    float *to = gd_tensor_data(call->dinput[0]);
    for (int i = 0; from && to && i < 3; i++)
        to[i] = call->accumulate[0] ? to[i] + from[i] : from[i];
    return GD_OK;
}

static const gd_op identity = {
    .name = "identity",
    .signature = "x[...] -> y[...]",
    .shape = shape,
    .forward = {[GD_CPU] = forward},
    .backward = {[GD_CPU] = backward},
    .backward_reads_inputs = GD_BIT(0),
};

static void hook(void *user, gd_tensor *leaf)
{
    (void)user, (void)leaf;
    in_callback(HOOK);
}

static void watcher(void *user, const gd_call *call, bool goes_back, bool begins)
{
    (void)user, (void)call;
    if (!goes_back) in_callback(begins ? WATCHER : WATCHER_AFTER);
    if (goes_back && begins) in_callback(WATCHER_BACKWARD);
}

static int segment_runs;

static gd_tensor *segment(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    gd_tensor *y = gd_mul(in[0], w);
    in_callback(segment_runs++ ? SEGMENT_AGAIN : SEGMENT);
    return gd_add(gd_exp(y), b);
}

static gd_status work(void *user)
{
    (void)user;
    segment_runs = 0;
    gd_tensor *y = gd_mul(gd_exp(x), mine);
    step_tensor = y;
    in_callback(GRAPH_FUNCTION);
    y = gd_apply(&identity, &y, 1, NULL);
    y = gd_recompute(ctx, segment, NULL, &y, 1);
    y = gd_mul(y, gd_apply(&identity, &w, 1, NULL));
    gd_optimizer_backward(optimizer, gd_sum_all(y), 1);
    gd_optimizer_update(optimizer, 1);
    return gd_params_clear_grads(params);
}

static bool sink(void *user, const void *bytes, size_t count)
{
    (void)user, (void)bytes, (void)count;
    in_callback(OUTPUT);
    return true;
}

/* ---- One misdeed ----------------------------------------------------------------------------- */

static void make_all(void)
{
    const gd_context_options options = {
        .threads = 1, .poison = true, .allocator = {.allocate = take, .release = give}};
    ctx = gd_context_create(&options);
    params = gd_params_create(ctx, GD_FLOAT32), others = gd_params_create(ctx, GD_FLOAT32);
    w = gd_params_add(params, "w", GD_SHAPE(3), GD_DECAY),
    b = gd_params_add(params, "b", GD_SHAPE(3), 0);
    running = gd_params_add_buffer(params, "running", GD_FLOAT32, GD_SHAPE(3));
    gd_params_add(others, "v", GD_SHAPE(3), 0);
    gd_params_finish(params), gd_params_finish(others);
    x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 2, 3});
    mine = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){3, 2, 1});
    gd_tensor_set_requires_grad(x, true);
    optimizer = gd_adamw_create(params, NULL);
    gd_optimizer_set_rate(optimizer, 0.1);
    graph = gd_graph_create(ctx, NULL), idle = gd_graph_create(ctx, NULL);
    alone = gd_group_create(ctx, NULL);
    static const unsigned char bytes[] = "\x02\0\0\0\0\0\0\0{}";
    file = gd_safetensors_wrap(ctx, bytes, 10);
}

/* Everything that the misdeed may have freed is left alone. */
static void run_all(void)
{
    const gd_named_tensor named = {"x", x};
    gd_on_gradient(ctx, hook, NULL);
    gd_watch_ops(ctx, watcher, NULL);
    gd_graph_run(graph, work, NULL);
    if (callback == OUTPUT)
        gd_safetensors_write_to(ctx, &(gd_output){.name = "sink", .write = sink}, &named, 1, NULL,
                                0);
}

/* Whether the misdeed must be refused: what it frees is in use, whatever else is, or what it begins
 * or ends is under way. */
static bool must_be_refused(void)
{
    static const char *const names[] = {"params_free",  "params_free_of_others", "optimizer_free",
                                        "graph_free",   "graph_free_of_another", "group_free",
                                        "context_free", "tensor_free_of_x"};
    const char *name = misdeed_names[misdeed];
    const bool tensor = !strcmp(name, "tensor_free_of_x");
    if (!strcmp(name, "backward") || !strcmp(name, "step_end"))
        return callback <= HOOK || callback == SEGMENT;
    if (callback == OUTPUT || (tensor && (callback == SEGMENT || callback == GRAPH_FUNCTION)))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* 0: refused or harmless. In a process of its own. */
static int run_one(void)
{
    make_all();
    run_all();
    char words[256] = "";
    if (gd_error(ctx)) snprintf(words, sizeof words, "%s", gd_error(ctx));
    const bool freed = !gd_error(ctx) && done; /* perhaps; then its handle is not used again */
    if (getenv("GRADUS_TEST_VERBOSE"))
        printf("%s / %s: %s\n", callback_names[callback], misdeed_names[misdeed],
               words[0] ? words
               : freed  ? "harmless"
                        : "not reached"),
            fflush(stdout);
    gd_error_clear(ctx);
    const char *name = misdeed_names[misdeed];
    if (!freed || strncmp(name, "params_free", 11) != 0) {
        /* A second step, without the misdeed, of which nothing may be broken. */
        gd_step_end(ctx);
        gd_error_clear(ctx);
        if (!strstr(name, "free") && !strstr(name, "close")) gd_graph_run(graph, work, NULL);
    }
    gd_error_clear(ctx);
    if (!freed || strcmp(name, "safetensors_close") != 0) gd_safetensors_close(file);
    if (!freed || strcmp(name, "group_free") != 0) gd_group_free(alone);
    if (!freed || strcmp(name, "optimizer_free") != 0) gd_optimizer_free(optimizer);
    if (!freed || strcmp(name, "params_free") != 0) gd_params_free(params);
    if (!freed || strcmp(name, "params_free_of_others") != 0) gd_params_free(others);
    if (!freed || strcmp(name, "graph_free") != 0) gd_graph_free(graph);
    if (!freed || strcmp(name, "graph_free_of_another") != 0) gd_graph_free(idle);
    if (!freed || strcmp(name, "context_free") != 0) gd_context_free(ctx);
    if (must_be_refused() && !strstr(words, ": called from inside ")) return 4;
    return done ? 0 : 3;
}

LOOP_TEST(callbacks_may_do_nothing_that_breaks, CALLBACKS)
{
    int broken = 0;
    char list[4000] = "";
    callback = _i;
    for (misdeed = 0; misdeed < MISDEED_COUNT; misdeed++) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            _exit(run_one());
        }
        int status = 0;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        broken++;
        snprintf(list + strlen(list), sizeof list - strlen(list), "  %s: %s %d\n",
                 misdeed_names[misdeed], WIFSIGNALED(status) ? "signal" : "exit",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    ck_assert_msg(!broken, "in an %s %d of %d misdeeds break the program:\n%s", callback_names[_i],
                  broken, (int)MISDEED_COUNT, list);
}

CHECK_MAIN("callbacks")
