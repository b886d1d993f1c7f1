/* axis_cpu.c - the CPU kernels of the ops along one axis: gather, scatter_add, cumsum, topk, sort.
 *
 * A line is the elements of a tensor along the axis, with all other indices fixed: lines are
 * independent. So a thread takes whole lines, in order, and every sum has one writer. gather and
 * scatter_add process several lines together; if lines are adjacent in memory (first axis), the
 * loop runs over rows. */
#include "axis/axis.h"
#include "loops.h"

gd_status GD_REAL_NAME(same_order_backward)(const gd_call *call); /* kernels/shape: dx = dy */

/* The lines of several tensors: the walk says where they begin. */
typedef struct lines lines;
typedef void line_function(const lines *l, const int64_t *offset, int64_t count, void *memory);
struct lines {
    line_function *function; /* of `count` lines, the first at an offset of each operand */
    bool add;                /* to what is there */
    bool reversed;           /* cumsum: from the end; topk, sort: the smallest first */
    gd_walk walk;
    void *data[GD_WALK_OPERANDS];
    int64_t n[GD_WALK_OPERANDS], step[GD_WALK_OPERANDS]; /* of a line of each operand */
    int64_t beside[GD_WALK_OPERANDS];                    /* from a line to the next */
    int64_t most, side; /* lines of a call; of the walk's last dimension */
    bool rows;          /* lines are closer to each other than their elements: row by row */
};

static void run_range(const void *work, int64_t i, int64_t end, void *memory)
{
    const lines *l = work;
    gd_walk walk = l->walk;
    gd_walk_seek(&walk, i);
    for (int64_t count = 1; i < end; i += count) {
        if (l->most > 1) {
            gd_walk_seek(&walk, i);
            count = gd_min64(gd_min64(l->most, end - i), l->side - i % l->side);
        }
        l->function(l, walk.offset, count, memory);
        if (l->most == 1) gd_walk_next(&walk);
    }
}

enum { TO, FROM, INDEX };

/* Calls l's function for as many lines as `like` has, with `bytes` bytes of memory for each line of
 * a call. Operands may be larger: their first lines are taken. One with a single line has it for
 * all. Without an index, which may be NULL, a call has one line. */
static gd_status run_lines(const gd_call *call, lines *l, const gd_tensor *like,
                           const gd_tensor *to, const gd_tensor *from, const gd_tensor *index,
                           size_t bytes)
{
    const int axis = ((const gd_axis_args *)call->args)->axis;
    const gd_tensor *const operands[] = {to, from, index};
    int64_t work = 0;
    l->walk = gd_walk_like(like);
    l->walk.shape[axis] = 1;
    const int64_t count = gd_walk_count(&l->walk);
    for (int k = 0; k < 3 && operands[k]; k++) {
        l->data[k] = gd_data(operands[k]);
        l->n[k] = gd_tensor_shape(operands[k])[axis];
        l->step[k] = gd_tensor_strides(operands[k])[axis];
        gd_walk_add_tensor(&l->walk, operands[k]);
        work += count * l->n[k];
    }
    gd_walk_merge(&l->walk);
    gd_walk last = l->walk;
    l->side = gd_walk_take_last(&last, l->beside);
    l->rows = l->beside[TO] <= l->step[TO];
    /* Rows of sums are read in order; several lines of sums are to fit into the first cache. */
    const int64_t memory = l->rows ? 8 << 20 : 8 << 10, fit = memory / gd_max64((int64_t)bytes, 1);
    l->most = index ? gd_max64(gd_min64(fit, l->side), 1) : 1;
    return gd_each_range(call, work, count, bytes * (size_t)l->most, run_range, l);
}

/* ---- gather and scatter_add --------------------------------------------------------------- */

/* An index outside x is an error before anything is computed. The index is packed
 * (gd_op.strided). */
static gd_status check_indices(const gd_call *call)
{
    const gd_tensor *index = call->input[1];
    const int axis = ((const gd_axis_args *)call->args)->axis;
    const int64_t n = gd_tensor_dim(call->input[0], axis), count = gd_tensor_count(index);
    const int32_t *at = gd_data(index);
    int outside = 0;
    for (int64_t i = 0; i < count; i++) outside |= at[i] < 0 || at[i] >= n;
    for (int64_t i = 0; outside; i++) {
        if (at[i] >= 0 && at[i] < n) continue;
        return gd_refuse(call,
                         "element %lld of index %s is %d, wanted 0 to %lld, along axis %d of x %s",
                         (long long)i, gd_shape_text(index).text, (int)at[i], (long long)n - 1,
                         axis, gd_shape_text(call->input[0]).text);
    }
    return GD_OK;
}

/* to[i] (+)= from[index[i]], line by line or row by row */
static void take_lines(const lines *l, const int64_t *offset, int64_t count, void *memory)
{
    (void)memory;
    REAL *to = (REAL *)l->data[TO] + offset[TO];
    const REAL *from = (const REAL *)l->data[FROM] + offset[FROM];
    const int32_t *index = (const int32_t *)l->data[INDEX] + offset[INDEX];
    const int64_t *outer = l->rows ? l->step : l->beside, *inner = l->rows ? l->beside : l->step;
    const int64_t across = l->rows ? l->beside[FROM] : 0, down = l->beside[FROM] - across;
    const int64_t m = l->n[INDEX], rows = l->rows ? m : count, cols = l->rows ? count : m;
    const int64_t next = inner[TO], next_index = inner[INDEX], step = l->step[FROM];
    const bool same = across == 1 && next == 1 && next_index == 0, add = l->add;
    for (int64_t a = 0; a < rows; a++, to += outer[TO], index += outer[INDEX], from += down) {
        if (same) gd_put(to, from + *index * step, cols, add);
        for (int64_t b = 0; !same && b < cols; b++) {
            const REAL value = from[index[b * next_index] * step + b * across];
            to[b * next] = add ? to[b * next] + value : value;
        }
    }
}

/* to[index[i]] += from[i], in the order of i and in double. */
static void put_line(const lines *l, REAL *to, const REAL *from, const int32_t *index, double *sum)
{
    const int64_t n = l->n[TO], m = l->n[INDEX], *step = l->step;
    if (m == 1) {
        to[*index * step[TO]] += *from;
        return;
    }
    for (int64_t i = 0; i < n; i++) sum[i] = (double)to[i * step[TO]];
    for (int64_t i = 0; i < m; i++) sum[index[i * step[INDEX]]] += (double)from[i * step[FROM]];
    for (int64_t i = 0; i < n; i++) to[i * step[TO]] = (REAL)sum[i];
}

/* The same for `count` lines, row by row: sum [n, count]. */
static void put_rows(const lines *l, REAL *to, const REAL *from, const int32_t *index,
                     int64_t count, double *sum)
{
    const int64_t n = l->n[TO], m = l->n[INDEX], *step = l->step, *beside = l->beside;
    const bool shared = beside[INDEX] == 0 && beside[FROM] == 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < count; c++)
            sum[i * count + c] = (double)to[i * step[TO] + c * beside[TO]];
    for (int64_t i = 0; i < m; i++, index += step[INDEX], from += step[FROM]) {
        if (shared) GD_EACH(c, count) sum[*index * count + c] += (double)from[c];
        for (int64_t c = 0; !shared && c < count; c++)
            sum[index[c * beside[INDEX]] * count + c] += (double)from[c * beside[FROM]];
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < count; c++)
            to[i * step[TO] + c * beside[TO]] = (REAL)sum[i * count + c];
}

static void put_lines(const lines *l, const int64_t *offset, int64_t count, void *memory)
{
    const int64_t *beside = l->beside;
    REAL *to = (REAL *)l->data[TO] + offset[TO];
    const REAL *from = (const REAL *)l->data[FROM] + offset[FROM];
    const int32_t *index = (const int32_t *)l->data[INDEX] + offset[INDEX];
    if (l->rows && l->n[INDEX] > 1) {
        put_rows(l, to, from, index, count, memory);
        return;
    }
    for (int64_t c = 0; c < count; c++, to += beside[TO], from += beside[FROM])
        put_line(l, to, from, index + c * beside[INDEX], memory);
}

/* The sums of put_lines for each line of `like`, by index (input 1). */
static gd_status put(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                     const gd_tensor *from)
{
    const int64_t n = gd_tensor_shape(to)[((const gd_axis_args *)call->args)->axis];
    return run_lines(call, &(lines){.function = put_lines}, like, to, from, call->input[1],
                     (size_t)n * sizeof(double));
}

gd_status GD_REAL_NAME(gather_forward)(const gd_call *call)
{
    if (check_indices(call)) return GD_ERROR_ARGUMENT;
    return run_lines(call, &(lines){.function = take_lines}, call->output[0], call->output[0],
                     call->input[0], call->input[1], 0);
}

gd_status GD_REAL_NAME(gather_backward)(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    gd_dx_sum(call, 0);
    return put(call, call->doutput[0], dx, call->doutput[0]);
}

gd_status GD_REAL_NAME(scatter_add_forward)(const gd_call *call)
{
    const gd_tensor *y = call->output[0];
    if (check_indices(call)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_count(y) == 0) return GD_OK;
    gd_copy_cpu(gd_layout_of(y), gd_layout_of(call->input[0]), call->context);
    return put(call, call->input[1], y, call->input[2]);
}

/* dx = dy; dsrc is gathered from it, with zeros where src has no index. */
gd_status GD_REAL_NAME(scatter_add_backward)(const gd_call *call)
{
    const gd_tensor *dsrc = call->dinput[2];
    if (dsrc && gd_tensor_count(dsrc) > 0) {
        gd_dx_sum(call, 2);
        gd_status status = run_lines(call, &(lines){.function = take_lines, .add = true},
                                     call->input[1], dsrc, call->doutput[0], call->input[1], 0);
        if (status) return status;
    }
    return call->dinput[0] ? GD_REAL_NAME(same_order_backward)(call) : GD_OK;
}

/* ---- cumsum ------------------------------------------------------------------------------- */

/* to[i] (+)= the sum of from[0 .. i], or of from[i .. n - 1] where reversed. */
static void sum_line(const lines *l, const int64_t *offset, int64_t count, void *memory)
{
    (void)count, (void)memory;
    REAL *to = (REAL *)l->data[TO] + offset[TO];
    const REAL *from = (const REAL *)l->data[FROM] + offset[FROM];
    double sum = 0;
    for (int64_t i = 0; i < l->n[TO]; i++) {
        const int64_t at = l->reversed ? l->n[TO] - 1 - i : i;
        REAL *sum_so_far = to + at * l->step[TO];
        sum += (double)from[at * l->step[FROM]]; /* [cumsum] */
        *sum_so_far = (REAL)((l->add ? (double)*sum_so_far : 0) + sum);
    }
}

GD_KERNEL_OF_REAL(cumsum_forward, run_lines(call, &(lines){.function = sum_line}, call->output[0],
                                            call->output[0], call->input[0], NULL, 0))

gd_status GD_REAL_NAME(cumsum_backward)(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0];
    lines l = {.function = sum_line, .add = call->accumulate[0]};
    l.reversed = true;
    return dx ? run_lines(call, &l, dx, dx, call->doutput[0], NULL, 0) : GD_OK;
}

/* ---- topk --------------------------------------------------------------------------------- */

/* Whether element a comes before b: the larger one (or the smaller), a NaN counting as larger than
 * any number; of equal ones the one with the lower index. */
static bool before(const lines *l, const REAL *x, int32_t a, int32_t b)
{
    const REAL p = x[a * l->step[FROM]], q = x[b * l->step[FROM]];
    if (p > q || (isnan(p) && !isnan(q))) return !l->reversed;
    if (p < q || (isnan(q) && !isnan(p))) return l->reversed;
    return a < b;
}

/* Moves the element at `at` down in a heap of `size`, with the last in the order at its top. */
static void sink(const lines *l, const REAL *x, int32_t *heap, int64_t size, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && before(l, x, heap[child], heap[child + 1])) child++;
        if (before(l, x, heap[child], heap[at])) return;
        const int32_t moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

/* Keeps the first k in a heap, then removes the last of them repeatedly. */
static void topk_line(const lines *l, const int64_t *offset, int64_t count, void *memory)
{
    (void)count;
    int32_t *heap = memory, *to = (int32_t *)l->data[TO] + offset[TO];
    const REAL *x = (const REAL *)l->data[FROM] + offset[FROM];
    const int64_t k = l->n[TO];
    for (int64_t i = 0; i < k; i++) heap[i] = (int32_t)i;
    for (int64_t i = k / 2; i > 0; i--) sink(l, x, heap, k, i - 1);
    for (int32_t i = (int32_t)k; k > 0 && i < l->n[FROM]; i++) {
        if (!before(l, x, i, heap[0])) continue;
        heap[0] = i;
        sink(l, x, heap, k, 0);
    }
    for (int64_t size = k; size > 0; size--) {
        to[(size - 1) * l->step[TO]] = heap[0];
        heap[0] = heap[size - 1];
        sink(l, x, heap, size - 1, 0);
    }
}

/* The indices of x in an order of its lines, with memory for `arrays` arrays of k. */
static gd_status order(const gd_call *call, line_function *function, size_t arrays)
{
    const gd_axis_args *args = call->args;
    const gd_tensor *index = call->output[0];
    lines l = {.function = function, .reversed = args->smallest};
    return run_lines(call, &l, index, index, call->input[0], NULL,
                     (size_t)args->k * arrays * sizeof(int32_t));
}

GD_KERNEL_OF_REAL(topk_forward, order(call, topk_line, 1))

/* ---- sort --------------------------------------------------------------------------------- */

/* Merges the runs a [from, middle) and [middle, end) into b. */
static void merge(const lines *l, const REAL *x, int32_t *b, const int32_t *a, int64_t from,
                  int64_t middle, int64_t end)
{
    int64_t left = from, right = middle;
    for (int64_t i = from; i < end; i++) {
        const bool first = right == end || (left < middle && before(l, x, a[left], a[right]));
        b[i] = a[first ? left++ : right++];
    }
}

/* Runs of 1, 2, 4, ... elements are merged. The order is total, so that any sort would do; this
 * one's time does not depend on the numbers. */
static void sort_line(const lines *l, const int64_t *offset, int64_t count, void *memory)
{
    (void)count;
    const int64_t n = l->n[FROM];
    int32_t *a = memory, *b = a + n, *to = (int32_t *)l->data[TO] + offset[TO];
    const REAL *x = (const REAL *)l->data[FROM] + offset[FROM];
    for (int64_t i = 0; i < n; i++) a[i] = (int32_t)i;
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run)
            merge(l, x, b, a, i, gd_min64(i + run, n), gd_min64(i + 2 * run, n));
        int32_t *const sorted = b;
        b = a;
        a = sorted;
    }
    for (int64_t i = 0; i < n; i++) to[i * l->step[TO]] = a[i];
}

GD_KERNEL_OF_REAL(sort_forward, order(call, sort_line, 2))

/* ---- one_hot ------------------------------------------------------------------------------ */

gd_status GD_REAL_NAME(one_hot_forward)(const gd_call *call)
{
    const gd_tensor *ids = call->input[0], *y = call->output[0];
    const int32_t *id = gd_data(ids);
    const int64_t n = gd_tensor_count(ids), V = gd_tensor_dim(y, -1);
    for (int64_t i = 0; i < n; i++) {
        if (id[i] >= 0 && id[i] < V) continue;
        return gd_refuse(call, "ids[%lld] is %d, wanted 0 to %lld", (long long)i, (int)id[i],
                         (long long)V - 1);
    }
    gd_fill_cpu(gd_data(y), gd_tensor_dtype(y), 0, n * V, call->context);
    const bool whole = gd_tensor_dtype(y) == GD_INT32;
    REAL *real = gd_data(y);
    int32_t *number = gd_data(y);
    for (int64_t i = 0; i < n; i++) {
        if (whole)
            number[i * V + id[i]] = 1;
        else
            real[i * V + id[i]] = 1;
    }
    return GD_OK;
}
