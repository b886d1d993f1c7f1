/* names_windows.h - what the files of this folder for Windows share: errors and names. */
#ifndef GRADUS_PLATFORM_NAMES_WINDOWS_H
#define GRADUS_PLATFORM_NAMES_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <windows.h>

/* Sets errno for an error of Windows, that of GetLastError or of a status; returns false. */
bool gd_windows_fail(DWORD error);
bool gd_windows_fail_status(LONG status);

/* Copies of a text in the other encoding, to be freed; a length of -1: up to the NUL. NULL with
 * errno, EILSEQ for what is not UTF-8. */
wchar_t *gd_windows_wide(const char *text);
char *gd_windows_utf8(const wchar_t *text, int length);

/* A name within a folder as the kernel wants it, to be freed: without the folder, or, where that is
 * gd_os_here or the name begins at a root, a whole path; empty for ".", the folder itself. NULL
 * with errno. */
wchar_t *gd_windows_name(int folder, const char *name);

/* What NtCreateFile is asked for. */
typedef struct gd_windows_open {
    DWORD access;      /* such as FILE_READ_DATA */
    DWORD disposition; /* FILE_OPEN, FILE_CREATE, FILE_OPEN_IF */
    DWORD options;     /* such as FILE_DIRECTORY_FILE */
} gd_windows_open;

/* Opens what has a name in a folder, which everybody else may read, write, rename and remove
 * meanwhile. INVALID_HANDLE_VALUE with errno. */
HANDLE gd_windows_open_at(int folder, const char *name, gd_windows_open how);

/* Whether an opened file is a link: a symbolic one, or a junction. */
bool gd_windows_is_link(HANDLE file);

/* The handle of a descriptor. */
HANDLE gd_windows_handle(int file);

/* The path of an opened file or folder, to be freed; NULL with errno. */
wchar_t *gd_windows_path(HANDLE file);

#endif
