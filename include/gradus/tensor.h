/* tensor.h - arrays with a dtype and a shape.
 *
 * A tensor is a view of memory of its context's device:
 *
 *     element (i0, i1, ...) is at data + offset + i0 * stride[0] + i1 * stride[1] + ...
 *
 * counted in elements. A tensor with the strides of a packed row-major array is called contiguous.
 * Views (gd_reshape, gd_permute, gd_slice, gd_expand in ops.h) are new tensors on the same memory;
 * an expanded axis has stride 0.
 *
 * Ownership. There are two kinds of tensor, and no reference counts:
 *
 *   - Tensors you make (this page): yours until gd_tensor_free. Parameters, inputs, targets.
 *   - Tensors made by ops: they belong to the step. They are freed together by gd_step_end();
 *     their memory may be reused earlier, when gd_backward no longer needs them (gd_keep() exempts
 *     one). Using one after that is an error that says so, until the headers are used again: of a
 *     step after two more steps (a thousand with the context's option `poison`), of your own
 *     tensors after 256 more were freed.
 *
 * Sizes are int64_t everywhere: tensors may have more than 2^31 elements, and a loop with signed
 * indices may count down. A dimension may be 0; a tensor with no dimensions has one element.
 */
#ifndef GRADUS_TENSOR_H
#define GRADUS_TENSOR_H

#include <stdio.h>

#include "gradus/context.h"

#ifdef __cplusplus
#include <array>
#include <cstdint>
#include <type_traits>
extern "C" {
#endif

#define GD_MAX_DIMS 8

typedef enum gd_dtype {
    GD_FLOAT32 = 0,
    GD_FLOAT64,
    GD_BFLOAT16, /* storage: the CPU computes in float32 and rounds the result to nearest even */
    GD_FLOAT16,  /* likewise */
    GD_INT32,    /* token ids, class indices, masks; never has a gradient */
    GD_DTYPE_COUNT
} gd_dtype;

GD_API const char *gd_dtype_name(gd_dtype dtype); /* "float32" ... */
GD_API size_t gd_dtype_size(gd_dtype dtype);      /* bytes of one element */
GD_API bool gd_dtype_is_real(gd_dtype dtype);     /* everything but GD_INT32 */

typedef struct gd_tensor gd_tensor;

/* Shape arguments read well as gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(32, 64)). A dimension may
 * have any type of whole numbers, and is evaluated once. */
#ifdef __cplusplus
extern "C++" {
template <class WHOLE>
constexpr std::int64_t gd_dimension(WHOLE n)
{
    static_assert(!std::is_floating_point<WHOLE>::value, "a dimension is a whole number");
    return static_cast<std::int64_t>(n);
}
template <class... WHOLE>
constexpr std::array<std::int64_t, sizeof...(WHOLE)> gd_shape(WHOLE... n)
{
    return {{gd_dimension(n)...}};
}
}
#define GD_SHAPE(...)                                                          \
    static_cast<int>(std::tuple_size<decltype(gd_shape(__VA_ARGS__))>::value), \
        gd_shape(__VA_ARGS__).data()
#else
#define GD_SHAPE(...)                                                                  \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) \
    {                                                                                  \
        __VA_ARGS__                                                                    \
    }
#endif

/* ---- Making and freeing ------------------------------------------------------------------- */

/* A tensor of zeros, owned by the caller. `ndim` from 0 (one element; shape may be NULL) to
 * GD_MAX_DIMS. NULL on error: a negative dimension, more than PTRDIFF_MAX bytes, no memory. */
GD_API gd_tensor *gd_tensor_create(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape);

/* The same, filled from packed row-major host memory of that dtype. */
GD_API gd_tensor *gd_tensor_from(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                                 const void *data);

/* start, start + step, ... below end (above, for a negative step): ceil((end - start) / step)
 * numbers, each computed in double and rounded. NULL on error: a step of 0, numbers that are not
 * finite, a GD_INT32 that would not be whole or in range. */
GD_API gd_tensor *gd_arange(gd_context *ctx, gd_dtype dtype, double start, double end, double step);

/* A tensor on host memory that the caller keeps alive and aligned to the dtype's size; CPU only.
 * Nothing is copied, and freeing the tensor does not free the memory. Writing to it other than by
 * the functions below is not detected by a backward (see gd_tensor_data). */
GD_API gd_tensor *gd_tensor_wrap(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                                 void *data);

/* Frees a tensor. One that you created is freed with its gradient; a backward that still needs its
 * values is then an error. The memory of one made by an op is released as soon as no backward needs
 * it, which saves memory in long forward passes. NULL is fine; a tensor that you have freed is
 * an error. */
GD_API void gd_tensor_free(gd_tensor *t);

/* ---- Looking at one ----------------------------------------------------------------------- */

GD_API gd_context *gd_tensor_context(const gd_tensor *t);
GD_API gd_dtype gd_tensor_dtype(const gd_tensor *t);
GD_API int gd_tensor_ndim(const gd_tensor *t);
/* Dimension `axis`; negative axes count from the end. 0 if there is no such axis. */
GD_API int64_t gd_tensor_dim(const gd_tensor *t, int axis);
GD_API const int64_t *gd_tensor_shape(const gd_tensor *t);   /* [ndim] */
GD_API const int64_t *gd_tensor_strides(const gd_tensor *t); /* [ndim], in elements */
GD_API int64_t gd_tensor_count(const gd_tensor *t);          /* number of elements */
GD_API bool gd_tensor_is_contiguous(const gd_tensor *t);

/* A name for messages and for printing the tape, copied (at most 127 bytes). Those of a group's
 * parameters and buffers, by which files know them, stay. */
GD_API gd_status gd_tensor_set_name(gd_tensor *t, const char *name);
GD_API const char *gd_tensor_name(const gd_tensor *t); /* "" if it has none */

/* The address of element (0, 0, ...), in the memory of the device; NULL for a tensor without
 * elements or one whose memory was released. Unlike gd_tensor_write, writing there is not detected
 * by a backward that needs the old values, nor by gd_recompute: its gradients are wrong. */
GD_API void *gd_tensor_data(const gd_tensor *t);

/* ---- Copies in and out -------------------------------------------------------------------- */

/* Copies all elements between the tensor and packed row-major host memory of the same dtype.
 * `bytes` is the size of that memory and must be exactly count * dtype size. Writing is refused for
 * expanded views, whose elements share memory. A tensor that a pending backward needs may be
 * written to, but then that backward is an error. */
GD_API gd_status gd_tensor_read(const gd_tensor *t, void *host, size_t bytes);
GD_API gd_status gd_tensor_write(gd_tensor *t, const void *host, size_t bytes);

/* The same with conversion from or to double, for any dtype: `count` must be the tensor's. Values
 * are rounded to nearest even on the way in; to GD_INT32 they must be whole and in range. */
GD_API gd_status gd_tensor_read_f64(const gd_tensor *t, double *host, int64_t count);
GD_API gd_status gd_tensor_write_f64(gd_tensor *t, const double *host, int64_t count);

/* Copies src into dst, of the same shape, converting the dtype as gd_cast does. Not recorded on the
 * tape. Both may be views of the same memory: dst gets the old values of src. */
GD_API gd_status gd_tensor_copy(gd_tensor *dst, const gd_tensor *src);

/* Sets every element, rounding as above; of GD_INT32 to a whole number in range. */
GD_API gd_status gd_tensor_fill(gd_tensor *t, double value);

/* The value of a tensor with one element, e.g. a loss. Waits for the device. NaN on error. */
GD_API double gd_item(const gd_tensor *t);

/* Writes a line with name, dtype, shape, the least number, the mean, the largest, and how many are
 * NaN (which count in none of these), and then the elements as NumPy prints a large array: the
 * first three and the last three of each axis. Reads all of it: on the host that takes eight bytes
 * for each element. */
GD_API gd_status gd_tensor_print(const gd_tensor *t, FILE *file);

/* ---- Gradients ---------------------------------------------------------------------------- */

/* Whether gradients flow to a tensor of yours (off by default). Not for GD_INT32; to be called
 * before the step's ops that read it. */
GD_API gd_status gd_tensor_set_requires_grad(gd_tensor *t, bool on);
GD_API bool gd_tensor_requires_grad(const gd_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
