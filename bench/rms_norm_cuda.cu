// rms_norm_cuda.cu - gradus-bench rms_norm --device cuda: the RMSNorm kernels of gradus/kernels.h.
//
// For each shape: first a check of y, dx and dw against a float64 reference on the CPU, then the
// times of the forward and of the backward (dx and finished dw), and the share that they reach of
// the ceiling: what the best of several plain kernels takes to move as many bytes, measured at the
// same size a moment before. Bytes are those that must move: 2 M N for the forward, 3 M N for the
// backward, times the size of an element. The weight is of x's dtype, dw float32.
//
// The last column is the error of dw over all M rows against float64 on the GPU, as a share of the
// usual float32 tolerance, 5e-6 sqrt(M) max|dy xhat|. Below the table: what a call takes of the
// host, what launches of empty kernels take, and what a backward takes in a loop that calls it.
#include <string.h>

#include <chrono>

#include "bench.h"
#include "cuda_timing.cuh"
#include "gradus/kernels.h"
#include "rms_norm/ladder.h"

struct Shape {
    gd_dtype dtype;
    int64_t rows, cols;
};

static double number(const char *p, gd_dtype dtype, size_t i)
{
    if (dtype == GD_FLOAT32) return ((const float *)p)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

static std::vector<char> to_host(const void *device, size_t bytes)
{
    std::vector<char> host(bytes);
    must(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost), "copy to the host");
    return host;
}

// What one call works on. x, dy and the output are buffers 0, 1 and 2 of a rotation.
struct Work {
    Shape shape;
    size_t size, bytes;
    void *weight;
    float *rstd, *dw, *db;
    void *workspace;
    gd_rms_norm_problem problem;
    bool dbias = false, overlap = false; // of the backward

    explicit Work(Shape s) : shape(s), size(gd_dtype_size(s.dtype))
    {
        bytes = (size_t)(s.rows * s.cols) * size;
        problem = {};
        problem.rows = s.rows, problem.cols = s.cols, problem.eps = 1e-5;
        problem.dtype = problem.weight_dtype = s.dtype;
        const size_t n = (size_t)s.cols, m = (size_t)s.rows;
        must(cudaMalloc(&weight, n * size), "cudaMalloc");
        must(cudaMalloc(&rstd, m * 4), "cudaMalloc");
        must(cudaMalloc(&dw, n * 4), "cudaMalloc");
        must(cudaMalloc(&db, n * 4), "cudaMalloc");
        must(cudaMalloc(&workspace, gd_cuda_rms_norm_workspace(&problem) + 16), "cudaMalloc");
        fill_numbers<<<64, 256>>>((uint32_t *)weight, n * size / 4, (int)size, 99);
    }
    Work(const Work &) = delete;
    ~Work()
    {
        cudaFree(weight), cudaFree(rstd), cudaFree(dw), cudaFree(db), cudaFree(workspace);
    }
    bool forward(const Rotation &r, int set, cudaStream_t stream) const
    {
        return !gd_cuda_rms_norm_forward(&problem, r.get(set, 2), shape.cols, rstd, r.get(set, 0),
                                         shape.cols, weight, nullptr, stream);
    }
    bool backward(const Rotation &r, int set, cudaStream_t stream) const
    {
        gd_rms_norm_gradients g = {};
        g.dx = r.get(set, 2), g.dy = r.get(set, 1), g.x = r.get(set, 0), g.rstd = rstd;
        g.dx_stride = g.dy_stride = g.x_stride = shape.cols;
        g.dweight = dw, g.weight = weight, g.workspace = workspace;
        g.dbias = dbias ? db : nullptr, g.overlap = overlap;
        return !gd_cuda_rms_norm_backward(&problem, &g, stream);
    }
};

// The largest error of y, dx and dw, each as a share of the largest value, on at most 256 rows.
static double check(Shape s)
{
    s.rows =
        std::min<int64_t>(s.rows, std::max<int64_t>(8, std::min<int64_t>(256, 2097152 / s.cols)));
    const Work w(s);
    const Rotation r(3, w.bytes, (int)w.size);
    const size_t N = (size_t)s.cols;
    if (!w.forward(r, 0, nullptr)) return NAN;
    const std::vector<char> x = to_host(r.get(0, 0), w.bytes), dy = to_host(r.get(0, 1), w.bytes);
    const std::vector<char> y = to_host(r.get(0, 2), w.bytes);
    if (!w.backward(r, 0, nullptr)) return NAN;
    const std::vector<char> dx = to_host(r.get(0, 2), w.bytes), dw = to_host(w.dw, N * 4);
    const std::vector<char> weight = to_host(w.weight, N * w.size);

    std::vector<double> dw_ref(N);
    double error[3] = {0, 0, 0}, largest[3] = {0, 0, 0};
    auto compare = [&](int what, double got, double want) {
        const double off = fabs(got - want);
        error[what] = off <= error[what] ? error[what] : off; // NaN stays
        largest[what] = fmax(largest[what], fabs(want));
    };
    for (int64_t i = 0; i < s.rows; i++) {
        double sum = 0, dot = 0;
        const size_t row = (size_t)i * N;
        for (size_t j = 0; j < N; j++) sum += pow(number(x.data(), s.dtype, row + j), 2);
        const double rstd = 1 / sqrt(sum / (double)N + 1e-5);
        for (size_t j = 0; j < N; j++)
            dot += number(dy.data(), s.dtype, row + j) * number(weight.data(), s.dtype, j) *
                   number(x.data(), s.dtype, row + j) * rstd;
        for (size_t j = 0; j < N; j++) {
            const double xhat = number(x.data(), s.dtype, row + j) * rstd;
            const double d = number(dy.data(), s.dtype, row + j);
            const double f = number(weight.data(), s.dtype, j);
            compare(0, number(y.data(), s.dtype, row + j), xhat * f);
            compare(1, number(dx.data(), s.dtype, row + j),
                    rstd * (d * f - xhat * dot / (double)N));
            dw_ref[j] += d * xhat;
        }
    }
    for (size_t j = 0; j < N; j++) compare(2, number(dw.data(), GD_FLOAT32, j), dw_ref[j]);
    double worst = 0;
    for (int k = 0; k < 3; k++) {
        const double share = error[k] / largest[k];
        const double allowed = k < 2 && s.dtype == GD_BFLOAT16 ? 1.0 / 256 : 1e-5;
        if (!(share <= allowed)) return NAN;
        worst = fmax(worst, share);
    }
    return worst;
}

// ---- dw over all rows, against float64 on the GPU -----------------------------------------------

static __device__ double number_of(const char *p, int size, size_t i)
{
    if (size == 4) return ((const float *)p)[i];
    return __uint_as_float((uint32_t)((const uint16_t *)p)[i] << 16);
}

// A block a row.
static __global__ void exact_rstd(double *rstd, const char *x, int size, size_t cols)
{
    __shared__ double sums[256];
    double sum = 0;
    for (size_t j = threadIdx.x; j < cols; j += 256) {
        const double v = number_of(x, size, blockIdx.x * cols + j);
        sum += v * v;
    }
    sums[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) rstd[blockIdx.x] = 1 / sqrt(sums[0] / (double)cols + 1e-5);
}

// A thread a column: the error of dw, and the largest |dy xhat| of the column.
static __global__ void dw_errors(double *error, double *largest, const float *dw, const char *dy,
                                 const char *x, int size, const double *rstd, size_t rows,
                                 size_t cols)
{
    const size_t j = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (j >= cols) return;
    double sum = 0, most = 0;
#pragma unroll 8
    for (size_t i = 0; i < rows; i++) {
        const size_t at = i * cols + j;
        const double v = number_of(dy, size, at) * number_of(x, size, at) * rstd[i];
        sum += v, most = fmax(most, fabs(v));
    }
    error[j] = fabs(dw[j] - sum), largest[j] = most;
}

// The largest error of dw, as a share of 5e-6 sqrt(M) max|dy xhat|.
static double dw_share(const Work &w, const Rotation &r)
{
    const size_t M = (size_t)w.shape.rows, N = (size_t)w.shape.cols;
    double *exact, *error;
    must(cudaMalloc(&exact, M * 8), "cudaMalloc");
    must(cudaMalloc(&error, 2 * N * 8), "cudaMalloc");
    if (!w.forward(r, 0, nullptr) || !w.backward(r, 0, nullptr)) return NAN;
    exact_rstd<<<(unsigned)M, 256>>>(exact, r.get(0, 0), (int)w.size, N);
    dw_errors<<<(unsigned)((N + 63) / 64), 64>>>(error, error + N, w.dw, r.get(0, 1), r.get(0, 0),
                                                 (int)w.size, exact, M, N);
    must(cudaGetLastError(), "dw_errors");
    const std::vector<char> host = to_host(error, 2 * N * 8);
    const double *const e = (const double *)host.data();
    double worst = 0, most = 0;
    for (size_t j = 0; j < N; j++) {
        worst = e[j] <= worst ? worst : e[j]; // NaN stays
        most = fmax(most, e[N + j]);
    }
    cudaFree(exact), cudaFree(error);
    return worst / (5e-6 * sqrt((double)M) * most);
}

// Microseconds that one of `calls` calls in a row takes, the median of so many batches: of the host
// alone or, `to_the_end`, until all have run.
template <class Call>
static double batch_microseconds(int batches, int calls, bool to_the_end, const Call &call)
{
    using clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (int batch = 0; batch < batches; batch++) {
        bool good = true;
        const clock::time_point begin = clock::now();
        for (int i = 0; i < calls; i++) good &= call(i);
        if (to_the_end) must(cudaDeviceSynchronize(), "calls");
        const std::chrono::duration<double, std::micro> took = clock::now() - begin;
        must(cudaDeviceSynchronize(), "calls");
        if (!good) return NAN;
        times.push_back(took.count() / calls);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// In batches short enough that none waits for room in the stream.
template <class Call>
static double host_microseconds(const Call &call)
{
    return batch_microseconds(32, 64, false, call);
}

// As large as what the kernels of the backward get.
struct Empty {
    char arguments[144];
};
static __global__ void empty_kernel(const __grid_constant__ Empty)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
}

// What launches alone take of the host, such as the fast kernels' are: a forward is one, an
// overlapping backward one or two.
static double empty_microseconds(int launches)
{
    int device = 0, major = 0;
    must(cudaGetDevice(&device), "cudaGetDevice");
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "attribute");
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(132), config.blockDim = dim3(256);
    config.attrs = &early, config.numAttrs = major >= 9;
    return host_microseconds([&](int) {
        bool good = true;
        for (int i = 0; i < launches; i++)
            good &= !cudaLaunchKernelEx(&config, empty_kernel, Empty());
        return good;
    });
}

// Backwards launched as graphs, and overlapping (kernels.h), which those of more than two kernels,
// for an odd N or a dbias, never do.
static void print_host_times(bool json)
{
    const struct {
        int64_t rows, cols;
        bool dbias;
    } calls[] = {{1024, 256, false},   {64, 4096, false},     {1024, 4096, false},
                 {1024, 16384, false}, {1024, 131072, false}, {1024, 4096, true},
                 {1024, 4097, false},  {1024, 4097, true}};
    if (!json)
        printf("\n| dtype | M x N | host us a forward | a backward | overlapping | us in a loop, a "
               "backward | overlapping |\n|---|---|---:|---:|---:|---:|---:|\n");
    for (gd_dtype dtype : {GD_FLOAT32, GD_BFLOAT16})
        for (const auto &c : calls) {
            Work w({dtype, c.rows, c.cols});
            w.dbias = c.dbias;
            const Rotation r(3, w.bytes, (int)w.size);
            const double f = host_microseconds([&](int) { return w.forward(r, 0, nullptr); });
            double host[2], loop[2];
            for (int i = 0; i < 2; i++) {
                w.overlap = i == 1;
                host[i] = host_microseconds([&](int) { return w.backward(r, 0, nullptr); });
                loop[i] = batch_microseconds(
                    7, 400, true, [&](int k) { return w.backward(r, k % r.sets, nullptr); });
            }
            printf(json ? "{\"dtype\": \"%s\", \"rows\": %lld, \"cols\": %lld, \"dbias\": %s, "
                          "\"forward_host_us\": %.2f, \"backward_host_us\": %.2f, "
                          "\"overlapping_host_us\": %.2f, \"backward_loop_us\": %.2f, "
                          "\"overlapping_loop_us\": %.2f}\n"
                        : "| %s | %lld x %lld%s | %.2f | %.2f | %.2f | %.1f | %.1f |\n",
                   gd_dtype_name(dtype), (long long)c.rows, (long long)c.cols,
                   json ? (c.dbias ? "true" : "false") : (c.dbias ? ", dbias" : ""), f, host[0],
                   host[1], loop[0], loop[1]);
        }
    printf(json ? "{\"empty_kernel_host_us\": %.2f, \"two_empty_kernels_host_us\": %.2f}\n"
                : "\nAn empty kernel: %.2f us of the host; two: %.2f us.\n",
           empty_microseconds(1), empty_microseconds(2));
}

// ---- The table ----------------------------------------------------------------------------------

static bool time_shape(Shape s, bool json)
{
    const double error = check(s);
    const char *const name = gd_dtype_name(s.dtype);
    const long long rows = s.rows, cols = s.cols;
    if (!(error < 1)) {
        fprintf(stderr, "gradus-bench: %s %lld x %lld: the results are wrong\n", name, rows, cols);
        return false;
    }
    const Work w(s);
    const Rotation r(3, w.bytes, (int)w.size);
    const double bytes = (double)w.bytes;
    const double one = ceiling_seconds<1>(r, w.bytes), two = ceiling_seconds<2>(r, w.bytes);
    auto forward = [&](int set, cudaStream_t stream) { return w.forward(r, set, stream); };
    auto backward = [&](int set, cudaStream_t stream) { return w.backward(r, set, stream); };
    const double f = seconds_of(r.sets, 2 * bytes, forward);
    const double b = seconds_of(r.sets, 3 * bytes, backward);
    printf(
        json ? "{\"dtype\": \"%s\", \"rows\": %lld, \"cols\": %lld, \"forward_us\": %.1f, "
               "\"forward_gbps\": %.0f, \"forward_ceiling_gbps\": %.0f, \"forward_share\": %.3f, "
               "\"backward_us\": %.1f, \"backward_gbps\": %.0f, \"backward_ceiling_gbps\": %.0f, "
               "\"backward_share\": %.3f, \"error\": %.1e, \"dw_error\": %.3f}\n"
             : "| %s | %lld x %lld | %.1f | %.0f | %.0f | %.3f | %.1f | %.0f | %.0f | %.3f | %.1e "
               "| %.3f |\n",
        name, rows, cols, f * 1e6, 2 * bytes / f / 1e9, 2 * bytes / one / 1e9, one / f, b * 1e6,
        3 * bytes / b / 1e9, 3 * bytes / two / 1e9, two / b, error, dw_share(w, r));
    fflush(stdout);
    return true;
}

static bool print_table(const std::vector<Shape> &shapes, bool json)
{
    if (!json)
        printf("| dtype | M x N | forward us | GB/s | ceiling | share | backward us | GB/s | "
               "ceiling | share | error | dw error |\n"
               "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    bool right = true;
    for (const Shape &s : shapes) right &= time_shape(s, json);
    return right;
}

// ---- The ladder ---------------------------------------------------------------------------------

static bool print_ladder(Shape s)
{
    const Work w(s);
    const Rotation r(3, w.bytes, 4);
    float *scratch = nullptr; // rungs of the backward want up to M x N partial sums
    must(cudaMalloc(&scratch, w.bytes), "cudaMalloc");
    const double bytes = (double)w.bytes;
    const double ceiling[2] = {ceiling_seconds<1>(r, w.bytes), ceiling_seconds<2>(r, w.bytes)};
    printf(
        "\n%lld x %lld float32; ceilings %.0f and %.0f GB/s\n\n"
        "| rung | us | GB/s | share of the ceiling | largest error |\n|---|---:|---:|---:|---:|\n",
        (long long)s.rows, (long long)s.cols, 2 * bytes / ceiling[0] / 1e9,
        3 * bytes / ceiling[1] / 1e9);

    // Ours is the measure of the others: check() has compared it with the reference.
    bool right = check(s) < 1;
    w.forward(r, 0, nullptr);
    const size_t seen = std::min<size_t>(w.bytes, (size_t)1 << 24);
    const std::vector<char> y = to_host(r.get(0, 2), seen);
    w.backward(r, 0, nullptr);
    const std::vector<char> dx = to_host(r.get(0, 2), seen), dw = to_host(w.dw, (size_t)s.cols * 4);

    auto difference = [](const std::vector<char> &got, const std::vector<char> &want) {
        double error = 0, largest = 0;
        for (size_t i = 0; i < want.size() / 4; i++) {
            const double a = number(want.data(), GD_FLOAT32, i);
            const double off = fabs(number(got.data(), GD_FLOAT32, i) - a);
            error = off <= error ? error : off;
            largest = fmax(largest, fabs(a));
        }
        return error / largest;
    };
    auto row = [&](const char *name, int inputs, double seconds, double error) {
        printf("| %s | %.1f | %.0f | %.3f | %.1e |\n", name, seconds * 1e6,
               (inputs + 1) * bytes / seconds / 1e9, ceiling[inputs - 1] / seconds, error);
        fflush(stdout);
        right &= error < 1e-4;
    };
    for (int rung = 0; rung < gd_ladder_forward_rungs; rung++) {
        auto launch = [&](int set, cudaStream_t stream) {
            return !gd_ladder_forward(rung, (float *)r.get(set, 2), w.rstd,
                                      (const float *)r.get(set, 0), (const float *)w.weight, s.rows,
                                      s.cols, 1e-5f, stream);
        };
        cudaMemset(r.get(0, 2), 0xff, w.bytes);
        launch(0, nullptr);
        const double error = difference(to_host(r.get(0, 2), seen), y);
        row(gd_ladder_forward_name(rung), 1, seconds_of(r.sets, 2 * bytes, launch), error);
    }
    row("ours", 1,
        seconds_of(r.sets, 2 * bytes,
                   [&](int set, cudaStream_t stream) { return w.forward(r, set, stream); }),
        0);
    for (int rung = 0; rung < gd_ladder_backward_rungs; rung++) {
        auto launch = [&](int set, cudaStream_t stream) {
            return !gd_ladder_backward(rung, (float *)r.get(set, 2), w.dw, scratch,
                                       (const float *)r.get(set, 1), (const float *)r.get(set, 0),
                                       w.rstd, (const float *)w.weight, s.rows, s.cols, stream);
        };
        cudaMemset(r.get(0, 2), 0xff, w.bytes), cudaMemset(w.dw, 0xff, (size_t)s.cols * 4);
        w.forward(r, 0, nullptr); // rstd of set 0
        launch(0, nullptr);
        const double error = fmax(difference(to_host(r.get(0, 2), seen), dx),
                                  difference(to_host(w.dw, (size_t)s.cols * 4), dw));
        row(gd_ladder_backward_name(rung), 2, seconds_of(r.sets, 3 * bytes, launch), error);
    }
    row("ours", 2,
        seconds_of(r.sets, 3 * bytes,
                   [&](int set, cudaStream_t stream) { return w.backward(r, set, stream); }),
        0);
    cudaFree(scratch);
    return right;
}

extern "C" int bench_rms_norm_cuda(const bench_options *o)
{
    constexpr int skipped = 77;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) || devices == 0) {
        fprintf(stderr, "gradus-bench: no CUDA device\n");
        return skipped;
    }
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0), "device");
    if (!o->json)
        printf("%s, %d multiprocessors, L2 %d MB\n\n", properties.name,
               properties.multiProcessorCount, properties.l2CacheSize >> 20);

    if (o->ladder) {
        bool right = true;
        if (o->rows) return print_ladder({GD_FLOAT32, o->rows, o->cols}) ? 0 : 1;
        right &= print_ladder({GD_FLOAT32, 2048, 8192});
        if (!o->quick) right &= print_ladder({GD_FLOAT32, 262144, 4096});
        return right ? 0 : 1;
    }
    const int64_t sizes[][2] = {{32768, 256},  {32768, 768},   {32768, 1024},  {32768, 2048},
                                {32768, 4096}, {32768, 8192},  {32768, 16384}, {16384, 32768},
                                {8192, 65536}, {4096, 131072}, {2048, 262144}, {2048, 8192},
                                {512, 4096},   {64, 4096},     {262144, 128}};
    std::vector<Shape> shapes;
    for (gd_dtype dtype : {GD_FLOAT32, GD_BFLOAT16}) {
        if (o->dtype_given && o->dtype != dtype) continue;
        if (o->rows) shapes.push_back({dtype, o->rows, o->cols});
        for (const auto &size : sizes)
            if (!o->rows && (!o->quick || size[0] * size[1] <= 33554432))
                shapes.push_back({dtype, size[0], size[1]});
    }
    const bool right = print_table(shapes, o->json);
    if (!o->rows) print_host_times(o->json);
    return right ? 0 : 1;
}
