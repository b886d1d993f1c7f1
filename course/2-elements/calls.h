/* calls.h - how the functions are called: sizes are in n, arrays in a, in the order of test.c. */
#define CALLS(CALL)                             \
    CALL(cube_backward, n[0], a[0], a[1], a[2]) \
    CALL(relu_backward, n[0], a[0], a[1], a[2]) \
    CALL(tanh_backward, n[0], a[0], a[1], a[2]) \
    CALL(silu_backward, n[0], a[0], a[1], a[2]) \
    CALL(divide_backward, n[0], a[0], a[1], a[2], a[3], a[4])
