/* tokenizer_file.c - see tokenizer_file.h. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "tokenizer_file.h"
#include "folder.h"
#include "options.h"

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

/* bpe_word as a regular expression: letters, digits, signs, each perhaps behind one space; blanks,
 * but for a last space before something else. */
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

static bool write_tokenizer(const tokenizer *t, const char *path)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    if (!file) return false;
    print_tokenizer(t, file);
    bool whole = !ferror(file);
    whole = !fclose(file) && whole && folder_write_text(path, text);
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
    return gd_fail(ctx, GD_ERROR_IO, "train: cannot write %s: %s", path, strerror(errno));
}
