// rms_norm_cuda.cu - gradus-bench rms_norm and add_rms_norm --device cuda: the kernels of
// gradus/kernels.h at the sizes of models, and at difficult sizes.
//
// For each shape: first a check of all results against a float64 reference on the CPU, then the
// times of the forward and of the backward (finished dw included), and their share of the ceiling:
// the throughput of the best of several plain kernels with the same traffic, measured at the same
// size just before. The traffic is x in, y out; dy and x in, dx out; with a residual x and residual
// in, sum and y out; dy, sum and dsum in, dx out. Mixed precision has float32 x and dx and 16-bit y
// and dy; with a residual, the residual is float32 and x is 16-bit as well, and its gradient is
// also written. The last columns are the error of dw over all rows against float64 on the GPU, in
// units of the usual float32 tolerance, 5e-6 sqrt(M) max|dy xhat|, and which direction misses its
// target.
#include <chrono>
#include <string>

#include "bench.h"
#include "rms_norm_cuda.h"
#include "rms_norm_work.cuh"

// ---- dw over all rows, against float64 on the GPU -----------------------------------------------

// One block per row.
static __global__ void exact_rstd(double *rstd, const char *x, gd_dtype dtype, size_t cols)
{
    __shared__ double sums[256];
    double sum = 0;
    for (size_t j = threadIdx.x; j < cols; j += 256) {
        const double v = number(x, dtype, blockIdx.x * cols + j);
        sum += v * v;
    }
    sums[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) rstd[blockIdx.x] = 1 / sqrt(sums[0] / (double)cols + 1e-5);
}

// One thread per weight: the error of its dw, and the largest |dy xhat| of its column. The rows
// here are tokens, as wide as all weights; `cols` numbers of a token share an rstd.
static __global__ void dw_errors(double *error, double *largest, const float *dw, const char *dy,
                                 gd_dtype dy_dtype, const char *x, gd_dtype dtype,
                                 const double *rstd, size_t tokens, size_t weights, size_t cols)
{
    const size_t j = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (j >= weights) return;
    double sum = 0, most = 0;
#pragma unroll 16
    for (size_t i = 0; i < tokens; i++) {
        const size_t at = i * weights + j;
        const double v = number(dy, dy_dtype, at) * number(x, dtype, at) * rstd[at / cols];
        sum += v, most = fmax(most, fabs(v));
    }
    error[j] = fabs(dw[j] - sum), largest[j] = most;
}

// The largest error of dw, as a share of 5e-6 sqrt(M) max|dy xhat|.
static double dw_share(const Work &w)
{
    const size_t M = (size_t)w.shape.rows, N = (size_t)w.shape.cols, tokens = M * N / w.weights;
    const Memory exact(M * 8), error(w.weights * 8), largest(w.weights * 8);
    if (!w.prepare_rstd(0) || !w.backward(0, nullptr)) return NAN;
    const char *const dy = w.buffers.get(0, BRANCH), *const x = w.buffers.get(0, STREAM);
    exact_rstd<<<(unsigned)M, 256>>>((double *)exact.p, x, w.shape.dtype, N);
    dw_errors<<<(unsigned)((w.weights + 63) / 64), 64>>>(
        (double *)error.p, (double *)largest.p, (const float *)w.dweight.p, dy, w.shape.y_dtype, x,
        w.shape.dtype, (const double *)exact.p, tokens, w.weights, N);
    must(cudaGetLastError(), "dw_errors");
    const std::vector<char> errors = to_host(error.p, w.weights * 8);
    const std::vector<char> all_largest = to_host(largest.p, w.weights * 8);
    double worst = 0, most = 0;
    for (size_t j = 0; j < w.weights; j++) {
        worst = worse(worst, ((const double *)errors.data())[j]);
        most = fmax(most, ((const double *)all_largest.data())[j]);
    }
    return worst / (5e-6 * sqrt((double)tokens) * most);
}

// ---- Tables -------------------------------------------------------------------------------------

// One figure or name of a row: its key in JSON and TSV, and its column header.
struct Field {
    const char *key, *title;
    std::string text;
    bool is_text;
};

static Field name_field(const char *key, const char *title, const std::string &text)
{
    return {key, title, text, true};
}

static Field number_field(const char *key, const char *title, const char *format, double value)
{
    char text[64];
    snprintf(text, sizeof text, format, value);
    return {key, title, text, false};
}

// Rows on stdout, as Markdown or JSON; and in a file of tab-separated values, if requested.
class Table
{
  public:
    explicit Table(const bench_options *o) : json(o->json)
    {
        if (o->tsv && !(tsv = fopen(o->tsv, "w"))) {
            fprintf(stderr, "gradus-bench: cannot write %s\n", o->tsv);
            exit(1);
        }
    }
    Table(const Table &) = delete;
    ~Table()
    {
        if (tsv) fclose(tsv);
    }
    // Begins a table with its own header.
    void begin(const char *name)
    {
        title = name, headed = false;
        if (!json) printf("\n%s\n\n", name);
    }
    void row(const std::vector<Field> &fields)
    {
        if (json) {
            const char *comma = "{";
            for (const Field &f : fields) {
                const char *const quote = f.is_text ? "\"" : "";
                printf("%s\"%s\": %s%s%s", comma, f.key, quote, f.text.c_str(), quote);
                comma = ", ";
            }
            printf("}\n");
        } else {
            if (!headed) {
                for (const Field &f : fields) printf("| %s ", f.title);
                printf("|\n");
                for (const Field &f : fields) printf(f.is_text ? "|---" : "|---:");
                printf("|\n");
            }
            for (const Field &f : fields) printf("| %s ", f.text.c_str());
            printf("|\n");
        }
        if (tsv && !headed) {
            fprintf(tsv, "table");
            for (const Field &f : fields) fprintf(tsv, "\t%s", f.key);
            fprintf(tsv, "\n");
        }
        if (tsv) {
            fprintf(tsv, "%s", title.c_str());
            for (const Field &f : fields) fprintf(tsv, "\t%s", f.text.c_str());
            fprintf(tsv, "\n");
            fflush(tsv);
        }
        headed = true;
        fflush(stdout);
    }

  private:
    bool json, headed = false;
    FILE *tsv = nullptr;
    std::string title;
};

struct Way {
    double seconds, ceiling, bytes, target;

    bool missed() const
    {
        return !(ceiling / seconds >= target);
    }
};

static void add_fields(std::vector<Field> *fields, const Way &way, bool backward)
{
    const double us = way.seconds * 1e6, gbps = way.bytes / way.seconds / 1e9;
    const double ceiling = way.bytes / way.ceiling / 1e9, share = way.ceiling / way.seconds;
    const Field row[] = {
        number_field(backward ? "backward_us" : "forward_us",
                     backward ? "backward us" : "forward us", "%.1f", us),
        number_field(backward ? "backward_gbps" : "forward_gbps", "GB/s", "%.0f", gbps),
        number_field(backward ? "backward_ceiling_gbps" : "forward_ceiling_gbps", "ceiling", "%.0f",
                     ceiling),
        number_field(backward ? "backward_share" : "forward_share", "share", "%.3f", share),
        number_field(backward ? "backward_target" : "forward_target", "target", "%.2f",
                     way.target)};
    fields->insert(fields->end(), row, row + 5);
}

// Times one shape and prints its row; false if the results are wrong.
static bool time_shape(const bench_case &c, Table *table)
{
    const Shape s = {c.dtype, c.y_dtype, c.rows, c.cols, c.heads, c.residual};
    const long long rows = s.rows, cols = s.cols;
    const double error = check(s);
    const Work w(s);
    Way f = {}, b = {};
    f.bytes = w.forward_traffic().bytes(w.buffers), b.bytes = w.backward_traffic().bytes(w.buffers);
    f.target = c.forward_target, b.target = c.backward_target;
    f.ceiling = ceiling_seconds(w.buffers, w.forward_traffic());
    b.ceiling = ceiling_seconds(w.buffers, w.backward_traffic());
    f.seconds = seconds_of(w.buffers.sets, f.bytes, 7,
                           [&](int set, cudaStream_t stream) { return w.forward(set, stream); });
    b.seconds = seconds_of(w.buffers.sets, b.bytes, 7,
                           [&](int set, cudaStream_t stream) { return w.backward(set, stream); });
    const double dw_error = dw_share(w);
    const bool right = error < 1 && dw_error < 1;
    if (!right)
        fprintf(stderr, "gradus-bench: %s %lld x %lld: the results are wrong\n", s.dtype_name(),
                rows, cols);

    const std::string width = std::to_string(cols) + "]";
    std::vector<Field> fields = {
        name_field("dtype", "dtype", s.dtype_name()),
        name_field("size", "M x N", std::to_string(rows) + " x " + std::to_string(cols))};
    if (s.heads)
        fields.push_back(
            name_field("weight", "weight",
                       s.heads > 1 ? "[" + std::to_string(s.heads) + ", " + width : "[" + width));
    add_fields(&fields, f, false), add_fields(&fields, b, true);
    fields.push_back(number_field("error", "error", "%.1e", error));
    fields.push_back(number_field("dw_error", "dw error", "%.3f", dw_error));
    fields.push_back(name_field("below_target", "below target",
                                f.missed() ? (b.missed() ? "both" : "forward")
                                           : (b.missed() ? "backward" : "")));
    table->row(fields);
    return right;
}

// ---- Host time ----------------------------------------------------------------------------------

// Host time of a call in microseconds: the median of 32 batches of 64, short enough that none waits
// for room in the stream.
template <class Call>
static double host_microseconds(const Call &call)
{
    using clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (int batch = 0; batch < 32; batch++) {
        bool good = true;
        const clock::time_point begin = clock::now();
        for (int i = 0; i < 64; i++) good &= call();
        const std::chrono::duration<double, std::micro> took = clock::now() - begin;
        must(cudaDeviceSynchronize(), "calls");
        if (!good) return NAN;
        times.push_back(took.count() / 64);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// As large as the arguments of the backward kernels.
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

// Host time of launches alone, configured as the kernels' are.
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
    return host_microseconds([&] {
        bool good = true;
        for (int i = 0; i < launches; i++)
            good &= !cudaLaunchKernelEx(&config, empty_kernel, Empty());
        return good;
    });
}

static void print_host_times(Table *table)
{
    static const struct {
        int64_t rows, cols;
        bool residual, dbias;
    } calls[] = {{64, 4096, false, false},    {1024, 256, false, false},
                 {1024, 4096, false, false},  {1024, 4096, true, false},
                 {1024, 16384, false, false}, {1024, 131072, false, false},
                 {1024, 4096, false, true},   {1024, 4097, false, false}};
    table->begin("Host time of a call");
    for (const auto &c : calls) {
        Work w({GD_BFLOAT16, GD_BFLOAT16, c.rows, c.cols, 0, c.residual}, 1);
        w.with_dbias = c.dbias;
        const std::string size = std::to_string(c.rows) + " x " + std::to_string(c.cols);
        const char *const with = c.residual ? "residual" : c.dbias ? "dbias" : "";
        const double forward = host_microseconds([&] { return w.forward(0, nullptr); });
        const double backward = host_microseconds([&] { return w.backward(0, nullptr); });
        table->row({name_field("dtype", "dtype", "bfloat16"), name_field("size", "M x N", size),
                    name_field("with", "with", with),
                    number_field("forward_host_us", "forward us", "%.2f", forward),
                    number_field("backward_host_us", "backward us", "%.2f", backward)});
    }
    table->begin("Host time of launches alone");
    for (int launches : {1, 2})
        table->row({number_field("empty_kernels", "empty kernels", "%.0f", launches),
                    number_field("host_us", "us", "%.2f", empty_microseconds(launches))});
}

// ---- Entry --------------------------------------------------------------------------------------

extern "C" int bench_rms_norm_cuda(const bench_options *o, bool residual)
{
    constexpr int skipped = 77;
    gd_context *ctx = bench_context(o);
    if (gd_error(ctx)) {
        const bool absent = gd_error_status(ctx) == GD_ERROR_DEVICE;
        const int failure = bench_fail(ctx);
        return absent ? skipped : failure;
    }
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0), "device");
    printf(o->json ? "{\"device\": \"%s\", \"multiprocessors\": %d, \"l2_mb\": %d}\n"
                   : "%s, %d multiprocessors, L2 %d MB\n",
           gd_context_device_name(ctx), properties.multiProcessorCount,
           properties.l2CacheSize >> 20);
    gd_context_free(ctx); // the kernels need none
    if (o->ladder) return bench_rms_norm_ladder(o) ? 0 : 1;

    static bench_case cases[MAX_BENCH_CASES];
    const int count = bench_rms_norm_cases(o, residual, cases);
    Table table(o);
    bool right = true;
    const char *title = nullptr;
    for (int i = 0; i < count; i++) {
        if (cases[i].table != title) table.begin(title = cases[i].table);
        right &= time_shape(cases[i], &table);
    }
    if (!o->rows && !o->heads && !residual) print_host_times(&table);
    return right ? 0 : 1;
}
