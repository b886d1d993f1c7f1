/* attention_decode_cpu.c - the CPU kernel of attention_decode. */
#include "decode/attention_decode.h"
#include "inline_exp.h"
#include "arguments.h"

typedef struct step {
    attention_decode_sizes z;
    const REAL *qkv;
    REAL *keys, *values, *y;
    const REAL *cosine, *sine; /* [D/2] of the position */
    int64_t position;
    bool interleaved;
    REAL *scratch; /* `each` numbers for every head */
    int64_t each;
} step;

static gd_status fill_angles(const gd_call *call, step *s)
{
    const int64_t pairs = s->z.D / 2;
    const double base = ((const attention_decode_args *)call->args)->base;
    REAL *cosine = gd_call_scratch(call, (size_t)s->z.D * sizeof *cosine);
    if (!cosine) return GD_ERROR_MEMORY;
    REAL *sine = cosine + pairs;
    for (int64_t i = 0; i < pairs; i++) {
        const double angle = (double)s->position * pow(base, -(double)i / (double)pairs);
        cosine[i] = (REAL)cos(angle), sine[i] = (REAL)sin(angle);
    }
    s->cosine = cosine, s->sine = sine;
    return GD_OK;
}

/* to [D] = a head of qkv, rotated. */
static void turn(const step *s, REAL *to, const REAL *from)
{
    const int64_t pairs = s->z.D / 2;
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t first = s->interleaved ? 2 * i : i;
        const int64_t second = s->interleaved ? 2 * i + 1 : i + pairs;
        const REAL a = from[first], b = from[second], c = s->cosine[i], w = s->sine[i];
        to[first] = a * c - b * w;
        to[second] = a * w + b * c;
    }
}

/* Stores the token's own keys and values of sequence b. */
static void keep(const step *s, int64_t b)
{
    const attention_decode_sizes *z = &s->z;
    const REAL *k = s->qkv + (b * (z->H + 2 * z->KV) + z->H) * z->D, *v = k + z->KV * z->D;
    const int64_t row = (b * z->capacity + s->position) * z->KV * z->D;
    for (int64_t h = 0; h < z->KV; h++) turn(s, s->keys + row + h * z->D, k + h * z->D);
    memcpy(s->values + row, v, (size_t)(z->KV * z->D) * sizeof *v);
}

/* Head h of sequence b; q [D] and weight [position + 1] are temporary. */
static void attend(const step *s, int64_t b, int64_t h, REAL *q, REAL *weight)
{
    const attention_decode_sizes *z = &s->z;
    const int64_t D = z->D, count = s->position + 1, row = z->KV * D;
    const int64_t first = b * z->capacity * row + h / (z->H / z->KV) * D;
    const REAL scale = (REAL)(1 / sqrt((double)D));
    REAL *y = s->y + (b * z->H + h) * D, largest = -(REAL)INFINITY;
    turn(s, q, s->qkv + (b * (z->H + 2 * z->KV) + h) * D);
    for (int64_t j = 0; j < count; j++) {
        const REAL *k = s->keys + first + j * row;
        REAL score = 0;
#pragma omp simd reduction(+ : score)
        for (int64_t d = 0; d < D; d++) score += q[d] * k[d];
        weight[j] = scale * score;
        if (weight[j] > largest) largest = weight[j];
    }
    double total = 0;
    for (int64_t j = 0; j < count; j++) {
        weight[j] = inline_exp(weight[j] - largest);
        total += (double)weight[j];
    }
    memset(y, 0, (size_t)D * sizeof *y);
    for (int64_t j = 0; j < count; j++) {
        const REAL *v = s->values + first + j * row, w = (REAL)((double)weight[j] / total);
#pragma omp simd
        for (int64_t d = 0; d < D; d++) y[d] += w * v[d];
    }
}

static void attend_head(const void *work, int64_t i)
{
    const step *s = work;
    REAL *scratch = s->scratch + i * s->each;
    attend(s, i / s->z.H, i % s->z.H, scratch, scratch + s->z.D);
}

gd_status GD_REAL_NAME(attention_decode_forward)(const gd_call *call)
{
    step s = {.z = attention_decode_sizes_of(call),
              .qkv = gd_data(call->input[0]),
              .keys = gd_data(call->input[1]),
              .values = gd_data(call->input[2]),
              .y = gd_data(call->output[0]),
              .position = *(const int32_t *)gd_data(call->input[3]),
              .interleaved = ((const attention_decode_args *)call->args)->interleaved};
    const attention_decode_sizes *z = &s.z;
    if (s.position < 0 || s.position >= z->capacity)
        return gd_refuse(call, "position is %lld, wanted 0 to %lld, the rows of keys %s",
                         (long long)s.position, (long long)z->capacity - 1,
                         gd_shape_text(call->input[1]).text);
    if (gd_tensor_count(call->output[0]) == 0) return GD_OK;
    const int64_t heads = z->B * z->H;
    s.each = z->D + s.position + 1;
    s.scratch = gd_call_scratch(call, (size_t)(heads * s.each) * sizeof *s.scratch);
    if (!s.scratch || fill_angles(call, &s)) return gd_error_status(call->context);
    for (int64_t b = 0; b < z->B; b++) keep(&s, b);
    gd_for_each(gd_threads_for(call->threads, heads * s.each * z->D), heads, attend_head, &s);
    return GD_OK;
}
