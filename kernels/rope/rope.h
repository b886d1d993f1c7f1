/* rope.h - shared by rope and rope_qkv: their arguments, and the heads that they rotate. */
#ifndef GRADUS_ROPE_H
#define GRADUS_ROPE_H

#include "gradus/ops.h"
#include "kernel.h"

extern const gd_op gd_op_rope_qkv;

typedef struct gd_rope_args { /* as in gd_rope_options, with the base filled in */
    double base;
    int64_t position;
    bool interleaved, unused[7];
} gd_rope_args;

typedef struct gd_rope_qkv_args {
    gd_rope_args rope;
    int64_t kv_heads;
} gd_rope_qkv_args;

/* Of the gd_rope_args in an argument struct. From 2^53 on not every whole number is a double. */
#define ROPE_RANGES(type, rope)                                                           \
    {"base", GD_FIELD(type, rope base), DBL_TRUE_MIN, INFINITY, "more than 0"},           \
    {                                                                                     \
        "position", GD_FIELD(type, rope position), 0, 0x1p53 - 1, "0 to 9007199254740991" \
    }

/* Heads to move from one tensor to another, both [B, T, heads, 2 * pairs] of any strides, in
 * elements; the last stride of `to` is 1. `from` NULL means zeros. */
typedef struct rope_heads {
    void *to;
    const void *from;
    int64_t to_stride[3], from_stride[4], heads;
    bool turned; /* rotated by the angles; false: copied */
    bool add;    /* add to `to` */
} rope_heads;

/* The whole call. */
enum { ROPE_PARTS = 3 };
typedef struct rope_pass {
    rope_heads part[ROPE_PARTS];
    int64_t batches, positions, heads, pairs; /* heads of all parts */
    int parts;
    bool backward; /* the angles are negative */
    gd_rope_args angles;
} rope_pass;

#ifdef __cplusplus
extern "C" {
#endif
rope_pass rope_pass_of(const gd_call *call, bool backward);

gd_rope_args rope_args_of(const gd_rope_options *options);
/* kv_heads, beside the heads of qkv, input 0. */
gd_status rope_qkv_check(const gd_call *call, const gd_rope_qkv_args *args);

gd_status rope_backward_cuda(const gd_call *call);
gd_status rope_forward_cuda(const gd_call *call);
/* The same; angles, if not NULL, gets cosines and sines [T, D / 2, 2], in device memory. */
gd_status rope_forward_keep_angles(const gd_call *call, float *angles);
#ifdef __cplusplus
}
#endif

#endif
