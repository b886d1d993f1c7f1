// cuda_rms_norm.cu - the kernels of gradus/kernels.h against a float64 reference on the CPU.
//   cuda_rms_norm [--short] [--no-threads] [--huge]
// --short leaves out what is slow under compute-sanitizer, --no-threads calls from several threads,
// --huge adds a tensor of more than 2^31 elements. Leaves with 77 where there is no GPU.
//
// Outputs are poisoned with NaN before each call, gaps between rows are checked to stay poisoned,
// and every call is made twice, a backward once as a graph and once overlapping, and must give the
// same bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <random>
#include <thread>
#include <vector>

#include "cuda_widths.h"
#include "gradus/kernels.h"

static int failures, checks;

static void check_cuda(cudaError_t error, const char *what)
{
    if (!error) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static double read_number(const void *p, gd_dtype dtype, size_t i)
{
    if (dtype == GD_FLOAT32) return ((const float *)p)[i];
    if (dtype == GD_FLOAT64) return ((const double *)p)[i];
    if (dtype == GD_BFLOAT16) return (double)(float)((const __nv_bfloat16 *)p)[i];
    return (double)(float)((const __half *)p)[i];
}

static void write_number(void *p, gd_dtype dtype, size_t i, double v)
{
    if (dtype == GD_FLOAT32)
        ((float *)p)[i] = (float)v;
    else if (dtype == GD_FLOAT64)
        ((double *)p)[i] = v;
    else if (dtype == GD_BFLOAT16)
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16((float)v);
    else
        ((__half *)p)[i] = __float2half((float)v);
}

// An array on both sides. `shift` elements of misalignment, `stride` between its rows.
struct Array {
    gd_dtype dtype;
    int64_t rows, cols, stride, shift;
    std::vector<char> host;
    char *device = nullptr;

    Array(gd_dtype d, int64_t m, int64_t n, int64_t s = -1, int64_t off = 0)
        : dtype(d), rows(m), cols(n), stride(s < 0 ? n : s), shift(off), host(bytes(), (char)0xff)
    {
        check_cuda(cudaMalloc(&device, bytes()), "cudaMalloc");
        check_cuda(cudaMemset(device, 0xff, bytes()), "cudaMemset");
    }
    Array(const Array &) = delete;
    ~Array()
    {
        cudaFree(device);
    }
    size_t bytes() const
    {
        return (size_t)(shift + rows * stride + cols + 1) * gd_dtype_size(dtype);
    }
    void *data() const
    {
        return device + (size_t)shift * gd_dtype_size(dtype);
    }
    size_t index(int64_t i, int64_t j) const
    {
        return (size_t)(shift + i * stride + j);
    }
    double get(int64_t i, int64_t j) const
    {
        return read_number(host.data(), dtype, index(i, j));
    }
    void fill(std::mt19937 &random, double mean, double deviation)
    {
        std::uniform_real_distribution<float> uniform(-1.73f, 1.73f); // of variance 1
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                write_number(host.data(), dtype, index(i, j), mean + deviation * uniform(random));
        up();
    }
    void up()
    {
        check_cuda(cudaMemcpy(device, host.data(), bytes(), cudaMemcpyHostToDevice), "copy");
    }
    void down()
    {
        check_cuda(cudaMemcpy(host.data(), device, bytes(), cudaMemcpyDeviceToHost), "copy");
    }
    void poison()
    {
        memset(host.data(), 0xff, bytes());
        up();
    }
};

struct Case {
    int64_t rows, cols;
    gd_dtype dtype, weight_dtype, dweight_dtype;
    bool weight, bias, round, accumulate, in_place;
    double offset;
    int64_t gap, shift; // between rows; of the start
};

static double unit_of(gd_dtype dtype)
{
    return dtype == GD_BFLOAT16 ? 1.0 / 256 : dtype == GD_FLOAT16 ? 1.0 / 2048 : 0;
}

// other: NULL, or what is as right.
static bool within(const char *what, const Case &c, const Array &got,
                   const std::vector<double> &want, double relative, double of_largest,
                   const std::vector<double> *other = nullptr)
{
    double largest = 1e-30;
    for (double w : want) largest = fmax(largest, fabs(w));
    const double subnormal = got.dtype == GD_FLOAT16 ? 6e-8 : 0;
    auto close = [&](double g, double w) {
        return fabs(g - w) <= relative * fabs(w) + of_largest * largest + subnormal;
    };
    checks++;
    for (int64_t i = 0; i < got.rows; i++)
        for (int64_t j = 0; j < got.cols; j++) {
            const size_t at = (size_t)(i * got.cols + j);
            const double g = got.get(i, j), w = want[at];
            if (close(g, w) || (other && close(g, (*other)[at]))) continue;
            printf("%s [%lld, %lld] of %lld x %lld %s, weight %s%s%s%s offset %g gap %lld shift "
                   "%lld: %.9g, wanted %.9g (largest %.3g)\n",
                   what, (long long)i, (long long)j, (long long)c.rows, (long long)c.cols,
                   gd_dtype_name(c.dtype), c.weight ? gd_dtype_name(c.weight_dtype) : "none",
                   c.bias ? " bias" : "", c.round ? " round" : "", c.in_place ? " in place" : "",
                   c.offset, (long long)c.gap, (long long)c.shift, g, w, largest);
            failures++;
            return false;
        }
    // What lies between the rows is still the poison.
    for (int64_t i = 0; i < got.rows; i++)
        for (int64_t j = got.cols; j < got.stride; j++)
            if (!isnan(got.get(i, j))) {
                printf("%s: wrote past row %lld\n", what, (long long)i);
                failures++;
                return false;
            }
    return true;
}

static void expect(bool ok, const char *what, const Case &c)
{
    checks++;
    if (ok) return;
    printf("%s: %lld x %lld %s\n", what, (long long)c.rows, (long long)c.cols,
           gd_dtype_name(c.dtype));
    failures++;
}

static void run(const Case &c, std::mt19937 &random)
{
    const int64_t M = c.rows, N = c.cols, stride = N + c.gap;
    const gd_dtype sum_dtype = c.dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32;
    Array x(c.dtype, M, N, stride, c.shift), dy(c.dtype, M, N, stride, c.shift);
    Array y(c.dtype, M, N, stride, c.shift), dx(c.dtype, M, N, stride, c.shift);
    Array w(c.weight_dtype, 1, N, N, c.shift), b(c.weight_dtype, 1, N, N, c.shift);
    Array rstd(sum_dtype, M, 1), dw(c.dweight_dtype, 1, N), db(c.dweight_dtype, 1, N);
    x.fill(random, 0.3, 1.7), dy.fill(random, 0.1, 1.0), w.fill(random, 0.7, 0.5);
    b.fill(random, 0, 1);

    gd_rms_norm_problem p = {};
    p.rows = M, p.cols = N, p.dtype = c.dtype, p.weight_dtype = c.weight_dtype;
    p.dweight_dtype = c.dweight_dtype, p.eps = 1e-5, p.offset = c.offset;
    p.round_before_weight = c.round;

    // ---- The reference
    std::vector<double> y_ref((size_t)(M * N)), y_other(y_ref), dx_ref(y_ref), rstd_ref((size_t)M);
    std::vector<double> dw_ref((size_t)N), db_ref((size_t)N);
    const bool rounds = c.round && unit_of(c.dtype) > 0;
    auto round_to = [&](double v) {
        if (!rounds) return v;
        char bits[8];
        write_number(bits, c.dtype, 0, v);
        return read_number(bits, c.dtype, 0);
    };
    // xhat in float32 is off by so much; where it is to be rounded, either way may be right.
    const double of_xhat = rounds ? 3e-6 : 0;
    auto factor = [&](int64_t j) { return c.weight ? c.offset + w.get(0, j) : 1.0; };
    for (int64_t i = 0; i < M; i++) {
        double sum = 0, dot = 0;
        for (int64_t j = 0; j < N; j++) sum += x.get(i, j) * x.get(i, j);
        const double r = 1 / sqrt(sum / (double)N + 1e-5);
        rstd_ref[(size_t)i] = r;
        for (int64_t j = 0; j < N; j++) dot += dy.get(i, j) * factor(j) * x.get(i, j) * r;
        for (int64_t j = 0; j < N; j++) {
            const double xhat = x.get(i, j) * r, d = dy.get(i, j);
            const size_t at = (size_t)(i * N + j);
            const double bias = c.bias ? b.get(0, j) : 0;
            y_ref[at] = round_to(xhat * (1 - of_xhat)) * factor(j) + bias;
            y_other[at] = round_to(xhat * (1 + of_xhat)) * factor(j) + bias;
            dx_ref[at] = r * (d * factor(j) - xhat * dot / (double)N);
            dw_ref[(size_t)j] += d * round_to(xhat), db_ref[(size_t)j] += d;
        }
    }
    if (c.accumulate)
        for (auto *v : {&dw_ref, &db_ref})
            for (double &s : *v) s += 2.5;

    // ---- Forward
    const void *weight = c.weight ? w.data() : nullptr, *bias = c.bias ? b.data() : nullptr;
    std::vector<char> before;
    for (int time = 0; time < 2; time++) {
        y.poison();
        expect(!gd_cuda_rms_norm_forward(&p, y.data(), stride, rstd.data(), x.data(), stride,
                                         weight, bias, nullptr),
               "the forward failed", c);
        check_cuda(cudaDeviceSynchronize(), "forward");
        y.down(), rstd.down();
        if (time) expect(before == y.host, "the forward does not repeat", c);
        before = y.host;
    }
    const double u = unit_of(c.dtype);
    const double fine = c.dtype == GD_FLOAT64 ? 1e-13 : 2e-6;
    within("y", c, y, y_ref, u, fine, &y_other);
    within("rstd", c, rstd, rstd_ref, fine, 0);

    // ---- Backward
    Array workspace(GD_FLOAT32, 1, (int64_t)gd_cuda_rms_norm_workspace(&p) / 4);
    gd_rms_norm_gradients g = {};
    g.dx = c.in_place ? dy.data() : dx.data(), g.dx_stride = stride;
    g.dweight = dw.data(), g.dbias = c.bias ? db.data() : nullptr;
    g.accumulate_dweight = g.accumulate_dbias = c.accumulate;
    g.dy = dy.data(), g.dy_stride = stride, g.x = x.data(), g.x_stride = stride;
    g.rstd = rstd.data(), g.weight = weight, g.workspace = workspace.data();
    Array &dx_got = c.in_place ? dy : dx;
    const std::vector<char> dy_host = dy.host;
    std::vector<char> before_w, before_b;
    for (int time = 0; time < 2; time++) {
        if (c.in_place)
            dy.host = dy_host, dy.up();
        else
            dx.poison();
        dw.poison(), db.poison(), workspace.poison();
        g.overlap = time == 1;
        if (c.accumulate) {
            for (Array *v : {&dw, &db}) {
                for (int64_t j = 0; j < N; j++)
                    write_number(v->host.data(), v->dtype, (size_t)j, 2.5);
                v->up();
            }
        }
        expect(!gd_cuda_rms_norm_backward(&p, &g, nullptr), "the backward failed", c);
        check_cuda(cudaDeviceSynchronize(), "backward");
        dx_got.down(), dw.down(), db.down();
        if (time)
            expect(before == dx_got.host && before_w == dw.host && before_b == db.host,
                   "the backward does not repeat", c);
        before = dx_got.host, before_w = dw.host, before_b = db.host;
    }
    const double of_dw = unit_of(c.dweight_dtype);
    const double fine_dw = c.dtype == GD_FLOAT64 && c.dweight_dtype != GD_FLOAT32 ? 1e-13 : 3e-6;
    within("dx", c, dx_got, dx_ref, u, fine * 2);
    within("dw", c, dw, dw_ref, of_dw, rounds ? 1e-2 : fine_dw);
    if (c.bias) within("db", c, db, db_ref, of_dw, fine_dw);
}

// x and dy of more than 2^31 elements: only the last rows have a gradient, so they alone make dw.
static void run_huge(void)
{
    const int64_t N = 1024, M = (int64_t)2097152 + 3, tail = 2;
    const size_t bytes = (size_t)(M * N) * 2;
    size_t free_bytes = 0, all = 0;
    cudaMemGetInfo(&free_bytes, &all);
    if (free_bytes < 4 * bytes) {
        printf("too little memory for the huge case\n");
        return;
    }
    std::mt19937 random(5);
    Array x(GD_BFLOAT16, tail, N), dy(GD_BFLOAT16, tail, N), out(GD_BFLOAT16, tail, N);
    Array w(GD_FLOAT32, 1, N), dw(GD_FLOAT32, 1, N);
    x.fill(random, 0, 1), dy.fill(random, 0, 1), w.fill(random, 1, 0.1);
    gd_rms_norm_problem p = {};
    p.rows = M, p.cols = N, p.dtype = GD_BFLOAT16, p.eps = 1e-5;
    char *big[4];
    void *workspace, *rstd;
    for (char *&b : big) {
        check_cuda(cudaMalloc(&b, bytes), "cudaMalloc");
        check_cuda(cudaMemset(b, 0, bytes), "cudaMemset");
    }
    check_cuda(cudaMalloc(&workspace, gd_cuda_rms_norm_workspace(&p)), "cudaMalloc");
    check_cuda(cudaMalloc(&rstd, (size_t)M * 4), "cudaMalloc");
    const size_t at = (size_t)((M - tail) * N) * 2, size = (size_t)(tail * N) * 2;
    cudaMemcpy(big[0] + at, x.device, size, cudaMemcpyDeviceToDevice);
    cudaMemcpy(big[1] + at, dy.device, size, cudaMemcpyDeviceToDevice);
    Case c = {};
    c.rows = M, c.cols = N, c.dtype = GD_BFLOAT16, c.weight = true;
    expect(!gd_cuda_rms_norm_forward(&p, big[2], N, rstd, big[0], N, w.data(), nullptr, nullptr),
           "huge forward", c);
    gd_rms_norm_gradients g = {};
    g.dx = big[3], g.dx_stride = g.dy_stride = g.x_stride = N, g.dweight = dw.data(), g.dy = big[1];
    g.x = big[0], g.rstd = rstd, g.weight = w.data(), g.workspace = workspace;
    expect(!gd_cuda_rms_norm_backward(&p, &g, nullptr), "huge backward", c);
    check_cuda(cudaDeviceSynchronize(), "huge");
    std::vector<double> y_ref, dx_ref, dw_ref((size_t)N);
    for (int64_t i = 0; i < tail; i++) {
        double sum = 0, dot = 0;
        for (int64_t j = 0; j < N; j++) sum += x.get(i, j) * x.get(i, j);
        const double r = 1 / sqrt(sum / (double)N + 1e-5);
        for (int64_t j = 0; j < N; j++) dot += dy.get(i, j) * w.get(0, j) * x.get(i, j) * r;
        for (int64_t j = 0; j < N; j++) {
            const double xhat = x.get(i, j) * r;
            y_ref.push_back(xhat * w.get(0, j));
            dx_ref.push_back(r * (dy.get(i, j) * w.get(0, j) - xhat * dot / (double)N));
            dw_ref[(size_t)j] += dy.get(i, j) * xhat;
        }
    }
    cudaMemcpy(out.device, big[2] + at, size, cudaMemcpyDeviceToDevice);
    out.down(), within("huge y", c, out, y_ref, 1.0 / 256, 2e-6);
    cudaMemcpy(out.device, big[3] + at, size, cudaMemcpyDeviceToDevice);
    out.down(), within("huge dx", c, out, dx_ref, 1.0 / 256, 2e-6);
    dw.down(), within("huge dw", c, dw, dw_ref, 0, 2e-6);
    for (char *b : big) cudaFree(b);
    cudaFree(workspace), cudaFree(rstd);
}

// Kernels may start before those ahead of them have ended (programmatic dependent launch), but must
// not read before what they read is written: calls that feed each other, on a stream, overlapping
// now and then, always, and in a graph with a fork, give the bits that they give one at a time.
static void run_chain(int64_t M, int64_t N, gd_dtype dtype)
{
    std::mt19937 random(3);
    const int steps = 6;
    Array x(dtype, M, N), dy(dtype, M, N), w(dtype, 1, N);
    Array rstd(dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32, M, 1);
    Array y(dtype, M, N), dx(dtype, M, N), dw(GD_FLOAT32, 1, N);
    x.fill(random, 0, 1), dy.fill(random, 0, 1), w.fill(random, 1, 0.1);
    gd_rms_norm_problem p = {};
    p.rows = M, p.cols = N, p.dtype = p.weight_dtype = dtype, p.eps = 1e-5;
    Array workspace(GD_FLOAT32, 1, (int64_t)gd_cuda_rms_norm_workspace(&p) / 4 + 4);
    Case c = {};
    c.rows = M, c.cols = N, c.dtype = dtype;
    // y = norm(x) and dx, then y and dx change places with x and dy.
    auto steps_on = [&](cudaStream_t stream, int way) {
        const bool one_at_a_time = way == 0;
        const void *from[2] = {x.data(), dy.data()};
        void *to[2] = {y.data(), dx.data()};
        for (int i = 0; i < steps; i++) {
            expect(!gd_cuda_rms_norm_forward(&p, to[0], N, rstd.data(), from[0], N, w.data(),
                                             nullptr, stream),
                   "chain: forward", c);
            if (one_at_a_time) cudaStreamSynchronize(stream);
            gd_rms_norm_gradients g = {};
            g.dx = to[1], g.dy = from[1], g.x = from[0], g.rstd = rstd.data(), g.weight = w.data();
            g.dx_stride = g.dy_stride = g.x_stride = N, g.dweight = dw.data();
            g.accumulate_dweight = i > 0, g.workspace = workspace.data();
            g.overlap = way == 1 ? i % 3 == 1 : way == 2;
            expect(!gd_cuda_rms_norm_backward(&p, &g, stream), "chain: backward", c);
            if (one_at_a_time) cudaStreamSynchronize(stream);
            for (int k = 0; k < 2; k++) {
                void *const was = to[k];
                to[k] = (void *)from[k], from[k] = was;
            }
        }
    };
    Array *const all[] = {&x, &dy, &y, &dx, &dw};
    std::vector<std::vector<char>> want;
    cudaStream_t stream, other;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
    for (int way = 0; way < 4; way++) {
        x.up(), dy.up();
        check_cuda(cudaDeviceSynchronize(), "copies"); // which the streams would not wait for
        if (way < 3) {
            steps_on(stream, way);
        } else {
            cudaGraph_t graph;
            cudaGraphExec_t exec;
            cudaEvent_t fork, join;
            cudaEventCreate(&fork), cudaEventCreate(&join);
            check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
            cudaEventRecord(fork, stream), cudaStreamWaitEvent(other, fork, 0);
            check_cuda(cudaMemsetAsync(y.device, 0, y.bytes(), other), "memset");
            cudaEventRecord(join, other), cudaStreamWaitEvent(stream, join, 0);
            steps_on(stream, way);
            check_cuda(cudaStreamEndCapture(stream, &graph), "end of capture");
            check_cuda(cudaGraphInstantiate(&exec, graph, 0), "graph");
            check_cuda(cudaGraphLaunch(exec, stream), "graph launch");
            check_cuda(cudaStreamSynchronize(stream), "graph");
            cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
            cudaEventDestroy(fork), cudaEventDestroy(join);
        }
        check_cuda(cudaStreamSynchronize(stream), "chain");
        for (size_t k = 0; k < 5; k++) {
            std::vector<char> got(all[k]->bytes());
            cudaMemcpy(got.data(), all[k]->device, got.size(), cudaMemcpyDeviceToHost);
            got.resize((size_t)(all[k]->rows * N) * gd_dtype_size(all[k]->dtype));
            if (way == 0)
                want.push_back(got);
            else
                expect(got == want[k], way < 3 ? "chain on a stream" : "chain in a graph", c);
        }
    }
    cudaStreamDestroy(stream), cudaStreamDestroy(other);
}

// A backward's parts, all of them the caller's, and what one at rest gives.
struct Quiet {
    Case c = {};
    gd_rms_norm_problem p = {};
    Array x, dy, w, rstd;
    std::vector<char> dx_want, dw_want;

    Quiet(int64_t M, int64_t N, gd_dtype dtype)
        : x(dtype, M, N), dy(dtype, M, N), w(dtype, 1, N), rstd(GD_FLOAT32, M, 1)
    {
        std::mt19937 random(11);
        c.rows = M, c.cols = N, c.dtype = dtype;
        p.rows = M, p.cols = N, p.dtype = p.weight_dtype = dtype, p.eps = 1e-5;
        x.fill(random, 0, 1), dy.fill(random, 0, 1), w.fill(random, 1, 0.1);
        Array y(dtype, M, N), dx(dtype, M, N), dw(GD_FLOAT32, 1, N);
        Array workspace(GD_FLOAT32, 1, (int64_t)gd_cuda_rms_norm_workspace(&p) / 4);
        expect(!gd_cuda_rms_norm_forward(&p, y.data(), N, rstd.data(), x.data(), N, w.data(),
                                         nullptr, nullptr),
               "forward at rest", c);
        expect(backward(dx.data(), dw.data(), workspace.data(), nullptr), "backward at rest", c);
        check_cuda(cudaDeviceSynchronize(), "at rest");
        dx.down(), dw.down();
        dx_want = dx.host, dw_want = dw.host;
    }
    bool backward(void *dx, void *dw, void *workspace, cudaStream_t stream) const
    {
        gd_rms_norm_gradients g = {};
        g.dx = dx, g.dy = dy.data(), g.x = x.data(), g.rstd = rstd.data(), g.weight = w.data();
        g.dx_stride = g.dy_stride = g.x_stride = c.cols, g.dweight = dw, g.workspace = workspace;
        return !gd_cuda_rms_norm_backward(&p, &g, stream);
    }
};

// Keeps the multiprocessors it runs on for so many nanoseconds.
static __global__ void occupy(volatile int *running, unsigned long long nanoseconds)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    *running = 1;
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}

// Where few multiprocessors are free, the blocks of a backward do not all run at once; and several
// backwards may be under way. Neither may change a bit, or hang.
static void run_crowded(int64_t M, int64_t N, gd_dtype dtype)
{
    const Quiet quiet(M, N, dtype);
    const int calls = 3;
    int device = 0, multiprocessors = 0, shared = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    check_cuda(cudaFuncSetAttribute(occupy, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
               "shared memory");
    int *running, *running_there;
    check_cuda(cudaHostAlloc(&running, sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
    check_cuda(cudaHostGetDevicePointer(&running_there, running, 0), "cudaHostGetDevicePointer");
    cudaStream_t stream[calls], other;
    Array *dx[calls], *dw[calls], *workspace[calls];
    const int64_t partials = (int64_t)gd_cuda_rms_norm_workspace(&quiet.p) / 4;
    check_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
    for (int i = 0; i < calls; i++) {
        check_cuda(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking), "stream");
        dx[i] = new Array(dtype, M, N), dw[i] = new Array(GD_FLOAT32, 1, N);
        workspace[i] = new Array(GD_FLOAT32, 1, partials);
    }
    for (int busy : {0, multiprocessors / 2, multiprocessors - 20, multiprocessors - 3}) {
        for (Array *const *a : {dx, dw, workspace})
            for (int i = 0; i < calls; i++) a[i]->poison();
        check_cuda(cudaDeviceSynchronize(), "poison");
        *(volatile int *)running = 0;
        if (busy > 0) {
            occupy<<<busy, 64, shared, other>>>(running_there, 2000000);
            check_cuda(cudaGetLastError(), "occupy");
            while (!*(volatile int *)running) {
            }
        }
        for (int time = 0; time < 3; time++)
            for (int i = 0; i < calls; i++)
                expect(
                    quiet.backward(dx[i]->data(), dw[i]->data(), workspace[i]->data(), stream[i]),
                    "backward in a crowd", quiet.c);
        check_cuda(cudaDeviceSynchronize(), "crowded");
        for (int i = 0; i < calls; i++) {
            dx[i]->down(), dw[i]->down();
            expect(dx[i]->host == quiet.dx_want, "dx in a crowd", quiet.c);
            expect(dw[i]->host == quiet.dw_want, "dw in a crowd", quiet.c);
        }
    }
    for (int i = 0; i < calls; i++) {
        delete dx[i], delete dw[i], delete workspace[i];
        cudaStreamDestroy(stream[i]);
    }
    cudaStreamDestroy(other);
    cudaFreeHost(running);
}

// Several threads launch on streams of their own, more of them than graphs are kept (launch.cu),
// without a wait, so that graphs get other arguments, and are destroyed, while they run; meanwhile
// another thread captures, in the mode that forbids to all what a capture does not allow.
static void run_threads(int threads, int streams)
{
    const int64_t M = 600, N = 1024; // two kernels
    const int calls = 3;
    const Quiet quiet(M, N, GD_BFLOAT16);
    struct Lane {
        cudaStream_t stream;
        Array *dx[calls], *dw[calls], *workspace;
        bool launched = true;
    };
    std::vector<Lane> lanes((size_t)(threads * streams));
    for (Lane &lane : lanes) {
        check_cuda(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking), "stream");
        lane.workspace =
            new Array(GD_FLOAT32, 1, (int64_t)gd_cuda_rms_norm_workspace(&quiet.p) / 4);
        for (int i = 0; i < calls; i++)
            lane.dx[i] = new Array(GD_BFLOAT16, M, N), lane.dw[i] = new Array(GD_FLOAT32, 1, N);
    }
    Array dx(GD_BFLOAT16, M, N), dw(GD_FLOAT32, 1, N), *const workspace = lanes[0].workspace;
    check_cuda(cudaDeviceSynchronize(), "arrays");

    cudaStream_t captured;
    cudaGraph_t graph;
    check_cuda(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking), "stream");
    check_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), "capture");
    std::vector<std::thread> all;
    for (int t = 0; t < threads; t++)
        all.emplace_back([&, t] {
            for (int i = 0; i < calls; i++)
                for (int k = t * streams; k < (t + 1) * streams; k++) {
                    Lane &lane = lanes[(size_t)k];
                    lane.launched &= quiet.backward(lane.dx[i]->data(), lane.dw[i]->data(),
                                                    lane.workspace->data(), lane.stream);
                }
        });
    expect(quiet.backward(dx.data(), dw.data(), workspace->data(), captured), "captured", quiet.c);
    for (std::thread &thread : all) thread.join();
    check_cuda(cudaStreamEndCapture(captured, &graph), "end of capture");
    size_t nodes = 0;
    check_cuda(cudaGraphGetNodes(graph, nullptr, &nodes), "nodes");
    expect(nodes == 2, "captured kernels", quiet.c);
    check_cuda(cudaDeviceSynchronize(), "threads");
    for (Lane &lane : lanes) {
        expect(lane.launched, "backward of a thread", quiet.c);
        for (int i = 0; i < calls; i++) {
            lane.dx[i]->down(), lane.dw[i]->down();
            expect(lane.dx[i]->host == quiet.dx_want, "dx of a thread", quiet.c);
            expect(lane.dw[i]->host == quiet.dw_want, "dw of a thread", quiet.c);
            delete lane.dx[i], delete lane.dw[i];
        }
        delete lane.workspace;
        cudaStreamDestroy(lane.stream);
    }
    cudaGraphDestroy(graph);
    cudaStreamDestroy(captured);
}

// The linker puts this in the place of the runtime's function, for the library too.
static bool no_graphs;
extern "C" cudaError_t __real_cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec,
                                                            cudaGraph_t graph,
                                                            unsigned long long flags);
extern "C" cudaError_t __wrap_cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec,
                                                            cudaGraph_t graph,
                                                            unsigned long long flags)
{
    if (no_graphs) return cudaErrorMemoryAllocation;
    return __real_cudaGraphInstantiateWithFlags(exec, graph, flags);
}

// Where no graph can be made, the kernels are launched one by one.
static void run_without_graphs(void)
{
    const int64_t M = 600, N = 1024;
    const Quiet quiet(M, N, GD_FLOAT32);
    Array dx(GD_FLOAT32, M, N), dw(GD_FLOAT32, 1, N);
    Array workspace(GD_FLOAT32, 1, (int64_t)gd_cuda_rms_norm_workspace(&quiet.p) / 4);
    cudaStream_t stream;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    no_graphs = true;
    for (int time = 0; time < 2; time++) {
        dx.poison(), dw.poison();
        check_cuda(cudaDeviceSynchronize(), "poison");
        expect(quiet.backward(dx.data(), dw.data(), workspace.data(), stream), "without graphs",
               quiet.c);
        check_cuda(cudaStreamSynchronize(stream), "without graphs");
        dx.down(), dw.down();
        expect(dx.host == quiet.dx_want, "dx without graphs", quiet.c);
        expect(dw.host == quiet.dw_want, "dw without graphs", quiet.c);
        expect(cudaGetLastError() == cudaSuccess, "an error left behind", quiet.c);
    }
    no_graphs = false;
    cudaStreamDestroy(stream);
}

int main(int argc, char **argv)
{
    bool brief = false, threads = true, huge = false;
    for (int i = 1; i < argc; i++) {
        brief |= !strcmp(argv[i], "--short");
        threads &= strcmp(argv[i], "--no-threads") != 0;
        huge |= !strcmp(argv[i], "--huge");
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) || devices == 0) {
        printf("no GPU\n");
        return 77;
    }
    const gd_dtype f32 = GD_FLOAT32, f64 = GD_FLOAT64, bf16 = GD_BFLOAT16, f16 = GD_FLOAT16;
    std::mt19937 random(1);
    // rows cols dtype weight dweight weight? bias? round? accumulate? in place? offset gap shift
    std::vector<Case> cases;
    const gd_dtype dtypes[] = {f32, bf16, f16, f64};
    for (int64_t n : cuda_widths)
        for (gd_dtype d : dtypes) {
            if (n > 70000 && (d == f16 || d == f64) && n != 131072) continue;
            if (brief && (n > 70000 || (n > 9000 && d == f16))) continue;
            const int64_t rows = cuda_rows(n, brief);
            cases.push_back(
                {rows, n, d, d, d == f64 ? f64 : f32, true, false, false, false, false, 0, 0, 0});
        }
    for (gd_dtype d : dtypes)
        for (int64_t n : {256, 1024, 1536, 2504, 3072, 4096, 5120, 7000, 8192, 16384, 40008, 60008,
                          100008, 163840, 200008}) {
            if (brief && (n > 1024 && n != 4096 && n != 8192 && n != 40008)) continue;
            if (n > 20000 && d == f64) continue; // the fallback, at any n
            const int64_t rows = n > 50000 ? 40 : brief || n > 8192 ? 67 : n > 1024 ? 150 : 531;
            cases.push_back({rows, n, d, f32, d, true, true, true, true, true, 1, 0, 0});
            cases.push_back({rows, n, d, bf16, f32, true, false, true, true, false, 1, 64, 0});
            cases.push_back({rows, n, d, f16, f16, true, true, false, false, true, 0, 8, 0});
            cases.push_back({rows, n, d, f64, f64, true, false, false, true, false, 0.5, 0, 0});
            cases.push_back({rows, n, d, f32, f32, false, true, false, false, false, 1, 3, 0});
            cases.push_back({rows, n, d, f32, f32, true, false, false, false, false, 0, 0, 1});
            if (n < 20000)
                cases.push_back({600, n, d, d, f32, true, false, false, false, true, 0, 0, 0});
            for (int64_t m : {0, 1, 2, 5, 133, 512})
                if (n < 20000 || m < 10)
                    cases.push_back(
                        {m, n, d, f32, f32, true, m % 2 == 1, false, m == 5, false, 0, 0, 0});
        }
    for (const Case &c : cases) run(c, random);
    for (gd_dtype d : {f32, bf16, f64})
        for (int64_t n : {40, 256, 1000, 4096, 16384, 40000})
            for (int64_t m : {64, 700})
                if (!brief || (n < 5000 && m < 100)) run_chain(m, n, d);
    for (gd_dtype d : {f32, bf16})
        for (int64_t n : {64, 1024, 4096, 8192, 16384, 65536})
            if (!brief || n == 1024 || n == 8192) run_crowded(n < 5000 ? 2000 : 150, n, d);
    if (threads) run_threads(brief ? 2 : 4, brief ? 40 : 50);
    run_without_graphs();
    if (huge) run_huge();
    printf("%d checks, %d failures\n", checks, failures);
    return failures ? 1 : 0;
}
