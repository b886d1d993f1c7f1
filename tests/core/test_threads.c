/* test_threads.c - several contexts, each in a thread of its own: what one does, no other sees.
 * ThreadSanitizer watches it in scripts/cross tsan. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 4, STEPS = 12, ROWS = 24, WIDTH = 16 };

typedef struct work {
    float weights[WIDTH * WIDTH];
    double loss;
    bool fine;
} work;

/* Some steps of a tiny model: ops, tape, random numbers, optimizer, an error in between. */
static void *learn(void *argument)
{
    work *mine = argument;
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1, .seed = 3});
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(WIDTH, WIDTH), GD_DECAY);
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(ROWS, WIDTH));
    gd_params_finish(params);
    gd_optimizer *adamw = gd_adamw_create(params, NULL);
    gd_random_normal(w, 0, 0.3);
    gd_random_normal(x, 0, 1);
    mine->fine = true;
    for (int i = 0; i < STEPS; i++) {
        gd_tensor *y = gd_dropout(gd_softmax(gd_matmul(gd_gelu(x), w), -1), 0.25);
        gd_tensor *loss = gd_sum(gd_mul(y, y), NULL, 0, false);
        gd_backward(loss);
        mine->loss = gd_item(loss);
        gd_optimizer_step(adamw, 1e-2);
        gd_params_clear_grads(params);
        gd_step_end(ctx);
        mine->fine = mine->fine && !gd_error(ctx) && !gd_matmul(x, x) && gd_error(ctx);
        gd_error_clear(ctx);
    }
    mine->fine = mine->fine && !gd_tensor_read(w, mine->weights, sizeof mine->weights);
    gd_optimizer_free(adamw);
    gd_params_free(params);
    gd_tensor_free(x);
    gd_context_free(ctx);
    return NULL;
}

TEST(each_thread_has_a_context_of_its_own)
{
    static work alone, together[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, learn, &together[i]), 0);
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
    learn(&alone);
    ck_assert(alone.fine);
    for (int i = 0; i < THREADS; i++) {
        ck_assert(together[i].fine && together[i].loss == alone.loss);
        ck_assert_mem_eq(together[i].weights, alone.weights, sizeof alone.weights);
    }
}

CHECK_MAIN("threads")
