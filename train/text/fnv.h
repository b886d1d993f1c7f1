/* fnv.h - FNV-1a (Fowler, Noll, Vo), 64 bits: a fingerprint of bytes that come in pieces. */
#ifndef GRADUS_TRAIN_FNV_H
#define GRADUS_TRAIN_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_BEGIN 14695981039346656037u

static inline uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

#endif
