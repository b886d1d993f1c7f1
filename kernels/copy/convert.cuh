// convert.cuh - one number from one dtype to another, as convert.h does it: rounded once, to
// nearest even. int32_t is GD_INT32.
#ifndef GD_CONVERT_CUH
#define GD_CONVERT_CUH

#include <type_traits>

#include "cuda.cuh"

__device__ inline double gd_load(int32_t x)
{
    return x;
}

// Truncates and saturates; NaN becomes 0.
template <>
__device__ inline int32_t gd_store<int32_t>(double value)
{
    return value == value ? __double2int_rz(value) : 0; // which saturates
}

// The first step, to float or double, is exact; the second rounds. A value that keeps its type is
// copied.
template <class To, class From>
__device__ inline To gd_convert(From x)
{
    if constexpr (std::is_same<To, From>::value)
        return x;
    else if constexpr (std::is_same<To, int32_t>::value)
        return gd_store<int32_t>((double)gd_load(x));
    else
        return gd_store<To>(gd_load(x));
}

// As gd_by_dtype, for whole numbers too.
template <class Body>
static inline void gd_by_any_dtype(gd_dtype dtype, Body body)
{
    if (dtype == GD_INT32)
        body(int32_t());
    else
        gd_by_dtype(dtype, [&](auto zero) { return body(zero), GD_OK; });
}

#endif
