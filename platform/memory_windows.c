/* memory_windows.c - see memory.h. */
#include "platform/memory.h"

#include <malloc.h>
#include <math.h>
#include <stdint.h>
#include <windows.h>

const bool gd_os_has_huge_pages = false; /* large pages need a privilege */

void *gd_os_allocate_aligned(size_t alignment, size_t bytes)
{
    return bytes > SIZE_MAX - alignment ? NULL : _aligned_malloc(bytes, alignment);
}

void gd_os_free_aligned(void *memory)
{
    _aligned_free(memory);
}

void gd_os_ask_for_huge_pages(void *memory, size_t bytes)
{
    (void)memory, (void)bytes;
}

/* An allocation counts against what may be committed, and fails when that is used up. */
bool gd_os_keep_address_space(size_t bytes)
{
    (void)bytes;
    return true;
}

void gd_os_yield_address_space(void) {}

double gd_os_address_space_limit(void)
{
    return INFINITY;
}

double gd_os_memory_available(void)
{
    MEMORYSTATUSEX status = {.dwLength = sizeof status};
    return GlobalMemoryStatusEx(&status) ? (double)status.ullAvailPageFile : INFINITY;
}
