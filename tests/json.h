/* json.h - enough of JSON (RFC 8259) to check our output.
 *
 * json_end walks over one value and returns where it ends, or NULL if the text is not JSON.
 * json_member finds the value of a key in an object, json_item that of a place in an array; both
 * need text that json_end accepts, and return NULL if there is no such value. */
#ifndef GRADUS_TEST_JSON_H
#define GRADUS_TEST_JSON_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static inline const char *json_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static inline const char *json_digits(const char *at)
{
    size_t digits = strspn(at, "0123456789");
    return digits ? at + digits : NULL;
}

static inline const char *json_number(const char *at)
{
    if (*at == '-') at++;
    if (*at == '0' && isdigit((unsigned char)at[1])) return NULL;
    at = json_digits(at);
    if (at && *at == '.') at = json_digits(at + 1);
    if (at && (*at == 'e' || *at == 'E')) {
        at++;
        if (*at == '+' || *at == '-') at++;
        at = json_digits(at);
    }
    return at;
}

static inline const char *json_string(const char *at)
{
    if (*at++ != '"') return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < ' ') return NULL; /* the end of the text, too */
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            if (strspn(at + 1, "0123456789abcdefABCDEF") < 4) return NULL;
            at += 4;
        } else if (!*at || !strchr("\"\\/bfnrt", *at)) {
            return NULL;
        }
    }
    return at + 1;
}

static inline const char *json_end(const char *at);

/* Items, or members, between brackets. */
static inline const char *json_list(const char *at, char closing, bool keys)
{
    at = json_space(at + 1);
    if (*at == closing) return at + 1;
    for (;; at = json_space(at + 1)) {
        if (keys) {
            at = json_string(at);
            if (!at) return NULL;
            at = json_space(at);
            if (*at++ != ':') return NULL;
        }
        at = json_end(at);
        if (!at) return NULL;
        at = json_space(at);
        if (*at == closing) return at + 1;
        if (*at != ',') return NULL;
    }
}

static inline const char *json_end(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    at = json_space(at);
    if (*at == '{') return json_list(at, '}', true);
    if (*at == '[') return json_list(at, ']', false);
    if (*at == '"') return json_string(at);
    for (int i = 0; i < 3; i++)
        if (!strncmp(at, words[i], strlen(words[i]))) return at + strlen(words[i]);
    return json_number(at);
}

static inline const char *json_member(const char *object, const char *key)
{
    const char *at = json_space(object);
    if (*at != '{') return NULL;
    for (at = json_space(at + 1); *at == '"'; at = json_space(at + 1)) {
        const char *name = at + 1, *end = json_string(at), *value = json_space(end) + 1;
        size_t length = (size_t)(end - name) - 1;
        if (length == strlen(key) && !memcmp(name, key, length)) return json_space(value);
        at = json_space(json_end(value));
    }
    return NULL;
}

static inline const char *json_item(const char *array, int index)
{
    const char *at = json_space(array);
    if (*at != '[') return NULL;
    for (at = json_space(at + 1); *at && *at != ']'; at = json_space(at + 1)) {
        if (index-- == 0) return at;
        at = json_space(json_end(at));
        if (*at == ']') break;
    }
    return NULL;
}

/* The value is the string, which has nothing to escape. */
static inline bool json_is(const char *value, const char *string)
{
    size_t length = strlen(string);
    return value && *value == '"' && !strncmp(value + 1, string, length) &&
           value[length + 1] == '"';
}

#endif
