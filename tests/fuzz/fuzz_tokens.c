/* fuzz_tokens.c - any bytes as a token file: refused with a message, or every byte of it accounted
 * for and every id read correctly. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "fuzz.h"
#include "tokens.h"

static uint32_t word_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void check(const token_source *source, int width, const uint8_t *bytes, size_t size)
{
    const token_shard *s = &source->shard[0];
    const uint32_t magic = size >= 4 ? word_at(bytes) : 0;
    const bool npy = size >= 6 && !memcmp(bytes, "\x93NUMPY", 6);
    bool headed = magic == 20240520 || magic == 20240801;
    size_t begin = (size_t)s->begin;
    demand(source->shards == 1 && source->length == s->length && s->length >= 0, "one shard");
    if (headed) demand(s->width == (magic == 20240801 ? 4 : 2) && begin == 1024, "its width");
    if (npy) demand(begin >= 10 && (s->width == 2 || s->width == 4 || s->width == 8), "its width");
    if (!headed && !npy) demand(s->width == (width ? width : 2) && begin == 0, "its width");
    demand(!width || s->width == width, "the width that was said");
    demand(begin + (size_t)s->length * (size_t)s->width == size, "all of the file");
    if (headed) demand(word_at(bytes + 4) == (s->width == 4 ? 7 : 1), "its version");
    if (headed) demand(word_at(bytes + 8) == (uint32_t)s->length, "as many as the header says");
    int64_t bad = -1;
    int32_t *ids = malloc((size_t)s->length * sizeof *ids + 1);
    int64_t told = tokens_read(s, 0, s->length, 1000, ids);
    for (int64_t i = 0; i < s->length; i++) {
        const uint8_t *p = bytes + begin + i * s->width;
        uint64_t id = (uint64_t)p[0] | (uint64_t)p[1] << 8;
        if (s->width >= 4) id = word_at(p);
        if (s->width == 8) id |= (uint64_t)word_at(p + 4) << 32;
        demand((uint32_t)ids[i] == (uint32_t)id, "the id that stands there");
        if (id >= 1000 && bad < 0) bad = i;
    }
    demand(told == bad, "the first id beyond the vocabulary");
    free(ids);
}

/* As it is, and behind the header that llm.c writes; with each width. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static uint8_t headed[1024 + 4096];
    const uint8_t *tries[2] = {bytes, headed};
    size_t sizes[2] = {size, 0};
    if (size >= 3 && size <= 4096) {
        const uint32_t magic = bytes[0] < 4 ? 20240520 : 20240801;
        memset(headed, 0, 1024);
        memcpy(headed, &magic, sizeof magic);
        headed[4] = bytes[0];
        memcpy(headed + 8, bytes + 1, 2);
        memcpy(headed + 1024, bytes + 3, size - 3);
        sizes[1] = 1024 + size - 3;
    }
    for (int i = 0; i < 2; i++) {
        char message[TOKENS_MESSAGE] = "";
        token_source source;
        if (i == 1 && sizes[1] == 0) continue;
        const int width = tokens_width(size ? bytes[size - 1] % 4 : 0);
        if (tokens_open(&source, fuzz_file("tokens.bin", tries[i], sizes[i]), width, 1000,
                        message)) {
            check(&source, width, tries[i], sizes[i]);
        } else {
            demand(message[0] && !strchr(message, '\n') && !source.shard, "a sentence");
        }
        tokens_close(&source);
    }
    return 0;
}
