/* file_windows.c - see file.h: what the library needs.
 *
 * A descriptor is the C library's, of a handle of Windows; its own reading and writing is only
 * used by streams. Every file is shared, so that others may rename, replace and remove it while
 * it is open. */
#include "platform/file.h"
#include "platform/names_windows.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <winternl.h>

const int gd_os_here = -100;

/* ---- Opening -------------------------------------------------------------------------------- */

static DWORD access_of(int how)
{
    DWORD access = how & GD_OS_READ ? FILE_GENERIC_READ : 0;
    if (how & GD_OS_FOLDER) access |= FILE_LIST_DIRECTORY | FILE_TRAVERSE;
    if (how & GD_OS_APPEND) return access | (FILE_GENERIC_WRITE & ~(DWORD)FILE_WRITE_DATA);
    return access | (how & GD_OS_WRITE ? FILE_GENERIC_WRITE : 0);
}

/* Opens a link itself; other files that need to be looked up, such as those of a cloud, are opened
 * again as what they stand for. */
static HANDLE open_no_link(int folder, const char *name, gd_windows_open how)
{
    const DWORD options = how.options;
    how.options |= FILE_OPEN_REPARSE_POINT;
    HANDLE file = gd_windows_open_at(folder, name, how);
    FILE_ATTRIBUTE_TAG_INFO tag;
    if (file == INVALID_HANDLE_VALUE ||
        !GetFileInformationByHandleEx(file, FileAttributeTagInfo, &tag, sizeof tag) ||
        !(tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT))
        return file;
    const bool link = gd_windows_is_link(file);
    CloseHandle(file);
    errno = ELOOP;
    how.options = options;
    return link ? INVALID_HANDLE_VALUE : gd_windows_open_at(folder, name, how);
}

static int descriptor_of(HANDLE file, int how)
{
    const int flags = _O_BINARY | _O_NOINHERIT | (how & GD_OS_APPEND ? _O_APPEND : 0) |
                      (how & GD_OS_WRITE ? 0 : _O_RDONLY);
    const int descriptor = _open_osfhandle((intptr_t)file, flags);
    if (descriptor >= 0) return descriptor;
    CloseHandle(file);
    errno = EMFILE;
    return -1;
}

int gd_os_open(int folder, const char *name, int how, unsigned mode)
{
    const gd_windows_open wanted = {.access = access_of(how),
                                    .disposition = how & GD_OS_NEW    ? FILE_CREATE
                                                   : how & GD_OS_MAKE ? FILE_OPEN_IF
                                                                      : FILE_OPEN,
                                    .options = how & GD_OS_FOLDER ? FILE_DIRECTORY_FILE
                                                                  : FILE_NON_DIRECTORY_FILE};
    (void)mode; /* as gd_os_set_access says */
    const HANDLE file = how & GD_OS_NO_LINK ? open_no_link(folder, name, wanted)
                                            : gd_windows_open_at(folder, name, wanted);
    return file == INVALID_HANDLE_VALUE ? -1 : descriptor_of(file, how);
}

bool gd_os_close(int file)
{
    const int before = errno;
    if (file >= 0 && _close(file)) return false;
    errno = before;
    return true;
}

/* ---- What it is ----------------------------------------------------------------------------- */

static gd_os_kind kind_of(HANDLE file, DWORD attributes)
{
    switch (GetFileType(file)) {
    case FILE_TYPE_PIPE:
        return GD_OS_IS_PIPE;
    case FILE_TYPE_CHAR:
        return GD_OS_IS_DEVICE;
    case FILE_TYPE_DISK:
        if (gd_windows_is_link(file)) return GD_OS_IS_LINK;
        return attributes & FILE_ATTRIBUTE_DIRECTORY ? GD_OS_IS_FOLDER : GD_OS_IS_FILE;
    default:
        return GD_OS_IS_OTHER;
    }
}

static bool status_of(HANDLE file, gd_os_status *status)
{
    BY_HANDLE_FILE_INFORMATION found = {0};
    FILE_STANDARD_INFO standard = {0};
    const DWORD type = GetFileType(file);
    if (type == FILE_TYPE_UNKNOWN && GetLastError() != NO_ERROR)
        return gd_windows_fail(GetLastError());
    if (type == FILE_TYPE_DISK &&
        (!GetFileInformationByHandle(file, &found) ||
         !GetFileInformationByHandleEx(file, FileStandardInfo, &standard, sizeof standard)))
        return gd_windows_fail(GetLastError());
    *status = (gd_os_status){.kind = kind_of(file, found.dwFileAttributes),
                             .size = standard.EndOfFile.QuadPart,
                             .names = standard.DeletePending ? 0 : standard.NumberOfLinks,
                             .volume = found.dwVolumeSerialNumber,
                             .number = (uint64_t)found.nFileIndexHigh << 32 | found.nFileIndexLow,
                             .written = (int64_t)found.ftLastWriteTime.dwHighDateTime << 32 |
                                        found.ftLastWriteTime.dwLowDateTime};
    return true;
}

bool gd_os_status_of(int file, gd_os_status *status)
{
    return status_of(gd_windows_handle(file), status);
}

bool gd_os_status_at(int folder, const char *name, bool follow, gd_os_status *status)
{
    const gd_windows_open how = {.disposition = FILE_OPEN,
                                 .options = follow ? 0 : FILE_OPEN_REPARSE_POINT};
    const HANDLE file = gd_windows_open_at(folder, name, how);
    if (file == INVALID_HANDLE_VALUE) return false;
    const bool known = status_of(file, status);
    CloseHandle(file);
    return known;
}

/* The whole path of what it leads to, which must exist. */
bool gd_os_read_link(int folder, const char *name, char *target, size_t size)
{
    const HANDLE file =
        gd_windows_open_at(folder, name, (gd_windows_open){.disposition = FILE_OPEN});
    wchar_t *path = file == INVALID_HANDLE_VALUE ? NULL : gd_windows_path(file);
    const bool fits =
        path && WideCharToMultiByte(CP_UTF8, 0, path, -1, target, (int)size, NULL, NULL) > 0;
    const int why = path ? ENAMETOOLONG : errno;
    if (file != INVALID_HANDLE_VALUE) CloseHandle(file);
    free(path);
    errno = why;
    return fits;
}

/* A new file has the permissions of its folder. */
void gd_os_set_access(int file, const gd_os_status *like)
{
    (void)file, (void)like;
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

static const size_t MOST = (size_t)1 << 30; /* of one call */

/* `at` is NULL at the file's position. */
static ptrdiff_t read_some(HANDLE file, void *data, size_t bytes, OVERLAPPED *at)
{
    DWORD got = 0;
    if (ReadFile(file, data, (DWORD)(bytes < MOST ? bytes : MOST), &got, at)) return got;
    const DWORD error = GetLastError();
    if (error == ERROR_HANDLE_EOF || error == ERROR_BROKEN_PIPE) return 0;
    gd_windows_fail(error);
    return -1;
}

static ptrdiff_t write_some(HANDLE file, const void *data, size_t bytes, OVERLAPPED *at)
{
    DWORD written = 0;
    if (WriteFile(file, data, (DWORD)(bytes < MOST ? bytes : MOST), &written, at)) return written;
    gd_windows_fail(GetLastError());
    return -1;
}

static OVERLAPPED offset_of(int64_t at)
{
    return (OVERLAPPED){.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
}

ptrdiff_t gd_os_read(int file, void *data, size_t bytes)
{
    return read_some(gd_windows_handle(file), data, bytes, NULL);
}

/* Reading at a place moves the file's position there, so it is put back. */
ptrdiff_t gd_os_read_at(int file, void *data, size_t bytes, int64_t at)
{
    const HANDLE handle = gd_windows_handle(file);
    LARGE_INTEGER before = {0}, none = {0};
    OVERLAPPED there = offset_of(at);
    if (!SetFilePointerEx(handle, none, &before, FILE_CURRENT)) {
        gd_windows_fail(GetLastError());
        return -1;
    }
    const ptrdiff_t got = read_some(handle, data, bytes, &there);
    const int why = errno;
    SetFilePointerEx(handle, before, NULL, FILE_BEGIN);
    errno = why;
    return got;
}

ptrdiff_t gd_os_write_some(int file, const void *data, size_t bytes)
{
    return write_some(gd_windows_handle(file), data, bytes, NULL);
}

/* `at` moves along. */
static bool write_all(HANDLE file, const void *data, size_t bytes, int64_t *at)
{
    for (const char *from = data; bytes > 0;) {
        OVERLAPPED there = offset_of(at ? *at : 0);
        const ptrdiff_t written = write_some(file, from, bytes, at ? &there : NULL);
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return false;
        from += written;
        bytes -= (size_t)written;
        if (at) *at += written;
    }
    return true;
}

bool gd_os_write(int file, const void *data, size_t bytes)
{
    return write_all(gd_windows_handle(file), data, bytes, NULL);
}

bool gd_os_write_at(int file, const void *data, size_t bytes, int64_t at)
{
    const HANDLE handle = gd_windows_handle(file);
    LARGE_INTEGER before = {0}, none = {0};
    if (!SetFilePointerEx(handle, none, &before, FILE_CURRENT))
        return gd_windows_fail(GetLastError());
    const bool written = write_all(handle, data, bytes, &at);
    const int why = errno;
    SetFilePointerEx(handle, before, NULL, FILE_BEGIN);
    errno = why;
    return written;
}

bool gd_os_cut(int file, int64_t size)
{
    const HANDLE handle = gd_windows_handle(file);
    const LARGE_INTEGER to = {.QuadPart = size};
    return (SetFilePointerEx(handle, to, NULL, FILE_BEGIN) && SetEndOfFile(handle)) ||
           gd_windows_fail(GetLastError());
}

bool gd_os_flush(int file)
{
    return FlushFileBuffers(gd_windows_handle(file)) || gd_windows_fail(GetLastError());
}

/* A program without special rights cannot; NTFS keeps a journal of names. */
bool gd_os_flush_folder(int folder)
{
    (void)folder;
    return true;
}

/* ---- Names ---------------------------------------------------------------------------------- */

bool gd_os_make_folder(int folder, const char *name)
{
    const gd_windows_open how = {.disposition = FILE_CREATE, .options = FILE_DIRECTORY_FILE};
    const HANDLE made = gd_windows_open_at(folder, name, how);
    if (made == INVALID_HANDLE_VALUE) return false;
    CloseHandle(made);
    return true;
}

/* Classes and flags of NtSetInformationFile that are newer than the compiler's headers: names go at
 * once, although the file is open (Windows 10; elsewhere, and on file systems that cannot, when it
 * is closed). */
enum { RENAME = 10, DISPOSITION = 13, DISPOSITION_EX = 64, RENAME_EX = 65 };
enum { REPLACE = 1, RENAME_AT_ONCE = 2, IGNORE_READ_ONLY_RENAME = 0x40 };
enum { DELETE_IT = 1, DELETE_AT_ONCE = 2, IGNORE_READ_ONLY = 0x10 };

NTSTATUS NTAPI NtSetInformationFile(HANDLE, PIO_STATUS_BLOCK, PVOID, ULONG, FILE_INFORMATION_CLASS);

static NTSTATUS set_information(HANDLE file, void *data, size_t bytes, int class)
{
    IO_STATUS_BLOCK block;
    return NtSetInformationFile(file, &block, data, (ULONG)bytes, (FILE_INFORMATION_CLASS) class);
}

/* What a file system says that does not know a class. */
static bool is_unknown(NTSTATUS status)
{
    const ULONG code = (ULONG)status;
    return code == 0xC0000002 /* not implemented */ || code == 0xC0000003 /* invalid class */ ||
           code == 0xC000000D /* invalid parameter */ || code == 0xC00000BB /* not supported */;
}

static bool remove_opened(HANDLE file)
{
    ULONG flags = DELETE_IT | DELETE_AT_ONCE | IGNORE_READ_ONLY;
    BOOLEAN removed = TRUE;
    NTSTATUS status = set_information(file, &flags, sizeof flags, DISPOSITION_EX);
    if (is_unknown(status)) status = set_information(file, &removed, sizeof removed, DISPOSITION);
    return NT_SUCCESS(status) || gd_windows_fail_status(status);
}

static bool remove_at(int folder, const char *name, DWORD options)
{
    const gd_windows_open how = {
        .access = DELETE, .disposition = FILE_OPEN, .options = options | FILE_OPEN_REPARSE_POINT};
    const HANDLE file = gd_windows_open_at(folder, name, how);
    if (file == INVALID_HANDLE_VALUE) return false;
    const bool folder_wanted = options & FILE_DIRECTORY_FILE;
    FILE_STANDARD_INFO info = {0};
    errno = EISDIR;
    const bool fits = folder_wanted || gd_windows_is_link(file) ||
                      !GetFileInformationByHandleEx(file, FileStandardInfo, &info, sizeof info) ||
                      !info.Directory;
    const bool removed = fits && remove_opened(file);
    const int why = errno;
    CloseHandle(file);
    errno = why;
    return removed;
}

bool gd_os_remove(int folder, const char *name)
{
    return remove_at(folder, name, 0);
}

bool gd_os_remove_folder(int folder, const char *name)
{
    return remove_at(folder, name, FILE_DIRECTORY_FILE);
}

/* The kernel's request: FILE_RENAME_INFORMATION, whose first member is flags in the newer class. */
typedef struct rename_request {
    ULONG flags;
    HANDLE folder;
    ULONG bytes; /* of the name, without a NUL */
    wchar_t name[1];
} rename_request;

static NTSTATUS rename_opened(HANDLE file, HANDLE folder, const wchar_t *name)
{
    const size_t bytes = wcslen(name) * sizeof *name, all = sizeof(rename_request) + bytes;
    rename_request *request = calloc(1, all);
    if (!request) return (NTSTATUS)0xC0000017; /* no memory */
    *request = (rename_request){.flags = REPLACE | RENAME_AT_ONCE | IGNORE_READ_ONLY_RENAME,
                                .folder = folder,
                                .bytes = (ULONG)bytes};
    memcpy(request->name, name, bytes);
    NTSTATUS status = set_information(file, request, all, RENAME_EX);
    request->flags = TRUE;
    if (is_unknown(status)) status = set_information(file, request, all, RENAME);
    free(request);
    return status;
}

/* Clears the target name. Rename cannot replace a link, so a link is removed; a folder is
 * an error. */
static bool make_place(int folder, const char *to, bool *is_folder)
{
    gd_os_status status;
    *is_folder = false;
    if (!gd_os_status_at(folder, to, false, &status)) return false;
    *is_folder = status.kind == GD_OS_IS_FOLDER;
    return status.kind == GD_OS_IS_LINK && gd_os_remove(folder, to);
}

/* A search index or a virus scanner may have it open for a moment. */
enum { ATTEMPTS = 10, PAUSE = 20 /* ms */ };

bool gd_os_rename(int folder, const char *from, const char *to)
{
    const gd_windows_open how = {
        .access = DELETE, .disposition = FILE_OPEN, .options = FILE_OPEN_REPARSE_POINT};
    wchar_t *name = gd_windows_name(folder, to);
    if (!name) return false;
    const HANDLE within = folder == gd_os_here ? NULL : gd_windows_handle(folder);
    bool renamed = false, is_folder = false, retry = true;
    for (int i = 0; i < ATTEMPTS && retry && !renamed; i++) {
        if (i > 0) Sleep(PAUSE);
        const HANDLE file = gd_windows_open_at(folder, from, how);
        if (file == INVALID_HANDLE_VALUE) break;
        const NTSTATUS status = rename_opened(file, within, name);
        CloseHandle(file);
        renamed = NT_SUCCESS(status);
        if (renamed) break;
        retry = make_place(folder, to, &is_folder);
        gd_windows_fail_status(status);
        if (is_folder) errno = EEXIST;
        retry = retry || (errno == EACCES && !is_folder);
    }
    const int why = errno;
    free(name);
    errno = why;
    return renamed;
}

char *gd_os_last_slash(const char *path)
{
    char *found = NULL;
    for (const char *c = path; *c; c++) {
        if (*c == '/' || *c == '\\') found = (char *)(uintptr_t)c;
    }
    return found;
}
