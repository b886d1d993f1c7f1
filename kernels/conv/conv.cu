// conv.cu - unfold and fold, and convolutions as matrix products (kernels/matmul/gemm.cuh). Unfolded columns
// are made in pieces of at most PIECE elements: several images, or some windows of one image (gather,
// dweight), or some channels of one image (scatter), so every element of the image is written once.
// Products of several images or groups are one batch.
#include "channel_sum.cuh"
#include "column_sum.cuh"
#include "conv/depthwise.cuh"
#include "cuda.cuh"
#include "matmul/gemm.cuh"

constexpr int per_thread = 4;
constexpr int64_t PIECE = (int64_t)1 << 24; // of 16 bits: they stay in the second level cache
constexpr int64_t WINDOWS = 256;            // a piece has at least so many of an image

// ---- unfold and fold ----------------------------------------------------------------------------

// The windows p0 to p1 of the columns [C KH KW, OH OW] of `planes` planes: the rows [planes KH KW,
// p1 - p0].
struct column_range {
    int64_t planes, p0, p1;
};

// A block has a tile of a plane's windows, a thread some of them, `gd_threads` apart: so the places of a
// window are found once for all KH KW rows. I: a type for places in a plane.
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

// A thread has an element of the image, and looks for the windows that it is in, in order. A block has
// a tile of a plane. S: the type of the columns.
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

// A matrix for each image and group.
struct conv_matrix {
    gd_cuda_matrix first;
    int64_t image_step, group_step; // in elements
};

struct conv_product {
    gd_dtype dtype, c_dtype;
    int64_t M, N, K, images, groups;
    conv_matrix c, a, b;
    bool accumulate;
};

static conv_product product_of(gd_dtype dtype, gd_dtype c_dtype, int64_t M, int64_t N, int64_t K,
                               int64_t images, int64_t groups)
{
    conv_product p = {};
    p.dtype = dtype, p.c_dtype = c_dtype;
    p.M = M, p.N = N, p.K = K;
    p.images = images, p.groups = groups;
    return p;
}

static gd_cuda_matrix matrix_at(const conv_matrix &x, gd_dtype dtype, int64_t image, int64_t group)
{
    const int64_t at = image * x.image_step + group * x.group_step;
    return {(char *)x.first.data + at * (int64_t)gd_dtype_size(dtype), x.first.row, x.first.column};
}

// Batches of images, one for each group, or of groups, one for each image: whichever are fewer.
static gd_status multiply(const gd_call *call, const conv_product &p, gd_gemm_workspace *workspace)
{
    const bool over_images = p.images >= p.groups;
    const int64_t batches = over_images ? p.groups : p.images;
    for (int64_t i = 0; i < batches; i++) {
        const int64_t image = over_images ? 0 : i, group = over_images ? i : 0;
        gd_gemm g = gd_gemm_of(p.dtype, p.M, p.N, p.K, matrix_at(p.c, p.c_dtype, image, group),
                               matrix_at(p.a, p.dtype, image, group),
                               matrix_at(p.b, p.dtype, image, group), p.accumulate);
        g.c_dtype = p.c_dtype;
        g.batch = over_images ? p.images : p.groups;
        g.c_step = over_images ? p.c.image_step : p.c.group_step;
        g.a_step = over_images ? p.a.image_step : p.a.group_step;
        g.b_step = over_images ? p.b.image_step : p.b.group_step;
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
    void *cols; // of one piece: T, or what is folded, gd_compute<T>, so that a sum is rounded once
    bool add;
    gd_gemm_workspace workspace;

    int64_t O() const
    {
        return s.O / s.groups;
    }
    int64_t K() const
    {
        return conv_terms(&s);
    }
    int64_t P() const
    {
        return conv_positions(&s);
    }
    // How many images a piece of so many elements has at most.
    int64_t images(int64_t piece) const
    {
        if (conv_is_pointwise(&s)) return gd_max64(1, s.B);
        const int64_t most = gd_max64(1, piece / gd_max64(1, s.C * s.KH * s.KW * P()));
        return gd_max64(1, gd_ceil_div(s.B, gd_max64(1, gd_ceil_div(s.B, most)))); // equal pieces
    }
    // How many windows of one image a piece has at most.
    int64_t windows() const
    {
        if (conv_is_pointwise(&s)) return P();
        const int64_t size = gd_max64(1, s.C * s.KH * s.KW);
        return gd_min64(P(), gd_max64(WINDOWS, PIECE / size / WINDOWS * WINDOWS));
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
    return w;
}

// Memory for the columns of n images, `rows` and `windows` of each.
template <class S, class T>
static gd_status get_columns(conv_work<T> *w, int64_t n, int64_t rows, int64_t windows)
{
    if (conv_is_pointwise(&w->s)) return GD_OK;
    w->cols = gd_call_scratch(w->call, (size_t)(n * rows * windows) * sizeof(S));
    return w->cols ? GD_OK : gd_error_status(w->call->context);
}

// The columns of images b0 to b0 + n, windows p0 to p1: of each [C KH KW, p1 - p0].
template <class T>
static gd_status unfolded(const conv_work<T> &w, int64_t b0, int64_t n, int64_t p0, int64_t p1,
                          conv_matrix *cols)
{
    const conv_sizes &s = w.s;
    T *image = w.image + b0 * s.C * s.H * s.W;
    if (conv_is_pointwise(&s)) {
        *cols = {{image, w.P(), 1}, s.C * w.P(), s.C / s.groups * w.P()};
        return GD_OK;
    }
    *cols = {{w.cols, p1 - p0, 1}, s.C * s.KH * s.KW * (p1 - p0), w.K() * (p1 - p0)};
    return unfold<T>(w.call, (T *)w.cols, image, s, {n * s.C, p0, p1}, false);
}

// ---- Depthwise ----------------------------------------------------------------------------------

template <class T>
static gd_depthwise<T> depthwise_of(const conv_work<T> &w)
{
    return {w.s.B, w.s.C, w.s.O, w.image, w.other, w.weight, w.bias, w.add};
}

template <class T>
static gd_status depthwise_gather(const conv_work<T> &w)
{
    const gd_grid grid = gd_plane_grid(w.P(), gd_threads, w.s.B * w.s.O);
    return by_plane_sizes(w.s, [&](auto sizes) {
        return gd_launch(w.call, grid, gd_depthwise_gather<T, decltype(sizes.H)>, depthwise_of(w),
                         sizes);
    });
}

template <class T>
static gd_status depthwise_scatter(const conv_work<T> &w)
{
    const gd_grid grid = gd_plane_grid(w.s.H * w.s.W, gd_threads, w.s.B * w.s.C);
    return by_plane_sizes(w.s, [&](auto sizes) {
        return gd_launch(w.call, grid, gd_depthwise_scatter<T, decltype(sizes.H)>, depthwise_of(w),
                         sizes);
    });
}

// ---- The three products -------------------------------------------------------------------------

// other (+)= weight unfold(image)
template <class T>
static gd_status gather(conv_work<T> w)
{
    if (conv_is_depthwise(&w.s)) return depthwise_gather(w);
    const conv_sizes &s = w.s;
    const int64_t images = w.images(PIECE), windows = w.windows(), O = w.O(), K = w.K(), P = w.P();
    gd_status status = get_columns<T>(&w, images, s.C * s.KH * s.KW, windows);
    if (status) return status;
    if (w.bias) status = begin_rows<T>(w.call, w.other, w.bias, s.B * s.O, P, s.O);
    for (int64_t b = 0; b < s.B && !status; b += images) {
        const int64_t n = gd_min64(images, s.B - b);
        for (int64_t p0 = 0; p0 < P && !status; p0 += windows) {
            const int64_t p1 = gd_min64(P, p0 + windows);
            const gd_dtype dtype = w.call->kernel_dtype;
            conv_product p = product_of(dtype, dtype, O, p1 - p0, K, n, s.groups);
            p.c = {{w.other + b * s.O * P + p0, P, 1}, s.O * P, O * P};
            p.a = {{w.weight, K, 1}, 0, O * K};
            p.accumulate = w.add || w.bias;
            status = unfolded(w, b, n, p0, p1, &p.b);
            if (!status) status = multiply(w.call, p, &w.workspace);
        }
    }
    return status;
}

// image (+)= fold(weight^T other)
template <class T>
static gd_status scatter(conv_work<T> w)
{
    using V = gd_compute<T>;
    if (conv_is_depthwise(&w.s)) return depthwise_scatter(w);
    const conv_sizes &s = w.s;
    const int64_t O = w.O(), K = w.K(), P = w.P(), window = s.KH * s.KW, C = s.C / s.groups;
    const int64_t channel = gd_max64(1, window * P),
                  images = w.images(PIECE / 2); // their columns are float32: as many bytes
    const bool point = conv_is_pointwise(&s), whole = point || s.C * channel <= PIECE;
    const int64_t channels = whole ? C : gd_max64(1, gd_min64(C, PIECE / channel));
    const int64_t groups = whole ? s.groups : 1;
    gd_status status = get_columns<V>(&w, images, groups * channels * window, P);
    if (point && !w.add && !status)
        status = begin_rows<T>(w.call, w.image, w.bias, s.B * s.C, s.H * s.W, s.C);
    for (int64_t b = 0; b < s.B && !status; b += images) {
        const int64_t n = gd_min64(images, s.B - b);
        for (int64_t g = 0; g < s.groups && !status; g += groups) {
            for (int64_t c = 0; c < C && !status; c += channels) {
                const int64_t rows = gd_min64(channels, C - c) * window, first = g * C + c;
                const gd_dtype dtype = w.call->kernel_dtype;
                const gd_dtype sums = sizeof(V) == 8 ? GD_FLOAT64 : GD_FLOAT32;
                conv_product p = product_of(dtype, point ? dtype : sums, rows, P, O, n, groups);
                p.c = {{w.cols, P, 1}, groups * rows * P, rows * P};
                p.a = {{w.weight + g * O * K + c * window, 1, K}, 0, O * K};
                p.b = {{w.other + (b * s.O + g * O) * P, P, 1}, s.O * P, O * P};
                T *image = w.image + (b * s.C + first) * s.H * s.W;
                if (point) p.c = {{image, P, 1}, s.C * P, C * P}, p.accumulate = true;
                status = multiply(w.call, p, &w.workspace);
                if (status || point) continue;
                const int64_t planes = n * groups * rows / window;
                const fold_target<T> to = {image, w.bias ? w.bias + first : nullptr, planes,
                                           whole ? s.C : planes, w.add};
                status = fold(w.call, to, (const V *)w.cols, s);
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
    const int64_t count = w.s.B * w.P(), weights = w.s.O * w.K();
    const int64_t size = gd_max64(8192, gd_ceil_div(count, 256)), pieces = gd_ceil_div(count, size);
    V *parts = (V *)gd_call_scratch(w.call, (size_t)(pieces * weights) * sizeof(V));
    if (!parts) return gd_error_status(w.call->context);
    const gd_grid grid = {{(unsigned)weights, (unsigned)pieces}, gd_threads};
    const gd_status status = by_plane_sizes(w.s, [&](auto sizes) {
        return gd_launch(w.call, grid, gd_depthwise_dweight<T, V, decltype(sizes.H)>,
                         depthwise_of(w), sizes, parts, size);
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
    const int64_t O = w.O(), K = w.K(), P = w.P(), size = s.O * K, windows = w.windows();
    const int64_t images = gd_max64(1, gd_min64(PIECE / gd_max64(1, size), w.images(PIECE)));
    gd_status status = get_columns<T>(&w, images, s.C * s.KH * s.KW, windows);
    V *parts = (V *)gd_call_scratch(w.call, (size_t)((images + 1) * size) * sizeof(V));
    if (!parts || status) return gd_error_status(w.call->context);
    V *total = parts + images * size;
    const gd_dtype sums = sizeof(V) == 8 ? GD_FLOAT64 : GD_FLOAT32;
    gd_sum_place to = {total, sums, false};
    for (int64_t b = 0; b < s.B && !status; b += images) {
        const int64_t n = gd_min64(images, s.B - b);
        for (int64_t p0 = 0; p0 < P && !status; p0 += windows) {
            const int64_t p1 = gd_min64(P, p0 + windows);
            conv_product p = product_of(w.call->kernel_dtype, sums, O, K, p1 - p0, n, s.groups);
            p.c = {{parts, K, 1}, size, O * K};
            p.a = {{w.other + b * s.O * P + p0, P, 1}, s.O * P, O * P};
            status = unfolded(w, b, n, p0, p1, &p.b);
            p.b.first = gd_transposed(p.b.first);
            if (!status) status = multiply(w.call, p, &w.workspace);
            if (!status) status = add_parts(w.call, to, parts, n, size);
            to.accumulate = true;
        }
    }
    if (status) return status;
    return add_parts(w.call, gradient_of(w.call, 1), total, to.accumulate ? 1 : 0, size);
}

// ---- dbias (+)= the sum of dy over images and positions -----------------------------------------

template <class T>
struct dbias_terms {
    const T *dy;

    template <int V>
    using packs = gd_raw<T, V>;
    template <int V>
    __device__ packs<V> load(int64_t i) const
    {
        return gd_raw<T, V>::load(dy + i);
    }
    template <int V>
    __device__ void add(int64_t, const packs<V> &raw, gd_compute<T> (&sum)[1]) const
    {
        const gd_pack<T, V> d = raw.elements();
#pragma unroll
        for (int v = 0; v < V; v++) sum[0] += gd_load(d[v]);
    }
};

template <class T>
static gd_status dbias(const gd_call *call)
{
    using V = gd_compute<T>;
    const gd_tensor *dy = call->doutput[0];
    const int64_t B = gd_tensor_dim(dy, 0), O = gd_tensor_dim(dy, 1);
    const int64_t P = gd_tensor_dim(dy, 2) * gd_tensor_dim(dy, 3);
    int64_t pieces;
    const V *parts = gd_channel_sums<1, T>(call, B, O, P, gd_rows_pack<T>(P, gd_ptr<T>(dy)),
                                           dbias_terms<T>{gd_ptr<T>(dy)}, &pieces);
    if (!parts) return gd_error_status(call->context);
    return add_parts(call, gradient_of(call, 2), parts, pieces, O);
}

// ---- The ops conv2d and conv_transpose2d --------------------------------------------------------

// The forward of conv_transpose2d (`transposed`) is the gradient of conv2d by its image, and the other
// way round: what is the image of one is the other side of the other.
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

/* dx, dw and db are [conv_transpose2d dx], [conv_transpose2d dw] and [conv_transpose2d db] in plain_cpu.c. */
GD_CUDA_KERNEL_OF_T(conv_transpose2d_backward, conv_backward<T>(call, true))
