/* group_cpu.c - collectives on the CPU, over a socket between every two ranks.
 *
 * All are built on one primitive, `exchange`: every rank sends a piece to every other rank and
 * receives one from each. A reduce-scatter sends the r-th slice to rank r, which adds up the
 * received slices in the order of ranks (so every run gives the same sum); an all-gather sends the
 * rank's own slice to all ranks. Large arrays are sent in chunks, so that the receive buffer is
 * small. */
#include "group/group.h"
#include "platform/clock.h"
#include "platform/socket.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 1 << 16 }; /* elements of a slice in one exchange */

/* Precedes each piece, so that ranks that make different calls notice it. */
typedef struct piece_header {
    uint64_t bytes;
    uint32_t number; /* of exchanges so far */
    char call[20];
} piece_header;

typedef struct piece {
    const char *out;
    char *in;
    size_t out_bytes, in_bytes;
    piece_header header_out, header_in;
    size_t sent, got; /* bytes, including the header */
} piece;

typedef struct mesh {
    int *peer;      /* [ranks] sockets; -1: this one */
    piece *piece;   /* [ranks] */
    char *received; /* [ranks][CHUNK] elements received */
    uint32_t exchanges;
    double last_moved; /* when data last moved in the current exchange */
    char *memory;      /* of the three arrays above */
    size_t bytes;
} mesh;

static gd_status mesh_open(gd_group *group)
{
    const size_t ranks = (size_t)group->ranks, received = ranks * CHUNK * sizeof(double);
    mesh *m = gd_host_allocate(group->ctx, sizeof *m, "a group");
    if (!m) return group->ctx->status;
    const size_t bytes = received + ranks * (sizeof *m->piece + sizeof *m->peer);
    *m = (mesh){.memory = gd_host_allocate(group->ctx, bytes, "a group"), .bytes = bytes};
    group->state = m;
    if (!m->memory) return group->ctx->status;
    m->received = m->memory;
    m->piece = (piece *)(void *)(m->memory + received);
    m->peer = (int *)(void *)(m->memory + received + ranks * sizeof *m->piece);
    return gd_rendezvous_mesh(group, m->peer);
}

static void mesh_close(gd_group *group)
{
    mesh *m = group->state;
    for (int i = 0; m->memory && i < group->ranks; i++) gd_wire_close(&m->peer[i]);
    gd_host_release(group->ctx, m->memory, m->bytes);
    gd_host_release(group->ctx, m, sizeof *m);
}

/* ---- Exchange ------------------------------------------------------------------------------- */

static bool sent_all(const piece *p)
{
    return p->sent == sizeof p->header_out + p->out_bytes;
}

static bool got_all(const piece *p)
{
    return p->got == sizeof p->header_in + p->in_bytes;
}

/* A connection was closed, either by the rank that failed or by one that left because another had
 * failed. Rank 0 sees this too, and sends the reason on the control connections. If nothing comes from it until
 * the timeout, then rank 0 is what failed: the closed connection belongs to a rank that knew it
 * earlier. */
static gd_status lost(gd_group *group, int rank)
{
    const mesh *m = group->state;
    const bool reported = group->rank > 0 && rank > 0 && group->control[0] >= 0;
    const double moment = fmin(group->timeout / 4, 1);
    const double last = fmax(m->last_moved, group->last_received[0]);
    const double left = reported ? last + group->timeout - gd_os_now() : 0;
    if (gd_group_poll(group, fmax(moment, left))) return gd_error_status(group->ctx);
    if (reported && group->control[0] >= 0) return gd_group_abort(group, 0, "is silent");
    return gd_group_abort(group, rank, "is gone");
}

static gd_status check_header(gd_group *group, int rank, const piece *p)
{
    char problem[200];
    const piece_header *in = &p->header_in, *out = &p->header_out;
    if (in->number == out->number && in->bytes == p->in_bytes &&
        !strncmp(in->call, out->call, sizeof in->call)) {
        return GD_OK;
    }
    snprintf(
        problem, sizeof problem,
        "is in %.19s (%llu) with %llu bytes, wanted %.19s (%llu) with %zu: all ranks must make "
        "the same calls",
        in->call, (unsigned long long)in->number, (unsigned long long)in->bytes, out->call,
        (unsigned long long)out->number, p->in_bytes);
    return gd_group_abort(group, rank, problem);
}

static gd_status push(gd_group *group, int rank, int wire, piece *p)
{
    const size_t head = sizeof p->header_out;
    while (!sent_all(p)) {
        const bool in_head = p->sent < head;
        const char *at = in_head ? (const char *)&p->header_out + p->sent : p->out + p->sent - head;
        const size_t left = in_head ? head - p->sent : head + p->out_bytes - p->sent;
        const ptrdiff_t moved = gd_wire_write(wire, at, left);
        if (moved < 0) return lost(group, rank);
        if (moved == 0) break;
        p->sent += (size_t)moved;
    }
    return GD_OK;
}

static gd_status pull(gd_group *group, int rank, int wire, piece *p)
{
    const size_t head = sizeof p->header_in;
    while (!got_all(p)) {
        const bool in_head = p->got < head;
        char *at = in_head ? (char *)&p->header_in + p->got : p->in + p->got - head;
        const size_t left = in_head ? head - p->got : head + p->in_bytes - p->got;
        const ptrdiff_t moved = gd_wire_read(wire, at, left);
        if (moved < 0) return lost(group, rank);
        if (moved == 0) break;
        p->got += (size_t)moved;
        if (in_head && p->got == head && check_header(group, rank, p)) return group->ctx->status;
    }
    return GD_OK;
}

/* Fills `set` [2 ranks]: the peers with data left to send or receive, which are `missing`, then the
 * control connections. False if there is no such peer. */
static bool wanted(const gd_group *group, gd_wire_event *set, bool *missing)
{
    const mesh *m = group->state;
    bool any = false;
    for (int i = 0; i < group->ranks; i++) {
        const piece *p = &m->piece[i];
        missing[i] = i != group->rank && !(sent_all(p) && got_all(p));
        any = any || missing[i];
        set[i] = (gd_wire_event){
            .wire = missing[i] ? m->peer[i] : -1, .reads = !got_all(p), .writes = !sent_all(p)};
        set[group->ranks + i] = (gd_wire_event){.wire = group->control[i], .reads = true};
    }
    return any;
}

/* Sends and receives m->piece[i] for every rank i but this one. Where no data moves for
 * the whole timeout, a rank that is not finished is silent. */
static gd_status exchange(gd_group *group)
{
    mesh *m = group->state;
    gd_wire_event set[2 * GD_GROUP_MOST];
    bool missing[GD_GROUP_MOST];
    const int ranks = group->ranks;
    m->exchanges++;
    for (int i = 0; i < ranks; i++) {
        piece *p = &m->piece[i];
        p->sent = p->got = 0;
        p->header_out = (piece_header){p->out_bytes, m->exchanges, ""};
        snprintf(p->header_out.call, sizeof p->header_out.call, "%s", group->who);
    }
    m->last_moved = gd_os_now();
    double beat = m->last_moved + group->timeout / 4;
    while (wanted(group, set, missing)) {
        const int silent = gd_group_find_silent(group, missing, m->last_moved);
        if (silent >= 0) return gd_group_abort(group, silent, "is silent");
        if (!gd_wire_wait_for(set, 2 * ranks, gd_group_keep_alive(group, m->last_moved, &beat)))
            continue;
        for (int i = 0; i < ranks; i++) {
            if (!set[i].ready) continue;
            if (push(group, i, m->peer[i], &m->piece[i]) ||
                pull(group, i, m->peer[i], &m->piece[i]))
                return group->ctx->status;
            m->last_moved = gd_os_now();
        }
        for (int i = 0; i < ranks; i++) {
            if (set[ranks + i].ready) {
                if (gd_group_poll(group, 0)) return group->ctx->status;
                break;
            }
        }
    }
    return GD_OK;
}

/* ---- Collectives ---------------------------------------------------------------------------- */

static int64_t clip(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Elements [at, at + CHUNK) of a rank's slice; fewer at its end. */
typedef struct stretch {
    size_t begin, bytes; /* in bytes */
} stretch;

static stretch chunk_of(const gd_group *group, int rank, gd_dtype dtype, int64_t n, int64_t at)
{
    const size_t size = gd_dtype_size(dtype);
    int64_t begin, end;
    gd_slice_of(n, group->ranks, rank, &begin, &end);
    return (stretch){(size_t)(begin + at) * size, (size_t)clip(end - begin - at, 0, CHUNK) * size};
}

static int64_t longest_slice(const gd_group *group, int64_t n)
{
    int64_t begin, end;
    gd_slice_of(n, group->ranks, group->ranks - 1, &begin, &end); /* includes the remainder */
    return end - begin;
}

/* Adds up the received chunks and this rank's own, in the order of ranks. */
static void add_up(gd_group *group, char *own, gd_dtype dtype, int64_t n, bool mean)
{
    gd_context *ctx = group->ctx;
    const mesh *m = group->state;
    const size_t size = gd_dtype_size(dtype), bytes = (size_t)n * size;
    char *mine = m->received + (size_t)group->rank * CHUNK * size;
    memcpy(mine, own, bytes);
    memcpy(own, m->received, bytes);
    for (size_t i = 1; i < (size_t)group->ranks; i++)
        ctx->services->accumulate(own, dtype, m->received + i * CHUNK * size, dtype, n, ctx);
    if (mean) ctx->services->scale(own, dtype, 1.0 / group->ranks, n, NULL, ctx);
}

static gd_status reduce_scatter(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean)
{
    mesh *m = group->state;
    const size_t size = gd_dtype_size(dtype);
    for (int64_t at = 0; at < longest_slice(group, n); at += CHUNK) {
        const stretch mine = chunk_of(group, group->rank, dtype, n, at);
        for (int i = 0; i < group->ranks; i++) {
            const stretch s = chunk_of(group, i, dtype, n, at);
            m->piece[i].out = (const char *)data + s.begin;
            m->piece[i].out_bytes = s.bytes;
            m->piece[i].in = m->received + (size_t)i * CHUNK * size;
            m->piece[i].in_bytes = mine.bytes;
        }
        if (exchange(group)) return group->ctx->status;
        add_up(group, (char *)data + mine.begin, dtype, (int64_t)(mine.bytes / size), mean);
    }
    return gd_error_status(group->ctx);
}

static gd_status all_gather(gd_group *group, void *data, gd_dtype dtype, int64_t n)
{
    mesh *m = group->state;
    for (int64_t at = 0; at < longest_slice(group, n); at += CHUNK) {
        const stretch mine = chunk_of(group, group->rank, dtype, n, at);
        for (int i = 0; i < group->ranks; i++) {
            const stretch s = chunk_of(group, i, dtype, n, at);
            m->piece[i].out = (const char *)data + mine.begin;
            m->piece[i].out_bytes = mine.bytes;
            m->piece[i].in = (char *)data + s.begin;
            m->piece[i].in_bytes = s.bytes;
        }
        if (exchange(group)) return group->ctx->status;
    }
    return GD_OK;
}

static gd_status all_reduce(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean)
{
    if (reduce_scatter(group, data, dtype, n, mean)) return group->ctx->status;
    return all_gather(group, data, dtype, n);
}

static gd_status broadcast(gd_group *group, void *data, gd_dtype dtype, int64_t n, int root)
{
    mesh *m = group->state;
    const size_t bytes = (size_t)n * gd_dtype_size(dtype);
    for (int i = 0; i < group->ranks; i++) {
        m->piece[i].out = m->piece[i].in = data;
        m->piece[i].out_bytes = group->rank == root ? bytes : 0;
        m->piece[i].in_bytes = i == root ? bytes : 0;
    }
    return exchange(group);
}

/* Collectives on the CPU are synchronous. */
static gd_status synchronous(gd_group *group)
{
    return gd_error_status(group->ctx);
}

const gd_transport gd_transport_cpu = {
    .open = mesh_open,
    .close = mesh_close,
    .fork = synchronous,
    .join = synchronous,
    .broadcast = broadcast,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_reduce = all_reduce,
};
