/* json.h - JSON, one value at a time, parsed by jansson in memory that was counted and allocated
 * first: jansson 2.14 overlooks an allocation that fails within a text, which then lacks a
 * character or is read past its end. Compiled into the library and into the programs. */
#ifndef GRADUS_JSON_H
#define GRADUS_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* Arrays and objects inside each other, at most. */
enum { GD_JSON_DEPTH = 100 };

/* Memory for what jansson allocates while it parses one value. */
typedef struct gd_json_arena {
    char *bytes;
    size_t capacity, used;
} gd_json_arena;

/* A text, and the byte that is read next. */
typedef struct gd_json {
    const char *text;
    size_t length, at;
    const char
        *name;   /* of the member at which the last gd_json_next stopped, until the next call */
    bool minus;  /* the last value has a minus sign: jansson reads -0 as 0 */
    bool memory; /* it is not the text that is wrong: there was no memory */
    const char *wrong; /* why the text is not JSON, at this byte; NULL as long as it is */
    json_error_t error;
    gd_json_arena names, values;
} gd_json;

/* The text of a file, after the byte order mark that some editors write before it. */
gd_json gd_json_of(const char *text, size_t length);

/* The next character that is not a blank, 0 at the end. */
char gd_json_peek(gd_json *j);

/* Takes a value of at most `most` bytes; NULL, with `wrong` set, if it is longer or not valid, or
 * if an object in it has a name twice. It exists until the next one is taken, and needs no
 * json_decref. */
json_t *gd_json_take(gd_json *j, size_t most);

/* The same of all that is left of the text. */
json_t *gd_json_take_all(gd_json *j);

/* Steps to the first or next value in an object or an array; false after the last one, and where
 * `wrong` is set. The caller takes each value. */
bool gd_json_next(gd_json *j, bool object);

/* Whether only blanks follow. */
bool gd_json_end(gd_json *j);

void gd_json_close(gd_json *j);

#endif
