/* twin_gru.c - bench/twins/twin_gru.c for kann, which compare_twins.py compiles against the user's
 * copy of its sources. */
#include "kann.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { B = 32, T = 50, H = 128, LETTERS = 64, STEPS = 20 };

int main(void)
{
    kad_node_t *t = kann_layer_gru(kann_layer_input(LETTERS), H, 0);
    kann_t *network = kann_new(kann_layer_cost(t, LETTERS, KANN_C_CEM), 0);
    kann_t *unrolled = kann_unroll(network, T);
    static float in[T][B * LETTERS], out[T][B * LETTERS];
    float *x[T], *truth[T];
    for (int s = 0; s < T; s++) {
        x[s] = in[s], truth[s] = out[s];
        for (int b = 0; b < B; b++) {
            in[s][b * LETTERS + (s * s + b) % LETTERS] = 1;
            out[s][b * LETTERS + (s * b + 7) % LETTERS] = 1;
        }
    }
    kann_set_batch_size(unrolled, B);
    kann_feed_bind(unrolled, KANN_F_IN, 0, x);
    kann_feed_bind(unrolled, KANN_F_TRUTH, 0, truth);
    kann_switch(unrolled, 1);
    const int parameters = kann_size_var(unrolled);
    float *mean = calloc((size_t)parameters, sizeof *mean);
    if (!mean) return EXIT_FAILURE;
    clock_t start = clock();
    for (int step = 0; step < STEPS; step++) {
        printf("%.7g\n", (double)kann_cost(unrolled, 0, 1));
        kann_RMSprop(parameters, 0.001f, NULL, 0.9f, unrolled->g, unrolled->x, mean);
        if (step == 0) start = clock();
    }
    printf("%.4f ms a step\n", 1000. * (double)(clock() - start) / CLOCKS_PER_SEC / (STEPS - 1));
    free(mean);
    kann_delete_unrolled(unrolled);
    kann_delete(network);
    return EXIT_SUCCESS;
}
