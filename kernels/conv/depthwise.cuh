// depthwise.cuh - convolutions whose groups have one channel: no columns and no products of
// matrices. A thread sums the products of some elements of a column of y, or of dx; a block those
// of some weights, over a piece of the positions of all images. K: the rows and columns of windows
// with stride and dilation 1, for which the compiler sees what elements share; 0: any others.
#ifndef GD_DEPTHWISE_CUH
#define GD_DEPTHWISE_CUH

#include "conv/conv.h"
#include "cuda.cuh"
#include "planes.cuh"
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
    const T *from, *weight; // an image [B, C, H, W], or the other side [B, O, OH, OW]; [O, KH, KW]
    T *to;                  // the one that `from` is not
    const T *bias;          // of `to`, or NULL
    bool add, turned;       // the weights of a window are in reverse order
};

// The place in its source of what term i adds to element `at` of a result, or -1: that of the image
// to element `at` of the other side, or, if SCATTER, that of the other side to the image.
template <bool SCATTER, int K, class I>
__device__ inline I gd_term_place(const plane_sizes<I> &s, int axis, I at, I i)
{
    const I stride = K ? 1 : s.stride[axis], step = K ? i : i * s.dilation[axis];
    const I padding = s.padding[axis], H = SCATTER ? s.OH : s.H, W = SCATTER ? s.OW : s.W;
    const I from = SCATTER ? at + padding - step : at * stride - padding + step;
    const I place = SCATTER && stride != 1 ? from / stride : from;
    const bool between = SCATTER && place * stride != from;
    return from < 0 || place >= (axis ? W : H) || between ? -1 : place;
}

constexpr int gd_rows = 8; // of a column, of a thread

// The element at (h, w) of a plane; 0 if there is none. The load is unconditional, so that the
// compiler can use it for several terms; a plane without elements must not come here.
template <class T, class I>
__device__ inline gd_compute<T> gd_plane_element(const T *plane, I W, I h, I w)
{
    const gd_compute<T> x = gd_load(plane[max(h, (I)0) * W + max(w, (I)0)]);
    return h < 0 || w < 0 ? gd_compute<T>(0) : x;
}

// to (+)= weight unfold(from), or, if SCATTER, fold(weight^T from). I: a type for places in
// tensors.
template <bool SCATTER, int K, class T, class I>
static __global__ void __launch_bounds__(gd_threads)
    gd_depthwise_products(gd_depthwise<T> d, plane_sizes<I> s)
{
    gd_in_turn();
    const I H = SCATTER ? s.H : s.OH, W = SCATTER ? s.W : s.OW, KH = K ? K : s.KH;
    const I from_W = SCATTER ? s.OW : s.W, KW = K ? K : s.KW, strips = (H + gd_rows - 1) / gd_rows;
    const I from_size = SCATTER ? s.OH * s.OW : s.H * s.W;
    const I channels = (I)(SCATTER ? d.C : d.O), each = (I)(d.O / d.C); // outputs of a channel
    GD_EACH(e, d.B * channels * strips * W)
    {
        const gd_plane_place<std::make_unsigned_t<I>> at(e, strips, W);
        const I plane = at.plane, channel = plane % channels, first = at.row * gd_rows,
                col = at.col;
        gd_compute<T> sum[gd_rows] = {};
        for (I k = 0; k < (SCATTER ? each : 1) && from_size > 0; k++) {
            const T *from = d.from + (SCATTER ? plane * each + k : plane / each) * from_size;
            const T *weight = d.weight + (SCATTER ? channel * each + k : channel) * KH * KW;
#pragma unroll(K ? K : 1)
            for (I i = 0; i < KH; i++) {
#pragma unroll(K ? K : 1)
                for (I j = 0; j < KW; j++) {
                    const I own = i * KW + j, place = d.turned ? KH * KW - 1 - own : own;
                    const gd_compute<T> factor = gd_load(weight[place]);
                    const I w = gd_term_place<SCATTER, K>(s, 1, col, j);
#pragma unroll
                    for (int r = 0; r < gd_rows; r++) {
                        const I h = gd_term_place<SCATTER, K>(s, 0, first + r, i);
                        sum[r] += factor * gd_plane_element(from, from_W, h, w);
                    }
                }
            }
        }
        const gd_compute<T> bias = d.bias ? gd_load(d.bias[channel]) : gd_compute<T>(0);
        T *to = d.to + (plane * H + first) * W + col;
#pragma unroll
        for (int r = 0; r < gd_rows; r++) {
            if (first + r >= H) break;
            to[r * W] = gd_store<T>(sum[r] + (d.add ? gd_load(to[r * W]) : bias));
        }
    }
}

// parts [pieces, O, KH KW]: the sums for some weights of an output, of piece blockIdx.y of the
// strips of gd_rows positions of all images.
template <int K>
constexpr int gd_some_weights = K ? K *K : 9;

template <int K, class T, class V, class I>
static __global__ void __launch_bounds__(gd_threads)
    gd_depthwise_dweight(gd_depthwise<T> d, plane_sizes<I> s, V *parts)
{
    gd_in_turn();
    constexpr int N = gd_some_weights<K>;
    __shared__ V shared[gd_threads / 32][N];
    const I KW = K ? K : s.KW, weights = K ? K * K : s.KH * s.KW, blocks = (weights + N - 1) / N;
    const I begin = (I)(blockIdx.x % blocks) * N, P = (s.OH + gd_rows - 1) / gd_rows * s.OW;
    const int64_t o = blockIdx.x / blocks, c = o / (d.O / d.C), n = s.H * s.W > 0 ? d.B * P : 0;
    const int64_t first = n * blockIdx.y / gridDim.y + threadIdx.x;
    int64_t b = first / P, p = first - b * P;
    V sum[N] = {};
    for (int64_t e = first; e < n * (blockIdx.y + 1) / gridDim.y; e += gd_threads) {
        const I row = (I)p / s.OW * gd_rows, col = (I)p % s.OW;
        const T *from = d.from + (b * d.C + c) * s.H * s.W;
        const T *to = d.to + ((b * d.O + o) * s.OH + row) * s.OW + col;
        V dy[gd_rows];
#pragma unroll
        for (int r = 0; r < gd_rows; r++) dy[r] = row + r < s.OH ? gd_load(to[r * s.OW]) : V(0);
        I i = begin / KW, j = begin % KW;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const I w = gd_term_place<false, K>(s, 1, col, j);
#pragma unroll
            for (int r = 0; r < gd_rows; r++) {
                const I h = gd_term_place<false, K>(s, 0, row + r, i);
                const V x = gd_plane_element(from, s.W, h, w);
                sum[k] += dy[r] * (row + r < s.OH ? x : V(0)); // x may be infinite
            }
            if (++j == KW) j = 0, i++;
        }
        for (p += gd_threads; p >= P; p -= P) b++;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        const V all = gd_sum(sum[k]);
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32][k] = all;
    }
    __syncthreads();
    const I k = begin + (I)threadIdx.x;
    if (threadIdx.x >= N || k >= weights) return;
    V all = 0;
    for (int w = 0; w < gd_threads / 32; w++) all += shared[w][threadIdx.x];
    parts[(blockIdx.y * d.O + o) * weights + k] = all;
}

#endif
