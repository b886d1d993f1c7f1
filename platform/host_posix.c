/* host_posix.c - see process.h. */
#define _POSIX_C_SOURCE 200809L /* uname */
#include "platform/process.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

/* Linux draws an id when it boots, which containers with names of their own share. */
void gd_os_host(char name[GD_OS_HOST])
{
    struct utsname system = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    memset(name, 0, GD_OS_HOST);
    const bool read = file && fgets(name, GD_OS_HOST, file);
    if (file) fclose(file);
    name[strcspn(name, "\n")] = '\0';
    if (read && name[0]) return;
    uname(&system);
    snprintf(name, GD_OS_HOST, "%.63s", system.nodename);
}
