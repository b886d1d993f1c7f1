/* toys.c - gradus-bench toys' figures for kann, which compare_toys.py compiles against the user's copy
 * of its sources. */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include "kann.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 64, SIDE = 28, CLASSES = 10 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    const int repeats = argc > 1 ? atoi(argv[1]) : 5;
    kad_node_t *t = kad_feed(4, 1, 1, SIDE, SIDE);
    t->ext_flag |= KANN_F_IN;
    t = kad_relu(kann_layer_conv2d(t, 32, 3, 3, 1, 1, 0, 0));
    t = kad_relu(kann_layer_conv2d(t, 32, 3, 3, 1, 1, 0, 0));
    t = kad_max2d(t, 2, 2, 2, 2, 0, 0);
    t = kad_relu(kann_layer_dense(t, 128));
    kann_t *network = kann_new(kann_layer_cost(t, CLASSES, KANN_C_CEM), 0);
    const int parameters = kann_size_var(network);
    float *x = calloc(BATCH * SIDE * SIDE, sizeof *x);
    float *truth = calloc(BATCH * CLASSES, sizeof *truth);
    float *mean = calloc((size_t)parameters, sizeof *mean);
    if (!x || !truth || !mean) return EXIT_FAILURE;
    for (int i = 0; i < BATCH * SIDE * SIDE; i++) x[i] = (float)kad_drand_normal(0);
    for (int i = 0; i < BATCH; i++) truth[i * CLASSES + i % CLASSES] = 1;
    kann_switch(network, 1);
    kann_set_batch_size(network, BATCH);
    kann_feed_bind(network, KANN_F_IN, 0, &x);
    kann_feed_bind(network, KANN_F_TRUTH, 0, &truth);
    double least = 1e9;
    for (int i = 0; i < repeats; i++) {
        const double start = now();
        kann_cost(network, 0, 1);
        kann_RMSprop(parameters, 0.001f, NULL, 0.9f, network->g, network->x, mean);
        if (now() - start < least) least = now() - start;
    }
    printf("{\"name\": \"cnn\", \"us\": %.6g}\n", least * 1e6);
    return EXIT_SUCCESS;
}
