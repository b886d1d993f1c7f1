/* group_hmac.c - HMAC-SHA256 (FIPS 180-4 and RFC 2104), the keyed hash by which ranks prove that
 * they know the group's secret.
 *
 * XXH3, which checkpoints use, is not meant for this: whoever sees some of its values can find the
 * key. No library that has HMAC is on every system that gradus runs on, and a group must not be
 * less safe in some builds. */
#include "group/group.h"

#include <string.h>

enum { BLOCK = 64 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

typedef struct sha256 {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t block[BLOCK]; /* its first bytes % BLOCK are filled */
} sha256;

static uint32_t turn(uint32_t x, int right)
{
    return x >> right | x << (32 - right);
}

static void digest_block(sha256 *s)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        const uint8_t *b = s->block + 4 * i;
        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t1 = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                            ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
        const uint32_t t2 =
            (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

/* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
static sha256 begin(void)
{
    return (sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                          0x1f83d9ab, 0x5be0cd19}};
}

static void add(sha256 *s, const void *data, size_t bytes)
{
    for (const uint8_t *at = data; bytes > 0; at++, bytes--) {
        s->block[s->bytes++ % BLOCK] = *at;
        if (s->bytes % BLOCK == 0) digest_block(s);
    }
}

static void end(sha256 *s, uint8_t digest[GD_HMAC_BYTES])
{
    static const uint8_t zero = 0, one = 0x80;
    const uint64_t bits = 8 * s->bytes;
    add(s, &one, 1);
    while (s->bytes % BLOCK != BLOCK - 8) add(s, &zero, 1);
    for (int i = 56; i >= 0; i -= 8) add(s, &(uint8_t){(uint8_t)(bits >> i)}, 1);
    for (int i = 0; i < GD_HMAC_BYTES; i++) digest[i] = (uint8_t)(s->h[i / 4] >> (24 - i % 4 * 8));
}

void gd_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t digest[GD_HMAC_BYTES])
{
    uint8_t own[BLOCK] = {0}, inner[BLOCK], outer[BLOCK];
    sha256 s = begin();
    if (key_bytes > BLOCK) {
        add(&s, key, key_bytes);
        end(&s, own);
    } else if (key_bytes > 0) {
        memcpy(own, key, key_bytes);
    }
    for (int i = 0; i < BLOCK; i++) {
        inner[i] = own[i] ^ 0x36;
        outer[i] = own[i] ^ 0x5c;
    }
    s = begin();
    add(&s, inner, BLOCK);
    add(&s, data, bytes);
    end(&s, digest);
    s = begin();
    add(&s, outer, BLOCK);
    add(&s, digest, GD_HMAC_BYTES);
    end(&s, digest);
}
