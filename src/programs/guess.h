/* guess.h - the name that a mistyped one was meant to be. Part of the programs, not of
 * the library. */
#ifndef GRADUS_GUESS_H
#define GRADUS_GUESS_H

typedef struct guess {
    const char *word; /* what was typed, without the dashes in front */
    const char *name; /* the nearest name so far; NULL: none is near */
    int distance;
} guess;

/* Begins with what was typed: "--lernrate", "n_layer=6". It must outlive the guess. */
guess guess_begin(const char *typed);

/* Tries a name by one of its spellings, which ends at a space or '=': at most two letters differ,
 * or the shorter of the two is the longer one with letters left out. Case, '_' and '-' are alike.
 * Of equally near names the first one stays. */
void guess_try(guess *g, const char *spelling, const char *name);

#endif
