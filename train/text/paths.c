/* paths.c - see paths.h. */
#include "paths.h"
#include "platform/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

const char *paths_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

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
    bool (*wanted)(const char *path);
} listing;

static bool add_name(void *user, int folder, const char *name)
{
    const listing *l = user;
    paths *p = l->found;
    (void)folder;
    if (!add(p, l->folder, name)) return false;
    if (!l->wanted(p->name[p->count - 1])) free(p->name[--p->count]);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool paths_in_folder(paths *found, const char *folder, bool (*wanted)(const char *path))
{
    listing l = {found, folder, wanted};
    const size_t before = found->count;
    const int at = gd_os_open(gd_os_here, folder, GD_OS_READ | GD_OS_FOLDER, 0);
    const bool fine = at >= 0 && gd_os_each_name(at, add_name, &l);
    const int why = errno;
    if (at >= 0) gd_os_close(at);
    errno = why;
    if (found->count > before)
        qsort(found->name + before, found->count - before, sizeof *found->name, by_name);
    return fine;
}

static bool is_folder(const char *path)
{
    gd_os_status status;
    return gd_os_status_at(gd_os_here, path, true, &status) && status.kind == GD_OS_IS_FOLDER;
}

static bool is_visible_file(const char *path)
{
    return paths_name(path)[0] != '.' && !is_folder(path);
}

/* A file, or all files that are in a folder. */
static bool add_path(paths *found, const char *path)
{
    return is_folder(path) ? paths_in_folder(found, path, is_visible_file) : add(found, NULL, path);
}

/* ---- What an option names ------------------------------------------------------------------- */

static bool add_pattern(paths *found, const char *pattern)
{
    char **matching;
    size_t count;
    if (!gd_os_find_paths(pattern, &matching, &count))
        return errno == 0 && add(found, NULL, pattern);
    bool fine = true;
    for (size_t i = 0; fine && i < count; i++) fine = add_path(found, matching[i]);
    const int why = errno;
    gd_os_free_paths(matching, count);
    errno = why;
    return fine;
}

/* Copies the next of the names, and moves *named after it; false: there is none. */
static bool next_name(const char **named, char name[PATH])
{
    if (!*named) return false;
    const size_t length = strcspn(*named, "|");
    snprintf(name, PATH, "%.*s", (int)(length < PATH ? length : PATH - 1), *named);
    *named = (*named)[length] ? *named + length + 1 : NULL;
    return true;
}

bool paths_find(paths *found, const char *named)
{
    char name[PATH];
    bool fine = true;
    while (fine && next_name(&named, name))
        fine = strcmp(name, "-") ? add_pattern(found, name) : add(found, NULL, name);
    if (fine && found->count == 0) errno = ENOENT;
    return fine && found->count > 0;
}

bool paths_read_stdin(const char *named)
{
    char name[PATH];
    while (next_name(&named, name))
        if (!strcmp(name, "-")) return true;
    return false;
}
