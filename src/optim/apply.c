/* apply.c - one update: which kernel updates which range of the parameters' block (params.c), with
 * what numbers. kernels/optim has the rules themselves. */
#include "optim/optimizer.h"

static int64_t count_of(const gd_optimizer *optimizer, const gd_param *p)
{
    return optimizer->history[p - optimizer->params->list].of;
}

/* Elements [start, end) of the block, of which the state begins at `at`, of parameters like p. */
static gd_update_arrays arrays_of(const gd_optimizer *optimizer, const gd_param *p, int64_t start,
                                  int64_t end, int64_t at)
{
    const gd_params *params = optimizer->params;
    void *values = gd_block_at(params->values, start);
    gd_update_arrays arrays = {.w = values,
                               .g = gd_block_at(params->grads, start),
                               .count = &optimizer->counts[count_of(optimizer, p)],
                               .dtype = gd_params_state_dtype(params),
                               .rounded = {NULL, params->dtype},
                               .n = end - start};
    if (optimizer->master) {
        arrays.w = gd_block_at(optimizer->master, at);
        arrays.rounded.data = values;
    }
    for (int i = 0; i < GD_RULE_STATES; i++)
        arrays.state[i] = gd_block_at(optimizer->of_rule[i], at);
    return arrays;
}

/* Whether the rule does nothing to elements whose gradient is 0. */
static bool leaves_zeros(const gd_rule *rule)
{
    const bool decays = rule->weight_decay != 0;
    if (rule->kind == GD_RULE_SGD) return rule->momentum == 0 && !decays;
    if (rule->kind == GD_RULE_ADAGRAD) return rule->eps > 0 && !decays; /* 0 / 0 is NaN */
    return rule->lazy;
}

/* Updates elements [start, end) of the block, as far as they are in the slice. All of them belong
 * to parameters that are updated as `p` is. */
static void update_range(const gd_optimizer *optimizer, const gd_params_slice *slice, int64_t start,
                         int64_t end, const gd_param *p)
{
    if (start < slice->begin) start = slice->begin;
    if (end > slice->end) end = slice->end;
    if (start >= end) return;
    gd_context *ctx = optimizer->ctx;
    gd_update_arrays arrays = arrays_of(optimizer, p, start, end, slice->at + start - slice->begin);
    gd_rule rule = optimizer->rule;
    rule.rate *= p->rate;
    rule.weight_decay *= gd_param_decay(p);
    if (leaves_zeros(&rule)) arrays.touched = gd_touched_from(optimizer->params->grads, start);
    ctx->services->update->optimize(&arrays, &rule, optimizer->update, ctx);
}

/* A matrix, which is not divided: there is one slice. */
static void update_matrix(const gd_optimizer *optimizer, const gd_param *p)
{
    const gd_tensor *t = p->tensor;
    gd_context *ctx = optimizer->ctx;
    const gd_update_arrays arrays =
        arrays_of(optimizer, p, t->offset, t->offset + t->count, t->offset);
    gd_muon_rule rule = optimizer->muon;
    rule.rate *= p->rate;
    rule.weight_decay *= gd_param_decay(p);
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    ctx->services->update->muon(&arrays, t->shape[0], t->shape[1], &rule, optimizer->update, ctx);
    gd_frame_end(ctx, &frame);
}

/* Updates the parameters in as few ranges as their differences and frozen ones allow. */
static void update_slice(const gd_optimizer *optimizer, const gd_params_slice *slice)
{
    const gd_params *params = optimizer->params;
    const gd_param *first = NULL; /* of the range [start, end), which is not yet updated */
    int64_t start = 0, end = 0;
    for (int64_t i = 0; i < params->count; i++) {
        const gd_param *p = &params->list[params->order[i]];
        const gd_tensor *t = p->tensor;
        if (!t->requires_grad) continue;
        if (optimizer->has_muon && p->flags & GD_MUON) {
            update_matrix(optimizer, p);
            continue;
        }
        if (!first || t->offset != end || !gd_param_alike(first, p) ||
            count_of(optimizer, first) != count_of(optimizer, p)) {
            if (first) update_range(optimizer, slice, start, end, first);
            first = p;
            start = t->offset;
        }
        end = t->offset + gd_params_room(t);
    }
    if (first) update_range(optimizer, slice, start, end, first);
}

void gd_update_average(const gd_optimizer *optimizer, const gd_params_slice *slice, void *average,
                       const gd_update_state *state)
{
    gd_context *ctx = optimizer->ctx;
    void *values = gd_block_at(optimizer->params->values, slice->begin);
    gd_update_arrays arrays = {.w = average,
                               .g = values,
                               .dtype = optimizer->average->dtype,
                               .n = slice->end - slice->begin};
    if (optimizer->master) {
        arrays.g = gd_block_at(optimizer->master, slice->at);
        arrays.rounded = (gd_rounded){values, optimizer->params->dtype};
    }
    const gd_rule rule = {.kind = GD_RULE_AVERAGE, .rate = 1, .beta1 = optimizer->average_decay};
    ctx->services->update->optimize(&arrays, &rule, state, ctx);
}

/* Each slice is sent to the other ranks while the next one is updated; then rank 0's buffers are,
 * which the forwards of this step have changed, and whether that stays is known now. */
void gd_optimizer_apply(const gd_optimizer *optimizer)
{
    const gd_params *params = optimizer->params;
    gd_params_slice slice;
    for (int64_t i = 0; gd_params_slice_at(params, i, &slice); i++) {
        update_slice(optimizer, &slice);
        if (optimizer->average)
            gd_update_average(optimizer, &slice, gd_block_at(optimizer->average, slice.at),
                              optimizer->update);
        if (params->replica && params->replica->calls->gather(params->replica, i, params->values))
            return;
    }
    if (params->replica && params->replica->calls->send_buffers(params->replica)) return;
    if (!params->committed) return;
    optimizer->ctx->services->update->settle(
        gd_tensor_data(params->buffer_block), gd_tensor_data(params->committed),
        params->committed->count * (int64_t)sizeof(int32_t), optimizer->update, optimizer->ctx);
}
