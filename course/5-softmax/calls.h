/* calls.h - how the functions are called: sizes are in n, arrays in a, in the order of test.c. */
#define CALLS(CALL)                                                  \
    CALL(softmax_backward, n[1], n[2], a[0], a[1], a[2])             \
    CALL(cross_entropy_backward, n[1], n[2], a[0], a[1], a[2], a[3]) \
    CALL(revealing_case, n[0], a[0], a[1])
