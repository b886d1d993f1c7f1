/* llama_config.c - the JSON files of a Llama folder: config.json, and the index of its weights. */
#include "llama.h"
#include "folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

/* Real ones have a few hundred bytes, and a few hundred thousand; jansson takes 24 times as much
 * memory. */
enum { CONFIG_LIMIT = 1 << 20, INDEX_LIMIT = 4 << 20 };

/* The object in folder/name; NULL without an error if there is no such file. */
static json_t *read_object(gd_context *ctx, const char *folder, const char *name, size_t limit)
{
    char path[FOLDER_PATH];
    size_t length;
    json_error_t error;
    if (gd_error(ctx)) return NULL;
    char *text = folder_join(path, folder, name) ? folder_read_text(path, limit, &length) : NULL;
    if (!text) {
        if (errno != ENOENT) {
            gd_fail(ctx, GD_ERROR_IO, "cannot read %s in %s: %s", name, folder,
                    folder_read_reason());
        }
        return NULL;
    }
    json_t *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (json_is_object(object)) return object;
    gd_fail(ctx, GD_ERROR_IO, "%s in %s is not a JSON object%s%.80s", name, folder,
            object ? "" : ": ", object ? "" : error.text);
    json_decref(object);
    return NULL;
}

/* ---- config.json -------------------------------------------------------------------------- */

typedef struct reader {
    gd_context *ctx;
    const char *folder;
    const json_t *object;
} reader;

static void refuse(const reader *r, const char *key, const char *wanted)
{
    const json_t *value = json_object_get(r->object, key);
    char *found = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    gd_fail(r->ctx, GD_ERROR_IO, "config.json in %s: %s is not %s%s%.60s", r->folder, key, wanted,
            found ? ", but " : "", found ? found : "");
    free(found);
}

static bool absent(const json_t *value)
{
    return !value || json_is_null(value);
}

/* A whole number from 1 to `most`; if it is absent, `fallback`, unless that is 0. */
static int64_t read_whole(const reader *r, const char *key, int64_t most, int64_t fallback)
{
    const json_t *value = json_object_get(r->object, key);
    if (absent(value) && fallback) return fallback;
    int64_t whole = json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a whole number from 1 to %lld", (long long)most);
    if (whole < 1 || whole > most) refuse(r, key, wanted);
    return whole;
}

static double read_number(const reader *r, const json_t *value, const char *key, double low,
                          double high, double fallback)
{
    if (absent(value)) return fallback;
    double number = json_number_value(value);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a number from %g to %g", low, high);
    if (!(number >= low && number <= high)) refuse(r, key, wanted);
    return number;
}

static bool read_switch(const reader *r, const char *key)
{
    const json_t *value = json_object_get(r->object, key);
    if (!absent(value) && !json_is_boolean(value)) refuse(r, key, "true or false");
    return json_is_true(value);
}

static bool text_is(const json_t *value, const char *text)
{
    return json_is_string(value) && !strcmp(json_string_value(value), text);
}

/* The rotary positions under `key`; older files call the kind "type". */
static void check_rope(const reader *r, const char *key)
{
    const json_t *said = json_object_get(r->object, key);
    const json_t *kind = json_object_get(said, "rope_type");
    if (!kind) kind = json_object_get(said, "type");
    if (absent(said) || text_is(kind, "default")) return;
    if (json_is_object(said) && !kind && !json_object_get(said, "factor")) return;
    refuse(r, key, "of rope_type \"default\", the only one supported");
}

/* Newer files have the base in rope_parameters, older ones at the top level beside rope_scaling. */
static double read_rope_base(const reader *r)
{
    const json_t *parameters = json_object_get(r->object, "rope_parameters");
    const json_t *base = json_object_get(parameters, "rope_theta");
    check_rope(r, "rope_parameters");
    check_rope(r, "rope_scaling");
    if (!base) base = json_object_get(r->object, "rope_theta");
    return read_number(r, base, "rope_theta", 1, 1e12, 10000);
}

static void check_kind(const reader *r)
{
    if (!text_is(json_object_get(r->object, "model_type"), "llama")) {
        refuse(r, "model_type", "\"llama\"");
    }
    const json_t *act = json_object_get(r->object, "hidden_act");
    if (!absent(act) && !text_is(act, "silu")) refuse(r, "hidden_act", "\"silu\"");
    if (read_switch(r, "attention_bias")) refuse(r, "attention_bias", "false");
    if (read_switch(r, "mlp_bias")) refuse(r, "mlp_bias", "false");
}

gd_status llama_read_config(gd_context *ctx, const char *folder, model_config *config)
{
    json_t *object = read_object(ctx, folder, "config.json", CONFIG_LIMIT);
    const reader r = {ctx, folder, object};
    if (!object) return gd_fail(ctx, GD_ERROR_IO, "there is no config.json in %s", folder);
    check_kind(&r);
    int64_t heads = read_whole(&r, "num_attention_heads", 1024, 0);
    *config = (model_config){
        .vocab = read_whole(&r, "vocab_size", INT32_MAX, 0),
        .layers = read_whole(&r, "num_hidden_layers", 1000, 0),
        .dim = read_whole(&r, "hidden_size", 65536, 0),
        .heads = heads,
        .kv_heads = read_whole(&r, "num_key_value_heads", 1024, heads),
        .ffn = read_whole(&r, "intermediate_size", 1048576, 0),
        .tied = read_switch(&r, "tie_word_embeddings"),
        .eps = read_number(&r, json_object_get(object, "rms_norm_eps"), "rms_norm_eps", 1e-30, 1,
                           1e-6),
        .rope_base = read_rope_base(&r),
        .positions = read_whole(&r, "max_position_embeddings", INT32_MAX, 2048),
    };
    if (!gd_error(ctx)) {
        int64_t width = config->dim / heads;
        if (config->dim % heads || width % 2) {
            refuse(&r, "hidden_size", "an even multiple of num_attention_heads");
        } else if (read_whole(&r, "head_dim", INT32_MAX, width) != width) {
            refuse(&r, "head_dim", "hidden_size / num_attention_heads");
        } else if (heads % config->kv_heads) {
            refuse(&r, "num_key_value_heads", "a divisor of num_attention_heads");
        }
    }
    json_decref(object);
    return gd_error_status(ctx);
}

/* ---- The index ---------------------------------------------------------------------------- */

struct llama_index {
    json_t *object;
};

/* File names come from the index, so they must not lead out of the folder. */
llama_index *llama_index_open(gd_context *ctx, const char *folder)
{
    static const char name[] = "model.safetensors.index.json";
    json_t *object = read_object(ctx, folder, name, INDEX_LIMIT), *file;
    const char *weight;
    if (!object) return NULL;
    json_t *map = json_object_get(object, "weight_map");
    llama_index *index = json_is_object(map) ? malloc(sizeof *index) : NULL;
    json_object_foreach(map, weight, file)
    {
        const char *text = json_string_value(file);
        if (text && text[0] && text[0] != '.' && !strchr(text, '/') && strlen(text) < 256) continue;
        gd_fail(ctx, GD_ERROR_IO, "%s in %s: the file of \"%.80s\" is not a file name", name,
                folder, weight);
        break;
    }
    if (index && !gd_error(ctx)) {
        index->object = object;
        return index;
    }
    gd_fail(ctx, GD_ERROR_IO, "%s in %s has no weight_map", name, folder);
    free(index);
    json_decref(object);
    return NULL;
}

const char *llama_index_file(const llama_index *index, const char *weight)
{
    return json_string_value(json_object_get(json_object_get(index->object, "weight_map"), weight));
}

void llama_index_close(llama_index *index)
{
    if (index) json_decref(index->object);
    free(index);
}

#else

gd_status llama_read_config(gd_context *ctx, const char *folder, model_config *config)
{
    *config = (model_config){0};
    return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                   "%s: this build of gradus has no jansson (GRADUS_JANSSON)", folder);
}

llama_index *llama_index_open(gd_context *ctx, const char *folder)
{
    (void)ctx;
    (void)folder;
    return NULL;
}

const char *llama_index_file(const llama_index *index, const char *weight)
{
    (void)index;
    (void)weight;
    return NULL;
}

void llama_index_close(llama_index *index)
{
    (void)index;
}

#endif
