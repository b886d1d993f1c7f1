// depthwise.cuh - convolutions whose groups have one channel: no columns and no products of matrices.
// A thread sums the products of one element of y, or of dx; a block those of one weight, over a piece
// of the positions of all images. I: a type for places in a plane.
#ifndef GD_DEPTHWISE_CUH
#define GD_DEPTHWISE_CUH

#include "conv/conv.h"
#include "cuda.cuh"
#include "team.cuh"

// The sizes that the inner loops read, in a type that holds every place in a plane.
template <class I>
struct plane_sizes {
    I H, W, OH, OW, KH, KW, stride[2], padding[2], dilation[2];

    explicit plane_sizes(const conv_sizes &s)
        : H((I)s.H), W((I)s.W), OH((I)s.OH), OW((I)s.OW), KH((I)s.KH),
          KW((I)s.KW), stride{(I)s.stride[0], (I)s.stride[1]},
          padding{(I)s.padding[0], (I)s.padding[1]}, dilation{(I)s.dilation[0], (I)s.dilation[1]}
    {
    }
};

// Whether 32 bits hold every place in a plane, with its padding, and every number between.
static inline bool is_flat(const conv_sizes &s)
{
    const int64_t H = s.H + 2 * s.padding[0] + s.stride[0],
                  W = s.W + 2 * s.padding[1] + s.stride[1];
    return H < (1 << 28) && W < (1 << 28) && s.H * s.W <= INT32_MAX - 256 &&
           s.OH * s.OW <= INT32_MAX - 256 && s.KH * s.KW <= INT32_MAX;
}

// Calls body with the sizes in 32 bits where that is so, else in 64.
template <class Body>
static gd_status by_plane_sizes(const conv_sizes &s, Body body)
{
    return is_flat(s) ? body(plane_sizes<int32_t>(s)) : body(plane_sizes<int64_t>(s));
}

// Blocks of 256 threads for tiles of planes of n elements: those of a plane side by side, and all
// planes, or as many as a grid has rows of blocks; gd_each_plane(plane, planes) takes the others.
static inline gd_grid gd_plane_grid(int64_t n, int64_t tile, int64_t planes)
{
    const int64_t most = 65535;
    return {{(unsigned)gd_ceil_div(n, tile), (unsigned)(planes < most ? planes : most)}, 256};
}
#define gd_each_plane(plane, planes) \
    for (int64_t plane = blockIdx.y; plane < (planes); plane += gridDim.y)

// What a kernel works on: all but what it computes is only read.
template <class T>
struct gd_depthwise {
    int64_t B, C, O;
    T *image, *other; // [B, C, H, W] and [B, O, OH, OW]
    const T *weight;  // [O, KH, KW]
    const T *bias;    // of what is computed, or NULL
    bool add;
};

// other (+)= weight unfold(image). A block has a tile of a plane.
template <class T, class I>
static __global__ void __launch_bounds__(gd_threads)
    gd_depthwise_gather(gd_depthwise<T> d, plane_sizes<I> s)
{
    gd_in_turn();
    const I P = s.OH * s.OW;
    const I p = (I)blockIdx.x * gd_threads + (I)threadIdx.x;
    if (p >= P) return;
    const I oh = p / s.OW, top = oh * s.stride[0] - s.padding[0];
    const I left = (p - oh * s.OW) * s.stride[1] - s.padding[1];
    gd_each_plane(plane, d.B * d.O)
    {
        const int64_t b = plane / d.O, o = plane - b * d.O;
        const T *image = d.image + (b * d.C + o / (d.O / d.C)) * s.H * s.W;
        const T *weight = d.weight + o * s.KH * s.KW;
        gd_compute<T> sum = d.bias ? gd_load(d.bias[o]) : gd_compute<T>(0);
        for (I i = 0; i < s.KH; i++, weight += s.KW) {
            const I h = top + i * s.dilation[0];
            if (h < 0 || h >= s.H) continue;
            for (I j = 0; j < s.KW; j++) {
                const I w = left + j * s.dilation[1];
                if (w >= 0 && w < s.W) sum += gd_load(weight[j]) * gd_load(image[h * s.W + w]);
            }
        }
        T *to = d.other + plane * P + p;
        *to = gd_store<T>(d.add ? gd_load(*to) + sum : sum);
    }
}

// image (+)= fold(weight^T other). A block has a tile of a plane.
template <class T, class I>
static __global__ void __launch_bounds__(gd_threads)
    gd_depthwise_scatter(gd_depthwise<T> d, plane_sizes<I> s)
{
    gd_in_turn();
    const int each = (int)(d.O / d.C); // outputs of a channel
    const I size = s.H * s.W, P = s.OH * s.OW, K = s.KH * s.KW;
    const I e = (I)blockIdx.x * gd_threads + (I)threadIdx.x;
    if (e >= size) return;
    const I h = e / s.W, w = e - h * s.W;
    gd_each_plane(plane, d.B * d.C)
    {
        const int64_t b = plane / d.C, c = plane - b * d.C;
        const T *other = d.other + (b * d.O + c * each) * P, *weight = d.weight + c * each * K;
        gd_compute<T> sum = d.bias ? gd_load(d.bias[c]) : gd_compute<T>(0);
        for (I i = 0; i < s.KH; i++) {
            const I down = h + s.padding[0] - i * s.dilation[0];
            const I oh = s.stride[0] == 1 ? down : down / s.stride[0];
            if (down < 0 || oh >= s.OH || oh * s.stride[0] != down) continue;
            for (I j = 0; j < s.KW; j++) {
                const I across = w + s.padding[1] - j * s.dilation[1];
                const I ow = s.stride[1] == 1 ? across : across / s.stride[1];
                if (across < 0 || ow >= s.OW || ow * s.stride[1] != across) continue;
                for (int o = 0; o < each; o++)
                    sum += gd_load(weight[o * (int64_t)K + i * s.KW + j]) *
                           gd_load(other[o * (int64_t)P + oh * s.OW + ow]);
            }
        }
        T *to = d.image + plane * size + e;
        *to = gd_store<T>(d.add ? gd_load(*to) + sum : sum);
    }
}

// parts [pieces, O, KH KW]: the sum for weight blockIdx.x of piece blockIdx.y of the B P positions.
template <class T, class V, class I>
static __global__ void __launch_bounds__(gd_threads)
    gd_depthwise_dweight(gd_depthwise<T> d, plane_sizes<I> s, V *parts, int64_t size)
{
    gd_in_turn();
    __shared__ V shared[32];
    const I P = s.OH * s.OW, K = s.KH * s.KW, k = (I)(blockIdx.x % K);
    const int64_t o = blockIdx.x / K, c = o / (d.O / d.C);
    const I top = k / s.KW * s.dilation[0] - s.padding[0];
    const I left = k % s.KW * s.dilation[1] - s.padding[1];
    const int64_t first = blockIdx.y * size, end = min(d.B * P, first + size);
    int64_t b = (first + threadIdx.x) / P, p = first + threadIdx.x - b * P;
    V sum = 0;
    for (int64_t e = first + threadIdx.x; e < end; e += gd_threads) {
        const I oh = (I)p / s.OW, h = oh * s.stride[0] + top;
        const I w = ((I)p - oh * s.OW) * s.stride[1] + left;
        if (h >= 0 && h < s.H && w >= 0 && w < s.W) {
            sum += gd_load(d.other[(b * d.O + o) * P + p]) *
                   gd_load(d.image[(b * d.C + c) * s.H * s.W + h * s.W + w]);
        }
        for (p += gd_threads; p >= P; p -= P) b++;
    }
    sum = gd_sum(sum, shared);
    if (threadIdx.x == 0) parts[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

#endif
