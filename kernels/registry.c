/* registry.c - gathers what kernels/ offers for the core (src/services.h): the records of all ops,
 * and each device's services. */
#include "services.h"
#include "kernel.h"

#define GD_OP(name) extern const gd_op gd_op_##name;
#include "ops.def"
#undef GD_OP

const gd_op *const gd_builtin_ops[] = {
#define GD_OP(name) &gd_op_##name,
#include "ops.def"
#undef GD_OP
    NULL};

const int gd_builtin_op_count = (int)(sizeof gd_builtin_ops / sizeof *gd_builtin_ops) - 1;

static const gd_services cpu_services = {
    .copy = gd_copy_cpu,
    .accumulate = gd_accumulate_cpu,
    .fill = gd_fill_cpu,
    .sum_squares = gd_sum_squares_cpu,
    .scale = gd_scale_cpu,
    .uniform = gd_uniform_cpu,
    .normal = gd_normal_cpu,
    .integers = gd_integers_cpu,
    .permutation = gd_permutation_cpu,
    .sgd = gd_sgd_cpu,
    .adamw = gd_adamw_cpu,
};

const gd_services *const gd_services_of[GD_DEVICE_COUNT] = {[GD_CPU] = &cpu_services};
