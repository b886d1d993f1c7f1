/* params_save.c - a group of parameters, its buffers, and what an optimizer needs, as a file.
 *
 *     NAME                   a parameter or buffer
 *     optimizer.STATE.NAME   a state of a parameter: its part of the state's block
 *     metadata               "optimizer.kind", "optimizer.steps", "optimizer.steps.NAME" where a
 *                            parameter was updated less often, "optimizer.loss_scale",
 *                            "random.seed" ... */
#include "files/params_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Parts --------------------------------------------------------------------------------- */

/* States are in the order of the block, so that a bucket is collected once. */
gd_part *gd_parts_create(const gd_params *params, const gd_optimizer *optimizer, bool values,
                         int64_t *count, const char *who)
{
    const int64_t own = values ? params->count + params->buffers : 0;
    const int64_t states = optimizer ? optimizer->states : 0;
    *count = own + states * params->count;
    gd_part *parts = gd_host_allocate(params->ctx, (size_t)(*count + 1) * sizeof *parts, who);
    for (int64_t i = 0; parts && i < *count; i++) {
        gd_part *p = &parts[i];
        const int64_t k = i < own ? i : params->order[(i - own) % params->count];
        *p = (gd_part){.index = k, .state = i < own ? -1 : (int)((i - own) / params->count)};
        p->tensor = k < params->count ? params->list[k].tensor : params->buffer[k - params->count];
        if (p->state >= 0)
            snprintf(p->name, sizeof p->name, GD_PART_PREFIX "%.40s.%s",
                     optimizer->state[p->state]->name, p->tensor->name);
        else
            snprintf(p->name, sizeof p->name, "%s", p->tensor->name);
    }
    return parts;
}

void gd_parts_free(gd_context *ctx, gd_part *parts, int64_t count)
{
    for (int64_t i = 0; parts && i < count; i++)
        gd_host_release(ctx, parts[i].host, parts[i].bytes);
    gd_host_release(ctx, parts, (size_t)(count + 1) * sizeof *parts);
}

const char *gd_optimizer_kind(const gd_optimizer *optimizer)
{
    static const char *const names[GD_RULE_KINDS] = {
        [GD_RULE_SGD] = "sgd",         [GD_RULE_ADAMW] = "adamw",     [GD_RULE_ADAM] = "adam",
        [GD_RULE_RMSPROP] = "rmsprop", [GD_RULE_ADAGRAD] = "adagrad", [GD_RULE_LION] = "lion"};
    return optimizer->has_muon ? "muon" : names[optimizer->rule.kind];
}

bool gd_parts_ready(const gd_params *params, const gd_optimizer *optimizer, const char *who)
{
    if (!gd_params_ready(params, who) || !gd_outside_graph(params->ctx, who)) return false;
    if (optimizer && optimizer->averaged)
        gd_fail(params->ctx, GD_ERROR_STATE,
                "%s: the parameters are their average, wanted gd_optimizer_swap_average before",
                who);
    return !gd_failed(params->ctx);
}

/* ---- States -------------------------------------------------------------------------------- */

/* A view of the parameter's part of a state, or of the bucket that has it. */
static gd_tensor *view_of(const gd_params *params, const gd_tensor *parameter, gd_tensor *block,
                          const char *who)
{
    int64_t begin = 0;
    gd_tensor *view =
        gd_tensor_header(block->ctx, who, false, block->dtype, parameter->ndim, parameter->shape);
    if (!view) return NULL;
    if (params->replica) params->replica->calls->bucket_of(params->replica, parameter, &begin);
    view->offset = parameter->offset - begin;
    gd_tensor_attach(view, block->storage);
    return view;
}

/* ---- Numbers ------------------------------------------------------------------------------- */

typedef struct number {
    char name[GD_PART_NAME_SIZE], text[24];
} number;

enum { NUMBERS = 8 }; /* and one for each parameter */

static void add_number(number *list, int64_t *count, const char *name, uint64_t value)
{
    number *n = &list[(*count)++];
    snprintf(n->name, sizeof n->name, "%s", name);
    snprintf(n->text, sizeof n->text, "%" PRIu64, value);
}

static void add_numbers(const gd_optimizer *optimizer, const int64_t *made, number *list,
                        int64_t *count)
{
    const int64_t steps = gd_optimizer_steps(optimizer);
    const gd_loss_scale scale = gd_optimizer_loss_scale(optimizer);
    const gd_random_state random = gd_random_get(optimizer->ctx);
    add_number(list, count, GD_PART_PREFIX "steps", (uint64_t)steps);
    add_number(list, count, GD_PART_PREFIX "loss_scale", (uint64_t)scale.factor);
    add_number(list, count, GD_PART_PREFIX "loss_scale_adapts", scale.adapts);
    add_number(list, count, GD_PART_PREFIX "loss_scale_good", (uint64_t)scale.good);
    if (optimizer->saves_batches)
        add_number(list, count, GD_PART_PREFIX "batches", (uint64_t)optimizer->batches);
    add_number(list, count, "random.seed", random.seed);
    add_number(list, count, "random.offset", random.offset);
    for (int64_t i = 0; i < optimizer->params_count; i++) {
        char name[GD_PART_NAME_SIZE];
        snprintf(name, sizeof name, GD_PART_PREFIX "steps.%s",
                 optimizer->params->list[i].tensor->name);
        if (made[i] != steps) add_number(list, count, name, (uint64_t)made[i]);
    }
}

/* ---- Writing ------------------------------------------------------------------------------- */

/* What is written, and the memory for it. */
typedef struct contents {
    const gd_params *params;
    const gd_optimizer *optimizer; /* NULL: of the group alone */
    bool values;
    gd_part *parts;
    gd_named_tensor *tensors;
    int64_t count;
    gd_tensor *whole; /* of several ranks: a bucket, with all slices, */
    int64_t bucket;   /* which is this one, */
    int state;        /* of this state */
    bool over;        /* the ranks have agreed that one has failed */
    int64_t *made;    /* [parameters + 1] */
    number *numbers;
    gd_named_text *texts;
    int64_t number_count, text_most;
} contents;

static gd_status prepare(contents *c, const gd_named_text *metadata, int64_t metadata_count,
                         const char *who)
{
    const gd_params *params = c->params;
    const gd_optimizer *optimizer = c->optimizer;
    gd_context *ctx = params->ctx;
    c->parts = gd_parts_create(params, optimizer, c->values, &c->count, who);
    if (!c->parts) return ctx->status;
    c->text_most = metadata_count + params->count + NUMBERS + 1;
    c->tensors = gd_host_allocate(ctx, (size_t)(c->count + 1) * sizeof *c->tensors, who);
    c->texts = gd_host_allocate(ctx, (size_t)c->text_most * sizeof *c->texts, who);
    c->numbers = gd_host_allocate(ctx, (size_t)c->text_most * sizeof *c->numbers, who);
    c->made = gd_host_allocate(ctx, (size_t)(params->count + 1) * sizeof *c->made, who);
    if (params->replica && optimizer && !gd_failed(ctx))
        c->whole = gd_params_block(ctx, gd_params_state_dtype(params), params->replica->largest,
                                   GD_MEMORY_WORKSPACE, who);
    for (int64_t i = 0; c->tensors && i < c->count; i++) {
        const gd_part *p = &c->parts[i];
        c->tensors[i] = (gd_named_tensor){p->name, p->tensor};
        if (p->state >= 0)
            c->tensors[i].tensor =
                gd_failed(ctx) ? NULL
                               : view_of(params, p->tensor,
                                         c->whole ? c->whole : optimizer->state[p->state], who);
    }
    if (gd_failed(ctx) || (optimizer && gd_counts_get(optimizer, c->made))) return ctx->status;
    if (optimizer) add_numbers(optimizer, c->made, c->numbers, &c->number_count);
    for (int64_t i = 0; i < metadata_count; i++) c->texts[i] = metadata[i];
    for (int64_t i = 0; i < c->number_count; i++)
        c->texts[metadata_count + i] = (gd_named_text){c->numbers[i].name, c->numbers[i].text};
    if (optimizer)
        c->texts[metadata_count + c->number_count++] =
            (gd_named_text){GD_PART_PREFIX "kind", gd_optimizer_kind(optimizer)};
    return gd_error_status(ctx);
}

/* Of several ranks, which have slices of a state: collects the bucket that has the tensor. A rank
 * that has failed goes on to the next bucket, where all learn of it. */
static bool supply(void *user, const gd_named_tensor *tensor)
{
    contents *c = user;
    const gd_part *p = (const void *)tensor->name;
    gd_replica *replica = c->optimizer ? c->params->replica : NULL;
    int64_t begin;
    if (!replica) return !gd_failed(c->params->ctx);
    const int64_t bucket =
        p->state < 0 ? -1 : replica->calls->bucket_of(replica, p->tensor, &begin);
    if (bucket < 0 || (bucket == c->bucket && p->state == c->state)) return true;
    c->bucket = bucket, c->state = p->state;
    c->over = replica->calls->collect(replica, bucket, c->optimizer->state[p->state], c->whole);
    return !c->over;
}

static void discard(contents *c)
{
    gd_context *ctx = c->params->ctx;
    for (int64_t i = 0; c->tensors && i < c->count; i++) {
        gd_tensor *view = (gd_tensor *)(uintptr_t)c->tensors[i].tensor;
        if (c->parts[i].state >= 0 && view) gd_tensor_destroy(view);
    }
    if (c->whole) gd_tensor_destroy(c->whole);
    if (!c->parts) return;
    gd_host_release(ctx, c->tensors, (size_t)(c->count + 1) * sizeof *c->tensors);
    gd_host_release(ctx, c->texts, (size_t)c->text_most * sizeof *c->texts);
    gd_host_release(ctx, c->numbers, (size_t)c->text_most * sizeof *c->numbers);
    gd_host_release(ctx, c->made, (size_t)(c->params->count + 1) * sizeof *c->made);
    gd_parts_free(ctx, c->parts, c->count);
}

/* Rank 0 of a group writes: to the output, or, with the values, to a file of its own. */
static void write_parts(contents *c, const char *path, const gd_output *to,
                        const gd_named_text *metadata, int64_t metadata_count, const char *who)
{
    gd_context *ctx = c->params->ctx;
    gd_whole_file file;
    const gd_output own = {path, gd_whole_file_write, &file};
    const bool writes = !c->optimizer || !c->params->replica || c->params->replica->rank == 0;
    if (metadata_count < 0 || (metadata_count > 0 && !metadata)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: given %lld metadata%s, wanted an array of 0 or more",
                who, (long long)metadata_count, metadata ? "" : " at NULL");
        return;
    }
    const bool ready = !prepare(c, metadata, metadata_count, who) && writes;
    if (ready && !c->values) gd_safetensors_check_output(ctx, to);
    const bool begun =
        ready && c->values && !gd_whole_file_begin(&file, ctx, "safetensors_write", path);
    if (begun) to = &own;
    const gd_file_contents all = {c->tensors, c->count, c->texts, metadata_count + c->number_count};
    gd_safetensors_write_by(ctx, writes ? to : NULL, all, supply, c);
    if (begun) gd_whole_file_end(&file);
    discard(c);
}

/* Of all ranks, which agree in the end. */
static gd_status save(const gd_optimizer *optimizer, bool values, const char *path,
                      const gd_output *to, const gd_named_text *metadata, int64_t metadata_count,
                      const char *who)
{
    if (!optimizer) return GD_ERROR_ARGUMENT;
    const gd_params *params = optimizer->params;
    contents c = {.params = params, .optimizer = optimizer, .values = values, .bucket = -1};
    if (gd_parts_ready(params, optimizer, who))
        write_parts(&c, path, to, metadata, metadata_count, who);
    return !params->replica || c.over ? gd_error_status(params->ctx)
                                      : params->replica->calls->agree(params->replica);
}

gd_status gd_params_save(const gd_params *params, const char *path, const gd_named_text *metadata,
                         int64_t metadata_count)
{
    const char *who = "params_save";
    contents c = {.params = params, .values = true};
    if (gd_parts_ready(params, NULL, who))
        write_parts(&c, path, NULL, metadata, metadata_count, who);
    return gd_params_status(params);
}

gd_status gd_optimizer_save(const gd_optimizer *optimizer, const char *path,
                            const gd_named_text *metadata, int64_t metadata_count)
{
    return save(optimizer, true, path, NULL, metadata, metadata_count, "optimizer_save");
}

gd_status gd_optimizer_save_states(const gd_optimizer *optimizer, const gd_output *to,
                                   const gd_named_text *metadata, int64_t metadata_count)
{
    return save(optimizer, false, NULL, to, metadata, metadata_count, "optimizer_save_states");
}
