/* slabs.h - host memory, where large blocks may lie on huge pages. */
#ifndef GRADUS_PLATFORM_SLABS_H
#define GRADUS_PLATFORM_SLABS_H

#include <stddef.h>

typedef struct gd_slab gd_slab;

/* Aligned to a power of two; NULL: there is none. `first_slab` is a gd_slab **, the first of the
 * caller's list; NULL: no slabs. To be released with the same list and number of bytes. */
void *gd_os_slab_allocate(void *first_slab, size_t alignment, size_t bytes);
void gd_os_slab_release(void *first_slab, void *memory, size_t bytes);

#endif
