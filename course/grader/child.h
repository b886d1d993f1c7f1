/* child.h - what the grader and the child's program say to each other. The child has the student's
 * functions, libc and libm, and nothing else: neither the library, nor seeds, nor points. Arrays
 * are passed in memory that both share, calls and answers through a socket. */
#ifndef COURSE_CHILD_H
#define COURSE_CHILD_H

#include <stddef.h>
#include <stdint.h>

enum {
    CHILD_NAME = 48,
    CHILD_SIZES = 40,
    CHILD_ARRAYS = 16,
    CHILD_ANSWER = 1,
    CHILD_SHARED = 1 << 26,  /* bytes, of which only what is used takes memory */
    CHILD_MEBIBYTES = 1024,  /* of memory, at most */
    CHILD_MILLISECONDS = 500 /* of processor time, for a call: less than a second */
};

/* A function of the student's: sizes are passed in n, arrays in a. */
typedef struct child_function {
    const char *name;
    void (*call)(const int64_t *n, void *const *a);
} child_function;

extern const child_function child_functions[]; /* of calls.c; the last is a row of zeros */

typedef struct child_request {
    char function[CHILD_NAME];
    int64_t n[CHILD_SIZES];
    int64_t offset[CHILD_ARRAYS]; /* of each array in the shared memory; -1: NULL */
} child_request;

#endif
