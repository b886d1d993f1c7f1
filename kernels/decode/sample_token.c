/* sample_token.c - the op: which token comes next. README.md says what it replaces. */
#include "decode/sample_token.h"
#include "arguments.h"

#include <math.h>

GD_KERNEL(sample_token_forward)

static gd_status check_whole(const gd_call *call, int i, bool fits, const char *wanted)
{
    const gd_tensor *t = call->input[i];
    if (fits && gd_tensor_dtype(t) == GD_INT32) return GD_OK;
    return gd_refuse(call, "%s is %s, wanted int32 %s", call->op->input_names[i], gd_kind(t).text,
                     wanted);
}

static gd_status sample_token_shape(const gd_call *call, gd_shapes *out)
{
    const sample_token_args *args = call->args;
    const gd_tensor *logits = call->input[0], *next = call->input[1], *ids = call->input[2];
    if (gd_check_real(call, 0)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_ndim(logits) < 1 || gd_tensor_count(logits) < 1 ||
        gd_tensor_count(logits) != gd_tensor_dim(logits, -1) || gd_tensor_count(logits) > INT32_MAX)
        return gd_refuse(call,
                         "logits has shape %s, wanted [V] or [..., V] of one row, V from 1 to %d",
                         gd_shape_text(logits).text, INT32_MAX);
    if (check_whole(call, 1, gd_tensor_ndim(next) == 1 && gd_tensor_count(next) == 2, "[2]") ||
        check_whole(call, 2, gd_tensor_ndim(ids) == 1, "[capacity]")) {
        return GD_ERROR_ARGUMENT;
    }
    if (!(args->temperature >= 0 && isfinite(args->temperature)))
        return gd_refuse(call, "temperature is %g, wanted a finite number, at least 0",
                         args->temperature);
    out->output[0] = (gd_spec){.dtype = GD_INT32};
    out->random_words = 1;
    return GD_OK;
}

static const sample_token_args likeliest = {0}, cold = {0.3}, warm = {1}, hot = {20};

/* GD_INDEX(n) draws the token and its position. */
#define CASE(case_name, case_args, V, capacity)                                                   \
    {                                                                                             \
        .name = case_name, .args = &case_args,                                                    \
        GD_INPUTS({.fixed = true, GD_NORMAL(0, 2), GD_DIMS(V)}, {GD_INDEX(capacity), GD_DIMS(2)}, \
                  {GD_INDEX(5), GD_DIMS(capacity)}),                                              \
        .may_be_empty = true                                                                      \
    }

static const gd_case cases[] = {
    CASE("likeliest", likeliest, 3000, 9), CASE("cold", cold, 1025, 40), CASE("one", warm, 1, 1),
    CASE("warm", warm, 50000, 5),          CASE("hot", hot, 300000, 3),
};

const gd_op gd_op_sample_token = {
    .name = "sample_token",
    .formula = "an id drawn from softmax(logits / temperature), which becomes the next token",
    .inputs = 3,
    .input_names = {"logits", "next", "ids"},
    .outputs = 1,
    .args_size = sizeof(sample_token_args),
    .plain_args = true,
    .updates_inputs = GD_BIT(1) | GD_BIT(2),
    .random = true,
    .shape = sample_token_shape,
    .forward = GD_ON_DEVICES(sample_token_forward),
    GD_CASES(cases),
};

gd_tensor *gd_sample_token(gd_tensor *logits, gd_tensor *next, gd_tensor *ids, double temperature)
{
    const sample_token_args args = {temperature};
    gd_tensor *const inputs[] = {logits, next, ids};
    return gd_apply(&gd_op_sample_token, inputs, 3, &args);
}
