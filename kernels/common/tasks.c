/* tasks.c - the loop over independent pieces of work. */
#include "kernel.h"

void gd_for_each(int threads, int64_t count, gd_task *task, const void *work)
{
    if (threads == 1 || count <= 1) {
        for (int64_t i = 0; i < count; i++) task(work, i);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) task(work, i);
}
