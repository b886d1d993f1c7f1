/* slabs.c - host memory: the C library's, and for large blocks slabs that the system may put
 * on huge pages.
 *
 * A training step touches tens of megabytes. In pages of 4 KiB that exceeds a processor's TLB, and
 * misses take a tenth of a step's time for a transformer 128 wide. Linux offers pages of 2 MiB, but
 * only for aligned regions of 2 MiB, which a block of malloc seldom is. So blocks are cut from
 * slabs, one after the other. The context's pool keeps blocks for reuse, so a slab does not: it is
 * returned to the system with the last of its blocks. */
#include "platform/slabs.h"

#include "platform/memory.h"

#include <stdint.h>
#include <stdlib.h>

static const size_t HUGE_PAGE = (size_t)2 << 20, SLAB_BYTES = (size_t)32 << 20;
static const size_t SLAB_FROM = (size_t)16 << 10; /* smaller blocks come from malloc */

/* A gap between blocks, so that blocks of a power of two do not all begin in the same cache
 * sets. */
enum { GAP = 5 * 64 };

struct gd_slab {
    gd_slab *next;
    char *data;
    size_t bytes, used;
    int64_t blocks; /* not yet released */
};

/* A slab with room for `bytes` at least, first in the list; NULL: out of memory. */
static gd_slab *slab_create(gd_slab **first, size_t bytes)
{
    gd_slab *slab = malloc(sizeof *slab);
    if (!slab) return NULL;
    size_t wanted = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
    *slab = (gd_slab){.next = *first, .bytes = (wanted + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE};
    slab->data = gd_os_allocate_aligned(HUGE_PAGE, slab->bytes);
    if (!slab->data) {
        free(slab);
        return NULL;
    }
    gd_os_ask_for_huge_pages(slab->data, slab->bytes);
    return *first = slab;
}

void *gd_os_slab_allocate(void *first_slab, size_t alignment, size_t bytes)
{
    gd_slab **first = first_slab, *slab = first ? *first : NULL;
    if (!gd_os_has_huge_pages || !first || bytes < SLAB_FROM)
        return gd_os_allocate_aligned(alignment, bytes);
    if (alignment > HUGE_PAGE || bytes > SIZE_MAX - HUGE_PAGE - GAP) return NULL;
    size_t at = slab ? (slab->used + alignment - 1) / alignment * alignment : 0;
    if (!slab || at > slab->bytes || slab->bytes - at < bytes) {
        slab = slab_create(first, bytes);
        at = 0;
    }
    if (!slab) return NULL;
    slab->used = at + bytes + GAP;
    slab->blocks++;
    return slab->data + at;
}

void gd_os_slab_release(void *first_slab, void *memory, size_t bytes)
{
    gd_slab **first = first_slab;
    if (!gd_os_has_huge_pages || !first || bytes < SLAB_FROM) {
        gd_os_free_aligned(memory);
        return;
    }
    for (gd_slab **link = first, *slab; (slab = *link); link = &slab->next) {
        size_t offset = (size_t)((char *)memory - slab->data);
        if ((char *)memory < slab->data || offset >= slab->bytes) continue;
        if (--slab->blocks > 0) return;
        *link = slab->next;
        gd_os_free_aligned(slab->data);
        free(slab);
        return;
    }
}
