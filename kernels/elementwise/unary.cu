// unary.cu - the CUDA kernels of the functions of one variable (unary.def).
#include "elementwise/functions.h"
#include "map.cuh"

#define UNARY(name, formula, value, gradient, ...) GD_MAP_OP(name, value, gradient)
#define SCALAR UNARY
#define RANGE UNARY
#include "elementwise/unary.def"
