/* context.h - the device, its memory, and the first error.
 *
 * A context owns one device, the memory of all its tensors, the tape, the random state and the
 * first error. Tensors of one context cannot be mixed with those of another. A context and its
 * tensors belong to one thread at a time; different contexts may be used by different threads at
 * once. A child of fork() may use its parent's contexts, or create new ones; it computes on the
 * CPU, with one thread each, since OpenMP's threads exist only in the parent. The results are the
 * same. Only the parent can use memory of a GPU.
 *
 * Errors. Nothing here exits or aborts. The first error is stored in the context as one
 * sentence, and from then on every call on that context does nothing and returns NULL or the
 * error's status, until gd_error_clear(). So expressions nest, and one check at the end gives the
 * first cause:
 *
 *     gd_tensor *loss = gd_cross_entropy(gd_linear(gd_rms_norm(x, w, 1e-5), v, NULL), targets);
 *     gd_backward(loss);
 *     if (gd_error(ctx)) fprintf(stderr, "%s\n", gd_error(ctx));
 *     // rms_norm: weight has shape [768], but the last dimension of x [32, 64, 512] is 512
 */
#ifndef GRADUS_CONTEXT_H
#define GRADUS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GD_VERSION_MAJOR 0
#define GD_VERSION_MINOR 2
#define GD_VERSION_PATCH 0
#define GD_VERSION_STRING "0.2.0"

/* Formats of object files that have hidden symbols; others export all. */
#if defined(__GNUC__) && (defined(__ELF__) || defined(__MACH__) || defined(__wasm__))
#define GD_API __attribute__((visibility("default")))
#else
#define GD_API
#endif

/* A build may define another dialect of formats, where printf is not standard C's
 * (cmake/flags.cmake). */
#ifndef GD_PRINTF_DIALECT
#define GD_PRINTF_DIALECT printf
#endif
#if defined(__GNUC__)
#define GD_PRINTF(format_at, args_at) __attribute__((format(GD_PRINTF_DIALECT, format_at, args_at)))
#else
#define GD_PRINTF(format_at, args_at)
#endif

/* The version of the library at run time, "0.2.0". */
GD_API const char *gd_version(void);

/* ---- Options ------------------------------------------------------------------------------ */

/* One rule for every struct of options: a field that is 0 (false, NULL), as unset fields are, takes
 * the default that its comment names; so {0}, and NULL for the struct, are the defaults. To set a
 * number to 0 if its default is not 0, write GD_ZERO: {.beta1 = GD_ZERO}. gd_literal(v) sets a
 * field to the value of a variable, which may be 0. */
#define GD_ZERO (-2147483647 - 1)

static inline double gd_literal(double value)
{
    return value == 0 ? GD_ZERO : value;
}

/* The value of a field of options, for functions of your own. */
static inline double gd_option(double field, double unset)
{
    return field == 0 ? unset : field == GD_ZERO ? 0 : field;
}

/* ---- Errors ------------------------------------------------------------------------------- */

typedef enum gd_status {
    GD_OK = 0,
    GD_ERROR_ARGUMENT,    /* a NULL, a shape, a dtype, an axis or a number that is not valid */
    GD_ERROR_STATE,       /* the right call at the wrong time: a second backward, a freed tensor */
    GD_ERROR_MEMORY,      /* the device or the host has no more memory */
    GD_ERROR_DEVICE,      /* no such device, or the device reported a failure */
    GD_ERROR_UNSUPPORTED, /* known, but not possible here, such as an op without a backward */
    GD_ERROR_IO           /* a file could not be read or written */
} gd_status;

/* The name of a status: "ok", "bad argument", "out of memory" ... Never NULL. */
GD_API const char *gd_status_name(gd_status status);

/* ---- The context -------------------------------------------------------------------------- */

typedef struct gd_context gd_context;

typedef enum gd_device {
    GD_CPU = 0,
    GD_CUDA = 1,
    GD_DEVICE_COUNT = 2,
    GD_DEVICE_AUTO = 100 /* CUDA if there is a usable GPU, else the CPU */
} gd_device;

/* An allocator of host memory. `allocate` returns `bytes` bytes (more than 0) aligned to
 * `alignment` (a power of two), or NULL; it may fail at any time. `release` gets a pointer from
 * `allocate`, with the same `bytes`. */
typedef struct gd_allocator {
    void *(*allocate)(void *user, size_t alignment, size_t bytes);
    void (*release)(void *user, void *memory, size_t bytes);
    void *user;
} gd_allocator;

/* How a context watches its memory, to find kernels that read or write outside of a tensor or a
 * workspace. Each of these is then an allocation of its own, which is freed with it; work
 * recorded in a graph keeps its memory until gd_memory_trim. That is slow, and on a GPU waits
 * for all work whenever memory is freed. Not covered: writes from one parameter into its
 * neighbour (a group's parameters share a block), pinned host memory, and memory of libraries,
 * such as NCCL's buffers. */
typedef enum gd_guard {
    GD_GUARD_NONE = 0,
    /* 512 bytes of NaN on both sides, which show in the results of what reads them. A write there
     * is an error, "rms_norm: its memory of 4096 bytes was written to behind its end": when the
     * memory is freed, in gd_synchronize, or after the replay of a graph. AddressSanitizer, if the
     * library is built with it, also reports reads on the CPU. */
    GD_GUARD_MARGINS,
    /* Nothing around it, for tools that know where an allocation ends, as on a GPU
     * compute-sanitizer --tool memcheck --padding 512. */
    GD_GUARD_EXACT
} gd_guard;

/* The options of a context. */
typedef struct gd_context_options {
    gd_device device; /* GD_CPU */
    /* CPU threads of this context, at most 4096; 0: OpenMP's default, but at most the number of
     * processors or 256, whichever is larger. The results are the same for every number, bit for
     * bit. */
    int threads;
    uint64_t seed;          /* of the random state */
    gd_allocator allocator; /* all NULL: the C library's, large blocks on huge pages */
    /* fill all new tensor memory with NaN, to find kernels that read uninitialised memory, or
     * forget to write */
    bool poison;
    /* on a GPU, let matmul, linear, attention and convolutions round the factors of float32
     * products to TF32, 10 bits of mantissa, for its tensor cores: several times faster, with
     * relative errors around 1e-3. Ignored on the CPU. */
    bool tf32;
    gd_guard guard;
    /* called for what is no error but rarely meant, such as a thousand updates without gd_step_end:
     * one sentence with the cure, valid during the call, and each kind once a context. Unset: a
     * line on stderr */
    void (*notice)(void *user, const char *sentence);
    void *notice_user;
} gd_context_options;

/* Creates a context; NULL for the defaults. Returns NULL only if there is no memory for it. Any
 * other error (no such device) is set in the context that is returned: "no CUDA device: ...". Free
 * it with gd_context_free. */
GD_API gd_context *gd_context_create(const gd_context_options *options);

/* Frees the context, its tape, and every tensor that still exists in it: no pointer to one may be
 * used after that, not even by gd_tensor_free. While other objects made in the context exist
 * (gd_params, gd_optimizer, gd_batches, gd_graph, gd_group, gd_metrics, gd_safetensors), all this
 * waits until the last of them is freed: the order does not matter. NULL is fine. */
GD_API void gd_context_free(gd_context *ctx);

GD_API gd_device gd_context_device(const gd_context *ctx);
GD_API int gd_context_threads(const gd_context *ctx);
/* A description: "cpu, 2 threads". Owned by the context. */
GD_API const char *gd_context_device_name(const gd_context *ctx);

/* What a user may want to know about the device: why GD_DEVICE_AUTO did not take the GPU that is
 * there, or that the driver has to compile this build's code for it first. NULL: nothing. Owned by
 * the context. */
GD_API const char *gd_context_device_note(const gd_context *ctx);

/* The cudaStream_t of all work of this context, for your own kernels; NULL on the CPU. Owned by the
 * context. */
GD_API void *gd_context_stream(const gd_context *ctx);

/* Sets gd_context_options.tf32 from now on. A captured graph keeps the setting of its capture. */
GD_API void gd_context_set_tf32(gd_context *ctx, bool tf32);

/* Waits until the device has done all work queued so far. */
GD_API gd_status gd_synchronize(gd_context *ctx);

/* The first error since the context was made or last cleared: one sentence, without a newline,
 * owned by the context and valid until it is cleared; NULL if there is none. gd_error(NULL) is
 * "out of memory", since a context is only ever NULL for that reason. */
GD_API const char *gd_error(const gd_context *ctx);
GD_API gd_status gd_error_status(const gd_context *ctx);

/* Clears the error. The context and the tensors it had before the failed call are usable. */
GD_API void gd_error_clear(gd_context *ctx);

/* Sets the context's error, for your own kernels and loops; the first one stays. The sentence
 * should name its origin: gd_fail(ctx, GD_ERROR_ARGUMENT, "train: ..."). Control characters become
 * "?". Returns the status of the first error, so that `return gd_fail(...)` works. */
GD_API gd_status gd_fail(gd_context *ctx, gd_status status, const char *format, ...)
    GD_PRINTF(3, 4);

/* ---- Memory ------------------------------------------------------------------------------- */

/* Every byte of tensor memory is counted in one of these classes. */
typedef enum gd_memory_class {
    GD_MEMORY_PARAMETERS, /* groups, and your tensors that require a gradient */
    GD_MEMORY_GRADIENTS,
    GD_MEMORY_OPTIMIZER,
    GD_MEMORY_ACTIVATIONS, /* tensors made by ops, and what they save for their backward */
    GD_MEMORY_WORKSPACE,   /* temporaries of one call */
    GD_MEMORY_OTHER,       /* other tensors made by the user, and buffers of groups */
    GD_MEMORY_CLASS_COUNT
} gd_memory_class;

typedef struct gd_memory_stats {
    size_t current[GD_MEMORY_CLASS_COUNT]; /* bytes in use now */
    size_t peak[GD_MEMORY_CLASS_COUNT];    /* the most in use at once since the last reset */
    size_t current_total, peak_total;      /* all classes together; the peak is of the sum */
    size_t held; /* bytes taken from the system: in use, or in the pool for reuse */
    /* how often tensor memory was requested from the system; constant after the first steps of a
     * training */
    uint64_t system_calls;
} gd_memory_stats;

GD_API const char *gd_memory_class_name(gd_memory_class memory_class);
GD_API gd_memory_stats gd_memory(const gd_context *ctx);
/* Sets every peak to the current value. */
GD_API void gd_memory_reset_peak(gd_context *ctx);
/* Returns memory that the pools hold for reuse to the system. Graphs (graph.h) are captured
 * again. */
GD_API void gd_memory_trim(gd_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
