/* copy.c - the ceiling: how fast this machine copies.
 *
 * Each thread copies its own part of the array, in one of several ways. A store that goes past the
 * caches saves reading the line first, and wins for large arrays on most machines; reading ahead
 * helps where the hardware does not look far enough. None of this is the library's code. */
#include "bench.h"

#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

enum { LINE = 64, BLOCK = 4096 };

static void copy_plain(char *dst, const char *src, int64_t bytes)
{
    memcpy(dst, src, (size_t)bytes);
}

static void copy_blocks(char *dst, const char *src, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += BLOCK)
        memcpy(dst + i, src + i, (size_t)(bytes - i < BLOCK ? bytes - i : BLOCK));
}

#ifdef __SSE2__
static void stream_line(char *dst, const char *src)
{
#if defined(__AVX512F__)
    _mm512_stream_si512((void *)dst, _mm512_loadu_si512(src));
#elif defined(__AVX__)
    for (int i = 0; i < LINE; i += 32)
        _mm256_stream_si256((void *)(dst + i), _mm256_loadu_si256((const void *)(src + i)));
#else
    for (int i = 0; i < LINE; i += 16)
        _mm_stream_si128((void *)(dst + i), _mm_loadu_si128((const void *)(src + i)));
#endif
}

/* dst is aligned to a line. `ahead` bytes are asked for before they are needed; 0: nothing is. */
static void copy_past(char *dst, const char *src, int64_t bytes, int64_t ahead)
{
    int64_t i = 0;
    for (; i + BLOCK <= bytes; i += BLOCK) {
        for (int64_t j = 0; ahead && j < BLOCK; j += LINE)
            _mm_prefetch(src + i + ahead + j, _MM_HINT_T0);
        for (int64_t j = 0; j < BLOCK; j += LINE) stream_line(dst + i + j, src + i + j);
    }
    memcpy(dst + i, src + i, (size_t)(bytes - i));
    _mm_sfence();
}

static void copy_streaming(char *dst, const char *src, int64_t bytes)
{
    copy_past(dst, src, bytes, 0);
}

static void copy_streaming_ahead(char *dst, const char *src, int64_t bytes)
{
    copy_past(dst, src, bytes, BLOCK);
}
#endif

static const struct copy_way {
    const char *name;
    void (*copy)(char *dst, const char *src, int64_t bytes);
} ways[] = {
    {"copy (memcpy)", copy_plain},
    {"copy (4 KB at a time)", copy_blocks},
#ifdef __SSE2__
    {"copy (past the caches)", copy_streaming},
    {"copy (the same, read ahead)", copy_streaming_ahead},
#endif
};

int bench_copy_count(void)
{
    return (int)(sizeof ways / sizeof *ways);
}

const char *bench_copy_name(int which)
{
    return ways[which].name;
}

double bench_copy(int which, void *dst, const void *src, int64_t bytes, int threads)
{
    int64_t lines = (bytes + LINE - 1) / LINE, part = (lines + threads - 1) / threads * LINE;
    double start = bench_now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        int64_t first = t * part, size = bytes - first < part ? bytes - first : part;
        if (size > 0) ways[which].copy((char *)dst + first, (const char *)src + first, size);
    }
    return bench_now() - start;
}
