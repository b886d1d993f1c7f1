/* clock_cuda.c - the clock of a build with CUDA: events, or the host's for a context on the CPU. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "bench.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <time.h>

struct device_clock {
    cudaStream_t stream; /* NULL: a context on the CPU */
    cudaEvent_t *events;
    double *marks;
    int count;
    bool counting;
};

device_clock *device_clock_create(gd_context *ctx, int marks)
{
    device_clock *clock = calloc(1, sizeof *clock);
    if (!clock) return NULL;
    clock->stream = (cudaStream_t)gd_context_stream(ctx);
    clock->marks = calloc((size_t)marks, sizeof *clock->marks);
    clock->events = calloc((size_t)marks, sizeof(cudaEvent_t));
    bool good = clock->marks && clock->events;
    for (; good && clock->stream && clock->count < marks; clock->count++) {
        good = cudaEventCreate(&clock->events[clock->count]) == cudaSuccess;
    }
    if (good) return clock;
    device_clock_free(clock);
    return NULL;
}

void device_clock_free(device_clock *clock)
{
    if (!clock) return;
    for (int i = 0; i < clock->count; i++) {
        if (clock->events[i]) cudaEventDestroy(clock->events[i]);
    }
    free(clock->events);
    free(clock->marks);
    free(clock);
}

static void CUDART_CB sleep_a_while(void *nothing)
{
    (void)nothing;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}

void device_clock_hold(device_clock *clock)
{
    if (clock->stream) cudaLaunchHostFunc(clock->stream, sleep_a_while, NULL);
}

void device_clock_mark(device_clock *clock, int i)
{
    if (clock->stream) {
        cudaEventRecord(clock->events[i], clock->stream);
    } else {
        clock->marks[i] = bench_now();
    }
}

double device_clock_seconds(device_clock *clock, int a, int b)
{
    if (!clock->stream) return clock->marks[b] - clock->marks[a];
    float milliseconds = 0;
    cudaEventSynchronize(clock->events[b]);
    cudaEventElapsedTime(&milliseconds, clock->events[a], clock->events[b]);
    return (double)milliseconds * 1e-3;
}

/* The kernels are captured in a graph, which gives their number, and is then launched. Only a
 * relaxed capture allows memory to be allocated meanwhile. */
void device_clock_count_begin(device_clock *clock)
{
    if (!clock->stream) return;
    clock->counting =
        cudaStreamBeginCapture(clock->stream, cudaStreamCaptureModeRelaxed) == cudaSuccess;
}

static int64_t count_kernels(cudaGraph_t graph)
{
    size_t nodes = 0;
    int64_t kernels = 0;
    if (cudaGraphGetNodes(graph, NULL, &nodes)) return -1;
    cudaGraphNode_t *list = calloc(nodes + 1, sizeof *list);
    if (!list || cudaGraphGetNodes(graph, list, &nodes)) nodes = 0, kernels = -1;
    for (size_t i = 0; i < nodes; i++) {
        enum cudaGraphNodeType type;
        if (!cudaGraphNodeGetType(list[i], &type)) kernels += type == cudaGraphNodeTypeKernel;
    }
    free(list);
    return kernels;
}

int64_t device_clock_count_end(device_clock *clock)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (!clock->counting) return -1;
    clock->counting = false;
    if (cudaStreamEndCapture(clock->stream, &graph) || !graph) {
        (void)cudaGetLastError();
        return -1;
    }
    const int64_t kernels = count_kernels(graph);
    if (!cudaGraphInstantiate(&exec, graph, 0)) {
        cudaGraphLaunch(exec, clock->stream);
        cudaStreamSynchronize(clock->stream);
        cudaGraphExecDestroy(exec);
    }
    cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return kernels;
}
