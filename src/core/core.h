/* core.h - internals of the core: the structs behind a context and a node of the tape; that behind
 * a tensor is in core/tensor.h.
 *
 *     gd_context --- owns ---> user tensors (heap)          step tensors, nodes (arena)
 *                                   |                              |
 *                                   v                              v
 *                              gd_storage  <---- views ----  gd_tensor (shape, strides, offset)
 *                                   |
 *                                   v
 *                              device memory, from the pool
 *
 * A storage is one piece of device memory. Tensors are views of it. Two counters decide when the
 * memory goes back to the pool before the step ends: `views`, tensors that still look at it, and
 * `readers`, nodes of the tape whose backward will read it.
 *
 * Headers of step tensors, of their storages and of nodes come from an arena. gd_step_end gives up
 * all of a step at once, so nothing has to count references to them.
 */
#ifndef GRADUS_CORE_H
#define GRADUS_CORE_H

#include <string.h>

#include "gradus/gradus.h"
#include "core/services.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

/* ---- Memory (memory.c) ------------------------------------------------------------------ */

/* One size class of the pool: free blocks of equal size. There is always room to return a block,
 * since `capacity` is at least the number of blocks that exist. */
typedef struct gd_pool_class {
    size_t block_bytes;
    void **free_blocks;
    int64_t free_count, capacity, blocks;
} gd_pool_class;

#define GD_POOL_CLASSES 256
#define GD_MARGIN 512

/* With gd_context_options.guard: a piece of memory, which has its block to itself. */
typedef struct gd_guarded {
    char *data;
    size_t bytes;
    bool held; /* recorded work uses it: freed by gd_memory_trim */
    char what[47];
} gd_guarded;

/* Host memory from the context's allocator; NULL if there is none. gd_host_allocate then sets the
 * error: `what` completes "out of memory: ... bytes for <what>". */
void *gd_host_try(gd_context *ctx, size_t bytes);
void *gd_host_allocate(gd_context *ctx, size_t bytes, const char *what);
void gd_host_release(gd_context *ctx, void *memory, size_t bytes);

/* Grows an array of `size` byte elements to hold at least `wanted`; false, with nothing changed, if
 * there is no memory. */
bool gd_host_grow(gd_context *ctx, void **array, int64_t *capacity, int64_t wanted, size_t size,
                  const char *what);

/* Memory, uninitialised, that lives until gd_arena_end_step, which gd_step_end calls. */
void *gd_arena_allocate(gd_context *ctx, size_t bytes, const char *what);

/* An array of zeros there; not NULL even for no elements. */
void *gd_arena_array(gd_context *ctx, int64_t count, size_t size, const char *what);

void gd_arena_end_step(gd_context *ctx);
void gd_arena_free(gd_context *ctx);

/* Device memory, at least 64-byte aligned, uninitialised (or poisoned). NULL for 0 bytes, which is
 * not an error: check the status. Memory of a step and lasting memory never share a block: the
 * addresses in recorded work are of a step, and no tensor that outlives it can use them. */
gd_status gd_pool_allocate(gd_context *ctx, bool step, size_t bytes, gd_memory_class memory_class,
                           const char *what, void **data);
void gd_pool_release(gd_context *ctx, bool step, void *data, size_t bytes,
                     gd_memory_class memory_class);
void gd_pool_free(gd_context *ctx);

/* Guarded memory (guard.c), for the pool; NULL if there is none. An error if, at its release, a
 * margin was written to; gd_guard_look looks at all of it, gd_guard_trim frees what recorded work
 * has used. */
void *gd_guard_allocate(gd_context *ctx, size_t bytes, const char *what);
void gd_guard_release(gd_context *ctx, const void *data);
void gd_guard_look(gd_context *ctx);
void gd_guard_trim(gd_context *ctx);

/* Moves a storage's bytes to another class of the statistics. */
void gd_storage_reclassify(gd_context *ctx, gd_storage *storage, gd_memory_class memory_class);

/* ---- Devices (src/cpu, src/cuda) ------------------------------------------------------------ */

/* The interface to a device; its kernels are the services (services.h). Where all work is done at
 * once, close, synchronize, mark and passed are NULL. */
struct gd_device_table {
    gd_device device;
    /* Sets ctx->device_name, and perhaps ctx->device_note; an error says what is missing:
     * GD_ERROR_UNSUPPORTED if there is a device of the kind, which this build cannot use. */
    gd_status (*open)(gd_context *ctx);
    void (*close)(gd_context *ctx);
    void *(*allocate)(gd_context *ctx, size_t bytes); /* NULL when there is none */
    void (*release)(gd_context *ctx, void *data, size_t bytes);
    gd_status (*upload)(gd_context *ctx, void *dst, const void *host, size_t bytes);
    gd_status (*download)(gd_context *ctx, void *host, const void *src, size_t bytes);
    gd_status (*fill_bytes)(gd_context *ctx, void *dst, int byte, size_t bytes);
    /* Whether all bytes, at most GD_MARGIN, are this one after all work queued so far. */
    bool (*is_filled)(gd_context *ctx, const void *data, int byte, size_t bytes);
    gd_status (*synchronize)(gd_context *ctx);
    /* Memory that the host and the device access at the same address. */
    void *(*shared_allocate)(gd_context *ctx, size_t bytes);
    void (*shared_release)(gd_context *ctx, void *data, size_t bytes);
    /* Numbers the end of all work queued so far, and says whether the device has passed a mark; it
     * can also wait for that. False on an error too. */
    gd_status (*mark)(gd_context *ctx, int64_t number);
    bool (*passed)(gd_context *ctx, int64_t number, bool wait);
    /* Between begin and end, work is recorded instead of done. The end makes a graph of it, NULL on
     * an error or after an earlier one. All four are NULL on the CPU. */
    gd_status (*capture_begin)(gd_context *ctx);
    void *(*capture_end)(gd_context *ctx);
    gd_status (*replay)(gd_context *ctx, void *graph);
    void (*graph_free)(gd_context *ctx, void *graph);
    /* Around the kernels of one op, for a profiler's timeline; NULL: nothing to do. */
    void (*op_begin)(gd_context *ctx, const char *name, bool backward);
    void (*op_end)(gd_context *ctx);
};

/* ---- Signatures (signature.c) ----------------------------------------------------------- */

typedef struct gd_signature gd_signature;
enum { GD_SIGNATURES = 512 };

/* Reads the signature of a record, which may have none; that of a constant record once. NULL, with
 * the error set, if it or the record is not usable; otherwise sets `counts`. `who` begins the
 * message on the record; NULL: it may lack what a call needs. */
const gd_signature *gd_signature_read(gd_context *ctx, const gd_op *op, const char *who,
                                      gd_op_counts *counts);

/* Compares the inputs and arguments of a call with the record's signature and ranges, sets the
 * shapes that these give, and calls its shape(). */
gd_status gd_signature_check(const gd_signature *s, const gd_call *call, gd_shapes *out);

void gd_signatures_free(gd_context *ctx);

/* ---- The context (context.c) ------------------------------------------------------------ */

struct gd_context {
    int visits; /* of nodes, nested; the first field, since gd_tensor_data reads it */
    gd_context_options options;
    gd_allocator allocator;
    struct gd_slab *slabs;         /* of the default allocator */
    const gd_device_table *device; /* NULL: none could be opened, see the error */
    const gd_services *services;
    int threads;
    void *stream;       /* cudaStream_t; NULL on the CPU */
    void *device_state; /* the device's own */
    char device_name[128], device_note[768];

    gd_status status; /* of the first error */
    char error[768];

    int64_t objects; /* that need it: parameters, optimizers, graphs, groups, open files */
    bool freed;      /* by the user; the last object frees it */

    gd_pool_class pool[2 * GD_POOL_CLASSES]; /* of lasting memory, then of a step's */
    gd_guarded *guarded;
    int64_t guarded_count, guarded_capacity;
    gd_memory_stats stats;
    struct gd_arena_chunk *arena; /* the current one of a ring */
    uint64_t steps;               /* that have ended */

    gd_tensor *user_tensors;  /* created by the user; doubly linked */
    gd_tensor *freed_headers; /* headers of what the user has freed, the newest first */
    gd_tensor *oldest_freed;  /* the end of that list */
    int64_t freed_count;      /* its length */
    gd_tensor *step_tensors;  /* made by ops */
    gd_storage *step_storages;

    gd_node **tape;
    int64_t tape_length, tape_capacity;
    int no_grad; /* depth of gd_no_grad_begin */
    bool in_backward;
    const gd_tensor *before; /* the user's newest tensor when the backward or gd_gradients began */
    /* The gd_gradients that is running; or NULL. */
    struct gd_gradients_walk *gradients;
    int segments;       /* of gd_recompute that are running, nested */
    int repeats;        /* depth of gd_repeat_begin */
    bool retain_grads;  /* of all outputs: gd_tape_record_norms */
    int64_t tape_floor; /* nodes before this one are outside the segment being recomputed */
    struct gd_call_listener *segment; /* that of the innermost segment that is running */
    uint64_t calls;                   /* made so far, of ops */
    /* What it was when the step began, at its last backward, when gd_tensor_set_requires_grad and
     * gd_no_grad_begin were called last, after the last call that was not recorded, and when
     * gd_gradients last gave a differentiable gradient that depends on nothing. */
    uint64_t calls_at_begin, calls_at_backward, calls_at_require, calls_at_no_grad, unrecorded;
    uint64_t calls_at_constant;
    int64_t updates;      /* in this step */
    int64_t updates_made; /* by all optimizers, so far */
    unsigned notices;     /* a bit for each gd_notice_kind that was given */
    bool asked;           /* gd_error was called since the error */
    uint64_t versions;    /* given so far, to storages */

    struct gd_call_frame *frame; /* the running call, for gd_call_scratch */
    const gd_op *part_of;        /* whose definition is running, or has made the visited node */
    struct gd_temporary *spare;  /* headers of temporary memory, to be used again in this step */

    gd_random_state random;
    const gd_random_state *random_base; /* on the device, see gd_call; NULL outside a capture */

    /* Fields of optim/graph.c: */
    gd_graph *graphs;           /* all that exist */
    struct gd_capture *capture; /* what the device's work is recorded into; NULL: it is done */
    bool in_graph;              /* a graph's function is running */
    uint64_t generation;        /* incremented when memory that a captured graph may use is freed */
    int64_t marks;              /* made so far */
    int64_t waits;              /* how often the host waited for the device */

    struct gd_listener *listeners; /* gd_on_gradient */

    gd_watcher watcher; /* gd_watch_ops */
    void *watcher_user;

    const gd_op **user_ops;
    int64_t user_op_count, user_op_capacity;
    gd_signature *signatures[GD_SIGNATURES]; /* of constant records, a hash table */
};

/* Makes AddressSanitizer let programs touch this memory of the CPU, or report them. */
static inline void gd_allow(const gd_context *ctx, const void *data, size_t bytes, bool allowed)
{
    (void)ctx, (void)data, (void)bytes, (void)allowed;
#ifdef __SANITIZE_ADDRESS__
    if (ctx->device->device == GD_CPU)
        (allowed ? __asan_unpoison_memory_region : __asan_poison_memory_region)(data, bytes);
#endif
}

/* An object that needs the context begins and ends to exist. The context lives as long as they do,
 * so that they may be freed after gd_context_free. */
static inline void gd_context_hold(gd_context *ctx)
{
    ctx->objects++;
}

void gd_context_drop(gd_context *ctx);

/* Marks the end of the work queued so far. */
static inline gd_status gd_mark(gd_context *ctx)
{
    const int64_t number = ctx->marks++;
    return ctx->device->mark ? ctx->device->mark(ctx, number) : GD_OK;
}

/* Whether the device has passed a mark, for which it can wait. */
static inline bool gd_passed(gd_context *ctx, int64_t number, bool wait)
{
    return !ctx->device->passed || ctx->device->passed(ctx, number, wait);
}

/* Waits for all work queued so far. */
static inline gd_status gd_wait_for_device(gd_context *ctx)
{
    return ctx->device->synchronize ? ctx->device->synchronize(ctx) : GD_OK;
}

/* Memory filled with 0xff, read as a pointer: no tensor and no function is there. */
static inline bool gd_is_garbage(uintptr_t pointer)
{
    return pointer == UINTPTR_MAX;
}

/* Sets how many threads the kernels use, as the options say or by default (host.c); false if
 * the options ask for more than OpenMP, which ends the program if it cannot create them, may be
 * asked for. */
bool gd_choose_threads(gd_context *ctx);
enum { GD_MAX_THREADS = 4096 };

/* ---- Errors (error.c) -------------------------------------------------------------------- */

/* Replaces each control character, of ASCII and of U+0080 to U+009F, encoded or as a byte, by "?":
 * a name, or text from a file, may contain line breaks or control sequences of a terminal. */
void gd_replace_controls(char *text);

/* Whether there is an error; every public call checks it first. */
static inline bool gd_failed(const gd_context *ctx)
{
    return ctx->status != GD_OK;
}

/* False, with the error set, inside the function of a graph, which must not wait for the device. */
bool gd_refuse_in_graph(gd_context *ctx, const char *who);
static inline bool gd_outside_graph(gd_context *ctx, const char *who)
{
    return !ctx->in_graph || gd_refuse_in_graph(ctx, who);
}

/* ---- Tensors (tensor.c) ------------------------------------------------------------------ */

/* A header from the heap (user) or the arena (step), without a storage. Checks the shape; `who`
 * begins the message. */
gd_tensor *gd_tensor_header(gd_context *ctx, const char *who, bool step, gd_dtype dtype, int ndim,
                            const int64_t *shape);

/* That of the gradient of t, which goes with t unless it belongs to the step. */
gd_tensor *gd_grad_header(const gd_tensor *t, bool step, gd_dtype dtype);

/* Makes t a header of `count` packed elements. */
void gd_tensor_pack(gd_tensor *t, gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                    int64_t count);

/* Gives a header its own packed memory. */
gd_status gd_tensor_allocate(gd_tensor *t, gd_memory_class memory_class, const char *who);

/* Makes t a view of a storage, and no longer one: the last view of a heap storage frees it. */
void gd_tensor_attach(gd_tensor *t, gd_storage *storage);
void gd_tensor_drop_view(gd_tensor *t);

/* A step tensor that sees what t sees, of no node. */
gd_tensor *gd_tensor_view(const gd_tensor *t, const char *who);

/* The content of a storage is about to change. */
static inline void gd_new_version(gd_context *ctx, gd_storage *storage)
{
    storage->version = ++ctx->versions;
}

/* to = from, n packed elements, converted; nothing is done for none. */
void gd_copy_packed(gd_context *ctx, void *to, gd_dtype to_dtype, void *from, gd_dtype from_dtype,
                    int64_t n);

/* Notes that a call of the user's has changed a storage. Between steps a buffer keeps the change;
 * during a step it is part of the step, as what its ops do to buffers. */
void gd_written(gd_context *ctx, gd_storage *storage);

/* A storage header, heap or arena, without memory. */
gd_storage *gd_storage_create(gd_context *ctx, bool step);

/* Gives it memory; returns that to the pool now. */
gd_status gd_storage_allocate(gd_context *ctx, gd_storage *storage, size_t bytes,
                              gd_memory_class memory_class, const char *who);
void gd_storage_release(gd_context *ctx, gd_storage *storage);

/* Frees a tensor of the user or of a group, even if another object owns it. */
void gd_tensor_destroy(gd_tensor *t);

/* Releases the headers of freed tensors but for the `keep` newest: using one of these is an error
 * that says so. */
void gd_tensor_release_headers(gd_context *ctx, int64_t keep);
enum { GD_KEPT_HEADERS = 256 };

/* While a node is visited, what the user has freed can be read: the tape keeps its values. */
static inline bool gd_is_lent(const gd_tensor *t)
{
    return t->step && t->ctx->visits > 0;
}

/* Whether t has its memory. */
static inline bool gd_tensor_readable(const gd_tensor *t)
{
    return t->storage && !t->storage->released && (!t->freed || gd_is_lent(t));
}

/* gd_tensor_usable (services.h) for a tensor to be written to, which an expanded view cannot be. */
bool gd_tensor_writable(const gd_tensor *t, const char *who);

/* An error unless all are given, of the context, and usable; `who` and `role` name them. */
gd_status gd_check_tensors(gd_context *ctx, gd_tensor *const *t, int count, const char *who,
                           const char *role);

static inline bool gd_same_shape(const gd_tensor *a, const gd_tensor *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

/* An error unless u, which `role` and i name, is a real tensor of the shape and context of
 * t, an `of`. */
gd_status gd_check_like(const gd_tensor *t, const char *of, const gd_tensor *u, const char *who,
                        const char *role, int i);

/* An error unless what a derivation of the op made is of the context and the shape of t. `whose`:
 * "derivative". */
gd_status gd_check_made(const gd_op *op, const gd_tensor *made, const gd_tensor *t,
                        const char *whose);

/* What a call returns that does nothing with t, which may be NULL. */
static inline gd_status gd_tensor_status(const gd_tensor *t)
{
    return t ? t->ctx->status : GD_ERROR_ARGUMENT;
}

/* Product of the dimensions; false if a dimension is negative or the bytes overflow. */
bool gd_shape_count(int ndim, const int64_t *shape, size_t element_bytes, int64_t *count);

/* ---- Gradients (grad.c) ----------------------------------------------------------------- */

/* A packed row-major gradient buffer for t, to be written to; allocated at its first use, content
 * undefined. */
gd_status gd_tensor_need_grad(gd_tensor *t);

/* What gd_grad returns, for reading alone. */
static inline gd_tensor *gd_grad_now(const gd_tensor *t)
{
    return t->retained ? t->retained : t->grad_valid ? t->grad : NULL;
}

/* The dtype in which the gradient of t is stored. */
static inline gd_dtype gd_gradient_dtype(const gd_tensor *t)
{
    const bool wide = t->wide_grad && gd_dtype_size(t->dtype) == 2;
    return t->grad ? t->grad->dtype : wide ? GD_FLOAT32 : t->dtype;
}

/* Adds src (of t's shape, any strides and real dtype) to the gradient of t, or makes a copy of it
 * the gradient. */
gd_status gd_grad_add(gd_tensor *t, const gd_tensor *src, const char *who);

/* Drops the gradient of a tensor made by an op, or adds it to the one that is kept for the user. */
void gd_grad_release(gd_tensor *t);
void gd_grad_retain(gd_tensor *t);

/* ---- Gradients of few rows (rows.c) ------------------------------------------------------- */

/* For a backward that adds to few rows of a gradient of t, dinput[i], and to no others
 * (gd_op.dinput_rows): makes the rest zeros unless it is valid, and notes which they are. False,
 * and nothing is done, if any of it may be written to, or on an error. */
bool gd_grad_take_rows(const gd_call *call, int i, const gd_tensor *t);

/* Any element of a sparse gradient is about to be written to; of any, may be from now on. */
void gd_grad_take_all(gd_tensor *grad);
void gd_grad_share(gd_tensor *grad);

/* Makes a gradient zeros. */
void gd_grad_zero(const gd_tensor *grad);

/* Multiplies a block of gradients. */
void gd_grad_scale(const gd_tensor *grads, double factor);

/* The bytes that say which granules of t, from this element on, may be other than 0; or NULL. */
uint8_t *gd_touched_from(const gd_tensor *t, int64_t element);

/* The sum of squares of a packed tensor: to be written to `sum` on the device; and for the host,
 * which waits for it, NaN on error. */
void gd_submit_squares(double *sum, const gd_tensor *t);
double gd_sum_squares(const gd_tensor *t);

static inline size_t gd_granules(size_t bytes)
{
    return (bytes + GD_GRANULE - 1) / GD_GRANULE;
}

/* ---- Calls (frame.c, op.c) --------------------------------------------------------------- */

/* What surrounds one forward or backward: memory that lives as long as the call. */
typedef struct gd_temporary {
    struct gd_temporary *next;
    gd_storage storage;
    gd_tensor tensor;
} gd_temporary;

typedef struct gd_call_frame {
    struct gd_call_frame *outer;
    const gd_tensor *before; /* the user's newest tensor when it began */
    gd_temporary *temporaries;
} gd_call_frame;

void gd_frame_begin(gd_context *ctx, gd_call_frame *frame);
void gd_frame_end(gd_context *ctx, gd_call_frame *frame);

/* False, with the error set, inside an op, a hook, a watcher, a segment or a definition, which use
 * what the call would free, and with `graphs` also inside the function of a graph. */
bool gd_outside_calls(gd_context *ctx, const char *who, bool graphs);

/* A packed tensor of class WORKSPACE for the current frame. */
gd_tensor *gd_frame_tensor(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                           const char *who);

/* t in `dtype`, packed unless it may be strided: itself, or a copy. NULL on error. */
gd_tensor *gd_frame_prepare(gd_context *ctx, gd_tensor *t, gd_dtype dtype, bool strided,
                            const char *who);

/* Runs forward[] or backward[] of call->op. */
gd_status gd_run_kernel(gd_kernel kernel, const gd_call *call, bool backward);

/* The dtype in which the kernels of this call take t. */
static inline gd_dtype gd_kernel_dtype(const gd_call *call, const gd_tensor *t)
{
    const bool own = call->op->mixed & GD_BIT(call->context->device->device);
    return own || !gd_dtype_is_real(t->dtype) ? t->dtype : call->kernel_dtype;
}

/* ---- Definitions (definition.c) ----------------------------------------------------------- */

/* Runs the definition of call->op, which replaces call->output[], tensors without memory. */
gd_status gd_define(gd_call *call);

/* Runs it in place of kernels: makes call->output[] of these dtypes and shapes. Its parts are calls
 * and nodes of their own. */
gd_status gd_run_definition(gd_call *call, const gd_spec *output);

/* ---- Segments (src/recompute) ------------------------------------------------------------- */

/* A listener to the calls of a segment of gd_recompute. */
typedef struct gd_call_listener {
    struct gd_call_listener *outer; /* that of the segment around this one */
    const gd_call_frame *frame; /* the one around its calls; others are made by an op's kernel */
    gd_status (*call)(struct gd_call_listener *listener, const gd_call *call);
} gd_call_listener;

/* Notifies the listeners of a call before it runs. `frame`: the one around it. */
static inline gd_status gd_notify_call(const gd_call *call, const gd_call_frame *frame)
{
    gd_context *ctx = call->context;
    for (gd_call_listener *l = ctx->segment; l && !gd_failed(ctx); l = l->outer)
        if (frame == l->frame) l->call(l, call);
    return ctx->status;
}

/* ---- The tape (tape.c, backward.c, backward_call.c) --------------------------------------- */

struct gd_node {
    _Alignas(16) gd_call call; /* of the forward, with a copy of its arguments, behind the node */
    gd_status (*backward)(gd_node *node, bool keep_tape); /* NULL: gd_node_backward */
    uint64_t *versions; /* [inputs + outputs] of their storages after the forward */
    bool *required;     /* [inputs]: it required a gradient then */
    int64_t index;      /* on the tape */
    bool used;          /* a backward has visited it */
    bool marked;        /* the running backward will visit it */
    bool leads;         /* of gd_gradients: to one of its inputs */
    gd_node *via;       /* the node that it was reached from, for messages */
};

/* The op that was called, of which this call may be a part. */
static inline const gd_op *gd_called_op(const gd_call *call)
{
    return call->part_of ? call->part_of : call->op;
}

/* Appends a node. It takes over the call's arrays, which are in the arena; the arguments are copied
 * there. */
gd_node *gd_tape_append(const gd_call *call);

static inline int gd_node_values(const gd_node *node)
{
    return node->call.inputs + node->call.outputs + node->call.saves;
}

/* Value i of a node, of its inputs, its outputs and what it saved; NULL if the backward does not
 * read it, or it is not there. */
static inline gd_tensor *gd_node_value(const gd_node *node, int i)
{
    const gd_call *call = &node->call;
    const int k = i - call->inputs;
    if (k < 0) return call->op->backward_reads_inputs & GD_BIT(i) ? call->input[i] : NULL;
    if (k < call->outputs)
        return call->op->backward_reads_outputs & GD_BIT(k) ? call->output[k] : NULL;
    return call->save[k - call->outputs];
}

/* What gd_gradients knows of a tensor: of each input, and of what has a cotangent made by ops. */
typedef struct gd_wanted {
    struct gd_wanted *next;
    gd_tensor *t, *cotangent;
    bool aside; /* kernels compute another gradient; its own is the following: */
    bool grad_valid;
    gd_tensor *grad, *retained;
} gd_wanted;

typedef struct gd_gradients_walk {
    gd_gradients_options options;
    gd_wanted *first;
} gd_gradients_walk;

/* That of t, which begins to exist; NULL on error. */
gd_wanted *gd_want(gd_tensor *t);

/* Whether t is an input of the running gd_gradients, or was made of one. */
static inline bool gd_is_wanted(const gd_tensor *t)
{
    return t->requires_grad && ((t->node && t->node->leads) || t->wanted);
}

/* Whether the running walk needs the gradient of t. */
static inline bool gd_walk_needs(const gd_context *ctx, const gd_tensor *t)
{
    return t->requires_grad && (!ctx->gradients || gd_is_wanted(t));
}

/* Whether its gradient, which kernels compute, outlives the running walk. */
static inline bool gd_walk_retains(const gd_context *ctx, const gd_tensor *t)
{
    return ctx->gradients ? t->wanted != NULL : t->retain_grad;
}

/* Finds for gd_gradients which of the nodes [first, end) lead to its inputs. */
void gd_mark_wanted(gd_context *ctx, int64_t first, int64_t end);

/* Checks the outputs and cotangents of a walk, and marks every node that they depend on (of
 * gd_gradients, those that lead to its inputs). Sets *top to the index after the last of them. */
gd_status gd_walk_mark(gd_context *ctx, gd_tensor *const *outputs, int count,
                       gd_tensor *const *cotangents, int64_t *top);

/* An error if t, value i of a node (gd_node_value), was freed or overwritten since the forward.
 * `whose` names who reads it: "backward". */
gd_status gd_check_value(const gd_node *node, const gd_tensor *t, const char *whose, int i);

/* What a step consists of at some moment. */
typedef struct gd_moment {
    const gd_tensor *tensors;
    const gd_storage *storages;
    int64_t tape_length;
} gd_moment;

static inline gd_moment gd_now(const gd_context *ctx)
{
    return (gd_moment){ctx->step_tensors, ctx->step_storages, ctx->tape_length};
}

/* Drops the nodes and the headers of all that was made for the step since, and returns its memory,
 * but for `except` and what is kept. */
void gd_drop_since(gd_context *ctx, gd_moment then, const gd_storage *except);

/* The walk over the nodes from ctx->tape_floor on: adds the cotangents (ones if NULL) to the
 * outputs' gradients and propagates these to the leaves. */
gd_status gd_backward_walk(gd_context *ctx, gd_tensor *const *outputs, int count,
                           gd_tensor *const *cotangents, bool keep_tape);

/* Makes the call of a node's derivation or backward, with room for its tensors. Returns what its
 * `accumulate` points to; NULL on error. */
bool *gd_node_call(const gd_node *node, gd_call *call);

/* Runs the backward of a node's op, which writes the inputs' gradients or adds to them. The
 * `backward` of every node except those of gd_recompute. */
gd_status gd_node_backward(gd_node *node, bool keep_tape);

/* ---- Complete gradients (listeners.c) ----------------------------------------------------- */

/* A listener to each leaf whose gradient is complete. */
typedef struct gd_listener {
    struct gd_listener *next;
    gd_grad_hook hook; /* NULL: removed */
    void *user;
    bool users; /* by gd_on_gradient; these come first, and are freed with the context */
} gd_listener;

/* Adds a listener of the library, in memory of the caller, and removes it, outside of a
 * backward. */
void gd_listen(gd_context *ctx, gd_listener *listener);
void gd_unlisten(gd_context *ctx, gd_listener *listener);

/* A backward marks its nodes from the last to the first. When it has visited one, the leaves of
 * which that is the last reader are complete; at its end, all that are still awaited. */
void gd_await_leaves(const gd_node *node);
void gd_finish_leaves(const gd_node *node);
void gd_finish_all_leaves(gd_context *ctx);

#endif
