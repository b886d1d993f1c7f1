// dropout.cuh - dropout on the weights, on a GPU. dropout.h says which word of the random stream
// belongs to which weight: with two adjacent C fragments of mma.cuh, a lane has all four weights of
// a block.
#ifndef GD_ATTENTION_DROPOUT_CUH
#define GD_ATTENTION_DROPOUT_CUH

#include "attention/dropout.h"
#include "random/philox.cuh"

// Negates the dropped ones among a warp's weights, 8 NS columns of 16 M rows laid out as in
// mma.cuh. BY_KEY: rows are keys and columns are queries. `row` and `column`, where they begin, are
// multiples of 16. The dropped ones are first gathered as bits, 4 n + i for [m][n][i], in a short
// loop that need not be unrolled.
template <bool BY_KEY, int M, int NS>
__device__ inline void attention_draw(float (&weight)[M][NS][4], const attention_dropout &dropout,
                                      int64_t head, int row, int column)
{
    static_assert(NS <= 8, "a word has the bits");
    const int r = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
    const gd_random_state start = attention_dropout_start(&dropout);
#pragma unroll
    for (int m = 0; m < M; m++) {
        uint32_t dropped = 0;
#pragma unroll 1
        for (int n = 0; n < NS; n += 2) {
            uint32_t bits = 0;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at_row = row + 16 * m + r, at_column = column + 8 * n + c + i;
                const int t = BY_KEY ? at_column : at_row, s = BY_KEY ? at_row : at_column;
                const uint64_t block = attention_dropout_block(&dropout, start, head, t, s);
                const uint4 word = gd_philox_block(start.seed, 0, block);
                bits |= (uint32_t)(word.x < dropout.threshold) << i;
                bits |= (uint32_t)(word.y < dropout.threshold) << ((BY_KEY ? 2 : 4) + i);
                bits |= (uint32_t)(word.z < dropout.threshold) << ((BY_KEY ? 4 : 2) + i);
                bits |= (uint32_t)(word.w < dropout.threshold) << (6 + i);
            }
            dropped |= bits << (4 * n);
        }
#pragma unroll
        for (int n = 0; n < NS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (dropped >> (4 * n + i) & 1) weight[m][n][i] *= -1;
    }
}

// The factor of dropout for the weight of query t and key s.
template <class A>
__device__ inline A attention_keep(const attention_dropout &dropout, int64_t head, int64_t t,
                                   int64_t s)
{
    const gd_random_state start = attention_dropout_start(&dropout);
    const uint4 word =
        gd_philox_block(start.seed, 0, attention_dropout_block(&dropout, start, head, t, s));
    const uint32_t first = t / 8 % 2 ? word.z : word.x, second = t / 8 % 2 ? word.w : word.y;
    return (s / 8 % 2 ? second : first) < dropout.threshold ? (A)0 : (A)dropout.scale;
}

#endif
