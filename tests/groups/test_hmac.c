/* test_hmac.c - HMAC-SHA256, by which ranks prove that they know the secret, against the vectors of
 * RFC 4231. */
/* Build: all symbols. */
#define _POSIX_C_SOURCE 200809L /* groups of several, which use it, need POSIX */
#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "group/group.h"

/* RFC 4231, cases 1 to 4, 6 and 7; and nothing at all. */
typedef struct vector {
    const char *key, *data;
    int key_byte, key_bytes, data_byte, data_bytes; /* repeated, where there is no text */
    const char *digest;
} vector;

static const vector vectors[] = {
    {.key_byte = 0x0b,
     .key_bytes = 20,
     .data = "Hi There",
     .digest = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
    {.key = "Jefe",
     .data = "what do ya want for nothing?",
     .digest = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
    {.key_byte = 0xaa,
     .key_bytes = 20,
     .data_byte = 0xdd,
     .data_bytes = 50,
     .digest = "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
    {.key = "\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\25\26\27\30\31",
     .data_byte = 0xcd,
     .data_bytes = 50,
     .digest = "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
    {.key_byte = 0xaa,
     .key_bytes = 131,
     .data = "Test Using Larger Than Block-Size Key - Hash Key First",
     .digest = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    {.key_byte = 0xaa,
     .key_bytes = 131,
     .data = "This is a test using a larger than block-size key and a larger than block-size data. "
             "The key needs to be hashed before being used by the HMAC algorithm.",
     .digest = "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    {.digest = "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"},
};

static size_t bytes_of(const char *text, int byte, int count, unsigned char room[200])
{
    const size_t bytes = text ? strlen(text) : (size_t)count;
    memset(room, byte, 200);
    if (text) memcpy(room, text, bytes);
    return bytes;
}

LOOP_TEST(hmac_is_that_of_the_rfc, sizeof vectors / sizeof *vectors)
{
    const vector *v = &vectors[_i];
    unsigned char key[200], data[200];
    uint8_t digest[GD_HMAC_BYTES];
    char text[2 * GD_HMAC_BYTES + 1];
    const size_t key_bytes = bytes_of(v->key, v->key_byte, v->key_bytes, key);
    const size_t bytes = bytes_of(v->data, v->data_byte, v->data_bytes, data);
    gd_hmac_sha256(key, key_bytes, data, bytes, digest);
    for (int i = 0; i < GD_HMAC_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    ck_assert_str_eq(text, v->digest);
}

CHECK_MAIN("hmac", 0)
