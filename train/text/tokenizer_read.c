/* tokenizer_read.c - reads tokenizer.json. See tokenizer_file.h.
 *
 * A tree of the whole file would take many times the memory of its text. So jansson parses one
 * token or merge at a time, in two passes: one counts, and checks everything else; the other reads
 * the merges, then compares the vocabulary with the tokens that they make. */
#include "folder.h"
#include "files/json_depth.h"
#include "json.h"
#include "platform/file.h"
#include "text_file.h"
#include "tokenizer_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

/* ---- JSON, one value at a time ------------------------------------------------------------ */

typedef struct walk {
    const char *text;
    size_t length, at;
    unsigned parts; /* which were there */
    tokenizer_form form;
    size_t vocab_at, merges_at; /* where they begin; 0: nowhere */
    int64_t vocab, merges;      /* how many */
    tokenizer *t;
    bool *seen; /* [vocab] ids that have a name */
} walk;

/* The next character that is not a blank, 0 at the end. */
static char peek(walk *w)
{
    while (w->at < w->length && w->text[w->at] && strchr(" \t\r\n", w->text[w->at])) w->at++;
    return w->at < w->length ? w->text[w->at] : '\0';
}

static bool take(walk *w, char wanted)
{
    if (peek(w) != wanted) return false;
    w->at++;
    return true;
}

/* Takes a value, which must not be long. NULL if it is, or is not valid. */
static json_t *take_value(walk *w)
{
    enum { MOST = 1 << 14 }; /* of two tokens, or of what transformers adds */
    json_error_t error;
    const size_t rest = w->length - w->at;
    if (gd_json_is_deep(w->text + w->at, rest < MOST ? rest : MOST, JSON_DEPTH)) return NULL;
    json_t *value =
        json_loadb(w->text + w->at, rest < MOST ? rest : MOST,
                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &error);
    if (value) w->at += (size_t)error.position;
    return value;
}

/* Visits the values of an object, or of an array, whose names are NULL. */
static bool walk_members(walk *w, bool object, bool (*visit)(walk *w, const char *name))
{
    if (!take(w, object ? '{' : '[')) return false;
    bool fine = true, more = peek(w) != (object ? '}' : ']');
    while (fine && more) {
        json_t *name = object ? take_value(w) : NULL;
        fine = (!object || (json_is_string(name) && take(w, ':'))) &&
               visit(w, json_string_value(name));
        json_decref(name);
        more = fine && take(w, ',');
    }
    return fine && take(w, object ? '}' : ']');
}

static bool count_entry(walk *w, const char *name)
{
    json_t *value = take_value(w);
    *(name ? &w->vocab : &w->merges) += 1;
    json_decref(value);
    return value != NULL;
}

/* ---- Tokens ------------------------------------------------------------------------------- */

/* The bytes of a token, from its characters, which are below U+0800. 0 if they are not those of a
 * token. */
static int32_t read_bytes(const char *name, uint8_t bytes[BPE_LONGEST])
{
    const unsigned char *c = (const unsigned char *)name; /* valid UTF-8, from jansson */
    int32_t length = 0;
    while (c && *c) {
        const int size = *c < 0x80 ? 1 : 2;
        const int byte = tokenizer_byte_of(size == 1 ? *c : (*c & 0x1f) << 6 | (c[1] & 0x3f));
        if (*c >= 0xe0 || byte < 0 || length == BPE_LONGEST) return 0;
        bytes[length++] = (uint8_t)byte;
        c += size;
    }
    return length;
}

/* An entry of the vocabulary must be a token that the merges make. */
static bool check_piece(walk *w, const char *name)
{
    const bpe *b = &w->t->bpe;
    uint8_t bytes[BPE_LONGEST];
    json_t *value = take_value(w);
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    const int32_t length = read_bytes(name, bytes);
    json_decref(value);
    if (length == 0 || id < 0 || id >= b->vocab || w->seen[id]) return false;
    w->seen[id] = true;
    return bpe_find(b, bytes, length) == id;
}

static bool read_byte(walk *w, const char *name)
{
    tokenizer *t = w->t;
    uint8_t bytes[BPE_LONGEST];
    json_t *value = take_value(w);
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    json_decref(value);
    if (read_bytes(name, bytes) != 1 || id < 0 || id >= w->vocab || w->seen[id]) return false;
    if (t->id_of[bytes[0]] >= 0) return false;
    w->seen[id] = true;
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
    json_t *pair = take_value(w);
    const bool added =
        json_array_size(pair) == 2 &&
        bpe_add(b, find_piece(b, json_array_get(pair, 0)), find_piece(b, json_array_get(pair, 1)));
    json_decref(pair);
    return added;
}

/* The second pass. An id has one name, and a name one id: so where there are as many of both, they
 * are all there. */
static bool read_tokens(walk *w)
{
    tokenizer *t = w->t;
    const bool pieces = w->form != TOKENIZER_NO_WORDS;
    const int64_t wanted = 256 + w->merges;
    if (pieces ? w->vocab != wanted || wanted > INT32_MAX
               : w->vocab < 1 || w->vocab > 256 || w->merges > 0)
        return false;
    *t = (tokenizer){.kind = pieces ? TOKENIZER_BPE : TOKENIZER_BYTES, .vocab = w->vocab};
    memset(t->id_of, -1, sizeof t->id_of);
    w->seen = calloc((size_t)w->vocab, sizeof *w->seen);
    bool fine = w->seen != NULL;
    if (pieces && fine) {
        w->at = w->merges_at;
        fine = bpe_begin(&t->bpe, (int32_t)w->vocab) && walk_members(w, false, read_merge);
        t->bpe.byte_words = w->form != TOKENIZER_CHARACTERS;
    }
    w->at = w->vocab_at;
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
    json_t *wanted = json_loads(text, JSON_DECODE_ANY, NULL);
    const bool same = wanted && json_equal(value, wanted);
    json_decref(wanted);
    return same;
}

/* The form of the words; TOKENIZER_FORMS: none of ours. */
static tokenizer_form find_form(const json_t *value)
{
    tokenizer_form form = TOKENIZER_NO_WORDS;
    for (bool found = false; form < TOKENIZER_FORMS; form++) {
        gd_os_text text;
        gd_os_text_begin(&text);
        if (text.file) tokenizer_print_words(form, text.file);
        if (gd_os_text_end(&text)) found = is(value, text.bytes);
        free(text.bytes);
        if (found) break;
    }
    return form;
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
    json_t *value = take_value(w);
    bool fine;
    if (i == PARTS) {
        fine = says_nothing(value);
    } else if (parts[i].wanted) {
        fine = is(value, parts[i].wanted);
    } else {
        w->form = find_form(value);
        fine = w->form < TOKENIZER_FORMS;
    }
    json_decref(value);
    const unsigned part = i < PARTS ? 1u << i : 0;
    fine = fine && !(w->parts & part);
    w->parts |= part;
    return fine;
}

static bool visit_model(walk *w, const char *name)
{
    const bool vocab = !strcmp(name, "vocab");
    if (!vocab && strcmp(name, "merges") != 0) return visit_part(w, name, true);
    size_t *at = vocab ? &w->vocab_at : &w->merges_at;
    if (*at) return false; /* twice */
    *at = w->at;
    return walk_members(w, vocab, count_entry);
}

static bool visit_root(walk *w, const char *name)
{
    return strcmp(name, "model") ? visit_part(w, name, false) : walk_members(w, true, visit_model);
}

/* Everything in the file must be what is written here, or have no effect. */
static bool read_tokenizer(tokenizer *t, const char *text, size_t length)
{
    walk w = {.text = text, .length = length, .at = json_begin(text, length), .t = t};
    const bool read = walk_members(&w, true, visit_root) && peek(&w) == '\0' && w.at == length &&
                      w.parts == ALL_PARTS && w.vocab_at && w.merges_at && read_tokens(&w);
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
