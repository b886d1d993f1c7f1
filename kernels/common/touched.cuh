// touched.cuh - the parts of an array that may be other than 0 (services.h), in packs of V
// elements, 16 bytes. The number of launched threads depends on the array's length alone, so that a
// captured kernel serves whatever is touched.
#ifndef GD_TOUCHED_CUH
#define GD_TOUCHED_CUH

#include "pack.cuh"

constexpr int gd_granule_packs = GD_GRANULE / 16;

static inline gd_grid gd_grid_of_granules(int64_t n, int V)
{
    return gd_grid_for(gd_packs(n, gd_granule_packs * V));
}

// Calls body(first) for each such pack of n elements, from element `first` on. A warp has 32
// granules, of which neighbouring lanes take neighbouring packs.
template <int V, class Body>
__device__ inline void gd_each_touched_pack(const uint8_t *touched, int64_t n, Body body)
{
    const int lane = threadIdx.x % 32;
    const int64_t granules = gd_packs(n, gd_granule_packs * V);
    GD_EACH_WARP(i, gd_packs(granules, 32))
    {
        const int64_t own = 32 * i + lane;
        const unsigned bits = __ballot_sync(~0u, own < granules && touched[own]);
        for (int pack = lane; bits && pack < 32 * gd_granule_packs; pack += 32) {
            const int64_t first = (32 * gd_granule_packs * i + pack) * V;
            if (bits >> pack / gd_granule_packs & 1 && first < n) body(first);
        }
    }
}

#endif
