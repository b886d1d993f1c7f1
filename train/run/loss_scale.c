/* loss_scale.c - see loss_scale.h. */
#include "loss_scale.h"

static const int64_t BEGIN = 65536, MOST = 16777216, PATIENCE = 2000;

loss_scale loss_scale_begin(gd_dtype dtype)
{
    const bool adapts = dtype == GD_FLOAT16;
    return (loss_scale){.adapts = adapts, .factor = adapts ? BEGIN : 1};
}

bool loss_scale_overflowed(loss_scale *scale)
{
    if (scale->factor == 1) return false;
    scale->factor /= 2;
    scale->good = 0;
    return true;
}

void loss_scale_succeeded(loss_scale *scale)
{
    if (!scale->adapts || ++scale->good < PATIENCE) return;
    if (scale->factor < MOST) scale->factor *= 2;
    scale->good = 0;
}
