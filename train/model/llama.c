/* llama.c - see llama.h. */
#include "llama.h"
#include "files/json_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char model_file[] = "model.safetensors"; /* unless there is an index */

/* ---- Names -------------------------------------------------------------------------------- */

/* The whole tensor if `rows` is 0. */
static llama_weight *put(llama_weight *next, const char *name, gd_tensor *tensor, int64_t row,
                         int64_t rows)
{
    *next = (llama_weight){.tensor = tensor, .row = row, .rows = rows};
    snprintf(next->name, sizeof next->name, "%s.weight", name);
    return next + 1;
}

static llama_weight *put_layer(llama_weight *next, const model *m, int64_t layer)
{
    const model_layer *l = &m->layers[layer];
    const int64_t q = m->config.dim, ffn = m->config.ffn;
    const int64_t kv = q / m->config.heads * m->config.kv_heads;
    const struct {
        const char *name;
        gd_tensor *tensor;
        int64_t row, rows;
    } parts[] = {
        {"input_layernorm", l->norm1, 0, 0},     {"self_attn.q_proj", l->wqkv, 0, q},
        {"self_attn.k_proj", l->wqkv, q, kv},    {"self_attn.v_proj", l->wqkv, q + kv, kv},
        {"self_attn.o_proj", l->wo, 0, 0},       {"post_attention_layernorm", l->norm2, 0, 0},
        {"mlp.gate_proj", l->w_gate_up, 0, ffn}, {"mlp.up_proj", l->w_gate_up, ffn, ffn},
        {"mlp.down_proj", l->w_down, 0, 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)layer, parts[i].name);
        next = put(next, name, parts[i].tensor, parts[i].row, parts[i].rows);
    }
    return next;
}

llama_weight *llama_weights(const model *m, int64_t *count)
{
    int64_t layers = m->config.layers;
    llama_weight *weights = malloc((size_t)(9 * layers + 3) * sizeof *weights), *next = weights;
    if (!weights) {
        gd_fail(m->ctx, GD_ERROR_MEMORY, "out of memory: the names of the weights");
        return NULL;
    }
    next = put(next, "model.embed_tokens", m->embedding, 0, 0);
    for (int64_t i = 0; i < layers; i++) next = put_layer(next, m, i);
    next = put(next, "model.norm", m->norm_final, 0, 0);
    if (!m->config.tied) next = put(next, "lm_head", m->output, 0, 0);
    *count = next - weights;
    return weights;
}

gd_tensor *llama_weight_view(const llama_weight *w)
{
    return w->rows ? gd_slice(w->tensor, 0, w->row, w->row + w->rows) : w->tensor;
}

/* ---- Saving ------------------------------------------------------------------------------- */

static gd_status save_config(const model *m, saving *to)
{
    const model_config *c = &m->config;
    char text[1024];
    snprintf(text, sizeof text,
             "{\n"
             "  \"architectures\": [\"LlamaForCausalLM\"],\n"
             "  \"model_type\": \"llama\",\n"
             "  \"vocab_size\": %lld,\n"
             "  \"hidden_size\": %lld,\n"
             "  \"intermediate_size\": %lld,\n"
             "  \"num_hidden_layers\": %lld,\n"
             "  \"num_attention_heads\": %lld,\n"
             "  \"num_key_value_heads\": %lld,\n"
             "  \"head_dim\": %lld,\n"
             "  \"max_position_embeddings\": %lld,\n"
             "  \"hidden_act\": \"silu\",\n"
             "  \"rms_norm_eps\": %s,\n"
             "  \"rope_theta\": %s,\n"
             "  \"attention_bias\": false,\n"
             "  \"mlp_bias\": false,\n"
             "  \"tie_word_embeddings\": %s,\n"
             "  \"bos_token_id\": null,\n"
             "  \"eos_token_id\": null,\n"
             "  \"torch_dtype\": \"%s\"\n"
             "}\n",
             (long long)c->vocab, (long long)c->dim, (long long)c->ffn, (long long)c->layers,
             (long long)c->heads, (long long)c->kv_heads, (long long)(c->dim / c->heads),
             (long long)c->positions, gd_json_number_of(c->eps).text,
             gd_json_number_of(c->rope_base).text, c->tied ? "true" : "false",
             gd_dtype_name(gd_tensor_dtype(m->embedding)));
    return saving_text(to, "config.json", text);
}

gd_status llama_save(const model *m, saving *to, const char *tokens)
{
    const gd_named_text metadata[] = {{"format", "pt"}, {"tokens", tokens}};
    int64_t count;
    if (save_config(m, to)) return gd_error_status(m->ctx);
    llama_weight *weights = llama_weights(m, &count);
    gd_named_tensor *tensors = weights ? malloc((size_t)count * sizeof *tensors) : NULL;
    gd_no_grad_begin(m->ctx);
    for (int64_t i = 0; tensors && i < count; i++) {
        tensors[i] = (gd_named_tensor){weights[i].name, llama_weight_view(&weights[i])};
    }
    if (tensors)
        saving_tensors(to, model_file, tensors, count, metadata, 2);
    else
        gd_fail(m->ctx, GD_ERROR_MEMORY, "out of memory: the names of the weights");
    gd_no_grad_end(m->ctx);
    gd_step_end(m->ctx);
    free(tensors);
    free(weights);
    return gd_error_status(m->ctx);
}

/* ---- Loading ------------------------------------------------------------------------------ */

/* The file of the weight that was read last stays open: consecutive weights are mostly in one
 * file. */
typedef struct source {
    gd_context *ctx;
    open_folder *in;
    llama_index *index;          /* NULL: all weights are in model.safetensors */
    const model *m;              /* NULL: names are not checked; */
    const llama_weight *weights; /* its own */
    int64_t count;
    char name[256];
    gd_safetensors *file;
} source;

static bool is_weight(const source *s, const char *name)
{
    int64_t i = 0;
    while (i < s->count && strcmp(s->weights[i].name, name) != 0) i++;
    return i < s->count;
}

/* Old files contain the rotary frequencies, and some a tied output; neither is needed. */
static gd_status check_names(const source *s)
{
    static const char rotary[] = ".rotary_emb.inv_freq";
    const gd_safetensors_entry *entry;
    for (int64_t i = 0; (entry = gd_safetensors_at(s->file, i)); i++) {
        size_t length = strlen(entry->name), tail = sizeof rotary - 1;
        if (is_weight(s, entry->name)) {
            if (entry->dtype != GD_INT32) continue;
            return gd_fail(s->ctx, GD_ERROR_UNSUPPORTED,
                           "%s/%s: \"%.100s\" holds int32, wanted floating-point numbers",
                           s->in->path, s->name, entry->name);
        }
        if (length >= tail && !strcmp(entry->name + length - tail, rotary)) continue;
        if (s->m->config.tied && !strcmp(entry->name, "lm_head.weight")) continue;
        return gd_fail(s->ctx, GD_ERROR_IO,
                       "%s/%s contains \"%.100s\", which is not a weight of this model",
                       s->in->path, s->name, entry->name);
    }
    return GD_OK;
}

const char *llama_other_model(const open_folder *in)
{
    static const char *const names[] = {"pytorch_model.bin",
                                        "pytorch_model.bin.index.json",
                                        "consolidated.00.pth",
                                        "consolidated.safetensors",
                                        "adapter_model.safetensors",
                                        "adapter_model.bin",
                                        "tf_model.h5",
                                        "flax_model.msgpack"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (folder_has(in, names[i])) return names[i];
    return NULL;
}

gd_safetensors *llama_open_file(gd_context *ctx, open_folder *in, const char *name)
{
    char path[FOLDER_PATH];
    if (gd_error(ctx)) return NULL;
    const int file = folder_join(path, in->path, name) ? folder_file(in, name, FOLDER_READ) : -1;
    if (file < 0) {
        const bool missing = errno == ENOENT && !strcmp(name, model_file);
        const char *reason = folder_reason(), *other = missing ? llama_other_model(in) : NULL;
        if (other)
            gd_fail(ctx, GD_ERROR_IO,
                    "%s has %s, which cannot be read, and no model.safetensors; save_pretrained "
                    "of transformers writes one",
                    in->path, other);
        else
            gd_fail(ctx, GD_ERROR_IO, "safetensors_open: %s: %s", path, reason);
        return NULL;
    }
    gd_safetensors *opened = gd_safetensors_open_descriptor(ctx, file, path);
    if (!opened && errno && !in->trouble) in->trouble = errno;
    return opened;
}

/* Opens the file of a weight, unless it is open. */
static gd_status turn_to(source *s, const char *weight)
{
    const char *name = s->index ? llama_index_file(s->index, weight) : model_file;
    if (!name) {
        return gd_fail(s->ctx, GD_ERROR_IO, "the index of %s does not list \"%s\"", s->in->path,
                       weight);
    }
    if (s->file && !strcmp(s->name, name)) return GD_OK;
    gd_safetensors_close(s->file);
    s->file = NULL;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->file = llama_open_file(s->ctx, s->in, name);
    return s->file && s->m ? check_names(s) : gd_error_status(s->ctx);
}

/* Whether two entries have the same bytes; also after an error in reading them. */
static bool same_elements(const gd_safetensors *first, const gd_safetensors_entry *a,
                          const gd_safetensors *second, const gd_safetensors_entry *b)
{
    enum { PIECE = 1 << 14 };
    char left[PIECE], right[PIECE];
    bool same = a->bytes == b->bytes;
    for (size_t at = 0; same && at < a->bytes; at += PIECE) {
        const size_t bytes = a->bytes - at < PIECE ? a->bytes - at : PIECE;
        if (gd_safetensors_read_bytes(first, a, at, left, bytes) ||
            gd_safetensors_read_bytes(second, b, at, right, bytes))
            break;
        same = !memcmp(left, right, bytes);
    }
    return same;
}

/* The file of a tied model may contain the output too, if it equals the embedding. */
static gd_status check_tied(const source *s)
{
    static const char embedded[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    source first = {.ctx = s->ctx, .in = s->in, .index = s->index}, second = first;
    if (s->index && !llama_index_file(s->index, head)) return GD_OK;
    turn_to(&first, embedded);
    turn_to(&second, head);
    if (!gd_error(s->ctx)) {
        const gd_safetensors_entry *a = gd_safetensors_find(first.file, embedded);
        const gd_safetensors_entry *b = gd_safetensors_find(second.file, head);
        if (a && b && !same_elements(first.file, a, second.file, b)) {
            gd_fail(s->ctx, GD_ERROR_IO,
                    "%s: lm_head.weight differs from model.embed_tokens.weight, although "
                    "tie_word_embeddings is true in config.json; set it to false to load both",
                    s->in->path);
        }
    }
    gd_safetensors_close(first.file);
    gd_safetensors_close(second.file);
    return gd_error_status(s->ctx);
}

/* Looks for an index if there is no model.safetensors, as transformers does. */
static llama_index *find_index(gd_context *ctx, open_folder *in)
{
    return folder_has(in, model_file) ? NULL : llama_index_open(ctx, in);
}

static void check_shape(source *s, const llama_weight *w)
{
    const bool matrix = gd_tensor_ndim(w->tensor) > 1;
    const int64_t rows = w->rows ? w->rows : gd_tensor_dim(w->tensor, 0);
    const int64_t columns = matrix ? gd_tensor_dim(w->tensor, 1) : 0;
    if (turn_to(s, w->name)) return;
    const gd_safetensors_entry *entry = gd_safetensors_find(s->file, w->name);
    if (!entry)
        gd_fail(s->ctx, GD_ERROR_IO, "%s/%s has no tensor \"%s\"", s->in->path, s->name, w->name);
    else if (entry->ndim != 1 + matrix || entry->shape[0] != rows ||
             (matrix && entry->shape[1] != columns))
        gd_fail(
            s->ctx, GD_ERROR_IO,
            "%s/%s: \"%s\" does not have the shape [%lld%s%.0lld] that follows from config.json",
            s->in->path, s->name, w->name, (long long)rows, matrix ? ", " : "", (long long)columns);
}

/* A model that is only declared takes no memory of the configured size. */
gd_status llama_check(gd_context *ctx, open_folder *in, const model_config *c)
{
    source s = {.ctx = ctx, .in = in, .index = find_index(ctx, in)};
    model m;
    int64_t count = 0;
    llama_weight *weights =
        model_declare(&m, ctx, GD_FLOAT32, c) ? NULL : llama_weights(&m, &count);
    for (int64_t i = 0; i < count && !gd_error(ctx); i++) check_shape(&s, &weights[i]);
    free(weights);
    model_free(&m);
    gd_safetensors_close(s.file);
    llama_index_close(s.index);
    return gd_error_status(ctx);
}

/* Puts a weight that was not rounded into the model, and as far as this rank has them into the
 * masters. */
static void put_master(const model *m, const llama_weight *w, gd_tensor *weight, gd_tensor *masters)
{
    int i = 0;
    while (gd_params_at(m->params, i) != w->tensor) i++;
    const int64_t count = gd_tensor_count(weight);
    const int64_t begin = gd_params_offset(m->params, i) +
                          w->row * (gd_tensor_count(w->tensor) / gd_tensor_dim(w->tensor, 0));
    gd_params_slice s;
    gd_tensor_copy(llama_weight_view(w), weight);
    gd_tensor *flat = gd_reshape(weight, 1, &count);
    for (i = 0; gd_params_slice_at(m->params, i, &s) && !gd_error(m->ctx); i++) {
        const int64_t low = begin > s.begin ? begin : s.begin;
        const int64_t high = begin + count < s.end ? begin + count : s.end;
        if (low < high)
            gd_tensor_copy(gd_slice(masters, 0, s.at + low - s.begin, s.at + high - s.begin),
                           gd_slice(flat, 0, low - begin, high - begin));
    }
}

gd_status llama_load(const model *m, open_folder *in, gd_tensor *masters)
{
    source s = {.ctx = m->ctx, .in = in, .index = find_index(m->ctx, in), .m = m};
    llama_weight *weights = llama_weights(m, &s.count);
    s.weights = weights;
    gd_no_grad_begin(m->ctx);
    for (int64_t i = 0; i < s.count && !gd_error(m->ctx); i++) {
        const llama_weight *w = &weights[i];
        gd_tensor *view = llama_weight_view(w), *to = view;
        if (masters)
            to = gd_tensor_create(m->ctx, gd_tensor_dtype(masters), gd_tensor_ndim(view),
                                  gd_tensor_shape(view));
        if (!turn_to(&s, w->name)) gd_safetensors_read(s.file, w->name, to);
        if (masters && !gd_error(m->ctx)) put_master(m, w, to, masters);
        if (masters) gd_tensor_free(to);
    }
    if (m->config.tied && !gd_error(m->ctx)) check_tied(&s);
    gd_no_grad_end(m->ctx);
    gd_step_end(m->ctx);
    gd_safetensors_close(s.file);
    llama_index_close(s.index);
    free(weights);
    return gd_error_status(m->ctx);
}

int64_t llama_load_state(const model *m, const gd_safetensors *file, const char *state)
{
    int64_t found = 0;
    gd_no_grad_begin(m->ctx);
    for (int i = 0; i < gd_params_count(m->params) && !gd_error(m->ctx); i++) {
        gd_tensor *t = gd_params_at(m->params, i);
        const gd_text name = gd_format("optimizer.%s.%s", state, gd_tensor_name(t));
        if (!gd_safetensors_find(file, name.text)) continue;
        gd_safetensors_read(file, name.text, t);
        found++;
    }
    gd_no_grad_end(m->ctx);
    return found;
}
