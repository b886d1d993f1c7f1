/* safetensors.h - shared parts of the safetensors reader and writer. */
#ifndef GRADUS_SRC_SAFETENSORS_H
#define GRADUS_SRC_SAFETENSORS_H

#include "core/core.h"

enum { GD_SAFETENSORS_LENGTH_BYTES = 8, GD_SAFETENSORS_HEADER_LIMIT = 100000000 };

struct gd_safetensors {
    gd_context *ctx;
    const char *path;           /* for messages; in `chars` */
    const unsigned char *bytes; /* of a file in memory, else NULL */
    int descriptor;             /* of a file on disk, else -1 */
    size_t size;
    char *header; /* of a file on disk, while it is parsed */
    size_t header_bytes;
    int reason; /* errno of a system call that failed while it was opened */

    gd_safetensors_entry *entries; /* [count] in the order of their data */
    int64_t count;
    const gd_safetensors_entry **by_name; /* [count] */
    gd_named_text *metadata;              /* [metadata_count] */
    int64_t metadata_count;
    int64_t *dims; /* all shapes */
    int64_t dim_count;
    char *chars; /* all texts */
    size_t char_count;
};

/* The one name in a header that is not a tensor's; and the message of a build without jansson. */
extern const char gd_safetensors_metadata_name[], gd_safetensors_no_jansson[];

/* The format's name of a dtype. */
const char *gd_safetensors_dtype_name(gd_dtype dtype);

/* ---- Bytes (safetensors_bytes.c) --------------------------------------------------------- */

/* The beginning of a text from a file, short enough for a sentence. */
typedef struct gd_excerpt {
    char text[100];
} gd_excerpt;

gd_excerpt gd_excerpt_of(const char *text);

/* An error "WHO: PATH: WHY". */
gd_status gd_safetensors_refuse(gd_context *ctx, const char *who, const char *path,
                                const char *why);

/* Copies bytes [offset, offset + bytes) of the file, which its size covers. `who` is the function
 * for the message. */
gd_status gd_safetensors_fetch(const gd_safetensors *file, const char *who, size_t offset, void *to,
                               size_t bytes);

/* ---- Entries (safetensors_read.c) -------------------------------------------------------- */

bool gd_safetensors_has_shape(const gd_safetensors_entry *entry, const gd_tensor *t);
gd_text gd_safetensors_shape_text(const gd_safetensors_entry *entry);

/* ---- The header (safetensors_header.c) -------------------------------------------------- */

/* Reads and checks the header, and fills in everything else. On error the memory
 * stays in *file, for gd_safetensors_close. */
gd_status gd_safetensors_parse(gd_safetensors *file, const char *path);

/* ---- Writing (safetensors_write.c) ------------------------------------------------------- */

typedef struct gd_file_contents {
    const gd_named_tensor *tensors;
    int64_t tensor_count;
    const gd_named_text *metadata;
    int64_t metadata_count;
} gd_file_contents;

/* The header for tensors whose data follow one another, with its length before it and padded with
 * spaces to a multiple of 64 bytes. Free it. NULL on error. */
char *gd_safetensors_print(gd_context *ctx, gd_file_contents contents, size_t *bytes);

/* Called before the elements of a tensor are written, and also after an error; false: no more are
 * written. */
typedef bool gd_supply(void *user, const gd_named_tensor *tensor);

/* gd_safetensors_write_to, where `supply` makes the elements (NULL: they are there). Without an
 * output nothing is written, but all is supplied. */
gd_status gd_safetensors_write_by(gd_context *ctx, const gd_output *to, gd_file_contents contents,
                                  gd_supply *supply, void *user);

/* An error unless the output has a name and a function. */
gd_status gd_safetensors_check_output(gd_context *ctx, const gd_output *to);

/* ---- Files that appear whole or not at all (whole_file.c) ------------------------------- */

/* Bytes of a path; of a name that is part of the temporary one. */
enum { GD_WHOLE_PATH = 4096, GD_WHOLE_NAME = 96 };

typedef struct gd_whole_file {
    gd_context *ctx;
    const char *who, *path;
    char link[2][GD_WHOLE_PATH + 1];           /* where links lead */
    char *name, temporary[GD_WHOLE_NAME + 40]; /* in the folder; until it is complete */
    int folder, descriptor;
} gd_whole_file;

gd_status gd_whole_file_begin(gd_whole_file *file, gd_context *ctx, const char *who,
                              const char *path);
/* The function of a gd_output, whose user is the file. */
bool gd_whole_file_write(void *file, const void *data, size_t bytes);
/* Flushes and renames, or, after an error, removes what was written. */
gd_status gd_whole_file_end(gd_whole_file *file);

#endif
