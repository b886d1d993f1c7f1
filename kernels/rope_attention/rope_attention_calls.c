/* rope_attention_calls.c - the calls of rope_qkv and attention that the op consists of. */
#include "rope_attention/rope_attention.h"

gd_status rope_attention_open(const gd_call *call, rope_attention_calls *calls)
{
    const rope_attention_args *args = call->args;
    memset(calls, 0, sizeof *calls);
    for (int i = 0; i < 3; i++) {
        gd_tensor *saved = call->save[SAVE_Q + i];
        calls->part[i] = saved ? saved : gd_call_tensor(call, part_spec(call, i));
        if (!calls->part[i]) return gd_error_status(call->context);
    }
    calls->rope = calls->attention = *call;
    calls->rope.op = &gd_op_rope_qkv;
    calls->rope.args = &args->rope;
    calls->rope.output = calls->part, calls->rope.outputs = 3;
    calls->rope.doutput = calls->dpart;
    calls->attention.op = &gd_op_attention;
    calls->attention.args = &args->attention;
    calls->attention.input = calls->part, calls->attention.inputs = 4;
    calls->attention.save = &call->save[SAVE_LSE], calls->attention.saves = 1;
    calls->attention.dinput = calls->dpart;
    calls->attention.accumulate = calls->accumulate;
    return GD_OK;
}

gd_status rope_attention_backward_in_two(const gd_call *call, rope_attention_calls *calls)
{
    const gd_device device = gd_context_device(call->context);
    gd_status status = GD_OK;
    for (int i = 0; i < 3 && call->doutput[0]; i++) { /* without dy they stay NULL, for zeros */
        calls->dpart[i] = gd_call_tensor(call, part_spec(call, i));
        if (!calls->dpart[i]) return gd_error_status(call->context);
    }
    if (call->doutput[0]) status = gd_op_attention.backward[device](&calls->attention);
    return status ? status : gd_op_rope_qkv.backward[device](&calls->rope);
}
