/* params_load.c - a group of parameters, or an optimizer and its group, from a file
 * (params_save.c).
 *
 * What can fail comes first: names and shapes are compared, numbers are read, and all elements are
 * read into host memory, in the dtype that they will have. Then everything is set at once. */
#include "files/params_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names in quotes, as many as there is room for. */
typedef struct name_list {
    char text[300];
    int64_t listed, count;
} name_list;

typedef struct load {
    gd_context *ctx;
    gd_params *params;
    gd_optimizer *optimizer; /* NULL: of the group alone */
    bool values;             /* with the parameters and buffers */
    gd_load_options options;
    const char *who;
    const gd_safetensors *file;
    gd_part *parts;
    int64_t count;
    bool same_kind; /* the file has the state of an optimizer like this */
    int64_t steps, *made;
    gd_loss_scale scale;
    gd_random_state random;
    int64_t batches;           /* made, of those that are saved with the optimizer */
    name_list lacking, others; /* what the file does not have, and has besides */
} load;

/* ---- Names and shapes ---------------------------------------------------------------------- */

static void tell(const load *l, const char *name, const char *why)
{
    if (l->options.unmatched) l->options.unmatched(l->options.user, name, why);
}

static void add_name(name_list *n, const char *name)
{
    const size_t used = strlen(n->text), left = sizeof n->text - used;
    const gd_excerpt excerpt = gd_excerpt_of(name);
    n->count++;
    if (n->listed + 1 < n->count || strlen(excerpt.text) + 5 > left) return;
    snprintf(n->text + used, left, "%s\"%s\"", used ? ", " : "", excerpt.text);
    n->listed++;
}

/* " and 3 more", which are not listed. */
static gd_text more_of(const name_list *n)
{
    gd_text text = {""};
    if (n->listed < n->count)
        snprintf(text.text, sizeof text.text, " and %lld more", (long long)(n->count - n->listed));
    return text;
}

static void refuse_names(const load *l)
{
    const name_list *lacking = &l->lacking, *others = &l->others;
    if (lacking->count + others->count == 0) return;
    gd_fail(l->ctx, GD_ERROR_IO, "%s: %s has %s%s%s%s%s%s%s%s", l->who,
            gd_excerpt_of(l->file->path).text, lacking->count ? "no tensor " : "", lacking->text,
            more_of(lacking).text, lacking->count && others->count ? ", but has " : "",
            others->count ? "a tensor " : "", others->text, more_of(others).text,
            others->count ? ", wanted only those of the group" : "");
}

/* Whether the file may lack a state: it then begins as the parameters. */
static bool is_optional(const load *l, const gd_part *p)
{
    return !l->values && (l->optimizer->state[p->state] == l->optimizer->master ||
                          l->optimizer->state[p->state] == l->optimizer->average);
}

/* A dtype that an optimizer computes in. */
static bool is_wide(gd_dtype dtype)
{
    return dtype == GD_FLOAT32 || dtype == GD_FLOAT64;
}

/* The entry of a part, if it is loaded. */
static const gd_safetensors_entry *match(load *l, const gd_part *p)
{
    char why[440];
    const gd_safetensors_entry *entry = gd_safetensors_find(l->file, p->name);
    if (!entry && is_optional(l, p)) return NULL;
    if (!l->options.matching && !entry) {
        add_name(&l->lacking, p->name);
        return NULL;
    }
    if (!entry)
        snprintf(why, sizeof why, "is not in the file");
    else if (entry->dtype == GD_DTYPE_COUNT || (p->state >= 0 && !is_wide(entry->dtype)))
        snprintf(why, sizeof why, "holds %.20s in the file, wanted %s", entry->format_dtype,
                 p->state < 0 ? "F32, F64, BF16, F16 or I32" : "F32 or F64");
    else if (!gd_safetensors_has_shape(entry, p->tensor))
        snprintf(why, sizeof why, "has shape %s in the file, wanted %s",
                 gd_safetensors_shape_text(entry).text, gd_shape_text(p->tensor).text);
    else if (p->state >= 0 && !l->same_kind)
        snprintf(why, sizeof why, "is a state of another optimizer");
    else
        return entry;
    if (l->options.matching)
        tell(l, p->name, why);
    else
        gd_fail(l->ctx, GD_ERROR_IO, "%s: %s: tensor \"%s\" %s", l->who,
                gd_excerpt_of(l->file->path).text, gd_excerpt_of(p->name).text, why);
    return NULL;
}

/* PyTorch's batch norm counts its batches, for a momentum of None. */
static bool is_count(const char *name)
{
    static const char tail[] = ".num_batches_tracked";
    const size_t length = strlen(name), end = sizeof tail - 1;
    return length >= end && !strcmp(name + length - end, tail);
}

/* What the file alone has. */
static void match_rest(load *l)
{
    const gd_safetensors_entry *entry;
    for (int64_t i = 0; (entry = gd_safetensors_at(l->file, i)) && !gd_failed(l->ctx); i++) {
        const char *name = entry->name;
        int64_t k = 0;
        while (k < l->count && strcmp(l->parts[k].name, name) != 0) k++;
        if (k < l->count || is_count(name) ||
            (!(l->optimizer && l->values) &&
             !strncmp(name, GD_PART_PREFIX, strlen(GD_PART_PREFIX))))
            continue;
        if (l->options.matching)
            tell(l, name, "is not of the group");
        else
            add_name(&l->others, name);
    }
    refuse_names(l);
}

/* ---- Numbers ------------------------------------------------------------------------------- */

/* Whether the metadata have this number, which else is an error. */
static uint64_t read_number(const load *l, const char *name, uint64_t most)
{
    const char *text = gd_safetensors_metadata(l->file, name);
    char *end = NULL;
    errno = 0;
    const unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    if (text && *text >= '0' && *text <= '9' && !*end && !errno && value <= most) return value;
    gd_fail(l->ctx, GD_ERROR_IO, "%s: %s has \"%s\" for \"%s\" in its metadata, wanted 0 to %llu",
            l->who, gd_excerpt_of(l->file->path).text, gd_excerpt_of(text ? text : "").text, name,
            (unsigned long long)most);
    return 0;
}

static gd_status check_kind(load *l)
{
    const char *kind = gd_safetensors_metadata(l->file, GD_PART_PREFIX "kind");
    const char *own = gd_optimizer_kind(l->optimizer);
    l->same_kind = kind && !strcmp(kind, own);
    if (l->same_kind || l->options.matching) return GD_OK;
    return gd_fail(l->ctx, GD_ERROR_IO, "%s: %s has %s%s, wanted the state of %s", l->who,
                   gd_excerpt_of(l->file->path).text,
                   kind ? "the state of " : "no optimizer's state",
                   kind ? gd_excerpt_of(kind).text : "", own);
}

static bool is_loaded(const load *l, int64_t parameter)
{
    for (int64_t i = 0; i < l->count; i++)
        if (l->parts[i].index == parameter && !l->parts[i].entry && !is_optional(l, &l->parts[i]))
            return false;
    return true;
}

static void read_numbers(load *l)
{
    const uint64_t most = (uint64_t)GD_MAX_UPDATES;
    l->made = gd_host_allocate(l->ctx, (size_t)(l->params->count + 1) * sizeof *l->made, l->who);
    if (!l->made) return;
    l->made[0] = 0; /* if there is no parameter */
    if (gd_counts_get(l->optimizer, l->made)) return;
    l->steps = (int64_t)read_number(l, GD_PART_PREFIX "steps", most);
    l->scale.factor = (int64_t)read_number(l, GD_PART_PREFIX "loss_scale", INT64_MAX);
    l->scale.adapts = read_number(l, GD_PART_PREFIX "loss_scale_adapts", 1);
    l->scale.good = (int64_t)read_number(l, GD_PART_PREFIX "loss_scale_good", most);
    if (l->optimizer->saves_batches)
        l->batches = (int64_t)read_number(l, GD_PART_PREFIX "batches", INT64_MAX);
    l->random.seed = read_number(l, "random.seed", UINT64_MAX);
    l->random.offset = read_number(l, "random.offset", UINT64_MAX);
    for (int64_t i = 0; i < l->params->count; i++) {
        char name[GD_PART_NAME_SIZE];
        snprintf(name, sizeof name, GD_PART_PREFIX "steps.%s", l->params->list[i].tensor->name);
        const bool own = gd_safetensors_metadata(l->file, name);
        if (is_loaded(l, i)) l->made[i] = own ? (int64_t)read_number(l, name, most) : l->steps;
    }
}

/* ---- Elements ------------------------------------------------------------------------------ */

static gd_dtype dtype_of(const load *l, const gd_part *p)
{
    return p->state >= 0 ? l->optimizer->state[p->state]->dtype : p->tensor->dtype;
}

/* The elements of a state that this rank has: a parameter lies in one slice. */
static gd_params_slice own_part(const load *l, const gd_part *p)
{
    const gd_tensor *t = p->tensor;
    gd_params_slice slice, own = {0, p->state < 0 ? t->count : 0, 0};
    for (int64_t i = 0; p->state >= 0 && gd_params_slice_at(l->params, i, &slice); i++) {
        const int64_t begin = slice.begin > t->offset ? slice.begin : t->offset;
        const int64_t last = t->offset + t->count, end = slice.end < last ? slice.end : last;
        if (begin < end)
            own = (gd_params_slice){begin - t->offset, end - t->offset,
                                    slice.at + begin - slice.begin};
    }
    return own;
}

/* Reads what this rank has of a part. */
static void read_elements(const load *l, gd_part *p)
{
    gd_context *ctx = l->ctx;
    const gd_dtype dtype = dtype_of(l, p), saved = p->entry->dtype;
    const gd_params_slice own = own_part(l, p);
    const int64_t count = own.end - own.begin;
    const size_t bytes = (size_t)count * gd_dtype_size(saved);
    p->bytes = (size_t)count * gd_dtype_size(dtype);
    p->host = gd_host_allocate(ctx, p->bytes, l->who);
    void *read = saved == dtype ? p->host : gd_host_allocate(ctx, bytes, l->who);
    if (!gd_failed(ctx))
        gd_safetensors_fetch(l->file, l->who,
                             p->entry->offset + (size_t)own.begin * gd_dtype_size(saved), read,
                             bytes);
    if (saved == dtype) return;
    gd_tensor *source = gd_failed(ctx) ? NULL : gd_tensor_from(ctx, saved, 1, &count, read);
    gd_tensor *converted = gd_tensor_create(ctx, dtype, 1, &count);
    if (!gd_failed(ctx) && !gd_tensor_copy(converted, source))
        gd_tensor_read(converted, p->host, p->bytes);
    gd_tensor_free(source);
    gd_tensor_free(converted);
    gd_host_release(ctx, read, bytes);
}

static void set_all(const load *l)
{
    gd_context *ctx = l->ctx;
    if (l->same_kind &&
        (gd_optimizer_set_loss_scale(l->optimizer, l->scale) ||
         gd_counts_set(l->optimizer, l->made) || gd_update_set_made(l->optimizer, l->steps)))
        return;
    if (l->same_kind) gd_random_set(ctx, l->random);
    if (l->same_kind && l->optimizer->saves_batches) l->optimizer->batches = l->batches;
    for (int64_t i = 0; i < l->count; i++) {
        const gd_part *p = &l->parts[i];
        if (!p->entry || p->bytes == 0) continue;
        if (p->state < 0) gd_new_version(ctx, p->tensor->storage);
        ctx->device->upload(ctx,
                            p->state < 0
                                ? gd_tensor_data(p->tensor)
                                : gd_block_at(l->optimizer->state[p->state], own_part(l, p).at),
                            p->host, p->bytes);
        if (p->state < 0) gd_written(ctx, p->tensor->storage);
    }
}

/* ---- Loading ------------------------------------------------------------------------------- */

static gd_status load_parts(load *l)
{
    gd_context *ctx = l->ctx = l->params->ctx;
    if (l->file) l->parts = gd_parts_create(l->params, l->optimizer, l->values, &l->count, l->who);
    if (l->parts && l->optimizer) check_kind(l);
    for (int64_t i = 0; l->parts && i < l->count && !gd_failed(ctx); i++)
        l->parts[i].entry = match(l, &l->parts[i]);
    if (l->parts) match_rest(l);
    if (l->same_kind && !gd_failed(ctx)) read_numbers(l);
    for (int64_t i = 0; l->parts && i < l->count && !gd_failed(ctx); i++)
        if (l->parts[i].entry) read_elements(l, &l->parts[i]);
    if (!gd_failed(ctx)) set_all(l);
    gd_host_release(ctx, l->made, (size_t)(l->params->count + 1) * sizeof *l->made);
    if (l->parts) gd_parts_free(ctx, l->parts, l->count);
    return gd_error_status(ctx);
}

/* Of the optimizer too, unless it is NULL. */
static gd_status load_path(gd_params *params, gd_optimizer *optimizer, const char *path,
                           const gd_load_options *options, const char *who)
{
    load l = {.params = params, .optimizer = optimizer, .values = true, .who = who};
    if (options) l.options = *options;
    if (!gd_parts_ready(params, optimizer, who)) return gd_params_status(params);
    gd_safetensors *file = gd_safetensors_open(params->ctx, path);
    l.file = file;
    load_parts(&l);
    gd_safetensors_close(file);
    return gd_params_status(params);
}

gd_status gd_params_load_with(gd_params *params, const char *path, const gd_load_options *options)
{
    return load_path(params, NULL, path, options, "params_load");
}

gd_status gd_params_load(gd_params *params, const char *path)
{
    return gd_params_load_with(params, path, NULL);
}

gd_status gd_optimizer_load(gd_optimizer *optimizer, const char *path,
                            const gd_load_options *options)
{
    if (!optimizer) return GD_ERROR_ARGUMENT;
    return load_path(optimizer->params, optimizer, path, options, "optimizer_load");
}

gd_status gd_optimizer_load_states(gd_optimizer *optimizer, const gd_safetensors *file)
{
    if (!optimizer || !file) return GD_ERROR_ARGUMENT;
    load l = {.params = optimizer->params,
              .optimizer = optimizer,
              .file = file,
              .who = "optimizer_load_states"};
    if (gd_parts_ready(l.params, optimizer, l.who)) load_parts(&l);
    return gd_params_status(l.params);
}
