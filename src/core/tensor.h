/* tensor.h - the structs behind a tensor, and the accessors of gradus/tensor.h as inline functions.
 *
 * An op on a few numbers costs what its calls cost, and a kernel asks for the data, the shape and
 * the strides of each tensor. So inside the library accessors are expanded in place; tensor.c has
 * the functions that programs call. Kernels use the accessors only, never a field.
 */
#ifndef GRADUS_CORE_TENSOR_H
#define GRADUS_CORE_TENSOR_H

#include "gradus/tensor.h"

typedef struct gd_storage gd_storage;
typedef struct gd_node gd_node;

struct gd_storage {
    void *data;
    size_t bytes;
    gd_memory_class memory_class;
    bool owned;       /* data comes from a pool; false: the user's (gd_tensor_wrap) */
    bool step;        /* made by an op: listed in step_storages, header in the arena */
    bool keep;        /* gd_keep: not released before the step ends */
    bool released;    /* data was returned to the pool before the end of the step */
    uint64_t version; /* another after every write, so that a backward detects that an input
                       * changed; no two contents in a context have the same (gd_new_version) */
    int views, readers;
    uint8_t *touched; /* which granules may be other than 0 (services.h); NULL: all */
    void *committed;  /* of a buffer: what it holds again if the next update is withheld; or NULL */
    gd_storage *next; /* in step_storages */
};

/* Of a name, with the zero at its end. */
enum { GD_NAME_SIZE = 128 };

struct gd_tensor {
    gd_context *ctx;
    gd_storage *storage;
    gd_dtype dtype;
    int ndim;
    int64_t shape[GD_MAX_DIMS];
    int64_t strides[GD_MAX_DIMS]; /* in elements */
    int64_t offset;               /* in elements, from storage->data */
    int64_t count;

    bool step;     /* belongs to the step */
    bool owned;    /* belongs to another object (a gradient, a parameter of a group) */
    bool buffer;   /* of a group: never requires a gradient */
    bool freed;    /* by the user */
    bool gradient; /* one that the user has, or made of one: not a constant to what is recorded */
    bool requires_grad;
    bool wide_grad;      /* made of parameters alone: its gradient is float32, as theirs are */
    bool retain_grad;    /* gd_retain_grad */
    bool grad_valid;     /* grad holds a gradient (and not garbage from an earlier step) */
    bool spent;          /* of a parameter: an update has used that gradient */
    bool shared;         /* of a gradient: others than backwards may write to it */
    bool sparse;         /* of a gradient: not all of it was touched */
    gd_tensor *grad;     /* of this shape, contiguous */
    gd_tensor *retained; /* with retain_grad: the gradients of finished walks, or NULL */

    gd_node *node; /* that made it; NULL for a leaf */
    int output;    /* its index among the outputs of the call that made it */
    uint64_t call; /* the number of that call; 0: not made by an op */
    bool awaited;  /* of a leaf: its gradient has not been reported yet by the running backward */
    const gd_node *reader; /* of an awaited leaf: the node after which its gradient is complete */
    struct gd_wanted *wanted; /* by the running gd_gradients, or NULL */

    gd_tensor *next, *previous; /* in one of the context's lists */
    char name[GD_NAME_SIZE];
};

/* ---- Accessors ---------------------------------------------------------------------------- */

#ifndef GD_ACCESSOR
#define GD_ACCESSOR extern inline __attribute__((gnu_inline))
#endif

GD_ACCESSOR size_t gd_dtype_size(gd_dtype dtype)
{
    static const unsigned char sizes[GD_DTYPE_COUNT] = {
        [GD_FLOAT32] = 4, [GD_FLOAT64] = 8, [GD_BFLOAT16] = 2, [GD_FLOAT16] = 2, [GD_INT32] = 4};
    return (unsigned)dtype < GD_DTYPE_COUNT ? sizes[dtype] : 0;
}

GD_ACCESSOR bool gd_dtype_is_real(gd_dtype dtype)
{
    return (unsigned)dtype < GD_DTYPE_COUNT && dtype != GD_INT32;
}

GD_ACCESSOR gd_dtype gd_tensor_dtype(const gd_tensor *t)
{
    return t ? t->dtype : GD_FLOAT32;
}

GD_ACCESSOR int gd_tensor_ndim(const gd_tensor *t)
{
    return t ? t->ndim : 0;
}

GD_ACCESSOR int64_t gd_tensor_dim(const gd_tensor *t, int axis)
{
    if (!t) return 0;
    if (axis < 0) axis += t->ndim;
    return axis >= 0 && axis < t->ndim ? t->shape[axis] : 0;
}

GD_ACCESSOR const int64_t *gd_tensor_shape(const gd_tensor *t)
{
    return t ? t->shape : NULL;
}

GD_ACCESSOR const int64_t *gd_tensor_strides(const gd_tensor *t)
{
    return t ? t->strides : NULL;
}

GD_ACCESSOR int64_t gd_tensor_count(const gd_tensor *t)
{
    return t ? t->count : 0;
}

GD_ACCESSOR void *gd_tensor_data(const gd_tensor *t)
{
    if (!t || !t->storage || !t->storage->data) return NULL;
    if (t->freed && !(t->step && *(const int *)t->ctx > 0)) return NULL; /* gd_is_lent */
    if (t->count == 0) return NULL;
    return (char *)t->storage->data + (size_t)t->offset * gd_dtype_size(t->dtype);
}

/* The stride of a dimension of size 1 is never used. */
GD_ACCESSOR bool gd_is_packed(int ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; stride *= shape[i--])
        if (shape[i] != 1 && strides[i] != stride) return false;
    return true;
}

/* A tensor without elements has no order. */
GD_ACCESSOR bool gd_tensor_is_contiguous(const gd_tensor *t)
{
    return t && (t->count == 0 || gd_is_packed(t->ndim, t->shape, t->strides));
}

GD_ACCESSOR bool gd_tensor_requires_grad(const gd_tensor *t)
{
    return t && t->requires_grad;
}

#endif
