/* step.c - where the time of a training step goes: the transformer of train/, op by op, forward and
 * backward, against a copy and a matrix product that are measured in the same run. */
#include "bench.h"
#include "model.h"
#include "programs/terminal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The models ---------------------------------------------------------------------------- */

static const struct known {
    const char *name;
    model_config config;
    int64_t batch, context;
} models[] = {
#define MODEL(name, V, C, L, H, F, T, B, p)                                                  \
    {name,                                                                                   \
     {.vocab = V, .layers = L, .dim = C, .heads = H, .kv_heads = H, .ffn = F, .dropout = p}, \
     B,                                                                                      \
     T},
#include "models.def"
};

/* NULL for the first. An unknown name is an error that lists the models. */
static const struct known *find_model(const char *name)
{
    if (!name) return models;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (!strcmp(models[i].name, name)) return &models[i];
    }
    terminal_message(
        "gradus-bench",
        "unknown model \"%s\", wanted tiny, toy, small, small-50257, shakespeare or chars", name);
    return NULL;
}

/* What a copy moves and a product computes, a second. */
typedef struct ceilings {
    double bytes, flops;
} ceilings;

/* ---- A step --------------------------------------------------------------------------------- */

/* What is timed under one name: an op's forward or backward, or another part of the step. */
typedef struct part {
    const char *name, *pass;
    int64_t calls, launches; /* launches -1: not known */
    double seconds, bytes, flops;
} part;

enum { PARTS_MOST = 64, MARKS_MOST = 8192 };

typedef struct stepper {
    const bench_options *options;
    const struct known *known;
    gd_context *ctx;
    model m;
    gd_optimizer *adamw;
    gd_graph *graph;
    gd_tensor *tokens, *targets;
    double loss;
    size_t peak; /* bytes of memory in a step */
    /* While ops are watched: */
    device_clock *clock;
    part parts[PARTS_MOST];
    int part_count, marks, owner[MARKS_MOST / 2]; /* marks 2 i and 2 i + 1 are those of owner[i] */
    bool counting;
} stepper;

/* Its number among the parts; the last one takes what there is no room for. */
static int part_of(stepper *s, const char *name, const char *pass)
{
    for (int i = 0; i < s->part_count; i++) {
        if (!strcmp(s->parts[i].name, name) && !strcmp(s->parts[i].pass, pass)) return i;
    }
    if (s->part_count == PARTS_MOST) return PARTS_MOST - 1;
    s->parts[s->part_count] = (part){.name = name, .pass = pass};
    return s->part_count++;
}

static void begin_part(stepper *s, int number)
{
    s->parts[number].calls++;
    if (s->counting) {
        device_clock_count_begin(s->clock);
    } else if (s->marks < MARKS_MOST) {
        s->owner[s->marks / 2] = number;
        device_clock_mark(s->clock, s->marks++);
    }
}

static void end_part(stepper *s, int number)
{
    if (s->counting) {
        const int64_t launches = device_clock_count_end(s->clock);
        part *p = &s->parts[number];
        p->launches = launches < 0 ? -1 : p->launches + launches;
    } else if (s->marks % 2) {
        device_clock_mark(s->clock, s->marks++);
    }
}

static void watch(void *user, const gd_call *call, bool backward, bool begins)
{
    stepper *s = user;
    const int number = part_of(s, call->op->name, backward ? "backward" : "forward");
    if (!begins) {
        end_part(s, number);
        return;
    }
    s->parts[number].bytes += bench_bytes(call, backward);
    s->parts[number].flops += bench_flops(call, backward);
    begin_part(s, number);
}

/* Times a part of a step that is not an op. `numbers` are read or written. */
static int begin_rest(stepper *s, const char *name, double numbers)
{
    if (!s->clock || s->counting) return -1;
    const int number = part_of(s, name, "update");
    s->parts[number].bytes += numbers;
    s->parts[number].launches = -1;
    begin_part(s, number);
    return number;
}

static void end_rest(stepper *s, int number)
{
    if (number >= 0) end_part(s, number);
}

/* Forward, backward, clip and update: what gradus-train does with a batch that is on the device. A
 * function for gd_graph_run. */
static gd_status learn(void *user)
{
    stepper *s = user;
    const double elements = (double)gd_params_elements(s->m.params);
    const double size = (double)gd_dtype_size(gd_tensor_dtype(s->m.embedding));
    gd_optimizer_backward(s->adamw, model_loss(&s->m, s->tokens, s->targets), 1);
    /* the gradient is read for its norm; it, two states and a value or its master are read, all but
     * the gradient written */
    const int rest = begin_rest(s, "adamw", elements * (8 * 4 + (size == 2 ? 2 : 0)));
    gd_optimizer_update(s->adamw, 1);
    end_rest(s, rest);
    return gd_params_clear_grads(s->m.params);
}

/* As gradus-train runs it, and reads the losses of steps that are done. */
static void run_step(stepper *s)
{
    gd_update_report report;
    gd_graph_run(s->graph, learn, s);
    while (gd_optimizer_report(s->adamw, false, &report)) s->loss = report.loss;
}

/* Op by op, for the watcher. */
static void run_watched(stepper *s)
{
    learn(s);
    gd_step_end(s->ctx);
}

static gd_status begin(stepper *s)
{
    const bench_options *o = s->options;
    const int64_t batch = o->batch ? o->batch : s->known->batch;
    const int64_t shape[2] = {batch, s->known->context};
    const gd_adamw_options adamw = {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
    s->ctx = bench_context(o);
    if (gd_error(s->ctx)) return gd_error_status(s->ctx);
    model_create(&s->m, s->ctx, o->dtype, &s->known->config);
    s->m.training = true;
    s->adamw = gd_adamw_create(s->m.params, &adamw);
    gd_optimizer_set_loss_scale(s->adamw, gd_loss_scale_begin(o->dtype));
    s->graph = gd_graph_create(s->ctx, NULL);
    gd_optimizer_set_rate(s->adamw, 1e-4);
    s->tokens = gd_tensor_create(s->ctx, GD_INT32, 2, shape);
    s->targets = gd_tensor_create(s->ctx, GD_INT32, 2, shape);
    gd_random_integers(s->tokens, 0, s->known->config.vocab);
    gd_random_integers(s->targets, 0, s->known->config.vocab);
    return gd_error_status(s->ctx);
}

static void end(stepper *s)
{
    device_clock_free(s->clock);
    gd_graph_free(s->graph);
    gd_optimizer_free(s->adamw);
    gd_tensor_free(s->tokens);
    gd_tensor_free(s->targets);
    if (s->m.params) model_free(&s->m);
    gd_context_free(s->ctx);
}

/* ---- Measuring ------------------------------------------------------------------------------ */

/* Seconds of a step whose parts are not timed: the median over rounds of several. */
static double time_steps(stepper *s, double *rounds, int count)
{
    enum { WARM_UP = 3 };
    gd_update_report report;
    gd_memory_reset_peak(s->ctx); /* the first step is not replayed: it shows what one needs */
    for (int i = 0; i < WARM_UP; i++) run_step(s);
    gd_synchronize(s->ctx);
    double start = bench_now();
    run_step(s);
    gd_synchronize(s->ctx);
    const double one = bench_now() - start;
    const int steps = one < 0.02 ? 10 : 1; /* short ones in tens, so that a wait costs little */
    for (int k = 0; k < count && !gd_error(s->ctx); k++) {
        start = bench_now();
        for (int i = 0; i < steps; i++) run_step(s);
        gd_synchronize(s->ctx);
        rounds[k] = (bench_now() - start) / steps;
    }
    while (gd_optimizer_report(s->adamw, true, &report)) s->loss = report.loss;
    s->peak = gd_memory(s->ctx).peak_total;
    return bench_median(rounds, count);
}

/* Counts the launches of each part in one step, and times the parts in `count` others. */
static gd_status watch_steps(stepper *s, int count)
{
    s->clock = device_clock_create(s->ctx, MARKS_MOST);
    if (!s->clock) return gd_fail(s->ctx, GD_ERROR_MEMORY, "out of memory: a clock");
    gd_watch_ops(s->ctx, watch, s);
    s->counting = true;
    run_watched(s);
    s->counting = false;
    for (int i = 0; i < s->part_count; i++) {
        s->parts[i].calls = 0;
        s->parts[i].bytes = s->parts[i].flops = 0;
    }
    for (int k = 0; k < count && !gd_error(s->ctx); k++) {
        s->marks = 0;
        gd_synchronize(s->ctx);
        device_clock_hold(s->clock);
        run_watched(s);
        gd_synchronize(s->ctx);
        for (int i = 0; i + 1 < s->marks; i += 2) {
            s->parts[s->owner[i / 2]].seconds += device_clock_seconds(s->clock, i, i + 1);
        }
    }
    gd_watch_ops(s->ctx, NULL, NULL);
    for (int i = 0; i < s->part_count; i++) {
        part *p = &s->parts[i];
        p->calls /= count, p->seconds /= count, p->bytes /= count, p->flops /= count;
    }
    return gd_error_status(s->ctx);
}

/* Seconds of the best of some runs of something that is queued. */
static double best_of(const stepper *s, void (*run)(gd_tensor *const *t), gd_tensor *const *t)
{
    gd_context *ctx = s->ctx;
    double best = INFINITY;
    for (int i = 0; i < 8 && i < s->options->repeats; i++) {
        enum { RUNS = 4 };
        gd_synchronize(ctx);
        const double start = bench_now();
        for (int k = 0; k < RUNS; k++) run(t);
        gd_synchronize(ctx);
        best = fmin(best, (bench_now() - start) / RUNS);
        gd_step_end(ctx);
    }
    return best;
}

static void copy(gd_tensor *const *t)
{
    gd_tensor_copy(t[1], t[0]);
}

static void multiply(gd_tensor *const *t)
{
    gd_tensor_free(gd_matmul_with(t[0], t[1], false, true));
}

/* Bytes a second of a copy, or operations a second of a product of square matrices. */
static double ceiling(stepper *s, bool product)
{
    const bool gpu = gd_context_device(s->ctx) != GD_CPU;
    const int64_t side = product ? gpu ? 8192 : 1024 : gpu ? 16384 : 4096;
    const int64_t shape[2] = {side, side};
    gd_tensor *t[2];
    gd_no_grad_begin(s->ctx);
    for (int i = 0; i < 2; i++) {
        t[i] = gd_tensor_create(s->ctx, s->options->dtype, 2, shape);
        gd_random_normal(t[i], 0, 1);
    }
    const double seconds = best_of(s, product ? multiply : copy, t), n = (double)side;
    const double size = (double)gd_dtype_size(s->options->dtype);
    for (int i = 0; i < 2; i++) gd_tensor_free(t[i]);
    gd_no_grad_end(s->ctx);
    return (product ? 2 * n * n * n : 2 * n * n * size) / seconds;
}

/* ---- Printing ------------------------------------------------------------------------------- */

static int by_time(const void *left, const void *right)
{
    const part *a = left, *b = right;
    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

/* The larger of what it moves and what it computes, each as a share of its ceiling. */
static double share_of_ceiling(const part *p, const ceilings *c, bool *computes)
{
    const double moved = p->bytes / p->seconds / c->bytes;
    const double computed = p->flops / p->seconds / c->flops;
    *computes = computed > moved;
    return *computes ? computed : moved;
}

static void print_part(const part *p, double total, const ceilings *c, bool json)
{
    bool computes;
    const double share = share_of_ceiling(p, c, &computes);
    const double gbps = p->bytes / p->seconds * 1e-9, tflops = p->flops / p->seconds * 1e-12;
    if (json) {
        printf("{\"name\": \"%s\", \"pass\": \"%s\", \"calls\": %lld, ", p->name, p->pass,
               (long long)p->calls);
        if (p->launches >= 0) printf("\"launches\": %lld, ", (long long)p->launches);
        printf("\"ms\": %.6g, \"share\": %.4f, \"gbps\": %.6g, \"tflops\": %.6g, "
               "\"share_of_ceiling\": %.4f}\n",
               p->seconds * 1e3, p->seconds / total, gbps, tflops, share);
        return;
    }
    char launches[24] = "-";
    if (p->launches >= 0) snprintf(launches, sizeof launches, "%lld", (long long)p->launches);
    printf("%-22s %-8s %5lld %8s %9.3f %6.1f%% %10.1f %s %5.2f\n", p->name, p->pass,
           (long long)p->calls, launches, p->seconds * 1e3, 100 * p->seconds / total,
           computes ? tflops * 1e3 : gbps, computes ? "GFLOP/s" : "GB/s   ", share);
}

static void print_head(const stepper *s, double seconds, double total, const ceilings *c)
{
    const int64_t batch = gd_tensor_dim(s->tokens, 0), context = gd_tensor_dim(s->tokens, 1);
    const double tokens = (double)(batch * context) / seconds;
    const char *dtype = s->options->tf32 ? "tf32" : gd_dtype_name(s->options->dtype);
    const double flops = model_flops_per_token(&s->m, context) * tokens;
    if (s->options->json) {
        printf("{\"program\": \"gradus-bench\", \"benchmark\": \"step\", \"model\": \"%s\", "
               "\"dtype\": \"%s\", \"device\": \"%s\", \"batch\": %lld, \"context\": %lld, "
               "\"ms\": %.6g, \"watched_ms\": %.6g, \"tokens_per_second\": %.6g, "
               "\"peak_bytes\": %zu, \"loss\": %.6g, \"tflops\": %.6g, \"ceiling_gbps\": %.6g, "
               "\"ceiling_tflops\": %.6g}\n",
               s->known->name, dtype, gd_context_device_name(s->ctx), (long long)batch,
               (long long)context, seconds * 1e3, total * 1e3, tokens, s->peak, s->loss,
               flops * 1e-12, c->bytes * 1e-9, c->flops * 1e-12);
        return;
    }
    printf("%s %s, [%lld, %lld] tokens, %s\n", s->known->name, dtype, (long long)batch,
           (long long)context, gd_context_device_name(s->ctx));
    printf("a step: %.3f ms, %.4g tokens/s, %.4g TFLOP/s, peak memory %.1f MiB, loss %.4f\n",
           seconds * 1e3, tokens, flops * 1e-12, (double)s->peak / 1048576, s->loss);
    printf("ceilings: %.1f GB/s (copy), %.1f GFLOP/s (product); the parts below add up to %.3f "
           "ms\n\n",
           c->bytes * 1e-9, c->flops * 1e-9, total * 1e3);
    printf("%-22s %-8s %5s %8s %9s %7s %10s         ceiling\n", "op", "pass", "calls", "launches",
           "ms", "share", "speed");
}

static gd_status measure(stepper *s, double *rounds)
{
    const int count = s->options->repeats;
    if (begin(s)) return gd_error_status(s->ctx);
    const double seconds = time_steps(s, rounds, count);
    if (gd_error(s->ctx) || watch_steps(s, count)) return gd_error_status(s->ctx);
    const ceilings c = {ceiling(s, false), ceiling(s, true)};
    if (gd_error(s->ctx)) return gd_error_status(s->ctx);
    double total = 0;
    for (int i = 0; i < s->part_count; i++) total += s->parts[i].seconds;
    qsort(s->parts, (size_t)s->part_count, sizeof *s->parts, by_time);
    print_head(s, seconds, total, &c);
    for (int i = 0; i < s->part_count; i++) print_part(&s->parts[i], total, &c, s->options->json);
    return GD_OK;
}

int bench_step(const bench_options *o)
{
    stepper *s = calloc(1, sizeof *s);
    double *rounds = calloc((size_t)o->repeats, sizeof *rounds);
    int status = EXIT_FAILURE;
    if (s && rounds) {
        s->options = o;
        s->known = find_model(o->model);
        if (!s->known) {
            status = 2; /* it was said */
        } else if (!measure(s, rounds)) {
            status = EXIT_SUCCESS;
        } else {
            terminal_message("gradus-bench", "%s", gd_error(s->ctx));
        }
        end(s);
    } else {
        fprintf(stderr, "gradus-bench: out of memory\n");
    }
    free(rounds);
    free(s);
    return status;
}
