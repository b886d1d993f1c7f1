// dropout.cuh - dropout on the weights, on a GPU. dropout.h says which random bits belong to which
// weight: with two adjacent C fragments of mma.cuh, a lane has all eight weights of a block if
// queries are the rows. If keys are, lanes 4 g + c and 4 (g + 1) + c, g even, share two blocks: one
// has the even key's halves of both, the other the odd key's.
#ifndef GD_ATTENTION_DROPOUT_CUH
#define GD_ATTENTION_DROPOUT_CUH

#include "attention/dropout.h"
#include "random/philox.cuh"

// Negates the dropped ones among a warp's weights, 8 NS columns of 16 M rows laid out as in
// mma.cuh. BY_KEY: rows are keys and columns are queries. `row` and `column`, where they begin, are
// multiples of 16; all lanes call it together. The dropped ones are first gathered as bits, 4 n + i
// for [m][n][i], in a short loop that need not be unrolled.
template <bool BY_KEY, int M, int NS>
__device__ inline void attention_apply_dropout(float (&weight)[M][NS][4],
                                               const attention_dropout &dropout, int64_t head,
                                               int row, int column)
{
    static_assert(NS <= 8, "a word has the bits");
    constexpr uint32_t even = 0x55555555;
    const int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
    const uint32_t limit = dropout.threshold << 16; // of bits in the upper half of a word
    const gd_random_state start = attention_dropout_start(&dropout);
#pragma unroll
    for (int m = 0; m < M; m++) {
        // This lane's block of the first 16 columns: by key, that of its column of g's parity.
        const int at_row = row + 16 * m + g, at_column = column + c + (BY_KEY ? g % 2 : 0);
        uint64_t block = attention_dropout_block(&dropout, start, head, BY_KEY ? at_column : at_row,
                                                 BY_KEY ? at_row : at_column);
        uint32_t dropped = 0;
#pragma unroll 1
        for (int n = 0; n < NS; n += 2) {
            const uint4 word = gd_philox_block(start.seed, 0, block);
            const uint32_t by_place[] = {word.x, BY_KEY ? word.y : word.z, BY_KEY ? word.z : word.y,
                                         word.w};
            uint32_t bits = 0; // for each word the low half's, then the high half's
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const uint32_t w = by_place[i / 2];
                bits |= (uint32_t)((i % 2 ? w : w << 16) < limit) << i;
            }
            dropped |= bits << (4 * n);
            block += 32 * (BY_KEY ? (uint64_t)dropout.key_tiles : 1);
        }
        if (BY_KEY) { // the halves of this lane's key, of both blocks
            const uint32_t other = __shfl_xor_sync(0xffffffffu, dropped, 4);
            dropped = g % 2 ? (dropped & ~even) | (other >> 1 & even)
                            : (dropped & even) | (other << 1 & ~even);
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
    const uint32_t bits = (s / 8 % 2 ? second : first) >> s % 2 * 16 & 0xffff;
    const A scale = sizeof(A) == 4 ? (A)dropout.scale_f32 : (A)dropout.scale;
    return bits < dropout.threshold ? (A)0 : scale;
}

#endif
