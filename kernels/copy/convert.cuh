// convert.cuh - one number from one dtype to another, as convert.h does it: rounded once, to
// nearest even. int32_t is GD_INT32.
#ifndef GD_CONVERT_CUH
#define GD_CONVERT_CUH

#include <string.h>

#include <type_traits>

#include "copy/convert.h"
#include "cuda.cuh"

// Truncates and saturates; NaN becomes 0.
template <>
__device__ inline int32_t gd_store<int32_t>(double value)
{
    return value == value ? __double2int_rz(value) : 0; // which saturates
}
template <>
__device__ inline int32_t gd_store<int32_t>(float value)
{
    return __float2int_rz(value); // likewise, and NaN too
}

// x as a float that any narrower type rounds as it would round x: towards 0, with the last bit set
// if something was lost (rounding to odd).
__device__ inline float gd_odd_float(int32_t x)
{
    const float nearest = __int2float_rz(x);
    return __float2int_rz(nearest) == x ? nearest : __int_as_float(__float_as_int(nearest) | 1);
}

// The first step, to float or double, is exact; the second rounds. A value that keeps its type is
// copied.
template <class To, class From>
__device__ inline To gd_convert(From x)
{
    if constexpr (std::is_same<To, From>::value)
        return x;
    else if constexpr (!std::is_same<From, int32_t>::value)
        return gd_store<To>(gd_load(x));
    else if constexpr (sizeof(To) == 2)
        return gd_store<To>(gd_odd_float(x));
    else
        return (To)x;
}

// A double as T, on the host.
template <class T>
static inline T gd_host_convert(double value)
{
    if constexpr (std::is_same<T, int32_t>::value) {
        return gd_f64_to_i32(value);
    } else if constexpr (sizeof(T) == 2) {
        const bool is_half = std::is_same<T, __half>::value;
        const uint16_t bits = is_half ? gd_f64_to_f16(value) : gd_f64_to_bf16(value);
        T converted;
        memcpy((void *)&converted, &bits, sizeof converted);
        return converted;
    } else {
        return (T)value;
    }
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
