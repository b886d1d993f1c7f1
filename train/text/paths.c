/* paths.c - see paths.h. */
#include "paths.h"
#include "platform/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

static bool add(paths *p, const char *name)
{
    if (p->count == p->room) {
        const size_t room = p->room ? 2 * p->room : 64;
        char **grown = realloc(p->name, room * sizeof *grown);
        if (!grown) return false;
        p->name = grown;
        p->room = room;
    }
    const size_t bytes = strlen(name) + 1;
    char *copy = malloc(bytes);
    if (!copy) return false;
    p->name[p->count++] = memcpy(copy, name, bytes);
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
    bool (*wanted)(const char *name);
} listing;

static bool add_name(void *user, int folder, const char *name)
{
    const listing *l = user;
    (void)folder;
    return !l->wanted(name) || add(l->found, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool paths_in_folder(paths *found, const char *folder, bool (*wanted)(const char *name))
{
    listing l = {found, wanted};
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

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

static bool is_folder(const char *path)
{
    gd_os_status status;
    return gd_os_status_at(gd_os_here, path, true, &status) && status.kind == GD_OS_IS_FOLDER;
}

/* A file, or all files that are in a folder. */
static bool add_path(paths *found, const char *path)
{
    if (!is_folder(path)) return add(found, path);
    paths inside = {0};
    bool fine = paths_in_folder(&inside, path, is_visible);
    for (size_t i = 0; fine && i < inside.count; i++) {
        char within[PATH];
        fine = snprintf(within, sizeof within, "%s/%s", path, inside.name[i]) < PATH;
        if (!fine)
            errno = ENAMETOOLONG;
        else if (!is_folder(within))
            fine = add(found, within);
    }
    const int why = errno;
    paths_free(&inside);
    errno = why;
    return fine;
}

/* ---- What an option names ------------------------------------------------------------------- */

static bool add_pattern(paths *found, const char *pattern)
{
    char **matching;
    size_t count;
    if (!gd_os_find_paths(pattern, &matching, &count)) return errno == 0 && add(found, pattern);
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
        fine = strcmp(name, "-") ? add_pattern(found, name) : add(found, name);
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
