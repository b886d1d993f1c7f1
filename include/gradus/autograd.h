/* autograd.h - the tape, and how an op gets onto it.
 *
 * Reverse-mode differentiation in one paragraph. Calling an op runs it, and if one of its inputs
 * wants a gradient, appends a node to the tape: the op's record, its inputs, its outputs, what it
 * saved. The tape is therefore in topological order by construction. gd_backward(loss) sets
 * dloss/dloss = 1 and walks the nodes from last to first; each node turns the gradients of its
 * outputs into gradients of its inputs by the chain rule,
 *
 *     dL/dx = sum over outputs y of (dy/dx)^T dL/dy,
 *
 * and a tensor that several nodes read sums what they send. In the names of this library the
 * gradient of the loss with respect to x is `dx`, whatever the loss is.
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
 * used up: their saved tensors go back to the pool at their last use, and a second backward
 * through them is an error. Gradients of your tensors add up over several backwards (gradient
 * accumulation) until gd_grad_clear. On error the gradients may hold a part of the sum. */
GD_API gd_status gd_backward(gd_tensor *loss);

typedef struct gd_backward_options {
    /* dL/doutput for each output, of its shape; NULL, or a NULL element: ones */
    gd_tensor *const *cotangents;
    /* Do not use the nodes up: nothing is freed, and backward may run through them again. (In
     * PyTorch: retain_graph.) */
    bool keep_tape;
} gd_backward_options;

/* The same from several tensors of any shape at once: computes sum_i (doutputs[i]/dt)^T
 * cotangents[i]. The cotangents are read, never written. */
GD_API gd_status gd_backward_from(gd_tensor *const *outputs, int count,
                                  const gd_backward_options *options);

/* The gradient of t: a contiguous tensor of t's shape and dtype (of float32 for the parameters of a
 * 16-bit group), or NULL (which is no error) if none has arrived since it was last cleared. Owned
 * by t. For a tensor made by an op there is one only if gd_retain_grad(t) was called before the
 * backward. The next backward writes to the same memory, and then refuses an op whose own backward
 * needs the gradient as it was, such as gd_mul(gd_grad(t), t): give the op a copy. */
GD_API gd_tensor *gd_grad(const gd_tensor *t);

/* Forgets the gradient of t; the next backward starts from nothing. */
GD_API gd_status gd_grad_clear(gd_tensor *t);

/* Asks that the gradient of a tensor made by an op be kept until the step ends. Returns t. */
GD_API gd_tensor *gd_retain_grad(gd_tensor *t);

/* Asks that the value of a tensor made by an op be kept through gd_backward until the step ends,
 * so that it can still be read. (A loss given to gd_backward is kept by itself.) Returns t. */
GD_API gd_tensor *gd_keep(gd_tensor *t);

/* Called in each backward when the gradient of a leaf is complete: nothing that still runs will add
 * to it, so that what uses it, such as a sum over several GPUs, may be queued while the backward
 * goes on. Leaves come in the order in which the backward gets to them, the last layer's first; each
 * once in a backward; those that no gradient reached do not come. In a graph (graph.h) it is called
 * when the backward is captured, and what it queues is captured. */
typedef void (*gd_grad_hook)(void *user, gd_tensor *leaf);

/* NULL: none, as at the beginning. */
GD_API void gd_on_gradient(gd_context *ctx, gd_grad_hook hook, void *user);

/* A view of t through which no gradient flows. */
GD_API gd_tensor *gd_detach(gd_tensor *t);

/* Between these two nothing is recorded; they nest. */
GD_API void gd_no_grad_begin(gd_context *ctx);
GD_API void gd_no_grad_end(gd_context *ctx);
GD_API bool gd_grad_enabled(const gd_context *ctx);

/* Ends the step: every tensor made by an op vanishes, the tape is empty, their memory is in the
 * pool. Pointers to them must not be used again. Works while an error stands, and keeps it; but not
 * from inside an op or a segment (gd_recompute), which is an error. */
GD_API void gd_step_end(gd_context *ctx);

/* ---- Recomputation ------------------------------------------------------------------------ */

/* A piece of a model as a function: builds outputs from inputs with ops and returns one tensor, or
 * NULL on error. */
typedef gd_tensor *(*gd_segment)(void *user, gd_tensor *const *inputs, int count);

/* What PyTorch calls activation checkpointing (Chen et al. 2016, arXiv:1604.06174). Runs the
 * segment without recording it, keeps only its inputs and its output, and runs it again inside the
 * backward to get the tensors that its ops saved: memory for time. Random numbers (dropout) repeat
 * exactly. Whatever in the segment depends on a gradient must come in through `inputs` or be a
 * tensor of yours; `user` must stay valid until the backward or the end of the step. */
GD_API gd_tensor *gd_recompute(gd_context *ctx, gd_segment segment, void *user,
                               gd_tensor *const *inputs, int count);

/* ---- Looking at the tape ------------------------------------------------------------------ */

/* Number of nodes on the tape. */
GD_API int64_t gd_tape_length(const gd_context *ctx);

/* Prints the tape, one node a line: number, op, inputs and outputs with their shapes, bytes saved
 * for the backward, and after a backward the norm of the gradient of each output that was asked
 * for with gd_tape_record_norms. */
GD_API gd_status gd_tape_print(gd_context *ctx, FILE *file);

/* The same as a DOT graph (Graphviz): `dot -Tsvg`. Solid arrows are values, dashed ones the gradients
 * that come back; where norms are recorded, leaves show that of their gradient, too. The same
 * program prints the same bytes every time. */
GD_API gd_status gd_tape_print_dot(gd_context *ctx, FILE *file);

/* The first node on the tape, in the order of the forward, with an output that holds a NaN or an
 * infinity: its index, and "#7 log [4, 16]" in `text`; -1 where there is none. It reads what is
 * there: all values before the backward, but those of tensors that were freed and no backward
 * needs. */
GD_API int64_t gd_tape_find_nonfinite(gd_context *ctx, char *text, size_t size);

/* Whether the following backwards note the 2-norm of every gradient they pass (it costs a read of
 * each, and a wait for the device). Off by default. */
GD_API void gd_tape_record_norms(gd_context *ctx, bool on);

/* ---- Watching the ops run ----------------------------------------------------------------- */

struct gd_call;

/* Called before (`begins`) and behind the kernels of every op, forward and backward, with what they
 * get: for clocks and profilers. On a GPU the kernels are queued, not done, when it is called
 * behind them. It must not run ops. */
typedef void (*gd_watcher)(void *user, const struct gd_call *call, bool backward, bool begins);

/* From here on; NULL: no longer. */
GD_API void gd_watch_ops(gd_context *ctx, gd_watcher watcher, void *user);

/* ---- An op is a record -------------------------------------------------------------------- */

/* This is the whole of what the library knows of an op, its own or yours. The tape, gradcheck, the
 * benchmark and the documentation walk these records. kernels/ holds one folder for each; read
 * kernels/rms_norm/rms_norm.c for an example, and docs/examples/custom_op.c for one from outside.
 *
 * The life of a call: gd_apply collects the inputs in a gd_call; shape() checks them and the
 * arguments and says what the outputs and saved tensors look like; memory is found; forward()
 * computes. In the backward the same gd_call comes back with doutput[] and dinput[] filled in. */

typedef struct gd_op gd_op;

/* The dtype and shape of an output or saved tensor. */
typedef struct gd_spec {
    gd_dtype dtype;
    int ndim;
    int64_t shape[GD_MAX_DIMS];
} gd_spec;

typedef struct gd_call {
    gd_context *context;
    const gd_op *op;
    const void *args; /* the op's own argument struct; NULL if it has none */
    gd_dtype dtype;   /* what to compute in, and keep saves in: GD_FLOAT32 or GD_FLOAT64 */
    gd_dtype storage; /* what all real inputs, outputs and gradients are stored in, see below */
    int threads;      /* CPU threads to use at most; the result must not depend on it */
    int inputs, outputs, saves;

    /* NULL: an optional input that was not given. Inside forward() and backward() all real tensors
     * are of type `storage`: on the CPU that is `dtype`, 16-bit ones having been converted; on a
     * GPU the dtype that they have in common, or else `dtype`, unless the record says mixed. All
     * are contiguous unless the record says strided. */
    gd_tensor **input;
    gd_tensor **output;
    gd_tensor **save; /* all NULL when no backward will come: then there is nothing to save */

    /* Backward only. doutput[i] is NULL if no gradient reached that output: treat it as zeros, at
     * no cost. dinput[i] is NULL if it is not wanted: compute nothing for it. Where accumulate[i],
     * add into dinput[i]; otherwise overwrite it, its content is garbage. All are contiguous and
     * have the shape of their tensor, and its dtype but for what `dinput_float32` says. */
    gd_tensor **doutput;
    gd_tensor **dinput;
    const bool *accumulate;

    /* For a record with `random`: this call's place in the random stream (random.h). While a graph
     * is captured (graph.h), `random_base` is device memory, and the place is to be read there by
     * the kernel: seed random_base->seed, offset random_base->offset + random_offset, which are
     * others in each run. Otherwise it is NULL. */
    uint64_t seed;
    uint64_t random_offset;
    const struct gd_random_state *random_base;
} gd_call;

/* forward() and backward() return GD_OK or the status of gd_call_fail. */
typedef gd_status (*gd_kernel)(const gd_call *call);

/* How to make one input of a gradcheck case. */
typedef enum gd_fill_kind {
    GD_FILL_NORMAL = 0, /* normal with mean `a` and standard deviation `b` (0 means 1) */
    GD_FILL_UNIFORM,    /* uniform in [a, b) */
    GD_FILL_DISTINCT,   /* normal like values no two of which are closer than 0.01: no ties */
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
 * below, each input as what it holds and its dimensions, in the order of the record's inputs:
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
    bool may_be_empty; /* there is nothing to compare here by design (zero rows): gradcheck counts
                        * the case as empty instead of as vacuous */
    bool kinks;        /* the function has kinks: gradcheck looks for them and leaves them out */
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

/* A set of inputs or outputs is a mask: GD_BIT(0) | GD_BIT(2) are the first and the third. All from
 * the 32nd on share the last bit. */
#define GD_BIT(i) (UINT32_C(1) << ((i) < 31 ? (i) : 31))
#define GD_ALL_INPUTS UINT32_MAX
#define GD_ANY_INPUTS (-1)

struct gd_op {
    const char *name;    /* "rms_norm" */
    const char *formula; /* "y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps)" */

    int inputs; /* how many, optional ones included; GD_ANY_INPUTS: one or more */
    const char *input_names[GD_CASE_MAX_INPUTS]; /* "x", "weight"; as in the formula. Messages and
                                                  * gradcheck call them so. Of GD_ANY_INPUTS the
                                                  * one name serves all: "x[0]", "x[1]" ... */
    uint32_t optional_inputs;                    /* which may be NULL */
    int outputs;                                 /* at least 1 */
    int saves;        /* tensors that forward() leaves for backward(), e.g. rstd */
    size_t args_size; /* of the argument struct, which is copied; 0: none */

    /* What backward() reads, besides saves and doutput; the tape frees the rest. */
    uint32_t backward_reads_inputs;
    uint32_t backward_reads_outputs;

    /* Which dinput may be the same memory as something that dies with this call, of the same shape:
     * doutput[0], or the input itself. */
    uint32_t dinput_over_doutput;
    uint32_t dinput_over_input;

    /* Whose gradient is the same numbers as that of input 0 (of one shape), as for a sum. Where both
     * are new, dinput[i] and dinput[0] may be one memory, to be written once. */
    uint32_t dinput_shared;

    /* Which dinput backward() on a GPU takes as float32 though what it reads is 16-bit.
     * Gradients of parameters are kept so (optim.h); any other comes to them rounded to 16 bits. */
    uint32_t dinput_float32;

    bool strided; /* the kernels take real inputs of any strides */
    bool mixed;   /* the GPU kernels take every real tensor in its own dtype */
    bool random;  /* draws random numbers; shape() sets *random_words */

    /* Checks inputs and arguments and fills output[outputs] and save[saves]. A save that this call
     * does not need is marked with ndim = -1. */
    gd_status (*shape)(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *random_words);

    /* For an op whose outputs can be windows on input[0], NULL for all others: fills the strides
     * (in elements) and offset (in elements, from input[0]'s first element) of output `index`,
     * whose shape is known, and returns true, or false if it cannot be a view this time; then
     * forward() copies. */
    bool (*view)(const gd_call *call, int index, int64_t *strides, int64_t *offset);

    /* Per device; NULL: not there. An op whose outputs are all whole numbers, as masks are, needs
     * no backward: nothing is recorded. Any other without one stops gradients with an error which
     * names it; use gd_detach to stop them on purpose. */
    gd_kernel forward[GD_DEVICE_COUNT];
    gd_kernel backward[GD_DEVICE_COUNT];

    const gd_case *cases;
    int case_count;
};

/* Runs an op, and records it if a gradient is needed: returns its first output, or NULL on
 * error. `inputs` [count] may hold NULL for optional inputs, but not for all, since they tell the
 * context. `args` points to args_size bytes, which are copied; NULL where the record has none. The
 * record itself must live until the step ends. */
GD_API gd_tensor *gd_apply(const gd_op *op, gd_tensor *const *inputs, int count, const void *args);

/* The same for an op with several outputs: fills outputs[op->outputs], with NULL on error. */
GD_API gd_status gd_apply_multi(const gd_op *op, gd_tensor *const *inputs, int count,
                                const void *args, gd_tensor **outputs);

/* Enters an op of your own into this context's list, where gradcheck and gd_find_op see it. The
 * record must live as long as the context. Refuses a record that contradicts itself (no name, no
 * shape(), no forward), as gd_apply does, and a name that is taken. gd_apply needs no
 * registration. */
GD_API gd_status gd_register_op(gd_context *ctx, const gd_op *op);

/* The ops of the library, then those registered in ctx (may be NULL); NULL past the end. */
GD_API const gd_op *gd_op_at(const gd_context *ctx, int index);
GD_API const gd_op *gd_find_op(const gd_context *ctx, const char *name);

/* ---- For the inside of ops ---------------------------------------------------------------- */

/* Sets the context's error to "NAME OF OP: <your words>" and returns the status. */
GD_API gd_status gd_call_fail(const gd_call *call, gd_status status, const char *format, ...)
    GD_PRINTF(3, 4);

/* Memory for this call alone, uninitialised, 64-byte aligned, on the call's device; freed when the
 * call ends. NULL (and the error set) if there is none. `bytes` may be 0. */
GD_API void *gd_call_scratch(const gd_call *call, size_t bytes);

/* A shape as text for messages: gd_shape_text(t).text is "[32, 64, 512]", "(none)" for NULL. */
typedef struct gd_text {
    char text[192];
} gd_text;
GD_API gd_text gd_shape_text(const gd_tensor *t);

/* The name of input i of a record: "weight"; "x[2]"; "input 2" where the record has none. */
GD_API gd_text gd_input_name(const gd_op *op, int i);

/* Fills a spec with the dtype and shape of t. */
GD_API gd_spec gd_spec_like(const gd_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
