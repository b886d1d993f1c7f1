/* attention_decode.h - the arguments of attention_decode, and its sizes by name. */
#ifndef GRADUS_ATTENTION_STEP_H
#define GRADUS_ATTENTION_STEP_H

#include "kernel.h"
#include "rope/rope.h"

typedef gd_rope_args attention_decode_args; /* without a position */

/* qkv [B, 1, H + 2 KV, D], keys and values [B, capacity, KV, D] */
typedef struct attention_decode_sizes {
    int64_t B, H, KV, D, capacity;
} attention_decode_sizes;

static inline attention_decode_sizes attention_decode_sizes_of(const gd_call *call)
{
    const int64_t *qkv = gd_tensor_shape(call->input[0]), *keys = gd_tensor_shape(call->input[1]);
    return (attention_decode_sizes){
        .B = qkv[0], .H = qkv[2] - 2 * keys[2], .KV = keys[2], .D = qkv[3], .capacity = keys[1]};
}

#endif
