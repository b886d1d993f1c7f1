// rms_norm_work.cuh - what the CUDA benchmarks of the norms call: the kernels of gradus/kernels.h
// on buffers of a rotation, and a check of their results against float64 on the CPU.
#ifndef GRADUS_RMS_NORM_WORK_CUH
#define GRADUS_RMS_NORM_WORK_CUH

#include <string.h>

#include "cuda_timing.cuh"
#include "gradus/kernels.h"

struct Shape {
    gd_dtype dtype, y_dtype; // they differ in mixed precision
    int64_t rows, cols;
    int64_t heads; // above 1: weight [heads, cols]
    bool residual; // add_rms_norm, with dsum in the backward

    double elements() const
    {
        return (double)rows * (double)cols;
    }
    bool mixed() const
    {
        return dtype != y_dtype;
    }
    const char *dtype_name() const
    {
        return mixed() ? "mixed" : gd_dtype_name(dtype);
    }
};

// The buffers of a set. The forward reads BRANCH (x) and, where there is one, the residual in
// STREAM, and writes SUM and Y. The backward reads BRANCH (dy), STREAM (what was normalised) and
// SUM (dsum), and writes DX and, in mixed precision with a residual, Y (dbranch). Without a
// residual x is in STREAM both ways.
enum { BRANCH, STREAM, SUM, DX, Y, BUFFERS };

static __host__ __device__ inline double number(const char *p, gd_dtype dtype, size_t i)
{
    if (dtype == GD_FLOAT32) return ((const float *)p)[i];
    if (dtype == GD_FLOAT16) return __half2float(((const __half *)p)[i]);
    return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

static std::vector<char> to_host(const void *device, size_t bytes)
{
    std::vector<char> host(bytes);
    must(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost), "copy to the host");
    return host;
}

// Memory of the device.
struct Memory {
    char *p = nullptr;
    explicit Memory(size_t bytes)
    {
        must(cudaMalloc(&p, bytes + 16), "cudaMalloc");
    }
    Memory(const Memory &) = delete;
    ~Memory()
    {
        cudaFree(p);
    }
};

// A shape, its memory, and the calls.
struct Work {
    Shape shape;
    gd_rms_norm_problem problem;
    size_t weights; // numbers of weight and of dweight
    int y_slot;     // y takes the place of dx where both are of one dtype
    Rotation buffers;
    Memory weight, rstd, dweight, dbias, workspace;
    bool with_dbias = false;

    explicit Work(const Shape &s, int most_sets = 64)
        : shape(s), problem(problem_of(s)),
          weights((size_t)(s.heads > 1 ? s.heads * s.cols : s.cols)), y_slot(s.mixed() ? Y : DX),
          buffers(buffer_bytes(s), buffer_dtypes(s), most_sets),
          weight(weights * gd_dtype_size(problem.weight_dtype)), rstd((size_t)s.rows * 4),
          dweight(weights * 4), dbias(weights * 4), workspace(gd_cuda_rms_norm_workspace(&problem))
    {
        const gd_dtype dtype = problem.weight_dtype;
        fill_numbers<<<64, 256>>>((uint32_t *)weight.p, (weights * gd_dtype_size(dtype) + 3) / 4,
                                  dtype, 99);
        must(cudaDeviceSynchronize(), "filling the weight");
    }

    // The weight is of x's dtype, in mixed precision float32; dw float32.
    static gd_rms_norm_problem problem_of(const Shape &s)
    {
        gd_rms_norm_problem p = {};
        p.rows = s.rows, p.cols = s.cols;
        p.heads = s.heads, p.weight_per_head = s.heads > 1;
        p.dtype = s.dtype, p.y_dtype = s.y_dtype;
        p.weight_dtype = s.dtype, p.dweight_dtype = GD_FLOAT32;
        p.eps = 1e-5;
        return p;
    }
    static std::vector<gd_dtype> buffer_dtypes(const Shape &s)
    {
        std::vector<gd_dtype> dtypes(BUFFERS, s.dtype);
        dtypes[BRANCH] = dtypes[Y] = s.y_dtype;
        return dtypes;
    }
    // Whole vectors of 16 bytes, which is what the ceilings move.
    static std::vector<size_t> buffer_bytes(const Shape &s)
    {
        const size_t count = ((size_t)(s.rows * s.cols) + 7) / 8 * 8;
        std::vector<size_t> bytes(BUFFERS);
        const std::vector<gd_dtype> dtypes = buffer_dtypes(s);
        for (size_t b = 0; b < BUFFERS; b++) bytes[b] = count * gd_dtype_size(dtypes[b]);
        if (!s.residual) bytes[SUM] = 0;
        if (!s.mixed()) bytes[Y] = 0;
        return bytes;
    }

    Traffic forward_traffic() const
    {
        if (shape.residual) return {{BRANCH, STREAM}, {SUM, y_slot}};
        return {{STREAM}, {y_slot}};
    }
    Traffic backward_traffic() const
    {
        Traffic t = {{BRANCH, STREAM}, {DX}};
        if (shape.residual) t.in.push_back(SUM);
        if (shape.residual && shape.mixed()) t.out.push_back(Y);
        return t;
    }

    bool forward(int set, cudaStream_t stream) const
    {
        gd_rms_norm_values v = {};
        v.x = buffers.get(set, shape.residual ? BRANCH : STREAM);
        v.y = buffers.get(set, y_slot), v.rstd = rstd.p, v.weight = weight.p;
        v.x_stride = v.y_stride = stride();
        if (shape.residual) {
            v.residual = buffers.get(set, STREAM), v.sum = buffers.get(set, SUM);
            v.residual_stride = v.sum_stride = stride();
        }
        return !gd_cuda_rms_norm_forward(&problem, &v, stream);
    }
    bool backward(int set, cudaStream_t stream) const
    {
        gd_rms_norm_gradients g = {};
        g.dx = buffers.get(set, DX), g.dx_stride = stride();
        g.dy = buffers.get(set, BRANCH), g.dy_stride = stride();
        g.x = buffers.get(set, STREAM), g.x_stride = stride();
        if (shape.residual) g.dsum = buffers.get(set, SUM), g.dsum_stride = stride();
        if (shape.residual && shape.mixed())
            g.dbranch = buffers.get(set, Y), g.dbranch_stride = stride();
        g.rstd = rstd.p, g.weight = weight.p, g.workspace = workspace.p;
        g.dweight = dweight.p, g.dbias = with_dbias ? dbias.p : nullptr;
        return !gd_cuda_rms_norm_backward(&problem, &g, stream);
    }
    // rstd of what the backward takes for x: by a forward without the residual, which writes DX or
    // Y, and so before a backward.
    bool prepare_rstd(int set) const
    {
        gd_rms_norm_values v = {};
        v.x = buffers.get(set, STREAM), v.y = buffers.get(set, y_slot), v.rstd = rstd.p;
        v.x_stride = v.y_stride = stride(), v.weight = weight.p;
        return !gd_cuda_rms_norm_forward(&problem, &v, nullptr);
    }

  private:
    // From token to token, whose heads lie side by side.
    int64_t stride() const
    {
        return std::max<int64_t>(shape.heads, 1) * shape.cols;
    }
};

// The larger of two errors; NaN, the worst of all, stays.
static double worse(double a, double b)
{
    return a != a || a >= b ? a : b;
}

// Largest difference and largest value of one tensor.
struct Compared {
    double error = 0, largest = 0, allowed;

    explicit Compared(gd_dtype dtype)
        : allowed(dtype == GD_BFLOAT16  ? 1.0 / 256
                  : dtype == GD_FLOAT16 ? 1.0 / 2048
                                        : 1e-5)
    {
    }
    void add(double got, double want)
    {
        error = worse(error, fabs(got - want));
        largest = fmax(largest, fabs(want));
    }
    // As a share of the largest value; NAN where that is more than rounding explains.
    double share() const
    {
        const double s = error / fmax(largest, 1e-30);
        return s <= allowed ? s : NAN;
    }
};

// A tensor of the device, on the host.
struct HostTensor {
    std::vector<char> bytes;
    gd_dtype dtype;
    double at(size_t i) const
    {
        return number(bytes.data(), dtype, i);
    }
};

// The largest error of y, sum, dx, dbranch and dw, as a share of the largest value of each, on at
// most 256 tokens of the shape; NAN where one is wrong.
static double check(Shape s)
{
    const int64_t heads = std::max<int64_t>(s.heads, 1), width = s.cols * heads;
    const int64_t tokens = std::max<int64_t>(8, std::min<int64_t>(256, (1 << 19) / width));
    s.rows = std::min<int64_t>(s.rows / heads, tokens) * heads;
    const Work w(s, 1);
    const size_t N = (size_t)s.cols, count = (size_t)s.rows * N;
    auto fetch = [&](const void *p, size_t n, gd_dtype dtype) {
        return HostTensor{to_host(p, n * gd_dtype_size(dtype)), dtype};
    };
    auto buffer = [&](int b) {
        return fetch(w.buffers.get(0, b), count, b == BRANCH || b == Y ? s.y_dtype : s.dtype);
    };

    if (!w.forward(0, nullptr)) return NAN;
    const HostTensor branch = buffer(BRANCH), stream = buffer(STREAM);
    const HostTensor y = fetch(w.buffers.get(0, w.y_slot), count, s.y_dtype);
    const HostTensor sum = s.residual ? buffer(SUM) : HostTensor{{}, s.dtype};
    if (!w.prepare_rstd(0) || !w.backward(0, nullptr)) return NAN;
    const HostTensor dx = buffer(DX), dw = fetch(w.dweight.p, w.weights, GD_FLOAT32);
    const bool has_dbranch = s.residual && s.mixed();
    const HostTensor dbranch = has_dbranch ? buffer(Y) : HostTensor{{}, s.y_dtype};
    const HostTensor weight = fetch(w.weight.p, w.weights, w.problem.weight_dtype);

    Compared c_y(s.y_dtype), c_sum(s.dtype), c_dx(s.dtype), c_dbranch(s.y_dtype), c_dw(GD_FLOAT32);
    std::vector<double> dw_want(w.weights);
    for (size_t i = 0; i < (size_t)s.rows; i++) {
        const size_t row = i * N, head = i * N % w.weights; // N weights: every row's begin at 0
        double squares = 0, x_squares = 0, dot = 0;
        for (size_t j = row; j < row + N; j++) {
            const double normed = s.residual ? sum.at(j) : stream.at(j), x = stream.at(j);
            if (s.residual) c_sum.add(normed, branch.at(j) + x);
            squares += normed * normed, x_squares += x * x;
            dot += branch.at(j) * weight.at(head + j - row) * x;
        }
        const double y_rstd = 1 / sqrt(squares / (double)N + 1e-5);
        const double rstd = 1 / sqrt(x_squares / (double)N + 1e-5);
        const double mean = dot * rstd / (double)N;
        for (size_t j = row; j < row + N; j++) {
            const double f = weight.at(head + j - row), dy = branch.at(j), x = stream.at(j);
            c_y.add(y.at(j), (s.residual ? sum.at(j) : x) * y_rstd * f);
            const double want =
                rstd * (dy * f - x * rstd * mean) + (s.residual ? sum.at(j) : 0); // SUM is dsum
            c_dx.add(dx.at(j), want);
            if (has_dbranch) c_dbranch.add(dbranch.at(j), want);
            dw_want[head + j - row] += dy * x * rstd;
        }
    }
    for (size_t k = 0; k < w.weights; k++) c_dw.add(dw.at(k), dw_want[k]);
    double worst = 0;
    for (const Compared *c : {&c_y, &c_sum, &c_dx, &c_dbranch, &c_dw})
        worst = worse(worst, c->share());
    return worst;
}

#endif
