/* bpe.c - see bpe.h. */
#include "bpe.h"
#include "fnv.h"
#include "files/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST_WORD = 64, LONGEST_NUMBER = 3 };

/* ---- Words -------------------------------------------------------------------------------- */

typedef enum byte_kind { LETTER, DIGIT, BLANK, SIGN } byte_kind;

static byte_kind kind_of(uint8_t c)
{
    if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c >= 128) return LETTER;
    if (c >= '0' && c <= '9') return DIGIT;
    return c == ' ' || (c >= '\t' && c <= '\r') ? BLANK : SIGN;
}

static int64_t character_length(const uint8_t *text, int64_t length)
{
    const int valid = gd_utf8_length(text, length);
    return valid ? valid : 1;
}

int64_t bpe_word(const uint8_t *text, int64_t length)
{
    int64_t end = text[0] == ' ' && length > 1 && kind_of(text[1]) != BLANK ? 1 : 0;
    byte_kind kind = kind_of(text[end]);
    int left = kind == DIGIT ? LONGEST_NUMBER : LONGEST_WORD;
    for (; end < length && left > 0 && kind_of(text[end]) == kind; left--)
        end += character_length(text + end, length - end);
    /* The last of several spaces belongs to the word after them. */
    bool more = end < length && left > 0;
    if (kind == BLANK && more && end > 1 && text[end - 1] == ' ') end--;
    return end;
}

/* ---- The map from pairs ------------------------------------------------------------------- */

static uint64_t pair_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1; /* not 0 */
}

static size_t map_slot(const pair_map *map, uint64_t key)
{
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (map->capacity - 1);
    while (map->key[at] && map->key[at] != key) at = (at + 1) & (map->capacity - 1);
    return at;
}

static void map_free(pair_map *map)
{
    free(map->key);
    free(map->value);
    *map = (pair_map){0};
}

static bool map_grow(pair_map *map)
{
    size_t capacity = map->capacity ? 2 * map->capacity : 1024;
    pair_map grown = {calloc(capacity, sizeof *grown.key), calloc(capacity, sizeof *grown.value),
                      capacity, map->used};
    if (!grown.key || !grown.value) {
        map_free(&grown);
        return false;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (!map->key[i]) continue;
        size_t at = map_slot(&grown, map->key[i]);
        grown.key[at] = map->key[i];
        grown.value[at] = map->value[i];
    }
    map_free(map);
    *map = grown;
    return true;
}

/* The slot of a pair's number, which is 0 at first. NULL if there is no memory. */
static int64_t *map_entry(pair_map *map, int32_t left, int32_t right)
{
    if (2 * map->used >= map->capacity && !map_grow(map)) return NULL;
    uint64_t key = pair_key(left, right);
    size_t at = map_slot(map, key);
    map->used += !map->key[at];
    map->key[at] = key;
    return &map->value[at];
}

/* ---- Building one up ---------------------------------------------------------------------- */

void bpe_free(bpe *b)
{
    for (int32_t i = 0; b->bytes && i < b->vocab; i++) free(b->bytes[i]);
    free(b->bytes);
    free(b->length);
    free(b->merge);
    free(b->by_bytes);
    map_free(&b->token_of);
    *b = (bpe){0};
}

static uint64_t hash_bytes(const uint8_t *text, int64_t length)
{
    uint64_t hash = fnv1a(FNV_BEGIN, text, (size_t)length);
    return hash ^ hash >> 29;
}

/* The slot of the token of these bytes, or the free one for it. */
static uint32_t slot_of(const bpe *b, const uint8_t *bytes, int32_t length)
{
    uint32_t at = (uint32_t)hash_bytes(bytes, length) & (b->slots - 1);
    for (int32_t id; (id = b->by_bytes[at] - 1) >= 0; at = (at + 1) & (b->slots - 1)) {
        if (b->length[id] == length && !memcmp(b->bytes[id], bytes, (size_t)length)) break;
    }
    return at;
}

int32_t bpe_find(const bpe *b, const uint8_t *bytes, int32_t length)
{
    return b->by_bytes[slot_of(b, bytes, length)] - 1;
}

/* Adds a token, for which there is room. */
static bool add_token(bpe *b, const uint8_t *bytes, int32_t length)
{
    uint8_t *own = malloc((size_t)length);
    if (!own) return false;
    b->length[b->vocab] = length;
    b->bytes[b->vocab] = memcpy(own, bytes, (size_t)length);
    b->by_bytes[slot_of(b, bytes, length)] = ++b->vocab;
    return true;
}

bool bpe_begin(bpe *b, int32_t vocab)
{
    uint32_t slots = 1024;
    while (slots / 2 < (uint32_t)vocab && slots <= UINT32_MAX / 4) slots *= 2;
    *b = (bpe){.capacity = vocab,
               .slots = slots,
               .by_bytes = calloc(slots, sizeof *b->by_bytes),
               .merge = calloc((size_t)vocab, sizeof *b->merge),
               .bytes = calloc((size_t)vocab, sizeof *b->bytes),
               .length = calloc((size_t)vocab, sizeof *b->length)};
    bool fine = b->merge && b->bytes && b->length && b->by_bytes;
    for (int byte = 0; fine && byte < 256; byte++)
        fine = add_token(b, &(uint8_t){(uint8_t)byte}, 1);
    if (!fine) bpe_free(b);
    return fine;
}

/* The bytes of a pair of tokens; 0 if they are more than those of a word. */
static int32_t join(const bpe *b, int32_t left, int32_t right, uint8_t bytes[BPE_LONGEST])
{
    const int32_t l = b->length[left], r = b->length[right];
    if (l + r > BPE_LONGEST) return 0;
    memcpy(bytes, b->bytes[left], (size_t)l);
    memcpy(bytes + l, b->bytes[right], (size_t)r);
    return l + r;
}

bool bpe_add(bpe *b, int32_t left, int32_t right)
{
    const int32_t id = b->vocab;
    uint8_t bytes[BPE_LONGEST];
    if (left < 0 || left >= id || right < 0 || right >= id || id == b->capacity) return false;
    const int32_t length = join(b, left, right, bytes);
    if (!length || bpe_find(b, bytes, length) >= 0) return false;
    int64_t *token = map_entry(&b->token_of, left, right);
    if (!token || !add_token(b, bytes, length)) return false;
    b->merge[id - 256][0] = left;
    b->merge[id - 256][1] = right;
    *token = id;
    return true;
}

/* ---- Training ----------------------------------------------------------------------------- */

/* A word that occurs in the text, as tokens. */
typedef struct word {
    const uint8_t *text; /* in the text that is learned */
    int32_t length;
    int32_t *token;
    int32_t tokens;
    int64_t count; /* of its occurrences */
} word;

/* A word that contains a pair of neighbours, or did. */
typedef struct occurrence {
    int64_t word, next; /* next: 1 + index of another occurrence of the pair; 0: there is none */
} occurrence;

typedef struct lexicon {
    word *word; /* [words] */
    int64_t words, capacity;
    int64_t *slot; /* [slots] 1 + index of a word; 0: free */
    int64_t slots;
    int32_t *tokens;        /* all words' tokens */
    occurrence *occurrence; /* [occurrences] of all pairs */
    int64_t occurrences, occurrence_capacity;
    pair_map first; /* of a pair: 1 + index of its first occurrence; 0: it has none */
    /* [likely_count] keys: pairs that occur `least` times or more, and new ones */
    uint64_t *likely;
    int64_t likely_count, likely_capacity, least;
} lexicon;

/* The array, with room for one more than `count`; NULL if there is no memory: the old one stays
 * valid. */
static void *with_room(void *array, int64_t count, int64_t *capacity, size_t size)
{
    if (count < *capacity) return array;
    int64_t wanted = *capacity ? 2 * *capacity : 1024;
    void *grown = realloc(array, (size_t)wanted * size);
    if (grown) *capacity = wanted;
    return grown;
}

static void lexicon_free(lexicon *l)
{
    free(l->word);
    free(l->slot);
    free(l->tokens);
    free(l->occurrence);
    free(l->likely);
    map_free(&l->first);
}

static bool same_word(const word *w, const uint8_t *text, int64_t length)
{
    return w->length == length && !memcmp(w->text, text, (size_t)length);
}

static bool lexicon_rehash(lexicon *l)
{
    int64_t slots = l->slots ? 2 * l->slots : 4096;
    int64_t *slot = calloc((size_t)slots, sizeof *slot);
    if (!slot) return false;
    free(l->slot);
    l->slot = slot;
    l->slots = slots;
    for (int64_t i = 0; i < l->words; i++) {
        uint64_t at = hash_bytes(l->word[i].text, l->word[i].length) & (uint64_t)(slots - 1);
        while (slot[at]) at = (at + 1) & (uint64_t)(slots - 1);
        slot[at] = i + 1;
    }
    return true;
}

/* Counts one occurrence. A new word's tokens go to `room`; *used gets their number. */
static bool count_word(lexicon *l, const uint8_t *text, int64_t length, int32_t *room,
                       int64_t *used)
{
    if (2 * (l->words + 1) > l->slots && !lexicon_rehash(l)) return false;
    uint64_t at = hash_bytes(text, length) & (uint64_t)(l->slots - 1);
    while (l->slot[at] && !same_word(&l->word[l->slot[at] - 1], text, length))
        at = (at + 1) & (uint64_t)(l->slots - 1);
    if (!l->slot[at]) {
        word *grown = with_room(l->word, l->words, &l->capacity, sizeof *grown);
        if (!grown) return false;
        l->word = grown;
        for (int64_t i = 0; i < length; i++) room[*used + i] = text[i];
        l->word[l->words] = (word){text, (int32_t)length, room + *used, (int32_t)length, 0};
        *used += length;
        l->slot[at] = ++l->words;
    }
    l->word[l->slot[at] - 1].count++;
    return true;
}

static bool lexicon_build(lexicon *l, const uint8_t *text, int64_t length)
{
    int64_t used = 0;
    *l = (lexicon){.tokens = malloc((size_t)(length + 1) * sizeof(int32_t)), .least = INT64_MAX};
    bool fine = l->tokens != NULL;
    for (int64_t at = 0, size; fine && at < length; at += size) {
        size = bpe_word(text + at, length - at);
        fine = count_word(l, text + at, size, l->tokens, &used);
    }
    return fine;
}

/* Adds `sign` times the word's count to the count of each pair of neighbours in it. */
static bool count_pairs(pair_map *pairs, const word *w, int64_t sign)
{
    for (int32_t i = 0; i + 1 < w->tokens; i++) {
        int64_t *count = map_entry(pairs, w->token[i], w->token[i + 1]);
        if (!count) return false;
        *count += sign * w->count;
    }
    return true;
}

static bool has_pair(const word *w, int32_t left, int32_t right)
{
    for (int32_t i = 0; i + 1 < w->tokens; i++)
        if (w->token[i] == left && w->token[i + 1] == right) return true;
    return false;
}

static bool add_likely(lexicon *l, uint64_t key)
{
    uint64_t *grown = with_room(l->likely, l->likely_count, &l->likely_capacity, sizeof *grown);
    if (!grown) return false;
    l->likely = grown;
    l->likely[l->likely_count++] = key;
    return true;
}

/* Records that a word contains the pair; all pairs of a word are recorded one after the other. */
static bool note_occurrence(lexicon *l, int64_t word, int32_t left, int32_t right)
{
    int64_t *first = map_entry(&l->first, left, right);
    if (!first) return false;
    if (*first && l->occurrence[*first - 1].word == word) return true;
    if (!*first && !add_likely(l, pair_key(left, right))) return false;
    occurrence *grown =
        with_room(l->occurrence, l->occurrences, &l->occurrence_capacity, sizeof *grown);
    if (!grown) return false;
    l->occurrence = grown;
    l->occurrence[l->occurrences] = (occurrence){word, *first};
    *first = ++l->occurrences;
    return true;
}

/* Records the pairs of a word that contain `token`; all pairs if it is -1. */
static bool note_pairs(lexicon *l, int64_t word, int32_t token)
{
    const int32_t *at = l->word[word].token;
    for (int32_t i = 0; i + 1 < l->word[word].tokens; i++) {
        if (token >= 0 && at[i] != token && at[i + 1] != token) continue;
        if (!note_occurrence(l, word, at[i], at[i + 1])) return false;
    }
    return true;
}

/* Replaces the pair by `token`, from the left; returns the new number of tokens. */
static int32_t merge_pair(int32_t *token, int32_t tokens, int32_t left, int32_t right,
                          int32_t merged)
{
    int32_t to = 0;
    for (int32_t i = 0; i < tokens; to++) {
        bool pair = i + 1 < tokens && token[i] == left && token[i + 1] == right;
        token[to] = pair ? merged : token[i];
        i += pair ? 2 : 1;
    }
    return to;
}

/* Makes all pairs with at least half of the highest count likely; false: no memory. */
static bool find_likely(lexicon *l, const pair_map *pairs)
{
    int64_t most = 0;
    for (size_t i = 0; i < pairs->capacity; i++)
        if (pairs->value[i] > most) most = pairs->value[i];
    l->least = most < 4 ? 2 : most / 2;
    l->likely_count = 0;
    for (size_t i = 0; i < pairs->capacity; i++)
        if (pairs->value[i] >= l->least && !add_likely(l, pairs->key[i])) return false;
    return true;
}

/* The most frequent of them, the first in order among equals; its count. A pair that is no longer
 * likely stays so: counts only fall. */
static int64_t best_likely(lexicon *l, const pair_map *pairs, uint64_t *best)
{
    int64_t most = 0, kept = 0;
    for (int64_t i = 0; i < l->likely_count; i++) {
        const uint64_t key = l->likely[i];
        const int64_t count = pairs->value[map_slot(pairs, key)];
        if (count < l->least) continue;
        l->likely[kept++] = key;
        if (count < most || (count == most && key > *best)) continue;
        most = count;
        *best = key;
    }
    l->likely_count = kept;
    return most;
}

/* The most frequent pair, and its count: 0 where none occurs twice. False: no memory. */
static bool best_pair(lexicon *l, const pair_map *pairs, int32_t *left, int32_t *right,
                      int64_t *count)
{
    uint64_t best = 1;
    *count = best_likely(l, pairs, &best);
    if (*count == 0 && l->least > 2) {
        if (!find_likely(l, pairs)) return false;
        *count = best_likely(l, pairs, &best);
    }
    *left = (int32_t)((best - 1) >> 32);
    *right = (int32_t)((best - 1) & 0xffffffff);
    return true;
}

/* Whether there is a token with the same bytes as the pair. */
static bool is_known(const bpe *b, int32_t left, int32_t right)
{
    uint8_t bytes[BPE_LONGEST];
    return bpe_find(b, bytes, join(b, left, right, bytes)) >= 0;
}

/* Replaces the pair by the newest token in all words that contain it. Its occurrences are then no
 * longer needed: the pair does not occur again. */
static bool merge_everywhere(const bpe *b, lexicon *l, pair_map *pairs, int32_t left, int32_t right)
{
    const int64_t *first = map_entry(&l->first, left, right);
    if (!first) return false;
    for (int64_t at = *first; at;) {
        const occurrence here = l->occurrence[at - 1];
        word *w = &l->word[here.word];
        at = here.next;
        if (!has_pair(w, left, right)) continue;
        if (!count_pairs(pairs, w, -1)) return false;
        w->tokens = merge_pair(w->token, w->tokens, left, right, b->vocab - 1);
        if (!count_pairs(pairs, w, 1) || !note_pairs(l, here.word, b->vocab - 1)) return false;
    }
    return true;
}

/* One merge; false: no memory. *done: there is nothing left to merge. A pair with the bytes of an
 * existing token is skipped: tokens must differ in their bytes. */
static bool train_step(bpe *b, lexicon *l, pair_map *pairs, bool *done)
{
    int32_t left, right;
    int64_t most;
    if (!best_pair(l, pairs, &left, &right, &most)) return false;
    *done = most == 0;
    if (*done) return true;
    if (is_known(b, left, right)) {
        int64_t *count = map_entry(pairs, left, right);
        if (count) *count = 0;
        return count != NULL;
    }
    return bpe_add(b, left, right) && merge_everywhere(b, l, pairs, left, right);
}

bool bpe_train(bpe *b, const uint8_t *text, int64_t length, int32_t vocab)
{
    const int64_t most = 256 + length; /* each merge shortens the text */
    if (!bpe_begin(b, vocab < most ? vocab : (int32_t)most)) return false;
    lexicon l;
    pair_map pairs = {0};
    bool fine = lexicon_build(&l, text, length), done = false;
    for (int64_t i = 0; fine && i < l.words; i++)
        fine = count_pairs(&pairs, &l.word[i], 1) && note_pairs(&l, i, -1);
    while (fine && !done && b->vocab < vocab) fine = train_step(b, &l, &pairs, &done);
    map_free(&pairs);
    lexicon_free(&l);
    if (!fine) bpe_free(b);
    return fine;
}

/* ---- Encoding ----------------------------------------------------------------------------- */

/* The token that a pair makes; beyond all tokens if it makes none. */
static int32_t made_by(const bpe *b, int32_t left, int32_t right)
{
    if (!b->token_of.capacity) return INT32_MAX;
    size_t at = map_slot(&b->token_of, pair_key(left, right));
    return b->token_of.key[at] ? (int32_t)b->token_of.value[at] : INT32_MAX;
}

/* Joins the pair that makes the lowest token, the first among equals, as long as there is one.
 * Returns the number of tokens that are left. */
static int32_t encode_word(const bpe *b, int32_t *token, int32_t tokens)
{
    int32_t made[BPE_LONGEST]; /* by token i and the one after it */
    for (int32_t i = 0; i + 1 < tokens; i++) made[i] = made_by(b, token[i], token[i + 1]);
    for (; tokens > 1; tokens--) {
        int32_t lowest = INT32_MAX, at = 0;
        for (int32_t i = 0; i + 1 < tokens; i++) lowest = made[i] < lowest ? made[i] : lowest;
        if (lowest == INT32_MAX) break;
        while (made[at] != lowest) at++;
        const size_t after = (size_t)(tokens - at - 2) * sizeof *token;
        token[at] = lowest;
        memmove(token + at + 1, token + at + 2, after);
        memmove(made + at, made + at + 1, after);
        if (at > 0) made[at - 1] = made_by(b, token[at - 1], lowest);
        if (at + 2 < tokens) made[at] = made_by(b, lowest, token[at + 1]);
    }
    return tokens;
}

int32_t *bpe_encode(const bpe *b, const uint8_t *text, int64_t length, int64_t *count)
{
    int32_t *ids = malloc((size_t)(length + 1) * sizeof *ids);
    *count = 0;
    for (int64_t at = 0, size; ids && at < length; at += size) {
        int32_t *word = ids + *count;
        size = bpe_word(text + at, length - at);
        for (int64_t i = 0; i < size; i++) word[i] = text[at + i];
        *count += encode_word(b, word, (int32_t)size);
    }
    return ids;
}
