/* memory_posix.c - see memory.h. */
#define _DEFAULT_SOURCE /* madvise, MAP_ANONYMOUS */
#include "platform/memory.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#define HAVE_LIMITS 1
#else
#define HAVE_LIMITS 0
#endif

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
const bool gd_os_has_huge_pages = true;
#else
const bool gd_os_has_huge_pages = false;
#endif

void *gd_os_allocate_aligned(size_t alignment, size_t bytes)
{
    void *memory = NULL; /* aligned_alloc would round up, and hide from tools where a block ends */
    if (bytes > SIZE_MAX - alignment) return NULL; /* which sanitizers take for a mistake */
    return posix_memalign(&memory, alignment, bytes) ? NULL : memory;
}

void gd_os_free_aligned(void *memory)
{
    free(memory);
}

void gd_os_ask_for_huge_pages(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE); /* failure is harmless */
#else
    (void)memory, (void)bytes;
#endif
}

double gd_os_address_space_limit(void)
{
#if HAVE_LIMITS
    struct rlimit space;
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY)
        return (double)space.rlim_cur;
#endif
    return INFINITY;
}

#if HAVE_LIMITS

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static void *kept;
static size_t kept_bytes;

/* Maps so many bytes in place of fewer; 0: nothing. */
static bool keep(size_t bytes)
{
    pthread_mutex_lock(&keeping);
    if (kept_bytes && (bytes == 0 || bytes > kept_bytes)) {
        munmap(kept, kept_bytes);
        kept_bytes = 0;
    }
    if (bytes > kept_bytes) {
        kept = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (kept != MAP_FAILED) kept_bytes = bytes;
    }
    const bool all = kept_bytes >= bytes;
    pthread_mutex_unlock(&keeping);
    return all;
}

#endif

bool gd_os_keep_address_space(size_t bytes)
{
#if HAVE_LIMITS
    return isinf(gd_os_address_space_limit()) || keep(bytes);
#else
    (void)bytes;
    return true;
#endif
}

void gd_os_yield_address_space(void)
{
#if HAVE_LIMITS
    keep(0);
#endif
}
