// cuda_rms_norm.cuh - a call of the RMSNorm kernels with all its tensors on the GPU; test_calls.h
// compares it with the formulas.
#ifndef GRADUS_CUDA_RMS_NORM_CUH
#define GRADUS_CUDA_RMS_NORM_CUH

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rms_norm/test_calls.h"

static int failures, checks;

static void check_cuda(cudaError_t error, const char *what)
{
    if (!error) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
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

// ---- A case -------------------------------------------------------------------------------------

struct Case : call_case {
    Case(int64_t rows, int64_t n, gd_dtype d) : call_case(plain_case(rows, n, d)) {}
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
};

static std::string text_of(const call_case &c)
{
    char line[200];
    snprintf(line, sizeof line, "%lld x %lld x %lld %s y %s weight %s dw %s", (long long)c.tokens,
             (long long)c.heads, (long long)c.cols, gd_dtype_name(c.dtype),
             gd_dtype_name(c.y_dtype), c.no_weight ? "none" : gd_dtype_name(c.weight_dtype),
             gd_dtype_name(c.dweight_dtype));
    std::string text = line;
    const struct {
        const char *name;
        bool is;
    } options[] = {{"per head", c.per_head},     {"bias", c.bias},
                   {"residual", c.residual},     {"dsum", c.dsum},
                   {"dbranch", c.dbranch},       {"round", c.round},
                   {"in place", c.in_place},     {"flat dy", c.flat_dy},
                   {"adds dx", c.accumulate_dx}, {"adds dbranch", c.accumulate_dbranch},
                   {"adds dw", c.accumulate_dw}};
    for (const auto &option : options)
        if (option.is) text += std::string(" ") + option.name;
    snprintf(line, sizeof line, " offset %g gap %lld odd %x by %lld", c.offset, (long long)c.gap,
             c.odd, (long long)c.shift);
    return text + line;
}

static void expect(bool ok, const char *what, const call_case &c)
{
    checks++;
    if (ok) return;
    printf("%s: %s\n", what, text_of(c).c_str());
    failures++;
}

static std::mutex lock;
static bool reported; // of the case that is being compared

static void wrong_number(const call_case *c, const char *text)
{
    const std::lock_guard<std::mutex> guard(lock);
    if (!reported) printf("%s: %s\n", text, text_of(*c).c_str());
    failures += !reported;
    reported = true;
}

// ---- Its tensors --------------------------------------------------------------------------------

static uint64_t fills;
// Arrays begin and end with their numbers, for compute-sanitizer, which knows where an
// allocation ends.
static bool exact;

// A tensor on the GPU: the contents before a call and after it. A copy has the same address on the
// GPU.
struct Array {
    enum { MARGIN = 512 }; // bytes of poison on both sides, unless they are exact
    call_tensor t;
    size_t first, ahead; // bytes before the numbers; and of zeros before these contents
    std::vector<char> before, after;
    std::shared_ptr<char> device;

    // `more` unchecked rows before it, instead of a margin.
    explicit Array(const call_tensor &of, int64_t more = 0) : t(of)
    {
        const size_t size = gd_dtype_size(t.dtype), margin = exact ? 0 : (size_t)MARGIN;
        const int64_t behind = t.rows ? t.cols - t.stride : 1;
        first = (size_t)t.shift * size + (more ? 0 : margin);
        before.assign(first + (size_t)(t.rows * t.stride + behind) * size + margin, (char)0xff);
        ahead = t.present ? (size_t)(more * t.stride) * size : 0;
        fills++;
        in_parallel(t.deviation > 0 ? t.rows : 0, t.cols, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) {
                uint64_t seed = fills << 40 ^ (uint64_t)i << 20;
                for (int64_t j = 0; j < t.cols; j++)
                    store_number(before.data() + first, t.dtype, i * t.stride + j,
                                 t.mean + t.deviation * random_in(&seed, -1.7, 1.7));
            }
        });
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
        return t.present ? device.get() + first : nullptr;
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
};

// ---- A run --------------------------------------------------------------------------------------

// A call of either kind and its tensors, with random numbers in them.
struct Run {
    const Case c;
    const gd_rms_norm_problem p;
    std::vector<Array> arrays;

    explicit Run(const Case &of) : c(of), p(problem_of(&c))
    {
        for (int k = 0; k < TENSORS; k++) {
            const int place = place_of(&c, k);
            const call_tensor t = tensor_of(&c, k, gd_cuda_rms_norm_workspace(&p));
            const bool param = k == WEIGHT || k == BIAS || k >= DW;
            const int64_t more = param ? 0 : c.ahead * (k == RSTD ? c.heads : 1);
            arrays.push_back(place == k ? Array(t, more) : arrays[(size_t)place]);
            Array &a = arrays.back();
            a.t.present = t.present, a.t.deviation = t.deviation;
        }
    }
    Array &operator[](int which)
    {
        return arrays[(size_t)which];
    }
    std::vector<Array *> some(int first, int last)
    {
        std::vector<Array *> all;
        for (int k = first; k <= last; k++) all.push_back(&arrays[(size_t)k]);
        return all;
    }
    void reset(int first, int last)
    {
        for (Array *a : some(first, last)) a->reset();
    }
    // What test_calls.h knows of them.
    std::vector<call_tensor> tensors() const
    {
        std::vector<call_tensor> all;
        for (const Array &a : arrays) {
            all.push_back(a.t);
            all.back().before = a.before.data() + a.first;
            all.back().after = a.after.data() + a.first;
        }
        return all;
    }
    std::vector<void *> data() const
    {
        std::vector<void *> all;
        for (const Array &a : arrays) all.push_back(a.data());
        return all;
    }
    gd_rms_norm_values values() const
    {
        return values_of_call(data().data(), tensors().data());
    }
    gd_rms_norm_gradients gradients() const
    {
        return gradients_of_call(&c, data().data(), tensors().data());
    }

    // Runs both, each twice, and the forward once more without rstd; leaves all `after`.
    void run()
    {
        gd_rms_norm_values v = values();
        for (int time = 0; time < 3; time++) {
            if (time == 2) v.rstd = nullptr;
            reset(X, v.rstd ? RSTD : SUM);
            expect(!gd_cuda_rms_norm_forward(&p, &v, nullptr), "the forward failed", c);
            check_cuda(cudaDeviceSynchronize(), text_of(c).c_str());
            compare_bits(some(Y, RSTD), time > 0, "the forward does not repeat");
        }
        if (!c.residual) reset(X, X); // y may have overwritten it
        const gd_rms_norm_gradients g = gradients();
        for (int time = 0; time < 2; time++) {
            reset(WEIGHT, WEIGHT), reset(DY, WORKSPACE);
            expect(!gd_cuda_rms_norm_backward(&p, &g, nullptr), "the backward failed", c);
            check_cuda(cudaDeviceSynchronize(), text_of(c).c_str());
            compare_bits(some(DX, WORKSPACE), time > 0, "the backward does not repeat");
        }
    }
    // Fetches them, and compares with those fetched last time.
    void compare_bits(const std::vector<Array *> &results, bool compare, const char *what)
    {
        for (Array *a : results) {
            const std::vector<char> last = a->after;
            a->down();
            if (a != &arrays[WORKSPACE]) expect(!compare || a->after == last, what, c);
            expect(edges_untouched(&a->t, a->before.data(), a->after.data(), a->first,
                                   a->before.size()),
                   "wrote past a row", c);
        }
    }

    // Compares everything with the formulas.
    void verify() const
    {
        const std::vector<call_tensor> t = tensors();
        const size_t n = (size_t)(c.heads * c.cols);
        std::vector<row_sums> sums(n);
        checks++, reported = false;
        in_parallel(c.tokens * c.heads, 8 * c.cols, [&](int64_t begin, int64_t end) {
            std::vector<row_sums> part(n);
            for (int64_t row = begin; row < end; row++)
                check_row(&c, t.data(), row, 2e-6, part.data());
            const std::lock_guard<std::mutex> guard(lock);
            for (size_t k = 0; k < n; k++) {
                sums[k].dw += part[k].dw, sums[k].dw_size += part[k].dw_size;
                sums[k].db += part[k].db, sums[k].db_size += part[k].db_size;
            }
        });
        check_sums(&c, t.data(), 3e-6, sums.data());
    }
};

#endif
