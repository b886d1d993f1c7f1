/* utf8.c - see utf8.h. */
#include "files/utf8.h"

int gd_utf8_length(const unsigned char *c, int64_t left)
{
    int length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    if (c[0] > 0xf4 || length > left) return 0;
    for (int i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
    }
    bool longer = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool beyond = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    return longer || beyond ? 0 : length;
}

bool gd_utf8_text(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    for (int length; *c && (length = gd_utf8_length(c, 4)) > 0;) c += length;
    return !*c;
}

uint32_t gd_utf8_code(const unsigned char *c, int length)
{
    uint32_t code = length < 2 ? c[0] : c[0] & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) code = code << 6 | (c[i] & 0x3f);
    return code;
}
