/* autograd.h - the tape, and the record of an op.
 *
 * Reverse-mode differentiation in one paragraph. Calling an op runs it, and if one of its inputs
 * requires a gradient, appends a node to the tape: the op's record, its inputs, its outputs, what
 * it saved. The tape is therefore in topological order by construction. gd_backward(loss) sets
 * dloss/dloss = 1 and walks the nodes from last to first; each node turns the gradients of its
 * outputs into gradients of its inputs by the chain rule,
 *
 *     dL/dx = sum over outputs y of (dy/dx)^T dL/dy,
 *
 * and a tensor that several nodes read sums their contributions. In this library `dx` is the
 * gradient of the loss with respect to x.
 *
 * A step:  ops ... gd_backward(loss) ... optimizer ... gd_step_end(ctx).
 */
#ifndef GRADUS_AUTOGRAD_H
#define GRADUS_AUTOGRAD_H

#include <stdio.h>

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Backward ----------------------------------------------------------------------------- */

/* Walks the tape back from `loss`, a tensor of one element, and adds dloss/dt into the gradient of
 * every tensor t of yours that requires one and that the loss depends on. The nodes it walks are
 * used up: the memory of their saved tensors returns to the pool after their last use, and a second
 * backward through them is an error. Gradients of your tensors add up over several backwards
 * (gradient accumulation) until gd_grad_clear. On error the gradients may be partial sums. */
GD_API gd_status gd_backward(gd_tensor *loss);

typedef struct gd_backward_options {
    /* dL/doutput for each output, of its shape; NULL, or a NULL element: ones */
    gd_tensor *const *cotangents;
    /* Do not use up the nodes: nothing is freed, and another backward may visit them. (In PyTorch:
     * retain_graph.) */
    bool keep_tape;
} gd_backward_options;

/* The same for several tensors of any shape at once: computes sum_i (doutputs[i]/dt)^T
 * cotangents[i]. The cotangents are read, never written. */
GD_API gd_status gd_backward_from(gd_tensor *const *outputs, int count,
                                  const gd_backward_options *options);

/* The gradient of t: a contiguous tensor of t's shape and dtype (of float32 for the parameters of a
 * 16-bit group, and for what is made of parameters alone by ops whose backward reads only dy,
 * such as gd_reshape), or NULL (which is not an error) if none was computed since it was last
 * cleared. Owned by t. A tensor made by an op has one only if gd_retain_grad(t) was called before
 * the backward.
 *
 * These gradients are numbers, not functions: how they were computed is not on the tape. So an op
 * with an input that requires a gradient refuses one that is a gradient, or was made of one by ops,
 * and a backward of nothing else is refused too: with x = 3 and g = gd_grad(x) = 3 x^2 = 27, the
 * gradient of g + g x would be 27, not 99. gd_gradients with `differentiable` gives gradients that
 * are functions; gd_detach(g) is a constant, as a gradient is in PyTorch without create_graph; so
 * is what ops make of it between gd_no_grad_begin and gd_no_grad_end. Refused, too: a backward
 * inside a backward; and, since the next backward writes to the same memory, one that needs a
 * gradient which it has already changed, as for gd_mul(gd_mul(gd_detach(gd_grad(x)), x), x): give
 * the op a copy. */
GD_API gd_tensor *gd_grad(const gd_tensor *t);

/* Clears the gradient of t; the next backward starts from zero. */
GD_API gd_status gd_grad_clear(gd_tensor *t);

/* Keeps the gradient of a tensor made by an op until the step ends; those of several backwards
 * (keep_tape) add up. Returns t. */
GD_API gd_tensor *gd_retain_grad(gd_tensor *t);

/* Keeps the value of a tensor made by an op through gd_backward until the step ends, so that it can
 * still be read. (A loss given to gd_backward is kept anyway.) Returns t. */
GD_API gd_tensor *gd_keep(gd_tensor *t);

/* ---- Gradients as tensors ------------------------------------------------------------------ */

typedef struct gd_gradients_options {
    gd_tensor *const *cotangents; /* as of gd_backward_options */
    bool keep_tape;               /* likewise */
    /* The gradients are functions of what the outputs were made of: they are computed by ops, which
     * are recorded, and may be differentiated again, any number of times. (In PyTorch:
     * create_graph.) The tape is kept. */
    bool differentiable;
    /* For inputs that no output depends on, which otherwise are an error. As in PyTorch
     * (materialize_grads), what was computed of an input before it required a gradient, or between
     * gd_no_grad_begin and gd_no_grad_end, is a constant. */
    bool zeros;
} gd_gradients_options;

/* Fills gradients [n] with sum_i (doutputs[i]/dinputs[j])^T cotangents[i], and with NULL on error.
 * An input is a tensor of yours that requires a gradient, or one made by an op of such. The
 * gradient of neither is touched, hooks (gd_on_gradient) are not called, ranks send nothing; only
 * nodes between the inputs and the outputs are visited, and used up unless the tape is kept.
 *
 * The gradients belong to the step, and can be read until it ends, also after a backward. They are
 * contiguous, of the shape of their input, and of the dtype of gd_grad: float32 for the parameters
 * of a 16-bit group, and for what is made of these alone. Sums over several uses are taken in
 * float32 at least, for 16-bit tensors too if `differentiable`, and rounded once. An input that is
 * listed twice gets one tensor twice. A view of a tensor is another input than the tensor.
 *
 * If not `differentiable`, the gradients are numbers, as those of gd_grad, and the kernels are
 * those of gd_backward. If so, they are computed by the ops that the records of the outputs' ops
 * give as derivative or definition (see gd_op), also between gd_no_grad_begin and gd_no_grad_end;
 * each must find the values that it reads as the forward saw them, of a definition all inputs of
 * the op. Dropout repeats its mask, and statistics are not updated again. A segment of gd_recompute
 * is run again, and then stays on the tape. gd_backward of a loss that contains such gradients
 * visits all these nodes, with the kernels of any op, and gives their memory back; nodes that it
 * does not visit keep theirs until the step ends.
 *
 * It is an error inside an op, a backward (so in a hook), a segment, or another call of it. */
GD_API gd_status gd_gradients(gd_tensor *const *outputs, int count,
                              const gd_gradients_options *options, gd_tensor *const *inputs, int n,
                              gd_tensor **gradients);

/* ---- Complete gradients -------------------------------------------------------------------- */

/* Called in each backward when the gradient of a leaf is complete, so that work that uses it, such
 * as a sum over several GPUs, may be queued while the backward continues. It is called for each
 * leaf once in a backward, the last layer's first, those of a segment of gd_recompute at its end,
 * but not for leaves that no gradient reached. In a graph (graph.h) it is called when the backward
 * is captured, and the work that it queues is captured. */
typedef void (*gd_grad_hook)(void *user, gd_tensor *leaf);

/* Adds a hook. There may be several, which are called in the order in which they were added; the
 * same one with the same user is called once. If hook is NULL, removes those with this user, or all
 * if user is NULL too; a hook may remove itself. */
GD_API gd_status gd_on_gradient(gd_context *ctx, gd_grad_hook hook, void *user);

/* A view of t through which no gradient flows. */
GD_API gd_tensor *gd_detach(gd_tensor *t);

/* Between these two nothing is recorded; they nest. */
GD_API void gd_no_grad_begin(gd_context *ctx);
GD_API void gd_no_grad_end(gd_context *ctx);
GD_API bool gd_grad_enabled(const gd_context *ctx);

/* Between these two, which nest too, a forward counts as one that repeats another: batch_norm
 * leaves its running statistics as they are. gradcheck, which calls a function many times, does so
 * between them, and gd_recompute runs a segment again between them. */
GD_API void gd_repeat_begin(gd_context *ctx);
GD_API void gd_repeat_end(gd_context *ctx);

/* Ends the step: frees every tensor made by an op, and empties the tape; their memory returns to
 * the pool. Pointers to them must not be used again. Works after an error, and keeps it. Calling it
 * from inside an op or a segment (gd_recompute) is an error. */
GD_API void gd_step_end(gd_context *ctx);

/* ---- Recomputation ------------------------------------------------------------------------ */

/* A piece of a model as a function: builds outputs from inputs with ops and returns one tensor, or
 * NULL on error. */
typedef gd_tensor *(*gd_segment)(void *user, gd_tensor *const *inputs, int count);

/* Called activation checkpointing in PyTorch (Chen et al. 2016, arXiv:1604.06174). Runs the segment
 * without recording it, keeps only its inputs and its output, and runs it again inside the backward
 * to get the tensors that its ops save: less memory for more time. Random numbers (dropout) repeat
 * exactly. Everything in the segment that needs a gradient must come in through `inputs` or be a
 * tensor of yours; `user` must stay valid until the backward or the end of the step.
 *
 * The gradients are right only if the second run computes what the first did. The backward is an
 * error if it does not: if a tensor that the segment uses, listed or not, was overwritten since, or
 * if the second run differs in an op, their order, an argument (plain_args), a shape, a dtype, or
 * in which tensors are used or returned. What cannot be seen are writes through gd_tensor_data and
 * to wrapped memory, and values that the segment itself writes to a tensor before it reads it:
 * these must be the same again. */
GD_API gd_tensor *gd_recompute(gd_context *ctx, gd_segment segment, void *user,
                               gd_tensor *const *inputs, int count);

/* ---- Looking at the tape ------------------------------------------------------------------ */

/* Number of nodes on the tape. */
GD_API int64_t gd_tape_length(const gd_context *ctx);

/* Prints the tape, one node a line: number, op, inputs and outputs with their shapes, bytes saved
 * for the backward, and after a backward the norm of the gradient of each output, if
 * gd_tape_record_norms is on. */
GD_API gd_status gd_tape_print(gd_context *ctx, FILE *file);

/* The same as a DOT graph (Graphviz): `dot -Tsvg`. Solid arrows are values, dashed ones gradients;
 * if norms are recorded, leaves show those of their gradients too. The same program prints the same
 * bytes every time. */
GD_API gd_status gd_tape_print_dot(gd_context *ctx, FILE *file);

/* The first node on the tape, in the order of the forward, with an output that holds a NaN or an
 * infinity: its index, and "#7 log [4, 16]" in `text`; -1 if there is none. Before the backward it
 * reads all values, except those of freed tensors that no backward needs. */
GD_API int64_t gd_tape_find_nonfinite(gd_context *ctx, char *text, size_t size);

/* Whether the gradient of every output on the tape is kept (gd_retain_grad), of which the tape is
 * then printed with the 2-norm. Off by default. */
GD_API void gd_tape_record_norms(gd_context *ctx, bool on);

/* ---- Watching the ops run ----------------------------------------------------------------- */

struct gd_call;

/* Called before (`begins`) and after the kernels of every op, forward and backward, with their
 * arguments: for timers and profilers. On a GPU the kernels are queued, not done, when it is called
 * after them. It must not run ops. */
typedef void (*gd_watcher)(void *user, const struct gd_call *call, bool backward, bool begins);

/* Sets the watcher from now on; NULL: none. */
GD_API void gd_watch_ops(gd_context *ctx, gd_watcher watcher, void *user);

/* ---- An op is a record -------------------------------------------------------------------- */

/* This is all that the library knows about an op, its own or yours. The tape, gradcheck, the
 * benchmark and the documentation use these records. kernels/ holds one folder for each; read
 * kernels/rms_norm/rms_norm.c for an example, and docs/examples/custom_op.c for one outside the
 * library.
 *
 * The life of a call: gd_apply collects the inputs in a gd_call; shape() checks them and the
 * arguments and sets the shapes of the outputs and saved tensors; memory is allocated; forward()
 * computes. The backward gets the same gd_call with doutput[] and dinput[] filled in. */

typedef struct gd_op gd_op;

/* The dtype and shape of an output or saved tensor. */
typedef struct gd_spec {
    gd_dtype dtype;
    int ndim;
    int64_t shape[GD_MAX_DIMS];
} gd_spec;

/* What shape() fills. */
typedef struct gd_shapes {
    gd_spec *output;       /* [outputs] */
    gd_spec *save;         /* [saves]; one that this call does not need is marked with ndim = -1 */
    uint64_t random_words; /* of the random stream, for a record with `random`; 0 unless set */
} gd_shapes;

typedef struct gd_call {
    gd_context *context;
    const gd_op *op;
    const void *args;      /* the op's own argument struct; NULL if it has none */
    gd_dtype dtype;        /* of the computation and of saves: GD_FLOAT32 or GD_FLOAT64 */
    gd_dtype kernel_dtype; /* of all real inputs, outputs and gradients, see below */
    int threads;           /* CPU threads to use at most; the result must not depend on it */
    int inputs, outputs, saves;

    /* NULL: an optional input that was not given. Inside forward() and backward() all real tensors
     * are of type `kernel_dtype`: on the CPU that is `dtype`, with 16-bit tensors converted; on a
     * GPU it is the dtype that they share, or else `dtype`; unless the record says mixed. All are
     * contiguous unless the record says strided. */
    gd_tensor **input;
    gd_tensor **output;
    gd_tensor **save; /* all NULL if there will be no backward: then nothing is saved */
    /* This forward, of an op with a backward, repeats an earlier one for gd_recompute, or is one of
     * gradcheck's: what it updates must stay as it is. */
    bool repeated;

    /* Backward only. doutput[i] is NULL if no gradient reached that output: treat it as zeros, at
     * no cost. dinput[i] is NULL if it is not needed: compute nothing for it. If accumulate[i] is
     * set, add into dinput[i]; otherwise overwrite it, its content is garbage. All are contiguous
     * and have the shape of their tensor, and its dtype except for `dinput_float32`; of calls that
     * pass the gradients of parameters on (gd_grad), all are of float32, and so is kernel_dtype. */
    gd_tensor **doutput;
    gd_tensor **dinput;
    const bool *accumulate;

    /* For a record with `random`: this call's place in the random stream (random.h). While a graph
     * is captured (graph.h), `random_base` is device memory, and the kernel must read the place
     * there: seed random_base->seed, offset random_base->offset + random_offset, which differ in
     * each run. Otherwise it is NULL. */
    uint64_t seed;
    uint64_t random_offset;
    const struct gd_random_state *random_base;

    const gd_op *part_of; /* the op whose definition made this call; NULL: none */
} gd_call;

/* forward() and backward() return GD_OK or the status of gd_call_fail. */
typedef gd_status (*gd_kernel)(const gd_call *call);

/* How the op is made of other ops, see gd_op; on an error these set the context's. */
typedef void (*gd_derivation)(const gd_call *call);

/* How to fill one input of a gradcheck case. */
typedef enum gd_fill_kind {
    GD_FILL_NORMAL = 0, /* normal with mean `a` and standard deviation `b` (0 means 1) */
    GD_FILL_UNIFORM,    /* uniform in [a, b) */
    GD_FILL_DISTINCT,   /* like normal, but no two values are closer than 0.01: no ties */
    GD_FILL_CONSTANT,   /* all `a` */
    GD_FILL_INDEX       /* GD_INT32, uniform whole numbers in [a, b) */
} gd_fill_kind;

typedef struct gd_case_input {
    gd_fill_kind fill;
    double a, b;
    bool absent; /* the optional input is not given */
    bool fixed;  /* not differentiated: the op has no gradient for it, by design */
    int ndim;
    int64_t shape[GD_MAX_DIMS];
} gd_case_input;

#define GD_CASE_MAX_INPUTS 6

/* A check of an op: its arguments and how to make its inputs. Cases are written in the notation
 * below, each input as its fill and its dimensions, in the order of the record's inputs:
 *
 *     {"per_head", &args, GD_INPUTS({GD_DIMS(3, 5, 16)}, {GD_NORMAL(1, 0.5), GD_DIMS(5, 16)})},
 *     {"no_bias", NULL, GD_INPUTS({GD_DIMS(0, 4)}, {GD_INDEX(9), GD_DIMS(4)}, GD_ABSENT),
 *      .may_be_empty = true},
 *
 * Without a fill an input is normal with mean 0 and deviation 1. */
typedef struct gd_case {
    const char *name; /* "rows4_cols64" */
    const void *args;
    int inputs;
    gd_case_input input[GD_CASE_MAX_INPUTS];
    /* there is nothing to compare by design (zero rows): gradcheck counts the case as empty, not
     * as vacuous */
    bool may_be_empty;
    bool kinks; /* the function has kinks: gradcheck detects and skips them */
} gd_case;

#define GD_INPUTS(...)                                                                     \
    .inputs = (int)(sizeof((const gd_case_input[]){__VA_ARGS__}) / sizeof(gd_case_input)), \
    .input = {__VA_ARGS__}
#define GD_DIMS(...) \
    .ndim = (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .shape = {__VA_ARGS__}
#define GD_SCALAR .ndim = 0 /* in place of GD_DIMS: one element */
#define GD_NORMAL(mean, deviation) .fill = GD_FILL_NORMAL, .a = (mean), .b = (deviation)
#define GD_UNIFORM(low, high) .fill = GD_FILL_UNIFORM, .a = (low), .b = (high)
#define GD_CONSTANT(value) .fill = GD_FILL_CONSTANT, .a = (value)
#define GD_DISTINCT .fill = GD_FILL_DISTINCT
#define GD_INDEX(limit) .fill = GD_FILL_INDEX, .b = (limit), .fixed = true /* 0 .. limit - 1 */
#define GD_ABSENT      \
    {                  \
        .absent = true \
    }

/* A set of inputs or outputs is a mask: GD_BIT(0) | GD_BIT(2) are the first and the third. Inputs
 * from the 32nd on share the last bit. */
#define GD_BIT(i) (UINT32_C(1) << ((i) < 31 ? (i) : 31))
#define GD_ALL_INPUTS UINT32_MAX
#define GD_ANY_INPUTS (-1)

/* In a record: its cases, an array of gd_case. */
#define GD_CASES(array) .cases = (array), .case_count = (int)(sizeof(array) / sizeof *(array))

/* Where a number lies in an argument struct, and of what type it is. */
typedef enum gd_number_kind {
    GD_NUMBER_DOUBLE,
    GD_NUMBER_INT, /* or an enum */
    GD_NUMBER_INT64,
    GD_NUMBER_AXIS /* an int; one of the dimensions of input 0, whatever low and high are */
} gd_number_kind;

/* An argument that must be from `low` to `high`; if it is not, NaN neither, the error is
 * "NAME OF OP: <name> is <value>, wanted <wanted>". */
typedef struct gd_option_range {
    const char *name; /* "eps" */
    size_t offset;
    gd_number_kind kind;
    double low, high;
    const char *wanted; /* "0 or more" */
} gd_option_range;

/* {"eps", GD_FIELD(my_args, eps), 0, INFINITY, "0 or more"}; and for an axis. */
#ifndef __cplusplus
#define GD_FIELD(type, field)                                   \
    offsetof(type, field), _Generic(((type *)0)->field, double  \
                                    : GD_NUMBER_DOUBLE, int64_t \
                                    : GD_NUMBER_INT64, default  \
                                    : GD_NUMBER_INT)
#endif
#define GD_AXIS_RANGE(type, field)                                \
    {                                                             \
        "axis", offsetof(type, field), GD_NUMBER_AXIS, 0, 0, NULL \
    }

struct gd_op {
    /* ---- What every op needs -------------------------------------------------------------- */

    const char *name;    /* "rms_norm" */
    const char *formula; /* "y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps)" */

    /* Which inputs there are, and which outputs and saves they give; what it cannot say,
     * shape() does.
     *
     *     "x[..., K] weight[N, K] bias[N]? -> y[..., N]"
     *     "x[B, C, ...] weight:real[C]? -> y[B, C, ...]; mean:float64[C] rstd:float64[C]"
     *
     * In brackets, a letter is a size, the same wherever it stands; 4H is one that 4 divides, and 1
     * is 1; "..." are any dimensions, the same everywhere, and "*" any that broadcast to them. "?"
     * marks an optional input, and "x+" one or more, x[0], x[1] ... Without brackets, shape() looks
     * at the dimensions or sets them. All inputs without a dtype have one, which is real, unless
     * one of them is :any, and results have it, too. Others are :real, of any real dtype, :int32,
     * :mask, which is int32 or that dtype, :float64 or :compute, gd_call.dtype. */
    const char *signature;

    /* What the signature does not say, as where there is none. gd_op_count() knows both. */
    int inputs; /* how many, with optional ones; GD_ANY_INPUTS: one or more */
    /* "x", "weight"; as in the formula, for messages and gradcheck; NULL: as in the signature. With
     * GD_ANY_INPUTS there is one name for all: "x[0]", "x[1]" ... */
    const char *input_names[GD_CASE_MAX_INPUTS];
    uint32_t optional_inputs; /* which may be NULL */
    int outputs;              /* at least 1 */
    int saves;                /* tensors that forward() leaves for backward(), e.g. rstd */
    size_t args_size;         /* of the argument struct, which is copied; 0: none */
    bool random;              /* draws random numbers; shape() sets random_words */

    /* What backward() reads besides saves and doutput; the tape frees the rest. */
    uint32_t backward_reads_inputs;
    uint32_t backward_reads_outputs;

    /* Which inputs forward() also writes to: tensors of the user's, or views of them, that are
     * updated in place, unless call->repeated is set. If there is a backward, neither it nor the
     * outputs depend on them. */
    uint32_t updates_inputs;

    /* Arguments that must be in a range, ended by a row without a name. */
    const gd_option_range *ranges;

    /* Checks inputs and arguments, and fills `out`, which has what the signature gives. NULL if
     * that and the ranges say all. */
    gd_status (*shape)(const gd_call *call, gd_shapes *out);

    /* Per device. Without a forward (NULL) the definition runs. An op whose outputs are all whole
     * numbers, such as masks, needs no backward: nothing is recorded. A gradient that reaches any
     * other op without one is an error that names it; gd_detach stops gradients on purpose. */
    gd_kernel forward[GD_DEVICE_COUNT];
    gd_kernel backward[GD_DEVICE_COUNT];

    const gd_case *cases; /* for gradcheck; GD_CASES(array) sets both */
    int case_count;

    /* ---- What takes the place of kernels, and makes gradients differentiable ---------------- */

    /* What the op is: makes call->output[] of call->input[] by ops, each in place of a tensor that
     * has its shape alone. It changes nothing, such as running statistics. A call without kernels
     * runs it: the tape then has the nodes of these ops, whose messages name this op too, and what
     * no backward reads is freed when it returns. For an op with kernels it is run when a gradient
     * is to be differentiated (gd_gradients), and must give what forward() gave, but for
     * rounding. */
    gd_derivation definition;

    /* Whether there are kernels for this call, which shape() has accepted; NULL: for all calls on a
     * device that has a forward. */
    bool (*kernels)(const gd_call *call);

    /* The backward by ops, where that is shorter or faster than what follows from the definition:
     * replaces each call->dinput[i] that is not NULL by a tensor of the shape of call->input[i],
     * linear in call->doutput[], or by NULL for zeros. doutput[i] may be NULL as in backward(). Of
     * inputs and outputs that backward_reads_inputs and backward_reads_outputs do not list, it may
     * read the shape alone; there are no saves.
     *
     * In both all real tensors have call->dtype: 16 bits are float32. The stream of random numbers
     * is where the forward found it. Without a forward, `mixed` holds for a definition, too. */
    gd_derivation derivative;

    /* ---- What saves time or memory, or promises more: an op is right without ---------------- */

    /* Which dinput may share memory with a tensor of the same shape that is not needed after this
     * call: doutput[0], or the input itself. */
    uint32_t dinput_over_doutput;
    uint32_t dinput_over_input;

    /* Which dinput backward() can write as float32 although its inputs are 16-bit.
     * Gradients of parameters are stored so (optim.h); others are rounded to 16 bits first. */
    uint32_t dinput_float32;

    /* Which dinput [V, ...] get numbers other than 0 only in rows that the next input, of int32,
     * names; a backward that adds leaves the other rows alone. Clearing, clipping and some updates
     * of parameters then cost what was named (optim.h). */
    uint32_t dinput_rows;

    bool strided;   /* the kernels take real inputs of any strides */
    uint32_t mixed; /* devices whose kernels, or definition, take every real in its own dtype */

    /* For an op whose outputs can be views of input[0], else NULL: fills the strides (in
     * elements) and offset (in elements, from input[0]'s first element) of output `index`, whose
     * shape is known, and returns true, or false if this call cannot be a view; then forward()
     * copies. An op that always can needs no forward. */
    bool (*view)(const gd_call *call, int index, int64_t *strides, int64_t *offset);

    /* Each gradient has the same bits whichever others are wanted; gradcheck then compares bits.
     * Not so if one loop computes several gradients and a condition in it leaves some out: the
     * compiler may contract a * b + c in one case and not in the other. */
    bool same_bits;

    /* The argument struct has neither pointers nor padding, whose bytes are undefined: gd_recompute
     * compares the arguments of its two runs byte by byte. */
    bool plain_args;

    /* The gradient is 0 wherever there is one, as that of steps is: gradcheck then takes zeros in
     * all cases for what they are. Without it they are VACUOUS. */
    bool zero_gradient;

    /* The record and its texts never change while a context lives, as those of the library's ops,
     * and its signature has all its tensors: a context then reads that once. A copy of such a
     * record that changes must not say so. */
    bool constant;
};

/* How many inputs (GD_ANY_INPUTS: one or more), outputs and saves an op has, and which inputs may
 * be NULL, by its signature and its record. */
typedef struct gd_op_counts {
    int inputs, outputs, saves;
    uint32_t optional_inputs;
} gd_op_counts;
GD_API gd_op_counts gd_op_count(const gd_op *op);

/* Whether gradients pass through the op on a device. */
static inline bool gd_op_has_backward(const gd_op *op, gd_device device)
{
    return op->backward[device] || (!op->forward[device] && op->definition);
}

/* Runs an op, and records it if a gradient is needed: returns its first output, or NULL on error.
 * `inputs` [count] may be NULL for optional inputs, but not all of them, since they determine the
 * context. `args` points to args_size bytes, which are copied; NULL if the record has none. The
 * record itself must live until the step ends. */
GD_API gd_tensor *gd_apply(const gd_op *op, gd_tensor *const *inputs, int count, const void *args);

/* The same for an op with several outputs: fills outputs [its outputs], with NULL on error. */
GD_API gd_status gd_apply_multi(const gd_op *op, gd_tensor *const *inputs, int count,
                                const void *args, gd_tensor **outputs);

/* Adds an op of your own to this context's list, for gradcheck and gd_find_op. The record must live
 * as long as the context. Refuses an invalid record (no name, neither signature nor shape(),
 * neither forward nor definition), as gd_apply does, and a name that is taken. gd_apply needs no
 * registration. */
GD_API gd_status gd_register_op(gd_context *ctx, const gd_op *op);

/* The ops of the library, then those registered in ctx (may be NULL); NULL past the end. */
GD_API const gd_op *gd_op_at(const gd_context *ctx, int index);
GD_API const gd_op *gd_find_op(const gd_context *ctx, const char *name);

/* ---- For the inside of ops ---------------------------------------------------------------- */

/* Sets the context's error to "NAME OF OP: <your words>" and returns the status. */
GD_API gd_status gd_call_fail(const gd_call *call, gd_status status, const char *format, ...)
    GD_PRINTF(3, 4);

/* Memory for this call only, uninitialised, 64-byte aligned, on the call's device; freed when the
 * call ends. NULL (with the error set) if there is none. `bytes` may be 0. */
GD_API void *gd_call_scratch(const gd_call *call, size_t bytes);

/* A shape as text for messages: gd_shape_text(t).text is "[32, 64, 512]", "(none)" for NULL. */
typedef struct gd_text {
    char text[192];
} gd_text;
GD_API gd_text gd_shape_text(const gd_tensor *t);

/* The name of input i of a record: "weight"; "x[2]"; "input 2" if the record has none. */
GD_API gd_text gd_input_name(const gd_op *op, int i);

/* A tensor of the step, all of whose elements are `value`; of any dtype and, with ndim 0, a number
 * that ops broadcast. For definitions and derivatives. */
GD_API gd_tensor *gd_constant(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                              double value);

/* Fills a spec with the dtype and shape of t. */
GD_API gd_spec gd_spec_like(const gd_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
