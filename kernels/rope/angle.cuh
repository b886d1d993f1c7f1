// angle.cuh - the angles of rotary position embedding on a GPU, in turns.
//
// position * rate may be many turns, of which only the fraction counts: a float has too few digits
// for it. A position is a whole number, so only the fraction of the rate counts either, and with it
// as a 64-bit fixed-point number an integer product has the fraction of the turns: what overflows
// are whole turns. For double tensors the product is one of doubles, as on the CPU.
#ifndef GD_ROPE_ANGLE_CUH
#define GD_ROPE_ANGLE_CUH

#include "cuda.cuh"

// How far pair i turns from one position to the next, in turns: base^(-i/pairs) / (2 pi).
__device__ inline double rope_rate(double log2_base, int64_t pair, int64_t pairs)
{
    return exp2(-(double)pair / (double)pairs * log2_base) * 0.15915494309189533577;
}

// The rate as it is multiplied by positions: for angles in float ...
template <class C>
struct rope_step {
    uint64_t fraction; // of a turn, times 2^64

    __device__ static rope_step of(double rate)
    {
        return {(uint64_t)((rate - floor(rate)) * 0x1p64)};
    }
    // The angle of `position` steps; way: 1 or -1, for the angle and its negative.
    __device__ void sincos(int64_t position, C way, C *s, C *c) const
    {
        const int64_t half_turns = (int64_t)(fraction * (uint64_t)position); // times 2^63
        sincospif(way * ((float)half_turns * 0x1p-63f), s, c);
    }
};
// ... and in double.
template <>
struct rope_step<double> {
    double rate;

    __device__ static rope_step of(double rate)
    {
        return {rate};
    }
    __device__ void sincos(int64_t position, double way, double *s, double *c) const
    {
        const double turns = (double)position * rate;
        sincospi(2 * way * (turns - rint(turns)), s, c);
    }
};

#endif
