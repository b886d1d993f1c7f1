/* text_file.c - see text_file.h. */
#include "text_file.h"
#include "console.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint8_t *text_file_read(const char *path, int64_t *length)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        console_message("cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    size_t capacity = 1 << 16, used = 0, got;
    uint8_t *bytes = malloc(capacity);
    while (bytes && (got = fread(bytes + used, 1, capacity - used, file)) > 0) {
        used += got;
        if (used < capacity) continue;
        uint8_t *grown = realloc(bytes, capacity *= 2);
        if (!grown) free(bytes);
        bytes = grown;
    }
    bool failed = ferror(file) != 0;
    int error = errno;
    fclose(file);
    if (bytes && !failed) {
        *length = (int64_t)used;
        return bytes;
    }
    console_message("cannot read %s: %s", path, bytes ? strerror(error) : "out of memory");
    free(bytes);
    return NULL;
}
