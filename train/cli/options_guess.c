/* options_guess.c - what may have been meant by a word that is no option. See options_value.h. */
#include "options_value.h"

#include <ctype.h>
#include <string.h>

enum { WORD = 40 };

/* A word without what stands around its name, as we write names: "--n_layer=4" is "n-layer". False:
 * it is too long to be one. */
static bool plain_name(const char *word, size_t length, char name[WORD])
{
    size_t used = 0;
    for (size_t i = 0; i < length && word[i] != '='; i++) {
        if (used == 0 && word[i] == '-') continue;
        if (used == WORD - 1) return false;
        name[used++] = word[i] == '_' ? '-' : (char)tolower((unsigned char)word[i]);
    }
    name[used] = '\0';
    return used > 0;
}

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* How many letters must be put in, taken out or replaced to make b of a (Levenshtein 1966). */
static size_t distance(const char *a, const char *b)
{
    size_t row[WORD + 1], length = strlen(b);
    for (size_t j = 0; j <= length; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t above = row[j + 1];
            row[j + 1] = smallest(above + 1, row[j] + 1, corner + (a[i] != b[j]));
            corner = above;
        }
    }
    return row[length];
}

/* The least distance to its name, or to one that other programs have for it. */
static size_t distance_to(const option_row *row, const char *name)
{
    size_t least = distance(name, row->name);
    for (const char *other = row->others; other && *other; other += strspn(other, " ")) {
        char plain[WORD];
        size_t length = strcspn(other, " ");
        if (plain_name(other, length, plain) && distance(name, plain) < least) {
            least = distance(name, plain);
        }
        other += length;
    }
    return least;
}

const char *option_guess(const option_table *table, const char *word)
{
    const option_row *row;
    const char *best = NULL;
    char name[WORD];
    if (!plain_name(word, strlen(word), name)) return NULL;
    size_t least = strlen(name) / 4 + 2; /* a third of a short name, a quarter of a long one */
    for (int i = 0; (row = option_at(table, i)); i++) {
        if (!row->name || distance_to(row, name) >= least) continue;
        least = distance_to(row, name);
        best = row->name;
    }
    return best;
}
