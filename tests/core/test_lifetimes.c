/* test_lifetimes.c - a context and the objects made in it, freed in every order. */
#include <string.h>

#include "check_main.h"
#include "counted_memory.h"

enum { CONTEXT, PARAMS, OPTIMIZER, GRAPH, GROUP, FILE_IN_MEMORY, MOST_OBJECTS };

typedef struct objects {
    gd_context *ctx;
    gd_params *params;
    gd_optimizer *optimizer;
    gd_graph *graph;
    gd_group *group;
    gd_safetensors *file;
} objects;

static gd_status train(void *user)
{
    const objects *o = user;
    gd_tensor *p = gd_params_at(o->params, 0);
    gd_optimizer_backward(o->optimizer, gd_sum_all(gd_mul(p, p)), 1);
    return gd_optimizer_update(o->optimizer, 0);
}

static objects make(void)
{
    static const char file[] = "\x02\0\0\0\0\0\0\0{}";
    const gd_context_options options = {.threads = 1, .poison = true, .allocator = counting};
    objects o = {.ctx = gd_context_create(&options)};
    o.params = gd_params_create(o.ctx, GD_BFLOAT16);
    gd_params_add(o.params, "p", GD_SHAPE(3), GD_DECAY);
    gd_params_add_buffer(o.params, "b", GD_FLOAT32, GD_SHAPE(3));
    gd_params_finish(o.params);
    o.optimizer = gd_adamw_create(o.params, NULL);
    o.graph = gd_graph_create(o.ctx, NULL);
    o.group = gd_group_create(o.ctx, NULL);
    o.file = gd_safetensors_wrap(o.ctx, file, sizeof file - 1);
    gd_optimizer_set_rate(o.optimizer, 0.1);
    gd_graph_run(o.graph, train, &o);
    gd_tensor *leaf = gd_tensor_create(o.ctx, GD_FLOAT32, GD_SHAPE(4));
    gd_tensor_set_requires_grad(leaf, true);
    gd_exp(leaf); /* a step in progress */
    ck_assert_no_error(o.ctx);
    return o;
}

static void release(objects *o, int which)
{
    switch (which) {
    case CONTEXT:
        gd_context_free(o->ctx);
        break;
    case PARAMS:
        gd_params_free(o->params);
        break;
    case OPTIMIZER:
        gd_optimizer_free(o->optimizer);
        break;
    case GRAPH:
        gd_graph_free(o->graph);
        break;
    case GROUP:
        gd_group_free(o->group);
        break;
    default:
        gd_safetensors_close(o->file);
    }
}

/* Order number `number` of all MOST_OBJECTS! orders. */
static void order_of(int number, int *order)
{
    for (int i = 0; i < MOST_OBJECTS; i++) order[i] = i;
    for (int i = 0; i < MOST_OBJECTS; i++) {
        const int left = MOST_OBJECTS - i, at = i + number % left, chosen = order[at];
        number /= left;
        memmove(order + i + 1, order + i, (size_t)(at - i) * sizeof *order);
        order[i] = chosen;
    }
}

TEST(any_order)
{
    int orders = 1, order[MOST_OBJECTS];
    for (int i = 2; i <= MOST_OBJECTS; i++) orders *= i;
    for (int number = 0; number < orders; number++) {
        objects o = make();
        order_of(number, order);
        for (int i = 0; i < MOST_OBJECTS; i++) {
            if (order[i] != GROUP || o.group) ck_assert_int_gt(counted.blocks, 0);
            release(&o, order[i]);
        }
        ck_assert_msg(counted.blocks == 0, "order %d: %lld blocks are left", number,
                      (long long)counted.blocks);
    }
}

/* Objects whose making failed hold nothing. */
TEST(failed_objects)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.allocator = counting});
    ck_assert_ptr_null(gd_params_create(ctx, GD_INT32));
    gd_error_clear(ctx);
    ck_assert_ptr_null(gd_safetensors_wrap(ctx, "short", 5));
    gd_error_clear(ctx);
    ck_assert_ptr_null(gd_safetensors_open(ctx, "/nowhere"));
    gd_error_clear(ctx);
    ck_assert_ptr_null(gd_group_create(ctx, &(gd_group_options){.rank = 2}));
    gd_error_clear(ctx);
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_finish(params);
    ck_assert_ptr_null(gd_adamw_create(params, &(gd_adamw_options){.beta1 = 2}));
    gd_context_free(ctx);
    ck_assert_int_gt(counted.blocks, 0);
    gd_params_free(params);
    ck_assert_int_eq(counted.blocks, 0);
}

/* Headers that are kept for messages take no more memory after 3,000 steps, of many sizes, than
 * after 1,500. */
TEST(handles_of_earlier_steps_take_constant_memory)
{
    for (int poison = 0; poison < 2; poison++) {
        const gd_context_options options = {.threads = 1, .poison = poison, .allocator = counting};
        gd_context *ctx = gd_context_create(&options);
        gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
        int64_t before = 0;
        for (int step = 0; step < 3000; step++) {
            for (int i = 0; i < 1 + step % 7 * 20; i++) gd_add(t, t);
            gd_tensor_free(gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3)));
            gd_step_end(ctx);
            if (step == 1500) before = counted.blocks;
        }
        ck_assert_int_eq(counted.blocks, before);
        ck_assert_int_lt(counted.blocks, 10000);
        gd_context_free(ctx);
        ck_assert_int_eq(counted.blocks, 0);
    }
}

CHECK_MAIN("lifetimes")
