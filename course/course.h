/* course.h - all that a student's file may include besides headers of C: `real`, and whole numbers
 * of known sizes. The file is compiled twice, with real as double and as float. */
#ifndef COURSE_H
#define COURSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef COURSE_FLOAT
typedef float real;
#else
typedef double real;
#endif

#endif
