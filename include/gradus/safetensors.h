/* safetensors.h - tensors in files, in the form that the rest of the world reads.
 *
 * A safetensors file is eight bytes with the length of a header (little-endian), the header, and
 * then the elements of all tensors, packed, row-major and little-endian:
 *
 *     [ n ] { "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ... } [ elements ]
 *      8    n bytes of JSON                                                          the rest
 *
 * Offsets count from the end of the header. "__metadata__" may hold a map from texts to texts. Such
 * a file cannot run code, but it can lie; so it is either whole and true, or refused as a whole:
 *
 *   - the header is at most 100,000,000 bytes, lies within the file, begins with '{' and is JSON in
 *     UTF-8 without a duplicate name;
 *   - each tensor has exactly the three fields above, a dtype of the format, a shape of at most 64
 *     whole numbers from 0, and bytes for just that many elements; no product overflows;
 *   - the tensors cover the file from the header to the end, without holes or overlaps.
 *
 * Reading a header takes at most four times its size of memory, whatever it holds.
 *
 * Names are nothing but names: they may be empty or say "../x", but cannot hold a NUL.
 *
 * Reading and writing need jansson when the library is built (CMake's GRADUS_JANSSON); without it
 * both are GD_ERROR_UNSUPPORTED.
 */
#ifndef GRADUS_SAFETENSORS_H
#define GRADUS_SAFETENSORS_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Reading ------------------------------------------------------------------------------ */

typedef struct gd_safetensors gd_safetensors;

/* A tensor of a file. All pointers are the file's. */
typedef struct gd_safetensors_entry {
    const char *name;
    const char *format_dtype; /* as the file says it: "F32", "BF16", "I64" ... */
    gd_dtype dtype;           /* GD_DTYPE_COUNT: one that no gd_tensor can have */
    int ndim;                 /* may be more than GD_MAX_DIMS */
    const int64_t *shape;     /* [ndim] */
    const void *data;         /* the elements; at any alignment */
    size_t bytes;
    size_t offset; /* of the elements in the file */
} gd_safetensors_entry;

/* Maps the file, reads its header and checks everything above. Elements come from the disk when
 * they are first looked at. It must be a regular file, and nobody may shorten it while it is open.
 * NULL on error. */
GD_API gd_safetensors *gd_safetensors_open(gd_context *ctx, const char *path);

/* The same for a file that lies in memory, which the caller keeps alive and unchanged. */
GD_API gd_safetensors *gd_safetensors_wrap(gd_context *ctx, const void *file, size_t bytes);

/* Before the context is freed. Takes away the memory of tensors that are windows on the file, too:
 * see gd_safetensors_tensor. NULL is fine. */
GD_API void gd_safetensors_close(gd_safetensors *file);

GD_API int64_t gd_safetensors_count(const gd_safetensors *file); /* tensors */
/* The tensors in the order of their data; NULL past the end. */
GD_API const gd_safetensors_entry *gd_safetensors_at(const gd_safetensors *file, int64_t index);
/* NULL, which is no error, where there is none of that name. */
GD_API const gd_safetensors_entry *gd_safetensors_find(const gd_safetensors *file,
                                                       const char *name);

/* A text with a name, as the metadata are. */
typedef struct gd_named_text {
    const char *name, *text;
} gd_named_text;

/* NULL, which is no error, where the metadata has none of that name. */
GD_API const char *gd_safetensors_metadata(const gd_safetensors *file, const char *name);
/* All of it, in the order of the file; NULL past the end. */
GD_API const gd_named_text *gd_safetensors_metadata_at(const gd_safetensors *file, int64_t index);

/* A tensor with that entry's name, dtype and shape, owned by the caller. On the CPU it is a window
 * on the file's memory where that is aligned (as in files that gd_safetensors_write wrote), and a
 * copy where not: free it before the file is closed. Of a file that was opened by its path, what is
 * written to the tensor stays in memory and never reaches the file; a wrapped file is copied. NULL
 * on error: no such name, a dtype that gd_dtype lacks. */
GD_API gd_tensor *gd_safetensors_tensor(const gd_safetensors *file, const char *name);

/* Copies the elements into `tensor`, which must have the entry's shape, converting between dtypes
 * as gd_tensor_copy does. */
GD_API gd_status gd_safetensors_read(const gd_safetensors *file, const char *name,
                                     gd_tensor *tensor);

/* ---- Writing ------------------------------------------------------------------------------ */

typedef struct gd_named_tensor {
    const char *name;
    const gd_tensor *tensor; /* views too: they are packed on the way */
} gd_named_tensor;

/* Writes a file with these tensors and metadata. It appears whole or not at all: all is written
 * under another name in the same folder and flushed to the disk, then the file is renamed and the
 * folder flushed. On error an older file of that name is as it was.
 *
 * The elements begin at a multiple of 64 bytes; wider dtypes come first, so that each tensor is
 * aligned. Names are unique, in UTF-8, and not "__metadata__". */
GD_API gd_status gd_safetensors_write(gd_context *ctx, const char *path,
                                      const gd_named_tensor *tensors, int64_t tensor_count,
                                      const gd_named_text *metadata, int64_t metadata_count);

/* The same file, but of the tensors only names, dtypes and shapes are taken; their elements are zeros,
 * which take no room on most disks. For several processes that then write a part each, at the offsets
 * that gd_safetensors_at tells. */
GD_API gd_status gd_safetensors_reserve(gd_context *ctx, const char *path,
                                        const gd_named_tensor *tensors, int64_t tensor_count,
                                        const gd_named_text *metadata, int64_t metadata_count);

#ifdef __cplusplus
}
#endif
#endif
