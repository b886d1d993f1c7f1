// mean_parts.cuh - a mean with more digits than a float has, for layer_norm and batch_norm.
#ifndef GD_MEAN_PARTS_CUH
#define GD_MEAN_PARTS_CUH

#include <type_traits>

#include "cuda.cuh"

// A mean in two parts of type C, the second a correction to the first: far from 0 the rounding
// error of a float32 mean is as large as the differences of the x's. x - high is nearly exact
// there, and - low then corrects the rounding.
template <class C>
struct mean_parts {
    C high, low;

    __device__ C from(C x) const
    {
        return (x - high) - low;
    }
};

// How a row's mean is saved, in 8 bytes: both parts in float, their sum in double.
__device__ static inline void save_mean(mean_parts<float> *to, mean_parts<float> mean)
{
    *to = mean;
}
__device__ static inline void save_mean(double *to, mean_parts<double> mean)
{
    *to = mean.high + mean.low;
}
__device__ static inline mean_parts<float> saved_mean(mean_parts<float> mean)
{
    return mean;
}
__device__ static inline mean_parts<double> saved_mean(double mean)
{
    return {mean, 0};
}
template <class C>
using mean_kept = std::conditional_t<std::is_same_v<C, float>, mean_parts<float>, double>;

#endif
