/* paths.c - see paths.h. */
#include "paths.h"
#include "console.h"
#include "log_keep.h"
#include "platform/file.h"
#include "text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

/* Adds a name, or one in a folder. */
static bool add(paths *p, const char *folder, const char *name)
{
    if (p->count == p->room) {
        const size_t room = p->room ? 2 * p->room : 64;
        char **grown = realloc(p->name, room * sizeof *grown);
        if (!grown) return false;
        p->name = grown;
        p->room = room;
    }
    const size_t bytes = (folder ? strlen(folder) + 1 : 0) + strlen(name) + 1;
    char *path = malloc(bytes);
    if (!path) return false;
    snprintf(path, bytes, "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
    p->name[p->count++] = path;
    return true;
}

void paths_free(paths *found)
{
    gd_os_free_paths(found->name, found->count);
    *found = (paths){0};
}

/* ---- Folders -------------------------------------------------------------------------------- */

typedef struct listing {
    paths *found;
    const char *folder;
} listing;

static bool add_name(void *user, int folder, const char *name)
{
    const listing *l = user;
    (void)folder;
    return name[0] == '.' || add(l->found, l->folder, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds what is in a folder and not hidden, in order. */
static bool add_folder(paths *found, const char *folder)
{
    listing l = {found, folder};
    const size_t before = found->count;
    const int at = gd_os_open(gd_os_here, folder, GD_OS_READ | GD_OS_FOLDER, 0);
    const bool fine = at >= 0 && gd_os_each_name(at, add_name, &l);
    gd_os_close(at);
    if (found->count > before)
        qsort(found->name + before, found->count - before, sizeof *found->name, by_name);
    return fine;
}

static bool is_folder(const char *path)
{
    gd_os_status status;
    return gd_os_status_at(gd_os_here, path, true, &status) && status.kind == GD_OS_IS_FOLDER;
}

static bool is_log(const char *path)
{
    char begin[64];
    const size_t length = strlen(log_mark);
    const int file = gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_NO_WAIT, 0);
    const bool same = file >= 0 && text_file_at(file, begin, length, 0);
    gd_os_close(file);
    return same && !memcmp(begin, log_mark, length);
}

/* Why something that is in a folder, or that a pattern matches, is not what a program reads; NULL
 * if it is. A file that is asked for by its name is always read. */
static const char *reason_to_leave(const char *path)
{
    gd_os_status status;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const bool copy =
        name[strlen(name) - 1] == '~' || (name[0] == '#' && strrchr(name, '#') > name);
    if (!gd_os_status_at(gd_os_here, path, true, &status)) return NULL; /* reading it says why */
    if (status.kind == GD_OS_IS_FOLDER) return "a folder in a folder";
    if (status.kind != GD_OS_IS_FILE) return "no file";
    return copy ? "an editor's copy" : is_log(path) ? "the log of a run" : NULL;
}

/* Keeps of the names from `begin` on those that are read, and tells the first of the others. */
static void leave_out(paths *found, size_t begin)
{
    size_t kept = begin, left = 0;
    for (size_t i = begin; i < found->count; i++) {
        const char *why = reason_to_leave(found->name[i]);
        if (!why) {
            found->name[kept++] = found->name[i];
            continue;
        }
        if (left++ == 0) console_notice("%s is left out: it is %s", found->name[i], why);
        free(found->name[i]);
    }
    if (left > 1) console_notice("and %zu more are left out", left - 1);
    found->count = kept;
}

/* A file, or all files that are in a folder. */
static bool add_path(paths *found, const char *path)
{
    return is_folder(path) ? add_folder(found, path) : add(found, NULL, path);
}

/* ---- What an option names ------------------------------------------------------------------- */

static bool exists(const char *path)
{
    gd_os_status status;
    return gd_os_status_at(gd_os_here, path, false, &status);
}

static bool add_pattern(paths *found, const char *pattern)
{
    char **matching;
    size_t count;
    const size_t before = found->count;
    if (exists(pattern) && !is_folder(pattern)) return add(found, NULL, pattern);
    if (exists(pattern)) {
        if (!add_path(found, pattern)) return false;
    } else {
        if (!gd_os_find_paths(pattern, &matching, &count))
            return errno == 0 && add(found, NULL, pattern);
        bool fine = true;
        for (size_t i = 0; fine && i < count; i++) fine = add_path(found, matching[i]);
        const int why = errno;
        gd_os_free_paths(matching, count);
        errno = why;
        if (!fine) return false;
    }
    leave_out(found, before);
    if (found->count == before)
        snprintf(found->why, sizeof found->why, "there is no file to be read in %.100s", pattern);
    return found->count > before;
}

/* Copies the next of the names, and moves *named after it; false: there is none. A name may have
 * "|" if there is such a file; *both: and the names between are files, too. */
static bool next_name(const char **named, char name[PATH], bool *both)
{
    enum { LONGEST = 255 }; /* bytes of a name in most file systems */
    const char *from = *named;
    *both = false;
    if (!from) return false;
    const size_t first = strcspn(from, "|");
    size_t length = first;
    for (size_t end = first; from[end] && end - first <= LONGEST && end < PATH;) {
        end += 1 + strcspn(from + end + 1, "|");
        snprintf(name, PATH, "%.*s", (int)(end < PATH ? end : PATH - 1), from);
        if (exists(name)) length = end;
    }
    snprintf(name, PATH, "%.*s", (int)(first < PATH ? first : PATH - 1), from);
    *both = length > first && exists(name);
    snprintf(name, PATH, "%.*s", (int)(length < PATH ? length : PATH - 1), from);
    *named = from[length] ? from + length + 1 : NULL;
    return true;
}

/* Refuses a file that comes twice, by whatever name. */
static bool check_once(paths *found)
{
    gd_os_status *all = calloc(found->count, sizeof *all);
    bool once = all != NULL;
    for (size_t i = 0; once && i < found->count; i++) {
        if (!gd_os_status_at(gd_os_here, found->name[i], true, &all[i]))
            all[i] = (gd_os_status){.kind = GD_OS_IS_NOTHING};
        for (size_t k = 0; once && all[i].kind == GD_OS_IS_FILE && k < i; k++) {
            once = all[k].kind != GD_OS_IS_FILE || all[k].volume != all[i].volume ||
                   all[k].number != all[i].number;
            if (!once)
                snprintf(found->why, sizeof found->why, "%.100s and %.100s are the same file",
                         found->name[k], found->name[i]);
        }
    }
    free(all);
    return once;
}

bool paths_find(paths *found, const char *named)
{
    char name[PATH];
    bool fine = true, both;
    int inputs = 0;
    while (fine && next_name(&named, name, &both)) {
        fine = strcmp(name, "-") ? add_pattern(found, name) : add(found, NULL, name);
        if (fine && !strcmp(name, "-") && inputs++ > 0) {
            snprintf(found->why, sizeof found->why, "-, standard input, can be read only once");
            fine = false;
        } else if (both) {
            snprintf(found->why, sizeof found->why,
                     "%.100s is a file, and so is a part of its name before |: rename one", name);
            fine = false;
        }
    }
    return fine && check_once(found);
}

const char *paths_reason(const paths *found)
{
    return found->why[0] ? found->why : strerror(errno);
}

bool paths_read_stdin(const char *named)
{
    char name[PATH];
    bool both;
    while (next_name(&named, name, &both))
        if (!strcmp(name, "-")) return true;
    return false;
}
