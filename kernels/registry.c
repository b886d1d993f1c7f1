/* registry.c - the tables for the core (src/core/services.h): the records of all ops, and each
 * device with its services. */
#include "core/services.h"
#include "gradus/ops.h"
#include "kernel.h"
#include "optim/services.h"

#define GD_OP(name) extern const gd_op gd_op_##name;
#include "op_list.h"
#undef GD_OP

const gd_op *const gd_builtin_ops[] = {
#define GD_OP(name) &gd_op_##name,
#include "op_list.h"
#undef GD_OP
    NULL};

const gd_joining_ops gd_joining = {gd_add, gd_cast, gd_contiguous};

const int gd_builtin_op_count = (int)(sizeof gd_builtin_ops / sizeof *gd_builtin_ops) - 1;

#define SERVICES(device)                                                                      \
    .copy = gd_copy_##device, .accumulate = gd_accumulate_##device, .fill = gd_fill_##device, \
    .sum_squares = gd_sum_squares_##device, .scale = gd_scale_##device,                       \
    .clear_rows = gd_clear_rows_##device, .uniform = gd_uniform_##device,                     \
    .numbers_within = gd_numbers_within, .normal = gd_normal_##device,                        \
    .integers = gd_integers_##device, .permutation = gd_permutation_##device

#define UPDATES(device)                                                                   \
    {                                                                                     \
        gd_add_loss_##device, gd_decide_##device, gd_optimize_##device, gd_muon_##device, \
            gd_settle_##device                                                            \
    }

static const gd_update_services cpu_updates = UPDATES(cpu);
static const gd_services cpu_services = {SERVICES(cpu), .update = &cpu_updates};

#ifdef GD_HAVE_CUDA
static const gd_update_services cuda_updates = UPDATES(cuda);
static const gd_services cuda_services = {SERVICES(cuda), .advance = gd_advance_cuda,
                                          .update = &cuda_updates};
#define CUDA_SERVICES &cuda_services
#else
#define CUDA_SERVICES NULL
#endif

const gd_services *const gd_services_of[GD_DEVICE_COUNT] = {
    [GD_CPU] = &cpu_services, [GD_CUDA] = CUDA_SERVICES};

const gd_device_table *const gd_devices[GD_DEVICE_COUNT] = {
    [GD_CPU] = &gd_device_cpu, [GD_CUDA] = &gd_device_cuda};
