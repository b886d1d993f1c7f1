/* peak.c - see peak.h. */
#include "peak.h"

#include <string.h>

/* From the manufacturers' data sheets, in 1e12 operations a second without sparsity. The first name
 * that occurs in the device's name applies. A float32 product is three of TF32 on compute
 * capability 9.0 (kernels/matmul), so its peak is a third of TF32's. */
static const struct {
    const char *name;
    double f64, f32, tf32, bf16;
} rows[] = {
    {"NVIDIA H200", 67, 164.9, 494.7, 989.4},
    {"NVIDIA H100 PCIe", 51.2, 126, 378, 756},
    {"NVIDIA H100", 66.9, 164.9, 494.7, 989.4},
    {"NVIDIA A100", 19.5, 19.5, 156, 312},
};

double peak_flops(const char *device, gd_dtype dtype, bool tf32)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(device, rows[i].name)) continue;
        double peak = dtype == GD_FLOAT64   ? rows[i].f64
                      : dtype != GD_FLOAT32 ? rows[i].bf16
                      : tf32                ? rows[i].tf32
                                            : rows[i].f32;
        return 1e12 * peak;
    }
    return 0;
}
