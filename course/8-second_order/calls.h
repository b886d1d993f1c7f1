/* calls.h - how the functions are called: sizes are in n, arrays in a, in the order of test.c. */
#define CALLS(CALL)                                          \
    CALL(slope_backward, n[0], a[0], a[1], a[2], a[3], a[4]) \
    CALL(network_backward, n[1], n[2], a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9])
