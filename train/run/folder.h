/* folder.h - the folders of runs and models: the one place that opens, makes, renames and removes
 * what is in them.
 *
 * A path that the user gives may lead anywhere. Names inside a run's folder are not trusted: others
 * may be able to put a link there. So a folder is opened once, everything in it is found relative
 * to the opened folder, and links are not followed: neither for a file nor for a folder within. A
 * file must be a regular file, and one that is written must have no other name (a hard link).
 *
 * A function that fails sets errno; folder_reason() is its text. Calls that a signal interrupts are
 * repeated.
 */
#ifndef GRADUS_TRAIN_FOLDER_H
#define GRADUS_TRAIN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a path and of a name, including the NUL; files that stay open. */
enum { FOLDER_PATH = 4096, FOLDER_NAME = 256, FOLDER_HELD = 8 };

/* An opened folder; zeros: none. */
typedef struct open_folder {
    char path[FOLDER_PATH]; /* for messages, and to see whether it is still there; "": none */
    int descriptor;
    bool links;  /* links in it are followed: the folder of a model, which the user named */
    int trouble; /* errno of the first call of the system that could not read what is there */
    int held;    /* files that stay open: folder_hold */
    struct {
        const char *name;
        int descriptor;
    } hold[FOLDER_HELD];
} open_folder;

/* Copies a path; false, with ENAMETOOLONG, if it does not fit. */
bool folder_copy(char path[FOLDER_PATH], const char *from);

/* folder/name; false, with ENAMETOOLONG, if it does not fit. */
bool folder_join(char path[FOLDER_PATH], const char *folder, const char *name);

/* The folder that a path is in; false, with ENAMETOOLONG, if it does not fit. */
bool folder_parent(char parent[FOLDER_PATH], const char *path);

/* The reason why a function here failed. */
const char *folder_reason(void);

/* ---- Folders ------------------------------------------------------------------------------ */

/* Makes a folder, or that and its parents, unless they exist; each is flushed into its parent. */
bool folder_make_path(const char *path);
bool folder_make_all(const char *path);

/* Opens the folder that the user named. Close it in any case. */
bool folder_open(open_folder *f, const char *path, bool links);

/* Opens, or makes, a folder in an opened one. */
bool folder_enter(open_folder *f, const open_folder *in, const char *name);
bool folder_make(const open_folder *in, const char *name);

void folder_close(open_folder *f);

/* Whether its path still leads to it. */
bool folder_is_there(const open_folder *f);

/* Waits until the folder's own entries are on the disk. */
bool folder_flush(const open_folder *f);

/* The numbers N of all entries "<prefix>N" in eight digits or more, in ascending order; -1 on
 * error. Free *numbers. */
int64_t folder_list(const open_folder *in, const char *prefix, int64_t **numbers);

/* Keeps the files of these names (a list that ends with NULL) open, as far as they can be opened:
 * they can then be read even if they are removed. The names are not copied. */
void folder_hold(open_folder *f, const char *const *names);

/* ---- Files -------------------------------------------------------------------------------- */

typedef enum folder_use {
    FOLDER_READ,   /* must exist */
    FOLDER_WRITE,  /* must exist: to write some parts of it */
    FOLDER_CREATE, /* must not exist */
    FOLDER_KEEP,   /* to read and write; made if it does not exist */
    FOLDER_APPEND  /* made if it does not exist */
} folder_use;

/* A descriptor of a file in the folder, -1 on error. Close it. To read, use gd_os_read_at: a file
 * that is held shares its position. */
int folder_file(open_folder *in, const char *name, folder_use use);

bool folder_has(const open_folder *in, const char *name);

/* A whole file of at most `limit` bytes, NUL-terminated; NULL on error. Free it. */
char *folder_read_text(open_folder *in, const char *name, size_t limit, size_t *length);

/* Waits until the file is on the disk, and closes it in any case. */
bool folder_end_file(int file);

/* Makes the link `name` in the folder, to `target`, and flushes it. A link of that name is replaced
 * at once; anything else there is EEXIST. */
bool folder_link(const open_folder *in, const char *name, const char *target);

/* ---- Replacing and removing folders of files ---------------------------------------------- */

/* These functions remove a folder with the files that `own` lists (ending with NULL). What else is
 * there, or cannot be removed, belongs to somebody else: it is renamed to "<label>.rest" in `in`,
 * or "<label>.rest-2" and so on, which is then put into `rest`. So is a link or a file in place of
 * the folder. */

/* Removes what is at a name, if there is anything. */
bool folder_clear(const open_folder *in, const char *name, const char *label,
                  const char *const *own, char rest[FOLDER_NAME]);

/* Renames a folder; one that has the new name is replaced atomically if the file system can
 * exchange names, and then removed. Else it has another name for a moment, from which folder_repair
 * brings it back; it is removed when the new one is there. The new one has its permissions and
 * those of its files, if they have the same owner. The label is `to`. */
bool folder_replace(const open_folder *in, const char *from, const char *to, const char *const *own,
                    char rest[FOLDER_NAME]);

/* Renames a folder to `removing`, and removes it; a link or a file is left alone. What has the name
 * `removing` already, from a run that was ended meanwhile, is removed before. The label is
 * `name`. */
bool folder_remove(const open_folder *in, const char *name, const char *removing,
                   const char *const *own, char rest[FOLDER_NAME]);

/* Gets folders "<prefix>N" (as in folder_list) that folder_replace put aside back to their names,
 * or removes them if the new ones are there. Only while no other process may be in
 * folder_replace. */
bool folder_repair(const open_folder *in, const char *prefix, const char *const *own);

/* ---- Locks -------------------------------------------------------------------------------- */

/* Locks the folder by the file `name` in it: a descriptor, or -1, with EWOULDBLOCK if another
 * process has it locked. The file can only be opened by those who may write in the folder. */
int folder_lock(const open_folder *in, const char *name);

/* Removes the file, and ends the lock. */
void folder_unlock(const open_folder *in, const char *name, int lock);

#endif
