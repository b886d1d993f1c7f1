// launch.cu - puts the kernels of a call on a stream.
//
// To launch a kernel takes 2 to 4 us of the host, and most backwards are two kernels or more; a
// small one takes the GPU less than that. A graph of several is launched faster than one kernel.
// So the first time that a stream gets some sequence of kernels they are made into a graph, which
// is kept; then, and from then on, it is given the arguments of the call, half a microsecond a
// kernel, and launched. (Parameters are copied when a graph is launched: it may be given the next
// call's while it runs.)
//
// What it costs: the first kernel of a graph begins only when all that was on the stream has ended,
// though a fast one was made to bring its first rows to L2 before that (async.cuh). Behind a busy
// GPU that is 1 to 4 us a call, so a caller may choose to overlap. While a stream is captured into
// the caller's own graph, the kernels go there one by one and do overlap.
#include "rms_norm/launch.cuh"

#include <pthread.h>

namespace gd_rms
{

// What a kernel has been allowed on a device: dynamic shared memory, clusters of more than 8.
struct Allowed {
    uint64_t key; // the kernel's address and the device; 0: nobody's yet
    size_t shared;
    bool wide;
};
constexpr unsigned ALLOWED = 1024;

// Finds its entry, or the free one where it belongs; NULL in a full table.
static Allowed *find_allowed(Allowed *table, uint64_t key)
{
    for (unsigned i = 0, at = (unsigned)(key >> 12); i < ALLOWED; i++) {
        Allowed *const entry = &table[(at + i) % ALLOWED];
        const uint64_t found = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
        if (found == key || found == 0) return entry;
    }
    return nullptr;
}

// More than 48 KB of shared memory, and clusters of more than 8, must be asked for. That takes half
// a microsecond of the host's time, so it is done once, and again only where more is wanted.
cudaError_t allow(const void *kernel, size_t shared, int cluster)
{
    static Allowed table[ALLOWED];
    static char lock; // held by who writes to the table
    if (shared <= 48 * 1024 && cluster <= 8) return cudaSuccess;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error) return error;
    const uint64_t key = (uint64_t)(uintptr_t)kernel << 8 | (unsigned)device % 256;
    Allowed *entry = find_allowed(table, key);
    if (entry && entry->key == key && __atomic_load_n(&entry->shared, __ATOMIC_ACQUIRE) >= shared &&
        (cluster <= 8 || entry->wide))
        return cudaSuccess;

    while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) {
    }
    entry = find_allowed(table, key);
    const bool known = entry && entry->key == key;
    const size_t most = known && entry->shared > shared ? entry->shared : shared;
    const bool wide = cluster > 8 || (known && entry->wide);
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most);
    if (!error && wide)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (!error && entry) {
        entry->wide = wide;
        __atomic_store_n(&entry->shared, most, __ATOMIC_RELEASE);
        __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
    }
    __atomic_clear(&lock, __ATOMIC_RELEASE);
    return error;
}

static cudaLaunchAttribute cluster_attribute(const Launch &l)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)l.cluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    return attribute;
}

static cudaError_t run_one(const Launch &l, cudaStream_t stream)
{
    cudaLaunchAttribute attribute[2];
    unsigned attributes = 0;
    if (l.cluster > 1) attribute[attributes++] = cluster_attribute(l);
    if (l.early) {
        attribute[attributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[attributes].val.programmaticStreamSerializationAllowed = 1;
        attributes++;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = l.blocks;
    config.blockDim = l.threads;
    config.dynamicSmemBytes = l.shared;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = attributes;
    return cudaLaunchKernelExC(&config, l.kernel, (void **)l.argument);
}

// ---- Graphs -------------------------------------------------------------------------------------

// A sequence of kernels on a stream. No graph runs twice at once, a second launch would wait even
// on another stream: so each stream has its own.
struct Graph {
    int device;
    cudaStream_t stream;
    int count; // 0: a free entry
    struct {
        const void *kernel;
        int cluster;
        bool early;
        cudaGraphNode_t node;
    } step[MOST_LAUNCHES];
    uint64_t used; // the higher, the later
    cudaGraph_t graph;
    cudaGraphExec_t exec; // NULL: could not be made
};

static bool fits(const Graph &g, const Launches &all, int device, cudaStream_t stream)
{
    if (g.stream != stream || g.count != all.count || g.device != device) return false;
    for (int i = 0; i < g.count; i++) {
        const Launch &l = all.launch[i];
        if (g.step[i].kernel != l.kernel || g.step[i].cluster != l.cluster ||
            g.step[i].early != l.early)
            return false;
    }
    return true;
}

static cudaKernelNodeParams parameters(const Launch &l)
{
    cudaKernelNodeParams p = {};
    p.func = (void *)l.kernel;
    p.gridDim = l.blocks;
    p.blockDim = l.threads;
    p.sharedMemBytes = (unsigned)l.shared;
    p.kernelParams = (void **)l.argument;
    return p;
}

static cudaError_t add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to, bool early)
{
#if CUDART_VERSION < 12030 // nothing starts early within a graph
    (void)early;
    return cudaGraphAddDependencies(graph, &from, &to, 1);
#else
    cudaGraphEdgeData edge = {};
    if (early) {
        edge.from_port = cudaGraphKernelNodePortProgrammatic;
        edge.type = cudaGraphDependencyTypeProgrammatic;
    }
#if CUDART_VERSION < 13000
    return cudaGraphAddDependencies_v2(graph, &from, &to, &edge, 1);
#else
    return cudaGraphAddDependencies(graph, &from, &to, &edge, 1);
#endif
#endif
}

static cudaError_t make(Graph *g, const Launches &all)
{
    cudaError_t error = cudaGraphCreate(&g->graph, 0);
    for (int i = 0; i < all.count && !error; i++) {
        const Launch &l = all.launch[i];
        const cudaKernelNodeParams p = parameters(l);
        cudaGraphNode_t *const node = &g->step[i].node;
        error = cudaGraphAddKernelNode(node, g->graph, nullptr, 0, &p);
        if (!error && l.cluster > 1) {
            const cudaLaunchAttribute cluster = cluster_attribute(l);
            error = cudaGraphKernelNodeSetAttribute(*node, cluster.id, &cluster.val);
        }
        if (!error && i > 0) error = add_edge(g->graph, g->step[i - 1].node, *node, l.early);
    }
    return error ? error : cudaGraphInstantiateWithFlags(&g->exec, g->graph, 0);
}

static void destroy(Graph *g)
{
    if (g->exec) cudaGraphExecDestroy(g->exec); // if it runs, once it has run
    if (g->graph) cudaGraphDestroy(g->graph);
    *g = Graph{};
}

// The graph of these kernels; a new one takes the place of the one that was used longest ago.
static Graph *find_graph(const Launches &all, int device, cudaStream_t stream)
{
    static Graph table[64];
    static uint64_t calls;
    Graph *g = table;
    for (Graph &candidate : table) {
        if (fits(candidate, all, device, stream)) {
            candidate.used = ++calls;
            return &candidate;
        }
        if (candidate.used < g->used) g = &candidate;
    }
    destroy(g);
    if (make(g, all)) {
        destroy(g);
        (void)cudaGetLastError(); // no matter: there is another way
    }
    g->device = device, g->stream = stream, g->count = all.count;
    for (int i = 0; i < all.count; i++) {
        const Launch &l = all.launch[i];
        g->step[i].kernel = l.kernel, g->step[i].cluster = l.cluster, g->step[i].early = l.early;
    }
    g->used = ++calls;
    return g;
}

// Leaves *done false, and nothing done, where there is no graph.
static cudaError_t run_graph(const Launches &all, cudaStream_t stream, bool *done)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int device = 0;
    // Another thread may be capturing, in the mode that forbids to all what may allocate; a new
    // graph does, and when it is launched for the first time.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t error = cudaGetDevice(&device);
    if (!error) error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (error) return error;
    pthread_mutex_lock(&lock); // up to the launch: the arguments are the graph's
    const Graph *const g = find_graph(all, device, stream);
    *done = g->exec;
    for (int i = 0; i < all.count && *done && !error; i++) {
        const cudaKernelNodeParams p = parameters(all.launch[i]);
        error = cudaGraphExecKernelNodeSetParams(g->exec, g->step[i].node, &p);
    }
    if (*done && !error) error = cudaGraphLaunch(g->exec, stream);
    pthread_mutex_unlock(&lock);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
}

cudaError_t run(const Launches &all, bool overlap, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    bool done = false;
    if (all.count > 1 && !(overlap && all.launch[0].early)) {
        cudaStreamCaptureStatus status;
        error = cudaStreamIsCapturing(stream, &status);
        if (!error && status == cudaStreamCaptureStatusNone) error = run_graph(all, stream, &done);
    }
    for (int i = 0; i < all.count && !done && !error; i++) error = run_one(all.launch[i], stream);
    return error;
}

} // namespace gd_rms
