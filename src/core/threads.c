/* threads.c - how many threads the kernels of a context use. */
#include "core/core.h"
#include "platform/process.h"

#include <stdatomic.h>

#ifdef _OPENMP
#include <omp.h>
#endif

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

static void watch_forks(void)
{
    static atomic_bool done;
    if (!atomic_exchange(&done, true)) gd_os_on_fork(note_child);
}

bool gd_choose_threads(gd_context *ctx)
{
    const int wanted = ctx->options.threads;
    const bool fits = wanted >= 0 && wanted <= GD_MAX_THREADS;
    ctx->threads = fits && wanted ? wanted : default_threads();
    watch_forks();
    return fits;
}

int gd_context_threads(const gd_context *ctx)
{
    if (!ctx) return 0;
    return is_child ? 1 : ctx->threads;
}
