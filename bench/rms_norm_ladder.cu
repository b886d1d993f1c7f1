// rms_norm_ladder.cu - gradus-bench rms_norm --device cuda --ladder: the kernels of
// kernels/rms_norm/ladder.cu, each checked against ours and timed together with the ceiling.
#include "rms_norm/ladder.h"

#include "rms_norm_cuda.h"
#include "rms_norm_work.cuh"

// The largest difference of float32 numbers, relative to the largest number.
static double difference(const std::vector<char> &got, const std::vector<char> &want)
{
    double error = 0, largest = 0;
    for (size_t i = 0; i < want.size() / 4; i++) {
        const double a = number(want.data(), GD_FLOAT32, i);
        error = worse(error, fabs(number(got.data(), GD_FLOAT32, i) - a));
        largest = fmax(largest, fabs(a));
    }
    return error / largest;
}

// One size.
class Ladder
{
  public:
    explicit Ladder(const Shape &s)
        : work(s), scratch(work.buffers.sizes[DX]), // rungs of the backward need M x N partial sums
          right(check(s) < 1)                       // ours is the reference for the others
    {
    }
    bool print()
    {
        forward_ceiling = ceiling_seconds(work.buffers, work.forward_traffic());
        backward_ceiling = ceiling_seconds(work.buffers, work.backward_traffic());
        const double bytes = (double)work.buffers.sizes[DX];
        printf("\n%lld x %lld float32; ceilings %.0f and %.0f GB/s\n\n"
               "| rung | us | GB/s | share of the ceiling | largest error |\n"
               "|---|---:|---:|---:|---:|\n",
               (long long)work.shape.rows, (long long)work.shape.cols,
               2 * bytes / forward_ceiling / 1e9, 3 * bytes / backward_ceiling / 1e9);
        print_forward();
        print_backward();
        return right;
    }

  private:
    Work work;
    Memory scratch;
    bool right;
    double forward_ceiling, backward_ceiling;

    float *buffer(int set, int b) const
    {
        return (float *)work.buffers.get(set, b);
    }
    std::vector<char> seen(int b) const
    {
        return to_host(buffer(0, b), std::min<size_t>(work.buffers.sizes[(size_t)b], 1 << 24));
    }
    void row(const char *name, bool backward, double seconds, double error)
    {
        const double bytes = (backward ? 3.0 : 2.0) * (double)work.buffers.sizes[DX];
        const double ceiling = backward ? backward_ceiling : forward_ceiling;
        printf("| %s | %.1f | %.0f | %.3f | %.1e |\n", name, seconds * 1e6, bytes / seconds / 1e9,
               ceiling / seconds, error);
        fflush(stdout);
        right = right && error < 1e-4;
    }
    template <class Launch>
    double timed(const Launch &launch) const
    {
        return seconds_of(work.buffers.sets, 3.0 * (double)work.buffers.sizes[DX], 7, launch);
    }

    void print_forward()
    {
        work.forward(0, nullptr);
        const std::vector<char> y = seen(DX);
        for (int rung = 0; rung < gd_ladder_forward_rungs; rung++) {
            auto launch = [&](int set, cudaStream_t stream) {
                return !gd_ladder_forward(rung, buffer(set, DX), (float *)work.rstd.p,
                                          buffer(set, STREAM), (const float *)work.weight.p,
                                          work.shape.rows, work.shape.cols, 1e-5f, stream);
            };
            must(cudaMemset(buffer(0, DX), 0xff, work.buffers.sizes[DX]), "poison");
            launch(0, nullptr);
            const double error = difference(seen(DX), y);
            row(gd_ladder_forward_name(rung), false, timed(launch), error);
        }
        row("ours", false,
            timed([&](int set, cudaStream_t stream) { return work.forward(set, stream); }), 0);
    }
    void print_backward()
    {
        const size_t dw_bytes = work.weights * 4;
        work.prepare_rstd(0), work.backward(0, nullptr);
        const std::vector<char> dx = seen(DX), dw = to_host(work.dweight.p, dw_bytes);
        for (int rung = 0; rung < gd_ladder_backward_rungs; rung++) {
            auto launch = [&](int set, cudaStream_t stream) {
                return !gd_ladder_backward(
                    rung, buffer(set, DX), (float *)work.dweight.p, (float *)scratch.p,
                    buffer(set, BRANCH), buffer(set, STREAM), (const float *)work.rstd.p,
                    (const float *)work.weight.p, work.shape.rows, work.shape.cols, stream);
            };
            must(cudaMemset(buffer(0, DX), 0xff, work.buffers.sizes[DX]), "poison");
            must(cudaMemset(work.dweight.p, 0xff, dw_bytes), "poison");
            launch(0, nullptr);
            const double error =
                worse(difference(seen(DX), dx), difference(to_host(work.dweight.p, dw_bytes), dw));
            row(gd_ladder_backward_name(rung), true, timed(launch), error);
        }
        row("ours", true,
            timed([&](int set, cudaStream_t stream) { return work.backward(set, stream); }), 0);
    }
};

extern "C" bool bench_rms_norm_ladder(const bench_options *o)
{
    const gd_dtype f32 = GD_FLOAT32;
    if (o->rows) return Ladder({f32, f32, o->rows, o->cols, 0, false}).print();
    bool right = Ladder({f32, f32, 2048, 8192, 0, false}).print();
    if (!o->quick) right &= Ladder({f32, f32, 262144, 4096, 0, false}).print();
    return right;
}
