/* calls.h - how the functions are called: sizes are in n, arrays in a, in the order of test.c. */
#define CALLS(CALL)                                                  \
    CALL(product_backward, n[1], n[2], a[0], a[1], a[2], a[3], a[4]) \
    CALL(sum_backward, n[1], n[2], n[3], a[0], a[1])                 \
    CALL(gather_backward, n[3], n[2], a[0], a[1], a[2])              \
    CALL(view_backward, n, n + 2, a[0], a[1])                        \
    CALL(outer_case, n[0], a[0], (int64_t *)a[0] + 1, a[1], a[2])
