// tf32x3_hopper.cu - float32 products on tensor cores, each as three products of TF32.
//
// A factor is the sum of two numbers of TF32, x = high + low: `high` is x rounded to 11 significant
// bits, `low` the rest. Of the four products of two such sums three are computed,
//
//     a b = low high + high low + high high      (low low, at most 2^-22 |a b|, is left out)
//
// and a tensor core does not see the last bit of a low, at most 2^-23 |x|: an error of at most
// 2^-21 in each product, to either side. A tensor core truncates its sums, while float32 rounds; a
// long sum would drift. So only 32 terms are summed there, the small products first, and these sums
// are added with rounding.
//
// A tile of c, [128, 128], or a piece of its sum over k, is computed in steps of 32 terms. A block
// is three groups of four warps, on one multiprocessor, and takes one tile after another. The first
// group prepares: it has the copy engine (TMA) load a step's tiles of a and b to shared memory, and
// splits b into two tiles in which the terms of a sum are adjacent, as the instruction (wgmma)
// demands. The other two multiply, each 64 rows: they split a on its way into registers, for the
// next step while the tensor core works on this one. Up to three steps are in shared memory, each
// with two barriers: `full` when it is prepared, `empty` when it has been multiplied.
//
// If c is a small matrix of long sums, as a gradient dw is, the pieces' sums are stored, and added
// in order by a second kernel. How many there are depends on the sizes alone.
//
// Infinity has no rest, and a product with it may be inf * 0 here where float32 has none. So an
// element of c that is not finite is computed again, in float32.
#include "wgmma.cuh"
#include "kernel.h"
#include "matmul/tf32x3.cuh"

namespace
{

constexpr int GROUP = gd_wgmma::group, THREADS = 3 * GROUP;
constexpr int PREPARING = 104, MULTIPLYING = 200; // registers of a thread
constexpr int SIDE = 128;                         // of a tile of c
constexpr int DEPTH = 32;                         // terms of a step
constexpr int STEPS = 3;                          // in shared memory
constexpr int SPLIT = SIDE * DEPTH;               // the highs of a tile of b, or its lows
constexpr int MULTIPROCESSORS = 132;              // of an H200

// A tile [SIDE, DEPTH] of a DEEP operand, or four panels [DEPTH, 32], side by side, of any other. A
// row is 128 bytes, with the swizzle of wgmma.cuh.
using raw_tile = float[SPLIT];

// Shared memory. wgmma reads the splits, [SIDE, DEPTH] both.
struct shared {
    struct step {
        float split_b[2 * SPLIT];
        raw_tile a;
    } step[STEPS];
    raw_tile b[STEPS];
    gd_async::barrier b_full[STEPS], full[STEPS], empty[STEPS];
};
constexpr int SHARED_BYTES = sizeof(shared) + gd_wgmma::aligned;

// A DEEP operand has adjacent elements along k, any other along the rows or columns of c; ld is the
// distance of neighbours in the other direction.
struct operand {
    const float *data;
    int64_t ld;
};

struct problem {
    gd_gemm g;
    operand a, b;
    CUtensorMap a_map, b_map;
    int piece, pieces; // of K: the terms of one, and how many
    float *sums;       // of the pieces, [pieces, M, N]; NULL if there is one
};

// ---- c, given the sums over k -------------------------------------------------------------------

// c = factor * sum (+ bias) (+ c)
struct ending {
    float factor;
    bool add;
    const float *bias;

    __device__ explicit ending(const gd_gemm &g)
    {
        const float *scalars = (const float *)g.scalars;
        factor = scalars ? scalars[0] : (float)g.alpha;
        add = scalars ? scalars[1] != 0 : g.accumulate;
        bias = (const float *)g.bias;
    }
    __device__ float operator()(float sum, int64_t n, float old) const
    {
        const float value = bias ? sum * factor + bias[n] : sum * factor;
        return add ? old + value : value;
    }
};

template <bool A_DEEP, bool B_DEEP>
__device__ __noinline__ float plain_sum(const problem &p, int64_t m, int64_t n)
{
    const float *a = p.a.data + (A_DEEP ? m * p.a.ld : m);
    const float *b = p.b.data + (B_DEEP ? n * p.b.ld : n);
    float sum = 0;
    for (int64_t k = 0; k < p.g.K; k++)
        sum = fmaf(a[A_DEEP ? k : k * p.a.ld], b[B_DEEP ? k : k * p.b.ld], sum);
    return sum;
}

// ---- Tiles --------------------------------------------------------------------------------------

// Where four numbers of a row begin.
__device__ int swizzled(int row, int four)
{
    return row * DEPTH + (four ^ (row & 7)) * 4;
}

// Where a number is in the panels.
__device__ int in_panels(int k, int column)
{
    return column / 32 * SPLIT / 4 + swizzled(k, column % 32 / 4) + column % 4;
}

// Starts the copy of the tile at (`first`, `k`), with zeros beyond the matrix. One thread calls it.
template <bool DEEP>
__device__ void load_tile(raw_tile &to, const CUtensorMap &map, gd_async::barrier &full, int first,
                          int k)
{
    gd_async::barrier_expect(full, sizeof to);
    if constexpr (DEEP) {
        gd_wgmma::tma_load(to, &map, full, k, first);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            gd_wgmma::tma_load(to + i * SPLIT / 4, &map, full, first + 32 * i, k);
    }
}

// Leaves high in x, and returns low. Half a unit more, in whole numbers, rounds to nearest as the
// rest is cut off; the largest numbers become infinite.
__device__ uint32_t split(uint32_t &x)
{
    const float whole = __uint_as_float(x);
    x = (x + 0x1000u) & 0xffffe000u;
    return __float_as_uint(whole - __uint_as_float(x));
}

// A warp's 16 rows of a for a step: A fragments of mma.cuh.
struct rows_of_a {
    uint32_t high[DEPTH / 8][4], low[DEPTH / 8][4];
};

// Where the rows of a fragment lie: neighbours in memory are read at once.
template <bool DEEP>
__device__ int row_of(int g, int half)
{
    return DEEP ? g + 8 * half : 2 * g + half;
}

template <bool DEEP>
__device__ void split_a(rows_of_a &a, const float *tile, int row, int lane)
{
#pragma unroll
    for (int k = 0; k < DEPTH; k += 8) {
        uint32_t(&high)[4] = a.high[k / 8];
        if constexpr (DEEP) {
            gd_mma::ldmatrix(high, tile + swizzled(row + lane % 16, k / 4 + lane / 16));
        } else {
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const int place = in_panels(k + 2 * i + lane % 4, row + lane / 4 * 2);
                const uint2 v = *(const uint2 *)(tile + place);
                high[i] = v.x, high[i + 1] = v.y;
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) a.low[k / 8][i] = split(high[i]);
    }
}

// The first group stores to [SIDE, DEPTH], swizzled: the highs, and after them the lows.
template <bool DEEP>
__device__ void split_b(float *to, const float *tile)
{
#pragma unroll
    for (int i = 0; i < SPLIT / 4 / GROUP; i++) {
        const int at = i * GROUP + (int)threadIdx.x;
        const int row = DEEP ? at / (DEPTH / 4) : at % SIDE;
        const int four = DEEP ? at % (DEPTH / 4) : at / SIDE, place = swizzled(row, four);
        uint32_t high[4], low[4];
        if constexpr (DEEP) {
            const uint4 v = *(const uint4 *)(tile + place);
            high[0] = v.x, high[1] = v.y, high[2] = v.z, high[3] = v.w;
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                high[j] = __float_as_uint(tile[in_panels(4 * four + j, row)]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) low[j] = split(high[j]);
        *(uint4 *)(to + place) = {high[0], high[1], high[2], high[3]};
        *(uint4 *)(to + SPLIT + place) = {low[0], low[1], low[2], low[3]};
    }
}

// ---- Products -----------------------------------------------------------------------------------

using tile_sums = float[SIDE / 8][4]; // of 64 rows of a group: C fragments of mma.cuh

#define C4(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])

// c [64, 128] += a [64, 8] b [8, 128], or = if not `add`; b is a descriptor (gd_wgmma::descriptor).
__device__ void product(tile_sums &c, const uint32_t (&a)[4], uint64_t b, bool add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
                 "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
                 "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, add, 1, 1;\n}"
                 : C4(0), C4(1), C4(2), C4(3), C4(4), C4(5), C4(6), C4(7), C4(8), C4(9), C4(10),
                   C4(11), C4(12), C4(13), C4(14), C4(15)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}
#undef C4

// The compiler moves no use of these registers past this. Products are asynchronous.
__device__ void pin(tile_sums &c, rows_of_a &a)
{
#pragma unroll
    for (int i = 0; i < SIDE / 2; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
#pragma unroll
    for (int i = 0; i < DEPTH / 2; i++)
        asm volatile("" : "+r"(a.high[i / 4][i % 4]), "+r"(a.low[i / 4][i % 4])::"memory");
}

// Begins part = a b for a step.
__device__ void multiply(tile_sums &part, rows_of_a &a, const float *b)
{
    const gd_wgmma::descriptor high(b), low(b + SPLIT);
    pin(part, a);
    gd_wgmma::fence();
#pragma unroll
    for (int i = 0; i < DEPTH / 8; i++) product(part, a.low[i], high.at(32 * i), i > 0);
#pragma unroll
    for (int i = 0; i < DEPTH / 8; i++) product(part, a.high[i], low.at(32 * i), true);
#pragma unroll
    for (int i = 0; i < DEPTH / 8; i++) product(part, a.high[i], high.at(32 * i), true);
    gd_wgmma::commit();
}

// ---- The kernels --------------------------------------------------------------------------------

// One of the tiles and pieces that the blocks share.
struct place {
    int m, n, k, k_end, piece;

    __device__ place(const problem &p, int64_t i)
    {
        const int down = ((int)p.g.M + SIDE - 1) / SIDE, across = ((int)p.g.N + SIDE - 1) / SIDE;
        const int64_t tile = i % ((int64_t)down * across);
        m = (int)(tile / across) * SIDE, n = (int)(tile % across) * SIDE;
        piece = (int)(i / ((int64_t)down * across));
        k = piece * p.piece, k_end = min(k + p.piece, (int)p.g.K);
    }
    __device__ int steps() const
    {
        return (k_end - k + DEPTH - 1) / DEPTH;
    }
};

// Where a step is in shared memory: the step'th of all that the block takes.
struct ring_place {
    int slot = 0, phase = 0;

    __device__ void next()
    {
        if (++slot == STEPS) slot = 0, phase ^= 1;
    }
};

// Stores a warp's 16 rows of c, or of a piece's sums, from row m on.
template <bool A_DEEP, bool B_DEEP>
__device__ void store(const problem &p, const ending &end, const tile_sums &sum, const place &at,
                      int m, int lane)
{
    const int M = (int)p.g.M, N = (int)p.g.N;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = m + row_of<A_DEEP>(lane / 4, half);
        if (row >= M) continue;
        float *const to = p.sums ? p.sums + ((int64_t)at.piece * M + row) * N
                                 : (float *)p.g.c.data + row * p.g.c.row;
#pragma unroll
        for (int j = 0; j < SIDE / 8; j++) {
            const int column = at.n + 8 * j + lane % 4 * 2;
            if (column >= N) continue;
            float2 value = {sum[j][2 * half], sum[j][2 * half + 1]};
            if (!p.sums) {
                if (!isfinite(value.x)) value.x = plain_sum<A_DEEP, B_DEEP>(p, row, column);
                if (!isfinite(value.y)) value.y = plain_sum<A_DEEP, B_DEEP>(p, row, column + 1);
                const float2 old = end.add ? *(const float2 *)(to + column) : float2();
                value = {end(value.x, column, old.x), end(value.y, column + 1, old.y)};
            }
            *(float2 *)(to + column) = value;
        }
    }
}

// The steps that a block prepares, in order.
struct walk {
    const problem &p;
    int64_t task = blockIdx.x;
    place of = {p, task};
    int step = 0;
    ring_place at = {};

    __device__ explicit walk(const problem &all) : p(all) {}
    __device__ int k() const
    {
        return of.k + step * DEPTH;
    }
    __device__ void next()
    {
        at.next();
        if (++step < of.steps()) return;
        step = 0, task += gridDim.x;
        of = place(p, task);
    }
};

// The work of the first group. Its first thread starts the copies: b two steps ahead, a one.
template <bool A_DEEP, bool B_DEEP>
__device__ void prepare(const problem &p, shared &r, int64_t tasks)
{
    walk a(p), b(p), now(p);
    const auto load_a = [&]() {
        if (threadIdx.x != 0 || a.task >= tasks) return;
        const int slot = a.at.slot;
        gd_async::barrier_wait(r.empty[slot], a.at.phase ^ 1);
        load_tile<A_DEEP>(r.step[slot].a, p.a_map, r.full[slot], a.of.m, a.k());
        a.next();
    };
    const auto load_b = [&]() { // into the place of the tile split last
        if (threadIdx.x != 0 || b.task >= tasks) return;
        load_tile<B_DEEP>(r.b[b.at.slot], p.b_map, r.b_full[b.at.slot], b.of.n, b.k());
        b.next();
    };
    load_b(), load_b();
    load_a();
    while (now.task < tasks) {
        load_b();
        load_a();
        __syncwarp();
        const int slot = now.at.slot;
        gd_async::barrier_wait(r.b_full[slot], now.at.phase);
        gd_async::barrier_wait(r.empty[slot], now.at.phase ^ 1);
        split_b<B_DEEP>(r.step[slot].split_b, r.b[slot]);
        gd_async::fence_async(); // for wgmma to read
        gd_async::barrier_arrive(r.full[slot]);
        gd_async::named_barrier_sync(1, GROUP); // b can be overwritten
        now.next();
    }
}

// The work of the others.
template <bool A_DEEP, bool B_DEEP>
__device__ void multiply_tasks(const problem &p, shared &r, int64_t tasks)
{
    const int lane = threadIdx.x % 32, row = (int)(threadIdx.x - GROUP) / 32 * 16; // of the warp
    const ending end(p.g);
    ring_place now;
    for (int64_t i = blockIdx.x; i < tasks; i += gridDim.x) {
        const place at(p, i);
        const int steps = at.steps();
        tile_sums sum = {}, part;
        rows_of_a even, odd;
        const auto take_a = [&](const ring_place &t, rows_of_a &rows) {
            gd_async::barrier_wait(r.full[t.slot], t.phase);
            split_a<A_DEEP>(rows, r.step[t.slot].a, row, lane);
        };
        const auto run_step = [&](bool last, rows_of_a &a, rows_of_a &a_next) {
            const ring_place before = now;
            multiply(part, a, r.step[before.slot].split_b);
            now.next();
            if (!last) take_a(now, a_next);
            gd_wgmma::wait<0>();
            pin(part, a);
            gd_async::barrier_arrive(r.empty[before.slot]);
#pragma unroll
            for (int j = 0; j < SIDE / 2; j++) sum[j / 4][j % 4] += part[j / 4][j % 4];
        };
        take_a(now, even);
        for (int step = 0; step < steps; step += 2) {
            run_step(step + 1 == steps, even, odd);
            if (step + 1 < steps) run_step(step + 2 == steps, odd, even);
        }
        store<A_DEEP, B_DEEP>(p, end, sum, at, at.m + row, lane);
    }
}

template <bool A_DEEP, bool B_DEEP>
__global__ static GD_LAUNCH_BOUNDS(THREADS,
                                   1) void multiply_tiles(const __grid_constant__ problem p,
                                                          int64_t tasks)
{
    gd_in_turn();
    extern __shared__ char memory[];
    const uint32_t past = gd_async::shared_address(memory) % gd_wgmma::aligned;
    shared &r = *(shared *)(memory + (gd_wgmma::aligned - past) % gd_wgmma::aligned);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STEPS; i++) {
            gd_async::barrier_init(r.b_full[i], 1);
            gd_async::barrier_init(r.full[i], 1 + GROUP);
            gd_async::barrier_init(r.empty[i], THREADS - GROUP);
        }
        gd_async::barrier_init_done();
        gd_async::fence_async();
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        gd_wgmma::fewer_registers<PREPARING>();
        prepare<A_DEEP, B_DEEP>(p, r, tasks);
    } else {
        gd_wgmma::more_registers<MULTIPLYING>();
        multiply_tasks<A_DEEP, B_DEEP>(p, r, tasks);
    }
}

// c from the sums of the pieces.
template <bool A_DEEP, bool B_DEEP>
__global__ static void add_pieces(const __grid_constant__ problem p)
{
    gd_in_turn();
    const ending end(p.g);
    const int64_t N = p.g.N, count = p.g.M * N;
    GD_EACH(e, count)
    {
        float sum = 0;
        for (int piece = 0; piece < p.pieces; piece++) sum += p.sums[piece * count + e];
        if (!isfinite(sum)) sum = plain_sum<A_DEEP, B_DEEP>(p, e / N, e % N);
        float *const c = (float *)p.g.c.data + e / N * p.g.c.row + e % N;
        *c = end(sum, e % N, end.add ? *c : 0);
    }
}

// ---- Running ------------------------------------------------------------------------------------

template <bool A_DEEP, bool B_DEEP>
gd_status tf32x3_product(const gd_call *call, problem p, gd_gemm_workspace *workspace)
{
    const gd_gemm &g = p.g;
    // As many pieces, of at least 128 terms, as give each multiprocessor of an H200 one. A
    // constant: the order of the sums does not depend on the GPU.
    const int64_t tiles = gd_ceil_div(g.M, SIDE) * gd_ceil_div(g.N, SIDE);
    const int64_t wanted = gd_max64(1, gd_min64(MULTIPROCESSORS / tiles, g.K / 128));
    p.piece = (int)(gd_ceil_div(gd_ceil_div(g.K, wanted), DEPTH) * DEPTH);
    p.pieces = (int)gd_ceil_div(g.K, p.piece);
    if (p.pieces > 1) {
        const size_t bytes = (size_t)(p.pieces * g.M * g.N) * sizeof(float);
        if (gd_gemm_reserve(call, bytes, workspace)) return gd_error_status(call->context);
        p.sums = (float *)workspace->data;
    }
    const auto kernel = multiply_tiles<A_DEEP, B_DEEP>;
    const int64_t tasks = tiles * p.pieces;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    const gd_status status =
        gd_launch(call, {(unsigned)gd_min64(tasks, MULTIPROCESSORS), THREADS, SHARED_BYTES}, kernel,
                  p, tasks);
    if (status || p.pieces == 1) return status;
    return gd_launch(call, gd_grid_for(g.M * g.N), add_pieces<A_DEEP, B_DEEP>, p);
}

// Whether TMA can load tiles of x, whose rows have `across` adjacent numbers.
bool map_of(CUtensorMap *map, const operand &x, int64_t across, int64_t down, bool deep)
{
    const auto encode = gd_wgmma::map_encoder();
    const cuuint64_t size[] = {(cuuint64_t)across, (cuuint64_t)down};
    const cuuint64_t bytes[] = {(cuuint64_t)x.ld * sizeof(float)};
    const cuuint32_t box[] = {32, (cuuint32_t)(deep ? SIDE : DEPTH)}, step[] = {1, 1};
    return encode && (uintptr_t)x.data % 16 == 0 && bytes[0] % 16 == 0 &&
           encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)x.data, size, bytes, box, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Whether columns of x are adjacent numbers (else its rows are: gd_gemm_takes).
bool packed_columns(gd_cuda_matrix x, int64_t columns)
{
    return x.column != 1 || x.row < columns;
}

} // namespace

bool gd_tf32x3(const gd_call *call, const gd_gemm &g, gd_gemm_workspace *workspace,
               gd_status *status)
{
    const int64_t MOST = (int64_t)1 << 30;
    const double terms = (double)g.M * (double)g.N * (double)g.K;
    if (g.dtype != GD_FLOAT32 || g.c_dtype != GD_FLOAT32 || g.batch != 1 || terms < 0x1p28 ||
        g.M < 64 || g.N < 64 || g.K < 64 || g.M > MOST || g.N > MOST || g.K > MOST ||
        (g.M | g.N | g.K) % 4 != 0 || (uintptr_t)g.c.data % 8 != 0 || g.c.row % 2 != 0) {
        return false;
    }
    const bool a_deep = !packed_columns(g.a, g.K), b_deep = packed_columns(g.b, g.N);
    problem p = {};
    p.g = g;
    p.a = {(const float *)g.a.data, a_deep ? g.a.row : g.a.column};
    p.b = {(const float *)g.b.data, b_deep ? g.b.column : g.b.row};
    if (!map_of(&p.a_map, p.a, a_deep ? g.K : g.M, a_deep ? g.M : g.K, a_deep) ||
        !map_of(&p.b_map, p.b, b_deep ? g.K : g.N, b_deep ? g.N : g.K, b_deep)) {
        return false;
    }
    if (a_deep)
        *status = b_deep ? tf32x3_product<true, true>(call, p, workspace)
                         : tf32x3_product<true, false>(call, p, workspace);
    else
        *status = b_deep ? tf32x3_product<false, true>(call, p, workspace)
                         : tf32x3_product<false, false>(call, p, workspace);
    return true;
}
