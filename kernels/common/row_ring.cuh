// row_ring.cuh - for kernels on rows that are too wide for a block: a pipeline in shared memory,
// the producer that fills it, the order in which the consumers process it, and the exchange of sums
// between the warps of a cluster. It needs the bulk copies and clusters of compute capability 9.0.
//
// A cluster of blocks, or one alone, shares a row, each block a slice of it; a cluster processes
// rows r, r + P, r + 2P, ..., so that all clusters read from the same region of memory, which DRAM
// serves faster. One warp of each block is the producer: it issues bulk copies of the coming rows
// into the stages of a ring, and waits only for stages to be released. The other warps are the
// consumers. A stage holds one pack of each input for each of their threads; a row is CHUNKS
// stages. They make two passes over a row: pass 1 computes its sum; pass 2, when the sum is known,
// writes the result from the same stages, which are still in shared memory.
//
// Pass 2 of a row is interleaved with pass 1 of the next, LEAD stages behind. With three stages to
// a row and a LEAD of 1 a step is:
//
//     read 0     read 1, write 0'     read 2, write 1'     write 2'     send the sum
//
// where ' marks the row before. So a warp that waits for a stage to arrive has just written one:
// reads and writes are issued at an even rate, whereas a row written at once is a burst that leaves
// DRAM with nothing to write before it. And the sums have LEAD + 1 stages' time to arrive.
//
// Why two sets of sums (EXCHANGES) are enough: a warp sends for row i + 2 at the end of step i + 2.
// In that step it has waited for the sums of row i + 1, which the last warp sent at the end of step
// i + 1, and so after it had read the sums of row i.
#ifndef GD_ROW_RING_CUH
#define GD_ROW_RING_CUH

#include <stddef.h>

#include "async.cuh"
#include "team.cuh"

namespace gd_async
{

constexpr int EXCHANGES = 2;
constexpr int MOST_SUMS = 16 * 16; // warps of a cluster
constexpr int MOST_STAGES = 32;
constexpr int SOON = 2; // rows of a cluster that are prefetched to L2 before it may read them

struct RingShared {
    uint64_t full[MOST_STAGES];  // a stage has arrived
    uint64_t empty[MOST_STAGES]; // all threads have released it
    uint64_t arrived[EXCHANGES]; // all sums of a row have arrived
    float sums[EXCHANGES][MOST_SUMS];
};
constexpr int RING_AT = (sizeof(RingShared) + 127) / 128 * 128;

// Rows to be read, `stride` elements apart.
struct Input {
    const void *data;
    int64_t stride;
};

// A position in a ring.
struct RingPlace {
    int stage;
    uint32_t parity;
    __device__ void next(int stages)
    {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

// One block's part of the ring: the inputs are of types T..., V elements to a pack.
template <int V, class... T>
struct Ring {
    static constexpr int INPUTS = sizeof...(T), ALL = (0 + ... + (V * (int)sizeof(T)));
    uint32_t base; // the address of RingShared; behind it is the ring
    const int stages, threads, warps, warp, lane; // threads: of the consumers
    const int blocks, rank;                       // of the cluster
    const int begin, length;                      // this block's slice of a row, in packs
    const int64_t rows, first, step;              // the cluster's: first, first + step, ...
    RingPlace ahead, behind;                      // stages of pass 1 and of pass 2
    RingPlace sent, got;                          // sums, likewise

    __device__ Ring(char *shared, int stages, int64_t rows, int64_t cols)
        : base(shared_address(shared)), stages(stages), threads((int)blockDim.x - 32),
          warps(threads / 32), warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32),
          blocks((int)cluster_size()), rank((int)cluster_rank()),
          begin(rank * (((int)cols / V + blocks - 1) / blocks)),
          length(min(((int)cols / V + blocks - 1) / blocks, (int)cols / V - begin)), rows(rows),
          first(blockIdx.x / blocks),
          step(gridDim.x / blocks), ahead{0, 0}, behind{0, 0}, sent{0, 0}, got{0, 0}
    {
        // Otherwise the compiler computes it again wherever it is used.
        asm volatile("" : "+r"(base));
        // total() adds up more of them than there are warps.
        for (int i = (int)threadIdx.x; i < EXCHANGES * MOST_SUMS; i += (int)blockDim.x)
            ((RingShared *)shared)->sums[i / MOST_SUMS][i % MOST_SUMS] = 0;
        if (threadIdx.x == 0) {
            for (RingPlace p = {0, 0}; p.stage < stages; p.stage++) {
                barrier_init(full(p), 1);
                barrier_init(empty(p), threads);
            }
            for (RingPlace p = {0, 0}; p.stage < EXCHANGES; p.stage++)
                barrier_init(arrived(p), blocks == 1 ? 1 + warps : 1);
            barrier_init_done();
            for (RingPlace p = {0, 0}; p.stage < EXCHANGES; p.stage++) expect_sums(p);
        }
        __syncthreads();
        cluster_sync();
    }

    __device__ uint32_t full(const RingPlace &place) const
    {
        return base + (uint32_t)(offsetof(RingShared, full) + 8 * place.stage);
    }
    __device__ uint32_t empty(const RingPlace &place) const
    {
        return base + (uint32_t)(offsetof(RingShared, empty) + 8 * place.stage);
    }
    __device__ uint32_t arrived(const RingPlace &place) const
    {
        return base + (uint32_t)(offsetof(RingShared, arrived) + 8 * place.stage);
    }
    __device__ uint32_t sums(const RingPlace &place) const
    {
        return base +
               (uint32_t)(offsetof(RingShared, sums) + sizeof(float) * MOST_SUMS * place.stage);
    }
    __device__ uint32_t stage(const RingPlace &place) const
    {
        return base + (uint32_t)(RING_AT + ALL * threads * place.stage);
    }

    // Calls body(i, this block's slice of the row, the bytes of a pack) for input i.
    template <class Body>
    __device__ void each_input(const Input *inputs, int64_t row, const Body &body) const
    {
        constexpr int bytes[] = {V * (int)sizeof(T)...};
#pragma unroll
        for (int i = 0; i < INPUTS; i++)
            body((const char *)inputs[i].data +
                     (row * inputs[i].stride + begin * V) * (bytes[i] / V),
                 bytes[i]);
    }

    __device__ bool is_producer() const
    {
        return warp == warps;
    }

    // Brings the first rows to L2 and waits until the preceding kernel has ended.
    __device__ void start(const Input *inputs) const
    {
        const int64_t row = first + lane * step;
        let_next_start();
        if (is_producer() && lane < SOON && row < rows && length > 0)
            each_input(inputs, row,
                       [&](const char *from, int bytes) { bulk_prefetch(from, length * bytes); });
        wait_for_previous();
    }

    // The producer's part. In the first round the parity is that of the phase before the first,
    // which counts as complete.
    __device__ void produce(const Input *inputs, int chunks, bool keep)
    {
        RingPlace place = {0, 1};
        const uint64_t policy = load_policy(keep);
        for (int64_t row = first; lane == 0 && row < rows; row += step)
#pragma unroll 1
            for (int t = 0; t < chunks; t++) {
                const int at = t * threads, there = max(0, min(threads, length - at));
                uint32_t to = stage(place);
                barrier_wait(empty(place), place.parity);
                barrier_expect(full(place), ALL * there);
                each_input(inputs, row, [&](const char *from, int bytes) {
                    if (there)
                        bulk_copy(to, from + (int64_t)at * bytes, bytes * there, full(place),
                                  policy);
                    to += bytes * threads;
                });
                place.next(stages);
            }
        __syncwarp();
        cluster_sync();
    }

    // This thread's pack of a stage, for the input of type U that follows `before` bytes per
    // thread. Beyond the row's end it is whatever the stage held before.
    template <class U>
    __device__ gd_raw<U, V> load(const RingPlace &place, int before) const
    {
        gd_raw<U, V> raw;
        const uint32_t from = stage(place) + before * threads + (uint32_t)sizeof raw * threadIdx.x;
#pragma unroll
        for (int k = 0; k < (int)sizeof raw / 16; k++) raw.part[k] = load_shared(from + 16 * k);
        return raw;
    }

    // This thread's packs of a row are c * threads + threadIdx.x for c below this.
    __device__ int mine() const
    {
        return (length - (int)threadIdx.x + threads - 1) / threads;
    }

    // Of a block alone the warps arrive themselves.
    __device__ void expect_sums(const RingPlace &place) const
    {
        barrier_expect(arrived(place), blocks == 1 ? 0 : 4 * blocks * warps);
    }

    // Sends this warp's sum to every block of the cluster.
    __device__ void send_sum(float v)
    {
        v = gd_sum(v);
        const uint32_t to = sums(sent) + 4 * (uint32_t)(rank * warps + warp);
        if (blocks > 1 && lane < blocks) cluster_send(to, v, arrived(sent), (uint32_t)lane);
        if (blocks == 1 && lane == 0) store_shared(to, v), barrier_arrive(arrived(sent));
        sent.next(EXCHANGES);
    }

    // The sum over the row, in the same order in every warp.
    __device__ float total()
    {
        if (blocks == 1)
            barrier_wait(arrived(got), got.parity);
        else
            barrier_wait_cluster(arrived(got), got.parity);
        if (threadIdx.x == 0) expect_sums(got);
        const uint32_t from = sums(got) + 4 * (uint32_t)lane;
        float v = 0;
#pragma unroll
        for (int i = 0; i < MOST_SUMS; i += 32) v += load_shared_float(from + 4 * i);
        got.next(EXCHANGES);
        return gd_sum(v);
    }

    // Every thread arrives for itself. One lane could arrive for its warp after a __syncwarp, which
    // is no faster, but compute-sanitizer's racecheck would not see that the other lanes' reads
    // come first.
    __device__ void give_back()
    {
        barrier_arrive(empty(behind));
        behind.next(stages);
    }
};

// The consumers' part: both passes of all rows, by the functions of `work`:
//   load(place)              the thread's packs of a stage, type Work::Packs
//   add(sum, packs, c)       pass 1: returns sum with chunk c of a row added
//   begin(row, sum)          before pass 2: the sum over the row
//   write(row, i, packs, c)  pass 2 of chunk c, pack i of the row
// Beyond the row's end packs are whatever the stage held before; they are not summed or written.
template <class Work, class Ring>
__device__ inline void process_rows(Work &work, Ring &ring)
{
    constexpr int CHUNKS = Work::CHUNKS, LEAD = Work::LEAD;
    const int mine = ring.mine();
    // Pass 1 of row + ring.step, if READS, and pass 2 of `row`, if WRITES.
    const auto step = [&](int64_t row, auto reads, auto writes) {
        constexpr bool READS = decltype(reads)::value, WRITES = decltype(writes)::value;
        float sum = 0;
#pragma unroll
        for (int t = 0; t < CHUNKS + LEAD; t++) {
            const bool read = READS && t < CHUNKS, write = WRITES && t >= LEAD;
            typename Work::Packs before;
            if (write && Work::EARLY) before = work.load(ring.behind);
            if (read) {
                barrier_wait(ring.full(ring.ahead), ring.ahead.parity);
                const typename Work::Packs now = work.load(ring.ahead);
                ring.ahead.next(ring.stages);
                const float more = work.add(sum, now, t);
                if (t < mine) sum = more;
            }
            if (write && t == LEAD) work.begin(row, ring.total());
            if (write && !Work::EARLY) before = work.load(ring.behind);
            if (write && t - LEAD < mine)
                work.write(row, ring.begin + (t - LEAD) * ring.threads + (int)threadIdx.x, before,
                           t - LEAD);
            if (write) ring.give_back();
        }
        if (READS) ring.send_sum(sum);
    };
    constexpr std::true_type yes;
    constexpr std::false_type no;
    if (ring.first < ring.rows) {
        int64_t row = ring.first;
        step(row - ring.step, yes, no);
#pragma unroll 1
        for (; row + ring.step < ring.rows; row += ring.step) step(row, yes, yes);
        step(row, no, yes);
    }
}

} // namespace gd_async
#endif
