// planes.cuh - kernels on planes [rows, cols]: of pads and of pools.
//
// A thread has the same place of several planes. What depends on the place, such as its window, is
// found once, and the planes are taken by PLANES, whose loads are then under way together:
//
//     GD_EACH(place, w.places)
//     {
//         const gd_plane_place<Index> at(place, rows, cols);
//         ... from = in + at.plane * (size of a plane of in) ...
//         for (int64_t e = place; e < w.count; e += w.step(), from += w.from_step()) {
//             T x[PLANES];
//             w.load(x, e, from + ...);
//             ... the result at place e + k * w.apart is made of x[k] ...
//         }
//     }
#ifndef GD_PLANES_CUH
#define GD_PLANES_CUH

#include "team.cuh"

// The plane, row and column of element e of planes [rows, cols]. Index is unsigned for fewer than
// 2^31 elements: 64-bit divisions take longer than the memory does.
template <class Index>
struct gd_plane_place {
    Index plane, row, col;

    __device__ gd_plane_place(Index e, Index rows, Index cols)
    {
        const Index line = e / cols;
        col = e - line * cols;
        plane = line / rows;
        row = line - plane * rows;
    }
};

template <int N, class IndexOfPlaces>
struct gd_planes {
    using Index = IndexOfPlaces;
    static constexpr int PLANES = N;

    Index places;              // of the planes that threads begin with
    int64_t count;             // elements of the result
    int64_t apart, from_apart; // from one plane of a thread to the next

    __device__ int64_t step() const
    {
        return PLANES * apart;
    }
    __device__ int64_t from_step() const
    {
        return PLANES * from_apart;
    }
    // Whether the thread whose place is e has plane k of these; it has the first.
    __device__ bool has(int64_t e, int k) const
    {
        return k == 0 || e + k * apart < count;
    }
    // x[k] = the element of plane k, of those that the thread has
    template <class T>
    __device__ void load(T (&x)[PLANES], int64_t e, const T *from) const
    {
#pragma unroll
        for (int k = 0; k < PLANES; k++)
            if (has(e, k)) x[k] = from[k * from_apart];
    }
};

// Calls launch(zero, planes) with a T and the gd_planes of a call that makes `to` of `from`. reach: by
// how much an index may be larger than both. Enough threads to fill a GPU have up to 16 planes each.
template <class Launch>
static inline gd_status gd_by_planes(const gd_call *call, const gd_tensor *to,
                                     const gd_tensor *from, int64_t planes, int64_t reach,
                                     Launch launch)
{
    const int64_t count = gd_tensor_count(to), read = gd_tensor_count(from), each = count >> 19;
    if (count == 0) return GD_OK;
    const int64_t together = gd_ceil_div(planes, each < 1 ? 1 : each < 16 ? each : 16);
    const int64_t apart = count / planes * together, from_apart = read / planes * together;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        if (count + reach > INT32_MAX || read + reach > INT32_MAX)
            return launch(zero, gd_planes<1, int64_t>{apart, count, apart, from_apart});
        if (together == planes)
            return launch(zero, gd_planes<1, unsigned>{(unsigned)apart, count, apart, from_apart});
        return launch(zero, gd_planes<4, unsigned>{(unsigned)apart, count, apart, from_apart});
    });
}

#endif
