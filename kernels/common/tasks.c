/* tasks.c - the loop over independent pieces of work, on several threads. */
#include "kernel.h"

void gd_for_each_parallel(int threads, int64_t count, gd_task *task, const void *work)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) task(work, i);
}
