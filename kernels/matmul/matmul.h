/* matmul.h - the arguments of matmul. */
#ifndef GRADUS_MATMUL_H
#define GRADUS_MATMUL_H

#include <stdbool.h>

typedef struct matmul_args {
    bool transpose_a, transpose_b;
} matmul_args;

#endif
