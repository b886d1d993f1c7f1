/* file.h - files and folders, by descriptors of the C library.
 *
 * Names are UTF-8 and are found relative to an opened folder; files are binary; offsets have 64
 * bits; no descriptor is inherited by a program that is started. Functions return -1, NULL or
 * false, with errno, on error. Calls that a signal interrupts are repeated. */
#ifndef GRADUS_PLATFORM_FILE_H
#define GRADUS_PLATFORM_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Stands for a folder's descriptor where names are paths, relative to the current folder. */
extern const int gd_os_here;

/* ---- Opening -------------------------------------------------------------------------------- */

/* How a file is opened, as bits. */
enum {
    GD_OS_READ = 1,
    GD_OS_WRITE = 2,
    GD_OS_MAKE = 4,      /* is made if it is not there */
    GD_OS_NEW = 8,       /* must not be there, and is made */
    GD_OS_APPEND = 16,   /* every write is at the end */
    GD_OS_FOLDER = 32,   /* must be a folder */
    GD_OS_NO_LINK = 64,  /* must not be a link */
    GD_OS_NO_WAIT = 128, /* opening a pipe does not wait for its other end */
};

/* `mode`: the permissions of a file that is made, less the umask, such as 0666. */
int gd_os_open(int folder, const char *name, int how, unsigned mode);
/* -1 is no file, and nothing to close. Unless it fails errno stays: a function that has failed may
 * close what it has opened. */
bool gd_os_close(int file);

/* ---- What it is ----------------------------------------------------------------------------- */

typedef enum gd_os_kind {
    GD_OS_IS_NOTHING,
    GD_OS_IS_FILE,
    GD_OS_IS_FOLDER,
    GD_OS_IS_LINK, /* on Windows a junction, too */
    GD_OS_IS_PIPE,
    GD_OS_IS_DEVICE, /* terminals are devices */
    GD_OS_IS_OTHER
} gd_os_kind;

typedef struct gd_os_status {
    gd_os_kind kind;
    int64_t size;
    int64_t names;           /* hard links; 0: it has been removed */
    unsigned mode;           /* permissions; 0 where there are none of POSIX's, */
    unsigned owner, group;   /* and so are these */
    uint64_t volume, number; /* which file it is */
    int64_t written;         /* when it was last written, in a unit of the system */
} gd_os_status;

bool gd_os_status_of(int file, gd_os_status *status);
bool gd_os_status_at(int folder, const char *name, bool follow, gd_os_status *status);

/* What a symbolic link leads to, seen from its folder; no system has more than 4095 bytes. EACCES:
 * somebody else has put it where everybody may put one. */
bool gd_os_read_link(int folder, const char *name, char *target, size_t size);

/* Gives a file of this process the permissions of another and, as far as possible, its owner and
 * group. Where that is not possible, nobody else may do more with it than with the other. */
void gd_os_set_access(int file, const gd_os_status *like);

/* ---- Bytes ---------------------------------------------------------------------------------- */

/* The bytes that were read, 0 at the end. */
ptrdiff_t gd_os_read(int file, void *data, size_t bytes);
ptrdiff_t gd_os_read_at(int file, void *data, size_t bytes, int64_t at);

/* The bytes that were written, perhaps not all. A pipe that nobody reads is an error, EPIPE, and no
 * signal. */
ptrdiff_t gd_os_write_some(int file, const void *data, size_t bytes);

/* All of them. */
bool gd_os_write(int file, const void *data, size_t bytes);
bool gd_os_write_at(int file, const void *data, size_t bytes, int64_t at);

/* Cuts the file off, or adds zeros, and continues there. */
bool gd_os_cut(int file, int64_t size);

/* Waits until the file, or the folder's own entries, are on the disk. */
bool gd_os_flush(int file);
bool gd_os_flush_folder(int folder);

/* ---- Names ---------------------------------------------------------------------------------- */

bool gd_os_make_folder(int folder, const char *name);
bool gd_os_remove(int folder, const char *name); /* a file or a link */
bool gd_os_remove_folder(int folder, const char *name);

/* Gives a file, or a folder, another name; a file that has it is replaced atomically, and so is an
 * empty folder where the system can. */
bool gd_os_rename(int folder, const char *from, const char *to);

/* The last "/" of a path, or on Windows "\"; NULL: none. */
char *gd_os_last_slash(const char *path);

/* ---- What the programs need beyond the library; not on Windows ------------------------------- */

int gd_os_duplicate(int file);

/* A stream of the C library, to which the descriptor then belongs. */
FILE *gd_os_stream_of(int file, const char *mode);

/* The file's position in a stream, from its beginning. */
int64_t gd_os_stream_at(FILE *file);

/* Exchanges two names atomically. Not every system can, nor every file system. */
bool gd_os_exchange(int folder, const char *from, const char *to);

/* Makes a symbolic link. */
bool gd_os_link(int folder, const char *name, const char *target);

/* Calls `action` with each name in a folder but "." and "..", until it returns false. */
typedef bool gd_os_action(void *user, int folder, const char *name);
bool gd_os_each_name(int folder, gd_os_action *action, void *user);

/* The paths that match a pattern, in order; or the pattern itself, if there is such a file. False
 * with errno 0: none. Free them with gd_os_free_paths. */
bool gd_os_find_paths(const char *pattern, char ***paths, size_t *count);
void gd_os_free_paths(char **paths, size_t count);

/* Locks a file; false with EWOULDBLOCK if another process that may write it has it locked. A
 * process that may only read it keeps nobody out. Where the file system has no locks, this is
 * always true. The lock may end when this process closes any descriptor of the file. */
bool gd_os_lock(int file);

/* Whether another process, or another file of this one, has it locked: 1, 0, or -1 if the system
 * does not say. */
int gd_os_is_locked(int file);

/* Memory that is the file's first bytes, which all processes that map it share. NULL on error. */
void *gd_os_map(int file, size_t bytes);
void gd_os_unmap(void *memory, size_t bytes);

/* Waits until another process has changed a word of such memory, which was `value`, and woken those
 * that wait; or for so many seconds, or for no reason. */
void gd_os_wait_for_word(const uint32_t *word, uint32_t value, double seconds);
void gd_os_wake_for_word(const uint32_t *word);

/* Makes a folder that only this user can read and write, in that for temporary files. */
bool gd_os_make_temporary(char *path, size_t size);

/* Waits at most so many seconds (below 0: for ever) until a pipe can be read or has ended. */
bool gd_os_wait_for_bytes(int file, double seconds);

/* Makes reading and writing wait, whether or not the file was opened with GD_OS_NO_WAIT. */
void gd_os_set_waiting(int file);

#endif
