/* plain_cpu.c - rope_attention as README.md derives it: the pairs of queries and keys are rotated,
 * one after the other, and go to attention's plain twin. It has the interface of the op's kernels,
 * which tests compare with it. */
#include "kernel_cpu.h"
#include "rope/formula.h"
#include "rope_attention/rope_attention.h"

gd_status GD_REAL_NAME(attention_plain_forward)(const gd_call *call);
gd_status GD_REAL_NAME(attention_plain_backward)(const gd_call *call);

/* q, k or v (which = 0, 1, 2), `part`, from the heads of qkv; backward: their gradients are added
 * to dqkv, rotated the other way. v is not rotated. */
static void rotate(const gd_call *call, int which, bool backward, const gd_tensor *t, REAL *part)
{
    const gd_rope_qkv_args *args = &((const rope_attention_args *)call->args)->rope;
    const int64_t *shape = gd_tensor_shape(t), *strides = gd_tensor_strides(t), D = shape[3];
    const int64_t KV = args->kv_heads, H = shape[2] - 2 * KV, heads = which ? KV : H;
    const int64_t first_head = which ? H + (which - 1) * KV : 0, pairs = D / 2;
    for (int64_t pair = 0; pair < shape[0] * shape[1] * heads * pairs; pair++) {
        const int64_t i = pair % pairs, row = pair / pairs, head = row % heads;
        const int64_t batch = row / heads / shape[1], position = row / heads % shape[1];
        const double rate = which < 2 ? pow(args->rope.base, -(double)i / (double)pairs) : 0;
        const double angle = (double)(args->rope.position + position) * rate;
        const REAL c = (REAL)cos(angle), s = (REAL)(backward ? -sin(angle) : sin(angle));
        const int64_t one = args->rope.interleaved ? 2 * i : i;
        const int64_t other = args->rope.interleaved ? 2 * i + 1 : i + pairs;
        REAL *x = (REAL *)gd_data(t) + batch * strides[0] + position * strides[1] +
                  (first_head + head) * strides[2];
        REAL *x_one = x + one * strides[3], *x_other = x + other * strides[3];
        REAL *p = part + row * D;
        if (which == 0) GD_STEP("cos", c);
        if (which == 0) GD_STEP("sin", backward ? -s : s);
        if (!backward) {
            p[one] = rope_first(*x_one, *x_other, c, s);
            p[other] = rope_second(*x_one, *x_other, c, s);
        } else {
            const REAL a = p[one], b = p[other];
            GD_STEP(which == 0 ? "dq" : which == 1 ? "dk" : "dv", a);
            GD_STEP(which == 0 ? "dq" : which == 1 ? "dk" : "dv", b);
            *x_one += rope_first(a, b, c, s); /* [dqkv] */
            *x_other += rope_second(a, b, c, s);
        }
    }
}

gd_status GD_REAL_NAME(rope_attention_plain_forward)(const gd_call *call)
{
    rope_attention_calls calls;
    if (rope_attention_open(call, &calls)) return gd_error_status(call->context);
    for (int i = 0; i < 3; i++) rotate(call, i, false, call->input[0], gd_data(calls.part[i]));
    return GD_REAL_NAME(attention_plain_forward)(&calls.attention);
}

gd_status GD_REAL_NAME(rope_attention_plain_backward)(const gd_call *call)
{
    rope_attention_calls calls;
    const gd_tensor *dqkv = call->dinput[0];
    if (rope_attention_open(call, &calls)) return gd_error_status(call->context);
    for (int i = 0; i < 3; i++) {
        calls.dpart[i] = gd_call_tensor(call, part_spec(call, i));
        if (!calls.dpart[i]) return gd_error_status(call->context);
    }
    const gd_status status = GD_REAL_NAME(attention_plain_backward)(&calls.attention);
    gd_dx_sum(call, 0);
    for (int i = 0; !status && i < 3; i++) rotate(call, i, true, dqkv, gd_data(calls.dpart[i]));
    return status;
}
