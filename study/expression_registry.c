/* expression_registry.c - instead of kernels/registry.c: the ops and services that expression.c
 * takes, so that nothing else is linked. */
#include "core/services.h"
#include "gradus/ops.h"
#include "kernel.h"

const gd_op *const gd_builtin_ops[] = {NULL};
const int gd_builtin_op_count = 0;

const gd_joining_ops gd_joining = {gd_add, gd_cast, gd_contiguous};

static const gd_services cpu_services = {
    .copy = gd_copy_cpu,
    .accumulate = gd_accumulate_cpu,
    .fill = gd_fill_cpu,
    .sum_squares = gd_sum_squares_cpu,
};
const gd_services *const gd_services_of[GD_DEVICE_COUNT] = {[GD_CPU] = &cpu_services};

const gd_device_table *const gd_devices[GD_DEVICE_COUNT] = {[GD_CPU] = &gd_device_cpu};
