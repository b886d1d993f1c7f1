/* device_cpu.c - the CPU as a device: its memory is the host's. */
#include "core.h"

#include <stdio.h>
#include <string.h>

static gd_status cpu_open(gd_context *ctx)
{
    snprintf(ctx->device_name, sizeof ctx->device_name, "cpu, %d thread%s", ctx->threads,
             ctx->threads == 1 ? "" : "s");
    return GD_OK;
}

static void cpu_close(gd_context *ctx)
{
    (void)ctx;
}

static void *cpu_allocate(gd_context *ctx, size_t bytes)
{
    return ctx->allocator.allocate(ctx->allocator.user, 64, bytes);
}

static void cpu_release(gd_context *ctx, void *data, size_t bytes)
{
    ctx->allocator.release(ctx->allocator.user, data, bytes);
}

static gd_status cpu_copy(gd_context *ctx, void *dst, const void *src, size_t bytes)
{
    (void)ctx;
    if (bytes) memcpy(dst, src, bytes);
    return GD_OK;
}

static gd_status cpu_fill_bytes(gd_context *ctx, void *dst, int byte, size_t bytes)
{
    (void)ctx;
    if (bytes) memset(dst, byte, bytes);
    return GD_OK;
}

static gd_status cpu_mark(gd_context *ctx, int64_t number)
{
    (void)ctx;
    (void)number;
    return GD_OK;
}

static bool cpu_passed(gd_context *ctx, int64_t number, bool wait)
{
    (void)ctx;
    (void)number;
    (void)wait;
    return true;
}

static gd_status cpu_synchronize(gd_context *ctx)
{
    (void)ctx;
    return GD_OK;
}

const gd_device_table gd_device_cpu = {
    .device = GD_CPU,
    .open = cpu_open,
    .close = cpu_close,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .fill_bytes = cpu_fill_bytes,
    .synchronize = cpu_synchronize,
    .shared_allocate = cpu_allocate,
    .shared_release = cpu_release,
    .mark = cpu_mark,
    .passed = cpu_passed,
};
