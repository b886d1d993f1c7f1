/* file_more_windows.c - see file.h: what the programs need beyond the library. */
#include "platform/file.h"
#include "platform/names_windows.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <winioctl.h>

/* ---- Opening -------------------------------------------------------------------------------- */

int gd_os_duplicate(int file)
{
    const HANDLE self = GetCurrentProcess();
    HANDLE copy;
    if (!DuplicateHandle(self, gd_windows_handle(file), self, &copy, 0, FALSE,
                         DUPLICATE_SAME_ACCESS)) {
        gd_windows_fail(GetLastError());
        return -1;
    }
    const int descriptor = _open_osfhandle((intptr_t)copy, _O_BINARY | _O_NOINHERIT);
    if (descriptor < 0) CloseHandle(copy);
    return descriptor;
}

FILE *gd_os_stream_of(int file, const char *mode)
{
    return _fdopen(file, mode);
}

int64_t gd_os_stream_at(FILE *file)
{
    return _ftelli64(file);
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

/* A pipe cannot be waited for, so it is asked every 10 ms. */
bool gd_os_wait_for_bytes(int file, double seconds)
{
    const HANDLE pipe = gd_windows_handle(file);
    DWORD bytes = 0;
    if (GetFileType(pipe) != FILE_TYPE_PIPE) return true;
    for (double waited = 0; seconds < 0 || waited <= seconds; waited += 0.01) {
        if (!PeekNamedPipe(pipe, NULL, 0, NULL, &bytes, NULL) || bytes > 0) return true;
        Sleep(10);
    }
    return false;
}

void gd_os_set_waiting(int file)
{
    (void)file;
}

/* ---- Links ---------------------------------------------------------------------------------- */

bool gd_os_exchange(int folder, const char *from, const char *to)
{
    (void)folder, (void)from, (void)to;
    errno = ENOSYS;
    return false;
}

/* The data of a junction: a path for the kernel, and one to be shown, which is left out. */
typedef struct junction {
    ULONG tag;
    USHORT bytes, reserved, from, length, shown_from, shown_length;
    wchar_t path[1];
} junction;

/* Makes an empty folder a junction to a path, as the kernel knows it. */
static bool set_junction(HANDLE folder, const wchar_t *path)
{
    enum { HEAD = 8, LENGTHS = 8 };
    const size_t bytes = wcslen(path) * sizeof *path, all = sizeof(junction) + bytes + 8;
    junction *data = calloc(1, all);
    DWORD got;
    errno = ENOMEM;
    if (!data) return false;
    *data = (junction){.tag = IO_REPARSE_TAG_MOUNT_POINT,
                       .bytes = (USHORT)(LENGTHS + bytes + 2 * sizeof *path),
                       .length = (USHORT)bytes,
                       .shown_from = (USHORT)(bytes + sizeof *path)};
    memcpy(data->path, path, bytes);
    const bool set = DeviceIoControl(folder, FSCTL_SET_REPARSE_POINT, data,
                                     (DWORD)(HEAD + data->bytes), NULL, 0, &got, NULL);
    if (!set) gd_windows_fail(GetLastError());
    free(data);
    return set;
}

/* The path of a name in a folder, in the kernel's form. */
static wchar_t *path_in(int folder, const char *name)
{
    wchar_t *path = gd_windows_path(gd_windows_handle(folder)), *wide = gd_windows_wide(name);
    wchar_t *all = path && wide ? malloc((wcslen(path) + wcslen(wide) + 2) * sizeof *all) : NULL;
    if (all) {
        wcscpy(all, path); /* \\?\C:\folder */
        wcscat(all, L"\\");
        wcscat(all, wide);
        all[1] = L'?';
    }
    free(path);
    free(wide);
    return all;
}

/* A junction, for which nobody needs special rights, as for a symbolic link: to a folder, by its path.
 * Where the file system has none, nothing is left. */
bool gd_os_link(int folder, const char *name, const char *target)
{
    const gd_windows_open how = {.access = FILE_WRITE_ATTRIBUTES | FILE_WRITE_DATA,
                                 .disposition = 2 /* FILE_CREATE */,
                                 .options = 0x200001 /* FILE_DIRECTORY_FILE, no reparse */};
    wchar_t *path = path_in(folder, target);
    const HANDLE made = path ? gd_windows_open_at(folder, name, how) : INVALID_HANDLE_VALUE;
    bool linked = made != INVALID_HANDLE_VALUE && set_junction(made, path);
    int why = errno;
    if (linked && !gd_windows_is_link(made)) linked = false, why = ENOSYS;
    if (made != INVALID_HANDLE_VALUE) CloseHandle(made);
    if (made != INVALID_HANDLE_VALUE && !linked) gd_os_remove_folder(folder, name);
    free(path);
    errno = why;
    return linked;
}

/* ---- Lists ---------------------------------------------------------------------------------- */

static bool call(gd_os_action *action, void *user, int folder, const FILE_ID_BOTH_DIR_INFO *entry)
{
    char *name = gd_windows_utf8(entry->FileName, (int)(entry->FileNameLength / sizeof(wchar_t)));
    if (!name) return false;
    const bool more = !strcmp(name, ".") || !strcmp(name, "..") || action(user, folder, name);
    const int why = errno;
    free(name);
    errno = why;
    return more;
}

bool gd_os_each_name(int folder, gd_os_action *action, void *user)
{
    enum { ROOM = 1 << 16 };
    const int again = gd_os_open(folder, ".", GD_OS_READ | GD_OS_FOLDER, 0);
    char *list = malloc(ROOM);
    bool fine = again >= 0 && list;
    while (fine) {
        if (!GetFileInformationByHandleEx(gd_windows_handle(again), FileIdBothDirectoryInfo, list,
                                          ROOM)) {
            const DWORD error = GetLastError();
            fine = error == ERROR_NO_MORE_FILES || gd_windows_fail(error);
            break;
        }
        const FILE_ID_BOTH_DIR_INFO *entry = (const void *)list;
        for (bool last = false; fine && !last;) {
            fine = call(action, user, folder, entry);
            last = entry->NextEntryOffset == 0;
            entry = (const void *)((const char *)entry + entry->NextEntryOffset);
        }
    }
    const int why = errno;
    free(list);
    if (again >= 0) gd_os_close(again);
    errno = why;
    return fine;
}

/* ---- Patterns ------------------------------------------------------------------------------- */

/* "*" is any text, "?" any byte; names that differ in case are the same. */
static bool matches(const char *pattern, const char *name)
{
    if (*pattern == '*') return matches(pattern + 1, name) || (*name && matches(pattern, name + 1));
    if (!*pattern || !*name) return !*pattern && !*name;
    const bool same =
        *pattern == '?' || tolower((unsigned char)*pattern) == tolower((unsigned char)*name);
    return same && matches(pattern + 1, name + 1);
}

typedef struct path_list {
    const char *pattern; /* of the last part */
    int before;          /* bytes of the path before it */
    const char *path;
    char **paths;
    size_t count, room;
} path_list;

static bool add_path(path_list *list, const char *name)
{
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        char **grown = realloc(list->paths, list->room * sizeof *grown);
        if (!grown) return false;
        list->paths = grown;
    }
    const size_t bytes = (size_t)list->before + strlen(name) + 1;
    char *path = malloc(bytes);
    if (!path) return false;
    snprintf(path, bytes, "%.*s%s", list->before, list->path, name);
    list->paths[list->count++] = path;
    return true;
}

static bool add_match(void *user, int folder, const char *name)
{
    path_list *list = user;
    (void)folder;
    if (name[0] == '.' && list->pattern[0] != '.') return true;
    errno = ENOMEM;
    return !matches(list->pattern, name) || add_path(list, name);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Patterns are in the last part of the path alone. */
bool gd_os_find_paths(const char *pattern, char ***paths, size_t *count)
{
    const char *slash = gd_os_last_slash(pattern);
    path_list list = {.pattern = slash ? slash + 1 : pattern,
                      .before = slash ? (int)(slash + 1 - pattern) : 0,
                      .path = pattern};
    gd_os_status status;
    char *place = malloc((size_t)list.before + 2);
    *paths = NULL, *count = 0;
    errno = ENOMEM;
    if (!place) return false;
    snprintf(place, (size_t)list.before + 2, "%.*s", list.before ? list.before : 1,
             list.before ? pattern : ".");
    const bool there = gd_os_status_at(gd_os_here, pattern, true, &status);
    const int folder = there ? -1 : gd_os_open(gd_os_here, place, GD_OS_READ | GD_OS_FOLDER, 0);
    free(place);
    const bool fine = there ? add_path(&list, list.pattern)
                            : folder < 0 || gd_os_each_name(folder, add_match, &list);
    const int why = fine ? 0 : errno;
    if (folder >= 0) gd_os_close(folder);
    if (!fine || list.count == 0) {
        gd_os_free_paths(list.paths, list.count);
        errno = why;
        return false;
    }
    qsort(list.paths, list.count, sizeof *list.paths, compare_paths);
    *paths = list.paths, *count = list.count;
    return true;
}

void gd_os_free_paths(char **paths, size_t count)
{
    for (size_t i = 0; i < count; i++) free(paths[i]);
    free(paths);
}

/* ---- Locks ---------------------------------------------------------------------------------- */

/* Nobody else can read or write what is locked, so it is a byte that no file has. */
bool gd_os_lock(int file)
{
    OVERLAPPED beyond = {.OffsetHigh = 0x7ffffffe};
    const DWORD how = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    if (LockFileEx(gd_windows_handle(file), how, 0, 1, 0, &beyond)) return true;
    const DWORD error = GetLastError();
    errno = EWOULDBLOCK;
    return error != ERROR_LOCK_VIOLATION && error != ERROR_IO_PENDING;
}

/* ---- Text in memory ------------------------------------------------------------------------- */

/* The C library has no streams in memory: this is a temporary file, which goes when it is closed. */
void gd_os_text_begin(gd_os_text *text)
{
    wchar_t folder[MAX_PATH + 1], path[MAX_PATH + 1];
    *text = (gd_os_text){0};
    if (!GetTempPathW(MAX_PATH + 1, folder) || !GetTempFileNameW(folder, L"gd", 0, path)) return;
    const HANDLE file = CreateFileW(path, GENERIC_READ | GENERIC_WRITE | DELETE,
                                    FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, CREATE_ALWAYS,
                                    FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    if (file == INVALID_HANDLE_VALUE) return;
    const int descriptor = _open_osfhandle((intptr_t)file, _O_BINARY | _O_NOINHERIT);
    if (descriptor < 0)
        CloseHandle(file);
    else if (!(text->file = _fdopen(descriptor, "w+b")))
        _close(descriptor);
}

bool gd_os_text_end(gd_os_text *text)
{
    if (!text->file) return false;
    bool whole = !fflush(text->file) && !ferror(text->file);
    const int64_t size = whole ? gd_os_stream_at(text->file) : -1;
    text->bytes = size >= 0 ? malloc((size_t)size + 1) : NULL;
    rewind(text->file);
    whole = text->bytes && fread(text->bytes, 1, (size_t)size, text->file) == (size_t)size;
    fclose(text->file);
    if (text->bytes) text->bytes[whole ? size : 0] = '\0';
    text->length = whole ? (size_t)size : 0;
    return whole;
}
