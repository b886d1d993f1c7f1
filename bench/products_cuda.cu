// products_cuda.cu - the matrix products of a training step by every algorithm that cuBLASLt offers
// for them, under the conditions of kernels/matmul/gemm.cu: is its first choice the best?
#include <cublasLt.h>

#include <string>

#include "bench.h"
#include "cuda_timing.cuh"

namespace
{

constexpr size_t workspace_most = (size_t)32 << 20; // as in gemm.cu
constexpr int candidates_most = 32;

// c [rows, columns] = a b with sums over `depth`, and which operands are transposed: memory is
// row-major, so cuBLASLt computes c^T = b^T a^T.
struct product {
    const char *name;
    int64_t rows, columns, depth;
    bool a_transposed, b_transposed, wide; // wide: c is float32
};

struct problem {
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
};

void must_blas(cublasStatus_t status, const char *what)
{
    if (!status) return;
    fprintf(stderr, "gradus-bench: %s: %s\n", what, cublasLtGetStatusString(status));
    exit(1);
}

cublasLtMatrixLayout_t layout_of(cudaDataType_t type, int64_t rows, int64_t columns)
{
    cublasLtMatrixLayout_t layout; // ours [rows, columns] is theirs [columns, rows]
    must_blas(cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)columns, (uint64_t)rows, columns),
              "a layout");
    return layout;
}

problem describe(const product &p, cudaDataType_t type, bool tf32)
{
    problem q;
    const cublasOperation_t op_a = p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    must_blas(cublasLtMatmulDescCreate(&q.description,
                                       tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                       CUDA_R_32F),
              "a product");
    must_blas(cublasLtMatmulDescSetAttribute(q.description, CUBLASLT_MATMUL_DESC_TRANSA, &op_b,
                                             sizeof op_b),
              "a product");
    must_blas(cublasLtMatmulDescSetAttribute(q.description, CUBLASLT_MATMUL_DESC_TRANSB, &op_a,
                                             sizeof op_a),
              "a product");
    q.a = p.a_transposed ? layout_of(type, p.depth, p.rows) : layout_of(type, p.rows, p.depth);
    q.b =
        p.b_transposed ? layout_of(type, p.columns, p.depth) : layout_of(type, p.depth, p.columns);
    q.c = layout_of(p.wide ? CUDA_R_32F : type, p.rows, p.columns);
    return q;
}

int candidates(cublasLtHandle_t blas, const problem &q, cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreference_t preference;
    const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int count = 0;
    must_blas(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    must_blas(cublasLtMatmulPreferenceSetAttribute(preference,
                                                   CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &workspace_most, sizeof workspace_most),
              "a preference");
    must_blas(cublasLtMatmulPreferenceSetAttribute(
                  preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums),
              "a preference");
    must_blas(cublasLtMatmulAlgoGetHeuristic(blas, q.description, q.b, q.a, q.c, q.c, preference,
                                             candidates_most, found, &count),
              "algorithms");
    cublasLtMatmulPreferenceDestroy(preference);
    return count;
}

std::string name_of(const cublasLtMatmulAlgo_t &algorithm)
{
    int32_t id = 0, tile = 0, split = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id,
                                         &written);
    cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                         sizeof tile, &written);
    cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                         sizeof split, &written);
    return "id " + std::to_string(id) + ", tile " + std::to_string(tile) + ", split " +
           std::to_string(split);
}

void measure(cublasLtHandle_t blas, const product &p, const bench_options *o)
{
    const cudaDataType_t type = o->dtype == GD_BFLOAT16  ? CUDA_R_16BF
                                : o->dtype == GD_FLOAT16 ? CUDA_R_16F
                                                         : CUDA_R_32F;
    const problem q = describe(p, type, o->tf32);
    cublasLtMatmulHeuristicResult_t found[candidates_most];
    const int count = candidates(blas, q, found), size = (int)gd_dtype_size(o->dtype);
    const size_t most = (size_t)std::max(
        std::max(p.rows * p.depth * size, p.depth * p.columns * size), p.rows * p.columns * 4);
    const Rotation r({most, most, most}, {o->dtype, o->dtype, o->dtype}, 64);
    void *workspace;
    must(cudaMalloc(&workspace, workspace_most), "cudaMalloc");
    double first = NAN, best = NAN;
    int which = -1;
    for (int i = 0; i < count; i++) {
        const double bytes = (double)most * 3;
        const double seconds =
            seconds_of(r.sets, bytes, o->repeats, [&](int set, cudaStream_t stream) {
                const float one = 1, none = 0;
                return cublasLtMatmul(blas, q.description, &one, r.get(set, 1), q.b, r.get(set, 0),
                                      q.a, &none, r.get(set, 2), q.c, r.get(set, 2), q.c,
                                      &found[i].algo, workspace, found[i].workspaceSize,
                                      stream) == CUBLAS_STATUS_SUCCESS;
            });
        if (i == 0) first = seconds;
        if (!(seconds >= best)) best = seconds, which = i;
    }
    const double flops = 2.0 * (double)p.rows * (double)p.columns * (double)p.depth;
    printf("%-14s %6lld x %6lld x %6lld  first %8.1f us %7.1f TFLOP/s (%s)   best %8.1f us "
           "%7.1f TFLOP/s, number %d of %d (%s)   %.3f\n",
           p.name, (long long)p.rows, (long long)p.columns, (long long)p.depth, first * 1e6,
           flops / first * 1e-12, count ? name_of(found[0].algo).c_str() : "none", best * 1e6,
           flops / best * 1e-12, which + 1, count,
           which < 0 ? "none" : name_of(found[which].algo).c_str(), first / best);
    fflush(stdout);
    cudaFree(workspace);
    cublasLtMatmulDescDestroy(q.description);
    cublasLtMatrixLayoutDestroy(q.a), cublasLtMatrixLayoutDestroy(q.b);
    cublasLtMatrixLayoutDestroy(q.c);
}

} // namespace

// y = x w^T, dx = dy w and dw = dy^T x of a layer x [M, in] -> y [M, out].
extern "C" int bench_products_cuda(const bench_options *o, int64_t M, const bench_layer *layers,
                                   int count)
{
    cublasLtHandle_t blas;
    must_blas(cublasLtCreate(&blas), "cublasLtCreate");
    for (int i = 0; i < count; i++) {
        const bench_layer &l = layers[i];
        const std::string name = l.name;
        const bool wide = o->dtype != GD_FLOAT32;
        const std::string dx = name + " dx", dw = name + " dw";
        measure(blas, {name.c_str(), M, l.out, l.in, false, true, false}, o);
        measure(blas, {dx.c_str(), M, l.in, l.out, false, false, false}, o);
        measure(blas, {dw.c_str(), l.out, l.in, M, true, false, wide}, o);
    }
    cublasLtDestroy(blas);
    return 0;
}
