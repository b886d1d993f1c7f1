/* group_cpu.c - collectives on the CPU, by memory that the ranks of one host share.
 *
 * The memory is a file of the group's folder, which every rank maps; once all have, its name goes.
 * Each rank has a part of it, of two halves that are used in turn. A collective takes rounds: each
 * rank copies a piece to its part, all wait for each other, and each reads what it needs of the
 * others. In the next round it writes to the other half, since a slower rank may still read this
 * one; nobody can be two rounds behind. A reduce-scatter adds up the pieces of its slice in the
 * order of ranks, so every run gives the same sum. */
#include "group/group_files.h"
#include "platform/clock.h"
#include "platform/file.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { PIECE = 1 << 17, SPINS = 500 }; /* bytes of a rank in a round; looks before it sleeps */

static const char NAME[] = ".memory";

/* What a rank shows the others: the number of its round, and the call that it is part of. */
typedef struct rank_area {
    _Alignas(64) _Atomic uint32_t round;
    gd_group_call call[2];
} rank_area;

typedef struct memory_head {
    _Alignas(64) uint8_t start[GD_GROUP_NUMBER];
} memory_head;

typedef struct shared {
    void *memory;
    size_t bytes;
    rank_area *area; /* [ranks] */
    char *pieces;    /* [2][ranks][PIECE] */
    uint32_t round;
} shared;

/* ---- Rounds --------------------------------------------------------------------------------- */

static bool is_missing(const gd_group *group, int rank)
{
    const shared *m = group->state;
    if (!m || !m->memory) return rank == 0; /* which makes the memory */
    const uint32_t round = atomic_load_explicit(&m->area[rank].round, memory_order_acquire);
    return (int32_t)(round - m->round) < 0;
}

/* This rank's piece of the round that comes, and a rank's of the current one. */
static char *next_piece(const gd_group *group)
{
    const shared *m = group->state;
    const size_t index = (m->round + 1) % 2 * (size_t)group->ranks + (size_t)group->rank;
    return m->pieces + index * PIECE;
}

static const char *piece_of(const gd_group *group, int rank)
{
    const shared *m = group->state;
    return m->pieces + (m->round % 2 * (size_t)group->ranks + (size_t)rank) * PIECE;
}

/* Looks for a moment, and sleeps, until a rank has come to this round. */
static gd_status wait_for_rank(gd_group *group, int rank, double since)
{
    const shared *m = group->state;
    const uint32_t *word = (const uint32_t *)(const void *)&m->area[rank].round;
    for (int spins = 0; is_missing(group, rank); spins++) {
        if (spins < SPINS) continue;
        const uint32_t round = atomic_load_explicit(&m->area[rank].round, memory_order_acquire);
        if (is_missing(group, rank)) gd_os_wait_for_word(word, round, 0.05);
        if (gd_group_look(group, since)) return group->ctx->status;
    }
    return GD_OK;
}

/* Waits for all other ranks to come to this round. */
static gd_status next_round(gd_group *group, uint64_t bytes)
{
    shared *m = group->state;
    rank_area *own = &m->area[group->rank];
    m->round++;
    const gd_group_call *ours = &own->call[m->round % 2];
    own->call[m->round % 2] = gd_group_call_of(group, bytes, m->round);
    atomic_store_explicit(&own->round, m->round, memory_order_release);
    gd_os_wake_for_word((const uint32_t *)(const void *)&own->round);
    const double since = gd_os_now();
    for (int i = 0; i < group->ranks; i++) {
        if (wait_for_rank(group, i, since)) return group->ctx->status;
    }
    for (int i = 0; i < group->ranks; i++) {
        if (gd_group_compare(group, i, ours, &m->area[i].call[m->round % 2]))
            return group->ctx->status;
    }
    return GD_OK;
}

/* ---- Opening -------------------------------------------------------------------------------- */

static gd_status fail(const gd_group *group, const char *what, const char *why)
{
    return gd_fail(group->ctx, GD_ERROR_IO, "%s: rank %d cannot %s the memory of all ranks: %s",
                   group->who, group->rank, what, why);
}

/* The file of this start: rank 0 makes it, and the others wait for it. -1 on error. */
static int open_memory(gd_group *group, size_t bytes)
{
    memory_head head = {{0}};
    char why[GD_GROUP_FAULT];
    const double since = gd_os_now();
    memcpy(head.start, group->start, sizeof head.start);
    if (group->rank == 0) {
        const int made = gd_group_make(group, NAME, &head, sizeof head, bytes - sizeof head);
        if (made < 0) fail(group, "make", strerror(errno));
        return made;
    }
    while (!gd_group_look(group, since)) {
        memory_head found;
        const int file = gd_group_open(group, NAME, bytes, why);
        if (file >= 0 && gd_os_read_at(file, &found, sizeof found, 0) == sizeof found &&
            !memcmp(found.start, head.start, sizeof found.start))
            return file;
        if (file >= 0) gd_os_close(file); /* that of an earlier start */
        gd_os_nap(1e-3);
    }
    return -1;
}

static gd_status map_memory(gd_group *group, shared *m)
{
    const size_t ranks = (size_t)group->ranks, areas = ranks * sizeof *m->area;
    m->bytes = sizeof(memory_head) + areas + 2 * ranks * PIECE;
    const int file = open_memory(group, m->bytes);
    if (file < 0) return group->ctx->status;
    m->memory = gd_os_map(file, m->bytes);
    if (!m->memory) fail(group, "map", strerror(errno));
    gd_os_close(file);
    if (!m->memory) return group->ctx->status;
    m->area = (rank_area *)(void *)((char *)m->memory + sizeof(memory_head));
    m->pieces = (char *)m->memory + sizeof(memory_head) + areas;
    return next_round(group, 0); /* all have mapped it */
}

static gd_status shared_open(gd_group *group)
{
    if (group->several_hosts) {
        return gd_fail(
            group->ctx, GD_ERROR_UNSUPPORTED,
            "%s: the ranks are on several hosts, wanted one: without GPUs they share its "
            "memory",
            group->who);
    }
    shared *m = gd_host_allocate(group->ctx, sizeof *m, "a group");
    if (!m) return group->ctx->status;
    *m = (shared){0};
    group->state = m;
    map_memory(group, m);
    if (group->rank == 0) gd_os_remove(group->folder, NAME);
    return gd_error_status(group->ctx);
}

static void shared_close(gd_group *group)
{
    shared *m = group->state;
    gd_os_unmap(m->memory, m->bytes);
    gd_host_release(group->ctx, m, sizeof *m);
}

/* ---- Collectives ---------------------------------------------------------------------------- */

static int64_t clip(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Elements [at, at + most) of a rank's slice; fewer at its end. */
typedef struct stretch {
    size_t begin, bytes; /* in bytes */
} stretch;

static stretch stretch_of(const gd_group *group, int rank, gd_dtype dtype, int64_t n, int64_t at,
                          int64_t most)
{
    const size_t size = gd_dtype_size(dtype);
    int64_t begin, end;
    gd_slice_of(n, group->ranks, rank, &begin, &end);
    return (stretch){(size_t)(begin + at) * size, (size_t)clip(end - begin - at, 0, most) * size};
}

static int64_t longest_slice(const gd_group *group, int64_t n)
{
    int64_t begin, end;
    gd_slice_of(n, group->ranks, group->ranks - 1, &begin, &end); /* includes the remainder */
    return end - begin;
}

/* Adds up the stretches of this rank's slice in the order of ranks; they lie at `from` in
 * the pieces. */
static void add_up(gd_group *group, char *own, gd_dtype dtype, size_t from, size_t bytes, bool mean)
{
    gd_context *ctx = group->ctx;
    const int64_t n = (int64_t)(bytes / gd_dtype_size(dtype));
    memcpy(own, piece_of(group, 0) + from, bytes);
    for (int i = 1; i < group->ranks; i++)
        ctx->services->accumulate(own, dtype, piece_of(group, i) + from, dtype, n, ctx);
    if (mean) ctx->services->scale(own, dtype, 1.0 / group->ranks, n, NULL, ctx);
}

/* A piece has a stretch for each rank. */
static gd_status reduce_scatter(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean)
{
    const size_t size = gd_dtype_size(dtype), each = PIECE / (size_t)group->ranks / 64 * 64;
    const int64_t most = (int64_t)(each / size);
    for (int64_t at = 0; at < longest_slice(group, n); at += most) {
        const stretch own = stretch_of(group, group->rank, dtype, n, at, most);
        for (int i = 0; i < group->ranks; i++) {
            const stretch s = stretch_of(group, i, dtype, n, at, most);
            memcpy(next_piece(group) + (size_t)i * each, (char *)data + s.begin, s.bytes);
        }
        if (next_round(group, (uint64_t)n * size)) return group->ctx->status;
        add_up(group, (char *)data + own.begin, dtype, (size_t)group->rank * each, own.bytes, mean);
    }
    return gd_error_status(group->ctx);
}

static gd_status all_gather(gd_group *group, void *data, gd_dtype dtype, int64_t n)
{
    const size_t size = gd_dtype_size(dtype);
    const int64_t most = (int64_t)(PIECE / size);
    for (int64_t at = 0; at < longest_slice(group, n); at += most) {
        const stretch own = stretch_of(group, group->rank, dtype, n, at, most);
        memcpy(next_piece(group), (char *)data + own.begin, own.bytes);
        if (next_round(group, (uint64_t)n * size)) return group->ctx->status;
        for (int i = 0; i < group->ranks; i++) {
            const stretch s = stretch_of(group, i, dtype, n, at, most);
            if (i != group->rank) memcpy((char *)data + s.begin, piece_of(group, i), s.bytes);
        }
    }
    return GD_OK;
}

static gd_status all_reduce(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean)
{
    if (reduce_scatter(group, data, dtype, n, mean)) return group->ctx->status;
    return all_gather(group, data, dtype, n);
}

/* All ranks get the bytes of ranks [first, last), one after another. */
static gd_status show(gd_group *group, const char *mine, size_t bytes, char *all, int first,
                      int last)
{
    size_t at = 0, part;
    do {
        part = bytes - at < PIECE ? bytes - at : PIECE;
        if (part && first <= group->rank && group->rank < last)
            memcpy(next_piece(group), mine + at, part);
        if (next_round(group, bytes)) return group->ctx->status;
        for (int i = first; part && i < last; i++)
            memcpy(all + (size_t)(i - first) * bytes + at, piece_of(group, i), part);
        at += part;
    } while (at < bytes);
    return GD_OK;
}

static gd_status broadcast(gd_group *group, void *data, gd_dtype dtype, int64_t n, int root)
{
    return show(group, data, (size_t)n * gd_dtype_size(dtype), data, root, root + 1);
}

static gd_status all_gather_bytes(gd_group *group, const void *mine, size_t bytes, void *all,
                                  bool first)
{
    return show(group, mine, bytes, all, 0, first ? 1 : group->ranks);
}

/* Collectives on the CPU are synchronous. */
static gd_status synchronous(gd_group *group)
{
    return gd_error_status(group->ctx);
}

const gd_transport gd_transport_cpu = {
    .open = shared_open,
    .close = shared_close,
    .is_missing = is_missing,
    .fork = synchronous,
    .join = synchronous,
    .broadcast = broadcast,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_reduce = all_reduce,
    .all_gather_bytes = all_gather_bytes,
};
