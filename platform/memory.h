/* memory.h - memory of the system. */
#ifndef GRADUS_PLATFORM_MEMORY_H
#define GRADUS_PLATFORM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Memory aligned to a power of two. NULL: there is none. Free it with gd_os_free_aligned. */
void *gd_os_allocate_aligned(size_t alignment, size_t bytes);
void gd_os_free_aligned(void *memory);

/* Whether the system puts aligned regions of 2 MiB on huge pages when it is asked to, and the
 * request, which is only a hint. AddressSanitizer, which knows the bounds of the C library's blocks
 * alone, takes the place of such a system. */
extern const bool gd_os_has_huge_pages;
void gd_os_ask_for_huge_pages(void *memory, size_t bytes);

/* Keeps so many bytes of address space, in all, free from other allocations, for a library that
 * retries forever if a limit (ulimit -v) refuses them; and yields them to it, just before it is
 * called. False: the limit does not leave so many; true where there is no limit. */
bool gd_os_keep_address_space(size_t bytes);
void gd_os_yield_address_space(void);

/* Whether there is such a limit, and it; infinity: none. */
double gd_os_address_space_limit(void);

/* The bytes of memory that this process could still get; infinity: not known. */
double gd_os_memory_available(void);

#endif
