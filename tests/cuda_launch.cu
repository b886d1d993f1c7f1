// cuda_launch.cu - how the kernels of a call come to the stream (kernels/rms_norm/launch.cu), and
// whether every plan has one, against a runtime that only notes what it is told: the linker puts
// the functions below in the place of CUDA's. Needs no GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#include "rms_norm/launch.cuh"
#include "rms_norm/plan.cuh"

using namespace gd_rms;

// ---- The runtime --------------------------------------------------------------------------------

static std::string noted; // what came to streams, a word for each kernel
static bool capturing, no_graphs;
static int graphs; // that exist

struct Node {
    const void *kernel;
    int cluster;
    bool early;
    std::string word;
};
struct Nodes {
    std::vector<Node *> list;
};

__global__ void first_kernel(int);
__global__ void second_kernel(int, double);

// Name, grid, cluster, early or not, arguments.
static std::string word_of(const void *kernel, dim3 blocks, int cluster, bool early,
                           void **argument)
{
    const bool first = kernel == (const void *)first_kernel;
    char word[100];
    snprintf(word, sizeof word, "%s%u/%d%s(%d", first ? "a" : "b", blocks.x, cluster,
             early ? "!" : "", *(int *)argument[0]);
    if (!first)
        snprintf(word + strlen(word), sizeof word - strlen(word), ",%g", *(double *)argument[1]);
    return word + std::string(") ");
}

static void must(bool good, const char *what)
{
    if (good) return;
    printf("%s\n", what);
    exit(1);
}

extern "C" {
cudaError_t __wrap_cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
cudaError_t __wrap_cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
    *attributes = cudaFuncAttributes{};
    attributes->ptxVersion = 90;
    return cudaSuccess;
}
cudaError_t __wrap_cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
    return cudaSuccess;
}
cudaError_t __wrap_cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status)
{
    *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
static cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
cudaError_t __wrap_cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
    const cudaStreamCaptureMode was = thread_mode;
    thread_mode = *mode, *mode = was;
    return cudaSuccess;
}
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                       void **arguments)
{
    int cluster = 1;
    bool early = false;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute &a = config->attrs[i];
        if (a.id == cudaLaunchAttributeClusterDimension) cluster = (int)a.val.clusterDim.x;
        early |= a.id == cudaLaunchAttributeProgrammaticStreamSerialization;
    }
    noted += word_of(kernel, config->gridDim, cluster, early, arguments);
    return cudaSuccess;
}
cudaError_t __wrap_cudaGraphCreate(cudaGraph_t *graph, unsigned)
{
    *graph = (cudaGraph_t) new Nodes;
    graphs++;
    return cudaSuccess;
}
cudaError_t __wrap_cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                          const cudaGraphNode_t *, size_t before,
                                          const cudaKernelNodeParams *p)
{
    must(before == 0, "edges are made apart");
    Node *const n = new Node{p->func, 1, false, "?"};
    ((Nodes *)graph)->list.push_back(n);
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t __wrap_cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                                   const cudaLaunchAttributeValue *value)
{
    must(id == cudaLaunchAttributeClusterDimension, "an attribute that is not expected");
    ((Node *)node)->cluster = (int)value->clusterDim.x;
    return cudaSuccess;
}
cudaError_t __wrap_cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                            const cudaGraphNode_t *to,
                                            const cudaGraphEdgeData *edge, size_t)
{
    const std::vector<Node *> &list = ((Nodes *)graph)->list;
    const size_t n = list.size();
    must(n > 1 && (Node *)*to == list[n - 1] && (Node *)*from == list[n - 2], "a wrong edge");
    list[n - 1]->early = edge->type == cudaGraphDependencyTypeProgrammatic &&
                         edge->from_port == cudaGraphKernelNodePortProgrammatic;
    return cudaSuccess;
}
// The executable graph is the graph.
cudaError_t __wrap_cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                 unsigned long long)
{
    must(thread_mode == cudaStreamCaptureModeRelaxed, "made where a capture may forbid it");
    *exec = (cudaGraphExec_t)graph;
    return no_graphs ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t __wrap_cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const cudaKernelNodeParams *p)
{
    Node *const n = (Node *)node;
    bool mine = false;
    for (const Node *other : ((Nodes *)exec)->list) mine |= other == n;
    must(mine && n->kernel == p->func, "the node of another graph or kernel");
    n->word = word_of(p->func, p->gridDim, n->cluster, n->early, p->kernelParams);
    return cudaSuccess;
}
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t)
{
    must(thread_mode == cudaStreamCaptureModeRelaxed, "launched where a capture may forbid it");
    noted += "[";
    for (Node *n : ((Nodes *)exec)->list) noted += n->word, n->word = "?";
    noted += "]";
    return cudaSuccess;
}
cudaError_t __wrap_cudaGraphExecDestroy(cudaGraphExec_t)
{
    return cudaSuccess;
}
cudaError_t __wrap_cudaGraphDestroy(cudaGraph_t graph)
{
    for (Node *n : ((Nodes *)graph)->list) delete n;
    delete (Nodes *)graph;
    graphs--;
    return cudaSuccess;
}
}

// ---- The tests ----------------------------------------------------------------------------------

__global__ void first_kernel(int) {}
__global__ void second_kernel(int, double) {}

static int checks, failures;

static void expect(const char *what, const std::string &want)
{
    checks++;
    if (noted != want) {
        printf("%s: %s, wanted %s\n", what, noted.c_str(), want.c_str());
        failures++;
    }
    must(thread_mode == cudaStreamCaptureModeGlobal, "the thread's capture mode was not restored");
    noted.clear();
}

static void expect_graphs(const char *what, int want)
{
    checks++;
    if (graphs == want) return;
    printf("%s: %d graphs, wanted %d\n", what, graphs, want);
    failures++;
}

static cudaStream_t stream_of(int i)
{
    return (cudaStream_t)(uintptr_t)(4096 * (i + 1));
}

static void a(Launches *to, unsigned blocks, int cluster, bool early, int argument)
{
    must(!add_launch(first_kernel, dim3(blocks), dim3(32), 0, cluster, early, to, argument), "a");
}
static void b(Launches *to, unsigned blocks, bool early, int one, double other)
{
    must(!add_launch(second_kernel, dim3(blocks), dim3(32), 0, 1, early, to, one, other), "b");
}
static void go(const Launches &all, bool overlap, int stream)
{
    must(!run(all, overlap, stream_of(stream)), "run");
}

// a, early and in clusters, then b.
static void two(int stream, bool overlap, unsigned blocks, int argument, bool b_early = true)
{
    Launches all;
    a(&all, blocks, 4, true, argument);
    b(&all, blocks + 1, b_early, argument + 1, 0.5);
    go(all, overlap, stream);
}

static void check_ways(void)
{
    Launches one, late, five, six;
    a(&one, 3, 1, true, 7);
    go(one, false, 0);
    expect("one kernel", "a3/1!(7) ");
    expect_graphs("one kernel", 0);

    // In a graph the first has no edge, so it is not early.
    two(0, false, 8, 1);
    expect("two", "[a8/4(1) b9/1!(2,0.5) ]");
    two(0, false, 12, 5);
    expect("again, other grids and arguments", "[a12/4(5) b13/1!(6,0.5) ]");
    expect_graphs("again", 1);
    two(0, false, 8, 1, false);
    expect("the second not early", "[a8/4(1) b9/1(2,0.5) ]");
    expect_graphs("the second not early", 2);
    two(0, true, 8, 1);
    expect("overlapping", "a8/4!(1) b9/1!(2,0.5) ");
    capturing = true;
    two(1, false, 8, 1);
    capturing = false;
    expect("captured", "a8/4!(1) b9/1!(2,0.5) ");
    expect_graphs("captured", 2);

    b(&late, 1, false, 1, 1.5), a(&late, 2, 1, true, 2);
    go(late, true, 0);
    expect("nothing to overlap", "[b1/1(1,1.5) a2/1!(2) ]");
    for (int i = 0; i < 5; i++) a(&five, 1, 1, i > 0, i);
    go(five, false, 0);
    expect("five", "[a1/1(0) a1/1!(1) a1/1!(2) a1/1!(3) a1/1!(4) ]");
    for (int i = 0; i < 5; i++) a(&six, 1, 1, i > 0, i);
    checks++;
    if (!add_launch(first_kernel, dim3(1), dim3(32), 0, 1, false, &six, 6)) {
        printf("six kernels were taken\n");
        failures++;
    }
    expect_graphs("five", 4);
}

static void check_failure(void)
{
    const int before = graphs;
    no_graphs = true;
    for (int time = 0; time < 2; time++) {
        two(2, false, 8, time);
        expect("no graph to be had", time ? "a8/4!(1) b9/1!(2,0.5) " : "a8/4!(0) b9/1!(1,0.5) ");
    }
    no_graphs = false;
    expect_graphs("no graph to be had", before);
}

// 64 graphs are kept; the one that was used longest ago makes room.
static void check_room(void)
{
    for (int i = 0; i < 64; i++) two(100 + i, false, 8, i);
    expect_graphs("as many as are kept", 64);
    two(100, false, 8, 0);
    two(200, false, 8, 0); // in the place of stream 101
    noted.clear();
    two(100, false, 8, 3);
    two(102, false, 8, 4);
    expect("what was kept", "[a8/4(3) b9/1!(4,0.5) ][a8/4(4) b9/1!(5,0.5) ]");
    expect_graphs("one more", 64);
    two(101, false, 8, 5);
    expect("what was not", "[a8/4(5) b9/1!(6,0.5) ]");
    expect_graphs("two more", 64);
}

// Kernels are templates, of which some are made; a plan may ask for one that is not, or for more
// threads than it has registers for.
static void check_kernels(void)
{
    auto added = [](cudaError_t error, const char *way, gd_dtype dtype, int64_t rows,
                    int64_t cols) {
        checks++;
        if (!error) return;
        failures++;
        printf("no kernel for a plan: %s, %s, %lld x %lld\n", way, gd_dtype_name(dtype),
               (long long)rows, (long long)cols);
    };
    for (gd_dtype dtype : {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16})
        for (int64_t cols = 8; cols <= 262144; cols += 8)
            for (int64_t rows : {100, 200, 1000}) {
                Forward f = {};
                Backward b = {};
                f.rows = b.rows = rows, f.cols = b.cols = cols;
                f.weight_dtype = b.weight_dtype = dtype;
                Launches forward, backward, small;
                const ForwardPlan fp = plan_forward(rows, cols, dtype);
                const BackwardPlan bp = plan_backward(rows, cols, dtype);
                const BackwardPlan sp = plan_backward_small(rows, cols, dtype);
                added(add_forward(f, fp, dtype, &forward), "forward", dtype, rows, cols);
                added(bp.kernel == RING ? add_backward_ring(b, bp, dtype, &backward)
                                        : add_backward_rows(b, bp, dtype, &backward),
                      "backward", dtype, rows, cols);
                if (sp.kernel == SMALL)
                    added(add_backward_small(b, {}, sp, dtype, &small), "small backward", dtype,
                          rows, cols);
            }
}

int main(void)
{
    check_ways();
    check_failure();
    check_room();
    check_kernels();
    printf("%d checks, %d failures\n", checks, failures);
    return failures ? 1 : 0;
}
