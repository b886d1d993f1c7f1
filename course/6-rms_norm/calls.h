/* calls.h - how the functions are called: sizes are in n, arrays in a, in the order of test.c. */
#include <stdlib.h>

/* Two rows at a time, the last ones first: a part each. */
static void in_parts(const int64_t *n, void *const *a)
{
    const int64_t rows = n[1], columns = n[2], parts = (rows + 1) / 2;
    const real *x = a[0], *dy = a[2];
    real *dx = a[3], *part = calloc((size_t)(parts * columns + 1), sizeof(real));
    if (!part) abort();
    for (int64_t p = parts - 1; p >= 0; p--) {
        const int64_t at = 2 * p * columns, count = rows - 2 * p < 2 ? rows - 2 * p : 2;
        rms_norm_backward(count, columns, (real)1e-5, x + at, a[1], dy + at, dx + at,
                          part + p * columns);
    }
    add_parts(parts, columns, part, a[4]);
    free(part);
}

/* What the grader means by the name; and where dw is the only part. */
#define rms_norm_backward in_parts
#define CALLS(CALL)               \
    CALL(rms_norm_backward, n, a) \
    CALL(add_rms_norm_backward, n[1], n[2], (real)1e-5, a[1], a[0], a[2], a[3], a[4], a[5], a[6])
