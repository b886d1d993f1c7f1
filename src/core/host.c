/* host.c - what a context has of the host: memory, from its allocator, and threads for kernels. */
#include "core/core.h"
#include "platform/process.h"

#include <stdatomic.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- Memory ------------------------------------------------------------------------------- */

void *gd_host_try(gd_context *ctx, size_t bytes)
{
    return ctx->allocator.allocate(ctx->allocator.user, 64, bytes ? bytes : 1);
}

void *gd_host_allocate(gd_context *ctx, size_t bytes, const char *what)
{
    void *memory = gd_host_try(ctx, bytes);
    if (!memory) gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
    return memory;
}

void gd_host_release(gd_context *ctx, void *memory, size_t bytes)
{
    if (memory) ctx->allocator.release(ctx->allocator.user, memory, bytes ? bytes : 1);
}

bool gd_host_grow(gd_context *ctx, void **array, int64_t *capacity, int64_t wanted, size_t size,
                  const char *what)
{
    if (wanted <= *capacity) return true;
    int64_t grown = *capacity ? *capacity : 16;
    while (grown < wanted) grown *= 2;
    void *memory = gd_host_allocate(ctx, (size_t)grown * size, what);
    if (!memory) return false;
    if (*array) memcpy(memory, *array, (size_t)*capacity * size);
    gd_host_release(ctx, *array, (size_t)*capacity * size);
    *array = memory;
    *capacity = grown;
    return true;
}

/* ---- Threads ------------------------------------------------------------------------------ */

enum { DEFAULT_THREADS = 256 };

/* OpenMP's default, which OMP_NUM_THREADS sets, but not more than can be useful. */
static int default_threads(void)
{
#ifdef _OPENMP
    const int asked = omp_get_max_threads(), processors = omp_get_num_procs();
    const int most = processors > DEFAULT_THREADS ? processors : DEFAULT_THREADS;
    return asked < most ? asked : most;
#else
    return 1;
#endif
}

/* OpenMP's threads exist only in the parent; a child that used them would wait forever. */
static atomic_bool is_child;

static void note_child(void)
{
    is_child = true;
}

bool gd_choose_threads(gd_context *ctx)
{
    static atomic_bool watched;
    const int wanted = ctx->options.threads;
    const bool fits = wanted >= 0 && wanted <= GD_MAX_THREADS;
    ctx->threads = fits && wanted ? wanted : default_threads();
    if (!atomic_exchange(&watched, true)) gd_os_on_fork(note_child);
    return fits;
}

int gd_context_threads(const gd_context *ctx)
{
    if (!ctx) return 0;
    return is_child ? 1 : ctx->threads;
}
