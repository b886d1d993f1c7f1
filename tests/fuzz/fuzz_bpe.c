/* fuzz_bpe.c - any text, and any merges: what is encoded decodes to the same bytes, training is
 * repeated by its own merges, and merges that are accepted name earlier tokens only. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "bpe.h"
#include "fuzz.h"

static void check_text(const bpe *b, const uint8_t *text, int64_t length)
{
    int64_t count, at = 0;
    int32_t *ids = bpe_encode(b, text, length, &count);
    demand(ids && count <= length, "ids");
    for (int64_t i = 0; i < count; i++) {
        demand(ids[i] >= 0 && ids[i] < b->vocab, "an id of the vocabulary");
        int32_t size = b->length[ids[i]];
        demand(size > 0 && size <= length - at, "bytes that are there");
        demand(!memcmp(text + at, b->bytes[ids[i]], (size_t)size), "the same bytes");
        at += size;
    }
    demand(at == length, "all bytes");
    free(ids);
}

static void check_merges(const bpe *b)
{
    for (int32_t i = 0; i < b->vocab - 256; i++) {
        int32_t left = b->merge[i][0], right = b->merge[i][1];
        demand(left >= 0 && left < 256 + i && right >= 0 && right < 256 + i, "earlier tokens");
        for (int32_t k = 0; k < i; k++) {
            demand(b->merge[k][0] != left || b->merge[k][1] != right, "no pair twice");
        }
    }
}

/* The text, and how many pieces at most, from the first byte. */
static void train(const uint8_t *bytes, size_t size)
{
    const uint8_t *text = bytes + 1;
    int64_t length = (int64_t)size - 1;
    bpe trained, again;
    demand(bpe_train(&trained, text, length / 2, 256 + bytes[0] % 64), "trained");
    check_merges(&trained);
    for (int32_t i = 0; i < trained.vocab; i++) {
        for (int32_t k = 0; k < i; k++) {
            bool same = trained.length[i] == trained.length[k] &&
                        !memcmp(trained.bytes[i], trained.bytes[k], (size_t)trained.length[i]);
            demand(!same, "no two tokens of the same bytes");
        }
    }
    check_text(&trained, text, length);
    demand(bpe_begin(&again, trained.vocab), "memory");
    for (int32_t i = 0; i < trained.vocab - 256; i++)
        demand(bpe_add(&again, trained.merge[i][0], trained.merge[i][1]), "its merges again");
    check_text(&again, text, length);
    bpe_free(&again);
    bpe_free(&trained);
}

/* Each token can be twice as long as the one before it, so only a few. */
static void take_merges(const uint8_t *bytes, size_t size)
{
    enum { MOST = 12 };
    int32_t merge[MOST][2];
    int32_t count = bytes[0] % (MOST + 1);
    bpe b;
    if (size < 1 + (size_t)count * 4) return;
    for (int32_t i = 0; i < 2 * count; i++) {
        merge[i / 2][i % 2] = (int16_t)(bytes[1 + 2 * i] | bytes[2 + 2 * i] << 8);
    }
    demand(bpe_begin(&b, 256 + count), "memory");
    for (int32_t i = 0; i < count; i++) bpe_add(&b, merge[i][0], merge[i][1]);
    check_merges(&b);
    check_text(&b, bytes, (int64_t)size);
    bpe_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2) return 0;
    train(bytes, size);
    take_merges(bytes, size);
    return 0;
}
