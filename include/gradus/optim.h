/* optim.h - parameters and optimizers.
 *
 * All parameters of a model live in one group: one block of memory for the values, one for the
 * gradients, one for each of the optimizer's states. Each parameter is a view into the block, so
 * clipping and the update are one pass each, however many parameters there are.
 *
 *     gd_params *params = gd_params_create(ctx, GD_FLOAT32);
 *     gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(64, 32), GD_DECAY);
 *     gd_tensor *b = gd_params_add(params, "b", GD_SHAPE(64), 0);
 *     gd_params_finish(params);             // now they have memory, zeroed; fill them
 *     gd_optimizer *opt = gd_adamw_create(params, NULL);
 *     for (...) {
 *         ... forward, gd_backward(loss) ...
 *         gd_clip_grad_norm(params, 1.0, &norm);
 *         gd_optimizer_step(opt, gd_schedule_rate(&schedule, step));
 *         gd_params_clear_grads(params);
 *         gd_step_end(ctx);
 *     }
 */
#ifndef GRADUS_OPTIM_H
#define GRADUS_OPTIM_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Parameters --------------------------------------------------------------------------- */

typedef struct gd_params gd_params;

enum {
    GD_DECAY = 1, /* weight decay applies to this parameter: matrices, as a rule */
    GD_MUON = 2   /* gd_muon_create updates this parameter by Muon: a matrix of a hidden layer */
};

/* An empty group of parameters of a real dtype. NULL on error.
 *
 * Parameters of 16 bits have gradients of float32, so that sums over many backwards are not rounded
 * to 16 bits, and their optimizer keeps a "master" of them in float32, so that updates too small
 * for 16 bits add up too (Micikevicius et al. 2018, arXiv:1710.03740). */
GD_API gd_params *gd_params_create(gd_context *ctx, gd_dtype dtype);

/* Frees the group and all its parameters, gradients included. Its optimizer may be freed before
 * or after it, but must not be used after it. NULL is fine. Refused, as all that frees objects,
 * inside an op, a hook, a watcher, a segment or the function of a graph. */
GD_API void gd_params_free(gd_params *params);

/* Adds a parameter, which requires a gradient. Its memory comes with gd_params_finish; until then
 * it cannot be read or written. The tensor is the group's. A name has 1 to 127 bytes of UTF-8
 * and is unique within the group; it does not begin with "optimizer.", as an optimizer's states
 * do in a file. */
GD_API gd_tensor *gd_params_add(gd_params *params, const char *name, int ndim, const int64_t *shape,
                                unsigned flags);

/* How a parameter or buffer begins; {0}: with zeros. */
typedef enum gd_init_kind {
    GD_INIT_CONSTANT, /* a */
    GD_INIT_UNIFORM,  /* from a to b */
    GD_INIT_NORMAL,   /* of mean a and deviation b */
    GD_INIT_FAN,      /* uniform within 1 / sqrt(a) of 0, as in PyTorch's layers with a inputs */
    GD_INIT_XAVIER_UNIFORM, /* these with the gain a: init.h; Kaiming's by GD_FAN_IN */
    GD_INIT_XAVIER_NORMAL,
    GD_INIT_KAIMING_UNIFORM,
    GD_INIT_KAIMING_NORMAL,
    GD_INIT_ORTHOGONAL
} gd_init_kind;

typedef struct gd_init {
    gd_init_kind kind;
    double a, b;
} gd_init;

/* Adds a parameter as gd_params_add does, with how it begins and a name as printf writes it:
 * gd_params_addf(params, GD_DECAY, GD_SHAPE(8, 4), (gd_init){GD_INIT_FAN, 4}, "l%d.weight", i). */
GD_API gd_tensor *gd_params_addf(gd_params *params, unsigned flags, int ndim, const int64_t *shape,
                                 gd_init init, const char *format, ...) GD_PRINTF(6, 7);

/* Before gd_params_finish: how a parameter or buffer of the group begins, instead of what was
 * said before. */
GD_API gd_status gd_params_set_init(gd_params *params, gd_tensor *t, gd_init init);

/* Before gd_params_finish, and also after an error: frees all parameters but the first `count`, and
 * all buffers but the first `buffers`. So what is added as a whole can be taken back. */
GD_API void gd_params_truncate(gd_params *params, int count, int buffers);

/* Adds a buffer: a tensor of any dtype that belongs to the model but is not trained, such as the
 * running mean and variance of gd_batch_norm. It never requires a gradient. Optimizers, clipping,
 * weight decay and gd_optimizer_average leave it alone, and what counts parameters does not count
 * it; it is saved, loaded (gd_params_save, gd_params_load) and replicated with them. A
 * gd_optimizer_update that is not made sets it back: to its value after the last update that was
 * made, or to what was written to it since, between two steps. Name and tensor are as those of
 * gd_params_add. NULL on error. */
GD_API gd_tensor *gd_params_add_buffer(gd_params *params, const char *name, gd_dtype dtype,
                                       int ndim, const int64_t *shape);
GD_API int gd_params_buffer_count(const gd_params *params);
GD_API gd_tensor *gd_params_buffer_at(const gd_params *params, int index); /* in the order added */

/* Lays all parameters out in one block of zeros, each at a multiple of 64 bytes, and all buffers in
 * another, and gives them their initial values, in the order in which each was first said. */
GD_API gd_status gd_params_finish(gd_params *params);

GD_API gd_context *gd_params_context(const gd_params *params);
GD_API int gd_params_count(const gd_params *params);                /* parameters */
GD_API int64_t gd_params_elements(const gd_params *params);         /* numbers in them */
GD_API gd_tensor *gd_params_at(const gd_params *params, int index); /* in the order added */
GD_API gd_tensor *gd_params_find(const gd_params *params, const char *name); /* or the buffer */
GD_API unsigned gd_params_flags(const gd_params *params, int index);

/* Writes a table of all parameters and buffers: name, shape, how many numbers, and the 2-norms of
 * these and of the gradient, or "-" where there is none, as before gd_params_finish. */
GD_API gd_status gd_params_print(const gd_params *params, FILE *file);

/* Multiplies the learning rate and the weight decay of its optimizer for this parameter by `rate`
 * and `weight_decay`, finite and at least 0, in all updates from now on; both are 1 at first.
 * Without GD_DECAY there is no decay to multiply. Parameters with equal factors are updated
 * together; where they are set before gd_params_finish, in one pass. */
GD_API gd_status gd_params_set_factors(gd_params *params, const gd_tensor *parameter, double rate,
                                       double weight_decay);

/* Clears all gradients, as gd_grad_clear does for one tensor: the next backward starts from
 * zero. */
GD_API gd_status gd_params_clear_grads(gd_params *params);

/* Multiplies all gradients by a finite factor: by 1 / s, if the loss was multiplied by s to keep
 * small gradients above the smallest number of float16. */
GD_API gd_status gd_params_scale_grads(gd_params *params, double factor);

/* Scales all gradients by min(1, max_norm / (norm + 1e-6)), where norm is the 2-norm of all of
 * them together (Pascanu et al. 2013), which is stored in *norm (NaN on error) unless that is NULL.
 * max_norm <= 0 only measures. A norm that is not finite leaves the gradients as they are. */
GD_API gd_status gd_clip_grad_norm(gd_params *params, double max_norm, double *norm);

/* ---- Optimizers --------------------------------------------------------------------------- */

/* Optimizers compute, and keep their state, in float32; in float64 for a float64 group. For 16-bit
 * parameters part of the state is the master: updates go to it, and the parameter becomes the
 * master rounded to nearest even. If the master does not round to the parameter, because the
 * parameter was written to, the next update begins from the parameter. So parameters may be written
 * to at any time, and the master is undefined before the first update. */
typedef struct gd_optimizer gd_optimizer;

typedef struct gd_sgd_options {
    double momentum;  /* unset: 0, without a state */
    double dampening; /* unset: 0 */
    bool nesterov;    /* needs momentum and no dampening */
    /* added to the gradient of parameters with GD_DECAY, g + wd * w; unset: 0 */
    double weight_decay;
} gd_sgd_options;

/* Stochastic gradient descent as in PyTorch: v = momentum v + (1 - dampening) g (v = g in the first
 * update), w = w - lr v; with nesterov w = w - lr (g + momentum v). NULL for plain SGD. */
GD_API gd_optimizer *gd_sgd_create(gd_params *params, const gd_sgd_options *options);

typedef struct gd_adamw_options {
    double beta1, beta2; /* unset: 0.9 and 0.999 */
    double eps;          /* unset: 1e-8 */
    double weight_decay; /* of parameters with GD_DECAY; unset: 0 */
    /* Elements whose gradient, after clipping, is 0 keep w, m and v. So rows of an embedding that
     * no id named cost nothing, but miss what the formula does without g: w decays, and moves by m,
     * and m and v shrink by b1 and b2. t counts all updates. (As SparseAdam and LazyAdam elsewhere,
     * but for zeros in rows that were named.) */
    bool lazy;
} gd_adamw_options;

/* Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101):
 *   w = w - lr wd w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *   w = w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
 * NULL for the defaults. */
GD_API gd_optimizer *gd_adamw_create(gd_params *params, const gd_adamw_options *options);

/* Adam (Kingma & Ba 2015, arXiv:1412.6980): the same without the first line, but with wd w added to
 * the gradient of parameters with GD_DECAY, as PyTorch's Adam. */
typedef struct gd_adamw_options gd_adam_options;
GD_API gd_optimizer *gd_adam_create(gd_params *params, const gd_adam_options *options);

typedef struct gd_rmsprop_options {
    double alpha;        /* unset: 0.99 */
    double eps;          /* unset: 1e-8 */
    double momentum;     /* unset: 0, without a state */
    double weight_decay; /* added to the gradient, as SGD's; unset: 0 */
    bool centered;       /* divides by the standard deviation of g, not by the root of its square */
} gd_rmsprop_options;

/* RMSprop as in PyTorch (Tieleman & Hinton 2012; centered: Graves 2013, arXiv:1308.0850):
 *   v = alpha v + (1 - alpha) g^2;  d = g / (sqrt(v) + eps)
 *   centered: a = alpha a + (1 - alpha) g;  d = g / (sqrt(max(v - a^2, 0)) + eps)
 *   w = w - lr d, or with momentum b = momentum b + d;  w = w - lr b
 * NULL for the defaults. */
GD_API gd_optimizer *gd_rmsprop_create(gd_params *params, const gd_rmsprop_options *options);

typedef struct gd_adagrad_options {
    double rate_decay;   /* PyTorch's lr_decay; unset: 0 */
    double eps;          /* unset: 1e-10 */
    double initial;      /* of v; unset: 0 */
    double weight_decay; /* added to the gradient, as SGD's; unset: 0 */
} gd_adagrad_options;

/* Adagrad as in PyTorch (Duchi et al. 2011), in update t = 1, 2, ...:
 *   v = v + g^2;  w = w - lr / (1 + (t - 1) rate_decay) g / (sqrt(v) + eps)
 * NULL for the defaults. */
GD_API gd_optimizer *gd_adagrad_create(gd_params *params, const gd_adagrad_options *options);

typedef struct gd_lion_options {
    double beta1, beta2; /* unset: 0.9 and 0.99 */
    double weight_decay; /* of parameters with GD_DECAY, decoupled as AdamW's; unset: 0 */
} gd_lion_options;

/* Lion (Chen et al. 2023, arXiv:2302.06675). Every weight moves by lr, so lr is 3 to 10 times
 * smaller than AdamW's, and weight_decay as many times larger:
 *   w = w - lr (sign(b1 m + (1 - b1) g) + wd w);  m = b2 m + (1 - b2) g
 * NULL for the defaults. */
GD_API gd_optimizer *gd_lion_create(gd_params *params, const gd_lion_options *options);

typedef struct gd_muon_options {
    double momentum;     /* unset: 0.95 */
    double weight_decay; /* of parameters with GD_DECAY, decoupled as AdamW's; unset: 0 */
    bool plain;          /* moves by m instead of Nesterov's momentum m + (1 - momentum) g */
    /* The step is lr 0.2 sqrt(max(rows, columns)) U, whose elements are about as large as those of
     * AdamW's, so that AdamW's learning rate and decay fit (Liu et al. 2025, arXiv:2502.16982).
     * Otherwise it is lr sqrt(max(1, rows / columns)) U (Jordan). */
    bool match_adamw;
    gd_adamw_options adamw; /* of the parameters without GD_MUON */
    double adamw_rate;      /* multiplies their learning rate; unset: 1 */
} gd_muon_options;

/* Muon (Jordan et al. 2024) for the parameters with GD_MUON, AdamW for the others:
 *   m = momentum m + (1 - momentum) g;  U = UV^T of the singular value decomposition of m, about
 *   w = w - lr wd w - lr size U
 * U is five steps of Newton and Schulz, of which the singular values are between 0.7 and 1.2
 * however small m is, but for those below a 480th of its norm; there is no eps. Where m is 0, or in
 * float64 its norm is below 1e-145, U is 0. The products are those of gd_matmul in the state's
 * dtype; on a GPU in bfloat16 if the parameters are. They need temporary memory for two copies of
 * the largest matrix, and for two squares of its smaller side. The state is as large as AdamW's,
 * though v is not used for matrices. Replicated parameters are refused: each rank would have a
 * slice of a matrix. NULL for the defaults. */
GD_API gd_optimizer *gd_muon_create(gd_params *params, const gd_muon_options *options);

/* Frees the optimizer and its state. NULL is fine. */
GD_API void gd_optimizer_free(gd_optimizer *optimizer);

/* One update with learning rate `lr`, from the current gradients. Parameters that no longer require
 * a gradient (gd_tensor_set_requires_grad) do not change; a gradient that is required but was not
 * computed counts as zero. "Update t" and "the first update" above are those of each parameter: one
 * that was frozen until now begins with its first. */
GD_API gd_status gd_optimizer_step(gd_optimizer *optimizer, double lr);

/* Tables of which a step touches few rows. A gd_embedding whose ids are at most a quarter of its
 * table's rows leaves it known which rows of the gradient may be other than 0, until something else
 * writes to it. Clearing, clipping and gd_params_scale_grads then cost what was touched, and so do
 * updates, with the bits that updates of all rows give: of SGD without momentum and of Adagrad
 * where the parameter does not decay, and of AdamW and Adam if they are lazy. Whole tables are read
 * by the other rules, Muon and gd_optimizer_average; where other ops add to the same gradient (tied
 * weights, gd_index_select, segments of gd_recompute that have the table as an input); of
 * replicated parameters; and after gd_grad of the table, since then the program may write to its
 * rows. An op of yours says so by gd_op.dinput_rows. */

/* The number of updates so far (waits for the device), and of each parameter that was not frozen in
 * any; setting it, to at most 2^53, sets it for all parameters. */
GD_API int64_t gd_optimizer_steps(const gd_optimizer *optimizer);
GD_API gd_status gd_optimizer_set_steps(gd_optimizer *optimizer, int64_t steps);

/* The state blocks (AdamW, Adam, Muon: "m" and "v"; SGD with momentum, Adagrad: "v"; RMSprop: "v",
 * with momentum "velocity", centered "mean"; Lion: "m"; after them, for 16-bit parameters,
 * "master", and with gd_optimizer_average "average") as one-dimensional tensors over the group's
 * block, for saving; NULL past the end. gd_tensor_name gives the name of each. Owned by the
 * optimizer. */
GD_API gd_tensor *gd_optimizer_state(const gd_optimizer *optimizer, int index);

/* ---- The average of the parameters --------------------------------------------------------- */

/* Keeps a moving average of all parameters, of the masters where there are any, which every update
 * that is made moves:  a = decay a + (1 - decay) w, and a = w in the first. 0 <= decay < 1; 0.999
 * remembers some thousand updates. It is one more state, "average", which begins as the weights.
 * Call it before the first update and before states are loaded. */
GD_API gd_status gd_optimizer_average(gd_optimizer *optimizer, double decay);

/* Exchanges the parameters with their average, to evaluate or save it; a second call exchanges them
 * again, to the same bits. In between there are no updates. All ranks of replicated
 * parameters call it.
 *
 * Buffers stay as they are: there is no average of them, as with PyTorch's AveragedModel
 * (use_buffers=False). Running statistics that fit the averaged weights take some forwards in
 * training mode between the two calls; copy the buffers before, and back after, to go on as if
 * there were none. */
GD_API gd_status gd_optimizer_swap_average(gd_optimizer *optimizer);

/* ---- Updates that the device decides ------------------------------------------------------- */

/* With gd_clip_grad_norm the host must wait for the norm, and to stop before an update that is not
 * finite, for the loss. These calls leave that to the device, and the host reads a report later:
 *
 *     gd_optimizer_set_rate(opt, gd_schedule_rate(&schedule, step));
 *     gd_optimizer_backward(opt, loss, 1);      // in place of gd_backward(loss)
 *     gd_optimizer_update(opt, 1.0);            // in place of gd_clip_grad_norm, gd_optimizer_step
 *     gd_params_clear_grads(params);
 *     gd_step_end(ctx);
 *     while (gd_optimizer_report(opt, false, &report)) printf("loss %g\n", report.loss);
 *
 * The weights are the same to the last bit (for a finite norm and loss). Clipping needs no pass of
 * its own: the update multiplies each gradient by the factor as it reads it. */

/* The learning rate of the updates from now on. */
GD_API gd_status gd_optimizer_set_rate(gd_optimizer *optimizer, double lr);

/* gd_backward of fraction * loss, which is also added to the loss that the next update reports. The
 * fraction is 1, or 1 / n for each of n batches whose gradients add up to one update. With a loss
 * scale the gradients are those of scale * fraction * loss. `loss` has one element. */
GD_API gd_status gd_optimizer_backward(gd_optimizer *optimizer, gd_tensor *loss, double fraction);

/* One update by gradients divided by the loss scale and clipped to max_norm (<= 0: not clipped), if
 * their norm and the loss are finite and no op has found an index out of range. The gradients
 * themselves do not change. */
GD_API gd_status gd_optimizer_update(gd_optimizer *optimizer, double max_norm);

typedef enum gd_update_outcome {
    GD_UPDATE_MADE,
    GD_UPDATE_OVERFLOWED, /* none: a gradient was too large for float16; the loss scale is halved */
    GD_UPDATE_NOT_FINITE, /* none, and none is made after it until gd_optimizer_continue */
    GD_UPDATE_WITHHELD    /* none, because of an earlier one */
} gd_update_outcome;

typedef struct gd_update_report {
    int64_t number; /* of the update, from 0; those of gd_optimizer_step count too */
    gd_update_outcome outcome;
    double loss; /* the sum of fraction * loss; NaN: there was no gd_optimizer_backward */
    double norm; /* of the gradients, before clipping; NaN: gd_optimizer_step, no norm taken */
    double rate; /* the learning rate */
    double loss_scale; /* used for the gradients */
    double time; /* of the decision, in seconds, on a clock of the device that may begin at any
                        * time: the difference of two reports is what an update took */
} gd_update_report;

/* The next report, in order, of an update that the device has done; false if there is none yet.
 * With `wait` it waits for it, and false means that there are no more, or an error. Eight reports
 * are stored: if that many are pending it waits in any case, so a caller that reads after each
 * update until there is none gets all of them. Otherwise the oldest are lost; losing one of
 * GD_UPDATE_NOT_FINITE is an error. */
GD_API bool gd_optimizer_report(gd_optimizer *optimizer, bool wait, gd_update_report *report);

/* After GD_UPDATE_NOT_FINITE: later updates are made again. */
GD_API gd_status gd_optimizer_continue(gd_optimizer *optimizer);

/* The loss scale s keeps small gradients representable in float16. Its smallest number above 0 is
 * 6e-8; the gradient of a mean over 16,000 tokens has many elements below that. Multiplying the
 * loss by s multiplies every gradient by s; those of the parameters, which are float32, are divided
 * by s again. The best s is just below an overflow, which is not known in advance: so s is halved
 * when the loss is finite and a gradient is not, and that update is skipped; after 2000 good ones
 * it is doubled, up to 2^24 (Micikevicius et al. 2018, arXiv:1710.03740). s is a power of two, so
 * that it causes no rounding. */
typedef struct gd_loss_scale {
    bool adapts;    /* otherwise factor stays 1 */
    int64_t factor; /* a power of two, at least 1 */
    int64_t good;   /* updates since it last changed, at most 2^53 */
} gd_loss_scale;

/* The initial scale: 65536 for GD_FLOAT16. Other dtypes go down to 1e-38 and are not scaled. */
GD_API gd_loss_scale gd_loss_scale_begin(gd_dtype dtype);

/* Sets the scale from now on; a new optimizer does not scale. Getting it waits for the device. */
GD_API gd_status gd_optimizer_set_loss_scale(gd_optimizer *optimizer, gd_loss_scale scale);
GD_API gd_loss_scale gd_optimizer_loss_scale(const gd_optimizer *optimizer);

/* ---- Schedules ---------------------------------------------------------------------------- */

typedef enum gd_schedule_kind {
    GD_SCHEDULE_CONSTANT, /* rate, without end */
    GD_SCHEDULE_LINEAR,   /* straight down from rate to final_rate at the last step */
    GD_SCHEDULE_COSINE,   /* half a cosine from rate to final_rate (Loshchilov & Hutter 2017) */
    GD_SCHEDULE_WSD,      /* warm-up, stable, decay: rate, then linear over the last decay_steps */
    /* Without end, counted from the warm-up's, but not below final_rate: */
    GD_SCHEDULE_STEP,        /* rate, multiplied by factor after every decay_steps */
    GD_SCHEDULE_EXPONENTIAL, /* rate, multiplied by factor after every step */
    /* half a cosine from first_rate in step 0 up to rate in the last step of the warm-up, and half
     * a cosine down to final_rate (Smith & Topin 2018): PyTorch's OneCycleLR with first_rate = rate
     * / 25, final_rate = rate / 250000 and a warm-up of 0.3 steps */
    GD_SCHEDULE_ONE_CYCLE
} gd_schedule_kind;

typedef struct gd_schedule {
    gd_schedule_kind kind;
    double rate, final_rate;
    /* of the whole run: the last one, steps - 1, has final_rate, unless it still belongs to the
     * warm-up, or to a WSD without decay; so have all steps after it */
    int64_t steps;
    int64_t warmup_steps; /* all but one cycle begin with rate * (step + 1) / warmup_steps */
    int64_t decay_steps;  /* GD_SCHEDULE_WSD and GD_SCHEDULE_STEP only */
    double factor;        /* GD_SCHEDULE_STEP and GD_SCHEDULE_EXPONENTIAL only */
    double first_rate;    /* GD_SCHEDULE_ONE_CYCLE only */
} gd_schedule;

/* The learning rate for step 0, 1, 2, ... NaN, which optimizers refuse, if the steps, decay_steps
 * or factor that the kind needs is not set (0). */
GD_API double gd_schedule_rate(const gd_schedule *schedule, int64_t step);

/* A rate that falls when a loss no longer does, as PyTorch's ReduceLROnPlateau. Set the first five;
 * the rest is its state, zeros at first, to be saved with them if the run is. */
typedef struct gd_plateau {
    double rate;       /* now */
    double factor;     /* of the rate, when it falls; unset: 0.1 */
    double threshold;  /* a loss below (1 - threshold) best is better; unset: 1e-4 */
    double final_rate; /* no rate is below it */
    int64_t patience;  /* losses that are not better; with one more the rate falls */
    double best;
    int64_t losses, bad; /* so far; not better, one after the other */
} gd_plateau;

/* The rate after one more loss, such as that of each validation. A loss of NaN is not better. The
 * rate is NaN, which optimizers refuse, if it was not set (0). */
GD_API double gd_plateau_rate(gd_plateau *plateau, double loss);

#ifdef __cplusplus
}
#endif
#endif
