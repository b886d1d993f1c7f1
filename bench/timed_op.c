/* timed_op.c - an op's record with a clock around its kernels. */
#include "bench.h"

/* The record a kernel is called with is the one that was given to gd_apply: ours. */
static timed_op *timed(const gd_call *call)
{
    return (timed_op *)call->op;
}

static gd_status time_calls(const gd_call *call, const gd_kernel *kernels, double *seconds)
{
    gd_kernel kernel = kernels[gd_context_device(call->context)];
    gd_status status = GD_OK;
    gd_synchronize(call->context);
    double start = bench_now();
    for (int i = 0; i < timed(call)->calls && !status; i++) status = kernel(call);
    gd_synchronize(call->context);
    *seconds = (bench_now() - start) / timed(call)->calls;
    return status;
}

static gd_status forward(const gd_call *call)
{
    return time_calls(call, timed(call)->original->forward, &timed(call)->forward_seconds);
}

static gd_status backward(const gd_call *call)
{
    return time_calls(call, timed(call)->original->backward, &timed(call)->backward_seconds);
}

timed_op bench_time_op(const gd_op *original)
{
    timed_op t = {.op = *original, .original = original, .calls = 1};
    for (int i = 0; i < GD_DEVICE_COUNT; i++) {
        if (original->forward[i]) t.op.forward[i] = forward;
        if (original->backward[i]) t.op.backward[i] = backward;
    }
    t.op.view = NULL; /* a view costs nothing; what is timed is the copy */
    return t;
}
