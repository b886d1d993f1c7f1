/* data.c - see data.h. */
#include "data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All bytes of a file; NULL after a message. */
static uint8_t *read_file(const char *path, int64_t *length)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "gradus-train: cannot open %s: %s\n", path, strerror(errno));
        return NULL;
    }
    size_t capacity = 1 << 16, used = 0, got;
    uint8_t *bytes = malloc(capacity);
    while (bytes && (got = fread(bytes + used, 1, capacity - used, file)) > 0) {
        used += got;
        if (used < capacity) continue;
        uint8_t *grown = realloc(bytes, capacity *= 2);
        if (!grown) free(bytes);
        bytes = grown;
    }
    bool failed = ferror(file) != 0;
    fclose(file);
    if (bytes && !failed) {
        *length = (int64_t)used;
        return bytes;
    }
    fprintf(stderr, "gradus-train: cannot read %s: %s\n", path,
            bytes ? strerror(errno) : "out of memory");
    free(bytes);
    return NULL;
}

bool data_load(text_data *data, const char *path, int64_t context)
{
    *data = (text_data){0};
    data->ids = read_file(path, &data->length);
    if (!data->ids) return false;
    data->train_length = data->length * 9 / 10;
    if (data->length - data->train_length < context + 1 || data->length > INT32_MAX) {
        fprintf(stderr,
                "gradus-train: %s has %lld bytes, wanted %lld to %d for a context of %lld\n", path,
                (long long)data->length, (long long)(10 * (context + 1)), INT32_MAX,
                (long long)context);
        data_free(data);
        return false;
    }
    bool seen[256] = {false};
    uint8_t id_of[256] = {0};
    for (int64_t i = 0; i < data->length; i++) seen[data->ids[i]] = true;
    for (int byte = 0; byte < 256; byte++) {
        if (!seen[byte]) continue;
        id_of[byte] = (uint8_t)data->vocab;
        data->symbol[data->vocab++] = (unsigned char)byte;
    }
    for (int64_t i = 0; i < data->length; i++) data->ids[i] = id_of[data->ids[i]];
    return true;
}

void data_free(text_data *data)
{
    free(data->ids);
    data->ids = NULL;
}

/* Copies rows of windows that begin at starts [B] into both tensors. */
static gd_status fill(const text_data *data, const int32_t *starts, gd_tensor *tokens,
                      gd_tensor *targets)
{
    int64_t batch = gd_tensor_dim(tokens, 0), context = gd_tensor_dim(tokens, 1);
    size_t bytes = (size_t)(batch * context) * sizeof(int32_t);
    int32_t *ids = malloc(2 * bytes);
    if (!ids) {
        return gd_fail(gd_tensor_context(tokens), GD_ERROR_MEMORY, "train: no memory for a batch");
    }
    int32_t *next = ids + batch * context;
    for (int64_t b = 0; b < batch; b++) {
        const uint8_t *window = data->ids + starts[b];
        for (int64_t t = 0; t < context; t++) {
            ids[b * context + t] = window[t];
            next[b * context + t] = window[t + 1];
        }
    }
    gd_tensor_write(tokens, ids, bytes);
    gd_status status = gd_tensor_write(targets, next, bytes);
    free(ids);
    return status;
}

gd_status data_draw(const text_data *data, gd_tensor *tokens, gd_tensor *targets)
{
    gd_context *ctx = gd_tensor_context(tokens);
    int64_t batch = gd_tensor_dim(tokens, 0), context = gd_tensor_dim(tokens, 1);
    int32_t *starts = malloc((size_t)batch * sizeof *starts);
    uint32_t *words = malloc((size_t)batch * sizeof *words);
    gd_status status = GD_ERROR_MEMORY;
    if (starts && words) {
        uint64_t places = (uint64_t)(data->train_length - context);
        gd_philox(gd_random_get(ctx).seed, 0, gd_random_take(ctx, (uint64_t)batch), batch, words);
        for (int64_t b = 0; b < batch; b++) starts[b] = (int32_t)(words[b] * places >> 32);
        status = fill(data, starts, tokens, targets);
    } else {
        status = gd_fail(ctx, GD_ERROR_MEMORY, "train: no memory for a batch");
    }
    free(starts);
    free(words);
    return status;
}

int64_t data_validation_windows(const text_data *data, int64_t context)
{
    return (data->length - data->train_length - 1) / context;
}

gd_status data_validation(const text_data *data, int64_t first, gd_tensor *tokens,
                          gd_tensor *targets)
{
    int64_t batch = gd_tensor_dim(tokens, 0), context = gd_tensor_dim(tokens, 1);
    int32_t *starts = malloc((size_t)batch * sizeof *starts);
    if (!starts) {
        return gd_fail(gd_tensor_context(tokens), GD_ERROR_MEMORY, "train: no memory for a batch");
    }
    for (int64_t b = 0; b < batch; b++) {
        starts[b] = (int32_t)(data->train_length + (first + b) * context);
    }
    gd_status status = fill(data, starts, tokens, targets);
    free(starts);
    return status;
}
