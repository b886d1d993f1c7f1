// sort.cuh - positions sorted by their id, equal ids by position: a radix sort, one byte of the ids
// at a time, the lowest first. Each pass is a counting sort and keeps the order of equal bytes, so
// after the last pass the order by all bytes is right (as with punched cards).
//
// For a pass the sequence is divided into tiles. count[tile][byte] says how many of each byte a
// tile has; summed up in the order (byte 0 of tile 0, byte 0 of tile 1, ..., byte 1 of tile 0, ...)
// that becomes the place to which each tile's first id with that byte goes. One warp then walks
// through each tile, in order. Everything is integer arithmetic, so the result is always the same.
#ifndef GD_EMBEDDING_SORT_CUH
#define GD_EMBEDDING_SORT_CUH

#include "cuda.cuh"

namespace gd_id_sort
{

struct sequence {
    uint32_t *id;
    int64_t *position;
};

constexpr int bytes = 256; // values of one
constexpr int64_t most_tiles = 256, least_tile = 1024;

struct tiling {
    int64_t n, length, tiles;
};

static inline tiling tiling_of(int64_t n)
{
    tiling t = {n, gd_ceil_div(n, most_tiles), 0};
    if (t.length < least_tile) t.length = least_tile;
    t.tiles = gd_ceil_div(n, t.length);
    return t;
}

__device__ static inline int64_t tile_end(const tiling &t, int64_t tile)
{
    const int64_t end = (tile + 1) * t.length;
    return end < t.n ? end : t.n;
}

__device__ static inline int byte_of(uint32_t id, int shift)
{
    return (int)(id >> shift & (bytes - 1));
}

// count [tiles, bytes]; one block of `bytes` threads for each tile.
static __global__ void count_bytes(int64_t *count, const uint32_t *id, tiling t, int shift)
{
    __shared__ unsigned own[bytes];
    const int64_t tile = blockIdx.x, end = tile_end(t, tile);
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = tile * t.length + threadIdx.x; i < end; i += bytes)
        atomicAdd(&own[byte_of(id[i], shift)], 1u); // whole numbers: any order gives the same
    __syncthreads();
    count[tile * bytes + threadIdx.x] = own[threadIdx.x];
}

// Turns counts into places. One block; thread b has byte b.
static __global__ void find_places(int64_t *count, int64_t tiles)
{
    __shared__ int64_t below[bytes]; // how many ids have a smaller byte
    const int b = threadIdx.x;
    int64_t total = 0;
#pragma unroll 8
    for (int64_t tile = 0; tile < tiles; tile++) total += count[tile * bytes + b];
    below[b] = total;
    __syncthreads();
    for (int step = 1; step < bytes; step *= 2) { // sums of the last 2, 4, 8, ...
        const int64_t before = b >= step ? below[b - step] : 0;
        __syncthreads();
        below[b] += before;
        __syncthreads();
    }
    int64_t place = below[b] - total;
#pragma unroll 8
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t own = count[tile * bytes + b];
        count[tile * bytes + b] = place;
        place += own;
    }
}

// One warp for each tile. Lanes with the same byte find each other and go to neighbouring places.
static __global__ void move_to_places(sequence to, sequence from, const int64_t *place, tiling t,
                                      int shift)
{
    __shared__ int64_t next[bytes];
    const int lane = threadIdx.x;
    const int64_t tile = blockIdx.x, end = tile_end(t, tile);
    for (int b = lane; b < bytes; b += 32) next[b] = place[tile * bytes + b];
    __syncwarp();
    for (int64_t first = tile * t.length; first < end; first += 32) {
        const int64_t i = first + lane;
        const bool there = i < end;
        const uint32_t id = there ? from.id[i] : 0;
        const int byte = there ? byte_of(id, shift) : bytes;
        const unsigned same = __match_any_sync(0xffffffffu, byte);
        const int rank = __popc(same & ((1u << lane) - 1));
        const int64_t target = there ? next[byte] + rank : 0;
        __syncwarp();
        if (there && rank == 0) next[byte] += __popc(same);
        __syncwarp();
        if (!there) continue;
        to.id[target] = id;
        to.position[target] = from.position[i];
    }
}

// Ids to be sorted, and what that takes.
struct sorter {
    sequence ids, other; // other is as large
    int64_t *count;      // [most_tiles, bytes]; NULL: there was no memory
};

static inline sorter sorter_for(const gd_call *call, int64_t n)
{
    const int64_t counts = most_tiles * bytes; // an id has half the bytes of a position
    int64_t *count = (int64_t *)gd_call_scratch(call, (size_t)(counts + 3 * n) * sizeof *count);
    if (!count) return {};
    int64_t *position = count + counts;
    uint32_t *id = (uint32_t *)(position + 2 * n);
    return {{id, position}, {id + n, position + n}, count};
}

// Sorts n > 0 ids, none above `largest`.
static inline void sort(const gd_call *call, sorter &s, int64_t n, uint32_t largest)
{
    const tiling t = tiling_of(n);
    const cudaStream_t stream = gd_stream(call);
    for (int shift = 0; shift < 32 && largest >> shift; shift += 8) {
        count_bytes<<<(unsigned)t.tiles, bytes, 0, stream>>>(s.count, s.ids.id, t, shift);
        find_places<<<1, bytes, 0, stream>>>(s.count, t.tiles);
        move_to_places<<<(unsigned)t.tiles, 32, 0, stream>>>(s.other, s.ids, s.count, t, shift);
        const sequence sorted = s.other;
        s.other = s.ids;
        s.ids = sorted;
    }
}

} // namespace gd_id_sort
#endif
