/* rope_attention.h - the two calls, of rope_qkv and attention, that this op consists of. */
#ifndef GRADUS_ROPE_ATTENTION_H
#define GRADUS_ROPE_ATTENTION_H

#include "attention/attention.h"
#include "rope/rope.h"

typedef struct rope_attention_args {
    gd_rope_qkv_args rope;
    attention_args attention;
} rope_attention_args;

/* Saved: the log-sum-exp of attention; q, k and v; and the angles on a GPU, where its kernels may
 * use them (tensor_cores.h). */
enum { SAVE_LSE, SAVE_Q, SAVE_K, SAVE_V, SAVE_ANGLES, ROPE_ATTENTION_SAVES };

/* What q (i = 0), k or v is, from qkv [B, T, H + 2 KV, D]. */
static inline gd_spec part_spec(const gd_call *call, int i)
{
    const int64_t kv_heads = ((const rope_attention_args *)call->args)->rope.kv_heads;
    gd_spec spec = gd_spec_like(call->input[0]);
    spec.dtype = call->kernel_dtype;
    spec.shape[2] = i == 0 ? spec.shape[2] - 2 * kv_heads : kv_heads;
    return spec;
}

/* Two calls with the tensors that their pointers refer to; not to be copied. */
typedef struct rope_attention_calls {
    gd_call rope, attention;
    gd_tensor *part[4];  /* q, k, v, no mask */
    gd_tensor *dpart[4]; /* their gradients; none in a forward */
    bool accumulate[4];  /* false */
} rope_attention_calls;

#ifdef __cplusplus
extern "C" {
#endif
/* Those of a forward; q, k and v are the saved tensors, or temporary ones if there will be no
 * backward. Of a backward they are the saved ones, and their gradients are still to be set. */
gd_status rope_attention_open(const gd_call *call, rope_attention_calls *calls);
/* The backward as those of attention and rope_qkv, with temporary dq, dk and dv. */
gd_status rope_attention_backward_in_two(const gd_call *call, rope_attention_calls *calls);
gd_status rope_attention_forward_cuda(const gd_call *call);
gd_status rope_attention_backward_cuda(const gd_call *call);
#ifdef __cplusplus
}
#endif

#endif
