/* twin.h - what these programs share, as their twins share twin.py: the same numbers in C and in
 * Python, so that the losses are equal; a cart with a pole; an update, and the time of a step. */
#ifndef GRADUS_TWIN_H
#define GRADUS_TWIN_H
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline gd_context *twin_context(void)
{
    return gd_context_create(&(gd_context_options){.threads = 1});
}

/* From 0 to 1: a hash of a seed and a place. */
static inline double twin_number(uint32_t seed, uint32_t place)
{
    uint32_t h = seed * 0x9E3779B9U + place * 0x85EBCA6BU;
    h = (h ^ h >> 15) * 0x2C1B3C6DU;
    h = (h ^ h >> 12) * 0x297A2D39U;
    return (h ^ h >> 15) / 4294967296.;
}

static inline void twin_fill(gd_tensor *t, uint32_t seed, double scale)
{
    const int64_t n = gd_tensor_count(t);
    float *real = gd_tensor_data(t);
    int32_t *whole = gd_tensor_data(t);
    const bool is_real = gd_tensor_dtype(t) == GD_FLOAT32;
    for (int64_t i = 0; i < n; i++) {
        const double u = twin_number(seed, (uint32_t)i);
        if (is_real)
            real[i] = (float)((2 * u - 1) * scale);
        else
            whole[i] = (int32_t)(u * scale);
    }
}

/* Numbers from -scale to scale. */
static inline gd_tensor *twin_floats(gd_context *ctx, uint32_t seed, double scale, int ndim,
                                     const int64_t *shape)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, ndim, shape);
    twin_fill(t, seed, scale);
    return t;
}

/* Whole numbers from 0 to n - 1. */
static inline gd_tensor *twin_ints(gd_context *ctx, uint32_t seed, int n, int ndim,
                                   const int64_t *shape)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_INT32, ndim, shape);
    twin_fill(t, seed, n);
    return t;
}

/* Memory for the parameters, and numbers for all but the weights of norms. */
static inline void twin_init(gd_params *p)
{
    gd_params_finish(p);
    for (int i = 0; i < gd_params_count(p); i++) {
        gd_tensor *t = gd_params_at(p, i);
        const char *name = gd_tensor_name(t);
        const double fan = (double)gd_tensor_count(t) / (double)gd_tensor_dim(t, 0);
        if (gd_tensor_ndim(t) > 1)
            twin_fill(t, 100 + (uint32_t)i, 1 / sqrt(fan));
        else if (strstr(name, "bias"))
            twin_fill(t, 100 + (uint32_t)i, 0.1);
    }
}

/* The same, and their optimizer. */
static inline gd_optimizer *twin_adamw(gd_params *p)
{
    twin_init(p);
    return gd_adamw_create(p, NULL);
}

/* Pushes a cart with a pole to the left or the right; true if it is over, and the cart is new. */
static inline bool twin_push(float cart[4], bool right, uint32_t seed)
{
    const double x = cart[0], v = cart[1], a = cart[2], w = cart[3], c = cos(a), s = sin(a);
    const double push = ((right ? 10 : -10) + 0.05 * w * w * s) / 1.1;
    const double turn = (9.8 * s - c * push) / (0.5 * (4 / 3. - 0.1 * c * c / 1.1));
    const double next[4] = {x + 0.02 * v, v + 0.02 * (push - 0.05 * turn * c / 1.1), a + 0.02 * w,
                            w + 0.02 * turn};
    const bool over = fabs(next[0]) > 2.4 || fabs(next[2]) > 0.2095;
    for (uint32_t i = 0; i < 4; i++)
        cart[i] = (float)(over ? 0.1 * twin_number(seed, i) - 0.05 : next[i]);
    return over;
}

/* The steps so far, and the time from the end of the first. */
static int twin_steps;
static clock_t twin_start;

/* A step of that loss: prints it. */
static inline void twin_step(gd_tensor *loss)
{
    printf("%.7g\n", gd_item(loss));
    if (!twin_steps++) twin_start = clock();
}

/* An update of p by that loss, which it prints, and the end of the step. */
static inline void twin_update(gd_optimizer *optimizer, double rate, gd_params *p, gd_tensor *loss)
{
    gd_backward(loss);
    gd_optimizer_step(optimizer, rate);
    gd_params_clear_grads(p);
    twin_step(loss);
    gd_step_end(gd_params_context(p));
}

/* Ends a program; its status. */
static inline int twin_end(gd_params *p, gd_optimizer *optimizer)
{
    const double seconds = (double)(clock() - twin_start) / CLOCKS_PER_SEC;
    gd_context *ctx = gd_params_context(p);
    const bool failed = gd_error(ctx) != NULL;
    if (failed)
        printf("%s\n", gd_error(ctx));
    else
        printf("%.4f ms a step\n", 1000 * seconds / (twin_steps - 1));
    gd_optimizer_free(optimizer);
    gd_params_free(p);
    gd_context_free(ctx);
    return failed;
}
#endif
