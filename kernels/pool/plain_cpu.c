/* plain_cpu.c - max_pool2d and avg_pool2d as README.md derives them: a loop over the windows, and one
 * over the places of each. It has the interface of pool_cpu.c's kernels, which tests compare with it. */
#include "loops.h"
#include "pool/pool.h"

/* A plane of each; NULL for what a call does not have. */
typedef struct plane {
    gd_pool_planes p;
    const REAL *x, *dy;
    REAL *y, *dx;
} plane;

/* The place of number k of the places of window i; -1 if it is padding. */
static int64_t place_of(const gd_pool_planes *p, int64_t i, int64_t k)
{
    const int64_t *n = p->size, *windows = p->pooled, *kernel = p->args.kernel;
    const int64_t row = i / windows[POOL_COLS] * p->args.stride[POOL_ROWS] + k / kernel[POOL_COLS] -
                        p->args.padding[POOL_ROWS];
    const int64_t column = i % windows[POOL_COLS] * p->args.stride[POOL_COLS] +
                           k % kernel[POOL_COLS] - p->args.padding[POOL_COLS];
    const bool inside = row >= 0 && row < n[POOL_ROWS] && column >= 0 && column < n[POOL_COLS];
    return inside ? row * n[POOL_COLS] + column : -1;
}

/* m is the place of the maximum: of equal elements the first, of NaNs the last. */
static void max_window(const plane *w, int64_t i, int64_t K)
{
    const REAL *x = w->x, *dy = w->dy;
    int64_t m = -1;
    for (int64_t k = 0; k < K; k++) {
        const int64_t at = place_of(&w->p, i, k);
        if (at >= 0 && (m < 0 || x[at] > x[m] || isnan(x[at]))) m = at;
    }
    GD_STEP("m", m);
    if (w->y) w->y[i] = x[m];
    if (w->dx) w->dx[m] += dy[i]; /* [max_pool2d] */
}

static void avg_window(const plane *w, int64_t i, int64_t K)
{
    const REAL *x = w->x, *dy = w->dy;
    double sum = 0;
    for (int64_t k = 0; k < K; k++) {
        const int64_t at = place_of(&w->p, i, k);
        if (at < 0) continue;
        sum += (double)x[at];
        if (w->dx) w->dx[at] += dy[i] / (REAL)K; /* [avg_pool2d] */
    }
    if (w->y) w->y[i] = (REAL)(sum / (double)K);
}

static gd_status each_window(const gd_call *call, void (*window)(const plane *, int64_t, int64_t))
{
    const gd_tensor *x = call->input[0], *y = call->output[0];
    const gd_pool_planes p = gd_pool_planes_of(call, x, y);
    const int64_t size = p.size[POOL_ROWS] * p.size[POOL_COLS];
    const int64_t windows = p.pooled[POOL_ROWS] * p.pooled[POOL_COLS];
    const REAL *dy = gd_dy(call, 0);
    REAL *dx = gd_dx(call, 0), *to = dy ? NULL : gd_data(y);
    for (int64_t e = 0; dx && !gd_adds(call, 0) && e < gd_tensor_count(x); e++) dx[e] = 0;
    for (int64_t i = 0; i < p.planes * windows; i++) {
        const int64_t n = i / windows, first = n * size, at = n * windows;
        const plane w = {.p = p,
                         .x = (const REAL *)gd_data(x) + first,
                         .dy = dy ? dy + at : NULL,
                         .y = to ? to + at : NULL,
                         .dx = dx ? dx + first : NULL};
        window(&w, i - at, p.args.kernel[POOL_ROWS] * p.args.kernel[POOL_COLS]);
    }
    return GD_OK;
}

GD_KERNEL_OF_REAL(max_pool2d_plain_forward, each_window(call, max_window))
GD_KERNEL_OF_REAL(max_pool2d_plain_backward, each_window(call, max_window))
GD_KERNEL_OF_REAL(avg_pool2d_plain_forward, each_window(call, avg_window))
GD_KERNEL_OF_REAL(avg_pool2d_plain_backward, each_window(call, avg_window))
