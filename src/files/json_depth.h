/* json_depth.h - how deep JSON may be nested: jansson takes up to 2048 levels, and 100 bytes of the
 * stack for each. The programs use it too. */
#ifndef GRADUS_JSON_DEPTH_H
#define GRADUS_JSON_DEPTH_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the value that begins a text has more than `most` arrays and objects inside each other. */
static inline bool gd_json_is_deep(const char *text, size_t length, int most)
{
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        if (quoted && c == '\\') i++;
        if (c == '"') quoted = !quoted;
        if (quoted) continue;
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (depth > most) return true;
        if (depth == 0 && (c == ']' || c == '}' || c == '"')) break;
    }
    return false;
}

#endif
