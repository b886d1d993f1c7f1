/* calls.h - how the functions are called: sizes are in n, arrays in a, in the order of test.c. */
#define HEADS(n) ((n) % 2 ? 1 : 2) /* of the block */
#define CALLS(CALL)                                                                      \
    CALL(attention_backward, n[1], n[2], n[3], a[0], a[1], a[2], a[3], a[4], a[5], a[6]) \
    CALL(block_backward, n[1], HEADS(n[2]), n[2], a[0], a[1], a[2], a[3], a[4], a[5], a[6])
