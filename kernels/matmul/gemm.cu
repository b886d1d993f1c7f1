// gemm.cu - matrix products by cuBLASLt.
//
// cuBLASLt is column-major. The memory of a row-major c [M, N] is that of a column-major c^T [N,
// M], so it computes c^T = b^T a^T: our b is its first operand.
//
// Its heuristic is asked for an algorithm once for each product; the answer is stored in a plan
// with the descriptors, with everything it depends on as the key. So the same product always runs
// the same code.
//
// Bits. If K is long, cuBLASLt may split it over several blocks. We allow only algorithms that
// store the pieces' sums separately, in the type of the computation, and add them in order; none
// that adds them in memory as they arrive, or rounds them to 16 bits first. The choice may depend
// on the GPU and on the version of cuBLAS, and so may the last bits.
#include "matmul/gemm.cuh"

#include <string.h>

#include <initializer_list>

#include "cuda/device_cuda.h"
#include "matmul/tf32x3.cuh"

static const size_t WORKSPACE_MOST = (size_t)32 << 20;
enum { CANDIDATES = 8, SHORT_SUM = 64 };

static gd_status blas_failed(const gd_call *call, cublasStatus_t status)
{
    return gd_call_fail(call, GD_ERROR_DEVICE, "cuBLASLt: %s (%d)", cublasLtGetStatusString(status),
                        (int)status);
}

// ---- Operands -----------------------------------------------------------------------------------

// A matrix as cuBLASLt takes it: rows (or, where transposed, columns) that are packed, `ld` apart.
struct blas_operand {
    bool transposed;
    int64_t ld;
};

// A dimension of size 1 has a stride that means nothing, and may be 0; it gets one that fits.
static bool operand_of(gd_cuda_matrix x, int64_t rows, int64_t columns, blas_operand *operand)
{
    if (columns == 1) x.column = 1;
    if (rows == 1) x.row = x.column == 1 ? columns : 1;
    operand->transposed = x.column != 1 || x.row < columns;
    operand->ld = operand->transposed ? x.column : x.row;
    return operand->transposed ? x.row == 1 && x.column >= rows : true;
}

bool gd_gemm_takes(gd_cuda_matrix x, int64_t rows, int64_t columns)
{
    blas_operand operand;
    return rows == 0 || columns == 0 || operand_of(x, rows, columns, &operand);
}

// Bytes, at most 16, at a multiple of which all matrices of a batch begin.
static int64_t alignment_of(const void *data, int64_t step, gd_dtype dtype)
{
    const uint64_t bits = (uintptr_t)data | (uint64_t)step * gd_dtype_size(dtype) | 16;
    return (int64_t)(bits & (~bits + 1));
}

// ---- Plans --------------------------------------------------------------------------------------

// What the choice of an algorithm depends on. All of one type, so that there is no padding and keys
// compare as bytes.
struct plan_key {
    int64_t dtype, c_dtype, tf32, bias, scalars;
    int64_t M, N, K, batch;
    int64_t a_transposed, b_transposed, a_ld, b_ld, c_ld, a_step, b_step, c_step;
    int64_t a_alignment, b_alignment, c_alignment, bias_alignment;
};

struct gemm_plan {
    gemm_plan *next;
    plan_key key;
    cublasStatus_t status; // no algorithm, for this reason
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
};

// gd_cuda.matmul_plans. Cleared when there are very many, as with sequences of ever new lengths.
struct plan_table {
    gd_context *context;
    int count;
    gemm_plan *bucket[256];
};

enum { PLANS_MOST = 4096 };

static void forget_plans(plan_table *table)
{
    for (gemm_plan *&first : table->bucket) {
        while (first) {
            gemm_plan *plan = first;
            first = plan->next;
            gd_cuda_host_release(table->context, plan, sizeof *plan);
        }
    }
    table->count = 0;
}

static void free_plans(void *plans)
{
    plan_table *table = (plan_table *)plans;
    if (!table) return;
    forget_plans(table);
    gd_cuda_host_release(table->context, table, sizeof *table);
}

static plan_table *plans_of(gd_context *ctx)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    if (cuda->matmul_plans) return (plan_table *)cuda->matmul_plans;
    plan_table *table =
        (plan_table *)gd_cuda_host_allocate(ctx, sizeof *table, "plans of products");
    if (!table) return nullptr;
    *table = {};
    table->context = ctx;
    cuda->matmul_plans = table;
    cuda->free_matmul_plans = free_plans;
    return table;
}

static plan_key key_of(const gd_call *call, const gd_gemm &g)
{
    blas_operand a, b;
    operand_of(g.a, g.M, g.K, &a);
    operand_of(g.b, g.K, g.N, &b);
    plan_key key = {};
    key.dtype = g.dtype, key.c_dtype = g.c_dtype;
    key.tf32 = g.dtype == GD_FLOAT32 && gd_cuda_tf32(call->context);
    key.bias = g.bias != nullptr, key.scalars = g.scalars != nullptr;
    key.M = g.M, key.N = g.N, key.K = g.K, key.batch = g.batch;
    key.a_transposed = a.transposed, key.b_transposed = b.transposed;
    key.a_ld = a.ld, key.b_ld = b.ld, key.c_ld = g.M == 1 ? g.N : g.c.row;
    if (g.batch > 1) key.a_step = g.a_step, key.b_step = g.b_step, key.c_step = g.c_step;
    key.a_alignment = alignment_of(g.a.data, key.a_step, g.dtype);
    key.b_alignment = alignment_of(g.b.data, key.b_step, g.dtype);
    key.c_alignment = alignment_of(g.c.data, key.c_step, g.c_dtype);
    if (g.bias) key.bias_alignment = alignment_of(g.bias, 0, g.c_dtype);
    return key;
}

// Keeps the first of several statuses that is not success.
struct first_status {
    cublasStatus_t status;
    void operator+=(cublasStatus_t next)
    {
        if (status == CUBLAS_STATUS_SUCCESS) status = next;
    }
};

static cudaDataType_t data_type(int64_t dtype)
{
    return dtype == GD_FLOAT64    ? CUDA_R_64F
           : dtype == GD_BFLOAT16 ? CUDA_R_16BF
           : dtype == GD_FLOAT16  ? CUDA_R_16F
                                  : CUDA_R_32F;
}

// CUBLAS_COMPUTE_32F multiplies float32 as float32; only ..._FAST_TF32 lets the tensor cores round
// the factors to TF32's 10 bits of mantissa. (..._32F_PEDANTIC would also forbid optimizations that
// do not affect the precision of products and sums, and is slower.)
static cublasComputeType_t compute_type(const plan_key &key)
{
    if (key.dtype == GD_FLOAT64) return CUBLAS_COMPUTE_64F;
    return key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// A column-major matrix, or a batch of them.
static cublasStatus_t describe_matrix(cublasLtMatrixLayout_t layout, int64_t dtype, int64_t rows,
                                      int64_t columns, int64_t ld, int64_t batch, int64_t step)
{
    first_status first = {
        cublasLtMatrixLayoutInit(layout, data_type(dtype), (uint64_t)rows, (uint64_t)columns, ld)};
    if (batch > 1) {
        const int32_t count = (int32_t)batch;
        first += cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                  &count, sizeof count);
        first += cublasLtMatrixLayoutSetAttribute(
            layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
    }
    return first.status;
}

static cublasStatus_t set_bias(cublasLtMatmulDesc_t product, const void *bias)
{
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    first_status first = {cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                         &epilogue, sizeof epilogue)};
    first += cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                            sizeof bias);
    return first.status;
}

// c^T = b^T a^T: a transposed operand of ours is transposed for cuBLASLt.
static cublasStatus_t describe(gemm_plan *plan, const void *bias)
{
    const plan_key &k = plan->key;
    const bool ta = k.a_transposed, tb = k.b_transposed;
    const cublasOperation_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    first_status first = {cublasLtMatmulDescInit(&plan->product, compute_type(k),
                                                 k.dtype == GD_FLOAT64 ? CUDA_R_64F : CUDA_R_32F)};
    first += cublasLtMatmulDescSetAttribute(&plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &op_b,
                                            sizeof op_b);
    first += cublasLtMatmulDescSetAttribute(&plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &op_a,
                                            sizeof op_a);
    if (bias) first += set_bias(&plan->product, bias);
    if (k.scalars) {
        const int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
        first += cublasLtMatmulDescSetAttribute(&plan->product, CUBLASLT_MATMUL_DESC_POINTER_MODE,
                                                &mode, sizeof mode);
    }
    first += describe_matrix(&plan->a, k.dtype, ta ? k.M : k.K, ta ? k.K : k.M, k.a_ld, k.batch,
                             k.a_step);
    first += describe_matrix(&plan->b, k.dtype, tb ? k.K : k.N, tb ? k.N : k.K, k.b_ld, k.batch,
                             k.b_step);
    first += describe_matrix(&plan->c, k.c_dtype, k.N, k.M, k.c_ld, k.batch, k.c_step);
    return first.status;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t attribute, int64_t value)
{
    const uint32_t word = (uint32_t)value;
    return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &word, sizeof word);
}

static int32_t attribute_of(const cublasLtMatmulAlgo_t &algorithm,
                            cublasLtMatmulAlgoConfigAttributes_t attribute)
{
    int32_t value = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
    return value;
}

static bool has_tile(const cublasLtMatmulAlgo_t &algorithm, std::initializer_list<int> tiles)
{
    const int its = attribute_of(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID);
    for (int tile : tiles)
        if (tile == its) return true;
    return false;
}

// Which of the candidates, of which cuBLASLt estimates the first to be the fastest. With a short K
// storing a tile takes a good part of its time, and smaller tiles measured faster (README.md),
// presumably because two blocks fit on a multiprocessor, and one multiplies while the other stores.
static int choose_candidate(const plan_key &k, const cublasLtMatmulHeuristicResult_t *found,
                            int count)
{
    if (k.K <=
        SHORT_SUM) { // a sum of so few terms in pieces costs a second kernel, and saves nothing
        for (int i = 0; i < count; i++)
            if (attribute_of(found[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1) return i;
    }
    const bool half = k.dtype == GD_BFLOAT16 || k.dtype == GD_FLOAT16;
    if (!half || k.K > 1024 ||
        !has_tile(found[0].algo, {CUBLASLT_MATMUL_TILE_256x128, CUBLASLT_MATMUL_TILE_128x256,
                                  CUBLASLT_MATMUL_TILE_192x192}))
        return 0;
    for (int i = 1; i < count; i++)
        if (has_tile(found[i].algo, {CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_TILE_144x128,
                                     CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_176x128}))
            return i;
    return 0;
}

static cublasStatus_t choose_algorithm(gemm_plan *plan, cublasLtHandle_t blas)
{
    const plan_key &k = plan->key;
    cublasLtMatmulPreferenceOpaque_t preference;
    first_status first = {cublasLtMatmulPreferenceInit(&preference)};
    first +=
        cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &WORKSPACE_MOST, sizeof WORKSPACE_MOST);
    first += prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE); // besides none
    first += prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, k.b_alignment);
    first += prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, k.a_alignment);
    first += prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, k.c_alignment);
    first += prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, k.c_alignment);
    if (first.status) return first.status;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES] = {};
    int count = 0;
    first += cublasLtMatmulAlgoGetHeuristic(blas, &plan->product, &plan->b, &plan->a, &plan->c,
                                            &plan->c, &preference, CANDIDATES, found, &count);
    if (first.status) return first.status;
    if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    const cublasLtMatmulHeuristicResult_t &best = found[choose_candidate(k, found, count)];
    plan->algorithm = best.algo;
    plan->workspace = best.workspaceSize;
    return best.state;
}

static uint64_t hash(const plan_key &key)
{
    const unsigned char *bytes = (const unsigned char *)&key;
    uint64_t h = 14695981039346656037u; // FNV-1a
    for (size_t i = 0; i < sizeof key; i++) h = (h ^ bytes[i]) * 1099511628211u;
    return h ^ h >> 32;
}

// NULL, with the error set, if it cannot be created.
static gemm_plan *plan_of(const gd_call *call, const gd_gemm &product)
{
    plan_table *table = plans_of(call->context);
    const cublasLtHandle_t blas = gd_cuda_blas(call->context);
    if (!table || !blas) return nullptr;
    const plan_key key = key_of(call, product);
    gemm_plan **first = &table->bucket[hash(key) % 256];
    for (gemm_plan *plan = *first; plan; plan = plan->next) {
        if (!memcmp(&plan->key, &key, sizeof key)) return plan;
    }
    if (table->count == PLANS_MOST) forget_plans(table);
    gemm_plan *plan =
        (gemm_plan *)gd_cuda_host_allocate(call->context, sizeof *plan, "the plan of a product");
    if (!plan) return nullptr;
    *plan = {};
    plan->key = key;
    plan->status = describe(plan, product.bias);
    if (!plan->status) plan->status = choose_algorithm(plan, blas);
    plan->next = *first;
    *first = plan;
    table->count++;
    return plan;
}

// ---- Running ------------------------------------------------------------------------------------

// c_i = bias, or 0, in every row.
template <class T>
__global__ static void fill_rows(T *c, int64_t c_row, int64_t c_step, const T *bias, int64_t M,
                                 int64_t N, int64_t batch)
{
    gd_in_turn();
    GD_EACH(e, batch * M * N)
    {
        const int64_t row = e / N, column = e % N;
        c[row / M * c_step + row % M * c_row + column] = bias ? bias[column] : gd_store<T>(0.0f);
    }
}

static gd_status fill(const gd_call *call, const gd_gemm &g)
{
    return gd_by_dtype(g.c_dtype, [&](auto zero) {
        using T = decltype(zero);
        return gd_launch(call, gd_grid_for(g.batch * g.M * g.N), fill_rows<T>, (T *)g.c.data,
                         g.c.row, g.c_step, (const T *)g.bias, g.M, g.N, g.batch);
    });
}

static gd_status run_plan(const gd_call *call, gemm_plan *plan, const gd_gemm &g,
                          gd_gemm_workspace *workspace)
{
    if (gd_gemm_reserve(call, plan->workspace, workspace)) return gd_error_status(call->context);
    cublasLtMatmulDescOpaque_t product = plan->product;
    if (g.bias) {
        const cublasStatus_t status = set_bias(&product, g.bias);
        if (status) return blas_failed(call, status);
    }
    const double alpha = g.alpha, beta = g.accumulate;
    const float alpha_f32 = (float)alpha, beta_f32 = g.accumulate;
    const bool f64 = g.dtype == GD_FLOAT64;
    const void *by = f64 ? (const void *)&alpha : &alpha_f32;
    const void *old = f64 ? (const void *)&beta : &beta_f32;
    if (g.scalars) {
        by = g.scalars;
        old = (const char *)g.scalars + (f64 ? sizeof alpha : sizeof alpha_f32);
    }
    const cublasStatus_t status =
        cublasLtMatmul(gd_cuda_blas(call->context), &product, by, g.b.data, &plan->b, g.a.data,
                       &plan->a, old, g.c.data, &plan->c, g.c.data, &plan->c, &plan->algorithm,
                       workspace->data, plan->workspace, gd_stream(call));
    return status ? blas_failed(call, status) : GD_OK;
}

// ---- On Hopper ----------------------------------------------------------------------------------

// With TF32 the instructions of compute capability 9.0 read only factors whose elements along k are
// adjacent; for others cuBLASLt uses older, slower ones. If a is such a factor and b is not, as in
// dx = dy w, and b is small beside the product, it is copied.
static bool pays_to_transpose_b(const gd_gemm &g)
{
    blas_operand a, b;
    operand_of(g.a, g.M, g.K, &a);
    operand_of(g.b, g.K, g.N, &b);
    return !a.transposed && !b.transposed && g.batch == 1 && g.K % 4 == 0 && g.M >= 4096 &&
           (double)g.M * (double)g.N * (double)g.K >= 0x1p30;
}

static gd_status transpose_b(const gd_call *call, gd_gemm *g)
{
    const int64_t size[] = {g->K, g->N}, from[] = {g->b.row, 1}, to[] = {1, g->K};
    void *const copy = gd_call_scratch(call, (size_t)(g->K * g->N) * sizeof(float));
    if (!copy) return gd_error_status(call->context);
    gd_copy_cuda({copy, GD_FLOAT32, 2, size, to}, {g->b.data, GD_FLOAT32, 2, size, from},
                 call->context);
    g->b = {copy, 1, g->K};
    return gd_error_status(call->context);
}

// ---- A product ----------------------------------------------------------------------------------

// A product whose sizes are at least 1. Not every kind of product supports a bias (float64 does
// not); then c is filled with it first.
static gd_status multiply(const gd_call *call, gd_gemm g, gd_gemm_workspace *workspace)
{
    if (g.dtype == GD_FLOAT32 && gd_on_hopper()) {
#ifdef GD_HAVE_HOPPER
        gd_status status;
        if (!gd_cuda_tf32(call->context) && gd_tf32x3(call, g, workspace, &status)) return status;
#endif
        if (gd_cuda_tf32(call->context) && pays_to_transpose_b(g) && transpose_b(call, &g))
            return gd_error_status(call->context);
    }
    gemm_plan *plan = plan_of(call, g);
    if (plan && plan->status && g.bias) {
        if (fill(call, g)) return gd_error_status(call->context);
        g.bias = nullptr;
        g.accumulate = true;
        plan = plan_of(call, g);
    }
    if (!plan) return gd_error_status(call->context);
    const int capability = gd_cuda_device_limits().capability;
    if (plan->status && g.dtype == GD_BFLOAT16 && capability < 80) {
        return gd_call_fail(call, GD_ERROR_UNSUPPORTED,
                            "products of bfloat16 need a GPU of compute capability 8.0, and this "
                            "one has %d.%d: use float16 or float32",
                            capability / 10, capability % 10);
    }
    if (plan->status) {
        return gd_call_fail(call, GD_ERROR_DEVICE,
                            "cuBLASLt has no way to multiply %s [%lld, %lld] by [%lld, %lld]: %s",
                            gd_dtype_name(g.dtype), (long long)g.M, (long long)g.K, (long long)g.K,
                            (long long)g.N, cublasLtGetStatusString(plan->status));
    }
    return run_plan(call, plan, g, workspace);
}

gd_status gd_gemm_cuda(const gd_call *call, const gd_gemm &product, gd_gemm_workspace *workspace)
{
    const int64_t BATCH_MOST = 65535; // of the last dimension of a grid
    gd_gemm g = product;
    if (g.M == 0 || g.N == 0 || g.batch == 0) return GD_OK;
    if (g.K == 0) return g.accumulate ? GD_OK : fill(call, g);
    for (int64_t done = 0; done < product.batch; done += BATCH_MOST) {
        const int64_t left = product.batch - done, size = (int64_t)gd_dtype_size(g.dtype);
        g.batch = left < BATCH_MOST ? left : BATCH_MOST;
        g.a.data = (char *)product.a.data + done * g.a_step * size;
        g.b.data = (char *)product.b.data + done * g.b_step * size;
        g.c.data = (char *)product.c.data + done * g.c_step * (int64_t)gd_dtype_size(g.c_dtype);
        const gd_status status = multiply(call, g, workspace);
        if (status) return status;
    }
    return GD_OK;
}
