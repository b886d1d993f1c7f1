/* convert.c - a loop for each pair of dtypes, by table. */
#include "copy/convert.h"

/* Each dtype converts to float or double without loss: 16-bit formats to float, whole numbers to
 * double. The conversion from there rounds, once. */
static inline float same_f32(float value)
{
    return value;
}

static inline double same_f64(double value)
{
    return value;
}

static inline double i32_to_f64(int32_t value)
{
    return value;
}

static inline double f32_to_f64(float value)
{
    return value;
}

static inline float f64_to_f32(double value)
{
    return (float)value;
}

static inline int32_t f32_to_i32(float value)
{
    return gd_f64_to_i32(value);
}

#define LOOP(name, from_type, load, to_type, store)                                      \
    static void name(void *dst, int64_t dst_stride, const void *src, int64_t src_stride, \
                     int64_t n)                                                          \
    {                                                                                    \
        to_type *restrict to = dst;                                                      \
        const from_type *restrict from = src;                                            \
        if (dst_stride == 1 && src_stride == 1) {                                        \
            for (int64_t i = 0; i < n; i++) to[i] = store(load(from[i]));                \
        } else {                                                                         \
            for (int64_t i = 0; i < n; i++)                                              \
                to[i * dst_stride] = store(load(from[i * src_stride]));                  \
        }                                                                                \
    }

LOOP(f32_f32, float, same_f32, float, same_f32)
LOOP(f32_f64, float, same_f32, double, f32_to_f64)
LOOP(f32_bf16, float, same_f32, uint16_t, gd_f32_to_bf16)
LOOP(f32_f16, float, same_f32, uint16_t, gd_f32_to_f16)
LOOP(f32_i32, float, same_f32, int32_t, f32_to_i32)

LOOP(f64_f32, double, same_f64, float, f64_to_f32)
LOOP(f64_f64, double, same_f64, double, same_f64)
LOOP(f64_bf16, double, same_f64, uint16_t, gd_f64_to_bf16)
LOOP(f64_f16, double, same_f64, uint16_t, gd_f64_to_f16)
LOOP(f64_i32, double, same_f64, int32_t, gd_f64_to_i32)

LOOP(bf16_f32, uint16_t, gd_bf16_to_f32, float, same_f32)
LOOP(bf16_f64, uint16_t, gd_bf16_to_f32, double, f32_to_f64)
LOOP(bf16_bf16, uint16_t, , uint16_t, )
LOOP(bf16_f16, uint16_t, gd_bf16_to_f32, uint16_t, gd_f32_to_f16)
LOOP(bf16_i32, uint16_t, gd_bf16_to_f32, int32_t, f32_to_i32)

LOOP(f16_f32, uint16_t, gd_f16_to_f32, float, same_f32)
LOOP(f16_f64, uint16_t, gd_f16_to_f32, double, f32_to_f64)
LOOP(f16_bf16, uint16_t, gd_f16_to_f32, uint16_t, gd_f32_to_bf16)
LOOP(f16_f16, uint16_t, , uint16_t, )
LOOP(f16_i32, uint16_t, gd_f16_to_f32, int32_t, f32_to_i32)

LOOP(i32_f32, int32_t, i32_to_f64, float, f64_to_f32)
LOOP(i32_f64, int32_t, i32_to_f64, double, same_f64)
LOOP(i32_bf16, int32_t, i32_to_f64, uint16_t, gd_f64_to_bf16)
LOOP(i32_f16, int32_t, i32_to_f64, uint16_t, gd_f64_to_f16)
LOOP(i32_i32, int32_t, , int32_t, )

gd_converter *gd_find_converter(gd_dtype to, gd_dtype from)
{
    static gd_converter *const table[GD_DTYPE_COUNT][GD_DTYPE_COUNT] = {
        [GD_FLOAT32] = {f32_f32, f32_f64, f32_bf16, f32_f16, f32_i32},
        [GD_FLOAT64] = {f64_f32, f64_f64, f64_bf16, f64_f16, f64_i32},
        [GD_BFLOAT16] = {bf16_f32, bf16_f64, bf16_bf16, bf16_f16, bf16_i32},
        [GD_FLOAT16] = {f16_f32, f16_f64, f16_bf16, f16_f16, f16_i32},
        [GD_INT32] = {i32_f32, i32_f64, i32_bf16, i32_f16, i32_i32},
    };
    return table[from][to];
}
