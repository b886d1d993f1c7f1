/* tokenizer_file.c - see tokenizer_file.h. */
#include "tokenizer_file.h"
#include "json.h"
#include "platform/file.h"

#include <stdlib.h>
#include <string.h>

/* ---- Bytes as characters ------------------------------------------------------------------ */

/* Printable bytes of Latin-1 stand for themselves, the others, in their order, for characters from
 * U+0100 on. */
static int character_of(uint8_t byte)
{
    return byte <= ' '   ? 0x100 + byte
           : byte < 127  ? byte
           : byte <= 160 ? 0x121 + byte - 127
           : byte == 173 ? 0x143
                         : byte;
}

int tokenizer_byte_of(int character)
{
    const int byte = character < 0x100    ? character
                     : character <= 0x120 ? character - 0x100
                     : character <= 0x142 ? character - 0x121 + 127
                                          : 173;
    return character_of((uint8_t)byte) == character ? byte : -1;
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
#define NO_LETTERS                                        \
    "| ?[0-9]{1,3}"                                       \
    "| ?[\\x00-\\x08\\x0E-\\x1F!-/:-@\\[-`{-\\x7F]{1,64}" \
    "|[\\t-\\r ]{64}"                                     \
    "|[\\t-\\r ]{1,63}(?= [^\\t-\\r ])"                   \
    "|[\\t-\\r ]{1,63}"

static const char *const words[TOKENIZER_FORMS] = {
    [TOKENIZER_CHARACTERS] = " ?[^\\x00-\\x40\\x5B-\\x60\\x7B-\\x7F]{1,64}" NO_LETTERS,
    /* These classes are of the characters that stand for the bytes. */
    [TOKENIZER_BYTE_WORDS] = "\u0120?[A-Za-z\u00a1-\u00ff\u0122-\u0143]{1,64}"
                             "|\u0120?[0-9]{1,3}"
                             "|\u0120?[\u0100-\u0108\u010e-\u011f!-/:-@\\[-`{-~\u0121]{1,64}"
                             "|[\u0109-\u010d\u0120]{64}"
                             "|[\u0109-\u010d\u0120]{1,63}(?=\u0120[^\u0109-\u010d\u0120])"
                             "|[\u0109-\u010d\u0120]{1,63}",
    /* What the first runs wrote: it says characters, but they counted bytes. */
    [TOKENIZER_FIRST_RUNS] = " ?[^\\x00-@\\[-`{-\\x7F]{1,64}" NO_LETTERS,
};

const char tokenizer_byte_level[] =
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": false}";

/* Bytes are cut where they are characters already. */
void tokenizer_print_words(tokenizer_form form, FILE *file)
{
    const bool after = form == TOKENIZER_BYTE_WORDS;
    fprintf(file, "{\"type\": \"Sequence\", \"pretokenizers\": [\n    ");
    if (after) fprintf(file, "%s,\n    ", tokenizer_byte_level);
    if (words[form]) {
        fprintf(file, "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, "
                      "\"pattern\": {\"Regex\": ");
        json_print_string(words[form], file);
        fprintf(file, after ? "}}" : "}},\n    ");
    }
    fprintf(file, "%s]}", after ? "" : tokenizer_byte_level);
}

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
    fprintf(file, "{\n  \"version\": \"1.0\",\n  \"added_tokens\": [],\n  \"pre_tokenizer\": ");
    tokenizer_print_words(t->kind == TOKENIZER_BYTES ? TOKENIZER_NO_WORDS
                          : t->bpe.byte_words        ? TOKENIZER_BYTE_WORDS
                                                     : TOKENIZER_CHARACTERS,
                          file);
    fprintf(file,
            ",\n  \"decoder\": %s,\n  \"model\": {\n    \"type\": \"BPE\",\n    \"vocab\": {\n",
            tokenizer_byte_level);
    print_vocabulary(t, file);
    fprintf(file, "\n    },\n    \"merges\": [");
    print_merges(t, file);
    fprintf(file, "]\n  }\n}\n");
}

/* The whole file as a text, allocated here. */
static char *tokenizer_text(const tokenizer *t)
{
    gd_os_text text;
    gd_os_text_begin(&text);
    if (text.file) print_tokenizer(t, text.file);
    if (gd_os_text_end(&text)) return text.bytes;
    free(text.bytes);
    return NULL;
}

gd_status tokenizer_save(const tokenizer *t, saving *to)
{
    static const char config[] = "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "
                                 "\"clean_up_tokenization_spaces\": false}\n";
    if (t->kind == TOKENIZER_NONE) return GD_OK;
    char *text = tokenizer_text(t);
    if (text)
        saving_text(to, "tokenizer.json", text);
    else
        gd_fail(to->ctx, GD_ERROR_MEMORY, "out of memory: tokenizer.json");
    free(text);
    return saving_text(to, "tokenizer_config.json", config);
}

/* ---- None --------------------------------------------------------------------------------- */

const char *tokenizer_missing(const open_folder *in, char room[TOKENIZER_MISSING])
{
    static const char *const others[] = {"tokenizer.model", "vocab.json", "merges.txt", "vocab.txt",
                                         "tokenizer_config.json"};
    char found[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!folder_has(in, others[i])) continue;
        used += (size_t)snprintf(found + used, sizeof found - used, "%s%s", used ? ", " : "",
                                 others[i]);
    }
    snprintf(room, TOKENIZER_MISSING, "%s has %s%sno tokenizer.json", in->path, found,
             used ? ", but " : "");
    return room;
}
