/* test_train16.c - gradus-train --dtype bf16 and f16: it goes where float32 goes, keeps its
 * masters, and is resumed bit for bit. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "runs.h"
#include "state_file.h"

#include <math.h>

static const char *const dtypes[2] = {"bf16", "f16"};

/* Sentences of a few words, so that there is something to learn; ids below 24; and another
 * $small. */
static void set_up_words(void)
{
    set_up();
    setenv("small",
           "--data text --layers 2 --dim 32 --heads 4 --kv-heads 2 --ffn 48 --context 24 --batch 6 "
           "--warmup 5 --lr 0.003 --eval-every 0 --log-every 1 --sample-length 0 --threads 1",
           1);
    write_words("text", 15600);
    write_tokens("ids", 24, 15600);
}

enum { STEPS = 100 };

/* The losses of all steps, NaN where there was none. */
static void read_losses(double *losses)
{
    for (int i = 0; i < STEPS; i++) losses[i] = NAN;
    for (const char *at = output; (at = strstr(at, "step ")); at++) {
        int step, steps;
        double loss;
        if (sscanf(at, "step %d/%d | loss %lf", &step, &steps, &loss) == 3) losses[step - 1] = loss;
    }
}

/* ---- Where it goes ------------------------------------------------------------------------ */

/* From a loss of 2.9 to one of 0.6. The first steps differ by rounding alone; later ones also by
 * where that led. */
LOOP_TEST(losses_are_those_of_float32, test_brief() ? 1 : 2)
{
    static double wide[STEPS], narrow[STEPS];
    train_well("$small --steps 100");
    read_losses(wide);
    double wide_end = number_after(output, "\nvalidation loss ");
    train_well("$small --steps 100 --dtype %s", dtypes[_i]);
    read_losses(narrow);
    double worst = 0, first = 0;
    for (int i = 0; i < STEPS; i++) {
        ck_assert(isfinite(wide[i]) && isfinite(narrow[i]));
        worst = fmax(worst, fabs(wide[i] - narrow[i]));
        if (i < 10) first = fmax(first, fabs(wide[i] - narrow[i]));
    }
    printf("%s: losses differ from those of float32 by %.4f in 10 steps, by %.4f in 100\n",
           dtypes[_i], first, worst);
    ck_assert_double_lt(wide[STEPS - 1], wide[0] - 1.5);
    ck_assert_double_le(first, _i ? 0.001 : 0.005);
    ck_assert_double_le(worst, _i ? 0.01 : 0.05);
    ck_assert_double_le(fabs(number_after(output, "\nvalidation loss ") - wide_end), 0.03);
}

LOOP_TEST(threads_change_nothing, test_brief() ? 1 : 2)
{
    uint64_t weights[2];
    for (int k = 0; k < 2; k++) {
        train_well(
            "$small --steps 12 --dim 64 --dropout 0.1 --accumulate 2 --dtype %s --threads %s",
            dtypes[_i], k ? "2" : "1");
        weights[k] = strtoull(strstr(output, "\nweights ") + 9, NULL, 16);
    }
    ck_assert(weights[0] == weights[1] && weights[0] != 0);
}

/* ---- The checkpoint ----------------------------------------------------------------------- */

/* Reads the model and the state in two folders: rounded to the model's dtype, the masters are its
 * weights, of which those of one product are one parameter. Returns how many masters the model
 * rounds. */
static int64_t assert_masters(const char *folder_of_weights, const char *folder_of_state,
                              const char *dtype)
{
    static const struct {
        const char *parameter, *weights[3];
    } rows[] = {{"norm1", {"input_layernorm"}},
                {"wqkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                {"wo", {"self_attn.o_proj"}},
                {"norm2", {"post_attention_layernorm"}},
                {"w_gate_up", {"mlp.gate_proj", "mlp.up_proj"}},
                {"w_down", {"mlp.down_proj"}},
                {"embedding", {"model.embed_tokens"}},
                {"norm_final", {"model.norm"}},
                {"output", {"lm_head"}}};
    char path[256], name[128], layer[32], part[32];
    int64_t differ = 0, weights = 0;
    int number;
    gd_context *ctx = gd_context_create(NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", folder_of_weights);
    gd_safetensors *model = gd_safetensors_open(ctx, path);
    snprintf(path, sizeof path, "%s/state.safetensors", folder_of_state);
    gd_safetensors *state = gd_safetensors_open(ctx, path);
    ck_assert_no_error(ctx);
    for (int64_t i = 0; i < gd_safetensors_count(state); i++) {
        const gd_safetensors_entry *entry = gd_safetensors_at(state, i);
        if (sscanf(entry->name, "optimizer.master.layers.%d.%31s", &number, part) == 2)
            snprintf(layer, sizeof layer, "model.layers.%d.", number);
        else if (sscanf(entry->name, "optimizer.master.%31s", part) == 1)
            layer[0] = '\0';
        else
            continue;
        size_t row = 0, at = 0;
        while (strcmp(rows[row].parameter, part) != 0) row++;
        gd_tensor *master = gd_safetensors_tensor(state, entry->name);
        ck_assert_int_eq(gd_tensor_dtype(master), GD_FLOAT32);
        for (int k = 0; k < 3 && rows[row].weights[k]; k++, weights++) {
            snprintf(name, sizeof name, "%s%s.weight", layer, rows[row].weights[k]);
            gd_tensor *weight = gd_safetensors_tensor(model, name);
            ck_assert_no_error(ctx);
            ck_assert_str_eq(gd_safetensors_find(model, name)->format_dtype, dtype);
            const size_t count = (size_t)gd_tensor_count(weight);
            const float *own = (const float *)gd_tensor_data(master) + at;
            gd_tensor *same = gd_tensor_from(ctx, GD_FLOAT32, gd_tensor_ndim(weight),
                                             gd_tensor_shape(weight), own);
            gd_tensor *rounded = gd_cast(same, gd_tensor_dtype(weight));
            ck_assert_mem_eq(gd_tensor_data(rounded), gd_tensor_data(weight),
                             count * gd_dtype_size(gd_tensor_dtype(weight)));
            gd_tensor *wide = gd_cast(weight, GD_FLOAT32);
            differ += memcmp(gd_tensor_data(wide), own, count * sizeof(float)) != 0;
            at += count;
            gd_step_end(ctx);
            gd_tensor_free(weight), gd_tensor_free(same);
        }
        ck_assert_uint_eq(at * sizeof(float), entry->bytes);
        gd_tensor_free(master);
    }
    ck_assert_int_eq(weights, gd_safetensors_count(model));
    gd_safetensors_close(model);
    gd_safetensors_close(state);
    gd_context_free(ctx);
    return differ;
}

/* model.safetensors is 16-bit, and the masters of state.safetensors say more. */
LOOP_TEST(the_folder_holds_the_masters_rounded, 2)
{
    train_well("$small --steps 7 --out a --dtype %s", dtypes[_i]);
    shell(_i ? "grep -q '\"torch_dtype\": \"float16\"' a/step-00000007/config.json"
             : "grep -q '\"torch_dtype\": \"bfloat16\"' a/step-00000007/config.json");
    ck_assert_int_gt(assert_masters("a/step-00000007", "a/step-00000007", _i ? "F16" : "BF16"),
                     (2 * 9 + 3) / 2);
    shell("rm -r a");
}

/* Any dtype may follow any other, and the loss goes on where it was. */
LOOP_TEST(a_run_resumes_in_another_dtype, 4)
{
    static const char *const all[] = {"f32", "bf16", "f16", "f64"};
    train_well("$small --steps 60 --out a --dtype %s", all[_i]);
    double before = number_after(output, "\nvalidation loss ");
    for (int k = 0; k < 4; k++) {
        train_well("--resume a/step-00000060 --dtype %s --steps 61 --lr 1e-6 --min-lr 0", all[k]);
        ck_assert_double_eq_tol(number_after(output, "\nvalidation loss "), before, 0.01);
        train_well("$small --init a/step-00000060 --dtype %s --steps 1 --lr 1e-6 --min-lr 0",
                   all[k]);
        ck_assert_double_eq_tol(number_after(output, "\nvalidation loss "), before, 0.01);
    }
    shell("rm -r a");
}

/* The masters of a checkpoint, after a step with a rate of 0, are the weights of another folder. */
static void assert_begun(const char *folder_of_weights)
{
    ck_assert_int_eq(assert_masters(folder_of_weights, "b/step-00000006", "F32"), 0);
    shell("rm -r b");
}

LOOP_TEST(masters_begin_with_all_bits, 2)
{
    train_well("$small --steps 5 --out a");
    train_well("--resume a/step-00000005 --steps 6 --lr 0 --min-lr 0 --out b --dtype %s",
               dtypes[_i]);
    assert_begun("a/step-00000005");
    train_well("$small --init a/step-00000005 --steps 6 --lr 0 --min-lr 0 --out b --dtype %s",
               dtypes[_i]);
    assert_begun("a/step-00000005");
    train_well("--tokens ids --val-data ids --init %s/files/llama/grouped --steps 6 --lr 0 "
               "--min-lr 0 --context 12 --sample-length 0 --out b --dtype %s",
               GRADUS_TEST_DIR, dtypes[_i]);
    assert_begun(GRADUS_TEST_DIR "/files/llama/grouped");
    shell("rm -r a");
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* 2 bytes a parameter, 4 a gradient, 12 of state; in float32 4, 4 and 8. MiB have one digit. */
LOOP_TEST(a_dry_run_counts_the_masters, 2)
{
    for (int narrow = 0; narrow < 2; narrow++) {
        train_well("$small --dry-run --dim 256 --ffn 704 --dtype %s", narrow ? dtypes[_i] : "f32");
        const char *line = strstr(output, " parameters, ");
        ck_assert_ptr_nonnull(line);
        while (line[-1] != ' ') line--;
        double unit = strtod(line, NULL) / 1048576;
        ck_assert_double_eq_tol(number_after(output, ": parameters "), (narrow ? 2 : 4) * unit,
                                0.06);
        ck_assert_double_ge(number_after(output, ", gradients "), 4 * unit - 0.06);
        ck_assert_double_eq_tol(number_after(output, ", optimizer "), (narrow ? 12 : 8) * unit,
                                0.06);
        ck_assert_ptr_null(strstr(output, "\nstep "));
    }
}

/* ---- The loss scale ----------------------------------------------------------------------- */

static void set_scale(const char *scale)
{
    shell("rm -f a/step-00000005/checksums.xxh3");
    state_write("a/step-00000005/state.safetensors", "optimizer.loss_scale", scale, NULL);
}

/* With a scale far too large, steps are skipped, each with half the scale, and then it learns; none
 * of them counts as a fault. A run that is stopped among them goes on in the same way. */
TEST(overflows_are_survived)
{
    static const char words[] = "is skipped: a gradient overflows float16";
    int left_out = 0;
    train_well("$small --steps 5 --out a --dtype f16");
    set_scale("17179869184");
    train_well("--resume a/step-00000005 --steps 60 --out b --checkpoint-every 9 --keep 0");
    for (const char *at = output; (at = strstr(at, words)); at++) left_out++;
    printf("%d steps were skipped\n", left_out);
    ck_assert_int_ge(left_out, 10);
    ck_assert_int_le(left_out, 34);
    ck_assert_double_lt(number_after(output, "step 60/60 | loss "),
                        number_after(output, "step 6/60 | loss ") - 0.5);
    train_well("--resume b/step-00000009 --out c --keep 0");
    program_said(output, words);
    shell("diff -r b/step-00000060 c/step-00000060");
    set_scale("3");
    train_badly("--resume a/step-00000005", "factor is 3 and good");
    set_scale("0");
    train_badly("--resume a/step-00000005", "factor is 0 and good");
    shell("rm -r a b c");
}

CHECK_MAIN_AROUND(program_missing("gradus-train"), "train16", set_up_words, leave_folder)
