/* gradus.h - the whole interface, in the order to learn it.
 *
 *   context.h     the device, its memory, its random state, the first error
 *   tensor.h      arrays with a dtype and a shape; copies in and out
 *   ops.h         the differentiable operations
 *   autograd.h    the tape: backward, gradients, no-grad, recomputation, your own ops
 *   derivatives.h products with Jacobians and Hessians
 *   optim.h       parameters, optimizers, clipping, schedules, an average of the weights
 *   layers.h      layers with their parameters: linear, convolution, norm, LSTM, GRU, attention
 *   data.h        batches of examples, in a new order each epoch
 *   metrics.h     the numbers of a run as lines of JSON, and its progress
 *   init.h        initial values: Xavier, Kaiming, orthogonal, truncated normal
 *   graph.h       a whole step as one launch on a GPU
 *   group.h       several devices, one process each: replicated parameters, collectives
 *   random.h      Philox: the same seed gives the same bits everywhere
 *   gradcheck.h   finite differences against a backward
 *   safetensors.h tensors in files
 *
 * kernels.h is not included: the RMSNorm kernels alone, on raw pointers.
 *
 * A whole step of learning, for a line y = w * x + b:
 *
 *     gd_context *ctx = gd_context_create(NULL);
 *     gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
 *     gd_tensor_set_requires_grad(w, true);
 *     ...
 *     gd_tensor *error = gd_sub(gd_add(gd_mul(w, x), b), y);
 *     gd_tensor *loss = gd_mean_all(gd_mul(error, error));
 *     gd_backward(loss);                    // dloss/dw is now gd_grad(w)
 *     ...                                   // move w against its gradient
 *     gd_step_end(ctx);                     // frees everything the ops made
 *     if (gd_error(ctx)) puts(gd_error(ctx));
 */
#ifndef GRADUS_GRADUS_H
#define GRADUS_GRADUS_H

#include "gradus/context.h"
#include "gradus/tensor.h"
#include "gradus/ops.h"
#include "gradus/autograd.h"
#include "gradus/derivatives.h"
#include "gradus/optim.h"
#include "gradus/layers.h"
#include "gradus/data.h"
#include "gradus/metrics.h"
#include "gradus/init.h"
#include "gradus/graph.h"
#include "gradus/group.h"
#include "gradus/random.h"
#include "gradus/gradcheck.h"
#include "gradus/safetensors.h"

#endif
