// softmax.cu - the CUDA kernels of softmax and log_softmax. x is seen as [outer, N, inner] with the
// axis in the middle; where inner is 1 that is rows.
#include "team.cuh"
#include "softmax/formula.h"
#include "softmax/softmax.h"

struct softmax_view {
    int64_t outer, n, inner;
};

static softmax_view view_of(const gd_call *call, const gd_tensor *t)
{
    const gd_softmax_args *args = (const gd_softmax_args *)call->args;
    softmax_view v = {1, gd_tensor_dim(t, args->axis), 1};
    for (int d = 0; d < args->axis; d++) v.outer *= gd_tensor_shape(t)[d];
    for (int d = args->axis + 1; d < gd_tensor_ndim(t); d++) v.inner *= gd_tensor_shape(t)[d];
    return v;
}

template <bool LOG, class C>
__device__ static inline C gradient(C y, C dy, C s)
{
    return LOG ? log_softmax_dx(y, dy, s) : softmax_dx(y, dy, s);
}

// ---- Rows: a team each ------------------------------------------------------------------------

template <bool LOG, class T, int V, bool BLOCK>
__global__ static void __launch_bounds__(gd_team_most(BLOCK))
    row_forward(T *y, const T *x, int64_t rows, int64_t n)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    for (int64_t r = team.row; r < rows; r += team.step) {
        const T *from = x + r * n;
        T *to = y + r * n;
        gd_sum_exp<C> row;
        for (int64_t p = team.rank; p < n / V; p += team.size) {
            const gd_pack<T, V> pack = gd_pack<T, V>::load(from, p);
            for (int v = 0; v < V; v++) row.add(gd_load(pack[v]));
        }
        row.reduce(team, shared);
        const C s = LOG ? log(row.sum) : 1 / row.sum;
        for (int64_t p = team.rank; p < n / V; p += team.size) { // again: from a cache
            gd_pack<T, V> pack = gd_pack<T, V>::load(from, p);
            for (int v = 0; v < V; v++) {
                pack[v] = gd_store<T>(softmax(C(gd_load(pack[v])), row.max, s, LOG));
            }
            pack.store(to, p);
        }
    }
}

template <bool LOG, class T, int V, bool BLOCK>
__global__ static void __launch_bounds__(gd_team_most(BLOCK))
    row_backward(T *dx, const T *y, const T *dy, int64_t rows, int64_t n, bool add)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    for (int64_t r = team.row; r < rows; r += team.step) {
        const T *row_y = y + r * n, *row_dy = dy + r * n;
        T *to = dx + r * n;
        C s = 0;
        for (int64_t p = team.rank; p < n / V; p += team.size) {
            const gd_pack<T, V> py = gd_pack<T, V>::load(row_y, p),
                                pd = gd_pack<T, V>::load(row_dy, p);
            for (int v = 0; v < V; v++) {
                s += softmax_term(C(gd_load(py[v])), C(gd_load(pd[v])), LOG);
            }
        }
        s = team.sum(s, shared);
        for (int64_t p = team.rank; p < n / V; p += team.size) {
            const gd_pack<T, V> py = gd_pack<T, V>::load(row_y, p),
                                pd = gd_pack<T, V>::load(row_dy, p);
            gd_pack<T, V> out = {};
            if (add) out = gd_pack<T, V>::load(to, p);
            for (int v = 0; v < V; v++) {
                const C d = gradient<LOG>(gd_load(py[v]), gd_load(pd[v]), s);
                out[v] = gd_store<T>(add ? gd_load(out[v]) + d : d);
            }
            out.store(to, p);
        }
    }
}

// ---- Another axis: a thread for each column -----------------------------------------------------

// Neighbouring threads have neighbouring columns, so memory is read in order.
template <bool LOG, class T>
__global__ static void column_forward(T *y, const T *x, softmax_view v)
{
    gd_in_turn();
    using C = gd_compute<T>;
    GD_EACH(c, v.outer * v.inner)
    {
        const int64_t at = c / v.inner * v.n * v.inner + c % v.inner;
        gd_sum_exp<C> column;
        for (int64_t i = 0; i < v.n; i++) column.add(gd_load(x[at + i * v.inner]));
        const C sum = column.max > -(C)INFINITY ? column.sum : (C)NAN; // as gd_sum_exp::reduce
        const C s = LOG ? log(sum) : 1 / sum;
        for (int64_t i = 0; i < v.n; i++) {
            const C value = softmax((C)gd_load(x[at + i * v.inner]), column.max, s, LOG);
            y[at + i * v.inner] = gd_store<T>(value);
        }
    }
}

template <bool LOG, class T>
__global__ static void column_backward(T *dx, const T *y, const T *dy, softmax_view v, bool add)
{
    gd_in_turn();
    using C = gd_compute<T>;
    GD_EACH(c, v.outer * v.inner)
    {
        const int64_t at = c / v.inner * v.n * v.inner + c % v.inner;
        C s = 0;
        for (int64_t i = 0; i < v.n; i++) {
            const int64_t e = at + i * v.inner;
            s += softmax_term((C)gd_load(y[e]), (C)gd_load(dy[e]), LOG);
        }
        for (int64_t i = 0; i < v.n; i++) {
            const int64_t e = at + i * v.inner;
            const C d = gradient<LOG>((C)gd_load(y[e]), (C)gd_load(dy[e]), s);
            dx[e] = gd_store<T>(add ? gd_load(dx[e]) + d : d);
        }
    }
}

// ---- The ops ----------------------------------------------------------------------------------

template <bool LOG, class T>
static gd_status softmax_rows(const gd_call *call)
{
    gd_tensor *out = call->output[0];
    const softmax_view v = view_of(call, out);
    const T *x = gd_ptr<T>(call->input[0]);
    T *y = gd_ptr<T>(out);
    if (v.inner > 1) {
        return gd_launch(call, gd_grid_for(v.outer * v.inner, 128, 128), column_forward<LOG, T>, y,
                         x, v);
    }
    const bool packed = gd_rows_pack<T>(v.n, x, y);
    return gd_by_team<T>(v.outer, v.n, packed, [&](auto grid, auto pack, auto block) {
        return gd_launch(call, grid, row_forward<LOG, T, pack, block>, y, x, v.outer, v.n);
    });
}

template <bool LOG, class T>
static gd_status softmax_rows_backward(const gd_call *call)
{
    gd_tensor *out = call->dinput[0];
    if (!out) return GD_OK;
    const softmax_view v = view_of(call, out);
    const bool add = call->accumulate[0];
    const T *y = gd_ptr<T>(call->output[0]), *dy = gd_ptr<T>(call->doutput[0]);
    T *dx = gd_ptr<T>(out);
    if (v.inner > 1) {
        return gd_launch(call, gd_grid_for(v.outer * v.inner, 128, 128), column_backward<LOG, T>,
                         dx, y, dy, v, add);
    }
    const bool packed = gd_rows_pack<T>(v.n, y, dy, dx);
    return gd_by_team<T>(v.outer, v.n, packed, [&](auto grid, auto pack, auto block) {
        return gd_launch(call, grid, row_backward<LOG, T, pack, block>, dx, y, dy, v.outer, v.n,
                         add);
    });
}

GD_CUDA_KERNEL_OF_T(softmax_forward, softmax_rows<false, T>(call))
GD_CUDA_KERNEL_OF_T(softmax_backward, softmax_rows_backward<false, T>(call))
GD_CUDA_KERNEL_OF_T(log_softmax_forward, softmax_rows<true, T>(call))
GD_CUDA_KERNEL_OF_T(log_softmax_backward, softmax_rows_backward<true, T>(call))
