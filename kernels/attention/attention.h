/* attention.h - the arguments of attention, and its sizes by name. */
#ifndef GRADUS_ATTENTION_H
#define GRADUS_ATTENTION_H

#include "kernel.h"

extern const gd_op gd_op_attention;

typedef struct attention_args {
    bool causal, unused[7];
    double scale;   /* of the scores */
    double dropout; /* the probability that a weight becomes 0 */
    int64_t window; /* keys at this distance from the query or more are not seen; 0: no window */
} attention_args;

/* Of the attention_args in an argument struct. */
#define ATTENTION_RANGES(type, attention)                                                    \
    {"scale", GD_FIELD(type, attention scale), -DBL_MAX, DBL_MAX, "a finite number"},        \
        {"dropout", GD_FIELD(type, attention dropout), 0, 1 - DBL_EPSILON / 2,               \
         "0 <= dropout < 1"},                                                                \
    {                                                                                        \
        "window", GD_FIELD(type, attention window), 0, INFINITY, "at least 1, or 0 for none" \
    }

#ifdef __cplusplus
extern "C" {
#endif
/* options may be NULL; the last dimension of q is D. */
struct gd_attention_options;
attention_args attention_args_of(const struct gd_attention_options *options, const gd_tensor *q);
gd_status attention_forward_cuda(const gd_call *call);
gd_status attention_backward_cuda(const gd_call *call);
#ifdef __cplusplus
}
#endif

/* q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, E]; G = H / KV query heads read one key head. */
typedef struct attention_sizes {
    int64_t B, T, S, H, KV, G, D, E;
} attention_sizes;

static inline attention_sizes attention_sizes_of(const gd_call *call)
{
    const int64_t *q = gd_tensor_shape(call->input[0]), *v = gd_tensor_shape(call->input[2]);
    return (attention_sizes){.B = q[0],
                             .T = q[1],
                             .S = v[1],
                             .H = q[2],
                             .KV = v[2],
                             .G = v[2] ? q[2] / v[2] : 0,
                             .D = q[3],
                             .E = v[3]};
}

/* How many keys query t sees: 0 .. t + S - T of S, or all of them. */
static inline int64_t attention_visible(const attention_sizes *z, bool causal, int64_t t)
{
    return causal ? gd_max64(0, t + 1 + z->S - z->T) : z->S;
}

/* With a window query t, whose own place among the keys is t + S - T, sees keys from the first to
 * before the end. */
static inline int64_t attention_first(const attention_sizes *z, int64_t window, int64_t t)
{
    return window ? gd_max64(0, t + 1 + z->S - z->T - window) : 0;
}

static inline int64_t attention_end(const attention_sizes *z, bool causal, int64_t window,
                                    int64_t t)
{
    const int64_t end = attention_visible(z, causal, t);
    return window ? gd_max64(0, gd_min64(end, t + z->S - z->T + window)) : end;
}

#endif
