/* folder.h - folders and small files. A failure sets errno. */
#ifndef GRADUS_TRAIN_FOLDER_H
#define GRADUS_TRAIN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FOLDER_PATH = 4096 }; /* bytes of a path, including the NUL */

/* Copies a path; false, with ENAMETOOLONG, if it does not fit. */
bool folder_copy(char path[FOLDER_PATH], const char *from);

/* folder/name; false, with ENAMETOOLONG, if it does not fit. */
bool folder_join(char path[FOLDER_PATH], const char *folder, const char *name);

/* Whether there is anything of that name. */
bool folder_has(const char *path);

/* Makes a folder, unless it exists. */
bool folder_make(const char *path);

/* The same with all its parents. */
bool folder_make_all(const char *path);

/* Waits until the folder's own entries are on the disk. */
bool folder_flush(const char *path);

/* Removes a folder and the files in it (not folders within), if it exists. */
bool folder_remove(const char *path);

/* Renames a folder; one that has the new name is replaced atomically, and removed. */
bool folder_replace(const char *from, const char *to);

/* The numbers N of all entries "<prefix>N" in eight digits or more, in ascending order; -1 on
 * error. Free *numbers. */
int64_t folder_list(const char *path, const char *prefix, int64_t **numbers);

/* Writes a text file and waits until it is on the disk. */
bool folder_write_text(const char *path, const char *text);

/* A whole file of at most `limit` bytes, NUL-terminated; NULL on error. Only regular files:
 * a FIFO or a device is EINVAL. Free it. */
char *folder_read_text(const char *path, size_t limit, size_t *length);

/* The reason why that failed, from errno. */
const char *folder_read_reason(void);

#endif
