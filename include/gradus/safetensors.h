/* safetensors.h - tensors in files of the safetensors format.
 *
 * A safetensors file is eight bytes with the length of a header (little-endian), the header, and
 * then the elements of all tensors, packed, row-major and little-endian:
 *
 *     [ n ] { "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ... } [ elements ]
 *      8    n bytes of JSON                                                          the rest
 *
 * Offsets count from the end of the header. "__metadata__" may hold a map from strings to strings.
 * Such a file cannot run code, but it may be invalid; so every rule is checked, and a file that
 * breaks one is refused as a whole:
 *
 *   - the header is at most 100,000,000 bytes, lies within the file, begins with '{' and is JSON in
 *     UTF-8 without a duplicate name;
 *   - each tensor has exactly the three fields above, a dtype of the format, a shape of at most 64
 *     whole numbers of at least 0, and bytes for just that many elements; no product overflows;
 *   - the tensors cover the file from the header to the end, without holes or overlaps.
 *
 * Reading a header takes at most eight times its size of memory, or a megabyte.
 *
 * Names have no meaning: they may be empty or "../x", but cannot contain a NUL.
 *
 * Reading and writing need jansson when the library is built (CMake's GRADUS_JANSSON); without it
 * both are GD_ERROR_UNSUPPORTED.
 */
#ifndef GRADUS_SAFETENSORS_H
#define GRADUS_SAFETENSORS_H

#include "gradus/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Reading ------------------------------------------------------------------------------ */

typedef struct gd_safetensors gd_safetensors;

/* A tensor of a file. All pointers are owned by the file. */
typedef struct gd_safetensors_entry {
    const char *name;
    const char *format_dtype; /* in the file: "F32", "BF16", "I64" ... */
    gd_dtype dtype;           /* GD_DTYPE_COUNT: not supported by gd_tensor */
    int ndim;                 /* may be more than GD_MAX_DIMS */
    const int64_t *shape;     /* [ndim] */
    const void *data; /* the elements, at any alignment, of a file in memory; NULL of one on disk */
    size_t bytes;
    size_t offset; /* of the elements in the file */
} gd_safetensors_entry;

/* Opens the file, reads its header and checks everything above. Elements are read when they are
 * asked for; if the file has become shorter by then, that is an error. It must be a regular file.
 * NULL on error; then errno is the reason of the system (ENOMEM: no memory), or 0 if the contents
 * are at fault. */
GD_API gd_safetensors *gd_safetensors_open(gd_context *ctx, const char *path);

/* The same for a file that is open for reading, as `name` in messages. The descriptor is closed
 * with the file, or at once on error. */
GD_API gd_safetensors *gd_safetensors_open_descriptor(gd_context *ctx, int descriptor,
                                                      const char *name);

/* The same for a file in memory, which the caller keeps alive and unchanged. */
GD_API gd_safetensors *gd_safetensors_wrap(gd_context *ctx, const void *file, size_t bytes);

/* Closes the file. NULL is fine. */
GD_API void gd_safetensors_close(gd_safetensors *file);

GD_API int64_t gd_safetensors_count(const gd_safetensors *file); /* tensors */
/* The tensors in the order of their data; NULL past the end. */
GD_API const gd_safetensors_entry *gd_safetensors_at(const gd_safetensors *file, int64_t index);
/* NULL, which is not an error, if there is none of that name. */
GD_API const gd_safetensors_entry *gd_safetensors_find(const gd_safetensors *file,
                                                       const char *name);

/* A named string of the metadata. */
typedef struct gd_named_text {
    const char *name, *text;
} gd_named_text;

/* NULL, which is not an error, if the metadata has none of that name. */
GD_API const char *gd_safetensors_metadata(const gd_safetensors *file, const char *name);
/* All of it, in the order of the file; NULL past the end. */
GD_API const gd_named_text *gd_safetensors_metadata_at(const gd_safetensors *file, int64_t index);

/* A copy of a tensor, with that entry's name, dtype and shape, owned by the caller. NULL on error:
 * no such name, a dtype that gd_dtype does not have, elements that cannot be read. */
GD_API gd_tensor *gd_safetensors_tensor(const gd_safetensors *file, const char *name);

/* Copies the elements into `tensor`, which must have the entry's shape, converting between dtypes
 * as gd_tensor_copy does. After an error in reading, the tensor's elements are undefined. */
GD_API gd_status gd_safetensors_read(const gd_safetensors *file, const char *name,
                                     gd_tensor *tensor);

/* Copies bytes [offset, offset + bytes) of an entry's elements, of any dtype, to host memory. */
GD_API gd_status gd_safetensors_read_bytes(const gd_safetensors *file,
                                           const gd_safetensors_entry *entry, size_t offset,
                                           void *host, size_t bytes);

/* ---- Writing ------------------------------------------------------------------------------ */

typedef struct gd_named_tensor {
    const char *name;
    const gd_tensor *tensor; /* views too: they are packed when written */
} gd_named_tensor;

/* Writes a file with these tensors and metadata. It appears whole or not at all: it is written
 * under another name in the same folder and flushed to the disk, then renamed, and the folder is
 * flushed. On error an older file of that name is unchanged.
 *
 * The new file has the permissions of the older one and, where this process may give them, its
 * owner and group; with another owner or group it grants nobody more. A symbolic link stays, and
 * the file that it leads to is written, whether or not there is one yet; in a folder where
 * everybody may put links (/tmp), somebody else's is refused. Other names of the older file (hard
 * links) keep its contents.
 *
 * The elements begin at a multiple of 64 bytes; wider dtypes come first, so that each tensor is
 * aligned. Names are unique, in UTF-8, and not "__metadata__". */
GD_API gd_status gd_safetensors_write(gd_context *ctx, const char *path,
                                      const gd_named_tensor *tensors, int64_t tensor_count,
                                      const gd_named_text *metadata, int64_t metadata_count);

/* Where a file goes that is not written by its path. */
typedef struct gd_output {
    const char *name; /* for messages */
    /* false, with the reason in errno, if it fails */
    bool (*write)(void *user, const void *bytes, size_t count);
    void *user;
} gd_output;

/* Writes the same bytes to an output. After an error it has part of them. */
GD_API gd_status gd_safetensors_write_to(gd_context *ctx, const gd_output *to,
                                         const gd_named_tensor *tensors, int64_t tensor_count,
                                         const gd_named_text *metadata, int64_t metadata_count);

/* ---- A group of parameters ---------------------------------------------------------------- */

/* Writes all parameters and buffers under their names, as gd_safetensors_write does. */
GD_API gd_status gd_params_save(const gd_params *params, const char *path,
                                const gd_named_text *metadata, int64_t metadata_count);

/* Fills all parameters and buffers from such a file, converting between dtypes as gd_tensor_copy
 * does. A tensor that is missing, has another shape or is not of the group is an error, as with
 * load_state_dict in PyTorch; only NAME.num_batches_tracked, which PyTorch's batch norm saves, and
 * what gd_optimizer_save adds may be there in addition. Everything is read into host memory first:
 * after an error all is as it was. Of replicated parameters every rank loads the same file, or rank
 * 0 does and all call gd_params_broadcast. */
GD_API gd_status gd_params_load(gd_params *params, const char *path);

/* For what was trained on something else. With `matching` those tensors are loaded that the file
 * has with the same name and shape, and the rest stays as it is. */
typedef struct gd_load_options {
    bool matching;
    /* NULL, or called for every tensor that stays as it is, or is in the file only, with the
     * reason: "is not in the file", "has shape [10, 64] in the file, wanted [3, 64]", "is not of
     * the group" */
    void (*unmatched)(void *user, const char *name, const char *why);
    void *user;
} gd_load_options;
GD_API gd_status gd_params_load_with(gd_params *params, const char *path,
                                     const gd_load_options *options);

/* The same with everything else that an update depends on: the optimizer's states with masters and
 * average, how often it has updated each parameter, the loss scale, the random state of the
 * context, and how many batches were made (data.h, saved_with). After the load the next steps have
 * the same bits. It is for between two updates: gradients and losses that were added up are not
 * saved. All ranks of replicated parameters save together, which takes memory for a bucket on each,
 * and rank 0 writes; any number of ranks loads, all of them the same file.
 *
 * The optimizer that loads is made as the one that saved: of another kind, or with other states, it
 * is refused, and with `matching` only parameters and buffers are loaded from a file of another
 * kind. Its options and its learning rate are not in the file. */
GD_API gd_status gd_optimizer_save(const gd_optimizer *optimizer, const char *path,
                                   const gd_named_text *metadata, int64_t metadata_count);
GD_API gd_status gd_optimizer_load(gd_optimizer *optimizer, const char *path,
                                   const gd_load_options *options);

/* The same without the parameters and buffers, for programs that have them in a file of their own.
 * Only rank 0's output is used. States that the optimizer does not have are left in the file;
 * masters and an average that the file does not have begin as the parameters. */
GD_API gd_status gd_optimizer_save_states(const gd_optimizer *optimizer, const gd_output *to,
                                          const gd_named_text *metadata, int64_t metadata_count);
GD_API gd_status gd_optimizer_load_states(gd_optimizer *optimizer, const gd_safetensors *file);

#ifdef __cplusplus
}
#endif
#endif
