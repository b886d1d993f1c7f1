// angle.cuh - the angles of rotary position embedding on a GPU, in turns: whole turns are removed
// in double, and the rest is exact enough in float.
#ifndef GD_ROPE_ANGLE_CUH
#define GD_ROPE_ANGLE_CUH

#include "cuda.cuh"

// How far pair i turns from one position to the next, in turns: base^(-i/pairs) / (2 pi).
__device__ inline double rope_rate(double log2_base, int64_t pair, int64_t pairs)
{
    return exp2(-(double)pair / (double)pairs * log2_base) * 0.15915494309189533577;
}

__device__ inline void sincos_of_turns(double turns, float *s, float *c)
{
    sincospif((float)(2 * turns), s, c);
}
__device__ inline void sincos_of_turns(double turns, double *s, double *c)
{
    sincospi(2 * turns, s, c);
}

#endif
