/* print.h - what the modules of the study print: JSON, one value a call. */
#ifndef GRADUS_STUDY_PRINT_H
#define GRADUS_STUDY_PRINT_H

#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(#name), visibility("default")))

/* A number; those that JSON lacks as the strings "nan", "inf", "-inf". */
void print_number(double v);
void print_numbers(const double *v, int64_t count);
void print_text(const char *text);
void print_shape(int ndim, const int64_t *shape);

/* The text that the page has put in: the name of an op. */
char *study_text(void);

#endif
