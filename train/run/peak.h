/* peak.h - the peak rate of a device. */
#ifndef GRADUS_TRAIN_PEAK_H
#define GRADUS_TRAIN_PEAK_H

#include "gradus/gradus.h"

/* Floating-point operations a second of dense matrix products, as the manufacturer states them; 0
 * if unknown. `device` comes from gd_context_device_name. */
double peak_flops(const char *device, gd_dtype dtype, bool tf32);

#endif
