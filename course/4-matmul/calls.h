/* calls.h - how the functions are called: sizes are in n, arrays in a, in the order of test.c. */
#define CALLS(CALL)                                                       \
    CALL(matmul_backward, n[1], n[2], n[4], a[0], a[1], a[2], a[3], a[4]) \
    CALL(linear_backward, n[1], n[2], n[3], a[0], a[1], a[2], a[3], a[4], a[5])
