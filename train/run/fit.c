/* fit.c - see fit.h. */
#include "fit.h"
#include "steps.h"
#include "optimizer.h"
#include "report.h"
#include "platform/memory.h"

#include <math.h>

static const double GIB = 1024.0 * 1024 * 1024;

/* The CPU's memory that can be had; infinity: unknown, or a GPU's. */
static double available(const gd_context *ctx)
{
    return gd_context_device(ctx) == GD_CPU ? gd_os_memory_available() : INFINITY;
}

gd_status fit_check(const model *m, const train_options *o)
{
    /* Gradients, the optimizer's states and the masters of 16-bit weights are at least float32. */
    const size_t weight = gd_dtype_size(o->dtype), state = weight < 4 ? 4 : weight;
    const size_t elements = (size_t)gd_params_elements(m->params);
    size_t bytes[GD_MEMORY_CLASS_COUNT] = {
        [GD_MEMORY_PARAMETERS] = elements * weight,
        [GD_MEMORY_GRADIENTS] = elements * state,
        [GD_MEMORY_OPTIMIZER] = elements * state * (size_t)(optimizer_states(o) + (weight < 4)),
    };
    const double all = (double)bytes[GD_MEMORY_PARAMETERS] + (double)bytes[GD_MEMORY_GRADIENTS] +
                       (double)bytes[GD_MEMORY_OPTIMIZER];
    const double free = available(m->ctx);
    /* How much of the memory falls to one of several processes is not known. */
    if (all <= free || o->group) return GD_OK;
    report_memory_sizes((size_t)all, bytes, "before the first step");
    return gd_fail(m->ctx, GD_ERROR_MEMORY,
                   "the model, its gradients and the optimizer need %.1f GiB, but %.1f GiB are "
                   "free; fewer --layers or a smaller --dim need less",
                   all / GIB, free / GIB);
}

/* The most memory of a forward and backward of so many sequences; 0 on error. */
static double measure(model *m, const dataset *data, const train_options *o, int64_t batch)
{
    train_options smaller = *o;
    smaller.batch = batch;
    gd_memory_reset_peak(m->ctx);
    return steps_try(m, data, &smaller) ? 0 : (double)gd_memory(m->ctx).peak_total;
}

/* Every tensor of a step has a row for each sequence, or none, so memory grows linearly. 0 on
 * error: not even two sequences fit. */
static double estimate(model *m, const dataset *data, const train_options *o)
{
    const double one = measure(m, data, o, 1), two = one > 0 ? measure(m, data, o, 2) : 0;
    return two > 0 ? one + (two - one) * (double)(o->batch - 1) : 0;
}

static gd_status refuse(gd_context *ctx, double bytes, double free)
{
    const gd_text needs = bytes > 0 ? gd_format("about %.1f GiB", bytes / GIB)
                                    : gd_format("more memory than there is");
    const gd_text has = bytes > free ? gd_format(", but %.1f GiB are free", free / GIB)
                        : bytes > 0  ? gd_format(", which could not be allocated")
                                     : (gd_text){""};
    gd_error_clear(ctx);
    return gd_fail(ctx, GD_ERROR_MEMORY,
                   "a step needs %s%s; a smaller --batch with a larger --accumulate (the same step "
                   "in more parts), --recompute, --dtype bf16 or a shorter --context need less",
                   needs.text, has.text);
}

gd_status fit_try(model *m, const dataset *data, const train_options *o)
{
    gd_context *ctx = m->ctx;
    double bytes = 0;
    const double free = available(ctx);
    if (!o->group && o->batch > 2) {
        bytes = estimate(m, data, o);
        if (gd_error_status(ctx) == GD_ERROR_MEMORY || bytes > free)
            return refuse(ctx, bytes, free);
    }
    gd_memory_reset_peak(ctx);
    if (!steps_try(m, data, o))
        report_memory(ctx);
    else if (gd_error_status(ctx) == GD_ERROR_MEMORY)
        refuse(ctx, bytes, free);
    return gd_error_status(ctx);
}
