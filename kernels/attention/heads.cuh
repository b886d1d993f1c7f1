// heads.cuh - shared by all CUDA kernels of attention: the layout of a head's rows, which keys a
// query sees, and how a result is divided among blocks.
#ifndef GD_ATTENTION_HEADS_CUH
#define GD_ATTENTION_HEADS_CUH

#include "cuda.cuh"
#include "attention/attention.h"
#include "attention/dropout.h"

// ---- Heads ------------------------------------------------------------------------------------

// Some rows of one head, from `data` on.
template <class T>
struct attention_rows {
    const T *data;
    int64_t stride, count;
};

// [B, rows, heads, columns], packed along the last dimension.
template <class T>
struct attention_heads {
    T *data; // NULL: not wanted
    int64_t batch, row, head;

    __device__ T *at(int64_t b, int64_t r, int64_t h) const
    {
        return data + b * batch + r * row + h * head;
    }
    // `count` rows from r on.
    __device__ attention_rows<T> rows(int64_t b, int64_t r, int64_t h, int64_t count) const
    {
        return {at(b, r, h), row, count};
    }
};

// A result or a gradient, or NULL. Its last dimension is packed.
template <class T>
static inline attention_heads<T> attention_as_it_lies(const gd_tensor *t)
{
    if (!t) return {nullptr, 0, 0, 0};
    const int64_t *strides = gd_tensor_strides(t);
    return {gd_ptr<T>(t), strides[0], strides[1], strides[2]};
}

// An input in place, or a copy if its last dimension is not packed.
template <class T>
static inline gd_status attention_open(const gd_call *call, const gd_tensor *t,
                                       attention_heads<T> *heads)
{
    *heads = attention_as_it_lies<T>(t);
    const gd_layout lies = gd_cuda_layout(t);
    const int64_t *shape = lies.shape;
    if (lies.strides[3] == 1 || shape[3] == 1 || gd_tensor_count(t) == 0) return GD_OK;
    const int64_t packed[] = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
    *heads = {(T *)gd_call_scratch(call, (size_t)gd_tensor_count(t) * sizeof(T)), packed[0],
              packed[1], packed[2]};
    if (!heads->data) return gd_error_status(call->context);
    gd_copy_cuda({heads->data, lies.dtype, 4, shape, packed}, lies, call->context);
    return gd_error_status(call->context);
}

// q, k and v of a pass, and what else is in each: sizes, y, lse and dropout.
template <class Pass>
static inline gd_status attention_open_pass(const gd_call *call, Pass *p)
{
    p->z = attention_sizes_of(call);
    p->lse = (decltype(p->lse))gd_ptr<void>(call->save[0]);
    p->dropout = attention_dropout_of(call, &p->z);
    if (attention_open(call, call->input[0], &p->q) ||
        attention_open(call, call->input[1], &p->k) || attention_open(call, call->input[2], &p->v))
        return gd_error_status(call->context);
    return GD_OK;
}

// The number of keys that query t sees.
__device__ inline int64_t attention_seen_by(const attention_sizes &z, bool causal, int64_t t)
{
    const int64_t end = t + 1 + z.S - z.T;
    return !causal ? z.S : end > 0 ? end : 0;
}

// Whether query t sees key s; false if one of them is past the end.
__device__ inline bool attention_sees(const attention_sizes &z, bool causal, int64_t t, int64_t s)
{
    return t < z.T && s < z.S && (!causal || s <= t + z.S - z.T);
}

// ---- Launching --------------------------------------------------------------------------------

// The division of a result [B, rows, heads, columns] among blocks: one task is a tile of rows of
// one head, in one chunk of the columns.
struct attention_tasks {
    int64_t B, heads, tiles, chunks;

    __host__ __device__ int64_t count() const
    {
        return B * heads * tiles * chunks;
    }
};

struct attention_task {
    int64_t b, head, tile, chunk;
};

// Tasks in order: all heads of one tile, then the next tile. An index of 32 bits divides faster.
template <class Index>
__device__ inline attention_task attention_task_at(const attention_tasks &tasks, Index i)
{
    attention_task task;
    task.chunk = i % (Index)tasks.chunks, i /= (Index)tasks.chunks;
    task.head = i % (Index)tasks.heads, i /= (Index)tasks.heads;
    task.b = i % (Index)tasks.B, i /= (Index)tasks.B;
    task.tile = i;
    return task;
}

// At least one chunk, since the columns are not all that is computed.
static inline attention_tasks attention_tasks_of(int64_t B, int64_t heads, int64_t rows, int side,
                                                 int64_t columns = 1, int width = 1)
{
    const int64_t chunks = gd_ceil_div(columns, width);
    return {B, heads, gd_ceil_div(rows, side), chunks > 0 ? chunks : 1};
}

// Launches a kernel for the tasks of a pass, with `threads` threads and `bytes` of shared memory
// per block; at most `most` blocks.
template <class Pass>
static inline gd_status attention_launch(const gd_call *call, void (*kernel)(Pass),
                                         const Pass &pass, int threads, size_t bytes,
                                         int64_t most = INT32_MAX)
{
    const int64_t tasks = pass.tasks.count();
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return gd_launch(call, {(unsigned)(tasks < most ? tasks : most), (unsigned)threads, bytes},
                     kernel, pass);
}

#endif
