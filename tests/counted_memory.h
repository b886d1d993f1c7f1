/* counted_memory.h - an allocator for contexts that counts what is out, and fails where it is told
 * to. A test that includes it calls parts of the programs (CMakeLists.txt). */
#ifndef GRADUS_TEST_COUNTED_MEMORY_H
#define GRADUS_TEST_COUNTED_MEMORY_H

#include "gradus/gradus.h"
#include "platform/memory.h"

typedef struct counted_memory {
    int64_t calls, fails_at; /* the call that gets no memory; -1: none */
    bool for_good;           /* nor does any after it */
    void (*instead)(void);   /* if not NULL: what happens at that call, which gets memory */
    bool failed;
    int64_t blocks, bytes; /* out now */
    int64_t most;          /* bytes that were out at once */
} counted_memory;

static counted_memory counted = {.fails_at = -1};

static inline void *count_allocate(void *user, size_t alignment, size_t bytes)
{
    counted_memory *c = user;
    const int64_t call = c->calls++;
    if (c->fails_at >= 0 && (call == c->fails_at || (c->for_good && call > c->fails_at))) {
        c->failed = true;
        if (!c->instead) return NULL;
        c->instead();
    }
    c->blocks++;
    c->bytes += (int64_t)bytes;
    if (c->bytes > c->most) c->most = c->bytes;
    return gd_os_allocate_aligned(alignment, bytes);
}

static inline void count_release(void *user, void *memory, size_t bytes)
{
    counted_memory *c = user;
    c->blocks--;
    c->bytes -= (int64_t)bytes;
    gd_os_free_aligned(memory);
}

static const gd_allocator counting = {count_allocate, count_release, &counted};

#endif
