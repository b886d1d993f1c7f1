/* gather.c - the ops gather and scatter_add: elements chosen, and added, by their place along one
 * axis. README.md has the derivations. */
#include "axis/axis.h"
#include "derivation.h"
#include "arguments.h"

GD_KERNEL_PAIR(gather)
GD_KERNEL_PAIR(scatter_add)

/* Fails unless index (input 1) is int32 and has the dimensions of input i, each no larger; that of
 * the axis may be, if `free_axis`. An index of size 1 where input i is larger was often meant for
 * all, as it would be if it were broadcast. */
static gd_status check_index(const gd_call *call, int i, bool free_axis)
{
    const gd_axis_args *args = call->args;
    const gd_tensor *index = call->input[1], *t = call->input[i];
    const int ndim = gd_tensor_ndim(t);
    int thin = -1;
    bool fits = gd_tensor_dtype(index) == GD_INT32 && gd_tensor_ndim(index) == ndim;
    for (int d = 0; fits && d < ndim; d++) {
        const int64_t n = gd_tensor_dim(index, d);
        if (free_axis && d == args->axis) continue;
        fits = args->shared ? n == 1 : n <= gd_tensor_dim(t, d);
        if (!args->shared && n == 1 && gd_tensor_dim(t, d) > 1) thin = d;
    }
    if (fits && gd_tensor_count(index) > 0 && gd_tensor_dim(call->input[0], args->axis) == 0)
        return gd_refuse(call,
                         "index is %s, but axis %d of x %s has no elements, wanted no indices",
                         gd_shape_text(index).text, args->axis, gd_shape_text(call->input[0]).text);
    if (fits && thin >= 0)
        gd_notice(
            call->context, GD_NOTICE_INDEX,
            "%s: index %s has one element along axis %d, where %s %s has %lld: the others are left "
            "out; call gd_expand for an index of all",
            call->op->name, gd_shape_text(index).text, thin, gd_input_name(call->op, i).text,
            gd_shape_text(t).text, (long long)gd_tensor_dim(t, thin));
    if (fits) return GD_OK;
    return gd_refuse(
        call, "index is %s, wanted int32 with %d dimensions, none larger than that of %s %s%s",
        gd_kind(index).text, ndim, gd_input_name(call->op, i).text, gd_shape_text(t).text,
        free_axis ? " except along the axis" : "");
}

static gd_status gather_shape(const gd_call *call, gd_shapes *out)
{
    /* Words of 32 bits are moved as floats are, which changes none. */
    if (check_index(call, 0, true)) return GD_ERROR_ARGUMENT;
    const gd_axis_args *args = call->args;
    if (args->shared) out->output[0] = gd_spec_like(call->input[0]);
    out->output[0].shape[args->axis] = gd_tensor_dim(call->input[1], args->axis);
    return GD_OK;
}

static gd_status scatter_add_shape(const gd_call *call, gd_shapes *out)
{
    (void)out;
    return check_index(call, 0, true) || check_index(call, 2, false) ? GD_ERROR_ARGUMENT : GD_OK;
}

/* dx[..., index[..., i, ...], ...] += dy[..., i, ...] */
static void gather_derivative(const gd_call *call)
{
    const gd_axis_args *args = call->args;
    gd_tensor *x = call->input[0], *index = call->input[1], *dy = call->doutput[0];
    if (args->shared) index = repeated_as(index, dy);
    call->dinput[0] = gd_scatter_add(all_of(x, 0), args->axis, index, dy);
}

/* dx = dy, dsrc = what dy has at the places of the index, and 0 beyond it. */
static void scatter_add_derivative(const gd_call *call)
{
    const gd_axis_args *args = call->args;
    gd_tensor *index = call->input[1], *dy = call->doutput[0];
    if (call->dinput[0]) call->dinput[0] = dy;
    if (!call->dinput[2]) return;
    gd_tensor *g = gd_gather(dy, args->axis, index);
    for (int d = 0; d < gd_tensor_ndim(dy); d++) g = among_zeros(g, call->input[2], d, 0);
    call->dinput[2] = g;
}

static const gd_axis_args first = {.axis = 0}, second = {.axis = 1}, third = {.axis = 2},
                          shared = {.axis = 1, .shared = true};

static const gd_case gather_cases[] = {
    {"rows", &second, GD_INPUTS({GD_DIMS(4, 5)}, {GD_INDEX(5), GD_DIMS(4, 3)})},
    {"every_index_repeated", &second, GD_INPUTS({GD_DIMS(2, 3)}, {GD_INDEX(3), GD_DIMS(2, 40)})},
    {"one_of_each_row", &second, GD_INPUTS({GD_DIMS(6, 9)}, {GD_INDEX(9), GD_DIMS(6, 1)})},
    {"first_axis", &first, GD_INPUTS({GD_DIMS(7, 3)}, {GD_INDEX(7), GD_DIMS(4, 3)})},
    {"middle_of_fewer", &second, GD_INPUTS({GD_DIMS(3, 5, 4)}, {GD_INDEX(5), GD_DIMS(2, 6, 3)})},
    {"last_of_three", &third, GD_INPUTS({GD_DIMS(2, 3, 70)}, {GD_INDEX(70), GD_DIMS(2, 3, 9)})},
    {"long_lines", &second, GD_INPUTS({GD_DIMS(2, 600)}, {GD_INDEX(3), GD_DIMS(2, 400)})},
    {"one_for_all_lines", &shared,
     GD_INPUTS({GD_DIMS(3, 520, 2)}, {GD_INDEX(9), GD_DIMS(1, 70, 1)})},
    {"one", &first, GD_INPUTS({GD_DIMS(1)}, {GD_INDEX(1), GD_DIMS(1)})},
    {"nothing", &second, GD_INPUTS({GD_DIMS(3, 4)}, {GD_INDEX(4), GD_DIMS(3, 0)})},
    {"nothing_of_long_lines", &shared,
     GD_INPUTS({GD_DIMS(3, 520, 2)}, {GD_INDEX(9), GD_DIMS(1, 0, 1)})},
};

static const gd_case scatter_add_cases[] = {
    {"rows", &second, GD_INPUTS({GD_DIMS(4, 5)}, {GD_INDEX(5), GD_DIMS(4, 3)}, {GD_DIMS(4, 3)})},
    {"every_index_repeated", &second,
     GD_INPUTS({GD_DIMS(2, 3)}, {GD_INDEX(3), GD_DIMS(2, 40)}, {GD_DIMS(2, 40)})},
    {"one_to_each_row", &second,
     GD_INPUTS({GD_DIMS(6, 9)}, {GD_INDEX(9), GD_DIMS(6, 1)}, {GD_DIMS(6, 1)})},
    {"first_axis", &first,
     GD_INPUTS({GD_DIMS(7, 3)}, {GD_INDEX(7), GD_DIMS(4, 3)}, {GD_DIMS(4, 3)})},
    {"middle_of_more", &second,
     GD_INPUTS({GD_DIMS(3, 5, 4)}, {GD_INDEX(5), GD_DIMS(2, 6, 3)}, {GD_DIMS(4, 7, 3)})},
    {"long_lines", &second,
     GD_INPUTS({GD_DIMS(2, 600)}, {GD_INDEX(3), GD_DIMS(2, 90)}, {GD_DIMS(2, 90)})},
    {"one", &first, GD_INPUTS({GD_DIMS(1)}, {GD_INDEX(1), GD_DIMS(1)}, {GD_DIMS(1)})},
    {"nothing", &second, GD_INPUTS({GD_DIMS(3, 4)}, {GD_INDEX(4), GD_DIMS(3, 0)}, {GD_DIMS(3, 0)}),
     .may_be_empty = true},
};

#define GATHER                                                                               \
    .signature = "x:any index:int32[...] -> y[...]", .ranges = gd_axis_ranges,               \
    GD_ARGS(gd_axis_args), .backward_reads_inputs = GD_BIT(1), GD_BUILT_IN, .strided = true, \
    .shape = gather_shape, .forward = GD_ON_DEVICES(gather_forward),                         \
    .backward = GD_ON_DEVICES(gather_backward), .derivative = gather_derivative

const gd_op gd_op_gather = {
    .name = "gather",
    .formula = "y[..., i, ...] = x[..., index[..., i, ...], ...]",
    GATHER,
    GD_CASES(gather_cases),
};

/* The same by the name of the function, for its errors. */
static const gd_op index_select = {
    .name = "index_select",
    .formula = "y[..., i, ...] = x[..., index[i], ...]",
    GATHER,
};

const gd_op gd_op_scatter_add = {
    .formula = "y = x; y[..., index[..., i, ...], ...] += src[..., i, ...]",
    .signature = "x[...] index:int32 src -> y[...]",
    .ranges = gd_axis_ranges,
    GD_ARGS(gd_axis_args),
    .backward_reads_inputs = GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0),
    .strided = true,
    .shape = scatter_add_shape,
    GD_KERNELS(scatter_add),
    .derivative = scatter_add_derivative,
    GD_CASES(scatter_add_cases),
};

gd_tensor *gd_gather(gd_tensor *x, int axis, gd_tensor *index)
    GD_APPLIES(gather, ((gd_axis_args[]){gd_axis_args_of(x, axis)}), x, index)

gd_tensor *gd_index_select(gd_tensor *x, int axis, gd_tensor *index)
{
    static const gd_op select = {
        .name = "index_select", .signature = "x:any index:int32[K]", .ranges = gd_axis_ranges};
    gd_axis_args args = gd_axis_args_of(x, axis);
    args.shared = true;
    if (!gd_accepts(&select, (gd_tensor *[]){x, index}, 2, &args)) return NULL;
    int64_t line[GD_MAX_DIMS];
    for (int d = 0; d < gd_tensor_ndim(x); d++)
        line[d] = d == args.axis ? gd_tensor_dim(index, 0) : 1;
    gd_tensor *lines = gd_reshape(index, gd_tensor_ndim(x), line);
    return gd_apply(&index_select, (gd_tensor *[]){x, lines}, 2, &args);
}

gd_tensor *gd_scatter_add(gd_tensor *x, int axis, gd_tensor *index, gd_tensor *src)
    GD_APPLIES(scatter_add, ((gd_axis_args[]){gd_axis_args_of(x, axis)}), x, index, src)
