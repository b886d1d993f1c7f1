/* timed_op.c - an op's record with a clock around its kernels. */
#include "bench.h"

/* The record a kernel is called with is the one that was given to gd_apply: ours. */
static timed_op *timed(const gd_call *call)
{
    return (timed_op *)call->op;
}

static gd_status forward(const gd_call *call)
{
    gd_device device = gd_context_device(call->context);
    double start = bench_now();
    gd_status status = timed(call)->original->forward[device](call);
    gd_synchronize(call->context);
    timed(call)->forward_seconds = bench_now() - start;
    return status;
}

static gd_status backward(const gd_call *call)
{
    gd_device device = gd_context_device(call->context);
    double start = bench_now();
    gd_status status = timed(call)->original->backward[device](call);
    gd_synchronize(call->context);
    timed(call)->backward_seconds = bench_now() - start;
    return status;
}

timed_op bench_time_op(const gd_op *original)
{
    timed_op t = {.op = *original, .original = original};
    for (int i = 0; i < GD_DEVICE_COUNT; i++) {
        if (original->forward[i]) t.op.forward[i] = forward;
        if (original->backward[i]) t.op.backward[i] = backward;
    }
    t.op.view = NULL; /* a view costs nothing; what is timed is the copy */
    return t;
}
