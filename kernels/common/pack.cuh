// pack.cuh - packed arrays in pieces of 16 bytes, the most that one load or store can move.
//
//     constexpr int V = gd_pack_size<T>;
//     GD_EACH(pack, gd_packs(n, V)) {
//         T x[V];
//         gd_pack_load(x, from, pack * V, n);
//         for (int v = 0; v < V; v++) ...
//         gd_pack_store(to, x, pack * V, n);
//     }
//
// A view of a tensor may begin at any element, and n may be any number: a pack that is not aligned,
// or not whole, is moved element by element. Neighbouring threads take neighbouring packs, so that
// even then a warp's accesses share their cache lines.
#ifndef GD_PACK_CUH
#define GD_PACK_CUH

#include <type_traits>

#include "cuda.cuh"

template <class... T>
struct gd_widest {
    static constexpr int value = 0;
};
template <class T, class... Rest>
struct gd_widest<T, Rest...> {
    static constexpr int rest = gd_widest<Rest...>::value, own = (int)sizeof(T);
    static constexpr int value = own > rest ? own : rest;
};

// How many elements to take at once of arrays of these types: 16 bytes of the widest.
template <class... T>
constexpr int gd_pack_size = 16 / gd_widest<T...>::value;

static __host__ __device__ inline int64_t gd_packs(int64_t n, int size)
{
    return n / size + (n % size != 0);
}

// A type of so many bytes, moved with as few instructions as possible.
template <int Bytes>
struct gd_raw {
    struct type {
        uint4 part[Bytes / 16];
    };
};
template <>
struct gd_raw<8> {
    using type = uint2;
};
template <>
struct gd_raw<4> {
    using type = uint32_t;
};
template <>
struct gd_raw<2> {
    using type = uint16_t;
};

// Volatile: otherwise the compiler serialises the loads, and waits for each before the next.
__device__ inline uint4 gd_load_now(const uint4 *from)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

template <class T, int V>
using gd_raw_pack = typename gd_raw<(int)sizeof(T) * V>::type;

template <class T, int V>
__device__ inline bool gd_pack_fits(const T *x, int64_t first, int64_t n)
{
    return first + V <= n && (uintptr_t)(x + first) % alignof(gd_raw_pack<T, V>) == 0;
}

// value[] = x[first], x[first + 1], ...; beyond x[n - 1] zeros.
template <class T, int V>
__device__ inline void gd_pack_load(T (&value)[V], const T *x, int64_t first, int64_t n)
{
    if (gd_pack_fits<T, V>(x, first, n)) {
        const gd_raw_pack<T, V> raw = *(const gd_raw_pack<T, V> *)(x + first);
        memcpy(value, &raw, sizeof raw);
        return;
    }
#pragma unroll
    for (int v = 0; v < V; v++) value[v] = first + v < n ? x[first + v] : T(0.0f);
}

template <class T, int V>
__device__ inline void gd_pack_store(T *x, const T (&value)[V], int64_t first, int64_t n)
{
    if (gd_pack_fits<T, V>(x, first, n)) {
        gd_raw_pack<T, V> raw;
        memcpy(&raw, value, sizeof raw);
        *(gd_raw_pack<T, V> *)(x + first) = raw;
        return;
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (first + v < n) x[first + v] = value[v];
    }
}

// ---- Numbers of a dtype chosen at run time -----------------------------------------------------

template <class Body>
__device__ inline void gd_by_real_dtype(gd_dtype dtype, Body body)
{
    if (dtype == GD_FLOAT32)
        body(float());
    else if (dtype == GD_FLOAT64)
        body(double());
    else if (dtype == GD_BFLOAT16)
        body(__nv_bfloat16());
    else
        body(__half());
}

// value[] = x[first], x[first + 1], ...; beyond x[n - 1] zeros.
template <class C, int V>
__device__ inline void gd_get(C (&value)[V], const void *x, gd_dtype dtype, int64_t first,
                              int64_t n)
{
    gd_by_real_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        T element[V];
        gd_pack_load(element, (const T *)x, first, n);
#pragma unroll
        for (int v = 0; v < V; v++) value[v] = (C)gd_load(element[v]);
    });
}

// Stores value[], rounded once, to those elements, or adds it to them.
template <class C, int V>
__device__ inline void gd_put(void *x, gd_dtype dtype, int64_t first, int64_t n, bool accumulate,
                              const C (&value)[V])
{
    C sum[V] = {};
    if (accumulate) gd_get(sum, x, dtype, first, n);
    gd_by_real_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        T element[V];
#pragma unroll
        for (int v = 0; v < V; v++) element[v] = gd_store<T>(sum[v] + value[v]);
        gd_pack_store((T *)x, element, first, n);
    });
}

// Rounds value[] to dtype and back.
template <class C, int V>
__device__ inline void gd_round_to(C (&value)[V], gd_dtype dtype)
{
    gd_by_real_dtype(dtype, [&](auto zero) {
#pragma unroll
        for (int v = 0; v < V; v++) value[v] = (C)gd_load(gd_store<decltype(zero)>(value[v]));
    });
}

// ---- Packs of 16 bytes or more, computed on in float -------------------------------------------

// The elements of a raw pack as floats. A bfloat16 is the upper half of a float.
template <class T, int V>
__device__ inline void gd_widen(float (&value)[V], const gd_raw_pack<T, V> &raw)
{
    unsigned word[sizeof raw / 4];
    memcpy(word, &raw, sizeof raw);
#pragma unroll
    for (int i = 0; i < V; i++) {
        if constexpr (std::is_same_v<T, float>) {
            value[i] = __uint_as_float(word[i]);
        } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
            value[i] = __uint_as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
        } else if (i % 2 == 0) {
            const float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&word[i / 2]));
            value[i] = pair.x, value[i + 1] = pair.y;
        }
    }
}

// Floats as a raw pack of T, rounded to nearest even.
template <class T, int V>
__device__ inline gd_raw_pack<T, V> gd_narrow(const float (&value)[V])
{
    gd_raw_pack<T, V> raw;
    unsigned word[sizeof raw / 4];
#pragma unroll
    for (int i = 0; i < V; i++) {
        if constexpr (std::is_same_v<T, float>) {
            word[i] = __float_as_uint(value[i]);
        } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(value[i & ~1], value[i | 1]);
            word[i / 2] = *reinterpret_cast<const unsigned *>(&pair);
        } else {
            const __half2 pair = __floats2half2_rn(value[i & ~1], value[i | 1]);
            word[i / 2] = *reinterpret_cast<const unsigned *>(&pair);
        }
    }
    memcpy(&raw, word, sizeof raw);
    return raw;
}

// ---- Raw packs of a row -------------------------------------------------------------------------

// Pack i of a row. It bypasses L1, which is left to what is read again: to weights.
template <class T, int V>
__device__ inline gd_raw_pack<T, V> gd_raw_load(const T *row, int i, uint64_t policy)
{
    gd_raw_pack<T, V> raw;
#pragma unroll
    for (int k = 0; k < (int)sizeof raw / 16; k++) {
        const uint4 *const from = (const uint4 *)(row + (int64_t)i * V) + k;
        uint4 &v = raw.part[k];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from), "l"(policy));
#else
        v = *from;
#endif
    }
    return raw;
}

// The same by plain loads of 16 bytes: a copy of the whole pack may be compiled to loads of 4.
template <int V, class T>
__device__ inline gd_raw_pack<T, V> gd_raw_read(const T *row, int i)
{
    gd_raw_pack<T, V> raw;
#pragma unroll
    for (int k = 0; k < (int)sizeof raw / 16; k++) raw.part[k] = ((const uint4 *)(row + i * V))[k];
    return raw;
}

// Stores it, 16 bytes at a time: a copy of the whole pack may be compiled to stores of 4.
template <class T, int V>
__device__ inline void gd_raw_store(T *row, int64_t i, const gd_raw_pack<T, V> &raw)
{
#pragma unroll
    for (int k = 0; k < (int)sizeof raw / 16; k++) __stwb((uint4 *)(row + i * V) + k, raw.part[k]);
}

// Makes the compiler forget that it has unpacked these bits before. It then unpacks them again,
// instead of keeping the floats, which take twice as many registers, from one pass to the next.
template <class Raw>
__device__ inline void gd_raw_forget(Raw &raw)
{
#pragma unroll
    for (uint4 &v : raw.part) asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
}

// For moving bytes of any meaning: calls body with a value of a type of `bytes` bytes, 2 to 16.
template <class Body>
static inline void gd_by_unit(int64_t bytes, Body body)
{
    switch (bytes) {
    case 16:
        return body(uint4());
    case 8:
        return body(uint64_t());
    case 4:
        return body(uint32_t());
    default:
        return body(uint16_t());
    }
}

#endif
