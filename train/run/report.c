/* report.c - see report.h. */
#include "report.h"
#include "clock.h"
#include "console.h"
#include "fnv.h"
#include "peak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- The clock ---------------------------------------------------------------------------- */

report_clock report_clock_start(const model *m, const train_options *o, int64_t first)
{
    double peak = peak_flops(gd_context_device_name(m->ctx), o->dtype, o->base.tf32) *
                  gd_group_ranks(o->group);
    return (report_clock){.first = first,
                          .steps = o->steps,
                          .max_seconds = o->max_seconds,
                          .tokens_per_step = o->accumulate * o->batch * o->context,
                          .peak_rate = peak / model_flops_per_token(m, o->context),
                          .start = clock_now(),
                          .device = NAN};
}

/* From the end of one step to that of the next, on one clock, less the pauses between them. A pause
 * begins when the host has waited for a step, and nothing is in flight. */
void report_clock_step(report_clock *clock, double device)
{
    clock->read = clock_now();
    const double since = isnan(clock->device) ? clock->read - clock->start : device - clock->device;
    const double took = fmax(since - (clock->paused - clock->paused_then), 0);
    clock->seconds += took;
    if (isnan(clock->device)) clock->first_took = took;
    clock->since_report += took;
    clock->steps_since++;
    clock->device = device;
    clock->paused_then = clock->paused;
}

void report_clock_resume(report_clock *clock)
{
    clock->paused += clock_now() - (isnan(clock->device) ? clock->start : clock->read);
}

double report_clock_seconds(const report_clock *clock)
{
    return clock_now() - clock->start - clock->paused;
}

/* ---- Lines -------------------------------------------------------------------------------- */

/* 812, 41.3k, 1.20M */
static void format_rate(double rate, char text[16])
{
    if (rate < 1e3) {
        snprintf(text, 16, "%.0f", rate);
    } else if (rate < 1e6) {
        snprintf(text, 16, "%.1fk", rate / 1e3);
    } else {
        snprintf(text, 16, "%.2fM", rate / 1e6);
    }
}

/* Means over the steps since the last line. */
static double mean_seconds(const report_clock *clock)
{
    return clock->since_report / (double)(clock->steps_since ? clock->steps_since : 1);
}

static double mean_rate(const report_clock *clock)
{
    double seconds = mean_seconds(clock);
    return seconds > 0 ? (double)clock->tokens_per_step / seconds : 0;
}

enum { LINE = 256 };

/* 0:23, 1:02:03: the remaining time for the steps, or until --max-seconds. */
static void format_eta(const report_clock *clock, int64_t step, char text[32])
{
    const int64_t done = step - clock->first;
    const double each =
        done > 1 ? (clock->seconds - clock->first_took) / (double)(done - 1) : clock->seconds;
    double left = (double)(clock->steps - step) * each;
    if (clock->max_seconds > 0) left = fmin(left, fmax(clock->max_seconds - clock->seconds, 0));
    long long seconds = (long long)(left + 0.5), minutes = seconds / 60;
    if (minutes < 60)
        snprintf(text, 32, "%lld:%02lld", minutes, seconds % 60);
    else
        snprintf(text, 32, "%lld:%02lld:%02lld", minutes / 60, minutes % 60, seconds % 60);
}

static void format_step(const report_clock *clock, const gd_context *ctx, const report_values *v,
                        char line[LINE])
{
    char val[32] = "", mfu[32] = "", rate[16], eta[32];
    if (!isnan(v->val)) snprintf(val, sizeof val, " | val %.4f", v->val);
    if (clock->peak_rate > 0)
        snprintf(mfu, sizeof mfu, " | mfu %.1f%%", 100 * mean_rate(clock) / clock->peak_rate);
    format_rate(mean_rate(clock), rate);
    format_eta(clock, v->step, eta);
    snprintf(line, LINE,
             "step %lld/%lld | loss %.4f%s | norm %.2f | lr %.1e | %.1f ms | %s tok/s%s | "
             "mem %.0f MiB | eta %s",
             (long long)v->step, (long long)clock->steps, console_number(v->mean_loss), val,
             console_number(v->norm), v->lr, 1e3 * mean_seconds(clock), rate, mfu,
             ceil((double)gd_memory(ctx).peak_total / 1048576), eta);
}

void report_step(report_clock *clock, run_log *log, const gd_context *ctx, const report_values *v)
{
    char line[LINE];
    format_step(clock, ctx, v, line);
    console_erase();
    printf("%s\n", line);
    fflush(stdout);
    log_write(log, &(log_line){.step = v->step,
                               .loss = v->loss,
                               .mean_loss = v->mean_loss,
                               .val = v->val,
                               .norm = v->norm,
                               .lr = v->lr,
                               .ms = 1e3 * mean_seconds(clock),
                               .tokens_per_second = mean_rate(clock),
                               .seconds = clock->seconds});
    clock->since_report = 0;
    clock->steps_since = 0;
}

void report_validation(run_log *log, int64_t step, int64_t steps, double val)
{
    printf("step %lld/%lld | val %.4f\n", (long long)step, (long long)steps, console_number(val));
    fflush(stdout);
    log_write(log, &(log_line){.step = step,
                               .loss = NAN,
                               .mean_loss = NAN,
                               .val = val,
                               .norm = NAN,
                               .lr = NAN,
                               .ms = NAN,
                               .tokens_per_second = NAN,
                               .seconds = NAN});
}

void report_progress(report_clock *clock, const gd_context *ctx, const report_values *v)
{
    char line[LINE];
    if (clock->read - clock->drawn < 0.1 || !console_is_live()) return;
    format_step(clock, ctx, v, line);
    console_draw(line);
    clock->drawn = clock->read;
}

/* Before hours of training, the user must know that nothing will be saved. */
static void print_checkpoints(const train_options *o)
{
    if (!o->out) {
        printf("out    none: no checkpoint is saved without --out DIR\n");
        return;
    }
    printf("out    %s: a checkpoint ", o->out);
    if (o->checkpoint_every > 0) printf("every %lld steps and ", (long long)o->checkpoint_every);
    printf("at the end");
    if (o->keep > 0) printf(", the newest %lld are kept", (long long)o->keep);
    if (o->keep > 0 && o->keep_every > 0)
        printf(", and those of every %lld steps", (long long)o->keep_every);
    printf("\n");
}

void report_configuration(const model *m, const dataset *data, const train_options *o)
{
    const model_config *c = &m->config;
    char several[32] = "";
    if (o->group) snprintf(several, sizeof several, "%d processes on ", gd_group_ranks(o->group));
    printf("gradus-train %s on %s%s, %s, seed %lld\n", gd_version(), several,
           gd_context_device_name(m->ctx), gd_dtype_name(o->dtype), (long long)o->seed);
    static const char *const kinds[] = {"ids", "bytes", "pieces"};
    static const char *const schedules[] = {[GD_SCHEDULE_CONSTANT] = "constant",
                                            [GD_SCHEDULE_LINEAR] = "linear",
                                            [GD_SCHEDULE_COSINE] = "cosine",
                                            [GD_SCHEDULE_WSD] = "wsd"};
    printf("text   %s: %lld tokens (%s, %lld different), %lld more for validation%s%s\n",
           o->data ? o->data : o->tokens, (long long)data->train.length,
           kinds[data->tokenizer.kind], (long long)data->tokenizer.vocab,
           (long long)data->validation.length, o->val_data ? ": " : "",
           o->val_data ? o->val_data : "");
    if (o->eval_batches > 0)
        printf("       each validation reads at most %lld x %lld x %lld of them\n",
               (long long)o->eval_batches, (long long)o->batch, (long long)o->context);
    printf("model  %lld layers, dim %lld, %lld heads, %lld kv heads, ffn %lld, context %lld, "
           "dropout %g, %s output%s\n",
           (long long)c->layers, (long long)c->dim, (long long)c->heads, (long long)c->kv_heads,
           (long long)c->ffn, (long long)o->context, c->dropout, c->tied ? "tied" : "untied",
           c->recompute ? ", recomputing" : "");
    printf("       %lld parameters, %.2f million operations a token\n",
           (long long)gd_params_elements(m->params), model_flops_per_token(m, o->context) / 1e6);
    printf("train  %lld steps of %lld x %lld x %lld tokens, lr %g to %g (%s) after %lld steps of "
           "warm-up, weight decay %g, beta2 %g, clip %g\n",
           (long long)o->steps, (long long)o->accumulate, (long long)o->batch,
           (long long)o->context, o->lr, o->schedule == GD_SCHEDULE_CONSTANT ? o->lr : o->min_lr,
           schedules[o->schedule], (long long)o->warmup, o->weight_decay, o->beta2, o->clip);
    if (!o->dry_run) print_checkpoints(o);
    fflush(stdout);
}

void report_memory_at_rest(const gd_context *ctx)
{
    gd_memory_stats stats = gd_memory(ctx);
    printf("memory %.1f MiB before the first step", (double)stats.current_total / 1048576);
    for (int i = 0, first = 1; i < GD_MEMORY_CLASS_COUNT; i++) {
        if (stats.current[i] == 0) continue;
        printf("%s %s %.1f", first ? ":" : ",", gd_memory_class_name((gd_memory_class)i),
               (double)stats.current[i] / 1048576);
        first = 0;
    }
    printf("\n");
    fflush(stdout);
}

void report_memory(const gd_context *ctx)
{
    gd_memory_stats stats = gd_memory(ctx);
    printf("memory %.1f MiB at most", (double)stats.peak_total / 1048576);
    for (int i = 0; i < GD_MEMORY_CLASS_COUNT; i++) {
        printf("%s %s %.1f", i ? "," : ":", gd_memory_class_name((gd_memory_class)i),
               (double)stats.peak[i] / 1048576);
    }
    printf("\n");
}

gd_status report_weights(const model *m)
{
    uint64_t hash = FNV_BEGIN;
    for (int i = 0; i < gd_params_count(m->params); i++) {
        const gd_tensor *t = gd_params_at(m->params, i);
        size_t bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
        void *copy = malloc(bytes + 1);
        if (!copy) return gd_fail(m->ctx, GD_ERROR_MEMORY, "out of memory: a copy of the weights");
        gd_status status = gd_tensor_read(t, copy, bytes);
        if (!status) hash = fnv1a(hash, copy, bytes);
        free(copy);
        if (status) return status;
    }
    printf("weights %016llx\n", (unsigned long long)hash);
    return GD_OK;
}
