/* train_options.c - see train_options.h. */
#include "train_options.h"
#include "console.h"

#include <string.h>

#define AT(field) offsetof(train_options, field)

static const int dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16, GD_FLOAT64};
static const int schedules[] = {GD_SCHEDULE_COSINE, GD_SCHEDULE_LINEAR, GD_SCHEDULE_CONSTANT,
                                GD_SCHEDULE_WSD};
static const int save_errors[] = {SAVE_ERROR_CONTINUE, SAVE_ERROR_STOP};

static const option_row rows[] = {
    {.help = "Text"},
    {OPTION_PATH, "data", AT(data), .others = "dataset input text train_data",
     .help = "FILE  any text"},
    {OPTION_PATH, "tokens", AT(tokens), .others = "input_bin",
     .help = "PATTERN  token files of nanoGPT or llm.c instead; wants --val-data, and --vocab or "
             "--init"},
    {OPTION_PATH, "val-data", AT(val_data), .others = "val input_val_bin",
     .help = "FILE  the like for validation; default: the last tenth of the text"},
    {OPTION_WHOLE, "vocab", AT(vocab), 0, 1048576, .others = "vocab_size",
     .help = "N  pieces to learn from the text, 256 or more; 0: its characters"},
    {.help = "Model"},
    {OPTION_WHOLE, "layers", AT(layers), 1, 1000, .others = "n_layer num_layers depth",
     .help = "N  transformer layers"},
    {OPTION_WHOLE, "dim", AT(dim), 2, 65536, .others = "n_embd d_model hidden_size width",
     .help = "N  width of the residual stream"},
    {OPTION_WHOLE, "heads", AT(heads), 1, 1024, .others = "n_head num_heads",
     .help = "N  query heads; dim / heads is even"},
    {OPTION_WHOLE, "kv-heads", AT(kv_heads), 0, 1024, .others = "n_kv_head num_kv_heads",
     .help = "N  key and value heads; 0: as many as heads"},
    {OPTION_WHOLE, "ffn", AT(ffn), 0, 1048576, .others = "d_ff intermediate_size hidden_dim",
     .help = "N  width of the feed-forward layers; 0: 8/3 dim, to a multiple of 32"},
    {OPTION_WHOLE, "context", AT(context), 1, 1048576,
     .others = "block_size sequence_length seq_len", .help = "N  tokens seen at once"},
    {OPTION_NUMBER, "dropout", AT(dropout), 0, 0.99,
     .help = "P  probability, on the embedding and in both branches of a layer"},
    {OPTION_SWITCH, "tied", AT(tied), .others = "tie_weights",
     .help = "  use the embedding as output projection"},
    {.help = "Training"},
    {OPTION_WHOLE, "batch", AT(batch), 1, 65536, .others = "batch_size",
     .help = "N  sequences in a step"},
    {OPTION_WHOLE, "accumulate", AT(accumulate), 1, 65536,
     .others = "gradient_accumulation_steps grad_accum",
     .help = "N  batches in a step, shared out over all processes; default: one for each"},
    {OPTION_WHOLE, "steps", AT(steps), 0, 1e12,
     .others = "max_iters max_steps num_iterations iters", .help = "N  updates of the weights"},
    {OPTION_NUMBER, "max-seconds", AT(max_seconds), 0, 1e9,
     .help = "S  stop after this time; 0: no limit", .passes = true},
    {OPTION_CHOICE, "schedule", AT(schedule), .choices = "cosine linear constant wsd",
     .values = schedules, .others = "scheduler lr_schedule",
     .help = "cosine|linear|constant|wsd  of the learning rate; wsd falls in the last fifth"},
    {OPTION_NUMBER, "lr", AT(lr), 0, 1e3, .others = "learning_rate",
     .help = "X  highest learning rate"},
    {OPTION_NUMBER, "min-lr", AT(min_lr), 0, 1e3,
     .help = "X  where it ends; default: a tenth of lr"},
    {OPTION_WHOLE, "warmup", AT(warmup), 0, 1e12, .others = "warmup_iters warmup_steps",
     .help = "N  steps of linear warm-up; default: a tenth of all, 100 at most"},
    {OPTION_NUMBER, "weight-decay", AT(weight_decay), 0, 100, .others = "wd",
     .help = "X  of matrices"},
    {OPTION_NUMBER, "beta2", AT(beta2), 0, 0.999999, .help = "X  of AdamW; beta1 is 0.9"},
    {OPTION_NUMBER, "clip", AT(clip), 0, 1e9, .others = "grad_clip max_grad_norm",
     .help = "X  highest norm of the gradient; 0: no clipping"},
    {OPTION_WHOLE, "skip-nonfinite", AT(skip_nonfinite), 0, 1e9,
     .help = "N  leave out so many steps whose loss or gradient is not finite, then stop"},
    {OPTION_CHOICE, "dtype", AT(dtype), .choices = "f32 bf16 f16 f64", .values = dtypes,
     .others = "precision",
     .help = "f32|bf16|f16|f64  of weights and activations; in 16 bits with float32 masters"},
    {OPTION_WHOLE, "seed", AT(seed), 0, 9e15, .help = "N  of the random numbers"},
    {OPTION_SWITCH, "recompute", AT(recompute),
     .help = "  less memory: compute each layer again in the backward"},
    {OPTION_SWITCH, "no-graph", AT(no_graph),
     .help = "  on a GPU, launch each kernel of a step from the host, with the same bits",
     .passes = true},
    {OPTION_SWITCH, "overfit-one-batch", AT(overfit_one_batch),
     .help = "  the same batch in every step: its loss must go to 0"},
    {OPTION_SWITCH, "dry-run", AT(dry_run),
     .help = "  print the configuration and the memory of a step, and stop", .passes = true},
    {.help = "Several devices"},
    {OPTION_WHOLE, "gpus", AT(gpus), 0, 1024, .others = "nproc_per_node num_gpus devices",
     .help = "N  train on so many GPUs of this machine, by one process each", .passes = true},
    {OPTION_WHOLE, "processes", AT(processes), 0, 1024, .others = "num_processes workers",
     .help = "N  the same on the CPU, whose threads they share", .passes = true},
    {OPTION_NUMBER, "timeout", AT(timeout), 0.01, 1e6,
     .help = "S  how long a process may be silent while another waits for it", .passes = true},
    {.help = "Report"},
    {OPTION_PATH, "log", AT(log), .others = "log_file",
     .help = "FILE  the run as lines of JSON; default: log.jsonl in --out", .passes = true},
    {OPTION_WHOLE, "eval-every", AT(eval_every), 0, 1e12, .others = "eval_interval val_loss_every",
     .help = "N  steps between validations; 0: at the end alone"},
    {OPTION_WHOLE, "eval-batches", AT(eval_batches), 0, 1e6,
     .others = "eval_iters val_max_steps eval_steps",
     .help = "N  batches that a validation takes, evenly spread; 0: all there are"},
    {OPTION_WHOLE, "log-every", AT(log_every), 1, 1e12, .others = "log_interval",
     .help = "N  steps to a line"},
    {OPTION_WHOLE, "sample-every", AT(sample_every), 0, 1e12, .others = "sample_interval",
     .help = "N  steps between samples; 0: at the end alone"},
    {OPTION_WHOLE, "sample-length", AT(sample_length), 0, 1e7,
     .help = "N  tokens of text in a sample"},
    {OPTION_NUMBER, "temperature", AT(temperature), 0, 100,
     .help = "X  of sampling; 0: always the likeliest"},
    {.help = "Checkpoints"},
    {OPTION_PATH, "out", AT(out), .others = "out_dir output_dir output",
     .help = "DIR  save checkpoints in this folder", .passes = true},
    {OPTION_WHOLE, "checkpoint-every", AT(checkpoint_every), 0, 1e12,
     .others = "save_interval save_every",
     .help = "N  steps between checkpoints; 0: at the end alone"},
    {OPTION_WHOLE, "keep", AT(keep), 0, 1e9, .help = "K  how many of the newest to keep; 0: all"},
    {OPTION_WHOLE, "keep-every", AT(keep_every), 0, 1e12,
     .help = "N  and those of every N-th step; 0: none"},
    {OPTION_SWITCH, "keep-best", AT(keep_best), .others = "save_best",
     .help =
         "  save where a validation is the best so far, and keep that checkpoint; it is best in "
         "--out"},
    {OPTION_CHOICE, "on-save-error", AT(on_save_error), .choices = "continue stop",
     .values = save_errors,
     .help = "continue|stop  when a checkpoint before the last cannot be saved"},
    {OPTION_PATH, "resume", AT(resume),
     .help = "DIR|auto  go on from a checkpoint, or from the newest one of a run, in its folder; "
             "auto: the same for --out, where there is one",
     .passes = true},
    {OPTION_PATH, "init", AT(init), .others = "init_from",
     .help = "DIR  begin with the weights of a checkpoint, the newest one of a run, or a Llama "
             "model in Hugging Face's form",
     .passes = true},
};

static const train_options defaults = {.base = {.device = GD_DEVICE_AUTO},
                                       .layers = 4,
                                       .dim = 128,
                                       .heads = 4,
                                       .context = 64,
                                       .batch = 12,
                                       .accumulate = -1,
                                       .timeout = 600,
                                       .schedule = GD_SCHEDULE_COSINE,
                                       .steps = 2000,
                                       .lr = 2e-3,
                                       .min_lr = -1,
                                       .warmup = -1,
                                       .weight_decay = 0.1,
                                       .beta2 = 0.99,
                                       .clip = 1,
                                       .eval_every = 500,
                                       .log_every = 100,
                                       .sample_length = 500,
                                       .checkpoint_every = 500,
                                       .keep = 2,
                                       .temperature = 0.8,
                                       .seed = 1};

static const option_table table = {
    .program = "gradus-train",
    .usage = "Usage: gradus-train --data FILE [OPTION...]\n\n"
             "Trains a Llama-style transformer on a text: RMSNorm, rotary positions,\n"
             "grouped-query attention, SwiGLU; AdamW with warm-up and a schedule. Prints a\n"
             "sample of what it learned.\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .defaults = &defaults,
    .size = sizeof defaults,
};
_Static_assert(sizeof rows / sizeof *rows + OPTIONS_COMMON <= OPTIONS_MOST,
               "`given` has a bit for each");
/* ---- What must fit together ---------------------------------------------------------------- */

static bool fits(const char *fault)
{
    if (fault) console_message("%s", fault);
    return !fault;
}

static const char *find_fault_of_text(const train_options *o)
{
    if (!o->data && !o->tokens) return "--data FILE is missing: a text to train on";
    if (o->data && o->tokens) return "--data and --tokens exclude each other";
    if (o->tokens && !o->val_data)
        return "--tokens wants --val-data PATTERN, the tokens for validation";
    if (o->tokens && o->vocab == 0)
        return "--tokens wants --vocab N, how many different tokens there are";
    if (o->data && o->vocab != 0 && o->vocab < 256)
        return "--vocab is less than 256, the number of different bytes";
    return NULL;
}

static const char *find_fault_of_model(const train_options *o)
{
    if (o->dim % o->heads) return "--dim is not a multiple of --heads";
    if (o->dim / o->heads % 2) return "--dim / --heads is odd, but rotary positions turn pairs";
    if (o->heads % o->kv_heads) return "--heads is not a multiple of --kv-heads";
    return NULL;
}

static const char *find_fault_of_devices(const train_options *o)
{
    if (o->gpus > 0 && o->processes > 0) return "--gpus and --processes exclude each other";
    if (o->gpus > 0 && options_given(&o->base, "device") && o->base.device == GD_CPU)
        return "--gpus and --device cpu exclude each other; --processes is for the CPU";
    if (o->processes > 0 && options_given(&o->base, "device") && o->base.device != GD_CPU)
        return "--processes is for the CPU; --gpus N takes a GPU for each process";
    return NULL;
}

/* Of two options that were given, one would do nothing. */
static const char *find_idle(const train_options *o)
{
    const options *given = &o->base;
    if (o->min_lr > o->lr) return "--min-lr is more than --lr";
    if (options_given(given, "min-lr") && o->schedule == GD_SCHEDULE_CONSTANT)
        return "--min-lr is never reached with --schedule constant";
    if (o->base.tf32 && o->dtype != GD_FLOAT32) return "--tf32 is about --dtype f32";
    if (!o->out && (options_given(given, "checkpoint-every") || options_given(given, "keep") ||
                    options_given(given, "keep-every") || options_given(given, "keep-best") ||
                    options_given(given, "on-save-error")))
        return "--out DIR is missing: without it no checkpoint is saved";
    return NULL;
}

/* What can be meant, but hardly is. */
static void warn_of_rate(const train_options *o)
{
    if (o->lr == 0) console_notice("--lr is 0: the weights stay as they are");
    if (o->warmup > o->steps && o->steps > 0) {
        console_notice("--warmup is %lld, but there are %lld steps: the rate stays below --lr",
                       (long long)o->warmup, (long long)o->steps);
    }
}

bool train_options_check(train_options *o)
{
    if (o->kv_heads == 0) o->kv_heads = o->heads;
    if (o->ffn == 0) o->ffn = (o->dim * 8 / 3 + 31) / 32 * 32;
    if (o->min_lr < 0) o->min_lr = o->lr / 10;
    if (o->accumulate < 0) o->accumulate = gd_group_ranks(o->group);
    if (o->warmup < 0) o->warmup = o->steps < 1000 ? o->steps / 10 : 100;
    const char *fault = find_fault_of_text(o);
    if (!fault) fault = find_fault_of_model(o);
    if (!fits(fault ? fault : find_idle(o))) return false;
    if (o->accumulate < gd_group_ranks(o->group)) {
        console_message("--accumulate is %lld, but there are %d processes: a step needs at least "
                        "one batch for each; half the --batch and twice the --accumulate are the "
                        "same step",
                        (long long)o->accumulate, gd_group_ranks(o->group));
        return false;
    }
    warn_of_rate(o);
    return true;
}

/* All else is checked once the checkpoint has filled in what was not given. */
options_outcome train_options_read(train_options *o, char **argv)
{
    const char *fault = NULL;
    options_outcome outcome = options_read(&o->base, &table, argv);
    if (outcome != OPTIONS_RUN) return outcome;
    if (o->resume && o->init) {
        fault = "--resume and --init: a run begins from one of them";
    } else if (o->resume && !strcmp(o->resume, "auto") && !o->out) {
        fault = "--resume auto looks in --out DIR, which is missing";
    } else {
        fault = find_fault_of_devices(o);
    }
    if (o->gpus > 0) o->base.device = GD_CUDA;
    if (o->processes > 0) o->base.device = GD_CPU;
    return fits(fault) ? OPTIONS_RUN : OPTIONS_BAD;
}
