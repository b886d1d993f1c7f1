// cuda_rms_norm.cu - the kernels of gradus/kernels.h against the formulas in float64.
//   cuda_rms_norm [--short] [--huge]
//   cuda_rms_norm [--short] --plans
//   cuda_rms_norm --random COUNT SEED
// --short is for compute-sanitizer: fewer and smaller sizes, no calls next to other work, since
// under it kernels do not run at the same time, and arrays that end with their last number. --huge
// adds tensors of more than 2^31 elements. --plans runs the problems of cuda_plans.cuh instead, with
// --short the small ones; --random as many random ones. Exits with 77 if there is no GPU.
//
// Outputs and workspace are poisoned with NaN before each call, the gaps between rows are checked
// to be unchanged, and every call is made twice and must give the same bits (cuda_rms_norm.cuh).
// Then the calls run next to other work: behind kernels that write late what they read, in chains,
// in graphs, from several threads, on a busy GPU.
#include "cuda_rms_norm.cuh"

#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <utility>

#include "cuda_plans.cuh"
#include "cuda/device_limits.h"

static const gd_dtype f32 = GD_FLOAT32, f64 = GD_FLOAT64, bf16 = GD_BFLOAT16, f16 = GD_FLOAT16;
static const gd_dtype dtypes[] = {f32, bf16, f16, f64};

static void run_case(const Case &c)
{
    Run r(c);
    r.run();
    r.verify();
}

// ---- Cases --------------------------------------------------------------------------------------

static const int64_t cuda_widths[] = {
    1,     2,     3,      7,      8,      16,     24,     40,    64,    80,    96,    128,
    136,   160,   200,    256,    320,    384,    448,    512,   576,   640,   704,   768,
    1000,  1024,  1152,   1280,   1408,   1536,   2048,   2056,  2304,  2504,  2560,  2880,
    3072,  3584,  4096,   4352,   5000,   5120,   6144,   7000,  7168,  8192,  8200,  8448,
    9999,  12288, 14336,  16384,  18432,  20000,  32768,  36864, 40000, 45056, 50008, 65536,
    73728, 90008, 131072, 160008, 180232, 262144, 300000,
};

// How many rows of each: more than 512 where few rows have a kernel of their own, and at some
// widths as many as have more than 16 MB in any dtype, or 16384, since that changes the plan, too.
static int64_t cuda_rows(int64_t cols, bool brief)
{
    for (int64_t many : {384, 512, 768, 1024, 2048, 4096, 12288})
        if (!brief && cols == many) return (8 << 20) / cols + 70;
    if (!brief && cols == 1152) return 16421;
    if (cols > 30000) return brief ? 20 : 37;
    if (cols > 8192) return 67;
    return brief ? 520 : 530;
}

// Every width as rms_norm and add_rms_norm call it.
static void run_widths(bool brief)
{
    for (int64_t n : cuda_widths)
        for (gd_dtype d : dtypes) {
            if (n > 70000 && (d == f16 || d == f64) && n != 131072) continue;
            if (brief && (n > 50000 || (n > 9000 && d == f16))) continue;
            Case c(cuda_rows(n, brief), n, d);
            run_case(c);
            if (brief && (n % 1024 || n > 9000)) continue;
            c.tokens = n > 30000 ? 20 : brief || n > 4000 ? 133 : 301;
            run_case(c.added(d));
            if (d == f32) run_case(c.added(bf16));
            if (d == f32 && n % 3 == 0) run_case(c.added(f16));
        }
}

// The options one by one, with each kernel that may run them.
static void run_options(bool brief)
{
    for (gd_dtype d : dtypes)
        for (int64_t n : {256, 1024, 1536, 2504, 3072, 4096, 5120, 7000, 8192, 16384, 40008, 60008,
                          100008, 163840, 200008}) {
            if (brief && (d == f16 || (n != 1024 && n != 4096 && (n != 40008 || d != bf16))))
                continue;
            if (n > 20000 && d == f64) continue; // the plain kernels, at any n
            const int64_t rows = n > 20000 ? 11 : brief || n > 4096 ? 67 : n > 1024 ? 133 : 300;
            const Case plain(rows, n, d);
            auto with = [&](auto change) {
                for (bool add : {false, true}) {
                    Case c = add ? plain.added(d) : plain;
                    change(c);
                    run_case(c);
                }
            };
            with([&](Case &c) { // as in Gemma and Llama, in place
                c.weight_dtype = f32, c.dweight_dtype = d, c.bias = c.db = c.round = true;
                c.accumulate_dw = c.in_place = true, c.offset = 1;
            });
            with([&](Case &c) {
                c.weight_dtype = bf16, c.dweight_dtype = f32, c.round = c.accumulate_dw = true;
                c.accumulate_dx = true, c.offset = 1, c.gap = 64;
            });
            with([&](Case &c) {
                c.weight_dtype = c.dweight_dtype = f16, c.bias = c.db = c.in_place = true;
                c.gap = 8;
            });
            with([&](Case &c) {
                c.weight_dtype = c.dweight_dtype = f64, c.accumulate_dw = true, c.offset = 0.5;
            });
            with([&](Case &c) { c.no_weight = c.bias = c.db = true, c.gap = 3; });
            with([&](Case &c) { c.weight_dtype = f32, c.odd = ~0u; });
            with([&](Case &c) { c.no_dx = c.flat_dy = true; });
            with([&](Case &c) { c.no_dw = c.dbranch = c.accumulate_dbranch = true; });
            for (int64_t m : {0, 1, 2, 5, 133, 512}) {
                Case c(m, n, d);
                c.weight_dtype = f32, c.bias = c.db = m % 2 == 1, c.accumulate_dw = m == 5;
                if (m < 10 || (n < 9000 && !brief)) run_case(c);
                if (m < 10 || (n < 5000 && !brief)) run_case(c.added(m % 2 ? bf16 : d));
            }
        }
}

static void run_heads(bool brief)
{
    for (int64_t heads : {1, 3, 8, 12, 32, 40})
        for (int64_t n : {64, 80, 96, 128, 256, 63, 33, 100, 520})
            for (bool per_head : {false, true}) {
                if (brief && (heads == 3 || heads > 8 || n == 80 || n > 100)) continue;
                const int64_t tokens = brief ? 5 : 1 + 40000 / (heads * n) + heads * n % 37;
                for (gd_dtype d : {f32, bf16}) {
                    Case c = Case(tokens, n, d).with_heads(heads, per_head);
                    c.weight_dtype = heads == 12 ? f32 : d;
                    run_case(c);                              // rows packed
                    c.gap = 2 * heads * n, c.in_place = true; // q among q, k and v
                    run_case(c);
                    if (brief && d == f32) continue;
                    c.gap = n == 96 ? 1 : 8, c.in_place = false, c.round = true;
                    c.bias = c.db = c.accumulate_dw = true, c.accumulate_dx = n != 64, c.offset = 1;
                    run_case(c);
                    run_case(c.added(bf16));
                }
                Case c = Case(tokens * 20, n, bf16).with_heads(heads, per_head);
                if (!brief) run_case(c);
                if (!brief && heads < 12) run_case(c.added(bf16));
            }
    // Blocks of 11, 11 and 10 heads: the last one's last team has none.
    for (bool own_weights : {false, true}) run_case(Case(7, 200, bf16).with_heads(32, own_weights));
}

// Random combinations of sizes and options.
static void run_random(int count, int64_t most, uint64_t seed = 7)
{
    for (int i = 0; i < count; i++) {
        const int64_t width = cuda_widths[random_below(&seed, sizeof cuda_widths / 8)];
        const bool any = random_chance(&seed, 0.33);
        const int64_t n = std::min(most, any ? random_size(&seed, 1, 9000) : width);
        const bool several = n <= 1024 && random_chance(&seed, 0.33);
        const int64_t heads = several ? random_size(&seed, 1, 33) : 1;
        const int64_t rows = std::min(random_size(&seed, 1, 700), 1 + most / (n * heads));
        const bool wide = random_chance(&seed, 0.12);
        Case c(rows, n, wide ? f64 : dtypes[random_below(&seed, 3)]);
        c.heads = heads;
        random_options(&c, &seed);
        run_case(c);
    }
}

static gd_status forward_of(const gd_rms_norm_problem *p, const gd_rms_norm_values *v)
{
    return gd_cuda_rms_norm_forward(p, v, nullptr);
}

static gd_status backward_of(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g)
{
    return gd_cuda_rms_norm_backward(p, g, nullptr);
}

// Invalid calls return their status and do nothing.
static void run_statuses()
{
    Run r(Case(6, 64, f32).added(bf16));
    r.reset(X, RSTD);
    const char *wrong = wrong_status(&r.c, r.data().data(), r.tensors().data(), forward_of,
                                     backward_of, gd_cuda_rms_norm_workspace);
    expect(!wrong, wrong ? wrong : "", r.c);
    check_cuda(cudaDeviceSynchronize(), "bad calls");
    r[Y].down(), r[SUM].down();
    expect(r[Y].after == r[Y].before && r[SUM].after == r[SUM].before, "a bad call wrote", r.c);
    const Case empty(7, 0, f32);
    Run(empty).run(), Run(empty.added(bf16)).run();
}

// ---- Among other work ---------------------------------------------------------------------------

struct Stream {
    cudaStream_t is;

    Stream()
    {
        check_cuda(cudaStreamCreateWithFlags(&is, cudaStreamNonBlocking), "stream");
    }
    Stream(const Stream &) = delete;
    ~Stream()
    {
        cudaStreamDestroy(is);
    }
    operator cudaStream_t() const
    {
        return is;
    }
    // Runs what has been captured so many times.
    void launch_captured(int times) const
    {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        check_cuda(cudaStreamEndCapture(is, &graph), "end of capture");
        check_cuda(cudaGraphInstantiate(&exec, graph, 0), "graph");
        for (int i = 0; i < times; i++) check_cuda(cudaGraphLaunch(exec, is), "graph launch");
        check_cuda(cudaDeviceSynchronize(), "graph");
        cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    }
};

struct Copies {
    enum { MOST = 16 };
    int count;
    char *to[MOST];
    const char *from[MOST];
    size_t bytes[MOST];
};

// Lets the next kernel start at once, and only then, late, writes what that kernel reads, and
// poison to where it writes.
static __global__ void write_late(Copies copies)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < 20000);
    for (int k = 0; k < copies.count; k++)
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < copies.bytes[k];
             i += (size_t)gridDim.x * blockDim.x)
            copies.to[k][i] = copies.from[k][i];
}

// Kernels may start before the preceding ones have ended (programmatic dependent launch), but must
// neither read nor write before that.
static void run_late(const Case &c)
{
    Run r(c);
    r.run();
    r.verify();
    const Stream stream;
    auto repeat = [&](std::vector<Array *> inputs, const std::vector<Array *> &outputs, auto call) {
        std::vector<Array> stash;
        Copies copies = {};
        inputs.insert(inputs.end(), outputs.begin(), outputs.end());
        for (Array *a : inputs) { // an output in place of an input has its values
            stash.push_back(*a);
            stash.back().own(), stash.back().reset();
            check_cuda(cudaMemset(a->device.get(), 0xff, a->before.size()), "cudaMemset");
            const int k = copies.count++;
            copies.to[k] = a->device.get(), copies.from[k] = stash.back().device.get();
            copies.bytes[k] = a->before.size();
        }
        check_cuda(cudaDeviceSynchronize(), "stash");
        write_late<<<8, 256, 0, stream>>>(copies);
        check_cuda(cudaGetLastError(), "write_late");
        expect(!call(), "a call behind a late kernel failed", c);
        check_cuda(cudaStreamSynchronize(stream), "late");
        r.compare_bits(outputs, true, "read or wrote before the kernel ahead had ended");
    };
    const gd_rms_norm_gradients g = r.gradients();
    gd_rms_norm_values v = r.values();
    // The backward first: it needs what the forward left.
    std::vector<Array *> inputs = {&r[DY], &r[DSUM], &r[WEIGHT]};
    Array kept = r[c.residual ? SUM : X], rstd = r[RSTD];
    if (c.residual) kept.before = kept.after;
    rstd.before = rstd.after;
    inputs.push_back(&kept), inputs.push_back(&rstd);
    repeat(inputs, r.some(DX, WORKSPACE),
           [&] { return gd_cuda_rms_norm_backward(&r.p, &g, stream); });
    repeat(r.some(X, BIAS), r.some(Y, RSTD),
           [&] { return gd_cuda_rms_norm_forward(&r.p, &v, stream); });
}

// Calls that feed each other, one at a time, on a stream without a wait, and in a graph with a
// fork, must give the same bits: each step's results are the next one's inputs, and are overwritten
// by the one after that.
static void run_chain(Case c)
{
    c.dbranch = c.residual;
    Run r(c);
    const Stream stream, other;
    auto steps = [&](bool one_at_a_time) {
        gd_rms_norm_values v = r.values();
        gd_rms_norm_gradients g = r.gradients();
        auto exchange = [](auto &from, void *&to) {
            void *const was = to;
            to = const_cast<void *>(static_cast<const void *>(from)), from = was;
        };
        for (int i = 0; i < 6; i++) {
            expect(!gd_cuda_rms_norm_forward(&r.p, &v, stream), "chain: forward", c);
            if (one_at_a_time) cudaStreamSynchronize(stream);
            g.x = c.residual ? v.sum : v.x, g.accumulate_dweight = i > 0;
            expect(!gd_cuda_rms_norm_backward(&r.p, &g, stream), "chain: backward", c);
            if (one_at_a_time) cudaStreamSynchronize(stream);
            exchange(v.x, v.y);
            if (c.residual) {
                exchange(v.residual, v.sum), exchange(g.dsum, g.dx), exchange(g.dy, g.dbranch);
            } else {
                exchange(g.dy, g.dx);
            }
        }
    };
    std::vector<Array *> all = r.some(DY, DW);
    for (int k : {X, RESIDUAL, Y, SUM}) all.push_back(&r[k]);
    enum { ALONE, STREAM, GRAPH };
    for (int way : {ALONE, STREAM, STREAM, STREAM, GRAPH, GRAPH}) {
        for (Array *a : all) a->reset();
        r[WEIGHT].reset();
        check_cuda(cudaDeviceSynchronize(), "copies"); // the streams would not wait for it
        if (way != GRAPH) {
            steps(way == ALONE);
        } else {
            cudaEvent_t fork, join;
            cudaEventCreate(&fork), cudaEventCreate(&join);
            check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
            cudaEventRecord(fork, stream), cudaStreamWaitEvent(other, fork, 0);
            check_cuda(cudaMemsetAsync(r[Y].device.get(), 0, r[Y].before.size(), other), "memset");
            cudaEventRecord(join, other), cudaStreamWaitEvent(stream, join, 0);
            steps(false);
            stream.launch_captured(1);
            cudaEventDestroy(fork), cudaEventDestroy(join);
        }
        check_cuda(cudaStreamSynchronize(stream), "chain");
        for (Array *a : all) {
            const std::vector<char> alone = a->after;
            a->down();
            // (The memset takes the poison around y.)
            const size_t elements = (size_t)((a->t.rows - 1) * a->t.stride + a->t.cols);
            expect(way == ALONE || a->t.rows == 0 ||
                       !memcmp(alone.data() + a->first, a->after.data() + a->first,
                               elements * gd_dtype_size(a->t.dtype)),
                   way == GRAPH ? "a chain in a graph" : "a chain on a stream", c);
        }
    }
}

// Keeps the multiprocessors it runs on busy for so many nanoseconds.
static __global__ void occupy(volatile int *running, unsigned long long nanoseconds)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    *running = 1;
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}

// The backward of a case, with its own outputs, workspace and stream.
struct Lane {
    Run &quiet;
    std::vector<Array> own; // DX to WORKSPACE
    const Stream stream;
    bool launched = true;

    explicit Lane(Run &r) : quiet(r), own(r.arrays.begin() + DX, r.arrays.end())
    {
        for (Array &a : own) a.own();
        reset();
    }
    void reset() const
    {
        for (const Array &a : own) a.reset();
    }
    void launch(cudaStream_t to)
    {
        std::vector<void *> data = quiet.data();
        for (size_t k = 0; k < own.size(); k++) data[DX + k] = own[k].data();
        const gd_rms_norm_gradients g =
            gradients_of_call(&quiet.c, data.data(), quiet.tensors().data());
        launched &= !gd_cuda_rms_norm_backward(&quiet.p, &g, to);
    }
    void expect_the_same(const char *what)
    {
        expect(launched, what, quiet.c);
        for (size_t k = 0; k < own.size() - 1; k++) {
            own[k].down();
            expect(own[k].after == quiet.arrays[DX + k].after, what, quiet.c);
        }
    }
};

// If few multiprocessors are free, the blocks of a backward do not all run at once; and several
// backwards may run concurrently. Neither may change a bit, or hang.
static void run_crowded(const Case &c)
{
    Run quiet(c);
    quiet.run();
    int device = 0, multiprocessors = 0, shared = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    check_cuda(cudaFuncSetAttribute(occupy, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
               "shared memory");
    int *running, *running_there;
    check_cuda(cudaHostAlloc(&running, sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
    check_cuda(cudaHostGetDevicePointer(&running_there, running, 0), "cudaHostGetDevicePointer");
    const Stream other;
    Lane lanes[3] = {Lane(quiet), Lane(quiet), Lane(quiet)};
    for (int busy : {0, multiprocessors / 2, multiprocessors - 20, multiprocessors - 3}) {
        for (Lane &lane : lanes) lane.reset();
        check_cuda(cudaDeviceSynchronize(), "poison");
        *(volatile int *)running = 0;
        if (busy > 0) {
            occupy<<<busy, 64, shared, other>>>(running_there, 2000000);
            check_cuda(cudaGetLastError(), "occupy");
            while (!*(volatile int *)running) {
            }
        }
        for (int time = 0; time < 3; time++)
            for (Lane &lane : lanes) lane.launch(lane.stream);
        check_cuda(cudaDeviceSynchronize(), "crowded");
        for (Lane &lane : lanes) lane.expect_the_same("a backward in a crowd");
    }
    cudaFreeHost(running);
}

// Several threads launch on their own streams; meanwhile another one captures, in the mode that
// forbids all threads what a capture does not allow.
static void run_threads(size_t threads, size_t streams, const Case &c)
{
    Run quiet(c);
    quiet.run();
    std::vector<std::unique_ptr<Lane>> lanes;
    for (size_t i = 0; i < threads * streams + 1; i++) lanes.emplace_back(new Lane(quiet));
    Lane &captured = *lanes.back();
    check_cuda(cudaDeviceSynchronize(), "arrays");
    check_cuda(cudaStreamBeginCapture(captured.stream, cudaStreamCaptureModeGlobal), "capture");
    std::vector<std::thread> all;
    for (size_t t = 0; t < threads; t++)
        all.emplace_back([&, t] {
            for (int i = 0; i < 3; i++)
                for (size_t k = t * streams; k < (t + 1) * streams; k++)
                    lanes[k]->launch(lanes[k]->stream);
        });
    captured.launch(captured.stream);
    for (std::thread &thread : all) thread.join();
    captured.stream.launch_captured(2);
    for (std::unique_ptr<Lane> &lane : lanes) lane->expect_the_same("a backward of a thread");
}

static void run_among_others()
{
    for (int64_t n : {40, 256, 768, 1000, 4096, 16384, 40000})
        for (int64_t m : {64, 700}) {
            for (gd_dtype d : {f32, bf16, f64}) {
                const Case c(m, n, d);
                run_chain(c), run_late(c);
                if (d == f64) continue;
                run_chain(c.added(bf16)), run_late(c.added(bf16));
                if (n == 256 || n == 40) run_chain(c.with_heads(8, true));
            }
            Case c = Case(m, n, f32).added(bf16);
            c.accumulate_dx = c.accumulate_dbranch = c.accumulate_dw = c.bias = c.db = true;
            run_late(c);
        }
    for (gd_dtype d : {f32, bf16})
        for (int64_t n : {64, 1024, 4096, 8192, 16384, 65536}) {
            const Case c(n < 5000 ? 2000 : 150, n, d);
            run_crowded(c), run_crowded(c.added(bf16));
            if (n == 64) run_crowded(c.with_heads(8, true));
        }
    run_threads(4, 50, Case(600, 1024, bf16));
    run_threads(4, 50, Case(600, 1024, f32).added(bf16));
}

// More than 2^31 elements: those before the last few tokens are 0.
static void run_huge()
{
    const int64_t more = (int64_t)1 << 31;
    std::vector<Case> cases;
    cases.push_back(Case(2, 1024, bf16));
    cases.push_back(Case(2, 1024, bf16).added(bf16));
    cases.push_back(Case(2, 64, f32).with_heads(32, true).added(bf16));
    cases.push_back(Case(3, 1023, bf16)); // the plain kernels
    cases.push_back(Case(3, 8, bf16));    // many rows
    for (Case &c : cases) {
        c.ahead = more / (c.heads * c.cols) + 1;
        // Room for ten tensors of float32: the tensors themselves and what their calls may need.
        size_t free_bytes = 0, all = 0;
        check_cuda(cudaMemGetInfo(&free_bytes, &all), "cudaMemGetInfo");
        if (free_bytes < (size_t)more * (c.residual ? c.dtype == f32 ? 28 : 17 : 9) + (4u << 30))
            printf("too little memory for %s\n", text_of(c).c_str());
        else
            run_case(c);
    }
}

// ---- Every plan ---------------------------------------------------------------------------------

static void run_plans(bool brief)
{
    const int64_t most = brief ? 1 << 15 : 1 << 20; // packs of those that take little time
    int runs = 0;
    for (const PlanCase &p : plan_cases(gd_cuda_device_limits())) {
        const gd_dtype y = p.type == 0 ? f32 : bf16;
        Case c(p.tokens, p.packs * plan_types[p.type].elements, p.type == 1 ? bf16 : f32);
        c.y_dtype = y;
        if (p.more) c = c.added(y);
        for (int own = 0; p.size() <= most && own < (p.heads > 1 ? 2 : 1); own++, runs++)
            run_case(c.with_heads(p.heads, own));
    }
    printf("%d problems for every plan\n", runs);
}

// ---- With lower limits --------------------------------------------------------------------------

// Those of another GPU, but for the code.
static gd_cuda_limits limits_of(int capability)
{
    const gd_cuda_limits all = gd_cuda_device_limits();
    gd_cuda_limits l = gd_cuda_limits_of(capability);
    l.capability = all.capability, l.code = all.code;
    return l;
}

// The same calls on GPUs that have less: other plans and other kernels. The code is what it is.
static void run_limits()
{
    const gd_cuda_limits all = gd_cuda_device_limits();
    std::vector<std::pair<std::string, gd_cuda_limits>> caps;
    for (int capability : {75, 80, 89}) {
        caps.push_back({"limits of " + std::to_string(capability), limits_of(capability)});
    }
    const auto without = [&](const char *what, auto change) {
        caps.push_back({what, all});
        change(caps.back().second);
    };
    without("no clusters", [](gd_cuda_limits &l) { l.cluster = 1; });
    without("no bulk copies", [](gd_cuda_limits &l) { l.bulk_copies = false; });
    without("no cp.async", [](gd_cuda_limits &l) { l.async_copies = false; });
    for (const auto &cap : caps) {
        gd_cuda_cap_limits(&cap.second);
        run_widths(true), run_options(true), run_heads(true), run_random(60, 20000);
        for (gd_dtype d : {f32, bf16})
            for (int64_t n : {1024, 8192, 40000}) {
                const Case c(700, n, d);
                run_chain(c), run_late(c.added(bf16));
            }
        printf("%s: %d checks so far, %d failures\n", cap.first.c_str(), checks, failures);
        fflush(stdout);
    }
    gd_cuda_cap_limits(nullptr);
}

int main(int argc, char **argv)
{
    bool brief = false, huge = false, plans = false;
    int random = 0;
    uint64_t random_seed = 0;
    for (int i = 1; i < argc; i++) {
        brief |= !strcmp(argv[i], "--short");
        huge |= !strcmp(argv[i], "--huge");
        plans |= !strcmp(argv[i], "--plans");
        if (!strcmp(argv[i], "--random") && i + 2 < argc)
            random = atoi(argv[i + 1]), random_seed = strtoull(argv[i + 2], nullptr, 10);
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) || devices == 0) {
        printf("no GPU\n");
        return 77;
    }
    exact = brief;
    // Arrays come and go: freed host memory is kept, since the system would have to clear it again.
    mallopt(M_MMAP_THRESHOLD, 1 << 30), mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const auto done = [](const char *part) {
        printf("%s: %d checks so far, %d failures\n", part, checks, failures);
        fflush(stdout);
    };
    if (plans) run_plans(brief), done("plans");
    if (random) run_random(random, 20000, random_seed), done("random cases");
    if (plans || random) return failures ? 1 : 0;
    run_statuses();
    run_widths(brief), done("widths");
    run_options(brief), done("options");
    run_heads(brief), done("heads");
    run_random(brief ? 60 : 1500, brief ? 20000 : 200000), done("random cases");
    if (!brief) run_among_others();
    if (!brief) run_limits();
    if (huge) run_huge();
    done("all");
    return failures ? 1 : 0;
}
