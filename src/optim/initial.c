/* initial.c - how parameters and buffers begin, which is said before they have memory. */
#include "gradus/init.h"
#include "optim/params.h"

#include <math.h>

/* What is wanted instead of `init` for t; NULL: nothing. */
static const char *wanted_for(const gd_tensor *t, gd_init init)
{
    const bool gain = init.kind > GD_INIT_FAN;
    if (init.kind < GD_INIT_CONSTANT || init.kind > GD_INIT_ORTHOGONAL) return "a gd_init_kind";
    if (!isfinite(init.a) || !isfinite(init.b)) return "finite numbers";
    if (init.kind && !gd_dtype_is_real(t->dtype)) return "GD_INIT_CONSTANT for int32";
    if (init.kind == GD_INIT_UNIFORM && init.a > init.b) return "a <= b";
    if (init.kind == GD_INIT_NORMAL && init.b < 0) return "a deviation b of at least 0";
    if (init.kind >= GD_INIT_FAN && init.a < 0) return "a fan or gain a of at least 0";
    return gain && t->ndim < 2 ? "at least two dimensions, which have fans" : NULL;
}

static bool in_group(const gd_params *params, const gd_tensor *t)
{
    bool found = false;
    for (int64_t i = 0; i < params->count; i++) found = found || params->list[i].tensor == t;
    for (int64_t i = 0; i < params->buffers; i++) found = found || params->buffer[i] == t;
    return found;
}

gd_status gd_params_set_init(gd_params *params, gd_tensor *t, gd_init init)
{
    const char *who = "params_set_init";
    if (!params) return GD_ERROR_ARGUMENT;
    gd_context *ctx = params->ctx;
    if (gd_failed(ctx)) return ctx->status;
    if (params->values)
        return gd_fail(ctx, GD_ERROR_STATE, "%s: called after gd_params_finish, wanted before",
                       who);
    if (!in_group(params, t))
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: the tensor is not of the group, wanted a parameter or buffer", who);
    const char *wanted = wanted_for(t, init);
    if (wanted) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: \"%s\" %s has kind %d, a %g, b %g, wanted %s",
                       who, t->name, gd_shape_text(t).text, (int)init.kind, init.a, init.b, wanted);
    }
    int64_t i = 0;
    while (i < params->initials && params->initial[i].tensor != t) i++;
    if (!gd_host_grow(ctx, (void **)&params->initial, &params->initial_capacity, i + 1,
                      sizeof *params->initial, who))
        return ctx->status;
    params->initial[i] = (gd_initial){t, init};
    if (i == params->initials) params->initials++;
    return GD_OK;
}

static gd_status fill(gd_tensor *t, gd_init init)
{
    const double bound = init.a > 0 ? 1 / sqrt(init.a) : 0;
    switch (init.kind) {
    case GD_INIT_UNIFORM:
        return gd_random_uniform(t, init.a, init.b);
    case GD_INIT_NORMAL:
        return gd_random_normal(t, init.a, init.b);
    case GD_INIT_FAN:
        return gd_random_uniform(t, -bound, bound);
    case GD_INIT_XAVIER_UNIFORM:
        return gd_init_xavier_uniform(t, init.a);
    case GD_INIT_XAVIER_NORMAL:
        return gd_init_xavier_normal(t, init.a);
    case GD_INIT_KAIMING_UNIFORM:
        return gd_init_kaiming_uniform(t, GD_FAN_IN, init.a);
    case GD_INIT_KAIMING_NORMAL:
        return gd_init_kaiming_normal(t, GD_FAN_IN, init.a);
    case GD_INIT_ORTHOGONAL:
        return gd_init_orthogonal(t, init.a);
    default:
        return gd_tensor_fill(t, init.a);
    }
}

gd_status gd_params_begin(gd_params *params)
{
    for (int64_t i = 0; i < params->initials; i++)
        if (fill(params->initial[i].tensor, params->initial[i].init)) break;
    return gd_error_status(params->ctx);
}

void gd_initials_truncate(gd_params *params)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < params->initials; i++)
        if (in_group(params, params->initial[i].tensor))
            params->initial[kept++] = params->initial[i];
    params->initials = kept;
}
