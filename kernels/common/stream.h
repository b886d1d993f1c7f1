/* stream.h - moving arrays that are larger than the caches.
 *
 * A kernel that reads and writes each number once is limited by memory, not by arithmetic. Two
 * techniques help. It can prefetch what it will read (gd_prefetch), so that memory works while it
 * computes. And it can write past the caches (gd_stream): an ordinary store first fetches the line
 * it writes to, which is a third of the traffic of a copy, and useless if the whole line is
 * overwritten and not read soon.
 *
 * Neither changes a result. Without SSE2 they are plain copies or nothing.
 */
#ifndef GRADUS_STREAM_H
#define GRADUS_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

/* An output of fewer bytes than this should stay in the cache for the op that reads it next. */
#define GD_STREAM_FROM ((int64_t)16 << 20)

enum { GD_LINE = 64 }; /* bytes of a cache line */

/* Prefetches `bytes` bytes into the second level cache. Any address is fine. */
static inline void gd_prefetch(const void *address, int64_t bytes)
{
#ifdef __GNUC__
    for (int64_t i = 0; i < bytes; i += GD_LINE)
        __builtin_prefetch((const char *)address + i, 0, 2);
    /* GCC treats a function that only prefetches as one without effects, and drops its calls. This
     * is not an instruction, but counts as an effect. */
    __asm__ volatile("");
#else
    (void)address, (void)bytes;
#endif
}

/* The same for memory that will also be written. The line is fetched for exclusive use at once;
 * fetched for reading, it would be shared, and the write would have to invalidate the other
 * copies. */
static inline void gd_prefetch_to_write(void *address, int64_t bytes)
{
#ifdef __GNUC__
    for (int64_t i = 0; i < bytes; i += GD_LINE) __builtin_prefetch((char *)address + i, 1, 2);
    __asm__ volatile("");
#else
    (void)address, (void)bytes;
#endif
}

/* One whole line; dst is aligned to it. */
static inline void gd_stream_line(char *dst, const char *src)
{
#if defined(__AVX512F__)
    _mm512_stream_si512((void *)dst, _mm512_loadu_si512(src));
#elif defined(__AVX__)
    for (int i = 0; i < GD_LINE; i += 32)
        _mm256_stream_si256((void *)(dst + i), _mm256_loadu_si256((const void *)(src + i)));
#elif defined(__SSE2__)
    for (int i = 0; i < GD_LINE; i += 16)
        _mm_stream_si128((void *)(dst + i), _mm_loadu_si128((const void *)(src + i)));
#else
    memcpy(dst, src, GD_LINE);
#endif
}

/* memcpy past the caches, for a src that is in them. Before another thread may read what was
 * written, the writing thread calls gd_stream_end(). */
static inline void gd_stream(void *dst, const void *src, int64_t bytes)
{
    char *to = dst;
    const char *from = src;
    int64_t head = -(int64_t)(uintptr_t)to & (GD_LINE - 1);
    if (head > bytes) head = bytes;
    if (head) memcpy(to, from, (size_t)head);
    int64_t i = head;
    for (; i + GD_LINE <= bytes; i += GD_LINE) gd_stream_line(to + i, from + i);
    if (i < bytes) memcpy(to + i, from + i, (size_t)(bytes - i));
}

static inline void gd_stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

#endif
