// cuda_rms_norm.cuh - one call of the RMSNorm kernels with all its tensors, and its comparison with
// the formulas in float64. It shares no code with what it tests.
#ifndef GRADUS_CUDA_RMS_NORM_CUH
#define GRADUS_CUDA_RMS_NORM_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gradus/kernels.h"

static int failures, checks;

static void check_cuda(cudaError_t error, const char *what)
{
    if (!error) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

// ---- Numbers and arrays -------------------------------------------------------------------------

// The values of the 65536 numbers of a 16-bit dtype.
template <class T>
static const double *values_of_16_bits()
{
    static const std::vector<double> values = [] {
        std::vector<double> all(65536);
        for (unsigned i = 0; i < 65536; i++) {
            const unsigned short bits = (unsigned short)i;
            T number;
            memcpy(static_cast<void *>(&number), &bits, 2);
            all[i] = (double)(float)number;
        }
        return all;
    }();
    return values.data();
}

static double read_number(const void *p, gd_dtype dtype, size_t i)
{
    if (dtype == GD_FLOAT32) return ((const float *)p)[i];
    if (dtype == GD_FLOAT64) return ((const double *)p)[i];
    static const double *const bf16 = values_of_16_bits<__nv_bfloat16>();
    static const double *const f16 = values_of_16_bits<__half>();
    return (dtype == GD_BFLOAT16 ? bf16 : f16)[((const unsigned short *)p)[i]];
}

static void write_number(void *p, gd_dtype dtype, size_t i, double v)
{
    if (dtype == GD_FLOAT32)
        ((float *)p)[i] = (float)v;
    else if (dtype == GD_FLOAT64)
        ((double *)p)[i] = v;
    else if (dtype == GD_BFLOAT16)
        ((__nv_bfloat16 *)p)[i] = __double2bfloat16(v);
    else
        ((__half *)p)[i] = __double2half(v);
}

static double rounded(double v, gd_dtype dtype)
{
    char bits[8];
    write_number(bits, dtype, 0, v);
    return read_number(bits, dtype, 0);
}

// The largest relative error of rounding to dtype.
static double unit_of(gd_dtype dtype)
{
    return dtype == GD_BFLOAT16  ? 1.0 / 256
           : dtype == GD_FLOAT16 ? 1.0 / 2048
           : dtype == GD_FLOAT32 ? 6e-8
                                 : 1.2e-16;
}

// body(begin, end) over 0 to count, by as many threads as pay off.
template <class Body>
static void in_parallel(int64_t count, int64_t work_of_one, const Body &body)
{
    int64_t threads = (int64_t)std::thread::hardware_concurrency();
    const int64_t worth = count * work_of_one / 50000;
    threads = worth < threads ? worth : threads;
    threads = count < threads ? count : threads;
    if (threads < 2) return body((int64_t)0, count);
    std::vector<std::thread> all;
    for (int64_t t = 0; t < threads; t++)
        all.emplace_back([&, t] { body(count * t / threads, count * (t + 1) / threads); });
    for (std::thread &thread : all) thread.join();
}

static uint64_t fills;
// Arrays begin and end with their numbers, for compute-sanitizer, which knows where an
// allocation ends.
static bool exact;

// [rows, cols] on the GPU, `stride` from row to row: the contents before a call and after it.
// Everything that is not filled, between the rows too, is the poison 0xff, a NaN of every dtype. A
// copy has the same address on the GPU.
struct Array {
    enum { MARGIN = 512 }; // bytes of poison on both sides, unless they are exact
    gd_dtype dtype;
    int64_t rows, cols, stride, shift; // shift: elements before the first
    bool present;                      // absent: NULL to the library
    size_t ahead;                      // bytes of zeros on the GPU before these contents
    std::vector<char> before, after;
    std::shared_ptr<char> device;

    // `off` elements of misalignment; `more` unchecked rows before it, instead of a margin.
    Array(bool is_present, gd_dtype d, int64_t m, int64_t n, int64_t s, int64_t off = 0,
          int64_t more = 0)
        : dtype(d), rows(is_present ? m : 0), cols(n), stride(s), shift(off), present(is_present)
    {
        const size_t size = gd_dtype_size(dtype);
        int64_t behind = rows ? cols - stride : 1;
        if (!exact) behind += MARGIN / (int64_t)size;
        if (!exact && more == 0) shift += MARGIN / (int64_t)size;
        before.assign((size_t)(shift + rows * stride + behind) * size, (char)0xff);
        ahead = present ? (size_t)(more * stride) * size : 0;
        own();
    }
    // Moves to another address on the GPU.
    void own()
    {
        char *memory = nullptr;
        check_cuda(cudaMalloc(&memory, ahead + before.size()), "cudaMalloc");
        check_cuda(cudaMemset(memory, 0, ahead), "cudaMemset");
        device = std::shared_ptr<char>(memory, [](char *p) { cudaFree(p); });
    }
    void *data() const
    {
        return present ? device.get() + (size_t)shift * gd_dtype_size(dtype) : nullptr;
    }
    double was(int64_t i, int64_t j) const
    {
        return read_number(before.data(), dtype, (size_t)(shift + i * stride + j));
    }
    double is(int64_t i, int64_t j) const
    {
        return read_number(after.data(), dtype, (size_t)(shift + i * stride + j));
    }
    Array &fill(double mean, double deviation)
    {
        const uint64_t seed = ++fills << 40;
        in_parallel(rows, cols, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++)
                for (int64_t j = 0; j < cols; j++) {
                    uint64_t z = seed + (uint64_t)(i * cols + j) * 0x9e3779b97f4a7c15u;
                    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u; // SplitMix64's mixing
                    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
                    const double uniform = (double)(z >> 11) * 0x1p-52 - 1; // variance 1/3
                    write_number(before.data(), dtype, (size_t)(shift + i * stride + j),
                                 mean + deviation * 1.732 * uniform);
                }
        });
        return *this;
    }
    void reset() const
    {
        check_cuda(
            cudaMemcpy(device.get() + ahead, before.data(), before.size(), cudaMemcpyDefault),
            "copy to the GPU");
    }
    void down()
    {
        after.resize(before.size());
        check_cuda(cudaMemcpy(after.data(), device.get() + ahead, after.size(), cudaMemcpyDefault),
                   "copy from the GPU");
    }
    // Whether everything outside the rows is unchanged.
    bool edges_untouched() const
    {
        const size_t size = gd_dtype_size(dtype);
        size_t from = 0;
        for (int64_t i = 0; i <= rows; i++) {
            const size_t to = i < rows ? (size_t)(shift + i * stride) * size : before.size();
            if (memcmp(before.data() + from, after.data() + from, to - from)) return false;
            from = to + (size_t)cols * size;
        }
        return true;
    }
};

// ---- A case and its run -------------------------------------------------------------------------

struct Case {
    int64_t tokens, heads, cols; // x [tokens, heads, cols]
    gd_dtype dtype, y_dtype, weight_dtype, dweight_dtype;
    bool per_head = false, residual = false, dsum = false, weight = true, bias = false;
    bool dx = true, dbranch = false, dw = true, db = false; // wanted
    bool accumulate_dx = false, accumulate_dbranch = false, accumulate_dw = false;
    bool round = false, in_place = false, flat_dy = false;
    double offset = 0;
    int64_t gap = 0;   // at least so many elements between tokens
    unsigned odd = 0;  // bit k: tensor k begins one element after an aligned address
    int64_t ahead = 0; // tokens of zeros before these

    Case(int64_t rows, int64_t n, gd_dtype d)
        : tokens(rows), heads(1), cols(n), dtype(d), y_dtype(d), weight_dtype(d),
          dweight_dtype(d == GD_FLOAT64 ? d : GD_FLOAT32)
    {
    }
    // The same case as add_rms_norm calls it, with these dtypes.
    Case added(gd_dtype y) const
    {
        Case c = *this;
        c.y_dtype = y, c.residual = c.dsum = true;
        c.dbranch = y != dtype;
        return c;
    }
    Case with_heads(int64_t h, bool own_weights) const
    {
        Case c = *this;
        c.heads = h, c.per_head = own_weights;
        return c;
    }
    gd_dtype sum_dtype() const
    {
        const bool wide =
            dtype == GD_FLOAT64 || y_dtype == GD_FLOAT64 || weight_dtype == GD_FLOAT64;
        return wide ? GD_FLOAT64 : GD_FLOAT32;
    }
    std::string text() const
    {
        char line[400];
        snprintf(line, sizeof line,
                 "%lld x %lld x %lld %s y %s weight %s %s dw %s%s%s%s%s%s%s%s%s%s offset %g gap "
                 "%lld odd %x",
                 (long long)tokens, (long long)heads, (long long)cols, gd_dtype_name(dtype),
                 gd_dtype_name(y_dtype), weight ? gd_dtype_name(weight_dtype) : "none",
                 per_head ? "per head" : "", gd_dtype_name(dweight_dtype), bias ? " bias" : "",
                 residual ? " residual" : "", dsum ? " dsum" : "", dbranch ? " dbranch" : "",
                 round ? " round" : "", in_place ? " in place" : "", flat_dy ? " flat dy" : "",
                 accumulate_dx || accumulate_dbranch ? " adds" : "",
                 accumulate_dw ? " adds dw" : "", offset, (long long)gap, odd);
        return line;
    }
};

static void expect(bool ok, const char *what, const Case &c)
{
    checks++;
    if (ok) return;
    printf("%s: %s\n", what, c.text().c_str());
    failures++;
}

// A call of either kind and its tensors, with random numbers in them.
struct Run {
    const Case c;
    const int64_t rows, sums; // numbers in dw: N, or H N
    gd_rms_norm_problem p;
    int made = 0;
    Array x, residual, w, b, y, sum, rstd;
    Array dy, dsum, dx, dbranch, dw, db, workspace;
    bool reported = false;
    std::mutex lock;

    explicit Run(const Case &of)
        : c(of), rows(c.tokens * c.heads), sums((c.per_head ? c.heads : 1) * c.cols),
          p(problem_of(c)), x(tensor(true, c.residual ? c.y_dtype : c.dtype).fill(0.3, 1.7)),
          residual(tensor(c.residual, c.dtype).fill(-0.2, 1.1)),
          w(param(c.weight, c.weight_dtype).fill(0.7, 0.5)),
          b(param(c.bias, c.weight_dtype).fill(0, 1)),
          y(c.in_place && x.dtype == c.y_dtype ? x : tensor(true, c.y_dtype)),
          sum(c.in_place && c.residual ? residual : tensor(c.residual, c.dtype)),
          rstd(true, c.sum_dtype(), rows, 1, 1, 0, c.ahead * c.heads),
          dy(tensor(true, c.y_dtype, c.flat_dy).fill(0.1, 1)),
          dsum(tensor(c.dsum, c.dtype).fill(0.05, 0.8)),
          dx(!c.in_place                          ? tensor(c.dx, c.dtype)
             : c.dsum                             ? dsum
             : c.dtype == c.y_dtype && !c.flat_dy ? dy
                                                  : tensor(c.dx, c.dtype)),
          dbranch(tensor(c.dbranch, c.y_dtype)), dw(param(c.dw, c.dweight_dtype)),
          db(param(c.db, c.dweight_dtype)),
          workspace(floats((int64_t)gd_cuda_rms_norm_workspace(&p) / 4))
    {
        if (c.accumulate_dx && !c.in_place) dx.fill(0.2, 0.9);
        if (c.accumulate_dbranch) dbranch.fill(-0.1, 0.5);
        if (c.accumulate_dw) dw.fill(2.5, 0.5), db.fill(-1.5, 0.5);
    }
    Array tensor(bool present, gd_dtype dtype, bool flat = false)
    {
        const int64_t width = c.heads * c.cols, stride = width + c.gap * (1 + made % 3);
        const int64_t tokens = flat && c.tokens > 0 ? 1 : c.tokens;
        return Array(present, dtype, tokens, width, stride, c.odd >> made++ & 1, c.ahead);
    }
    Array param(bool present, gd_dtype dtype)
    {
        return Array(present, dtype, 1, sums, sums, c.odd >> made++ & 1);
    }
    static Array floats(int64_t n)
    {
        return Array(true, GD_FLOAT32, 1, n, n);
    }
    static gd_rms_norm_problem problem_of(const Case &c)
    {
        gd_rms_norm_problem p = {};
        p.rows = (c.ahead + c.tokens) * c.heads, p.cols = c.cols, p.heads = c.heads;
        p.weight_per_head = c.per_head, p.dtype = c.dtype, p.y_dtype = c.y_dtype;
        p.weight_dtype = c.weight_dtype, p.dweight_dtype = c.dweight_dtype, p.eps = 1e-5;
        p.offset = c.offset, p.round_before_weight = c.round;
        return p;
    }
    gd_rms_norm_values values() const
    {
        gd_rms_norm_values v = {};
        v.y = y.data(), v.y_stride = y.stride, v.rstd = rstd.data();
        v.x = x.data(), v.x_stride = x.stride;
        v.residual = residual.data(), v.residual_stride = residual.stride;
        v.sum = sum.data(), v.sum_stride = sum.stride;
        v.weight = w.data(), v.bias = b.data();
        return v;
    }
    gd_rms_norm_gradients gradients() const
    {
        const Array &normalised = c.residual ? sum : x;
        gd_rms_norm_gradients g = {};
        g.dx = dx.data(), g.dx_stride = dx.stride, g.accumulate_dx = c.accumulate_dx && !c.in_place;
        g.dbranch = dbranch.data(), g.dbranch_stride = dbranch.stride;
        g.accumulate_dbranch = c.accumulate_dbranch;
        g.dweight = dw.data(), g.dbias = db.data();
        g.accumulate_dweight = g.accumulate_dbias = c.accumulate_dw;
        g.dy = dy.data(), g.dy_stride = c.flat_dy ? 0 : dy.stride;
        g.dsum = dsum.data(), g.dsum_stride = dsum.stride;
        g.x = normalised.data(), g.x_stride = normalised.stride;
        g.rstd = rstd.data(), g.weight = w.data(), g.workspace = workspace.data();
        return g;
    }
    std::vector<Array *> forward_inputs()
    {
        return {&x, &residual, &w, &b};
    }
    std::vector<Array *> forward_outputs()
    {
        return {&y, &sum, &rstd};
    }
    // Without x, or the sum and rstd, which the forward leaves.
    std::vector<Array *> backward_inputs()
    {
        return {&dy, &dsum, &w};
    }
    std::vector<Array *> backward_outputs()
    {
        return {&dx, &dbranch, &dw, &db, &workspace};
    }

    // Runs both, each twice, and the forward once more without rstd; leaves all `after`.
    void run()
    {
        gd_rms_norm_values v = values();
        for (int time = 0; time < 3; time++) {
            for (Array *a : forward_inputs()) a->reset();
            if (time == 2) v.rstd = nullptr;
            for (Array *a : forward_outputs())
                if (a != &rstd || v.rstd) a->reset();
            expect(!gd_cuda_rms_norm_forward(&p, &v, nullptr), "the forward failed", c);
            check_cuda(cudaDeviceSynchronize(), c.text().c_str());
            compare_bits(forward_outputs(), time > 0, "the forward does not repeat");
        }
        if (!c.residual) x.reset(); // y may have overwritten it
        const gd_rms_norm_gradients g = gradients();
        for (int time = 0; time < 2; time++) {
            for (Array *a : backward_inputs()) a->reset();
            for (Array *a : backward_outputs()) a->reset();
            expect(!gd_cuda_rms_norm_backward(&p, &g, nullptr), "the backward failed", c);
            check_cuda(cudaDeviceSynchronize(), c.text().c_str());
            compare_bits(backward_outputs(), time > 0, "the backward does not repeat");
        }
    }
    // Fetches them, and compares with those fetched last time.
    void compare_bits(const std::vector<Array *> &arrays, bool compare, const char *what)
    {
        for (Array *a : arrays) {
            const std::vector<char> last = a->after;
            a->down();
            if (a != &workspace) expect(!compare || a->after == last, what, c);
            expect(a->edges_untouched(), "wrote past a row", c);
        }
    }

    // got and want may differ by `error` before the rounding to got's dtype.
    void check(const char *what, const Array &array, int64_t i, int64_t j, double want,
               double error)
    {
        const double got = array.is(i, j), unit = unit_of(array.dtype);
        const double subnormal = array.dtype == GD_FLOAT16 ? 6e-8 : 0;
        const double allowed = error * (1 + unit) + unit * fabs(want) + subnormal;
        if (fabs(got - want) <= allowed) return;
        const std::lock_guard<std::mutex> guard(lock);
        if (!reported)
            printf("%s [%lld, %lld] is %.9g, wanted %.9g within %.3g: %s\n", what, (long long)i,
                   (long long)j, got, want, allowed, c.text().c_str());
        failures += !reported;
        reported = true;
    }

    // One thread's sums over its rows, and the sums of the terms' magnitudes: errors are measured
    // relative to these.
    struct Sums {
        std::vector<double> dw, dw_size, db, db_size;
        explicit Sums(int64_t n)
            : dw((size_t)n), dw_size((size_t)n), db((size_t)n), db_size((size_t)n)
        {
        }
    };

    // Compares everything with the formulas, computed in float64.
    void verify()
    {
        Sums all(sums);
        checks++;
        in_parallel(rows, 8 * c.cols, [&](int64_t begin, int64_t end) {
            Sums part(sums);
            for (int64_t row = begin; row < end; row++) verify_row(row, part);
            const std::lock_guard<std::mutex> guard(lock);
            for (size_t k = 0; k < (size_t)sums; k++) {
                all.dw[k] += part.dw[k], all.dw_size[k] += part.dw_size[k];
                all.db[k] += part.db[k], all.db_size[k] += part.db_size[k];
            }
        });
        const double fine = c.sum_dtype() == GD_FLOAT64 ? 1e-13 : 3e-6;
        for (int64_t k = 0; k < sums; k++) {
            const double dw_was = c.dw && c.accumulate_dw ? dw.was(0, k) : 0;
            const double db_was = c.db && c.accumulate_dw ? db.was(0, k) : 0;
            const double dw_size = all.dw_size[(size_t)k] + fabs(dw_was);
            const double db_size = all.db_size[(size_t)k] + fabs(db_was);
            if (c.dw) check("dw", dw, 0, k, all.dw[(size_t)k] + dw_was, fine * dw_size);
            if (c.db) check("db", db, 0, k, all.db[(size_t)k] + db_was, fine * db_size);
        }
    }

    void verify_row(int64_t row, Sums &part)
    {
        const int64_t N = c.cols, t = row / c.heads, head = row % c.heads, from = head * N;
        const int64_t param = c.per_head ? from : 0, dy_row = c.flat_dy ? 0 : t;
        const bool wide = c.sum_dtype() == GD_FLOAT64;
        const double fine = wide ? 1e-13 : 2e-6;
        std::vector<double> value((size_t)N), factor((size_t)N), gradient((size_t)N);
        for (int64_t j = 0; j < N; j++) {
            value[(size_t)j] = c.residual ? sum.is(t, from + j) : x.was(t, from + j);
            factor[(size_t)j] = c.weight ? c.offset + w.was(0, param + j) : 1;
            gradient[(size_t)j] = dy.was(dy_row, from + j);
        }
        double squares = 0, dot = 0, dot_size = 0;
        for (double v : value) squares += v * v;
        const double r = 1 / sqrt(squares / (double)N + 1e-5);
        check("rstd", rstd, row, 0, r, fine * r);
        for (size_t j = 0; j < (size_t)N; j++) {
            const double term = gradient[j] * factor[j] * value[j] * r / (double)N;
            dot += term, dot_size += fabs(term);
        }
        for (int64_t j = 0; j < N; j++) {
            const int64_t at = from + j;
            if (c.residual) {
                const double a = x.was(t, at), b_ = residual.was(t, at);
                check("sum", sum, t, at, a + b_, (wide ? 2e-16 : 1.2e-7) * (fabs(a) + fabs(b_)));
            }
            const double xhat = value[(size_t)j] * r, d = gradient[(size_t)j];
            const double f = factor[(size_t)j];
            // The error of xhat before it is rounded; it may change the direction of rounding.
            double low = xhat, high = xhat;
            if (c.round)
                low = rounded(xhat * (1 - fine), c.y_dtype),
                high = rounded(xhat * (1 + fine), c.y_dtype);
            const double between = (low + high) / 2, either = fabs(high - low) / 2;
            const double bias = c.bias ? b.was(0, param + j) : 0;
            check("y", y, t, at, between * f + bias,
                  fine * (fabs(xhat * f) + fabs(bias)) + either * fabs(f));

            const double past = c.dsum ? dsum.was(t, at) : 0;
            const double want = r * (d * f - xhat * dot) + past;
            const double size = r * (fabs(d * f) + fabs(xhat) * dot_size) + fabs(past);
            const double dx_was = dx.present && c.accumulate_dx && !c.in_place ? dx.was(t, at) : 0;
            const double dbranch_was = c.dbranch && c.accumulate_dbranch ? dbranch.was(t, at) : 0;
            if (dx.present) check("dx", dx, t, at, want + dx_was, fine * (size + fabs(dx_was)));
            if (c.dbranch)
                check("dbranch", dbranch, t, at, want + dbranch_was,
                      fine * (size + fabs(dbranch_was)));
            const size_t k = (size_t)(param + j);
            part.dw[k] += d * between, part.dw_size[k] += fabs(d * xhat) + fabs(d) * either / fine;
            part.db[k] += d, part.db_size[k] += fabs(d);
        }
    }
};

#endif
