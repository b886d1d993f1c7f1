/* overhead.c - gradus-bench overhead's figures for kann, which compare_overhead.py compiles against
 * the user's copy of its sources. */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include "kann.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHAIN = 64, NUMBERS = 4, BATCH = 32, IN = 2, HIDDEN = 16, OUT = 2 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void keep_least(double *least, double seconds)
{
    if (seconds < *least) *least = seconds;
}

/* A chain of ops on four numbers; kann's graph is made once and evaluated many times. */
static void time_chain(const char *name, int two_inputs, int repeats)
{
    kad_node_t *x = kann_new_leaf(KAD_VAR, 0.5f, 1, NUMBERS);
    kad_node_t *w = kann_new_leaf(KAD_VAR, 1.0f, 1, NUMBERS), *y = x;
    for (int i = 0; i < CHAIN; i++) y = two_inputs ? kad_mul(y, w) : kad_tanh(y);
    int count;
    kad_node_t *root = kad_reduce_sum(y, 0), **nodes = kad_compile(&count, 1, root);
    for (int i = 0; i < count; i++) {
        if (nodes[i]->n_child == 0) nodes[i]->g = calloc(NUMBERS, sizeof(float));
    }
    double forward = 1, backward = 1;
    for (int i = 0; i < repeats; i++) {
        const double start = now();
        kad_eval_at(count, nodes, count - 1);
        const double middle = now();
        kad_grad(count, nodes, count - 1);
        keep_least(&forward, middle - start);
        keep_least(&backward, now() - middle);
    }
    printf("{\"name\": \"%s forward\", \"ns\": %.1f}\n", name, forward / CHAIN * 1e9);
    printf("{\"name\": \"%s backward\", \"ns\": %.1f}\n", name, backward / CHAIN * 1e9);
}

static void time_step(int repeats)
{
    kad_node_t *t = kann_layer_input(IN);
    for (int i = 0; i < 2; i++) t = kad_tanh(kann_layer_dense(t, HIDDEN));
    kann_t *network = kann_new(kann_layer_cost(t, OUT, KANN_C_CEM), 0);
    float x[BATCH * IN], truth[BATCH * OUT] = {0}, *x_bind = x, *truth_bind = truth;
    for (int i = 0; i < BATCH * IN; i++) x[i] = (float)kad_drand_normal(0);
    for (int i = 0; i < BATCH; i++) truth[i * OUT + i % OUT] = 1;
    kann_switch(network, 1);
    kann_set_batch_size(network, BATCH);
    kann_feed_bind(network, KANN_F_IN, 0, &x_bind);
    kann_feed_bind(network, KANN_F_TRUTH, 0, &truth_bind);
    const int parameters = kann_size_var(network);
    float *mean = calloc((size_t)parameters, sizeof *mean);
    double least = 1;
    for (int i = 0; i < repeats; i++) {
        const double start = now();
        for (int k = 0; k < CHAIN; k++) {
            kann_cost(network, 0, 1);
            kann_RMSprop(parameters, 0.001f, NULL, 0.9f, network->g, network->x, mean);
        }
        keep_least(&least, (now() - start) / CHAIN);
    }
    printf("{\"name\": \"mlp 2-16-16-2 step\", \"ns\": %.1f}\n", least * 1e9);
}

int main(int argc, char **argv)
{
    const int repeats = argc > 1 ? atoi(argv[1]) : 200;
    time_chain("tanh", 0, repeats);
    time_chain("mul", 1, repeats);
    time_step(repeats);
    return 0;
}
