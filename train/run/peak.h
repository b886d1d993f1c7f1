/* peak.h - what a device could do at most. */
#ifndef GRADUS_TRAIN_PEAK_H
#define GRADUS_TRAIN_PEAK_H

#include "gradus/gradus.h"

/* Floating-point operations a second of dense matrix products, as the maker states them; 0 where
 * they are not known. `device` is what gd_context_device_name says. */
double peak_flops(const char *device, gd_dtype dtype, bool tf32);

#endif
