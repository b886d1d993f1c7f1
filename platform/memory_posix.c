/* memory_posix.c - see memory.h. */
#define _DEFAULT_SOURCE /* madvise, MAP_ANONYMOUS */
#include "platform/memory.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <sys/resource.h>
#define HAVE_LIMITS 1
#else
#define HAVE_LIMITS 0
#endif
#ifdef __APPLE__
#include <mach/mach.h>
#endif

#ifdef __linux__
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

bool gd_os_has_address_space(size_t bytes)
{
#if HAVE_LIMITS
    if (isinf(gd_os_address_space_limit())) return true;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, bytes);
#else
    (void)bytes;
#endif
    return true;
}

/* ---- What is free --------------------------------------------------------------------------- */

#ifdef __APPLE__

/* Pages that are free, or that hold only copies of files. */
static double free_bytes(void)
{
    vm_statistics64_data_t pages;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&pages, &count) !=
        KERN_SUCCESS)
        return 0;
    return ((double)pages.free_count + (double)pages.inactive_count) * (double)vm_page_size;
}

#else

/* The kB behind a name in /proc/meminfo; 0: it is not there. */
static double read_meminfo(const char *name)
{
    char line[128], format[64];
    unsigned long long size = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    snprintf(format, sizeof format, "%s: %%llu kB", name);
    while (file && fgets(line, sizeof line, file) && sscanf(line, format, &size) != 1) continue;
    if (file) fclose(file);
    return (double)size;
}

static double free_bytes(void)
{
    const double memory = read_meminfo("MemAvailable");
    return memory > 0 ? 1024 * (memory + read_meminfo("SwapFree")) : 0;
}

#endif

/* The bytes that a container (cgroup v2) may have; infinity: as many as there are. */
static double read_container(void)
{
    unsigned long long bytes;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "r");
    const bool limited = file && fscanf(file, "%llu", &bytes) == 1;
    if (file) fclose(file);
    return limited ? (double)bytes : INFINITY;
}

double gd_os_memory_available(void)
{
    const double bytes = free_bytes();
    if (bytes == 0) return INFINITY;
    return fmin(fmin(bytes, gd_os_address_space_limit()), read_container());
}
