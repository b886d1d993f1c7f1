/* pool_cpu.c - the CPU kernels of max_pool2d and avg_pool2d, which plain_cpu.c has as plain loops.
 *
 * A thread takes whole rows of y, of dx of the mean, and whole planes of dx of the maximum, so
 * every sum has one writer. The inner loop is over the windows of a row. */
#include "kernel_cpu.h"
#include "pool/pool.h"
#include "vector.h"

typedef struct pool_work {
    gd_pool_planes p;
    const REAL *from; /* x, or dy */
    int64_t elements; /* of it */
    REAL *to;         /* y, or dx */
    int32_t *place;   /* of the maximum in its plane */
    bool add;
    double size; /* of a window */
} pool_work;

/* ---- max_pool2d --------------------------------------------------------------------------- */

/* x[at], x[at + stride] ... of x [size]; what is outside of it counts for nothing. (Inlined, the
 * addresses of the elements would be computed for every vector.) */
static __attribute__((noinline)) vec gather(const REAL *x, int64_t size, int64_t at, int64_t stride)
{
    REAL v[LANES];
    for (int l = 0; l < LANES; l++, at += stride) v[l] = at >= 0 && at < size ? x[at] : 0;
    return vec_load(v);
}

/* The same, by vectors where that is possible. */
static inline vec strided(const REAL *x, int64_t size, int64_t at, int64_t stride)
{
    if (stride <= 2 && at >= 0 && at + LANES * stride <= size) return vec_load_step(x + at, stride);
    return gather(x, size, at, stride);
}

/* The windows of row `to_row` of y from j on: their maximum, and in *place where it is. */
static inline vec max_windows(const pool_work *w, int64_t to_row, int64_t j, lanes *place)
{
    const gd_pool_planes *p = &w->p;
    const conv_args *args = &p->args;
    const int64_t H = p->size[POOL_ROWS], W = p->size[POOL_COLS], stride = args->stride[POOL_COLS];
    const int64_t plane = to_row / p->pooled[POOL_ROWS], row = to_row % p->pooled[POOL_ROWS];
    const int64_t top = row * args->stride[POOL_ROWS] - args->padding[POOL_ROWS];
    const int64_t begin = gd_max64(top, 0), end = gd_min64(top + args->kernel[POOL_ROWS], H);
    const int64_t left = j * stride - args->padding[POOL_COLS];
    const lanes first = lane_numbers() * (lane_number)stride + (lane_number)left;
    vec best = vec_all(-(REAL)INFINITY);
    *place = (first & (first > 0)) + (lane_number)(begin * W); /* if all are -inf */
    for (int64_t a = begin; a < end; a++) {
        for (int64_t b = 0; b < args->kernel[POOL_COLS]; b++) {
            const vec value = strided(w->from, w->elements, (plane * H + a) * W + left + b, stride);
            const lanes column = first + (lane_number)b;
            const lanes larger =
                ((value > best) | (value != value)) & (column >= 0) & (column < (lane_number)W);
            best = vec_choose(larger, value, best);
            *place = ((column + (lane_number)(a * W)) & larger) | (*place & ~larger);
        }
    }
    return best;
}

static void max_rows(const void *work, int64_t to_row, int64_t end_row, void *memory)
{
    (void)memory;
    const pool_work *w = work;
    const int64_t n = w->p.pooled[POOL_COLS];
    for (; to_row < end_row; to_row++) {
        for (int64_t j = 0; j < n; j += LANES) {
            lanes place;
            const vec y = max_windows(w, to_row, j, &place);
            const int64_t at = to_row * n + j, count = gd_min64(LANES, n - j);
            lanes_store(w->to + at, &y, count, sizeof y[0]);
            int32_t places[LANES];
            for (int l = 0; l < LANES; l++) places[l] = (int32_t)place[l];
            if (w->place) lanes_store(w->place + at, places, count, sizeof *places);
        }
    }
}

/* Planes of dx. Only where windows overlap are there sums, of what arrives at a place. */
static void max_gradient_planes(const void *work, int64_t plane, int64_t end_plane, void *memory)
{
    const pool_work *w = work;
    const gd_pool_planes *p = &w->p;
    const int64_t size = p->size[POOL_ROWS] * p->size[POOL_COLS];
    const int64_t count = p->pooled[POOL_ROWS] * p->pooled[POOL_COLS];
    const bool overlap = p->args.kernel[POOL_ROWS] > p->args.stride[POOL_ROWS] ||
                         p->args.kernel[POOL_COLS] > p->args.stride[POOL_COLS];
    double *sum = memory;
    for (; plane < end_plane; plane++) {
        const REAL *dy = w->from + plane * count;
        const int32_t *place = w->place + plane * count;
        REAL *dx = w->to + plane * size;
        if (!overlap) {
            if (!w->add) memset(dx, 0, (size_t)size * sizeof *dx);
            for (int64_t j = 0; j < count; j++) dx[place[j]] += dy[j];
            continue;
        }
        for (int64_t k = 0; k < size; k++) sum[k] = w->add ? (double)dx[k] : 0;
        for (int64_t j = 0; j < count; j++) sum[place[j]] += (double)dy[j];
        for (int64_t k = 0; k < size; k++) dx[k] = (REAL)sum[k];
    }
}

/* ---- avg_pool2d --------------------------------------------------------------------------- */

static void avg_rows(const void *work, int64_t to_row, int64_t end_row, void *memory)
{
    const pool_work *w = work;
    const gd_pool_planes *p = &w->p;
    const conv_args *args = &p->args;
    const int64_t H = p->size[POOL_ROWS], W = p->size[POOL_COLS], n = p->pooled[POOL_COLS];
    const int64_t stride = args->stride[POOL_COLS], padding = args->padding[POOL_COLS];
    double *sum = memory;
    for (; to_row < end_row; to_row++) {
        const int64_t plane = to_row / p->pooled[POOL_ROWS], row = to_row % p->pooled[POOL_ROWS];
        const int64_t top = row * args->stride[POOL_ROWS] - args->padding[POOL_ROWS];
        for (int64_t j = 0; j < n; j++) sum[j] = 0;
        for (int64_t a = gd_max64(top, 0); a < gd_min64(top + args->kernel[POOL_ROWS], H); a++) {
            const REAL *x = w->from + (plane * H + a) * W - padding;
            int64_t first = gd_divide_up(padding, stride), end = n; /* windows with column b in x */
            for (int64_t b = 0; b < args->kernel[POOL_COLS]; b++) {
                first -= first > 0 && (first - 1) * stride + b >= padding;
                end -= end > 0 && (end - 1) * stride + b >= padding + W;
                for (int64_t j = first; j < end; j++) sum[j] += (double)x[j * stride + b];
            }
        }
        for (int64_t j = 0; j < n; j++) w->to[to_row * n + j] = (REAL)(sum[j] / w->size);
    }
}

static void avg_gradient_rows(const void *work, int64_t to_row, int64_t end_row, void *memory)
{
    const pool_work *w = work;
    const gd_pool_planes *p = &w->p;
    const int64_t W = p->size[POOL_COLS], n = p->pooled[POOL_COLS];
    const int64_t stride = p->args.stride[POOL_COLS], down = p->args.stride[POOL_ROWS];
    double *sum = memory; /* of a row with its padding */
    for (; to_row < end_row; to_row++) {
        const int64_t plane = to_row / p->size[POOL_ROWS];
        const int64_t h = to_row - plane * p->size[POOL_ROWS] + p->args.padding[POOL_ROWS];
        const int64_t end = gd_windows_within(p->pooled[POOL_ROWS], down, h + 1);
        int64_t i = gd_windows_within(end, down, h + 1 - p->args.kernel[POOL_ROWS]);
        for (int64_t k = 0; k < W + 2 * p->args.padding[POOL_COLS]; k++) sum[k] = 0;
        for (; i < end; i++) { /* the rows of y that have row h */
            const REAL *dy = w->from + (plane * p->pooled[POOL_ROWS] + i) * n;
            for (int64_t b = 0; b < p->args.kernel[POOL_COLS]; b++)
                for (int64_t j = 0; j < n; j++) sum[j * stride + b] += (double)dy[j];
        }
        const double *inside = sum + p->args.padding[POOL_COLS];
        REAL *dx = w->to + to_row * W;
        for (int64_t j = 0; j < W; j++) dx[j] = (REAL)((w->add ? dx[j] : 0) + inside[j] / w->size);
    }
}

/* ---- Calls -------------------------------------------------------------------------------- */

/* Calls the task for the rows or planes of `to`, y or dx. */
static gd_status pool(const gd_call *call, const gd_tensor *to, const gd_tensor *from, bool planes,
                      gd_range_task *task)
{
    const gd_tensor *x = call->input[0], *y = call->doutput ? from : to;
    const int64_t count = to ? gd_tensor_count(to) : 0;
    if (count == 0) return GD_OK;
    pool_work w = {.p = gd_pool_planes_of(call, x, y),
                   .from = gd_data(from),
                   .elements = gd_tensor_count(from),
                   .to = gd_data(to),
                   .place = call->saves ? gd_data(call->save[0]) : NULL,
                   .add = gd_adds(call, 0)};
    w.size = (double)(w.p.args.kernel[POOL_ROWS] * w.p.args.kernel[POOL_COLS]);
    const int64_t size = gd_last_dim(to) * (planes ? w.p.size[POOL_ROWS] : 1);
    const int64_t sums = size + 2 * w.p.args.padding[POOL_COLS]; /* of a row with its padding */
    return gd_each_range(call, gd_tensor_count(x), count / size, (size_t)sums * sizeof(double),
                         task, &w);
}

GD_KERNEL_OF_REAL(max_pool2d_forward, pool(call, call->output[0], call->input[0], false, max_rows))
GD_KERNEL_OF_REAL(max_pool2d_backward,
                  pool(call, call->dinput[0], call->doutput[0], true, max_gradient_planes))
GD_KERNEL_OF_REAL(avg_pool2d_forward, pool(call, call->output[0], call->input[0], false, avg_rows))
GD_KERNEL_OF_REAL(avg_pool2d_backward,
                  pool(call, call->dinput[0], call->doutput[0], false, avg_gradient_rows))
