/* checkpoint_sharded.c - see checkpoint_sharded.h. */
#include "checkpoint_sharded.h"
#include "checkpoint.h"
#include "platform/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name in the file of the optimizer's state `index` for weight w, such as "m.<weight>". */
typedef struct state_name {
    char text[96];
} state_name;

static state_name name_of_state(const gd_optimizer *optimizer, int index, const llama_weight *w)
{
    state_name name;
    snprintf(name.text, sizeof name.text, "%s.%s",
             gd_tensor_name(gd_optimizer_state(optimizer, index)), w->name);
    return name;
}

/* ---- Pieces --------------------------------------------------------------------------------- */

/* The elements of a weight that lie in a slice of this rank: `count` elements from index `first` of
 * the weight and from index `at` of the state. */
typedef struct stretch {
    int64_t first, at, count;
} stretch;

static stretch overlap(const model *m, const llama_weight *w, const gd_params_slice *slice)
{
    int64_t begin, count;
    llama_weight_range(m, w, &begin, &count);
    const int64_t low = begin > slice->begin ? begin : slice->begin;
    const int64_t high = begin + count < slice->end ? begin + count : slice->end;
    return (stretch){low - begin, slice->at + low - slice->begin, high > low ? high - low : 0};
}

/* Called for each stretch of each state of each weight, which has the shape of `view`. */
typedef gd_status piece_action(void *user, gd_tensor *state, const char *name,
                               const gd_tensor *view, stretch piece);

static gd_status for_each_piece(const model *m, gd_optimizer *optimizer, piece_action *action,
                                void *user)
{
    int64_t count = 0;
    llama_weight *weights = llama_weights(m, &count);
    gd_params_slice slice;
    gd_tensor *state;
    gd_no_grad_begin(m->ctx);
    for (int64_t i = 0; i < count; i++) {
        const gd_tensor *view = llama_weight_view(&weights[i]);
        for (int k = 0; (state = gd_optimizer_state(optimizer, k)); k++) {
            const state_name name = name_of_state(optimizer, k, &weights[i]);
            for (int64_t s = 0; gd_params_slice_at(m->params, s, &slice) && !gd_error(m->ctx);
                 s++) {
                const stretch piece = overlap(m, &weights[i], &slice);
                if (piece.count > 0) action(user, state, name.text, view, piece);
            }
        }
        gd_step_end(m->ctx);
    }
    gd_no_grad_end(m->ctx);
    free(weights);
    return gd_error_status(m->ctx);
}

/* ---- Writing -------------------------------------------------------------------------------- */

gd_status checkpoint_save_state(const model *m, gd_optimizer *optimizer, saving *to,
                                const gd_named_text *texts, int64_t text_count, bool sharded)
{
    gd_context *ctx = m->ctx;
    int64_t weight_count = 0, states = 0, count = 0;
    llama_weight *weights = llama_weights(m, &weight_count);
    while (gd_optimizer_state(optimizer, (int)states)) states++;
    const size_t most = (size_t)(states * weight_count);
    gd_named_tensor *tensors = malloc(most * sizeof *tensors + 1);
    state_name *names = malloc(most * sizeof *names + 1);
    const gd_tensor *state = gd_optimizer_state(optimizer, 0); /* SGD may have none */
    gd_tensor *one = gd_tensor_create(ctx, state ? gd_tensor_dtype(state) : GD_FLOAT32, 0, NULL);
    gd_no_grad_begin(ctx);
    for (int64_t i = 0; weights && tensors && names && i < weight_count; i++) {
        const llama_weight *w = &weights[i];
        const gd_tensor *view = llama_weight_view(w);
        for (int k = 0; k < states; k++, count++) {
            names[count] = name_of_state(optimizer, k, w);
            tensors[count] = (gd_named_tensor){
                names[count].text, sharded
                                       ? gd_expand(one, gd_tensor_ndim(view), gd_tensor_shape(view))
                                       : llama_state_view(m, w, gd_optimizer_state(optimizer, k))};
        }
    }
    if (!weights || !tensors || !names)
        gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: the optimizer's state");
    saving_tensors(to, CHECKPOINT_STATE, tensors, count, texts, text_count, sharded);
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    gd_tensor_free(one);
    free(weights);
    free(tensors);
    free(names);
    return gd_error_status(ctx);
}

typedef struct writer {
    gd_context *ctx;
    gd_safetensors *file;
    int descriptor;
    const char *folder;
} writer;

static gd_status fail(const writer *w)
{
    return gd_fail(w->ctx, GD_ERROR_IO, "cannot write %s in %s: %s", CHECKPOINT_STATE, w->folder,
                   folder_reason());
}

static gd_status write_at(const writer *w, const char *data, size_t bytes, size_t offset)
{
    return gd_os_write_at(w->descriptor, data, bytes, (int64_t)offset) ? GD_OK : fail(w);
}

static gd_status write_piece(void *user, gd_tensor *state, const char *name, const gd_tensor *view,
                             stretch piece)
{
    const writer *w = user;
    (void)view;
    const gd_safetensors_entry *entry = gd_safetensors_find(w->file, name);
    const size_t size = gd_dtype_size(gd_tensor_dtype(state)), bytes = (size_t)piece.count * size;
    if (!entry)
        return gd_fail(w->ctx, GD_ERROR_IO, "%s in %s has no tensor \"%s\"", CHECKPOINT_STATE,
                       w->folder, name);
    char *host = malloc(bytes);
    if (!host) return gd_fail(w->ctx, GD_ERROR_MEMORY, "out of memory: the optimizer's state");
    if (!gd_tensor_read(gd_slice(state, 0, piece.at, piece.at + piece.count), host, bytes))
        write_at(w, host, bytes, entry->offset + (size_t)piece.first * size);
    free(host);
    return gd_error_status(w->ctx);
}

gd_status checkpoint_sharded_write(const model *m, gd_optimizer *optimizer, open_folder *in)
{
    writer w = {.ctx = m->ctx, .folder = in->path};
    w.file = llama_open_file(m->ctx, in, CHECKPOINT_STATE);
    w.descriptor = folder_file(in, CHECKPOINT_STATE, FOLDER_WRITE);
    if (w.descriptor < 0) fail(&w);
    if (!gd_error(m->ctx)) for_each_piece(m, optimizer, write_piece, &w);
    if (w.descriptor >= 0 && !folder_end_file(w.descriptor)) fail(&w);
    gd_safetensors_close(w.file);
    return gd_error_status(m->ctx);
}

/* ---- Reading -------------------------------------------------------------------------------- */

typedef struct reader {
    const model *m;
    const gd_safetensors *file;
} reader;

/* An error unless it can be a state of a weight like `view`. States are float32 for weights
 * of 16 bits. */
static gd_status check_entry(gd_context *ctx, const char *name, const gd_safetensors_entry *entry,
                             const gd_tensor *view)
{
    const char *what = !entry ? "missing"
                       : entry->dtype != GD_FLOAT32 && entry->dtype != GD_FLOAT64
                           ? entry->format_dtype
                       : entry->ndim != gd_tensor_ndim(view) ||
                               memcmp(entry->shape, gd_tensor_shape(view),
                                      (size_t)entry->ndim * sizeof *entry->shape) != 0
                           ? "of another shape"
                           : NULL;
    if (!what) return GD_OK;
    return gd_fail(ctx, GD_ERROR_IO,
                   CHECKPOINT_STATE ": the tensor \"%s\" is %s, wanted F32 or F64 of shape %s",
                   name, what, gd_shape_text(view).text);
}

static gd_status read_piece(void *user, gd_tensor *state, const char *name, const gd_tensor *view,
                            stretch piece)
{
    const reader *r = user;
    gd_context *ctx = r->m->ctx;
    const gd_safetensors_entry *entry = gd_safetensors_find(r->file, name);
    if (!entry && (!strncmp(name, "master.", 7) || !strncmp(name, "average.", 8))) return GD_OK;
    if (check_entry(ctx, name, entry, view)) return gd_error_status(ctx);
    const size_t size = gd_dtype_size(entry->dtype), bytes = (size_t)piece.count * size;
    void *host = malloc(bytes);
    if (!host) return gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: the optimizer's state");
    gd_tensor *source = NULL;
    if (!gd_safetensors_read_bytes(r->file, entry, (size_t)piece.first * size, host, bytes))
        source = gd_tensor_from(ctx, entry->dtype, 1, &piece.count, host);
    free(host);
    if (source) gd_tensor_copy(gd_slice(state, 0, piece.at, piece.at + piece.count), source);
    gd_tensor_free(source);
    return gd_error_status(ctx);
}

gd_status checkpoint_sharded_read(const model *m, gd_optimizer *optimizer,
                                  const gd_safetensors *file)
{
    reader r = {m, file};
    return for_each_piece(m, optimizer, read_piece, &r);
}

gd_status checkpoint_sharded_masters(const model *m, gd_tensor *masters, gd_tensor *all)
{
    const int64_t length = gd_tensor_count(all); /* excludes the padding at the end of the block */
    gd_params_slice s;
    gd_no_grad_begin(m->ctx);
    for (int64_t i = 0; gd_params_slice_at(m->params, i, &s) && !gd_error(m->ctx); i++) {
        if (s.end > length) s.end = length;
        if (s.begin < s.end)
            gd_tensor_copy(gd_slice(masters, 0, s.at, s.at + s.end - s.begin),
                           gd_slice(all, 0, s.begin, s.end));
    }
    gd_no_grad_end(m->ctx);
    gd_step_end(m->ctx);
    return gd_error_status(m->ctx);
}

/* ---- Agreement ------------------------------------------------------------------------------ */

gd_status checkpoint_agree(gd_context *ctx, gd_group *group)
{
    enum { WHY = 400 };
    char own[WHY] = "";
    const int ranks = gd_group_ranks(group);
    const gd_status status = gd_error_status(ctx);
    if (ranks == 1) return status;
    char *all = malloc((size_t)ranks * WHY);
    if (!all) return gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: a message of each process");
    if (status) snprintf(own, sizeof own, "%s", gd_error(ctx));
    gd_error_clear(ctx);
    if (gd_group_all_gather_bytes(group, own, WHY, all)) {
        if (status) { /* the group had failed before */
            gd_error_clear(ctx);
            gd_fail(ctx, status, "%s", own);
        }
    } else {
        for (int i = 0; i < ranks && !gd_error(ctx); i++) {
            char *why = all + (size_t)i * WHY;
            why[WHY - 1] = '\0'; /* another process wrote it */
            if (why[0] && i == gd_group_rank(group))
                gd_fail(ctx, GD_ERROR_IO, "%s", why);
            else if (why[0])
                gd_fail(ctx, GD_ERROR_IO, "rank %d: %s", i, why);
        }
    }
    free(all);
    return gd_error_status(ctx);
}
