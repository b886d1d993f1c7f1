/* attention_backward_cpu.c - the gradients of attention, with the weights computed again from the
 * scores and the saved log-sum-exp, tile by tile (Dao et al. 2022, arXiv:2205.14135). README.md
 * derives, and here a tile has,
 *
 *     P  = exp(scale q k^T - lse)     dP = dy v^T            dS = P (dP - delta)
 *     dq = scale dS k                 dk = scale dS^T q      dv = P^T dy
 *
 * One thread handles everything that reads one key head, so that dk and dv are summed over the
 * tiles of queries, and over the group's query heads, in a fixed order. */
#include "attention/tiles.h"
#include "loops.h"
#include "reduce/reduction.h"

/* The temporary memory of one thread; D and E rounded up to whole vectors. */
typedef struct backward_scratch {
    REAL *keys, *values; /* [D, KEYS], [E, KEYS]: as columns */
    REAL *key_rows;      /* [KEYS, D] */
    REAL *q_rows;        /* [QUERIES, D] */
    REAL *dy_rows;       /* [QUERIES, E] */
    REAL *weights;       /* [QUERIES, KEYS]: P */
    REAL *dscores;       /* [QUERIES, KEYS]: dS, before the scale */
    REAL *dk, *dv;       /* [KEYS, D], [KEYS, E]: sums of the tile */
    REAL *dq;            /* [G, T, D]: sums */
} backward_scratch;

static size_t backward_room_bytes(const attention_sizes *z)
{
    int64_t D = gd_round_up(z->D, LANES), E = gd_round_up(z->E, LANES);
    int64_t count = (3 * D + 2 * E) * KEYS + (D + E + 2 * KEYS) * QUERIES + z->G * z->T * D;
    return (size_t)count * sizeof(REAL);
}

static backward_scratch backward_scratch_at(const attention_sizes *z, void *memory)
{
    int64_t D = gd_round_up(z->D, LANES), E = gd_round_up(z->E, LANES);
    backward_scratch scratch;
    REAL *at = memory;
    scratch.keys = at, at += D * KEYS;
    scratch.key_rows = at, at += D * KEYS;
    scratch.dk = at, at += D * KEYS;
    scratch.values = at, at += E * KEYS;
    scratch.dv = at, at += E * KEYS;
    scratch.q_rows = at, at += D * QUERIES;
    scratch.dy_rows = at, at += E * QUERIES;
    scratch.weights = at, at += KEYS * QUERIES;
    scratch.dscores = at, at += KEYS * QUERIES;
    scratch.dq = at;
    return scratch;
}

/* One row of n columns: scores become weights p = exp(score - lse), and dp becomes p (dp - delta),
 * the gradient of the scores. Columns that the row does not see become 0. With dropout, `keep` has
 * the factors of the weights: p, at the end, and dp are multiplied by them. */
static void backward_row(REAL *weight, REAL *dscore, int64_t visible, int64_t n, REAL lse,
                         REAL delta, bool wants_scores, const REAL *keep)
{
    for (int64_t j = 0; j < n; j += LANES) {
#pragma omp simd simdlen(LANES)
        for (int i = 0; i < LANES; i++) {
            REAL exponent = j + i < visible ? weight[j + i] - lse : (REAL)-INFINITY;
            weight[j + i] = inline_exp(exponent);
        }
    }
    for (int64_t j = 0; wants_scores && j < n; j += LANES) {
#pragma omp simd simdlen(LANES)
        for (int i = 0; i < LANES; i++) {
            REAL dp = keep ? dscore[j + i] * keep[j + i] : dscore[j + i];
            REAL difference = j + i < visible ? dp - delta : 0;
            dscore[j + i] = weight[j + i] * difference;
        }
    }
    for (int64_t j = 0; keep && j < n; j++) weight[j] *= keep[j];
}

/* to (+)= factor * from, rows of `columns`. */
static void write_rows(REAL *to, int64_t to_row, const REAL *from, int64_t from_row, int64_t rows,
                       int64_t columns, REAL factor, bool add)
{
    for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row) {
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            to[c] = add ? to[c] + factor * from[c] : factor * from[c];
        }
    }
}

/* A tile of keys s0 .. s0 + keys against the queries t0 .. t0 + m of head h, m <= QUERIES. */
static void backward_tile(const attention_pass *p, const backward_scratch *scratch, int64_t b,
                          int64_t h, int64_t kv, int64_t s0, int64_t keys, int64_t t0, int64_t m)
{
    const attention_sizes *z = &p->z;
    int64_t D = gd_round_up(z->D, LANES), E = gd_round_up(z->E, LANES);
    int64_t q_row = p->q.row, dy_row = p->dy.row, k_row = p->k.row;
    const REAL *q = head_of(&p->q, b, t0, h), *dy = head_of(&p->dy, b, t0, h);
    const REAL *lse = p->lse + (b * z->H + h) * z->T + t0, *delta = p->delta + (lse - p->lse);
    const REAL *k_rows = head_of(&p->k, b, s0, kv);
    const REAL *q_whole = q, *dy_whole = dy;
    int64_t width = gd_round_up(keys, BLOCK);
    if (D != z->D) k_rows = scratch->key_rows, k_row = D;
    int64_t first[KEYS / BLOCK]; /* the first block of rows that sees columns BLOCK * i ... */
    int64_t blocks = 0;
    for (int64_t r = 0; r < m; r += BLOCK) {
        int64_t rows = gd_min64(BLOCK, m - r);
        int64_t seen = gd_min64(keys, end_of(p, t0 + r + rows - 1) - s0);
        if (seen <= 0) continue;
        int64_t n = gd_round_up(seen, BLOCK);
        while (blocks * BLOCK < n) first[blocks++] = r;
        REAL *weights = scratch->weights + r * KEYS, *dscores = scratch->dscores + r * KEYS;
        /* scores in `weights`, dP in `dscores`, until backward_row makes P and dS of them */
        tile_block(rows, (int)(n / LANES), weights, KEYS, q + r * p->q.row, p->q.row, 1,
                   scratch->keys, width, z->D, false);
        if (p->wants_scores) {
            tile_block(rows, (int)(n / LANES), dscores, KEYS, dy + r * p->dy.row, p->dy.row, 1,
                       scratch->values, width, z->E, false);
        }
        for (int64_t i = 0; i < rows; i++) {
            int64_t t = t0 + r + i, visible = gd_min64(keys, end_of(p, t) - s0);
            REAL keep[KEYS];
            if (p->mask.any && !mask_row(weights + i * KEYS, &p->mask, b, h, t, s0,
                                         attention_first(z, p->mask.window, t) - s0, visible))
                visible = 0;
            if (p->dropout.threshold) dropout_row(keep, &p->dropout, b * z->H + h, t, s0, n);
            backward_row(weights + i * KEYS, dscores + i * KEYS, visible, n, lse[r + i],
                         delta[r + i], p->wants_scores, p->dropout.threshold ? keep : NULL);
            if (p->dbias) {
                add_dbias(p->dbias + ((b * z->H + h) * z->T + t) * z->S + s0, dscores + i * KEYS,
                          visible);
            }
        }
        if (p->dq.data) {
            REAL *dq = scratch->dq + ((h - kv * z->G) * z->T + t0 + r) * D;
            tile_block(rows, (int)(D / LANES), dq, D, dscores, KEYS, 1, k_rows, k_row, seen, true);
        }
    }
    if (p->dk.data && blocks) q_whole = whole_rows(scratch->q_rows, q, &q_row, m, z->D);
    if (p->dv.data && blocks) dy_whole = whole_rows(scratch->dy_rows, dy, &dy_row, m, z->E);
    for (int64_t i = 0; i < blocks; i++) {
        int64_t r = first[i], at = r * KEYS + i * BLOCK,
                columns = gd_min64(BLOCK, keys - i * BLOCK);
        if (p->dv.data) {
            tile_block(columns, (int)(E / LANES), scratch->dv + i * BLOCK * E, E,
                       scratch->weights + at, 1, KEYS, dy_whole + r * dy_row, dy_row, m - r, true);
        }
        if (p->dk.data) {
            tile_block(columns, (int)(D / LANES), scratch->dk + i * BLOCK * D, D,
                       scratch->dscores + at, 1, KEYS, q_whole + r * q_row, q_row, m - r, true);
        }
    }
}

/* Everything that reads key head (b, kv): its dk and dv, and dq of its group of query heads. */
static void backward_group(const attention_pass *p, const backward_scratch *scratch, int64_t b,
                           int64_t kv)
{
    const attention_sizes *z = &p->z;
    int64_t D = gd_round_up(z->D, LANES), E = gd_round_up(z->E, LANES), row;
    memset(scratch->dq, 0, (size_t)(z->G * z->T * D) * sizeof(REAL));
    for (int64_t s0 = 0; s0 < z->S; s0 += KEYS) {
        int64_t keys = gd_min64(KEYS, z->S - s0), width = gd_round_up(keys, BLOCK);
        const REAL *k = head_of(&p->k, b, s0, kv), *v = head_of(&p->v, b, s0, kv);
        pack_columns(scratch->keys, width, k, row = p->k.row, keys, z->D, p->scale);
        if (p->wants_scores) pack_columns(scratch->values, width, v, p->v.row, keys, z->E, 1);
        if (p->dq.data) whole_rows(scratch->key_rows, k, &row, keys, z->D);
        memset(scratch->dk, 0, (size_t)(KEYS * D) * sizeof(REAL));
        memset(scratch->dv, 0, (size_t)(KEYS * E) * sizeof(REAL));
        for (int64_t g = 0; g < z->G; g++) {
            for (int64_t t0 = 0; t0 < z->T; t0 += QUERIES) {
                if (attention_first(z, p->mask.window, t0) >= s0 + keys) break; /* nor later ones */
                backward_tile(p, scratch, b, kv * z->G + g, kv, s0, keys, t0,
                              gd_min64(QUERIES, z->T - t0));
            }
        }
        if (p->dk.data) {
            write_rows(head_of(&p->dk, b, s0, kv), p->dk.row, scratch->dk, D, keys, z->D, p->scale,
                       p->add_k);
        }
        if (p->dv.data) {
            write_rows(head_of(&p->dv, b, s0, kv), p->dv.row, scratch->dv, E, keys, z->E, 1,
                       p->add_v);
        }
    }
    for (int64_t g = 0; p->dq.data && g < z->G; g++) {
        write_rows(head_of(&p->dq, b, 0, kv * z->G + g), p->dq.row, scratch->dq + g * z->T * D, D,
                   z->T, z->D, p->scale, p->add_q);
    }
}

/* delta [B, H, T] = sum of dy * y along E, which softmax's gradient subtracts: of one row of all
 * heads. */
static void row_products(const void *work, int64_t i)
{
    const attention_pass *p = work;
    const attention_sizes *z = &p->z;
    int64_t b = i / z->T, t = i % z->T;
    for (int64_t h = 0; h < z->H; h++) {
        const REAL *dy_row = head_of(&p->dy, b, t, h), *y_row = head_of(&p->y, b, t, h);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t e = 0; e < z->E; e++) sum += (double)dy_row[e] * (double)y_row[e];
        p->delta[(b * z->H + h) * z->T + t] = (REAL)sum;
    }
}

/* The memory that dS is added to: the gradient of the bias itself, or temporary memory if the bias
 * is broadcast. */
static gd_status open_dbias(const gd_call *call, attention_pass *p)
{
    const attention_sizes *z = &p->z;
    const gd_tensor *dbias = call->dinput[3];
    const size_t bytes = (size_t)(z->B * z->H * z->T * z->S) * sizeof(REAL);
    if (!dbias) return GD_OK;
    const bool whole = (size_t)gd_tensor_count(dbias) * sizeof(REAL) == bytes;
    p->dbias = whole ? gd_data(dbias) : gd_call_scratch(call, bytes);
    if (!p->dbias && bytes) return gd_error_status(call->context);
    if (bytes && !(whole && call->accumulate[3])) memset(p->dbias, 0, bytes);
    return GD_OK;
}

/* The gradient of a broadcast bias is the sum over its copies. */
static gd_status close_dbias(const gd_call *call, const attention_pass *p)
{
    const attention_sizes *z = &p->z;
    const gd_tensor *dbias = call->dinput[3];
    if (!dbias || p->dbias == gd_data(dbias)) return GD_OK;
    const int64_t shape[] = {z->B, z->H, z->T, z->S};
    gd_reduction r = {.walk = gd_walk_over(4, shape), .data = {NULL, p->dbias}};
    gd_walk_add_tensor(&r.walk, dbias);
    r.walk.operands = 2; /* the other is packed */
    for (int64_t d = 3, step = 1; d >= 0; step *= shape[d--]) r.walk.stride[1][d] = step;
    return gd_reduce_into(dbias, call->accumulate[3], call, &r);
}

/* The groups of one thread. */
static void backward_range(const void *work, int64_t i, int64_t end, void *memory)
{
    const attention_pass *p = work;
    backward_scratch scratch = backward_scratch_at(&p->z, memory);
    for (; i < end; i++) backward_group(p, &scratch, i / p->z.KV, i % p->z.KV);
}

static heads wanted_heads(const gd_tensor *t)
{
    return t ? packed_heads(t) : (heads){0};
}

gd_status GD_REAL_NAME(attention_backward)(const gd_call *call)
{
    attention_pass p;
    const attention_sizes *z = &p.z;
    if (attention_pass_of(call, &p)) return gd_error_status(call->context);
    p.wants_scores = call->dinput[0] || call->dinput[1] || call->dinput[3];
    p.dy = packed_heads(call->doutput[0]);
    p.dq = wanted_heads(call->dinput[0]), p.add_q = call->accumulate[0];
    p.dk = wanted_heads(call->dinput[1]), p.add_k = call->accumulate[1];
    p.dv = wanted_heads(call->dinput[2]), p.add_v = call->accumulate[2];
    if (open_dbias(call, &p)) return gd_error_status(call->context);
    const int64_t scores = z->B * z->H * z->T * gd_min64(z->S, 4096);
    p.delta = gd_call_scratch(call, (size_t)(z->B * z->H * z->T) * sizeof *p.delta);
    if (!p.delta) return gd_error_status(call->context);
    gd_each_piece(call, scores, z->B * z->T, row_products, &p);
    if (gd_each_range(call, scores, z->B * z->KV, backward_room_bytes(z), backward_range, &p))
        return gd_error_status(call->context);
    return close_dbias(call, &p);
}
