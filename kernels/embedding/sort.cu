// sort.cu - CUB's radix sort, compiled once for all ops.

// CUB includes <iostream>, whose static object needs the C++ runtime; nothing here prints.
#define _GLIBCXX_IOSTREAM 1
#define CCCL_DISABLE_NVTX // it would look for a profiler's library in the environment
#include <ostream>

#include <cub/device/device_radix_sort.cuh>

#include "cuda/device_cuda.h"
#include "embedding/sort.cuh"
#include "kernel.h"

namespace gd_id_sort
{

static cudaError_t sort_items(sorter &s, int64_t n, int begin, int end, cudaStream_t stream)
{
    cub::DoubleBuffer<uint64_t> items(s.ids.item, s.other.item);
    const cudaError_t error = cub::DeviceRadixSort::SortKeys(
        s.workspace, s.bytes, items, (uint32_t)n, 32 + begin, 32 + end, stream);
    s.ids.item = items.Current();
    s.other.item = items.Alternate();
    return error;
}

sorter sorter_for(const gd_call *call, int64_t n)
{
    sorter s = {};
    n = gd_min64(n, most_items);
    // With a workspace of NULL, CUB only says how large it must be.
    if (gd_cuda_check(call->context, sort_items(s, n, 0, 32, gd_stream(call)), call->op->name))
        return s;
    s.ids.item = (uint64_t *)gd_call_scratch(call, (size_t)(2 * n) * sizeof *s.ids.item);
    s.other.item = s.ids.item + n;
    if (s.ids.item) s.workspace = gd_call_scratch(call, s.bytes);
    return s;
}

void sort(const gd_call *call, sorter &s, int64_t n, int begin, int end)
{
    if (begin < end)
        gd_cuda_check(call->context, sort_items(s, n, begin, end, gd_stream(call)), call->op->name);
}

} // namespace gd_id_sort
