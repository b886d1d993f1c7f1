/* tokenizer_read.c - reads tokenizer.json. See tokenizer_file.h.
 *
 * A tree of the whole file would take many times the memory of its text. So one token or merge is
 * parsed at a time, in two passes: one counts, and checks everything else; the other reads the
 * merges, then compares the vocabulary with the tokens that they make. */
#include "files/utf8.h"
#include "folder.h"
#include "text_file.h"
#include "tokenizer_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON
#include "files/json.h"

typedef struct walk {
    gd_json json;
    unsigned parts;             /* which were there */
    bool pieces;                /* words are cut, and merged */
    size_t vocab_at, merges_at; /* where they begin; 0: nowhere */
    int64_t vocab, merges;      /* how many */
    tokenizer *t;
    bool *seen; /* [vocab] ids that have a name */
} walk;

/* Takes a value, which must not be long: two tokens, or what transformers adds. */
static const json_t *take_value(walk *w)
{
    enum { MOST = 1 << 14 };
    return gd_json_take(&w->json, MOST);
}

/* Visits the values of an object, or of an array, whose names are NULL. */
static bool walk_members(walk *w, bool object, bool (*visit)(walk *w, const char *name))
{
    if (gd_json_peek(&w->json) != (object ? '{' : '[')) return false;
    while (gd_json_next(&w->json, object)) {
        if (!visit(w, object ? w->json.name : NULL)) return false;
    }
    return !w->json.wrong;
}

static bool count_entry(walk *w, const char *name)
{
    *(name ? &w->vocab : &w->merges) += 1;
    return take_value(w) != NULL;
}

/* ---- Tokens ------------------------------------------------------------------------------- */

/* The bytes of a token, from its characters. 0 if they are not those of a token. */
static int32_t read_bytes(const char *name, uint8_t bytes[BPE_LONGEST])
{
    int32_t length = 0;
    for (const unsigned char *c = (const unsigned char *)name; c && *c;) {
        const int code = gd_utf8_length(c, 4);
        const int byte = code > 2 ? -1 : tokenizer_byte_of((int)gd_utf8_code(c, code));
        if (byte < 0 || length == BPE_LONGEST) return 0;
        bytes[length++] = (uint8_t)byte;
        c += code;
    }
    return length;
}

/* Takes an id of the vocabulary, which has no name yet; -1 if it is none. */
static int64_t take_id(walk *w, int64_t vocab)
{
    const json_t *value = take_value(w);
    const int64_t id = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    if (id < 0 || id >= vocab || w->seen[id]) return -1;
    w->seen[id] = true;
    return id;
}

/* An entry of the vocabulary must be a token that the merges make. */
static bool check_piece(walk *w, const char *name)
{
    const bpe *b = &w->t->bpe;
    uint8_t bytes[BPE_LONGEST];
    const int64_t id = take_id(w, b->vocab);
    const int32_t length = read_bytes(name, bytes);
    return length > 0 && id >= 0 && bpe_find(b, bytes, length) == id;
}

static bool read_byte(walk *w, const char *name)
{
    tokenizer *t = w->t;
    uint8_t bytes[BPE_LONGEST];
    const int64_t id = take_id(w, w->vocab);
    if (id < 0 || read_bytes(name, bytes) != 1 || t->id_of[bytes[0]] >= 0) return false;
    t->symbol[id] = bytes[0];
    t->id_of[bytes[0]] = (int16_t)id;
    return true;
}

static int32_t find_piece(const bpe *b, const json_t *name)
{
    uint8_t bytes[BPE_LONGEST];
    const int32_t length = read_bytes(json_string_value(name), bytes);
    return length ? bpe_find(b, bytes, length) : -1;
}

static bool read_merge(walk *w, const char *name)
{
    (void)name;
    bpe *b = &w->t->bpe;
    const json_t *pair = take_value(w);
    return json_array_size(pair) == 2 && bpe_add(b, find_piece(b, json_array_get(pair, 0)),
                                                 find_piece(b, json_array_get(pair, 1)));
}

/* The second pass. An id has one name, and a name one id: so where there are as many of both, they
 * are all there. */
static bool read_tokens(walk *w)
{
    tokenizer *t = w->t;
    const bool pieces = w->pieces;
    const int64_t wanted = 256 + w->merges;
    if (pieces ? w->vocab != wanted || wanted > INT32_MAX
               : w->vocab < 1 || w->vocab > 256 || w->merges > 0)
        return false;
    *t = (tokenizer){.kind = pieces ? TOKENIZER_BPE : TOKENIZER_BYTES, .vocab = w->vocab};
    memset(t->id_of, -1, sizeof t->id_of);
    w->seen = calloc((size_t)w->vocab, sizeof *w->seen);
    bool fine = w->seen != NULL;
    if (pieces && fine) {
        w->json.at = w->merges_at;
        fine = bpe_begin(&t->bpe, (int32_t)w->vocab) && walk_members(w, false, read_merge);
    }
    w->json.at = w->vocab_at;
    fine = fine && walk_members(w, true, pieces ? check_piece : read_byte);
    free(w->seen);
    return fine;
}

/* ---- Everything else ---------------------------------------------------------------------- */

/* What Hugging Face's tokenizers add when they write a file: null, false, and a post-processor that
 * adds no token. */
static bool says_nothing(const json_t *value)
{
    const json_t *added = json_object_get(value, "special_tokens");
    return json_is_null(value) || json_is_false(value) ||
           (json_is_object(added) && json_object_size(added) == 0);
}

/* Whether a value is that of a JSON text. */
static bool is(const json_t *value, const char *text)
{
    gd_json json = {.text = text, .length = strlen(text)};
    const json_t *wanted = gd_json_take(&json, SIZE_MAX);
    const bool same = wanted && json_equal(value, wanted);
    gd_json_close(&json);
    return same;
}

/* Whether a value is the pre-tokenizer of pieces, or of bytes. */
static bool is_words(const json_t *value, bool pieces)
{
    gd_json_text text = {0};
    tokenizer_print_words(&text, pieces);
    const bool same = !text.lacking && is(value, text.bytes);
    free(text.bytes);
    return same;
}

static const struct {
    const char *name, *wanted;
    bool model; /* within it */
} parts[] = {{"version", "\"1.0\"", false},
             {"added_tokens", "[]", false},
             {"decoder", tokenizer_byte_level, false},
             {"pre_tokenizer", NULL, false},
             {"type", "\"BPE\"", true}};

enum { PARTS = sizeof parts / sizeof *parts, ALL_PARTS = (1 << PARTS) - 1 };

/* Takes a part of the file that must say one thing, or says nothing. */
static bool visit_part(walk *w, const char *name, bool model)
{
    size_t i = 0;
    while (i < PARTS && (strcmp(name, parts[i].name) != 0 || parts[i].model != model)) i++;
    const json_t *value = take_value(w);
    if (!value) return false;
    if (i == PARTS) return says_nothing(value);
    const unsigned part = 1u << i;
    if (w->parts & part) return false;
    w->parts |= part;
    if (parts[i].wanted) return is(value, parts[i].wanted);
    w->pieces = is_words(value, true);
    return w->pieces || is_words(value, false);
}

static bool visit_model(walk *w, const char *name)
{
    const bool vocab = !strcmp(name, "vocab");
    if (!vocab && strcmp(name, "merges") != 0) return visit_part(w, name, true);
    size_t *at = vocab ? &w->vocab_at : &w->merges_at;
    if (*at) return false; /* twice */
    *at = w->json.at;
    return walk_members(w, vocab, count_entry);
}

static bool visit_root(walk *w, const char *name)
{
    return strcmp(name, "model") ? visit_part(w, name, false) : walk_members(w, true, visit_model);
}

/* Everything in the file must be what is written here, or have no effect. */
static bool read_tokenizer(tokenizer *t, const char *text, size_t length)
{
    walk w = {.json = gd_json_of(text, length), .t = t};
    const bool read = walk_members(&w, true, visit_root) && gd_json_end(&w.json) &&
                      w.parts == ALL_PARTS && w.vocab_at && w.merges_at && read_tokens(&w);
    gd_json_close(&w.json);
    if (!read) tokenizer_free(t);
    return read;
}

gd_status tokenizer_load(tokenizer *t, gd_context *ctx, open_folder *in)
{
    enum { LIMIT = 64 << 20 };
    static const char name[] = "tokenizer.json";
    char path[FOLDER_PATH];
    size_t length;
    *t = (tokenizer){.kind = TOKENIZER_NONE};
    if (gd_error(ctx) || !folder_has(in, name) || !folder_join(path, in->path, name))
        return gd_error_status(ctx);
    char *text = folder_read_text(in, name, LIMIT, &length);
    errno = text ? 0 : errno;
    if (!text) {
        gd_fail(ctx, GD_ERROR_IO, "cannot read %s: %s", path, folder_reason());
    } else if (!read_tokenizer(t, text, length)) {
        const char *pointer = text_file_pointer(text, length);
        if (pointer)
            gd_fail(ctx, GD_ERROR_IO, "%s: %s", path, pointer);
        else if (errno == ENOMEM)
            gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: %s", path);
        else
            gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                    "%s is not a tokenizer of this program; use --tokens, or --ids of "
                    "gradus-sample, to work with ids",
                    path);
    }
    free(text);
    return gd_error_status(ctx);
}

#else

gd_status tokenizer_load(tokenizer *t, gd_context *ctx, open_folder *in)
{
    (void)in;
    *t = (tokenizer){.kind = TOKENIZER_NONE};
    return gd_error_status(ctx);
}

#endif
