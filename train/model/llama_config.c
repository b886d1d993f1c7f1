/* llama_config.c - the JSON files of a Llama folder: config.json, and the index of its weights. */
#include "llama.h"
#include "platform/file.h"
#include "text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON
#include "files/json.h"

/* Real ones have a few hundred bytes, and a few hundred thousand. */
enum { CONFIG_LIMIT = 1 << 20, INDEX_LIMIT = 4 << 20 };

/* The object in folder/name, until json is closed; NULL without an error if there is no
 * such file. */
static json_t *read_object(gd_context *ctx, open_folder *in, const char *name, size_t limit,
                           gd_json *json)
{
    size_t length;
    *json = (gd_json){0};
    if (gd_error(ctx)) return NULL;
    char *text = folder_read_text(in, name, limit, &length);
    if (!text) {
        if (errno != ENOENT) {
            gd_fail(ctx, GD_ERROR_IO, "cannot read %s in %s: %s", name, in->path, folder_reason());
        }
        return NULL;
    }
    *json = gd_json_of(text, length);
    json_t *object = gd_json_take_all(json);
    const char *pointer = text_file_pointer(text, length);
    free(text);
    if (json_is_object(object)) return object;
    if (pointer) gd_fail(ctx, GD_ERROR_IO, "%s in %s: %s", name, in->path, pointer);
    gd_fail(ctx, GD_ERROR_IO, "%s in %s is not a JSON object%s%.80s", name, in->path,
            object ? "" : ": ", object ? "" : json->wrong);
    return NULL;
}

/* ---- config.json -------------------------------------------------------------------------- */

typedef struct reader {
    gd_context *ctx;
    const char *folder;
    const json_t *object;
} reader;

/* `name`: what the value is called in the message. */
static void refuse_value(const reader *r, const char *name, const json_t *value, const char *wanted)
{
    char *found = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    gd_fail(r->ctx, GD_ERROR_IO, "config.json in %s: %s is not %s%s%.60s", r->folder, name, wanted,
            found ? ", but " : "", found ? found : "");
    free(found);
}

static void refuse(const reader *r, const char *key, const char *wanted)
{
    refuse_value(r, key, json_object_get(r->object, key), wanted);
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
    if (whole < 1 || whole > most)
        refuse(r, key, gd_format("a whole number from 1 to %lld", (long long)most).text);
    return whole;
}

/* The number of a member of the file or of an object in it; null is not a number. */
static double read_number(const reader *r, const json_t *value, const char *name, double low,
                          double high, double fallback)
{
    if (!value) return fallback;
    double number = json_number_value(value);
    if (!(number >= low && number <= high))
        refuse_value(r, name, value, gd_format("a number from %g to %g", low, high).text);
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

/* ---- Rotary positions --------------------------------------------------------------------- */

static bool is_one(const json_t *value)
{
    return absent(value) || json_number_value(value) == 1;
}

/* The object under `key`, NULL if it has no member; it must not ask for more than a base. Older
 * files call the kind "type". Files whose layers differ have an object for each kind of layer. */
static const json_t *read_rope(const reader *r, const char *key)
{
    static const char wanted[] = "of rope_type \"default\", the only one supported";
    json_t *rope = json_object_get(r->object, key), *value;
    const json_t *kind = json_object_get(rope, "rope_type"), *old = json_object_get(rope, "type");
    const char *name;
    if (!kind) kind = old;
    if (!absent(rope) && !json_is_object(rope)) refuse(r, key, "an object");
    if ((kind && !text_is(kind, "default")) || (!absent(old) && !text_is(old, "default")))
        refuse(r, key, wanted);
    json_object_foreach(rope, name, value)
    {
        static const char *const known[] = {"rope_type", "type", "rope_theta",
                                            "original_max_position_embeddings"};
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(name, known[i]) != 0) i++;
        const bool ratio = !strcmp(name, "factor") || !strcmp(name, "partial_rotary_factor");
        if (i < sizeof known / sizeof *known || (ratio ? is_one(value) : json_is_null(value)))
            continue;
        refuse_value(r, gd_format("%s.%.60s", key, name).text, value,
                     ratio ? "1, the only value supported" : "known");
    }
    return json_object_size(rope) ? rope : NULL;
}

/* Looks where transformers does, in its order: rope_scaling replaces rope_parameters, and both go
 * before the top level, which has the base in files of transformers 4. */
static double read_rope_base(const reader *r)
{
    const json_t *parameters = read_rope(r, "rope_parameters");
    const json_t *scaling = read_rope(r, "rope_scaling");
    const json_t *base = json_object_get(scaling ? scaling : parameters, "rope_theta");
    const char *name = !base     ? "rope_theta"
                       : scaling ? "rope_scaling.rope_theta"
                                 : "rope_parameters.rope_theta";
    if (!base) base = json_object_get(r->object, "rope_theta");
    return read_number(r, base, name, 1, 1e12, 10000);
}

/* ---- What there is only one of ------------------------------------------------------------ */

/* Members that change what transformers computes. All may be absent or null. */
static void check_kind(const reader *r)
{
    static const struct {
        const char *key, *value, *wanted;
    } rows[] = {
        {"attention_bias", "false", "false"},
        {"mlp_bias", "false", "false"},
        {"is_causal", "true", "true"},
        {"attention_chunk_size", "null", "null"},
        {"per_layer_config", "null", "null"},
        {"quantization_config", "null", "null: quantized weights cannot be read"},
        {"compression_config", "null", "null: compressed weights cannot be read"},
    };
    const char *const kind = "model_type";
    if (!text_is(json_object_get(r->object, kind), "llama")) refuse(r, kind, "\"llama\"");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = json_object_get(r->object, rows[i].key);
        const bool only = json_is_true(value)    ? *rows[i].value == 't'
                          : json_is_false(value) ? *rows[i].value == 'f'
                                                 : absent(value);
        if (!only) refuse(r, rows[i].key, rows[i].wanted);
    }
    if (!is_one(json_object_get(r->object, "partial_rotary_factor")))
        refuse(r, "partial_rotary_factor", "1");
    const json_t *act = json_object_get(r->object, "hidden_act");
    if (act && !text_is(act, "silu") && !text_is(act, "swish")) refuse(r, "hidden_act", "\"silu\"");
}

/* Every layer sees all tokens before; a window as long as the context changes nothing. */
static void check_attention(const reader *r, int64_t positions)
{
    const json_t *types = json_object_get(r->object, "layer_types");
    const json_t *window = json_object_get(r->object, "sliding_window");
    bool full = absent(types) || json_is_array(types);
    for (size_t i = 0; full && i < json_array_size(types); i++)
        full = text_is(json_array_get(types, i), "full_attention");
    if (!full) refuse(r, "layer_types", "\"full_attention\" for each layer");
    if (!absent(window) && !(json_number_value(window) >= (double)positions))
        refuse(r, "sliding_window", "null or at least max_position_embeddings");
}

gd_status llama_read_config(gd_context *ctx, open_folder *in, model_config *config)
{
    gd_json json;
    const json_t *object = read_object(ctx, in, "config.json", CONFIG_LIMIT, &json);
    const reader r = {ctx, in->path, object};
    if (!object) {
        gd_json_close(&json);
        return gd_fail(ctx, GD_ERROR_IO, "there is no config.json in %s", in->path);
    }
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
    check_attention(&r, config->positions);
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
    gd_json_close(&json);
    return gd_error_status(ctx);
}

/* ---- The index ---------------------------------------------------------------------------- */

struct llama_index {
    gd_json json;
    const json_t *map;
};

/* File names come from the index, so they must not lead out of the folder. */
llama_index *llama_index_open(gd_context *ctx, open_folder *in)
{
    static const char name[] = "model.safetensors.index.json";
    gd_json json;
    json_t *object = read_object(ctx, in, name, INDEX_LIMIT, &json), *file;
    json_t *map = json_object_get(object, "weight_map");
    llama_index *index = object ? malloc(sizeof *index) : NULL;
    const char *weight;
    if (object && !index) gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: %s in %s", name, in->path);
    if (object && !json_is_object(map))
        gd_fail(ctx, GD_ERROR_IO, "%s in %s has no weight_map", name, in->path);
    json_object_foreach(map, weight, file)
    {
        const char *text = json_string_value(file);
        if (text && text[0] && text[0] != '.' && !gd_os_last_slash(text) && strlen(text) < 256)
            continue;
        gd_fail(ctx, GD_ERROR_IO, "%s in %s: the file of \"%.80s\" is not a file name", name,
                in->path, weight);
        break;
    }
    if (index) *index = (llama_index){json, map};
    if (index && !gd_error(ctx)) return index;
    gd_json_close(&json);
    free(index);
    return NULL;
}

const char *llama_index_file(const llama_index *index, const char *weight)
{
    return json_string_value(json_object_get(index->map, weight));
}

void llama_index_close(llama_index *index)
{
    if (index) gd_json_close(&index->json);
    free(index);
}

#else

gd_status llama_read_config(gd_context *ctx, open_folder *in, model_config *config)
{
    (void)config;
    return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                   "%s: this build of gradus has no jansson (GRADUS_JANSSON)", in->path);
}

llama_index *llama_index_open(gd_context *ctx, open_folder *in)
{
    (void)ctx, (void)in;
    return NULL;
}

const char *llama_index_file(const llama_index *index, const char *weight)
{
    (void)index, (void)weight;
    return NULL;
}

void llama_index_close(llama_index *index)
{
    (void)index;
}

#endif
