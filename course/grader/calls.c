/* calls.c - a student's file, and the functions of it that an assignment's calls.h has in CALLS. */
#include COURSE_FILE
#include "child.h"
#include COURSE_CALLS

#define FUNCTION(name, ...)                                   \
    static void call_##name(const int64_t *n, void *const *a) \
    {                                                         \
        (void)n;                                              \
        name(__VA_ARGS__);                                    \
    }
#define ROW(name, ...) {#name, call_##name},

CALLS(FUNCTION)
const child_function child_functions[] = {CALLS(ROW){NULL, NULL}};
