/* memory.c - the host memory of a check: one list, freed at once. */
#include <stdlib.h>

#include "gradcheck/check.h"

typedef struct gd_block {
    struct gd_block *next;
    max_align_t memory[];
} gd_block;

void *gd_check_allocate(gd_checker *c, int64_t count, size_t size)
{
    size_t limit = (SIZE_MAX - sizeof(gd_block)) / size;
    gd_block *block = NULL;
    if ((uint64_t)count < limit) block = calloc(1, sizeof *block + (size_t)count * size);
    if (!block) {
        gd_fail(c->ctx, GD_ERROR_MEMORY, "gradcheck: out of memory: %lld numbers",
                (long long)count);
        return NULL;
    }
    block->next = c->blocks;
    c->blocks = block;
    return block->memory;
}

double *gd_check_numbers(gd_checker *c, int64_t count)
{
    return gd_check_allocate(c, count, sizeof(double));
}

void gd_check_free(gd_checker *c)
{
    while (c->blocks) {
        gd_block *block = c->blocks;
        c->blocks = block->next;
        free(block);
    }
}
