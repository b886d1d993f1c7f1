/* attention_forward_cpu.c - attention by an online softmax (Milakov & Gimelshein 2018,
 * arXiv:1805.02867): each query keeps its largest score so far, and sums relative to it. */
#include "attention/tiles.h"
#include "kernel_cpu.h"

/* The temporary memory of one thread. */
typedef struct forward_scratch {
    REAL *keys;    /* [D, KEYS], the tile's keys times scale, as columns */
    REAL *values;  /* [KEYS, E rounded up] */
    REAL *sums;    /* [G, queries, E rounded up]: sum of exp(score - largest) * value */
    double *total; /* [G, queries]: sum of exp(score - largest) */
    REAL *largest; /* [G, queries] */
} forward_scratch;

static size_t forward_room_bytes(const attention_pass *f)
{
    int64_t rows = f->z.G * f->queries, E = gd_round_up(f->z.E, LANES);
    return (size_t)((f->z.D + E) * KEYS + rows * (E + 1)) * sizeof(REAL) +
           (size_t)rows * sizeof(double) + 128;
}

static forward_scratch forward_scratch_at(const attention_pass *f, void *memory)
{
    int64_t rows = f->z.G * f->queries, E = gd_round_up(f->z.E, LANES);
    forward_scratch scratch;
    scratch.total = memory;
    scratch.keys = (REAL *)((char *)memory + gd_round_up(rows * (int64_t)sizeof(double), 64));
    scratch.values = scratch.keys + f->z.D * KEYS;
    scratch.sums = scratch.values + E * KEYS;
    scratch.largest = scratch.sums + rows * E;
    return scratch;
}

/* One row of n scores (n a multiple of LANES), of which `visible` count: replaces them by exp(score
 * - largest), where `largest` is the largest so far, and adds up. Sums relative to an older largest
 * are multiplied by exp(old - new). The sum over the at most KEYS terms of a tile is taken in REAL,
 * lane by lane and then in a tree, so that its error stays at a rounding or two; the sum over the
 * tiles is in double. */
static void softmax_row(REAL *score, int64_t visible, int64_t n, REAL *largest, double *total,
                        REAL *sums, int64_t E)
{
    vec most = vec_all(-INFINITY), sum = {0};
    for (int64_t j = 0; j < n; j += LANES) {
        lanes seen = lane_numbers() < (lane_number)(visible - j);
        vec x = vec_choose(seen, vec_load(score + j), vec_all(-INFINITY));
        vec_store(score + j, x);
        most = vec_larger(x, most);
    }
    REAL most_of_all = vec_largest(most);
    if (!(most_of_all > *largest)) most_of_all = *largest;
    for (int64_t j = 0; j < n; j += LANES) {
#pragma omp simd simdlen(LANES)
        for (int i = 0; i < LANES; i++) score[j + i] = inline_exp(score[j + i] - most_of_all);
        sum += vec_load(score + j);
    }
    if (most_of_all > *largest && *total > 0) {
        REAL factor = inline_exp(*largest - most_of_all);
        *total *= (double)factor;
#pragma omp simd
        for (int64_t e = 0; e < E; e++) sums[e] *= factor;
    }
    *total += (double)vec_sum(sum);
    *largest = most_of_all;
}

/* Chunk c of the queries of the heads that read key head (b, kv). */
static void forward_chunk(const attention_pass *f, int64_t b, int64_t kv, int64_t c,
                          const forward_scratch *scratch)
{
    const attention_sizes *z = &f->z;
    int64_t t0 = c * f->queries, t1 = gd_min64(z->T, t0 + f->queries);
    int64_t E = gd_round_up(z->E, LANES), rows = z->G * f->queries;
    int64_t last = gd_min64(z->S, end_of(f, t1 - 1));
    REAL scores[BLOCK * KEYS] __attribute__((aligned(VECTOR_BYTES)));
    for (int64_t i = 0; i < rows; i++) scratch->largest[i] = -INFINITY, scratch->total[i] = 0;
    memset(scratch->sums, 0, (size_t)(rows * E) * sizeof(REAL));
    for (int64_t s0 = attention_first(z, f->mask.window, t0) / KEYS * KEYS; s0 < last; s0 += KEYS) {
        int64_t keys = gd_min64(KEYS, last - s0), width = gd_round_up(keys, BLOCK);
        int64_t v_row = f->v.row;
        pack_columns(scratch->keys, width, head_of(&f->k, b, s0, kv), f->k.row, keys, z->D,
                     f->scale);
        const REAL *v = whole_rows(scratch->values, head_of(&f->v, b, s0, kv), &v_row, keys, z->E);
        for (int64_t g = 0; g < z->G; g++) {
            for (int64_t t = t0; t < t1; t += BLOCK) {
                int64_t m = gd_min64(BLOCK, t1 - t), at = g * f->queries + t - t0;
                int64_t seen = gd_min64(keys, end_of(f, t + m - 1) - s0);
                if (seen <= 0 || attention_first(z, f->mask.window, t) >= s0 + keys) continue;
                int64_t n = gd_round_up(seen, BLOCK);
                tile_block(m, (int)(n / LANES), scores, KEYS, head_of(&f->q, b, t, kv * z->G + g),
                           f->q.row, 1, scratch->keys, width, z->D, false);
                for (int64_t i = 0; i < m; i++) {
                    int64_t visible = gd_min64(keys, end_of(f, t + i) - s0);
                    if (f->mask.any &&
                        !mask_row(scores + i * KEYS, &f->mask, b, kv * z->G + g, t + i, s0,
                                  attention_first(z, f->mask.window, t + i) - s0, visible))
                        visible = 0;
                    if (visible > 0) {
                        softmax_row(scores + i * KEYS, visible, n, &scratch->largest[at + i],
                                    &scratch->total[at + i], scratch->sums + (at + i) * E, E);
                        if (f->dropout.threshold) {
                            REAL keep[KEYS];
                            dropout_row(keep, &f->dropout, b * z->H + kv * z->G + g, t + i, s0, n);
#pragma omp simd
                            for (int64_t j = 0; j < n; j++) scores[i * KEYS + j] *= keep[j];
                        }
                    } else {
                        memset(scores + i * KEYS, 0, (size_t)n * sizeof(REAL));
                    }
                }
                tile_block(m, (int)(E / LANES), scratch->sums + at * E, E, scores, KEYS, 1, v,
                           v_row, seen, true);
            }
        }
    }
    for (int64_t g = 0; g < z->G; g++) {
        for (int64_t t = t0; t < t1; t++) {
            int64_t at = g * f->queries + t - t0, h = kv * z->G + g;
            REAL *y = head_of(&f->y, b, t, h);
            double total = scratch->total[at];
            REAL factor = total != 0 ? (REAL)(1 / total) : 0; /* 0: it sees no key */
#pragma omp simd
            for (int64_t e = 0; e < z->E; e++) y[e] = scratch->sums[at * E + e] * factor;
            if (f->lse) {
                f->lse[(b * z->H + h) * z->T + t] =
                    (REAL)((double)scratch->largest[at] + log(total));
            }
        }
    }
}

/* The chunks of one thread. */
static void forward_range(const void *work, int64_t i, int64_t end, void *memory)
{
    const attention_pass *f = work;
    forward_scratch scratch = forward_scratch_at(f, memory);
    for (; i < end; i++) {
        const int64_t head = i / f->chunks;
        forward_chunk(f, head / f->z.KV, head % f->z.KV, i % f->chunks, &scratch);
    }
}

gd_status GD_REAL_NAME(attention_forward)(const gd_call *call)
{
    attention_pass f;
    const attention_sizes *z = &f.z;
    if (attention_pass_of(call, &f)) return gd_error_status(call->context);
    if (gd_tensor_count(call->output[0]) == 0 && !f.lse) return GD_OK;
    /* About 256 rows, those of the group's heads together, share the packed keys. */
    f.queries = gd_max64(BLOCK, gd_round_up(256 / gd_max64(1, z->G), BLOCK));
    f.queries = gd_min64(f.queries, gd_round_up(z->T, BLOCK));
    f.chunks = f.queries ? gd_divide_up(z->T, f.queries) : 0;
    /* The number of scores; S is bounded so that it cannot overflow. */
    return gd_each_range(call, z->B * z->H * z->T * gd_min64(z->S, 4096), z->B * z->KV * f.chunks,
                         forward_room_bytes(&f), forward_range, &f);
}
