/* test_llama.c - Llama folders as `transformers` saved them (tests/files/llama/make_fixtures.py),
 * against the logits that it computed; and the same after a round trip through a folder of ours. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "check_main.h"
#include "llama/logits.h"
#include "own_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, LENGTH = 11, VOCAB = 24, COUNT = ROWS * LENGTH * VOCAB };

static const struct {
    const char *name;
    bool tied;
    int kv_heads;
    double eps, rope_base;
} fixtures[] = {{"grouped", false, 2, 1e-5, 1e4},
                {"tied", true, 4, 1e-6, 5e5},
                {"bfloat16", false, 1, 1e-5, 1e4},
                {"sharded", false, 2, 1e-5, 1e4}};

static gd_context *ctx;

static void set_up(void)
{
    ctx = gd_context_create(NULL);
    enter_folder();
}

static void tear_down(void)
{
    gd_context_free(ctx);
    leave_folder();
}

static const char *path_of(const char *name, const char *suffix)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/files/llama/%s%s", GRADUS_TEST_DIR, name, suffix);
    return path;
}

static void compute(model *m, gd_tensor *tokens, double *logits)
{
    gd_tensor_read_f64(llama_logits(m, tokens), logits, COUNT);
    gd_step_end(ctx);
    ck_assert_no_error(ctx);
}

/* The largest difference, in units of the largest logit. */
static double difference(const double *a, const double *b)
{
    double most = 0, largest = 0;
    for (int i = 0; i < COUNT; i++) {
        most = fmax(most, fabs(a[i] - b[i]));
        largest = fmax(largest, fabs(b[i]));
    }
    return most / largest;
}

LOOP_TEST(the_logits_are_those_of_transformers, 4)
{
    static double wanted[COUNT], logits[COUNT];
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64};
    gd_safetensors *file = gd_safetensors_open(ctx, path_of(fixtures[_i].name, ".safetensors"));
    gd_tensor *tokens = gd_safetensors_tensor(file, "tokens");
    gd_tensor *reference = gd_safetensors_tensor(file, "logits");
    gd_tensor_read_f64(reference, wanted, COUNT);
    for (int i = 0; i < 2; i++) {
        model m;
        llama_open(&m, ctx, dtypes[i], path_of(fixtures[_i].name, ""));
        ck_assert_no_error(ctx);
        ck_assert(m.config.tied == fixtures[_i].tied);
        ck_assert_int_eq(m.config.kv_heads, fixtures[_i].kv_heads);
        ck_assert_int_eq(m.config.positions, 32);
        ck_assert(m.config.eps == fixtures[_i].eps);
        ck_assert(m.config.rope_base == fixtures[_i].rope_base);
        compute(&m, tokens, logits);
        double off = difference(logits, wanted);
        printf("%s in %s: off by %.1e of the largest logit\n", fixtures[_i].name,
               gd_dtype_name(dtypes[i]), off);
        ck_assert_double_lt(off, 3e-6);
        model_free(&m);
    }
    gd_tensor_free(tokens);
    gd_tensor_free(reference);
    gd_safetensors_close(file);
}

LOOP_TEST(saved_and_loaded_it_is_the_same, 4)
{
    static double before[COUNT], after[COUNT];
    model first, second;
    gd_safetensors *file = gd_safetensors_open(ctx, path_of(fixtures[_i].name, ".safetensors"));
    gd_tensor *tokens = gd_safetensors_tensor(file, "tokens");
    llama_open(&first, ctx, GD_FLOAT32, path_of(fixtures[_i].name, ""));
    saving to = {.ctx = ctx};
    ck_assert(folder_open(&to.folder, ".", false) && !llama_save(&first, &to, "ids"));
    folder_close(&to.folder);
    llama_open(&second, ctx, GD_FLOAT32, ".");
    ck_assert_no_error(ctx);
    compute(&first, tokens, before);
    compute(&second, tokens, after);
    ck_assert(!memcmp(before, after, sizeof before));
    ck_assert(first.config.eps == second.config.eps &&
              first.config.rope_base == second.config.rope_base &&
              first.config.positions == second.config.positions);
    model_free(&first);
    model_free(&second);
    gd_tensor_free(tokens);
    gd_safetensors_close(file);
}

/* Opens the folder of a fixture as a command has changed it. */
static void open_changed(model *m, const char *name, const char *change)
{
    shell("rm -rf changed && mkdir changed && cp %s/* changed && cd changed && %s",
          path_of(name, ""), change);
    llama_open(m, ctx, GD_FLOAT32, "changed");
}

/* Files of other versions of transformers, and what lies beside them. */
TEST(the_same_in_other_words)
{
    static const char *const changes[] = {
        "sed -i 's/\"rope_theta\": 10000.0,/\"rope_theta\": 10000.0/; /rope_type/d' config.json",
        "sed -i '/rope_parameters/,/}/d' config.json",
        "sed -i '/rope_parameters/,/}/d; s/\"use_cache\": true/\"rope_theta\": 10000, "
        "\"rope_scaling\": {\"type\": \"default\"}, \"torch_dtype\": \"float32\"/' config.json",
        "sed -i '/tie_word/d; /head_dim/d; /_bias/d; /architectures/,/]/d; /hidden_act/d' "
        "config.json",
        "sed -i '1s/^/\\xef\\xbb\\xbf/' config.json",
        "echo '{\"weight_map\": {\"lm_head.weight\": \"none\"}}' >model.safetensors.index.json"};
    static double wanted[COUNT], logits[COUNT];
    gd_safetensors *file = gd_safetensors_open(ctx, path_of("grouped", ".safetensors"));
    gd_tensor *tokens = gd_safetensors_tensor(file, "tokens");
    model m;
    llama_open(&m, ctx, GD_FLOAT32, path_of("grouped", ""));
    compute(&m, tokens, wanted);
    model_free(&m);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        open_changed(&m, "grouped", changes[i]);
        ck_assert_msg(!gd_error(ctx), "%s: %s", changes[i], gd_error(ctx));
        compute(&m, tokens, logits);
        ck_assert_msg(!memcmp(logits, wanted, sizeof wanted), "%s", changes[i]);
        model_free(&m);
    }
    gd_tensor_free(tokens);
    gd_safetensors_close(file);
}

/* A weight that is missing, of another shape, or unknown. */
TEST(folders_that_do_not_fit)
{
    static const struct {
        const char *change, *wanted;
    } rows[] = {
        {"rm model.safetensors", "model.safetensors: No such file"},
        {"sed -i 's/\"intermediate_size\": 20/\"intermediate_size\": 24/' config.json",
         "tensor \"model.layers.0.mlp.gate_proj.weight\" has shape [20, 16], wanted [24, 16]"},
        {"sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 3/' config.json",
         "has no tensor \"model.layers.2.input_layernorm.weight\""},
        {"sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/' config.json",
         "contains \"model.layers.1.input_layernorm.weight\", which is not a weight of this model"},
        {"sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/; "
         "s/\"tie_word_embeddings\": false/\"tie_word_embeddings\": true/' config.json",
         "contains \"model.layers.1.input_layernorm.weight\", which is not a weight of this model"},
        {"sed -i 's/\"head_dim\": 4/\"head_dim\": 8/' config.json", "head_dim is not hidden_size"},
        {"sed -i 's/\"rope_type\": \"default\"/\"rope_type\": \"yarn\"/' config.json",
         "rope_parameters is not of rope_type \"default\", the only one supported, "
         "but {\"rope_theta\":10000.0,\"rope_type\":\"yarn\"}"},
        {"sed -i 's/\"use_cache\": true/\"rope_scaling\": {\"type\": \"linear\", \"factor\": "
         "2.0}/' "
         "config.json",
         "rope_scaling is not of rope_type \"default\", the only one supported, but "
         "{\"type\":\"linear\",\"factor\":2.0}"},
        {"sed -i 's/\"tie_word_embeddings\": false/\"tie_word_embeddings\": true/' config.json",
         "lm_head.weight differs from model.embed_tokens.weight"},
        {"sed -i 's/\"attention_bias\": false/\"attention_bias\": true/' config.json",
         "attention_bias is not false"},
        {"sed -i 's/\"num_key_value_heads\": 2/\"num_key_value_heads\": 3/' config.json",
         "num_key_value_heads is not a divisor"},
        {"sed -i 's/\"vocab_size\": 24/\"vocab_size\": 0/' config.json",
         "vocab_size is not a whole number from 1 to 2147483647, but 0"},
        {"sed -i 's/\"rms_norm_eps\": 1e-05/\"rms_norm_eps\": \"x\"/' config.json",
         "rms_norm_eps is not a number from 1e-30 to 1, but \"x\""},
        {"mv model.safetensors pytorch_model.bin",
         "has pytorch_model.bin, which cannot be read, and no model.safetensors"},
        {"printf 'version https://git-lfs.github.com/spec/v1\noid x\n' >config.json",
         "it is a Git LFS pointer; \"git lfs pull\" fetches the file itself"},
        {"printf 'version https://git-lfs.github.com/spec/v1\noid x\n' >model.safetensors",
         "it is a Git LFS pointer; \"git lfs pull\" fetches the file itself"},
        {"sed -i 's/\\(up_proj.weight\":{\"dtype\":\"\\)F32/\\1I32/' model.safetensors",
         "up_proj.weight\" holds int32, wanted floating-point numbers"},
        {"sed -i 's/\\(up_proj.weight\":{\"dtype\":\"\\)F32/\\1U32/' model.safetensors",
         "up_proj.weight\" holds uint32 (U32), wanted F32, F64, BF16, F16 or I32"},
        {"printf '{\"a\\\\\\n\"' > config.json", "invalid escape near '\"a\\?'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m;
        open_changed(&m, "grouped", rows[i].change);
        ck_assert_error(ctx, rows[i].wanted);
        model_free(&m);
    }
}

/* Reads a small config.json with these members; `key`, if any, is not among its own. */
static bool read_members(const char *key, const char *members, model_config *config)
{
    static const char *const others[][2] = {{"vocab_size", "7"},
                                            {"num_hidden_layers", "2"},
                                            {"intermediate_size", "16"},
                                            {"hidden_size", "8"},
                                            {"num_attention_heads", "2"}};
    FILE *file = fopen("config.json", "w");
    fprintf(file, "{\"model_type\": \"llama\"");
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        if (!key || strcmp(others[k][0], key) != 0)
            fprintf(file, ", \"%s\": %s", others[k][0], others[k][1]);
    }
    fprintf(file, ", %s}", members);
    fclose(file);
    return !llama_config(ctx, ".", config);
}

/* Both ends of each range, and what is just beyond. */
TEST(numbers_of_the_configuration_have_their_ranges)
{
    static const struct {
        const char *key, *value;
        bool fits;
    } rows[] = {
        {"rms_norm_eps", "1", true},
        {"rms_norm_eps", "1.000001", false},
        {"rms_norm_eps", "1e-30", true},
        {"rms_norm_eps", "9e-31", false},
        {"rms_norm_eps", "-1", false},
        {"rope_theta", "1", true},
        {"rope_theta", "0.999999", false},
        {"rope_theta", "1e12", true},
        {"rope_theta", "1.000001e12", false},
        {"vocab_size", "1", true},
        {"vocab_size", "0", false},
        {"vocab_size", "2147483647", true},
        {"vocab_size", "2147483648", false},
        {"num_hidden_layers", "1000", true},
        {"num_hidden_layers", "1001", false},
        {"intermediate_size", "1048576", true},
        {"intermediate_size", "1048577", false},
        {"max_position_embeddings", "2147483647", true},
        {"max_position_embeddings", "2147483648", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_config config;
        char member[64];
        snprintf(member, sizeof member, "\"%s\": %s", rows[i].key, rows[i].value);
        const bool read = read_members(rows[i].key, member, &config);
        ck_assert_msg(read == rows[i].fits, "%s %s: %s", rows[i].key, rows[i].value, gd_error(ctx));
        gd_error_clear(ctx);
    }
}

/* Where transformers 5 looks, in its order; what it, or an older one, would fail on is refused. */
TEST(the_base_of_the_rotary_positions_is_found)
{
#define DEFAULT "\"rope_type\": \"default\""
    static const struct {
        const char *members;
        double base;
        const char *refusal;
    } rows[] = {
        {"\"use_cache\": true", 10000, NULL},
        {"\"rope_theta\": 5e5", 5e5, NULL},
        {"\"rope_theta\": 5e5, \"rope_scaling\": null", 5e5, NULL},
        {"\"rope_theta\": 5e5, \"rope_scaling\": {}, \"rope_parameters\": {}", 5e5, NULL},
        {"\"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"default\"}", 5e5, NULL},
        {"\"rope_parameters\": {" DEFAULT ", \"rope_theta\": 5e5}", 5e5, NULL},
        {"\"rope_parameters\": {" DEFAULT ", \"rope_theta\": 5e5}, \"rope_theta\": 1e4", 5e5, NULL},
        {"\"rope_parameters\": {\"rope_theta\": 5e5}, \"rope_theta\": null", 5e5, NULL},
        {"\"rope_parameters\": {" DEFAULT "}, \"rope_theta\": 5e5", 5e5, NULL},
        {"\"rope_scaling\": {" DEFAULT ", \"rope_theta\": 5e5}", 5e5, NULL},
        {"\"rope_scaling\": {" DEFAULT ", \"rope_theta\": 5e5}, \"rope_theta\": 1e4", 5e5, NULL},
        {"\"rope_scaling\": {\"rope_theta\": 5e5}, \"rope_parameters\": {\"rope_theta\": 3}", 5e5,
         NULL},
        {"\"rope_scaling\": {" DEFAULT "}, \"rope_parameters\": {\"rope_theta\": 3}", 10000, NULL},
        {"\"rope_scaling\": {" DEFAULT ", \"factor\": 1.0, \"x\": null}", 10000, NULL},
        {"\"rope_theta\": null", 0, "rope_theta is not a number from 1 to 1e+12, but null"},
        {"\"rope_parameters\": {\"rope_theta\": null}, \"rope_theta\": 5e5", 0,
         "rope_parameters.rope_theta is not a number from 1 to 1e+12, but null"},
        {"\"rope_scaling\": {\"rope_theta\": \"5e5\"}", 0,
         "rope_scaling.rope_theta is not a number"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", 0,
         "rope_scaling is not of rope_type"},
        {"\"rope_scaling\": {" DEFAULT ", \"type\": \"yarn\"}", 0,
         "rope_scaling is not of rope_type"},
        {"\"rope_scaling\": {\"rope_type\": null}", 0, "rope_scaling is not of rope_type"},
        {"\"rope_scaling\": {\"factor\": 2.0}", 0, "rope_scaling.factor is not 1"},
        {"\"rope_parameters\": {\"partial_rotary_factor\": 0.5}", 0, "factor is not 1"},
        {"\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5e5}}", 0,
         "rope_parameters.full_attention is not known, but {\"rope_theta\":500000.0}"},
        {"\"rope_parameters\": 3", 0, "rope_parameters is not an object, but 3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_config config = {.rope_base = 0};
        const bool read = read_members(NULL, rows[i].members, &config);
        ck_assert_msg(read == !rows[i].refusal, "%s: %s", rows[i].members, gd_error(ctx));
        if (read)
            ck_assert_msg(config.rope_base == rows[i].base, "%s: %g", rows[i].members,
                          config.rope_base);
        else
            ck_assert_msg(strstr(gd_error(ctx), rows[i].refusal) != NULL, "%s", gd_error(ctx));
        gd_error_clear(ctx);
    }
}

/* Members that change what the model computes. */
TEST(what_is_not_supported_is_refused)
{
    static const struct {
        const char *members;
        bool fits;
    } rows[] = {{"\"hidden_act\": \"swish\"", true},
                {"\"hidden_act\": null", false},
                {"\"rms_norm_eps\": null", false},
                {"\"is_causal\": true", true},
                {"\"is_causal\": false", false},
                {"\"partial_rotary_factor\": 1", true},
                {"\"partial_rotary_factor\": 1.0", true},
                {"\"partial_rotary_factor\": 0.5", false},
                {"\"sliding_window\": null", true},
                {"\"sliding_window\": 2048", true},
                {"\"sliding_window\": 2047", false},
                {"\"attention_chunk_size\": 8", false},
                {"\"layer_types\": [\"full_attention\"]", true},
                {"\"layer_types\": [\"full_attention\", \"sliding_attention\"]", false},
                {"\"quantization_config\": null", true},
                {"\"quantization_config\": {\"quant_method\": \"fp8\"}", false},
                {"\"per_layer_config\": {\"0\": {\"head_dim\": 2}}", false},
                {"\"attention_bias\": 0", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_config config;
        const bool read = read_members(NULL, rows[i].members, &config);
        ck_assert_msg(read == rows[i].fits, "%s: %s", rows[i].members, gd_error(ctx));
        gd_error_clear(ctx);
    }
}

CHECK_MAIN_WITHIN("llama", set_up, tear_down)
