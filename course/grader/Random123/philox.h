/* philox.h - Philox4x32-10 (Salmon et al. 2011), for a course's build without the package
 * Random123: what kernels/random/philox.h takes of it, with the same bits. */
#ifndef COURSE_PHILOX_H
#define COURSE_PHILOX_H

#include <stdint.h>

typedef struct philox4x32_ctr_t {
    uint32_t v[4];
} philox4x32_ctr_t;

typedef struct philox4x32_key_t {
    uint32_t v[2];
} philox4x32_key_t;

static inline philox4x32_ctr_t philox4x32(philox4x32_ctr_t c, philox4x32_key_t key)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t a = UINT64_C(0xD2511F53) * c.v[0], b = UINT64_C(0xCD9E8D57) * c.v[2];
        c = (philox4x32_ctr_t){{(uint32_t)(b >> 32) ^ c.v[1] ^ key.v[0], (uint32_t)b,
                                (uint32_t)(a >> 32) ^ c.v[3] ^ key.v[1], (uint32_t)a}};
        key.v[0] += UINT32_C(0x9E3779B9);
        key.v[1] += UINT32_C(0xBB67AE85);
    }
    return c;
}

#endif
