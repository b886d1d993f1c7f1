// lines.cuh - the lines of tensors along one axis, side by side.
#ifndef GD_AXIS_LINES_CUH
#define GD_AXIS_LINES_CUH

#include <cub/block/block_radix_sort.cuh>

#include "axis/axis.h"
#include "team.cuh"

enum { TO, FROM, INDEX, OPERANDS };

struct axis_lines {
    gd_cuda_walk<OPERANDS> walk;         // over their first elements
    int64_t n[OPERANDS], step[OPERANDS]; // of a line of each operand
};

// One line of each operand.
struct axis_line {
    const axis_lines &all;
    int64_t begin[OPERANDS];

    __device__ axis_line(const axis_lines &all, int64_t number) : all(all)
    {
        all.walk.at(number, begin);
    }
    // The offset of element i.
    __device__ int64_t at(int operand, int64_t i) const
    {
        return begin[operand] + i * all.step[operand];
    }
};

// As many lines as `like` has. Larger operands give their first lines, and one of a single line gives it
// for all.
static inline axis_lines lines_of(const gd_call *call, const gd_tensor *like,
                                  const gd_tensor *const (&t)[OPERANDS])
{
    const int axis = ((const gd_axis_args *)call->args)->axis;
    int64_t shape[GD_MAX_DIMS];
    axis_lines l = {};
    for (int d = 0; d < gd_tensor_ndim(like); d++)
        shape[d] = d == axis ? 1 : gd_tensor_shape(like)[d];
    gd_layout layout[OPERANDS];
    for (int k = 0; k < OPERANDS; k++) {
        layout[k] = gd_cuda_layout(t[k]);
        l.n[k] = layout[k].shape[axis];
        l.step[k] = layout[k].strides[axis];
    }
    l.walk = gd_cuda_walk_over(gd_tensor_ndim(like), shape, layout);
    return l;
}

// ---- Sorting a line in a block ------------------------------------------------------------------

// A block of THREADS sorts a line of up to `most` keys in shared memory, each with its index, by five bits
// at a time. A thread has ITEMS neighbours of the line, since the sort keeps the order of equal keys.
template <class K, int THREADS, int ITEMS>
struct line_sort {
    using keys = K[ITEMS];
    using indices = uint16_t[ITEMS];
    using sort = cub::BlockRadixSort<K, THREADS, ITEMS, uint16_t, 5>;
    static constexpr int threads = THREADS, items = ITEMS, most = THREADS * ITEMS;

    // This thread's part of the keys key_of(i) of a line of n, and their i. `last` is beyond all keys.
    template <class Key>
    __device__ static void load(keys &key, indices &index, int n, Key key_of, K last)
    {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            const int i = (int)threadIdx.x * ITEMS + k;
            key[k] = i < n ? key_of(i) : last;
            index[k] = (uint16_t)i;
        }
    }
};

#endif
