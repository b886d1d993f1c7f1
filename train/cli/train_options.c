/* train_options.c - see train_options.h. */
#include "train_options.h"
#include "console.h"
#include "files/utf8.h"
#include "optimizer.h"
#include "paths.h"
#include "program.h"
#include "programs/terminal.h"
#include "tokens.h"

#include <math.h>
#include <string.h>

#define AT(field) offsetof(train_options, field)

static const option_row rows[OPTIONS_MOST] = {
    {.help = "Text"},
    {OPTION_PATHS, "data", AT(data), .others = "dataset input text train_data",
     .help = "FILE...  any text: files, folders, patterns, and - for stdin, joined in this order"},
    {OPTION_PATHS, "tokens", AT(tokens), .others = "input_bin",
     .help = "PATTERN...  token files of nanoGPT, llm.c or NumPy (.npy) instead; needs --val-data, "
             "and --vocab or --init"},
    {OPTION_CHOICE, "token-bytes", AT(token_bytes), "auto", .others = "token_dtype",
     .help = TOKENS_WIDTHS "  of each id in token files without a header, as nanoGPT's; auto: 2, "
                           "but not where they seem to have more"},
    {OPTION_PATHS, "val-data", AT(val_data), .others = "val input_val_bin",
     .help = "FILE...  text or token files for validation; default: the last tenth of the text"},
    {OPTION_WHOLE, "vocab", AT(vocab), "0", 0, 1048576, .others = "vocab_size",
     .help = "N  BPE pieces to learn from the text, 256 or more; 0: each byte is a token. With "
             "--tokens: the number of different tokens"},
    {.help = "Model"},
    {OPTION_WHOLE, "layers", AT(layers), "4", 1, 1000, .others = "n_layer num_layers depth",
     .help = "N  transformer layers"},
    {OPTION_WHOLE, "dim", AT(dim), "128", 2, 65536, .others = "n_embd d_model hidden_size width",
     .help = "N  width of the residual stream"},
    {OPTION_WHOLE, "heads", AT(heads), "4", 1, 1024, .others = "n_head num_heads",
     .help = "N  query heads; dim / heads must be even"},
    {OPTION_WHOLE, "kv-heads", AT(kv_heads), "0", 0, 1024, .others = "n_kv_head num_kv_heads",
     .help = "N  key and value heads; 0: as many as heads"},
    {OPTION_WHOLE, "ffn", AT(ffn), "0", 0, 1048576, .others = "d_ff intermediate_size hidden_dim",
     .help = "N  width of the feed-forward layers; 0: 8/3 dim, rounded up to a multiple of 32"},
    {OPTION_WHOLE, "context", AT(context), "64", 1, 1048576,
     .others = "block_size sequence_length seq_len", .help = "N  tokens in a sequence"},
    {OPTION_NUMBER, "dropout", AT(dropout), "0", 0, 0.99,
     .help = "P  of the embedding, the attention weights and both branches of a layer"},
    {OPTION_SWITCH, "tied", AT(tied), .others = "tie_weights",
     .help = "  use the embedding as the output projection"},
    {.help = "Training"},
    {OPTION_WHOLE, "batch", AT(batch), "12", 1, 65536, .others = "batch_size",
     .help = "N  sequences in a batch"},
    {OPTION_WHOLE, "accumulate", AT(accumulate), NULL, 1, 65536,
     .others = "gradient_accumulation_steps grad_accum",
     .help = "N  batches in a step, shared by all processes; default: one for each process"},
    {OPTION_WHOLE, "steps", AT(steps), "2000", 0, 1e12,
     .others = "max_iters max_steps num_iterations iters", .help = "N  updates of the weights"},
    {OPTION_NUMBER, "epochs", AT(epochs), "0", 0, 1e9, .others = "num_epochs num_train_epochs",
     .help = "X  passes through the training data instead of --steps; 0: as --steps says",
     .unsaved = true},
    {OPTION_WHOLE, "patience", AT(patience), "0", 0, 1e9, .others = "early_stopping_patience",
     .help = "N  stop after N validations, one after the other, none of which is the best so far, "
             "whose weights --keep-best keeps; 0: never"},
    {OPTION_NUMBER, "max-seconds", AT(max_seconds), "0", 0, 1e9,
     .help = "S  stop after this time; 0: no limit", .unsaved = true},
    {OPTION_CHOICE, "schedule", AT(schedule), "cosine", .others = "scheduler lr_schedule",
     .help = "constant|linear|cosine|wsd  of the learning rate; wsd falls in the last fifth"},
    {OPTION_CHOICE, "optimizer", AT(optimizer), "adamw", .others = "optim opt",
     .help = "adamw|adam|sgd|rmsprop|adagrad|lion|muon  muon is for the matrices of the layers, "
             "adamw for the rest"},
    {OPTION_NUMBER, "lr", AT(lr), NULL, 0, 1e3, .others = "learning_rate",
     .help = "X  highest learning rate; default: 0.002; sgd 0.3, adagrad 0.02, lion 0.0007, "
             "muon 0.01"},
    {OPTION_NUMBER, "min-lr", AT(min_lr), NULL, 0, 1e3,
     .help = "X  final learning rate; default: a tenth of --lr"},
    {OPTION_WHOLE, "warmup", AT(warmup), NULL, 0, 1e12, .others = "warmup_iters warmup_steps",
     .help = "N  steps of linear warm-up; default: a tenth of --steps, 100 at most"},
    {OPTION_NUMBER, "weight-decay", AT(weight_decay), NULL, 0, 100, .others = "wd",
     .help = "X  of matrices; default: 0.1 with adamw and muon, 0.3 with lion, else 0, for then it "
             "is added to the gradient"},
    {OPTION_NUMBER, "momentum", AT(momentum), NULL, 0, 0.999999,
     .help = "X  default: sgd 0.9, muon 0.95, rmsprop 0"},
    {OPTION_NUMBER, "beta2", AT(beta2), "0.99", 0, 0.999999,
     .help = "X  of adamw, adam, lion and muon's adamw, rmsprop's alpha; beta1 is 0.9"},
    {OPTION_NUMBER, "average", AT(average), "0", 0, 0.999999, .others = "ema ema_decay",
     .help = "X  also keep a moving average of the weights with this decay, such as 0.99, for "
             "--average of gradus-eval and gradus-sample; 0: none"},
    {OPTION_NUMBER, "clip", AT(clip), "1", 0, 1e9, .others = "grad_clip max_grad_norm",
     .help = "X  largest norm of the gradient; 0: no clipping"},
    {OPTION_WHOLE, "skip-nonfinite", AT(skip_nonfinite), "0", 0, 1e9,
     .help = "N  skip up to N steps whose loss or gradient is not finite, then stop"},
    {OPTION_CHOICE, "dtype", AT(dtype), "f32", .others = "precision",
     .help = "f32|f64|bf16|f16  of weights and activations; in 16 bits with float32 masters"},
    {OPTION_WHOLE, "seed", AT(seed), "1", 0, 9e15, .help = "N  of the random numbers"},
    {OPTION_SWITCH, "recompute", AT(recompute),
     .help = "  save memory: compute each layer again in the backward"},
    {OPTION_SWITCH, "no-graph", AT(no_graph),
     .help = "  on a GPU, launch each kernel of a step from the host, with the same bits",
     .unsaved = true},
    {OPTION_SWITCH, "overfit-one-batch", AT(overfit_one_batch),
     .help = "  the same batch in every step: its loss must go to 0"},
    {OPTION_SWITCH, "dry-run", AT(dry_run),
     .help = "  print the configuration and the memory of a step, and stop", .unsaved = true},
    {.help = "Several devices"},
    {OPTION_WHOLE, "gpus", AT(gpus), "0", 0, 1024, .others = "nproc_per_node num_gpus devices",
     .help = "N  train on N GPUs of this machine, with one process for each; 0: one process",
     .unsaved = true},
    {OPTION_WHOLE, "processes", AT(processes), "0", 0, 1024, .others = "num_processes workers",
     .help = "N  the same on the CPU, whose threads they share", .unsaved = true},
    {OPTION_NUMBER, "timeout", AT(timeout), "600", 0.01, 1e6,
     .help = "S  how long a process may be silent while another waits for it", .unsaved = true},
    {.help = "Report"},
    {OPTION_PATH, "log", AT(log), .others = "log_file",
     .help = "FILE  the log, as lines of JSON; default: log.jsonl in --out", .unsaved = true},
    {OPTION_WHOLE, "eval-every", AT(eval_every), "500", 0, 1e12,
     .others = "eval_interval val_loss_every",
     .help = "N  steps between validations; 0: only at the end"},
    {OPTION_WHOLE, "eval-batches", AT(eval_batches), "0", 0, 1e6,
     .others = "eval_iters val_max_steps eval_steps",
     .help = "N  batches in a validation, evenly spread; 0: all"},
    {OPTION_WHOLE, "log-every", AT(log_every), "100", 1, 1e12, .others = "log_interval",
     .help = "N  steps between progress lines"},
    {OPTION_WHOLE, "sample-every", AT(sample_every), "0", 0, 1e12, .others = "sample_interval",
     .help = "N  steps between samples; 0: only at the end"},
    {OPTION_WHOLE, "sample-length", AT(sample_length), "500", 0, 1e7,
     .help = "N  tokens in a sample"},
    {OPTION_NUMBER, "temperature", AT(temperature), "0.8", 0, 100,
     .help = "X  of sampling; 0: always the likeliest token"},
    {.help = "Checkpoints"},
    {OPTION_PATH, "out", AT(out), .others = "out_dir output_dir output",
     .help = "DIR  save checkpoints in this folder", .unsaved = true},
    {OPTION_WHOLE, "checkpoint-every", AT(checkpoint_every), "500", 0, 1e12,
     .others = "save_interval save_every",
     .help = "N  steps between checkpoints; 0: only at the end"},
    {OPTION_WHOLE, "keep", AT(keep), "2", 0, 1e9, .help = "K  newest checkpoints to keep; 0: all"},
    {OPTION_WHOLE, "keep-every", AT(keep_every), "0", 0, 1e12,
     .help = "N  also keep the checkpoint of every N-th step; 0: none"},
    {OPTION_SWITCH, "keep-best", AT(keep_best), .others = "save_best",
     .help = "  save and keep a checkpoint at the best validation so far; --out/best links to it"},
    {OPTION_CHOICE, "on-save-error", AT(on_save_error), "continue",
     .help = "continue|stop  when a checkpoint before the last cannot be saved"},
    {OPTION_PATH, "resume", AT(resume),
     .help =
         "DIR|auto  continue from a checkpoint, or from the newest one of a run's folder; auto: "
         "from the newest one in --out, if there is one",
     .unsaved = true},
    {OPTION_PATH, "init", AT(init), .others = "init_from",
     .help = "DIR  begin with the weights of a checkpoint, of the newest one of a run, or of a "
             "Llama model in Hugging Face's form",
     .unsaved = true},
#include "common.def"
};

static const option_table table = {
    .program = "gradus-train",
    .usage = "Usage: gradus-train --data FILE... [OPTION...]\n\n"
             "Trains a Llama-style transformer on a text: RMSNorm, rotary positions,\n"
             "grouped-query attention, SwiGLU; AdamW or another optimizer, with warm-up and a\n"
             "schedule. Prints a sample at the end.\n",
    .rows = rows,
    .tell = console_message,
    .read_file = program_read_config,
};

/* Options that the other options decide, unless they were given or restored. */
static void complete(train_options *o)
{
    const optimizer_row *usual = &optimizer_rows[o->optimizer];
    if (o->lr < 0) o->lr = usual->lr;
    if (o->weight_decay < 0) o->weight_decay = usual->weight_decay;
    if (o->momentum < 0) o->momentum = usual->momentum;
    if (o->kv_heads == 0) o->kv_heads = o->heads;
    if (o->ffn == 0) o->ffn = (o->dim * 8 / 3 + 31) / 32 * 32;
    if (o->min_lr < 0) o->min_lr = o->lr / 10;
    if (o->accumulate < 0) o->accumulate = gd_group_ranks(o->group);
}

void train_options_count_steps(train_options *o, int64_t windows)
{
    if (o->epochs > 0)
        o->steps = (int64_t)ceil(o->epochs * (double)windows / (double)(o->batch * o->accumulate));
    if (o->warmup < 0) o->warmup = o->steps < 1000 ? o->steps / 10 : 100;
}

/* Options that other options leave without an effect. */
static bool all_have_an_effect(const train_options *o)
{
    static const char unsaved[] = "needs --out DIR: without it no checkpoint is saved";
    static const char silent[] = "has no effect with --sample-length 0";
    const bool sgd = o->optimizer == OPTIMIZER_SGD, rmsprop = o->optimizer == OPTIMIZER_RMSPROP;
    const bool early = o->checkpoint_every > 0 || o->keep_best; /* checkpoints before the last */
    const option_use uses[] = {
        {"token-bytes", o->tokens, "is of --tokens, not of a text"},
        {"min-lr", o->schedule != GD_SCHEDULE_CONSTANT,
         "is never reached with --schedule constant"},
        {"momentum", sgd || rmsprop || o->optimizer == OPTIMIZER_MUON,
         "is of --optimizer sgd, rmsprop and muon"},
        {"beta2", optimizer_rows[o->optimizer].has_beta2,
         "is of --optimizer adamw, adam, rmsprop, lion and muon"},
        {"no-graph", !o->no_graph || o->base.device != GD_CPU, "is for a GPU"},
        {"timeout",
         gd_group_ranks(o->group) > 1 || options_given(&o->base, "gpus") ||
             options_given(&o->base, "processes"),
         "is of several processes, and this run is one"},
        {"patience", o->eval_every > 0, "needs --eval-every N: there is only one validation"},
        {"sample-every", o->sample_length > 0, silent},
        {"temperature", o->sample_length > 0, silent},
        {"average", o->out || o->dry_run, unsaved},
        {"checkpoint-every", o->out, unsaved},
        {"keep", o->out, unsaved},
        {"keep-every", o->out, unsaved},
        {"keep-every", o->keep > 0, "has no effect with --keep 0, which keeps all checkpoints"},
        {"keep-every", early, "has no effect with --checkpoint-every 0"},
        {"keep-best", o->out, unsaved},
        {"on-save-error", o->out, unsaved},
        {"on-save-error", early, "has no effect with --checkpoint-every 0: there is only the last"},
        {0},
    };
    return options_used(&o->base, uses);
}

/* Checkpoints keep the names of texts, and give them back only so. */
static bool can_be_saved(const train_options *o)
{
    options_item item;
    for (int i = 0; o->out && options_saved(&o->base, i, &item); i++) {
        if (!item.text || (gd_utf8_text(item.text) && !terminal_has_controls(item.text))) continue;
        console_notice("--%s is \"%s\", wanted UTF-8 without control characters, as --out is given "
                       "and checkpoints keep the name",
                       item.name, item.text);
        return false;
    }
    return true;
}

static bool is_multiple(const char *name, int64_t n, const char *of, int64_t unit)
{
    if (n % unit == 0) return true;
    console_notice("--%s is %lld, wanted a multiple of --%s, %lld", name, (long long)n, of,
                   (long long)unit);
    return false;
}

bool train_options_check(train_options *o)
{
    complete(o);
    const options_fault faults[] = {
        {!o->data && !o->tokens, "--data FILE is missing: a text to train on"},
        {o->data && o->tokens, "--data and --tokens cannot be used together"},
        {o->data && paths_read_stdin(o->data) && o->val_data && paths_read_stdin(o->val_data),
         "--data and --val-data cannot both be -, standard input"},
        {gd_group_ranks(o->group) > 1 && ((o->data && paths_read_stdin(o->data)) ||
                                          (o->val_data && paths_read_stdin(o->val_data))),
         "standard input, -, is read by one process; several need files"},
        {o->tokens && !o->val_data, "--tokens needs --val-data PATTERN, the tokens for validation"},
        {o->tokens && o->vocab == 0, "--tokens needs --vocab N, the number of different tokens"},
        {options_given(&o->base, "epochs") && options_given(&o->base, "steps"),
         "--epochs and --steps cannot be used together"},
        {o->base.tf32 && o->dtype != GD_FLOAT32, "--tf32 needs --dtype f32"},
        {o->optimizer == OPTIMIZER_MUON && gd_group_ranks(o->group) > 1,
         "--optimizer muon needs whole matrices, of which each of several processes would have a "
         "part; train with one, or with another optimizer"},
        {0},
    };
    if (!options_fit(&o->base, faults) || !all_have_an_effect(o) ||
        !is_multiple("dim", o->dim, "heads", o->heads) ||
        !is_multiple("heads", o->heads, "kv-heads", o->kv_heads) || !can_be_saved(o))
        return false;
    if (o->dim / o->heads % 2) {
        console_notice("--dim / --heads is %lld / %lld, wanted an even number: rotary positions "
                       "need pairs",
                       (long long)o->dim, (long long)o->heads);
        return false;
    }
    if (o->data && o->vocab != 0 && o->vocab < 256) {
        console_notice("--vocab is %lld, wanted at least 256, the number of different bytes",
                       (long long)o->vocab);
        return false;
    }
    if (o->min_lr > o->lr) {
        const bool given = options_given(&o->base, "min-lr");
        console_notice("--min-lr is %g%s, wanted at most --lr, %g", o->min_lr,
                       given ? "" : " in the run that is resumed", o->lr);
        return false;
    }
    if (o->accumulate < gd_group_ranks(o->group)) {
        console_notice("--accumulate is %lld, but there are %d processes: a step needs at least "
                       "one batch for each; half the --batch with twice the --accumulate "
                       "gives the same step",
                       (long long)o->accumulate, gd_group_ranks(o->group));
        return false;
    }
    if (o->lr == 0) console_notice("--lr is 0: the weights do not change");
    if (o->epochs == 0 && o->warmup > o->steps && o->steps > 0) {
        console_notice("--warmup is %lld, but there %s %lld step%s: the rate stays below --lr",
                       (long long)o->warmup, o->steps == 1 ? "is" : "are", (long long)o->steps,
                       console_s(o->steps));
    }
    return true;
}

/* The rest is checked after the checkpoint has set what was not given. */
options_outcome train_options_read(train_options *o, char **argv)
{
    *o = (train_options){
        .accumulate = -1, .lr = -1, .min_lr = -1, .weight_decay = -1, .momentum = -1, .warmup = -1};
    options_outcome outcome = program_read_options(&o->base, &table, argv);
    if (outcome != OPTIONS_RUN) return outcome;
    const bool device = options_given(&o->base, "device");
    const options_fault faults[] = {
        {o->resume && o->init, "--resume and --init cannot be used together"},
        {o->resume && !strcmp(o->resume, "auto") && !o->out,
         "--resume auto needs --out DIR, the folder of the run"},
        {o->gpus > 0 && o->processes > 0, "--gpus and --processes cannot be used together"},
        {o->gpus > 0 && device && o->base.device == GD_CPU,
         "--gpus and --device cpu cannot be used together; --processes is for the CPU"},
        {o->processes > 0 && device && o->base.device != GD_CPU,
         "--processes is for the CPU; --gpus N takes a GPU for each process"},
        {0},
    };
    if (o->gpus > 0) o->base.device = GD_CUDA;
    if (o->processes > 0) o->base.device = GD_CPU;
    return options_fit(&o->base, faults) ? OPTIONS_RUN : OPTIONS_BAD;
}
