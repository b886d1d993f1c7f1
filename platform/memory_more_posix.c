/* memory_more_posix.c - see memory.h: what the programs need beyond the library. */
#include "platform/memory.h"

#include <math.h>
#include <stdio.h>
#ifdef __APPLE__
#include <mach/mach.h>
#endif

#ifdef __APPLE__

/* Pages that are free, or that hold only copies of files. */
static double free_bytes(void)
{
    vm_statistics64_data_t pages;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&pages, &count) !=
        KERN_SUCCESS)
        return 0;
    return ((double)pages.free_count + (double)pages.inactive_count) * (double)vm_page_size;
}

#else

/* The kB behind a name in /proc/meminfo; 0: it is not there. */
static double read_meminfo(const char *name)
{
    char line[128], format[64];
    unsigned long long size = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    snprintf(format, sizeof format, "%s: %%llu kB", name);
    while (file && fgets(line, sizeof line, file) && sscanf(line, format, &size) != 1) continue;
    if (file) fclose(file);
    return (double)size;
}

static double free_bytes(void)
{
    const double memory = read_meminfo("MemAvailable");
    return memory > 0 ? 1024 * (memory + read_meminfo("SwapFree")) : 0;
}

#endif

/* The bytes that a container (cgroup v2) may have; infinity: as many as there are. */
static double read_container(void)
{
    unsigned long long bytes;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "r");
    const bool limited = file && fscanf(file, "%llu", &bytes) == 1;
    if (file) fclose(file);
    return limited ? (double)bytes : INFINITY;
}

double gd_os_memory_available(void)
{
    const double bytes = free_bytes();
    if (bytes == 0) return INFINITY;
    return fmin(fmin(bytes, gd_os_address_space_limit()), read_container());
}
