/* plain_cpu.c - gather and scatter_add as README.md derives them: a loop over the elements of the
 * index. It has the interface of axis_cpu.c's kernels, which tests compare with it. */
#include "axis/axis.h"
#include "loops.h"

/* Element t_i of the larger tensor, and i of the smaller. */
typedef void pair(REAL *large, int64_t t_i, REAL *small, int64_t i);

static void take(REAL *x, int64_t t_i, REAL *y, int64_t i)
{
    y[i] = x[t_i];
}

static void gather_gradient(REAL *dx, int64_t t_i, REAL *dy, int64_t i)
{
    dx[t_i] += dy[i]; /* [gather] */
}

static void add(REAL *x, int64_t t_i, REAL *s, int64_t i)
{
    x[t_i] += s[i];
}

static void scatter_gradient(REAL *dy, int64_t t_i, REAL *ds, int64_t i)
{
    ds[i] += dy[t_i]; /* [scatter_add] */
}

/* For each element of `like`: the index may have one line for all of its lines. */
static gd_status each_pair(const gd_call *call, const gd_tensor *like, const gd_tensor *large,
                           const gd_tensor *small, pair *function)
{
    enum { INDEX, LARGE, SMALL };
    const int axis = ((const gd_axis_args *)call->args)->axis;
    const int32_t *index = gd_data(call->input[1]);
    int64_t strides[GD_MAX_DIMS];
    memcpy(strides, gd_tensor_strides(large), (size_t)gd_tensor_ndim(large) * sizeof *strides);
    strides[axis] = 0;
    gd_walk walk = gd_walk_like(like);
    gd_walk_add_tensor(&walk, call->input[1]);
    gd_walk_add(&walk, gd_tensor_ndim(large), gd_tensor_shape(large), strides);
    gd_walk_add_tensor(&walk, small);
    for (int64_t i = 0; i < gd_tensor_count(like); i++, gd_walk_next(&walk)) {
        const int64_t t = index[walk.offset[INDEX]];
        function(gd_data(large), walk.offset[LARGE] + t * gd_tensor_strides(large)[axis],
                 gd_data(small), walk.offset[SMALL]);
    }
    return GD_OK;
}

static gd_status gather_backward(const gd_call *call)
{
    const gd_tensor *dy = call->doutput[0];
    return gd_dx_sum(call, 0) ? each_pair(call, dy, call->dinput[0], dy, gather_gradient) : GD_OK;
}

static gd_status scatter_add_forward(const gd_call *call)
{
    const gd_tensor *y = call->output[0];
    gd_copy_cpu(gd_layout_of(y), gd_layout_of(call->input[0]), call->context);
    return each_pair(call, call->input[1], y, call->input[2], add);
}

/* dx may be dy. */
static gd_status scatter_add_backward(const gd_call *call)
{
    const gd_tensor *dy = call->doutput[0], *ds = call->dinput[2];
    REAL *dx = gd_dx(call, 0);
    for (int64_t e = 0; dx && e < gd_tensor_count(dy); e++)
        gd_store(dx, e, (double)gd_dy(call, 0)[e], gd_adds(call, 0));
    return gd_dx_sum(call, 2) ? each_pair(call, call->input[1], dy, ds, scatter_gradient) : GD_OK;
}

GD_KERNELS_OF_REAL(gather_plain,
                   each_pair(call, call->output[0], call->input[0], call->output[0], take),
                   gather_backward(call))
GD_KERNELS_OF_REAL(scatter_add_plain, scatter_add_forward(call), scatter_add_backward(call))
