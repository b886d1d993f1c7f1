/* names_windows.c - see names_windows.h.
 *
 * Names are found relative to an opened folder by NtCreateFile: Win32 has only paths, and a path
 * may lead elsewhere when it is used again. */
#include "platform/names_windows.h"
#include "platform/file.h"

#include <errno.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <winternl.h>

/* ---- Errors --------------------------------------------------------------------------------- */

bool gd_windows_fail(DWORD error)
{
    static const struct {
        DWORD error;
        int number;
    } known[] = {{ERROR_FILE_NOT_FOUND, ENOENT},
                 {ERROR_PATH_NOT_FOUND, ENOENT},
                 {ERROR_INVALID_NAME, ENOENT},
                 {ERROR_BAD_PATHNAME, ENOENT},
                 {ERROR_BAD_NETPATH, ENOENT},
                 {ERROR_BAD_NET_NAME, ENOENT},
                 {ERROR_INVALID_DRIVE, ENOENT},
                 {ERROR_ACCESS_DENIED, EACCES},
                 {ERROR_SHARING_VIOLATION, EACCES},
                 {ERROR_LOCK_VIOLATION, EACCES},
                 {ERROR_DELETE_PENDING, EACCES},
                 {ERROR_WRITE_PROTECT, EROFS},
                 {ERROR_FILE_EXISTS, EEXIST},
                 {ERROR_ALREADY_EXISTS, EEXIST},
                 {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
                 {ERROR_DIRECTORY, ENOTDIR},
                 {ERROR_DISK_FULL, ENOSPC},
                 {ERROR_HANDLE_DISK_FULL, ENOSPC},
                 {1295 /* a quota */, ENOSPC},
                 {ERROR_FILE_TOO_LARGE, EFBIG},
                 {ERROR_BROKEN_PIPE, EPIPE},
                 {ERROR_NO_DATA, EPIPE},
                 {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
                 {ERROR_OUTOFMEMORY, ENOMEM},
                 {ERROR_COMMITMENT_LIMIT, ENOMEM},
                 {ERROR_NO_SYSTEM_RESOURCES, ENOMEM},
                 {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
                 {ERROR_INVALID_HANDLE, EBADF},
                 {ERROR_INVALID_PARAMETER, EINVAL},
                 {ERROR_INVALID_FUNCTION, ENOSYS},
                 {ERROR_CALL_NOT_IMPLEMENTED, ENOSYS},
                 {ERROR_NOT_SUPPORTED, ENOSYS},
                 {ERROR_NOT_SAME_DEVICE, EXDEV},
                 {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
                 {ERROR_CANT_RESOLVE_FILENAME, ELOOP},
                 {ERROR_PRIVILEGE_NOT_HELD, EPERM}};
    errno = EIO;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].error == error) errno = known[i].number;
    }
    return false;
}

bool gd_windows_fail_status(LONG status)
{
    /* Two that the system translates to ERROR_ACCESS_DENIED. */
    enum { IS_A_FOLDER = (LONG)0xC00000BA, DELETE_PENDING = (LONG)0xC0000056 };
    gd_windows_fail(RtlNtStatusToDosError(status));
    if (status == IS_A_FOLDER) errno = EISDIR;
    if (status == DELETE_PENDING) errno = ENOENT;
    return false;
}

/* ---- Encodings ------------------------------------------------------------------------------ */

wchar_t *gd_windows_wide(const char *text)
{
    const int count = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *wide = count > 0 ? malloc((size_t)count * sizeof *wide) : NULL;
    errno = count > 0 ? ENOMEM : EILSEQ;
    if (wide) MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, count);
    return wide;
}

char *gd_windows_utf8(const wchar_t *wide, int length)
{
    const int count = WideCharToMultiByte(CP_UTF8, 0, wide, length, NULL, 0, NULL, NULL);
    char *text = count >= 0 ? malloc((size_t)count + 1) : NULL;
    errno = ENOMEM;
    if (!text) return NULL;
    WideCharToMultiByte(CP_UTF8, 0, wide, length, text, count, NULL, NULL);
    text[count] = '\0';
    return text;
}

/* ---- Names ---------------------------------------------------------------------------------- */

/* A path as the kernel knows it: \??\C:\folder\file. It may have more than 260 characters. */
static wchar_t *kernel_path(const wchar_t *path)
{
    static const wchar_t drive[] = L"\\??\\", share[] = L"\\??\\UNC\\";
    const DWORD room = GetFullPathNameW(path, 0, NULL, NULL);
    wchar_t *all = room ? malloc((room + 16) * sizeof *all) : NULL;
    wchar_t *full = room ? malloc(room * sizeof *full) : NULL;
    errno = room ? ENOMEM : ENOENT;
    if (all && full && GetFullPathNameW(path, room, full, NULL) < room) {
        const bool device = !wcsncmp(full, L"\\\\.\\", 4) || !wcsncmp(full, L"\\\\?\\", 4);
        const bool remote = !device && !wcsncmp(full, L"\\\\", 2);
        wcscpy(all, remote ? share : drive);
        wcscat(all, full + (device ? 4 : remote ? 2 : 0));
    } else {
        free(all);
        all = NULL;
    }
    free(full);
    return all;
}

wchar_t *gd_windows_name(int folder, const char *name)
{
    wchar_t *wide = gd_windows_wide(name);
    if (!wide || !*name) {
        if (wide) errno = ENOENT;
        free(wide);
        return NULL;
    }
    for (wchar_t *c = wide; *c; c++) *c = *c == L'/' ? L'\\' : *c;
    if (folder == gd_os_here || *wide == L'\\') {
        wchar_t *path = kernel_path(wide);
        free(wide);
        return path;
    }
    if (!wcscmp(wide, L".")) *wide = L'\0';
    return wide;
}

HANDLE gd_windows_handle(int file)
{
    return (HANDLE)_get_osfhandle(file);
}

HANDLE gd_windows_open_at(int folder, const char *name, gd_windows_open how)
{
    const ULONG attributes = FILE_ATTRIBUTE_NORMAL,
                share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    wchar_t *path = gd_windows_name(folder, name);
    if (!path) return INVALID_HANDLE_VALUE;
    UNICODE_STRING text;
    RtlInitUnicodeString(&text, path);
    OBJECT_ATTRIBUTES object;
    InitializeObjectAttributes(&object, &text, OBJ_CASE_INSENSITIVE,
                               folder == gd_os_here ? NULL : gd_windows_handle(folder), NULL);
    IO_STATUS_BLOCK block;
    HANDLE file = INVALID_HANDLE_VALUE;
    const NTSTATUS status = NtCreateFile(
        &file, how.access | SYNCHRONIZE | FILE_READ_ATTRIBUTES, &object, &block, NULL, attributes,
        share, how.disposition,
        how.options | FILE_SYNCHRONOUS_IO_NONALERT | FILE_OPEN_FOR_BACKUP_INTENT, NULL, 0);
    free(path);
    if (NT_SUCCESS(status)) return file;
    gd_windows_fail_status(status);
    return INVALID_HANDLE_VALUE;
}

bool gd_windows_is_link(HANDLE file)
{
    FILE_ATTRIBUTE_TAG_INFO tag;
    return GetFileInformationByHandleEx(file, FileAttributeTagInfo, &tag, sizeof tag) &&
           tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT &&
           IsReparseTagNameSurrogate(tag.ReparseTag);
}

wchar_t *gd_windows_path(HANDLE file)
{
    const DWORD room = GetFinalPathNameByHandleW(file, NULL, 0, 0);
    wchar_t *path = room ? malloc((room + 1) * sizeof *path) : NULL;
    errno = ENOMEM;
    if (!room) gd_windows_fail(GetLastError());
    if (path && GetFinalPathNameByHandleW(file, path, room + 1, 0) <= room) return path;
    free(path);
    return NULL;
}
