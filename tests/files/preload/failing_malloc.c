/* failing_malloc.c - the allocation functions of the C library, of which one call returns NULL: the
 * one with the number failing_malloc_at, counted from 0 by failing_malloc_calls.
 *
 * A test includes it for its own process, or preloads it as a library: then the number is in the
 * environment (FAILING_MALLOC), and the number of calls is written to the file FAILING_MALLOC_COUNT
 * at the end. For glibc, which has other names for the functions. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long failing_malloc_at = -1, failing_malloc_calls;

static bool is_the_one(void)
{
    if (atomic_fetch_add(&failing_malloc_calls, 1) != failing_malloc_at) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return is_the_one() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return is_the_one() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return is_the_one() ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return is_the_one() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (is_the_one()) return ENOMEM;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

#ifdef FAILING_MALLOC_PRELOADED
__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAILING_MALLOC");
    failing_malloc_calls = 0;
    if (at) failing_malloc_at = atol(at);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAILING_MALLOC_COUNT");
    const long calls = failing_malloc_calls;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) fprintf(file, "%ld\n", calls);
    if (file) fclose(file);
}
#endif
