// pack.cuh - packs: N neighbours of an array, moved at once. 16 bytes are the most that one load or
// store can move.
//
//     constexpr int V = gd_pack_size<T>;
//     GD_EACH(i, gd_packs(n, V)) {
//         T x[V];
//         gd_load_guarded(x, from, i * V, n);
//         for (int v = 0; v < V; v++) ... x[v] ...
//         gd_store_guarded(to, x, i * V, n);
//     }
//
// A view of a tensor may begin at any element, and n may be any number: the guarded functions move
// a pack that is not aligned, or not whole, element by element. Neighbouring threads take
// neighbouring packs, so that even then a warp's accesses share their cache lines. gd_pack is for
// aligned rows of whole packs.
//
// gd_raw is a pack as it lies in memory. A kernel that holds several of them until it computes has
// them so: as elements, numbers of 16 bits would take a register each.
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

template <class T, int N>
struct gd_raw;

template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) gd_pack {
    T element[N];

    __device__ T &operator[](int i)
    {
        return element[i];
    }
    __device__ const T &operator[](int i) const
    {
        return element[i];
    }
    __host__ __device__ static bool aligned(const void *x)
    {
        return (uintptr_t)x % alignof(gd_pack) == 0;
    }

    // Pack i of a row.
    __device__ static gd_pack load(const T *row, int64_t i)
    {
        return ((const gd_pack *)row)[i];
    }
    __device__ void store(T *row, int64_t i) const
    {
        ((gd_pack *)row)[i] = *this;
    }
};

// ---- As it lies in memory -----------------------------------------------------------------------

template <int Bytes>
using gd_word = std::conditional_t<
    Bytes >= 16, uint4,
    std::conditional_t<Bytes == 8, uint2, std::conditional_t<Bytes == 4, uint32_t, uint16_t>>>;

template <class T, int N>
struct gd_raw {
    using word = gd_word<N *(int)sizeof(T)>;
    static constexpr int PARTS = N * (int)sizeof(T) / (int)sizeof(word);
    word part[PARTS];

    // Part by part: a copy of a pack of several may be compiled to loads of 4 bytes.
    __device__ static gd_raw load(const T *from)
    {
        gd_raw raw;
#pragma unroll
        for (int k = 0; k < PARTS; k++) raw.part[k] = ((const word *)from)[k];
        return raw;
    }
    // Pack i of a row, by volatile loads of 16 bytes: otherwise the compiler may serialise them,
    // and wait for each before the next.
    __device__ static gd_raw load_now(const T *row, int64_t i)
    {
        gd_raw raw;
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            uint4 &v = raw.part[k];
            asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "l"((const uint4 *)row + (i * PARTS + k)));
        }
        return raw;
    }
    // Pack i of a row, past L1, which is left to what is read again: to weights. policy: of L2
    // (async.cuh).
    __device__ static gd_raw load_streaming(const T *row, int i, uint64_t policy)
    {
        gd_raw raw;
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            const uint4 *const from = (const uint4 *)(row + (int64_t)i * N) + k;
            uint4 &v = raw.part[k];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
            asm volatile(
                "ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                : "l"(from), "l"(policy));
#else
            v = *from;
#endif
        }
        return raw;
    }
    // Pack i of a row; 16 bytes at a time, as load.
    __device__ void store(T *row, int64_t i) const
    {
#pragma unroll
        for (int k = 0; k < PARTS; k++) __stwb((uint4 *)(row + i * N) + k, part[k]);
    }

    __device__ gd_pack<T, N> elements() const
    {
        gd_pack<T, N> pack;
        memcpy(&pack, this, sizeof pack);
        return pack;
    }

    // The elements as floats. A bfloat16 is the upper half of a float.
    __device__ void widen(float (&value)[N]) const
    {
        unsigned word[sizeof(gd_raw) / 4];
        memcpy(word, this, sizeof(gd_raw));
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (std::is_same_v<T, float>) {
                value[i] = __uint_as_float(word[i]);
            } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
                value[i] = __uint_as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
            } else if (i % 2 == 0) {
                const float2 pair =
                    __half22float2(*reinterpret_cast<const __half2 *>(&word[i / 2]));
                value[i] = pair.x, value[i + 1] = pair.y;
            }
        }
    }
    // Floats, rounded to nearest even.
    __device__ static gd_raw narrow(const float (&value)[N])
    {
        gd_raw raw;
        unsigned word[sizeof raw / 4];
#pragma unroll
        for (int i = 0; i < N; i++) {
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

    // Makes the compiler forget that it has unpacked these bits before. It then unpacks them again,
    // instead of keeping the floats, which take twice as many registers, from one pass to the next.
    __device__ void forget()
    {
#pragma unroll
        for (uint4 &v : part) asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
    }
};

// ---- At any place in an array of any length -----------------------------------------------------

template <class T, int N>
__device__ inline bool gd_is_whole(const T *x, int64_t first, int64_t n)
{
    return first + N <= n && gd_pack<T, N>::aligned(x + first);
}

// value[] = x[first], x[first + 1], ...; beyond x[n - 1] zeros.
template <class T, int N>
__device__ inline void gd_load_guarded(T (&value)[N], const T *x, int64_t first, int64_t n)
{
    if (gd_is_whole<T, N>(x, first, n)) {
        const gd_raw<T, N> raw = *(const gd_raw<T, N> *)(x + first);
        memcpy(value, &raw, sizeof raw);
        return;
    }
#pragma unroll
    for (int v = 0; v < N; v++) value[v] = first + v < n ? x[first + v] : T(0.0f);
}

template <class T, int N>
__device__ inline void gd_store_guarded(T *x, const T (&value)[N], int64_t first, int64_t n)
{
    if (gd_is_whole<T, N>(x, first, n)) {
        gd_raw<T, N> raw;
        memcpy(&raw, value, sizeof raw);
        *(gd_raw<T, N> *)(x + first) = raw;
        return;
    }
#pragma unroll
    for (int v = 0; v < N; v++) {
        if (first + v < n) x[first + v] = value[v];
    }
}

// Where rows are not aligned, a warp's lanes share N * 32 columns so that neighbours move neighbours:
// the elements of a pack are 32 apart. x[0], x[32], ... as far as they are below n, else `beyond`.
template <class T, int N>
__device__ inline gd_raw<T, N> gd_load_spread(const T *x, int n, T beyond)
{
    T value[N];
    gd_raw<T, N> raw;
#pragma unroll
    for (int v = 0; v < N; v++) value[v] = 32 * v < n ? x[32 * v] : beyond;
    memcpy(&raw, value, sizeof raw);
    return raw;
}

template <class T, int N>
__device__ inline void gd_store_spread(T *x, const gd_raw<T, N> &raw, int n)
{
    T value[N];
    memcpy(value, &raw, sizeof raw);
#pragma unroll
    for (int v = 0; v < N; v++)
        if (32 * v < n) x[32 * v] = value[v];
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

template <class C>
__device__ inline C gd_get(const void *x, gd_dtype dtype, int64_t i)
{
    C value;
    gd_by_real_dtype(dtype, [&](auto zero) { value = (C)gd_load(((const decltype(zero) *)x)[i]); });
    return value;
}

// Stores the value, rounded once, or adds it to what is there.
template <class C>
__device__ inline void gd_put(void *x, gd_dtype dtype, int64_t i, bool accumulate, C value)
{
    if (accumulate) value += gd_get<C>(x, dtype, i);
    gd_by_real_dtype(
        dtype, [&](auto zero) { ((decltype(zero) *)x)[i] = gd_store<decltype(zero)>(value); });
}

// For moving bytes of any meaning: calls body with a value of a type of `bytes` bytes, 2 to 16.
template <class Body>
static inline auto gd_by_unit(int64_t bytes, Body body)
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
