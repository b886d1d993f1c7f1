/* watch_registry.c - instead of kernels/registry.c: the ops and services that watch.c takes, so that
 * nothing else is linked. */
#include "core/services.h"
#include "kernel.h"

extern const gd_op gd_op_mul, gd_op_sub, gd_op_mean;
const gd_op *const gd_builtin_ops[] = {&gd_op_mul, &gd_op_sub, &gd_op_mean, NULL};
const int gd_builtin_op_count = 3;

static const gd_services cpu_services = {
    .copy = gd_copy_cpu, .accumulate = gd_accumulate_cpu, .fill = gd_fill_cpu};
const gd_services *const gd_services_of[GD_DEVICE_COUNT] = {[GD_CPU] = &cpu_services};

const gd_device_table *const gd_devices[GD_DEVICE_COUNT] = {[GD_CPU] = &gd_device_cpu};
