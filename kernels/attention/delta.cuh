// delta.cuh - delta = sum of dy * y along a row, [B, H, T]: what softmax's gradient subtracts.
#ifndef GD_ATTENTION_DELTA_CUH
#define GD_ATTENTION_DELTA_CUH

#include "attention/heads.cuh"
#include "pack.cuh"

// The part of the sum of y * dy along a row that one of `parts` threads computes.
template <class T>
__device__ inline gd_compute<T> attention_row_product(const T *y, const T *dy, int columns,
                                                      int part, int parts)
{
    constexpr int PER = 16 / sizeof(T);
    using pack = gd_pack<T, PER>;
    gd_compute<T> sum = 0;
    if (((uintptr_t)y | (uintptr_t)dy) % 16 == 0 && columns % PER == 0) {
#pragma unroll 4
        for (int e = part * PER; e < columns; e += parts * PER) {
            const pack a = *(const pack *)&y[e], c = *(const pack *)&dy[e];
#pragma unroll
            for (int i = 0; i < PER; i++) sum += gd_load(a[i]) * gd_load(c[i]);
        }
    } else {
        for (int e = part; e < columns; e += parts) sum += gd_load(y[e]) * gd_load(dy[e]);
    }
    return sum;
}

// A task is 32 rows of one head, with eight threads each. keep(head, t) loads what else is needed
// for a row and returns the function that stores its delta; `rows` may be more than T, with 0 for
// the rest.
constexpr int attention_delta_rows = 32;
template <class T, class Keep>
struct attention_delta_pass {
    attention_tasks tasks;
    attention_sizes z;
    int64_t rows;
    attention_heads<T> y, dy;
    Keep keep;
};

template <class T, class Keep>
static __global__ void __launch_bounds__(8 * attention_delta_rows)
    attention_delta_kernel(const __grid_constant__ attention_delta_pass<T, Keep> p)
{
    gd_in_turn();
    const int part = threadIdx.x % 8;
    for (int64_t n = blockIdx.x; n < p.tasks.count(); n += gridDim.x) {
        const attention_task task = attention_task_at(p.tasks, (unsigned)n);
        const int64_t t = task.tile * attention_delta_rows + threadIdx.x / 8;
        if (t >= p.rows) continue; // as do the other threads of the row
        const auto store = p.keep(task.b * p.z.H + task.head, t);
        gd_compute<T> sum = 0;
        if (t < p.z.T)
            sum = attention_row_product(p.y.at(task.b, t, task.head), p.dy.at(task.b, t, task.head),
                                        (int)p.z.E, part, 8);
        const unsigned row = 0xffu << threadIdx.x % 32 / 8 * 8;
        for (int i = 1; i < 8; i *= 2) sum += __shfl_xor_sync(row, sum, i);
        if (part == 0) store(sum);
    }
}

template <class T, class Keep>
static gd_status attention_delta(const gd_call *call, const attention_heads<T> &dy,
                                 const attention_sizes &z, int64_t rows, const Keep &keep)
{
    const attention_delta_pass<T, Keep> p = {
        attention_tasks_of(z.B, z.H, rows, attention_delta_rows),
        z,
        rows,
        attention_as_it_lies<T>(call->output[0]),
        dy,
        keep};
    return attention_launch(call, attention_delta_kernel<T, Keep>, p, 8 * attention_delta_rows, 0);
}

#endif
