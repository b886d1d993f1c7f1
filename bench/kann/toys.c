/* toys.c - gradus-bench toys' figures for kann, which compare_toys.py compiles against the user's copy
 * of its sources. */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include "kann.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 64, SIDE = 28, CLASSES = 10 };
enum { LETTERS = 64, UNITS = 128, TIME = 50, ROWS = 32 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A network that has its inputs. */
static void time_steps(const char *name, kann_t *network, int repeats)
{
    const int parameters = kann_size_var(network);
    float *mean = calloc((size_t)parameters, sizeof *mean);
    double least = 1e9;
    if (!mean) exit(EXIT_FAILURE);
    kann_switch(network, 1);
    for (int i = 0; i < repeats; i++) {
        const double start = now();
        kann_cost(network, 0, 1);
        kann_RMSprop(parameters, 0.001f, NULL, 0.9f, network->g, network->x, mean);
        if (now() - start < least) least = now() - start;
    }
    free(mean);
    printf("{\"name\": \"%s\", \"us\": %.6g}\n", name, least * 1e6);
}

static void time_cnn(int repeats)
{
    kad_node_t *t = kad_feed(4, 1, 1, SIDE, SIDE);
    t->ext_flag |= KANN_F_IN;
    t = kad_relu(kann_layer_conv2d(t, 32, 3, 3, 1, 1, 0, 0));
    t = kad_relu(kann_layer_conv2d(t, 32, 3, 3, 1, 1, 0, 0));
    t = kad_max2d(t, 2, 2, 2, 2, 0, 0);
    t = kad_relu(kann_layer_dense(t, 128));
    kann_t *network = kann_new(kann_layer_cost(t, CLASSES, KANN_C_CEM), 0);
    float *x = calloc(BATCH * SIDE * SIDE, sizeof *x);
    float *truth = calloc(BATCH * CLASSES, sizeof *truth);
    if (!x || !truth) exit(EXIT_FAILURE);
    for (int i = 0; i < BATCH * SIDE * SIDE; i++) x[i] = (float)kad_drand_normal(0);
    for (int i = 0; i < BATCH; i++) truth[i * CLASSES + i % CLASSES] = 1;
    kann_set_batch_size(network, BATCH);
    kann_feed_bind(network, KANN_F_IN, 0, &x);
    kann_feed_bind(network, KANN_F_TRUTH, 0, &truth);
    time_steps("cnn", network, repeats);
    kann_delete(network);
    free(x), free(truth);
}

static void time_gru(int repeats)
{
    kad_node_t *t = kann_layer_gru(kann_layer_input(LETTERS), UNITS, 0);
    kann_t *network = kann_new(kann_layer_cost(t, LETTERS, KANN_C_CEM), 0);
    kann_t *unrolled = kann_unroll(network, TIME);
    static float in[TIME][ROWS * LETTERS], out[TIME][ROWS * LETTERS];
    float *x[TIME], *truth[TIME];
    for (int s = 0; s < TIME; s++) {
        x[s] = in[s], truth[s] = out[s];
        for (int b = 0; b < ROWS; b++) {
            in[s][b * LETTERS + (s * s + b) % LETTERS] = 1;
            out[s][b * LETTERS + (s * b + 7) % LETTERS] = 1;
        }
    }
    kann_set_batch_size(unrolled, ROWS);
    kann_feed_bind(unrolled, KANN_F_IN, 0, x);
    kann_feed_bind(unrolled, KANN_F_TRUTH, 0, truth);
    time_steps("gru", unrolled, repeats);
    kann_delete_unrolled(unrolled);
    kann_delete(network);
}

int main(int argc, char **argv)
{
    const int repeats = argc > 1 ? atoi(argv[1]) : 5;
    time_cnn(repeats);
    time_gru(repeats);
    return EXIT_SUCCESS;
}
