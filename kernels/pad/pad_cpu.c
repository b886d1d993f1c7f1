/* pad_cpu.c - the CPU kernels of pad. A thread takes whole rows of the result, so that every sum has
 * one writer. */
#include "kernel.h"
#include "pad/pad.h"

typedef struct pad_work {
    gd_pad_planes p;
    const REAL *from; /* x, or dy */
    REAL *to;         /* y, or dx */
    bool add;
} pad_work;

static void pad_row(const void *work, int64_t to_row)
{
    const pad_work *w = work;
    const gd_pad_axis *rows = &w->p.axis[PAD_ROWS], *cols = &w->p.axis[PAD_COLS];
    const int64_t H = gd_pad_size(rows), W = gd_pad_size(cols);
    const int64_t row = gd_pad_source(rows, to_row % H);
    const REAL *x = row < 0 ? NULL : w->from + (to_row / H * rows->n + row) * cols->n;
    REAL *y = w->to + to_row * W;
    for (int64_t j = 0; j < W; j++) {
        const int64_t col = row < 0 ? -1 : gd_pad_source(cols, j);
        y[j] = col < 0 ? (REAL)w->p.value : x[col];
    }
}

static void gradient_row(const void *work, int64_t to_row)
{
    const pad_work *w = work;
    const gd_pad_axis *rows = &w->p.axis[PAD_ROWS], *cols = &w->p.axis[PAD_COLS];
    const int64_t W = gd_pad_size(cols), plane = to_row / rows->n;
    gd_pad_range over[PAD_RANGES], across[PAD_RANGES];
    gd_pad_images(rows, to_row % rows->n, over);
    REAL *dx = w->to + to_row * cols->n;
    for (int64_t k = 0; k < cols->n; k++) {
        double sum = w->add ? (double)dx[k] : 0;
        gd_pad_images(cols, k, across);
        for (int a = 0; a < PAD_RANGES; a++) {
            for (int64_t i = over[a].first; i < over[a].end; i++) {
                const REAL *dy = w->from + (plane * gd_pad_size(rows) + i) * W;
                for (int b = 0; b < PAD_RANGES; b++)
                    for (int64_t j = across[b].first; j < across[b].end; j++)
                        sum += (double)dy[j]; /* [pad] */
            }
        }
        dx[k] = (REAL)sum;
    }
}

static gd_status by_rows(const gd_call *call, const gd_tensor *to, const gd_tensor *from, bool add,
                         gd_task *task)
{
    const pad_work w = {gd_pad_planes_of(call, call->input[0]), gd_data(from), gd_data(to), add};
    const int64_t count = gd_tensor_count(to);
    if (count == 0) return GD_OK;
    gd_for_each(gd_threads_for(call->threads, count), count / gd_last_dim(to), task, &w);
    return GD_OK;
}

gd_status GD_REAL_NAME(pad_forward)(const gd_call *call)
{
    return by_rows(call, call->output[0], call->input[0], false, pad_row);
}

gd_status GD_REAL_NAME(pad_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return by_rows(call, call->dinput[0], call->doutput[0], call->accumulate[0], gradient_row);
}
