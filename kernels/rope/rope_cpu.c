/* rope_cpu.c - the CPU kernel of rope: one rotation, by the angle or by its negative. */
#include "rope/rope.h"
#include "vector_math.h"

/* cosine and sine [T, D/2] of every angle, from double: an angle of thousands of radians has no
 * digits to lose in float. */
static bool fill_tables(const gd_call *call, int64_t rows, int64_t pairs, REAL **cosine,
                        REAL **sine)
{
    const gd_rope_args *args = call->args;
    *cosine = gd_call_scratch(call, (size_t)(rows * pairs) * sizeof **cosine);
    *sine = gd_call_scratch(call, (size_t)(rows * pairs) * sizeof **sine);
    double *rate = gd_call_scratch(call, (size_t)pairs * sizeof *rate);
    if (!*cosine || !*sine || !rate) return false;
    for (int64_t i = 0; i < pairs; i++) rate[i] = pow(args->base, -(double)i / (double)pairs);
    int threads = gd_threads_for(call->threads, rows * pairs);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < rows; t++) {
        double position = (double)(args->position + t);
        /* Two loops: in one the compiler would make a sincos of the pair, which has no vector
         * version. */
#pragma omp simd
        for (int64_t i = 0; i < pairs; i++) {
            (*cosine)[t * pairs + i] = (REAL)cos(position * rate[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < pairs; i++) {
            (*sine)[t * pairs + i] = (REAL)sin(position * rate[i]);
        }
    }
    return true;
}

/* One head: out (+)= the pairs (in[i * step], in[i * step + apart]) turned; `way` is the sign of
 * the sine. out may be in. */
static void turn(REAL *out, const REAL *in, const REAL *cosine, const REAL *sine, int64_t pairs,
                 int64_t step, int64_t apart, REAL way, bool add)
{
#pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
        REAL a = in[i * step], b = in[i * step + apart], c = cosine[i], s = way * sine[i];
        REAL turned_a = a * c - b * s, turned_b = a * s + b * c; /* [dx] */
        out[i * step] = add ? out[i * step] + turned_a : turned_a;
        out[i * step + apart] = add ? out[i * step + apart] + turned_b : turned_b;
    }
}

static gd_status rotate(const gd_call *call, const gd_tensor *like, REAL *out, const REAL *in,
                        REAL way, bool add)
{
    const gd_rope_args *args = call->args;
    int64_t positions = gd_tensor_dim(like, 1), heads = gd_tensor_dim(like, 2);
    int64_t width = gd_tensor_dim(like, 3), pairs = width / 2;
    int64_t rows = gd_tensor_dim(like, 0) * positions;
    if (gd_tensor_count(like) == 0) return GD_OK;
    REAL *cosine, *sine;
    if (!fill_tables(call, positions, pairs, &cosine, &sine)) return GD_ERROR_MEMORY;
    int64_t step = args->interleaved ? 2 : 1, apart = args->interleaved ? 1 : pairs;
    int threads = gd_threads_for(call->threads, gd_tensor_count(like));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        int64_t angles = row % positions * pairs;
        for (int64_t h = 0; h < heads; h++) {
            int64_t at = (row * heads + h) * width;
            turn(out + at, in + at, cosine + angles, sine + angles, pairs, step, apart, way, add);
        }
    }
    return GD_OK;
}

gd_status GD_REAL_NAME(rope_forward)(const gd_call *call)
{
    return rotate(call, call->input[0], gd_data(call->output[0]), gd_data(call->input[0]), 1,
                  false);
}

/* The transpose of a rotation turns the other way. */
gd_status GD_REAL_NAME(rope_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return rotate(call, call->dinput[0], gd_data(call->dinput[0]), gd_data(call->doutput[0]), -1,
                  call->accumulate[0]);
}
