/* fuzz_safetensors.c - any bytes as a safetensors file: refused with a message, or valid by every
 * rule and the same when written and read again. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "fuzz.h"
#include "gradus/gradus.h"
#include "safetensors_oracle.h"

static gd_context *ctx;

static void demand_of(bool holds, const char *what)
{
    if (!holds && gd_error(ctx)) fprintf(stderr, "%s\n", gd_error(ctx));
    demand(holds, what);
}

static void feed(const uint8_t *bytes, size_t size)
{
    gd_safetensors *file = gd_safetensors_wrap(ctx, bytes, size);
    if (!file) {
        demand_of(gd_error(ctx) && !strchr(gd_error(ctx), '\n'), "refused without a sentence");
        gd_error_clear(ctx);
        return;
    }
    const char *fault = oracle_rules(file, bytes, size);
    if (!fault) fault = oracle_round_trip(ctx, file);
    demand_of(!fault && !gd_error(ctx), fault ? fault : "accepted, but");
    gd_safetensors_close(file);
    demand_of(gd_memory(ctx).current_total == 0, "tensors leaked");
}

/* Once as it is, and once as a header of the right length before some zeros, or the length would
 * be wrong nearly always. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    enum { MOST = 1 << 16 };
    static uint8_t shaped[MOST + 8 + UINT8_MAX];
    if (!ctx) {
        const gd_context_options options = {.threads = 1};
        ctx = gd_context_create(&options);
        demand_of(ctx && !gd_error(ctx), "no context");
    }
    feed(bytes, size);
    if (size == 0 || size > MOST) return 0;
    size_t header = size - 1, data = bytes[0];
    memset(shaped, 0, 8);
    for (int i = 0; i < 8; i++) shaped[i] = (uint8_t)((uint64_t)header >> (8 * i));
    memcpy(shaped + 8, bytes + 1, header);
    memset(shaped + 8 + header, 0, data);
    feed(shaped, 8 + header + data);
    return 0;
}
