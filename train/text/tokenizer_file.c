/* tokenizer_file.c - see tokenizer_file.h. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "tokenizer_file.h"
#include "folder.h"
#include "json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Bytes as characters ------------------------------------------------------------------ */

/* Printable bytes of Latin-1 stand for themselves, the others for characters from U+0100 on. */
static int character_of(uint8_t byte)
{
    int others = 0;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 255 && b != 173);
        if (b == byte) return printable ? b : 256 + others;
        others += !printable;
    }
    return 0;
}

/* The bytes of a token, as a JSON string. All characters are below U+0800. */
static void print_token(const uint8_t *bytes, int32_t length, FILE *file)
{
    fputc('"', file);
    for (int32_t i = 0; i < length; i++) {
        int c = character_of(bytes[i]);
        if (c == '"' || c == '\\') fputc('\\', file);
        if (c < 128) {
            fputc(c, file);
        } else {
            fputc(0xc0 | c >> 6, file);
            fputc(0x80 | (c & 0x3f), file);
        }
    }
    fputc('"', file);
}

/* ---- tokenizer.json ----------------------------------------------------------------------- */

/* bpe_word as a regular expression: letters, digits, other characters, each with at most one space
 * before; blanks, except a last space before something else. */
static const char words[] = " ?[^\\x00-@\\[-`{-\\x7F]{1,64}"
                            "| ?[0-9]{1,3}"
                            "| ?[\\x00-\\x08\\x0E-\\x1F!-/:-@\\[-`{-\\x7F]{1,64}"
                            "|[\\t-\\r ]{64}"
                            "|[\\t-\\r ]{1,63}(?= [^\\t-\\r ])"
                            "|[\\t-\\r ]{1,63}";

static void print_vocabulary(const tokenizer *t, FILE *file)
{
    for (int32_t id = 0; id < t->vocab; id++) {
        bool pieces = t->kind == TOKENIZER_BPE;
        fprintf(file, id ? ",\n      " : "      ");
        print_token(pieces ? t->bpe.bytes[id] : &t->symbol[id], pieces ? t->bpe.length[id] : 1,
                    file);
        fprintf(file, ": %d", (int)id);
    }
}

static void print_merges(const tokenizer *t, FILE *file)
{
    const bpe *b = &t->bpe;
    for (int32_t i = 0; t->kind == TOKENIZER_BPE && i < b->vocab - 256; i++) {
        int32_t left = b->merge[i][0], right = b->merge[i][1];
        fprintf(file, i ? ",\n      [" : "\n      [");
        print_token(b->bytes[left], b->length[left], file);
        fprintf(file, ", ");
        print_token(b->bytes[right], b->length[right], file);
        fprintf(file, "]");
    }
}

static void print_tokenizer(const tokenizer *t, FILE *file)
{
    fprintf(file, "{\n  \"version\": \"1.0\",\n  \"added_tokens\": [],\n"
                  "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n");
    if (t->kind == TOKENIZER_BPE) {
        fprintf(file, "    {\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, "
                      "\"pattern\": {\"Regex\": ");
        json_print_string(words, file);
        fprintf(file, "}},\n");
    }
    fprintf(file, "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                  "\"trim_offsets\": true, \"use_regex\": false}]},\n"
                  "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                  "\"trim_offsets\": true, \"use_regex\": false},\n"
                  "  \"model\": {\n    \"type\": \"BPE\",\n    \"vocab\": {\n");
    print_vocabulary(t, file);
    fprintf(file, "\n    },\n    \"merges\": [");
    print_merges(t, file);
    fprintf(file, "]\n  }\n}\n");
}

/* The whole file as a text, allocated here. */
static char *tokenizer_text(const tokenizer *t)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    if (!file) return NULL;
    print_tokenizer(t, file);
    bool whole = !ferror(file);
    if (!fclose(file) && whole) return text;
    free(text);
    return NULL;
}

static bool write_tokenizer(const tokenizer *t, const char *path)
{
    char *text = tokenizer_text(t);
    bool whole = text && folder_write_text(path, text);
    int why = errno;
    free(text);
    errno = why;
    return whole;
}

gd_status tokenizer_save(const tokenizer *t, gd_context *ctx, const char *folder)
{
    static const char config[] = "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "
                                 "\"clean_up_tokenization_spaces\": false}\n";
    char path[FOLDER_PATH];
    if (t->kind == TOKENIZER_NONE) return GD_OK;
    if (folder_join(path, folder, "tokenizer.json") && write_tokenizer(t, path) &&
        folder_join(path, folder, "tokenizer_config.json") && folder_write_text(path, config)) {
        return GD_OK;
    }
    return gd_fail(ctx, GD_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
}

/* ---- Reading ------------------------------------------------------------------------------ */

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

/* The byte of a text of one character; -1: none. */
static int byte_of(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    int character = c[0];
    if (c[0] >= 0xc0) character = (c[0] & 0x1f) << 6 | (c[1] & 0x3f); /* JSON is valid UTF-8 */
    for (int byte = 0; byte < 256; byte++) {
        if (character_of((uint8_t)byte) == character) return byte;
    }
    return -1;
}

static bool read_single_bytes(tokenizer *t, json_t *vocab)
{
    const char *name;
    json_t *id;
    *t = (tokenizer){.kind = TOKENIZER_BYTES, .vocab = (int64_t)json_object_size(vocab)};
    for (int byte = 0; byte < 256; byte++) t->id_of[byte] = -1;
    json_object_foreach(vocab, name, id)
    {
        int byte = byte_of(name);
        json_int_t value = json_integer_value(id);
        if (byte < 0 || value < 0 || value >= t->vocab || value >= 256) return false;
        t->symbol[value] = (unsigned char)byte;
        t->id_of[byte] = (int16_t)value;
    }
    return t->vocab > 0;
}

static int32_t id_of(const json_t *vocab, const json_t *name)
{
    const json_t *id = json_object_get(vocab, json_string_value(name));
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    return value >= 0 && value <= INT32_MAX ? (int32_t)value : -1;
}

static bool read_pieces(tokenizer *t, const json_t *vocab, const json_t *merges)
{
    size_t count = json_array_size(merges);
    int32_t(*merge)[2] = count < INT32_MAX / 8 ? malloc(count * sizeof *merge + 1) : NULL;
    *t = (tokenizer){.kind = TOKENIZER_BPE};
    for (size_t i = 0; merge && i < count; i++) {
        const json_t *pair = json_array_get(merges, i);
        for (size_t side = 0; side < 2; side++) {
            merge[i][side] = id_of(vocab, json_array_get(pair, side));
        }
    }
    bool made = merge && bpe_from_merges(&t->bpe, (const int32_t(*)[2])merge, (int32_t)count);
    free(merge);
    t->vocab = t->bpe.vocab;
    return made;
}

/* What Hugging Face's tokenizers add when they write a file: null, false, and a post-processor that
 * adds no token. */
static bool says_nothing(const json_t *value)
{
    const json_t *added = json_object_get(value, "special_tokens");
    return json_is_null(value) || json_is_false(value) ||
           (json_is_object(added) && json_object_size(added) == 0);
}

/* The members of an object are those that we write, or have no effect; the model has members of its
 * own. */
static bool same_members(json_t *theirs, json_t *ours, bool root)
{
    const char *name;
    json_t *value;
    json_object_foreach(ours, name, value)
    {
        json_t *other = json_object_get(theirs, name);
        bool model = root && !strcmp(name, "model");
        if (model ? !same_members(other, value, false) : !json_equal(other, value)) return false;
    }
    json_object_foreach(theirs, name, value)
    {
        if (!json_object_get(ours, name) && !says_nothing(value)) return false;
    }
    return json_is_object(theirs);
}

/* The file must have the same meaning as what would be written for this tokenizer. */
static bool read_tokenizer(tokenizer *t, const char *text, size_t length)
{
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL), *ours = NULL;
    const json_t *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    bool pieces = strstr(text, "\"Split\"") != NULL;
    bool read = json_is_object(vocab) &&
                (pieces ? read_pieces(t, vocab, merges) : read_single_bytes(t, vocab));
    char *again = read ? tokenizer_text(t) : NULL;
    if (again) ours = json_loads(again, 0, NULL);
    read = ours && same_members(root, ours, true);
    free(again);
    json_decref(ours);
    json_decref(root);
    if (!read) tokenizer_free(t);
    return read;
}

gd_status tokenizer_load(tokenizer *t, gd_context *ctx, const char *folder)
{
    enum { LIMIT = 64 << 20 };
    char path[FOLDER_PATH];
    size_t length;
    *t = (tokenizer){.kind = TOKENIZER_NONE};
    bool there = folder_join(path, folder, "tokenizer.json") && folder_has(path);
    if (gd_error(ctx) || !there) return gd_error_status(ctx);
    char *text = folder_read_text(path, LIMIT, &length);
    if (!text) {
        gd_fail(ctx, GD_ERROR_IO, "cannot read %s: %s", path, folder_read_reason());
    } else if (!read_tokenizer(t, text, length)) {
        gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                "%s is not a tokenizer of this program; use --tokens, or --ids of gradus-sample, "
                "to work with ids",
                path);
    }
    free(text);
    return gd_error_status(ctx);
}

#else

gd_status tokenizer_load(tokenizer *t, gd_context *ctx, const char *folder)
{
    (void)folder;
    *t = (tokenizer){.kind = TOKENIZER_NONE};
    return gd_error_status(ctx);
}

#endif
