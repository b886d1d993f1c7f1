/* paths.h - the files that an option names. */
#ifndef GRADUS_TRAIN_PATHS_H
#define GRADUS_TRAIN_PATHS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct paths {
    char **name;
    size_t count, room;
    char why[256]; /* of a paths_find that failed; "": errno says it */
} paths;

/* Adds the files that `named` names: files, patterns, and folders, of which it takes the files in
 * the order of their names; several are separated by "|". What exists is no pattern, and may have a
 * "|" in its name. Of what is in a folder or matches a pattern it leaves out, with a notice,
 * folders, pipes, editors' copies and logs of runs; hidden files without one. A file that is not
 * there is added, too. False, with a paths_reason, if there are none, or a file comes twice. */
bool paths_find(paths *found, const char *named);
const char *paths_reason(const paths *found);

/* Whether "-", standard input, is among them. */
bool paths_read_stdin(const char *named);

void paths_free(paths *found);

#endif
