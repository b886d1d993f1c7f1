/* all_cases.h - every case of every op of the library through gradcheck. */
#ifndef GRADUS_ALL_CASES_H
#define GRADUS_ALL_CASES_H

#include "gradus/gradus.h"

typedef struct all_cases {
    int64_t reports, troubled; /* neither passed nor empty by design */
    double largest_smooth;     /* relative error, over cases without kinks */
    char where[256];
    bool idle; /* an op has an input whose gradient is zero in all its cases */
} all_cases;

/* Prints the reports of those that do not pass. */
all_cases all_cases_check(gd_dtype dtype, uint64_t first_seed, int seeds, int threads);

#endif
