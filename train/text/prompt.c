/* prompt.c - see prompt.h. */
#include "prompt.h"
#include "console.h"
#include "tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int32_t *no_memory(const char *what)
{
    console_message("out of memory: %s", what);
    return NULL;
}

int32_t *prompt_read_ids(const char *what, const char *missing, const char *text, int64_t length,
                         int64_t vocab, int64_t *count)
{
    static const char blanks[] = " \t\r\n,";
    int32_t *ids = malloc((size_t)length * sizeof *ids + 1);
    *count = 0;
    if (!ids) return no_memory(what);
    const char *const after = text + length; /* the text may contain NUL */
    for (const char *at = text + strspn(text, blanks); at < after; at += strspn(at, blanks)) {
        char *end;
        errno = 0;
        long long id = *at == '-' || *at == '+' ? -1 : strtoll(at, &end, 10);
        if (id < 0 || id >= vocab || errno || end == at || (*end && !strchr(blanks, *end))) {
            console_message("%s has \"%.*s\", wanted a token id, a whole number from 0 to %lld%s%s",
                            what, (int)strcspn(at, blanks), at, (long long)vocab - 1,
                            missing ? ": " : "", missing ? missing : "");
            free(ids);
            return NULL;
        }
        ids[(*count)++] = (int32_t)id;
        at = end;
    }
    return ids;
}

int32_t *prompt_encode(const tokenizer *t, const char *missing, const char *text, int64_t length,
                       int64_t *count)
{
    static const char what[] = "the prompt";
    if (t->kind == TOKENIZER_NONE)
        return prompt_read_ids(what, missing, text, length, t->vocab, count);
    int width;
    int64_t unknown;
    token_source source;
    void *packed = tokenizer_encode(t, (const uint8_t *)text, length, &width, count, &unknown);
    if (!packed && unknown >= 0) {
        console_message(
            "byte %lld of the prompt is %s, which is not in the vocabulary of the model",
            (long long)unknown, console_byte((unsigned char)text[unknown]).text);
        return NULL;
    }
    if (!packed || !tokens_own(&source, packed, width, *count)) return no_memory(what);
    int32_t *ids = malloc((size_t)*count * sizeof *ids + 1);
    if (ids) tokens_read(&source.shard[0], 0, *count, t->vocab, ids);
    tokens_close(&source);
    return ids ? ids : no_memory(what);
}
