/* vector_math.h - lets `#pragma omp simd` loops call exp and similar functions for many elements at
 * once.
 *
 * The GNU C library has vector versions of these functions (libmvec, a part of libm), exact to a
 * few units in the last place, but its headers declare them only under -ffast-math, which would
 * break NaN and infinity. So they are declared here. Elsewhere the same loops call the plain
 * functions, one element at a time.
 *
 * A vector and a plain version may differ in the last bit. Loops therefore work on pieces whose
 * ends depend only on the sizes (kernel.h), so that each element always gets the same version. */
#ifndef GRADUS_VECTOR_MATH_H
#define GRADUS_VECTOR_MATH_H

#include <math.h>

/* Since which glibc 2.* libmvec has them all, for vectors of any length that GCC may want. */
#if !defined(__GLIBC__) || !defined(__GNUC__) || defined(__clang__)
#elif defined(__x86_64__)
#define LIBMVEC_SINCE(x86, arm) __GLIBC_PREREQ(2, x86)
#elif defined(__aarch64__)
#define LIBMVEC_SINCE(x86, arm) __GLIBC_PREREQ(2, arm)
#endif

#ifdef LIBMVEC_SINCE
#if LIBMVEC_SINCE(22, 39)
#pragma omp declare simd notinbranch
float expf(float);
#pragma omp declare simd notinbranch
double exp(double);
#pragma omp declare simd notinbranch
float logf(float);
#pragma omp declare simd notinbranch
double log(double);
#pragma omp declare simd notinbranch
float sinf(float);
#pragma omp declare simd notinbranch
double sin(double);
#pragma omp declare simd notinbranch
float cosf(float);
#pragma omp declare simd notinbranch
double cos(double);
#endif
#if LIBMVEC_SINCE(22, 40)
#pragma omp declare simd notinbranch
float powf(float, float);
#pragma omp declare simd notinbranch
double pow(double, double);
#endif
#if LIBMVEC_SINCE(35, 39)
#pragma omp declare simd notinbranch
float atanf(float);
#pragma omp declare simd notinbranch
double atan(double);
#pragma omp declare simd notinbranch
float log1pf(float);
#pragma omp declare simd notinbranch
double log1p(double);
#pragma omp declare simd notinbranch
float expm1f(float);
#pragma omp declare simd notinbranch
double expm1(double);
#endif
#if LIBMVEC_SINCE(35, 40)
#pragma omp declare simd notinbranch
float tanhf(float);
#pragma omp declare simd notinbranch
double tanh(double);
#pragma omp declare simd notinbranch
float erfcf(float);
#pragma omp declare simd notinbranch
double erfc(double);
#pragma omp declare simd notinbranch
float erff(float);
#pragma omp declare simd notinbranch
double erf(double);
#endif
#undef LIBMVEC_SINCE
#endif

#endif
