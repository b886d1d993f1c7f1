/* report.c - see report.h. */
#include "report.h"
#include "platform/clock.h"
#include "console.h"
#include "fnv.h"
#include "optimizer.h"
#include "platform/number.h"
#include "sample.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From the manufacturers' data sheets, in 1e12 operations a second without sparsity. The first name
 * that occurs in the device's name applies. A float32 product is three of TF32 on compute
 * capability 9.0 (kernels/matmul), so its peak is a third of TF32's. */
static const struct {
    const char *name;
    double f64, f32, tf32, bf16;
} rows[] = {
    {"NVIDIA H200", 67, 164.9, 494.7, 989.4},
    {"NVIDIA H100 PCIe", 51.2, 126, 378, 756},
    {"NVIDIA H100", 66.9, 164.9, 494.7, 989.4},
    {"NVIDIA A100", 19.5, 19.5, 156, 312},
};

double report_peak_flops(const char *device, gd_dtype dtype, bool tf32)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(device, rows[i].name)) continue;
        double peak = dtype == GD_FLOAT64   ? rows[i].f64
                      : dtype != GD_FLOAT32 ? rows[i].bf16
                      : tf32                ? rows[i].tf32
                                            : rows[i].f32;
        return 1e12 * peak;
    }
    return 0;
}

/* ---- The clock ---------------------------------------------------------------------------- */

report_clock report_clock_start(const model *m, const train_options *o, int64_t first)
{
    double peak = report_peak_flops(gd_context_device_name(m->ctx), o->dtype, o->base.tf32) *
                  gd_group_ranks(o->group);
    return (report_clock){.first = first,
                          .steps = o->steps,
                          .max_seconds = o->max_seconds,
                          .tokens_per_step = o->accumulate * o->batch * o->context,
                          .peak_rate = peak / model_flops_per_token(m, o->context),
                          .start = gd_os_now(),
                          .device = NAN};
}

/* A step takes the time from the end of the one before to its own, on one clock, less the pauses
 * between them. A pause begins when the host has waited for a step, and nothing is in flight. */
void report_clock_step(report_clock *clock, double device)
{
    clock->read = gd_os_now();
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
    clock->paused += gd_os_now() - (isnan(clock->device) ? clock->start : clock->read);
}

double report_clock_seconds(const report_clock *clock)
{
    return gd_os_now() - clock->start - clock->paused;
}

/* ---- Lines -------------------------------------------------------------------------------- */

/* 812, 41.3k, 1.20M */
static gd_text rate_text(double rate)
{
    return rate < 1e3   ? gd_format("%.0f", rate)
           : rate < 1e6 ? gd_format("%.1fk", rate / 1e3)
                        : gd_format("%.2fM", rate / 1e6);
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

/* The remaining time for the steps, or until --max-seconds. */
static double remaining(const report_clock *clock, int64_t step)
{
    const int64_t done = step - clock->first;
    const double each =
        done > 1 ? (clock->seconds - clock->first_took) / (double)(done - 1) : clock->seconds;
    const double left = (double)(clock->steps - step) * each;
    if (clock->max_seconds <= 0) return left;
    return fmin(left, fmax(clock->max_seconds - clock->seconds, 0));
}

/* A line of fields, as many of the first ones as it has columns for. */
enum { LINE = 256 };
typedef struct step_line {
    char text[LINE];
    int used, columns;
    bool full;
} step_line;

GD_PRINTF(2, 3) static void add(step_line *line, const char *format, ...)
{
    char field[LINE];
    va_list arguments;
    va_start(arguments, format);
    const int length = gd_os_print_list(field, sizeof field, format, arguments);
    va_end(arguments);
    line->full = line->full || (line->used > 0 && line->used + 3 + length > line->columns);
    if (line->full) return;
    line->used += snprintf(line->text + line->used, sizeof line->text - (size_t)line->used, "%s%s",
                           line->used ? " | " : "", field);
}

/* Fits the line into so many columns: what matters most comes first. */
static step_line format_step(const report_clock *clock, const gd_context *ctx, const log_line *v,
                             int columns)
{
    step_line line = {.columns = columns};
    const double ms = 1e3 * mean_seconds(clock);
    add(&line, "step %lld/%lld", (long long)v->step, (long long)clock->steps);
    add(&line, "loss %.4f", console_number(v->mean_loss));
    if (!isnan(v->val)) add(&line, "val %.4f", v->val);
    add(&line, "eta %s", console_duration(remaining(clock, v->step)).text);
    add(&line, "%.*f ms", ms < 1 ? 3 : 1, ms);
    add(&line, "%s tok/s", rate_text(mean_rate(clock)).text);
    add(&line, "norm %.2f", console_number(v->norm));
    add(&line, "lr %.1e", v->lr);
    if (clock->peak_rate > 0) add(&line, "mfu %.1f%%", 100 * mean_rate(clock) / clock->peak_rate);
    const double mib = ceil((double)gd_memory(ctx).peak_total / 1048576);
    if (mib < 1024)
        add(&line, "mem %.0f MiB", mib);
    else
        add(&line, "mem %.2f GiB", mib / 1024);
    return line;
}

void report_step(report_clock *clock, run_log *log, const gd_context *ctx, const log_line *v)
{
    log_line line = *v;
    const int columns = console_columns();
    console_line("%s", format_step(clock, ctx, v, columns ? columns - 1 : LINE).text);
    line.ms = 1e3 * mean_seconds(clock);
    line.tokens_per_second = mean_rate(clock);
    line.seconds = clock->seconds;
    log_write(log, &line);
    clock->since_report = 0;
    clock->steps_since = 0;
}

void report_validation(run_log *log, int64_t step, int64_t steps, double val)
{
    console_line("step %lld/%lld | val %.4f", (long long)step, (long long)steps,
                 console_number(val));
    log_write(log, &(log_line){step, NAN, NAN, val, NAN, NAN, NAN, NAN, NAN});
}

void report_progress(const report_clock *clock, const gd_context *ctx, const log_line *v)
{
    const int columns = console_live_columns();
    if (columns > 0) console_draw(format_step(clock, ctx, v, columns).text);
}

/* Before hours of training, the user must know that nothing will be saved. */
static void print_checkpoints(const train_options *o)
{
    gd_text every = {""}, keep = {""}, also = {""};
    if (!o->out) {
        console_line("out    none: no checkpoint is saved without --out DIR");
        return;
    }
    if (o->checkpoint_every > 0)
        every = gd_format("every %lld step%s and ", (long long)o->checkpoint_every,
                          console_s(o->checkpoint_every));
    if (o->keep == 1) keep = gd_format(", the newest is kept");
    if (o->keep > 1) keep = gd_format(", the newest %lld are kept", (long long)o->keep);
    if (o->keep > 0 && o->keep_every > 0)
        also = gd_format(", and those of every %lld step%s", (long long)o->keep_every,
                         console_s(o->keep_every));
    console_line("out    %s: a checkpoint %sat the end%s%s", o->out, every.text, keep.text,
                 also.text);
}

static void print_text(const dataset *data, const train_options *o)
{
    static const char *const kinds[] = {"ids", "bytes", "pieces"};
    char files[32] = "";
    const size_t count = o->data ? data->texts[0].count : (size_t)data->train.shards;
    if (count > 1) snprintf(files, sizeof files, " (%zu files)", count);
    console_line(
        "text   %.4095s%s: %lld token%s (%s, %lld different), %lld more for validation%s%.4095s",
        o->data ? o->data : o->tokens, files, (long long)data->train.length,
        console_s(data->train.length), kinds[data->tokenizer.kind],
        (long long)data->tokenizer.vocab, (long long)data->validation.length,
        o->val_data ? ": " : "", o->val_data ? o->val_data : "");
    /* Copies of token files have fingerprints only where they must be compared with others. */
    if (data->seen || (data->files[0] && data->files[0] == data->files[1]))
        console_notice("--val-data is the training text: the validation loss says nothing about "
                       "other texts");
    if (o->eval_batches > 0)
        console_line("       each validation reads at most %lld x %lld x %lld of them",
                     (long long)o->eval_batches, (long long)o->batch, (long long)o->context);
}

void report_configuration(const model *m, const dataset *data, const train_options *o)
{
    static const char *const schedules[] = {[GD_SCHEDULE_CONSTANT] = "constant",
                                            [GD_SCHEDULE_LINEAR] = "linear",
                                            [GD_SCHEDULE_COSINE] = "cosine",
                                            [GD_SCHEDULE_WSD] = "wsd"};
    const optimizer_row *optimizer = &optimizer_rows[o->optimizer];
    const model_config *c = &m->config;
    char more[96] = "";
    int used = 0;
    if (optimizer->has_beta2) used += snprintf(more, sizeof more, ", beta2 %g", o->beta2);
    if (o->momentum > 0)
        used += snprintf(more + used, sizeof more - (size_t)used, ", momentum %g", o->momentum);
    if (o->average > 0)
        snprintf(more + used, sizeof more - (size_t)used, ", average %g", o->average);
    const gd_text several =
        o->group ? gd_format("%d processes on ", gd_group_ranks(o->group)) : (gd_text){""};
    console_line("gradus-train %s on %s%s, %s, seed %lld", gd_version(), several.text,
                 gd_context_device_name(m->ctx), gd_dtype_name(o->dtype), (long long)o->seed);
    print_text(data, o);
    console_line(
        "model  %lld layer%s, dim %lld, %lld head%s, %lld kv head%s, ffn %lld, context %lld, "
        "dropout %g, %s output%s",
        (long long)c->layers, console_s(c->layers), (long long)c->dim, (long long)c->heads,
        console_s(c->heads), (long long)c->kv_heads, console_s(c->kv_heads), (long long)c->ffn,
        (long long)o->context, c->dropout, c->tied ? "tied" : "untied",
        c->recompute ? ", recomputing" : "");
    console_line("       %lld parameters, %.2f million operations a token",
                 (long long)gd_params_elements(m->params),
                 model_flops_per_token(m, o->context) / 1e6);
    console_line("train  %lld step%s of %lld x %lld x %lld tokens, lr %g to %g (%s) after %lld "
                 "step%s of warm-up, %s, weight decay %g%s, clip %g",
                 (long long)o->steps, console_s(o->steps), (long long)o->accumulate,
                 (long long)o->batch, (long long)o->context, o->lr,
                 o->schedule == GD_SCHEDULE_CONSTANT ? o->lr : o->min_lr, schedules[o->schedule],
                 (long long)o->warmup, console_s(o->warmup), optimizer->title, o->weight_decay,
                 more, o->clip);
    console_line("       %lld token%s a step: batches (--accumulate) x sequences (--batch) x "
                 "tokens (--context)",
                 (long long)(o->accumulate * o->batch * o->context),
                 console_s(o->accumulate * o->batch * o->context));
    if (!o->dry_run) print_checkpoints(o);
}

/* The classes of which there is some, in the unit of the total. */
void report_memory_sizes(size_t total, const size_t bytes[GD_MEMORY_CLASS_COUNT], const char *when)
{
    const bool large = total >= (size_t)1 << 30;
    const double unit = large ? 1 << 30 : 1 << 20;
    const int digits = large ? 2 : 1;
    char classes[256] = "";
    int used = 0;
    for (int i = 0; i < GD_MEMORY_CLASS_COUNT; i++) {
        if (bytes[i] == 0) continue;
        used +=
            snprintf(classes + used, sizeof classes - (size_t)used, "%s %s %.*f", used ? "," : ":",
                     gd_memory_class_name((gd_memory_class)i), digits, (double)bytes[i] / unit);
    }
    console_line("memory %.*f %s %s%s", digits, (double)total / unit, large ? "GiB" : "MiB", when,
                 classes);
}

void report_memory_at_rest(const gd_context *ctx)
{
    const gd_memory_stats stats = gd_memory(ctx);
    report_memory_sizes(stats.current_total, stats.current, "before the first step");
}

void report_memory(const gd_context *ctx)
{
    const gd_memory_stats stats = gd_memory(ctx);
    report_memory_sizes(stats.peak_total, stats.peak, "at most");
}

gd_status report_sample(model *m, const dataset *data, const train_options *o, const char *after)
{
    const sample_options options = {
        .length = o->sample_length, .context = o->context, .draw = {.temperature = o->temperature}};
    console_line("---- sample%s, temperature %g", after, o->temperature);
    sample_text(m, &data->tokenizer, &options, stdout, NULL);
    printf("\n----\n");
    return gd_error_status(m->ctx);
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
    console_line(
        "weights %016llx (runs whose weights end with the same bits print the same number)",
        (unsigned long long)hash);
    return GD_OK;
}
