/* init.h - initial values of parameters.
 *
 *     gd_init_kaiming_normal(w, GD_FAN_IN, sqrt(2));   // a layer before a relu
 *
 * All fill a tensor of a real dtype from the context's stream (random.h), with the same numbers on
 * every device, rounded to its dtype. gd_random_uniform and gd_random_normal are the plain ones.
 *
 * The fans of a weight [out, in, ...], of at least two dimensions, are those of PyTorch: in times
 * the product of the dimensions behind it, and out times that product. So a linear layer's weight
 * [out, in] has the fans in and out, and a convolution's [O, I / groups, KH, KW] I / groups KH KW
 * and O KH KW. (A transposed convolution's weight [I, O / groups, KH, KW] has them exchanged.)
 *
 * The gain makes up for the function behind the layer: 1 for none and sigmoid, 5/3 for tanh,
 * sqrt(2) for relu, sqrt(2 / (1 + s^2)) for leaky_relu with slope s. It is finite and at least 0.
 */
#ifndef GRADUS_INIT_H
#define GRADUS_INIT_H

#include "gradus/random.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gd_fan {
    GD_FAN_IN, /* keeps the variance of activations in the forward */
    GD_FAN_OUT /* keeps the variance of gradients in the backward */
} gd_fan;

/* Xavier Glorot & Yoshua Bengio 2010: the variance is gain^2 2 / (fan_in + fan_out), in between
 * both. Uniform within gain sqrt(6 / (fan_in + fan_out)), which has that variance, or normal. */
GD_API gd_status gd_init_xavier_uniform(gd_tensor *t, double gain);
GD_API gd_status gd_init_xavier_normal(gd_tensor *t, double gain);

/* Kaiming He et al. 2015, arXiv:1502.01852: the variance is gain^2 / fan. */
GD_API gd_status gd_init_kaiming_uniform(gd_tensor *t, gd_fan fan, double gain);
GD_API gd_status gd_init_kaiming_normal(gd_tensor *t, gd_fan fan, double gain);

/* Saxe et al. 2014, arXiv:1312.6120: t as a matrix [out, the rest] has orthonormal rows, or, if it
 * has more rows than columns, columns, times gain. It is uniformly distributed over all of these.
 * The host computes it (Gram and Schmidt), in about rows columns min(rows, columns) 2 to 4
 * operations. */
GD_API gd_status gd_init_orthogonal(gd_tensor *t, double gain);

/* A normal distribution within [low, high], as if numbers outside were drawn again. low < high;
 * either may be infinite, and a number of t's dtype lies between. stddev is above 0 and finite.
 * Element i uses words 2i and 2i + 1, for every dtype; the host computes it. */
GD_API gd_status gd_init_truncated_normal(gd_tensor *t, double mean, double stddev, double low,
                                          double high);

#ifdef __cplusplus
}
#endif
#endif
