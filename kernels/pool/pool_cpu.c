/* pool_cpu.c - the CPU kernels of max_pool2d and avg_pool2d, which plain_cpu.c has as plain loops.
 *
 * A thread takes whole rows of y, of dx of the mean, and whole planes of dx of the maximum, so every
 * sum has one writer. For a row it goes through the rows of the other side that its windows meet, then
 * through the columns of the kernel: the inner loop is over windows. */
#include "loops.h"
#include "pool/pool.h"
#include "vector.h"

/* The windows along an axis whose element `a` is in x: first to end - 1. */
typedef struct span {
    int64_t first, end;
} span;

/* Computes a part of `to`, a row or a plane, with memory for its sums. */
typedef struct pool_work pool_work;
typedef void part_function(const pool_work *w, int64_t part, double *sum);
struct pool_work {
    part_function *function;
    gd_pool_planes p;
    const REAL *from; /* x, or dy */
    int64_t elements; /* of it */
    REAL *to;         /* y, or dx */
    int32_t *place;   /* of the maximum in its plane */
    bool add;
    const span *across; /* windows_at each column of the kernel */
};

static span windows_at(const gd_pool_planes *p, int axis, int64_t a)
{
    const int64_t stride = p->args.stride[axis], skip = p->args.padding[axis] - a;
    const int64_t first = skip > 0 ? gd_divide_up(skip, stride) : 0;
    const int64_t last = p->size[axis] - 1 + skip; /* times the stride */
    return (span){first, last < 0 ? 0 : gd_min64(p->pooled[axis], last / stride + 1)};
}

/* The windows along an axis that contain place i. */
static span windows_over(const gd_pool_planes *p, int axis, int64_t i)
{
    const int64_t stride = p->args.stride[axis], at = i + p->args.padding[axis];
    const int64_t before = at - p->args.kernel[axis] + 1;
    return (span){before > 0 ? gd_divide_up(before, stride) : 0,
                  gd_min64(p->pooled[axis], at / stride + 1)};
}

static bool windows_overlap(const gd_pool_planes *p)
{
    return p->args.kernel[POOL_ROWS] > p->args.stride[POOL_ROWS] ||
           p->args.kernel[POOL_COLS] > p->args.stride[POOL_COLS];
}

/* ---- max_pool2d --------------------------------------------------------------------------- */

/* x[at], x[at + stride] ... of x [size]; what is outside of it counts for nothing. (Inlined, the
 * addresses of the elements would be computed for every vector.) */
static __attribute__((noinline)) void gather(REAL v[LANES], const REAL *x, int64_t size, int64_t at,
                                             int64_t stride)
{
    for (int l = 0; l < LANES; l++, at += stride) v[l] = at >= 0 && at < size ? x[at] : 0;
}

/* The same, in a vector. */
static inline vec strided(const REAL *x, int64_t size, int64_t at, int64_t stride)
{
    if (at >= 0 && at + LANES * stride <= size) {
        if (stride == 1) return vec_load(x + at);
        if (stride == 2) return vec_even(vec_load(x + at), vec_load(x + at + LANES));
    }
    REAL v[LANES];
    gather(v, x, size, at, stride);
    return vec_load(v);
}

/* The windows j0 to j0 + LANES - 1 of a row: their maximum, and in place[] where it is. */
static inline vec max_windows(const pool_work *w, int64_t plane, int64_t top, int64_t j0,
                              lanes *place)
{
    const gd_pool_planes *p = &w->p;
    const int64_t H = p->size[POOL_ROWS], W = p->size[POOL_COLS];
    const int64_t stride = p->args.stride[POOL_COLS];
    const int64_t begin = gd_max64(top, 0), end = gd_min64(top + p->args.kernel[POOL_ROWS], H);
    const lanes lane = lane_numbers(), step = lane * (lane_number)stride;
    const int64_t left = j0 * stride - p->args.padding[POOL_COLS];
    const lanes first = step + (lane_number)left; /* the place, if all are -inf */
    vec best = vec_all(-(REAL)INFINITY);
    *place = (first & (first > 0)) + (lane_number)(begin * W);
    for (int64_t a = begin; a < end; a++) {
        for (int64_t b = 0; b < p->args.kernel[POOL_COLS]; b++) {
            const span in = w->across[b];
            const int64_t at = a * W + left + b;
            const vec value = strided(w->from, w->elements, plane * H * W + at, stride);
            const lanes inside = (lane >= (lane_number)gd_max64(in.first - j0, 0)) &
                                 (lane < (lane_number)gd_min64(in.end - j0, LANES));
            const lanes larger = ((value > best) | (value != value)) & inside;
            best = vec_choose(larger, value, best);
            *place = ((step + (lane_number)at) & larger) | (*place & ~larger);
        }
    }
    return best;
}

static void max_row(const pool_work *w, int64_t to_row, double *sum)
{
    (void)sum;
    const gd_pool_planes *p = &w->p;
    const int64_t n = p->pooled[POOL_COLS], plane = to_row / p->pooled[POOL_ROWS];
    const int64_t row = to_row - plane * p->pooled[POOL_ROWS];
    const int64_t top = row * p->args.stride[POOL_ROWS] - p->args.padding[POOL_ROWS];
    for (int64_t j0 = 0; j0 < n; j0 += LANES) {
        lanes place;
        const vec y = max_windows(w, plane, top, j0, &place);
        const int64_t at = to_row * n + j0, count = gd_min64(LANES, n - j0);
        lanes_store(w->to + at, &y, count, sizeof y[0]);
        int32_t places[LANES];
        for (int l = 0; l < LANES; l++) places[l] = (int32_t)place[l];
        if (w->place) lanes_store(w->place + at, places, count, sizeof *places);
    }
}

/* A plane of dx. Only where windows overlap are there sums, of what arrives at a place. */
static void max_gradient_plane(const pool_work *w, int64_t plane, double *sum)
{
    const gd_pool_planes *p = &w->p;
    const int64_t size = p->size[POOL_ROWS] * p->size[POOL_COLS];
    const int64_t count = p->pooled[POOL_ROWS] * p->pooled[POOL_COLS];
    const REAL *dy = w->from + plane * count;
    const int32_t *place = w->place + plane * count;
    REAL *dx = w->to + plane * size;
    if (!windows_overlap(p)) {
        if (!w->add) memset(dx, 0, (size_t)size * sizeof *dx);
        for (int64_t j = 0; j < count; j++) dx[place[j]] += dy[j];
        return;
    }
    for (int64_t k = 0; k < size; k++) sum[k] = w->add ? (double)dx[k] : 0;
    for (int64_t j = 0; j < count; j++) sum[place[j]] += (double)dy[j];
    for (int64_t k = 0; k < size; k++) dx[k] = (REAL)sum[k];
}

/* ---- avg_pool2d --------------------------------------------------------------------------- */

static double window_size(const gd_pool_planes *p)
{
    return (double)(p->args.kernel[POOL_ROWS] * p->args.kernel[POOL_COLS]);
}

static void avg_row(const pool_work *w, int64_t to_row, double *sum)
{
    const gd_pool_planes *p = &w->p;
    const int64_t H = p->size[POOL_ROWS], W = p->size[POOL_COLS], n = p->pooled[POOL_COLS];
    const int64_t row = to_row % p->pooled[POOL_ROWS], stride = p->args.stride[POOL_COLS];
    const int64_t top = row * p->args.stride[POOL_ROWS] - p->args.padding[POOL_ROWS];
    const REAL *x = w->from + to_row / p->pooled[POOL_ROWS] * H * W;
    for (int64_t j = 0; j < n; j++) sum[j] = 0;
    for (int64_t a = gd_max64(top, 0); a < gd_min64(top + p->args.kernel[POOL_ROWS], H); a++) {
        for (int64_t b = 0; b < p->args.kernel[POOL_COLS]; b++) {
            const span in = w->across[b];
            const REAL *from = x + a * W + b - p->args.padding[POOL_COLS];
            for (int64_t j = in.first; j < in.end; j++) sum[j] += (double)from[j * stride];
        }
    }
    const double size = window_size(p);
    for (int64_t j = 0; j < n; j++) w->to[to_row * n + j] = (REAL)(sum[j] / size);
}

static void avg_gradient_row(const pool_work *w, int64_t to_row, double *sum)
{
    const gd_pool_planes *p = &w->p;
    const int64_t W = p->size[POOL_COLS], n = p->pooled[POOL_COLS];
    const int64_t stride = p->args.stride[POOL_COLS];
    const int64_t plane = to_row / p->size[POOL_ROWS], row = to_row % p->size[POOL_ROWS];
    const span over = windows_over(p, POOL_ROWS, row);
    for (int64_t j = 0; j < W; j++) sum[j] = 0;
    for (int64_t i = over.first; i < over.end; i++) {
        const REAL *dy = w->from + (plane * p->pooled[POOL_ROWS] + i) * n;
        for (int64_t b = 0; b < p->args.kernel[POOL_COLS]; b++) {
            const span in = w->across[b];
            const int64_t left = b - p->args.padding[POOL_COLS];
            for (int64_t j = in.first; j < in.end; j++) sum[j * stride + left] += (double)dy[j];
        }
    }
    const double size = window_size(p);
    REAL *dx = w->to + to_row * W;
    for (int64_t j = 0; j < W; j++) dx[j] = (REAL)((w->add ? dx[j] : 0) + sum[j] / size);
}

/* ---- Calls -------------------------------------------------------------------------------- */

static void run_range(const void *work, int64_t part, int64_t end, void *memory)
{
    const pool_work *w = work;
    for (; part < end; part++) w->function(w, part, memory);
}

/* Calls the function for each part of `to`, of `size` elements. */
static gd_status by_parts(const gd_call *call, pool_work *w, const gd_tensor *to, int64_t size,
                          part_function *function)
{
    const int64_t count = gd_tensor_count(to);
    if (count == 0) return GD_OK;
    const int64_t columns = w->p.args.kernel[POOL_COLS];
    span *across = gd_call_scratch(call, (size_t)columns * sizeof *across);
    if (!across) return gd_error_status(call->context);
    for (int64_t b = 0; b < columns; b++) across[b] = windows_at(&w->p, POOL_COLS, b);
    w->across = across;
    w->to = gd_data(to);
    if (call->saves) w->place = gd_data(call->save[0]);
    w->function = function;
    return gd_each_range(call, gd_tensor_count(call->input[0]), count / size,
                         (size_t)size * sizeof(double), run_range, w);
}

static gd_status pool_forward(const gd_call *call, part_function *function)
{
    const gd_tensor *x = call->input[0], *y = call->output[0];
    pool_work w = {
        .p = gd_pool_planes_of(call, x, y), .from = gd_data(x), .elements = gd_tensor_count(x)};
    return by_parts(call, &w, y, w.p.pooled[POOL_COLS], function);
}

static gd_status pool_backward(const gd_call *call, bool planes, part_function *function)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx) return GD_OK;
    pool_work w = {
        .p = gd_pool_planes_of(call, dx, dy), .from = gd_data(dy), .elements = gd_tensor_count(dy)};
    w.add = call->accumulate[0];
    return by_parts(call, &w, dx, w.p.size[POOL_COLS] * (planes ? w.p.size[POOL_ROWS] : 1),
                    function);
}

GD_KERNEL_OF_REAL(max_pool2d_forward, pool_forward(call, max_row))
GD_KERNEL_OF_REAL(max_pool2d_backward, pool_backward(call, true, max_gradient_plane))
GD_KERNEL_OF_REAL(avg_pool2d_forward, pool_forward(call, avg_row))
GD_KERNEL_OF_REAL(avg_pool2d_backward, pool_backward(call, false, avg_gradient_row))
