/* plain_cpu.c - max_pool2d and avg_pool2d as README.md derives them: a loop over the windows,
 * and one over the places of each. It has the interface of pool_cpu.c's kernels, which tests
 * compare with it. */
#include "kernel_cpu.h"
#include "pool/pool.h"

/* The row or column of x that element k of window i has; -1 if it is padding. */
static int64_t element(const gd_pool_planes *p, int axis, int64_t i, int64_t k)
{
    const int64_t at = i * p->args.stride[axis] + k - p->args.padding[axis];
    return at >= 0 && at < p->size[axis] ? at : -1;
}

/* The place of number k of the places of window i of all planes; -1 if it is padding. */
static int64_t place_of(const gd_pool_planes *p, int64_t i, int64_t k)
{
    const int64_t *windows = p->pooled, *kernel = p->args.kernel;
    const int64_t plane = i / windows[POOL_COLS] / windows[POOL_ROWS];
    const int64_t row =
        element(p, POOL_ROWS, i / windows[POOL_COLS] % windows[POOL_ROWS], k / kernel[POOL_COLS]);
    const int64_t column = element(p, POOL_COLS, i % windows[POOL_COLS], k % kernel[POOL_COLS]);
    if (row < 0 || column < 0) return -1;
    return (plane * p->size[POOL_ROWS] + row) * p->size[POOL_COLS] + column;
}

/* Forward and, where there is a dy, backward. m is the place of the maximum: of equal elements the
 * first, of NaNs the last. */
static gd_status pool(const gd_call *call, bool max)
{
    const gd_pool_planes p = gd_pool_planes_of(call, call->input[0], call->output[0]);
    const int64_t windows = p.planes * p.pooled[POOL_ROWS] * p.pooled[POOL_COLS];
    const int64_t K = p.args.kernel[POOL_ROWS] * p.args.kernel[POOL_COLS];
    const REAL *x = gd_data(call->input[0]), *dy = gd_dy(call, 0);
    REAL *y = dy ? NULL : gd_data(call->output[0]), *dx = gd_dx_sum(call, 0);
    for (int64_t i = 0; i < windows; i++) {
        int64_t m = -1;
        double sum = 0;
        for (int64_t k = 0; k < K; k++) {
            const int64_t at = place_of(&p, i, k);
            if (at < 0) continue;
            if (m < 0 || x[at] > x[m] || isnan(x[at])) m = at;
            sum += (double)x[at];
            if (dx && !max) dx[at] += dy[i] / (REAL)K; /* [avg_pool2d] */
        }
        if (max) GD_STEP("m", m);
        if (dx && max) dx[m] += dy[i]; /* [max_pool2d] */
        if (y) y[i] = max ? x[m] : (REAL)(sum / (double)K);
    }
    return GD_OK;
}

GD_KERNELS_OF_REAL(max_pool2d_plain, pool(call, true), pool(call, true))
GD_KERNELS_OF_REAL(avg_pool2d_plain, pool(call, false), pool(call, false))
