/* device_cpu.c - the CPU as a device: its memory is the host's. */
#include "core/core.h"
#include "platform/memory.h"

#include <stdio.h>
#include <string.h>

/* OpenBLAS maps 128 MiB of address space for each thread that calls it, and retries forever if a
 * limit (ulimit -v) refuses them: they are kept until the first product (gemm_blas_cpu.c). */
static gd_status check_address_space(gd_context *ctx)
{
#ifdef GD_HAVE_OPENBLAS
    const size_t bytes = (size_t)ctx->threads << 27;
    if (!gd_os_keep_address_space(bytes)) {
        return gd_fail(
            ctx, GD_ERROR_MEMORY,
            "context: too little address space (ulimit -v): OpenBLAS needs %zu MiB for %d threads",
            bytes >> 20, ctx->threads);
    }
#else
    (void)ctx;
#endif
    return GD_OK;
}

static gd_status cpu_open(gd_context *ctx)
{
    if (check_address_space(ctx)) return gd_error_status(ctx);
    snprintf(ctx->device_name, sizeof ctx->device_name, "cpu, %d thread%s", ctx->threads,
             ctx->threads == 1 ? "" : "s");
    return GD_OK;
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

static bool cpu_is_filled(gd_context *ctx, const void *data, int byte, size_t bytes)
{
    (void)ctx;
    const unsigned char *at = data;
    while (bytes && *at == byte) at++, bytes--;
    return bytes == 0;
}

const gd_device_table gd_device_cpu = {
    .device = GD_CPU,
    .open = cpu_open,
    .allocate = gd_host_try,
    .release = gd_host_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .fill_bytes = cpu_fill_bytes,
    .is_filled = cpu_is_filled,
    .shared_allocate = gd_host_try,
    .shared_release = gd_host_release,
};
