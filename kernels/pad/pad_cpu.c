/* pad_cpu.c - the CPU kernels of pad. A thread takes whole rows of the result, so that every sum
 * has one writer. */
#include "kernel_cpu.h"
#include "pad/pad.h"

typedef struct pad_work {
    gd_pad_planes p;
    const REAL *from; /* x, or dy */
    REAL *to;         /* y, or dx */
    bool add;
} pad_work;

/* y[j] to y[end - 1] of a row, beyond the edges of x [cols.n]; NULL: of a row beyond them */
static void fill(const pad_work *w, const REAL *x, REAL *y, int64_t j, int64_t end)
{
    for (; j < end; j++) {
        const int64_t col = x ? gd_pad_source(&w->p.axis[PAD_COLS], j) : -1;
        y[j] = col < 0 ? (REAL)w->p.value : x[col];
    }
}

static void pad_row(const void *work, int64_t to_row)
{
    const pad_work *w = work;
    const gd_pad_axis *rows = &w->p.axis[PAD_ROWS], *cols = &w->p.axis[PAD_COLS];
    const int64_t H = gd_pad_size(rows), W = gd_pad_size(cols);
    const int64_t row = gd_pad_source(rows, to_row % H);
    const REAL *x = row < 0 ? NULL : w->from + (to_row / H * rows->n + row) * cols->n;
    REAL *y = w->to + to_row * W;
    if (x) memcpy(y + cols->before, x, (size_t)cols->n * sizeof *y);
    fill(w, x, y, 0, x ? cols->before : W);
    fill(w, x, y, x ? cols->before + cols->n : W, W);
}

/* Columns taken at once. */
enum { STRIP = 512 };

/* sum [n] += what dy, a row of y, has of the columns of x from `first` on. */
static void add_row(double *sum, const REAL *dy, const gd_pad_axis *cols, int64_t first, int64_t n)
{
    const REAL *middle = dy + cols->before + first;
    const int64_t edge = gd_max64(cols->before + 1, cols->n - 1 - cols->after) - first;
    for (int64_t k = 0; k < n; k++) sum[k] += (double)middle[k]; /* the one place of most */
    if (cols->mode == GD_PAD_CONSTANT) return;
    for (int64_t k = 0; k < n; k++) { /* columns near an edge are shown beyond it too */
        if (first + k > cols->before && k < edge) k = edge;
        if (k >= n) break;
        gd_pad_range across[PAD_RANGES];
        gd_pad_images(cols, first + k, across);
        for (int b = 1; b < PAD_RANGES; b++)
            for (int64_t j = across[b].first; j < across[b].end; j++)
                sum[k] += (double)dy[j]; /* [pad] */
    }
}

static void gradient_row(const void *work, int64_t to_row)
{
    const pad_work *w = work;
    const gd_pad_axis *rows = &w->p.axis[PAD_ROWS], *cols = &w->p.axis[PAD_COLS];
    const REAL *plane = w->from + to_row / rows->n * gd_pad_size(rows) * gd_pad_size(cols);
    gd_pad_range over[PAD_RANGES];
    gd_pad_images(rows, to_row % rows->n, over);
    double sum[STRIP];
    for (int64_t first = 0; first < cols->n; first += STRIP) {
        const int64_t n = gd_min64(STRIP, cols->n - first);
        REAL *dx = w->to + to_row * cols->n + first;
        for (int64_t k = 0; k < n; k++) sum[k] = w->add ? (double)dx[k] : 0;
        for (int a = 0; a < PAD_RANGES; a++)
            for (int64_t i = over[a].first; i < over[a].end; i++)
                add_row(sum, plane + i * gd_pad_size(cols), cols, first, n);
        for (int64_t k = 0; k < n; k++) dx[k] = (REAL)sum[k];
    }
}

static gd_status by_rows(const gd_call *call, const gd_tensor *to, const gd_tensor *from, bool add,
                         gd_task *task)
{
    const pad_work w = {gd_pad_planes_of(call, call->input[0]), gd_data(from), gd_data(to), add};
    const int64_t count = to ? gd_tensor_count(to) : 0;
    return gd_each_piece(call, count, count > 0 ? count / gd_last_dim(to) : 0, task, &w);
}

GD_KERNEL_OF_REAL(pad_forward, by_rows(call, call->output[0], call->input[0], false, pad_row))
GD_KERNEL_OF_REAL(pad_backward,
                  by_rows(call, call->dinput[0], call->doutput[0], gd_adds(call, 0), gradient_row))
