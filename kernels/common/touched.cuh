// touched.cuh - the rows of an array that may be other than 0 (gd_touched), in packs of V elements.
// The number of launched threads depends on all rows, so that a captured kernel serves whatever
// rows are touched.
#ifndef GD_TOUCHED_CUH
#define GD_TOUCHED_CUH

#include "pack.cuh"

// Calls body(first) for each pack, from element `first` on, that has elements of the touched
// rows of a word. Neighbouring lanes of a warp take neighbouring packs; a pack that is in two
// rows is taken once.
template <int V, class Body>
__device__ inline void gd_each_pack_of_word(const gd_touched &rows, int64_t word, Body body)
{
    const int64_t begin = rows.begin + 32 * word * rows.columns; // at a pack
    int64_t done = 0;                                            // packs from there
    for (uint32_t bits = rows.touched[word]; bits; bits &= bits - 1) {
        const int64_t row = __ffs((int)bits) - 1, first = row * rows.columns / V;
        const int64_t end = gd_packs((row + 1) * rows.columns, V);
        for (int64_t pack = (first > done ? first : done) + threadIdx.x % 32; pack < end;
             pack += 32)
            body(begin + pack * V);
        done = end;
    }
}

// Loops over the words of `rows` that are this warp's; blocks have one dimension.
#define GD_EACH_WORD(word, rows)                                               \
    for (int64_t word = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; \
         32 * word * (rows).columns < (rows).end - (rows).begin;               \
         word += (int64_t)gridDim.x * blockDim.x / 32)

// Whether an element of the pack may be other than 0.
template <int V>
__device__ inline bool gd_pack_is_touched(const gd_sparse &sparse, int64_t first)
{
    for (int i = 0; i < sparse.count; i++) {
        const gd_touched &rows = sparse.table[i];
        if (first < rows.begin || first >= rows.end) continue;
        const int64_t at = first - rows.begin;
        const bool narrow = at + V <= UINT32_MAX && rows.columns <= UINT32_MAX;
        int64_t row = narrow ? (uint32_t)at / (uint32_t)rows.columns : at / rows.columns;
        for (int64_t begin = row * rows.columns; begin < at + V; begin += rows.columns, row++)
            if (rows.touched[row / 32] >> row % 32 & 1) return true;
        return false;
    }
    return true;
}

// A warp for each word.
static inline gd_grid gd_grid_of_words(const gd_touched &rows)
{
    return gd_grid_for(gd_ceil_div(rows.end - rows.begin, rows.columns));
}

#endif
