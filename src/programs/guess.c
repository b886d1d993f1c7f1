/* guess.c - the name that a mistyped one was meant to be. See guess.h. */
#include "programs/guess.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* A letter of a name, however it is written; 0 at the end. */
static int letter(const char *at)
{
    if (*at == '_') return '-';
    return strchr(" =", *at) ? 0 : tolower((unsigned char)*at);
}

/* Whether the edit distance of the names, in letters, is at most `edits`. */
static bool is_near(const char *a, const char *b, int edits)
{
    for (; letter(a) == letter(b); a++, b++) {
        if (!letter(a)) return true;
    }
    return edits > 0 && ((letter(a) && letter(b) && is_near(a + 1, b + 1, edits - 1)) ||
                         (letter(a) && is_near(a + 1, b, edits - 1)) ||
                         (letter(b) && is_near(a, b + 1, edits - 1)));
}

/* Whether the shorter of the names, of at least 4 letters, is the longer one with letters left out:
 * of at least half as many, and the first is the same. */
static bool is_short(const char *a, const char *b)
{
    const size_t al = strcspn(a, " ="), bl = strcspn(b, " =");
    const char *one = al < bl ? a : b, *other = al < bl ? b : a;
    const size_t few = al < bl ? al : bl, many = al < bl ? bl : al;
    if (few < 4 || many > 2 * few || letter(one) != letter(other)) return false;
    for (; letter(one) && letter(other); other++) one += letter(one) == letter(other);
    return !letter(one);
}

enum { MOST_EDITS = 2, SHORT, FAR }; /* the distances above 0 and 1 */

/* Fewer edits for short words, of which any would be near to any other. */
static int distance_of(const char *word, const char *name)
{
    const int most = (int)(strcspn(word, " =") / 4) + 1;
    for (int edits = 0; edits <= MOST_EDITS && edits <= most; edits++) {
        if (is_near(word, name, edits)) return edits;
    }
    return is_short(word, name) ? SHORT : FAR;
}

guess guess_begin(const char *typed)
{
    return (guess){typed + strspn(typed, "-"), NULL, FAR};
}

void guess_try(guess *g, const char *spelling, const char *name)
{
    const int distance = distance_of(g->word, spelling);
    if (distance >= g->distance) return;
    g->distance = distance;
    g->name = name;
}
