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

#define ON_CPU(name) .name = gd_##name##_cpu,
static const gd_update_services cpu_updates = {GD_UPDATE_SERVICES(ON_CPU)};
static const gd_services cpu_services = {
    .numbers_within = gd_numbers_within, .update = &cpu_updates, GD_SERVICES(ON_CPU)};

#ifdef GD_HAVE_CUDA
#define ON_CUDA(name) .name = gd_##name##_cuda,
static const gd_update_services cuda_updates = {GD_UPDATE_SERVICES(ON_CUDA)};
static const gd_services cuda_services = {.numbers_within = gd_numbers_within,
                                          .advance = gd_advance_cuda,
                                          .update = &cuda_updates,
                                          GD_SERVICES(ON_CUDA)};
#define CUDA_SERVICES &cuda_services
#else
#define CUDA_SERVICES NULL
#endif

const gd_services *const gd_services_of[GD_DEVICE_COUNT] = {
    [GD_CPU] = &cpu_services, [GD_CUDA] = CUDA_SERVICES};

const gd_device_table *const gd_devices[GD_DEVICE_COUNT] = {
    [GD_CPU] = &gd_device_cpu, [GD_CUDA] = &gd_device_cuda};
