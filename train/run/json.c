/* json.c - see json.h. */
#include "json.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON

size_t json_begin(const char *text, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t bytes = sizeof mark - 1;
    return length >= bytes && !memcmp(text, mark, bytes) ? bytes : 0;
}

json_t *json_parse(gd_json *j, const char *text, size_t length)
{
    *j = (gd_json){.text = text, .length = length};
    json_t *value = gd_json_take(j, SIZE_MAX);
    return value && gd_json_end(j) ? value : NULL;
}

#endif

json_number json_number_text(double number)
{
    static const int digits[] = {6, 9, 17};
    json_number n = {"null"};
    for (int i = 0; i < 3 && isfinite(number); i++) {
        snprintf(n.text, sizeof n.text, "%.*g", digits[i], number);
        if (strtod(n.text, NULL) == number) break;
    }
    return n;
}
