// depthwise.cuh - convolutions whose groups have one channel: no columns and no products of matrices.
// A thread sums the products of one element of y, or of dx; a block those of one weight, over a piece
// of the positions of all images. I: a type that holds the number of elements.
#ifndef GD_DEPTHWISE_CUH
#define GD_DEPTHWISE_CUH

#include "conv/conv.h"
#include "cuda.cuh"

#define GD_DEPTHWISE_THREADS 256

// What a kernel works on: all but what it computes is only read.
template <class T>
struct gd_depthwise {
    conv_sizes s;
    T *image, *other; // [B, C, H, W] and [B, O, OH, OW]
    const T *weight;  // [O, KH, KW]
    const T *bias;    // of what is computed, or NULL
    bool add;
};

// other (+)= weight unfold(image)
template <class T, class I>
static __global__ void __launch_bounds__(GD_DEPTHWISE_THREADS)
    gd_depthwise_gather(gd_depthwise<T> d)
{
    const conv_sizes s = d.s;
    const int each = (int)(s.O / s.C); // outputs of a channel
    GD_EACH(e, s.B * s.O * s.OH * s.OW)
    {
        const I row = (I)e / (I)s.OW, plane = row / (I)s.OH, image_index = plane / (I)s.O;
        const int64_t o = plane - image_index * (I)s.O;
        const int64_t h0 = (int64_t)(row - plane * (I)s.OH) * s.stride[0] - s.padding[0];
        const int64_t w0 = (int64_t)((I)e - row * (I)s.OW) * s.stride[1] - s.padding[1];
        const T *image = d.image + ((int64_t)image_index * s.C + (int)o / each) * s.H * s.W;
        const T *weight = d.weight + o * s.KH * s.KW;
        gd_compute<T> sum = d.bias ? gd_load(d.bias[o]) : gd_compute<T>(0);
        for (int64_t i = 0; i < s.KH; i++) {
            const int64_t h = h0 + i * s.dilation[0];
            if (h < 0 || h >= s.H) continue;
            for (int64_t j = 0; j < s.KW; j++) {
                const int64_t w = w0 + j * s.dilation[1];
                if (w >= 0 && w < s.W)
                    sum += gd_load(weight[i * s.KW + j]) * gd_load(image[h * s.W + w]);
            }
        }
        d.other[e] = gd_store<T>(d.add ? gd_load(d.other[e]) + sum : sum);
    }
}

// image (+)= fold(weight^T other)
template <class T, class I>
static __global__ void __launch_bounds__(GD_DEPTHWISE_THREADS)
    gd_depthwise_scatter(gd_depthwise<T> d)
{
    const conv_sizes s = d.s;
    const int each = (int)(s.O / s.C);
    const int64_t P = s.OH * s.OW;
    GD_EACH(e, s.B * s.C * s.H * s.W)
    {
        const I row = (I)e / (I)s.W, plane = row / (I)s.H, image_index = plane / (I)s.C;
        const int64_t c = plane - image_index * (I)s.C;
        const int64_t h = row - plane * (I)s.H, w = (I)e - row * (I)s.W;
        const T *other = d.other + ((int64_t)image_index * s.O + c * each) * P;
        const T *weight = d.weight + c * each * s.KH * s.KW;
        gd_compute<T> sum = d.bias ? gd_load(d.bias[c]) : gd_compute<T>(0);
        for (int64_t i = 0; i < s.KH; i++) {
            const int64_t down = h + s.padding[0] - i * s.dilation[0];
            const int64_t oh = s.stride[0] == 1 ? down : down / s.stride[0];
            if (down < 0 || oh >= s.OH || oh * s.stride[0] != down) continue;
            for (int64_t j = 0; j < s.KW; j++) {
                const int64_t across = w + s.padding[1] - j * s.dilation[1];
                const int64_t ow = s.stride[1] == 1 ? across : across / s.stride[1];
                if (across < 0 || ow >= s.OW || ow * s.stride[1] != across) continue;
                for (int o = 0; o < each; o++)
                    sum += gd_load(weight[(o * s.KH + i) * s.KW + j]) *
                           gd_load(other[o * P + oh * s.OW + ow]);
            }
        }
        d.image[e] = gd_store<T>(d.add ? gd_load(d.image[e]) + sum : sum);
    }
}

// parts [pieces, O, KH KW]: the sum for weight blockIdx.x of piece blockIdx.y of the B P positions.
template <class T, class V, class I>
static __global__ void __launch_bounds__(GD_DEPTHWISE_THREADS)
    gd_depthwise_dweight(gd_depthwise<T> d, V *parts, int64_t size)
{
    __shared__ V shared[32];
    const conv_sizes s = d.s;
    const int64_t P = s.OH * s.OW, K = s.KH * s.KW, o = blockIdx.x / K, k = blockIdx.x % K;
    const int64_t c = o / (s.O / s.C);
    const int64_t top = k / s.KW * s.dilation[0] - s.padding[0];
    const int64_t left = k % s.KW * s.dilation[1] - s.padding[1];
    const int64_t first = blockIdx.y * size, end = min(s.B * P, first + size);
    V sum = 0;
    for (int64_t e = first + threadIdx.x; e < end; e += GD_DEPTHWISE_THREADS) {
        const I b = (I)e / (I)P, p = (I)e - b * (I)P, oh = p / (I)s.OW;
        const int64_t h = (int64_t)oh * s.stride[0] + top;
        const int64_t w = (int64_t)(p - oh * (I)s.OW) * s.stride[1] + left;
        if (h < 0 || h >= s.H || w < 0 || w >= s.W) continue;
        sum += gd_load(d.other[((int64_t)b * s.O + o) * P + p]) *
               gd_load(d.image[(((int64_t)b * s.C + c) * s.H + h) * s.W + w]);
    }
    sum = gd_block_reduce(sum, shared, gd_plus());
    if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

#endif
