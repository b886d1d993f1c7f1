/* paths.h - the files that an option names. */
#ifndef GRADUS_TRAIN_PATHS_H
#define GRADUS_TRAIN_PATHS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct paths {
    char **name;
    size_t count, room;
} paths;

/* Adds the files that `named` names: files, patterns, and folders, of which it takes all files but hidden
 * ones in the order of their names, and nothing of folders in them; several are separated by "|". A file
 * that is not there is added, too. False with the reason in errno, ENOENT if there are none. */
bool paths_find(paths *found, const char *named);

/* Whether "-", standard input, is among them. */
bool paths_read_stdin(const char *named);

/* Adds the paths of what is in a folder and wanted, in order. */
bool paths_in_folder(paths *found, const char *folder, bool (*wanted)(const char *path));

/* What is behind the last slash. */
const char *paths_name(const char *path);

void paths_free(paths *found);

#endif
