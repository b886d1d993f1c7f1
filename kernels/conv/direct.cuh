// direct.cuh - convolutions of 16 bits on tensor cores, without columns.
//
// A block makes a tile of a result: SIDE channels of PLACES places, which are a rectangle of a
// plane. It goes through the channels of the source by STEP: the part of their planes that the
// tile's windows reach lies in shared memory, a place's channels side by side. So the factor of an
// element (i, j) of the windows is the same memory from another place on, and is read from global
// memory once for all of them. The weights are packed beforehand as tiles read them. In a scatter,
// elements of the result whose places differ by multiples of the stride are a phase, whose sums are
// a gather's.
#ifndef GD_DIRECT_CUH
#define GD_DIRECT_CUH

#include "conv/depthwise.cuh"
#include "mma.cuh"

constexpr int DIRECT_SIDE = 64, DIRECT_STEP = 16;         // channels of the result, of the source
constexpr int DIRECT_PLACES = 128, DIRECT_THREADS = 128;  // of a tile; a place for a thread
constexpr int DIRECT_ROW = DIRECT_PLACES + 8;             // of sums in shared memory, no conflicts
constexpr int DIRECT_SUMS = DIRECT_SIDE * DIRECT_ROW * 4; // bytes
constexpr int DIRECT_TAP = DIRECT_SIDE * DIRECT_STEP / 8; // packs of the weights of an element

// A phase along an axis: the elements first, first + by, ... of the result, `count` of them, are
// sums over elements tap, tap + tap_by, ... of a window, of which there are `taps`. Number n's
// first term is at n * move + from in the source, the next `reach` further.
struct direct_axis {
    int count, first, by, tap, taps, tap_by, from, move, reach;

    __host__ __device__ direct_axis(const plane_sizes<int> &s, int axis, bool scatter, int phase)
        : count(axis ? s.OW : s.OH), first(0), by(1), tap(0), taps(axis ? s.KW : s.KH), tap_by(1),
          from(-s.padding[axis]), move(s.stride[axis]), reach(s.dilation[axis])
    {
        if (!scatter) return;
        const int stride = move, step = reach, K = taps;
        while (tap < K && (phase + s.padding[axis] - tap * step) % stride != 0) tap++;
        while (tap_by * step % stride != 0) tap_by++;
        taps = (K - tap + tap_by - 1) / tap_by;
        tap += (taps - 1) * tap_by; // the last is the first in the source
        from = (phase + s.padding[axis] - tap * step) / stride, reach = tap_by * step / stride;
        count = ((axis ? s.W : s.H) - phase + stride - 1) / stride;
        first = phase, by = stride, tap_by = -tap_by, move = 1;
    }
    // The places of the source for n of the result.
    __host__ __device__ int reached(int n) const
    {
        return (n - 1) * move + max(0, taps - 1) * reach + 1;
    }
};

// A result of `groups` groups of M channels, from a source of groups of C channels.
template <class T>
struct gd_direct {
    T *to;
    const T *from, *bias;
    const uint4 *weight; // [groups, C / STEP, KH KW, M, STEP], in packs of 8
    int groups, M, C, m_tiles;
    int rows, cols, down, across; // of a tile; tiles
    bool scatter, add;
};

// Where half of the channels of a place is: eight neighbours use all banks.
static __device__ inline int direct_half(int place, int half)
{
    return place * 2 + (half ^ (place >> 2 & 1));
}

template <class T>
static __global__ void GD_LAUNCH_BOUNDS(DIRECT_THREADS, 4)
    gd_direct_products(gd_direct<T> d, plane_sizes<int> s)
{
    using F = std::conditional_t<std::is_same_v<T, __half>, gd_mma::f16, gd_mma::bf16>;
    gd_in_turn();
    extern __shared__ uint4 gd_direct_shared[];
    unsigned rest = blockIdx.x;
    const auto next = [&](int n) {
        const unsigned i = rest % (unsigned)n;
        return rest /= (unsigned)n, (int)i;
    };
    const direct_axis y(s, 0, d.scatter, next(d.scatter ? s.stride[0] : 1)),
        x(s, 1, d.scatter, next(d.scatter ? s.stride[1] : 1));
    const int first_m = next(d.m_tiles) * DIRECT_SIDE, h0 = next(d.down) * d.rows,
              w0 = next(d.across) * d.cols, group = next(d.groups);
    if (h0 >= y.count || w0 >= x.count) return;

    // The source's part: from (top, left) on.
    const int H = d.scatter ? s.OH : s.H, W = d.scatter ? s.OW : s.W;
    const int width = x.reached(d.cols), places = y.reached(d.rows) * width;
    const int top = h0 * y.move + y.from, left = w0 * x.move + x.from;
    const T *from = d.from + ((int64_t)rest * d.groups + group) * d.C * H * W;
    const int taps = y.taps * x.taps, K = s.KH * s.KW, thread = (int)threadIdx.x;
    uint4 *const source = gd_direct_shared + taps * DIRECT_TAP;
    const uint32_t weights = gd_async::shared_address(gd_direct_shared);

    // This lane's rows of what ldmatrix reads: of B two places.
    const int warp = thread / 32, lane = thread % 32;
    int place[2];
    for (int i = 0; i < 2; i++) {
        int n = warp * 32 + i * 16 + lane % 8 + (lane & 16) / 2;
        if (n >= d.rows * d.cols) n = 0; // whose sum nobody reads
        place[i] = n / d.cols * y.move * width + n % d.cols * x.move;
    }
    float sum[4][4][4] = {};
    const int own = thread / 2; // row of a tap's weights
    const uint4 *weight =
        d.weight + (int64_t)group * d.C * K * d.M / 8 + 2 * (first_m + own) + thread % 2;
    for (int c = 0; c < d.C; c += DIRECT_STEP, weight += (int64_t)K * d.M * 2) {
        for (int t = 0; t < taps; t++) {
            const int i = t / x.taps, j = t - i * x.taps;
            const int k = (y.tap + i * y.tap_by) * s.KW + x.tap + j * x.tap_by;
            gd_async::copy_16(weights + (t * DIRECT_TAP + direct_half(own, thread % 2)) * 16,
                              weight + (int64_t)k * d.M * 2, first_m + own < d.M);
        }
        for (int first = thread; first < 2 * places; first += 4 * DIRECT_THREADS) {
            gd_pack<T, 8> pack[4]; // all loads are under way before the first is stored
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int e = first + k * DIRECT_THREADS, half = e >= places;
                const int h = top + (e - half * places) / width,
                          w = left + (e - half * places) % width;
                const bool inside = e < 2 * places && h >= 0 && h < H && w >= 0 && w < W;
                const T *at = from + ((int64_t)(c + half * 8) * H + h) * W + w;
#pragma unroll
                for (int v = 0; v < 8; v++)
                    pack[k][v] = inside ? at[v * (int64_t)(H * W)] : T(0.0f);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int e = first + k * DIRECT_THREADS, half = e >= places;
                if (e < 2 * places)
                    pack[k].store((T *)source, direct_half(e - half * places, half));
            }
        }
        gd_async::copy_wait_all();
        __syncthreads();
        for (int t = 0; t < taps; t++) {
            const int i = t / x.taps, further = i * y.reach * width + (t - i * x.taps) * x.reach;
            uint32_t a[4][4], b[2][4];
#pragma unroll
            for (int n = 0; n < 2; n++)
                gd_mma::ldmatrix(b[n], source + direct_half(place[n] + further, lane >> 3 & 1));
#pragma unroll
            for (int m = 0; m < 4; m++)
                gd_mma::ldmatrix(a[m], gd_direct_shared + t * DIRECT_TAP +
                                           direct_half(m * 16 + lane % 16, lane >> 4));
#pragma unroll
            for (int m = 0; m < 4; m++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    gd_mma::mma(F(), sum[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
        __syncthreads();
    }

    // The sums go by shared memory to threads that have a place each.
    float *const sums = (float *)gd_direct_shared;
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[(m * 16 + lane / 4 + e / 2 * 8) * DIRECT_ROW + warp * 32 + n * 8 +
                     lane % 4 * 2 + e % 2] = sum[m][n][e];
    __syncthreads();
    const int row = thread / d.cols, h = h0 + row, w = w0 + thread % d.cols;
    if (row >= d.rows || h >= y.count || w >= x.count) return;
    const int64_t plane = d.scatter ? (int64_t)s.H * s.W : (int64_t)s.OH * s.OW;
    const int64_t channel = (int64_t)group * d.M + first_m;
    T *to = d.to + ((int64_t)rest * d.groups * d.M + channel) * plane +
            (int64_t)(y.first + h * y.by) * (d.scatter ? s.W : s.OW) + x.first + w * x.by;
    const int most = min(DIRECT_SIDE, d.M - first_m);
#pragma unroll 8
    for (int m = 0; m < most; m++, to += plane) {
        float value = sums[m * DIRECT_ROW + thread];
        if (d.bias) value += gd_load(d.bias[channel + m]);
        *to = gd_store<T>(d.add ? gd_load(*to) + value : value);
    }
}

#endif
