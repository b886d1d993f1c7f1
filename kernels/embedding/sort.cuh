// sort.cuh - positions sorted by their id, equal ids by position, by CUB's radix sort. An item
// is one number, with the id in its upper half and the position in its lower one; the sort is
// stable and looks at bits of the id alone. Everything is integer arithmetic, so the result is
// always the same.
#ifndef GD_EMBEDDING_SORT_CUH
#define GD_EMBEDDING_SORT_CUH

#include "cuda.cuh"

namespace gd_id_sort
{

constexpr int64_t most_items = UINT32_MAX; // of one sort

struct sequence {
    uint64_t *item;

    __device__ void set(int64_t k, uint32_t id, int64_t position) const
    {
        item[k] = (uint64_t)id << 32 | (uint32_t)position;
    }
    __device__ uint32_t id(int64_t k) const
    {
        return (uint32_t)(item[k] >> 32);
    }
    __device__ int64_t position(int64_t k) const
    {
        return (int64_t)(item[k] & UINT32_MAX);
    }
};

// Items to be sorted, and what that takes.
struct sorter {
    sequence ids, other; // other is as large
    void *workspace;     // CUB's; NULL: there was no memory
    size_t bytes;
};

// Memory for up to n items, for this call.
sorter sorter_for(const gd_call *call, int64_t n);

// Sorts the first n > 0 of s.ids by the bits [begin, end) of their ids; s.ids are the
// sorted ones then.
void sort(const gd_call *call, sorter &s, int64_t n, int begin, int end);

} // namespace gd_id_sort
#endif
