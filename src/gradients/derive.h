/* derive.h - the differentiable walk, for gd_gradients. */
#ifndef GRADUS_DERIVE_H
#define GRADUS_DERIVE_H

#include "core/core.h"

/* Each input of ctx->gradients that the outputs depend on gets its cotangent, made by ops. */
gd_status gd_derive(gd_context *ctx, gd_tensor *const *outputs, int count);

#endif
