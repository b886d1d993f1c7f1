/* data.c - see data.h. */
#include "data.h"
#include "console.h"
#include "fingerprint.h"
#include "text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Files -------------------------------------------------------------------------------- */

static bool no_memory(void)
{
    console_message("out of memory: the text");
    return false;
}

/* A byte that a vocabulary of bytes lacks. */
static void tell_unknown(const dataset *data, const char *option, int which, int64_t at,
                         uint8_t byte)
{
    const data_options *o = &data->options;
    const int64_t *ends = data->ends[which];
    size_t file = 0;
    while (at >= ends[file]) file++;
    const char *path = data->texts[which].name[file];
    if (file > 0) at -= ends[file - 1];
    at += ends[data->texts[which].count + file];
    console_message("%s %s: byte %lld is %s, %s", option, path, (long long)at,
                    console_byte(byte).text,
                    o->tokenizer ? "which is not in the vocabulary of the model"
                                 : "which does not occur in the training text; the pieces of "
                                   "--vocab N cover every byte");
}

/* Text `begin` to `end` of those for training (0) or for validation (1). */
static bool encode(const dataset *data, const char *option, int which, const uint8_t *text,
                   int64_t begin, int64_t end, token_source *source)
{
    int width;
    int64_t count, unknown;
    void *ids =
        tokenizer_encode(&data->tokenizer, text + begin, end - begin, &width, &count, &unknown);
    if (ids) return tokens_own(source, ids, width, count) || no_memory();
    if (unknown < 0) return no_memory();
    tell_unknown(data, option, which, begin + unknown, text[begin + unknown]);
    return false;
}

/* Whether a text is a part of another: sums of bytes with powers of an odd number as factors,
 * modulo 2^64, show where it may be (Karp & Rabin 1987). */
static bool occurs(const uint8_t *text, int64_t length, const uint8_t *part, int64_t count)
{
    const uint64_t base = 1099511628211u;
    uint64_t power = 1, wanted = 0, sum = 0;
    for (int64_t i = 0; i < count && count <= length; i++) {
        wanted = wanted * base + part[i];
        sum = sum * base + text[i];
        power *= base;
    }
    for (int64_t at = 0; at + count <= length; at++) {
        if (sum == wanted && !memcmp(text + at, part, (size_t)count)) return true;
        if (at + count < length) sum = sum * base + text[at + count] - power * text[at];
    }
    return false;
}

/* Whether a file of tokens for validation is one of those for training. */
static bool share_files(const token_source *a, const token_source *b)
{
    for (int i = 0; i < a->shards; i++) {
        for (int k = 0; k < b->shards; k++) {
            const gd_os_status *x = &a->shard[i].found, *y = &b->shard[k].found;
            if (x->volume == y->volume && x->number == y->number) return true;
        }
    }
    return false;
}

static bool load_text(dataset *data)
{
    const data_options *o = &data->options;
    int64_t length, train, other_length;
    if (o->tokenizer) data->tokenizer = *o->tokenizer;
    uint8_t *text = text_file_join(o->option, o->text, &length, &data->texts[0], &data->ends[0]);
    uint8_t *other = NULL;
    if (!text) return false;
    if (memchr(text, 0, (size_t)length)) {
        console_message(
            "%s %s: it contains NUL bytes, which are rare in text; use --tokens for a token file",
            o->option, o->text);
    }
    train = o->part == DATA_WHOLE ? 0 : o->validation ? length : length * 9 / 10;
    bool fine = true;
    if (!o->tokenizer && o->vocab == 0)
        tokenizer_use_bytes(&data->tokenizer, text, length);
    else if (!o->tokenizer && !tokenizer_train(&data->tokenizer, text, train, (int32_t)o->vocab))
        fine = no_memory();
    data->files[0] = fingerprint_bytes(text, (size_t)train);
    if (fine && o->part == DATA_BOTH)
        fine = encode(data, o->option, 0, text, 0, train, &data->train);
    if (fine && o->validation) {
        other = text_file_join("--val-data", o->validation, &other_length, &data->texts[1],
                               &data->ends[1]);
        fine = other && encode(data, "--val-data", 1, other, 0, other_length, &data->validation);
        if (fine) data->files[1] = fingerprint_bytes(other, (size_t)other_length);
        data->seen = fine && occurs(text, length, other, other_length);
    } else if (fine) {
        fine = encode(data, o->option, 0, text, train, length, &data->validation);
        data->files[1] = fingerprint_bytes(text + train, (size_t)(length - train));
    }
    free(text);
    free(other);
    return fine;
}

static bool print_files(const token_source *source, const char *option, uint64_t *print)
{
    const char **paths = malloc((size_t)source->shards * sizeof *paths + 1);
    int failed = 0;
    if (!paths) return no_memory();
    for (int i = 0; i < source->shards; i++) paths[i] = source->shard[i].path;
    const bool fine = fingerprint_files(paths, source->shards, FINGERPRINT_WHOLE, print, &failed);
    if (!fine) console_message("%s %s: %s", option, paths[failed], strerror(errno));
    free(paths);
    return fine;
}

static bool open_tokens(const dataset *data, token_source *source, const char *option,
                        const char *pattern)
{
    char message[TOKENS_MESSAGE] = "";
    const data_options *o = &data->options;
    const bool opened = tokens_open(source, pattern, o->token_bytes, o->vocab, message);
    if (!opened)
        console_message("%s %s", option, message);
    else if (source->shard[0].dtype)
        console_notice("%s %s: an array of NumPy, %s", option, pattern, source->shard[0].dtype);
    return opened;
}

static bool load_tokens(dataset *data)
{
    const data_options *o = &data->options;
    data->tokenizer.vocab = o->vocab;
    const bool both = o->part == DATA_BOTH;
    if ((both && !open_tokens(data, &data->train, o->option, o->tokens)) ||
        !open_tokens(data, &data->validation, both ? "--val-data" : o->option,
                     both ? o->validation : o->tokens))
        return false;
    if (!both) return true;
    data->seen = share_files(&data->train, &data->validation);
    return !data->options.compare ||
           (print_files(&data->train, data->options.option, &data->files[0]) &&
            print_files(&data->validation, "--val-data", &data->files[1]));
}

/* ---- Windows ------------------------------------------------------------------------------- */

/* The number of windows of `context` + 1 ids in a shard. Training uses one less, so that the cuts
 * can move from epoch to epoch. */
static int64_t shard_windows(const token_shard *shard, int64_t context, bool moving)
{
    int64_t windows = shard->length < 1 ? 0 : (shard->length - 1) / context;
    return moving && windows > 1 ? windows - 1 : windows;
}

static int64_t count_windows(const token_source *source, int64_t context, bool moving)
{
    int64_t windows = 0;
    for (int s = 0; s < source->shards; s++)
        windows += shard_windows(&source->shard[s], context, moving);
    return windows;
}

static void tell_too_few(const dataset *data)
{
    const data_options *o = &data->options;
    const bool both = o->part == DATA_BOTH, other = o->validation && data->windows > 0;
    const char *option = other ? "--val-data" : o->option;
    const char *path = other ? o->validation : o->text ? o->text : o->tokens;
    const long long train = data->train.length, validation = data->validation.length;
    const long long tokens = both && !other ? train : validation, context = o->context;
    if (both && !o->validation && train + validation > 0) {
        console_message("%s %s: %lld token%s for training and %lld for validation are too few, "
                        "wanted at least %lld each for a context of %lld",
                        option, path, train, console_s(train), validation, context + 1, context);
    } else if (tokens == 0) {
        console_message("%s %s: it is empty", option, path);
    } else {
        console_message("%s %s: %lld token%s too few, wanted at least %lld for a context of %lld",
                        option, path, tokens, tokens == 1 ? " is" : "s are", context + 1, context);
    }
}

bool data_load(dataset *data, const data_options *options)
{
    *data = (dataset){.options = *options};
    if (!(options->text ? load_text(data) : load_tokens(data))) {
        data_free(data);
        return false;
    }
    data->windows = count_windows(&data->train, options->context, true);
    data->validation_windows = count_windows(&data->validation, options->context, false);
    const bool both = options->part == DATA_BOTH;
    if ((data->windows > 0 || !both) && data->validation_windows > 0) return true;
    tell_too_few(data);
    data_free(data);
    return false;
}

void data_free(dataset *data)
{
    tokens_close(&data->train);
    tokens_close(&data->validation);
    tokenizer_free(&data->tokenizer);
    for (int i = 0; i < 2; i++) {
        paths_free(&data->texts[i]);
        free(data->ends[i]);
    }
}

/* ---- Batches ------------------------------------------------------------------------------- */

/* Where a window begins: its shard and first id. `phase` shifts the cuts of training windows. */
static const token_shard *find_window(const token_source *source, int64_t window, int64_t context,
                                      bool moving, uint64_t phase, int64_t *start)
{
    const token_shard *shard = source->shard;
    for (int64_t here; window >= (here = shard_windows(shard, context, moving)); shard++)
        window -= here;
    int64_t room = shard->length - 1 - shard_windows(shard, context, moving) * context;
    *start = window * context + (moving ? (int64_t)(phase % (uint64_t)(room + 1)) : 0);
    return shard;
}

/* The error of reading ids from `at` on. */
static gd_status refuse_ids(gd_context *ctx, const dataset *data, const token_shard *shard,
                            int64_t at, int64_t bad)
{
    const char *path = shard->path ? shard->path : "the text";
    if (bad < -1) {
        return gd_fail(ctx, GD_ERROR_IO, "%s: tokens from %lld on cannot be read: %s", path,
                       (long long)at, tokens_reason(bad));
    }
    const int64_t id = tokens_at(shard, at + bad);
    return gd_fail(ctx, GD_ERROR_ARGUMENT,
                   "%s: token %lld is %lld, wanted %sless than %lld, the size of the vocabulary",
                   path, (long long)(at + bad), (long long)id, id < 0 ? "0 or more, and " : "",
                   (long long)data->tokenizer.vocab);
}

/* Rows of windows `first`, `first` + 1 ... */
static gd_status read_rows(gd_context *ctx, const dataset *data, bool training, int64_t first,
                           int64_t batch, int32_t *ids)
{
    const int64_t context = data->options.context;
    int32_t *next = ids + batch * context;
    int32_t *row = malloc((size_t)(context + 1) * sizeof *row);
    if (!row) return gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: a batch");
    for (int64_t b = 0; b < batch && !gd_error(ctx); b++) {
        int64_t window = first + b, start, bad;
        uint64_t key = 0;
        if (training) {
            key = gd_shuffle_key(data->options.seed, window / data->windows);
            window = gd_shuffled(window % data->windows, data->windows, key);
        }
        const token_source *source = training ? &data->train : &data->validation;
        const token_shard *shard = find_window(source, window, context, training, key, &start);
        bad = tokens_read(shard, start, context + 1, data->tokenizer.vocab, row);
        if (bad != -1) refuse_ids(ctx, data, shard, start, bad);
        memcpy(ids + b * context, row, (size_t)context * sizeof *row);
        memcpy(next + b * context, row + 1, (size_t)context * sizeof *row);
    }
    free(row);
    return gd_error_status(ctx);
}

/* 2^28 ids take half a second. */
gd_status data_check_ids(gd_context *ctx, const dataset *data)
{
    enum { PIECE = 1 << 16, MOST = 1 << 28 };
    const token_source *const sources[] = {&data->validation, &data->train};
    if (data->tokenizer.kind != TOKENIZER_NONE) return gd_error_status(ctx);
    int32_t *ids = malloc(PIECE * sizeof *ids);
    if (!ids) return gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: a batch");
    for (int i = 0; i < 2; i++) {
        int64_t left = MOST;
        for (int s = 0; s < sources[i]->shards; s++) {
            const token_shard *shard = &sources[i]->shard[s];
            for (int64_t at = 0, n; at < shard->length && left > 0 && !gd_error(ctx); at += n) {
                n = shard->length - at < PIECE ? shard->length - at : PIECE;
                const int64_t bad = tokens_read(shard, at, n, data->tokenizer.vocab, ids);
                if (bad != -1) refuse_ids(ctx, data, shard, at, bad);
                left -= n;
            }
        }
    }
    free(ids);
    return gd_error_status(ctx);
}

gd_status data_read_batch(gd_context *ctx, const dataset *data, int64_t position, int64_t batch,
                          int32_t *ids)
{
    return read_rows(ctx, data, true, position, batch, ids);
}

gd_status data_write_batch(const int32_t *ids, gd_tensor *tokens, gd_tensor *targets)
{
    const int64_t count = gd_tensor_count(tokens);
    gd_tensor_write(tokens, ids, (size_t)count * sizeof *ids);
    return gd_tensor_write(targets, ids + count, (size_t)count * sizeof *ids);
}

gd_status data_validation(const dataset *data, int64_t first, gd_tensor *tokens, gd_tensor *targets)
{
    gd_context *ctx = gd_tensor_context(tokens);
    int32_t *ids = malloc(2 * (size_t)gd_tensor_count(tokens) * sizeof *ids);
    if (!ids) return gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: a batch");
    if (!read_rows(ctx, data, false, first, gd_tensor_dim(tokens, 0), ids))
        data_write_batch(ids, tokens, targets);
    free(ids);
    return gd_error_status(ctx);
}

int64_t data_validation_bytes(const dataset *data)
{
    enum { PIECE = 1024 };
    const tokenizer *t = &data->tokenizer;
    int64_t bytes = 0;
    int32_t ids[PIECE];
    if (t->kind == TOKENIZER_NONE) return 0;
    for (int s = 0; s < data->validation.shards; s++) {
        const token_shard *shard = &data->validation.shard[s];
        int64_t context = data->options.context;
        int64_t end =
            shard_windows(shard, context, false) * context + 1; /* token 0 is not predicted */
        for (int64_t at = 1; at < end; at += PIECE) {
            int64_t count = end - at < PIECE ? end - at : PIECE;
            if (tokens_read(shard, at, count, t->vocab, ids) != -1) return 0;
            for (int64_t i = 0; i < count; i++) bytes += tokenizer_bytes(t, ids[i]);
        }
    }
    return bytes;
}
