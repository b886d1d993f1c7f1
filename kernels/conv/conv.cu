// conv.cu - unfold and fold, and convolutions as matrix products (kernels/matmul/gemm.cuh).
// Unfolded columns are made in pieces of at most PIECE elements: several images, or some windows of
// one image (gather, dweight), or some channels of one image (scatter), so every element of the
// image is written once. Products of several images or groups are one batch.
#include "column_sum.cuh"
#include "conv/depthwise.cuh"
#include "conv/direct.cuh"
#include "cuda.cuh"
#include "matmul/gemm.cuh"
#include "reduce/reduce.cuh"

constexpr int per_thread = 4;
constexpr int64_t PIECE = (int64_t)1 << 24; // of 16 bits: they stay in the second level cache
constexpr int64_t WINDOWS = 256;            // a piece has at least so many of an image

// ---- unfold and fold ----------------------------------------------------------------------------

// The windows p0 to p1 of the columns [C KH KW, OH OW] of `planes` planes: the rows [planes KH KW,
// p1 - p0].
struct column_range {
    int64_t planes, p0, p1;
};

// A block has a tile of a plane's windows, a thread some of them, `gd_threads` apart: so the places
// of a window are found once for all KH KW rows. I: a type for places in a plane.
template <class T, class I>
static __global__ void unfold_kernel(T *to, const T *image, plane_sizes<I> s, column_range r,
                                     bool add)
{
    gd_in_turn();
    const int64_t n = r.p1 - r.p0,
                  first = blockIdx.x * (int64_t)(gd_threads * per_thread) + threadIdx.x;
    I top[per_thread], left[per_thread];
#pragma unroll
    for (int e = 0; e < per_thread; e++) {
        const I p = (I)(r.p0 + first) + e * gd_threads, oh = p / s.OW;
        top[e] = oh * s.stride[0] - s.padding[0];
        left[e] = (p - oh * s.OW) * s.stride[1] - s.padding[1];
    }
    const int count = (int)min((n - first + gd_threads - 1) / gd_threads, (int64_t)per_thread);
    gd_each_plane(c, r.planes)
    {
        const T *plane = image + c * s.H * s.W;
        T *row = to + c * s.KH * s.KW * n + first;
        for (I i = 0; i < s.KH; i++) {
            for (I j = 0; j < s.KW; j++, row += n) {
#pragma unroll
                for (int e = 0; e < per_thread; e++) {
                    if (e >= count) break;
                    const I h = top[e] + i * s.dilation[0], w = left[e] + j * s.dilation[1];
                    T value = gd_store<T>(gd_compute<T>(0));
                    if (h >= 0 && h < s.H && w >= 0 && w < s.W) value = plane[h * s.W + w];
                    if (add) value = gd_store<T>(gd_load(row[e * gd_threads]) + gd_load(value));
                    row[e * gd_threads] = value;
                }
            }
        }
    }
}

// How an image [planes, H, W] gets the sums of its columns [planes KH KW, OH OW].
template <class T>
struct fold_target {
    T *image;
    const T *bias; // of each of `channels` planes, or NULL
    int64_t planes, channels;
    bool add;
};

// A thread has an element of the image, and looks for the windows that it is in, in order. A block
// has a tile of a plane. S: the type of the columns.
template <class T, class S, class I>
static __global__ void fold_kernel(fold_target<T> t, const S *cols, plane_sizes<I> s)
{
    gd_in_turn();
    const I size = s.H * s.W, P = s.OH * s.OW, e = (I)blockIdx.x * gd_threads + (I)threadIdx.x;
    if (e >= size) return;
    const I h = e / s.W, w = e - h * s.W;
    gd_each_plane(plane, t.planes)
    {
        const S *from = cols + plane * s.KH * s.KW * P;
        gd_compute<T> sum = 0;
        for (I i = 0; i < s.KH; i++, from += (int64_t)s.KW * P) {
            const I down = h + s.padding[0] - i * s.dilation[0];
            const I oh = s.stride[0] == 1 ? down : down / s.stride[0];
            if (down < 0 || oh >= s.OH || oh * s.stride[0] != down) continue;
            const S *row = from + oh * s.OW;
            for (I j = 0; j < s.KW; j++, row += P) {
                const I across = w + s.padding[1] - j * s.dilation[1];
                const I ow = s.stride[1] == 1 ? across : across / s.stride[1];
                if (across < 0 || ow >= s.OW || ow * s.stride[1] != across) continue;
                sum += gd_load(row[ow]);
            }
        }
        if (t.bias) sum += gd_load(t.bias[plane % t.channels]);
        T *to = t.image + plane * size + e;
        *to = gd_store<T>(t.add ? gd_load(*to) + sum : sum);
    }
}

template <class T>
static gd_status unfold(const gd_call *call, T *to, const T *image, const conv_sizes &s,
                        const column_range &r, bool add)
{
    const gd_grid grid = gd_plane_grid(r.p1 - r.p0, gd_threads * per_thread, r.planes);
    return by_plane_sizes(s, [&](auto sizes) {
        return gd_launch(call, grid, unfold_kernel<T, decltype(sizes.H)>, to, image, sizes, r, add);
    });
}

template <class T, class S>
static gd_status fold(const gd_call *call, const fold_target<T> &t, const S *cols,
                      const conv_sizes &s)
{
    const gd_grid grid = gd_plane_grid(s.H * s.W, gd_threads, t.planes);
    return by_plane_sizes(s, [&](auto sizes) {
        return gd_launch(call, grid, fold_kernel<T, S, decltype(sizes.H)>, t, cols, sizes);
    });
}

// ---- The ops unfold and fold --------------------------------------------------------------------

template <class T>
static gd_status unfold_all(const gd_call *call, const gd_tensor *image, const gd_tensor *cols,
                            bool add)
{
    if (!cols) return GD_OK;
    const conv_sizes s = conv_sizes_of_columns((const conv_args *)call->args, image);
    const column_range all = {s.B * s.C, 0, conv_positions(&s)};
    return unfold<T>(call, gd_ptr<T>(cols), gd_ptr<T>(image), s, all, add);
}

template <class T>
static gd_status fold_all(const gd_call *call, const gd_tensor *image, const gd_tensor *cols,
                          bool add)
{
    if (!image) return GD_OK;
    const conv_sizes s = conv_sizes_of_columns((const conv_args *)call->args, image);
    const fold_target<T> all = {gd_ptr<T>(image), nullptr, s.B * s.C, s.C, add};
    return fold(call, all, gd_ptr<const T>(cols), s);
}

GD_CUDA_KERNEL_OF_T(unfold_forward, unfold_all<T>(call, call->input[0], call->output[0], false))
GD_CUDA_KERNEL_OF_T(unfold_backward,
                    fold_all<T>(call, call->dinput[0], call->doutput[0], call->accumulate[0]))
GD_CUDA_KERNEL_OF_T(fold_forward, fold_all<T>(call, call->output[0], call->input[0], false))
GD_CUDA_KERNEL_OF_T(fold_backward,
                    unfold_all<T>(call, call->doutput[0], call->dinput[0], call->accumulate[0]))

// ---- Products of images and groups --------------------------------------------------------------

// A matrix for each image and group: the first, and the steps from image to image and from group to
// group, in elements.
struct conv_matrix {
    gd_cuda_matrix first;
    int64_t step[2];
};

struct conv_product {
    gd_dtype dtype, c_dtype;
    int64_t M, N, K, count[2]; // of images and groups
    conv_matrix c = {}, a = {}, b = {};
    bool accumulate = false;
};

// Batches of images, one for each group, or of groups, one for each image: whichever are fewer.
static gd_status multiply(const gd_call *call, const conv_product &p, gd_gemm_workspace *workspace)
{
    const int in = p.count[0] < p.count[1]; // a batch is of images, or of groups
    for (int64_t i = 0; i < p.count[!in]; i++) {
        const auto at = [&](const conv_matrix &x, gd_dtype dtype) {
            const int64_t bytes = i * x.step[!in] * (int64_t)gd_dtype_size(dtype);
            return gd_cuda_matrix{(char *)x.first.data + bytes, x.first.row, x.first.column};
        };
        gd_gemm g = gd_gemm_of(p.dtype, p.M, p.N, p.K, at(p.c, p.c_dtype), at(p.a, p.dtype),
                               at(p.b, p.dtype), p.accumulate);
        g.c_dtype = p.c_dtype, g.batch = p.count[in];
        g.c_step = p.c.step[in], g.a_step = p.a.step[in], g.b_step = p.b.step[in];
        const gd_status status = gd_gemm_cuda(call, g, workspace);
        if (status) return status;
    }
    return GD_OK;
}

// rows [count, size] = bias[row % channels], or 0
template <class T>
static __global__ void begin_kernel(T *rows, const T *bias, int64_t count, int64_t size,
                                    int64_t channels)
{
    gd_in_turn();
    gd_each_plane(row, count)
    {
        T value[per_thread];
        const T begin = bias ? bias[row % channels] : gd_store<T>(gd_compute<T>(0));
        for (int e = 0; e < per_thread; e++) value[e] = begin;
        const int64_t pack = blockIdx.x * (int64_t)gd_threads + threadIdx.x;
        if (pack * per_thread < size)
            gd_store_guarded(rows + row * size, value, pack * per_thread, size);
    }
}

template <class T>
static gd_status begin_rows(const gd_call *call, T *rows, const T *bias, int64_t count,
                            int64_t size, int64_t channels)
{
    return gd_launch(call, gd_plane_grid(size, gd_threads * per_thread, count), begin_kernel<T>,
                     rows, bias, count, size, channels);
}

// One of the three products of a convolution.
template <class T>
struct conv_work {
    const gd_call *call;
    conv_sizes s;
    T *image, *other; // [B, C, H, W] and [B, O, OH, OW]
    T *weight;        // [O, C / groups, KH, KW]
    T *bias;          // of what is computed, or NULL
    bool add;
    gd_gemm_workspace workspace;
    int64_t O, K, P; // of a group: outputs, terms of a product; windows of an image

    // How many images a piece of so many elements has at most.
    int64_t images(int64_t piece) const
    {
        if (conv_is_pointwise(&s)) return gd_max64(1, s.B);
        const int64_t most = gd_max64(1, piece / gd_max64(1, s.C * s.KH * s.KW * P));
        return gd_max64(1, gd_ceil_div(s.B, gd_max64(1, gd_ceil_div(s.B, most)))); // equal pieces
    }
    // How many windows of one image a piece has at most.
    int64_t windows() const
    {
        if (conv_is_pointwise(&s)) return P;
        const int64_t size = gd_max64(1, s.C * s.KH * s.KW);
        return gd_min64(P, gd_max64(WINDOWS, PIECE / size / WINDOWS * WINDOWS));
    }
};

template <class T>
static conv_work<T> work_of(const gd_call *call, const gd_tensor *image, const gd_tensor *other)
{
    conv_work<T> w = {};
    w.call = call;
    w.s = conv_sizes_of(call, image, other);
    w.image = gd_ptr<T>(image);
    w.other = gd_ptr<T>(other);
    w.weight = gd_ptr<T>(call->input[1]);
    w.O = w.s.O / w.s.groups, w.K = conv_terms(&w.s), w.P = conv_positions(&w.s);
    return w;
}

// Calls body(b, n, p0, p1, columns) for all pieces: with the columns of images b to b + n, of at
// most `images`, windows p0 to p1: of each [C KH KW, p1 - p0].
template <class T, class Body>
static gd_status each_piece(const conv_work<T> &w, int64_t images, Body body)
{
    const conv_sizes &s = w.s;
    const bool point = conv_is_pointwise(&s);
    const int64_t rows = s.C * s.KH * s.KW, windows = w.windows();
    T *own = nullptr;
    if (!point) own = (T *)gd_call_scratch(w.call, (size_t)(images * rows * windows) * sizeof(T));
    gd_status status = point || own ? GD_OK : gd_error_status(w.call->context);
    for (int64_t b = 0; b < s.B && !status; b += images) {
        const int64_t n = gd_min64(images, s.B - b);
        T *const image = w.image + b * s.C * s.H * s.W;
        for (int64_t p0 = 0; p0 < w.P && !status; p0 += windows) {
            const int64_t p1 = gd_min64(w.P, p0 + windows), row = p1 - p0;
            if (!point) status = unfold<T>(w.call, own, image, s, {n * s.C, p0, p1}, false);
            const conv_matrix all = {{point ? image : own, row, 1}, {rows * row, w.K * row}};
            if (!status) status = body(b, n, p0, p1, all);
        }
    }
    return status;
}

// ---- Depthwise ----------------------------------------------------------------------------------

// The size of windows for which there are kernels, or 0.
static int window_of(const conv_sizes &s)
{
    for (int i = 0; i < 2; i++)
        if (s.stride[i] != 1 || s.dilation[i] != 1) return 0;
    return s.KH == s.KW && (s.KH == 3 || s.KH == 5 || s.KH == 7) ? (int)s.KH : 0;
}

// Calls body(K, sizes): in 32 bits, if these hold every place in both tensors, too.
template <class Body>
static gd_status by_window(const conv_sizes &s, Body body)
{
    const int K = window_of(s);
    const auto by_size = [&](auto sizes) {
        return K == 3   ? body(gd_number<3>(), sizes)
               : K == 5 ? body(gd_number<5>(), sizes)
               : K == 7 ? body(gd_number<7>(), sizes)
                        : body(gd_number<0>(), sizes);
    };
    const int64_t rows = gd_max64(s.H, s.OH) + gd_rows, columns = gd_max64(s.W, s.OW);
    const bool flat = is_flat(s) && s.B * s.O * rows * columns <= INT32_MAX;
    return flat ? by_size(plane_sizes<int32_t>(s)) : by_size(plane_sizes<int64_t>(s));
}

// Without a stride a scatter is a gather with turned windows.
template <bool SCATTER, class T>
static gd_status depthwise(const conv_work<T> &w, bool turned = false)
{
    const conv_sizes &s = w.s;
    const gd_depthwise<T> d = {
        s.B,    s.C,   s.O,   SCATTER ? w.other : w.image, w.weight, SCATTER ? w.image : w.other,
        w.bias, w.add, turned};
    if (SCATTER && s.O == s.C && window_of(s)) {
        conv_work<T> gather = w;
        gather.image = w.other, gather.other = w.image;
        gather.s.H = s.OH, gather.s.W = s.OW, gather.s.OH = s.H, gather.s.OW = s.W;
        for (int i = 0; i < 2; i++) gather.s.padding[i] = s.KH - 1 - s.padding[i];
        return depthwise<false>(gather, true);
    }
    const int64_t planes = s.B * (SCATTER ? s.C : s.O), W = SCATTER ? s.W : s.OW,
                  strips = gd_ceil_div(SCATTER ? s.H : s.OH, gd_rows);
    return by_window(s, [&](auto K, auto sizes) {
        constexpr int own = SCATTER ? 0 : (int)K;
        return gd_launch(w.call, gd_grid_for(planes * strips * W),
                         gd_depthwise_products<SCATTER, own, T, decltype(sizes.H)>, d, sizes);
    });
}

// ---- Without columns ----------------------------------------------------------------------------

// Whether a gather, or a scatter, is faster by direct.cuh, and does it. A block goes through all
// channels alone. On an H200 with 56 x 56, 28 x 28, 14 x 14 and 7 x 7 places of 64 to 512 channels
// two blocks for each multiprocessor took as long as columns, four half as long, and a half of one
// three times as long; with one term of a channel for each sum up to 1.6 times.
template <bool SCATTER, class T>
static bool direct(const conv_work<T> &w, gd_status *status)
{
    const conv_sizes &s = w.s;
    const int64_t G = s.groups, M = SCATTER ? s.C / G : w.O, C = SCATTER ? w.O : s.C / G;
    const int64_t K = s.KH * s.KW, step = DIRECT_STEP,
                  phases = SCATTER ? s.stride[0] * s.stride[1] : 1;
    const gd_cuda_limits limits = gd_cuda_device_limits();
    if (limits.code < 80 || !is_flat(s) || M < 16 || C < 1 || C % step || K > 64 ||
        K < 2 * phases || s.O * w.K > INT32_MAX || s.B < 1 || s.H * s.W < 1 || w.P < 1)
        return false;
    const plane_sizes<int> sizes(s);
    direct_axis y(sizes, 0, SCATTER, 0), x(sizes, 1, SCATTER, 0);
    y.taps = (int)gd_ceil_div(s.KH, abs(y.tap_by)), x.taps = (int)gd_ceil_div(s.KW, abs(x.tap_by));
    gd_direct<T> d = {};
    d.to = SCATTER ? w.image : w.other, d.from = SCATTER ? w.other : w.image, d.bias = w.bias;
    d.groups = (int)G, d.M = (int)M, d.C = (int)C, d.scatter = SCATTER, d.add = w.add;
    d.m_tiles = (int)gd_ceil_div(M, DIRECT_SIDE),
    d.across = (int)gd_ceil_div(x.count, DIRECT_PLACES);
    d.cols = (int)gd_ceil_div(x.count, d.across);
    d.rows = (int)gd_min64(y.count, DIRECT_PLACES / d.cols),
    d.down = (int)gd_ceil_div(y.count, d.rows);
    const int64_t reached = (int64_t)y.reached(d.rows) * x.reached(d.cols), // of the most taps
        shared = gd_max64(DIRECT_SUMS, (y.taps * x.taps * DIRECT_TAP + reached * 2) * 16);
    const int64_t blocks = s.B * G * d.m_tiles * d.down * d.across * phases;
    if (reached > 4096 || shared > limits.block_shared || blocks > INT32_MAX ||
        blocks < 2 * gd_cuda_plan_multiprocessors(&limits))
        return false;
    const int64_t by_m = SCATTER ? K : C * K, by_c = SCATTER ? M * K : K,
                  shape[] = {G, C / step, K, M, step},
                  to[] = {K * M * C, K * M * step, M * step, step, 1},
                  from[] = {K * M * C, step * by_c, 1, by_m, by_c};
    const gd_dtype dtype = w.call->kernel_dtype;
    void *const packed = gd_call_scratch(w.call, (size_t)(G * M * C * K) * sizeof(T));
    if (packed)
        gd_copy_cuda({packed, dtype, 5, shape, to}, {w.weight, dtype, 5, shape, from},
                     w.call->context);
    d.weight = (const uint4 *)packed;
    *status = gd_error_status(w.call->context);
    if (!*status)
        *status = gd_launch_large<gd_direct_products<T>>(
            w.call, {blocks, DIRECT_THREADS, (int)shared}, d, sizes);
    return true;
}

// ---- The three products -------------------------------------------------------------------------

// other (+)= weight unfold(image)
template <class T>
static gd_status gather(conv_work<T> w)
{
    if (conv_is_depthwise(&w.s)) return depthwise<false>(w);
    gd_status status;
    if constexpr (sizeof(T) == 2)
        if (direct<false>(w, &status)) return status;
    const conv_sizes &s = w.s;
    const int64_t O = w.O, K = w.K, P = w.P;
    const gd_dtype dtype = w.call->kernel_dtype;
    if (w.bias && begin_rows<T>(w.call, w.other, w.bias, s.B * s.O, P, s.O))
        return gd_error_status(w.call->context);
    const auto piece = [&](int64_t b, int64_t n, int64_t p0, int64_t p1,
                           const conv_matrix &columns) {
        conv_product p = {dtype, dtype, O, p1 - p0, K, {n, s.groups}};
        p.c = {{w.other + b * s.O * P + p0, P, 1}, {s.O * P, O * P}};
        p.a = {{w.weight, K, 1}, {0, O * K}}, p.b = columns;
        p.accumulate = w.add || w.bias;
        return multiply(w.call, p, &w.workspace);
    };
    return each_piece(w, w.images(PIECE), piece);
}

// image (+)= fold(weight^T other)
template <class T>
static gd_status scatter(conv_work<T> w)
{
    using V = gd_compute<T>;
    if (conv_is_depthwise(&w.s)) return depthwise<true>(w);
    gd_status status;
    if constexpr (sizeof(T) == 2)
        if (direct<true>(w, &status)) return status;
    const conv_sizes &s = w.s;
    const int64_t O = w.O, K = w.K, P = w.P, window = s.KH * s.KW, C = s.C / s.groups;
    const int64_t channel = gd_max64(1, window * P),
                  images = w.images(PIECE / 2); // their columns are float32: as many bytes
    const bool point = conv_is_pointwise(&s), whole = point || s.C * channel <= PIECE;
    const int64_t channels = whole ? C : gd_max64(1, gd_min64(C, PIECE / channel));
    const int64_t groups = whole ? s.groups : 1;
    // For 16 bits they are float32, so that a sum is rounded once.
    const int64_t size = images * groups * channels * channel;
    V *const columns = point ? nullptr : (V *)gd_call_scratch(w.call, (size_t)size * sizeof(V));
    status = point || columns ? GD_OK : gd_error_status(w.call->context);
    if (point && w.bias && !status)
        status = begin_rows<T>(w.call, w.image, w.bias, s.B * s.C, s.H * s.W, s.C);
    for (int64_t b = 0; b < s.B && !status; b += images) {
        const int64_t n = gd_min64(images, s.B - b);
        for (int64_t g = 0; g < s.groups && !status; g += groups) {
            for (int64_t c = 0; c < C && !status; c += channels) {
                const int64_t rows = gd_min64(channels, C - c) * window, first = g * C + c;
                const gd_dtype dtype = w.call->kernel_dtype;
                const gd_dtype sums = sizeof(V) == 8 ? GD_FLOAT64 : GD_FLOAT32;
                conv_product p = {dtype, point ? dtype : sums, rows, P, O, {n, groups}};
                p.c = {{columns, P, 1}, {groups * rows * P, rows * P}};
                p.a = {{w.weight + g * O * K + c * window, 1, K}, {0, O * K}};
                p.b = {{w.other + (b * s.O + g * O) * P, P, 1}, {s.O * P, O * P}};
                T *image = w.image + (b * s.C + first) * s.H * s.W;
                if (point) p.c = {{image, P, 1}, {s.C * P, C * P}}, p.accumulate = w.add || w.bias;
                status = multiply(w.call, p, &w.workspace);
                if (status || point) continue;
                const int64_t planes = n * groups * rows / window;
                const fold_target<T> to = {image, w.bias ? w.bias + first : nullptr, planes,
                                           whole ? s.C : planes, w.add};
                status = fold(w.call, to, columns, s);
            }
        }
    }
    return status;
}

// to [n] (+)= the sum of parts [count, n] over its rows
template <class V>
static gd_status add_parts(const gd_call *call, const gd_sum_place &to, const V *parts,
                           int64_t count, int64_t n)
{
    if (n == 0) return GD_OK;
    return gd_launched(call, gd_sum_partials(to, parts, count, n, gd_stream(call)));
}

// Where the gradient of input i goes.
static gd_sum_place gradient_of(const gd_call *call, int i)
{
    const gd_tensor *dx = call->dinput[i];
    return {gd_tensor_data(dx), gd_tensor_dtype(dx), call->accumulate[i]};
}

template <class T>
static gd_status depthwise_dweight(const conv_work<T> &w)
{
    using V = gd_compute<T>;
    const int64_t weights = w.s.O * w.K, pieces = gd_min64(256, gd_ceil_div(w.s.B * w.P, 8192));
    V *parts = (V *)gd_call_scratch(w.call, (size_t)(pieces * weights) * sizeof(V));
    if (!parts) return gd_error_status(w.call->context);
    const gd_depthwise<T> d = {w.s.B,   w.s.C,   w.s.O, w.image, nullptr,
                               w.other, nullptr, false, false};
    const gd_status status = by_window(w.s, [&](auto K, auto sizes) {
        const int64_t blocks = w.s.O * gd_ceil_div(w.K, gd_some_weights<K>);
        return gd_launch(w.call, {{(unsigned)blocks, (unsigned)pieces}, gd_threads},
                         gd_depthwise_dweight<K, T, V, decltype(sizes.H)>, d, sizes, parts);
    });
    return status ? status : add_parts(w.call, gradient_of(w.call, 1), parts, pieces, weights);
}

// dweight (+)= other unfold(image)^T: of each image of a piece a sum of its own; these are added.
template <class T>
static gd_status dweight(conv_work<T> w)
{
    using V = gd_compute<T>;
    const conv_sizes &s = w.s;
    if (conv_is_depthwise(&s)) return depthwise_dweight(w);
    const int64_t O = w.O, K = w.K, P = w.P, size = s.O * K;
    const int64_t images = gd_max64(1, gd_min64(PIECE / gd_max64(1, size), w.images(PIECE)));
    V *parts = (V *)gd_call_scratch(w.call, (size_t)((images + 1) * size) * sizeof(V));
    if (!parts) return gd_error_status(w.call->context);
    V *total = parts + images * size;
    const gd_dtype sums = sizeof(V) == 8 ? GD_FLOAT64 : GD_FLOAT32;
    gd_sum_place to = {total, sums, false};
    const auto piece = [&](int64_t b, int64_t n, int64_t p0, int64_t p1,
                           const conv_matrix &columns) {
        conv_product p = {w.call->kernel_dtype, sums, O, K, p1 - p0, {n, s.groups}};
        p.c = {{parts, K, 1}, {size, O * K}};
        p.a = {{w.other + b * s.O * P + p0, P, 1}, {s.O * P, O * P}}, p.b = columns;
        p.b.first = gd_transposed(columns.first);
        gd_status status = multiply(w.call, p, &w.workspace);
        if (!status) status = add_parts(w.call, to, parts, n, size);
        to.accumulate = true;
        return status;
    };
    const gd_status status = each_piece(w, images, piece);
    if (status) return status;
    return add_parts(w.call, gradient_of(w.call, 1), total, to.accumulate ? 1 : 0, size);
}

// ---- dbias (+)= the sum of dy over images and positions -----------------------------------------

template <class T>
static gd_status dbias(const gd_call *call)
{
    const gd_tensor *dy = call->doutput[0], *db = call->dinput[2];
    const int64_t shape[] = {1, gd_tensor_dim(dy, 1), 1, 1}, along_channels[] = {0, 1, 0, 0};
    return gd_by_gradient<T>(db, [&](auto zero) {
        using G = decltype(zero);
        const gd_layout to = {gd_tensor_data(db), gd_tensor_dtype(db), 4, shape, along_channels};
        return gd_cuda_reduce<T>(call, gd_ptr<G>(db), call->accumulate[2], to, dy,
                                 {gd_cuda_layout(dy)}, gd_sum_of<gd_compute<T>, gd_itself>{});
    });
}

// ---- The ops conv2d and conv_transpose2d --------------------------------------------------------

// The forward of conv_transpose2d (`transposed`) is the gradient of conv2d by its image, and the
// other way round: what is the image of one is the other side of the other.
template <class T>
static gd_status conv_forward(const gd_call *call, bool transposed)
{
    const gd_tensor *x = call->input[0], *y = call->output[0];
    conv_work<T> w = work_of<T>(call, transposed ? y : x, transposed ? x : y);
    w.bias = gd_ptr<T>(call->input[2]);
    return transposed ? scatter(w) : gather(w);
}

template <class T>
static gd_status conv_backward(const gd_call *call, bool transposed)
{
    const gd_tensor *x = call->input[0], *dx = call->dinput[0], *dy = call->doutput[0];
    gd_status status = GD_OK;
    if (dx) {
        conv_work<T> w = work_of<T>(call, transposed ? dy : dx, transposed ? dx : dy);
        w.add = call->accumulate[0];
        status = transposed ? gather(w) : scatter(w);
    }
    if (call->dinput[1] && !status)
        status = dweight(work_of<T>(call, transposed ? dy : x, transposed ? x : dy));
    if (call->dinput[2] && !status) status = dbias<T>(call);
    return status;
}

GD_CUDA_KERNEL_OF_T(conv2d_forward, conv_forward<T>(call, false))

/* dx, dw and db are [conv2d dx], [conv2d dw] and [conv2d db] in plain_cpu.c. */
GD_CUDA_KERNEL_OF_T(conv2d_backward, conv_backward<T>(call, false))
GD_CUDA_KERNEL_OF_T(conv_transpose2d_forward, conv_forward<T>(call, true))

/* dx, dw and db are [conv_transpose2d dx], [conv_transpose2d dw] and [conv_transpose2d db] in
 * plain_cpu.c. */
GD_CUDA_KERNEL_OF_T(conv_transpose2d_backward, conv_backward<T>(call, true))
