/* tokenizer_file.c - see tokenizer_file.h. */
#include "tokenizer_file.h"

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
static void print_token(gd_json_text *to, const uint8_t *bytes, int32_t length)
{
    char text[2 * BPE_LONGEST + 1];
    int used = 0;
    for (int32_t i = 0; i < length; i++) {
        const int c = character_of(bytes[i]);
        if (c >= 128)
            text[used++] = (char)(0xc0 | c >> 6);
        else if (c == '"' || c == '\\')
            text[used++] = '\\';
        text[used++] = (char)(c < 128 ? c : 0x80 | (c & 0x3f));
    }
    gd_json_print(to, "\"%.*s\"", used, text);
}

/* ---- tokenizer.json ----------------------------------------------------------------------- */

/* bpe_word as a regular expression: letters, digits, other characters, each with at most one space
 * before; blanks, except a last space before something else. */
static const char words[] = " ?[^\\x00-\\x40\\x5B-\\x60\\x7B-\\x7F]{1,64}"
                            "| ?[0-9]{1,3}"
                            "| ?[\\x00-\\x08\\x0E-\\x1F!-/:-@\\[-`{-\\x7F]{1,64}"
                            "|[\\t-\\r ]{64}"
                            "|[\\t-\\r ]{1,63}(?= [^\\t-\\r ])"
                            "|[\\t-\\r ]{1,63}";

const char tokenizer_byte_level[] =
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": false}";

void tokenizer_print_words(gd_json_text *to, bool cut)
{
    gd_json_print(to, "{\"type\": \"Sequence\", \"pretokenizers\": [\n    ");
    if (cut) {
        gd_json_print(to, "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, "
                          "\"pattern\": {\"Regex\": ");
        gd_json_print_string(to, words, NULL);
        gd_json_print(to, "}},\n    ");
    }
    gd_json_print(to, "%s]}", tokenizer_byte_level);
}

static void print_vocabulary(gd_json_text *to, const tokenizer *t)
{
    for (int32_t id = 0; id < t->vocab; id++) {
        bool pieces = t->kind == TOKENIZER_BPE;
        gd_json_print(to, id ? ",\n      " : "      ");
        print_token(to, pieces ? t->bpe.bytes[id] : &t->symbol[id], pieces ? t->bpe.length[id] : 1);
        gd_json_print(to, ": %d", (int)id);
    }
}

static void print_merges(gd_json_text *to, const tokenizer *t)
{
    const bpe *b = &t->bpe;
    for (int32_t i = 0; t->kind == TOKENIZER_BPE && i < b->vocab - 256; i++) {
        int32_t left = b->merge[i][0], right = b->merge[i][1];
        gd_json_print(to, i ? ",\n      [" : "\n      [");
        print_token(to, b->bytes[left], b->length[left]);
        gd_json_print(to, ", ");
        print_token(to, b->bytes[right], b->length[right]);
        gd_json_print(to, "]");
    }
}

static void print_tokenizer(gd_json_text *to, const tokenizer *t)
{
    gd_json_print(to, "{\n  \"version\": \"1.0\",\n  \"added_tokens\": [],\n  \"pre_tokenizer\": ");
    tokenizer_print_words(to, t->kind == TOKENIZER_BPE);
    gd_json_print(
        to, ",\n  \"decoder\": %s,\n  \"model\": {\n    \"type\": \"BPE\",\n    \"vocab\": {\n",
        tokenizer_byte_level);
    print_vocabulary(to, t);
    gd_json_print(to, "\n    },\n    \"merges\": [");
    print_merges(to, t);
    gd_json_print(to, "]\n  }\n}\n");
}

gd_status tokenizer_save(const tokenizer *t, saving *to)
{
    static const char config[] = "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "
                                 "\"clean_up_tokenization_spaces\": false}\n";
    if (t->kind == TOKENIZER_NONE) return GD_OK;
    gd_json_text text = {0};
    print_tokenizer(&text, t);
    if (text.lacking)
        gd_fail(to->ctx, GD_ERROR_MEMORY, "out of memory: tokenizer.json");
    else
        saving_text(to, "tokenizer.json", text.bytes);
    free(text.bytes);
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
