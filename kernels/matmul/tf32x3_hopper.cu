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
// A block computes a tile of c, [128, 128], or a piece of its sum over k, in steps of 32 terms.
// Each of its two groups of four warps has 64 rows, with its part of a in registers and b in shared
// memory (wgmma). Tiles of a and b arrive there some steps ahead, as they are in memory. While one
// step is multiplied, the threads split the next: a into registers, b into two tiles in which the
// terms of a sum are adjacent, as the instruction demands.
//
// If c is a small matrix of long sums, as a gradient dw is, the pieces' sums are stored, and added
// in order by a second kernel. How many there are depends on the sizes alone.
//
// Infinity has no rest, and a product with it may be inf * 0 here where float32 has none. So an
// element of c that is not finite is computed again, in float32.
#include "attention/hopper.cuh"
#include "kernel.h"
#include "matmul/tf32x3.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int SIDE = 128;              // of a block's tile of c
constexpr int DEPTH = 32;              // terms of a step
constexpr int STAGES = 3;              // steps in shared memory, as they were in memory
constexpr int LONG_ROW = SIDE + 8;     // of a tile [DEPTH, SIDE], against bank conflicts
constexpr int TILE = DEPTH * LONG_ROW; // room for a tile of either kind, in numbers
constexpr int SPLIT = SIDE * DEPTH;    // the highs of a tile of b, or its lows
constexpr int SHARED_BYTES = (4 * SPLIT + 2 * STAGES * TILE) * 4 + gd_hopper::aligned;

// A DEEP operand has adjacent elements along k, any other along the rows or columns of c; ld is the
// distance of neighbours in the other direction.
struct operand {
    const float *data;
    int64_t ld, step;
};

struct problem {
    gd_gemm g;
    operand a, b;
    int piece;   // of K, for a block
    float *sums; // of the pieces, [pieces, M, N]; NULL if there is one
    bool pairs;  // whether columns 2 j and 2 j + 1 can be stored at once
};

// ---- c, given the sums over k -------------------------------------------------------------------

template <bool A_DEEP, bool B_DEEP>
__device__ __noinline__ float plain_sum(const problem &p, int64_t i, int64_t m, int64_t n)
{
    const float *a = p.a.data + i * p.a.step + (A_DEEP ? m * p.a.ld : m);
    const float *b = p.b.data + i * p.b.step + (B_DEEP ? n * p.b.ld : n);
    float sum = 0;
    for (int64_t k = 0; k < p.g.K; k++)
        sum = fmaf(a[A_DEEP ? k : k * p.a.ld], b[B_DEEP ? k : k * p.b.ld], sum);
    return sum;
}

// The new element [m, n] of product i.
template <bool A_DEEP, bool B_DEEP>
__device__ float finished(const problem &p, int64_t i, int64_t m, int64_t n, float sum)
{
    const float *scalars = (const float *)p.g.scalars, *c = (const float *)p.g.c.data;
    if (!isfinite(sum)) sum = plain_sum<A_DEEP, B_DEEP>(p, i, m, n);
    sum *= scalars ? scalars[0] : (float)p.g.alpha;
    if (p.g.bias) sum += ((const float *)p.g.bias)[n];
    const bool add = scalars ? scalars[1] != 0 : p.g.accumulate;
    return add ? c[i * p.g.c_step + m * p.g.c.row + n] + sum : sum;
}

// ---- Tiles --------------------------------------------------------------------------------------

// Of a tile [SIDE, DEPTH]: where four numbers along k begin (the swizzle of hopper.cuh).
__device__ int swizzled(int row, int four)
{
    return row * DEPTH + (four ^ (row & 7)) * 4;
}

// Copies the tile at (`first`, `k`) of an operand that ends at (`end`, `k_end`), with zeros beyond,
// to [SIDE, DEPTH], swizzled, or [DEPTH, LONG_ROW].
template <bool DEEP>
__device__ void copy_tile(float *to, const float *x, int64_t ld, int first, int end, int k,
                          int k_end)
{
    constexpr int FOURS = (DEEP ? DEPTH : SIDE) / 4; // in a row
#pragma unroll
    for (int i = 0; i < SPLIT / 4 / THREADS; i++) {
        const int row = (i * THREADS + (int)threadIdx.x) / FOURS;
        const int four = (i * THREADS + (int)threadIdx.x) % FOURS;
        const int down = (DEEP ? first : k) + row, across = (DEEP ? k : first) + 4 * four;
        const bool inside = down < (DEEP ? end : k_end) && across < (DEEP ? k_end : end);
        gd_mma::copy_16(to + (DEEP ? swizzled(row, four) : row * LONG_ROW + 4 * four),
                        inside ? x + down * ld + across : x, inside);
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
            gd_mma::load_matrices(high, tile + swizzled(row + lane % 16, k / 4 + lane / 16));
        } else {
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const int place = (k + 2 * i + lane % 4) * LONG_ROW + row + lane / 4 * 2;
                const uint2 v = *(const uint2 *)(tile + place);
                high[i] = v.x, high[i + 1] = v.y;
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) a.low[k / 8][i] = split(high[i]);
    }
}

// To [SIDE, DEPTH], swizzled: the highs, and after them the lows.
template <bool DEEP>
__device__ void split_b(float *to, const float *tile)
{
#pragma unroll
    for (int i = 0; i < SPLIT / 4 / THREADS; i++) {
        const int at = i * THREADS + (int)threadIdx.x;
        const int row = DEEP ? at / (DEPTH / 4) : at % SIDE;
        const int four = DEEP ? at % (DEPTH / 4) : at / SIDE, place = swizzled(row, four);
        uint32_t high[4], low[4];
        if constexpr (DEEP) {
            const uint4 v = *(const uint4 *)(tile + place);
            high[0] = v.x, high[1] = v.y, high[2] = v.z, high[3] = v.w;
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                high[j] = __float_as_uint(tile[(4 * four + j) * LONG_ROW + row]);
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

// c [64, 128] += a [64, 8] b [8, 128], or = if not `add`; b is a descriptor (gd_hopper::factor).
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
    const gd_hopper::factor high(b), low(b + SPLIT);
    pin(part, a);
    gd_hopper::products_begin();
#pragma unroll
    for (int i = 0; i < DEPTH / 8; i++) product(part, a.low[i], high.at(32 * i), i > 0);
#pragma unroll
    for (int i = 0; i < DEPTH / 8; i++) product(part, a.high[i], low.at(32 * i), true);
#pragma unroll
    for (int i = 0; i < DEPTH / 8; i++) product(part, a.high[i], high.at(32 * i), true);
    gd_hopper::products_commit();
}

// ---- The kernels --------------------------------------------------------------------------------

// Stores a warp's 16 rows of c, or of a piece's sums, from [m, n] on.
template <bool A_DEEP, bool B_DEEP>
__device__ void store(const problem &p, const tile_sums &sum, int m, int n, int lane)
{
    const int64_t i = blockIdx.z, M = p.g.M, N = p.g.N;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t row = m + row_of<A_DEEP>(lane / 4, half);
        if (row >= M) continue;
        float *const to = p.sums ? p.sums + (blockIdx.y * M + row) * N
                                 : (float *)p.g.c.data + i * p.g.c_step + row * p.g.c.row;
#pragma unroll
        for (int j = 0; j < SIDE / 8; j++) {
            const int column = n + 8 * j + lane % 4 * 2;
            float value[2] = {sum[j][2 * half], sum[j][2 * half + 1]};
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                if (column + odd >= N) continue;
                if (!p.sums)
                    value[odd] = finished<A_DEEP, B_DEEP>(p, i, row, column + odd, value[odd]);
                if (!p.pairs) to[column + odd] = value[odd];
            }
            if (p.pairs && column < N) *(float2 *)(to + column) = {value[0], value[1]};
        }
    }
}

// blockIdx: the tile of c, the piece of k, and the product of the batch.
template <bool A_DEEP, bool B_DEEP>
__global__ static __launch_bounds__(THREADS,
                                    1) void multiply_tiles(const __grid_constant__ problem p)
{
    extern __shared__ char memory[];
    const uint32_t past = gd_mma::shared_address(memory) % gd_hopper::aligned;
    float *const splits = (float *)(memory + (gd_hopper::aligned - past) % gd_hopper::aligned);
    float *const stages = splits + 4 * SPLIT;
    const int M = (int)p.g.M, N = (int)p.g.N, tiles = (N + SIDE - 1) / SIDE;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16; // of the warp in the tile
    const int m = blockIdx.x / tiles * SIDE, n = blockIdx.x % tiles * SIDE;
    const int k = blockIdx.y * p.piece, k_end = min(k + p.piece, (int)p.g.K);
    const int steps = (k_end - k + DEPTH - 1) / DEPTH;
    const float *const a = p.a.data + blockIdx.z * p.a.step;
    const float *const b = p.b.data + blockIdx.z * p.b.step;

    const auto copy_step = [&](int step) {
        if (step < steps) {
            float *const to = stages + step % STAGES * 2 * TILE;
            const int at = k + step * DEPTH;
            copy_tile<A_DEEP>(to, a, p.a.ld, m, M, at, k_end);
            copy_tile<B_DEEP>(to + TILE, b, p.b.ld, n, N, at, k_end);
        }
        asm volatile("cp.async.commit_group;" ::: "memory"); // a group for every step, even empty
    };
    const auto split_of = [&](int step) { return splits + step % 2 * 2 * SPLIT; };
    const auto split_step = [&](int step, rows_of_a &rows) {
        const float *const tile = stages + step % STAGES * 2 * TILE;
        split_b<B_DEEP>(split_of(step), tile + TILE);
        split_a<A_DEEP>(rows, tile, row, lane);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // for products to read
    };
    tile_sums sum = {}, part = {};
    const auto run_step = [&](int step, rows_of_a &now, rows_of_a &next) {
        multiply(part, now, split_of(step));
        if (step + 1 < steps) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
            __syncthreads(); // the next step has arrived, and this one's tiles can be overwritten
            copy_step(step + STAGES);
            split_step(step + 1, next);
        }
        gd_hopper::products_wait<0>();
        pin(part, now);
#pragma unroll
        for (int i = 0; i < SIDE / 2; i++) sum[i / 4][i % 4] += part[i / 4][i % 4];
        __syncthreads(); // the next step has been split, and these splits can be overwritten
    };
    for (int step = 0; step < STAGES; step++) copy_step(step);
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
    __syncthreads();
    rows_of_a even, odd;
    split_step(0, even);
    __syncthreads();
    for (int step = 0; step < steps; step += 2) {
        run_step(step, even, odd);
        if (step + 1 < steps) run_step(step + 1, odd, even);
    }
    store<A_DEEP, B_DEEP>(p, sum, m + row, n, lane);
}

// c from the sums of the pieces.
template <bool A_DEEP, bool B_DEEP>
__global__ static void add_pieces(const __grid_constant__ problem p, int pieces)
{
    const int64_t N = p.g.N, count = p.g.M * N;
    GD_EACH(e, count)
    {
        float sum = 0;
        for (int piece = 0; piece < pieces; piece++) sum += p.sums[piece * count + e];
        float *const c = (float *)p.g.c.data + e / N * p.g.c.row + e % N;
        *c = finished<A_DEEP, B_DEEP>(p, 0, e / N, e % N, sum);
    }
}

// ---- Running ------------------------------------------------------------------------------------

// Whether matrices begin at multiples of so many bytes, and so do their rows or columns.
bool aligned(const void *data, int64_t ld, int64_t step, int bytes)
{
    return ((uintptr_t)data | (uint64_t)(ld | step) * sizeof(float)) % (uint64_t)bytes == 0;
}

template <bool A_DEEP, bool B_DEEP>
gd_status run(const gd_call *call, problem p, gd_gemm_workspace *workspace)
{
    const gd_gemm &g = p.g;
    // As many pieces, of at least 128 terms, as give each multiprocessor of an H200 one. A
    // constant: the order of the sums does not depend on the GPU.
    const int64_t tiles = gd_cuda_divide_up(g.M, SIDE) * gd_cuda_divide_up(g.N, SIDE);
    const int64_t wanted = gd_max64(1, gd_min64(132 / (tiles * g.batch), g.K / 128));
    p.piece = (int)(gd_cuda_divide_up(gd_cuda_divide_up(g.K, wanted), DEPTH) * DEPTH);
    const int pieces = (int)gd_cuda_divide_up(g.K, p.piece);
    p.pairs = pieces > 1 ? g.N % 2 == 0 : g.N % 2 == 0 && aligned(g.c.data, g.c.row, g.c_step, 8);
    if (pieces > 1) {
        const size_t bytes = (size_t)(pieces * g.M * g.N) * sizeof(float);
        if (gd_gemm_reserve(call, bytes, workspace)) return gd_error_status(call->context);
        p.sums = (float *)workspace->data;
    }
    const auto kernel = multiply_tiles<A_DEEP, B_DEEP>;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    kernel<<<dim3((unsigned)tiles, (unsigned)pieces, (unsigned)g.batch), THREADS, SHARED_BYTES,
             gd_stream(call)>>>(p);
    if (pieces > 1) {
        add_pieces<A_DEEP, B_DEEP>
            <<<gd_blocks(g.M * g.N, 256), 256, 0, gd_stream(call)>>>(p, pieces);
    }
    return gd_launched(call);
}

// Whether columns of x are adjacent numbers (else its rows are: gd_gemm_takes).
bool packed_columns(gd_cuda_matrix x, int64_t columns)
{
    return x.column != 1 || x.row < columns;
}

} // namespace

bool gd_tf32x3_takes(const gd_gemm &g)
{
    const int64_t MOST = (int64_t)1 << 30;
    if (g.dtype != GD_FLOAT32 || g.c_dtype != GD_FLOAT32 || g.batch != 1 || g.M < 64 || g.N < 64 ||
        g.K < 64 || g.M > MOST || g.N > MOST || g.K > MOST || (g.M | g.N | g.K) % 4 != 0) {
        return false;
    }
    const int64_t a_ld = packed_columns(g.a, g.K) ? g.a.column : g.a.row;
    const int64_t b_ld = packed_columns(g.b, g.N) ? g.b.column : g.b.row;
    return (double)g.M * (double)g.N * (double)g.K * (double)g.batch >= 0x1p28 &&
           aligned(g.a.data, a_ld, g.a_step, 16) && aligned(g.b.data, b_ld, g.b_step, 16);
}

gd_status gd_tf32x3(const gd_call *call, const gd_gemm &g, gd_gemm_workspace *workspace)
{
    const bool a_deep = !packed_columns(g.a, g.K), b_deep = packed_columns(g.b, g.N);
    problem p = {};
    p.g = g;
    p.a = {(const float *)g.a.data, a_deep ? g.a.row : g.a.column, g.a_step};
    p.b = {(const float *)g.b.data, b_deep ? g.b.column : g.b.row, g.b_step};
    if (a_deep)
        return b_deep ? run<true, true>(call, p, workspace) : run<true, false>(call, p, workspace);
    return b_deep ? run<false, true>(call, p, workspace) : run<false, false>(call, p, workspace);
}
